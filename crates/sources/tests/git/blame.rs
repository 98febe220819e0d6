//! Blame: which commit wrote which line.

use libris_core::Error;

use crate::sandbox::{Sandbox, ask, json, text};

/// `(commit, line in that commit, path in that commit)` for each line, by `git blame`.
fn printed(sandbox: &Sandbox, arguments: &[&str]) -> Vec<(String, u64, String)> {
    let mut all = vec!["blame", "--line-porcelain"];
    all.extend(arguments);
    let (mut lines, mut current) = (Vec::new(), None);
    for line in sandbox.git(&all).lines() {
        let words: Vec<_> = line.split(' ').collect();
        match current.take() {
            None => current = Some((words[0].to_owned(), words[1].parse().unwrap(), String::new())),
            Some((id, at, _)) if words[0] == "filename" => {
                current = Some((id, at, line["filename ".len()..].to_owned()));
            }
            Some(found) if line.starts_with('\t') => lines.push(found),
            other => current = other,
        }
    }
    lines
}

/// The same by the source.
async fn found(sandbox: &Sandbox, rest: &str) -> Vec<(String, u64, String)> {
    let page = json(&sandbox.open(), rest).await;
    let mut lines = Vec::new();
    for part in page["lines"].as_array().unwrap() {
        let number = |key: &str| part[key].as_u64().unwrap();
        for line in number("first")..=number("last") {
            lines.push((
                part["commit"].as_str().unwrap().to_owned(),
                number("original") + line - number("first"),
                part["path"].as_str().unwrap().to_owned(),
            ));
        }
    }
    lines
}

fn poem(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

/// A file with edits on two branches, a merge, and a rename with an edit.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with(&[("other.txt", "other\n")]);
    sandbox.write("poem.txt", &poem(&["one", "two", "three", "four", "five", "six"]));
    sandbox.commit("Write a poem");
    sandbox.git(&["checkout", "--quiet", "-b", "side"]);
    sandbox.write("poem.txt", &poem(&["one", "two", "three", "four", "five", "six, on the side", "seven"]));
    sandbox.commit("Extend it on the side");
    sandbox.git(&["checkout", "--quiet", "main"]);
    sandbox.write("poem.txt", &poem(&["zero", "one", "three", "four", "five", "six"]));
    sandbox.commit("Begin at zero");
    sandbox.git(&["merge", "--quiet", "--no-commit", "side"]);
    sandbox.commit("Join both");
    sandbox.git(&["mv", "poem.txt", "verse.txt"]);
    sandbox
        .write("verse.txt", &poem(&["zero", "one", "three!", "four", "five", "six, on the side", "seven"]));
    sandbox.commit("Rename it");
    sandbox
}

#[tokio::test]
async fn lines_have_the_commits_of_git() {
    let sandbox = sandbox();
    let whole = printed(&sandbox, &["HEAD", "--", "verse.txt"]);
    assert_eq!(whole.len(), 7);
    assert!(whole.iter().any(|(_, _, path)| path == "poem.txt"), "{whole:?}");
    assert_eq!(found(&sandbox, "blame/HEAD/verse.txt?format=json").await, whole);
    for (lines, range) in [("2-3", 1..3), ("6", 5..6), ("4-", 3..7), ("-2", 5..7), ("5-99", 4..7)] {
        let part = found(&sandbox, &format!("blame/HEAD/verse.txt?lines={lines}&format=json")).await;
        assert_eq!(part, whole[range], "{lines}");
    }
    let before = printed(&sandbox, &["HEAD~1", "--", "poem.txt"]);
    assert_eq!(found(&sandbox, "blame/main~1/poem.txt?format=json").await, before);
}

/// The same random edits are attributed as by git. Every line is unique, so that there is only one minimal diff.
#[tokio::test]
async fn random_edits_are_attributed_as_by_git() {
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut lines: Vec<String> = (0..60).map(|number| format!("first {number}")).collect();
    let sandbox = Sandbox::empty();
    for commit in 0..40 {
        for edit in 0..3 {
            let at = random(lines.len());
            match random(3) {
                0 => lines.insert(at, format!("added {commit} {edit}")),
                1 => lines[at] = format!("changed {commit} {edit}"),
                _ => drop(lines.remove(at)),
            }
        }
        sandbox.write("a.txt", lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes());
        sandbox.commit("edit");
    }
    let expected = printed(&sandbox, &["HEAD", "--", "a.txt"]);
    assert_eq!(found(&sandbox, "blame/HEAD/a.txt?format=json").await, expected);
}

#[tokio::test]
async fn wrong_requests() {
    let sandbox = sandbox();
    sandbox.write("binary", b"\0\x01");
    sandbox.commit("binary");
    let source = sandbox.open();
    for rest in ["blame/HEAD/binary?lines=1", "blame/HEAD/verse.txt?lines=8", "blame/HEAD/verse.txt?lines=0"]
    {
        assert!(matches!(ask(&source, rest).await, Err(Error::Invalid(_))), "{rest}");
    }
    for rest in
        ["blame/HEAD/vers.txt", "blame/mian/verse.txt", "blame/HEAD", "blame/HEAD/verse.txt?bytes=1-2"]
    {
        assert!(ask(&source, rest).await.is_err_and(|error| error.is_not_found()), "{rest}");
    }
    let said = ask(&source, "blame/HEAD/vers.txt").await.unwrap_err().to_string();
    assert!(said.contains("did you mean `verse.txt`"), "{said}");
}

/// What has no lines has a last change.
#[tokio::test]
async fn without_lines() {
    let sandbox = Sandbox::with(&[("empty", ""), ("src/a.txt", "a\n")]);
    sandbox.write("binary", b"\0\x01");
    sandbox.commit("Add a binary file");
    sandbox.write("src/b.txt", b"b\n");
    sandbox.commit("Change the folder");
    let source = sandbox.open();
    for (path, what, subject) in [
        ("empty", "an empty file", "first"),
        ("binary", "a binary file", "Add a binary file"),
        ("src/", "a folder", "Change the folder"),
    ] {
        let page = text(&source, &format!("blame/HEAD/{path}")).await;
        assert!(
            page.starts_with(&format!("No lines: this is {what}.\n\n")) && page.contains(subject),
            "{page}"
        );
    }
}
