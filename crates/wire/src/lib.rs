//! MCP on the wire: envelope, revisions, sessions, stdio and Streamable HTTP.
//!
//! This crate implements the protocol and knows nothing of the resources. It parses requests, calls a [`Service`] for
//! the encoded `result`, and frames the response. Every difference between protocol revisions is a field of [`Facts`];
//! no other code compares versions.

mod app;
mod call;
mod content_budget;
#[cfg(test)]
mod empty;
mod envelope;
mod failure;
pub mod http;
mod json;
mod lines;
mod lock;
mod members;
mod offload;
mod output;
mod pipes;
mod pool;
mod prefix;
mod protocol;
mod request;
mod revision;
mod service;
#[cfg(target_os = "linux")]
mod splice_cache;
pub mod stdio;
mod time_limit;

pub use app::{APP_MEDIA_TYPE, APPS_EXTENSION, AppPage};
pub use call::Call;
pub use failure::Failure;
pub use libris_core::{Authentication, Budget, Client, Identity, Lease};
pub use members::{Members, Writer, escape};
pub use prefix::{PrefixEntry, PrefixPage};
pub use revision::{Era, Facts, Revision};
pub use service::{
    Answer, CacheableRequest, Caller, Capabilities, Channel, CompletionParams, Listener, Notification,
    Reference, Refusal, Reply, ServerInfo, Service, ServiceView,
};

/// Limits that apply to every transport.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest message that is accepted, in bytes.
    pub message: usize,
    /// The maximum number of concurrent requests of one stdio connection, or of one session over HTTP.
    pub in_flight: usize,
    /// The maximum number of messages in a batch.
    pub batch: usize,
    /// The time limit of a request, from its arrival on. If the request waits for memory, the limit starts anew when the
    /// memory is granted.
    pub time: std::time::Duration,
    /// The memory budget of contents, in bytes. A content counts from before it is loaded until its response is sent.
    /// Over HTTP, one client may use three quarters of the budget.
    pub content_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: 4 << 20,
            in_flight: 32,
            batch: 64,
            time: std::time::Duration::from_secs(60),
            content_bytes: 60 << 20,
        }
    }
}
