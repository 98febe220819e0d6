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
use super::compare::Difference;
use super::refs::Refs;
use super::repo::{Objects, fault};

/// The number of digits of an abbreviated id in Markdown.
pub(super) const SHORT: usize = 10;

/// The longest subject in a list of refs, in bytes.
const SUBJECT: usize = 4096;

/// A decoded commit.
pub(super) struct Commit {
    pub(super) id: ObjectId,
    pub(super) tree: ObjectId,
    pub(super) parents: Vec<ObjectId>,
    author: Person,
    committer: Person,
    message: String,
    signed: bool,
}

struct Person {
    name: String,
    email: String,
    time: String,
}

impl Commit {
    pub(super) fn read(objects: &Objects<'_>, id: ObjectId) -> Result<Self> {
        let object = objects.load(id, Kind::Commit)?;
        let commit = CommitRef::from_bytes(&object.data, objects.object_hash()).map_err(fault)?;
        let text = |bytes: &BStr| decoded(bytes, commit.encoding);
        let person = |signature: gix::Result<gix::actor::SignatureRef<'_>>| match signature {
            Ok(person) => {
                Person { name: text(person.name), email: text(person.email), time: time(person.time().ok()) }
            }
            Err(_) => Person { name: String::new(), email: String::new(), time: time(None) },
        };
        Ok(Self {
            id,
            tree: commit.tree(),
            parents: objects.node(id)?.parents,
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
        if subject.len() > SUBJECT {
            subject.truncate(subject.floor_char_boundary(SUBJECT));
            subject.push('…');
        }
        subject
    }

    /// The approximate size in bytes.
    pub(super) fn size(&self) -> usize {
        let size = |person: &Person| person.name.len() + person.email.len();
        self.message.len() + size(&self.author) + size(&self.committer)
    }

    /// The committer time, as ISO 8601.
    pub(super) fn time(&self) -> &str {
        &self.committer.time
    }

    fn json(&self) -> Value {
        let person =
            |person: &Person| json!({ "name": person.name, "email": person.email, "time": person.time });
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

/// The first paragraph of a message on one line, as `git log` shows it.
fn subject(message: &str) -> String {
    let lines = message.trim_start_matches('\n').lines().map(str::trim_end);
    lines.take_while(|line| !line.is_empty()).map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Decodes commit text from the encoding that the commit header declares.
fn decoded(bytes: &[u8], encoding: Option<&BStr>) -> String {
    let named = encoding.and_then(|label| encoding_rs::Encoding::for_label(label));
    named.unwrap_or(encoding_rs::UTF_8).decode_without_bom_handling(bytes).0.into_owned()
}

/// A time as ISO 8601 in its recorded UTC offset.
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
    id.to_hex_with_len(SHORT).to_string()
}

/// Escapes text from the repository for a line of Markdown.
fn inline(text: &str) -> String {
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

/// The heading and the end of a log.
pub(super) struct Title<'a> {
    pub(super) rev: &'a str,
    pub(super) path: Option<&'a str>,
    /// Whether the log is truncated, and the maximum `limit`.
    pub(super) more: bool,
    pub(super) most: usize,
    /// Whether the log ends at the boundary of a shallow clone.
    pub(super) shallow: bool,
}

pub(super) fn log_markdown(space: &UriSpace, title: &Title<'_>, commits: &[Commit]) -> String {
    let mut out = format!("# Log of {}", inline(title.rev));
    if let Some(path) = title.path {
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
    if title.more {
        let _ = writeln!(
            out,
            "\nThere are more: ask for them with `limit={}`.",
            (commits.len() * 2).min(title.most)
        );
    }
    if title.shallow {
        out.push_str("\nThis is a shallow clone: what came before is not in it.\n");
    }
    out
}

pub(super) fn log_json(title: &Title<'_>, commits: &[Commit]) -> Value {
    json!({
        "ref": title.rev,
        "path": title.path,
        "commits": commits.iter().map(Commit::json).collect::<Vec<_>>(),
        "more": title.more,
        "shallow": title.shallow,
    })
}

/// The files that a commit changed; `None` if there are too many.
pub(super) type Changed<'a> = Option<&'a [Difference]>;

pub(super) fn commit_markdown(space: &UriSpace, commit: &Commit, changed: Changed<'_>) -> String {
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
    let _ = writeln!(out, "- files: {}", link("tree", space.place(&id, "")));
    // The title contains everything up to the first empty line.
    let body = commit.message.trim_start_matches('\n').split_once("\n\n").map_or("", |(_, body)| body.trim());
    if !body.is_empty() {
        let _ = writeln!(out, "\n{body}");
    }
    out.push_str("\n## Changes\n\n");
    match changed {
        None => out.push_str("Too many to tell.\n"),
        Some([]) => out.push_str("None.\n"),
        Some(changed) => {
            for difference in changed {
                let (letter, rev) = match status(difference) {
                    "D" => ("D", commit.parents.first().map_or_else(|| id.clone(), ToString::to_string)),
                    letter => (letter, id.clone()),
                };
                let path = String::from_utf8_lossy(&difference.path);
                let place = space.place(&rev, &escaped(&difference.path));
                let _ = writeln!(out, "- {letter} {}", link(&inline(&path), place));
            }
        }
    }
    out
}

pub(super) fn commit_json(commit: &Commit, changed: Changed<'_>) -> Value {
    let mut page = commit.json();
    page["tree"] = commit.tree.to_string().into();
    page["signed"] = commit.signed.into();
    page["changes"] = changed.map_or(Value::Null, |changed| {
        let change = |difference: &Difference| {
            json!({ "status": status(difference), "path": String::from_utf8_lossy(&difference.path) })
        };
        changed.iter().map(change).collect()
    });
    page
}

/// The status letter of `git diff --name-status`.
fn status(difference: &Difference) -> &'static str {
    match (difference.old, difference.new) {
        (None, _) => "A",
        (_, None) => "D",
        (Some(_), Some(_)) => "M",
    }
}

/// The percent-encoded path.
pub(super) fn escaped(path: &[u8]) -> String {
    let segments = path.split(|byte| *byte == b'/').map(libris_core::Uri::encode_segment);
    segments.collect::<Vec<_>>().join("/")
}

pub(super) fn refs_markdown(space: &UriSpace, name: &str, refs: &Refs) -> String {
    let mut out = format!("# Refs of {}\n\n", inline(name));
    let _ = match (&refs.head, refs.head_commit) {
        (Some(head), Some(id)) => writeln!(out, "`HEAD` is {} at `{}`.", inline(head), short(id)),
        (Some(head), None) => writeln!(out, "`HEAD` is {}, which has no commits yet.", inline(head)),
        (None, Some(id)) => writeln!(out, "`HEAD` is at `{}` and on no branch.", short(id)),
        (None, None) => writeln!(out, "There is no `HEAD`."),
    };
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
            let (tree, log) = (link("files", space.place(&rev, "")), link("log", space.log(&rev)));
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
