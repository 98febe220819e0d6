//! Rate limits across replicas: about once a second, each replica learns of the usage at the others and counts it too.
//!
//! No request waits for the exchange. A client can exceed its rate by what it sends to other replicas between two
//! exchanges. The excess is charged at the next exchange, and the client then waits longer.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::Endpoint;
use super::session_store::SessionStore;

/// How often usage is exchanged.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// Exchanges usage until the endpoint is dropped.
pub(super) async fn run(endpoint: Weak<Endpoint>, store: Arc<dyn SessionStore>) {
    let mut exchanges = interval(EXCHANGE_INTERVAL);
    exchanges.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        exchanges.tick().await;
        let take = |endpoint: &Arc<Endpoint>| endpoint.rates.as_ref().map(|rates| rates.take_unsent());
        let Some(used) = endpoint.upgrade().as_ref().and_then(take) else { return };
        // If the store cannot be reached, the usage since the last exchange is dropped: it would be outdated when the other
        // replicas got it.
        let Ok(elsewhere) = store.exchange_usage(used).await else { continue };
        let Some(endpoint) = endpoint.upgrade() else { return };
        if let Some(rates) = &endpoint.rates {
            rates.charge(&elsewhere);
        }
    }
}
