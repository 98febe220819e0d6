//! Token counts of texts.

/// The maximum number of bytes that are encoded at once: the encoder takes quadratic time for letters without spaces.
#[cfg(feature = "tokens")]
const MAX_ENCODED: usize = 2048;

/// The number of tokens of a text: by the encoding `o200k_base` with the feature `tokens`, otherwise an estimate that
/// is too high for most texts.
pub fn count_tokens(text: &str) -> usize {
    #[cfg(feature = "tokens")]
    return pieces(text).map(|piece| tiktoken_rs::o200k_base_singleton().encode_ordinary(piece).len()).sum();
    #[cfg(not(feature = "tokens"))]
    text.len().div_ceil(3)
}

/// A text in pieces of bounded length. Cuts before a space if possible, because most tokens begin with a space.
#[cfg(feature = "tokens")]
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let end = text.floor_char_boundary(MAX_ENCODED);
        let space = text[..end].rfind(' ').filter(|at| *at > 0);
        let at = if end == text.len() { end } else { space.unwrap_or(end) };
        let (piece, rest) = text.split_at(at);
        text = rest;
        Some(piece)
    })
}

#[cfg(all(test, feature = "tokens"))]
mod tests {
    use super::{MAX_ENCODED, count_tokens, pieces};

    #[test]
    fn texts_are_counted_in_pieces() {
        assert_eq!(count_tokens(""), 0);
        assert_eq!(count_tokens("hello world"), 2);
        let words = "hello world ".repeat(1000);
        assert_eq!(pieces(&words).collect::<String>(), words);
        assert!(pieces(&words).all(|piece| piece.len() <= MAX_ENCODED));
        assert!((2000..2020).contains(&count_tokens(&words)), "{}", count_tokens(&words));
    }

    #[test]
    fn a_text_without_spaces_is_counted_in_linear_time() {
        let endless = "ä".repeat(200_000);
        assert_eq!(pieces(&endless).map(str::len).sum::<usize>(), endless.len());
        assert!(count_tokens(&endless) > 10_000);
    }
}
