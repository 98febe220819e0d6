//! Renders differences as a patch, in the format of `git diff --find-renames --full-index`.

use std::io::Write as _;
use std::ops::Range;

use gix::objs::tree::EntryKind;
use imara_diff::{Hunk, InternedInput};
use libris_core::Result;

use super::limits::HeldMemory;
use super::line_diff;
use super::renames::{FileDifference, Rename};
use super::repo::{TaskRepository, TreeEntry};

/// The number of context lines around a change.
const CONTEXT_LINES: u32 = 3;

/// The number of bytes that are searched for NUL to detect binary files, as in git.
const BINARY_CHECK_BYTES: usize = 8000;

/// The longest function name in a hunk header, in bytes.
const MAX_HEADING_BYTES: usize = 80;

/// The largest compared file, in bytes. Larger files are reported like binary ones.
pub(super) const MAX_COMPARED_BYTES: u64 = 16 * 1024 * 1024;

/// The memory per line during a diff, in addition to its text, in bytes.
const LINE_OVERHEAD: u64 = 64;

/// Writes a patch of limited size.
pub(super) struct Patch<'a> {
    repository: &'a TaskRepository<'a>,
    out: Vec<u8>,
    held: HeldMemory<'a>,
    /// The size limit of the patch, in bytes.
    limit: u64,
    /// The size limit of a compared file, in bytes.
    file_limit: u64,
}

/// The number of lines that differ in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LineCounts {
    pub(super) added: u64,
    pub(super) deleted: u64,
    /// Whether the file was not compared by lines, because it is binary or too large.
    pub(super) binary: bool,
}

/// The content of the new version of a file.
pub(super) enum NewContent {
    /// The content of the object in `FileDifference::new`.
    Object,
    /// The content of a file of the working tree.
    File(Vec<u8>),
    /// A file of the working tree that is too large to compare, or was removed meanwhile.
    TooLarge,
}

/// The bytes to compare, with their memory reservation; `None` if they are binary or too large.
type Compared<'a> = Option<(Vec<u8>, Option<HeldMemory<'a>>)>;

impl<'a> Patch<'a> {
    /// A patch that is full when it exceeds `limit` bytes. Files of more than `file_limit` bytes are not compared.
    pub(super) fn new(repository: &'a TaskRepository<'a>, limit: u64, file_limit: u64) -> Result<Self> {
        let file_limit = file_limit.min(MAX_COMPARED_BYTES);
        Ok(Self { repository, out: Vec::new(), held: repository.hold(0)?, limit, file_limit })
    }

    /// Whether the patch exceeds its limit. Then nothing more is written.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() as u64 > self.limit
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Adds a file. The lines are counted even if the patch is full.
    pub(super) fn add(&mut self, difference: &FileDifference) -> Result<LineCounts> {
        self.add_with(difference, NewContent::Object)
    }

    /// Adds a file whose new version has this content.
    pub(super) fn add_with(
        &mut self,
        difference: &FileDifference,
        content: NewContent,
    ) -> Result<LineCounts> {
        let before = self.out.len();
        let added = self.add_file(difference, content);
        self.held.grow((self.out.len() - before) as u64)?;
        added
    }

    /// Adds a line about a file with a conflict, as git does.
    pub(super) fn add_unmerged(&mut self, path: &[u8]) {
        self.line([b"* Unmerged path ", &*quoted(b"", path)]);
    }

    fn add_file(&mut self, difference: &FileDifference, content: NewContent) -> Result<LineCounts> {
        match (difference.old, difference.new) {
            // An entry that changes its type, such as a file replaced by a link, is a deletion and an addition.
            (Some(old), Some(new)) if class(old.kind) != class(new.kind) => {
                let deleted = FileDifference { new: None, ..difference.clone() };
                let added = FileDifference { old: None, ..difference.clone() };
                let (one, other) = (self.file(&deleted, NewContent::Object)?, self.file(&added, content)?);
                Ok(LineCounts {
                    added: other.added,
                    deleted: one.deleted,
                    binary: one.binary || other.binary,
                })
            }
            _ => self.file(difference, content),
        }
    }

