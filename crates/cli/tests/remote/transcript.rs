//! What a client gets from other MCP servers.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use libris_remote::{ChildEnvironment, ProtocolChoice, RemoteTarget, UriMount};

use crate::toolbox::{Handshake, Toolbox};
use crate::{folder, over_http, over_stdio, remote};

#[path = "../../../sources/tests/transcripts/mod.rs"]
mod transcripts;

#[tokio::test(flavor = "multi_thread")]
async fn another_libris() {
    let files =
        [("guide/on-call.md", "# On call\n\nAda.\n"), ("a.log", "one\ntwo\nthree\n"), ("b.bin", "\0\u{1}")];
    let folder = folder("handbook", &files);
    let handbook = folder.path().join("handbook");
    for (path, _) in files {
        let file = std::fs::File::open(handbook.join(path)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
    }
    let mount = UriMount::prefixed("team").unwrap();
    let source = remote("team", over_stdio(&handbook), ProtocolChoice::Auto, mount);
    let mut transcript = transcripts::Transcript::of(&source);
    transcript.list().await;
    transcript.templates().await;
    transcript.complete("team+file:///handbook/{+path}{?lines,bytes}", "path", "gui").await;
    for uri in [
        "team+file:///handbook/",
        "team+file:///handbook/guide/",
        "team+file:///handbook/guide/on-call.md",
        "team+file:///handbook/a.log?lines=1-2",
        "team+file:///handbook/b.bin",
        "team+file:///handbook/guide/on-cal.md",
        "team+file:///handbook/a.log?line=2",
        "team+file:///handbok/a.log",
        "team+git://handbook/refs",
    ] {
        transcript.read(uri).await;
    }
    insta::assert_snapshot!("libris", transcript.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_cannot_answer() {
    let toolbox = Toolbox::start(Handshake::Initialize, &[]).await;
    let asks = remote("toolbox", over_http(&toolbox.url), ProtocolChoice::Initialize, UriMount::Kept);
    let stopped = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/mcp", listener.local_addr().unwrap())
    };
    let stopped = remote("stopped", over_http(&stopped), ProtocolChoice::Auto, UriMount::Kept);
    let missing = RemoteTarget::Stdio {
        program: "no-such-program".into(),
        arguments: Vec::new(),
        folder: PathBuf::new(),
        environment: ChildEnvironment::Inherited,
    };
    let missing = remote("missing", missing, ProtocolChoice::Auto, UriMount::Kept);
    let mut text = String::new();
    for (name, source, uri) in
        [("toolbox", &asks, "odd://ask"), ("stopped", &stopped, "odd://a"), ("missing", &missing, "odd://a")]
    {
        let mut transcript = transcripts::Transcript::of(source);
        transcript.list().await;
        transcript.read(uri).await;
        text += &format!("── {name}\n{}", transcript.text());
    }
    insta::assert_snapshot!("failures", text);
}
