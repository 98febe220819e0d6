//! The contract suite: tests that every [`Source`] must pass.
//!
//! Implement [`Fixture`] and call [`check`]. Each law is a function, and the panic of a failed check names the
//! broken law. The suite does not depend on a particular runtime.

mod children;
mod completion;
mod following;
mod freshness;
mod listing;
mod reading;
mod searching;
mod watching;

use std::collections::BTreeMap;
use std::fmt::Display;

use async_trait::async_trait;

pub use children::{children_are_the_resources_directly_below, only_directories_have_children};
pub use completion::{
    completed_templates_can_be_read, completions_are_bounded, templates_have_names,
    unknown_variables_have_no_values, values_are_still_offered_while_typing,
};
pub use following::{
    changes_are_reported_to_followers_of_the_subject, subjects_are_idempotent_and_covered,
    unfollowed_subjects_can_be_followed_again,
};
pub use freshness::{
    proofs_fail_after_a_change, proofs_hold_while_nothing_changes, shared_responses_are_the_same_for_all,
};
pub use listing::{
    a_listing_continues_after_any_uri, a_listing_ends, a_listing_survives_changes,
    pages_are_ordered_and_consistent,
};
pub use reading::{
    invalid_uris_are_refused, listed_resources_are_covered, listed_resources_can_be_read,
    missing_resources_are_not_found, uncovered_uris_are_refused,
};
pub use searching::searches_are_announced;
pub use watching::changes_are_reported;

use crate::{Completion, CompletionRequest, Context, DIRECTORY, Page, Resource, Source, UriTemplate};
use crate::{Result, Uri};

/// A source under test, with functions to change its data.
///
/// The source should have more than three resources, and use all features that it supports: directories, templates,
/// text, bytes.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The source.
    fn source(&self) -> &dyn Source;

    /// A well-formed URI of the source at which there is no resource.
    fn unknown(&self) -> Uri;

    /// URIs that the source must reject as invalid or not found, such as path traversal attempts.
    fn invalid(&self) -> Vec<Uri> {
        Vec::new()
    }

    /// Adds a resource that is listed, a different one for each number, and returns its URI; `None` if the fixture is
    /// read-only.
    async fn add(&self, _number: usize) -> Option<Uri> {
        None
    }

    /// Changes the contents of an added resource; `false` if that is impossible.
    async fn change(&self, _uri: &Uri) -> bool {
        false
    }

    /// Removes an added resource; `false` if that is impossible.
    async fn remove(&self, _uri: &Uri) -> bool {
        false
    }

    /// Waits until a source that reports its changes in time must have reported a change made just before the call.
    async fn deadline(&self);
}

/// Checks every law, and panics with the name of the first broken one.
pub async fn check(fixture: &dyn Fixture) {
    pages_are_ordered_and_consistent(fixture).await;
    a_listing_ends(fixture).await;
    a_listing_continues_after_any_uri(fixture).await;
    listed_resources_are_covered(fixture).await;
    listed_resources_can_be_read(fixture).await;
    missing_resources_are_not_found(fixture).await;
    invalid_uris_are_refused(fixture).await;
    uncovered_uris_are_refused(fixture).await;
    children_are_the_resources_directly_below(fixture).await;
    only_directories_have_children(fixture).await;
    templates_have_names(fixture).await;
    completions_are_bounded(fixture).await;
    completed_templates_can_be_read(fixture).await;
    values_are_still_offered_while_typing(fixture).await;
    unknown_variables_have_no_values(fixture).await;
    searches_are_announced(fixture).await;
    subjects_are_idempotent_and_covered(fixture).await;
    shared_responses_are_the_same_for_all(fixture).await;
    a_listing_survives_changes(fixture).await;
    proofs_hold_while_nothing_changes(fixture).await;
    proofs_fail_after_a_change(fixture).await;
    changes_are_reported(fixture).await;
    changes_are_reported_to_followers_of_the_subject(fixture).await;
    unfollowed_subjects_can_be_followed_again(fixture).await;
}

fn is_directory(resource: &Resource) -> bool {
    resource.mime.as_deref() == Some(DIRECTORY)
}

/// A law and the source to check.
struct LawCheck<'a> {
    name: &'static str,
    source: &'a dyn Source,
}

impl<'a> LawCheck<'a> {
    fn new(name: &'static str, fixture: &'a dyn Fixture) -> Self {
        Self { name, source: fixture.source() }
    }

    #[track_caller]
    fn fail(&self, how: impl Display) -> ! {
        panic!("the source breaks the law `{}`: {how}", self.name)
    }

    /// The value of a result; an error breaks the law.
    #[track_caller]
    fn expect_ok<T>(&self, what: impl Display, result: Result<T>) -> T {
        result.unwrap_or_else(|error| self.fail(format_args!("{what} failed: {error} ({error:?})")))
    }

    async fn page(&self, after: Option<&Uri>, limit: usize) -> Page {
        self.expect_ok("a listing", self.source.list(after, limit, &Context::default()).await)
    }

    /// All resources after `after`, read page by page.
    async fn all(&self, after: Option<&Uri>, limit: usize) -> Vec<Resource> {
        let mut all = Vec::new();
        let mut after = after.cloned();
        loop {
            let page = self.page(after.as_ref(), limit).await;
            self.check_page(&page, after.as_ref(), limit);
            after = page.resources.last().map(|last| last.uri.clone()).or(after);
            all.extend(page.resources);
            if !page.more {
                return all;
            }
        }
    }

    /// Checks size and order of a page. With a wrong page, a client would miss resources or loop for ever.
    fn check_page(&self, page: &Page, after: Option<&Uri>, limit: usize) {
        if page.resources.len() > limit {
            self.fail(format_args!("a page of at most {limit} has {}", page.resources.len()));
        }
        if page.resources.is_empty() && page.more {
            self.fail("an empty page has `more` set");
        }
        let mut last = after;
        for resource in &page.resources {
            if let Some(last) = last
                && *last >= resource.uri
            {
                self.fail(format_args!("`{}` is listed after `{last}`", resource.uri));
            }
            last = Some(&resource.uri);
        }
    }

    async fn listed(&self) -> Vec<Resource> {
        self.all(None, 1000).await
    }

    async fn templates(&self) -> Vec<UriTemplate> {
        let templates = self.expect_ok("listing templates", self.source.templates(&Context::default()).await);
        templates.templates.into_iter().map(|template| template.uri).collect()
    }

    async fn complete(
        &self,
        template: &UriTemplate,
        variable: &str,
        typed: &str,
        known: &BTreeMap<String, String>,
    ) -> Completion {
        let completion = self
            .source
            .complete(
                CompletionRequest { template, variable, typed, known, limit: Completion::LIMIT },
                &Context::default(),
            )
            .await;
        self.expect_ok(format_args!("completing `{variable}` of `{template}` from `{typed}`"), completion)
    }
}

#[cfg(test)]
mod tests;