    fn file(&mut self, difference: &FileDifference, content: NewContent) -> Result<LineCounts> {
        let FileDifference { path, old, new, renamed } = difference;
        let (old, new) = (*old, *new);
        let (a, b) = (quoted(b"a/", difference.old_path()), quoted(b"b/", path));
        self.line([b"diff --git ", &*a, b" ", &*b]);
        let mode = |entry: TreeEntry| entry.kind.as_octal_str();
        match (old, new) {
            (Some(old), None) => self.line([b"deleted file mode ", &**mode(old)]),
            (None, Some(new)) => self.line([b"new file mode ", &**mode(new)]),
            (Some(old), Some(new)) if old.kind != new.kind => {
                self.line([b"old mode ", &**mode(old)]);
                self.line([b"new mode ", &**mode(new)]);
            }
            _ => {}
        }
        if let Some(Rename { from, similarity }) = renamed {
            self.line([format!("similarity index {similarity}%").as_bytes()]);
            self.line([b"rename from ", &*quoted(b"", from)]);
            self.line([b"rename to ", &*quoted(b"", path)]);
        }
        let null = self.repository.object_hash().null();
        let id = |entry: Option<TreeEntry>| entry.map_or(null, |entry| entry.id);
        if id(old) == id(new) {
            return Ok(LineCounts::default());
        }
        let index = match (old, new) {
            (Some(old), Some(new)) if old.kind == new.kind => format!("{}..{} {}", old.id, new.id, mode(new)),
            _ => format!("{}..{}", id(old), id(new)),
        };
        self.line([b"index ", index.as_bytes()]);
        let a = if old.is_some() { a } else { b"/dev/null".to_vec() };
        let b = if new.is_some() { b } else { b"/dev/null".to_vec() };
        let content = match content {
            NewContent::Object => self.content(new)?,
            NewContent::File(data) => {
                let held = self.repository.hold(data.len() as u64)?;
                (!is_binary(&data)).then_some((data, Some(held)))
            }
            NewContent::TooLarge => None,
        };
        match (self.content(old)?, content) {
            (Some((old, _old_held)), Some((new, _new_held))) => {
                if old == new {
                    return Ok(LineCounts::default());
                }
                self.line([b"--- ", &*marked(a)]);
                self.line([b"+++ ", &*marked(b)]);
                self.hunks(&old, &new)
            }
            _ => {
                self.line([b"Binary files ", &*a, b" and ", &*b, b" differ"]);
                Ok(LineCounts { binary: true, ..LineCounts::default() })
            }
        }
    }

    /// The content of an entry; empty without one, because a missing file compares like an empty one.
    fn content(&self, entry: Option<TreeEntry>) -> Result<Compared<'a>> {
        let Some(entry) = entry else { return Ok(Some((Vec::new(), None))) };
        if entry.kind == EntryKind::Commit {
            return Ok(Some((format!("Subproject commit {}\n", entry.id).into_bytes(), None)));
        }
        let size = self.repository.size(entry.id)?.unwrap_or_default();
        if size > self.file_limit {
            return Ok(None);
        }
        let held = self.repository.hold(size)?;
        let data = self.repository.blob(entry.id)?;
        Ok((!is_binary(&data)).then_some((data, Some(held))))
    }

    fn hunks(&mut self, old: &[u8], new: &[u8]) -> Result<LineCounts> {
        self.repository.deadline().check()?;
        let lines = |data: &[u8]| data.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        let _held = self.repository.hold((lines(old) + lines(new)) * LINE_OVERHEAD)?;
        let input =
            InternedInput::new(imara_diff::sources::byte_lines(old), imara_diff::sources::byte_lines(new));
        let lines = HunkLines { input: &input };
        let hunks = line_diff::hunks(&input, self.repository.deadline())?;
        let counts = LineCounts {
            added: hunks.iter().map(|hunk| hunk.after.len() as u64).sum(),
            deleted: hunks.iter().map(|hunk| hunk.before.len() as u64).sum(),
            binary: false,
        };
        let mut hunks = hunks.into_iter().peekable();
        // The old line up to which function names were searched, and the last name found.
        let (mut searched, mut heading): (u32, Option<&[u8]>) = (0, None);
        while let Some(first) = hunks.next() {
            let mut group = vec![first];
            while let Some(next) = hunks
                .next_if(|next| next.before.start - group[group.len() - 1].before.end <= 2 * CONTEXT_LINES)
            {
                group.push(next);
            }
            let (first, last) = (&group[0], &group[group.len() - 1]);
            let lead = first.before.start.min(CONTEXT_LINES);
            let trail = (lines.before() - last.before.end).min(CONTEXT_LINES);
            let before = first.before.start - lead..last.before.end + trail;
            let after = first.after.start - lead..last.after.end + trail;
            for at in (searched..before.start).rev() {
                if let Some(found) = function(lines.old_line(at)) {
                    heading = Some(found);
                    break;
                }
            }
            searched = before.start;
            self.repository.deadline().check()?;
            self.header(&before, &after, heading);
            self.group(&lines, &group, before);
            if self.is_full() {
                break;
            }
        }
        Ok(counts)
    }

    fn header(&mut self, before: &Range<u32>, after: &Range<u32>, heading: Option<&[u8]>) {
        let span = |range: &Range<u32>| match range.len() {
            0 => format!("{},0", range.start),
            1 => format!("{}", range.start + 1),
            count => format!("{},{count}", range.start + 1),
        };
        let header = format!("@@ -{} +{} @@", span(before), span(after));
        match heading {
            Some(heading) if !heading.is_empty() => self.line([header.as_bytes(), b" ", heading]),
            _ => self.line([header.as_bytes()]),
        }
    }

    fn group(&mut self, lines: &HunkLines<'_, '_>, group: &[Hunk], before: Range<u32>) {
        let mut at = before.start;
        for hunk in group {
            (at..hunk.before.start).for_each(|at| self.source(b' ', lines.old_line(at)));
            hunk.before.clone().for_each(|at| self.source(b'-', lines.old_line(at)));
            hunk.after.clone().for_each(|at| self.source(b'+', lines.new_line(at)));
            at = hunk.before.end;
        }
        (at..before.end).for_each(|at| self.source(b' ', lines.old_line(at)));
    }

    fn source(&mut self, sign: u8, line: &[u8]) {
        if self.is_full() {
            return;
        }
        self.out.push(sign);
        self.out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            self.out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }

    fn line<const N: usize>(&mut self, parts: [&[u8]; N]) {
        if self.is_full() {
            return;
        }
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
        self.out.push(b'\n');
    }
}

