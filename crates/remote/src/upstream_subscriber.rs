//! Subscribes to resources of a server, once per followed resource however many clients follow it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, StreamExt as _};
use rmcp::model::{ServerNotification, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams};
use rmcp::service::Subscription;
use tokio::time::timeout;

use crate::config::RemoteConfig;
use crate::link::{UpstreamNotification, UpstreamSession};
use crate::upstream_watch::FollowedUri;

/// The maximum number of concurrent requests to subscribe or unsubscribe.
const CONCURRENT_SUBSCRIPTIONS: usize = 8;

/// The subscriptions of a connection.
pub(crate) struct UpstreamSubscriber<'a> {
    session: &'a Arc<UpstreamSession>,
    timeout: Duration,
    active: BTreeSet<FollowedUri>,
    /// The open `subscriptions/listen` stream.
    listening: Option<Subscription>,
    /// The lists whose changes the server reports on the stream, so that it is needed even if no resource is followed.
    lists: SubscriptionFilter,
    /// Whether the server refused `subscriptions/listen`, or did not answer in time. Then the request is not repeated
    /// on this connection.
    is_refused: bool,
}

/// The outcome of [`UpstreamSubscriber::change`].
pub(crate) struct Subscribed {
    wanted: BTreeSet<FollowedUri>,
    listening: Option<Subscription>,
    is_refused: bool,
}

impl<'a> UpstreamSubscriber<'a> {
    pub(crate) fn new(session: &'a Arc<UpstreamSession>, config: &RemoteConfig) -> Self {
        let mut lists = SubscriptionFilter::new();
        if session.is_modern() {
            lists.resources_list_changed = session.reports_list_changes().then_some(true);
            lists.prompts_list_changed = (config.prompts && session.reports_prompt_changes()).then_some(true);
            lists.tools_list_changed = (config.tools && session.reports_tool_changes()).then_some(true);
        }
        let timeout = config.limits.timeout;
        Self { session, timeout, active: BTreeSet::new(), listening: None, lists, is_refused: false }
    }

    /// Starts the requests that make `wanted` the active subscriptions; `None` if they are already.
    pub(crate) fn change(&self, wanted: BTreeSet<FollowedUri>) -> Option<BoxFuture<'a, Subscribed>> {
        let wanted = if self.session.supports_subscriptions() { wanted } else { BTreeSet::new() };
        let (session, limit) = (self.session, self.timeout);
        if session.is_modern() {
            let needs_listening = self.lists != SubscriptionFilter::default();
            let is_listening = self.listening.is_some() || !needs_listening && wanted.is_empty();
            if self.is_refused || (is_listening && wanted == self.active) {
                return None;
            }
            let mut filter = self.lists.clone();
            filter.resource_subscriptions =
                (!wanted.is_empty()).then(|| wanted.iter().map(|one| one.inner.clone()).collect());
            return Some(
                async move {
                    let listening = match timeout(limit, session.peer.listen(filter)).await {
                        Ok(Ok(listening)) => Some(listening),
                        Ok(Err(error)) => {
                            let fault = session.fault(error, limit);
                            tracing::warn!(%fault, "an MCP server refused subscriptions");
                            None
                        }
                        Err(_) => None,
                    };
                    let is_refused = listening.is_none();
                    Subscribed { wanted, listening, is_refused }
                }
                .boxed(),
            );
        }
        if wanted == self.active {
            return None;
        }
        let removed: Vec<_> = self.active.difference(&wanted).cloned().collect();
        let added: Vec<_> = wanted.difference(&self.active).cloned().collect();
        Some(
            async move {
                #[allow(deprecated, reason = "revisions before 2026-07-28 have no other way")]
                let unsubscribe = |one: FollowedUri| async move {
                    let params = UnsubscribeRequestParams::new(one.inner);
                    let _ = timeout(limit, session.peer.unsubscribe(params)).await;
                };
                #[allow(deprecated, reason = "revisions before 2026-07-28 have no other way")]
                let subscribe = |one: FollowedUri| async move {
                    let params = SubscribeRequestParams::new(one.inner);
                    if let Ok(Err(error)) = timeout(limit, session.peer.subscribe(params)).await {
                        let fault = session.fault(error, limit);
                        tracing::warn!(%fault, "an MCP server refused a subscription");
                    }
                };
                stream::iter(removed)
                    .map(unsubscribe)
                    .buffer_unordered(CONCURRENT_SUBSCRIPTIONS)
                    .collect::<()>()
                    .await;
                stream::iter(added)
                    .map(subscribe)
                    .buffer_unordered(CONCURRENT_SUBSCRIPTIONS)
                    .collect::<()>()
                    .await;
                Subscribed { wanted, listening: None, is_refused: false }
            }
            .boxed(),
        )
    }

    /// Records the outcome of [`change`](Self::change), and returns the added subscriptions.
    pub(crate) fn changed(&mut self, subscribed: Subscribed) -> Vec<FollowedUri> {
        self.is_refused |= subscribed.is_refused;
        if let Some(listening) = subscribed.listening {
            // The previous stream is dropped only now, so that no notification is missed in between.
            self.listening = Some(listening);
        }
        let added = subscribed.wanted.difference(&self.active).cloned().collect();
        self.active = subscribed.wanted;
        added
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
