//! Rules that are added while streams are open.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::logged_server::LoggedServer;
use crate::{SOURCE, folder};

/// How long a rule may take to have effect: a second, and more in a debug build on a busy machine.
const PROMPT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 1 });

/// A stream of notifications as text.
struct RuleStream {
    response: reqwest::Response,
    arrived: String,
}

impl RuleStream {
    /// Waits until this text arrives. Returns what arrived before, and with it.
    async fn until(&mut self, text: &str) -> String {
        let waiting = async {
            while !self.arrived.contains(text) {
                let chunk = self.response.chunk().await.unwrap().expect("the stream goes on");
                self.arrived.push_str(std::str::from_utf8(&chunk).unwrap());
            }
        };
        tokio::time::timeout(crate::PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("{text} does not arrive"));
        std::mem::take(&mut self.arrived)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_is_added_silences_open_streams() {
    let folder = folder("[[rule]]\naction = \"allow\"\n");
    let (public, secret) = ("file:///docs/a.md", "file:///docs/b.md");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join("docs").join(name), text).unwrap();
    let configure = |rules: &str| {
        // Replaced at once, because a reload may read a file that is written in part.
        let next = folder.path().join("next.toml");
        std::fs::write(&next, format!("{SOURCE}{rules}")).unwrap();
        std::fs::rename(&next, folder.path().join("libris.toml")).unwrap();
    };
    let server = LoggedServer::start(folder.path(), &[], &[]);
    let filter = json!({ "resourceSubscriptions": [public, secret], "resourcesListChanged": true });
    let response = server.send(None, "subscriptions/listen", json!({ "notifications": filter })).await;
    assert_eq!(response.status().as_u16(), 200);
    let mut stream = RuleStream { response, arrived: String::new() };
    assert!(stream.until("acknowledged").await.contains(secret));
    write("b.md", "changed");
    stream.until(secret).await;
    configure("[[rule]]\nuri = \"file:///docs/b.md\"\naction = \"deny\"\n[[rule]]\naction = \"allow\"\n");
    let since = Instant::now();
    stream.until("notifications/resources/list_changed").await;
    let took = since.elapsed();
    eprintln!("the rule was in effect after {took:?}");
    assert!(took < PROMPT, "{took:?}");
    let (_, answer) = server.ask(None, "resources/read", json!({ "uri": secret })).await;
    assert!(answer["error"].is_object(), "{answer}");
    // The hidden file changes first, and only the other change is told.
    for number in 0..3 {
        write("b.md", &format!("secret {number}"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    write("a.md", "changed too");
    let arrived = stream.until(public).await;
    assert!(!arrived.contains(secret), "{arrived}");
    // Once the rule is gone, the subscription has effect again.
    configure("[[rule]]\naction = \"allow\"\n");
    stream.until(secret).await;
}

/// The configuration changes while the server has no free file descriptors: it is read once the server has some, although
/// it has not changed since.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_is_not_lost_if_the_configuration_cannot_be_read_for_a_while() {
    use rustix::process::{Resource, Rlimit};

    let folder = folder("[[rule]]\naction = \"allow\"\n");
    let server = LoggedServer::start(folder.path(), &[], &[]);
    let secret = json!({ "uri": "file:///docs/b.md" });
    let is_allowed = async || {
        let (_, answer) = server.ask(None, "resources/read", secret.clone()).await;
        answer["result"].is_object()
    };
    assert!(is_allowed().await);
    let limit = server.limit(Resource::Nofile, Rlimit { current: Some(0), maximum: None });
    let next = folder.path().join("next.toml");
    let rules = "[[rule]]\nuri = \"file:///docs/b.md\"\naction = \"deny\"\n[[rule]]\naction = \"allow\"\n";
    std::fs::write(&next, format!("{SOURCE}{rules}")).unwrap();
    std::fs::rename(&next, folder.path().join("libris.toml")).unwrap();
    let until = Instant::now() + crate::PATIENCE;
    while !server.log().contains("the previous configuration stays in effect") {
        assert!(Instant::now() < until, "{}", server.log());
        tokio::task::yield_now().await;
    }
    server.limit(Resource::Nofile, limit);
    while is_allowed().await {
        assert!(Instant::now() < until, "{}", server.log());
    }
    assert_eq!(server.log().matches("the previous configuration stays in effect").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn authentication_that_is_added_or_restricted_ends_open_streams() {
    let folder = folder("");
    let write = |name: &str, text: &str| {
        let next = folder.path().join("next.toml");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, folder.path().join(name)).unwrap();
    };
    let key = ["key", "add", "ci", "--keys", "keys.toml", "--group", "staff"];
    let (_, key) = crate::libris(folder.path(), &key);
    let key = format!("Bearer {}", key.lines().next().unwrap());
    let server = LoggedServer::start(folder.path(), &[], &[]);
    let open = async |authorization: Option<&str>| {
        let filter = json!({ "resourceSubscriptions": ["file:///docs/a.md"] });
        let params = json!({ "notifications": filter });
        let response = server.send(authorization, "subscriptions/listen", params).await;
        assert_eq!(response.status().as_u16(), 200);
        response
    };
    let ended = async |stream: reqwest::Response, what: &str| {
        let since = Instant::now();
        tokio::time::timeout(crate::PATIENCE, stream.text()).await.expect(what).unwrap();
        let took = since.elapsed();
        eprintln!("{what}: the stream ended after {took:?}");
        assert!(took < PROMPT, "{what}: {took:?}");
    };
    let anonymous = open(None).await;
    write("libris.toml", &format!("{SOURCE}[auth]\nkeys = \"keys.toml\"\nanonymous = true\n"));
    // Anonymous callers are still admitted.
    let since = Instant::now();
    while server.ask(Some("Bearer wrong"), "resources/list", json!({})).await.0 != 401 {
        assert!(since.elapsed() < crate::PATIENCE, "{}", server.log());
    }
    let of_key = open(Some(&key)).await;
    std::fs::write(folder.path().join("docs/a.md"), "changed").unwrap();
    let mut anonymous = RuleStream { response: anonymous, arrived: String::new() };
    anonymous.until("notifications/resources/updated").await;
    write("libris.toml", &format!("{SOURCE}[auth]\nkeys = \"keys.toml\"\n"));
    ended(anonymous.response, "anonymous access ends").await;
    // The stream of the key goes on until the key loses its group.
    let mut of_key = RuleStream { response: of_key, arrived: String::new() };
    std::fs::write(folder.path().join("docs/a.md"), "changed again").unwrap();
    of_key.until("notifications/resources/updated").await;
    let keys = std::fs::read_to_string(folder.path().join("keys.toml")).unwrap();
    write("keys.toml", &keys.replace("staff", "guests"));
    ended(of_key.response, "a group is removed").await;
    // Without `[auth]`, everybody is anonymous; once it is back, nobody is.
    write("libris.toml", SOURCE);
    let since = Instant::now();
    while server.ask(None, "resources/list", json!({})).await.0 != 200 {
        assert!(since.elapsed() < crate::PATIENCE, "{}", server.log());
    }
    let anonymous = open(None).await;
    write("libris.toml", &format!("{SOURCE}[auth]\nkeys = \"keys.toml\"\n"));
    ended(anonymous, "`[auth]` is added").await;
}

/// Two semaphores: one counts the requests, and each request waits for the other.
type Gates = Arc<(Semaphore, Semaphore)>;

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_takes_effect_while_a_source_is_being_opened() {
    let gates: Gates = Arc::new((Semaphore::new(0), Semaphore::new(0)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let document = format!("http://{}/openapi.json", listener.local_addr().unwrap());
    let hanging = async |State(gates): State<Gates>| {
        gates.0.add_permits(1);
        let _ = gates.1.acquire().await;
        "{}"
    };
    let app = axum::Router::new().fallback(hanging).with_state(gates.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let folder = folder("[[rule]]\naction = \"allow\"\n");
    let configure = |text: &str| {
        let next = folder.path().join("next.toml");
        std::fs::write(&next, format!("{SOURCE}{text}")).unwrap();
        std::fs::rename(&next, folder.path().join("libris.toml")).unwrap();
    };
    let server = LoggedServer::start(folder.path(), &[], &[]);
    let secret = json!({ "uri": "file:///docs/b.md" });
    let is_allowed =
        async || server.ask(None, "resources/read", secret.clone()).await.1.get("result").is_some();
    assert!(is_allowed().await);
    let api = format!("[[openapi]]\ndocument = \"{document}\"\nlimits.allow_private = true\n");
    configure(&format!("{api}[[rule]]\naction = \"allow\"\n"));
    gates.0.acquire().await.unwrap().forget();
    let deny = "[[rule]]\nuri = \"file:///docs/b.md\"\naction = \"deny\"\n[[rule]]\naction = \"allow\"\n";
    configure(&format!("{api}{deny}"));
    let since = Instant::now();
    while is_allowed().await {
        assert!(since.elapsed() < PROMPT, "the rule has no effect");
    }
    // Sources of the last configuration are opened, once those of the one before are.
    let inline = "[[inline.resource]]\nuri = \"note://new\"\ntext = \"new\"\n";
    configure(&format!("{inline}{deny}"));
    gates.1.add_permits(100);
    let since = Instant::now();
    let new = json!({ "uri": "note://new" });
    while server.ask(None, "resources/read", new.clone()).await.1.get("result").is_none() {
        assert!(since.elapsed() < crate::PATIENCE, "{}", server.log());
    }
    assert!(!is_allowed().await);
}
