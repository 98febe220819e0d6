//! Renders refs, logs and commits as Markdown and JSON.

use std::fmt::Write as _;

use gix::ObjectId;
use gix::bstr::BStr;
use gix::objs::{CommitRef, Kind};
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};
use libris_core::Result;
use serde_json::{Value, json};

use super::address::UriSpace;
use super::patch::LineCounts;
use super::refs::Refs;
use super::renames::FileDifference;
use super::repo::{TaskRepository, fault};

/// The number of digits of an abbreviated id in Markdown.
pub(super) const SHORT_ID_DIGITS: usize = 10;

/// The longest subject in a list of refs or in the text of a blame, in bytes.
const MAX_SUBJECT_BYTES: usize = 4096;

/// A decoded commit.
pub(super) struct Commit {
    pub(super) id: ObjectId,
    pub(super) tree: ObjectId,
    pub(super) parents: Vec<ObjectId>,
    author: Signature,
    committer: Signature,
    message: String,
    signed: bool,
}

struct Signature {
    name: String,
    email: String,
    time: String,
}

impl Commit {
    pub(super) fn read(repository: &TaskRepository<'_>, id: ObjectId) -> Result<Self> {
        let object = repository.load(id, Kind::Commit)?;
        let commit = CommitRef::from_bytes(&object.data, repository.object_hash()).map_err(fault)?;
        let text = |bytes: &BStr| decoded(bytes, commit.encoding);
        let person = |signature: gix::Result<gix::actor::SignatureRef<'_>>| match signature {
            Ok(person) => Signature {
                name: text(person.name),
                email: text(person.email),
                time: time(person.time().ok()),
            },
            Err(_) => Signature { name: String::new(), email: String::new(), time: time(None) },
        };
        Ok(Self {
            id,
            tree: commit.tree(),
            parents: repository.node(id)?.parents,
            author: person(commit.author()),
            committer: person(commit.committer()),
            message: text(commit.message),
            signed: commit.extra_headers().pgp_signature().is_some(),
        })
    }

    pub(super) fn subject(&self) -> String {
        subject(&self.message)
    }

    /// The subject, truncated to the limit for lists.
    pub(super) fn short_subject(&self) -> String {
        let mut subject = self.subject();
        if subject.len() > MAX_SUBJECT_BYTES {
            subject.truncate(subject.floor_char_boundary(MAX_SUBJECT_BYTES));
            subject.push('…');
        }
        subject
    }

    /// The approximate size in bytes.
    pub(super) fn size(&self) -> usize {
        let size = |person: &Signature| person.name.len() + person.email.len();
        self.message.len() + size(&self.author) + size(&self.committer)
    }

    /// The name of the author.
    pub(super) fn author(&self) -> &str {
        &self.author.name
    }

    /// The author time, as ISO 8601.
    pub(super) fn author_time(&self) -> &str {
        &self.author.time
    }

    /// The committer time, as ISO 8601.
    pub(super) fn time(&self) -> &str {
        &self.committer.time
    }

    fn json(&self) -> Value {
        let person =
            |person: &Signature| json!({ "name": person.name, "email": person.email, "time": person.time });
        json!({
            "id": self.id.to_string(),
            "parents": self.parents.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "author": person(&self.author),
            "committer": person(&self.committer),
            "subject": self.subject(),
            "message": self.message,
        })
    }
}

/// The first paragraph of a message on one line, as `git log --oneline` shows it.
fn subject(message: &str) -> String {
    let lines = message.trim_start_matches('\n').lines().map(str::trim_end);
    lines.take_while(|line| !line.is_empty()).map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The message after its first paragraph, which is the heading of the page.
fn body(message: &str) -> &str {
    let mut rest = message.trim_start_matches('\n');
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        if line.trim_end().is_empty() {
            return rest.trim();
        }
    }
    ""
}

/// Decodes commit text from the encoding that the commit header declares.
fn decoded(bytes: &[u8], encoding: Option<&BStr>) -> String {
    let named = encoding.and_then(|label| encoding_rs::Encoding::for_label(label));
    named.unwrap_or(encoding_rs::UTF_8).decode_without_bom_handling(bytes).0.into_owned()
}

