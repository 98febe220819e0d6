//! A folder behind a server, as a fixture of the contract suite.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use libris::{Change, Source, Uri};
use libris_core::contract::{self, Fixture};
use tokio::sync::Mutex;

/// How long a change may take to be reported.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// The files of the folder.
pub(crate) const FILES: [(&str, &str); 5] =
    [("a.md", "# A\n"), ("b/c.txt", "text\n"), ("b/d/e.json", "{}"), ("f f.txt", "spaces"), ("g", "none")];

/// The folder `library`, seen through a source.
pub(crate) struct Upstream {
    folder: tempfile::TempDir,
    source: Arc<dyn Source>,
    /// What the URIs of the folder begin with.
    root: String,
    changes: Mutex<BoxStream<'static, Change>>,
    /// The servers, which end when this is dropped.
    _servers: Box<dyn Any + Send + Sync>,
}

impl Upstream {
    pub(crate) async fn new(
        folder: tempfile::TempDir,
        source: Arc<dyn Source>,
        root: &str,
        servers: impl Any + Send + Sync,
    ) -> Self {
        let changes = source.watch().await.unwrap().unwrap();
        Self {
            folder,
            source,
            root: root.to_owned(),
            changes: Mutex::new(changes),
            _servers: Box::new(servers),
        }
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
        tokio::time::timeout(REPORT_TIMEOUT, reported).await.expect("the change is reported");
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
        tokio::time::sleep(REPORT_TIMEOUT).await;
    }
}

/// Checks the laws of the contract suite.
pub(crate) async fn check(fixture: &dyn Fixture) {
    contract::pages_are_ordered_and_consistent(fixture).await;
    contract::a_listing_ends(fixture).await;
    contract::a_listing_continues_after_any_uri(fixture).await;
    contract::listed_resources_are_covered(fixture).await;
    contract::listed_resources_can_be_read(fixture).await;
    contract::missing_resources_are_not_found(fixture).await;
    contract::invalid_uris_are_refused(fixture).await;
    contract::uncovered_uris_are_refused(fixture).await;
    contract::children_are_the_resources_directly_below(fixture).await;
    contract::only_directories_have_children(fixture).await;
    contract::templates_have_names(fixture).await;
    contract::completions_are_bounded(fixture).await;
    contract::values_are_still_offered_while_typing(fixture).await;
    contract::completed_templates_can_be_read(fixture).await;
    contract::unknown_variables_have_no_values(fixture).await;
    contract::subjects_are_idempotent_and_covered(fixture).await;
    contract::shared_responses_are_the_same_for_all(fixture).await;
    contract::a_listing_survives_changes(fixture).await;
    contract::proofs_hold_while_nothing_changes(fixture).await;
    contract::proofs_fail_after_a_change(fixture).await;
    contract::changes_are_reported(fixture).await;
    contract::changes_are_reported_to_followers_of_the_subject(fixture).await;
    contract::unfollowed_subjects_can_be_followed_again(fixture).await;
}
