//! Arguments with variables, and the validation of their values.

use std::collections::BTreeMap;

use libris_core::uri_template::{VariableValue, Variables};
use libris_core::{Error, Result};
use regex_lite::Regex;

/// The longest value of a variable, in bytes.
const MAX_VALUE_BYTES: usize = 1024;

/// An argument with variables, which expands to exactly one argument of the program.
#[derive(Debug)]
pub(super) struct ArgumentTemplate(Vec<ArgumentPiece>);

#[derive(Debug, PartialEq)]
enum ArgumentPiece {
    Text(String),
    Variable(String),
}

impl ArgumentTemplate {
    /// Parses `{{name}}` as a variable. Other braces are literal.
    pub(super) fn parse(text: &str) -> Self {
        // `{{.Names}}` is not a variable: it is template syntax of programs such as docker.
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with('.')
                && name.chars().all(|letter| letter.is_alphanumeric() || "_.%".contains(letter))
        };
        let mut pieces = Vec::new();
        let (mut plain, mut rest) = (String::new(), text);
        while let Some(letter) = rest.chars().next() {
            let name = rest.strip_prefix("{{").and_then(|inside| inside.split_once("}}"));
            match name {
                Some((name, after)) if is_name(name.trim()) => {
                    if !plain.is_empty() {
                        pieces.push(ArgumentPiece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(ArgumentPiece::Variable(name.trim().to_owned()));
                    rest = after;
                }
                _ => {
                    plain.push(letter);
                    rest = &rest[letter.len_utf8()..];
                }
            }
        }
        if !plain.is_empty() {
            pieces.push(ArgumentPiece::Text(plain));
        }
        Self(pieces)
    }

    /// The variables in the argument.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            ArgumentPiece::Variable(name) => Some(name.as_str()),
            ArgumentPiece::Text(_) => None,
        })
    }

    /// Expands the argument with these values.
    pub(super) fn fill(&self, values: &BTreeMap<&str, &str>) -> Result<String> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                ArgumentPiece::Text(text) => filled.push_str(text),
                ArgumentPiece::Variable(name) => {
                    let value = values.get(name.as_str()).copied().unwrap_or_default();
                    // Rejected even if the pattern allows it: most programs parse an argument that begins with a
                    // dash as an option.
                    if filled.is_empty() && value.starts_with('-') {
                        return Err(Error::invalid(format!("`{name}` must not begin with `-`")));
                    }
                    filled.push_str(value);
                }
            }
        }
        Ok(filled)
    }
}

/// The allowed values of a variable.
#[derive(Debug)]
pub(super) enum ValueRule {
    /// A name: see [`is_name`].
    Name,
    /// Values that match this regular expression as a whole.
    Pattern(Regex),
}

impl ValueRule {
    /// The rule of a pattern, which is anchored at both ends.
    pub(super) fn of(pattern: &str) -> Result<Self, String> {
        let wrong = |cause| format!("the pattern `{pattern}` cannot be read: {cause}");
        // Compiled alone first: `a)|(b` would be valid inside the parentheses, but not anchored.
        Regex::new(pattern).map_err(wrong)?;
        Regex::new(&format!(r"\A(?:{pattern})\z")).map(Self::Pattern).map_err(wrong)
    }

    /// Whether a value is allowed.
    pub(super) fn allows(&self, value: &str) -> bool {
        value.len() <= MAX_VALUE_BYTES
            && !value.contains(char::is_control)
            && match self {
                Self::Name => is_name(value),
                Self::Pattern(pattern) => pattern.is_match(value),
            }
    }