/// A time as ISO 8601 in its recorded UTC offset; empty if it is missing or out of range.
fn time(time: Option<gix::date::Time>) -> String {
    let Some(time) = time else { return String::new() };
    let (Ok(timestamp), Ok(offset)) =
        (Timestamp::from_second(time.seconds), Offset::from_seconds(time.offset))
    else {
        return String::new();
    };
    timestamp.to_zoned(TimeZone::fixed(offset)).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

pub(super) fn short(id: ObjectId) -> String {
    id.to_hex_with_len(SHORT_ID_DIGITS).to_string()
}

/// Escapes text from the repository for a line of Markdown.
pub(super) fn inline(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' => out.extend(['\\', letter]),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

fn link(text: &str, uri: Option<libris_core::Uri>) -> String {
    match uri {
        Some(uri) => format!("[{text}](<{uri}>)"),
        None => text.to_owned(),
    }
}

/// What a log page states besides the commits.
pub(super) struct LogHeader<'a> {
    pub(super) rev: &'a str,
    pub(super) path: Option<&'a str>,
    /// Whether the log is truncated.
    pub(super) more: bool,
    /// The maximum of the parameter `limit`.
    pub(super) most: usize,
    /// Whether the log ends at the boundary of a shallow clone.
    pub(super) shallow: bool,
}

pub(super) fn log_markdown(space: &UriSpace, header: &LogHeader<'_>, commits: &[Commit]) -> String {
    let mut out = format!("# Log of {}", inline(header.rev));
    if let Some(path) = header.path {
        let _ = write!(out, ": {}", inline(path));
    }
    out.push_str("\n\n");
    for commit in commits {
        let id = link(&format!("`{}`", short(commit.id)), space.commit(&commit.id.to_string()));
        let date = commit.committer.time.get(..10).unwrap_or_default();
        let _ = writeln!(out, "- {id} {date} {}: {}", inline(&commit.author.name), inline(&commit.subject()));
    }
    if commits.is_empty() {
        out.push_str("No commits.\n");
    }
    if header.more {
        let _ = match (commits.len() * 2).min(header.most) {
            limit if limit > commits.len() => {
                writeln!(out, "\nThere are more: ask for them with `limit={limit}`.")
            }
            limit => writeln!(out, "\nThere are more; a log has at most {limit} commits."),
        };
    }
    if header.shallow {
        out.push_str("\nThis is a shallow clone: it does not contain earlier commits.\n");
    }
    out
}

pub(super) fn log_json(header: &LogHeader<'_>, commits: &[Commit]) -> Value {
    json!({
        "ref": header.rev,
        "path": header.path,
        "commits": commits.iter().map(Commit::json).collect::<Vec<_>>(),
        "more": header.more,
        "shallow": header.shallow,
    })
}

/// The files that a commit changed.
pub(super) struct CommitChanges {
    /// Each with its line counts; `None` if the file exceeds what is left of `MAX_COUNTED_BYTES` for the commit.
    pub(super) files: Vec<(FileDifference, Option<LineCounts>)>,
    /// `None` if it is too large, or if a file has no line counts.
    pub(super) patch: Option<String>,
}

impl CommitChanges {
    /// The size of the patch, in bytes.
    pub(super) fn patch_size(&self) -> u64 {
        self.patch.as_ref().map_or(0, |patch| patch.len() as u64)
    }

    /// A summary like the last line of `git diff --stat`; `None` if a file has no counts. Binary and large files count as
    /// 0 lines.
    fn summary(&self) -> Option<String> {
        let mut total = LineCounts::default();
        for (_, counts) in &self.files {
            let counts = (*counts)?;
            (total.added, total.deleted) = (total.added + counts.added, total.deleted + counts.deleted);
        }
        let plural = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        Some(format!(
            "{} changed, {}, {}",
            plural(self.files.len() as u64, "file"),
            plural(total.added, "insertion"),
            plural(total.deleted, "deletion")
        ))
    }
}

/// The page of a commit; `changes` is `None` if there are too many.
pub(super) fn commit_markdown(space: &UriSpace, commit: &Commit, changes: Option<&CommitChanges>) -> String {
    let id = commit.id.to_string();
    let mut out = format!("# {}\n\n", inline(&commit.subject()));
    let _ = writeln!(out, "- commit: `{id}`");
    for parent in &commit.parents {
        let parent = parent.to_string();
        let diff = link("diff", space.diff(&parent, &id));
        let _ = writeln!(out, "- parent: {} ({diff})", link(&format!("`{parent}`"), space.commit(&parent)));
    }
    for (what, person) in [("author", &commit.author), ("committer", &commit.committer)] {
        let _ = writeln!(
            out,
            "- {what}: {} \\<{}\\>, {}",
            inline(&person.name),
            inline(&person.email),
            person.time
        );
    }
    if commit.signed {
        out.push_str("- signed: yes, and the signature was not checked\n");
    }
    let _ = writeln!(out, "- files: {}", link("tree", space.path_uri(&id, "")));
    let body = body(&commit.message);
    if !body.is_empty() {
        let _ = writeln!(out, "\n{body}");
    }
    out.push_str("\n## Changes\n\n");
    let Some(changes) = changes else {
        out.push_str("Too many to list.\n");
        return out;
    };
    if changes.files.is_empty() {
        out.push_str("None.\n");
        return out;
    }
    if let Some(summary) = changes.summary() {
        let _ = writeln!(out, "{summary}\n");
    }
    let parent = commit.parents.first().map(ToString::to_string);
    for (difference, counts) in &changes.files {
        let letter = difference.letter();
        let rev = if letter == "D" { parent.as_ref().unwrap_or(&id) } else { &id };
        let path = String::from_utf8_lossy(&difference.path);
        let file = link(&inline(&path), space.path_uri(rev, &escaped(&difference.path)));
        let _ = write!(out, "- {letter} {file}");
        if let Some(renamed) = &difference.renamed {
            let from = String::from_utf8_lossy(&renamed.from);
            let _ = write!(out, ", was {} ({}% the same)", inline(&from), renamed.similarity);
        }
        let _ = match counts {
            Some(LineCounts { binary: true, .. }) => writeln!(out, " (binary or large)"),
            Some(LineCounts { added: 0, deleted: 0, .. }) | None => writeln!(out),
            Some(counts) => writeln!(out, " (+{} -{})", counts.added, counts.deleted),
        };
    }
    out.push_str("\n## Patch\n\n");
    match (&changes.patch, &parent) {
        (Some(patch), _) => fenced(&mut out, "diff", patch),
        (None, Some(parent)) => {
            let diff = link("the diff", space.diff(parent, &id));
            let _ =
                writeln!(out, "Too large for this page: read {diff}, with `?path=` for one file or folder.");
        }
        (None, None) => out.push_str("Too large for this page: read the files.\n"),
    }
    out
}

/// Appends a code block. The fence is longer than any row of backticks in the text.
pub(super) fn fenced(out: &mut String, language: &str, text: &str) {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat((longest + 1).max(3));
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let _ = writeln!(out, "{fence}{language}\n{text}{end}{fence}");
}

pub(super) fn commit_json(commit: &Commit, changes: Option<&CommitChanges>) -> Value {
    let mut page = commit.json();
    page["tree"] = commit.tree.to_string().into();
    page["signed"] = commit.signed.into();
    page["changes"] = changes.map_or(Value::Null, |changes| {
        let change = |(difference, counts): &(FileDifference, Option<LineCounts>)| {
            let mut change = json!({
                "status": difference.letter(),
                "path": String::from_utf8_lossy(&difference.path),
            });
            if let Some(renamed) = &difference.renamed {
                change["from"] = String::from_utf8_lossy(&renamed.from).into();
                change["similarity"] = renamed.similarity.into();
            }
            if let Some(counts) = counts.filter(|counts| !counts.binary) {
                change["added"] = counts.added.into();
                change["deleted"] = counts.deleted.into();
            }
            change
        };
        changes.files.iter().map(change).collect()
    });
    page["patch"] = changes.and_then(|changes| changes.patch.clone()).into();
    page
}

/// The percent-encoded path.
pub(super) fn escaped(path: &[u8]) -> String {
    let segments = path.split(|byte| *byte == b'/').map(libris_core::Uri::encode_segment);
    segments.collect::<Vec<_>>().join("/")
}

/// Says which branch and commit `HEAD` is.
pub(super) fn head_line(branch: Option<&str>, commit: Option<ObjectId>) -> String {
    match (branch, commit) {
        (Some(branch), Some(id)) => format!("`HEAD` is {} at `{}`.", inline(branch), short(id)),
        (Some(branch), None) => format!("`HEAD` is {}, which has no commits yet.", inline(branch)),
        (None, Some(id)) => format!("`HEAD` is at `{}` and on no branch.", short(id)),
        (None, None) => "There is no `HEAD`.".to_owned(),
    }
}

pub(super) fn refs_markdown(space: &UriSpace, name: &str, refs: &Refs) -> String {
    let mut out = format!("# Refs of {}\n\n", inline(name));
    out.push_str(&head_line(refs.head.as_deref(), refs.head_commit));
    out.push('\n');
    let kinds = [("Branches", "refs/heads/"), ("Tags", "refs/tags/"), ("Remote branches", "refs/remotes/")];
    for (title, prefix) in kinds {
        let mut shown =
            refs.all.iter().filter_map(|one| Some((one.name.strip_prefix(prefix)?, one))).peekable();
        if shown.peek().is_none() {
            continue;
        }
        let _ = writeln!(out, "\n## {title}\n");
        for (name, one) in shown {
            let rev = libris_core::Uri::encode_segment(one.short().as_bytes());
            let (tree, log) = (link("files", space.path_uri(&rev, "")), link("log", space.log(&rev)));
            let date = one.time.get(..10).unwrap_or_default();
            let _ = writeln!(
                out,
                "- {} `{}` {date} {} ({tree}, {log})",
                inline(name),
                short(one.commit),
                inline(&one.subject)
            );
        }
    }
    if refs.more > 0 {
        let _ = writeln!(out, "\n… and {} more.", refs.more);
    }
    match refs.unreadable {
        0 => {}
        1 => out.push_str("\n1 ref cannot be read.\n"),
        count => {
            let _ = writeln!(out, "\n{count} refs cannot be read.");
        }
    }
    out
}

pub(super) fn refs_json(refs: &Refs) -> Value {
    let all = refs.all.iter().map(|one| {
        json!({
            "name": one.name,
            "ref": one.short(),
            "commit": one.commit.to_string(),
            "tag": one.tag.map(|tag| tag.to_string()),
            "time": one.time,
            "subject": one.subject,
        })
    });
    json!({
        "head": { "branch": refs.head, "commit": refs.head_commit.map(|id| id.to_string()) },
        "refs": all.collect::<Vec<_>>(),
        "more": refs.more,
        "unreadable": refs.unreadable,
    })
}

#[cfg(test)]
mod tests {
    use super::{Commit, LogHeader, ObjectId, Signature, UriSpace, body, log_markdown};

    fn commit() -> Commit {
        let id = ObjectId::null(gix::hash::Kind::Sha1);
        let nobody = || Signature { name: String::new(), email: String::new(), time: String::new() };
        let (author, committer, message) = (nobody(), nobody(), String::new());
        Commit { id, tree: id, parents: Vec::new(), author, committer, message, signed: false }
    }

    #[test]
    fn the_body_of_a_message_begins_after_its_first_blank_line() {
        assert_eq!(body("subject\nmore\n\nfirst\n\nsecond\n"), "first\n\nsecond");
        assert_eq!(body("\n\nsubject\r\n\r\nfirst\r\n"), "first");
        assert_eq!(body("subject\n \t\nfirst"), "first");
        assert_eq!(body("subject\nmore"), "");
    }

    #[test]
    fn a_truncated_log_suggests_only_a_limit_that_shows_more() {
        let space = UriSpace::new("repo").unwrap();
        let header = LogHeader { rev: "main", path: None, more: true, most: 3, shallow: false };
        let last_line = |count: usize| {
            let commits: Vec<_> = (0..count).map(|_| commit()).collect();
            log_markdown(&space, &header, &commits).lines().last().unwrap().to_owned()
        };
        assert_eq!(last_line(1), "There are more: ask for them with `limit=2`.");
        assert_eq!(last_line(2), "There are more: ask for them with `limit=3`.");
        assert_eq!(last_line(3), "There are more; a log has at most 3 commits.");
    }
}
