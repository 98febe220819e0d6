//! Authenticates callers: OAuth 2.1 access tokens (this server is the resource server), API keys, client certificates,
//! the local user.
//!
//! An [`Authenticator`] maps a [`Caller`](libris_wire::Caller) to an [`Identity`](libris_core::Identity), or to a
//! [`Refusal`](libris_wire::Refusal) with the `WWW-Authenticate` challenge for the client. It knows nothing of
//! resources and rights.

mod api_keys;
mod authenticator;
mod bearer;
mod certificate;
mod config;
mod discovery;
mod issuer;
mod jwt;
mod key_set;
mod local_user;
mod metadata;
mod remembered;
mod ring_verifier;
mod secret;
#[cfg(all(test, target_os = "linux"))]
mod without_descriptors;

pub use api_keys::{ApiKey, KeyFile, KeyFileError, NewKey};
pub use authenticator::Authenticator;
pub use config::{AuthConfig, ConfigError, IssuerConfig, JwtAlgorithm};
pub use local_user::local_user;
pub use metadata::ProtectedResource;
pub use secret::Secret;
