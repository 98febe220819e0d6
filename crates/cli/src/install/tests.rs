//! Tests of the edits of configuration files, with files as people and hosts write them.

use serde_json::{Value, json};

use super::edit::{ConfigFormat, EntryPath};
use super::host::{Connection, Host};

const JSON: &str = r#"// Settings of the editor.
{
    "theme": "One Dark", /* the best */
    "context_servers": {
        // Tickets.
        "tickets": { "url": "https://tickets.example/mcp" },
        "notes": {
            "command": "notes",
            "args": ["--all",],
        }, // mine
    },
    "vim_mode": true,
}
"#;

const TOML: &str = r#"# Codex
model = "gpt"   # the large one

[mcp_servers.tickets] # tickets
url = "https://tickets.example/mcp"

[mcp_servers.tickets.headers]
accept = 'text/plain'

[profiles.fast]
model = "small"
"#;

const YAML: &str = "# goose
GOOSE_MODEL: large   # the large one

extensions:
  # Tickets.
  tickets:
    name: tickets
    args:
    - --all
    - \"a: b\"
    enabled: true

  developer: { enabled: true, type: builtin }
# The end.
OTHER: 1
";

fn entry(format: ConfigFormat, key: &str, text: &str) -> Option<Value> {
    format.entry(text, EntryPath { key, name: "libris" }).unwrap()
}

/// The lines of `before` that are missing from `after`. Commas at the end of a line are ignored, because adding an
/// entry may add a comma after the entry before it.
fn lost<'a>(before: &'a str, after: &str) -> Vec<&'a str> {
    let bare = |line: &str| line.trim_end_matches(',').to_owned();
    let after: Vec<_> = after.lines().map(bare).collect();
    before.lines().filter(|line| !after.contains(&bare(line))).collect()
}

#[test]
fn an_entry_is_added_changed_and_removed_and_everything_else_stays() {
    let cases = [
        (ConfigFormat::Json, "context_servers", JSON),
        (ConfigFormat::Toml, "mcp_servers", TOML),
        (ConfigFormat::Yaml, "extensions", YAML),
    ];
    for (format, key, text) in cases {
        let path = EntryPath { key, name: "libris" };
        let first = json!({ "command": "/bin/libris", "args": ["serve", "/a b/\"docs\": #1", "--stdio"] });
        let added = format.edit(text, path, Some(&first)).unwrap();
        assert_eq!(entry(format, key, &added), Some(first.clone()), "{added}");
        assert_eq!(lost(text, &added), [""; 0], "{added}");
        // Again: nothing changes.
        assert_eq!(format.edit(&added, path, Some(&first)).unwrap(), added);

        let second = json!({ "url": "http://127.0.0.1:4747/mcp" });
        let changed = format.edit(&added, path, Some(&second)).unwrap();
        assert_eq!(entry(format, key, &changed), Some(second), "{changed}");
        assert_eq!(lost(text, &changed), [""; 0], "{changed}");

        assert_eq!(format.edit(&changed, path, None).unwrap(), text);
        assert_eq!(format.edit(text, path, None).unwrap(), text, "there is nothing to remove");
    }
}

#[test]
fn files_without_servers_get_the_first() {
    let value = json!({ "url": "http://127.0.0.1:4747/mcp" });
    let cases = [
        (ConfigFormat::Json, ""),
        (ConfigFormat::Json, "{}"),
        (ConfigFormat::Json, "{ \"servers\": {} }\n"),
        (ConfigFormat::Json, "{\r\n  \"other\": 1\r\n}\r\n"),
        (ConfigFormat::Toml, ""),
        (ConfigFormat::Toml, "a = 1"),
        (ConfigFormat::Toml, "servers = {}\n"),
        (ConfigFormat::Toml, "[servers]\n"),
        (ConfigFormat::Yaml, ""),
        (ConfigFormat::Yaml, "a: 1"),
        (ConfigFormat::Yaml, "servers:\n"),
        (ConfigFormat::Yaml, "servers:\n    x:\n        y: 1"),
    ];
    for (format, text) in cases {
        let path = EntryPath { key: "servers", name: "libris" };
        let edited =
            format.edit(text, path, Some(&value)).unwrap_or_else(|error| panic!("{text:?}: {error:#}"));
        assert_eq!(entry(format, "servers", &edited), Some(value.clone()), "{text:?}: {edited}");
        assert_eq!(edited.ends_with('\n'), text.is_empty() || text.ends_with('\n'), "{text:?}: {edited:?}");
    }
}

