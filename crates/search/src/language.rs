//! Languages: detection by stop words, and stemming.

use std::collections::HashMap;
use std::sync::OnceLock;

use foldhash::fast::FixedState;
use frostem::{Algorithm, Stemmer};

/// A language whose words are stemmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    English,
    German,
    French,
    Spanish,
    Italian,
    Portuguese,
    Dutch,
    Swedish,
    Danish,
    Russian,
}

/// A set of languages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Languages(u16);

impl Languages {
    #[cfg(test)]
    pub(crate) const ALL: Self = Self((1 << Language::ALL.len()) - 1);

    /// The set of the languages at these indices of [`Language::ALL`].
    pub(crate) fn from_indices(indices: impl Iterator<Item = usize>) -> Self {
        Self(indices.fold(0, |set, at| set | 1 << at))
    }

    pub(crate) fn with(self, language: Language) -> Self {
        Self(self.0 | 1 << language as u16)
    }

    pub(crate) fn contains(self, language: Language) -> bool {
        self.0 >> language as u16 & 1 == 1
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Language> {
        Language::ALL.into_iter().filter(move |language| self.contains(*language))
    }

    /// Whether a lower-case word is a stop word of one of these languages: too common to identify a resource.
    pub(crate) fn have_stop_word(self, word: &str) -> bool {
        stop_words().get(word).is_some_and(|languages| languages & self.0 != 0)
    }
}

/// The language is detected from this many words at the beginning of a text.
const MAX_DETECTION_WORDS: usize = 200;

impl Language {
    /// All languages. Their order is part of the index format.
    pub(crate) const ALL: [Self; 10] = [
        Self::English,
        Self::German,
        Self::French,
        Self::Spanish,
        Self::Italian,
        Self::Portuguese,
        Self::Dutch,
        Self::Swedish,
        Self::Danish,
        Self::Russian,
    ];

    fn algorithm(self) -> Algorithm {
        match self {
            Self::English => Algorithm::English,
            Self::German => Algorithm::German,
            Self::French => Algorithm::French,
            Self::Spanish => Algorithm::Spanish,
            Self::Italian => Algorithm::Italian,
            Self::Portuguese => Algorithm::Portuguese,
            Self::Dutch => Algorithm::Dutch,
            Self::Swedish => Algorithm::Swedish,
            Self::Danish => Algorithm::Danish,
            Self::Russian => Algorithm::Russian,
        }
    }

    fn stop_words(self) -> &'static [&'static str] {
        match self {
            Self::English => ENGLISH,
            Self::German => &[
                "der", "die", "das", "und", "ist", "nicht", "ein", "eine", "zu", "den", "mit", "von", "für",
                "auf", "dem", "sich", "des", "im", "wird", "werden", "wie", "kann", "auch", "oder", "bei",
                "einen", "einer", "ich", "sind", "aus", "wenn", "nach", "als", "an",
            ],
            Self::French => &[
                "le", "la", "les", "des", "et", "est", "une", "un", "du", "dans", "pour", "que", "qui",
                "pas", "sur", "avec", "par", "au", "aux", "ce", "cette", "sont", "ou", "il", "vous", "nous",
                "comment", "être", "plus",
            ],
            Self::Spanish => &[
                "el", "la", "los", "las", "de", "que", "y", "en", "un", "una", "es", "por", "para", "con",
                "no", "se", "del", "al", "como", "cómo", "lo", "su", "más", "pero", "este", "está", "son",
            ],
            Self::Italian => &[
                "il", "lo", "la", "gli", "le", "di", "che", "è", "e", "un", "una", "per", "con", "non",
                "del", "della", "dei", "nel", "si", "sono", "come", "da", "al", "alla", "questo", "più",
            ],
            Self::Portuguese => &[
                "o", "os", "as", "de", "que", "e", "do", "da", "em", "um", "uma", "para", "com", "não",
                "por", "dos", "das", "no", "na", "é", "se", "como", "mais", "ao", "são", "você",
            ],
            Self::Dutch => &[
                "de", "het", "een", "en", "van", "is", "niet", "dat", "die", "in", "op", "te", "zijn",
                "voor", "met", "aan", "er", "om", "ook", "als", "worden", "wordt", "bij", "naar", "hoe",
            ],
            Self::Swedish => &[
                "och", "att", "det", "som", "en", "på", "är", "av", "för", "med", "till", "den", "inte",
                "om", "ett", "var", "kan", "eller", "från", "när", "hur", "ska", "också",
            ],
            Self::Danish => &[
                "og", "at", "det", "som", "en", "på", "er", "af", "for", "med", "til", "den", "ikke", "om",
                "et", "kan", "eller", "fra", "når", "hvordan", "skal", "også", "være", "der",
            ],
            Self::Russian => &[
                "и", "в", "не", "на", "что", "с", "по", "это", "как", "для", "к", "из", "от", "или", "за",
                "при", "то", "его", "но", "если", "а", "у", "о",
            ],
        }
    }

