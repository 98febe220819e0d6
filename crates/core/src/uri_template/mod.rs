//! URI templates (RFC 6570, level 4) that can also be matched back.
//!
//! Written by hand because no crate matches back in linear time: those that match at all go through a
//! backtracking regular expression, and a URI comes from anybody.

mod expand;
mod matching;
mod parse;
mod pattern;
mod set;
mod specificity;
mod variables;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use set::TemplateSet;
pub use specificity::Specificity;
pub use variables::{Value, Variables};

use crate::{Error, Result, Uri};
use parse::{Modifier, TemplatePart};
use pattern::Pattern;

/// A URI template, cheap to clone.
///
/// Two templates are equal if their texts are.
#[derive(Clone)]
pub struct UriTemplate(Arc<Inner>);

struct Inner {
    text: String,
    parts: Vec<TemplatePart>,
    pattern: Pattern,
}

impl UriTemplate {
    /// The longest template that is accepted, in bytes.
    pub const LIMIT: usize = Uri::LIMIT;

    /// The most places for a variable that a template may have, which bounds what a match costs.
    pub const VARIABLE_LIMIT: usize = 100;

    /// Parses a template; [`Error::Invalid`] says what is wrong and where.
    pub fn parse(text: &str) -> Result<Self> {
        let parts = parse::parts(text)?;
        let pattern = Pattern::new(&parts);
        Ok(Self(Arc::new(Inner { text: text.into(), parts, pattern })))
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// The names of the variables in the order they stand, each once.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let names =
            || self.0.parts.iter().flat_map(TemplatePart::variables).map(|variable| variable.name.as_str());
        names()
            .enumerate()
            .filter(move |&(at, name)| !names().take(at).any(|earlier| earlier == name))
            .map(|(_, name)| name)
    }

    /// Whether the template usually makes sense without this variable: its operator leaves nothing
    /// behind where there is no value.
    pub fn is_optional(&self, name: &str) -> bool {
        self.0.parts.iter().all(|part| match part {
            TemplatePart::Literal(_) => true,
            TemplatePart::Expression(expression) => {
                expression.operator.first().is_some()
                    || expression.variables.iter().all(|variable| variable.name != name)
            }
        })
    }

    /// Whether this variable has a `*`, so that its value is a list.
    pub fn explodes(&self, name: &str) -> bool {
        let mut variables = self.0.parts.iter().flat_map(TemplatePart::variables);
        variables.any(|variable| variable.name == name && variable.modifier == Modifier::Explode)
    }

    /// The text that the template stands for with these variables. Those it does not name are ignored,
    /// and those it names but are not given leave nothing behind.
    pub fn expand(&self, variables: &Variables) -> String {
        expand::expand(&self.0.parts, variables)
    }

    /// What every URI begins with that the template stands for with these variables and any values for the others:
    /// the expansion up to the first variable that must have a value and has none.
    pub fn prefix(&self, variables: &Variables) -> Prefix {
        let lacks = |part: &TemplatePart| {
            part.variables().iter().any(|variable| {
                variables.value(&variable.name).is_none() && !self.is_optional(&variable.name)
            })
        };
        match self.0.parts.iter().position(lacks) {
            Some(at) => Prefix::Open(expand::expand(&self.0.parts[..at], variables)),
            None => Prefix::Whole(self.expand(variables)),
        }
    }

    /// The variables with which this template stands for `uri`; `None` if there are none.
    ///
    /// Takes time in proportion to the length of the URI times the size of the template, whatever
    /// they hold.
    ///
    /// Values are percent-decoded. So a value may hold a `/` even where the template allows none, and
    /// one that names a file must still be checked. Values that are not UTF-8 do not match.
    ///
    /// - The literal parts are compared in the normal form of [`Uri`].
    /// - `{var}` matches no `/`, `?` or `#`, and no `&` within a query. `{+var}` matches anything, but
    ///   does not run into a query or a fragment that the template itself has.
    /// - `{?a,b}`, `{&a,b}` and `{;a,b}` match in any order and any subset. Other names do not match.
    /// - `{var:3}` matches up to three characters.
    /// - `{var}` and `{+var}` may be empty, and are then the empty text. With the other operators, what
    ///   is not there is not defined.
    /// - A variable with `*` gives a list; one that stands for parameters of other names than its own
    ///   gives a map. One without gives a text, even if it holds commas: the template alone
    ///   decides, so that whoever reads the value knows what to expect.
    /// - A variable that stands in several places must have the same value in all of them.
    ///
    /// Where several readings are possible, the one with most places filled is taken, and among those
    /// the one where earlier variables take as much as they can: `{name}{.ext}` reads `a.b.c` as `a.b`
    /// and `c`, and `{+a}/{+b}` reads `x/y/z` as `x/y` and `z`.
    ///
    /// A URI that came from [`expand`](Self::expand) matches, unless
    /// - normalising it changed more than its spelling: a value of `..` is a dot segment;
    /// - a reserved value held a `?` or `#` that the template has too, or escapes that are not UTF-8;
    /// - a variable that stands in several places, or a parameter whose name begins with that of another,
    ///   can be read in several ways, and the one taken contradicts itself.
    pub fn matches(&self, uri: &Uri) -> Option<Variables> {
        matching::matches(&self.0.pattern, uri.as_str())
    }

    /// How closely this template describes what it matches.
    pub fn specificity(&self) -> Specificity {
        Specificity::of(&self.0.text, &self.0.pattern)
    }
}

/// What a template stands for when some of its variables have values; see [`UriTemplate::prefix`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// A whole URI.
    Whole(String),
    /// What a URI begins with.
    Open(String),
}

impl PartialEq for UriTemplate {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for UriTemplate {}

impl FromStr for UriTemplate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl AsRef<str> for UriTemplate {
    fn as_ref(&self) -> &str {
        &self.0.text
    }
}

impl fmt::Display for UriTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.text)
    }
}

impl fmt::Debug for UriTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>", self.0.text)
    }
}

impl Serialize for UriTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.text)
    }
}

impl<'de> Deserialize<'de> for UriTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
