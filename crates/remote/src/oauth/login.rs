//! The login of a user in a browser. The authorization server then redirects the browser to a port on this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use libris_core::{Error, Result};
use rmcp::transport::auth::{AuthError, AuthorizationRequest, AuthorizationSession};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use url::Url;

use super::http_client::manager;
use super::token_store::{TokenStore, canonical};
use crate::fault::quoted;

/// The path of the redirect URL.
const CALLBACK: &str = "/callback";

/// The maximum number of connections at once. A browser needs one or two.
const MAX_CONNECTIONS: usize = 8;

/// How long a connection may take to send its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The options of a [`Login`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginOptions {
    /// The scopes to request; if empty, those that the server names.
    pub scopes: Vec<String>,
    /// The id of a client that is registered with the authorization server; if `None`, a new client is registered.
    pub client_id: Option<String>,
    /// The port on 127.0.0.1 that receives the redirect; 0 for a free one.
    pub port: u16,
}

/// A login that waits for the user to complete it in the browser.
pub struct Login {
    session: AuthorizationSession,
    listener: TcpListener,
    address: SocketAddr,
    /// The OAuth parameter `state`, which the redirect must repeat, so that no other page can end the login (CSRF).
    state: String,
}

impl Login {
    /// Finds the authorization server, registers a client if needed, and opens the port for the redirect.
    pub async fn begin(url: &str, options: &LoginOptions, store: &TokenStore) -> Result<Self> {
        let url = canonical(url)?;
        let failed = |error: AuthError| refused(&url, &error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await;
        let listener = listener.map_err(|cause| Error::failed("listen for the browser", cause))?;
        let address =
            listener.local_addr().map_err(|cause| Error::failed("listen for the browser", cause))?;
        let mut manager = manager(url.as_str()).await.map_err(failed)?;
        manager.set_credential_store(store.file(url.as_str())?);
        let found = manager.resolve_metadata().await.map_err(failed)?;
        let is_published = found.source.is_discovered();
        manager.set_metadata(found.metadata);
        let mut request = AuthorizationRequest::new(format!("http://{address}{CALLBACK}"))
            .with_client_name("Libris")
            .with_initial_scope_selection()
            .with_scopes(options.scopes.iter().cloned());
        if let Some(client) = &options.client_id {
            request = request.with_preregistered_client(client);
        }
        match AuthorizationSession::new(manager, request).await {
            Ok(session) => {
                // The server chooses this URL, and with another scheme the browser could start another program.
                let page =
                    Url::parse(session.get_authorization_url()).map_err(|error| failed(error.into()))?;
                if !matches!(page.scheme(), "https" | "http") {
                    return Err(Error::Unavailable(format!(
                        "the server at `{url}` names a login page that is no web page: `{}`",
                        quoted(page.as_str())
                    )));
                }
                let state = query_value(session.get_authorization_url(), "state").unwrap_or_default();
                Ok(Self { session, listener, address, state })
            }
            Err((_, AuthError::RegistrationFailed(_))) if !is_published => Err(Error::Unavailable(format!(
                "the MCP server at `{url}` does not say where to log in; hint: see with `libris info` whether it requires authorization"
            ))),
            Err((_, AuthError::RegistrationFailed(cause))) => Err(Error::Unavailable(format!(
                "the authorization server registers no new clients: {}; hint: register one there and give its id with `--client-id`",
                quoted(&cause)
            ))),
            Err((_, error)) => Err(failed(error)),
        }
    }

    /// The URL of the login page, to be opened in a browser.
    pub fn url(&self) -> &str {
        self.session.get_authorization_url()
    }

    /// Waits until the user has completed the login, and stores the token.
    pub async fn finish(self) -> Result<()> {
        let redirected = self.redirected().await?;
        let url = format!("http://{}{redirected}", self.address);
        if let Some(reason) = refusal(&url) {
            return Err(Error::Unavailable(format!(
                "the authorization server refused the login: {reason}; hint: try again, or ask its administrator"
            )));
        }
        let outcome = self.session.handle_callback_url(&url).await;
        outcome.map(drop).map_err(|error| {
            Error::Unavailable(format!("the login failed: {}; hint: try again", quoted(&error.to_string())))
        })
    }

    /// Waits for the redirect, and returns its path and query.
    async fn redirected(&self) -> Result<String> {
        let (sender, mut outcome) = oneshot::channel();
        let expected =
            Arc::new(ExpectedCallback { state: self.state.clone(), sender: Mutex::new(Some(sender)) });
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let connection = tokio::select! {
                redirected = &mut outcome => {
                    return redirected.map_err(|cause| Error::failed("listen for the browser", cause));
                }
                accepted = self.listener.accept() => accepted,
            };
            let (stream, _) = connection.map_err(|cause| Error::failed("listen for the browser", cause))?;
            let Ok(permit) = connections.clone().try_acquire_owned() else { continue };
            let expected = expected.clone();
            tokio::spawn(async move {
                let _permit = permit;
                let answer = service_fn(|request| std::future::ready(answer(&request, &expected)));
                let mut server = http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).keep_alive(false);
                // Fails if the browser closes the connection.
                let _ = server.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    }
}

/// The redirect that ends a login.
struct ExpectedCallback {
    state: String,
    /// `None` after the redirect was received.
    sender: Mutex<Option<oneshot::Sender<String>>>,
}

/// Answers a request of the browser. The expected redirect is sent to the waiting login; others get a 404.
fn answer(
    request: &Request<Incoming>,
    expected: &ExpectedCallback,
) -> std::result::Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let target = request.uri().path_and_query().map(|target| target.as_str()).unwrap_or_default();
    let state = query_value(&format!("http://localhost{target}"), "state");
    let is_expected = request.uri().path() == CALLBACK && state.as_ref() == Some(&expected.state);
    let text = match is_expected {
        true => "Libris has the answer of the authorization server. You can close this page.\n",
        false => "Nothing is here.\n",
    };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !is_expected {
        *response.status_mut() = StatusCode::NOT_FOUND;
    } else if let Some(sender) = expected.sender.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // Fails if the login was cancelled.
        let _ = sender.send(target.to_owned());
    }
    Ok(response)
}

fn query_value(url: &str, name: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// The reason if the redirect reports an error instead of a code.
fn refusal(url: &str) -> Option<String> {
    let value = |name: &str| query_value(url, name).map(|value| quoted(&value));
    let error = value("error")?;
    Some(match value("error_description") {
        Some(description) => format!("{description} ({error})"),
        None => error,
    })
}

fn refused(url: &Url, error: &AuthError) -> Error {
    Error::Unavailable(format!("no login at `{url}` is possible: {}", quoted(&error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::refusal;

    #[test]
    fn a_refusal_is_distinguished_from_a_code() {
        assert_eq!(refusal("http://127.0.0.1:1/callback?code=1&state=2"), None);
        let denied = "http://127.0.0.1:1/callback?error=access_denied&error_description=Ada%20said%20no%1b";
        assert_eq!(refusal(denied).as_deref(), Some("Ada said no\\u{1b} (access_denied)"));
        assert_eq!(refusal("http://127.0.0.1:1/callback?error=x").as_deref(), Some("x"));
    }
}
