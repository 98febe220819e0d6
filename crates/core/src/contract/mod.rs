//! The contract suite: tests that every [`Source`] must pass.
//!
//! Implement [`Fixture`] and call [`check`]. Each law is a function, and a failure names it. The suite does not depend
//! on a particular runtime.

mod children;
mod completion;
mod following;
mod freshness;
mod listing;
mod reading;
mod watching;

use std::collections::BTreeMap;
use std::fmt::Display;

use async_trait::async_trait;

pub use children::{children_are_what_stands_below, only_directories_have_children};
pub use completion::{
    completed_variables_lead_somewhere, completions_are_bounded, templates_have_names, typing_narrows,
    unknown_variables_have_no_values,
};
pub use following::{
    changes_are_reported_to_followers_of_the_subject, subjects_are_settled_and_covered,
    what_was_unfollowed_can_be_followed_again,
};
pub use freshness::{
    proofs_end_with_what_they_prove, proofs_hold_while_nothing_changes, shared_responses_are_the_same_for_all,
};
pub use listing::{
    a_listing_ends, a_listing_goes_on_after_any_uri, a_listing_survives_changes, pages_are_ordered_and_agree,
};
pub use reading::{
    listed_resources_are_covered, listed_resources_read, what_is_invalid_is_refused,
    what_is_not_covered_is_not_found, what_is_unknown_is_not_found,
};
pub use watching::changes_are_reported;

use crate::{Completion, CompletionRequest, Context, DIRECTORY, Page, Resource, Source, UriTemplate};
use crate::{Result, Uri};

/// A source under test.
///
/// It should have more than three resources, and at least one of each kind that the source supports: directories,
/// templates, text, bytes.
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

    /// Adds a listed resource, a different one for each number, and returns its URI; `None` if the fixture is
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

    /// Completes after the longest time in which the source must report a change.
    async fn deadline(&self);
}

/// Checks every law, and panics with the name of the first broken one.
pub async fn check(fixture: &dyn Fixture) {
    pages_are_ordered_and_agree(fixture).await;
    a_listing_ends(fixture).await;
    a_listing_goes_on_after_any_uri(fixture).await;
    listed_resources_are_covered(fixture).await;
    listed_resources_read(fixture).await;
    what_is_unknown_is_not_found(fixture).await;
    what_is_invalid_is_refused(fixture).await;
    what_is_not_covered_is_not_found(fixture).await;
    children_are_what_stands_below(fixture).await;
    only_directories_have_children(fixture).await;
    templates_have_names(fixture).await;
    completions_are_bounded(fixture).await;
    completed_variables_lead_somewhere(fixture).await;
    typing_narrows(fixture).await;
    unknown_variables_have_no_values(fixture).await;
    subjects_are_settled_and_covered(fixture).await;
    shared_responses_are_the_same_for_all(fixture).await;
    a_listing_survives_changes(fixture).await;
    proofs_hold_while_nothing_changes(fixture).await;
    proofs_end_with_what_they_prove(fixture).await;
    changes_are_reported(fixture).await;
    changes_are_reported_to_followers_of_the_subject(fixture).await;
    what_was_unfollowed_can_be_followed_again(fixture).await;
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
    fn broken(&self, how: impl Display) -> ! {
        panic!("the source breaks the law `{}`: {how}", self.name)
    }

    /// The value of a result; an error breaks the law.
    #[track_caller]
    fn expect_ok<T>(&self, what: impl Display, result: Result<T>) -> T {
        result.unwrap_or_else(|error| self.broken(format_args!("{what} failed: {error} ({error:?})")))
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
            self.well_formed(&page, after.as_ref(), limit);
            after = page.resources.last().map(|last| last.uri.clone()).or(after);
            all.extend(page.resources);
            if !page.more {
                return all;
            }
        }
    }

    /// Checks size and order of a page: a reader of pages would otherwise miss resources or loop for ever.
    fn well_formed(&self, page: &Page, after: Option<&Uri>, limit: usize) {
        if page.resources.len() > limit {
            self.broken(format_args!("a page of at most {limit} has {}", page.resources.len()));
        }
        if page.resources.is_empty() && page.more {
            self.broken("an empty page has `more` set");
        }
        let mut last = after;
        for resource in &page.resources {
            if let Some(last) = last
                && *last >= resource.uri
            {
                self.broken(format_args!("`{}` is listed after `{last}`", resource.uri));
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
