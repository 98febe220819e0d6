//! Reading, compiling and caching ignore files (`.gitignore`, `.ignore`, `.git/info/exclude`).
//!
//! This fails closed: if an ignore file cannot be read, its directory does not exist for callers, and if it is that
//! of the root, the tree is unavailable. A failure of the system, such as too many open files, fails the request
//! instead and is not cached.
//!
//! Compiling patterns costs far more than reading them. So the size of an ignore file is bounded before it is
//! compiled, a tree compiles one directory at a time, and the outcome, rules or failure, is cached with the text.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use cap_std::fs::File;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::Tree;
use super::filter::IgnoreRules;
use super::metadata::Metadata;
use super::root::{ControlFile, DirectoryHandle};
use super::stamp::StatStamp;

/// The largest ignore file that is read, in bytes.
const MAX_FILE_SIZE: u64 = 256 * 1024;

/// The most patterns that an ignore file may have.
const MAX_PATTERNS: usize = 4096;

/// The weight limit of the cache, in bytes of text. Compiled rules take about 35 times as much memory.
pub(super) const MAX_CACHED_TEXT: usize = 4 * 1024 * 1024;

/// The weight of a cached directory beside that of its texts.
const OVERHEAD: usize = 400;

/// The factor by which a pattern with wildcards weighs more than its length, since it becomes an automaton.
const WILDCARD_WEIGHT: usize = 8;

/// The outcome of compiling the ignore files of a directory, with everything that it was compiled from.
pub(super) struct CompiledRules {
    stamps: [Option<StatStamp>; 3],
    /// Whether the same stamps prove the same text.
    settled: bool,
    texts: [Option<Arc<[u8]>>; 3],
    above: Option<Arc<IgnoreRules>>,
    outcome: Result<Arc<IgnoreRules>, UnreadableRules>,
}

impl CompiledRules {
    fn outcome(&self) -> io::Result<Option<Arc<IgnoreRules>>> {
        self.outcome.clone().map(Some).map_err(UnreadableRules::into_error)
    }

    fn weight(&self) -> usize {
        OVERHEAD + self.texts.iter().flatten().map(|text| weight(text)).sum::<usize>()
    }
}

/// An ignore file exists, but its rules cannot be determined.
#[derive(Clone, Debug)]
struct UnreadableRules {
    /// The key of the ignore file.
    file: String,
    why: String,
}

impl UnreadableRules {
    /// The error that hides the directory of the ignore file.
    fn into_error(self) -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, self)
    }
}

impl fmt::Display for UnreadableRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ignore file `{}` cannot be read: {}", self.file, self.why)
    }
}

impl std::error::Error for UnreadableRules {}

/// Whether a directory could not be opened because its ignore files cannot be read.
pub(super) fn hides_folder(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<UnreadableRules>())
}