/// JSON files in many layouts, with and without servers.
const LAYOUTS: [&str; 21] = [
    "{}",
    "{}\n",
    "// Settings\n{}\n",
    "{ \"a\": 1 }\n",
    "{\"a\":1}",
    "{ \"a\": 1, }\n",
    "{ \"a\": 1 /* one */ }\n",
    "{\n  \"a\": 1\n}\n",
    "{\n\t\"a\": 1, // one\n}\n",
    "{\n    \"a\": { \"b\": [1] } // one\n    // end\n}",
    "{\n  // none yet\n}\n",
    "{ /* none yet */ }\n",
    "{\n  \"a\": 1,\n  \"b\": 2 }\n",
    "{\n  \"a\": 1   \n\n}\n",
    "{\r\n  \"a\": 1\n}\r\n",
    "{ \"servers\": { \"a\": { \"command\": \"a\" } } }\n",
    "{\"servers\":{\"a\":{},},\"b\":1}\n",
    "{\n  \"servers\": { \"a\": {} }\n}\n",
    "{\n  \"servers\": {\n    // none yet\n  }\n}\n",
    "{ \"servers\": { /* none yet */ } }\n",
    "{\n  \"servers\": {\n    \"a\": {} }, \"b\": 1\n}\n",
];

#[test]
fn json_of_every_layout_is_restored() {
    let path = EntryPath { key: "servers", name: "libris" };
    let value = json!({ "command": "/bin/libris", "args": ["serve", "/docs"] });
    for text in LAYOUTS {
        let added = ConfigFormat::Json.edit(text, path, Some(&value)).unwrap();
        assert_eq!(entry(ConfigFormat::Json, "servers", &added), Some(value.clone()), "{added}");
        assert_eq!(ConfigFormat::Json.edit(&added, path, Some(&value)).unwrap(), added);
        assert_eq!(ConfigFormat::Json.edit(&added, path, None).unwrap(), text, "{added}");
    }
}

/// An entry goes from any position, and leaves nothing behind but what belongs to others.
#[test]
fn an_entry_is_removed_from_every_position() {
    let path = EntryPath { key: "s", name: "libris" };
    for (before, after) in [
        ("{\"s\":{\"libris\":{},\"a\":1}}", "{\"s\":{\"a\":1}}"),
        ("{ \"s\": { \"a\": 1, \"libris\": {}, \"b\": 2 } }", "{ \"s\": { \"a\": 1, \"b\": 2 } }"),
        ("{ \"s\": { \"a\": 1 , \"libris\": {} } }", "{ \"s\": { \"a\": 1  } }"),
        (
            "{\n  \"s\": {\n    \"libris\": {}, // mine\n    // of a\n    \"a\": 1\n  }\n}\n",
            "{\n  \"s\": {\n    // of a\n    \"a\": 1\n  }\n}\n",
        ),
        (
            "{\n  \"s\": {\n    \"a\": 1 // one\n    , \"libris\": {}\n  }\n}\n",
            "{\n  \"s\": {\n    \"a\": 1 // one\n    \n  }\n}\n",
        ),
        ("{\n  \"s\": {\n    \"libris\": {} // mine\n  },\n  \"b\": 1\n}\n", "{\n  \"b\": 1\n}\n"),
        ("{\n  \"s\": { \"libris\": {} }\n}\n", "{}\n"),
        ("{ \"s\": 1 }", "{ \"s\": 1 }"),
    ] {
        assert_eq!(ConfigFormat::Json.edit(before, path, None).unwrap(), after);
    }
}

#[test]
fn files_that_cannot_be_edited_safely_are_refused() {
    let value = json!({ "url": "http://127.0.0.1:4747/mcp" });
    for (format, text) in [
        (ConfigFormat::Json, "{ \"servers\": "),
        (ConfigFormat::Json, "[1]"),
        (ConfigFormat::Toml, "a = "),
        (ConfigFormat::Toml, "servers = 1"),
        (ConfigFormat::Yaml, "servers: { a: { b: 1 } }\n"),
        (ConfigFormat::Yaml, "servers:\n- 1\n"),
        (ConfigFormat::Yaml, "a: |\n  servers:\n   x\n\tservers:\n"),
        (ConfigFormat::Yaml, "- 1\n"),
    ] {
        let path = EntryPath { key: "servers", name: "libris" };
        assert!(format.edit(text, path, Some(&value)).is_err(), "{text:?}");
    }
}

#[test]
fn a_text_block_is_no_key() {
    let text = "note: |\n  extensions:\n    libris: 1\nextensions:\n  a:\n    b: 1\n";
    let path = EntryPath { key: "extensions", name: "libris" };
    let edited = ConfigFormat::Yaml.edit(text, path, Some(&json!({ "c": 2 }))).unwrap();
    assert_eq!(edited, format!("{text}  libris:\n    c: 2\n"));
}

#[test]
fn each_host_has_entries_of_its_own() {
    use clap::ValueEnum as _;
    let stdio = Connection::Stdio(["/bin/libris", "serve", "/docs", "--stdio"].map(str::to_owned).to_vec());
    let http = Connection::Http("http://127.0.0.1:4747/mcp".into());
    let mut text = String::new();
    for host in Host::value_variants() {
        for connection in [&stdio, &http] {
            let entry = host.entry("libris", connection);
            let entry = entry.map_or_else(|error| error.to_string(), |entry| entry.to_string());
            text.push_str(&format!("{} {}: {entry}\n", host.argument(), host.key()));
        }
    }
    insta::assert_snapshot!(text.trim_end());
}
