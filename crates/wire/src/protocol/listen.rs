//! `subscriptions/listen` and the encoding of notifications.

use std::collections::HashSet;

use futures_core::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{CONTENT_BUDGET_FULL, Protocol};
use crate::content_budget::Outgoing;
use crate::envelope::{Framed, Id};
use crate::failure::{ErrorObject, INTERNAL_ERROR};
use crate::members::Members;
use crate::request::ListenFilter;
use crate::service::{Listener, Notification, ServiceView};
use crate::{Call, Failure};

/// `subscriptions/listen` yields to other tasks each time it has subscribed to this many bytes of URIs: about 50 µs of
/// work.
const SUBSCRIBED_AT_ONCE: usize = 4 << 10;

/// `subscriptions/listen` yields to other tasks each time it has searched this many bytes of URIs for duplicates: about
/// 50 µs of work.
const COMPARED_AT_ONCE: usize = 64 << 10;

impl Protocol {
    /// Opens the stream of `subscriptions/listen`. The stream sends the acknowledgement with the granted subscriptions,
    /// then notifications. Once `closing` is cancelled or the caller's credentials expire or are revoked, it sends the
    /// result of the request, and ends.
    pub(crate) async fn listen(
        &self,
        call: &Call,
        id: &Id,
        filter: &ListenFilter,
        closing: CancellationToken,
    ) -> Result<BoxStream<'static, Outgoing>, ErrorObject> {
        let revision = call.revision;
        let listener = call.view.listener(call.client).map_err(|failure| failure.object(revision))?;
        // Queues a notification of a change that the client may have missed before it opened this stream.
        let notify_first = |notification| {
            if call.view.notifies_new_streams() {
                listener.requeue(notification);
            }
        };
        let mut granted = json!({});
        if filter.list {
            listener.follow_list().await.map_err(|failure| failure.object(revision))?;
            notify_first(Notification::ListChanged);
            granted["resourcesListChanged"] = true.into();
        }
        if filter.prompts && call.view.capabilities().prompts.is_some() {
            listener.follow_prompts().await.map_err(|failure| failure.object(revision))?;
            granted["promptsListChanged"] = true.into();
        }
        let tools = call.view.capabilities().tools;
        if filter.tools && tools.is_some_and(|tools| tools["listChanged"] == true) {
            listener.follow_tools().await.map_err(|failure| failure.object(revision))?;
            granted["toolsListChanged"] = true.into();
        }
        let uris = distinct(&filter.resources).await;
        listener.reserve(&uris).await.map_err(|failure| failure.object(revision))?;
        let mut resources = Vec::new();
        let mut since_yield = 0;
        for uri in uris {
            since_yield += uri.len();
            if since_yield >= SUBSCRIBED_AT_ONCE {
                since_yield = 0;
                tokio::task::yield_now().await;
            }
            match listener.subscribe(uri).await {
                Ok(()) => {
                    notify_first(Notification::Updated(uri.into()));
                    resources.push(uri);
                }
                Err(Failure::NotFound { .. } | Failure::Invalid { .. }) => {}
                Err(failure) => return Err(failure.object(revision)),
            }
        }
        // Releases what is left of the reservation: the part for unknown resources, which have no subscription.
        listener.reserve(&[]).await.map_err(|failure| failure.object(revision))?;
        if !resources.is_empty() {
            granted["resourceSubscriptions"] = json!(resources);
        }
        let subscription =
            format!("\"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":{}}}", id.as_json());
        let acknowledged = Framed::whole(format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\
             \"params\":{{{subscription},\"notifications\":{granted}}}}}"
        ));
        let acknowledged = match &call.memory {
            None => Outgoing::from(acknowledged),
            Some(memory) => match memory.lease_for(&acknowledged).await {
                Some(lease) => Outgoing { framed: acknowledged, lease: Some(lease) },
                None => return Err(ErrorObject::new(INTERNAL_ERROR, CONTENT_BUDGET_FULL)),
            },
        };
        let goodbye = format!("\"resultType\":\"complete\",{subscription}");
        let ended = Framed::result(id, Members::NONE, format!(",{goodbye}}}}}").into());
        let notifications = stream::unfold(listener, move |listener| {
            let subscription = subscription.clone();
            async move {
                let next = listener.next().await;
                Some((Outgoing::from(notification(&next, &subscription)), listener))
            }
        });
        let authentication_ended = authentication_ended(&*call.view);
        let notifications = notifications.take_until(async move {
            tokio::select! {
                () = closing.cancelled() => {}
                () = authentication_ended => {}
            }
        });
        Ok(stream::iter([acknowledged])
            .chain(notifications)
            .chain(stream::iter([Outgoing::from(ended)]))
            .boxed())
    }
}

/// Completes when the credentials of the view's caller expire or are revoked; never if that cannot happen.
pub(crate) fn authentication_ended(view: &dyn ServiceView) -> impl Future<Output = ()> + Send + 'static {
    let ended = view.authentication_ended();
    async move {
        match ended {
            Some(ended) => ended.await,
            None => std::future::pending().await,
        }
    }
}

/// Encodes a notification. `meta` is the `_meta` member of its parameters as JSON, or empty.
pub(crate) fn notification(content: &Notification, meta: &str) -> Framed {
    let (method, members) = match content {
        Notification::ListChanged => ("resources/list_changed", meta.to_owned()),
        Notification::PromptsChanged => ("prompts/list_changed", meta.to_owned()),
        Notification::ToolsChanged => ("tools/list_changed", meta.to_owned()),
        Notification::Updated(uri) => {
            let comma = if meta.is_empty() { "" } else { "," };
            let uri = Value::from(&**uri);
            ("resources/updated", format!("{meta}{comma}\"uri\":{uri}"))
        }
    };
    let params = if members.is_empty() { String::new() } else { format!(",\"params\":{{{members}}}") };
    Framed::whole(format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{method}\"{params}}}"))
}

/// The URIs without duplicates: a repeated URI is one subscription, and is acknowledged once.
async fn distinct(uris: &[String]) -> Vec<&str> {
    let mut seen = HashSet::new();
    let mut distinct = Vec::new();
    let mut since_yield = 0;
    for uri in uris {
        since_yield += uri.len();
        if since_yield >= COMPARED_AT_ONCE {
            since_yield = 0;
            tokio::task::yield_now().await;
        }
        if seen.insert(uri) {
            distinct.push(uri.as_str());
        }
    }
    distinct
}

/// Subscribes the listener of a session to changes of the lists of resources, prompts and tools.
pub(crate) async fn follow_lists(listener: &dyn Listener) {
    let followed = async {
        listener.follow_list().await?;
        listener.follow_prompts().await?;
        listener.follow_tools().await
    };
    if let Err(failure) = followed.await {
        tracing::warn!(
            ?failure,
            "could not subscribe the client to changes of the lists of resources, prompts and tools"
        );
    }
}
