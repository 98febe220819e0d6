//! The commands that pages show but that the tests of pages do not run: each is covered by another test.

use std::collections::BTreeSet;

use super::{blocks, root};

/// Commands that are shown but not run here: each with the file of the test that covers it, and a text in that file.
const KNOWN: [(&str, &str, &str); 34] = [
    ("./test", "crates/cli/tests/test_command.rs", "./test"),
    ("./test quick", "crates/cli/tests/test_command.rs", r#""./test", "quick""#),
    (
        "cargo run -p libris --example documents",
        "crates/libris/tests/examples.rs",
        r#"Example::start("documents""#,
    ),
    ("cargo run -p libris --example notes", "crates/libris/tests/examples.rs", r#"Example::start("notes""#),
    (
        "cargo run -p libris --example weather -- 127.0.0.1:4747",
        "crates/libris/tests/examples.rs",
        r#"Example::start("weather""#,
    ),
    ("cargo run -p compare --bin compare-libris", "tests/compare.py", r#"BINARIES / "compare-libris""#),
    ("cargo run -p compare --bin compare-rmcp", "tests/compare.py", r#"BINARIES / "compare-rmcp""#),
    ("cargo run --profile dist -p bench", "bench/src/main.rs", "fn the_commands_in_the_manual_are_valid"),
    (
        "cargo run --profile dist -p bench -- documents",
        "bench/src/main.rs",
        "fn the_commands_in_the_manual_are_valid",
    ),
    (
        "cargo run --profile dist -p bench -- git",
        "bench/src/main.rs",
        "fn the_commands_in_the_manual_are_valid",
    ),
    (
        "cargo run --profile dist -p bench -- compare --only libris,limit,rmcp --workload cold",
        "bench/src/main.rs",
        "fn the_commands_in_the_manual_are_valid",
    ),
    (
        "cargo run --profile dist -p bench -- compare --only embedded --workload read-1k",
        "bench/src/main.rs",
        "fn the_commands_in_the_manual_are_valid",
    ),
    (
        "cargo run --profile dist -p bench -- start",
        "bench/src/main.rs",
        "fn the_commands_in_the_manual_are_valid",
    ),
    (
        "cargo run --profile dist -p bench -- growth",
        "bench/src/main.rs",
        "fn the_commands_in_the_manual_are_valid",
    ),
    (
        "cargo run --profile dist -p bench -- live",
        "bench/src/main.rs",
        "fn the_commands_in_the_manual_are_valid",
    ),
    (
        "cargo run --profile dist -p bench -- sources",
        "bench/src/main.rs",
        "fn the_commands_in_the_manual_are_valid",
    ),
    (
        "cargo run --profile dist -p bench -- tasks",
        "bench/src/main.rs",
        "fn the_commands_in_the_manual_are_valid",
    ),
    (
        "cargo run --profile dist -p bench -- --quick",
        "bench/src/main.rs",
        "fn the_commands_in_the_manual_are_valid",
    ),
    ("packaging/release", "tests/run-packages", "packaging/release --bin "),
    ("packaging/release --bin TARGET=PATH --bin …", "tests/run-packages", "packaging/release --bin "),
    ("packaging/release … --url https://…/releases/v0.1.0", "tests/run-packages", " --url https://"),
    ("libris browse ./docs", "crates/cli/tests/picker.rs", r#".arg("browse")"#),
    (
        "libris key add ci --keys keys.toml --group builds --expires 90d",
        "crates/cli/tests/auth.rs",
        r#"&["key", "add", "ci", "--keys", "keys.toml", "--group", "builds""#,
    ),
    (
        "libris serve ./docs --http 0.0.0.0:4747 --keys keys.toml",
        "crates/cli/tests/auth.rs",
        r#"HttpServer::start_on("0.0.0.0:0""#,
    ),
    (
        "libris ls --long -- npx -y @modelcontextprotocol/server-everything",
        "tests/clients/others.test.mjs",
        "libris on server-everything over stdio",
    ),
    (
        "libris read demo://resource/static/document/features.md -- npx -y @modelcontextprotocol/server-everything",
        "tests/clients/others.test.mjs",
        "demo://resource/static/document/features.md",
    ),
    (
        "libris serve ./docs https://mcp.example/mcp",
        "crates/cli/tests/remote/gateway.rs",
        "Servers behind a gateway",
    ),
    (
        "libris serve ./docs -- npx -y @modelcontextprotocol/server-everything",
        "tests/clients/others.test.mjs",
        "a gateway of three servers",
    ),
    (
        "NOTION_TOKEN=ntn_… libris serve --config libris.toml",
        "crates/cli/tests/notion.rs",
        r#"env("NOTION_TOKEN", token)"#,
    ),
    (
        "libris serve examples/handbook --http 127.0.0.1:8080",
        "crates/cli/tests/end_to_end.rs",
        r#""--http", "127.0.0.1:0""#,
    ),
    (
        "libris triggers postgres://localhost/shop | psql postgres://localhost/shop",
        "crates/sources/tests/sql/watch.rs",
        "fn triggers_tell_at_once_and_by_row",
    ),
    ("libris serve ./docs git:. sqlite:shop.db", "tests/dav.py", r#""serve", "--config""#),
    ("libris login https://mcp.example/mcp", "tests/clients/test_mcp2_login.py", r#""login""#),
    (
        "libris ls https://mcp.example/mcp",
        "tests/clients/others.test.mjs",
        "libris on server-everything over HTTP",
    ),
];

/// Whether another test covers a command.
pub(crate) fn is_known(command: &str) -> bool {
    KNOWN.iter().any(|(known, ..)| *known == command)
}

/// The command in a line of a `text` block; `None` if it is none that somebody would type into a shell of this project.
fn command_in(line: &str) -> Option<&str> {
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let is_variable = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
        })
    };
    let program = line.split(' ').find(|word| !is_variable(word))?;
    let is_ours = matches!(program, "libris" | "cargo" | "./test") || program.starts_with("packaging/");
    // A comment is set off by spaces.
    is_ours.then(|| line.split("  ").next().unwrap_or(line).trim_end())
}

#[test]
fn commands_in_text_are_covered_by_other_tests() {
    let mut found = BTreeSet::new();
    for block in blocks().into_iter().filter(|block| block.kind == "text") {
        for command in block.text.lines().filter_map(command_in) {
            assert!(
                is_known(command),
                "{}: no test runs `{command}`: make it `sh` or `console`, or name the test that covers it in `KNOWN`",
                block.place
            );
            found.insert(command.to_owned());
        }
    }
    assert!(found.len() >= 20, "only {found:?}");
}

#[test]
fn known_commands_are_shown_and_covered() {
    let shown: String = blocks().into_iter().map(|block| block.text).collect();
    let shown: BTreeSet<_> = shown.lines().map(|line| command_in(line).unwrap_or(line).to_owned()).collect();
    for (command, file, text) in KNOWN {
        assert!(shown.contains(command), "no page shows `{command}`");
        let test =
            std::fs::read_to_string(root().join(file)).unwrap_or_else(|cause| panic!("{file}: {cause}"));
        assert!(test.contains(text), "`{command}`: {file} has no `{text}`");
    }
}

#[test]
fn command_lines_are_recognised() {
    for (line, command) in [
        ("$ libris ls docs", Some("libris ls docs")),
        ("libris browse ./docs", Some("libris browse ./docs")),
        ("TOKEN=secret libris serve", Some("TOKEN=secret libris serve")),
        ("cargo run -p bench   measures", Some("cargo run -p bench")),
        ("./test quick", Some("./test quick")),
        ("packaging/release", Some("packaging/release")),
        ("file:///docs/a.md", None),
        ("libris_5f1c9a02_3c1d…", None),
        ("", None),
    ] {
        assert_eq!(command_in(line), command, "{line}");
    }
}
