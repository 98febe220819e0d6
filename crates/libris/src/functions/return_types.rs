//! The return types of resource, completion and list functions.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use libris_core::uri_template::Variables;
use libris_core::{Completion, Content, ContentBody, Contents, Error, Resource, Result, Uri, UriTemplate};
use serde::Serialize;

/// A return type of a resource function.
///
/// | type | contents |
/// |---|---|
/// | `String`, `&str`, `Cow<str>`, `Box<str>`, `Arc<str>` | text |
/// | `Vec<u8>`, `Bytes`, `&[u8]` | bytes |
/// | [`Json<T>`](Json) | the value, serialised as JSON |
/// | [`Content`], `Vec<Content>`, [`Contents`] | unchanged |
/// | `Option` of any of these | `None` gives the error [`NotFound`](Error::NotFound) |
/// | `Result` of any of these | a [`libris::Error`](Error), or one in the `source()` chain, is sent to the caller; any other error is logged, and the caller learns only that the read failed |
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the content of a resource",
    label = "`{Self}` does not implement `IntoContents`",
    note = "return text (`String`), bytes (`Vec<u8>`), `libris::Json<T>` of anything that serialises, \
            `libris::Content`, or an `Option` or a `Result` of one of these"
)]
pub trait IntoContents {
    /// The contents of `uri`; `mime` is the declared media type.
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents>;
}

fn one(uri: &Uri, mime: &str, body: ContentBody) -> Result<Contents> {
    Ok(Content { uri: uri.clone(), mime: Some(mime.to_owned()), body, meta: None }.into())
}

const TEXT: &str = "text/plain";
const BYTES: &str = "application/octet-stream";
pub(super) const JSON: &str = "application/json";

impl IntoContents for String {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        one(uri, mime.unwrap_or(TEXT), ContentBody::Text(self))
    }
}

impl IntoContents for &str {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        self.to_owned().into_contents(uri, mime)
    }
}

impl IntoContents for Box<str> {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        self.into_string().into_contents(uri, mime)
    }
}

impl IntoContents for Arc<str> {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        (*self).into_contents(uri, mime)
    }
}

impl IntoContents for Cow<'_, str> {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        self.into_owned().into_contents(uri, mime)
    }
}

impl IntoContents for Bytes {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        one(uri, mime.unwrap_or(BYTES), ContentBody::Bytes(self))
    }
}

impl IntoContents for Vec<u8> {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        Bytes::from(self).into_contents(uri, mime)
    }
}

impl IntoContents for &[u8] {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        self.to_vec().into_contents(uri, mime)
    }
}

impl<const N: usize> IntoContents for &[u8; N] {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        self.to_vec().into_contents(uri, mime)
    }
}

impl IntoContents for Content {
    fn into_contents(self, _uri: &Uri, _mime: Option<&str>) -> Result<Contents> {
        Ok(self.into())
    }
}

impl IntoContents for Vec<Content> {
    fn into_contents(self, _uri: &Uri, _mime: Option<&str>) -> Result<Contents> {
        Ok(self.into())
    }
}

impl IntoContents for Contents {
    fn into_contents(self, _uri: &Uri, _mime: Option<&str>) -> Result<Contents> {
        Ok(self)
    }
}

impl<T: IntoContents> IntoContents for Option<T> {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        self.ok_or_else(|| Error::NotFound(uri.clone()))?.into_contents(uri, mime)
    }
}

impl<T: IntoContents, E: Into<Box<dyn std::error::Error + Send + Sync>>> IntoContents for Result<T, E> {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        self.map_err(|error| public_error(error, "read the resource"))?.into_contents(uri, mime)
    }
}

/// The error itself if it is a `libris::Error`; else the first `libris::Error` in its `source()` chain that may be sent
/// to callers; else an `Error::Failed`, whose cause is only logged.
pub(super) fn public_error(
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    doing: &'static str,
) -> Error {
    let error = match error.into().downcast::<Error>() {
        Ok(error) => return *error,
        Err(error) => error,
    };
    let mut cause = error.source();
    while let Some(next) = cause {
        if let Some(public) = next.downcast_ref::<Error>().and_then(Error::public_copy) {
            return public;
        }
        cause = next.source();
    }
    Error::failed(doing, error)
}

/// A value that is serialised as JSON.
///
/// ```
/// use libris::Json;
///
/// struct Forecasts;
///
/// #[libris::resources]
/// impl Forecasts {
///     /// The weather of tomorrow.
///     #[resource("weather://tomorrow")]
///     fn tomorrow(&self) -> Json<[(&'static str, i32); 2]> {
///         Json([("Paris", 21), ("Oslo", 14)])
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoContents for Json<T> {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        let text = serde_json::to_string(&self.0)
            .map_err(|cause| Error::failed("write the resource as JSON", cause))?;
        one(uri, mime.unwrap_or(JSON), ContentBody::Text(text))
    }
}

/// A return type of a `#[complete]` function: a `Vec` of strings (best first), a [`Completion`], or a `Result` of one
/// of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a completion",
    label = "`{Self}` does not implement `IntoCompletion`",
    note = "return `Vec<String>`, `Vec<&str>`, `libris::Completion`, or a `Result` of one of these"
)]
pub trait IntoCompletion {
    /// Converts to a completion. A `Vec` gives the values that begin with `typed`, ignoring case (all values if `typed`
    /// is `None`), but only the first `limit` of them. A [`Completion`] is returned unchanged.
    fn into_completion(self, typed: Option<&str>, limit: usize) -> Result<Completion>;
}

impl IntoCompletion for Completion {
    fn into_completion(self, _typed: Option<&str>, _limit: usize) -> Result<Completion> {
        Ok(self)
    }
}

