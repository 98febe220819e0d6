//! Subscribes to resources of a server, once per followed resource however many clients follow it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, StreamExt as _};
use rmcp::model::{ServerNotification, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams};
use rmcp::service::{ServiceError, Subscription};
use tokio::time::{Instant, timeout};

use crate::config::RemoteConfig;
use crate::fault::RemoteFault;
use crate::followed::FollowedUri;
use crate::link::{UpstreamNotification, UpstreamSession};

/// The maximum number of concurrent requests to subscribe or unsubscribe.
const CONCURRENT_SUBSCRIPTIONS: usize = 8;

/// The longest pause before subscriptions that failed are requested again. The first pause is that before reconnections
/// (`retry`), and each failure doubles it.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The subscriptions of a connection.
pub(crate) struct UpstreamSubscriber<'a> {
    session: &'a Arc<UpstreamSession>,
    /// The name of the server.
    server: &'a str,
    timeout: Duration,
    /// The subscriptions that the server has accepted.
    active: BTreeSet<FollowedUri>,
    /// The subscriptions that the server refused or did not answer in time. They are requested again at `retry_at`.
    failed: BTreeSet<FollowedUri>,
    /// When to request again what failed; `None` if nothing failed.
    retry_at: Option<Instant>,
    /// The pause after the next failure.
    pause: Duration,
    first_pause: Duration,
    /// The open `subscriptions/listen` stream.
    listening: Option<Subscription>,
    /// The lists whose changes the server reports on the stream. If there are any, the stream is needed even if no
    /// resource is followed.
    lists: SubscriptionFilter,
}

/// The outcome of [`UpstreamSubscriber::change`].
pub(crate) struct Subscribed {
    /// The subscriptions that were requested and accepted.
    accepted: BTreeSet<FollowedUri>,
    /// The subscriptions that were requested and failed.
    failed: BTreeSet<FollowedUri>,
    /// The subscriptions that were cancelled.
    removed: BTreeSet<FollowedUri>,
    listening: Option<Subscription>,
    /// The first failure.
    fault: Option<RemoteFault>,
}

impl<'a> UpstreamSubscriber<'a> {
    pub(crate) fn new(session: &'a Arc<UpstreamSession>, config: &'a RemoteConfig) -> Self {
        let mut lists = SubscriptionFilter::new();
        if session.is_modern() {
            lists.resources_list_changed = session.reports_list_changes().then_some(true);
            lists.prompts_list_changed = (config.prompts && session.reports_prompt_changes()).then_some(true);
            lists.tools_list_changed = (config.tools && session.reports_tool_changes()).then_some(true);
        }
        let first_pause = config.limits.retry;
        Self {
            session,
            server: &config.name,
            timeout: config.limits.timeout,
            active: BTreeSet::new(),
            failed: BTreeSet::new(),
            retry_at: None,
            pause: first_pause,
            first_pause,
            listening: None,
            lists,
        }
    }

