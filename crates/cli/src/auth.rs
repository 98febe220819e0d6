//! Sets up authentication and TLS from the configuration file and the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::auth::{AuthConfig, Authenticator};
use libris::wire::http::{TlsFiles, TlsServer};
use serde::Deserialize;

use crate::config::Config;
use crate::terminal::advice;

/// The arguments for authentication and TLS.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AuthArguments {
    /// Require an API key of this file, which `libris key` writes
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Serve HTTPS with this certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "stdio")]
    tls_certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate", conflicts_with = "stdio")]
    tls_key: Option<PathBuf>,
}

/// HTTPS without a proxy. The files are in PEM, and are read again when they change.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsConfig {
    /// The certificate, followed by the intermediate certificates.
    certificate: PathBuf,
    /// The private key of the certificate.
    key: PathBuf,
    /// The authorities whose client certificates identify callers.
    client_ca: Option<PathBuf>,
    /// Whether connections without a client certificate are refused.
    #[serde(default)]
    require_client_certificate: bool,
}

/// The authentication of callers, and TLS.
#[derive(Default)]
pub(crate) struct AuthSetup {
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    pub(crate) tls: Option<Arc<TlsServer>>,
}

impl AuthArguments {
    /// Whether an option is given that applies to HTTP only: `--tls-certificate`, or `--keys`, because over stdio the
    /// caller is the user who started the server and needs no key.
    pub(crate) fn want_http(&self) -> bool {
        self.keys.is_some() || self.tls_certificate.is_some()
    }

    /// Opens the files of keys and certificates. Paths in the configuration are relative to its `file`.
    pub(crate) fn open(&self, config: &Config, file: Option<&Path>) -> Result<AuthSetup> {
        let tls = tls_files(config, file, self);
        let asks_for_certificates = tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let auth = self.auth_config(config, file, asks_for_certificates);
        let tls = tls.map(TlsServer::open).transpose().context("could not set up TLS")?;
        let authenticator = auth.map(|auth| authenticator(auth, None)).transpose()?;
        Ok(AuthSetup { authenticator, tls })
    }

    /// The authenticator for a reloaded configuration. It is `current` if all settings are unchanged, so that fetched
    /// keys and verified tokens stay cached; otherwise a new one, which takes over the fetched keys of unchanged issuers.
    /// Whether client certificates identify callers is fixed at the start, so it is taken from `current` and not from
    /// `config`.
    pub(crate) fn reopen(
        &self,
        config: &Config,
        file: Option<&Path>,
        current: Option<&Arc<Authenticator>>,
    ) -> Result<Option<Arc<Authenticator>>> {
        let asks_for_certificates = current.is_some_and(|current| current.config().client_certificates);
        match self.auth_config(config, file, asks_for_certificates) {
            Some(auth) => match current.filter(|current| *current.config() == auth) {
                Some(unchanged) => Ok(Some(unchanged.clone())),
                None => authenticator(auth, current).map(Some),
            },
            None => Ok(None),
        }
    }

    /// The settings of authentication; `None` if there are none.
    fn auth_config(
        &self,
        config: &Config,
        file: Option<&Path>,
        asks_for_certificates: bool,
    ) -> Option<AuthConfig> {
        let mut auth = config.auth.clone();
        if let Some(auth) = &mut auth {
            auth.keys = auth.keys.take().map(|path| beside(file, &path));
            for issuer in &mut auth.issuers {
                let path = issuer.jwks.as_ref().filter(|jwks| !jwks.contains("://"));
                if let Some(path) = path.map(|path| beside(file, Path::new(path))) {
                    issuer.jwks = Some(path.to_string_lossy().into_owned());
                }
            }
        }
        if let Some(keys) = &self.keys {
            auth.get_or_insert_default().keys = Some(keys.clone());
        }
        if asks_for_certificates {
            auth.get_or_insert_default().client_certificates = true;
        }
        auth
    }
}

fn authenticator(config: AuthConfig, current: Option<&Arc<Authenticator>>) -> Result<Arc<Authenticator>> {
    if !config.authenticates() && !config.anonymous {
        return Err(advice(
            "`[auth]` accepts no credentials, so nobody could call",
            "add an `[[auth.issuer]]`, `auth.keys` or `listen.tls.client_ca`, or set `auth.anonymous = true`",
        ));
    }
    let opened = match current {
        Some(current) => current.reconfigured(config),
        None => Authenticator::new(config),
    };
    Ok(Arc::new(opened.context("could not set up authentication")?))
}

/// The TLS files that the command line names, or else those of the configuration; `None` without TLS.
fn tls_files(config: &Config, file: Option<&Path>, arguments: &AuthArguments) -> Option<TlsFiles> {
    if let (Some(certificate), Some(key)) = (&arguments.tls_certificate, &arguments.tls_key) {
        return Some(TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: None,
            require_client_certificate: false,
        });
    }
    let tls = config.listen.tls.as_ref()?;
    Some(TlsFiles {
        certificate: beside(file, &tls.certificate),
        key: beside(file, &tls.key),
        client_ca: tls.client_ca.as_ref().map(|path| beside(file, path)),
        require_client_certificate: tls.require_client_certificate,
    })
}

/// Resolves a path of the configuration, which is relative to the folder of the configuration `file`. Without a `file`,
/// the path is unchanged.
pub(crate) fn beside(file: Option<&Path>, path: &Path) -> PathBuf {
    file.and_then(Path::parent).unwrap_or(Path::new("")).join(path)
}

/// Whether callers without credentials are refused, so that the server may be reachable from other machines.
pub(crate) fn authenticates(authenticator: Option<&Arc<Authenticator>>) -> bool {
    authenticator.is_some_and(|authenticator| authenticator.config().authenticates())
}

impl AuthSetup {
    /// Whether every caller must [authenticate](authenticates).
    pub(crate) fn must_authenticate(&self) -> bool {
        authenticates(self.authenticator.as_ref())
    }

    /// The host in the configured URL of the endpoint (`auth.resource`), under which clients reach it; `None` without
    /// one.
    pub(crate) fn host(&self) -> Option<String> {
        host_of(self.authenticator.as_ref()?.config().resource.as_deref()?).map(ToOwned::to_owned)
    }
}

/// The host in a URL: a name or an IP address, an IPv6 address with its brackets.
fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let end = match host.starts_with('[') {
        true => host.find(']').map(|bracket| bracket + 1),
        false => host.find(':'),
    };
    let host = &host[..end.unwrap_or(host.len())];
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn the_host_of_an_endpoint_has_no_port() {
        for (url, host) in [
            ("https://docs.example.com/mcp", Some("docs.example.com")),
            ("https://docs.example.com:8443/mcp", Some("docs.example.com")),
            ("https://[2001:db8::1]/mcp", Some("[2001:db8::1]")),
            ("https://[2001:db8::1]:8443/mcp", Some("[2001:db8::1]")),
            ("https://user:secret@docs.example.com?x", Some("docs.example.com")),
            ("https://:8443/mcp", None),
            ("docs.example.com", None),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }
}
