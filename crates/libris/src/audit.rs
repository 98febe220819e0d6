//! The audit log: a record of each decision about a request.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use libris_core::{Client, Identity, Uri};
use libris_wire::{Answer, CacheableRequest, Call, Failure, Listener, Notification};
use serde::Serialize;

use crate::caller_view::CallerView;
use crate::rights::{Decision, Operation};
use crate::server::ServerInner;
use crate::view::View;

/// The destination of audit records. Its methods are called while requests are answered, so they must not block.
pub trait AuditLog: Send + Sync + 'static {
    /// Writes a record.
    fn record(&self, record: &AuditRecord<'_>);

    /// The number of records that could not be written, for the metrics.
    fn dropped(&self) -> usize;
}

/// A decision about a request. It has no credentials: an [`Identity`] holds none.
#[derive(Clone, Debug)]
pub struct AuditRecord<'a> {
    /// The caller; `None` if it is anonymous.
    pub who: Option<&'a Identity>,
    /// The IP address of the caller; `None` if the caller has an identity, or no known address.
    pub address: Option<IpAddr>,
    /// The operation: one that rules can name, or `templates`, `complete`, `directory`, `skills`, `skill`, `prompts`,
    /// `prompt`, `tool` (of a source) or `authenticate`.
    pub operation: &'static str,
    /// The resource or template, or the URI of a prompt or tool; `None` for a list.
    pub uri: Option<&'a str>,
    /// The decision.
    pub decision: AuditDecision,
    /// The number of the deciding rule, beginning with 1.
    pub rule: Option<usize>,
    /// Why an allowed request failed: `not found`, `invalid`, `busy`, `input required` or `failed`.
    pub failure: Option<&'static str>,
    /// The size of the result in bytes. For a folder that a route such as WebDAV lists, the number of its entries.
    pub bytes: usize,
    /// How long the request took.
    pub took: Duration,
}

/// The decision in an [`AuditRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditDecision {
    /// Allowed.
    Allow,
    /// Denied: the resource was hidden from the caller, or the caller was refused.
    Deny,
    /// Refused because the caller's access token lacks a scope.
    Require,
}

impl AuditDecision {
    fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Require => "require",
        }
    }
}

impl AuditRecord<'_> {
    /// The record as a line of JSON that ends with `\n`. `now` is the time of the record.
    pub fn json_line(&self, now: SystemTime) -> String {
        let milliseconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let time = jiff::Timestamp::from_millisecond(i64::try_from(milliseconds).unwrap_or_default());
        let line = AuditLine {
            time: time.unwrap_or_default().to_string(),
            who: self.who.map(Identity::name),
            address: self.address,
            operation: self.operation,
            uri: self.uri,
            decision: self.decision.name(),
            rule: self.rule,
            failure: self.failure,
            bytes: self.bytes,
            ms: self.took.as_micros() as f64 / 1_000.0,
        };
        // Cannot fail: the members are strings and numbers.
        let mut line = serde_json::to_string(&line).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// An [`AuditRecord`] as JSON.
#[derive(Serialize)]
struct AuditLine<'a> {
    time: String,
    who: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    operation: &'static str,
    uri: Option<&'a str>,
    decision: &'static str,
    rule: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'static str>,
    bytes: usize,
    ms: f64,
}

/// The request that a record is about, and its caller.
pub(crate) struct Audited<'a> {
    pub(crate) view: &'a View,
    pub(crate) client: Client,
    pub(crate) operation: &'static str,
    /// The operation whose rules apply to the URI; `None` if rules apply only to the items of the result, as in a list.
    pub(crate) right: Option<Operation>,
    pub(crate) uri: Option<&'a str>,
    /// The resource whose rules decide, if it is not the one at `uri`.
    pub(crate) decisive: Option<&'a Uri>,
    pub(crate) took: Duration,
}

impl ServerInner {
    /// Records the decision about a request, if there is an audit log.
    pub(crate) fn audit(&self, audited: &Audited<'_>, outcome: Result<usize, &Failure>) {
        let Some(log) = &self.audit else { return };
        let Audited { view, client, operation, right, uri, decisive, took } = *audited;
        let parsed = decisive.cloned().or_else(|| uri.and_then(|uri| Uri::parse(uri).ok()));
        let decided = right.zip(parsed.as_ref());
        let decision = match decided.map(|(right, uri)| view.snapshot().decide(right, uri)) {
            None | Some(Decision::Allow) => AuditDecision::Allow,
            Some(Decision::Deny) => AuditDecision::Deny,
            Some(Decision::Require(_)) => AuditDecision::Require,
        };
        let rule = decided
            .and_then(|(right, uri)| {
                let aliases = self.source.aliases(uri);
                self.access.policy().deciding_rule(view.identity(), right, uri, &aliases)
            })
            .map(|index| index + 1);
        let failure = outcome.err().filter(|_| decision == AuditDecision::Allow).map(failure_name);
        let bytes = outcome.unwrap_or_default();
        let (who, address) = (view.identity(), client.address());
        log.record(&AuditRecord { who, address, operation, uri, decision, rule, failure, bytes, took });
    }
}

