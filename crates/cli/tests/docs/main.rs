//! Runs the code blocks of the README and the manual, and checks their links and tables of keys.
//!
//! The word after the fence selects the check:
//!
//! - `console`: the commands are run and their output is compared; `[..]` matches any text, and a line `...` any lines.
//! - `sh`: the commands must succeed.
//! - `toml,dependencies`: must name the crates that the Rust examples of the page use.
//! - `toml`: must be a valid configuration. `toml,upstream` may fail to list, because its server does not exist.
//! - `json`: must be JSON.
//! - `rust`, `rust,no_run`: compiled by the tests of the library.
//! - `diff`: checked by the tests of the sources.
//! - `text`: not checked, and contains no commands other than those of [`text_commands`].

mod text_commands;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const LIBRIS: &str = env!("CARGO_BIN_EXE_libris");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

struct Block {
    place: String,
    kind: String,
    text: String,
}

/// The README and every page of the manual.
fn pages() -> Vec<PathBuf> {
    let mut pages =
        vec![root().join("README.md"), root().join("CONTRIBUTING.md"), root().join("CHANGELOG.md")];
    let manual = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(manual.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    pages
}

fn blocks() -> Vec<Block> {
    pages().iter().flat_map(|page| blocks_of(page)).collect()
}

fn blocks_of(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(kind)) => {
                let place = format!("{}:{}", page.file_name().unwrap().to_string_lossy(), number + 1);
                open = Some(Block { place, kind: kind.to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", page.display());
    blocks
}

/// The words of a command, as a shell splits them; a text in single quotes is one word.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in command.split('\'').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

fn run(command: &str, folder: &Path) -> Output {
    let rest = command.strip_prefix("libris ").or_else(|| command.strip_prefix("cargo run --release -- "));
    let rest = rest.unwrap_or_else(|| panic!("no command of ours: `{command}`"));
    Command::new(LIBRIS)
        .args(words(rest))
        .current_dir(folder)
        // Ends at once, and is not the null device, with which `serve` would serve HTTP.
        .stdin(Stdio::piped())
        .env("COLUMNS", "105")
        .env_remove("LIBRIS_LOG")
        // Not the hosts of whoever runs the tests.
        .env_remove("XDG_CONFIG_HOME")
        .env("HOME", folder)
        .env("WEATHER_TOKEN", "sunshine")
        .env("LIBRARY_TOKEN", "bookworm")
        .env("LIBRIS_REDIS_URL", "redis://127.0.0.1:6379")
        .env("LIBRIS_REDIS_PASSWORD", "hunter2")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    // The pages have no trailing spaces.
    let text = String::from_utf8(text).unwrap();
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn fits(pattern: &str, line: &str) -> bool {
    match pattern.split_once("[..]") {
        None => pattern == line,
        Some((head, tail)) => {
            let Some(rest) = line.strip_prefix(head) else { return false };
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && fits(tail, &rest[at..]))
        }
    }
}

/// Compares line by line; a line `...` stands for any number of lines.
fn same(expected: &[&str], said: &[&str]) -> bool {
    match expected.split_first() {
        None => said.is_empty(),
        Some((&"...", rest)) => (0..=said.len()).any(|at| same(rest, &said[at..])),
        Some((pattern, rest)) => {
            said.split_first().is_some_and(|(line, others)| fits(pattern, line) && same(rest, others))
        }
    }
}

#[test]
fn consoles_show_what_the_program_says() {
    let mut ran = 0;
    for block in blocks().into_iter().filter(|block| block.kind == "console") {
        for session in block.text.split("$ ").skip(1) {
            let (command, expected) = session.split_once('\n').unwrap();
            let said = said(&run(command, &root()));
            let expected: Vec<_> = expected.trim_end().lines().collect();
            let lines: Vec<_> = said.trim_end().lines().collect();
            assert!(same(&expected, &lines), "{}: `{command}` says\n{said}", block.place);
            ran += 1;
        }
    }
    assert!(ran >= 5, "only {ran} commands were run");
}

#[test]
fn commands_succeed() {
    let folder = furnished("");
    for block in blocks().into_iter().filter(|block| block.kind == "sh") {
        for command in block.text.lines().filter(|command| !text_commands::is_known(command)) {
            let at_root = command.contains("examples/");
            let output = run(command, if at_root { Path::new("../..") } else { folder.path() });
            assert!(output.status.success(), "{}: `{command}` says\n{}", block.place, said(&output));
        }
    }
}

#[test]
fn configurations_are_valid() {
    for block in blocks().into_iter().filter(|block| matches!(&*block.kind, "toml" | "toml,upstream")) {
        let folder = furnished(&block.text);
        let output = run("libris check --config libris.toml", folder.path());
        let said = said(&output);
        let unasked = block.kind == "toml,upstream" && said.contains("error: could not list");
        assert!(output.status.success() || unasked, "{}:\n{said}", block.place);
    }
}

#[test]
fn json_is_json() {
    for block in blocks().into_iter().filter(|block| block.kind == "json") {
        serde_json::from_str::<serde_json::Value>(&block.text)
            .unwrap_or_else(|cause| panic!("{}: {cause}", block.place));
    }
}

#[test]
fn every_block_is_of_a_kind_that_is_tested() {
    for block in blocks() {
        // Those of `rust` are compiled by the tests of the library.
        let kinds = [
            "console",
            "diff",
            "sh",
            "toml",
            "toml,dependencies",
            "toml,upstream",
            "json",
            "text",
            "rust",
            "rust,no_run",
        ];
        assert!(kinds.contains(&&*block.kind), "{}: what is `{}`?", block.place, block.kind);
    }
}

/// The names of the crates that a Rust example uses.
fn crates_of(example: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut imported = BTreeSet::from(["std", "core", "crate", "self", "super"]);
    let mut used = BTreeSet::new();
    // Sample output in comments is not code.
    for line in example.lines().map(|line| line.split("//").next().unwrap_or_default()) {
        let line = line.trim_start_matches(['#', ' ']);
        if let Some(import) = line.strip_prefix("use ") {
            imported.extend(import.split(|letter| !is_part(letter)).skip(1));
        }
        for (at, _) in line.match_indices("::") {
            let start = line[..at].rfind(|letter| !is_part(letter)).map_or(0, |before| before + 1);
            let (before, name) = (&line[..start], &line[start..at]);
            let is_path_start =
                !before.ends_with(':') && name.starts_with(|letter: char| letter.is_ascii_lowercase());
            if is_path_start {
                used.insert(name);
            }
        }
    }
    used.difference(&imported).map(|name| name.replace('_', "-")).collect()
}

/// The tables `[dependencies]` of a page.
fn dependencies_of(page: &Path) -> Vec<toml::Table> {
    let blocks = blocks_of(page).into_iter().filter(|block| block.kind == "toml,dependencies");
    let table = |block: Block| match block.text.parse::<toml::Table>() {
        Ok(mut manifest) => match manifest.remove("dependencies") {
            Some(toml::Value::Table(dependencies)) => dependencies,
            other => panic!("{}: `dependencies` is {other:?}", block.place),
        },
        Err(cause) => panic!("{}: {cause}", block.place),
    };
    blocks.map(table).collect()
}

/// Whoever copies an example also needs its `Cargo.toml`.
#[test]
fn the_library_page_names_the_crates_of_its_examples() {
    let page = root().join("docs/library.md");
    let [first, all] = &dependencies_of(&page)[..] else { panic!("two blocks with dependencies") };
    let examples: Vec<_> =
        blocks_of(&page).into_iter().filter(|block| block.kind.starts_with("rust")).collect();
    let named = |table: &toml::Table| table.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(crates_of(&examples[0].text), named(first), "{}", examples[0].place);
    let used: BTreeSet<_> = examples.iter().flat_map(|example| crates_of(&example.text)).collect();
    assert_eq!(used, named(all));

    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let lock: toml::Table = lock.parse().unwrap();
    let locked = |name: &str, version: &str| {
        lock["package"].as_array().unwrap().iter().any(|package| {
            let found = package["version"].as_str().unwrap();
            let is_same = found == version || found.starts_with(&format!("{version}."));
            package["name"].as_str() == Some(name) && is_same
        })
    };
    for (name, dependency) in first.iter().chain(all) {
        let version = dependency.as_str().unwrap_or_else(|| dependency["version"].as_str().unwrap());
        assert!(locked(name, version), "the examples are not tested with `{name}` {version}");
    }
    // `#[tokio::main]` needs both.
    for table in [first, all] {
        let features: Vec<_> =
            table["tokio"]["features"].as_array().unwrap().iter().map(|it| it.as_str()).collect();
        assert_eq!(features, [Some("macros"), Some("rt-multi-thread")]);
    }
    assert_eq!(all["libris"]["features"].as_array().unwrap()[0].as_str(), Some("axum"), "for `.router()`");
}

/// The arguments of `libris` in the configuration of a host.
fn arguments_in(value: &serde_json::Value) -> Vec<Vec<String>> {
    let texts = |list: &[serde_json::Value]| {
        list.iter().map(|text| text.as_str().expect("arguments are texts").to_owned()).collect()
    };
    match value {
        serde_json::Value::Object(object) => {
            let args = object.get("args").and_then(|args| args.as_array()).map(|args| texts(args));
            let command = object.get("command").and_then(|command| command.as_array());
            let command = command.map(|command| texts(&command[1..]));
            args.into_iter().chain(command).chain(object.values().flat_map(arguments_in)).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn each_host_has_a_configuration_and_advice() {
    let hosts = [
        "Claude Code",
        "Claude Desktop",
        "VS Code",
        "Cursor",
        "Zed",
        "Codex CLI",
        "goose",
        "opencode",
        "Gemini CLI",
        "ChatGPT",
    ];
    let text = std::fs::read_to_string(root().join("docs/hosts.md")).unwrap();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    for host in hosts {
        let (_, section) =
            text.split_once(&format!("\n## {host}\n")).unwrap_or_else(|| panic!("no section {host}"));
        let section = section.split("\n## ").next().unwrap();
        assert!(section.contains("**What to do.**"), "{host}: no advice");
        // ChatGPT has no configuration file.
        assert!(section.contains("```") || host == "ChatGPT", "{host}: no configuration");
        let anchor = host.to_lowercase().replace(' ', "-");
        assert!(readme.contains(&format!("[{host}](docs/hosts.md#{anchor})")), "{host} is not in the README");
        assert!(text.contains(&format!("| [{host}](#{anchor}) |")), "{host} is not in the table");
    }
}

#[test]
fn the_commands_in_the_configurations_of_hosts_work() {
    let mut ran = 0;
    for page in ["README.md", "docs/hosts.md"] {
        for block in blocks_of(&root().join(page)).into_iter().filter(|block| block.kind == "json") {
            for arguments in arguments_in(&serde_json::from_str(&block.text).unwrap()) {
                let arguments = arguments.join(" ").replace("/path/to/handbook", "examples/handbook");
                let arguments = arguments.replace("/path/to/docs", "docs");
                let output = run(&format!("libris {arguments}"), &root());
                assert!(output.status.success(), "{}: `{arguments}` says\n{}", block.place, said(&output));
                ran += 1;
            }
        }
    }
    assert!(ran >= 8, "only {ran} commands were run");
}

/// The lines of a page that are not in code blocks.
fn prose(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut in_block = false;
    let outside = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    });
    outside.map(str::to_owned).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &Path) -> Vec<String> {
    let anchor = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    prose(page).iter().filter(|line| line.starts_with('#')).map(|line| anchor(line)).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut followed = 0;
    for page in pages() {
        for link in prose(&page).join("\n").split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.starts_with("https://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: `{link}` leads to no file", page.display());
            let leads = anchor.is_empty() || anchors(&target).iter().any(|heading| heading == anchor);
            assert!(leads, "{}: `{link}` leads to no heading", page.display());
            followed += 1;
        }
    }
    assert!(followed >= 50, "only {followed} links were followed");
}

/// The keys in the first column of the page's tables that begin with `| key | default |`.
fn keys(page: &Path) -> Vec<String> {
    let mut keys = Vec::new();
    let mut in_table = false;
    for line in prose(page) {
        in_table = line.starts_with("| key | default |") || (in_table && line.starts_with('|'));
        let cell = line.split('|').nth(1).unwrap_or_default();
        if in_table {
            keys.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    keys
}

/// Examples are run, so each documented key must be used by one: otherwise it may not exist.
#[test]
fn every_key_in_a_table_is_in_an_example() {
    let mut checked = 0;
    for page in pages().into_iter().filter(|page| !page.ends_with("library.md")) {
        let examples = blocks_of(&page);
        for key in keys(&page) {
            let name = key.rsplit('.').next().unwrap();
            let uses = |line: &str| {
                let line = line.trim_start_matches(['[', ' ']);
                line.starts_with(&format!("{name} = ")) || line.contains(&format!(".{name}]"))
            };
            let is_used = examples.iter().any(|example| example.text.lines().any(uses));
            assert!(is_used, "{}: no example has the key `{key}`", page.display());
            checked += 1;
        }
    }
    assert!(checked >= 100, "only {checked} keys were checked");
}

/// A folder with `docs`, `shop.db` and a repository `project` in it and this configuration; a plain one where it is
/// empty.
fn furnished(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    std::fs::write(folder.path().join("docs/start.md"), "# Start\n").unwrap();
    std::fs::copy(root().join("examples/shop.db"), folder.path().join("shop.db")).unwrap();
    let made = Command::new("git").args(["init", "--quiet", "project"]).current_dir(folder.path()).status();
    assert!(made.unwrap().success());
    std::fs::copy(root().join("examples/openapi/library.yaml"), folder.path().join("docs/api.yaml")).unwrap();
    let certificates = folder.path().join("certificates");
    std::fs::create_dir(&certificates).unwrap();
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for name in ["server.pem", "clients.pem"] {
        std::fs::write(certificates.join(name), signed.cert.pem()).unwrap();
    }
    std::fs::write(certificates.join("server.key"), signed.signing_key.serialize_pem()).unwrap();
    let config = if config.is_empty() { "[[files]]\npath = \"docs\"\n" } else { config };
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    folder
}
