//! An issuer replaces its keys: tokens and open streams of the withdrawn key, on every path of HTTP.

use std::time::{Duration, Instant};

use axum::http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use libris::auth::AuthConfig;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_replaced_ends_streams_whether_or_not_tokens_name_it() {
    for names_key in [true, false] {
        let (old, new) = (SigningKey::ecdsa("same"), SigningKey::ecdsa("same"));
        let issuer = TestIssuer::start(vec![old.clone()]).await;
        let folder = tempfile::tempdir().unwrap();
        let (file, next) = (folder.path().join("keys.json"), folder.path().join("next.json"));
        std::fs::write(&file, json!({ "keys": [old.jwk()] }).to_string()).unwrap();
        let mut config = trusting(&issuer);
        config.issuers[0].jwks = Some(file.to_str().unwrap().to_owned());
        let served = Served::start(config).await;
        let header = match names_key {
            true => json!({ "alg": "ES256", "kid": "same" }),
            false => json!({ "alg": "ES256" }),
        };
        let opened = streams(&served, &old.token(&header, &issuer.claims())).await;
        // Of another size, so that the change is noticed whatever the clock of the file system.
        std::fs::write(&next, json!({ "keys": [new.jwk()], "more": "" }).to_string()).unwrap();
        std::fs::rename(&next, &file).unwrap();
        end(opened).await;
        let token = new.token(&header, &issuer.claims());
        assert_eq!(status(&served, Path::Express, &token).await, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_configuration_ends_the_streams_of_the_callers_whom_it_concerns() {
    type Change = fn(&mut AuthConfig);
    let cases: [(&str, Change, bool, bool); 6] = [
        ("a file of API keys", |config| config.keys = Some("none.toml".into()), false, false),
        ("no anonymous callers", |config| config.anonymous = false, false, true),
        (
            "other implied scopes",
            |config| _ = config.implied_scopes.insert("docs:list".into(), vec!["docs:draft".into()]),
            true,
            false,
        ),
        ("another required scope", |config| config.scopes = vec!["docs:list".into()], true, false),
        ("another claim", |config| config.issuers[0].groups_claim = "roles".into(), true, false),
        ("no issuer", |config| config.issuers.clear(), true, false),
    ];
    for (what, change, ends_token, ends_anonymous) in cases {
        let issuer = TestIssuer::start(vec![SigningKey::ecdsa("one")]).await;
        let mut config = AuthConfig { anonymous: true, ..trusting(&issuer) };
        let served = Served::start(config.clone()).await;
        let listen: &[_] = &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
        let body = || {
            let filter = json!({ "resourceSubscriptions": ["test://hello"] });
            modern("subscriptions/listen", json!({ "notifications": filter }))
        };
        let token = issuer.token(|_| {});
        let mut streams = Vec::new();
        for (token, ends) in [(Some(&*token), ends_token), (None, ends_anonymous)] {
            let sent = Sent { token, headers: listen, body: body(), ..Sent::default() };
            let stream = served.open(Path::Express, sent).await;
            assert_eq!(stream.status(), 200, "{what}");
            streams.push((stream, ends));
        }
        change(&mut config);
        served.reconfigure(config);
        // Until all streams that end have ended, nothing is sent about the change.
        let mut stay = Vec::new();
        for (stream, ends) in streams {
            match ends {
                true => end(vec![stream]).await,
                false => stay.push(stream),
            }
        }
        served.source.updated("test://hello").unwrap();
        for mut stream in stay {
            let mut text = String::new();
            while !text.contains("notifications/resources/updated") {
                let frame = tokio::time::timeout(LONG, stream.frame()).await.expect(what);
                let frame = frame.unwrap_or_else(|| panic!("{what}: the stream has ended")).unwrap();
                text.push_str(&String::from_utf8_lossy(&frame.into_data().unwrap_or_default()));
            }
        }
    }
}
