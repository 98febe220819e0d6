//! For how long, and by whom, a response may be used again.

use std::time::Duration;

use crate::Proof;

/// For how long, and by whom, a response may be used again.
///
/// Clients and the caches between are told [`ttl`](Self::ttl) and [`scope`](Self::scope), and trust them: nobody tells
/// them that the response has changed. The server itself hands a response out again for as long as its
/// [`proof`](Self::proof) holds, to anybody; so a response for whose making the
/// [identity](crate::Context::identity) of the caller was used is never handed out again, whatever it says here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Freshness {
    /// How long a client may use the response without asking again. Zero means: ask each time.
    pub ttl: Duration,
    /// Who may share it.
    pub scope: Scope,
    /// Tells whether the source would still give this response. Without one the server asks the source each time.
    pub proof: Option<Proof>,
}

impl Freshness {
    /// Of a response that may be used once.
    pub fn unproven() -> Self {
        Self::default()
    }

    /// Of a response that the server may hand out again while `proof` holds.
    pub fn proven(proof: impl Into<Option<Proof>>) -> Self {
        Self { proof: proof.into(), ..Self::default() }
    }

    /// With the time for which clients may use the response without asking again.
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// With those who may share the response.
    pub fn with_scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// Of a response made of two others: the shorter time, the narrower scope, and both proofs.
    pub fn and(self, other: Self) -> Self {
        let Self { ttl, scope, proof } = other;
        Self { ttl: self.ttl.min(ttl), scope: self.scope.max(scope), proof: both(self.proof, proof) }
    }

    /// Of a response that also needs this proof; unproven where there is none.
    pub fn and_proof(self, proof: Option<Proof>) -> Self {
        Self { proof: both(proof, self.proof), ..self }
    }
}

fn both(one: Option<Proof>, other: Option<Proof>) -> Option<Proof> {
    Some(one?.and(other?))
}

/// Who may share a response. Ordered from wide to narrow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Anybody: the response is the same for all callers.
    Public,
    /// Only the caller who got it.
    #[default]
    Private,
}

#[cfg(test)]
mod tests {
    use super::{Freshness, Scope};
    use crate::Proof;
    use std::time::Duration;

    #[test]
    fn both_is_as_fresh_as_the_staler() {
        let second = Duration::from_secs(1);
        let long = Freshness::proven(Proof::always()).with_ttl(second * 2).with_scope(Scope::Public);
        let short = Freshness::proven(Proof::new(|| false)).with_ttl(second);
        for both in [long.clone().and(short.clone()), short.clone().and(long.clone())] {
            assert_eq!((both.ttl, both.scope), (second, Scope::Private));
            assert!(!both.proof.unwrap().holds());
        }
        let both = long.clone().and(long.clone());
        assert!(both.scope == Scope::Public && both.proof.unwrap().holds());
        for both in [Freshness::unproven().and(long.clone()), long.clone().and(Freshness::unproven())] {
            assert_eq!(both, Freshness::unproven());
        }
        assert!(long.clone().and_proof(None).proof.is_none());
        assert!(!long.and_proof(short.proof).proof.unwrap().holds());
    }
}
