//! The `[limits]` table of the configuration: how much callers may use.

use libris::SubscriptionConfig;
use libris::wire::http::{self, UsageLimits};
use libris_sources::settings;
use serde::{Deserialize, Deserializer};

/// Limits for each identity, for each address of unauthenticated callers, and for all callers together.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitsConfig {
    /// For each authenticated caller, wherever its requests come from.
    identity: CallerLimits,
    /// For each network address from which unauthenticated requests come. An IPv6 /64 network counts as one address.
    address: CallerLimits,
    /// For all callers together.
    total: CallerLimits,
}

/// The limits of one caller, or of all. By default there are no rate limits, and one caller may use three quarters of
/// every total limit.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CallerLimits {
    /// Requests per minute (a token bucket): up to this many at once, and then at an even rate. From 1 to
    /// 1,000,000,000.
    #[serde(deserialize_with = "count")]
    requests_per_minute: Option<u64>,
    /// Bytes of responses per minute, as in `"100MB"`. From 1 to 1 PiB.
    #[serde(deserialize_with = "bytes")]
    bytes_per_minute: Option<u64>,
    /// Requests in progress at the same time.
    #[serde(deserialize_with = "number")]
    concurrent_requests: Option<usize>,
    /// Open sessions. The least recently used one ends if there are more.
    #[serde(deserialize_with = "number")]
    sessions: Option<usize>,
    /// Open event streams.
    #[serde(deserialize_with = "number")]
    streams: Option<usize>,
    /// Subscriptions to resources.
    #[serde(deserialize_with = "number")]
    subscriptions: Option<usize>,
    /// Memory for subscriptions, in bytes.
    #[serde(deserialize_with = "bytes")]
    subscription_bytes: Option<u64>,
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    settings::within(deserializer, 1..=1_000_000_000).map(Some)
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    settings::within(deserializer, 1..=1_000_000).map(Some)
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    settings::bytes_within(deserializer, 1..=1 << 50).map(Some)
}

impl CallerLimits {
    fn usage(&self) -> UsageLimits {
        UsageLimits {
            requests_per_minute: self.requests_per_minute,
            bytes_per_minute: self.bytes_per_minute,
            concurrent_requests: self.concurrent_requests,
            sessions: self.sessions,
            streams: self.streams,
        }
    }

    fn subscription_bytes(&self) -> Option<usize> {
        self.subscription_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }
}

impl LimitsConfig {
    /// The configuration of the HTTP endpoint with these limits.
    pub(crate) fn http(&self, config: http::Config) -> http::Config {
        http::Config {
            identity_limits: self.identity.usage(),
            address_limits: self.address.usage(),
            total_limits: self.total.usage(),
            ..config
        }
    }

    /// The configuration of subscriptions with these limits.
    pub(crate) fn subscriptions(&self, config: SubscriptionConfig) -> SubscriptionConfig {
        let SubscriptionConfig { subscription_bytes, mut client_subscription_bytes, .. } = config;
        if let Some(total) = self.total.subscription_bytes() {
            client_subscription_bytes = client_subscription_bytes.min(total - total / 4);
        }
        SubscriptionConfig {
            subscription_bytes: self.total.subscription_bytes().unwrap_or(subscription_bytes),
            client_subscription_bytes: self.address.subscription_bytes().unwrap_or(client_subscription_bytes),
            address_subscriptions: self.address.subscriptions,
            identity_subscriptions: self.identity.subscriptions,
            identity_subscription_bytes: self.identity.subscription_bytes(),
            total_subscriptions: self.total.subscriptions,
            ..config
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LimitsConfig;
    use libris::SubscriptionConfig;

    #[test]
    fn the_memory_of_one_callers_subscriptions_is_a_share_of_a_total() {
        let limits = |text: &str| {
            let limits: LimitsConfig = toml::from_str(text).unwrap();
            let config = limits.subscriptions(SubscriptionConfig::default());
            (config.subscription_bytes, config.client_subscription_bytes)
        };
        let default = SubscriptionConfig::default();
        assert_eq!(limits(""), (default.subscription_bytes, default.client_subscription_bytes));
        assert_eq!(limits("total.subscription_bytes = 4000"), (4_000, 3_000));
        let both = "total.subscription_bytes = 4000\naddress.subscription_bytes = 3500";
        assert_eq!(limits(both), (4_000, 3_500));
    }
}
