//! Freshness: how clients and the server may cache a response.

use std::time::{Duration, Instant};

use crate::Proof;

/// How clients and the server may cache a response.
///
/// Clients and intermediate caches get [`ttl`](Self::ttl) and [`scope`](Self::scope). They may use the response
/// until the TTL ends, even if the resource has changed meanwhile. The server caches a response for all callers
/// while its [`proof`](Self::proof) holds, unless the source used the [identity](crate::Context::identity) of the
/// caller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Freshness {
    /// How long clients may cache the response. Zero: not at all.
    pub ttl: Duration,
    /// Which caches may store the response.
    pub scope: CacheScope,
    /// Checks whether the response is still valid. Without a proof, the server does not cache the response.
    pub proof: Option<Proof>,
    /// When the response expires. Clients get at most the remaining time as [`ttl`](Self::ttl). With `None`, `ttl` counts
    /// from the time at which the response is sent.
    pub expires: Option<Instant>,
}

impl Freshness {
    /// A response that must not be cached.
    pub fn unproven() -> Self {
        Self::default()
    }

    /// A response that never changes and is the same for all callers: the neutral element of [`and`](Self::and).
    pub fn unlimited() -> Self {
        Self { ttl: Duration::MAX, scope: CacheScope::Public, proof: Some(Proof::always()), expires: None }
    }

    /// Forbids clients to cache the response if its TTL is [unlimited](Self::unlimited), which means that no combined part
    /// has set a TTL. Otherwise returns the freshness unchanged.
    pub fn or_uncached(self) -> Self {
        match self.ttl {
            Duration::MAX => Self { ttl: Duration::ZERO, scope: CacheScope::Private, ..self },
            _ => self,
        }
    }

    /// A response that the server may cache while `proof` holds.
    pub fn proven(proof: impl Into<Option<Proof>>) -> Self {
        Self { proof: proof.into(), ..Self::default() }
    }

    /// Sets how long clients may cache the response.
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// Sets which caches may store the response.
    pub fn with_scope(self, scope: CacheScope) -> Self {
        Self { scope, ..self }
    }

    /// The freshness of a response that is combined from two others: the shorter TTL, the narrower scope, both proofs (none
    /// if one is missing), and the earlier expiry.
    pub fn and(self, other: Self) -> Self {
        let Self { ttl, scope, proof, expires } = other;
        Self {
            ttl: self.ttl.min(ttl),
            scope: self.scope.max(scope),
            proof: both_hold(self.proof, proof),
            expires: self.expires.into_iter().chain(expires).min(),
        }
    }

    /// Sets when the response expires.
    pub fn until(self, expires: Instant) -> Self {
        Self { expires: Some(expires), ..self }
    }

    /// The freshness to send with a response that may come from a cache: `ttl` is at most the time from `now` until
    /// `expires`.
    pub fn at(self, now: Instant) -> Self {
        match self.expires {
            None => self,
            Some(expires) => Self { ttl: self.ttl.min(expires.saturating_duration_since(now)), ..self },
        }
    }

    /// Adds a proof that must hold too. With `None`, the result has no proof.
    pub fn and_proof(self, proof: Option<Proof>) -> Self {
        Self { proof: both_hold(proof, self.proof), ..self }
    }
}

fn both_hold(one: Option<Proof>, other: Option<Proof>) -> Option<Proof> {
    Some(one?.and(other?))
}

/// Which caches may store a response. Ordered from wide to narrow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Shared caches: the response is the same for all callers.
    Public,
    /// Only the cache of the caller.
    #[default]
    Private,
}

#[cfg(test)]
mod tests {
    use super::{CacheScope, Freshness};
    use crate::Proof;
    use std::time::{Duration, Instant};

    #[test]
    fn the_ttl_is_at_most_the_time_until_the_expiry() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let limited = Freshness::unproven().with_ttl(second * 9).until(now + second * 9);
        assert_eq!(limited.clone().at(now).ttl, second * 9);
        assert_eq!(limited.clone().at(now + second * 7).ttl, second * 2);
        assert_eq!(limited.clone().at(now + second * 10).ttl, Duration::ZERO);
        let longer = Freshness::unproven().with_ttl(second * 20);
        assert_eq!(longer.clone().at(now + second * 7).ttl, second * 20);
        for both in [limited.clone().and(longer.clone()), longer.and(limited)] {
            assert_eq!(both.at(now + second * 7).ttl, second * 2);
        }
    }

    #[test]
    fn a_combination_has_the_stricter_freshness() {
        let second = Duration::from_secs(1);
        let long = Freshness::proven(Proof::always()).with_ttl(second * 2).with_scope(CacheScope::Public);
        let short = Freshness::proven(Proof::new(|| false)).with_ttl(second);
        for both_hold in [long.clone().and(short.clone()), short.clone().and(long.clone())] {
            assert_eq!((both_hold.ttl, both_hold.scope), (second, CacheScope::Private));
            assert!(!both_hold.proof.unwrap().holds());
        }
        let both_hold = long.clone().and(long.clone());
        assert!(both_hold.scope == CacheScope::Public && both_hold.proof.unwrap().holds());
        for both_hold in [Freshness::unproven().and(long.clone()), long.clone().and(Freshness::unproven())] {
            assert_eq!(both_hold, Freshness::unproven());
        }
        assert!(long.clone().and_proof(None).proof.is_none());
        assert!(!long.and_proof(short.proof).proof.unwrap().holds());
    }
}
