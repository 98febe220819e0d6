//! The same requests to Libris and to an rmcp server with the same resources, in every revision and over
//! both transports: each difference between the answers stands in a table with its reason.

mod cases;
mod deviations;
mod oracle;
#[path = "../process/mod.rs"]
mod process;
mod wire;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cases::{LAST_WORDS, cases};
use crate::deviations::{DEVIATIONS, LEGACY, MODERN};
use crate::oracle::Oracle;
use crate::wire::{Conversation, Libris, Transport, initialize};

/// The resources of both servers. A page has two, so that there is a second page.
const CONFIG: &str = r##"
tools = false

[server]
instructions = "Ask for notes."
page_size = 3

[inline]
ttl = "1m"
scope = "public"

[[inline.resource]]
uri = "note://a"
name = "a"
title = "The first note"
description = "A note with everything that can be said of it."
mime = "text/markdown"
text = "# A\n\n\"quoted\" \\ \u0001 📚\n"
audience = ["user", "assistant"]
priority = 0.5
last_modified = "2026-01-02T03:04:05Z"
icons = [{ src = "https://example.com/a.png", mimeType = "image/png", sizes = ["48x48"], theme = "dark" }]
meta = { "example.com/shelf" = 3 }

[[inline.resource]]
uri = "note://b"
name = "b"
mime = "image/png"
base64 = "iVBORw0KGgo="

[[inline.resource]]
uri = "note://c"
name = "c"
mime = "text/plain"
text = ""

[[inline.template]]
uri = "note://numbered/{id}"
name = "numbered"
title = "Numbered notes"
description = "As many notes as there are numbers."
mime = "text/plain"
text = "note {{id}}"
complete = { id = ["1", "12", "123", "2"] }
"##;

/// Configuration that only Libris needs.
const STATUS: &str = r#"
[[inline.resource]]
uri = "libris://index"
name = "index"
title = "Index"
description = "What this server has: its folders and most important resources."
mime = "text/markdown"

[[inline.resource]]
uri = "libris://status"
name = "status"
title = "Status of the sources"
description = "Whether each source of this server is available, and since when not."
mime = "text/markdown"
"#;
const STATUS_TEMPLATE: &str = r#"
[[inline.template]]
uri = "libris://index{?below}"
name = "index"
title = "Index of a folder"
description = "`below` is the URI of a folder."
mime = "text/markdown"

[[inline.template]]
uri = "libris://status{?as}"
name = "status"
title = "Status of the sources in another form"
description = "`as` is `markdown` or `json`."
"#;

/// Where a difference is: revision, transport, case, path in the answer.
type Place = (&'static str, Transport, &'static str, String);
/// The values of Libris and of rmcp at that path, as JSON.
type Said = (String, String);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_differ_only_as_listed() {
    let libris = Libris::start(CONFIG).await;
    let with_status = CONFIG
        .replacen("[[inline.resource]]", &format!("{STATUS}\n[[inline.resource]]"), 1)
        .replacen("[[inline.template]]", &format!("{STATUS_TEMPLATE}\n[[inline.template]]"), 1);
    let oracle = Oracle::start(&with_status).await;
    let mut found = BTreeMap::<Place, Said>::new();
    for transport in [Transport::Stdio, Transport::Http] {
        for revision in ["1999-01-01", "2026-07-28", "2099-01-01"] {
            let ours = initialize(&mut libris.connect(transport).await, revision).await;
            let theirs = initialize(&mut oracle.connect(transport).await, revision).await;
            compare((revision, transport, "initialize"), ours, theirs, &mut found);
        }
        for revision in LEGACY.iter().chain(MODERN) {
            let mut ours = Conversation::open(libris.connect(transport).await, revision).await;
            let mut theirs = Conversation::open(oracle.connect(transport).await, revision).await;
            compare((revision, transport, "opening"), ours.opening.take(), theirs.opening.take(), &mut found);
            for case in cases() {
                let (our_answer, their_answer) = (ours.ask(&case).await, theirs.ask(&case).await);
                compare((revision, transport, case.name), our_answer, their_answer, &mut found);
            }
            for (name, line) in LAST_WORDS {
                let ours =
                    Conversation::open(libris.connect(transport).await, revision).await.end(line).await;
                let theirs =
                    Conversation::open(oracle.connect(transport).await, revision).await.end(line).await;
                compare((revision, transport, name), ours, theirs, &mut found);
            }
        }
    }
    let listed = listed();
    let unlisted = found.iter().filter(|(place, said)| listed.get(place) != Some(said));
    let stale = listed.iter().filter(|(place, said)| found.get(place) != Some(said));
    let report: Vec<_> = unlisted
        .map(|(place, said)| format!("not listed: {place:?} {said:?}"))
        .chain(stale.map(|(place, said)| format!("not found: {place:?} {said:?}")))
        .collect();
    assert!(report.is_empty(), "{}", report.join("\n"));
}