    /// The language with the most stop words among the first words of a text; `None` if there are too few stop words.
    pub(crate) fn detect(text: &str) -> Option<Self> {
        let words = text.split(|letter: char| !letter.is_alphabetic()).filter(|word| !word.is_empty());
        let mut counts = [0_usize; Self::ALL.len()];
        let mut seen = 0;
        let mut lower = String::new();
        for word in words.take(MAX_DETECTION_WORDS) {
            seen += 1;
            // No stop word has more than 12 bytes, and single ASCII letters are more often variable names than words.
            if word.len() > 12 || word.len() == 1 {
                continue;
            }
            lower.clear();
            match word.is_ascii() {
                true => lower.extend(word.bytes().map(|byte| char::from(byte.to_ascii_lowercase()))),
                false => lower.extend(word.chars().flat_map(char::to_lowercase)),
            }
            let languages = stop_words().get(&*lower).copied().unwrap_or_default();
            if languages != 0 {
                for (at, count) in counts.iter_mut().enumerate() {
                    *count += usize::from(languages >> at & 1);
                }
            }
        }
        let (best, count) = counts.iter().enumerate().max_by_key(|(at, count)| (**count, usize::MAX - at))?;
        // With fewer than one stop word in 20 words, the text is code or a table.
        (*count > 0 && *count * 20 >= seen).then(|| Self::ALL[best])
    }

    pub(crate) fn stemmer(self) -> Stemmer {
        Stemmer::new(self.algorithm())
    }
}

/// The stop words of all languages, each with a bit set of the languages that have it, by index in [`Language::ALL`].
fn stop_words() -> &'static HashMap<&'static str, u16, FixedState> {
    static WORDS: OnceLock<HashMap<&'static str, u16, FixedState>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let mut words = HashMap::default();
        for (at, language) in Language::ALL.iter().enumerate() {
            for word in language.stop_words() {
                *words.entry(*word).or_default() |= 1 << at;
            }
        }
        words
    })
}

/// Whether a lower-case word, as part of a question, says little about its subject.
pub(crate) fn is_vague(word: &str) -> bool {
    VAGUE_ENGLISH_WORDS.contains(&word)
}

const ENGLISH: &[&str] = &[
    "the", "a", "an", "and", "or", "of", "to", "in", "on", "is", "are", "be", "for", "with", "that", "this",
    "it", "as", "at", "by", "from", "not", "can", "if", "you", "your", "i", "my", "do", "does", "how",
    "what", "why", "when", "where", "which", "was", "were", "will", "would", "should", "there", "their",
    "they", "has", "have", "had", "but", "so", "its", "we", "me",
];

/// English words of questions that say little about the subject.
const VAGUE_ENGLISH_WORDS: &[&str] = &[
    "who", "whom", "whose", "did", "am", "im", "ive", "could", "than", "then", "too", "any", "some", "into",
    "about", "isnt", "doesnt", "dont", "cant", "wont", "arent", "didnt", "shouldnt", "whats", "wheres", "t",
    "s", "get", "got", "use", "using", "work", "way", "want", "make", "know", "put", "come", "still", "find",
    "need", "keep", "let", "like", "go", "goes", "going", "see", "say", "take", "give", "all", "between",
    "out", "more", "most", "each", "every", "other", "another", "such", "only", "own", "same", "very",
    "just", "up", "down", "over", "under", "again", "once", "here", "both", "few", "now", "before", "after",
    "during", "one", "two", "anything", "instead", "without", "through", "also", "while", "because", "being",
    "been", "them", "these", "those", "our", "us", "he", "she", "his", "her", "him", "never", "always",
    "many", "much",
];

#[cfg(test)]
mod tests {
    use super::Language;

    #[test]
    fn the_language_is_that_of_the_stop_words() {
        let texts = [
            ("How do I remove a file from the index of the server?", Some(Language::English)),
            ("Wie kann ich eine Datei aus dem Index des Servers entfernen?", Some(Language::German)),
            ("Comment supprimer un fichier dans le répertoire des données ?", Some(Language::French)),
            ("Cómo se elimina un archivo de la lista de los servidores", Some(Language::Spanish)),
            ("Как удалить файл из индекса, если это не нужно", Some(Language::Russian)),
            ("let mut x = y.z(); return x;", None),
            ("", None),
        ];
        for (text, expected) in texts {
            assert_eq!(Language::detect(text), expected, "{text}");
        }
    }
}
