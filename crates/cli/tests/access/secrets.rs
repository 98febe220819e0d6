//! Credentials are in no log, at any level.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

use crate::logged_server::{LoggedServer, message};
use crate::{folder, libris};

const CONFIG: &str = r#"
[audit]
file = "audit.log"

[auth]
keys = "keys.toml"
resource = "http://127.0.0.1/mcp"

[[auth.issuer]]
issuer = "https://login.example"
jwks = "jwks.json"
"#;

/// A token of the issuer, signed with this key.
fn token(key: &KeyPair) -> String {
    let encode = |value: Value| BASE64.encode(value.to_string());
    let header = encode(json!({ "alg": "EdDSA", "kid": "one" }));
    let claims = encode(json!({
        "iss": "https://login.example",
        "sub": "ada",
        "aud": "http://127.0.0.1/mcp",
        "exp": 4_000_000_000_u64,
        "secret": "a claim that is nobody's business",
    }));
    let message = format!("{header}.{claims}");
    let signature = BASE64.encode(key.sign(message.as_bytes()).unwrap());
    format!("{message}.{signature}")
}

/// The status of a read over HTTP/2.
async fn read_over_http2(server: &LoggedServer, authorization: &str) -> u16 {
    let address = server.url.trim_start_matches("http://").trim_end_matches("/mcp");
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let executor = TokioExecutor::new();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let body = message("resources/read", json!({ "uri": "file:///docs/a.md" }));
    let request = hyper::Request::post(&server.url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "resources/read")
        .header("mcp-name", "file:///docs/a.md")
        .header("authorization", authorization)
        .body(Full::<Bytes>::from(body))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    status
}

#[tokio::test]
async fn no_log_contains_credentials() {
    let folder = folder(CONFIG);
    let (ok, added) = libris(folder.path(), &["key", "add", "ci", "--keys", "keys.toml"]);
    assert!(ok, "{added}");
    let api_key = added.lines().next().unwrap();
    let pair = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let public = BASE64.encode(pair.public_key_raw());
    let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "one", "use": "sig", "x": public });
    std::fs::write(folder.path().join("jwks.json"), json!({ "keys": [jwk] }).to_string()).unwrap();
    let token = token(&pair);
    let forged = self::token(&KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap());
    let mut server = LoggedServer::start(folder.path(), &["--log", "trace"], &[]);
    let uri = json!({ "uri": "file:///docs/a.md" });
    let mut secrets = Vec::new();
    for (credentials, expected) in [
        (api_key.to_owned(), 200),
        (format!("{api_key}0"), 401),
        (token.clone(), 200),
        (forged, 401),
        (format!("{token}.more"), 401),
    ] {
        let authorization = format!("Bearer {credentials}");
        // Once more, when the credentials are in the cache.
        for _ in 0..2 {
            let (status, answer) = server.ask(Some(&authorization), "resources/read", uri.clone()).await;
            assert_eq!(status, expected, "{answer}");
            assert_eq!(read_over_http2(&server, &authorization).await, expected);
        }
        // The secret of a key, and the claims and the signature of a token.
        let parts = match credentials.starts_with("libris_") {
            true => credentials.rsplit('_').take(1).map(str::to_owned).collect::<Vec<_>>(),
            false => credentials.split('.').skip(1).map(str::to_owned).collect(),
        };
        secrets.extend(parts.into_iter().filter(|part| part.len() > 16));
        // Another scheme with the same credentials.
        let (status, _) =
            server.ask(Some(&format!("Basic {credentials}")), "resources/read", uri.clone()).await;
        assert_eq!(status, 401);
    }
    assert!(secrets.len() >= 8, "{secrets:?}");
    server.end();
    let log = server.log();
    assert!(log.contains("TRACE"), "{log}");
    let audit = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
    assert!(
        audit.contains("\"ada\"") && audit.contains("\"ci\"") && audit.contains("authenticate"),
        "{audit}"
    );
    for secret in &secrets {
        for (name, text) in [("stderr", &log), ("the audit log", &audit)] {
            // A part of it would be too much too.
            let line = text.lines().find(|line| line.contains(&secret[..16]));
            assert_eq!(line, None, "{secret} in {name}");
        }
    }
    assert!(!log.contains("nobody's business") && !audit.contains("nobody's business"));
}
