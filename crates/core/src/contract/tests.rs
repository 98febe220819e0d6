//! The suite accepts a correct source, and detects each flaw by its law.

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
fn each_flaw_is_caught_by_its_law() {
    for (flaw, law) in [
        (Flaw::Unordered, "pages_are_ordered_and_agree"),
        (Flaw::Duplicates, "pages_are_ordered_and_agree"),
        (Flaw::OversizedPages, "pages_are_ordered_and_agree"),
        (Flaw::MoreAfterTheEnd, "pages_are_ordered_and_agree"),
        (Flaw::NoMoreTooEarly, "pages_are_ordered_and_agree"),
        (Flaw::StartsOverAtTheEnd, "a_listing_ends"),
        (Flaw::StartsOverAfterStrangers, "a_listing_goes_on_after_any_uri"),
        (Flaw::DoesNotCover, "listed_resources_are_covered"),
        (Flaw::ListsWhatIsGone, "listed_resources_read"),
        (Flaw::EmptyReads, "listed_resources_read"),
        (Flaw::WrongMime, "listed_resources_read"),
        (Flaw::WrongSize, "listed_resources_read"),
        (Flaw::EmptyForUnknown, "what_is_unknown_is_not_found"),
        (Flaw::FailsOnInvalid, "what_is_invalid_is_refused"),
        (Flaw::ReadsWhatItDoesNotCover, "what_is_not_covered_is_not_found"),
        (Flaw::ChildrenOfChildren, "children_are_what_stands_below"),
        (Flaw::MissingChildren, "children_are_what_stands_below"),
        (Flaw::EverythingIsADirectory, "only_directories_have_children"),
        (Flaw::NamelessTemplate, "templates_have_names"),
        (Flaw::WrongTotal, "completions_are_bounded"),
        (Flaw::TooManyValues, "completions_are_bounded"),
        (Flaw::CompletesToNowhere, "completed_variables_lead_somewhere"),
        (Flaw::ForgetsWhatIsTyped, "typing_narrows"),
        (Flaw::CompletesAnything, "unknown_variables_have_no_values"),
        (Flaw::PagesByCount, "a_listing_survives_changes"),
        (Flaw::ProvesReadsForEver, "proofs_end_with_what_they_prove"),
        (Flaw::ProvesListsForEver, "proofs_end_with_what_they_prove"),
        (Flaw::ProofsNeverHold, "proofs_hold_while_nothing_changes"),
        (Flaw::PublicReadsForOne, "shared_responses_are_the_same_for_all"),
        (Flaw::PublicListsForOne, "shared_responses_are_the_same_for_all"),
        (Flaw::SharedReadsForOne, "shared_responses_are_the_same_for_all"),
        (Flaw::SubjectOfASubject, "subjects_are_settled_and_covered"),
        (Flaw::ForeignSubject, "subjects_are_settled_and_covered"),
        (Flaw::SilentToSubjects, "changes_are_reported_to_followers_of_the_subject"),
        (Flaw::UnfollowedForEver, "what_was_unfollowed_can_be_followed_again"),
        (Flaw::UnfollowEndsTheWatch, "what_was_unfollowed_can_be_followed_again"),
        (Flaw::SilentAdd, "changes_are_reported"),
        (Flaw::SilentChange, "changes_are_reported"),
        (Flaw::SilentRemove, "changes_are_reported"),
        (Flaw::WatchEnds, "changes_are_reported"),
    ] {
        let found = verdict(&MemorySource::new(Some(flaw))).expect_err(&format!("{flaw:?} was not caught"));
        assert!(found.contains(&format!("`{law}`")), "{flaw:?} was caught otherwise: {found}");
    }
}

#[test]
fn a_source_that_only_says_it_lost_track_passes() {
    assert_eq!(verdict(&MemorySource::new(Some(Flaw::OnlyLost))), Ok(()));
}
