//! Explains why there is no resource at a URI, and which names are similar.
//!
//! Callers with restricted rights get no hints, because a hint names other resources.

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use libris_core::{Error, Result, Uri};

use super::address::{FIRST_SEGMENTS, GitTarget, UriMistake};
use super::refs::{self, without_namespace};
use super::repo::{TaskRepository, names};
use super::{GitInner, LISTED_REV, rev};
use crate::suggest::did_you_mean;

/// The maximum number of slashes that a hint tries as part of a branch name. Each attempt looks up ref files, and a URI
/// may have thousands of slashes.
const MAX_SLASHES: usize = 16;

/// The hints about the URI of a task.
pub(super) struct Hint<'a> {
    inner: &'a GitInner,
    repository: &'a TaskRepository<'a>,
}

impl<'a> Hint<'a> {
    pub(super) fn new(inner: &'a GitInner, repository: &'a TaskRepository<'a>) -> Self {
        Self { inner, repository }
    }

    /// The error for a URI with a mistake.
    pub(super) fn mistake(&self, mistake: &UriMistake<'_>) -> Error {
        self.error(|| match mistake {
            UriMistake::Foreign => Ok(None),
            UriMistake::FirstSegment("") => {
                let root = &self.inner.space.root;
                Ok(Some(format!("the repository begins at `{root}tree/{LISTED_REV}/` and `{root}refs`")))
            }
            UriMistake::FirstSegment(word) => {
                let known = || FIRST_SEGMENTS.iter().map(|(word, _)| *word);
                let similar = did_you_mean(word, known());
                Ok(Some(format!(
                    "no URI of a repository begins with `{word}`, only with {}{similar}",
                    listed(known())
                )))
            }
            UriMistake::Form { word, rest } => self.form(word, rest).map(Some),
            UriMistake::Key { word, key, keys } => {
                let similar = did_you_mean(key, keys.iter().copied());
                let known = listed(keys.iter().copied());
                Ok(Some(format!("`{word}` has no query parameter `{key}`, only {known}{similar}")))
            }
        })
    }

    /// The hint for a URI with missing, invalid or too many segments.
    fn form(&self, word: &str, rest: &str) -> Result<String> {
        let root = &self.inner.space.root;
        let rest = rest.trim_matches('/');
        Ok(match word {
            "log" | "commit" if rest.contains('/') => {
                let rev = rest.replace('/', "%2F");
                match rev::resolve(self.repository, &rev)? {
                    Some(_) => format!("{SLASH}: `{root}{word}/{rev}`"),
                    None => self.unknown(&rev)?,
                }
            }
            "diff" if rest.contains('/') => match self.diff(rest)? {
                Some(uri) => format!("{SLASH}: `{uri}`"),
                None => format!(
                    "a diff is between two branches, tags or commits, as in `{root}diff/main~1/main`; {SLASH}"
                ),
            },
            "diff" => {
                format!("a diff is between two branches, tags or commits, as in `{root}diff/main~1/main`")
            }
            "refs" => format!("nothing is below `{root}refs`"),
            word => {
                format!("a branch, tag or commit belongs after `{word}/`, as in `{root}{word}/{LISTED_REV}`")
            }
        })
    }

    /// The intended URI of a diff whose revisions have unescaped slashes; `None` if `rest` cannot be split into
    /// two revisions that exist.
    fn diff(&self, rest: &str) -> Result<Option<Uri>> {
        let segments: Vec<_> = rest.split('/').collect();
        if segments.len() > 2 * MAX_SLASHES {
            return Ok(None);
        }
        for at in 1..segments.len() {
            let (base, head) = (segments[..at].join("%2F"), segments[at..].join("%2F"));
            if rev::resolve(self.repository, &base)?.is_some()
                && rev::resolve(self.repository, &head)?.is_some()
            {
                return Ok(self.inner.space.diff(&base, &head));
            }
        }
        Ok(None)
    }

    /// The error for a revision that does not exist.
    pub(super) fn no_revision(&self, rev: &str, target: GitTarget<'_>) -> Error {
        self.error(|| {
            let (word, path) = match target {
                GitTarget::Path { path, .. } => ("tree", path),
                GitTarget::Blame { path, .. } => ("blame", path),
                _ => return self.unknown(rev).map(Some),
            };
            if let Some(uri) = self.with_slash(word, rev, path)? {
                return Ok(Some(format!("there is no branch, tag or commit `{rev}`; {SLASH}: `{uri}`")));
            }
            self.unknown(rev).map(Some)
        })
    }

    /// The intended URI if the name of its branch has unescaped slashes; `None` unless `rev/path` begins with the
    /// name of a branch or tag that contains a slash.
    fn with_slash(&self, word: &str, rev: &str, path: &str) -> Result<Option<Uri>> {
        let whole = format!("{rev}/{path}");
        let slashes = whole.match_indices('/').map(|(at, _)| at).chain([whole.len()]);
        for at in slashes.skip(1).take(MAX_SLASHES) {
            let name = whole[..at].replace('/', "%2F");
            if rev::resolve(self.repository, &name).is_ok_and(|found| found.is_some()) {
                let path = whole[at..].trim_start_matches('/');
                return Ok(self.inner.space.root.below(&format!("{word}/{name}/{path}")).ok());
            }
        }
        Ok(None)
    }