impl CallerView {
    /// Records the decision about a request, if there is an audit log.
    pub(crate) fn audit(
        &self,
        call: &Call,
        operation: &'static str,
        right: Option<Operation>,
        uri: Option<&str>,
        answer: &Answer,
    ) {
        if self.inner.audit.is_some() {
            let (client, took) = (call.client, call.elapsed());
            let audited = Audited { view: &self.view, client, operation, right, uri, decisive: None, took };
            self.inner.audit(&audited, outcome(answer));
        }
    }

    /// Records that the contents of a resource are part of the response to another request, such as `prompts/get`, or
    /// were refused for it.
    pub(crate) fn audit_part(
        &self,
        call: &Call,
        uri: &str,
        took: Duration,
        outcome: Result<usize, &Failure>,
    ) {
        let (operation, right) = (Operation::Read.name(), Some(Operation::Read));
        let (view, client) = (&*self.view, call.client);
        let audited = Audited { view, client, operation, right, uri: Some(uri), decisive: None, took };
        self.inner.audit(&audited, outcome);
    }

    /// Records that a cached response was sent, except to an anonymous caller, whose address is not known here.
    pub(crate) fn audit_cached(&self, request: CacheableRequest<'_>, since: Instant, answer: &Answer) {
        let Some(client) = self.client.filter(|_| self.inner.audit.is_some()) else { return };
        let (operation, right, uri) = match request {
            CacheableRequest::List(_) => (Operation::List.name(), None, None),
            CacheableRequest::Templates(_) => ("templates", None, None),
            CacheableRequest::Read(uri) => {
                (Operation::Read.name(), Some(Operation::Read), Some(uri.to_owned()))
            }
            CacheableRequest::Complete { reference, .. } => ("complete", None, completed_template(reference)),
            CacheableRequest::Tools(_) => return,
            CacheableRequest::Tool { name, arguments } => {
                Self::audited_tool(name, arguments, &self.inner.config.tools)
            }
        };
        let (uri, took) = (uri.as_deref(), since.elapsed());
        let audited = Audited { view: &self.view, client, operation, right, uri, decisive: None, took };
        self.inner.audit(&audited, outcome(answer));
    }
}

/// The template in the member `ref` of a completion request; `None` for a prompt.
fn completed_template(reference: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct CompletedReference {
        uri: Option<String>,
    }
    serde_json::from_str::<CompletedReference>(reference).ok()?.uri
}

fn failure_name(failure: &Failure) -> &'static str {
    match failure {
        Failure::NotFound { .. } => "not found",
        Failure::Invalid { .. } => "invalid",
        Failure::Busy { .. } => "busy",
        Failure::InputRequired { .. } => "input required",
        _ => "failed",
    }
}

/// The size of a result in bytes, or the failure, for the audit log.
pub(crate) fn outcome(answer: &Answer) -> Result<usize, &Failure> {
    answer.as_ref().map(|reply| reply.members.size())
}

/// A listener that records its subscriptions in the audit log.
pub(crate) struct AuditedListener {
    pub(crate) listener: Arc<dyn Listener>,
    pub(crate) inner: Arc<ServerInner>,
    pub(crate) view: Arc<View>,
    pub(crate) client: Client,
}

#[async_trait]
impl Listener for AuditedListener {
    async fn follow_list(&self) -> Result<(), Failure> {
        self.listener.follow_list().await
    }

    async fn follow_prompts(&self) -> Result<(), Failure> {
        self.listener.follow_prompts().await
    }

    async fn follow_tools(&self) -> Result<(), Failure> {
        self.listener.follow_tools().await
    }

    fn listed(&self) {
        self.listener.listed();
    }

    async fn reserve(&self, uris: &[&str]) -> Result<(), Failure> {
        self.listener.reserve(uris).await
    }

    async fn subscribe(&self, uri: &str) -> Result<(), Failure> {
        let began = Instant::now();
        let subscribed = self.listener.subscribe(uri).await;
        let audited = Audited {
            view: &self.view,
            client: self.client,
            operation: Operation::Subscribe.name(),
            right: Some(Operation::Subscribe),
            uri: Some(uri),
            decisive: None,
            took: began.elapsed(),
        };
        self.inner.audit(&audited, subscribed.as_ref().map(|()| 0));
        subscribed
    }

    fn unsubscribe(&self, uri: &str) {
        self.listener.unsubscribe(uri);
    }

    async fn next(&self) -> Notification {
        self.listener.next().await
    }

    fn renew(&self, identity: Option<&Identity>) {
        self.listener.renew(identity);
    }

    fn requeue(&self, notification: Notification) {
        self.listener.requeue(notification);
    }
}

#[cfg(test)]
mod tests {
    use super::{AuditDecision, AuditRecord};
    use libris_core::Identity;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_record_is_one_line_whatever_a_client_sends() {
        let ada = Identity::new("ada\n\"x\"");
        let record = AuditRecord {
            who: Some(&ada),
            address: None,
            operation: "read",
            uri: Some("file:///a\nb"),
            decision: AuditDecision::Deny,
            rule: Some(2),
            failure: None,
            bytes: 0,
            took: Duration::from_micros(1_500),
        };
        assert_eq!(
            record.json_line(SystemTime::UNIX_EPOCH),
            "{\"time\":\"1970-01-01T00:00:00Z\",\"who\":\"ada\\n\\\"x\\\"\",\"operation\":\"read\",\
             \"uri\":\"file:///a\\nb\",\"decision\":\"deny\",\"rule\":2,\"bytes\":0,\"ms\":1.5}\n"
        );
    }
}
