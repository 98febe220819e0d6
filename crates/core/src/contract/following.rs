//! Laws about `follow`, `unfollow` and subjects: the URIs under which changes are reported.

use std::collections::BTreeSet;

use super::watching::WatchCheck;
use super::{Fixture, LawCheck};
use crate::uri_template::Variables;
use crate::{Change, Client, Context, Uri};

/// The subject of a subject is the subject itself, and a source that covers a URI also covers its subject.
pub async fn subjects_are_idempotent_and_covered(fixture: &dyn Fixture) {
    let law = LawCheck::new("subjects_are_idempotent_and_covered", fixture);
    let mut uris: BTreeSet<Uri> = law.listed().await.into_iter().map(|resource| resource.uri).collect();
    uris.insert(fixture.unknown());
    uris.extend(fixture.invalid());
    for template in law.templates().await {
        // `subject` must work for all values, even if there is no such resource.
        for value in ["1", "1-2", "a", "a/b", "main", "json", ""] {
            let variables: Variables = template.variables().map(|name| (name, value)).collect();
            uris.extend(template.expand(&variables).and_then(|text| Uri::parse(&text)));
        }
    }
    for uri in uris {
        let subject = law.source.subject(&uri);
        let again = law.source.subject(&subject);
        if again != subject {
            law.fail(format_args!("the subject of `{uri}` is `{subject}`, whose subject is `{again}`"));
        }
        if law.source.covers(&uri).is_some() && law.source.covers(&subject).is_none() {
            law.fail(format_args!("`{uri}` is covered, and its subject `{subject}` is not"));
        }
    }
}

/// A watch reports changes of a resource whose subject is followed, under a URI with that subject.
pub async fn changes_are_reported_to_followers_of_the_subject(fixture: &dyn Fixture) {
    let law = LawCheck::new("changes_are_reported_to_followers_of_the_subject", fixture);
    let watch = law.source.watch().await;
    let Some(mut changes) = law.expect_ok("watching", watch) else { return };
    let Some(uri) = fixture.add(3_000).await else { return };
    let subject = law.source.subject(&uri);
    let mut watched = WatchCheck { law: &law, fixture, changes: &mut changes };
    watched.expect_report(&uri, "added", |change| affects(&law, &subject, change)).await;
    watched.expect_followed(&uri, &subject).await;
}

/// Unfollowing a subject that is not followed has no effect, and an unfollowed subject can be followed again.
pub async fn unfollowed_subjects_can_be_followed_again(fixture: &dyn Fixture) {
    let law = LawCheck::new("unfollowed_subjects_can_be_followed_again", fixture);
    let watch = law.source.watch().await;
    let Some(mut changes) = law.expect_ok("watching", watch) else { return };
    let Some(uri) = fixture.add(4_000).await else { return };
    let subject = law.source.subject(&uri);
    let mut watched = WatchCheck { law: &law, fixture, changes: &mut changes };
    watched.expect_report(&uri, "added", |change| affects(&law, &subject, change)).await;
    // Unfollow without and after a follow, and twice in a row.
    for followed in [false, true, false] {
        if followed {
            law.source.follow(&subject, Client::default());
        }
        law.source.unfollow(&subject);
        law.source.unfollow(&fixture.unknown());
    }
    watched.expect_followed(&uri, &subject).await;
}

impl WatchCheck<'_> {
    /// Follows a subject, changes a resource with that subject, and expects a report.
    async fn expect_followed(&mut self, uri: &Uri, subject: &Uri) {
        let law = self.law;
        law.source.follow(subject, Client::default());
        // A source that polls reports a change relative to the contents that it returned last.
        let _ = law.source.read(uri, &Context::default()).await;
        if self.fixture.change(uri).await {
            self.expect_report(uri, "changed", |change| affects(law, subject, change)).await;
        }
        law.source.unfollow(subject);
        self.fixture.remove(uri).await;
    }
}

/// Whether a change affects this subject.
fn affects(law: &LawCheck<'_>, subject: &Uri, change: &Change) -> bool {
    match change {
        Change::Added(uri) | Change::Updated(uri) | Change::Removed(uri) => {
            law.source.subject(uri) == *subject
        }
        _ => false,
    }
}
