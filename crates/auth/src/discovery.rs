//! Fetches the key set of an issuer, from a URL, a file, or the URL that the issuer's metadata names.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use libris_core::regular_file;
use rustls_platform_verifier::BuilderVerifierExt as _;
use serde::Deserialize;
use url::Url;

use crate::config::{IssuerConfig, is_secure};
use crate::key_set::KeySet;

/// The largest accepted metadata document or key set, in bytes.
const MAX_DOCUMENT: usize = 256 << 10;

/// The time limit for fetching a key set, including its discovery.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Where a key set comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KeySetLocation {
    Url(Url),
    File(PathBuf),
    /// The `jwks_uri` in the metadata of the issuer with this URL.
    Discovered(Url),
}

impl KeySetLocation {
    /// The location of an issuer's key set. The configuration must have passed `AuthConfig::check`.
    pub(crate) fn of(config: &IssuerConfig) -> Result<Self, url::ParseError> {
        Ok(match &config.jwks {
            None => Self::Discovered(Url::parse(&config.issuer)?),
            Some(url) if url.contains("://") => Self::Url(Url::parse(url)?),
            Some(path) => Self::File(path.into()),
        })
    }
}

/// Why a key set could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("could not reach `{0}`; hint: check the URL, and that this machine can reach it")]
    Unreachable(String, #[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("`{0}` answered with status {1}; hint: check the `issuer` or `jwks` in the configuration")]
    Status(String, StatusCode),
    #[error(
        "the answer of `{0}` is too large or was cut off; hint: check the `issuer` or `jwks` in the configuration"
    )]
    Body(String),
    #[error(
        "`{0}` is not the metadata of this issuer; hint: write `issuer` exactly as its metadata does, or set `jwks`"
    )]
    Metadata(String),
    #[error("`{0}` is not a key set; hint: set `jwks` to the URL or the file of a JSON Web Key Set")]
    KeySet(String, #[source] serde_json::Error),
    #[error("could not read `{0}`; hint: check the path in `jwks`")]
    File(PathBuf, #[source] io::Error),
    #[error("no answer within {} seconds; hint: check that this machine can reach the issuer", TIME_LIMIT.as_secs())]
    Slow,
}

/// The members of an issuer's metadata that discovery uses.
#[derive(Deserialize)]
struct IssuerMetadata {
    issuer: String,
    jwks_uri: String,
}

/// An HTTP client for the documents of issuers. It follows no redirects.
#[derive(Clone)]
pub(crate) struct DocumentClient(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl DocumentClient {
    /// Creates a client. If `secure` is true, the client trusts the certificate authorities of the system; this fails
    /// on a machine without any. If `secure` is false, the client trusts none, so requests to `https` URLs fail.
    pub(crate) fn new(secure: bool) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = match secure {
            true => config.with_platform_verifier()?,
            false => config.with_root_certificates(rustls::RootCertStore::empty()),
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(TIME_LIMIT / 2));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config.with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        // Requests are rare, so idle connections are closed.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self(client))
    }

    /// Fetches the key set of an issuer. `settings` are part of the [fingerprints](KeySet::parse) of the keys.
    pub(crate) async fn key_set(
        &self,
        issuer: &str,
        location: &KeySetLocation,
        settings: &str,
    ) -> Result<KeySet, FetchError> {
        let fetched = tokio::time::timeout(TIME_LIMIT, self.fetch(issuer, location)).await;
        let (shown, text) = fetched.map_err(|_| FetchError::Slow)??;
        KeySet::parse(text, settings).map_err(|cause| FetchError::KeySet(shown, cause))
    }

    /// The URL or path of a key set, for error messages, and its text.
    async fn fetch(&self, issuer: &str, location: &KeySetLocation) -> Result<(String, Vec<u8>), FetchError> {
        Ok(match location {
            KeySetLocation::File(path) => (
                path.display().to_string(),
                regular_file::read(path, MAX_DOCUMENT as u64)
                    .map_err(|cause| FetchError::File(path.clone(), cause))?,
            ),
            KeySetLocation::Url(url) => (url.to_string(), self.document(url).await?),
            KeySetLocation::Discovered(base) => {
                let url = self.discover(issuer, base).await?;
                (url.to_string(), self.document(&url).await?)
            }
        })
    }

    /// Fetches the issuer's metadata, and returns the URL of the key set in it. The metadata must name this issuer, and
    /// the URL must be [secure](is_secure).
    async fn discover(&self, issuer: &str, base: &Url) -> Result<Url, FetchError> {
        let mut last = None;
        for url in metadata_urls(base) {
            let text = match self.document(&url).await {
                Ok(text) => text,
                Err(error) => {
                    last = Some(error);
                    continue;
                }
            };
            let metadata: Option<IssuerMetadata> = serde_json::from_slice(&text).ok();
            let key_set = metadata.filter(|metadata| metadata.issuer == issuer);
            let key_set = key_set.and_then(|metadata| Url::parse(&metadata.jwks_uri).ok()).filter(is_secure);
            return key_set.ok_or_else(|| FetchError::Metadata(url.to_string()));
        }
        Err(last.unwrap_or_else(|| FetchError::Metadata(base.to_string())))
    }

    async fn document(&self, url: &Url) -> Result<Vec<u8>, FetchError> {
        let shown = || url.to_string();
        let request = Request::get(url.as_str())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("libris/", env!("CARGO_PKG_VERSION")))
            .body(Empty::new())
            .map_err(|cause| FetchError::Unreachable(shown(), cause.into()))?;
        let response = self.0.request(request).await;
        let response = response.map_err(|cause| FetchError::Unreachable(shown(), cause.into()))?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(shown(), response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_DOCUMENT).collect().await;
        Ok(body.map_err(|_| FetchError::Body(shown()))?.to_bytes().to_vec())
    }
}

/// The URLs where the metadata of an issuer may be (RFC 8414, OpenID Connect), in the order in which MCP clients try
/// them.
fn metadata_urls(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url.set_query(None);
        url
    };
    let mut urls = vec![
        at(format!("/.well-known/oauth-authorization-server{path}")),
        at(format!("/.well-known/openid-configuration{path}")),
        at(format!("{path}/.well-known/openid-configuration")),
    ];
    urls.dedup();
    urls
}

#[cfg(test)]
mod tests {
    use super::{DocumentClient, FetchError, KeySetLocation, metadata_urls};
    use url::Url;

    /// Opening a named pipe would block until something writes to it.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_is_no_key_set_and_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let (sender, fetched) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let client = DocumentClient::new(false).unwrap();
            let location = KeySetLocation::File(path);
            sender.send(runtime.block_on(client.key_set("issuer", &location, "")).map(drop))
        });
        let fetched = fetched.recv_timeout(std::time::Duration::from_secs(30)).expect("it does not block");
        assert!(matches!(fetched, Err(FetchError::File(..))));
    }

    #[test]
    fn metadata_is_looked_for_where_the_specifications_put_it() {
        let urls = |issuer: &str| {
            metadata_urls(&Url::parse(issuer).unwrap()).iter().map(Url::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            urls("https://login.example"),
            [
                "https://login.example/.well-known/oauth-authorization-server",
                "https://login.example/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            urls("https://login.example/tenant/"),
            [
                "https://login.example/.well-known/oauth-authorization-server/tenant",
                "https://login.example/.well-known/openid-configuration/tenant",
                "https://login.example/tenant/.well-known/openid-configuration",
            ]
        );
    }
}
