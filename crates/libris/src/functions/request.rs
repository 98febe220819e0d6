//! The request that a function receives.

use std::fmt::Display;
use std::str::FromStr;

use libris_core::uri_template::{VariableValue, Variables};
use libris_core::{Context, Error, Identity, Result, Uri};

/// The request that a function receives: the URI, the variables of its template, and the caller.
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

    /// The requested URI.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The variables of the template, with their values in the URI.
    pub fn variables(&self) -> &Variables {
        &self.variables
    }

    /// The context: the caller, and progress reporting.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The authenticated caller; [`Error::Denied`] for an anonymous one.
    pub fn identity(&self) -> Result<&Identity> {
        self.context.identity().ok_or_else(|| Error::Denied(self.uri.clone()))
    }

    /// The value of a variable; [`Error::Invalid`] if it is missing or does not parse.
    pub fn variable<T: FromVariable>(&self, name: &str) -> Result<T> {
        self.optional(name)?.ok_or_else(|| Error::invalid(format!("`{name}` is missing")))
    }

    /// The value of an optional variable; `None` if it is missing, [`Error::Invalid`] if it does not parse.
    pub fn optional<T: FromVariable>(&self, name: &str) -> Result<Option<T>> {
        parse(&self.variables, name)
    }

    /// All values of a variable with the `*` modifier; empty if the variable is missing.
    pub fn list<T: FromVariable>(&self, name: &str) -> Result<Vec<T>> {
        match self.variables.value(name) {
            None => Ok(Vec::new()),
            Some(VariableValue::Text(text)) => Ok(vec![T::read(name, text)?]),
            Some(VariableValue::List(list)) => list.iter().map(|text| T::read(name, text)).collect(),
            Some(VariableValue::Map(_)) => Err(Error::invalid(format!("`{name}` must be a list of values"))),
        }
    }
}

/// The value of a variable; `None` if it is missing.
pub(crate) fn parse<T: FromVariable>(variables: &Variables, name: &str) -> Result<Option<T>> {
    match variables.value(name) {
        None => Ok(None),
        Some(VariableValue::Text(text)) => T::read(name, text).map(Some),
        Some(VariableValue::List(_) | VariableValue::Map(_)) => {
            Err(Error::invalid(format!("`{name}` must be one value")))
        }
    }
}

/// A type that the value of a template variable can be parsed as: any type that implements [`FromStr`] with an error
/// that implements [`std::fmt::Display`].
#[diagnostic::on_unimplemented(
    message = "a variable of a URI template cannot be parsed as `{Self}`",
    label = "`{Self}` does not implement `std::str::FromStr`, or its error does not implement `Display`",
    note = "variables are text: use `String`, a number, or a type of yours that implements `FromStr`"
)]
pub trait FromVariable: Sized {
    /// Parses the value of the variable `name`; [`Error::Invalid`] explains why it does not parse.
    fn read(name: &str, text: &str) -> Result<Self>;
}

impl<T: FromStr<Err: Display>> FromVariable for T {
    fn read(name: &str, text: &str) -> Result<Self> {
        /// How many characters of the value and of the parse error the message quotes.
        const QUOTED_CHARACTERS: usize = 100;
        text.parse().map_err(|cause: T::Err| {
            let value = plain(text, QUOTED_CHARACTERS);
            let cause = expected::<T>().unwrap_or_else(|| plain(&cause.to_string(), QUOTED_CHARACTERS));
            Error::invalid(format!("`{name}` cannot be `{value}`: {cause}"))
        })
    }
}

/// The range of an integer type, for an error message; `None` for other types. The parse errors of the standard
/// library, such as "invalid digit found in string", do not name the range.
fn expected<T>() -> Option<String> {
    const INTEGERS: [(&str, i128, i128); 10] = [
        ("u8", 0, u8::MAX as i128),
        ("u16", 0, u16::MAX as i128),
        ("u32", 0, u32::MAX as i128),
        ("u64", 0, u64::MAX as i128),
        ("usize", 0, usize::MAX as i128),
        ("i8", i8::MIN as i128, i8::MAX as i128),
        ("i16", i16::MIN as i128, i16::MAX as i128),
        ("i32", i32::MIN as i128, i32::MAX as i128),
        ("i64", i64::MIN as i128, i64::MAX as i128),
        ("isize", isize::MIN as i128, isize::MAX as i128),
    ];
    let name = std::any::type_name::<T>();
    let (_, least, most) = INTEGERS.iter().find(|(integer, ..)| *integer == name)?;
    Some(format!("it must be a whole number from {least} to {most}"))
}

/// The first `length` characters, with control and bidirectional formatting characters escaped.
fn plain(text: &str, length: usize) -> String {
    let is_escaped = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let write = |letter: char| match is_escaped(letter) {
        true => letter.escape_unicode().to_string(),
        false => letter.to_string(),
    };
    text.chars().take(length).map(write).collect()
}
