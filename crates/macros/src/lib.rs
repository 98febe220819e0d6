//! The attribute macros of the crate `libris`.

mod attribute;
mod block;
mod function;
mod generate;

use proc_macro::TokenStream;
use quote::quote;

/// Implements [`Source`](https://docs.rs/libris) for the type of an `impl` block whose functions are resources.
///
/// ```
/// struct Notes(Vec<String>);
///
/// #[libris::resources]
/// impl Notes {
///     /// How many notes there are.
///     #[resource("notes://count")]
///     fn count(&self) -> String {
///         self.0.len().to_string()
///     }
///
///     /// One note, by its number.
///     #[resource("notes://{number}", title = "Note", mime = "text/markdown")]
///     async fn note(&self, number: usize) -> Option<String> {
///         self.0.get(number).cloned()
///     }
///
///     #[complete("notes://{number}", number)]
///     fn numbers(&self) -> Vec<String> {
///         (0..self.0.len()).map(|number| number.to_string()).collect()
///     }
///
///     #[list("notes://{number}")]
///     fn all(&self) -> Vec<String> {
///         self.numbers()
///     }
/// }
///
/// let serve = libris::serve(Notes(vec!["# Milk".into()]));
/// ```
///
/// Functions may be `async` or not, and take `&self`. Functions without an attribute are not resources. All functions
/// can still be called directly.
#[proc_macro_attribute]
pub fn resources(arguments: TokenStream, item: TokenStream) -> TokenStream {
    block::expand(arguments.into(), item.into()).into()
}

/// Makes a function of a block with [`macro@resources`] a resource, or, with a URI template, many resources.
///
/// ```
/// # struct Docs;
/// #[libris::resources]
/// impl Docs {
///     /// One document. This comment is its description.
///     #[resource(
///         "docs://documents/{doc_id}{?version,tag*}",
///         name = "document",
///         title = "Document",
///         mime = "text/markdown",
///         icon = "https://docs.example/document.png",
///         audience = ["user", "assistant"],
///         priority = 0.8,
///         cache = "300s"
///     )]
///     async fn document(&self, doc_id: u64, version: Option<u32>, tag: Vec<String>) -> libris::Result<String> {
///         Ok(format!("# {doc_id} {version:?} {tag:?}"))
///     }
/// }
/// ```
///
/// The parameters are the variables of the template, by name. `T` is any type that implements `FromStr`:
///
/// | in the template | parameter |
/// |---|---|
/// | `{id}`, `{+path}` | `T` or `&str` |
/// | `{?version}`, `{&page}`, `{/rest}`, `{.ext}`, `{#part}`, `{;a}` (optional) | `Option<T>` |
/// | `{?tag*}` | `Vec<T>` |
///
/// A function may also take
/// - `&Context`, to report the progress of a long read;
/// - `Identity`, the authenticated caller, or `Option<Identity>` to accept anonymous callers too;
/// - `&Uri`, the requested URI.
///
/// With `cache`, a result is cached for this duration, and concurrent reads share one call (single-flight). See
/// `IntoContents` for the return types.
#[proc_macro_attribute]
pub fn resource(_: TokenStream, item: TokenStream) -> TokenStream {
    misplaced("resource", item)
}

/// Completes a variable of a template, in a block with [`macro@resources`]. A function whose values depend on the caller also
/// takes `&Context` or `Option<Identity>`.
///
/// ```
/// # struct Weather;
/// #[libris::resources]
/// impl Weather {
///     #[resource("weather://{country}/{city}")]
///     fn weather(&self, country: &str, city: &str) -> String {
///         format!("sun in {city}, {country}")
///     }
///
///     /// Without a parameter for the typed text, the library selects the values that begin with it.
///     #[complete("weather://{country}/{city}", country)]
///     fn countries(&self) -> Vec<&'static str> {
///         vec!["France", "Norway"]
///     }
///
///     /// With the typed text, the function selects the values itself. If the client has already sent values for
///     /// other variables, the function gets them as `Some`.
///     #[complete("weather://{country}/{city}", city)]
///     async fn cities(&self, typed: &str, country: Option<String>) -> Vec<String> {
///         let all = if country.as_deref() == Some("Norway") { ["Oslo"] } else { ["Paris"] };
///         all.iter().filter(|city| city.starts_with(typed)).map(|city| city.to_string()).collect()
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn complete(_: TokenStream, item: TokenStream) -> TokenStream {
    misplaced("complete", item)
}

