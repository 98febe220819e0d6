//! `libris search` as a process: what it prints, its exit codes, and its index after crashes and on bad disks.
#![cfg(all(target_os = "linux", feature = "search", feature = "files"))]

#[cfg(feature = "documents")]
#[path = "../../../documents/tests/samples/mod.rs"]
mod samples;
mod server;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A folder with a few documents.
fn documents() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let docs = folder.path().join("docs");
    std::fs::create_dir_all(docs.join("adr")).unwrap();
    let long =
        format!("{}the rotation of keys{}", "many words before ".repeat(8), " and many after".repeat(8));
    let texts = [
        ("keys.md", format!("# Keys\n\nIntroduction.\n\n## Rotation of signing keys\n\n{long}\n")),
        ("adr/0001.md", "# Decision\n\nKeys rotate every month.\n".to_owned()),
        ("other.md", "# Other\n\nNothing of interest.\n".to_owned()),
    ];
    for (name, text) in texts {
        std::fs::write(docs.join(name), text).unwrap();
    }
    folder
}

fn libris(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_libris"));
    command.current_dir(folder).env("HOME", folder).env_remove("PAGER").stdin(Stdio::null());
    command
}

fn search(folder: &Path, arguments: &[&str]) -> Output {
    libris(folder).arg("search").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

fn uris(answer: &Value) -> Vec<&str> {
    answer["hits"].as_array().unwrap().iter().map(|hit| hit["uri"].as_str().unwrap()).collect()
}

/// A server may take longer to start than `source_timeout`, which is for clients that wait for `libris serve`.
#[cfg(feature = "mcp")]
#[test]
fn a_server_that_starts_slowly_is_searched() {
    let folder = documents();
    let server = format!("sleep 1; exec {} serve ./docs --stdio", env!("CARGO_BIN_EXE_libris"));
    let config = format!(
        "[server]\nsource_timeout = \"10ms\"\n\n[[mcp]]\nname = \"slow\"\nrun = [\"sh\", \"-c\", {server:?}]\n"
    );
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    let output = search(folder.path(), &["rotating keys", "--config", "libris.toml", "--limit", "1"]);
    assert!(output.status.success() && text(&output.stdout).contains("keys.md"), "{output:?}");
}

#[test]
fn hits_are_printed_for_people() {
    let folder = documents();
    let output = search(folder.path(), &["rotating keys", "./docs", "--limit", "1"]);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    assert!(
        said.starts_with("file:///docs/keys.md  Keys\n  lines 5-7  Keys > Rotation of signing keys\n"),
        "{said}"
    );
    assert!(said.contains("      5 ## Rotation of signing keys\n"), "{said}");
    assert!(said.ends_with("… and 1 more\n"), "{said}");
    let nothing = search(folder.path(), &["zzzzzzzz", "./docs"]);
    assert_eq!((nothing.status.code(), text(&nothing.stdout)), (Some(1), "nothing found\n".to_owned()));
}

#[test]
fn json_has_the_lines_to_read() {
    let folder = documents();
    let output = search(folder.path(), &["signing keys", "./docs", "--json"]);
    let answer = json(&output);
    assert_eq!(
        (output.status.code(), &answer["query"], &answer["total"]),
        (Some(0), &"signing keys".into(), &2.into())
    );
    let best = &answer["hits"][0];
    assert_eq!(best["uri"], "file:///docs/keys.md");
    assert_eq!(best["source"], "files docs");
    assert_eq!(best["section"]["heading"], "Keys > Rotation of signing keys");
    assert_eq!((&best["section"]["firstLine"], &best["section"]["lastLine"]), (&5.into(), &7.into()));
    assert_eq!(best["snippet"][0]["line"], 5);
    assert!(answer["hits"][0]["score"].as_f64() > answer["hits"][1]["score"].as_f64());
    let corrected = json(&search(folder.path(), &["rotaton", "./docs", "--json"]));
    assert!(corrected["correction"].is_string() && !uris(&corrected).is_empty(), "{corrected}");
    let nothing = search(folder.path(), &["zzzzzzzz", "./docs", "--json"]);
    assert_eq!((nothing.status.code(), uris(&json(&nothing))), (Some(1), vec![]));
}

#[test]
fn filters_restrict_the_hits() {
    let folder = documents();
    let old = std::time::SystemTime::now() - Duration::from_secs(30 * 86_400);
    let file = std::fs::File::options().write(true).open(folder.path().join("docs/keys.md")).unwrap();
    file.set_modified(old).unwrap();
    let found = |arguments: &[&str]| -> Vec<String> {
        let arguments: Vec<_> = ["keys", "./docs", "--json"].iter().chain(arguments).copied().collect();
        let answer = json(&search(folder.path(), &arguments));
        let mut uris: Vec<_> =
            uris(&answer).into_iter().map(|uri| uri.replace("file:///docs/", "")).collect();
        uris.sort();
        uris
    };
    assert_eq!(found(&[]), ["adr/0001.md", "keys.md"]);
    assert_eq!(found(&["--since", "7d"]), ["adr/0001.md"]);
    assert_eq!(found(&["--since", "2001-01-01"]), ["adr/0001.md", "keys.md"]);
    assert_eq!(found(&["--below", "file:///docs/adr/"]), ["adr/0001.md"]);
    assert_eq!(found(&["--mime", "text/markdown", "--source", "files docs"]).len(), 2);
    assert_eq!(found(&["--mime", "image/*"]).len() + found(&["--source", "files other"]).len(), 0);
    assert_eq!(found(&["--audience", "assistant"]).len(), 2);
    let wrong = search(folder.path(), &["keys", "./docs", "--since", "soon"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("or an age such as 7d"), "{}", text(&wrong.stderr));
}

#[test]
fn the_best_hit_is_opened() {
    let folder = documents();
    let output = search(folder.path(), &["signing keys", "./docs", "--open"]);
    let file = std::fs::read_to_string(folder.path().join("docs/keys.md")).unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), file.clone()), "without a terminal");
    // In a terminal, the pager reads the text; `less` is told the line.
    let pager = folder.path().join("less");
    std::fs::write(&pager, "#!/bin/sh\necho \"$@\" > arguments\ncat > shown\n").unwrap();
    Command::new("chmod").arg("755").arg(&pager).status().unwrap();
    let said =
        terminal(folder.path(), "search 'signing keys' ./docs --open", &[("PAGER", pager.to_str().unwrap())]);
    assert_eq!(std::fs::read_to_string(folder.path().join("shown")).unwrap_or_default(), file, "{said}");
    assert_eq!(std::fs::read_to_string(folder.path().join("arguments")).unwrap().trim(), "+5g");
    let conflict = search(folder.path(), &["keys", "./docs", "--open", "--json"]);
    assert_eq!(conflict.status.code(), Some(2));
}

