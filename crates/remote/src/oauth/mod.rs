//! OAuth: access tokens that a user obtained with `libris login`, stored per server and refreshed when they expire.
//!
//! The state machine of the protocol is in rmcp. These modules add the token files, the HTTP client, and the login in a
//! browser.

mod http_client;
mod login;
mod token_store;

use rmcp::transport::auth::{AuthClient, AuthError};

pub use login::{Login, LoginOptions};
pub use token_store::TokenStore;

use crate::fault::{RemoteFault, quoted};
use crate::http::UpstreamHttp;
use http_client::manager;

/// Wraps a client so that it sends the stored token for `url`, and refreshes the token.
pub(crate) async fn with_stored_token(
    client: UpstreamHttp,
    url: &str,
    tokens: &TokenStore,
) -> Result<AuthClient<UpstreamHttp>, RemoteFault> {
    let file = tokens.file(url).map_err(|cause| RemoteFault::Token(quoted(&cause.to_string())))?;
    let unusable = |error: AuthError| RemoteFault::Token(quoted(&error.to_string()));
    let mut manager = manager(url).await.map_err(unusable)?;
    manager.set_credential_store(file);
    // This may contact the authorization server. If that is down, the stored token still works until it expires.
    if let Err(error) = manager.initialize_from_store().await {
        tracing::debug!(%error, "the stored access token cannot be renewed");
    }
    Ok(AuthClient::new(client, manager))
}
