//! Laws of proofs.

use super::{Fixture, Law};
use crate::{Context, Proof};

/// Where a source proves an answer, the proof ends with what it proves: no later than the change that would
/// make another answer.
pub async fn proofs_end_with_what_they_prove(fixture: &dyn Fixture) {
    let law = Law::new("proofs_end_with_what_they_prove", fixture);
    let fails = |what: &str, proof: Option<Proof>| {
        if proof.is_some_and(|proof| proof.holds()) {
            law.broken(format_args!("{what} is still proven after it changed"));
        }
    };
    let before = law.page(None, 1000).await.proof;
    // A number that no other law uses, so that this is not a resource that was there before.
    let Some(uri) = fixture.add(2_000).await else { return };
    fails("the list without what was added", before);
    let read = async || law.had("reading what was added", law.source.read(&uri, &Context::default()).await);
    let before = read().await.proof;
    if fixture.change(&uri).await {
        fails("what was read before", before);
    }
    let (read, listed) = (read().await.proof, law.page(None, 1000).await.proof);
    if fixture.remove(&uri).await {
        fails("what was read before", read);
        fails("the list with what was removed", listed);
    }
}
