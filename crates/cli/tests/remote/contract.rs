//! The contract suite on remotes and on a gateway of three.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use libris::{Catalog, Change, Source, Uri};
use libris_core::contract::{self, Fixture};
use libris_remote::{ProtocolChoice, RemoteTarget, UriMount};
use tokio::sync::Mutex;

use crate::process::HttpServer;
use crate::{LONG, folder, over_http, over_stdio, remote};

const FILES: [(&str, &str); 5] =
    [("a.md", "# A\n"), ("b/c.txt", "text\n"), ("b/d/e.json", "{}"), ("f f.txt", "spaces"), ("g", "none")];

/// A folder behind a server, seen through a source.
struct Upstream {
    folder: tempfile::TempDir,
    source: Arc<dyn Source>,
    /// What the URIs of the folder begin with.
    root: String,
    changes: Mutex<BoxStream<'static, Change>>,
    _server: Vec<HttpServer>,
}

impl Upstream {
    async fn new(
        folder: tempfile::TempDir,
        source: Arc<dyn Source>,
        root: &str,
        server: Vec<HttpServer>,
    ) -> Self {
        let changes = source.watch().await.unwrap().unwrap();
        Self { folder, source, root: root.to_owned(), changes: Mutex::new(changes), _server: server }
    }

    fn path(&self, uri: &Uri) -> PathBuf {
        self.folder.path().join("library").join(uri.as_str().strip_prefix(&self.root).unwrap())
    }

    /// Does something, and waits until the source reports it: news of another process take a moment.
    async fn reported(&self, act: impl FnOnce(), expected: &Change) {
        let mut changes = self.changes.lock().await;
        // What was reported before is of no interest.
        while let Some(Some(_)) = changes.next().now_or_never() {}
        act();
        let reported = async {
            while let Some(change) = changes.next().await {
                if change == *expected || change == Change::Lost {
                    return;
                }
            }
        };
        tokio::time::timeout(LONG, reported).await.expect("the change is reported");
    }
}

#[async_trait]
impl Fixture for Upstream {
    fn source(&self) -> &dyn Source {
        &*self.source
    }

    fn unknown(&self) -> Uri {
        Uri::parse(&format!("{}no/such/file", self.root)).unwrap()
    }

    fn invalid(&self) -> Vec<Uri> {
        ["..%2f..%2fetc%2fpasswd", "%00", "a.md?lines=0"]
            .map(|path| Uri::parse(&format!("{}{path}", self.root)).unwrap())
            .into()
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        let uri = Uri::parse(&format!("{}added-{number}.txt", self.root)).unwrap();
        let write = || std::fs::write(self.path(&uri), "added").unwrap();
        self.reported(write, &Change::Added(uri.clone())).await;
        Some(uri)
    }

    async fn change(&self, uri: &Uri) -> bool {
        // A server reports this only to subscribers.
        std::fs::write(self.path(uri), "changed, and longer").is_ok()
    }

    async fn remove(&self, uri: &Uri) -> bool {
        if !self.path(uri).exists() {
            return false;
        }
        let remove = || std::fs::remove_file(self.path(uri)).unwrap();
        self.reported(remove, &Change::Removed(uri.clone())).await;
        true
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

/// Checks the laws of the contract suite.
async fn check(fixture: &dyn Fixture) {
    contract::pages_are_ordered_and_agree(fixture).await;
    contract::a_listing_ends(fixture).await;
    contract::a_listing_goes_on_after_any_uri(fixture).await;
    contract::listed_resources_are_covered(fixture).await;
    contract::listed_resources_read(fixture).await;
    contract::what_is_unknown_is_not_found(fixture).await;
    contract::what_is_invalid_is_refused(fixture).await;
    contract::what_is_not_covered_is_not_found(fixture).await;
    contract::children_are_what_stands_below(fixture).await;
    contract::only_directories_have_children(fixture).await;
    contract::templates_have_names(fixture).await;
    contract::completions_are_bounded(fixture).await;
    contract::typing_narrows(fixture).await;
    contract::completed_variables_lead_somewhere(fixture).await;
    contract::unknown_variables_have_no_values(fixture).await;
    contract::subjects_are_settled_and_covered(fixture).await;
    contract::shared_responses_are_the_same_for_all(fixture).await;
    contract::a_listing_survives_changes(fixture).await;
    contract::proofs_hold_while_nothing_changes(fixture).await;
    contract::proofs_end_with_what_they_prove(fixture).await;
    contract::changes_are_reported(fixture).await;
    contract::changes_are_reported_to_followers_of_the_subject(fixture).await;
    contract::what_was_unfollowed_can_be_followed_again(fixture).await;
}

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
