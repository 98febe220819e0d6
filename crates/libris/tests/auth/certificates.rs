//! TLS: certificates that are replaced, client certificates as identities, and every path of HTTP over it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::Method;
use http_body_util::BodyExt as _;
use libris::auth::{AuthConfig, Authenticator};
use libris::wire::http::{self, Endpoint, TlsFiles, TlsServer};
use libris::{FunctionSourceHandle, Server};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::served::{Answer, PATHS, Path, Sent, answer, legacy, modern, open_on, server};

/// Longer than anything takes here, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// An authority that signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A certificate for this address or name, and its key, in PEM.
    fn sign(&self, name: &str) -> (String, String) {
        let names = if name == "127.0.0.1" { vec![name.to_owned()] } else { Vec::new() };
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationalUnitName, "staff");
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// A server over TLS.
struct Secured {
    address: std::net::SocketAddr,
    folder: tempfile::TempDir,
    tls: Arc<TlsServer>,
    _server: (Arc<Server>, FunctionSourceHandle),
    _stop: DropGuard,
}

impl Secured {
    async fn start(authority: &Authority, client_authority: Option<&Authority>, required: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (certificate, key) = authority.sign("127.0.0.1");
        std::fs::write(at("server.pem"), certificate).unwrap();
        std::fs::write(at("server.key"), key).unwrap();
        if let Some(authority) = client_authority {
            std::fs::write(at("clients.pem"), authority.0.pem()).unwrap();
        }
        let tls = TlsServer::open(TlsFiles {
            certificate: at("server.pem"),
            key: at("server.key"),
            client_ca: client_authority.map(|_| at("clients.pem")),
            require_client_certificate: required,
        })
        .unwrap();
        let config = AuthConfig {
            client_certificates: client_authority.is_some(),
            anonymous: client_authority.is_none(),
            ..AuthConfig::default()
        };
        let served = server(Arc::new(Authenticator::new(config).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let endpoint = Endpoint::new(served.0.clone(), http::Config::default());
        tokio::spawn(http::serve_tls(listener, endpoint, tls.clone(), stop.clone()));
        Self { address, folder, tls, _server: served, _stop: stop.drop_guard() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Connects with TLS, as a client that trusts an authority and perhaps has a certificate.
    async fn connect(
        &self,
        trusted: &Authority,
        own: Option<&(String, String)>,
        path: Path,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trusted.der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                use rustls::pki_types::pem::PemObject as _;
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![if path == Path::Http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn ask(
        &self,
        trusted: &Authority,
        own: Option<&(String, String)>,
        path: Path,
        sent: Sent<'_>,
    ) -> Answer {
        let stream = self.connect(trusted, own, path).await.unwrap();
        answer(open_on(stream, path, sent).await).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_path_of_http_works_over_tls() {
    let authority = Authority::new("authority");
    let secured = Secured::start(&authority, None, false).await;
    for path in PATHS {
        let answer = secured.ask(&authority, None, path, Sent::read(None, "test://hello")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.contains("Hello!"), "{answer:?}");
        let headers: &[_] = &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
        let body =
            modern("subscriptions/listen", json!({ "notifications": { "resourcesListChanged": true } }));
        let stream = secured.connect(&authority, None, path).await.unwrap();
        let mut stream = open_on(stream, path, Sent { headers, body, ..Sent::default() }).await;
        let first = tokio::time::timeout(LONG, stream.frame()).await.expect("an acknowledgement");
        let text = String::from_utf8(first.unwrap().unwrap().into_data().unwrap().to_vec()).unwrap();
        assert!(text.contains("acknowledged"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_answers_many_requests_over_tls() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let authority = Authority::new("authority");
    let secured = Secured::start(&authority, None, false).await;
    let mut stream = secured.connect(&authority, None, Path::Express).await.unwrap();
    let body = modern("resources/read", json!({ "uri": "test://hello" }));
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: resources/read\r\n\
         mcp-name: test://hello\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // Pipelined, with one in between that goes through hyper.
    let metrics = "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    let all = format!("{}{metrics}{}", request.repeat(20), request.repeat(20));
    stream.write_all(all.as_bytes()).await.unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while text.matches("Hello!").count() < 40 {
        let read = tokio::time::timeout(LONG, stream.read(&mut buffer)).await.expect("a response").unwrap();
        assert_ne!(read, 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 41);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_identifies_its_caller() {
    let (authority, clients, strangers) =
        (Authority::new("authority"), Authority::new("clients"), Authority::new("strangers"));
    let secured = Secured::start(&authority, Some(&clients), false).await;
    let (ada, bob, stranger) = (clients.sign("ada"), clients.sign("bob"), strangers.sign("ada"));
    for path in PATHS {
        let answer = secured.ask(&authority, Some(&ada), path, Sent::read(None, "test://who")).await;
        assert_eq!(answer.json()["result"]["contents"][0]["text"], "ada {\"staff\"} {} Certificate");
        // A connection without one is accepted, and its requests are not.
        let answer = secured.ask(&authority, None, path, Sent::read(None, "test://who")).await;
        assert_eq!((answer.status, answer.challenge()), (401, "Bearer realm=\"libris\""));
        let initialize = legacy(
            "initialize",
            &json!({
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
            }),
        );
        let opened =
            secured.ask(&authority, Some(&ada), path, Sent { body: initialize, ..Sent::default() }).await;
        let session = opened.header("mcp-session-id").to_owned();
        let headers: &[_] = &[("mcp-session-id", session.as_str())];
        for (own, status) in [(&bob, 404), (&ada, 204)] {
            let end = Sent { method: Method::DELETE, headers, ..Sent::default() };
            assert_eq!(secured.ask(&authority, Some(own), path, end).await.status, status);
        }
        // In TLS 1.3 a client learns with its first read that its certificate was refused.
        let refused = async {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let mut stream = secured.connect(&authority, Some(&stranger), path).await?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await?;
            stream.read_u8().await
        };
        let error = tokio::time::timeout(LONG, refused).await.expect("a refusal").unwrap_err().to_string();
        assert!(error.contains("UnknownCA") || error.contains("alert"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_required_client_certificate_is_asked_for() {
    let (authority, clients) = (Authority::new("authority"), Authority::new("clients"));
    let secured = Secured::start(&authority, Some(&clients), true).await;
    let refused = async {
        use tokio::io::AsyncReadExt as _;
        secured.connect(&authority, None, Path::Express).await?.read_u8().await
    };
    assert!(tokio::time::timeout(LONG, refused).await.expect("a refusal").is_err());
    let ada = clients.sign("ada");
    let answer = secured.ask(&authority, Some(&ada), Path::Express, Sent::read(None, "test://hello")).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_replaced_while_connections_are_open() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let secured = Secured::start(&old, None, false).await;
    let open = secured.connect(&old, None, Path::Express).await.unwrap();
    assert!(secured.connect(&new, None, Path::Express).await.is_err());
    // A certificate without its key: the previous one stays in effect.
    let (certificate, key) = new.sign("127.0.0.1");
    std::fs::write(secured.at("server.pem"), certificate).unwrap();
    secured.tls.reload();
    assert!(secured.connect(&old, None, Path::Express).await.is_ok());
    std::fs::write(secured.at("server.key"), key).unwrap();
    // The server notices it by itself.
    let until = Instant::now() + LONG;
    while secured.connect(&new, None, Path::Express).await.is_err() {
        assert!(Instant::now() < until, "the certificate is never replaced");
    }
    let answer = answer(open_on(open, Path::Express, Sent::read(None, "test://hello")).await).await;
    assert_eq!(answer.status, 200, "the open connection goes on");
}

/// The environment variable that marks the child process in which a test exhausts the file descriptors.
#[cfg(target_os = "linux")]
const CHILD: &str = "LIBRIS_TEST_DESCRIPTORS";

/// A certificate is replaced while the process has no free file descriptors: it is read once the process has some.
#[cfg(target_os = "linux")]
#[test]
fn a_new_certificate_is_not_lost_if_it_cannot_be_read_for_a_while() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    if std::env::var_os(CHILD).is_none() {
        // In a child process, so that the limit affects no other test.
        let name = "certificates::a_new_certificate_is_not_lost_if_it_cannot_be_read_for_a_while";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (old, new) = (Authority::new("old"), Authority::new("new"));
        let secured = Secured::start(&old, None, false).await;
        assert!(secured.connect(&old, None, Path::Express).await.is_ok());
        let (certificate, key) = new.sign("127.0.0.1");
        let next = ["next.pem", "next.key"].map(|name| secured.at(name));
        std::fs::write(&next[0], certificate).unwrap();
        std::fs::write(&next[1], key).unwrap();
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
        std::fs::rename(&next[0], secured.at("server.pem")).unwrap();
        std::fs::rename(&next[1], secured.at("server.key")).unwrap();
        secured.tls.reload();
        setrlimit(Resource::Nofile, limit).unwrap();
        // The files have not changed since.
        secured.tls.reload();
        assert!(secured.connect(&new, None, Path::Express).await.is_ok());
    });
}

/// A connection from another address of this machine than that of most tests.
async fn connect_from(last: u8, address: std::net::SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    socket.connect(address).await.unwrap()
}

/// The beginning of a ClientHello of 60,000 bytes in a record of 16 KiB.
const BEGINNING: [u8; 11] = [22, 3, 1, 64, 0, 1, 0, 0xea, 0x60, 3, 3];

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_handshakes_of_one_address_keep_nobody_else_out() {
    let authority = Authority::new("authority");
    let secured = Secured::start(&authority, None, false).await;
    let mut unfinished = Vec::new();
    for _ in 0..300 {
        let mut stream = connect_from(2, secured.address).await;
        tokio::io::AsyncWriteExt::write_all(&mut stream, &BEGINNING).await.unwrap();
        unfinished.push(stream);
    }
    let until = Instant::now() + LONG;
    while secured.tls.handshakes() < 192 {
        assert!(Instant::now() < until, "{} handshakes", secured.tls.handshakes());
        tokio::task::yield_now().await;
    }
    // Three quarters of 256. The certificate is replaced meanwhile.
    let (certificate, key) = authority.sign("127.0.0.1");
    std::fs::write(secured.at("server.pem"), certificate).unwrap();
    std::fs::write(secured.at("server.key"), key).unwrap();
    secured.tls.reload();
    for path in PATHS {
        let answer = secured.ask(&authority, None, path, Sent::read(None, "test://hello")).await;
        assert_eq!(answer.status, 200);
    }
    assert!(secured.tls.handshakes() <= 192);
    // Once they are gone, their address is served again.
    drop(unfinished);
    while secured.tls.handshakes() > 0 {
        assert!(Instant::now() < until, "{} handshakes", secured.tls.handshakes());
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_is_too_large_or_no_handshake_ends_the_connection() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let authority = Authority::new("authority");
    let secured = Secured::start(&authority, None, false).await;
    // A ClientHello of 16 MiB, and a request in the clear.
    let huge = [&[22, 3, 1, 64, 0, 1, 0xff, 0xff, 0xff][..], &[0; 16_379]].concat();
    for sent in [&huge[..], b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"] {
        let mut stream = TcpStream::connect(secured.address).await.unwrap();
        let mut answer = Vec::new();
        let exchange = async {
            for _ in 0..100 {
                if stream.write_all(sent).await.is_err() {
                    break;
                }
            }
            let _ = stream.read_to_end(&mut answer).await;
        };
        tokio::time::timeout(LONG, exchange).await.expect("the server closes the connection");
        // An alert at most: nothing in the clear.
        assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
    }
    assert_eq!(secured.tls.handshakes(), 0);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let authority = Authority::new("authority");
    let ((certificate, key), (_, other_key)) = (authority.sign("127.0.0.1"), authority.sign("127.0.0.1"));
    std::fs::write(at("server.pem"), certificate).unwrap();
    std::fs::write(at("server.key"), key).unwrap();
    std::fs::write(at("other.key"), other_key).unwrap();
    std::fs::write(at("empty"), "").unwrap();
    let open = |certificate: &str, key: &str, client_ca: Option<&str>| {
        let (certificate, key, client_ca) = (at(certificate), at(key), client_ca.map(at));
        let files = TlsFiles { certificate, key, client_ca, require_client_certificate: false };
        TlsServer::open(files).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(open("server.pem", "server.key", None), Ok(()));
    for (certificate, key, client_ca, expected) in [
        ("missing", "server.key", None, "could not read the certificates in"),
        ("empty", "server.key", None, "could not read the certificates in"),
        ("server.pem", "empty", None, "could not read the private key in"),
        ("server.pem", "other.key", None, "the certificate and the private key cannot be used"),
        ("server.pem", "server.key", Some("empty"), "could not read the certificates in"),
    ] {
        let error = open(certificate, key, client_ca).unwrap_err();
        assert!(error.contains(expected) && !error.contains("BEGIN"), "{error}");
    }
}

/// Opening a named pipe would block until something writes to it.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_is_no_certificate_and_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (certificate, key) = Authority::new("authority").sign("127.0.0.1");
    std::fs::write(at("server.pem"), certificate).unwrap();
    std::fs::write(at("server.key"), key).unwrap();
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    for (certificate, key) in [("pipe", "server.key"), ("server.pem", "pipe")] {
        let (certificate, key) = (at(certificate), at(key));
        let files = TlsFiles { certificate, key, client_ca: None, require_client_certificate: false };
        let (sender, opened) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(TlsServer::open(files).map(drop)));
        let opened = opened.recv_timeout(LONG).expect("it does not block");
        assert!(opened.unwrap_err().to_string().starts_with("could not read"));
    }
}
