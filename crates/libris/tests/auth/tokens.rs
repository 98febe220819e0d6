//! Access tokens: which are refused, with which challenge, on every path of HTTP.

use std::time::Duration;

use axum::http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::issuer::{RESOURCE, SigningKey, TestIssuer, hmac, now, unsigned};
use crate::served::{Answer, PATHS, Path, Sent, Served, legacy, modern, trusting};

pub(crate) const METADATA: &str = "http://127.0.0.1:4747/.well-known/oauth-protected-resource/mcp";

/// Longer than anything takes here, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// The challenge for a token that is refused for this reason.
pub(crate) fn invalid(why: &str) -> String {
    format!(
        "Bearer error=\"invalid_token\", error_description=\"{why}\", resource_metadata=\"{METADATA}\", \
         scope=\"docs:read\""
    )
}

/// Tokens that must be refused, each with its name and the challenge.
fn refused(issuer: &TestIssuer) -> Vec<(&'static str, String, String)> {
    let key = issuer.keys.lock().unwrap()[0].clone();
    let header = json!({ "alg": key.algorithm(), "kid": key.id() });
    let claims = issuer.claims();
    let valid = key.token(&header, &claims);
    let without = |name: &str| issuer.token(|claims| drop(claims.as_object_mut().unwrap().remove(name)));
    let none = |name: &str| {
        let header = json!({ "alg": name, "kid": key.id() });
        format!("{}.", unsigned(&header, &claims))
    };
    // The public key, which everybody knows, as the secret of an HMAC.
    let confused = |secret: &str| {
        let message = unsigned(&json!({ "alg": "HS256", "kid": key.id() }), &claims);
        format!("{message}.{}", hmac(secret.as_bytes(), &message))
    };
    let stranger = SigningKey::ecdsa(key.id());
    let (head, rest) = valid.split_once('.').unwrap();
    let (body, signature) = rest.split_once('.').unwrap();
    let mut other = claims.clone();
    other["sub"] = "root".into();
    let swapped = unsigned(&header, &other);
    let algorithm = "the signature algorithm of the token is not accepted";
    let malformed = "the token is malformed";
    let cases: Vec<(&str, String, &str)> = vec![
        ("expired", issuer.token(|it| it["exp"] = (now() - 120).into()), "the token has expired"),
        ("not yet valid", issuer.token(|it| it["nbf"] = (now() + 120).into()), "the token is not valid yet"),
        (
            "another resource",
            issuer.token(|it| it["aud"] = "https://other.example/mcp".into()),
            "the token was issued for another resource",
        ),
        (
            "a list of other resources",
            issuer.token(|it| it["aud"] = json!(["https://other.example/mcp", "http://127.0.0.1:4747"])),
            "the token was issued for another resource",
        ),
        ("no audience", without("aud"), "a required claim of the token is missing or malformed"),
        ("no expiry", without("exp"), "a required claim of the token is missing or malformed"),
        ("no subject", without("sub"), "a required claim of the token is missing or malformed"),
        ("no issuer", without("iss"), "the token was issued by an unknown issuer"),
        (
            "another issuer",
            issuer.token(|it| it["iss"] = "https://evil.example".into()),
            "the token was issued by an unknown issuer",
        ),
        (
            "a list of issuers",
            issuer.token(|it| it["iss"] = json!([issuer.url, "https://evil.example"])),
            "the token was issued by an unknown issuer",
        ),
        ("alg none", none("none"), algorithm),
        ("alg NONE", none("NONE"), algorithm),
        ("alg nOnE, without signature", none("nOnE").trim_end_matches('.').to_owned(), malformed),
        ("HMAC with the public key", confused(&key.jwk().to_string()), algorithm),
        ("HMAC with an empty secret", confused(""), algorithm),
        (
            "an algorithm that is not configured",
            key.token(&json!({ "alg": "ES384", "kid": key.id() }), &claims),
            algorithm,
        ),
        (
            "the algorithm of another key",
            key.token(&json!({ "alg": "RS256", "kid": key.id() }), &claims),
            algorithm,
        ),
        (
            "a critical extension",
            key.token(&json!({ "alg": key.algorithm(), "kid": key.id(), "crit": ["b64"] }), &claims),
            malformed,
        ),
        (
            "a key in the header",
            stranger.token(&json!({ "alg": "ES256", "kid": key.id(), "jwk": stranger.jwk() }), &claims),
            "the signature of the token is invalid",
        ),
        ("the key of a stranger", stranger.token(&header, &claims), "the signature of the token is invalid"),
        (
            "an unknown key id",
            key.token(&json!({ "alg": key.algorithm(), "kid": "unknown" }), &claims),
            "the token was signed with an unknown key",
        ),
        ("other claims", format!("{swapped}.{signature}"), "the signature of the token is invalid"),
        (
            "a truncated signature",
            valid[..valid.len() - 10].to_owned(),
            "the signature of the token is invalid",
        ),
        ("no signature", format!("{head}.{body}."), "the signature of the token is invalid"),
        ("two parts", format!("{head}.{body}"), malformed),
        ("a part", head.to_owned(), malformed),
        ("oversized", format!("{valid}{}", "A".repeat(9000)), "the token is too long"),
        ("no token", "libris".to_owned(), malformed),
        ("not base64", format!("{head}.~.{signature}"), "the token was issued by an unknown issuer"),
    ];
    cases.into_iter().map(|(name, token, why)| (name, token, invalid(why))).collect()
}

