//! Skills, prompts and directories of another server: through a gateway with a prefix, and with the client commands.

use std::path::Path;
use std::process::{Command, Stdio};

use libris::{
    Catalog, Context, PromptCompletion, PromptContent, PromptMessage, SkillResources, Source as _, Uri,
};
use libris_remote::{ChildEnvironment, ProtocolChoice, Remote, RemoteTarget, UriMount};

use crate::toolbox::{Handshake, Toolbox};
use crate::{LIBRIS, folder, remote};

const CONFIG: &str = r#"
[[files]]
path = "docs"

[[skills]]
path = "skills"

[[prompt]]
name = "review"
description = "Reviews a document"
text = """
Review this:
{{resource:file:///docs/{+path}}}
"""
"#;

const SKILL: &str = "---\nname: pdf-forms\ndescription: Fills in forms\n---\nRead FORMS.md.\nA bell: \u{7}\n";

const FILES: [(&str, &str); 6] = [
    ("libris.toml", CONFIG),
    ("docs/a.md", "# A\n"),
    ("docs/deep/b.md", "# B\n"),
    ("docs/deep/c.md", "# C\n"),
    ("skills/pdf-forms/SKILL.md", SKILL),
    ("skills/pdf-forms/references/FORMS.md", "Forms.\n"),
];

fn upstream(folder: &Path, protocol: ProtocolChoice, mount: UriMount) -> Remote {
    let target = RemoteTarget::Stdio {
        program: LIBRIS.into(),
        arguments: ["serve", "--config", "libris.toml", "--stdio"].map(Into::into).into(),
        folder: folder.join("library"),
        environment: ChildEnvironment::Inherited,
    };
    remote("upstream", target, protocol, mount)
}

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn skills_pass_through_under_a_prefix() {
    let folder = folder("library", &FILES);
    for protocol in [ProtocolChoice::Initialize, ProtocolChoice::Discover] {
        let upstream = upstream(folder.path(), protocol, UriMount::prefixed("up").unwrap());
        let page = upstream.skills(None, 10, &Context::default()).await.unwrap();
        let [skill] = &page.skills[..] else { panic!("one skill: {page:?}") };
        assert_eq!(skill.uri, uri("up+skill://pdf-forms/SKILL.md"));
        assert_eq!(skill.frontmatter["description"], "Fills in forms");
        let SkillResources::Files(files) = &skill.resources else { panic!("it has files") };
        let read = upstream.read(&files[1].uri, &Context::default()).await.unwrap();
        assert_eq!(read.parts[0].body.len() as u64, files[1].size);
        assert_eq!(upstream.skills(Some(&skill.uri), 10, &Context::default()).await.unwrap().skills, []);

        let (same, _) = upstream.skill(&skill.uri, &Context::default()).await.unwrap();
        assert_eq!(same, *skill);
        let missing = upstream.skill(&uri("up+skill://other/SKILL.md"), &Context::default()).await;
        assert!(missing.unwrap_err().is_not_found());
        upstream.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_pass_through_under_a_prefix() {
    let folder = folder("library", &FILES);
    let upstream = upstream(folder.path(), ProtocolChoice::Auto, UriMount::prefixed("up").unwrap());
    let catalog = Catalog::new(vec![std::sync::Arc::new(upstream)]);
    let prompts = catalog.prompts(&Context::default()).await.unwrap().prompts;
    let names: Vec<_> = prompts.iter().map(|prompt| &*prompt.name).collect();
    assert_eq!(names, ["up_review", "up_use-resources"]);
    assert_eq!(prompts[0].arguments[0].name, "path");

    let arguments = [("path".to_owned(), "a.md".to_owned())].into();
    let messages = catalog.prompt("up_review", &arguments, &Context::default()).await.unwrap().unwrap();
    let [
        PromptMessage { content: PromptContent::Text(text), .. },
        PromptMessage { content: PromptContent::Embedded(part), .. },
    ] = &messages[..]
    else {
        panic!("a text and a resource: {messages:?}")
    };
    assert_eq!(text, "Review this:");
    assert_eq!(part.uri, uri("up+file:///docs/a.md"));

    let known = std::collections::BTreeMap::new();
    let partial =
        PromptCompletion { prompt: "up_review", argument: "path", typed: "de", known: &known, limit: 10 };
    let completion = catalog.complete_prompt(partial, &Context::default()).await.unwrap().unwrap();
    assert_eq!(completion.values, ["deep/"]);

    let other = catalog.prompt("review", &arguments, &Context::default()).await.unwrap();
    assert_eq!(other, None, "the name has no prefix");
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_are_read_page_by_page() {
    let folder = folder("library", &FILES);
    let upstream = upstream(folder.path(), ProtocolChoice::Auto, UriMount::prefixed("up").unwrap());
    let deep = uri("up+file:///docs/deep/");
    let first = upstream.children(&deep, None, 1, &Context::default()).await.unwrap();
    assert_eq!((first.resources[0].uri.as_str(), first.more), ("up+file:///docs/deep/b.md", true));
    let last = Some(&first.resources[0].uri);
    let second = upstream.children(&deep, last, 1, &Context::default()).await.unwrap();
    assert_eq!((second.resources[0].uri.as_str(), second.more), ("up+file:///docs/deep/c.md", false));
    let missing = upstream.children(&uri("up+file:///docs/none/"), None, 1, &Context::default()).await;
    assert!(missing.unwrap_err().is_not_found());
    let file = upstream.children(&uri("up+file:///docs/a.md"), None, 1, &Context::default()).await;
    assert!(file.is_err(), "a file is no directory");
    upstream.close().await;
}

/// A client command on the server over stdio.
fn on_server(folder: &Path, arguments: &[&str]) -> String {
    let server = ["--", LIBRIS, "serve", "--config", "libris.toml", "--stdio"];
    let mut command = Command::new(LIBRIS);
    command.args([arguments, &server].concat()).current_dir(folder.join("library")).stdin(Stdio::null());
    let output = command.env("COLUMNS", "80").env_remove("LIBRIS_LOG").output().unwrap();
    format!(
        "exit: {}\n{}{}",
        output.status.code().unwrap(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8(output.stderr).unwrap()
    )
}

#[test]
fn skills_are_listed_and_loaded() {
    let folder = folder("library", &FILES);
    let library = folder.path().join("library");
    assert_eq!(on_server(folder.path(), &["skills"]), "exit: 0\npdf-forms  Fills in forms\n");
    let json = on_server(folder.path(), &["skills", "--json"]);
    assert!(json.contains(r#""uri":"skill://pdf-forms/SKILL.md""#) && json.contains("sha256:"), "{json}");
    let printed = on_server(folder.path(), &["skills", "--load", "pdf-forms"]);
    assert_eq!(printed, format!("exit: 0\n{SKILL}"));

    let written = on_server(folder.path(), &["skills", "--load", "pdf-forms", "-o", "out"]);
    assert_eq!(written, "exit: 0\nwrote 2 files to out/pdf-forms\n");
    let file = |path: &str| std::fs::read_to_string(library.join("out/pdf-forms").join(path)).unwrap();
    assert_eq!((&*file("SKILL.md"), &*file("references/FORMS.md")), (SKILL, "Forms.\n"));
    let again = on_server(folder.path(), &["skills", "--load", "pdf-forms", "-o", "out"]);
    assert!(again.starts_with("exit: 1\nerror: `out/pdf-forms` already exists\nhint: "), "{again}");

    let missing = on_server(folder.path(), &["skills", "--load", "other"]);
    assert!(missing.starts_with("exit: 1\nerror: there is no skill `other`\nhint: "), "{missing}");
    let missing = on_server(folder.path(), &["skills", "--load", "skill://other/SKILL.md"]);
    assert!(missing.starts_with("exit: 3\nerror: there is no skill `skill://other/SKILL.md`"), "{missing}");
}

/// A server that lists no skills, and fails if a client requests one by its URI.
const FAILING_SERVER: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([^,}]*\).*/\1/p')
    case $line in
        *'"method":"initialize"'*) result='{"protocolVersion":"2025-11-25","serverInfo":{"name":"failing","version":"1"},
            "capabilities":{"resources":{},"extensions":{"io.modelcontextprotocol/skills":{}}}}' ;;
        *'"method":"resources/list"'*) result='{"resources":[{"uri":"skill://one/SKILL.md","name":"one"}]}' ;;
        *'"method":"resources/templates/list"'*) result='{"resourceTemplates":[]}' ;;
        *'"method":"skills/list"'*) result='{"skills":[]}' ;;
        *'"method":"skills/get"'*) result='' code=-32603 ;;
        *) result='' code=-32601 ;;
    esac
    if [ -z "$id" ]; then continue; fi
    if [ -z "$result" ]; then outcome='"error":{"code":'$code',"message":"failed"}'; else outcome='"result":'$result; fi
    printf '{"jsonrpc":"2.0","id":%s,%s}' "$id" "$outcome" | tr -d '\n'
    echo
