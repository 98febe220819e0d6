//! Attacks by many subscriptions to long URIs.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::task::JoinSet;

use super::client::{ATTACKER, Client, Tally};
use super::sessions;
use super::site::Site;
use super::watch::Watch;
use super::{Outcome, Stage};
use crate::http;
use crate::mcp::{ACKNOWLEDGED, Era};

/// How many URIs one client subscribes to: the default limit.
const EACH: usize = 1_000;

/// The length of the URIs in sessions.
const LONG: usize = 8 << 10;

/// The length of the URIs in streams, a thousand of which must fit into one message.
const SHORTER: usize = 4_080;

/// How long subscribing may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long the subscriptions are held.
const HOLD: Duration = Duration::from_secs(5);

/// The URI of a file that does not exist. Clients can subscribe to it because a template covers it.
pub(super) fn uri(client: usize, number: usize, length: usize) -> String {
    let mut uri = format!("file:///calm/{client}-{number}");
    while uri.len() < length {
        let left = length - uri.len();
        uri.push('/');
        uri.push_str(&"a".repeat(left.saturating_sub(1).min(200)));
    }
    uri.truncate(length);
    uri
}

/// Opens 50 sessions and subscribes to 1,000 long URIs in each.
pub(super) async fn of_sessions(stage: &Stage<'_>) -> Result<Outcome> {
    let target = Site::new()?.serve(stage)?;
    let address = target.address();
    let watch = Watch::begin(&target).await?;
    let count = stage.scaled(50);
    let mut subscribing = JoinSet::new();
    for number in 0..count {
        subscribing.spawn(async move {
            let mut client = Client::open(address, ATTACKER).await?;
            let session = sessions::open(&mut client, address).await?.ok().context("no session")?;
            let mut kinds = Vec::new();
            for each in 0..EACH {
                let params = json!({ "uri": uri(number, each, LONG) });
                let message = Era::Legacy.request("resources/subscribe", params);
                kinds.push(client.ask(&Era::Legacy.posted(address, Some(&session), &message)).await?.kind());
            }
            Ok::<_, anyhow::Error>(kinds)
        });
    }
    let mut kinds = Tally::default();
    let all = async {
        while let Some(kinds_of_one) = subscribing.join_next().await {
            match kinds_of_one? {
                Ok(kinds_of_one) => kinds.extend(kinds_of_one),
                Err(_) => kinds.count("closed"),
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    let in_time = tokio::time::timeout(PATIENCE, all).await;
    in_time.unwrap_or(Ok(()))?;
    tokio::time::sleep(HOLD).await;
    let held = http::metric(address, "subscriptions").await.unwrap_or_default();
    let observed = format!("{count} × {EACH} subscriptions: {kinds}; {held} held");
    Ok(Outcome::new(watch.end().await?, observed))
}

/// Opens 100 streams that listen to 1,000 long URIs each.
pub(super) async fn of_streams(stage: &Stage<'_>) -> Result<Outcome> {
    let target = Site::new()?.serve(stage)?;
    let address = target.address();
    let watch = Watch::begin(&target).await?;
    let count = stage.scaled(100);
    let (mut kinds, mut open) = (Tally::default(), Vec::new());
    for number in 0..count {
        let uris: Vec<_> = (0..EACH).map(|each| uri(number, each, SHORTER)).collect();
        let params = json!({ "notifications": { "resourceSubscriptions": uris } });
        let message = Era::Modern.request("subscriptions/listen", params);
        let mut client = Client::open(address, ATTACKER).await?;
        let listening = async {
            client.send(&Era::Modern.posted(address, None, &message)).await?;
            // The acknowledgement, or the end of the head of a refusal.
            let head = client.until(b"\r\n\r\n", 0).await?;
            let events = memchr::memmem::find(&client.received()[..head], b"text/event-stream").is_some();
            if !events && client.received().starts_with(b"HTTP/1.1 200 ") {
                return Ok("refused".to_owned());
            }
            if events {
                client.until(ACKNOWLEDGED, head).await?;
                return Ok("listening".to_owned());
            }
            Ok::<_, anyhow::Error>(String::from_utf8_lossy(&client.received()[9..12]).into_owned())
        };
        let kind = match tokio::time::timeout(Duration::from_secs(20), listening).await {
            Ok(Ok(kind)) => kind,
            Ok(Err(_)) => "closed".to_owned(),
            Err(_) => "unanswered".to_owned(),
        };
        kinds.count(kind);
        open.push(client);
    }
    tokio::time::sleep(HOLD).await;
    let held = http::metric(address, "subscriptions").await.unwrap_or_default();
    drop(open);
    let observed = format!("{count} streams: {kinds}; {held} subscriptions held");
    Ok(Outcome::new(watch.end().await?, observed))
}

#[cfg(test)]
mod tests {
    use super::{LONG, uri};

    #[test]
    fn uris_are_different_and_as_long_as_they_are_meant_to_be() {
        let (one, other) = (uri(0, 1, LONG), uri(0, 2, LONG));
        assert_eq!((one.len(), other.len()), (LONG, LONG));
        assert_ne!(one, other);
        assert!(one.split('/').all(|segment| segment.len() <= 200), "a name is too long");
    }
}
