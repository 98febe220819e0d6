//! HTML output: escaped text and attributes.

/// Appends text as HTML. Bidirectional embeddings, overrides and isolates are shown by their code points, so that code
/// and names cannot be displayed in a misleading order.
pub(crate) fn push_text(out: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push_str(&format!("<span class=\"bidi\">U+{:04X}</span>", u32::from(letter)));
            }
            // ASCII control characters are invisible, except tab and line breaks.
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}' => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
}

/// Appends the value of an attribute, without the quotes around it.
pub(crate) fn push_attribute(out: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if letter.is_control() => {}
            letter => out.push(letter),
        }
    }
}

/// Text as HTML.
pub(crate) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    push_text(&mut out, text);
    out
}

/// The first `limit` characters of a text, and whether that is the whole text.
pub(crate) fn beginning(text: &str, limit: usize) -> (&str, bool) {
    match text.char_indices().nth(limit) {
        Some((end, _)) => (&text[..end], false),
        None => (text, true),
    }
}

#[cfg(test)]
mod tests {
    use super::{beginning, push_attribute, text};

    #[test]
    fn markup_is_escaped_and_direction_is_visible() {
        assert_eq!(text("<b>&\"'"), "&lt;b&gt;&amp;&quot;&#39;");
        assert_eq!(text("a\u{202e}b"), "a<span class=\"bidi\">U+202E</span>b");
        assert_eq!(text("a\0b\n\t"), "a\u{fffd}b\n\t");
        let mut value = String::new();
        push_attribute(&mut value, "\"><script>\n");
        assert_eq!(value, "&quot;&gt;&lt;script&gt;");
    }

    #[test]
    fn a_text_is_cut_at_a_character() {
        assert_eq!(beginning("äöü", 2), ("äö", false));
        assert_eq!(beginning("äöü", 3), ("äöü", true));
    }
}
