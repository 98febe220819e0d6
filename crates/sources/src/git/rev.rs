//! Resolves revisions in URIs to commits.
//!
//! A revision is a name, `HEAD`, or a possibly abbreviated id, followed by up to [`MAX_STEPS`] steps to
//! ancestors: `~`, `~3`, `^` or `^2`. It is never passed to git's own revision parser, which accepts much more.

use std::collections::HashSet;

use gix::ObjectId;
use gix::objs::{Kind, TagRefIter};
use libris_core::{Error, Proof, Result, Uri};

use super::address::is_full_id;
use super::ref_evidence::RefEvidence;
use super::repo::{TaskRepository, fault};

/// The maximum length of a revision, in bytes.
const MAX_REV_LENGTH: usize = 1024;

/// The greatest number after a `~` or `^`.
const MAX_ANCESTOR_DISTANCE: u32 = 100_000;

/// The maximum number of `~` and `^` in a revision, and the maximum number of tags in a chain in which each tag points
/// to the next.
const MAX_STEPS: usize = 16;

/// The minimum number of digits of an abbreviated id.
pub(super) const MIN_ID_PREFIX: usize = 4;

/// The maximum number of objects that an id prefix may match; a prefix that matches more is rejected as too short.
pub(super) const MAX_PREFIX_MATCHES: usize = 1000;

/// The namespaces of the visible refs. Other refs, such as stashes and notes, are private.
pub(super) const VISIBLE_NAMESPACES: [&str; 3] = ["refs/heads/", "refs/remotes/", "refs/tags/"];

/// A revision resolved to a commit.
#[derive(Clone, Debug)]
pub(super) struct ResolvedRev {
    pub(super) commit: ObjectId,
    /// Whether the revision always resolves to this commit.
    pub(super) fixed: bool,
    /// A proof that the revision still resolves to this commit; `None` if that cannot be proven.
    pub(super) proof: Option<Proof>,
}

/// A parsed revision.
#[derive(Debug, PartialEq, Eq)]
struct Rev<'a> {
    base: &'a str,
    steps: Vec<AncestorStep>,
}

/// A step to an ancestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AncestorStep {
    /// The parent with this number, from 1; 0 is the commit itself.
    Parent(u32),
    /// The ancestor at this distance along first parents.
    Back(u32),
}

/// Decodes a revision in a URI.
pub(super) fn decode(rev: &str) -> Result<String> {
    let text = Uri::decode_segment(rev).and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| {
        Error::invalid("the name of a branch, tag or commit is not UTF-8 text: check its percent-encoding")
    })
}

/// Resolves a percent-encoded revision; `None` if it names no commit.
pub(super) fn resolve(repository: &TaskRepository<'_>, rev: &str) -> Result<Option<ResolvedRev>> {
    let text = decode(rev)?;
    let rev = Rev::parse(&text)?;
    let Some(mut resolved) = find(repository, rev.base)? else { return Ok(None) };
    for step in &rev.steps {
        match walk(repository, resolved.commit, *step)? {
            Some(commit) => resolved.commit = commit,
            None => return Ok(None),
        }
    }
    Ok(Some(resolved))
}

/// Resolves a revision without steps: a full id, else the name of a ref, else an abbreviated id.
fn find(repository: &TaskRepository<'_>, base: &str) -> Result<Option<ResolvedRev>> {
    if is_full_id(base) {
        let id = ObjectId::from_hex(base.as_bytes()).map_err(fault)?;
        let commit = if id.kind() == repository.object_hash() { peel(repository, id)? } else { None };
        return Ok(commit.map(|commit| ResolvedRev { commit, fixed: true, proof: Some(Proof::always()) }));
    }
    let seen = RefEvidence::of(repository, base);
    for name in candidates(base) {
        if let Some(commit) = by_name(repository, &name)? {
            return Ok(Some(ResolvedRev { commit, fixed: false, proof: seen.prove() }));
        }
    }
    let commit = match base.len() >= MIN_ID_PREFIX && base.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => by_abbreviation(repository, base)?,
        false => None,
    };
    // An object with the same prefix may be added at any time, so there is no proof.
    Ok(commit.map(|commit| ResolvedRev { commit, fixed: false, proof: None }))
}

