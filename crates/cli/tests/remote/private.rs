//! Contents that a server marks as private, behind a gateway with several callers.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::json;

use crate::LIBRIS;
use crate::gateway::{Session, gateway};
use crate::toolbox::{Handshake, Toolbox};

/// The texts of several reads of a resource whose every response is another one.
async fn texts(session: &Session) -> BTreeSet<String> {
    let mut texts = BTreeSet::new();
    for _ in 0..10 {
        let read = session.ask("resources/read", json!({ "uri": "far+odd://account" })).await;
        let text = read["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{read}"));
        texts.insert(text.to_owned());
    }
    texts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_response_is_for_the_caller_who_requested_it() {
    let toolbox = Toolbox::start(Handshake::Discover, &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str| {
        let mut add = Command::new(LIBRIS);
        add.args(["key", "add", name, "--keys"]).arg(folder.path().join("keys.toml"));
        let output = add.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        said.lines().find(|line| line.starts_with("libris_")).unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let (ada, bob) = (key("ada"), key("bob"));
    let config = format!(
        "[auth]\nkeys = \"keys.toml\"\n[[mcp]]\nname = \"far\"\nurl = {:?}\nuris = \"prefixed\"\n",
        toolbox.url
    );
    let gateway = gateway(folder.path(), &config).await;
    let sessions = [
        Session::open(&gateway.url, Some(&ada)).await,
        Session::open(&gateway.url, Some(&ada)).await,
        Session::open(&gateway.url, Some(&bob)).await,
        Session::open(&gateway.url, Some(&bob)).await,
    ];
    let texts = futures_util::future::join_all(sessions.iter().map(texts)).await;
    let of = |caller: usize| &texts[2 * caller] | &texts[2 * caller + 1];
    let both = &of(0) & &of(1);
    assert!(both.is_empty(), "both callers got {both:?}");
    assert!(!of(0).is_empty() && !of(1).is_empty());
}
