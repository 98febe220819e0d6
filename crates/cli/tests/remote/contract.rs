//! The contract suite on remotes and on a gateway of three.

use std::ffi::OsStr;
use std::sync::Arc;

use libris::{Catalog, Source};
use libris_remote::{ProtocolChoice, RemoteTarget, UriMount};

use crate::process::HttpServer;
use crate::upstream::{FILES, Upstream, check};
use crate::{folder, over_http, over_stdio, remote};

async fn http_target(folder: &tempfile::TempDir) -> (RemoteTarget, HttpServer) {
    let library = folder.path().join("library");
    let server = HttpServer::start(&[library.as_os_str()]).await;
    (over_http(&server.url), server)
}

async fn check_remote(is_http: bool, protocol: ProtocolChoice, mount: UriMount) {
    let folder = folder("library", &FILES);
    let (target, server) = match is_http {
        true => {
            let (target, server) = http_target(&folder).await;
            (target, vec![server])
        }
        false => (over_stdio(&folder.path().join("library")), Vec::new()),
    };
    let root = match &mount {
        UriMount::Kept => "file:///library/".to_owned(),
        UriMount::Prefixed(name) => format!("{name}+file:///library/"),
    };
    let source = Arc::new(remote("library", target, protocol, mount));
    let expected = if protocol == ProtocolChoice::Initialize { "2025-11-25" } else { "2026-07-28" };
    assert_eq!(source.identity().await.unwrap().revision(), expected);
    check(&Upstream::new(folder, source, &root, server).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_server_over_stdio() {
    check_remote(false, ProtocolChoice::Initialize, UriMount::Kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modern_server_over_stdio() {
    check_remote(false, ProtocolChoice::Auto, UriMount::prefixed("docs").unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_server_over_http() {
    check_remote(true, ProtocolChoice::Initialize, UriMount::prefixed("docs").unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modern_server_over_http() {
    check_remote(true, ProtocolChoice::Auto, UriMount::Kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_of_three_servers() {
    let (mut sources, mut servers): (Vec<Arc<dyn Source>>, Vec<HttpServer>) = (Vec::new(), Vec::new());
    let changed = folder("library", &FILES);
    sources.push(Arc::new(remote(
        "one",
        over_stdio(&changed.path().join("library")),
        ProtocolChoice::Initialize,
        UriMount::prefixed("one").unwrap(),
    )));
    let others = [("two", ProtocolChoice::Initialize), ("three", ProtocolChoice::Auto)];
    let folders = others.map(|(name, _)| folder(name, &FILES));
    for ((name, protocol), folder) in others.into_iter().zip(&folders) {
        let path = folder.path().join(name);
        let server = HttpServer::start(&[OsStr::new(path.as_os_str())]).await;
        let mount = UriMount::prefixed(name).unwrap();
        sources.push(Arc::new(remote(name, over_http(&server.url), protocol, mount)));
        servers.push(server);
    }
    let catalog = Arc::new(Catalog::new(sources));
    catalog.add_status();
    check(&Upstream::new(changed, catalog, "one+file:///library/", servers).await).await;
}
