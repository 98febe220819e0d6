//! OAuth: access tokens that a person obtained by a login, stored for each server and renewed when they expire.
//!
//! The state machine is that of rmcp. Here are the files with the tokens, the HTTP client, and the login in a browser.

mod http_client;
mod login;
mod token_store;

use rmcp::transport::auth::{AuthClient, AuthError};

pub use login::{Login, LoginOptions};
pub use token_store::TokenStore;

use crate::fault::{RemoteFault, quoted};
use crate::http::UpstreamHttp;
use http_client::manager;

/// A client that sends the stored token of a server, and renews it.
pub(crate) async fn with_stored_token(
    client: UpstreamHttp,
    url: &str,
    tokens: &TokenStore,
) -> Result<AuthClient<UpstreamHttp>, RemoteFault> {
    let file = tokens.file(url).map_err(|cause| RemoteFault::Token(quoted(&cause.to_string())))?;
    let unusable = |error: AuthError| RemoteFault::Token(quoted(&error.to_string()));
    let mut manager = manager(url).await.map_err(unusable)?;
    manager.set_credential_store(file);
    // An authorization server that is down must not matter while the token is valid.
    if let Err(error) = manager.initialize_from_store().await {
        tracing::debug!(%error, "the stored access token cannot be renewed");
    }
    Ok(AuthClient::new(client, manager))
}