fn listed() -> BTreeMap<Place, Said> {
    let mut listed = BTreeMap::new();
    for row in DEVIATIONS {
        assert!(!row.why.is_empty());
        for revision in row.revisions {
            for transport in row.transports {
                for case in row.cases {
                    let place = (*revision, *transport, *case, row.path.to_owned());
                    let said = (row.libris.to_owned(), row.rmcp.to_owned());
                    assert_eq!(listed.insert(place, said), None, "{case} {} is listed twice", row.path);
                }
            }
        }
    }
    listed
}

fn compare(
    (revision, transport, case): (&'static str, Transport, &'static str),
    ours: Value,
    theirs: Value,
    found: &mut BTreeMap<Place, Said>,
) {
    differences("", Some(&comparable(ours)), Some(&comparable(theirs)), &mut |path, ours, theirs| {
        found.insert((revision, transport, case, path.to_owned()), (shown(ours), shown(theirs)));
    });
}

/// A response without what may differ: error messages, the content of cursors and the order of versions.
fn comparable(mut answer: Value) -> Value {
    if let Some(error) = answer.pointer_mut("/body/error").and_then(Value::as_object_mut) {
        error.remove("message");
    }
    if let Some(cursor) = answer.pointer_mut("/body/result/nextCursor") {
        *cursor = json!("opaque");
    }
    for path in ["/body/result/supportedVersions", "/body/error/data/supported"] {
        if let Some(Value::Array(versions)) = answer.pointer_mut(path) {
            versions.sort_by_key(Value::to_string);
        }
    }
    answer
}

/// A value of a difference as text; of a long one, only its type.
fn shown(side: Option<&Value>) -> String {
    match side {
        None => "absent".to_owned(),
        Some(value) => match (value, value.to_string()) {
            (Value::Object(_), text) if text.len() > 64 => "{…}".to_owned(),
            (Value::Array(_), text) if text.len() > 64 => "[…]".to_owned(),
            (_, text) => text,
        },
    }
}

/// Calls `note` for every path at which two values differ.
fn differences(
    path: &str,
    ours: Option<&Value>,
    theirs: Option<&Value>,
    note: &mut impl FnMut(&str, Option<&Value>, Option<&Value>),
) {
    match (ours, theirs) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                differences(&format!("{path}/{key}"), one.get(key), other.get(key), note);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                differences(&format!("{path}/{index}"), Some(one), Some(other), note);
            }
        }
        (ours, theirs) if ours != theirs => note(path, ours, theirs),
        _ => {}
    }
}

#[test]
fn differences_are_found_at_their_path() {
    let mut paths = Vec::new();
    let ours = json!({"same": 1, "code": 1, "list": [1, {"x": 2}], "ours": null});
    let theirs = json!({"same": 1, "code": 2, "list": [1, {"x": 3}], "theirs": null});
    differences("", Some(&ours), Some(&theirs), &mut |path, _, _| paths.push(path.to_owned()));
    assert_eq!(paths, ["/code", "/list/1/x", "/ours", "/theirs"]);
}
