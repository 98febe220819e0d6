//! One client opens as many sessions as the server allows, and keeps them in use.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::bystander::SMALL;
use super::client::{ATTACKER, Client, ELSEWHERE, Tally};
use super::probe::Probe;
use super::site::Site;
use super::watch::Watch;
use super::{Outcome, Stage};
use crate::mcp::{self, Era};

/// The default limit of sessions.
const SESSIONS: usize = 10_000;

/// How long the sessions are used.
const USE: Duration = Duration::from_secs(15);

/// Opens a session. Returns its id, or the kind of the response if none was opened.
pub(super) async fn open(client: &mut Client, address: SocketAddr) -> Result<Result<String, String>> {
    let answer = client.ask(&Era::Legacy.posted(address, None, &mcp::initialize())).await?;
    let kind = answer.kind();
    Ok(answer.session.ok_or(kind))
}

/// Opens 10,000 sessions on one connection and uses all of them, while other clients try to open one.
pub(super) async fn run(stage: &Stage<'_>) -> Result<Outcome> {
    let target = Site::new()?.serve(stage)?;
    let address = target.address();
    let mut first = Client::open(address, ELSEWHERE).await?;
    let other = open(&mut first, address).await?.ok().context("no session could be opened")?;
    let watch = Watch::begin(&target).await?;
    let mut client = Client::open(address, ATTACKER).await?;
    let (mut opened, mut refused) = (Vec::new(), Tally::default());
    // Not scaled, since the attack must reach the limit.
    for _ in 0..SESSIONS {
        match open(&mut client, address).await? {
            Ok(session) => opened.push(session),
            Err(kind) => refused.count(kind),
        }
    }
    let newcomers = Probe::start(address, ELSEWHERE, Duration::from_millis(20), move |_| {
        Era::Legacy.posted(address, None, &mcp::initialize())
    });
    let read = Era::Legacy.posted(address, Some(&other), &Era::Legacy.read(SMALL));
    let reader = Probe::start(address, ELSEWHERE, Duration::from_millis(20), move |_| read.clone());
    let ping = Era::Legacy.request("ping", json!({}));
    let (begun, mut touched) = (Instant::now(), Tally::default());
    while begun.elapsed() < stage.time(USE) {
        for session in &opened {
            let answer = client.ask(&Era::Legacy.posted(address, Some(session), &ping)).await?;
            touched.count(answer.kind());
        }
        // The attack is the number of sessions, not the rate of requests.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let newcomers = newcomers.stop().await?;
    let observed = format!(
        "{} sessions opened (refused: {refused}); used: {touched}; newcomers: {} of {} let in, {newcomers}; \
         read in another session: {}",
        opened.len(),
        newcomers.good(),
        newcomers.asked(),
        reader.stop().await?,
    );
    Ok(Outcome::new(watch.end().await?, observed))
}
