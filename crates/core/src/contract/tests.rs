//! Tests of the suite itself: it accepts a correct source, and detects each flaw with the expected law.

mod memory;

use std::panic::{AssertUnwindSafe, catch_unwind};

use async_trait::async_trait;

use super::{Fixture, check};
use crate::{Source, Uri};
use memory::{Flaw, MemorySource};

#[async_trait]
impl Fixture for MemorySource {
    fn source(&self) -> &dyn Source {
        self
    }

    fn unknown(&self) -> Uri {
        memory::uri("nothing")
    }

    fn invalid(&self) -> Vec<Uri> {
        vec![memory::uri("docs/%00"), memory::uri("%2E%2E%2Fdocs")]
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        let uri = memory::uri(&format!("docs/new{number}"));
        self.put(&uri, "new");
        Some(uri)
    }

    async fn change(&self, uri: &Uri) -> bool {
        self.put(uri, "newer");
        true
    }

    async fn remove(&self, uri: &Uri) -> bool {
        self.delete(uri)
    }

    async fn deadline(&self) {
        // This source sends a change to its channel before the changing call returns.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

/// The panic message of the suite, if it finds a flaw.
fn verdict(source: &MemorySource) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    catch_unwind(AssertUnwindSafe(|| runtime.block_on(check(source)))).map_err(|panic| {
        panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic without a message".into())
    })
}

#[test]
fn a_sound_source_passes() {
    assert_eq!(verdict(&MemorySource::new(None)), Ok(()));
}

#[test]
fn each_flaw_breaks_the_expected_law() {
    for (flaw, law) in [
        (Flaw::Unordered, "pages_are_ordered_and_consistent"),
        (Flaw::Duplicates, "pages_are_ordered_and_consistent"),
        (Flaw::OversizedPages, "pages_are_ordered_and_consistent"),
        (Flaw::MoreAfterTheEnd, "pages_are_ordered_and_consistent"),
        (Flaw::NoMoreTooEarly, "pages_are_ordered_and_consistent"),
        (Flaw::StartsOverAtTheEnd, "a_listing_ends"),
        (Flaw::StartsOverAfterStrangers, "a_listing_continues_after_any_uri"),
        (Flaw::DoesNotCover, "listed_resources_are_covered"),
        (Flaw::ListsWhatIsGone, "listed_resources_can_be_read"),
        (Flaw::EmptyReads, "listed_resources_can_be_read"),
        (Flaw::WrongMime, "listed_resources_can_be_read"),
        (Flaw::WrongSize, "listed_resources_can_be_read"),
        (Flaw::EmptyForUnknown, "missing_resources_are_not_found"),
        (Flaw::FailsOnInvalid, "invalid_uris_are_refused"),
        (Flaw::ReadsWhatItDoesNotCover, "uncovered_uris_are_refused"),
        (Flaw::ChildrenOfChildren, "children_are_the_resources_directly_below"),
        (Flaw::MissingChildren, "children_are_the_resources_directly_below"),
        (Flaw::EverythingIsADirectory, "only_directories_have_children"),
        (Flaw::NamelessTemplate, "templates_have_names"),
        (Flaw::WrongTotal, "completions_are_bounded"),
        (Flaw::TooManyValues, "completions_are_bounded"),
        (Flaw::CompletesToNowhere, "completed_templates_can_be_read"),
        (Flaw::ForgetsWhatIsTyped, "values_are_still_offered_while_typing"),
        (Flaw::CompletesAnything, "unknown_variables_have_no_values"),
        (Flaw::SearchesUnannounced, "searches_are_announced"),
        (Flaw::PagesByCount, "a_listing_survives_changes"),
        (Flaw::ProvesReadsForEver, "proofs_fail_after_a_change"),
        (Flaw::ProvesListsForEver, "proofs_fail_after_a_change"),
        (Flaw::ProofsNeverHold, "proofs_hold_while_nothing_changes"),
        (Flaw::PublicReadsForOne, "shared_responses_are_the_same_for_all"),
        (Flaw::PublicListsForOne, "shared_responses_are_the_same_for_all"),
        (Flaw::SharedReadsForOne, "shared_responses_are_the_same_for_all"),
        (Flaw::SubjectOfASubject, "subjects_are_idempotent_and_covered"),
        (Flaw::ForeignSubject, "subjects_are_idempotent_and_covered"),
        (Flaw::SilentToSubjects, "changes_are_reported_to_followers_of_the_subject"),
        (Flaw::UnfollowedForEver, "unfollowed_subjects_can_be_followed_again"),
        (Flaw::UnfollowEndsTheWatch, "unfollowed_subjects_can_be_followed_again"),
        (Flaw::SilentAdd, "changes_are_reported"),
        (Flaw::SilentChange, "changes_are_reported"),
        (Flaw::SilentRemove, "changes_are_reported"),
        (Flaw::WatchEnds, "changes_are_reported"),
    ] {
        let found = verdict(&MemorySource::new(Some(flaw))).expect_err(&format!("{flaw:?} was not caught"));
        assert!(found.contains(&format!("`{law}`")), "{flaw:?} broke another law: {found}");
    }
}

#[test]
fn a_source_that_reports_every_change_as_lost_passes() {
    assert_eq!(verdict(&MemorySource::new(Some(Flaw::OnlyLost))), Ok(()));
}