/// The full names that a short name may resolve to, in git's order of precedence.
pub(super) fn candidates(name: &str) -> Vec<String> {
    if name == "HEAD" {
        return vec![name.to_owned()];
    }
    let full = [
        name.to_owned(),
        format!("refs/{name}"),
        format!("refs/tags/{name}"),
        format!("refs/heads/{name}"),
        format!("refs/remotes/{name}"),
        format!("refs/remotes/{name}/HEAD"),
    ];
    full.into_iter().filter(|name| VISIBLE_NAMESPACES.iter().any(|shown| name.starts_with(shown))).collect()
}

/// The commit that a ref points to, by its full name; `None` if the ref does not exist or points to no commit. Fails if
/// the object that it points to is missing.
pub(super) fn by_name(repository: &TaskRepository<'_>, name: &str) -> Result<Option<ObjectId>> {
    let Some(id) = repository.refs().resolve(name)? else { return Ok(None) };
    match peel(repository, id)? {
        // A branch whose commit is missing is damaged, not empty.
        None if repository.size(id)?.is_none() => {
            repository.mark_suspect();
            Err(Error::Unavailable(format!(
                "the repository lacks the object that `{name}` points to; hint: run `git fsck`, or `git fetch --refetch` in a partial clone"
            )))
        }
        commit => Ok(commit),
    }
}

/// The commit of an abbreviated commit or tag id; `None` if there is none. Fails if the prefix is ambiguous.
fn by_abbreviation(repository: &TaskRepository<'_>, part: &str) -> Result<Option<ObjectId>> {
    let mut commits = HashSet::new();
    for id in by_id_prefix(repository, part)? {
        commits.extend(peel(repository, id)?);
    }
    let mut commits = commits.into_iter();
    match (commits.next(), commits.next()) {
        (commit, None) => Ok(commit),
        _ => Err(Error::invalid(format!("several commits begin with `{part}`: use a longer prefix"))),
    }
}

/// The objects with an id prefix.
pub(super) fn by_id_prefix(repository: &TaskRepository<'_>, part: &str) -> Result<HashSet<ObjectId>> {
    let mut found = HashSet::new();
    // `Prefix::new` takes a full id, because a part of an id does not determine the hash algorithm. So the part is
    // padded with zeros.
    let whole = format!("{part:0<length$}", length = repository.object_hash().len_in_hex());
    let prefix = ObjectId::from_hex(whole.as_bytes()).and_then(|id| gix::hash::Prefix::new(&id, part.len()));
    let Ok(prefix) = prefix else { return Ok(found) };
    repository.objects.lookup_prefix(prefix, Some(&mut found)).map_err(fault)?;
    if found.len() > MAX_PREFIX_MATCHES {
        return Err(Error::invalid(format!("too many ids begin with `{part}`: use a longer prefix")));
    }
    Ok(found)
}

/// Peels an object to a commit: a commit itself, or the target of a tag. `None` for other or missing objects, and after
/// a chain of [`MAX_STEPS`] tags.
pub(super) fn peel(repository: &TaskRepository<'_>, mut id: ObjectId) -> Result<Option<ObjectId>> {
    // A tag can point to another tag.
    for _ in 0..MAX_STEPS {
        repository.deadline().check()?;
        let header = repository.try_find_header(id).map_err(fault)?;
        match header.map(|header| header.kind()) {
            Some(Kind::Commit) => return Ok(Some(id)),
            Some(Kind::Tag) => {
                let tag = repository.load(id, Kind::Tag)?;
                id =
                    TagRefIter::from_bytes(&tag.data, repository.object_hash()).target_id().map_err(fault)?;
            }
            Some(Kind::Tree | Kind::Blob) | None => return Ok(None),
        }
    }
    Ok(None)
}

