//! The login of a person in a browser, whose outcome the authorization server sends to a port of this machine.

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

/// The path to which the browser is sent back.
const CALLBACK: &str = "/callback";

/// The most connections at once. A browser needs one or two.
const MAX_CONNECTIONS: usize = 8;

/// How long a connection may take to send its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How a [`Login`] identifies itself and what it asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginOptions {
    /// The scopes to ask for. Empty: those that the server names.
    pub scopes: Vec<String>,
    /// The id of a client that was registered with the authorization server. `None`: registers one.
    pub client_id: Option<String>,
    /// The port of this machine to which the browser is sent back; 0 for a free one.
    pub port: u16,
}

/// A login that waits for a person.
pub struct Login {
    session: AuthorizationSession,
    listener: TcpListener,
    address: SocketAddr,
    /// What the authorization server sends back, so that no other page can end the login.
    state: String,
}

impl Login {
    /// Asks the server where to log in.
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
                // It is given to the browser, which would start other programs for other schemes.
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

    /// The page on which the person logs in.
    pub fn url(&self) -> &str {
        self.session.get_authorization_url()
    }

    /// Waits until the person has agreed, and stores the token.
    pub async fn finish(self) -> Result<()> {
        let redirected = self.redirected().await?;
        let url = format!("http://{}{redirected}", self.address);
        if let Some(reason) = refusal(&url) {
            return Err(Error::Unavailable(format!("the authorization server refused the login: {reason}")));
        }
        let outcome = self.session.handle_callback_url(&url).await;
        outcome.map(drop).map_err(|error| {
            Error::Unavailable(format!("the login failed: {}; hint: try again", quoted(&error.to_string())))
        })
    }

    /// The path and query to which the browser was sent back.
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
                // The browser may go away.
                let _ = server.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    }
}

/// The request that ends a login.
struct ExpectedCallback {
    state: String,
    /// Until the request has come.
    sender: Mutex<Option<oneshot::Sender<String>>>,
}

/// The page that the browser shows at the end.
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
        // Fails if the login was given up.
        let _ = sender.send(target.to_owned());
    }
    Ok(response)
}

fn query_value(url: &str, name: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// The reason that the authorization server gives for a refusal.
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
    fn a_refusal_is_told_from_a_code() {
        assert_eq!(refusal("http://127.0.0.1:1/callback?code=1&state=2"), None);
        let denied = "http://127.0.0.1:1/callback?error=access_denied&error_description=Ada%20said%20no%1b";
        assert_eq!(refusal(denied).as_deref(), Some("Ada said no\\u{1b} (access_denied)"));
        assert_eq!(refusal("http://127.0.0.1:1/callback?error=x").as_deref(), Some("x"));
    }
}
