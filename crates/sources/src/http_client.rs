//! The HTTP/1.1 client with TLS and a connection pool that the sources for HTTP APIs share.

use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// How long an idle connection stays open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The `User-Agent` of all requests.
pub(crate) const USER_AGENT: &str = concat!("libris/", env!("CARGO_PKG_VERSION"));

/// A client that resolves names with the resolver `R` and sends bodies of the type `B`.
pub(crate) type HttpClient<R, B> = Client<HttpsConnector<HttpConnector<R>>, B>;

/// The builder of a client, with the settings that all clients share. It follows no redirects.
pub(crate) fn builder() -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT);
    builder
}

/// The connector of a client, for `http` and `https` URLs. If `secure`, it verifies certificates with the trust store
/// of the system. Otherwise it trusts no certificate, so that plain HTTP works on systems without a trust store.
pub(crate) fn connector<R>(
    mut tcp: HttpConnector<R>,
    connect_timeout: Duration,
    secure: bool,
) -> Result<HttpsConnector<HttpConnector<R>>, rustls::Error> {
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_timeout));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls(secure)?).https_or_http().enable_http1();
    Ok(connector.wrap_connector(tcp))
}

/// The TLS configuration. The crypto provider is explicit, because another library could change the default of the
/// process.
fn tls(secure: bool) -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = match secure {
        true => config.with_platform_verifier()?,
        false => config.with_root_certificates(rustls::RootCertStore::empty()),
    };
    Ok(config.with_no_client_auth())
}
