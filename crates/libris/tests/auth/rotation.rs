//! An issuer replaces its keys: tokens and open streams of the withdrawn key, on every path of HTTP.

use std::time::{Duration, Instant};

use axum::http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::json;

use crate::issuer::{SigningKey, TestIssuer};
use crate::served::{PATHS, Path, Sent, Served, modern, trusting};
use crate::tokens::{attempts, invalid};

/// Longer than anything takes here, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Streams of `subscriptions/listen` and GET, opened with this token on every path.
async fn streams(served: &Served, token: &str) -> Vec<axum::http::Response<Incoming>> {
    let listen: &[_] = &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let filter = json!({ "notifications": { "resourceSubscriptions": ["test://hello"] } });
    let mut streams = Vec::new();
    for path in PATHS {
        let body = modern("subscriptions/listen", filter.clone());
        streams.push(
            served.open(path, Sent { token: Some(token), headers: listen, body, ..Sent::default() }).await,
        );
        let session = served.session(path, token).await;
        let in_session: &[_] = &[("mcp-session-id", session.as_str())];
        let get = Sent { method: Method::GET, token: Some(token), headers: in_session, ..Sent::default() };
        streams.push(served.open(path, get).await);
    }
    assert!(streams.iter().all(|stream| stream.status() == 200));
    streams
}

async fn end(streams: Vec<axum::http::Response<Incoming>>) {
    let since = Instant::now();
    for stream in streams {
        let ended = tokio::time::timeout(LONG, stream.into_body().collect()).await.expect("the stream ends");
        let text = String::from_utf8(ended.unwrap().to_bytes().to_vec()).unwrap();
        assert!(!text.contains("notifications/resources/updated"), "{text}");
    }
    eprintln!("all streams ended after {:?}", since.elapsed());
}

async fn status(served: &Served, path: Path, token: &str) -> u16 {
    served.ask(path, Sent::read(Some(token), "test://hello")).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_takes_effect_on_every_path_and_ends_the_streams_of_the_old_one() {
    // The path over which the first token of the new key arrives.
    for first in PATHS {
        let issuer = TestIssuer::start(vec![SigningKey::ecdsa("old")]).await;
        let served = Served::start(trusting(&issuer)).await;
        let before = issuer.token(|_| {});
        for path in PATHS {
            assert_eq!(status(&served, path, &before).await, 200);
        }
        let session = served.session(first, &before).await;
        let opened = streams(&served, &before).await;
        *issuer.keys.lock().unwrap() = vec![SigningKey::ecdsa("new")];
        let after = issuer.token(|_| {});
        assert_eq!(status(&served, first, &after).await, 200);
        let challenge = invalid("the token was signed with an unknown key");
        for path in PATHS {
            assert_eq!(status(&served, path, &after).await, 200);
            for (what, answer) in attempts(&served, path, &session, Some(&before)).await {
                assert_eq!((answer.status, answer.challenge()), (401, &*challenge), "{what} over {path:?}");
            }
        }
        end(opened).await;
        // The same caller continues its session with a token of the new key.
        let headers: &[_] = &[("mcp-session-id", session.as_str())];
        let delete = Sent { method: Method::DELETE, token: Some(&after), headers, ..Sent::default() };
        assert_eq!(served.ask(first, delete).await.status, 204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_file_of_keys_takes_effect() {
    let (old, new) = (SigningKey::ecdsa("old"), SigningKey::ecdsa("new"));
    let issuer = TestIssuer::start(vec![old.clone()]).await;
    let folder = tempfile::tempdir().unwrap();
    let (file, next) = (folder.path().join("keys.json"), folder.path().join("next.json"));
    let write = |path, key: &SigningKey| {
        std::fs::write(path, json!({ "keys": [key.jwk()] }).to_string()).unwrap();
    };
    write(&file, &old);
    let mut config = trusting(&issuer);
    config.issuers[0].jwks = Some(file.to_str().unwrap().to_owned());
    let served = Served::start(config).await;
    let before = issuer.token(|_| {});
    *issuer.keys.lock().unwrap() = vec![new.clone()];
    let after = issuer.token(|_| {});
    for path in PATHS {
        assert_eq!(status(&served, path, &before).await, 200);
        assert_eq!(status(&served, path, &after).await, 401);
    }
    let opened = streams(&served, &before).await;
    write(&next, &new);
    std::fs::rename(&next, &file).unwrap();
    // No request causes the file to be read: it is polled.
    end(opened).await;
    for path in PATHS {
        assert_eq!(status(&served, path, &before).await, 401);
        assert_eq!(status(&served, path, &after).await, 200);
    }
    assert_eq!(issuer.fetches(), 0, "the file replaces the issuer's key set");
}
