//! Laws about freshness and proofs.

use super::{Fixture, LawCheck};
use crate::{CacheScope, Context, Freshness, Identity, Proof};

/// The maximum number of responses that are requested until one has a proof that holds. A proof need not hold for data
/// that changed a moment ago: the data may change again with the same timestamp.
const PROOF_ATTEMPTS: usize = 20;

/// How many listed resources are read and compared.
const COMPARED_RESOURCES: usize = 20;

/// A proof holds while nothing changes.
pub async fn proofs_hold_while_nothing_changes(fixture: &dyn Fixture) {
    let law = LawCheck::new("proofs_hold_while_nothing_changes", fixture);
    let context = Context::default();
    let list = async || law.page(None, 1000).await.freshness;
    let templates =
        async || law.expect_ok("listing templates", law.source.templates(&context).await).freshness;
    expect_proof_holds(&law, "the list", list).await;
    expect_proof_holds(&law, "the list of templates", templates).await;
    for resource in law.listed().await.iter().take(COMPARED_RESOURCES) {
        let read = async || match law.source.read(&resource.uri, &context).await {
            Ok(contents) => contents.freshness,
            // Other laws check that resources can be read.
            Err(_) => Freshness::unproven(),
        };
        expect_proof_holds(&law, &format!("what was read at `{}`", resource.uri), read).await;
    }
}

async fn expect_proof_holds(law: &LawCheck<'_>, what: &str, ask: impl AsyncFn() -> Freshness) {
    for _ in 0..PROOF_ATTEMPTS {
        if ask().await.proof.is_none_or(|proof| proof.holds()) {
            return;
        }
    }
    law.fail(format_args!("{what} has a proof that does not hold, though nothing changed"));
}

/// A proof no longer holds once the source would give another response.
pub async fn proofs_fail_after_a_change(fixture: &dyn Fixture) {
    let law = LawCheck::new("proofs_fail_after_a_change", fixture);
    let fails = |what: &str, proof: Option<Proof>| {
        if proof.is_some_and(|proof| proof.holds()) {
            law.fail(format_args!("{what} has a proof that still holds after a change"));
        }
    };
    let before = law.page(None, 1000).await.freshness.proof;
    // A number that no other law uses, so that the resource is new.
    let Some(uri) = fixture.add(2_000).await else { return };
    fails("the list without what was added", before);
    let read =
        async || law.expect_ok("reading what was added", law.source.read(&uri, &Context::default()).await);
    let before = read().await.freshness.proof;
    if fixture.change(&uri).await {
        fails("what was read before", before);
    }
    let (read, listed) = (read().await.freshness.proof, law.page(None, 1000).await.freshness.proof);
    if fixture.remove(&uri).await {
        fails("what was read before", read);
        fails("the list with what was removed", listed);
    }
}

/// Responses that may be cached for other callers are equal for all callers: public responses, responses with a proof
/// that did not use the identity of the caller, and shared contents.
pub async fn shared_responses_are_the_same_for_all(fixture: &dyn Fixture) {
    let law = LawCheck::new("shared_responses_are_the_same_for_all", fixture);
    let callers = || {
        ["ada", "grace"].into_iter().map(|name| Some(Identity::new(name))).chain([None]).map(|identity| {
            let name = identity.as_ref().map_or("nobody", |identity| identity.name()).to_owned();
            (name, Context::default().with_identity(identity))
        })
    };
    let mut lists = Vec::new();
    let mut templates = Vec::new();
    for (caller, context) in callers() {
        let page = law.expect_ok("a listing", law.source.list(None, 1000, &context).await);
        let reusable = is_reusable(&page.freshness, &context);
        lists.push(CallerResponse { caller: caller.clone(), reusable, body: page.resources });
        let context = context.clone();
        let all = law.expect_ok("listing templates", law.source.templates(&context).await);
        let reusable = is_reusable(&all.freshness, &context);
        templates.push(CallerResponse { caller, reusable, body: all.templates });
    }
    compare(&law, "the list", &lists);
    compare(&law, "the list of templates", &templates);
    let all = lists.into_iter().flat_map(|list| list.body).map(|resource| resource.uri);
    for uri in all.take(COMPARED_RESOURCES) {
        let mut reads = Vec::new();
        for (caller, context) in callers() {
            let read = law.source.read(&uri, &context).await;
            // If the source did not use the identity, contents differ because time has passed, not because of the caller.
            let shared = law.source.is_shared(&uri) && context.identity_was_used();
            let reusable = shared || read.as_ref().is_ok_and(|read| is_reusable(&read.freshness, &context));
            reads.push(CallerResponse { caller, reusable, body: read.ok().map(|contents| contents.parts) });
        }
        compare(&law, &format!("what was read at `{uri}`"), &reads);
    }
}

/// A response to one of several callers.
struct CallerResponse<T> {
    caller: String,
    /// Whether the response may be cached for other callers.
    reusable: bool,
    body: T,
}

fn is_reusable(freshness: &Freshness, context: &Context) -> bool {
    let public = freshness.scope == CacheScope::Public && !freshness.ttl.is_zero();
    let proven = freshness.proof.as_ref().is_some_and(Proof::holds);
    public || (proven && !context.identity_was_used())
}

fn compare<T: PartialEq>(law: &LawCheck<'_>, what: &str, responses: &[CallerResponse<T>]) {
    for response in responses.iter().filter(|response| response.reusable) {
        if let Some(other) = responses.iter().find(|other| other.body != response.body) {
            law.fail(format_args!(
                "{what} may be shared as `{}` got it, and `{}` got something else",
                response.caller, other.caller
            ));
        }
    }
}
