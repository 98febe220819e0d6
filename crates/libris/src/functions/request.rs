//! What a function is asked for.

use std::fmt::Display;
use std::str::FromStr;

use libris_core::uri_template::{Value, Variables};
use libris_core::{Context, Error, Identity, Result, Uri};

/// What a function is asked for: the URI, the variables of its template, and who asks.
#[derive(Clone, Debug)]
pub struct Request {
    uri: Uri,
    variables: Variables,
    context: Context,
}

impl Request {
    pub(super) fn new(uri: Uri, variables: Variables, context: Context) -> Self {
        Self { uri, variables, context }
    }

    /// The URI that is read.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The variables of the template, as they stand in the URI.
    pub fn variables(&self) -> &Variables {
        &self.variables
    }

    /// Who asks and wants to hear how far it has come.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Who asks; [`Error::Denied`] where nobody knows.
    pub fn identity(&self) -> Result<&Identity> {
        self.context.identity().ok_or_else(|| Error::Denied(self.uri.clone()))
    }

    /// A variable; [`Error::Invalid`] names it where it is not there or does not parse.
    pub fn variable<T: FromVariable>(&self, name: &str) -> Result<T> {
        self.optional(name)?.ok_or_else(|| Error::invalid(format!("`{name}` is missing")))
    }

    /// A variable that may be left out.
    pub fn optional<T: FromVariable>(&self, name: &str) -> Result<Option<T>> {
        parse(&self.variables, name)
    }

    /// A variable with a `*`: all its values.
    pub fn list<T: FromVariable>(&self, name: &str) -> Result<Vec<T>> {
        match self.variables.value(name) {
            None => Ok(Vec::new()),
            Some(Value::Text(text)) => Ok(vec![T::read(name, text)?]),
            Some(Value::List(list)) => list.iter().map(|text| T::read(name, text)).collect(),
            Some(Value::Map(_)) => Err(Error::invalid(format!("`{name}` must be a list of values"))),
        }
    }
}

/// A variable of a template, where it has a value.
pub(crate) fn parse<T: FromVariable>(variables: &Variables, name: &str) -> Result<Option<T>> {
    match variables.value(name) {
        None => Ok(None),
        Some(Value::Text(text)) => T::read(name, text).map(Some),
        Some(Value::List(_) | Value::Map(_)) => Err(Error::invalid(format!("`{name}` must be one value"))),
    }
}

/// What a variable of a URI template can be read as: anything with [`FromStr`].
#[diagnostic::on_unimplemented(
    message = "a variable of a URI template cannot be read as `{Self}`",
    label = "`{Self}` does not implement `std::str::FromStr`, or its error does not implement `Display`",
    note = "variables are text: use `String`, a number, or a type of yours that implements `FromStr`"
)]
pub trait FromVariable: Sized {
    /// Reads the value of the variable `name`; [`Error::Invalid`] says what is wrong with it.
    fn read(name: &str, text: &str) -> Result<Self>;
}

impl<T: FromStr<Err: Display>> FromVariable for T {
    fn read(name: &str, text: &str) -> Result<Self> {
        /// How much is quoted of a value, and of what its type says about it.
        const QUOTED: usize = 100;
        text.parse().map_err(|cause: T::Err| {
            let value = plain(text, QUOTED);
            let cause = plain(&cause.to_string(), QUOTED);
            Error::invalid(format!("`{name}` cannot be `{value}`: {cause}"))
        })
    }
}

/// The beginning of a text, with what a terminal would act on written out.
fn plain(text: &str, length: usize) -> String {
    let acts = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let write = |letter: char| match acts(letter) {
        true => letter.escape_unicode().to_string(),
        false => letter.to_string(),
    };
    text.chars().take(length).map(write).collect()
}