    /// When to call [`change`](Self::change) again, because subscriptions failed.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Starts the requests that make `wanted` the active subscriptions; `None` if they are active already, or if the
    /// missing ones have failed and are not due yet.
    pub(crate) fn change(&mut self, wanted: &BTreeSet<FollowedUri>) -> Option<BoxFuture<'a, Subscribed>> {
        let none = BTreeSet::new();
        let wanted = if self.session.supports_subscriptions() { wanted } else { &none };
        self.failed.retain(|one| wanted.contains(one));
        let is_retry = self.retry_at.is_some_and(|at| at <= Instant::now());
        if self.session.is_modern() {
            let needs_listening = self.lists != SubscriptionFilter::default();
            let is_listening = self.listening.is_some() || !needs_listening && wanted.is_empty();
            if is_listening && *wanted == self.active {
                self.retry_at = None;
                return None;
            }
            // A stream has all subscriptions, so new ones cannot be requested without those that failed.
            return (self.retry_at.is_none() || is_retry).then(|| self.listen_to(wanted.clone()));
        }
        let removed: BTreeSet<_> = self.active.difference(wanted).cloned().collect();
        let missing = wanted.difference(&self.active);
        let added: BTreeSet<_> =
            missing.filter(|one| is_retry || !self.failed.contains(*one)).cloned().collect();
        if self.failed.is_empty() || is_retry {
            self.retry_at = None;
        }
        if removed.is_empty() && added.is_empty() {
            return None;
        }
        Some(self.subscribe(added, removed))
    }

    /// Opens a `subscriptions/listen` stream, which replaces the open one.
    fn listen_to(&self, wanted: BTreeSet<FollowedUri>) -> BoxFuture<'a, Subscribed> {
        let (session, limit, active) = (self.session, self.timeout, self.active.clone());
        let mut filter = self.lists.clone();
        filter.resource_subscriptions =
            (!wanted.is_empty()).then(|| wanted.iter().map(|one| one.inner.clone()).collect());
        async move {
            let opened = timeout(limit, session.peer.listen(filter)).await;
            let none = BTreeSet::new();
            match outcome(opened, session, limit) {
                Ok(listening) => Subscribed {
                    accepted: wanted.difference(&active).cloned().collect(),
                    failed: none,
                    removed: active.difference(&wanted).cloned().collect(),
                    listening: Some(listening),
                    fault: None,
                },
                Err(fault) => {
                    let failed = wanted.difference(&active).cloned().collect();
                    Subscribed {
                        accepted: none.clone(),
                        failed,
                        removed: none,
                        listening: None,
                        fault: Some(fault),
                    }
                }
            }
        }
        .boxed()
    }

    /// Sends `resources/subscribe` and `resources/unsubscribe`.
    fn subscribe(
        &self,
        added: BTreeSet<FollowedUri>,
        removed: BTreeSet<FollowedUri>,
    ) -> BoxFuture<'a, Subscribed> {
        let (session, limit) = (self.session, self.timeout);
        #[allow(deprecated, reason = "revisions before 2026-07-28 have no other way")]
        let unsubscribe = move |one: FollowedUri| async move {
            let params = UnsubscribeRequestParams::new(one.inner);
            let _ = timeout(limit, session.peer.unsubscribe(params)).await;
        };
        #[allow(deprecated, reason = "revisions before 2026-07-28 have no other way")]
        let subscribe = move |one: FollowedUri| async move {
            let params = SubscribeRequestParams::new(one.inner.clone());
            let answer = timeout(limit, session.peer.subscribe(params)).await;
            (one, outcome(answer, session, limit).err())
        };
        async move {
            stream::iter(removed.clone())
                .map(unsubscribe)
                .buffer_unordered(CONCURRENT_SUBSCRIPTIONS)
                .collect::<()>()
                .await;
            let (mut accepted, mut failed, mut first_fault) = (BTreeSet::new(), BTreeSet::new(), None);
            let mut answers = stream::iter(added).map(subscribe).buffer_unordered(CONCURRENT_SUBSCRIPTIONS);
            while let Some((one, fault)) = answers.next().await {
                match fault {
                    None => accepted.insert(one),
                    Some(_) => failed.insert(one),
                };
                first_fault = first_fault.or(fault);
            }
            Subscribed { accepted, failed, removed, listening: None, fault: first_fault }
        }
        .boxed()
    }

    /// Records the outcome of [`change`](Self::change), and returns the subscriptions that were accepted.
    pub(crate) fn changed(&mut self, subscribed: Subscribed) -> BTreeSet<FollowedUri> {
        let Subscribed { accepted, failed, removed, listening, fault } = subscribed;
        if let Some(listening) = listening {
            // The previous stream is dropped only now, so that no notification is missed in between.
            self.listening = Some(listening);
        }
        self.active.retain(|one| !removed.contains(one));
        self.active.extend(accepted.iter().cloned());
        self.failed.retain(|one| !accepted.contains(one));
        self.failed.extend(failed);
        match fault {
            Some(fault) => self.failed_with(&fault),
            None if self.failed.is_empty() => (self.retry_at, self.pause) = (None, self.first_pause),
            None => {}
        }
        accepted
    }

    /// Schedules another attempt.
    fn failed_with(&mut self, fault: &RemoteFault) {
        let (server, subscriptions) = (self.server, self.failed.len());
        // Only the first failure is a warning, until the server has accepted all subscriptions.
        match self.pause == self.first_pause {
            true => tracing::warn!(
                server,
                subscriptions,
                %fault,
                "an MCP server did not accept subscriptions; they are requested again"
            ),
            false => {
                tracing::debug!(server, subscriptions, %fault, "an MCP server did not accept subscriptions");
            }
        }
        self.retry_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// The next notification of the `subscriptions/listen` stream; `None` if the stream ended. Without a stream, this
    /// never completes.
    pub(crate) async fn listen(&mut self) -> Option<UpstreamNotification> {
        let Some(listening) = &mut self.listening else { return std::future::pending().await };
        loop {
            match listening.next().await {
                Ok(Some(ServerNotification::ResourceUpdatedNotification(updated))) => {
                    return Some(UpstreamNotification::Updated(updated.params.uri));
                }
                Ok(Some(ServerNotification::ResourceListChangedNotification(_))) => {
                    return Some(UpstreamNotification::ListChanged);
                }
                Ok(Some(
                    ServerNotification::PromptListChangedNotification(_)
                    | ServerNotification::ToolListChangedNotification(_),
                )) => return Some(UpstreamNotification::FeaturesChanged),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

/// The answer to a request, or why there is none.
fn outcome<T>(
    answer: Result<Result<T, ServiceError>, tokio::time::error::Elapsed>,
    session: &UpstreamSession,
    limit: Duration,
) -> Result<T, RemoteFault> {
    match answer {
        Ok(answer) => answer.map_err(|error| session.fault(error, limit)),
        Err(_) => Err(RemoteFault::Silent(limit)),
    }
}
