//! The HTTP client of the OAuth flow. The MCP server chooses the URLs that this client requests, such as that of the
//! authorization server. To prevent SSRF, the client refuses addresses in networks that are more private than that of
//! the MCP server.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::LOCATION;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;
use libris_core::address::{is_public, without_embedding};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture,
    OAuthHttpRedirectPolicy, OAuthHttpRequest,
};
use tower_service::Service;
use url::Url;

use crate::http::connector;

/// The largest response.
const MAX_BODY: usize = 1 << 20;

/// The maximum number of redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// The default timeout of a request, with its redirects and the body.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The OAuth state machine for the MCP server at `url`.
pub(super) async fn manager(url: &str) -> Result<AuthorizationManager, AuthError> {
    let client = OauthHttp::new(url).await.map_err(|cause| AuthError::InternalError(cause.to_string()))?;
    AuthorizationManager::new_with_oauth_http_client(url, Arc::new(client)).await
}

/// Which addresses OAuth requests may reach, depending on the network of the MCP server (protection against SSRF): for
/// a server on the internet only public addresses, for one in a private network also private addresses, and for one on
/// this machine also loopback addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressReach {
    Public,
    PrivateNetwork,
    ThisMachine,
}

impl AddressReach {
    /// The network of the server, from its resolved addresses; the most private one if they differ.
    async fn of(url: &Url) -> io::Result<Self> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port_or_known_default().unwrap_or(443);
        let addresses = tokio::net::lookup_host((host, port)).await?;
        let networks = addresses.map(|address| match without_embedding(address.ip()) {
            address if address.is_loopback() => Self::ThisMachine,
            address if is_private(address) => Self::PrivateNetwork,
            _ => Self::Public,
        });
        Ok(networks.max_by_key(|reach| *reach as u8).unwrap_or(Self::Public))
    }

    fn allows(self, address: IpAddr) -> bool {
        let address = without_embedding(address);
        is_public(address)
            || (self != Self::Public && is_private(address))
            || (self == Self::ThisMachine && address.is_loopback())
    }
}

/// Whether an address belongs to a private network (RFC 1918, or an IPv6 unique local address). Loopback and link-local
/// addresses, such as those of cloud metadata services, do not.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

fn forbidden() -> io::Error {
    io::Error::other("the OAuth flow leads to an address that is not allowed for this MCP server")
}

/// The DNS resolver of the client, which drops the addresses that are not allowed.
impl Service<Name> for AddressReach {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let reach = *self;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<_> = found.filter(|address| reach.allows(address.ip())).collect();
            if allowed.is_empty() { Err(forbidden()) } else { Ok(allowed.into_iter()) }
        })
    }
}

struct OauthHttp {
    client: Client<HttpsConnector<HttpConnector<AddressReach>>, Full<Bytes>>,
    reach: AddressReach,
}

impl OauthHttp {
    async fn new(url: &str) -> Result<Self, OAuthHttpClientError> {
        let reach = AddressReach::of(&Url::parse(url)?).await?;
        let connector = connector(HttpConnector::new_with_resolver(reach), TIMEOUT, true)?;
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, reach })
    }

    /// Sends a request. Redirects are followed only for GET, and only if rmcp asks for it; each target is checked.
    async fn fetch(&self, request: OAuthHttpRequest) -> Result<Response<Vec<u8>>, OAuthHttpClientError> {
        let is_followed = request.redirect_policy == OAuthHttpRedirectPolicy::Follow
            && request.request.method() == Method::GET;
        let (mut parts, body) = request.request.into_parts();
        for _ in 0..=MAX_REDIRECTS {
            self.check(&parts.uri)?;
            let mut request = Request::new(Full::new(Bytes::from(body.clone())));
            *request.method_mut() = parts.method.clone();
            *request.uri_mut() = parts.uri.clone();
            *request.headers_mut() = parts.headers.clone();
            let response = self.client.request(request).await?;
            if !(is_followed && response.status().is_redirection()) {
                let (head, body) = response.into_parts();
                let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
                return Ok(Response::from_parts(head, body.into()));
            }
            let location = response.headers().get(LOCATION).map(HeaderValue::to_str).transpose()?;
            let target = Url::parse(&parts.uri.to_string())?.join(location.unwrap_or_default())?;
            parts.uri = target.as_str().parse()?;
        }
        Err(io::Error::other(format!("more than {MAX_REDIRECTS} redirects in the OAuth flow")).into())
    }

    /// Refuses a forbidden IP literal, for which the client calls no resolver.
    fn check(&self, uri: &Uri) -> io::Result<()> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        match host.parse::<IpAddr>() {
            Ok(address) if !self.reach.allows(address) => Err(forbidden()),
            _ => Ok(()),
        }
    }
}

impl OAuthHttpClient for OauthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        let limit = request.timeout.unwrap_or(TIMEOUT);
        Box::pin(async move {
            match tokio::time::timeout(limit, self.fetch(request)).await {
                Ok(response) => response,
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::AddressReach;

    #[tokio::test]
    async fn requests_go_no_nearer_than_the_server_is() {
        let allowed = async |url: &str| {
            let reach = AddressReach::of(&Url::parse(url).unwrap()).await.unwrap();
            ["1.1.1.1", "10.0.0.1", "fd00::1", "127.0.0.1", "::1", "169.254.169.254", "0.0.0.0"]
                .map(|address| u8::from(reach.allows(address.parse().unwrap())))
        };
        assert_eq!(allowed("https://1.1.1.1/mcp").await, [1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(allowed("https://10.1.2.3/mcp").await, [1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(allowed("http://127.0.0.1:1/mcp").await, [1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(allowed("http://[::1]:1/mcp").await, [1, 1, 1, 1, 1, 0, 0]);
    }
}
