//! What to do about the lines of the log and the notices of the program.

/// What to do about lines of the log, which are for the operator. A line that needs no action says so.
pub(super) const LOGGED: &[(&str, &[&str])] = &[
    (
        "nothing: it says that a fault is over",
        &[
            "a source could be opened and is available",
            "a source can be watched again",
            "a source is available again",
            "connected to the other replicas",
        ],
    ),
    (
        "nothing: it says what was done",
        &[
            "logged in; the access token is stored",
            "the access token was removed",
            "listening on {scheme}://{}/mcp",
        ],
    ),
    (
        "nothing: Libris tries again by itself",
        &[
            "a source cannot be watched; its changes are not reported; retrying",
            "a source did not open its watch within {seconds} seconds; continuing without it until it does",
            "a source failed for one caller; probing it",
            "a search failed; rebuilding the index",
            "a search failed; the index is kept",
            "building the search index anew",
            "could not poll Notion for edits",
            "could not search Notion; the previous list is used",
            "Notion does not answer",
            "the refs cannot be read now, and are watched once they can",
            "the search index cannot be opened now; trying again",
            "the sources cannot be watched; retrying",
        ],
    ),
    (
        "nothing: the other resources are served; report the entry to the author of the server",
        &[
            "a child in a directory of an MCP server is malformed and left out",
            "a skill of an MCP server is malformed and left out",
            "a template of an MCP server is malformed and left out",
            "a tool of an MCP server has a malformed name and is left out",
            "an MCP server sent malformed entries in `{key}`, which are left out",
            "resources of an MCP server have malformed URIs and are left out",
        ],
    ),
    (
        "nothing: clients get the changes of lists by polling",
        &["could not subscribe the client to changes of the lists of resources, prompts and tools"],
    ),
    ("nothing: the client gets the error", &["a request took too long"]),
    (
        "report it, with the line: this is a bug in Libris",
        &[
            "a request ended in a panic",
            "could not encode a value as JSON; sending `null`",
            "could not render a preview",
        ],
    ),
    (
        "correct what `error` names; the source is not served until then",
        &["a source could be opened, but cannot be served"],
    ),
    (
        "check the folder and the disk of the audit log; the lines are lost",
        &["could not write the audit log"],
    ),
    (
        "check the folder and the rights of the audit log; the old file is used until then",
        &["could not open the audit log again; writing to the old file"],
    ),
    (
        "check the service or the folder that `reason` and `cause` name; Libris probes it",
        &["a source is unavailable", "a source failed", "a source is left out of a search"],
    ),
    (
        "start Libris again to have its changes reported; if it happens again, report it",
        &["the watch of a source ended; its changes are no longer reported"],
    ),
    ("correct the program that gives the instance, as `why` says", &["an invalid instance is not listed"]),
    (
        "check that Redis runs and can be reached; Libris tries again",
        &[
            "the connection to the other replicas is lost; reconnecting",
            "the other replicas cannot be reached; retrying",
            "a session could not be loaded",
            "too many removals of sessions wait for Redis; one is dropped",
        ],
    ),
    ("free space on the disk, or set another `cache_folder`", &["could not delete the damaged search index"]),
    (
        "do what `error` says: until then, searches compare words only",
        &["searching without the embedding model"],
    ),
    ("correct what `error` names: a search finds nothing until then", &["could not start the search index"]),
    (
        "see `remark`: raise a limit of `[search]`, or correct `cache_folder`",
        &["the search index is not as configured"],
    ),
    (
        "check the sources, as `error` says",
        &[
            "the search index cannot list the sources; it tries again later",
            "the search index cannot watch the sources; it compares the list from time to time",
        ],
    ),
    ("raise the limit of open files if `cause` says so", &["could not accept a connection"]),
    ("give Libris the right to read it, or exclude it", &["skipped what cannot be read"]),
    ("nothing: Libris compares the whole folder instead", &["the events of a folder could not be read"]),
    (
        "check that the folder exists and that Libris may read it",
        &["the folder cannot be read", "the folder of skills cannot be read"],
    ),
    (
        "raise the limit that `why` names; on a network file system, nothing",
        &["the folder cannot be watched and is polled at the interval `poll` instead"],
    ),
    (
        "exclude the deeper directories, or serve them as a folder of their own",
        &["directories are nested more than {MAX_DEPTH} deep"],
    ),
    (
        "check the disk or the network file system that the repository is on",
        &["a read of the repository is blocked in a system call"],
    ),
    (
        "check that the repository still exists; Libris serves what it opened before",
        &["the repository cannot be opened again"],
    ),
    ("run `git fsck`, or in a partial clone `git fetch --refetch`", &["an object is missing"]),
    (
        "make the query faster, or raise `timeout`",
        &["a statement does not end, and its connection is closed"],
    ),
    ("correct the `sql` of the query, as `cause` says", &["a table or column does not exist"]),
    (
        "make it faster; clients can read it, but are not told of its changes",
        &["stopped following a resource that takes too long to poll"],
    ),
    ("check the database; Libris polls it again", &["the database is unavailable: polling with back-off"]),
    (
        "correct the OpenAPI document, or leave the operation out with `exclude`",
        &[
            "a parameter is left out: its `name` or `in` is not text",
            "a reference out of the OpenAPI document is not followed",
            "an operation of the OpenAPI document is left out",
            "references in the OpenAPI document lead too far",
        ],
    ),
    ("check the service, as `cause` or `status` says", &["a request failed", "a service returned an error"]),
    (
        "report it to the maker of the service",
        &["a response has an unsupported content encoding", "a service sends only interim responses"],
    ),
    (
        "if the other origin is to be trusted, use its URL in the configuration",
        &["did not follow a next page of another origin", "did not follow a redirect to another origin"],
    ),
    ("use the URL that the redirects lead to", &["too many redirects"]),
    (
        "select fewer with parameters in the URL of the list",
        &[
            "only the first {taken} items of a list are taken",
            "only the first {} items of a list are taken",
            "only the first {} pages of a list are taken",
        ],
    ),
    (
        "check `next`: it must name a URL or a cursor",
        &["the next page of a list has a URL or cursor of more than {MAX_NEXT_BYTES} bytes"],
    ),
    (
        "share fewer pages with the connection; the others can be read by their URIs",
        &["the workspace has more than {MAX_OBJECTS} pages; the others are not listed"],
    ),
    (
        "poll these resources",
        &[
            "an MCP server does not support subscriptions; updates of its resources are not reported",
            "an MCP server has {MAX_FOLLOWED} subscriptions; further resources wait until others are unsubscribed from",
        ],
    ),
    (
        "see `fault`; updates of the resources are reported once the server accepts",
        &["an MCP server did not accept subscriptions; they are requested again"],
    ),
    ("correct the command, as `stderr` says", &["a command failed", "a completion command failed"]),
    (
        "see `cause`; end commands that are left over yourself if the server is killed",
        &[
            "commands will not end if the server is killed: their reaper cannot be started",
            "could not write to the reaper: commands may outlive the server if it is killed",
        ],
    ),
    (
        "nothing: only this document has no text; report it if you may share the document",
        &["the extraction of a document crashed"],
    ),
    (
        "free space on the disk, or set another `cache_folder`",
        &["the text or image of a document cannot be stored in the cache folder"],
    ),
    ("check the path and the rights of the file", &["could not read the file of an inline resource"]),
    ("correct the skill, as `reason` says", &["a skill is not published"]),
    (
        "serve the folders with skills themselves",
        &["the folder has too many subfolders; only the first {MAX_FOLDERS} are searched for skills"],
    ),
    (
        "check `issuer` or `jwks`, and that the issuer can be reached; the previous keys stay in effect",
        &["could not fetch the keys of an issuer"],
    ),
    (
        "see `failure`: a source in the folder is unavailable, or the client has used up its budget",
        &["a folder was not listed to its end"],
    ),
];
