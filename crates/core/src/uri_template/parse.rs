//! The grammar of RFC 6570.

use crate::uri::{excerpt, percent};
use crate::{Error, Result, UriTemplate};

/// A literal or an expression of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplatePart {
    /// Literal text, percent-encoded as in an expansion.
    Literal(String),
    Expression(Expression),
}

impl TemplatePart {
    pub(super) fn variables(&self) -> &[VariableSpec] {
        match self {
            Self::Literal(_) => &[],
            Self::Expression(expression) => &expression.variables,
        }
    }
}

/// An expression in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression {
    pub(super) operator: Operator,
    pub(super) variables: Vec<VariableSpec>,
}

/// One variable of an expression (`varspec`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VariableSpec {
    pub(super) name: String,
    pub(super) modifier: Modifier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Modifier {
    None,
    /// `:n`: only the first `n` characters of the value.
    Prefix(usize),
    /// `*`: each element of a list or map is expanded separately.
    Explode,
}

/// The operator of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    /// `{var}`
    Simple,
    /// `{+var}`
    Reserved,
    /// `{#var}`
    Fragment,
    /// `{.var}`
    Label,
    /// `{/var}`
    Path,
    /// `{;var}`
    Parameter,
    /// `{?var}`
    Query,
    /// `{&var}`
    Continuation,
}

impl Operator {
    /// The character before the first variable that has a value.
    pub(super) fn first(self) -> Option<u8> {
        match self {
            Self::Simple | Self::Reserved => None,
            Self::Fragment => Some(b'#'),
            Self::Label => Some(b'.'),
            Self::Path => Some(b'/'),
            Self::Parameter => Some(b';'),
            Self::Query => Some(b'?'),
            Self::Continuation => Some(b'&'),
        }
    }

    /// The separator between variables that have values.
    pub(super) fn separator(self) -> u8 {
        match self {
            Self::Simple | Self::Reserved | Self::Fragment => b',',
            Self::Label => b'.',
            Self::Path => b'/',
            Self::Parameter => b';',
            Self::Query | Self::Continuation => b'&',
        }
    }

    /// Whether each value is preceded by its name.
    pub(super) fn is_named(self) -> bool {
        matches!(self, Self::Parameter | Self::Query | Self::Continuation)
    }

    /// Whether an expansion keeps reserved characters and escapes in a value unchanged.
    pub(super) fn keeps_reserved(self) -> bool {
        matches!(self, Self::Reserved | Self::Fragment)
    }
}

/// Parses a template into its parts.
pub(super) fn parts(text: &str) -> Result<Vec<TemplatePart>> {
    let wrong = |what: String, at: usize| {
        Error::Invalid(format!("not a URI template: {what} at byte {at} of `{}`", excerpt(text)))
    };
    if text.len() > UriTemplate::LIMIT {
        return Err(Error::Invalid(format!(
            "a URI template of {} bytes exceeds the limit of {} bytes",
            text.len(),
            UriTemplate::LIMIT
        )));
    }
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut variables = 0;
    let mut at = 0;
    while let Some(character) = text[at..].chars().next() {
        if character != '{' {
            at += self::literal(&text[at..], character, &mut literal).map_err(|what| wrong(what, at))?;
            continue;
        }
        let Some(length) = text[at..].find('}') else {
            return Err(wrong("a `{` that is not closed".into(), at));
        };
        let expression =
            expression(&text[at + 1..at + length]).map_err(|(what, offset)| wrong(what, at + 1 + offset))?;
        variables += expression.variables.len();
        if variables > UriTemplate::MAX_VARIABLES {
            return Err(wrong(format!("more than {} variables", UriTemplate::MAX_VARIABLES), at));
        }
        if !literal.is_empty() {
            parts.push(TemplatePart::Literal(std::mem::take(&mut literal)));
        }
        parts.push(TemplatePart::Expression(expression));
        at += length + 1;
    }
    if !literal.is_empty() {
        parts.push(TemplatePart::Literal(literal));
    }
    Ok(parts)
}

/// Parses one literal character or escape and returns its length.
fn literal(rest: &str, character: char, out: &mut String) -> Result<usize, String> {
    match character {
        '%' if percent::is_escape(rest.as_bytes()) => {
            out.push_str(&rest[..3]);
            return Ok(3);
        }
        '%' => return Err("`%` without two hexadecimal digits".into()),
        '}' => return Err("a `}` that closes nothing".into()),
        // The grammar of the RFC excludes `'` too, but its examples use it, and URIs may contain it.
        ' ' | '"' | '<' | '>' | '\\' | '^' | '`' | '|' => {
            return Err(format!("`{character}`, which cannot be in a literal,"));
        }
        control if control.is_control() => {
            return Err(format!("the control character U+{:04X}", u32::from(control)));
        }
        ascii if ascii.is_ascii() => out.push(ascii),
        other => other.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| percent::escape(byte, out)),
    }
    Ok(character.len_utf8())
}

/// Parses the text between two braces. An error has its offset in `text`.
fn expression(text: &str) -> Result<Expression, (String, usize)> {
    let (operator, start) = match text.chars().next() {
        None => return Err(("an empty expression".into(), 0)),
        Some('+') => (Operator::Reserved, 1),
        Some('#') => (Operator::Fragment, 1),
        Some('.') => (Operator::Label, 1),
        Some('/') => (Operator::Path, 1),
        Some(';') => (Operator::Parameter, 1),
        Some('?') => (Operator::Query, 1),
        Some('&') => (Operator::Continuation, 1),
        Some(other @ ('=' | ',' | '!' | '@' | '|')) => {
            return Err((format!("the operator `{other}`, which has no meaning yet,"), 0));
        }
        Some(_) => (Operator::Simple, 0),
    };
    let mut variables = Vec::new();
    let mut at = start;
    for specification in text[start..].split(',') {
        variables.push(variable(specification).map_err(|(what, offset)| (what, at + offset))?);
        at += specification.len() + 1;
    }
    Ok(Expression { operator, variables })
}

/// Parses a variable with its modifier. An error has its offset in `text`.
fn variable(text: &str) -> Result<VariableSpec, (String, usize)> {
    let (name, modifier) = match text.find([':', '*']) {
        None => (text, Modifier::None),
        Some(end) if &text[end..] == "*" => (&text[..end], Modifier::Explode),
        Some(end) => {
            let digits = &text[end + 1..];
            // The grammar: one to four digits, the first not zero.
            let length = match digits.as_bytes() {
                [b'1'..=b'9', rest @ ..] if rest.len() <= 3 && text.as_bytes()[end] == b':' => {
                    digits.parse().ok()
                }
                _ => None,
            };
            let Some(length) = length else {
                return Err(("a modifier that is neither `*` nor `:` and a number below 10000".into(), end));
            };
            (&text[..end], Modifier::Prefix(length))
        }
    };
    if let Some((offset, what)) = misnamed(name) {
        return Err((what, offset));
    }
    Ok(VariableSpec { name: name.into(), modifier })
}

/// The syntax error in the name of a variable, with its offset.
fn misnamed(name: &str) -> Option<(usize, String)> {
    if name.is_empty() {
        return Some((0, "a variable without a name".into()));
    }
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' if percent::is_escape(&bytes[at..]) => at += 3,
            b'.' if at > 0 && at + 1 < bytes.len() && bytes[at - 1] != b'.' => at += 1,
            byte if byte.is_ascii_alphanumeric() || byte == b'_' => at += 1,
            _ => {
                let character = name[at..].chars().next().unwrap_or_default();
                return Some((at, format!("`{}` in the name of a variable", character.escape_debug())));
            }
        }
    }
    None
}
