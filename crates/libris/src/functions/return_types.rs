//! What functions may return.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use libris_core::uri_template::Variables;
use libris_core::{Body, Completion, Content, Contents, Error, Resource, Result, Uri, UriTemplate};
use serde::Serialize;

/// What a function that makes a resource may return.
///
/// | type | what is read |
/// |---|---|
/// | `String`, `&str`, `Cow<str>`, `Box<str>`, `Arc<str>` | text |
/// | `Vec<u8>`, `Bytes`, `&[u8]` | bytes |
/// | [`Json<T>`](Json) | any value, as JSON |
/// | [`Content`], `Vec<Content>`, [`Contents`] | as it is |
/// | `Option` of any of these | `None` is not found |
/// | `Result` of any of these | [`libris::Error`](Error) is told as it is, also as the `source()` of another; of any other error the caller hears only that it failed, and the log says why |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is nothing that can be read",
    label = "a resource cannot be made of `{Self}`",
    note = "return text (`String`), bytes (`Vec<u8>`), `libris::Json<T>` of anything that serialises, \
            `libris::Content`, or an `Option` or a `Result` of one of these"
)]
pub trait IntoContents {
    /// What reading `uri` gives, of this media type where the value does not say one.
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents>;
}

fn one(uri: &Uri, mime: &str, body: Body) -> Result<Contents> {
    Ok(Content { uri: uri.clone(), mime: Some(mime.to_owned()), body, meta: None }.into())
}

const TEXT: &str = "text/plain";
const BYTES: &str = "application/octet-stream";
pub(super) const JSON: &str = "application/json";

impl IntoContents for String {
    fn into_contents(self, uri: &Uri, mime: Option<&str>) -> Result<Contents> {
        one(uri, mime.unwrap_or(TEXT), Body::Text(self))
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
        one(uri, mime.unwrap_or(BYTES), Body::Bytes(self))
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
        self.map_err(|error| ours(error, "read the resource"))?.into_contents(uri, mime)
    }
}

/// An error of ours as it is, also where it is the cause of another; any other as a cause that callers do not
/// see.
fn ours(error: impl Into<Box<dyn std::error::Error + Send + Sync>>, doing: &'static str) -> Error {
    let error = match error.into().downcast::<Error>() {
        Ok(error) => return *error,
        Err(error) => error,
    };
    let mut cause = error.source();
    while let Some(next) = cause {
        if let Some(told) = next.downcast_ref::<Error>().and_then(Error::public_copy) {
            return told;
        }
        cause = next.source();
    }
    Error::failed(doing, error)
}

/// Any value that can be written as JSON.
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
        one(uri, mime.unwrap_or(JSON), Body::Text(text))
    }
}

/// What a `#[complete]` function may return: values, best first, as text, a [`Completion`], or a `Result` of
/// either.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no completion",
    label = "values to offer cannot be made of `{Self}`",
    note = "return `Vec<String>`, `Vec<&str>`, `libris::Completion`, or a `Result` of one of these"
)]
pub trait IntoCompletion {
    /// The values to offer, at most `limit`; those that begin with `typed` where the function was not told what was typed.
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
        self.map_err(|error| ours(error, "complete the variable"))?.into_completion(typed, limit)
    }
}

/// One resource that a template stands for, as a `#[list]` function tells of it.
///
/// ```
/// use libris::Instance;
///
/// let one = Instance::of("handbook");
/// let other = Instance::new().variable("doc_id", "handbook").variable("lang", "en").title("The handbook");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Instance {
    /// The value of the only variable, whatever its name.
    only: Option<String>,
    variables: Variables,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    size: Option<u64>,
    modified: Option<jiff::Timestamp>,
}

impl Instance {
    /// One whose variables are yet to be said.
    pub fn new() -> Self {
        Self::default()
    }

    /// The one with this value, of a template that needs only one variable.
    pub fn of(value: impl Display) -> Self {
        Self { only: Some(value.to_string()), ..Self::default() }
    }

    /// With this value of a variable.
    pub fn variable(mut self, name: &str, value: impl Display) -> Self {
        self.variables.insert(name, value.to_string());
        self
    }

    /// With these values of a variable that has a `*`.
    pub fn list(mut self, name: &str, values: impl IntoIterator<Item = impl Display>) -> Self {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        self.variables.insert(name, values);
        self
    }

    /// With this short name; the value of the last variable where it is not said.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// With this name for people.
    pub fn title(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// With what it is about.
    pub fn description(self, description: impl Into<String>) -> Self {
        Self { description: Some(description.into()), ..self }
    }

    /// With its size in bytes.
    pub fn size(self, size: u64) -> Self {
        Self { size: Some(size), ..self }
    }

    /// With the time when it last changed, in seconds since 1970.
    pub fn modified(self, seconds: i64) -> Self {
        Self { modified: jiff::Timestamp::from_second(seconds).ok(), ..self }
    }

    /// Where it is, by this template.
    pub(super) fn uri(&mut self, template: &UriTemplate) -> Result<Uri, String> {
        if let Some(value) = self.only.take() {
            // A template all of whose variables may be left out has its first one filled in.
            let needed = template.variables().find(|name| !template.is_optional(name));
            let name = needed.or(template.variables().next()).unwrap_or_default();
            self.variables.insert(name, value);
        }
        let mut needed = template.variables().filter(|name| !template.is_optional(name));
        if let Some(missing) = needed.find(|name| self.variables.value(name).is_none()) {
            return Err(format!("an instance of `{template}` lacks `{missing}`"));
        }
        for name in template.variables().filter(|name| template.explodes(name)) {
            if let Some(value) = self.variables.text(name).map(str::to_owned) {
                self.variables.insert(name, vec![value]);
            }
        }
        Uri::parse(&template.expand(&self.variables)).map_err(|error| error.to_string())
    }

    /// The resource that it is.
    pub(super) fn resource(
        self,
        uri: Uri,
        template: &UriTemplate,
        like: Resource,
    ) -> Result<Resource, String> {
        if template.matches(&uri).as_ref() != Some(&self.variables) {
            return Err(format!("`{uri}` would not be read as the instance of `{template}` that it is"));
        }
        let last = template.variables().filter_map(|name| self.variables.text(name)).last();
        let mut resource = Resource { uri, ..like };
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

/// What a `#[list]` function may return: a `Vec` of [`Instance`]s or of the values of a template's only
/// variable, or a `Result` of it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no list of resources",
    label = "resources cannot be listed from `{Self}`",
    note = "return `Vec<libris::Instance>`, `Vec<String>` or numbers for a template with one variable, or a \
            `Result` of one of these"
)]
pub trait IntoInstances {
    /// The resources of the template.
    fn into_instances(self) -> Result<Vec<Instance>>;
}

impl<I: Into<Instance>> IntoInstances for Vec<I> {
    fn into_instances(self) -> Result<Vec<Instance>> {
        Ok(self.into_iter().map(Into::into).collect())
    }
}

impl<T: IntoInstances, E: Into<Box<dyn std::error::Error + Send + Sync>>> IntoInstances for Result<T, E> {
    fn into_instances(self) -> Result<Vec<Instance>> {
        self.map_err(|error| ours(error, "list the resources"))?.into_instances()
    }
}
