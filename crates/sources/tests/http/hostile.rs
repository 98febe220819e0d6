//! An upstream that is slow, down or sends invalid responses: reads fail with a clear error, and other reads work.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::server::{Answer, Body, Server};
use crate::{config, read, refusal, source};

fn packed(size: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let piece = vec![b' '; 1 << 16];
    for _ in 0..size >> 16 {
        encoder.write_all(&piece).unwrap();
    }
    encoder.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_failure_is_its_own() {
    let bomb = packed(64 << 20);
    assert!(bomb.len() < 1 << 20, "it looks harmless");
    let small = packed(1 << 16);
    let server = Server::start(move |received| match received.target.as_str() {
        "/slow" => Answer { body: Body::Never, ..Answer::json("") },
        "/large" => Answer { body: Body::Endless(10 << 30), ..Answer::json("") },
        "/endless" => Answer { body: Body::Endless(u64::MAX), ..Answer::json("") },
        "/bomb" => Answer::json("").with("content-encoding", "gzip").body(bomb.clone()),
        "/packed" => Answer::new(200, "text/plain", "").with("content-encoding", "gzip").body(small.clone()),
        "/truncated" => {
            Answer::new(200, "text/plain", "").with("content-encoding", "gzip").body(small[..40].to_vec())
        }
        "/other-packing" => {
            Answer::new(200, "text/plain", "").with("content-encoding", "br").body(small.clone())
        }
        "/malformed" => Answer::json("{"),
        "/html" => Answer::new(200, "text/html", "<p>Log in</p>"),
        "/many-headers" => (0..500).fold(Answer::json("1"), |answer, at| answer.with(&format!("x-{at}"), at)),
        _ => Answer::json("\"well\""),
    })
    .await;
    let source = source(
        &server,
        r#"
        [[template]]
        uri = "json://{x}"
        url = "{/x}"
        mime = "application/json"
        [[template]]
        uri = "any://{x}"
        url = "{/x}"
        "#,
    );
    let began = Instant::now();
    let slow = tokio::spawn({
        let text = format!(
            "limits = {{ allow_private = true, timeout = \"1s\" }}\n[[resource]]\nuri = \"any://slow\"\nurl = \"{}/slow\"\n",
            server.url()
        );
        let impatient = libris_sources::Http::new(config(&text)).unwrap();
        async move { refusal(&impatient, "any://slow").await }
    });
    let of = |uri: &str, why: &str| format!("unavailable: the service behind `{uri}` {why}");
    for (uri, expected) in [
        ("json://large", "`json://large` has 10737418240 bytes, more than the limit of 1048576".to_owned()),
        ("json://malformed", of("json://malformed", "sent malformed JSON")),
        ("json://html", of("json://html", "sent `text/html` where `application/json` was expected")),
        (
            "any://other-packing",
            of(
                "any://other-packing",
                "sent a content encoding that is not supported; tell the administrator of this server",
            ),
        ),
        ("any://truncated", of("any://truncated", "failed; try again later")),
        ("any://many-headers", of("any://many-headers", "failed; try again later")),
    ] {
        assert_eq!(refusal(&source, uri).await, expected);
        assert_eq!(read(&source, "json://well").await.unwrap(), "\"well\"");
    }
    for uri in ["any://endless", "any://bomb"] {
        let said = refusal(&source, uri).await;
        assert!(said.ends_with("bytes, more than the limit of 1048576"), "{said}");
    }
    assert_eq!(read(&source, "any://packed").await.unwrap().len(), 1 << 16);
    assert_eq!(read(&source, "any://html").await.unwrap(), "<p>Log in</p>");
    let expected = of("any://slow", "did not answer within 1 second; try again later");
    assert_eq!(slow.await.unwrap(), expected);
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn a_service_that_is_down_says_so() {
    let server = Server::start(|_| Answer::json("1")).await;
    let source = source(&server, "[[resource]]\nuri = \"a://b\"\nurl = \"b\"\n");
    drop(server);
    let said = refusal(&source, "a://b").await;
    assert_eq!(said, "unavailable: the service behind `a://b` cannot be reached now; try again later");
}

/// A service that answers every request with interim responses, without end. Gives its URL, and tells when its client
/// has closed the connection.
fn interim() -> (String, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (send, closed) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let many = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
            while stream.write_all(many.as_bytes()).is_ok() {}
            if send.send(()).is_err() {
                return;
            }
        }
    });
    (url, closed)
}

#[tokio::test]
async fn interim_responses_without_end_are_refused() {
    let (url, closed) = interim();
    let text = format!(
        "base = \"{url}\"\nlimits = {{ allow_private = true, timeout = \"20s\" }}\n[[resource]]\nuri = \"a://b\"\nurl = \"/\""
    );
    let source = libris_sources::Http::new(config(&text)).unwrap();
    let refused = refusal(&source, "a://b").await;
    assert_eq!(refused, "unavailable: the service behind `a://b` failed; try again later");
    // The connection is closed, by a task of this runtime.
    tokio::task::spawn_blocking(move || closed.recv().unwrap()).await.unwrap();
}