struct HunkLines<'i, 'd> {
    input: &'i InternedInput<&'d [u8]>,
}

impl<'i, 'd> HunkLines<'i, 'd> {
    fn before(&self) -> u32 {
        self.input.before.len() as u32
    }

    fn old_line(&self, at: u32) -> &'d [u8] {
        self.input.interner[self.input.before[at as usize]]
    }

    fn new_line(&self, at: u32) -> &'d [u8] {
        self.input.interner[self.input.after[at as usize]]
    }
}

/// The type class of an entry. Only entries of the same class can be compared line by line.
fn class(kind: EntryKind) -> u8 {
    match kind {
        EntryKind::Tree => 0,
        EntryKind::Blob | EntryKind::BlobExecutable => 1,
        EntryKind::Link => 2,
        EntryKind::Commit => 3,
    }
}

/// The function name in a hunk header, if this line begins a function by git's default heuristic.
fn function(line: &[u8]) -> Option<&[u8]> {
    let first = line.first()?;
    if !(first.is_ascii_alphabetic() || matches!(first, b'_' | b'$')) {
        return None;
    }
    Some(line[..line.len().min(MAX_HEADING_BYTES)].trim_ascii_end())
}

/// Whether data is binary, by git's rule.
pub(super) fn is_binary(data: &[u8]) -> bool {
    data[..data.len().min(BINARY_CHECK_BYTES)].contains(&0)
}

/// The path with a prefix, quoted by git's rules if it contains special characters.
pub(super) fn quoted(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if path.iter().all(plain) {
        return [prefix, path].concat();
    }
    let mut out = vec![b'"'];
    out.extend_from_slice(prefix);
    for byte in path {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            0x07..=0x0d => out.extend([b'\\', b"abtnvfr"[usize::from(byte - 7)]]),
            byte if plain(byte) => out.push(*byte),
            byte => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out.push(b'"');
    out
}

/// The name in a `---` or `+++` line. A tab marks the end of a name with a space in it.
fn marked(mut name: Vec<u8>) -> Vec<u8> {
    if name.contains(&b' ') && !name.starts_with(b"\"") {
        name.push(b'\t');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::{function, quoted};

    #[test]
    fn odd_names_are_quoted_as_git_does() {
        let shown = |path: &[u8]| String::from_utf8(quoted(b"a/", path)).unwrap();
        assert_eq!(shown(b"plain name.txt"), "a/plain name.txt");
        assert_eq!(shown("é\n\"".as_bytes()), r#""a/\303\251\n\"""#);
    }

    #[test]
    fn functions_begin_with_a_letter() {
        assert_eq!(function(b"fn main() {  \n"), Some(&b"fn main() {"[..]));
        assert_eq!(function(b"    let x;\n"), None);
        assert_eq!(function(b"\n"), None);
    }
}
