//! Whether a message says what to do.

use crate::Message;

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
    /// It needs none.
    Exempt(&'static str),
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
    " at most ",
    " has no query parameter",
    " has no variable `",
    " is the most",
    " must ",
    " needs ",
    " only ",
    " requires ",
    " such as ",
    "did you mean",
    "and `{table}` with both",
    " depth of ",
    "expected ",
    "is missing",
    "it has {}",
    "its values are",
    "its variables are",
    "lists them",
    "more than {",
    "stands for",
    "the limit of",
    "as in `",
    "begins at",
    "count from",
    "has {0} pages",
    "have the keys",
    "is `markdown` or `json`",
    "is neither",
    "the log ",
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
    "`META-INF/container.xml` names no package document",
];

/// The errors that need no advice, by the reason.
const EXEMPT: &[(&str, &[&str])] = &[
    (
        "the repository is damaged: run `git fsck`",
        &[
            "an object that should be a commit has another type",
            "an object that should be a tag has another type",
            "an object that should be a tree has another type",
        ],
    ),
    (
        "the author of the program corrects the values",
        &[
            "`{uri}` does not match `{template}` with the values of the instance",
            "an instance of `{template}` has no value for `{missing}`",
        ],
    ),
    (
        "a file or a message of a client is malformed; the message says where",
        &[
            "a document type is not allowed",
            "malformed XML: an element is not closed",
            "malformed XML: an empty namespace has a prefix",
            "malformed XML: text outside of the element",
            "malformed XML: the name of an element is invalid",
            "malformed XML: unknown namespace prefix",
            "the body is not a `propfind`",
            "the name of a property is too long",
            "`initialize` cannot be part of a batch",
            "a request with this id is in progress",
            "the `Host` header is not a host",
            "the `{NAME}` header is not base64 of UTF-8",
            "the body ended early",
            "subscriptions need a session",
        ],
    ),
    (
        "the client asked for what does not exist; its lists have the names",
        &[
            "unknown method `{method}`",
            "the method `{method}` is not supported",
            "the picker does not support the method `{method}`",
            "`{0}` is not a directory",
        ],
    ),
    (
        "a hint could name what the rules hide from the caller",
        &[
            "unknown resource `{uri}`",
            "no resource at `{0}`",
            "access to `{0}` is denied",
            "the archive has no such member",
            "nobody is known here",
            "nothing is here",
        ],
    ),
    (
        "the client requests a new token or another certificate, as the 401 response says",
        &[
            "the API key is unknown, revoked or expired",
            "the client certificate names no subject",
            "the signature algorithm of the token is not accepted",
            "the signature of the token is invalid",
            "the token has expired",
            "the token is malformed",
            "the token is not valid yet",
            "the token is too long",
            "the token was issued by an unknown issuer",
            "the token was issued for another resource",
            "the token was signed with an unknown key",
            "the caller cannot be authenticated",
        ],
    ),
    (
        "a fault of another server, which only its maker can correct",
        &[
            "`content` is not a list",
            "`inputRequests` is not an object",
            "`requestState` is not a string",
            "`resources` is `{word}`, not a list or `dynamic`",
            "`{uri}` has no contents",
            "a content block has no `type`",
            "answered with no contents",
            "sent base64 that is malformed",
            "sent bytes that are not UTF-8",
            "sent contents with a URI that is malformed",
            "the server at `{url}` names a login page that is no web page: `{}`",
            "a read of `{uri}` returned no content, or several",
        ],
    ),
    (
        "a fault of the author of the skill, which the list names",
        &[
            "`{uri}` has another digest than its entry",
            "`{uri}` is not among its files",
            "the front matter of `{uri}` differs from its entry",
            "the front matter of its `SKILL.md` has no `{key}`",
            "the front matter of its `SKILL.md` is not a mapping of names to values",
            "the file `{}` is not below its folder",
            "an argument has no `name`",
            "`{}` has no `}}}}` at its end",
        ],
    ),
    (
        "an internal failure, whose cause is logged",
        &[
            "a source could not be opened",
            "the caller was cancelled",
            "the thread panicked",
            "nobody waits any more",
            "the caller is gone",
            "the runtime is shutting down",
            "the state of Redis cannot be read",
            "could not {doing}",
            "could not create a random secret",
            "a search failed",
            "an update panicked",
            "the source is unavailable",
            "the preview could not be rendered",
            "the resource could not be read",
            "too many responses are waiting for the client to read them",
            "there is no memory for the contents",
            "too many documents are waiting to be extracted",
            "the line search takes too long",
        ],
    ),
    ("Libris rebuilds the index", &["the checksum of {damaged:?} is wrong", "the search index is damaged"]),
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
        || PHRASES.iter().any(|phrase| text.contains(phrase))
    {
        return Some(Advice::InText);
    }
    // "it" and "its" refer to the subject of the message that this is a reason in.
    if ["it ", "its "].iter().any(|pronoun| text.starts_with(pronoun)) {
        return Some(Advice::Outside);
    }
    if REASONS.iter().any(|reason| text.ends_with(reason)) {
        return Some(Advice::AtEnd);
    }
    let exempt = EXEMPT.iter().find(|(_, texts)| texts.contains(&text));
    exempt.map(|(reason, _)| Advice::Exempt(reason))
}

/// Whether a text is a part of a sentence.
pub(crate) fn is_fragment(text: &str) -> bool {
    FRAGMENTS.contains(&text)
}

/// The texts on the lists.
pub(crate) fn listed() -> impl Iterator<Item = &'static &'static str> {
    EXEMPT.iter().flat_map(|(_, texts)| *texts).chain(FRAGMENTS)
}
