//! Estimates how much memory the decoded form of a JSON text takes, before it is decoded.
//!
//! A value of few bytes takes much memory when it is decoded: `{"":0},` has 7 bytes, and takes about 700. So the size of a
//! message alone does not limit the memory that decoding it takes.

/// The estimated memory of an object, in bytes, besides its entries.
const OBJECT: usize = 640;

/// The estimated memory of another value, or of an entry of an object, in bytes, besides its text.
const VALUE: usize = 64;

/// The decoded form of a message may take this many times as much memory as the largest message (`max_message`).
const FACTOR: usize = 8;

/// A JSON text of `n` bytes weighs at most this many times `n`.
const MAX_PER_BYTE: usize = OBJECT + VALUE;

/// Checks that the decoded form of a JSON text takes at most [`FACTOR`] times `max_message` bytes; otherwise returns this limit.
pub(crate) fn check(text: &[u8], max_message: usize) -> Result<(), usize> {
    let limit = max_message.saturating_mul(FACTOR);
    match text.len().saturating_mul(MAX_PER_BYTE) <= limit || weight(text) <= limit {
        true => Ok(()),
        false => Err(limit),
    }
}

/// Estimates the memory of the decoded form of a text, which need not be valid JSON.
fn weight(text: &[u8]) -> usize {
    let (mut weight, mut in_string, mut is_escaped) = (text.len(), false, false);
    for byte in text {
        if in_string {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        weight += match byte {
            b'"' => {
                in_string = true;
                0
            }
            b'{' => OBJECT,
            b'[' | b',' | b':' => VALUE,
            _ => 0,
        };
    }
    weight
}

#[cfg(test)]
mod tests {
    use super::{OBJECT, VALUE, check, weight};

    #[test]
    fn values_are_counted_and_texts_are_not() {
        let text = br#"{"text":"a, {b} [c]: \"{\" \\","list":[1,2]}"#;
        assert_eq!(weight(text) - text.len(), OBJECT + 5 * VALUE);
        assert_eq!(weight(b"\"{{{{"), 5);
    }

    #[test]
    fn many_small_values_are_refused_and_a_large_text_is_not() {
        let limit = 1 << 20;
        let large = format!(r#"{{"text":"{}"}}"#, "{".repeat(limit));
        assert_eq!(check(large.as_bytes(), limit), Ok(()));
        for small in ["[],", "{},", "{\"\":0},", "0,", "[[[[[[[["] {
            let text = format!("[{}0]", small.repeat(limit / small.len()));
            assert_eq!(check(text.as_bytes(), limit), Err(8 * limit), "{small}");
        }
        // A page of resources with short metadata.
        let resource = r#"{"uri":"file:///handbook/travel/expenses.md","name":"expenses.md","mimeType":"text/markdown","size":1234},"#;
        let page = format!("[{}0]", resource.repeat(limit / 2 / resource.len()));
        assert_eq!(check(page.as_bytes(), limit), Ok(()));
    }
}
