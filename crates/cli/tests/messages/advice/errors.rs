//! The errors and warnings whose advice is not in their text.

/// The errors that need no advice, by the reason.
pub(super) const EXEMPT: &[(&str, &[&str])] = &[
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
        "try again later",
        &[
            "too many responses are waiting for the client to read them",
            "there is no memory for the contents",
            "too many documents are waiting to be extracted",
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
            "Redis did not answer within a second",
            "connecting was cancelled",
            "the usage of clients could not be exchanged",
            "could not {doing}",
            "could not create a random secret",
            "a search failed",
            "a search panicked",
            "reading it panicked",
            "an update panicked",
            "the source is unavailable",
            "the preview could not be rendered",
            "the resource could not be read",
            "the line search takes too long",
        ],
    ),
    ("Libris rebuilds the index", &["the checksum of {damaged:?} is wrong", "the search index is damaged"]),
];

/// What to do about errors and warnings that have no place for it, such as reasons in other messages.
pub(super) const ADVISED: &[(&str, &[&str])] = &[
    (
        "a reason in another message, which has the advice",
        &[
            "a sheet has more than {MAX_CELLS} cells",
            "the document has more than {0} bytes when decompressed",
            "the document has {0} pages",
            "the document has {size} bytes, more than the limit of {limit}",
            "the log has the error of the database",
            "{names} {are} unavailable; the error{of}: {reason}",
        ],
    ),
    (
        "serve HTTPS with `listen.tls`, or put a proxy with HTTPS in front of Libris",
        &[
            "credentials are sent unencrypted unless a proxy in front of Libris serves HTTPS; see `listen.tls`",
        ],
    ),
    (
        "log in first, or see with `libris login` which URLs have a token",
        &["no access token is stored for this URL; `libris login` without a URL lists the stored ones"],
    ),
    ("remove its password, and save it again", &["the document is encrypted and needs a password"]),
    ("extract the inner archive, and serve it", &["archives are opened to a depth of {MAX_DEPTH}"]),
    (
        "read a part of it, or let the administrator raise the limit",
        &["`{uri}` has {size} bytes, more than the limit of {limit}"],
    ),
    (
        "use a shorter one",
        &[
            "a URI of {} bytes exceeds the limit of {} bytes",
            "a URI template of {} bytes exceeds the limit of {} bytes",
        ],
    ),
    ("use fewer variables", &["more than {} variables"]),
    ("request fewer properties", &["more than {MAX_PROPERTIES} properties"]),
    ("shorten it", &["the front matter of its `SKILL.md` has more than {MAX_BYTES} bytes"]),
    (
        "serve the skills from several folders, or leave files out with `exclude`",
        &["the skills of the folder have more than {MAX_TOTAL_FILES} files together"],
    ),
    (
        "use a client that answers such requests, with revision 2026-07-28",
        &[
            "the source needs input of the user",
            "a source needs input of the user, for which this protocol revision has no results",
        ],
    ),
    ("write only a number after it", &["after `~` or `^` only a number may follow"]),
    ("add `contents`, or remove them", &["`mime` and `mime_column` are only for a query with `contents`"]),
    ("set one of them", &["a database needs either `url` or `url_env`"]),
    (
        "report it to the operator of the authorization server",
        &["more than {MAX_REDIRECTS} redirects in the OAuth flow"],
    ),
    ("begin earlier", &["`{uri}` begins past the end: the output has only {count} {unit}"]),
    (
        "write one word for each scope",
        &[
            "`{0}` is not a scope: a scope has only ASCII characters, and no spaces, quotation marks or backslashes",
        ],
    ),
    ("give it", &["the prompt `{}` needs the argument `{}`"]),
    ("send it alone, over HTTP", &["`subscriptions/listen` needs a stream of its own"]),
    (
        "the administrator finds the cause in the log",
        &["internal error; the log of the server has the details"],
    ),
    (
        "select some with `include` or `tags`",
        &[
            "only the first {MAX_OPERATIONS} operations of an OpenAPI document are taken; select some with `include` or `tags`",
        ],
    ),
    (
        "write it like this",
        &[
            "`#[list]` functions take `&self`, and a `&Context` or an `Option<&Identity>`",
            "a `#[changes]` function takes nothing but `&self`",
            "a `#[complete]` function takes the typed text as `typed: &str`, then other variables of the template as `Option`s, or a `&Context`",
            "the audience is a list of \"user\" and \"assistant\"",
            "the priority is a number from 0.0 to 1.0",
            "unknown key `{unknown}`; the keys are `{}`",
        ],
    ),
    (
        "move it there",
        &["`#[{name}]` is only valid on a function of an `impl` block with `#[libris::resources]`"],
    ),
    ("add a return type", &["`{}` has no return type; return the contents"]),
    (
        "remove one of them, or change the URI, the variable or the name",
        &[
            "another function already completes this variable",
            "another function already has this URI",
            "another prompt is called `{name}`",
        ],
    ),
    ("rename the parameter", &["name the parameter like a variable of the template"]),
    ("add a `#[resource]` with this template, or correct it", &["no `#[resource]` here has this template"]),
    (
        "add the parameter, or remove the variable",
        &["the template has a variable `{variable}`, but the function `{}` has no parameter of that name"],
    ),
];
