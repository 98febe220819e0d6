//! Expansion of templates.

use super::parse::{Expression, Modifier, Operator, TemplatePart, VariableSpec};
use super::variables::{VariableValue, Variables};
use crate::uri::percent;
use crate::{Error, Result};

/// The expansion of RFC 6570, section 3.
pub(super) fn expand(parts: &[TemplatePart], variables: &Variables) -> Result<String> {
    let mut out = String::new();
    for part in parts {
        match part {
            TemplatePart::Literal(literal) => out.push_str(literal),
            TemplatePart::Expression(expression) => expand_expression(expression, variables, &mut out)?,
        }
    }
    Ok(out)
}

fn expand_expression(expression: &Expression, variables: &Variables, out: &mut String) -> Result<()> {
    let operator = expression.operator;
    let mut mark = operator.first();
    for variable in &expression.variables {
        let Some(value) = variables.value(&variable.name) else { continue };
        if !is_expandable(value, variable)? {
            continue;
        }
        out.extend(mark.map(char::from));
        mark = Some(operator.separator());
        VariableExpansion { operator, variable }.expand(value, out);
    }
    Ok(())
}

/// Whether a value is defined: an empty list or map is not. Fails for any other list or map whose variable has a prefix
/// modifier, which applies to strings only (RFC 6570, section 2.4.1).
fn is_expandable(value: &VariableValue, variable: &VariableSpec) -> Result<bool> {
    let (kind, is_empty) = match value {
        VariableValue::Text(_) => return Ok(true),
        VariableValue::List(list) => ("list", list.is_empty()),
        VariableValue::Map(map) => ("map", map.is_empty()),
    };
    match variable.modifier {
        Modifier::Prefix(length) if !is_empty => {
            let name = &variable.name;
            Err(Error::invalid(format!(
                "`{name}:{length}` is a prefix, and the value of `{name}` is a {kind}; give it one value, or write \
                 `{name}*` in the template"
            )))
        }
        _ => Ok(!is_empty),
    }
}

/// The expansion of one variable in its expression.
struct VariableExpansion<'a> {
    operator: Operator,
    variable: &'a VariableSpec,
}

impl VariableExpansion<'_> {
    fn expand(&self, value: &VariableValue, out: &mut String) {
        let name = &self.variable.name;
        match (value, self.variable.modifier) {
            (VariableValue::Text(text), modifier) => {
                let text = match modifier {
                    Modifier::Prefix(length) => prefix(text, length),
                    Modifier::None | Modifier::Explode => text,
                };
                if self.operator.is_named() {
                    self.name(name, text.is_empty(), out);
                }
                self.encode(text, out);
            }
            (VariableValue::List(list), Modifier::Explode) => {
                for (at, text) in list.iter().enumerate() {
                    self.separate(at, out);
                    if self.operator.is_named() {
                        self.name(name, text.is_empty(), out);
                    }
                    self.encode(text, out);
                }
            }
            (VariableValue::Map(map), Modifier::Explode) => {
                for (at, (key, text)) in map.iter().enumerate() {
                    self.separate(at, out);
                    let mut encoded = String::new();
                    self.encode(key, &mut encoded);
                    if self.operator.is_named() {
                        self.name(&encoded, text.is_empty(), out);
                    } else {
                        out.push_str(&encoded);
                        out.push('=');
                    }
                    self.encode(text, out);
                }
            }
            (VariableValue::List(list), _) => self.joined(list.iter(), out),
            (VariableValue::Map(map), _) => self.joined(map.iter().flat_map(|(key, text)| [key, text]), out),
        }
    }

    fn joined<'a>(&self, texts: impl Iterator<Item = &'a String>, out: &mut String) {
        if self.operator.is_named() {
            self.name(&self.variable.name, false, out);
        }
        for (at, text) in texts.enumerate() {
            if at > 0 {
                out.push(',');
            }
            self.encode(text, out);
        }
    }

    fn separate(&self, at: usize, out: &mut String) {
        if at > 0 {
            out.push(char::from(self.operator.separator()));
        }
    }

    /// Writes the name and `=`. `{;x}` omits the `=` if the value is empty.
    fn name(&self, name: &str, empty: bool, out: &mut String) {
        out.push_str(name);
        if !(empty && self.operator == Operator::Parameter) {
            out.push('=');
        }
    }

    fn encode(&self, text: &str, out: &mut String) {
        let bytes = text.as_bytes();
        for (at, &byte) in bytes.iter().enumerate() {
            let unescaped = percent::is_unreserved(byte)
                || self.operator.keeps_reserved()
                    && (percent::is_reserved(byte) || percent::is_escape(&bytes[at..]));
            if unescaped {
                out.push(char::from(byte));
            } else {
                percent::escape(byte, out);
            }
        }
    }
}

fn prefix(text: &str, length: usize) -> &str {
    text.char_indices().nth(length).map_or(text, |(end, _)| &text[..end])
}
