//! Parses and builds the URIs of a repository.

use libris_core::{Error, Result, Uri, UriTemplate};

use crate::range::Range;

/// The URI space of one repository.
pub(super) struct UriSpace {
    /// The root: `git://<name>/`.
    pub(super) root: Uri,
}

/// A parsed URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GitUri<'a> {
    pub(super) what: GitTarget<'a>,
    query: &'a str,
}

/// The target of a URI, without its query. All parts are still percent-encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GitTarget<'a> {
    Refs,
    /// A file or a folder.
    Place {
        rev: &'a str,
        path: &'a str,
    },
    Log {
        rev: &'a str,
    },
    Commit {
        rev: &'a str,
    },
    Diff {
        base: &'a str,
        head: &'a str,
    },
}

/// The format of refs, logs and commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageFormat {
    Markdown,
    Json,
}

/// The templates below the root, with their names and descriptions.
pub(super) const TEMPLATES: [(&str, &str, &str); 6] = [
    (
        "blob/{ref}/{+path}{?lines,bytes}",
        "file",
        "A file by its path, at a branch, tag or commit; `lines=1-500` or `bytes=0-65535` reads a part.",
    ),
    (
        "commit/{id}{?format}",
        "commit",
        "A commit: who, when, why, and which files. `format=json` for programs.",
    ),
    ("diff/{base}/{head}{?path}", "diff", "What changed from one branch, tag or commit to another."),
    (
        "log/{ref}{?path,limit,format}",
        "log",
        "The commits of a branch, newest first, or only those that changed a path.",
    ),
    ("refs{?format}", "refs", "Branches, tags and remote branches. `format=json` for programs."),
    (
        "tree/{ref}/{+path}{?lines,bytes}",
        "tree",
        "A folder by its path, at a branch, tag or commit, with the files in it.",
    ),
];

impl UriSpace {
    /// The URI space of a repository; `None` if its name cannot be the authority of a URI.
    pub(super) fn new(name: &str) -> Option<Self> {
        if name.is_empty() || name.len() > 255 || name.contains(['/', '\\', '\0']) {
            return None;
        }
        let authority = Uri::encode_segment(name.as_bytes()).replace(':', "%3A").replace('@', "%40");
        Uri::parse(&format!("git://{authority}/")).ok().map(|root| Self { root })
    }

    pub(super) fn template(&self, rest: &str) -> Result<UriTemplate> {
        UriTemplate::parse(&format!("{}{rest}", self.root))
    }

    /// Parses a URI; `None` if it is not of this repository.
    pub(super) fn parse<'a>(&self, uri: &'a Uri) -> Option<GitUri<'a>> {
        let rest = uri.as_str().strip_prefix(self.root.as_str())?;
        if rest.contains('#') {
            return None;
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (kind, rest) = path.split_once('/').unwrap_or((path, ""));
        let (what, keys): (_, &[&str]) = match (kind, rest) {
            ("refs", "") if path == "refs" => (GitTarget::Refs, &["format"]),
            ("blob" | "tree", rest) => {
                let (rev, path) = rest.split_once('/').unwrap_or((rest, ""));
                if !is_rev(rev) {
                    return None;
                }
                (GitTarget::Place { rev, path }, &[])
            }
            ("log", rev) if is_rev(rev) => (GitTarget::Log { rev }, &["path", "limit", "format"]),
            ("commit", rev) if is_rev(rev) => (GitTarget::Commit { rev }, &["format"]),
            ("diff", rest) => {
                let (base, head) =
                    rest.split_once('/').filter(|(base, head)| is_rev(base) && is_rev(head))?;
                (GitTarget::Diff { base, head }, &["path"])
            }
            _ => return None,
        };
        let known =
            |pair: &str| pair.is_empty() || keys.contains(&pair.split('=').next().unwrap_or_default());
        let meant = match what {
            GitTarget::Place { .. } => Range::is_meant(query),
            _ => query.split('&').all(known),
        };
        meant.then_some(GitUri { what, query })
    }

    /// The URI of a path at a revision, both percent-encoded.
    pub(super) fn place(&self, rev: &str, path: &str) -> Option<Uri> {
        self.root.below(&format!("tree/{rev}/{path}")).ok()
    }

    pub(super) fn refs(&self) -> Option<Uri> {
        self.root.below("refs").ok()
    }

    pub(super) fn log(&self, rev: &str) -> Option<Uri> {
        self.root.below(&format!("log/{rev}")).ok()
    }

    pub(super) fn commit(&self, id: &str) -> Option<Uri> {
        self.root.below(&format!("commit/{id}")).ok()
    }

    pub(super) fn diff(&self, base: &str, head: &str) -> Option<Uri> {
        self.root.below(&format!("diff/{base}/{head}")).ok()
    }

    /// The URI whose changes are reported for `uri`. A file or directory at a branch has its own. A response that
    /// depends on several paths, such as a log, changes with its branch; a diff of two branches with any ref.
    pub(super) fn subject(&self, uri: &Uri) -> Uri {
        let asked = self.parse(uri);
        let subject = asked.and_then(|asked| match asked.what {
            GitTarget::Refs => self.refs(),
            GitTarget::Place { rev, path } => match base(rev) {
                (rev, false) => {
                    let path = path.trim_end_matches('/');
                    let path = if path.is_empty() { String::new() } else { format!("/{path}") };
                    self.root.below(&format!("tree/{rev}{path}")).ok()
                }
                (rev, true) => self.log(rev),
            },
            GitTarget::Log { rev } | GitTarget::Commit { rev } => self.log(base(rev).0),
            GitTarget::Diff { base: one, head: other } => {
                let (one, other) = (base(one).0, base(other).0);
                match (is_full_id(one), is_full_id(other)) {
                    (true, true) => Some(uri.without_query()),
                    (true, false) => self.log(other),
                    (false, true) => self.log(one),
                    (false, false) if one == other => self.log(one),
                    (false, false) => self.refs(),
                }
            }
        });
        subject.unwrap_or_else(|| uri.clone())
    }
}