/// Lists the resources of a template, in a block with [`macro@resources`]. A function whose list depends on the caller also
/// takes `&Context` or `Option<Identity>`.
///
/// ```
/// use libris::Instance;
///
/// # struct Docs;
/// #[libris::resources]
/// impl Docs {
///     #[resource("docs://{lang}/{id}")]
///     fn document(&self, lang: &str, id: u64) -> String {
///         format!("{id} in {lang}")
///     }
///
///     #[list("docs://{lang}/{id}")]
///     async fn documents(&self) -> Vec<Instance> {
///         vec![Instance::new().variable("lang", "en").variable("id", 7).title("The handbook")]
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn list(_: TokenStream, item: TokenStream) -> TokenStream {
    misplaced("list", item)
}

/// Makes a function a prompt, in a block with [`macro@resources`].
///
/// ```
/// use libris::{PromptMessage, Uri};
///
/// # struct Notes;
/// #[libris::resources]
/// impl Notes {
///     #[resource("notes://{number}")]
///     fn note(&self, number: u64) -> String {
///         format!("note {number}")
///     }
///
///     /// Sums up a note. This comment is the description of the prompt.
///     #[prompt(title = "Sum up", resources = ["notes://{number}"])]
///     fn sum_up(&self, number: u64, language: Option<String>) -> libris::Result<Vec<PromptMessage>> {
///         let language = language.as_deref().unwrap_or("English");
///         Ok(vec![
///             PromptMessage::user(format!("Sum up this note in {language}.")),
///             PromptMessage::user(Uri::parse(&format!("notes://{number}"))?),
///         ])
///     }
/// }
/// ```
///
/// The parameters are the arguments of the prompt. Their types must implement `FromStr`; an `Option` is an optional
/// argument. A function may also take `&Context` or `Option<Identity>`.
///
/// The keys of the attribute are `name` (default: the name of the function), `title`, `description`, `icon` and
/// `resources`. `resources` are the resources that the messages embed, as URIs, or as templates whose variables are
/// arguments of the prompt. A caller without the right to read them does not see the prompt. The arguments are
/// completed like the variables of these templates. See `IntoPromptMessages` for the return types.
#[proc_macro_attribute]
pub fn prompt(_: TokenStream, item: TokenStream) -> TokenStream {
    misplaced("prompt", item)
}

/// Marks the function that returns the `Notifier`, with which the program reports changes, in a block with
/// [`macro@resources`].
///
/// ```
/// use libris::Notifier;
///
/// struct Feed { notifier: Notifier }
///
/// #[libris::resources]
/// impl Feed {
///     #[resource("feed://latest")]
///     fn latest(&self) -> &'static str {
///         "news"
///     }
///
///     #[changes]
///     fn changes(&self) -> &Notifier {
///         &self.notifier
///     }
/// }
///
/// let feed = Feed { notifier: Notifier::new() };
/// feed.notifier.updated("feed://latest")?;
/// # Ok::<(), libris::Error>(())
/// ```
#[proc_macro_attribute]
pub fn changes(_: TokenStream, item: TokenStream) -> TokenStream {
    misplaced("changes", item)
}

/// The error for an attribute outside of a `#[resources]` block. `#[resources]` removes the attributes of its functions
/// before they are expanded, so an expansion means that `#[resources]` is missing.
fn misplaced(name: &str, item: TokenStream) -> TokenStream {
    let message =
        format!("`#[{name}]` is only valid on a function of an `impl` block with `#[libris::resources]`");
    let item = proc_macro2::TokenStream::from(item);
    quote!(::core::compile_error!(#message); #item).into()
}
