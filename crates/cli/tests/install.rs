//! Tests of `libris install`, with configuration files in a temporary home folder.
#![cfg(target_os = "linux")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const CURSOR: &str = "{\n  // tickets\n  \"mcpServers\": {\n    \"tickets\": { \"url\": \"https://tickets.example/mcp\" }\n  }\n}\n";

fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join(".cursor")).unwrap();
    std::fs::create_dir_all(home.path().join("docs")).unwrap();
    std::fs::write(home.path().join(".cursor/mcp.json"), CURSOR).unwrap();
    home
}

fn install(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_libris"))
        .arg("install")
        .args(arguments)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("PATH", home.join("bin"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn backups(home: &Path) -> Vec<String> {
    let names = std::fs::read_dir(home.join(".cursor")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "mcp.json");
    names.sort();
    names
}

#[test]
fn an_entry_is_shown_written_and_removed() {
    let home = home();
    let file = home.path().join(".cursor/mcp.json");
    let text = || std::fs::read_to_string(&file).unwrap();

    let printed = install(home.path(), &["cursor", "docs", "--print"]);
    assert!(printed.status.success() && said(&printed).contains("+     \"libris\": {"), "{}", said(&printed));
    let unconfirmed = install(home.path(), &["cursor", "docs"]);
    assert!(!unconfirmed.status.success() && said(&unconfirmed).contains("--yes"), "{}", said(&unconfirmed));
    assert_eq!((text().as_str(), backups(home.path())), (CURSOR, vec![]), "nothing is written yet");

    let written = install(home.path(), &["cursor", "docs", "--yes"]);
    assert!(written.status.success(), "{}", said(&written));
    let docs = home.path().join("docs").display().to_string();
    assert!(
        text().contains("// tickets") && text().contains(&docs) && text().contains("\"--stdio\""),
        "{}",
        text()
    );
    let [backup] = &backups(home.path())[..] else { panic!("{:?}", backups(home.path())) };
    assert_eq!(std::fs::read_to_string(home.path().join(".cursor").join(backup)).unwrap(), CURSOR);

    let again = install(home.path(), &["cursor", "docs", "--yes"]);
    assert!(again.status.success() && said(&again).contains("up to date"), "{}", said(&again));
    let listed = said(&install(home.path(), &[]));
    assert!(
        listed.contains("Cursor") && listed.contains("has `libris`") && !listed.contains("Zed"),
        "{listed}"
    );

    assert!(install(home.path(), &["cursor", "--remove", "--yes"]).status.success());
    assert_eq!(text(), CURSOR);
}

/// The command in the entry starts a server that answers.
#[test]
fn the_entry_works() {
    let home = home();
    std::fs::write(home.path().join("docs/a.md"), "# A\n").unwrap();
    let change = install(home.path(), &["cursor", "docs", "--print", "--json"]);
    let change: serde_json::Value = serde_json::from_slice(&change.stdout).unwrap();
    let arguments = change["entry"]["args"].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
    let mut server = Command::new(change["entry"]["command"].as_str().unwrap())
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Write as _;
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///docs/a.md","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}}}}"#;
    writeln!(server.stdin.take().unwrap(), "{request}").unwrap();
    let output = server.wait_with_output().unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.contains("# A"), "{answer}");
}

/// The command of an MCP server is part of the entry, with other sources and without.
#[test]
fn the_command_of_a_server_is_kept() {
    let home = home();
    for sources in [&["docs"][..], &[]] {
        let arguments =
            [&["cursor"], sources, &["--print", "--json", "--", "notes-server", "--verbose"]].concat();
        let change = install(home.path(), &arguments);
        let change: serde_json::Value = serde_json::from_slice(&change.stdout).unwrap();
        let arguments = change["entry"]["args"].as_array().unwrap();
        assert!(
            arguments.ends_with(&["--stdio", "--", "notes-server", "--verbose"].map(Into::into)),
            "{change}"
        );
        assert_eq!(arguments.len(), 5 + sources.len(), "{change}");
    }
}

#[test]
fn each_change_has_a_backup_of_its_own() {
    let home = home();
    let folder = home.path().join(".cursor");
    std::fs::set_permissions(folder.join("mcp.json"), Permissions::from_mode(0o600)).unwrap();
    let mut versions = Vec::new();
    // So many within a second that several get the same time.
    for port in 1..=8 {
        versions.push(std::fs::read_to_string(folder.join("mcp.json")).unwrap());
        let url = format!("http://127.0.0.1:{port}/mcp");
        assert!(install(home.path(), &["cursor", "--url", &url, "--yes"]).status.success());
    }
    let names = backups(home.path());
    let mut copies: Vec<_> =
        names.iter().map(|name| std::fs::read_to_string(folder.join(name)).unwrap()).collect();
    assert_eq!(copies[0], CURSOR, "the first backup is the original");
    copies.sort();
    versions.sort();
    assert_eq!(copies, versions);
    for name in names {
        let mode = std::fs::metadata(folder.join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn mistakes_change_nothing_and_say_what_to_do() {
    let home = home();
    std::fs::write(home.path().join(".cursor/mcp.json"), "{ \"mcpServers\": ").unwrap();
    for (arguments, expected) in [
        (&["cursor", "docs", "--yes"][..], "yourself"),
        (&["cursor", "--yes"], "name the sources"),
        (&["cursor", "nowhere", "--yes"], "nowhere"),
        (&["cursor", "--url", "ftp://x", "--yes"], "as `libris serve` prints it"),
        (&["zed", "docs", "--yes"], "--print"),
        (&["claude-desktop", "--url", "http://127.0.0.1:1/mcp", "--yes"], "start it once"),
        (&["cursor", "docs", "--name", "a b"], "letters, digits"),
        (&["cursr"], "cursor"),
    ] {
        let output = install(home.path(), arguments);
        assert!(
            !output.status.success() && said(&output).contains(expected),
            "{arguments:?}: {}",
            said(&output)
        );
    }
    assert_eq!(std::fs::read_to_string(home.path().join(".cursor/mcp.json")).unwrap(), "{ \"mcpServers\": ");
    assert_eq!(backups(home.path()), [""; 0]);
}

#[test]
fn a_link_to_the_file_stays_a_link() {
    let home = home();
    let file = home.path().join(".cursor/mcp.json");
    std::fs::rename(&file, home.path().join("dotfiles.json")).unwrap();
    std::os::unix::fs::symlink(home.path().join("dotfiles.json"), &file).unwrap();
    let written = install(home.path(), &["cursor", "--url", "http://127.0.0.1:4747/mcp", "--yes"]);
    assert!(written.status.success(), "{}", said(&written));
    assert!(file.is_symlink() && std::fs::read_to_string(&file).unwrap().contains("4747"));
}

/// Each host: the path of its configuration file in the home folder, and a file as the host and its users write it. The
/// last is all on one line.
const HOSTS: [(&str, &str, &str); 10] = [
    ("claude-code", ".claude.json", include_str!("host_configs/claude-code.json")),
    (
        "claude-desktop",
        ".config/Claude/claude_desktop_config.json",
        include_str!("host_configs/claude-desktop.json"),
    ),
    ("vscode", ".config/Code/User/mcp.json", include_str!("host_configs/vscode.json")),
    ("cursor", ".cursor/mcp.json", include_str!("host_configs/cursor.json")),
    ("zed", ".config/zed/settings.json", include_str!("host_configs/zed.json")),
    ("codex", ".codex/config.toml", include_str!("host_configs/codex.toml")),
    ("goose", ".config/goose/config.yaml", include_str!("host_configs/goose.yaml")),
    ("opencode", ".config/opencode/opencode.jsonc", include_str!("host_configs/opencode.jsonc")),
    ("gemini", ".gemini/settings.json", include_str!("host_configs/gemini.json")),
    ("cursor", ".cursor/mcp.json", "{ \"mcpServers\": { \"a\": { \"command\": \"a\" } } }\n"),
];

/// Files that have settings, and no servers yet.
const WITHOUT_SERVERS: [(&str, &str, &str); 13] = [
    ("claude-code", ".claude.json", "{\n  \"numStartups\": 412,\n  \"projects\": {}\n}\n"),
    ("claude-desktop", ".config/Claude/claude_desktop_config.json", "{}"),
    ("vscode", ".config/Code/User/mcp.json", "{\n\t\"inputs\": [], // none\n}\n"),
    ("cursor", ".cursor/mcp.json", "{ \"version\": 1 }\n"),
    ("zed", ".config/zed/settings.json", "// Zed settings\n{\n  \"ui_font_size\": 16,\n  // Themes\n}\n"),
    (
        "opencode",
        ".config/opencode/opencode.jsonc",
        "{\n    \"theme\": \"opencode\",\n    \"model\": \"m\",\n}",
    ),
    ("gemini", ".gemini/settings.json", "{\n  \"mcp\": { \"allowed\": [\"libris\"] }\n}"),
    (
        "codex",
        ".codex/config.toml",
        "# Codex\nmodel = \"m\" # large\n\n[profiles.fast]\nmodel = \"s\"\n# end\n",
    ),
    ("codex", ".codex/config.toml", "model = \"m\""),
    ("codex", ".codex/config.toml", "model = \"m\"\n\n[mcp_servers] # none\n"),
    ("goose", ".config/goose/config.yaml", "# goose\nGOOSE_MODEL: m   # large\n\n# end\n"),
    ("goose", ".config/goose/config.yaml", "GOOSE_MODEL: m"),
    ("goose", ".config/goose/config.yaml", "extensions: # none yet\nGOOSE_MODEL: m\n"),
];

/// Whether `after` is `before` with one insertion, apart from a comma or the line break that the insertion needs.
fn is_insertion(before: &str, after: &str) -> bool {
    let start = before.bytes().zip(after.bytes()).take_while(|(one, other)| one == other).count();
    let rest = before.len() - start;
    let end = before.bytes().rev().zip(after.bytes().rev()).take_while(|(one, other)| one == other).count();
    end >= rest || before.as_bytes()[start..before.len() - end].iter().all(u8::is_ascii_whitespace)
}

#[test]
fn the_file_of_each_host_is_restored_byte_for_byte() {
    let crlf = |text: &str| text.replace('\n', "\r\n");
    for (host, path, text) in HOSTS {
        for before in
            [text.to_owned(), crlf(text), format!("\u{feff}{text}"), format!("\u{feff}{}", crlf(text))]
        {
            adds_replaces_and_removes(host, path, &before);
        }
    }
}

/// A key that was added for the entry goes with it, and one with a comment stays.
#[test]
fn a_file_without_servers_is_restored_byte_for_byte() {
    for (host, path, before) in WITHOUT_SERVERS {
        for before in [before.to_owned(), before.replace('\n', "\r\n"), format!("\u{feff}{before}")] {
            adds_replaces_and_removes(host, path, &before);
        }
    }
}

/// Without comments, an empty key looks like one that was added for the entry, and goes with it. A file that was absent
/// or empty stays valid.
#[test]
fn the_last_entry_goes_with_its_key() {
    for (host, path, before, after) in [
        ("cursor", ".cursor/mcp.json", "{\n  \"mcpServers\": {},\n  \"a\": 1\n}\n", "{\n  \"a\": 1\n}\n"),
        ("cursor", ".cursor/mcp.json", "", "{}\n"),
        ("codex", ".codex/config.toml", "mcp_servers = {}\n", "mcp_servers = {}\n"),
        ("codex", ".codex/config.toml", "", ""),
        ("goose", ".config/goose/config.yaml", "extensions:\na: 1\n", "a: 1\n"),
        ("goose", ".config/goose/config.yaml", "", ""),
    ] {
        let home = home();
        let file = home.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, before).unwrap();
        for arguments in [&[host, "docs", "--yes"][..], &[host, "--remove", "--yes"]] {
            let output = install(home.path(), arguments);
            assert!(output.status.success(), "{before:?}: {}", said(&output));
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), after, "{before:?}");
    }
}

/// Adds, replaces and removes an entry.
fn adds_replaces_and_removes(host: &str, path: &str, before: &str) {
    let home = home();
    let file = home.path().join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, before).unwrap();
    let text = || std::fs::read_to_string(&file).unwrap();
    let run = |arguments: &[&str]| {
        let output = install(home.path(), &[&[host], arguments, &["--yes"]].concat());
        assert!(output.status.success(), "{host} {arguments:?}: {}", said(&output));
    };

    run(&["docs"]);
    let added = text();
    let docs = home.path().join("docs").display().to_string();
    assert!(added.contains(&docs) && added.contains("--stdio"), "{host}: {added}");
    assert!(is_insertion(before, &added), "{host}: {added}");
    let breaks = |text: &str| [text.matches("\r\n").count(), text.matches('\n').count()];
    let [crlf, all] = breaks(&added);
    assert!(crlf == if before.contains("\r\n") { all } else { 0 }, "{host}: {added:?}");
    run(&["docs"]);
    assert_eq!(text(), added, "{host}: a second time changes nothing");

    // Replaces the entry, also one that a user has changed.
    std::fs::write(home.path().join("docs/libris.toml"), "[[files]]\npath = \".\"\n").unwrap();
    run(&["--config", "docs/libris.toml"]);
    let replaced = text();
    assert!(replaced.contains("libris.toml") && is_insertion(before, &replaced), "{host}: {replaced}");

    run(&["--remove"]);
    assert_eq!(text(), before, "{host}");
    let listed = said(&install(home.path(), &[]));
    assert!(listed.contains(&format!("libris install {host} SOURCE")), "{listed}");
}

/// Files with an entry that a user wrote, with comments around it: the host, the path, and the text before, in and after
/// the entry.
const EXISTING: [(&str, &str, [&str; 3]); 4] = [
    (
        "zed",
        ".config/zed/settings.json",
        [
            "{\n\t// servers\n\t\"context_servers\": {\n\t\t/* docs */\n\t\t\"libris\": ",
            "{ \"command\": \"old\", /* slow */ \"args\": [] }",
            ", // by hand\n\t\t// tickets\n\t\t\"tickets\": { \"command\": \"t\", \"args\": [] },\n\t},\n}\n",
        ],
    ),
    (
        "vscode",
        ".config/Code/User/mcp.json",
        [
            "{\n    \"servers\": {\n        \"a\": { \"command\": \"a\" }, // first\n        // docs\n        \"libris\": ",
            "{\n            // of the team\n            \"command\": \"old\"\n        }",
            " // last\n        // end\n    }\n}",
        ],
    ),
    (
        "codex",
        ".codex/config.toml",
        [
            "model = \"m\"\n\n# docs\n[mcp_servers.libris] # by hand\n",
            "command = \"old\"\nargs = [\"serve\"]\n",
            "\n# tickets\n[mcp_servers.tickets]\ncommand = \"t\" # slow\n",
        ],
    ),
    (
        "goose",
        ".config/goose/config.yaml",
        [
            "extensions:\n  # docs\n  libris: # by hand\n",
            "    cmd: old\n    args:\n    - serve\n",
            "  # tickets\n  tickets:\n    cmd: t # slow\nGOOSE_MODEL: m\n",
        ],
    ),
];

#[test]
fn an_entry_that_exists_is_replaced_and_the_comments_around_it_stay() {
    for (host, path, [before, entry, after]) in EXISTING {
        let home = home();
        let file = home.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, [before, entry, after].concat()).unwrap();
        let text = || std::fs::read_to_string(&file).unwrap();
        let replaced = install(home.path(), &[host, "--url", "http://127.0.0.1:4747/mcp", "--yes"]);
        assert!(replaced.status.success(), "{host}: {}", said(&replaced));
        let changed = text();
        let new = changed.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        let new = new.unwrap_or_else(|| panic!("{host}: {changed}"));
        assert!(new.contains("http://127.0.0.1:4747/mcp") && !new.contains("old"), "{host}: {changed}");
        let removed = install(home.path(), &[host, "--remove", "--yes"]);
        assert!(removed.status.success(), "{host}: {}", said(&removed));
        assert!(!text().contains("4747") && !text().contains("libris"), "{host}: {}", text());
        for other in ["tickets", "slow", "servers", "first", "end"] {
            assert_eq!(
                text().contains(other),
                changed.replace(new, "").contains(other),
                "{host}: {}",
                text()
            );
        }
    }
}