/// PDF and Word files are found by their texts; the lines are those of the text, which `--open` shows.
#[cfg(feature = "documents")]
#[test]
fn documents_are_found_and_opened_by_their_texts() {
    let folder = documents();
    let docs = folder.path().join("docs");
    let page = "The warranty ends after ninety days.".to_owned();
    std::fs::write(docs.join("contract.pdf"), samples::pdf(&[page])).unwrap();
    std::fs::write(docs.join("letter.docx"), samples::letter("The invoice is overdue.")).unwrap();
    std::fs::write(folder.path().join("libris.toml"), "[documents]\n[[files]]\npath = \"docs\"\n").unwrap();
    let run = |arguments: &[&str]| search(folder.path(), &[arguments, &["--config", "libris.toml"]].concat());
    for (query, name, sentence) in [
        ("warranty", "contract.pdf", "The warranty ends after ninety days."),
        ("overdue", "letter.docx", "The invoice is overdue."),
    ] {
        let answer = json(&run(&[query, "--json"]));
        let (uri, text_uri) = (format!("file:///docs/{name}"), format!("file:///docs/{name}?as=text"));
        assert_eq!(uris(&answer), [&*uri], "{answer}");
        assert_eq!(answer["hits"][0]["textUri"], *text_uri);
        let said = text(&run(&[query]).stdout);
        assert!(said.contains(&format!(" of {text_uri}")) && said.contains(sentence), "{said}");
        let opened = run(&[query, "--open"]);
        assert!(text(&opened.stdout).contains(sentence), "{opened:?}");
    }
}

