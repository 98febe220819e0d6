//! The tokenizer that tantivy uses for the text fields of the index.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use crate::backlog::Backlog;
use crate::language::Language;
use crate::tokens::{StemCaches, TextToken, TextTokens};

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
        marked.reserve(text.len() + 1);
        marked.push_str(text);
        marked.push('\n');
    }
    marked
}

/// Tokenises texts that [`marked`] returned. A text without a mark is tokenised as English.
///
/// tantivy clones the analyser for each field of each segment, and uses one clone after the other. The clones share the
/// cache of stems.
#[derive(Clone, Default)]
pub(crate) struct Analyser {
    stems: Arc<Mutex<StemCaches>>,
    backlog: Arc<Backlog>,
    read: TextToken,
    token: Token,
}

impl Analyser {
    /// An analyser that reports to `backlog` which texts it has begun to tokenise.
    pub(crate) fn new(backlog: Arc<Backlog>) -> Self {
        Self { backlog, ..Self::default() }
    }

    /// Frees the cache of stems.
    pub(crate) fn forget_stems(&self) {
        *self.stems.lock().unwrap_or_else(PoisonError::into_inner) = StemCaches::default();
    }
}

impl Tokenizer for Analyser {
    type TokenStream<'a> = AnalysedTokens<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> AnalysedTokens<'a> {
        self.backlog.remove(text.len());
        let mark = text.chars().next();
        let language = mark
            .and_then(|mark| Language::ALL.get(u32::from(mark).checked_sub(FIRST_MARK)? as usize).copied());
        let text = match (language, mark) {
            (Some(_), Some(mark)) => &text[mark.len_utf8()..],
            _ => text,
        };
        let language = language.unwrap_or(Language::English);
        self.token.reset();
        AnalysedTokens {
            tokens: TextTokens::new(text),
            language,
            stems: self.stems.lock().unwrap_or_else(PoisonError::into_inner),
            read: &mut self.read,
            token: &mut self.token,
        }
    }
}

/// The tokens of a field.
pub(crate) struct AnalysedTokens<'a> {
    tokens: TextTokens<'a>,
    language: Language,
    stems: MutexGuard<'a, StemCaches>,
    read: &'a mut TextToken,
    token: &'a mut Token,
}

impl TokenStream for AnalysedTokens<'_> {
    fn advance(&mut self) -> bool {
        if !self.tokens.read(self.stems.of(self.language), self.read) {
            return false;
        }
        // The text is swapped, so that both strings are used again.
        std::mem::swap(&mut self.token.text, &mut self.read.text);
        self.token.position = self.read.position as usize;
        (self.token.offset_from, self.token.offset_to) = (self.read.from, self.read.to);
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}
