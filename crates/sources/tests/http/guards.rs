//! Which hosts and addresses requests may reach, and the errors for others (SSRF).

use libris_sources::Http;

use crate::server::{Answer, Server};
use crate::{config, read, refusal, source};

#[tokio::test]
async fn private_addresses_are_refused_whatever_they_are_called() {
    let server = Server::start(|_| Answer::json("1")).await;
    let port = server.address.port();
    let resource = |host| format!("[[resource]]\nuri = \"a://b\"\nurl = \"http://{host}:{port}/\"\n");
    let refused = |text: &str| {
        let error = Http::new(config(text)).err().unwrap().to_string();
        assert!(error.contains("is not a public address: set `limits.allow_private`"), "{error}");
    };
    for host in ["127.0.0.1", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433", "0x7f.0.0.1", "127.1"] {
        refused(&resource(host));
    }
    for host in ["localhost", "LocalHost", "localhost.", "api.localhost"] {
        refused(&resource(host));
    }
    let text = resource("localhost");
    refused(&format!("limits = {{ networks = [\"10.0.0.0/8\"] }}\n{text}"));
    for limits in ["allow_private = true", "networks = [\"127.0.0.0/8\", \"::1\"]"] {
        let allowed = Http::new(config(&format!("limits = {{ {limits} }}\n{text}"))).unwrap();
        assert_eq!(read(&allowed, "a://b").await.unwrap(), "1");
    }
}

#[tokio::test]
async fn redirects_stay_where_they_are() {
    let other = Server::start(|_| Answer::json("\"secret\"")).await;
    let elsewhere = other.url();
    let server = Server::start(move |received| {
        let to = match received.target.as_str() {
            "/metadata" => "http://169.254.169.254/latest/meta-data/".to_owned(),
            "/port" => elsewhere.clone(),
            "/name" => elsewhere.replace("127.0.0.1", "localhost"),
            "/scheme" => "file:///etc/passwd".to_owned(),
            "/nowhere" => "http://".to_owned(),
            "/loop" => "/loop".to_owned(),
            "/moved" => "here".to_owned(),
            _ => return Answer::json("\"here\""),
        };
        Answer::status(302).with("location", to)
    })
    .await;
    let source = source(&server, "[[template]]\nuri = \"a://{x}\"\nurl = \"{/x}\"\n");
    for target in ["metadata", "port", "name", "scheme", "nowhere", "loop"] {
        let uri = format!("a://{target}");
        let expected = format!(
            "unavailable: the service behind `{uri}` redirects to another origin, which is not followed"
        );
        assert_eq!(refusal(&source, &uri).await, expected);
    }
    assert!(other.received().is_empty());
    assert_eq!(server.received().iter().filter(|received| received.target == "/loop").count(), 6);
    assert_eq!(read(&source, "a://moved").await.unwrap(), "\"here\"");
}

#[tokio::test]
async fn errors_say_what_helps_and_nothing_else() {
    let server = Server::start(|received| {
        let status: u16 = received.target[1..].parse().unwrap();
        Answer::status(status)
    })
    .await;
    let source = source(&server, "[[template]]\nuri = \"a://{x}\"\nurl = \"{/x}\"\n");
    for (status, expected) in [
        (404, "no resource at `a://404`: the service answered 404 Not Found; check the value of `x`"),
        (410, "no resource at `a://410`: the service answered 410 Gone; check the value of `x`"),
        (
            403,
            "no resource at `a://403`: the service answered 403 Forbidden: check the rights of the credentials that this server sends",
        ),
        (400, "the service behind `a://400` answered 400 Bad Request; check the value of `x`"),
        (422, "the service behind `a://422` answered 422 Unprocessable Entity; check the value of `x`"),
        (
            401,
            "unavailable: the service behind `a://401` answered 401 Unauthorized: check the credentials that this server sends",
        ),
        (429, "unavailable: the service behind `a://429` answered 429 Too Many Requests; try again later"),
        (
            500,
            "unavailable: the service behind `a://500` answered 500 Internal Server Error; try again later",
        ),
        (501, "unavailable: the service behind `a://501` answered 501 Not Implemented"),
        (418, "unavailable: the service behind `a://418` answered 418 I'm a teapot"),
        (599, "unavailable: the service behind `a://599` answered 599; try again later"),
    ] {
        assert_eq!(refusal(&source, &format!("a://{status}")).await, expected);
    }
}

