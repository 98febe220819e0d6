//! The patterns of an ignore file, which match as in git (`gitignore(5)`).
//!
//! No library is used: the crate `ignore` compiles patterns into automata, which take many times the memory of the
//! text, and matches differently from git. `gix-glob` backtracks and gives up at a recursion limit, so that a file
//! which must be ignored could be visible.
//!
//! Patterns and paths are bytes. A pattern takes 20 bytes beside its text, and parsing costs about as much as reading.

use std::sync::Arc;

use crate::wildmatch::wildmatch;

/// The patterns of one ignore file.
#[derive(Default)]
pub(crate) struct IgnorePatterns {
    text: Arc<[u8]>,
    patterns: Box<[IgnorePattern]>,
    /// The indexes of the patterns that are the name of a file or directory without wildcards, sorted by name.
    names: Box<[u32]>,
    /// The indexes of all other patterns, in ascending order.
    others: Box<[u32]>,
}

/// The verdict of the last matching pattern on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternVerdict {
    Ignored,
    /// The pattern is negated.
    Shown,
}

/// A pattern: a range of the text, without a `!` or `/` at its beginning and a `/` at its end.
#[derive(Clone, Copy)]
struct IgnorePattern {
    start: u32,
    end: u32,
    /// The end of the literal prefix, before the first wildcard or escape.
    literal_end: u32,
    kind: PatternKind,
    negated: bool,
    only_directories: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PatternKind {
    /// Matches a whole name.
    Name,
    /// `*` and then no further wildcards: matches the end of a name.
    Suffix,
    /// A name with wildcards.
    WildName,
    /// A path from the directory of the ignore file.
    Path,
}

impl IgnorePatterns {
    /// The number of bytes that a pattern takes beside its text.
    pub(crate) const PATTERN_SIZE: usize = size_of::<IgnorePattern>() + size_of::<u32>();

    /// Parses an ignore file of less than 4 GiB; `None` if it has more than `most` patterns.
    pub(crate) fn parse(text: &Arc<[u8]>, most: usize) -> Option<Self> {
        let mut patterns = Vec::new();
        let mut start = if text.starts_with("\u{feff}".as_bytes()) { 3 } else { 0 };
        for line in text[start..].split(|byte| *byte == b'\n') {
            if let Some(pattern) = IgnorePattern::parse(line, start) {
                if patterns.len() == most {
                    return None;
                }
                patterns.push(pattern);
            }
            start += line.len() + 1;
        }
        let (mut names, others): (Vec<_>, Vec<_>) =
            (0..).take(patterns.len()).partition(|at: &u32| patterns[*at as usize].kind == PatternKind::Name);
        names.sort_by_key(|at| patterns[*at as usize].glob(text));
        Some(Self {
            text: Arc::clone(text),
            patterns: patterns.into(),
            names: names.into(),
            others: others.into(),
        })
    }

    /// The number of patterns.
    pub(crate) fn len(&self) -> usize {
        self.patterns.len()
    }

    /// The verdict of the last matching pattern; `None` if none matches. The path is relative to the directory of the
    /// ignore file, has slashes between names, and ends with `name`.
    pub(crate) fn matched(&self, path: &[u8], name: &[u8], directory: bool) -> Option<PatternVerdict> {
        let applies = |at: &&u32| directory || !self.patterns[**at as usize].only_directories;
        let glob = |at: &u32| self.patterns[*at as usize].glob(&self.text);
        let first = self.names.partition_point(|at| glob(at) < name);
        // The last pattern that equals this name. Of the other patterns, only those after it can change the
        // verdict.
        let named = self.names[first..].iter().take_while(|at| glob(at) == name).filter(applies).max();
        let mut later = self.others.iter().rev().take_while(|at| named.is_none_or(|named| *at > named));
        let matching =
            later.find(|at| applies(at) && self.patterns[**at as usize].matches(&self.text, path, name));
        matching.or(named).map(|at| match self.patterns[*at as usize].negated {
            true => PatternVerdict::Shown,
            false => PatternVerdict::Ignored,
        })
    }
}

impl IgnorePattern {
    /// Parses the line that begins at this offset of the text; `None` if it has no pattern.
    fn parse(line: &[u8], offset: usize) -> Option<Self> {
        if line.starts_with(b"#") {
            return None;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Git reads lines as C strings, so a line ends at NUL.
        let line = &line[..memchr::memchr(0, line).unwrap_or(line.len())];
        let line = without_trailing_spaces(line);
        let glob = line.strip_prefix(b"!").unwrap_or(line);
        let negated = glob.len() < line.len();
        let mut start = offset + usize::from(negated);
        let glob_before = glob.len();
        let mut glob = glob.strip_suffix(b"/").unwrap_or(glob);
        let only_directories = glob.len() < glob_before;
        let is_path = glob.contains(&b'/');
        if let Some(anchored) = glob.strip_prefix(b"/") {
            glob = anchored;
            start += 1;
        }
        if glob.is_empty() {
            return None;
        }
        let literal = literal_length(glob);
        let kind = if is_path {
            PatternKind::Path
        } else if literal == glob.len() {
            PatternKind::Name
        } else if glob[0] == b'*' && literal_length(&glob[1..]) == glob.len() - 1 {
            PatternKind::Suffix
        } else {
            PatternKind::WildName
        };
        Some(Self {
            start: u32::try_from(start).ok()?,
            end: u32::try_from(start + glob.len()).ok()?,
            literal_end: u32::try_from(start + literal).ok()?,
            kind,
            negated,
            only_directories,
        })
    }

    fn glob<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        &text[self.start as usize..self.end as usize]
    }

    fn matches(&self, text: &[u8], path: &[u8], name: &[u8]) -> bool {
        let glob = self.glob(text);
        match self.kind {
            PatternKind::Name => name == glob,
            PatternKind::Suffix => name.ends_with(&glob[1..]),
            PatternKind::WildName => wildmatch(glob, name),
            PatternKind::Path => {
                // As in git, the rest after the literal prefix is matched as a separate pattern. So in `a**/b`
                // the stars match slashes: they are at the start of that pattern.
                let (literal, wild) = glob.split_at((self.literal_end - self.start) as usize);
                path.strip_prefix(literal).is_some_and(|rest| wildmatch(wild, rest))
            }
        }
    }
}

/// The length of the literal prefix, before the first wildcard or escape.
fn literal_length(glob: &[u8]) -> usize {
    glob.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(glob.len())
}

/// The line without the spaces at its end that are not escaped.
fn without_trailing_spaces(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    let escapes = line[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
    // An odd number of backslashes escapes the first space.
    &line[..(end + escapes % 2).min(line.len())]
}

#[cfg(test)]
mod tests;
