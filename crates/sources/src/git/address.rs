//! Parses and builds the URIs of a repository.

use libris_core::{Error, Result, Uri, UriTemplate};

use super::LISTED_REV;
use super::pages::escaped;
use crate::folder_listing;
use crate::range::{Range, RangeSpan};

/// The URI space of one repository.
pub(super) struct UriSpace {
    /// The root: `git://<name>/`.
    pub(super) root: Uri,
}

/// A parsed URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GitUri<'a> {
    pub(super) target: GitTarget<'a>,
    pub(super) query: &'a str,
}

/// The target of a URI, without its query. The fields are still percent-encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GitTarget<'a> {
    Refs,
    /// A file or a folder.
    Path {
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
    /// The lines of a file with the commits that wrote them.
    Blame {
        rev: &'a str,
        path: &'a str,
    },
    /// The state of the working tree.
    Status,
    /// What is staged: the difference between `HEAD` and the index.
    Staged,
    /// What is not staged: the difference between the index and the working tree.
    Unstaged,
}

/// Why a URI does not name a resource of this repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UriMistake<'a> {
    /// The URI is not below the root.
    Foreign,
    /// The first segment is none of [`FIRST_SEGMENTS`].
    FirstSegment(&'a str),
    /// `rest`, the text after the first segment `word`, has missing, invalid or too many segments.
    Form { word: &'a str, rest: &'a str },
    /// The query has an unknown key; `keys` are the keys that are allowed after the first segment `word`.
    Key { word: &'a str, key: &'a str, keys: &'static [&'static str] },
}

/// The possible first segments of a URI, each with the allowed query keys.
pub(super) const FIRST_SEGMENTS: [(&str, &[&str]); 8] = [
    ("blame", &["lines", "format"]),
    ("blob", &["lines", "bytes", "after", "match", "format", "contents"]),
    ("commit", &["format"]),
    ("diff", &["path"]),
    ("log", &["path", "limit", "format"]),
    ("refs", &["format"]),
    ("status", &["format"]),
    ("tree", &["lines", "bytes", "after", "match", "format", "contents"]),
];

/// The format of refs, logs, commits, blame and status. For blame, `Markdown` stands for plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageFormat {
    Markdown,
    Json,
}

/// The templates below the root, with their names and descriptions.
const TEMPLATES: [(&str, &str, &str); 11] = [
    (
        "blame/{ref}/{+path}{?lines,format}",
        "blame",
        "The lines of a file, each with the commit that wrote it; `lines=1-20` for a part.",
    ),
    (
        "commit/{id}{?format}",
        "commit",
        "A commit: who, when, why, which files, how many lines, and the patch. `format=json` for programs.",
    ),
    ("diff/staged{?path}", "diff-staged", "What is staged: the difference between `HEAD` and the index."),
    (
        "diff/worktree{?path}",
        "diff-worktree",
        "What is not staged: the difference between the index and the working tree.",
    ),
    ("diff/{base}/{head}{?path}", "diff", "What changed from one branch, tag or commit to another."),
    (
        "log/{ref}{?path,limit,format}",
        "log",
        "The commits of a branch, newest first, or only those that changed a path.",
    ),
    ("refs{?format}", "refs", "Branches, tags and remote branches. `format=json` for programs."),
    ("status{?format}", "status", "What is staged, modified and untracked in the working tree."),
    (
        "tree/{ref}/{+folder}{?after,match,format,contents}",
        "folder",
        "A folder, at a branch, tag or commit: a listing with links, and its small text files. `after=NAME` goes on \
         after a name, `match=TEXT` selects the entries with a text in their name, `contents=none` leaves out the files, \
         `format=json` is for programs.",
    ),
    (
        "tree/{ref}/{+path}{?lines,bytes}",
        "tree",
        "A file or folder by its path, at a branch, tag or commit; `lines=1-500` or `bytes=0-65535` reads a part of a file.",
    ),
    // VS Code completes a path folder by folder only in a variable of this form.
    (
        "tree/{ref}{/path*}",
        "segments",
        "A file or folder by the segments of its path, at a branch, tag or commit.",
    ),
];

/// The names of the templates that need a working tree.
const OF_WORK_TREES: [&str; 3] = ["diff-staged", "diff-worktree", "status"];

