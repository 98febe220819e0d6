//! Patterns of a configuration, written as in a `.gitignore` file.

#[cfg(feature = "files")]
use std::{borrow::Cow, path::Path};

use libris_core::{Error, Result};

use crate::ignore_patterns::{IgnorePatterns, PatternVerdict};

/// The patterns of one configuration key. A pattern that begins with `!` takes back the matches of those before it.
#[derive(Default)]
pub(crate) struct ConfiguredPatterns(IgnorePatterns);

impl ConfiguredPatterns {
    /// Parses the patterns of a key.
    pub(crate) fn new(key: &str, patterns: &[String]) -> Result<Self> {
        if let Some((pattern, why)) = patterns.iter().find_map(|pattern| Some((pattern, fault(pattern)?))) {
            return Err(Error::invalid(format!("`{key}` has the invalid pattern `{pattern}`: {why}")));
        }
        let text = patterns.join("\n").into_bytes().into();
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

/// What is wrong with a pattern. In an ignore file, git accepts all of this and matches nothing, or another name than was
/// probably meant.
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
            b'{' => {
                return Some(
                    "there is no `{a,b}`; write a pattern for each alternative, or `\\{` for the character",
                );
            }
            _ => {}
        }
        at += 1;
    }
    None
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

/// A path of this system with slashes between names.
#[cfg(feature = "files")]
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
    use super::{ConfiguredPatterns, fault};

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
    fn patterns_that_would_not_match_what_was_meant_are_errors() {
        for pattern in
            ["*.md", "[ab]*", "[]]", "[!]a]", "a\\{b", "[{]", "\\[a", "a]b", "[[:alpha:]]x", "a\\\\"]
        {
            assert_eq!(fault(pattern), None, "{pattern}");
        }
        for (pattern, why) in [
            ("a{b,c}", "{a,b}"),
            ("a{b", "{a,b}"),
            ("[a", "no `]`"),
            ("[]", "no `]`"),
            ("[a\\]", "no `]`"),
            ("a\\", "backslash"),
        ] {
            assert!(
                fault(pattern).is_some_and(|fault| fault.contains(why)),
                "{pattern}: {:?}",
                fault(pattern)
            );
        }
    }
}
