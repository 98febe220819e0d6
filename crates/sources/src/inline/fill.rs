//! Substitutes template variables in a text.

use libris_core::uri_template::{VariableValue, Variables};

/// How substituted values are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueEscape {
    /// Not at all.
    Nothing,
    /// As part of a JSON string.
    Json,
}

impl ValueEscape {
    /// The escaping for a media type.
    pub(super) fn of(mime: &str) -> Self {
        let essence = mime.split(';').next().unwrap_or_default().trim();
        if essence == "application/json" || essence.ends_with("+json") { Self::Json } else { Self::Nothing }
    }

    fn write(self, value: &str, out: &mut String) {
        match self {
            Self::Nothing => out.push_str(value),
            Self::Json => {
                let quoted = serde_json::Value::from(value).to_string();
                out.push_str(&quoted[1..quoted.len() - 1]);
            }
        }
    }
}

/// Replaces each `{{name}}` with the value of that variable. A variable without a value is replaced with nothing;
/// names that are not variables of the template are left unchanged.
pub(super) fn fill(text: &str, names: &[&str], variables: &Variables, escape: ValueEscape) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            TextPiece::Text(text) => out.push_str(text),
            TextPiece::Name(_, name) if names.contains(&name) => {
                if let Some(value) = variables.value(name) {
                    escape.write(&plain(value), &mut out);
                }
            }
            TextPiece::Name(whole, _) => out.push_str(whole),
        }
    }
    out
}

/// The names in double braces.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|piece| match piece {
        TextPiece::Name(_, name) => Some(name),
        TextPiece::Text(_) => None,
    })
}

enum TextPiece<'a> {
    Text(&'a str),
    /// A name, with and without its braces.
    Name(&'a str, &'a str),
}

/// Splits a text at each `{{name}}`.
fn pieces(text: &str) -> impl Iterator<Item = TextPiece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(open) = rest.find("{{") else { return Some(TextPiece::Text(std::mem::take(&mut rest))) };
        if open > 0 {
            let (text, name) = rest.split_at(open);
            rest = name;
            return Some(TextPiece::Text(text));
        }
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || "_.%".contains(letter))
        };
        match rest[2..].split_once("}}") {
            Some((inside, after)) if is_name(inside.trim()) => {
                let whole = &rest[..rest.len() - after.len()];
                rest = after;
                Some(TextPiece::Name(whole, inside.trim()))
            }
            // Advances by only one brace: in `{{{x}}`, the name begins at the second brace.
            _ => {
                let (text, after) = rest.split_at(1);
                rest = after;
                Some(TextPiece::Text(text))
            }
        }
    })
}

fn plain(value: &VariableValue) -> String {
    match value {
        VariableValue::Text(text) => text.clone(),
        VariableValue::List(list) => list.join(","),
        VariableValue::Map(map) => {
            map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ValueEscape, fill};
    use libris_core::uri_template::Variables;

    #[test]
    fn variables_are_filled_in() {
        let variables = Variables::from_iter([("city", "Pa\"ris"), ("b", "{{city}}")]);
        let filled = |text| fill(text, &["city", "b", "unset"], &variables, ValueEscape::Nothing);
        assert_eq!(filled("{{city}} {{ city }}"), "Pa\"ris Pa\"ris");
        assert_eq!(filled("{{b}}"), "{{city}}");
        assert_eq!(filled("[{{unset}}]"), "[]");
        assert_eq!(filled("{{other}} {{{city}}} {{city"), "{{other}} {Pa\"ris} {{city");
        assert_eq!(
            fill(r#"{"c":"{{city}}"}"#, &["city"], &variables, ValueEscape::Json),
            r#"{"c":"Pa\"ris"}"#
        );
    }

    #[test]
    fn json_is_known_by_its_media_type() {
        for mime in ["application/json", "application/ld+json", "application/json; charset=utf-8"] {
            assert_eq!(ValueEscape::of(mime), ValueEscape::Json, "{mime}");
        }
        assert_eq!(ValueEscape::of("text/plain"), ValueEscape::Nothing);
    }
}