/// The templates of a repository with or without a working tree.
pub(super) fn templates(
    work_tree: bool,
) -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str)> {
    TEMPLATES.iter().filter(move |(_, name, _)| work_tree || !OF_WORK_TREES.contains(name))
}

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

    /// Parses a URI; `None` if it is not a valid URI of this repository.
    pub(super) fn parse<'a>(&self, uri: &'a Uri) -> Option<GitUri<'a>> {
        self.try_parse(uri).ok()
    }

    /// Parses a URI, or returns why it is not one of this repository.
    pub(super) fn try_parse<'a>(&self, uri: &'a Uri) -> Result<GitUri<'a>, UriMistake<'a>> {
        let rest = uri.as_str().strip_prefix(self.root.as_str()).ok_or(UriMistake::Foreign)?;
        if rest.contains('#') {
            return Err(UriMistake::Foreign);
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (word, rest) = path.split_once('/').unwrap_or((path, ""));
        let Some((_, keys)) = FIRST_SEGMENTS.iter().find(|(known, _)| *known == word) else {
            return Err(UriMistake::FirstSegment(word));
        };
        let form = || UriMistake::Form { word, rest };
        let target = match (word, rest) {
            ("refs", "") if path == "refs" => GitTarget::Refs,
            ("status", "") if path == "status" => GitTarget::Status,
            ("blame", rest) => {
                let (rev, path) = rest.split_once('/').ok_or_else(form)?;
                if !is_rev(rev) || path.is_empty() {
                    return Err(form());
                }
                GitTarget::Blame { rev, path }
            }
            ("blob" | "tree", rest) => {
                let (rev, path) = rest.split_once('/').unwrap_or((rest, ""));
                if !is_rev(rev) {
                    return Err(form());
                }
                GitTarget::Path { rev, path }
            }
            ("log", rev) if is_rev(rev) => GitTarget::Log { rev },
            ("commit", rev) if is_rev(rev) => GitTarget::Commit { rev },
            // Other diffs have two segments, so branches may be called `staged` and `worktree`.
            ("diff", "staged") => GitTarget::Staged,
            ("diff", "worktree") => GitTarget::Unstaged,
            ("diff", rest) => {
                let pair = rest.split_once('/').filter(|(base, head)| is_rev(base) && is_rev(head));
                let (base, head) = pair.ok_or_else(form)?;
                GitTarget::Diff { base, head }
            }
            _ => return Err(form()),
        };
        let mut pairs = query.split('&').filter(|pair| !pair.is_empty());
        match pairs.find(|pair| !keys.contains(&key(pair))) {
            Some(pair) => Err(UriMistake::Key { word, key: key(pair), keys }),
            None => Ok(GitUri { target, query }),
        }
    }

    /// The URI of a path at a revision, both percent-encoded.
    pub(super) fn path_uri(&self, rev: &str, path: &str) -> Option<Uri> {
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

    pub(super) fn status(&self) -> Option<Uri> {
        self.root.below("status").ok()
    }

    pub(super) fn staged(&self) -> Option<Uri> {
        self.root.below("diff/staged").ok()
    }

    pub(super) fn unstaged(&self) -> Option<Uri> {
        self.root.below("diff/worktree").ok()
    }

    pub(super) fn diff(&self, base: &str, head: &str) -> Option<Uri> {
        self.root.below(&format!("diff/{base}/{head}")).ok()
    }

    /// The URI under which changes of `uri` are reported. A base name is a revision without steps, as in `main` for
    /// `main~1`; it may be a branch, a tag or an id.
    /// - For a file or directory: its `tree` URI; at a revision with steps, the log of the base name.
    /// - For a log, a commit or a blame: the log of the base name.
    /// - For a diff: the log of the base name that is not a full id; `refs` if these are two different names.
    /// - For the refs, the status, a diff of the working tree, and a diff between two full ids: `uri` without its
    ///   query.
    /// - For a URI that is not a valid URI of this repository: `uri`.
    pub(super) fn subject(&self, uri: &Uri) -> Uri {
        let asked = self.parse(uri);
        let subject = asked.and_then(|asked| match asked.target {
            GitTarget::Refs => self.refs(),
            GitTarget::Path { rev, path } => match base(rev) {
                (rev, false) => {
                    let path = path.trim_end_matches('/');
                    let path = if path.is_empty() { String::new() } else { format!("/{path}") };
                    self.root.below(&format!("tree/{rev}{path}")).ok()
                }
                (rev, true) => self.log(rev),
            },
            GitTarget::Log { rev } | GitTarget::Commit { rev } | GitTarget::Blame { rev, .. } => {
                self.log(base(rev).0)
            }
            GitTarget::Status | GitTarget::Staged | GitTarget::Unstaged => Some(uri.without_query()),
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

impl UriSpace {
    /// The other URIs to which access rules are applied. For a path: the same path under `tree`, and the same path at
    /// `HEAD`. For a log or a commit: the log or the commit at `HEAD`. For a log or a diff of a path: the path under
    /// `tree` at each revision of the URI and at `HEAD`. A commit has many names, so a rule for `HEAD` must apply to
    /// every revision. Other URIs have no aliases.
    pub(super) fn aliases(&self, uri: &Uri) -> Vec<Uri> {
        let Some(asked) = self.parse(uri) else { return Vec::new() };
        // A read refuses a `path` that cannot be parsed, so it needs no alias.
        let path = asked.parameter("path").ok().flatten();
        let path = path.map(|path| escaped(path.trim_end_matches('/').as_bytes()));
        let path_at = |rev| path.as_deref().and_then(|path| self.path_uri(rev, path));
        let names = match asked.target {
            GitTarget::Path { rev, path } | GitTarget::Blame { rev, path } => {
                [self.path_uri(rev, path), self.path_uri(LISTED_REV, path), None]
            }
            GitTarget::Log { rev } => [self.log(LISTED_REV), path_at(rev), path_at(LISTED_REV)],
            GitTarget::Commit { .. } => [self.commit(LISTED_REV), None, None],
            GitTarget::Diff { base, head } => [path_at(base), path_at(head), path_at(LISTED_REV)],
            GitTarget::Staged | GitTarget::Unstaged => [path_at(LISTED_REV), None, None],
            GitTarget::Refs | GitTarget::Status => [None, None, None],
        };
        names.into_iter().flatten().filter(|name| name != uri).collect()
    }
}

impl GitUri<'_> {
    /// The value of a parameter; `None` if it is missing or empty. Fails if the parameter occurs twice or is not UTF-8.
    pub(super) fn parameter(&self, name: &str) -> Result<Option<String>> {
        let mut values = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .filter(|(key, value)| *key == name && !value.is_empty());
        let Some((_, value)) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Error::invalid(format!("`{name}` is given twice: give it once")));
        }
        let value = Uri::decode_segment(value).and_then(|bytes| String::from_utf8(bytes).ok());
        value
            .map(Some)
            .ok_or_else(|| Error::invalid(format!("`{name}` is not UTF-8 text: check its percent-encoding")))
    }

    pub(super) fn format(&self) -> Result<PageFormat> {
        match self.parameter("format")?.as_deref() {
            None | Some("markdown") => Ok(PageFormat::Markdown),
            Some("json") => Ok(PageFormat::Json),
            Some(_) => Err(Error::invalid("`format` must be `json` or `markdown`")),
        }
    }

    /// The indexes of the lines that `lines=` selects in a file of `count` lines; all lines without `lines=`. Fails
    /// if the range begins past the end of the file.
    pub(super) fn lines(&self, count: usize) -> Result<std::ops::Range<usize>> {
        let Some(value) = self.parameter("lines")? else { return Ok(0..count) };
        match Range::parse(&format!("lines={value}"))? {
            Some(Range::Lines(RangeSpan::From(first, last))) => {
                let past = || {
                    Error::invalid(format!("`lines={value}` begins past the end: there are {count} lines"))
                };
                let start =
                    usize::try_from(first - 1).ok().filter(|start| *start < count).ok_or_else(past)?;
                let end = last.and_then(|last| usize::try_from(last).ok()).unwrap_or(count);
                Ok(start..end.min(count))
            }
            Some(Range::Lines(RangeSpan::Last(last))) => {
                Ok(count.saturating_sub(usize::try_from(last).unwrap_or(count))..count)
            }
            _ => Ok(0..count),
        }
    }

    /// The range of a file that the query selects; `None` if it selects none.
    pub(super) fn range(&self) -> Result<Option<Range>> {
        let is_folder_key = |pair: &&str| folder_listing::KEYS.contains(&key(pair));
        let ranges: Vec<_> = self.query.split('&').filter(|pair| !is_folder_key(pair)).collect();
        Range::parse(&ranges.join("&"))
    }

    /// The first parameter in [`folder_listing::KEYS`] that has a value in the query.
    pub(super) fn folder_key(&self) -> Option<&'static str> {
        let has_value = |key: &str| {
            self.query.split('&').any(|pair| {
                pair.split_once('=').is_some_and(|(name, value)| name == key && !value.is_empty())
            })
        };
        folder_listing::KEYS.into_iter().find(|key| has_value(key))
    }
}

/// The key of a parameter.
fn key(pair: &str) -> &str {
    pair.split('=').next().unwrap_or_default()
}

/// Whether this can be a revision: one segment with a nonempty base name (see [`base`]).
fn is_rev(text: &str) -> bool {
    !base(text).0.is_empty() && !text.contains('/')
}

/// The base name of a percent-encoded revision, without `refs/`: a branch, tag or id. The second value is whether the
/// base name is followed by steps to an ancestor: `~`, or `^`, which is encoded as `%5E`.
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
            space.parse(&uri).map(|asked| format!("{:?}", asked.target))
        };
        let path = |rev, path| Some(format!("{:?}", GitTarget::Path { rev, path }));
        assert_eq!(what("blob/main/a/b.md?lines=1"), path("main", "a/b.md"));
        assert_eq!(what("tree/feature%2Fx"), path("feature%2Fx", ""));
        assert_eq!(what("tree/HEAD/src/"), path("HEAD", "src/"));
        assert_eq!(what("refs?format=json"), Some("Refs".into()));
        assert_eq!(what("diff/staged"), Some("Staged".into()));
        let staged = GitTarget::Diff { base: "staged", head: "worktree" };
        assert_eq!(what("diff/staged/worktree"), Some(format!("{staged:?}")));
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
            "diff/staged/",
            "blame/HEAD",
            "blame/HEAD/",
            "status/",
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
    fn a_path_has_a_name_at_head() {
        let space = UriSpace::new("r").unwrap();
        let aliases = |text: &str| {
            let uri = Uri::parse(&format!("git://r/{text}")).unwrap();
            let aliases = space.aliases(&uri).into_iter();
            aliases.map(|alias| alias.as_str()["git://r/".len()..].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(aliases("tree/main/a/b?lines=1-2"), ["tree/main/a/b", "tree/HEAD/a/b"]);
        assert_eq!(aliases("blob/v1/a"), ["tree/v1/a", "tree/HEAD/a"]);
        assert_eq!(aliases("blame/main~3/a"), ["tree/main~3/a", "tree/HEAD/a"]);
        assert_eq!(aliases("tree/main"), ["tree/main/", "tree/HEAD/"]);
        assert_eq!(aliases("tree/HEAD/a"), [""; 0]);
        assert_eq!(aliases("log/main"), ["log/HEAD"]);
        assert_eq!(
            aliases("log/main?path=a%2Fb%20c/"),
            ["log/HEAD", "tree/main/a/b%20c", "tree/HEAD/a/b%20c"]
        );
        assert_eq!(aliases("diff/v1/main?path=a"), ["tree/v1/a", "tree/main/a", "tree/HEAD/a"]);
        assert_eq!(aliases("diff/staged?path=a"), ["tree/HEAD/a"]);
        assert_eq!(aliases("diff/worktree?path=a"), ["tree/HEAD/a"]);
        assert_eq!(aliases("diff/v1/main"), [""; 0]);
        assert_eq!(aliases("diff/staged?path=a&path=b"), [""; 0]);
        assert_eq!(aliases("refs"), [""; 0]);
    }

    #[test]
    fn changes_are_reported_under_the_subject() {
        let space = UriSpace::new("repo").unwrap();
        let subject =
            |text: &str| space.subject(&uri(&format!("git://repo/{text}"))).as_str()[11..].to_owned();
        let id = "a".repeat(40);
        for (asked, expected) in [
            ("blob/main/a/b.md?lines=1-2", "tree/main/a/b.md"),
            ("tree/refs%2Fheads%2Fmain/a/", "tree/heads%2Fmain/a"),
            ("tree/refs%2Frefs%2Fmain", "tree/main"),
            ("tree/main/", "tree/main"),
            ("blob/main~2/a", "log/main"),
            ("blob/main%5E/a", "log/main"),
            ("log/main?limit=5", "log/main"),
            ("commit/main", "log/main"),
            ("blame/main~1/a?lines=1", "log/main"),
            ("status?format=json", "status"),
            ("diff/worktree?path=a", "diff/worktree"),
            ("diff/main/topic", "refs"),
            ("diff/main~3/main", "log/main"),
            ("refs?format=json", "refs"),
        ] {
            assert_eq!(subject(asked), expected, "{asked}");
        }
        assert_eq!(subject(&format!("diff/{id}/main")), "log/main");
    }

    #[test]
    fn names_become_authorities() {
        assert_eq!(UriSpace::new("My Repo:1@x").unwrap().root.as_str(), "git://My%20Repo%3A1%40x/");
        assert!(UriSpace::new("").is_none() && UriSpace::new("a/b").is_none());
    }
}
