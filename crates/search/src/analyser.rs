//! The tokenizer that tantivy uses for the text fields of the index.

use std::collections::HashMap;

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use crate::language::Language;
use crate::tokens::{StemCache, TextTokens};

/// The name under which the analyser is registered with tantivy.
pub(crate) const ANALYSER: &str = "libris";

/// The private-use code point that marks a text in the first language of [`Language::ALL`]; the next code points mark
/// the next languages. The mark is the first character of a field's text, because tantivy passes nothing but the text
/// to the analyser.
const FIRST_MARK: u32 = 0xe000;

/// Joins the texts of a field, and puts the character that encodes their language before them, for [`Analyser`].
pub(crate) fn marked<'t>(language: Language, texts: impl IntoIterator<Item = &'t str>) -> String {
    let mark = Language::ALL.iter().position(|known| *known == language).unwrap_or_default() as u32;
    let mut marked = String::from(char::from_u32(FIRST_MARK + mark).unwrap_or_default());
    for text in texts {
        marked.push_str(text);
        marked.push('\n');
    }
    marked
}

/// Tokenises a text that [`marked`] returned. A text without a mark is tokenised as English.
#[derive(Default)]
pub(crate) struct Analyser {
    stems: HashMap<Language, StemCache>,
    token: Token,
}

impl Clone for Analyser {
    /// A clone has empty caches.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Tokenizer for Analyser {
    type TokenStream<'a> = AnalysedTokens<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> AnalysedTokens<'a> {
        let mark = text.chars().next();
        let language = mark
            .and_then(|mark| Language::ALL.get(u32::from(mark).checked_sub(FIRST_MARK)? as usize).copied());
        let text = match (language, mark) {
            (Some(_), Some(mark)) => &text[mark.len_utf8()..],
            _ => text,
        };
        let language = language.unwrap_or(Language::English);
        let stems = self.stems.entry(language).or_insert_with(|| StemCache::new(language));
        self.token.reset();
        AnalysedTokens { tokens: TextTokens::new(text, stems), token: &mut self.token }
    }
}

/// The tokens of a field.
pub(crate) struct AnalysedTokens<'a> {
    tokens: TextTokens<'a>,
    token: &'a mut Token,
}

impl TokenStream for AnalysedTokens<'_> {
    fn advance(&mut self) -> bool {
        let Some(token) = self.tokens.next() else { return false };
        self.token.text = token.text;
        self.token.position = token.position as usize;
        self.token.offset_from = token.from;
        self.token.offset_to = token.to;
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}
