//! API keys over HTTP, and their revocation while streams are open.

use std::time::{Duration, Instant};

use axum::http::Method;
use http_body_util::BodyExt as _;
use libris::auth::{AuthConfig, KeyFile, NewKey, Secret};
use serde_json::json;

use crate::served::{PATHS, Path, Sent, Served, legacy, modern};

/// Longer than anything takes here, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn add(file: &KeyFile, name: &str) -> Secret {
    let groups = vec!["staff".into()];
    file.add(NewKey { name: name.to_owned(), groups, ..NewKey::default() }).unwrap().1
}

async fn served(file: &std::path::Path) -> Served {
    Served::start(AuthConfig { keys: Some(file.to_owned()), ..AuthConfig::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_identifies_its_caller_on_every_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let file = KeyFile::at(&path);
    let (ci, other) = (add(&file, "ci"), add(&file, "other"));
    let served = served(&path).await;
    for path in PATHS {
        let answer = served.ask(path, Sent::read(Some(ci.expose()), "test://who")).await;
        let text = answer.json()["result"]["contents"][0]["text"].as_str().unwrap().to_owned();
        assert!(text.starts_with("ci {\"staff\"} {} ApiKey"), "{text}");
        let wrong = format!("{}0", ci.expose());
        for (token, challenge) in [
            (None, "Bearer realm=\"libris\""),
            (
                Some(&*wrong),
                "Bearer error=\"invalid_token\", error_description=\"the API key is unknown, revoked or expired\", \
                 realm=\"libris\"",
            ),
        ] {
            let answer = served.ask(path, Sent::read(token, "test://hello")).await;
            assert_eq!((answer.status, answer.challenge()), (401, challenge));
        }
        // Another's key on a session.
        let session = served.session(path, ci.expose()).await;
        let headers: &[_] = &[("mcp-session-id", session.as_str())];
        let body = legacy("ping", &json!({}));
        let sent = Sent { token: Some(other.expose()), headers, body, ..Sent::default() };
        assert_eq!(served.ask(path, sent).await.status, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_ends_its_streams_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let file = KeyFile::at(&path);
    let (ci, other) = (add(&file, "ci"), add(&file, "other"));
    let served = served(&path).await;
    let filter = json!({ "notifications": { "resourceSubscriptions": ["test://hello"] } });
    let body = modern("subscriptions/listen", filter);
    let listen: &[_] = &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let session = served.session(Path::Hyper, ci.expose()).await;
    let in_session: &[_] = &[("mcp-session-id", session.as_str())];
    let mut streams = Vec::new();
    for path in PATHS {
        for _ in 0..10 {
            let sent =
                Sent { token: Some(ci.expose()), headers: listen, body: body.clone(), ..Sent::default() };
            streams.push(served.open(path, sent).await);
        }
        let sent =
            Sent { method: Method::GET, token: Some(ci.expose()), headers: in_session, ..Sent::default() };
        streams.push(served.open(path, sent).await);
    }
    let sent = Sent { token: Some(other.expose()), headers: listen, body, ..Sent::default() };
    let mut stays = served.open(Path::Http2, sent).await;
    assert!(streams.iter().all(|stream| stream.status() == 200));
    file.revoke("ci").unwrap();
    let since = Instant::now();
    for stream in streams {
        let ended = tokio::time::timeout(LONG, stream.into_body().collect()).await.expect("the stream ends");
        let text = String::from_utf8(ended.unwrap().to_bytes().to_vec()).unwrap();
        assert!(!text.contains("notifications/resources/updated"), "{text}");
    }
    eprintln!("all streams ended {:?} after the key was revoked", since.elapsed());
    served.source.updated("test://hello").unwrap();
    for path in PATHS {
        let sent = Sent::read(Some(ci.expose()), "test://hello");
        assert_eq!(served.ask(path, sent).await.status, 401);
        let sent =
            Sent { method: Method::DELETE, token: Some(ci.expose()), headers: in_session, ..Sent::default() };
        assert_eq!(served.ask(path, sent).await.status, 401);
    }
    // The stream of the other caller is notified.
    let mut text = String::new();
    while !text.contains("notifications/resources/updated") {
        let frame =
            tokio::time::timeout(LONG, stays.frame()).await.expect("a notification").unwrap().unwrap();
        text.push_str(&String::from_utf8_lossy(&frame.into_data().unwrap_or_default()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_loses_a_group_loses_its_streams() {
    let folder = tempfile::tempdir().unwrap();
    let (path, next) = (folder.path().join("keys.toml"), folder.path().join("next.toml"));
    let ci = add(&KeyFile::at(&path), "ci");
    let served = served(&path).await;
    let filter = json!({ "notifications": { "resourceSubscriptions": ["test://hello"] } });
    let body = modern("subscriptions/listen", filter);
    let listen: &[_] = &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let mut streams = Vec::new();
    for path in PATHS {
        let sent = Sent { token: Some(ci.expose()), headers: listen, body: body.clone(), ..Sent::default() };
        streams.push(served.open(path, sent).await);
        let session = served.session(path, ci.expose()).await;
        let headers: &[_] = &[("mcp-session-id", session.as_str())];
        let sent = Sent { method: Method::GET, token: Some(ci.expose()), headers, ..Sent::default() };
        streams.push(served.open(path, sent).await);
    }
    assert!(streams.iter().all(|stream| stream.status() == 200));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&next, text.replace("staff", "guests")).unwrap();
    std::fs::rename(&next, &path).unwrap();
    for stream in streams {
        tokio::time::timeout(LONG, stream.into_body().collect()).await.expect("the stream ends").unwrap();
    }
    let answer = served.ask(Path::Express, Sent::read(Some(ci.expose()), "test://who")).await;
    let text = answer.json()["result"]["contents"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("ci {\"guests\"}"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_added_works_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let served = served(&path).await;
    let key = add(&KeyFile::at(&path), "late");
    let until = Instant::now() + LONG;
    while served.ask(Path::Express, Sent::read(Some(key.expose()), "test://hello")).await.status != 200 {
        assert!(Instant::now() < until, "the key is never accepted");
        tokio::task::yield_now().await;
    }
}
