//! URI templates (RFC 6570, level 4): expansion, and matching of a URI back to variables.
//!
//! Hand-written because URIs are untrusted input, and no existing crate matches in linear time: they use backtracking
//! regular expressions.

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
pub use variables::{VariableValue, Variables};

use crate::{Error, Result, Uri};
use parse::{Modifier, TemplatePart};
use pattern::Pattern;

/// A URI template, cheap to clone.
///
/// Two templates are equal if their texts are.
#[derive(Clone)]
pub struct UriTemplate(Arc<UriTemplateInner>);

struct UriTemplateInner {
    text: String,
    parts: Vec<TemplatePart>,
    pattern: Pattern,
    specificity: Specificity,
}

impl UriTemplate {
    /// The maximum length of a template in bytes.
    pub const LIMIT: usize = Uri::LIMIT;

    /// The maximum number of variable occurrences in a template, which bounds the cost of a match.
    pub const MAX_VARIABLES: usize = 100;

    /// Parses a template; [`Error::Invalid`] describes the syntax error and its position.
    pub fn parse(text: &str) -> Result<Self> {
        let parts = parse::parts(text)?;
        let pattern = Pattern::new(&parts);
        let specificity = Specificity::of(text, &pattern);
        Ok(Self(Arc::new(UriTemplateInner { text: text.into(), parts, pattern, specificity })))
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// The distinct names of the variables, in order of first occurrence.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let names =
            || self.0.parts.iter().flat_map(TemplatePart::variables).map(|variable| variable.name.as_str());
        names()
            .enumerate()
            .filter(move |&(at, name)| !names().take(at).any(|earlier| earlier == name))
            .map(|(_, name)| name)
    }

    /// Whether this variable is optional: it occurs only in expressions such as `{?var}` or `{/var}`, which omit their
    /// delimiter too if the variable has no value.
    pub fn is_optional(&self, name: &str) -> bool {
        self.0.parts.iter().all(|part| match part {
            TemplatePart::Literal(_) => true,
            TemplatePart::Expression(expression) => {
                expression.operator.first().is_some()
                    || expression.variables.iter().all(|variable| variable.name != name)
            }
        })
    }

    /// Whether this variable has the explode modifier `*`, so that its value is a list or a map.
    pub fn explodes(&self, name: &str) -> bool {
        let mut variables = self.0.parts.iter().flat_map(TemplatePart::variables);
        variables.any(|variable| variable.name == name && variable.modifier == Modifier::Explode)
    }

    /// The variables with these completion values. For a variable that [explodes](Self::explodes), a completion value is a
    /// path, whose segments become the list.
    pub fn variables_from_completions<'a>(
        &self,
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Variables {
        let value = |(name, text): (&'a str, &'a str)| match self.explodes(name) {
            true => (name, VariableValue::from(text.split('/').map(str::to_owned).collect::<Vec<_>>())),
            false => (name, VariableValue::from(text)),
        };
        values.into_iter().map(value).collect()
    }

    /// Expands the template. Variables without a value expand to nothing; values for variables that the template does not
    /// have are ignored. Fails with [`Error::Invalid`] if the value of a variable with a prefix modifier, such as
    /// `{var:3}`, is a list or a map.
    pub fn expand(&self, variables: &Variables) -> Result<String> {
        expand::expand(&self.0.parts, variables)
    }

    /// Expands the template up to the first expression with a required variable (not [optional](Self::is_optional)) that
    /// has no value. Optional variables without a value expand to nothing. Fails like [`expand`](Self::expand).
    pub fn prefix(&self, variables: &Variables) -> Result<TemplatePrefix> {
        let lacks = |part: &TemplatePart| {
            part.variables().iter().any(|variable| {
                variables.value(&variable.name).is_none() && !self.is_optional(&variable.name)
            })
        };
        match self.0.parts.iter().position(lacks) {
            Some(at) => expand::expand(&self.0.parts[..at], variables).map(TemplatePrefix::Open),
            None => self.expand(variables).map(TemplatePrefix::Whole),
        }
    }

    /// Matches `uri` against the template and returns the values of its variables; `None` if it does not match.
    ///
    /// The time is linear in the length of the URI times the size of the template.
    ///
    /// Values are percent-decoded, so a value may contain a `/` even if the template does not allow one: validate it
    /// before you use it as a path. Values that are not UTF-8 do not match.
    ///
    /// - The literal parts are compared in the normal form of [`Uri`].
    /// - `{var}` matches no `/`, `?` or `#`, and no `&` within a query. `{+var}` matches any characters,
    ///   except a `?` if the template has a query after it, and a `#` if the template has a fragment after it.
    /// - `{?a,b}`, `{&a,b}` and `{;a,b}` match any subset of the parameters in any order. A parameter with another name
    ///   matches only if a variable of the expression has `*`.
    /// - `{var:3}` matches up to three characters.
    /// - `{var}` and `{+var}` may match the empty string. With the other operators, a variable gets no value if the
    ///   URI does not have its delimiter.
    /// - The value of a variable with `*` is a list. In `{?…}`, `{&…}` and `{;…}`, the first such variable also takes the
    ///   parameters whose names the expression does not have; its value is then a map. The value of a variable without `*`
    ///   is a string, even if it contains commas.
    /// - A variable that occurs several times must have the same value each time.
    ///
    /// If several matches are possible, one that binds the most variables is chosen, and among these one in which earlier
    /// variables match greedily: `{name}{.ext}` matches `a.b.c` as `a.b` and `c`, and `{+a}/{+b}` matches `x/y/z` as `x/y`
    /// and `z`.
    ///
    /// The template matches each URI that [`expand`](Self::expand) returns, unless
    /// - normalisation changes the meaning of the URI: a value of `..` becomes a dot segment;
    /// - a value of `{+var}` or `{#var}` contains a `?` although the template has a query after it, a `#` although the
    ///   template has a fragment after it, or escapes that are not UTF-8;
    /// - the chosen match gives a variable two different values. This can happen only if a variable occurs several times,
    ///   or if the name of one parameter begins with the name of another.
    pub fn matches(&self, uri: &Uri) -> Option<Variables> {
        matching::matches(&self.0.pattern, uri.as_str())
    }

    /// The specificity of this template.
    pub fn specificity(&self) -> Specificity {
        self.0.specificity
    }
}

/// The expansion of a template with some of its variables; see [`UriTemplate::prefix`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePrefix {
    /// A complete URI: all required variables have values.
    Whole(String),
    /// A prefix of URIs: a required variable has no value.
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
