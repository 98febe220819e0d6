//! What `libris read` shows on a terminal, which `script` of util-linux provides.
#![cfg(unix)]

use std::path::Path;
use std::process::{Command, Stdio};

/// The screen after `libris read` of a file in a terminal with eight lines.
fn screen(folder: &Path, file: &str, options: &str, environment: &[(&str, &str)]) -> String {
    screen_of(folder, &format!("read {options} file:///docs/{file}"), environment)
}

/// The screen after a command of Libris on a folder, in a terminal with eight lines.
fn screen_of(folder: &Path, command: &str, environment: &[(&str, &str)]) -> String {
    let binary = env!("CARGO_BIN_EXE_libris");
    let command = format!("stty rows 8 cols 80; {binary} {command} {}", folder.display());
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).stdin(Stdio::null());
    for name in ["NO_COLOR", "PAGER", "LIBRIS_PAGER", "TERM_PROGRAM", "CLICOLOR", "COLUMNS"] {
        script.env_remove(name);
    }
    let output = script.env("TERM", "xterm-256color").envs(environment.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
}

#[test]
fn contents_have_colours_a_pager_and_no_escape_sequences_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    let docs = root.path().join("docs");
    std::fs::create_dir(&docs).unwrap();
    std::fs::write(docs.join("short.md"), "# Title\n\nSee `code`.\n").unwrap();
    let long: String = (1..=20).map(|number| format!("line {number}\n")).collect();
    std::fs::write(docs.join("long.txt"), &long).unwrap();
    std::fs::write(docs.join("hostile.md"), "# \u{1b}]0;owned\u{7}\n").unwrap();
    std::fs::write(docs.join("dot.gif"), b"GIF89a\x01\x00\x01\x00\x00\x00\x00;").unwrap();

    let pager = ("LIBRIS_PAGER", "sed s/^/paged:/");
    let colours = screen(&docs, "short.md", "", &[pager]);
    assert_eq!(colours, "\u{1b}[1m# Title\u{1b}[0m\n\nSee \u{1b}[36m`code`\u{1b}[0m.\n");
    assert_eq!(screen(&docs, "short.md", "", &[("NO_COLOR", "1")]), "# Title\n\nSee `code`.\n");

    let paged: String = long.lines().map(|line| format!("paged:{line}\n")).collect();
    assert_eq!(screen(&docs, "long.txt", "", &[pager]), paged);
    assert_eq!(screen(&docs, "long.txt", "", &[("PAGER", pager.1)]), paged);
    for (options, value) in [("--no-pager", pager.1), ("", "cat"), ("", "")] {
        assert_eq!(screen(&docs, "long.txt", options, &[("LIBRIS_PAGER", value)]), long, "{options} {value}");
    }
    let missing = screen(&docs, "long.txt", "", &[("LIBRIS_PAGER", "no-such-pager-here")]);
    assert!(missing.ends_with(&long), "{missing}");

    let hostile = screen(&docs, "hostile.md", "", &[pager]);
    assert_eq!(hostile, "\u{1b}[1m# \\u{1b}]0;owned\\u{7}\u{1b}[0m\n");

    let shown = screen(&docs, "dot.gif", "", &[("TERM_PROGRAM", "iTerm.app")]);
    assert!(shown.starts_with("\u{1b}]1337;File=inline=1;size=14:R0lGODlh"), "{shown:?}");
}

#[test]
fn lists_that_are_longer_than_the_terminal_are_shown_in_the_pager() {
    let root = tempfile::tempdir().unwrap();
    let (short, long) = (root.path().join("short"), root.path().join("long"));
    for (folder, files) in [(&short, 3), (&long, 20)] {
        std::fs::create_dir(folder).unwrap();
        for number in 0..files {
            std::fs::write(folder.join(format!("{number:02}.md")), "# Word\n\nA word in a file.\n").unwrap();
        }
    }
    let pager = ("LIBRIS_PAGER", "sed s/^/paged:/");
    let is_paged = |folder: &Path, command: &str, environment: &[(&str, &str)]| {
        let screen = screen_of(folder, command, environment);
        let lines = screen.lines().filter(|line| !line.is_empty());
        let (paged, plain): (Vec<_>, Vec<_>) = lines.partition(|line| line.contains("paged:"));
        assert!(paged.is_empty() || plain.is_empty(), "{command}: {screen}");
        !paged.is_empty()
    };
    for command in ["ls", "ls --long", "ls --tree", "search word --limit 20", "bundle --query word"] {
        assert!(is_paged(&long, command, &[pager]), "{command}");
        assert!(!is_paged(&long, command, &[("LIBRIS_PAGER", "cat")]), "{command}");
    }
    assert!(!is_paged(&short, "ls", &[pager]));
    assert!(!is_paged(&long, "ls --json", &[pager]));
    // If the pager is missing, everything is printed.
    let printed = screen_of(&long, "ls", &[("LIBRIS_PAGER", "no-such-pager-here")]);
    assert!((0..20).all(|number| printed.contains(&format!("file:///long/{number:02}.md"))), "{printed}");
}

/// A list that takes several pages shows how far it is. The progress goes away, and is on standard error only.
#[test]
fn long_lists_show_their_progress() {
    let root = tempfile::tempdir().unwrap();
    let docs = root.path().join("docs");
    std::fs::create_dir(&docs).unwrap();
    for number in 0..1_500 {
        std::fs::write(docs.join(format!("{number:04}.txt")), "").unwrap();
    }
    let lines = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|number| format!("file:///docs/{number:04}.txt\n")).collect()
    };
    // The folder itself is the first of a thousand.
    let (first, second) = (format!("file:///docs/\n{}", lines(0..999)), lines(999..1_500));
    let progress = "\r\u{1b}[K1,000 resources …\r\u{1b}[K";
    let plain = ("LIBRIS_PAGER", "cat");
    assert_eq!(screen_of(&docs, "ls", &[plain]), format!("{first}{progress}{second}"));
    assert_eq!(screen_of(&docs, "ls 2> /dev/null", &[plain]), format!("{first}{second}"));
    // In the pager, the list itself is the progress.
    let paged = screen_of(&docs, "ls", &[("LIBRIS_PAGER", "cat -u")]);
    assert_eq!(paged, format!("{first}{second}"));
}