/// Whether both are the same compiled rules. Equal rules that were compiled separately are not.
pub(super) fn is_same_rules(one: Option<&Arc<IgnoreRules>>, other: Option<&Arc<IgnoreRules>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

impl Tree {
    /// The current ignore rules of a directory and its ancestors; `None` if there are none. Fails with an error that
    /// [hides the directory](hides_folder) if an ignore file cannot be read.
    pub(super) fn ignore_rules(
        &self,
        handle: &DirectoryHandle,
        path: &Path,
        key: &str,
        above: Option<&Arc<IgnoreRules>>,
    ) -> io::Result<Option<Arc<IgnoreRules>>> {
        if !self.gitignore {
            return Ok(None);
        }
        let [first, second] = IgnoreRules::FILES;
        let seen = SystemTime::now();
        let files = [
            self.open_ignore_file(handle, key, &[first])?,
            self.open_ignore_file(handle, key, &[second])?,
            // Only the root has one. If `.git` is a file or a symbolic link, as in a worktree, the repository is
            // elsewhere and its excludes do not apply.
            if key.is_empty() {
                self.open_ignore_file(handle, key, &[".git", "info", "exclude"])?
            } else {
                None
            },
        ];
        if files.iter().all(Option::is_none) {
            return Ok(above.cloned());
        }
        let stamps = files.each_ref().map(|file| file.as_ref().map(|file| StatStamp::of(&file.metadata)));
        let cached =
            || self.compiled_rules.get(key).filter(|cached| is_same_rules(cached.above.as_ref(), above));
        if let Some(cached) = cached().filter(|cached| cached.settled && cached.stamps == stamps) {
            return cached.outcome();
        }
        let mut texts = [const { None }; 3];
        for (file, text) in files.iter().zip(&mut texts) {
            *text = file.as_ref().map(|file| self.text(file)).transpose()?;
        }
        // Threads that waited for this lock find the rules that another thread has compiled.
        let _compiling = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match cached().filter(|cached| cached.texts == texts) {
            Some(cached) => cached.outcome.clone(),
            None => self
                .compile(&files, &texts)
                .map(|files| Arc::new(IgnoreRules { path: path.to_owned(), above: above.cloned(), files })),
        };
        let settled = stamps.iter().flatten().all(|stamp| stamp.settled(seen));
        let rules = Arc::new(CompiledRules { stamps, settled, texts, above: above.cloned(), outcome });
        self.compiled_rules.insert(key, rules.weight(), Arc::clone(&rules));
        rules.outcome()
    }

    /// Opens an ignore file; `None` if it does not exist.
    fn open_ignore_file(
        &self,
        handle: &DirectoryHandle,
        key: &str,
        path: &[&str],
    ) -> io::Result<Option<IgnoreFile>> {
        let key = || format!("{key}{}", path.join("/"));
        match handle.open_control_file(path) {
            Ok(ControlFile::Regular(file, metadata)) => Ok(Some(IgnoreFile { key: key(), file, metadata })),
            Ok(ControlFile::Missing) => Ok(None),
            Ok(ControlFile::Other) => {
                Err(self.unreadable_rules(key(), "it is not a regular file").into_error())
            }
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                Err(self.unreadable_rules(key(), cause).into_error())
            }
            Err(cause) => Err(cause),
        }
    }

    /// Reads an ignore file, unless it is too large.
    fn text(&self, rules: &IgnoreFile) -> io::Result<Arc<[u8]>> {
        let mut text = Vec::new();
        if rules.metadata.len() <= MAX_FILE_SIZE {
            (&rules.file).take(MAX_FILE_SIZE + 1).read_to_end(&mut text)?;
        }
        if rules.metadata.len().max(text.len() as u64) > MAX_FILE_SIZE {
            let why = format_args!("it has more than {MAX_FILE_SIZE} bytes");
            return Err(self.unreadable_rules(rules.key.clone(), why).into_error());
        }
        Ok(text.into())
    }

    fn compile(
        &self,
        files: &[Option<IgnoreFile>; 3],
        texts: &[Option<Arc<[u8]>>; 3],
    ) -> Result<[Gitignore; 3], UnreadableRules> {
        let mut compiled = [const { None }; 3];
        for ((file, text), compiled) in files.iter().zip(texts).zip(&mut compiled) {
            if let (Some(file), Some(text)) = (file, text) {
                *compiled = Some(compile(text).map_err(|why| self.unreadable_rules(file.key.clone(), why))?);
            }
        }
        Ok(compiled.map(|file| file.unwrap_or_else(Gitignore::empty)))
    }

    /// The reason why a directory is hidden, which is logged once for each ignore file.
    fn unreadable_rules(&self, file: String, why: impl fmt::Display) -> UnreadableRules {
        if self.is_first_warning(&file) {
            tracing::warn!(
                path = file,
                %why,
                "a folder is hidden because its ignore file cannot be read; hint: mend the file, or set `gitignore = false`"
            );
        }
        UnreadableRules { file, why: why.to_string() }
    }
}

/// An open ignore file.
struct IgnoreFile {
    key: String,
    file: File,
    metadata: Metadata,
}

/// The lines of an ignore file that are neither blank nor comments.
fn patterns(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.starts_with(b"#") && !line.trim_ascii().is_empty())
}

/// The weight of an ignore file in the cache.
fn weight(text: &[u8]) -> usize {
    let wild = patterns(text).filter(|line| line.iter().any(|byte| b"*?[".contains(byte)));
    text.len() + wild.map(|line| line.len() * (WILDCARD_WEIGHT - 1)).sum::<usize>()
}

