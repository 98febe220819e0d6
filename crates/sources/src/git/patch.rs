//! Renders differences as a patch, in the format of `git diff --no-renames --full-index`.

use std::io::Write as _;
use std::ops::Range;

use gix::objs::tree::EntryKind;
use imara_diff::{Hunk, InternedInput};
use libris_core::Result;

use super::compare::Difference;
use super::limits::HeldMemory;
use super::line_diff;
use super::repo::{Objects, TreeEntry};

/// The number of context lines around a change.
const CONTEXT: u32 = 3;

/// The number of bytes that are searched for NUL to detect binary files, as in git.
const HEAD: usize = 8000;

/// The longest function name in a hunk header, in bytes.
const HEADING: usize = 80;

/// The largest compared file, in bytes. Larger files are reported like binary ones.
const COMPARED: u64 = 16 * 1024 * 1024;

/// The memory per line during a diff, in addition to its text, in bytes.
const LINE: u64 = 64;

/// Writes a patch of limited size.
pub(super) struct Patch<'a> {
    objects: &'a Objects<'a>,
    out: Vec<u8>,
    held: HeldMemory<'a>,
    limit: u64,
}

impl<'a> Patch<'a> {
    pub(super) fn new(objects: &'a Objects<'a>, limit: u64) -> Result<Self> {
        Ok(Self { objects, out: Vec::new(), held: objects.hold(0)?, limit })
    }

    /// Whether the patch exceeds its limit.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() as u64 > self.limit
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    pub(super) fn add(&mut self, difference: &Difference) -> Result<()> {
        if difference.is_directory() {
            return Ok(());
        }
        let before = self.out.len();
        let added = self.add_file(difference);
        self.held.grow((self.out.len() - before) as u64)?;
        added
    }

    fn add_file(&mut self, difference: &Difference) -> Result<()> {
        let Difference { path, old, new } = difference;
        let file = |entry: &Option<TreeEntry>| entry.filter(|entry| entry.kind != EntryKind::Tree);
        match (file(old), file(new)) {
            // An entry that changes its type, such as a file replaced by a link, is a deletion and an addition.
            (Some(old), Some(new)) if class(old.kind) != class(new.kind) => {
                self.file(path, Some(old), None)?;
                self.file(path, None, Some(new))
            }
            (old, new) => self.file(path, old, new),
        }
    }

    fn file(&mut self, path: &[u8], old: Option<TreeEntry>, new: Option<TreeEntry>) -> Result<()> {
        let (a, b) = (quoted(b"a/", path), quoted(b"b/", path));
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
        let null = self.objects.object_hash().null();
        let id = |entry: Option<TreeEntry>| entry.map_or(null, |entry| entry.id);
        if id(old) == id(new) {
            return Ok(());
        }
        let index = match (old, new) {
            (Some(old), Some(new)) if old.kind == new.kind => format!("{}..{} {}", old.id, new.id, mode(new)),
            _ => format!("{}..{}", id(old), id(new)),
        };
        self.line([b"index ", index.as_bytes()]);
        let a = if old.is_some() { a } else { b"/dev/null".to_vec() };
        let b = if new.is_some() { b } else { b"/dev/null".to_vec() };
        match (self.content(old)?, self.content(new)?) {
            (Some((old, _old_held)), Some((new, _new_held))) => {
                if old != new {
                    self.line([b"--- ", &*marked(a)]);
                    self.line([b"+++ ", &*marked(b)]);
                    self.hunks(&old, &new)?;
                }
            }
            _ => self.line([b"Binary files ", &*a, b" and ", &*b, b" differ"]),
        }
        Ok(())
    }

    /// The content to compare; `None` if it is binary or too large.
    fn content(&self, entry: Option<TreeEntry>) -> Result<Option<(Vec<u8>, Option<HeldMemory<'a>>)>> {
        let Some(entry) = entry else { return Ok(Some((Vec::new(), None))) };
        if entry.kind == EntryKind::Commit {
            return Ok(Some((format!("Subproject commit {}\n", entry.id).into_bytes(), None)));
        }
        let size = self.objects.size(entry.id)?.unwrap_or_default();
        if size > self.limit.min(COMPARED) {
            return Ok(None);
        }
        let held = self.objects.hold(size)?;
        let data = self.objects.blob(entry.id)?;
        Ok((!data[..data.len().min(HEAD)].contains(&0)).then_some((data, Some(held))))
    }

    fn hunks(&mut self, old: &[u8], new: &[u8]) -> Result<()> {
        self.objects.patience().check()?;
        let lines = |data: &[u8]| data.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        let _held = self.objects.hold((lines(old) + lines(new)) * LINE)?;
        let input =
            InternedInput::new(imara_diff::sources::byte_lines(old), imara_diff::sources::byte_lines(new));
        let lines = HunkLines { input: &input };
        let mut hunks = line_diff::hunks(&input, self.objects.patience())?.into_iter().peekable();
        // The line up to which function names were searched, and the last one found.
        let (mut searched, mut heading): (u32, Option<&[u8]>) = (0, None);
        while let Some(first) = hunks.next() {
            let mut group = vec![first];
            while let Some(next) =
                hunks.next_if(|next| next.before.start - group[group.len() - 1].before.end <= 2 * CONTEXT)
            {
                group.push(next);
            }
            let (first, last) = (&group[0], &group[group.len() - 1]);
            let lead = first.before.start.min(CONTEXT);
            let trail = (lines.before() - last.before.end).min(CONTEXT);
            let before = first.before.start - lead..last.before.end + trail;
            let after = first.after.start - lead..last.after.end + trail;
            for at in (searched..before.start).rev() {
                if let Some(found) = function(lines.old_line(at)) {
                    heading = Some(found);
                    break;
                }
            }
            searched = before.start;
            self.objects.patience().check()?;
            self.header(&before, &after, heading);
            self.group(&lines, &group, before);
            if self.is_full() {
                return Ok(());
            }
        }
        Ok(())
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
        self.out.push(sign);
        self.out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            self.out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }

    fn line<const N: usize>(&mut self, parts: [&[u8]; N]) {
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
    Some(line[..line.len().min(HEADING)].trim_ascii_end())
}

/// The path with a prefix, quoted by git's rules if it contains special characters.
fn quoted(prefix: &[u8], path: &[u8]) -> Vec<u8> {
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
