//! Patterns of a configuration, written as in a `.gitignore` file, and with alternatives such as `*.{md,txt}`.

use std::{borrow::Cow, path::Path};

use libris_core::{Error, Result};

use crate::ignore_patterns::{IgnorePatterns, PatternVerdict};

/// The patterns of one configuration key. A pattern that begins with `!` cancels the matches of those before
/// it.
#[derive(Default)]
pub(crate) struct ConfiguredPatterns(IgnorePatterns);

impl ConfiguredPatterns {
    /// Parses the patterns of a key.
    pub(crate) fn new(key: &str, patterns: &[String]) -> Result<Self> {
        let mut expanded = Vec::new();
        for pattern in patterns {
            let checked = fault(pattern).map_or(Ok(()), Err).and_then(|()| expand(pattern, &mut expanded));
            checked.map_err(|why| {
                Error::invalid(format!("`{key}` has the invalid pattern `{pattern}`: {why}"))
            })?;
        }
        let text = expanded.join("\n").into_bytes().into();
        Ok(Self(IgnorePatterns::parse(&text, usize::MAX).expect("the number of patterns is unlimited")))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Whether a path, with slashes between names, matches.
    pub(crate) fn matches(&self, path: &[u8], directory: bool) -> bool {
        self.verdict(path, directory) == Some(PatternVerdict::Ignored)
    }

    /// Whether a path or one of the directories above it matches. If several have a verdict, the longest path decides.
    pub(crate) fn matches_path_or_parent(&self, path: &[u8], directory: bool) -> bool {
        let parents = memchr::memrchr_iter(b'/', path).map(|slash| self.verdict(&path[..slash], true));
        let mut verdicts = std::iter::once(self.verdict(path, directory)).chain(parents).flatten();
        verdicts.next() == Some(PatternVerdict::Ignored)
    }

    fn verdict(&self, path: &[u8], directory: bool) -> Option<PatternVerdict> {
        let name = memchr::memrchr(b'/', path).map_or(path, |slash| &path[slash + 1..]);
        self.0.matched(path, name, directory)
    }
}

/// The mistake in a pattern, if it has one. Git accepts such patterns in an ignore file, but they match nothing, or not
/// the intended names.
fn fault(pattern: &str) -> Option<&'static str> {
    let bytes = pattern.as_bytes();
    if bytes.starts_with(b"#") {
        return None;
    }
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if at + 1 == bytes.len() => return Some("there is nothing after its last backslash"),
            b'\\' => at += 1,
            b'[' => match bracket_end(bytes, at) {
                Some(end) => at = end,
                None => return Some("its `[` has no `]`"),
            },
            _ => {}
        }
        at += 1;
    }
    None
}

/// The maximum number of patterns of one key after its alternatives were expanded.
const MAX_EXPANDED: usize = 1_000;

/// Adds a pattern with each combination of its alternatives: `{a,b}.md` is `a.md` and `b.md`. Git has no alternatives.
fn expand(pattern: &str, into: &mut Vec<String>) -> std::result::Result<(), &'static str> {
    match first_group(pattern)? {
        None if into.len() >= MAX_EXPANDED => Err("there are more than 1000 alternatives"),
        None => {
            into.push(pattern.to_owned());
            Ok(())
        }
        Some(group) => {
            let (before, after) = (&pattern[..group.start], &pattern[group.end + 1..]);
            let mut alternatives = group.separators.windows(2);
            alternatives.try_for_each(|ends| {
                expand(&format!("{before}{}{after}", &pattern[ends[0] + 1..ends[1]]), into)
            })
        }
    }
}

/// The positions of a group of alternatives in a pattern.
struct AlternativeGroup {
    start: usize,
    end: usize,
    /// The positions of the braces, and of the commas between them.
    separators: Vec<usize>,
}