#[tokio::test]
async fn a_service_that_asks_to_wait_is_left_alone() {
    let server = Server::start(|_| Answer::status(429).with("retry-after", 30)).await;
    let source = source(&server, "[[template]]\nuri = \"a://{x}\"\nurl = \"{/x}\"\n");
    for name in ["one", "other", "third"] {
        let said = refusal(&source, &format!("a://{name}")).await;
        assert!(said.contains("answered 429 Too Many Requests; try again in 30 seconds"), "{said}");
    }
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn configurations_that_cannot_work_are_refused() {
    for (text, expected) in [
        (
            "[[resource]]\nuri = \"a://b\"\nurl = \"b\"",
            "`a://b`: its URL `b` does not begin with `https://` or `http://`; hint: write the whole URL, or set `base`",
        ),
        (
            "[[resource]]\nuri = \"a://b\"\nurl = \"ftp://x/\"",
            "`a://b`: its URL `ftp://x/` does not begin with `https://` or `http://`; hint: write the whole URL, or set `base`",
        ),
        (
            "[[template]]\nuri = \"a://{b}\"\nurl = \"https://x.example/{c}\"",
            "`a://{b}`: `url` uses the variable `c`, which the template in `uri` does not define; hint: add it to `uri`, or remove it",
        ),
        (
            "[[template]]\nuri = \"a://{b}\"\nurl = \"https://{b}/\"",
            "`a://{b}`: its URL has a variable in the host; hint: write the host, and use variables after it",
        ),
        (
            "[[resource]]\nuri = \"a://b\"\nurl = \"https://x.example/\"\nheaders = { host = \"y\" }",
            "`a://b`: the header `host` cannot be set; hint: remove it, because Libris sets it itself",
        ),
        (
            "[[resource]]\nuri = \"a://b\"\nurl = \"https://x.example/\"\nheaders = { x = { env = \"LIBRIS_NO_SUCH\" } }",
            "`a://b`: `LIBRIS_NO_SUCH` is not set in the environment; hint: set it before you start Libris",
        ),
        (
            "[[template]]\nuri = \"a://{b}\"\nurl = \"https://x.example/{b}\"\nlist = { from = \"a:\", values = { b = \"\" } }",
            "a list is `from` `a:`, which is not a resource of this source; hint: add it as a `[[http.resource]]`, or set `url`",
        ),
        (
            "[[template]]\nuri = \"a://{b}\"\nurl = \"https://x.example/{b}\"\ncomplete = { c = [\"x\"] }",
            "`a://{b}`: it has no variable `c`; hint: add it to `uri`, or remove it",
        ),
        ("[[link]]\nuri = \"file:///x\"", "`file:///x`: the `uri` of a link must begin with `https://`"),
        (
            "",
            "it has no `resource`, no `template` and no `link`; hint: add one, such as a `[[http.resource]]`",
        ),
        ("poll = \"0s\"", "`poll` must be greater than 0"),
    ] {
        assert_eq!(Http::new(config(text)).err().unwrap().to_string(), expected);
    }
    for (text, expected) in [
        ("[[resource]]\nuri = \"a://b\"\nurl = \"b\"\nmethod = \"POST\"", "unknown variant `POST`"),
        ("limits = { networks = [\"10.0.0.0/99\"] }", "is not a network such as"),
        ("timeout = \"1s\"", "unknown field `timeout`"),
        ("headers = { x = { enc = \"NAME\" } }", "expected a text, or `{ env = \"NAME\" }`"),
    ] {
        let error = toml::from_str::<libris_sources::http::Config>(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
