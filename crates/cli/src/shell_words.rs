//! The words of a command line that a shell completes.

/// The characters that bash inserts without a special meaning. All others are escaped.
const PLAIN: &str = "-_./:=@%+,";

/// A command line as bash gives it to a completion function: as text, because bash splits words at `:` and `=`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BashLine {
    /// The words, without quotes. The word at the cursor is cut off at the cursor.
    pub(crate) words: Vec<String>,
    /// The number of the word at the cursor.
    pub(crate) current: usize,
    /// The word at the cursor, up to the cursor.
    pub(crate) typed: String,
    /// The quote that is open at the cursor.
    quote: Option<char>,
    /// How many characters of the typed word readline keeps: it replaces only the characters after the last word break.
    kept: usize,
}

/// A word that is being read.
#[derive(Default)]
struct ShellWord {
    text: String,
    quote: Option<char>,
    is_escaped: bool,
    has_begun: bool,
}

impl ShellWord {
    /// Adds a character. Returns whether it ends the word.
    fn add(&mut self, letter: char) -> bool {
        let is_escaped = std::mem::take(&mut self.is_escaped);
        match (self.quote, letter) {
            _ if is_escaped => self.text.push(letter),
            (None | Some('"'), '\\') => self.is_escaped = true,
            (None, '\'' | '"') => self.quote = Some(letter),
            (Some(quote), letter) if quote == letter => self.quote = None,
            (None, letter) if letter.is_whitespace() => return true,
            _ => self.text.push(letter),
        }
        self.has_begun = true;
        false
    }
}

impl BashLine {
    /// Parses the command line in front of the cursor and after it. `breaks` are the characters at which readline begins a
    /// new word (`COMP_WORDBREAKS`).
    pub(crate) fn parse(before: &str, after: &str, breaks: &str) -> Self {
        let (mut words, mut word) = (Vec::new(), ShellWord::default());
        for letter in before.chars() {
            if word.add(letter) {
                words.extend(
                    Some(std::mem::take(&mut word)).filter(|word| word.has_begun).map(|word| word.text),
                );
            }
        }
        let (typed, quote, current) = (word.text.clone(), word.quote, words.len());
        words.push(typed.clone());
        // Skips the part of the word after the cursor, because completion replaces only what precedes the cursor.
        let mut rest = after.chars();
        while rest.clone().next().is_some_and(|letter| !word.add(letter)) {
            rest.next();
        }
        let mut word = ShellWord::default();
        for letter in rest.chain([' ']) {
            if word.add(letter) {
                words.extend(
                    Some(std::mem::take(&mut word)).filter(|word| word.has_begun).map(|word| word.text),
                );
            }
        }
        let is_break = |letter: char| breaks.contains(letter) && !letter.is_whitespace();
        let after_break = typed.chars().rev().position(is_break).filter(|_| quote.is_none());
        let kept = after_break.map_or(0, |after| typed.chars().count() - after);
        Self { words, current, typed, quote, kept }
    }

    /// The escaped text with which readline replaces the last part of the typed word, so that the word becomes this
    /// candidate. `None` if the candidate does not begin with the typed text, or cannot be escaped.
    pub(crate) fn replacement(&self, candidate: &str) -> Option<String> {
        candidate.starts_with(&self.typed).then_some(())?;
        let rest = candidate.chars().skip(self.kept);
        let mut text = String::new();
        for letter in rest {
            match self.quote {
                Some('\'') if letter == '\'' => text.push_str("'\\''"),
                Some('\'') => text.push(letter),
                // No escape in double quotes prevents the expansion of the history.
                Some(_) if letter == '!' => return None,
                Some(_) => {
                    text.extend("\\$`\"".contains(letter).then_some('\\'));
                    text.push(letter);
                }
                None => {
                    let is_plain = letter.is_alphanumeric() || PLAIN.contains(letter);
                    text.extend((!is_plain).then_some('\\'));
                    text.push(letter);
                }
            }
        }
        Some(text)
    }
}

/// The words of a command line as zsh and fish give them: without quotes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GivenWords {
    pub(crate) words: Vec<String>,
    /// The number of the word at the cursor.
    pub(crate) current: usize,
}

