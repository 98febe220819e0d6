//! Token counts of texts.

/// The number of tokens of a text: those of the encoding `o200k_base` with the feature `tokens`, otherwise an estimate that
/// is too high for most texts.
pub fn count_tokens(text: &str) -> usize {
    #[cfg(feature = "tokens")]
    return bpe_openai::o200k_base().count(text);
    #[cfg(not(feature = "tokens"))]
    text.len().div_ceil(3)
}
