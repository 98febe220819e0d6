//! What a client gets, as a person reads it.

use libris_core::{ContentBody, Context, Source};

use crate::sandbox::{Sandbox, ask, listed, part, text};

/// A small project with a history, and work in progress.
fn project() -> Sandbox {
    let sandbox = Sandbox::with(&[
        ("README.md", "# Harbour\n\nA small web server.\n"),
        ("src/main.rs", "fn main() {\n    serve(8080);\n}\n"),
        ("src/server.rs", "pub fn serve(port: u16) {\n    println!(\"port {port}\");\n    loop {}\n}\n"),
        ("logo.png", ""),
    ]);
    sandbox.write("logo.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    sandbox.write("src/main.rs", b"mod http;\n\nfn main() {\n    http::serve(8080);\n}\n");
    sandbox.git(&["mv", "src/server.rs", "src/http.rs"]);
    sandbox.commit("Rename the server to http\n\nIt only speaks HTTP.");
    sandbox.write("src/main.rs", b"mod http;\n\nfn main() {\n    http::serve(80);\n}\n");
    sandbox.git(&["add", "src/main.rs"]);
    sandbox.write("README.md", b"# Harbour\n\nA small HTTP server.\n");
    sandbox.write("notes.txt", b"to do\n");
    sandbox
}

/// Replaces commit ids, which depend on nothing but the content, by short names.
fn plain(sandbox: &Sandbox, page: &str) -> String {
    let (second, first) = (sandbox.git(&["rev-parse", "HEAD"]), sandbox.git(&["rev-parse", "HEAD~1"]));
    page.replace(&second, "SECOND")
        .replace(&second[..10], "SECOND")
        .replace(&first, "FIRST")
        .replace(&first[..10], "FIRST")
}

#[tokio::test]
async fn lists() {
    let sandbox = project();
    let source = sandbox.open();
    let mut said = String::new();
    for resource in listed(&source).await {
        let title = resource.title.map(|title| format!(" \"{title}\"")).unwrap_or_default();
        said.push_str(&format!("{} {}{title}\n", resource.uri, resource.mime.unwrap_or_default()));
    }
    said.push('\n');
    for template in source.templates(&Context::default()).await.unwrap().templates {
        said.push_str(&format!("{}\n  {}\n", template.uri, template.description.unwrap()));
    }
    insta::assert_snapshot!(said);
}

#[tokio::test]
async fn pages() {
    let sandbox = project();
    let source = sandbox.open();
    let mut said = String::new();
    for rest in [
        "status",
        "diff/staged",
        "diff/worktree",
        "blame/HEAD/src/main.rs",
        "blame/HEAD/src/http.rs?lines=1-2",
        "commit/HEAD",
        "log/HEAD",
        "tree/HEAD/src/main.rs?lines=1-2",
    ] {
        said.push_str(&format!("──── {rest}\n{}\n", text(&source, rest).await));
        if let Some(meta) = part(&source, rest).await.meta {
            said.push_str(&format!("_meta: {:#}\n", serde_json::Value::Object(meta)));
        }
    }
    insta::assert_snapshot!(plain(&sandbox, &said));
}

#[tokio::test]
async fn folders() {
    let sandbox = project();
    let source = sandbox.open();
    let mut said = String::new();
    for rest in ["tree/HEAD/", "tree/HEAD/src/"] {
        said.push_str(&format!("──── {rest}\n"));
        for part in ask(&source, rest).await.unwrap().parts {
            let body = match part.body {
                ContentBody::Text(text) => text,
                ContentBody::Bytes(bytes) => format!("{} bytes", bytes.len()),
            };
            said.push_str(&format!("── {} {}\n{body}\n", part.uri, part.mime.unwrap_or_default()));
        }
    }
    insta::assert_snapshot!(plain(&sandbox, &said));
}