/// The first group of alternatives, which may contain others.
fn first_group(pattern: &str) -> std::result::Result<Option<AlternativeGroup>, &'static str> {
    let bytes = pattern.as_bytes();
    if bytes.starts_with(b"#") {
        return Ok(None);
    }
    let (mut at, mut depth, mut separators) = (0, 0, Vec::new());
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'[' => at = bracket_end(bytes, at).unwrap_or(at),
            b'{' => {
                depth += 1;
                if depth == 1 {
                    separators.push(at);
                }
            }
            b',' if depth == 1 => separators.push(at),
            b'}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    separators.push(at);
                    return Ok(Some(AlternativeGroup { start: separators[0], end: at, separators }));
                }
            }
            _ => {}
        }
        at += 1;
    }
    if depth == 0 { Ok(None) } else { Err("its `{` has no `}`; write `\\{` for the character") }
}

/// The position of the `]` that ends a bracket expression. A `]` that comes first is an ordinary character.
fn bracket_end(pattern: &[u8], open: usize) -> Option<usize> {
    let first = open + 1 + usize::from(matches!(pattern.get(open + 1), Some(b'!' | b'^')));
    let mut at = first;
    loop {
        match pattern.get(at)? {
            b']' if at > first => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// A path with slashes between names, also on Windows.
pub(crate) fn with_slashes(path: &Path) -> Cow<'_, [u8]> {
    let path = path.as_os_str().as_encoded_bytes();
    if cfg!(windows) {
        path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect()
    } else {
        path.into()
    }
}

#[cfg(test)]
mod tests {
    use super::{ConfiguredPatterns, expand, fault};

    fn patterns(patterns: &[&str]) -> ConfiguredPatterns {
        let owned: Vec<_> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        ConfiguredPatterns::new("include", &owned).unwrap()
    }

    #[test]
    fn a_path_matches_by_itself_or_by_a_directory_above_it() {
        let guide = patterns(&["guide/", "!guide/drafts/", "/top.md"]);
        assert!(guide.matches_path_or_parent(b"guide/a/b.md", false));
        assert!(
            guide.matches_path_or_parent(b"guide", true) && !guide.matches_path_or_parent(b"guide", false)
        );
        assert!(!guide.matches_path_or_parent(b"guide/drafts/b.md", false), "the longer path decides");
        assert!(guide.matches_path_or_parent(b"top.md", false));
        assert!(!guide.matches_path_or_parent(b"deep/top.md", false));
        assert!(!guide.matches(b"guide/a/b.md", false) && guide.matches(b"deep/guide", true));
    }

    #[test]
    fn comments_and_empty_lines_are_no_patterns() {
        assert!(patterns(&[]).is_empty() && patterns(&["# {a", "", "/"]).is_empty());
        assert!(!patterns(&["a"]).is_empty());
    }

    #[test]
    fn alternatives_stand_for_several_patterns() {
        let cases: [(&str, &[&str]); 6] = [
            ("*.{md,txt}", &["*.md", "*.txt"]),
            ("!{a,b{1,2}}/x", &["!a/x", "!b1/x", "!b2/x"]),
            ("{a}{,b}", &["a", "ab"]),
            ("\\{a,b}", &["\\{a,b}"]),
            ("[{]a,b}", &["[{]a,b}"]),
            ("# {a", &["# {a"]),
        ];
        for (pattern, expected) in cases {
            let mut expanded = Vec::new();
            expand(pattern, &mut expanded).unwrap();
            assert_eq!(expanded, expected, "{pattern}");
        }
        assert!(expand("a{b", &mut Vec::new()).is_err_and(|why| why.contains("no `}`")));
        let bomb = "{a,b}".repeat(40);
        assert!(expand(&bomb, &mut Vec::new()).is_err_and(|why| why.contains("more than 1000")));
        let documents = patterns(&["*.{md,txt}"]);
        assert!(documents.matches(b"a.txt", false) && !documents.matches(b"a.rs", false));
    }

    #[test]
    fn patterns_that_would_not_match_what_was_meant_are_errors() {
        for pattern in
            ["*.md", "[ab]*", "[]]", "[!]a]", "a\\{b", "[{]", "\\[a", "a]b", "[[:alpha:]]x", "a\\\\"]
        {
            assert_eq!(fault(pattern), None, "{pattern}");
        }
        for (pattern, why) in [("[a", "no `]`"), ("[]", "no `]`"), ("[a\\]", "no `]`"), ("a\\", "backslash")]
        {
            assert!(
                fault(pattern).is_some_and(|fault| fault.contains(why)),
                "{pattern}: {:?}",
                fault(pattern)
            );
        }
    }
}