/// Indexes that earlier versions wrote are deleted after a week.
#[test]
fn indexes_of_earlier_versions_are_deleted() {
    let (folder, _) = many(2);
    let cache = folder.path().join("cache");
    let old = std::time::SystemTime::now() - Duration::from_secs(8 * 86_400);
    for (name, is_old) in
        [("search-1-a", true), ("search-2-b", false), ("search-9999-c", true), ("texts-1-d", true)]
    {
        std::fs::create_dir_all(cache.join(name)).unwrap();
        std::fs::write(cache.join(name).join("meta.json"), "{}").unwrap();
        if is_old {
            std::fs::File::open(cache.join(name)).unwrap().set_modified(old).unwrap();
        }
    }
    assert_eq!(total(&libris(folder.path()).args(ALL).output().unwrap()), 2);
    let kept =
        ["search-1-a", "search-2-b", "search-9999-c", "texts-1-d"].map(|name| cache.join(name).exists());
    assert_eq!(kept, [false, true, true, true]);
}

/// What a command prints in a terminal of 80 columns.
fn terminal(folder: &Path, command: &str, environment: &[(&str, &str)]) -> String {
    let program = env!("CARGO_BIN_EXE_libris");
    let output = Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command"])
        .arg(format!("stty cols 80 rows 50; exec '{program}' {command}"))
        .arg("/dev/null")
        .current_dir(folder)
        .env("TERM", "xterm-256color")
        .env("HOME", folder)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("`script` of util-linux is installed");
    text(&output.stdout)
}

#[test]
fn snippets_fit_into_a_terminal_of_80_columns_and_show_the_matches() {
    let folder = documents();
    let said = terminal(folder.path(), "search 'rotation keys' ./docs", &[]);
    let mut found = 0;
    for line in said.lines() {
        let plain = without_styles(line.trim_end_matches('\r'));
        assert!(plain.chars().count() <= 80, "{} columns: {plain}", plain.chars().count());
        found += usize::from(plain.starts_with("  ") && plain.contains("rotation of keys"));
    }
    assert_eq!(found, 1, "{said}");
    assert!(
        said.contains("\u{1b}[1m\u{1b}[31m") || said.contains("\u{1b}[31m"),
        "the matches are in colour: {said:?}"
    );
}

/// A line without escape sequences.
fn without_styles(line: &str) -> String {
    let mut plain = String::new();
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => _ = letters.find(char::is_ascii_alphabetic),
            '\r' => plain.clear(),
            letter => plain.push(letter),
        }
    }
    plain
}

/// A configuration with a cache folder, and many files that take a while to index.
fn many(count: usize) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    for number in 0..count {
        let words: String =
            (0..800).map(|word| format!("word{} ", (word * 7919 + number * 104_729) % 50_000)).collect();
        std::fs::write(folder.path().join(format!("docs/{number}.md")), format!("everywhere {words}"))
            .unwrap();
    }
    let config = folder.path().join("libris.toml");
    std::fs::write(&config, "cache_folder = \"cache\"\n[search]\n[[files]]\npath = \"docs\"\n").unwrap();
    (folder, config)
}

/// The number of files that a search for a word in all of them finds.
fn total(output: &Output) -> u64 {
    assert!(output.status.success(), "{output:?}");
    json(output)["total"].as_u64().unwrap()
}

const ALL: [&str; 5] = ["search", "everywhere", "--json", "--config", "libris.toml"];

