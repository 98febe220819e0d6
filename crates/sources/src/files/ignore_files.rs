//! The ignore files of directories: read, compiled and cached.
//!
//! Rules that cannot be known hide everything that they could hide: a directory whose ignore file cannot be
//! read does not exist, and a root of which that is true is unavailable. A failure of the system, such as
//! too many open files, is an error of the request instead, of which nothing is cached.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use cap_std::fs::{File, Metadata};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::filter::Ignored;
use super::root::{OwnFile, Place};
use super::stamp::Stamp;
use super::tree::Tree;

/// The largest ignore file that is read.
const LARGEST: u64 = 1024 * 1024;

/// Compiled ignore files, with all that they were compiled from.
pub(super) struct CompiledRules {
    stamps: [Option<Stamp>; 3],
    above: Option<Arc<Ignored>>,
    value: Arc<Ignored>,
}

/// An ignore file is there, but its rules cannot be known.
#[derive(Debug)]
struct UnknownRules {
    /// Its path as in a URI.
    file: String,
    why: String,
}

impl fmt::Display for UnknownRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ignore file `{}` cannot be read: {}", self.file, self.why)
    }
}

impl std::error::Error for UnknownRules {}

/// Whether a directory was not opened because its ignore files cannot be read.
pub(super) fn hide_folder(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<UnknownRules>())
}

/// Whether two are the same rules because they were compiled as one.
pub(super) fn are_same(one: Option<&Arc<Ignored>>, other: Option<&Arc<Ignored>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

impl Tree {
    /// What the ignore files of a directory and those above it say now. Fails with an error that
    /// [hides the directory](hide_folder) where one of them cannot be read.
    pub(super) fn ignored(
        &self,
        place: &Place,
        path: &Path,
        key: &str,
        above: Option<&Arc<Ignored>>,
    ) -> io::Result<Option<Arc<Ignored>>> {
        if !self.gitignore {
            return Ok(None);
        }
        let [first, second] = Ignored::FILES;
        let seen = SystemTime::now();
        let mut files = [
            self.open_rules(place, key, &[first])?,
            self.open_rules(place, key, &[second])?,
            // Only the root has one. Where `.git` is a file or a link, it is elsewhere and not ours.
            if key.is_empty() { self.open_rules(place, key, &[".git", "info", "exclude"])? } else { None },
        ];
        if files.iter().all(Option::is_none) {
            return Ok(above.cloned());
        }
        let stamps = files.each_ref().map(|file| file.as_ref().map(|file| Stamp::of(&file.metadata)));
        if let Some(cached) = self.ignored.find(key)
            && cached.stamps == stamps
            && are_same(cached.above.as_ref(), above)
        {
            return Ok(Some(Arc::clone(&cached.value)));
        }
        let mut compiled = [const { None }; 3];
        for (file, compiled) in files.iter_mut().zip(&mut compiled) {
            *compiled = file.as_mut().map(|file| self.compile(file)).transpose()?;
        }
        let files = compiled.map(|file| file.unwrap_or_else(Gitignore::empty));
        let value = Arc::new(Ignored { path: path.to_owned(), above: above.cloned(), files });
        if stamps.iter().flatten().all(|stamp| stamp.settled(seen)) {
            let rules = CompiledRules { stamps, above: above.cloned(), value: Arc::clone(&value) };
            self.ignored.keep(key, 1, Arc::new(rules));
        }
        Ok(Some(value))
    }

    /// Opens an ignore file; `None` where there is none.
    fn open_rules(&self, place: &Place, key: &str, path: &[&str]) -> io::Result<Option<RulesFile>> {
        let key = || format!("{key}{}", path.join("/"));
        match place.open_own(path) {
            Ok(OwnFile::Regular(file, metadata)) => Ok(Some(RulesFile { key: key(), file, metadata })),
            Ok(OwnFile::Missing) => Ok(None),
            Ok(OwnFile::Other) => Err(self.unknown_rules(key(), "it is not a regular file")),
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                Err(self.unknown_rules(key(), cause))
            }
            Err(cause) => Err(cause),
        }
    }

    fn compile(&self, rules: &mut RulesFile) -> io::Result<Gitignore> {
        let unknown = |why: &dyn fmt::Display| self.unknown_rules(rules.key.clone(), why);
        let mut content = Vec::new();
        (&rules.file).take(LARGEST + 1).read_to_end(&mut content)?;
        if content.len() as u64 > LARGEST {
            return Err(unknown(&format_args!("it has more than {LARGEST} bytes")));
        }
        compile(&content).map_err(|why| unknown(&why))
    }

    /// The error that hides a directory. The log says so once for each file.
    fn unknown_rules(&self, file: String, why: impl fmt::Display) -> io::Error {
        if self.is_first_warning(&file) {
            tracing::warn!(
                path = file,
                %why,
                "a folder is hidden because its ignore file cannot be read; hint: mend the file, or set `gitignore = false`"
            );
        }
        io::Error::new(io::ErrorKind::NotFound, UnknownRules { file, why: why.to_string() })
    }
}

/// An ignore file that is open.
struct RulesFile {
    key: String,
    file: File,
    metadata: Metadata,
}

/// Compiles the content of an ignore file, or says why that is not possible.
fn compile(content: &[u8]) -> Result<Gitignore, String> {
    let content = content.strip_prefix("\u{feff}".as_bytes()).unwrap_or(content);
    let mut builder = GitignoreBuilder::new(".");
    for (n, line) in content.split(|byte| *byte == b'\n').enumerate() {
        if line.starts_with(b"#") {
            continue;
        }
        let wrong = |why: &dyn fmt::Display| format!("line {}: {why}", n + 1);
        let line = str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).map_err(|cause| wrong(&cause))?;
        // To git, a pattern that ends within an escape matches nothing.
        if (line.len() - line.trim_end_matches('\\').len()) & 1 == 1 {
            continue;
        }
        let line = as_glob(line).map_err(|cause| wrong(&cause))?;
        builder.add_line(None, &line).map_err(|cause| wrong(&cause))?;
    }
    builder.build().map_err(|cause| cause.to_string())
}

/// A line of an ignore file for a matcher of globs. To git, braces are characters like others, where globs have
/// alternatives in them, and a bracket expression may name classes of characters.
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
                // A bracket that closes nothing, right at the beginning, stands for itself.
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
    use super::super::Config;
    use super::super::root::{Root, is_missing};
    use super::{Tree, as_glob, compile, hide_folder};
    use std::path::Path;

    #[test]
    fn lines_mean_what_they_mean_to_git() {
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
    fn lines() {
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
    fn what_cannot_be_compiled_is_named() {
        for content in [&b"a\n[z-a]\n"[..], b"# \xe9\n\xe9\n"] {
            let why = compile(content).unwrap_err();
            assert!(why.starts_with("line 2: "), "{why}");
        }
    }

    #[test]
    fn an_unreadable_file_is_logged_once_and_hides_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("sub/.gitignore")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        let tree = Tree::open(&Config::default(), root).unwrap();
        let root = tree.root().unwrap();
        assert!(tree.is_first_warning("sub/.ignore"));
        for _ in 0..2 {
            let entered = tree.enter(&root, "sub", "sub".as_ref()).err().unwrap();
            assert!(hide_folder(&entered) && is_missing(&entered), "{entered:?}");
            assert!(!tree.is_first_warning("sub/.gitignore"));
        }
    }
}
