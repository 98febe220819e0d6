//! A service without resources, for unit tests.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    Answer, CacheableRequest, Call, Caller, Capabilities, Client, CompletionParams, Failure, Identity,
    Listener, Members, Refusal, Reply, Revision, ServerInfo, Service, ServiceView,
};

/// Has an empty result in its cache for every cacheable request, and refuses callers with credentials.
pub(crate) struct Empty;

#[async_trait]
impl Service for Empty {
    fn info(&self) -> ServerInfo {
        ServerInfo::default()
    }

    fn cached_view(&self, caller: &Caller<'_>) -> Option<Arc<dyn ServiceView>> {
        match caller.authorization {
            None => Some(Arc::new(Self)),
            Some(_) => None,
        }
    }

    async fn admit(&self, _: &Caller<'_>) -> Result<Arc<dyn ServiceView>, Refusal> {
        Err(Refusal::Forbidden { challenge: None, message: "nobody is known here".into() })
    }
}

#[async_trait]
impl ServiceView for Empty {
    fn caller(&self) -> Option<&Identity> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn cached(&self, _: Revision, _: CacheableRequest<'_>, _: Instant) -> Option<Answer> {
        Some(Ok(Reply { members: Members::NONE, freshness: None, meta: Bytes::new() }))
    }

    async fn list(&self, _: &Call, _: Option<&str>) -> Answer {
        Err(Failure::invalid("nothing is here"))
    }

    async fn templates(&self, _: &Call, _: Option<&str>) -> Answer {
        Err(Failure::invalid("nothing is here"))
    }

    async fn read(&self, _: &Call, _: &str) -> Answer {
        Err(Failure::invalid("nothing is here"))
    }

    async fn complete(&self, _: &Call, _: &CompletionParams) -> Answer {
        Err(Failure::invalid("nothing is here"))
    }

    fn listener(&self, _: Client) -> Result<Arc<dyn Listener>, Failure> {
        Err(Failure::invalid("nothing is here"))
    }
}
