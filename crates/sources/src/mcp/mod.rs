//! Other MCP servers in the configuration file and on the command line. `libris-remote` speaks to them.

mod config;
mod definition;

pub use config::{Config, MountedUris};
pub use definition::ServerDefinition;
pub use libris_remote::{Login, LoginOptions, Remote, ServerIdentity, TokenStore};