impl GivenWords {
    /// `typed` is the word at the cursor, up to the cursor. If it is empty, fish leaves it out of `words`.
    pub(crate) fn new(current: usize, typed: &str, words: &[String]) -> Self {
        let mut words = words.to_vec();
        let current = current.min(words.len());
        let is_there = words.get(current).is_some_and(|word| match typed {
            "" => word.is_empty(),
            typed => word.starts_with(typed),
        });
        match is_there {
            true => words[current] = typed.to_owned(),
            false => words.insert(current, typed.to_owned()),
        }
        Self { words, current }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert_eq, proptest};

    use super::{BashLine, GivenWords};

    const BREAKS: &str = " \t\n\"'><=;|&(:";

    fn line(before: &str, after: &str) -> BashLine {
        BashLine::parse(before, after, BREAKS)
    }

    #[test]
    fn words_are_unquoted() {
        let parsed = line(r#"libris  read 'a b'"c"\ d file:///do"#, "cs/x ./docs  'e f'");
        assert_eq!(parsed.words, ["libris", "read", "a bc d", "file:///do", "./docs", "e f"]);
        assert_eq!((parsed.current, &*parsed.typed), (3, "file:///do"));
        let empty = line("libris read ", " ./docs");
        assert_eq!(
            (empty.words, empty.current),
            (["libris", "read", "", "./docs"].map(String::from).into(), 2)
        );
        let quoted = line("libris read \"fi", "le:///a\" ./docs");
        assert_eq!(quoted.words, ["libris", "read", "fi", "./docs"]);
    }

    #[test]
    fn only_what_readline_replaces_is_inserted() {
        let inserted = |before: &str, candidate: &str| line(before, "").replacement(candidate);
        assert_eq!(inserted("libris read fi", "file:///docs/").as_deref(), Some("file:///docs/"));
        assert_eq!(inserted("libris read file:///d", "file:///docs/").as_deref(), Some("///docs/"));
        assert_eq!(inserted("libris read file:", "file:///docs/").as_deref(), Some("///docs/"));
        assert_eq!(inserted("libris read 'file:///d", "file:///docs/").as_deref(), Some("file:///docs/"));
        assert_eq!(inserted("libris complete x city=O", "city=Oslo").as_deref(), Some("Oslo"));
        assert_eq!(inserted("libris read x", "file:///docs/"), None);
    }

    #[test]
    fn no_candidate_is_code_for_the_shell() {
        let hostile = "a:$(reboot)`x`;&'\"!*?[~{}#<>|\\ é";
        let unquoted = line("libris read ", "").replacement(hostile).unwrap();
        assert_eq!(unquoted, r#"a:\$\(reboot\)\`x\`\;\&\'\"\!\*\?\[\~\{\}\#\<\>\|\\\ é"#);
        assert_eq!(line("libris read '", "").replacement("a'$(b)").as_deref(), Some(r"a'\''$(b)"));
        assert_eq!(line("libris read \"", "").replacement("a$(b)`\"").as_deref(), Some(r#"a\$(b)\`\""#));
        assert_eq!(line("libris read \"", "").replacement("a!b"), None);
    }

    #[test]
    fn an_empty_word_is_inserted_where_the_shell_leaves_it_out() {
        let given = |index, typed, words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            GivenWords::new(index, typed, &words).words
        };
        assert_eq!(given(2, "", &["libris", "read", "./docs"]), ["libris", "read", "", "./docs"]);
        assert_eq!(given(2, "", &["libris", "read", "", "./docs"]), ["libris", "read", "", "./docs"]);
        assert_eq!(
            given(2, "fi", &["libris", "read", "file:", "./docs"]),
            ["libris", "read", "fi", "./docs"]
        );
        assert_eq!(given(9, "x", &["libris"]), ["libris", "x"]);
    }

    proptest! {
        /// Whatever a candidate is, the shell reads back the same text.
        #[test]
        fn escaping_round_trips(candidate in "[ -~]{0,20}", quote in "['\"]?") {
            let before = format!("libris read {quote}");
            if let Some(text) = line(&before, "").replacement(&candidate) {
                let read = line(&format!("{before}{text}"), "");
                prop_assert_eq!(read.typed, candidate);
            }
        }
    }
}
