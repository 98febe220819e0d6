//! Expansion of templates.

use super::parse::{Expression, Modifier, Operator, TemplatePart, VariableSpec};
use super::variables::{Value, Variables};
use crate::uri::percent;

/// The expansion of RFC 6570, section 3.
pub(super) fn expand(parts: &[TemplatePart], variables: &Variables) -> String {
    let mut out = String::new();
    for part in parts {
        match part {
            TemplatePart::Literal(literal) => out.push_str(literal),
            TemplatePart::Expression(expression) => expand_expression(expression, variables, &mut out),
        }
    }
    out
}

fn expand_expression(expression: &Expression, variables: &Variables, out: &mut String) {
    let operator = expression.operator;
    let mut mark = operator.first();
    for variable in &expression.variables {
        let Some(value) = variables.value(&variable.name).filter(|value| defined(value, variable)) else {
            continue;
        };
        out.extend(mark.map(char::from));
        mark = Some(operator.separator());
        VariableExpansion { operator, variable }.expand(value, out);
    }
}

fn defined(value: &Value, variable: &VariableSpec) -> bool {
    let composite = match value {
        Value::Text(_) => return true,
        Value::List(list) => !list.is_empty(),
        Value::Map(map) => !map.is_empty(),
    };
    // The RFC only says that a prefix does not apply to lists and maps. Such a variable counts as undefined.
    composite && !matches!(variable.modifier, Modifier::Prefix(_))
}

/// The expansion of one variable in its expression.
struct VariableExpansion<'a> {
    operator: Operator,
    variable: &'a VariableSpec,
}

impl VariableExpansion<'_> {
    fn expand(&self, value: &Value, out: &mut String) {
        let name = &self.variable.name;
        match (value, self.variable.modifier) {
            (Value::Text(text), modifier) => {
                let text = match modifier {
                    Modifier::Prefix(length) => prefix(text, length),
                    Modifier::None | Modifier::Explode => text,
                };
                if self.operator.named() {
                    self.name(name, text.is_empty(), out);
                }
                self.encode(text, out);
            }
            (Value::List(list), Modifier::Explode) => {
                for (at, text) in list.iter().enumerate() {
                    self.separate(at, out);
                    if self.operator.named() {
                        self.name(name, text.is_empty(), out);
                    }
                    self.encode(text, out);
                }
            }
            (Value::Map(map), Modifier::Explode) => {
                for (at, (key, text)) in map.iter().enumerate() {
                    self.separate(at, out);
                    let mut encoded = String::new();
                    self.encode(key, &mut encoded);
                    if self.operator.named() {
                        self.name(&encoded, text.is_empty(), out);
                    } else {
                        out.push_str(&encoded);
                        out.push('=');
                    }
                    self.encode(text, out);
                }
            }
            (Value::List(list), _) => self.joined(list.iter(), out),
            (Value::Map(map), _) => self.joined(map.iter().flat_map(|(key, text)| [key, text]), out),
        }
    }

    fn joined<'a>(&self, texts: impl Iterator<Item = &'a String>, out: &mut String) {
        if self.operator.named() {
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

    fn name(&self, name: &str, empty: bool, out: &mut String) {
        out.push_str(name);
        if !(empty && self.operator == Operator::Parameter) {
            out.push('=');
        }
    }

    fn encode(&self, text: &str, out: &mut String) {
        let bytes = text.as_bytes();
        for (at, &byte) in bytes.iter().enumerate() {
            let unescaped = percent::unreserved(byte)
                || self.operator.reserved() && (percent::reserved(byte) || percent::is_escape(&bytes[at..]));
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