impl<S: Into<String> + AsRef<str>> IntoCompletion for Vec<S> {
    fn into_completion(self, typed: Option<&str>, limit: usize) -> Result<Completion> {
        Ok(Completion::of(self, typed.unwrap_or_default(), limit))
    }
}

impl<T: IntoCompletion, E: Into<Box<dyn std::error::Error + Send + Sync>>> IntoCompletion for Result<T, E> {
    fn into_completion(self, typed: Option<&str>, limit: usize) -> Result<Completion> {
        self.map_err(|error| public_error(error, "complete the variable"))?.into_completion(typed, limit)
    }
}

/// One resource of a template, returned by a `#[list]` function.
///
/// ```
/// use libris::Instance;
///
/// let one = Instance::of("handbook");
/// let other = Instance::new().variable("doc_id", "handbook").variable("lang", "en").title("The handbook");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Instance {
    /// The value of the only required variable, whatever its name.
    only: Option<String>,
    variables: Variables,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    size: Option<u64>,
    modified: Option<jiff::Timestamp>,
}

impl Instance {
    /// An instance without values; add them with [`variable`](Self::variable).
    pub fn new() -> Self {
        Self::default()
    }

    /// The instance with this value, for a template with one required variable.
    pub fn of(value: impl Display) -> Self {
        Self { only: Some(value.to_string()), ..Self::default() }
    }

    /// Sets the value of a variable.
    pub fn variable(mut self, name: &str, value: impl Display) -> Self {
        self.variables.insert(name, value.to_string());
        self
    }

    /// Sets the values of a variable with the `*` modifier.
    pub fn list(mut self, name: &str, values: impl IntoIterator<Item = impl Display>) -> Self {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        self.variables.insert(name, values);
        self
    }

    text_setters! {
        /// Sets the short name. Default: the value of the last variable.
        name
        /// Sets the display name.
        title
        /// Sets the description.
        description
    }

    /// Sets the size in bytes.
    pub fn size(self, size: u64) -> Self {
        Self { size: Some(size), ..self }
    }

    /// Sets the modification time, in seconds since the Unix epoch.
    pub fn modified(self, seconds: i64) -> Self {
        Self { modified: jiff::Timestamp::from_second(seconds).ok(), ..self }
    }

    /// Expands the template to the URI of the instance.
    pub(super) fn uri(&mut self, template: &UriTemplate) -> Result<Uri, String> {
        if let Some(value) = self.only.take() {
            // If all variables are optional, the value is that of the first.
            let needed = template.variables().find(|name| !template.is_optional(name));
            let name = needed.or(template.variables().next()).unwrap_or_default();
            self.variables.insert(name, value);
        }
        let mut needed = template.variables().filter(|name| !template.is_optional(name));
        if let Some(missing) = needed.find(|name| self.variables.value(name).is_none()) {
            return Err(format!("an instance of `{template}` has no value for `{missing}`"));
        }
        for name in template.variables().filter(|name| template.explodes(name)) {
            if let Some(value) = self.variables.text(name).map(str::to_owned) {
                self.variables.insert(name, vec![value]);
            }
        }
        let text = template.expand(&self.variables).map_err(|error| error.to_string())?;
        Uri::parse(&text).map_err(|error| error.to_string())
    }

    /// The resource of the instance. Metadata that the instance does not set comes from `defaults`. Exceptions: title,
    /// size and modification time stay unset, and the name is the value of the last variable that has one.
    pub(super) fn resource(
        self,
        uri: Uri,
        template: &UriTemplate,
        defaults: Resource,
    ) -> Result<Resource, String> {
        if template.matches(&uri).as_ref() != Some(&self.variables) {
            return Err(format!("`{uri}` does not match `{template}` with the values of the instance"));
        }
        let last = template.variables().filter_map(|name| self.variables.text(name)).last();
        let mut resource = Resource { uri, ..defaults };
        resource.name = self.name.or(last.map(str::to_owned)).unwrap_or(resource.name);
        resource.title = self.title;
        resource.description = self.description.or(resource.description);
        resource.size = self.size;
        resource.annotations.last_modified = self.modified;
        Ok(resource)
    }
}

impl From<String> for Instance {
    fn from(value: String) -> Self {
        Self::of(value)
    }
}

impl From<&str> for Instance {
    fn from(value: &str) -> Self {
        Self::of(value)
    }
}

macro_rules! from_numbers {
    ($($number:ty)*) => { $(
        impl From<$number> for Instance {
            fn from(value: $number) -> Self {
                Self::of(value)
            }
        }
    )* };
}

from_numbers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

/// A return type of a `#[list]` function: a `Vec` of [`Instance`]s, or a `Result` of that. If the template has only
/// one required variable, the `Vec` may contain its values instead, as strings or integers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of resources",
    label = "`{Self}` does not implement `IntoInstances`",
    note = "return `Vec<libris::Instance>`, `Vec<String>` or numbers for a template with one variable, or a \
            `Result` of one of these"
)]
pub trait IntoInstances {
    /// The instances to list.
    fn into_instances(self) -> Result<Vec<Instance>>;
}

impl<I: Into<Instance>> IntoInstances for Vec<I> {
    fn into_instances(self) -> Result<Vec<Instance>> {
        Ok(self.into_iter().map(Into::into).collect())
    }
}

impl<T: IntoInstances, E: Into<Box<dyn std::error::Error + Send + Sync>>> IntoInstances for Result<T, E> {
    fn into_instances(self) -> Result<Vec<Instance>> {
        self.map_err(|error| public_error(error, "list the resources"))?.into_instances()
    }
}