/// Everything that a token can be sent with, in a session of a caller with a valid token.
pub(crate) async fn attempts(
    served: &Served,
    path: Path,
    session: &str,
    token: Option<&str>,
) -> Vec<(&'static str, Answer)> {
    let in_session: &[_] = &[("mcp-session-id", session)];
    let listen: &[_] = &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let listening =
        modern("subscriptions/listen", json!({ "notifications": { "resourcesListChanged": true } }));
    let read = || legacy("resources/read", &json!({ "uri": "test://hello" }));
    let with = |method, headers, body| Sent { method, token, headers, body, ..Sent::default() };
    let requests = vec![
        ("a read", Sent::read(token, "test://hello")),
        ("a stream", with(Method::POST, listen, listening)),
        ("a read in a session", with(Method::POST, in_session, read())),
        ("a stream of a session", with(Method::GET, in_session, String::new())),
        ("the end of a session", with(Method::DELETE, in_session, String::new())),
        ("a handshake", with(Method::POST, &[], legacy("initialize", &json!({})))),
        ("the metrics", Sent { path: "/metrics", ..with(Method::GET, &[], String::new()) }),
        ("another path", Sent { path: "/other", ..with(Method::GET, &[], String::new()) }),
    ];
    let mut answers = Vec::new();
    for (what, request) in requests {
        answers.push((what, served.ask(path, request).await));
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_is_refused_with_its_challenge_whatever_it_is_sent_with() {
    let issuer = TestIssuer::start(vec![SigningKey::ecdsa("one")]).await;
    let served = Served::start(trusting(&issuer)).await;
    let valid = issuer.token(|_| {});
    for path in PATHS {
        let session = served.session(path, &valid).await;
        let none = ("none", None, format!("Bearer resource_metadata=\"{METADATA}\", scope=\"docs:read\""));
        let bad = refused(&issuer);
        let bad = bad.iter().map(|(name, token, challenge)| (*name, Some(&**token), challenge.clone()));
        for (name, token, challenge) in bad.chain([none]) {
            for (what, answer) in attempts(&served, path, &session, token).await {
                assert_eq!(
                    (answer.status, answer.challenge()),
                    (401, &*challenge),
                    "{what} with {name} over {path:?}: {answer:?}"
                );
                assert!(!answer.body.contains("Hello"), "{answer:?}");
            }
        }
        // The session was neither ended nor harmed.
        let headers: &[_] = &[("mcp-session-id", session.as_str())];
        let body = legacy("resources/read", &json!({ "uri": "test://who" }));
        let answer = served.ask(path, Sent { token: Some(&valid), headers, body, ..Sent::default() }).await;
        assert_eq!(answer.status, 200);
        assert!(answer.body.contains("ada"), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_token_says_who_reads() {
    for key in [SigningKey::ecdsa("one"), SigningKey::rsa("one")] {
        let issuer = TestIssuer::start(vec![key]).await;
        let served = Served::start(trusting(&issuer)).await;
        let tokens = [
            issuer.token(|_| {}),
            issuer.token(|it| it["aud"] = json!(["https://other.example", RESOURCE])),
            // Clocks differ by seconds.
            issuer.token(|it| it["exp"] = (now() - 3).into()),
            issuer.token(|it| {
                it["scp"] = json!(["docs:list", "docs:read"]);
                it["scope"] = Value::Null;
            }),
        ];
        for (path, token) in PATHS.into_iter().flat_map(|path| tokens.iter().map(move |token| (path, token)))
        {
            let answer = served.ask(path, Sent::read(Some(token), "test://who")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let expected = format!(
                "ada {{\"staff\"}} {{\"docs:list\", \"docs:read\"}} Token {{ issuer: \"{}\" }}",
                issuer.url
            );
            assert_eq!(answer.json()["result"]["contents"][0]["text"], expected);
            assert_eq!(answer.json()["result"]["cacheScope"], "private");
        }
        assert_eq!(issuer.fetches(), 1, "the keys are fetched once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metadata_is_there_for_everybody() {
    let issuer = TestIssuer::start(vec![SigningKey::ecdsa("one")]).await;
    let served = Served::start(trusting(&issuer)).await;
    for path in PATHS {
        for at in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
            let get = Sent { method: Method::GET, path: at, ..Sent::default() };
            let answer = served.ask(path, get).await;
            assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
            let expected = json!({
                "resource": RESOURCE,
                "authorization_servers": [issuer.url],
                "scopes_supported": ["docs:read"],
                "bearer_methods_supported": ["header"],
            });
            assert_eq!(answer.json(), expected);
        }
        let other =
            Sent { method: Method::GET, path: "/.well-known/oauth-protected-resource/x", ..Sent::default() };
        assert_eq!(served.ask(path, other).await.status, 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_the_required_scopes_is_told_all_of_them() {
    let issuer = TestIssuer::start(vec![SigningKey::ecdsa("one")]).await;
    let mut config = trusting(&issuer);
    config.scopes = vec!["docs:read".into(), "docs:all".into()];
    let served = Served::start(config).await;
    let token = issuer.token(|_| {});
    for path in PATHS {
        let answer = served.ask(path, Sent::read(Some(&token), "test://hello")).await;
        let expected = format!(
            "Bearer error=\"insufficient_scope\", scope=\"docs:read docs:all\", resource_metadata=\"{METADATA}\", \
             error_description=\"the token lacks a scope that this request requires\""
        );
        assert_eq!((answer.status, answer.challenge()), (403, &*expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_is_fetched_once_and_a_withdrawn_one_loses_its_effect() {
    let (old, new) = (SigningKey::ecdsa("old"), SigningKey::ecdsa("new"));
    let issuer = TestIssuer::start(vec![old.clone()]).await;
    let served = Served::start(trusting(&issuer)).await;
    let before = issuer.token(|_| {});
    let read = |token: &str| {
        let (served, token) = (&served, token.to_owned());
        async move { served.ask(Path::Express, Sent::read(Some(&token), "test://hello")).await.status }
    };
    assert_eq!(read(&before).await, 200);
    *issuer.keys.lock().unwrap() = vec![new];
    let after = issuer.token(|_| {});
    assert_eq!(read(&before).await, 200, "nothing tells yet that the key was withdrawn");
    assert_eq!(read(&after).await, 200);
    assert_eq!(issuer.fetches(), 2);
    assert_eq!(read(&before).await, 401, "the old key is gone");
    assert_eq!(read(&after).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_key_ids_cause_few_fetches() {
    let key = SigningKey::ecdsa("one");
    let issuer = TestIssuer::start(vec![key.clone()]).await;
    let mut config = trusting(&issuer);
    config.issuers[0].min_refresh_interval = LONG;
    let served = Served::start(config).await;
    let claims = issuer.claims();
    let valid = issuer.token(|_| {});
    assert_eq!(served.ask(Path::Express, Sent::read(Some(&valid), "test://hello")).await.status, 200);
    for number in 0..20 {
        let header = json!({ "alg": "ES256", "kid": format!("key {number}") });
        let token = key.token(&header, &claims);
        let answer = served.ask(Path::Express, Sent::read(Some(&token), "test://hello")).await;
        assert_eq!(answer.challenge(), invalid("the token was signed with an unknown key"));
    }
    assert_eq!(issuer.fetches(), 1);
    assert_eq!(served.ask(Path::Express, Sent::read(Some(&valid), "test://hello")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn if_the_issuer_cannot_be_reached_the_caller_may_try_again() {
    let issuer = TestIssuer::start(vec![SigningKey::ecdsa("one")]).await;
    let token = issuer.token(|_| {});
    let mut config = trusting(&issuer);
    config.issuers[0].jwks = Some(format!("{}/nothing-here", issuer.url));
    let served = Served::start(config).await;
    let answer = served.ask(Path::Express, Sent::read(Some(&token), "test://hello")).await;
    assert_eq!((answer.status, answer.challenge()), (503, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_belongs_to_its_principal() {
    let issuer = TestIssuer::start(vec![SigningKey::ecdsa("one")]).await;
    let other = TestIssuer::start(vec![SigningKey::ecdsa("two")]).await;
    let mut config = trusting(&issuer);
    config.issuers.extend(trusting(&other).issuers);
    let served = Served::start(config).await;
    let ada = issuer.token(|_| {});
    let strangers = [
        issuer.token(|it| it["sub"] = "bob".into()),
        // The same name, but another issuer says so.
        other.token(|_| {}),
    ];
    for path in PATHS {
        let session = served.session(path, &ada).await;
        let unknown = attempts(&served, path, "unknown", Some(&ada)).await;
        for stranger in &strangers {
            let answers = attempts(&served, path, &session, Some(stranger)).await;
            for ((what, answer), (_, unknown)) in answers.into_iter().zip(&unknown).take(5).skip(2) {
                assert_eq!((answer.status, &answer.body), (404, &unknown.body), "{what} over {path:?}");
            }
        }
        // A renewed token of the same caller, with more scopes.
        let renewed = issuer.token(|it| it["scope"] = "docs:read docs:all".into());
        let headers: &[_] = &[("mcp-session-id", session.as_str())];
        let body = || legacy("resources/read", &json!({ "uri": "test://who" }));
        for (token, scopes) in [(&renewed, "docs:all"), (&ada, "docs:list")] {
            let answer =
                served.ask(path, Sent { token: Some(token), headers, body: body(), ..Sent::default() }).await;
            assert!(answer.body.contains(scopes), "{answer:?}");
        }
        let end = Sent { method: Method::DELETE, token: Some(&renewed), headers, ..Sent::default() };
        assert_eq!(served.ask(path, end).await.status, 204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_their_token_expires() {
    let issuer = TestIssuer::start(vec![SigningKey::ecdsa("one")]).await;
    let served = Served::start(trusting(&issuer)).await;
    let ada = issuer.token(|_| {});
    // Accepted for two seconds more, with the difference of clocks that is allowed.
    let short = issuer.token(|it| it["exp"] = (now() - 28).into());
    let listen: &[_] = &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let session = served.session(Path::Hyper, &ada).await;
    let in_session: &[_] = &[("mcp-session-id", session.as_str())];
    let mut streams = Vec::new();
    for path in PATHS {
        let body =
            modern("subscriptions/listen", json!({ "notifications": { "resourcesListChanged": true } }));
        let sent = Sent { token: Some(&short), headers: listen, body, ..Sent::default() };
        streams.push(served.open(path, sent).await);
        let sent = Sent { method: Method::GET, token: Some(&short), headers: in_session, ..Sent::default() };
        streams.push(served.open(path, sent).await);
    }
    for stream in streams {
        assert_eq!(stream.status(), 200);
        let ended = tokio::time::timeout(LONG, stream.into_body().collect()).await;
        ended.expect("the stream ends").unwrap();
    }
    let answer = served.ask(Path::Express, Sent::read(Some(&short), "test://hello")).await;
    assert_eq!(answer.challenge(), invalid("the token has expired"), "it was remembered, until it expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_without_credentials_are_anonymous_if_that_is_allowed() {
    let issuer = TestIssuer::start(vec![SigningKey::ecdsa("one")]).await;
    let mut config = trusting(&issuer);
    config.anonymous = true;
    let served = Served::start(config).await;
    for path in PATHS {
        assert_eq!(served.ask(path, Sent::read(None, "test://hello")).await.status, 200);
        let who = served.ask(path, Sent::read(None, "test://who")).await;
        assert!(who.body.contains("\"error\""), "{who:?}");
        let bad = served.ask(path, Sent::read(Some("a.b.c"), "test://hello")).await;
        assert_eq!(bad.status, 401, "bad credentials are not none");
        let anonymous = served.session(path, &issuer.token(|_| {})).await;
        let headers: &[_] = &[("mcp-session-id", anonymous.as_str())];
        let body = legacy("ping", &json!({}));
        let answer = served.ask(path, Sent { headers, body, ..Sent::default() }).await;
        assert_eq!(answer.status, 404, "the session is that of an identified caller");
    }
}
