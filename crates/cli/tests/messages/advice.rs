//! Whether a message says what to do.

mod errors;
mod log;

use crate::{Channel, Message};
use errors::{ADVISED, EXEMPT};
use log::LOGGED;

/// Where the advice of a message is.
#[derive(Debug, PartialEq)]
pub(crate) enum Advice {
    /// Behind "; hint: ".
    Hint,
    /// In its text.
    InText,
    /// In its cause, which follows it.
    Cause,
    /// In the reason or the similar names at its end.
    AtEnd,
    /// In the message that has this one as its reason.
    Outside,
    /// In the lists of this file: the advice, or why it needs none.
    Listed(&'static str),
}

/// The verbs that begin a clause of advice.
const VERBS: &[&str] = &[
    "add", "allow", "ask", "begin", "check", "choose", "close", "complete", "did", "follow", "give", "grant",
    "install", "leave", "let", "list", "log", "make", "name", "omit", "open", "poll", "put", "read",
    "remove", "repeat", "run", "save", "search", "send", "serve", "set", "tell", "try", "use", "wait",
    "write",
];

/// What a message contains if it names the accepted values.
const PHRASES: &[&str] = &[
    " has no query parameter",
    " has no variable `",
    " must ",
    " requires ",
    " such as ",
    "did you mean",
    "and `{table}` with both",
    "expected ",
    "is missing",
    "it has {}",
    "its values are",
    "its variables are",
    "lists them",
    "stands for",
    "as in `",
    "begins at",
    "count from",
    "have the keys",
    "is `markdown` or `json`",
    "is neither",
    "{SLASH}",
    "there are {",
    "has the names",
    "has the templates",
    "has the URIs",
];

/// The placeholders for a reason, or for another message, at the end of a message.
const REASONS: &[&str] = &[
    "{}",
    "{cause}",
    "{error}",
    "{error:?}",
    "{hint}",
    "{known}",
    "{last}",
    "{meant}",
    "{message}",
    "{named}",
    "{self}",
    "{sent}",
    "{similar}",
    "{there}",
    "{what}",
    "{why}",
    ": {0}",
];

/// Parts of sentences, which are not messages by themselves.
const FRAGMENTS: &[&str] = &[
    " at line ",
    "missing field ",
    "complete the variable",
    "let the user that runs Libris read the file",
    "list the resources",
    "make the prompt",
    "read the resource",
    "`true` or `false`",
    "a UUID",
    "a number",
    "a whole number",
    "a whole number from 1 on",
    "text without a NUL",
    "{wanted} for the column `{}`",
    "a port",
    "a scheme",
    "no scheme",
    "`%` without two hexadecimal digits",
    "`{character}`, which cannot be in a literal,",
    "a `[` that is not closed",
    "a `{` that is not closed",
    "a `}` that closes nothing",
    "a malformed IP address",
    "an authority after `]`",
    "an empty expression",
    "the control character U+{:04X}",
    "the operator `{other}`, which has no meaning yet,",
    "there are more than 1000 alternatives",
    "has invalid characters",
    "is repeated",
    "check the paths in `url`",
    "set a larger `max_bytes`",
    "`{}` is not a block mapping",
    "`{}` is not a table",
    "the entry is not a table",
    "the file has no keys at its top level",
    "this file is written in a way that cannot be edited safely",
    "git allows no such name",
    "permission is denied",
    "a file that its URL names does not exist",
    "nobody listens",
    "nothing listens at its address",
    "the connection was lost",
    "a segment is empty",
    "Redis Cluster has no databases and no names",
    "the user or the password is not percent-encoded UTF-8",
    "`packed-refs` is damaged",
    "the database is not a number",
    "connecting took too long",
    "not a regular file any more",
    "a part of it is not XML",
    "a page has no size",
    "no variables",
    "only the variable `{one}`",
    "the variables `{}`",
    "the macro has checked the templates",
    "`META-INF/container.xml` names no package document",
];

/// Where a message has its advice; `None` if it has none.
pub(crate) fn of(message: &Message) -> Option<Advice> {
    let text = &*message.text;
    if !message.hint.is_empty() {
        return Some(Advice::Hint);
    }
    if message.has_cause {
        return Some(Advice::Cause);
    }
    let begins = |clause: &str| VERBS.iter().any(|verb| clause.split(' ').next() == Some(*verb));
    let clauses = text.split([':', ';', ',']).skip(1).map(str::trim_start);
    if clauses.map(|clause| clause.trim_start_matches("or ")).any(begins)
        || message.channel != Channel::Log && PHRASES.iter().any(|phrase| text.contains(phrase))
    {
        return Some(Advice::InText);
    }
    if let Some(advice) = listed_advice(text) {
        return Some(Advice::Listed(advice));
    }
    // "it" and "its" refer to the subject of the message that this is a reason in.
    if ["it ", "its "].iter().any(|pronoun| text.starts_with(pronoun)) {
        return Some(Advice::Outside);
    }
    if REASONS.iter().any(|reason| text.ends_with(reason)) {
        return Some(Advice::AtEnd);
    }
    None
}

/// The advice of a listed message.
fn listed_advice(text: &str) -> Option<&'static str> {
    let mut listed = EXEMPT.iter().chain(LOGGED).chain(ADVISED);
    listed.find(|(_, texts)| texts.contains(&text)).map(|(advice, _)| *advice)
}

/// Whether a text is a part of a sentence.
pub(crate) fn is_fragment(text: &str) -> bool {
    FRAGMENTS.contains(&text)
}

/// The texts on the lists.
pub(crate) fn listed() -> impl Iterator<Item = &'static &'static str> {
    EXEMPT.iter().chain(LOGGED).chain(ADVISED).flat_map(|(_, texts)| *texts).chain(FRAGMENTS)
}