fn walk(repository: &TaskRepository<'_>, from: ObjectId, step: AncestorStep) -> Result<Option<ObjectId>> {
    match step {
        AncestorStep::Parent(0) => Ok(Some(from)),
        AncestorStep::Parent(number) => Ok(repository.node(from)?.parents.get(number as usize - 1).copied()),
        AncestorStep::Back(count) => repository.ancestor(from, count),
    }
}

impl<'a> Rev<'a> {
    fn parse(text: &'a str) -> Result<Self> {
        let wrong =
            |why: &str| Error::invalid(format!("this is not the name of a branch, tag or commit: {why}"));
        if text.len() > MAX_REV_LENGTH {
            return Err(wrong("it is too long"));
        }
        if text.starts_with('-') {
            return Err(wrong("it begins with `-`"));
        }
        let end = text.find(['~', '^']).unwrap_or(text.len());
        let (base, mut rest) = text.split_at(end);
        if base.contains("..") || base.contains("@{") || base.contains(['\\', ':', '*', '?', '[']) {
            return Err(wrong("it must be one name or id, with at most steps such as `~2` or `^` after it"));
        }
        if gix::validate::reference::name_partial(base.into()).is_err() {
            return Err(wrong("git allows no such name"));
        }
        let mut steps = Vec::new();
        while let Some(sign) = rest.chars().next() {
            let digits = rest[1..].bytes().take_while(u8::is_ascii_digit).count();
            let number = match &rest[1..=digits] {
                "" => 1,
                number => number
                    .parse()
                    .ok()
                    .filter(|number| *number <= MAX_ANCESTOR_DISTANCE)
                    .ok_or_else(|| wrong("it leads too far back"))?,
            };
            steps.push(match sign {
                '~' => AncestorStep::Back(number),
                '^' => AncestorStep::Parent(number),
                _ => return Err(wrong("after `~` or `^` only a number may follow")),
            });
            if steps.len() > MAX_STEPS {
                return Err(wrong("it has too many steps"));
            }
            rest = &rest[1 + digits..];
        }
        Ok(Self { base, steps })
    }
}

#[cfg(test)]
mod tests {
    use super::{AncestorStep, Rev, candidates};

    #[test]
    fn revisions_are_read() {
        let steps = |text: &'static str| Rev::parse(text).map(|rev| (rev.base, rev.steps)).unwrap();
        assert_eq!(steps("main"), ("main", vec![]));
        assert_eq!(steps("HEAD~3"), ("HEAD", vec![AncestorStep::Back(3)]));
        assert_eq!(
            steps("v1.0^2~^0"),
            ("v1.0", vec![AncestorStep::Parent(2), AncestorStep::Back(1), AncestorStep::Parent(0)])
        );
        assert_eq!(steps("feature/ünï"), ("feature/ünï", vec![]));
    }

    #[test]
    fn other_syntax_is_refused() {
        for text in [
            "",
            "-x",
            "--upload-pack=touch x",
            "-oProxyCommand=x",
            "a..b",
            "a...b",
            "../x",
            "/etc/passwd",
            "a/",
            "a//b",
            "@{u}",
            "HEAD@{1}",
            "main@{yesterday}",
            "a:b",
            ":/fix",
            "a\0b",
            "a b",
            "a\nb",
            "x.lock",
            ".hidden",
            "a/.b",
            "HEAD~x",
            "HEAD~99999999999",
            "HEAD^{tree}",
            "HEAD^{/fix}",
            "~1",
            "a*",
            "[a]",
            "a\\b",
            "main~1main",
            "HEAD~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~",
        ] {
            assert!(Rev::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_visible_refs_are_candidates() {
        assert_eq!(candidates("refs/stash").len(), 4);
        assert!(candidates("refs/stash").iter().all(|name| name != "refs/stash"));
        assert_eq!(candidates("FETCH_HEAD").first().unwrap(), "refs/tags/FETCH_HEAD");
        assert_eq!(candidates("heads/main").first().unwrap(), "refs/heads/main");
    }
}
