//! Laws about watches.

use std::pin::pin;

use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use futures_util::future::{Either, select};

use super::{Fixture, LawCheck};
use crate::{Change, Client, Context, Uri};

/// A watch reports added, changed and removed resources.
pub async fn changes_are_reported(fixture: &dyn Fixture) {
    let law = LawCheck::new("changes_are_reported", fixture);
    let watch = law.source.watch().await;
    let Some(mut changes) = law.expect_ok("watching", watch) else { return };
    // A number that no other law uses, so that the resource is new.
    let Some(uri) = fixture.add(1_000).await else { return };
    let mut watched = WatchCheck { law: &law, fixture, changes: &mut changes };
    watched.expect_report(&uri, "added", |change| matches!(change, Change::Added(at) if *at == uri)).await;
    let read = law.source.read(&uri, &Context::default()).await;
    law.expect_ok(format_args!("reading `{uri}`, which was reported as added,"), read);
    law.source.follow(&uri, Client::default());
    if fixture.change(&uri).await {
        // Some fixtures replace a resource instead of changing it.
        let updated =
            |change: &Change| matches!(change, Change::Updated(at) | Change::Added(at) if *at == uri);
        watched.expect_report(&uri, "changed", updated).await;
    }
    if fixture.remove(&uri).await {
        watched
            .expect_report(&uri, "removed", |change| matches!(change, Change::Removed(at) if *at == uri))
            .await;
    }
}

/// A watch under test.
pub(super) struct WatchCheck<'a> {
    pub(super) law: &'a LawCheck<'a>,
    pub(super) fixture: &'a dyn Fixture,
    pub(super) changes: &'a mut BoxStream<'static, Change>,
}

impl WatchCheck<'_> {
    pub(super) async fn expect_report(&mut self, uri: &Uri, what: &str, wanted: impl Fn(&Change) -> bool) {
        let mut others = Vec::new();
        let found = async {
            while let Some(change) = self.changes.next().await {
                if change == Change::Lost || wanted(&change) {
                    return true;
                }
                others.push(change);
            }
            false
        };
        let in_time = match select(pin!(found), self.fixture.deadline()).await {
            Either::Left((true, _)) => return,
            Either::Left((false, _)) => "before the watch ended",
            Either::Right(_) => "in time",
        };
        self.law.fail(format_args!("`{uri}` was {what} and not reported {in_time}, only {others:?}"));
    }
}