impl GitUri<'_> {
    /// The value of a parameter; `None` if it is missing or empty.
    pub(super) fn parameter(&self, name: &str) -> Result<Option<String>> {
        let mut values = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .filter(|(key, value)| *key == name && !value.is_empty());
        let Some((_, value)) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Error::invalid(format!("`{name}` is given twice")));
        }
        let value = Uri::decode_segment(value).and_then(|bytes| String::from_utf8(bytes).ok());
        value.map(Some).ok_or_else(|| Error::invalid(format!("`{name}` is not text")))
    }

    pub(super) fn format(&self) -> Result<PageFormat> {
        match self.parameter("format")?.as_deref() {
            None | Some("markdown") => Ok(PageFormat::Markdown),
            Some("json") => Ok(PageFormat::Json),
            Some(_) => Err(Error::invalid("`format` is `json` or `markdown`")),
        }
    }

    /// The query, which contains the range.
    pub(super) fn range(&self) -> &str {
        self.query
    }
}

/// Whether this can be a revision: one segment with a nonempty base name.
fn is_rev(text: &str) -> bool {
    !base(text).0.is_empty() && !text.contains('/')
}

/// The base of a revision, which is a branch, tag or id, and whether steps to an ancestor follow. Both are
/// percent-encoded: `^` is escaped and `~` is not.
fn base(rev: &str) -> (&str, bool) {
    let end = rev.find('~').into_iter().chain(rev.find("%5E")).min();
    let base = end.map_or(rev, |end| &rev[..end]);
    (base.trim_start_matches("refs%2F"), end.is_some())
}

/// Whether this is a full object id, which always names the same object.
pub(super) fn is_full_id(rev: &str) -> bool {
    matches!(rev.len(), 40 | 64) && rev.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::{GitTarget, UriSpace};
    use libris_core::Uri;

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    #[test]
    fn uris_are_read() {
        let space = UriSpace::new("repo").unwrap();
        let what = |text: &str| {
            let uri = uri(&format!("git://repo/{text}"));
            space.parse(&uri).map(|asked| format!("{:?}", asked.what))
        };
        let place = |rev, path| Some(format!("{:?}", GitTarget::Place { rev, path }));
        assert_eq!(what("blob/main/a/b.md?lines=1"), place("main", "a/b.md"));
        assert_eq!(what("tree/feature%2Fx"), place("feature%2Fx", ""));
        assert_eq!(what("tree/HEAD/src/"), place("HEAD", "src/"));
        assert_eq!(what("refs?format=json"), Some("Refs".into()));
        assert_eq!(what("diff/a/b"), Some(format!("{:?}", GitTarget::Diff { base: "a", head: "b" })));
        for nothing in [
            "",
            "refs/",
            "refs/x",
            "blob",
            "tree/",
            "blob//x",
            "blob/~1/x",
            "log/refs%2F",
            "diff/%5E/main",
            "log/",
            "log/a/b",
            "diff/a",
            "diff/a/b/c",
            "log/a?x=1",
            "refs#f",
            "other/x",
        ] {
            assert_eq!(what(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn uris_of_others_are_not_read() {
        let space = UriSpace::new("repo").unwrap();
        for other in
            ["git://other/", "git://repo2/", "git://rep/", "git://REPO/", "files://repo/", "git:repo/"]
        {
            let uri = uri(&format!("{other}blob/main/a.md"));
            assert_eq!(space.parse(&uri), None, "{uri}");
            assert_eq!(space.subject(&uri), uri);
        }
    }

    #[test]
    fn subjects_are_what_is_told() {
        let space = UriSpace::new("repo").unwrap();
        let subject =
            |text: &str| space.subject(&uri(&format!("git://repo/{text}"))).as_str()[11..].to_owned();
        let id = "a".repeat(40);
        for (asked, told) in [
            ("blob/main/a/b.md?lines=1-2", "tree/main/a/b.md"),
            ("tree/refs%2Fheads%2Fmain/a/", "tree/heads%2Fmain/a"),
            ("tree/refs%2Frefs%2Fmain", "tree/main"),
            ("tree/main/", "tree/main"),
            ("blob/main~2/a", "log/main"),
            ("blob/main%5E/a", "log/main"),
            ("log/main?limit=5", "log/main"),
            ("commit/main", "log/main"),
            ("diff/main/topic", "refs"),
            ("diff/main~3/main", "log/main"),
            ("refs?format=json", "refs"),
        ] {
            assert_eq!(subject(asked), told, "{asked}");
        }
        assert_eq!(subject(&format!("diff/{id}/main")), "log/main");
    }

    #[test]
    fn names_become_authorities() {
        assert_eq!(UriSpace::new("My Repo:1@x").unwrap().root.as_str(), "git://My%20Repo%3A1%40x/");
        assert!(UriSpace::new("").is_none() && UriSpace::new("a/b").is_none());
    }
}
