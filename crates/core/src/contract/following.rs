//! Laws of subjects, and of following them.

use std::collections::BTreeSet;

use super::watching::WatchCheck;
use super::{Fixture, Law};
use crate::uri_template::Variables;
use crate::{Change, Client, Context, Uri};

/// The subject of a URI is its own subject, and a source that covers the URI covers the subject.
pub async fn subjects_are_settled_and_covered(fixture: &dyn Fixture) {
    let law = Law::new("subjects_are_settled_and_covered", fixture);
    let mut uris: BTreeSet<Uri> = law.listed().await.into_iter().map(|resource| resource.uri).collect();
    uris.insert(fixture.unknown());
    uris.extend(fixture.invalid());
    for template in law.templates().await {
        // Whatever the values, a URI of a template has a subject.
        for value in ["1", "1-2", "a", "a/b", "main", "json", ""] {
            let variables: Variables = template.variables().map(|name| (name, value)).collect();
            uris.extend(Uri::parse(&template.expand(&variables)));
        }
    }
    for uri in uris {
        let subject = law.source.subject(&uri);
        let settled = law.source.subject(&subject);
        if settled != subject {
            law.broken(format_args!("the subject of `{uri}` is `{subject}`, whose subject is `{settled}`"));
        }
        if law.source.covers(&uri).is_some() && law.source.covers(&subject).is_none() {
            law.broken(format_args!("`{uri}` is covered, and its subject `{subject}` is not"));
        }
    }
}

/// Whoever follows the subject of a resource hears of changes of the resource, under a URI with that subject.
pub async fn changes_are_reported_to_followers_of_the_subject(fixture: &dyn Fixture) {
    let law = Law::new("changes_are_reported_to_followers_of_the_subject", fixture);
    let watch = law.source.watch().await;
    let Some(mut changes) = law.had("watching", watch) else { return };
    let Some(uri) = fixture.add(3_000).await else { return };
    let subject = law.source.subject(&uri);
    let mut watched = WatchCheck { law: &law, fixture, changes: &mut changes };
    watched.reports(&uri, "added", |change| touches(&law, &subject, change)).await;
    watched.follows(&uri, &subject).await;
}

/// A subject that nobody follows may be unfollowed without any effect, and one that was unfollowed may be followed again.
pub async fn what_was_unfollowed_can_be_followed_again(fixture: &dyn Fixture) {
    let law = Law::new("what_was_unfollowed_can_be_followed_again", fixture);
    let watch = law.source.watch().await;
    let Some(mut changes) = law.had("watching", watch) else { return };
    let Some(uri) = fixture.add(4_000).await else { return };
    let subject = law.source.subject(&uri);
    let mut watched = WatchCheck { law: &law, fixture, changes: &mut changes };
    watched.reports(&uri, "added", |change| touches(&law, &subject, change)).await;
    // Once without being followed, once after, and twice in a row.
    for followed in [false, true, false] {
        if followed {
            law.source.follow(&subject, Client::default());
        }
        law.source.unfollow(&subject);
        law.source.unfollow(&fixture.unknown());
    }
    watched.follows(&uri, &subject).await;
}

impl WatchCheck<'_> {
    /// Follows a subject, and changes a resource that has it.
    async fn follows(&mut self, uri: &Uri, subject: &Uri) {
        let law = self.law;
        law.source.follow(subject, Client::default());
        // A source that can only compare compares with what it gave.
        let _ = law.source.read(uri, &Context::default()).await;
        if self.fixture.change(uri).await {
            self.reports(uri, "changed", |change| touches(law, subject, change)).await;
        }
        law.source.unfollow(subject);
        self.fixture.remove(uri).await;
    }
}

/// Whether a change is one of this subject.
fn touches(law: &Law<'_>, subject: &Uri, change: &Change) -> bool {
    match change {
        Change::Added(uri) | Change::Updated(uri) | Change::Removed(uri) => {
            law.source.subject(uri) == *subject
        }
        _ => false,
    }
}
