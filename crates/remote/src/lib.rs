//! Other MCP servers (upstream servers) as sources.
//!
//! A [`Remote`] is a [`Source`](libris_core::Source) whose resources are those of an MCP server, which it starts as a
//! child process or reaches over HTTP. In this crate, "the server" is always this upstream server. It is not trusted:
//! sizes, pages and times are limited, and a malformed message fails only the request that it answers.
//! [`ResourceClient`] reads the resources of any source with a few lines of code.
//!
//! This crate is the only one that speaks MCP as a client, through `rmcp`.

mod cancellation;
mod config;
mod convert;
mod decode;
mod directory;
mod fault;
mod followed;
mod http;
mod input_required;
mod inventory;
mod json_weight;
mod link;
mod listing;
mod mount;
mod oauth;
mod prompt_list;
mod read_breaker;
mod remote;
mod resource_client;
mod skill_list;
mod stdio;
mod tool_list;
mod upstream_subscriber;
mod upstream_watch;

pub use config::{Callers, ChildEnvironment, ProtocolChoice, RemoteConfig, RemoteLimits, RemoteTarget};
pub use link::ServerIdentity;
pub use mount::UriMount;
pub use oauth::{Login, LoginOptions, TokenStore};
pub use remote::Remote;
pub use resource_client::{ParsedContent, ResourceClient};