done
"#;

#[test]
fn a_skill_that_cannot_be_requested_is_not_reported_as_missing() {
    let mut command = Command::new(LIBRIS);
    command.args(["skills", "--load", "skill://one/SKILL.md", "--", "sh", "-c", FAILING_SERVER]);
    let output = command.stdin(Stdio::null()).env_remove("LIBRIS_LOG").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("error: could not look up the skill `skill://one/SKILL.md`\n"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_whose_digest_lies_is_not_loaded() {
    let toolbox = Toolbox::start(Handshake::Initialize, &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = tokio::process::Command::new(LIBRIS);
    command.args(["skills", "--load", "liar", "-o", "out", &toolbox.url]).current_dir(folder.path());
    let output = command.stdin(Stdio::null()).env_remove("LIBRIS_LOG").output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: the skill `liar` cannot be trusted: "), "{said}");
    assert!(said.contains("skill://liar/SKILL.md") && said.contains("\nhint: "), "{said}");
    assert!(output.stdout.is_empty() && !folder.path().join("out").exists());
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn prompts_are_listed_and_printed() {
    let folder = folder("library", &FILES);
    let listed = on_server(folder.path(), &["prompts"]);
    assert!(listed.starts_with("exit: 0\nreview path  Reviews a document\nuse-resources "), "{listed}");
    let printed = on_server(folder.path(), &["prompts", "--get", "review", "--with", "path=a.md"]);
    assert_eq!(printed, "exit: 0\nuser:\nReview this:\nuser:\n(resource file:///docs/a.md)\n# A\n");
    let json = on_server(folder.path(), &["prompts", "--get", "review", "--with", "path=a.md", "--json"]);
    let lines: Vec<serde_json::Value> =
        json.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1]["content"]["resource"]["text"], "# A\n");

    let incomplete = on_server(folder.path(), &["prompts", "--get", "review"]);
    assert_eq!(
        incomplete,
        "exit: 1\nerror: the argument `path` is missing\nhint: its arguments are --with path=…\n"
    );
    let wrong =
        on_server(folder.path(), &["prompts", "--get", "review", "--with", "path=a", "--with", "x=1"]);
    assert!(wrong.contains("error: the prompt has no argument `x`\n"), "{wrong}");
    let missing = on_server(folder.path(), &["prompts", "--get", "other"]);
    let expected = "error: the target has no prompt `other`\nhint: its prompts are review, use-";
    assert!(missing.contains(expected), "{missing}");
}
