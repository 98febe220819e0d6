//! Recognises what a path on the command line names: a configuration, a database, an OpenAPI document or a repository.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use libris_sources::registry::KEYS;

/// How many bytes of a file are inspected. In generated JSON documents, the key `openapi` may come after large members.
const MAX_INSPECTED: u64 = 64 << 10;

/// The first bytes of a SQLite database.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// What an argument of the command line names.
#[derive(Debug, PartialEq)]
pub(crate) enum Argument {
    /// A configuration file.
    Config(PathBuf),
    /// A source, in the form that the registry accepts.
    Source(OsString),
}

impl Argument {
    /// Classifies an argument. `libris.toml` is a configuration whatever it contains. Other files are recognised by their
    /// content, for TOML, YAML and JSON together with the extension; a missing file by its extension. `.git`, and the
    /// folder of a bare repository, are git repositories: served as folders, they would only show git's own files. Any
    /// other argument is returned unchanged as a source.
    pub(crate) fn recognise(argument: &OsStr) -> Self {
        let path = Path::new(argument);
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        let is_one_of = |extensions: &[&str]| extensions.iter().any(|one| extension == *one);
        let is_database = is_one_of(&["db", "sqlite", "sqlite3"]);
        let is_config = path.file_name() == Some(OsStr::new("libris.toml"));
        let has_prefix = argument.to_string_lossy().contains(':');
        if let Some(repository) = repository(path).filter(|_| KEYS.contains(&"git")) {
            return Self::Source(prefixed("git:", repository.as_os_str()));
        }
        let (content, is_missing) = match path.metadata() {
            Ok(metadata) if metadata.is_file() => (beginning(path), false),
            Ok(_) => return Self::Source(argument.to_owned()),
            Err(_) => (Vec::new(), !has_prefix),
        };
        // An empty file is a valid SQLite database, and a missing one has no content to inspect, so both are recognised by
        // extension. An argument with a prefix, such as `postgres://h/shop.db`, is neither.
        let is_new_database = is_database && content.is_empty() && (is_missing || path.is_file());
        if content.starts_with(SQLITE_MAGIC) || is_new_database {
            return Self::Source(prefixed("sqlite:", argument));
        }
        let text = String::from_utf8_lossy(&content);
        if is_config || (is_one_of(&["toml"]) && (is_missing || defines_sources(&text))) {
            return Self::Config(path.to_owned());
        }
        if is_one_of(&["yaml", "yml", "json"]) && is_openapi(&text) {
            return Self::Source(prefixed("openapi:", argument));
        }
        Self::Source(argument.to_owned())
    }
}

/// The repository of a path: for `.git`, the folder that contains it, and for a bare repository the path itself.
fn repository(path: &Path) -> Option<PathBuf> {
    if path.file_name() == Some(OsStr::new(".git")) && path.exists() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        return Some(folder.unwrap_or(Path::new(".")).to_owned());
    }
    let is_bare = path.join("HEAD").is_file() && path.join("objects").is_dir() && path.join("refs").is_dir();
    is_bare.then(|| path.to_owned())
}

fn prefixed(prefix: &str, argument: &OsStr) -> OsString {
    let mut prefixed = OsString::from(prefix);
    prefixed.push(argument);
    prefixed
}

/// The first bytes of a file, at most `MAX_INSPECTED`; empty if it cannot be read: opening the source later reports the
/// error.
fn beginning(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(MAX_INSPECTED).read_to_end(&mut bytes);
    }
    bytes
}

/// Whether a TOML file has a table of a source, such as `[[files]]`.
fn defines_sources(text: &str) -> bool {
    text.lines().any(|line| {
        let header = line.trim_start().trim_start_matches('[');
        let name = header.split([']', '.']).next().unwrap_or_default();
        line.trim_start().starts_with('[') && KEYS.contains(&name)
    })
}