    /// The value of a variable, or an error if the value is not allowed. `None` if the variable has no value.
    pub(super) fn value<'v>(&self, name: &str, variables: &'v Variables) -> Result<Option<&'v str>> {
        let value = match variables.value(name) {
            None => return Ok(None),
            Some(VariableValue::Text(value)) => value,
            Some(VariableValue::List(_) | VariableValue::Map(_)) => {
                return Err(Error::invalid(format!("`{name}` must be one value")));
            }
        };
        if self.allows(value) {
            return Ok(Some(value));
        }
        Err(Error::invalid(match self {
            Self::Pattern(_) if value.len() > MAX_VALUE_BYTES || value.contains(char::is_control) => {
                format!("`{name}` must have at most {MAX_VALUE_BYTES} bytes and no control characters")
            }
            Self::Pattern(pattern) => {
                let pattern = pattern.as_str();
                format!("`{name}` must match `{}`", &pattern[r"\A(?:".len()..pattern.len() - r")\z".len()])
            }
            Self::Name => {
                format!("`{name}` must be a name: letters and digits, and between them `_.,:@+=-` or spaces")
            }
        }))
    }
}

/// Whether a value is a name. A name cannot be an option, a path or shell syntax.
fn is_name(value: &str) -> bool {
    let mut letters = value.chars();
    letters.next().is_some_and(|first| first.is_alphanumeric() || first == '_')
        && letters.all(|letter| letter.is_alphanumeric() || "_.,:@+=- ".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::{ArgumentPiece, ArgumentTemplate, ValueRule};
    use std::collections::BTreeMap;

    #[test]
    fn variables_are_found() {
        let text = |text: &str| ArgumentPiece::Text(text.into());
        let variable = |name: &str| ArgumentPiece::Variable(name.into());
        assert_eq!(ArgumentTemplate::parse("--unit={{ unit }}").0, [text("--unit="), variable("unit")]);
        assert_eq!(ArgumentTemplate::parse("{{a}}{{b}}").0, [variable("a"), variable("b")]);
        assert_eq!(ArgumentTemplate::parse("{{{a}}}").0, [text("{"), variable("a"), text("}")]);
        assert_eq!(ArgumentTemplate::parse("{{.A}}{{a.b}}").0, [text("{{.A}}"), variable("a.b")]);
        for plain in ["", "{ print }", "{{ print $1 }}", "{{", "{{}}", "{{a", "{{.Names}}", "{{ .a.b }}"] {
            assert!(
                ArgumentTemplate::parse(plain).0.iter().all(|piece| matches!(piece, ArgumentPiece::Text(_))),
                "{plain}"
            );
            assert_eq!(ArgumentTemplate::parse(plain).fill(&BTreeMap::new()).unwrap(), plain);
        }
    }

    #[test]
    fn a_value_cannot_become_an_option() {
        let values = BTreeMap::from([("a", "-rf"), ("empty", "")]);
        assert!(ArgumentTemplate::parse("{{a}}").fill(&values).is_err());
        assert!(ArgumentTemplate::parse("{{empty}}{{a}}").fill(&values).is_err());
        assert_eq!(ArgumentTemplate::parse("--by={{a}}").fill(&values).unwrap(), "--by=-rf");
    }

    #[test]
    fn patterns_match_the_whole_value() {
        let year = ValueRule::of("[0-9]{4}|now").unwrap();
        assert!(year.allows("2024") && year.allows("now"));
        for value in ["2024 ", "x2024", "2024\n", "20244", "", "nowhere"] {
            assert!(!year.allows(value), "{value:?}");
        }
        assert!(!ValueRule::of("(?s).*").unwrap().allows("a\nb"));
        for pattern in ["a)|(b", "(", "(?x)a #"] {
            assert!(ValueRule::of(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn names_are_harmless() {
        for name in ["a", "São Paulo", "getty@tty1.service", "2024-01-31", "日本", "_x", "a..b"] {
            assert!(ValueRule::Name.allows(name), "{name}");
        }
        for other in ["", "-a", ".", "..", "a/b", "a;b", "$(a)", "`a`", "a|b", "*", "–a", "a\0", " a"] {
            assert!(!ValueRule::Name.allows(other), "{other:?}");
        }
        assert!(!ValueRule::Name.allows(&"a".repeat(1025)));
    }
}