/// Compiles an ignore file, or says why that is not possible.
fn compile(content: &[u8]) -> Result<Gitignore, String> {
    let content = content.strip_prefix("\u{feff}".as_bytes()).unwrap_or(content);
    if patterns(content).nth(MAX_PATTERNS).is_some() {
        return Err(format!("it has more than {MAX_PATTERNS} patterns"));
    }
    let mut builder = GitignoreBuilder::new(".");
    for (n, line) in content.split(|byte| *byte == b'\n').enumerate() {
        if line.starts_with(b"#") {
            continue;
        }
        let wrong = |why: &dyn fmt::Display| format!("line {}: {why}", n + 1);
        let line = str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).map_err(|cause| wrong(&cause))?;
        // Git never matches a pattern that ends with an incomplete escape.
        if (line.len() - line.trim_end_matches('\\').len()) & 1 == 1 {
            continue;
        }
        let line = as_glob(line).map_err(|cause| wrong(&cause))?;
        builder.add_line(None, &line).map_err(|cause| wrong(&cause))?;
    }
    builder.build().map_err(|cause| cause.to_string())
}

/// Translates a pattern of git into a glob of the `ignore` crate. In git, braces are ordinary characters instead of
/// alternatives, and a bracket expression may name character classes.
fn as_glob(line: &str) -> Result<String, String> {
    const CLASSES: [(&str, &str); 8] = [
        ("[:alnum:]", "0-9A-Za-z"),
        ("[:alpha:]", "A-Za-z"),
        ("[:blank:]", " \t"),
        ("[:digit:]", "0-9"),
        ("[:lower:]", "a-z"),
        ("[:space:]", " \t\r\n\u{b}\u{c}"),
        ("[:upper:]", "A-Z"),
        ("[:xdigit:]", "0-9A-Fa-f"),
    ];
    let mut glob = String::with_capacity(line.len() + 8);
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let mut taken = first.len_utf8();
        match first {
            '\\' => taken += rest[taken..].chars().next().map_or(0, char::len_utf8),
            '{' | '}' => glob.push('\\'),
            '[' => {
                // A `]` right after the opening bracket is an ordinary character.
                let start = 1 + usize::from(rest[1..].starts_with(['!', '^']));
                let start = start + usize::from(rest[start..].starts_with(']'));
                glob.push_str(&rest[..start]);
                rest = &rest[start..];
                while let Some(inside) = rest.chars().next().filter(|next| *next != ']') {
                    if !rest.starts_with("[:") {
                        glob.push(inside);
                        rest = &rest[inside.len_utf8()..];
                        continue;
                    }
                    let named = CLASSES.iter().find(|(name, _)| rest.starts_with(name));
                    let (name, characters) = named.ok_or("an unknown class of characters")?;
                    glob.push_str(characters);
                    rest = &rest[name.len()..];
                }
                continue;
            }
            _ => {}
        }
        glob.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    Ok(glob)
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::super::root::{Root, is_missing};
    use super::{MAX_PATTERNS, Tree, as_glob, compile, hides_folder};
    use std::path::Path;
    use std::sync::Barrier;

    #[test]
    fn patterns_match_as_in_git() {
        let ignores = |line: &str, name: &str| {
            compile(line.as_bytes()).unwrap().matched(Path::new(name), false).is_ignore()
        };
        assert!(ignores("{secret}.txt", "{secret}.txt"));
        assert!(!ignores("{secret}.txt", "secret.txt"));
        assert!(ignores("{{cookiecutter.x}}", "{{cookiecutter.x}}"));
        assert!(ignores("foo{a", "foo{a"));
        assert!(ignores("\\{a", "{a"));
        assert!(ignores("[[:alpha:]]ecret", "secret") && !ignores("[[:alpha:]]ecret", "1ecret"));
        assert!(ignores("[{}]", "{") && ignores("[]a]", "]") && ignores("[![:digit:]]x", "ax"));
        assert!(!ignores("[![:digit:]]x", "1x"));
        assert_eq!(as_glob("a[b").unwrap(), "a[b");
        assert!(compile(b"[[:emoji:]]").is_err());
    }

    #[test]
    fn comments_negation_and_escapes() {
        let rules = compile("\u{feff}*.log\r\n# é\n\n!keep.log\n\\#x\nfolder/\n".as_bytes()).unwrap();
        let ignored = |path: &str, directory| rules.matched(Path::new(path), directory).is_ignore();
        for (path, directory) in [("a.log", false), ("#x", false), ("folder", true)] {
            assert!(ignored(path, directory), "{path}");
        }
        for path in ["keep.log", "folder", "x"] {
            assert!(!ignored(path, false), "{path}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_reported_with_its_line() {
        for content in [&b"a\n[z-a]\n"[..], b"# \xe9\n\xe9\n"] {
            let why = compile(content).unwrap_err();
            assert!(why.starts_with("line 2: "), "{why}");
        }
    }

    #[test]
    fn an_unreadable_ignore_file_is_logged_once_and_hides_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("sub/.gitignore")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        let tree = Tree::open(&Options::default(), root).unwrap();
        let root = tree.root().unwrap();
        assert!(tree.is_first_warning("sub/.ignore"));
        for _ in 0..2 {
            let entered = tree.open_child(&root, "sub", "sub".as_ref()).err().unwrap();
            assert!(hides_folder(&entered) && is_missing(&entered), "{entered:?}");
            assert!(!tree.is_first_warning("sub/.gitignore"));
        }
    }

    fn tree(rules: &str) -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/.gitignore"), rules).unwrap();
        let tree = Tree::open(&Options::default(), Root::open(folder.path()).unwrap()).unwrap();
        (folder, tree)
    }

    #[test]
    fn the_same_text_is_compiled_once_even_with_a_recent_stamp() {
        let (folder, tree) = tree("*.log\n");
        let root = tree.root().unwrap();
        let barrier = Barrier::new(8);
        let open = || {
            barrier.wait();
            tree.open_child_nofollow(&root, "sub".as_ref()).unwrap()
        };
        let entered: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(entered.iter().all(|folder| folder.logical.has_same_rules_as(&entered[0].logical)));
        std::fs::write(folder.path().join("sub/.gitignore"), "*.txt\n").unwrap();
        let changed = tree.open_child_nofollow(&root, "sub".as_ref()).unwrap();
        assert!(!changed.logical.has_same_rules_as(&entered[0].logical));
        assert!(
            tree.shows(&changed, "a.log".as_ref(), false) && !tree.shows(&changed, "a.txt".as_ref(), false)
        );
    }

    #[test]
    fn a_failure_is_cached_until_the_text_changes() {
        let (folder, tree) = tree("[z-a]\n");
        let root = tree.root().unwrap();
        let open = || tree.open_child_nofollow(&root, "sub".as_ref());
        for _ in 0..2 {
            assert!(hides_folder(&open().err().unwrap()));
            let cached = tree.compiled_rules.get("sub/").expect("the failure");
            assert!(cached.outcome.is_err());
        }
        std::fs::write(folder.path().join("sub/.gitignore"), "[a-z]\n").unwrap();
        assert!(open().is_ok());
    }

    #[test]
    fn too_many_patterns_are_not_compiled() {
        let comments = "# a comment\n\n".repeat(MAX_PATTERNS);
        assert!(compile(format!("{comments}{}", "a\n".repeat(MAX_PATTERNS)).as_bytes()).is_ok());
        let why = compile("a\n".repeat(MAX_PATTERNS + 1).as_bytes()).unwrap_err();
        assert_eq!(why, "it has more than 4096 patterns");
    }

    #[test]
    fn cached_text_is_bounded_in_total() {
        let folder = tempfile::tempdir().unwrap();
        // 32 KiB each, with the factor 8 for wildcards: 16 fit.
        let text = format!("*.{}\n", "a".repeat(125)).repeat(256);
        for n in 0..40 {
            let sub = folder.path().join(n.to_string());
            std::fs::create_dir(&sub).unwrap();
            std::fs::write(sub.join(".gitignore"), &text).unwrap();
        }
        let tree = Tree::open(&Options::default(), Root::open(folder.path()).unwrap()).unwrap();
        let root = tree.root().unwrap();
        for n in 0..40 {
            tree.open_child_nofollow(&root, n.to_string().as_ref()).unwrap();
        }
        let cached = (0..40).filter_map(|n| tree.compiled_rules.get(&format!("{n}/")));
        let bytes: usize = cached.map(|rules| rules.weight()).sum();
        assert!((1..=super::MAX_CACHED_TEXT).contains(&bytes), "{bytes}");
    }
}