#[test]
fn an_index_is_whole_after_its_process_was_killed() {
    let (folder, _) = many(120);
    let cache = folder.path().join("cache");
    let bytes = || -> u64 {
        let files = std::fs::read_dir(&cache).into_iter().flatten().flatten();
        let files = files.flat_map(|index| std::fs::read_dir(index.path()).into_iter().flatten().flatten());
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    };
    // Killed as soon as the folder exists, once it has files, and later.
    for least in [0, 1, 50_000] {
        let mut process = libris(folder.path()).args(ALL).stdout(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while (!cache.exists() || bytes() < least) && Instant::now() < end {
            if process.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::yield_now();
        }
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(cache.exists(), "nothing was written");
    }
    let output = libris(folder.path()).args(ALL).output().unwrap();
    assert_eq!(total(&output), 120);
    assert!(!text(&output.stderr).contains("memory"), "{output:?}");
}

#[test]
fn a_cache_folder_is_relative_to_the_configuration() {
    let (folder, _) = many(2);
    let (above, name) = (folder.path().parent().unwrap(), folder.path().file_name().unwrap());
    let config = std::path::Path::new(name).join("libris.toml");
    let output =
        libris(above).args(["search", "everywhere", "--json", "--config"]).arg(&config).output().unwrap();
    assert_eq!(total(&output), 2);
    assert!(folder.path().join("cache").is_dir());
    assert!(!folder.path().join(name).exists(), "the folder was resolved twice");
}

#[test]
fn two_processes_use_one_cache_folder() {
    let (folder, _) = many(60);
    let start =
        || libris(folder.path()).args(ALL).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let both = [start(), start()];
    for process in both {
        assert_eq!(total(&process.wait_with_output().unwrap()), 60);
    }
    assert_eq!(total(&libris(folder.path()).args(ALL).output().unwrap()), 60);
}

/// A process that may write files of 64 KiB only, as on a full disk, searches in memory; the next one writes the index.
#[test]
fn a_full_disk_does_not_stop_a_search() {
    let (folder, _) = many(80);
    let program = env!("CARGO_BIN_EXE_libris");
    let limited = Command::new("bash")
        .arg("-c")
        .arg(format!("trap '' XFSZ; ulimit -f 64; exec '{program}' {}", ALL.join(" ")))
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(total(&limited), 80);
    assert_eq!(total(&libris(folder.path()).args(ALL).output().unwrap()), 80);
    let largest = walk(&folder.path().join("cache")).into_iter().max().unwrap_or_default();
    assert!(largest > 64 * 1024, "the second process writes the index: {largest}");
}

/// The sizes of all files below a folder.
fn walk(folder: &Path) -> Vec<u64> {
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => sizes.extend(walk(&entry.path())),
            false => sizes.push(entry.metadata().unwrap().len()),
        }
    }
    sizes
}

/// A read-only cache folder, with and without an index in it.
#[test]
fn a_cache_folder_may_be_read_only() {
    let (folder, _) = many(20);
    std::fs::create_dir(folder.path().join("cache")).unwrap();
    let run = || match rustix::process::geteuid().is_root() {
        // Root may write to folders without permission, but not to a read-only mount.
        true => {
            let program = env!("CARGO_BIN_EXE_libris");
            let script = format!(
                "mount --bind cache cache && mount -o remount,bind,ro cache && exec '{program}' {}",
                ALL.join(" ")
            );
            let mut command = Command::new("unshare");
            command
                .args(["--mount", "sh", "-c", &script])
                .current_dir(folder.path())
                .env("HOME", folder.path());
            command.stdin(Stdio::null()).output().unwrap()
        }
        false => {
            let mode = |mode: &str| {
                Command::new("chmod").args(["-R", mode]).arg(folder.path().join("cache")).status().unwrap()
            };
            mode("a-w");
            let output = libris(folder.path()).args(ALL).output().unwrap();
            mode("u+w");
            output
        }
    };
    assert_eq!(total(&run()), 20);
    assert_eq!(walk(&folder.path().join("cache")), [0_u64; 0], "nothing is written");
    assert_eq!(total(&libris(folder.path()).args(ALL).output().unwrap()), 20);
    std::fs::write(folder.path().join("docs/new.md"), "everywhere").unwrap();
    assert_eq!(total(&run()), 21);
}