/// Whether a YAML or JSON file looks like an OpenAPI document: it has the key `openapi`, or `swagger` in version 2. A
/// heuristic without a parser: a YAML line that begins with the key, or the quoted key at any depth, counts.
fn is_openapi(text: &str) -> bool {
    ["openapi", "swagger"].iter().any(|key| {
        let is_key = |line: &str| {
            let rest =
                line.strip_prefix(key).or_else(|| line.trim_start().strip_prefix(&format!("\"{key}\"")));
            rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
        };
        // The members of a JSON object may be on one line.
        text.split(['\n', '{', ',']).any(is_key)
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use super::Argument;

    #[test]
    fn files_are_recognised_by_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, content) in [
            ("libris.toml", ""),
            ("team.toml", "# ours\n[[files]]\npath = \"docs\"\n"),
            ("Cargo.toml", "[package]\nname = \"files\"\n"),
            ("shop.db", "SQLite format 3\0…"),
            ("shop", "SQLite format 3\0…"),
            ("new.sqlite", ""),
            ("berkeley.db", "\0\0\0\0"),
            ("api.yaml", "# ours\nopenapi: 3.1.0\n"),
            ("api.json", "{ \"info\": {}, \"openapi\": \"3.0.0\" }"),
            ("old.yml", "swagger: '2.0'\n"),
            ("compose.yaml", "services:\n  openapi:\n    image: x\n"),
            ("data.json", "{ \"a\": \"openapi\" }"),
            ("notes.md", "openapi: 3.1.0\n"),
        ] {
            std::fs::write(path(name), content).unwrap();
        }
        std::fs::create_dir(path("folder.db")).unwrap();
        let prefixed = |prefix: &str, name: &str| {
            let mut text = OsString::from(prefix);
            text.push(path(name));
            Argument::Source(text)
        };
        let recognised = |name: &str| Argument::recognise(path(name).as_os_str());
        for name in ["libris.toml", "team.toml", "missing.toml"] {
            assert_eq!(recognised(name), Argument::Config(path(name)), "{name}");
        }
        for name in ["shop.db", "shop", "new.sqlite", "missing.db"] {
            assert_eq!(recognised(name), prefixed("sqlite:", name), "{name}");
        }
        for name in ["api.yaml", "api.json", "old.yml"] {
            assert_eq!(recognised(name), prefixed("openapi:", name), "{name}");
        }
        for name in
            ["Cargo.toml", "berkeley.db", "compose.yaml", "data.json", "notes.md", "folder.db", "none"]
        {
            assert_eq!(recognised(name), prefixed("", name), "{name}");
        }
        // A repository with a working tree is served as a folder; only a `.git` and a bare repository are served as
        // repositories.
        std::fs::create_dir(path("project")).unwrap();
        for repository in ["project/.git", "bare.git", "bare"] {
            for folder in ["objects", "refs"] {
                std::fs::create_dir_all(path(repository).join(folder)).unwrap();
            }
            std::fs::write(path(repository).join("HEAD"), "ref: refs/heads/main\n").unwrap();
        }
        // The `.git` of a worktree is a file.
        std::fs::create_dir(path("worktree")).unwrap();
        std::fs::write(path("worktree/.git"), "gitdir: ../project/.git/worktrees/worktree\n").unwrap();
        for (name, repository) in [
            ("project/.git", "project"),
            ("project/.git/", "project"),
            ("worktree/.git", "worktree"),
            ("bare.git", "bare.git"),
            ("bare", "bare"),
        ] {
            assert_eq!(recognised(name), prefixed("git:", repository), "{name}");
        }
        for name in ["project", "project/.git/refs", "folder.db/.git"] {
            assert_eq!(recognised(name), prefixed("", name), "{name}");
        }
        for text in ["sqlite:shop.db", "postgres://localhost/shop.db", "openapi:https://a.example/api.toml"] {
            assert_eq!(Argument::recognise(Path::new(text).as_os_str()), Argument::Source(text.into()));
        }
    }
}