    /// Says that a revision does not exist, and which ones are similar.
    fn unknown(&self, rev: &str) -> Result<String> {
        let (base, steps) =
            rev.split_at(rev.find('~').into_iter().chain(rev.find("%5E")).min().unwrap_or(rev.len()));
        if !steps.is_empty() && rev::resolve(self.repository, base)?.is_some() {
            return Ok(format!("`{base}` has no ancestor `{}`", steps.replace("%5E", "^")));
        }
        if base == LISTED_REV {
            return Ok("the repository has no commits yet".to_owned());
        }
        let (all, _held) = refs::all(self.repository)?;
        let names = all.refs.iter().map(|(name, _)| Uri::encode_segment(without_namespace(name).as_bytes()));
        if all.refs.is_empty() {
            return Ok("the repository has no commits yet".to_owned());
        }
        let mut names: Vec<_> = [LISTED_REV.to_owned()].into_iter().chain(names).collect();
        names.dedup();
        let similar = match did_you_mean(base, names.iter().map(String::as_str)) {
            similar if similar.is_empty() => format!("; `{}refs` lists them", self.inner.space.root),
            similar => similar,
        };
        Ok(format!("there is no branch, tag or commit `{base}`{similar}"))
    }

    /// The error for a path that is not in a tree. It is the same for a hidden path and for a missing one.
    pub(super) fn no_path(&self, rev: &str, path: &str, tree: ObjectId) -> Error {
        self.error(|| self.path(rev, path, tree))
    }

    fn path(&self, rev: &str, path: &str, tree: ObjectId) -> Result<Option<String>> {
        let Some(names) = names(path) else { return Ok(None) };
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let encoded =
            |names: &[&[u8]]| -> Vec<String> { names.iter().map(|name| Uri::encode_segment(name)).collect() };
        let mut folder = tree;
        for at in 0..names.len() {
            let found = self.repository.entry_at(folder, &names[at..=at])?;
            let shown = found
                .filter(|entry| self.inner.filter.shows_all(&names[..=at], entry.kind == EntryKind::Tree));
            match shown {
                Some(entry) if entry.kind == EntryKind::Tree => folder = entry.id,
                Some(_) => {
                    let file = encoded(&names[..=at]).join("/");
                    return Ok(Some(format!(
                        "`{file}` is a file at `{rev}`: leave out what follows its name"
                    )));
                }
                None => {
                    let above = encoded(&names[..at]).join("/");
                    return self.missing_name(rev, &above, &names[..at], names[at], folder).map(Some);
                }
            }
        }
        Ok(None)
    }

    /// Says that a folder has no entry of this name, and which entries are similar. `folder` is the percent-encoded
    /// path of the folder, `above` its decoded segments.
    fn missing_name(
        &self,
        rev: &str,
        folder: &str,
        above: &[&[u8]],
        name: &[u8],
        tree: ObjectId,
    ) -> Result<String> {
        let directory = self.repository.directory(tree)?;
        let path = above.join(&b'/');
        let shown = directory.entries().iter().filter(|(key, entry)| {
            self.inner.filter.shows(&super::walk::join(&path, key), entry.kind == EntryKind::Tree)
        });
        let name = Uri::encode_segment(name);
        let similar = match did_you_mean(&name, shown.map(|(key, _)| &**key)) {
            similar if similar.is_empty() => match self.inner.space.path_uri(rev, &super::read::base(folder))
            {
                Some(uri) => format!("; `{uri}` lists its entries"),
                None => String::new(),
            },
            similar => similar,
        };
        match folder {
            "" => Ok(format!("there is no `{name}` at `{rev}`{similar}")),
            folder => Ok(format!("the folder `{folder}/` has no `{name}` at `{rev}`{similar}")),
        }
    }

    /// The "not found" error. It has a hint only if `hint` succeeds and the caller may see everything.
    fn error(&self, hint: impl FnOnce() -> Result<Option<String>>) -> Error {
        let uri = &self.repository.task.uri;
        if !self.repository.task.context.sees_everything() {
            return Error::NotFound(uri.clone());
        }
        match hint() {
            Ok(Some(hint)) => Error::missing(uri, hint),
            _ => Error::NotFound(uri.clone()),
        }
    }
}

/// How to write the name of a branch with a slash.
const SLASH: &str = "in the name of a branch, write `/` as `%2F`";

/// Names in backticks, with `or` before the last one.
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    match &names.map(|name| format!("`{name}`")).collect::<Vec<_>>()[..] {
        [] => String::new(),
        [one] => one.clone(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}
