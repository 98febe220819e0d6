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

/// The arguments that select who may call.
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
    /// Its private key.
    key: PathBuf,
    /// The authorities whose client certificates identify callers.
    client_ca: Option<PathBuf>,
    /// Whether connections without a client certificate are refused.
    #[serde(default)]
    require_client_certificate: bool,
}

/// How a server authenticates callers.
#[derive(Default)]
pub(crate) struct CallerSetup {
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    pub(crate) tls: Option<Arc<TlsServer>>,
}

impl AuthArguments {
    /// Whether an option is given that applies to HTTP only. Over stdio no key is required: the caller is the user who
    /// started the server.
    pub(crate) fn want_http(&self) -> bool {
        self.keys.is_some() || self.tls_certificate.is_some()
    }

    /// Opens the files of keys and certificates. Paths in the configuration are relative to its `file`.
    pub(crate) fn open(&self, config: &Config, file: Option<&Path>) -> Result<CallerSetup> {
        let tls = tls_files(config, file, self);
        let asks_for_certificates = tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let auth = self.auth_config(config, file, asks_for_certificates);
        let tls = tls.map(TlsServer::open).transpose().context("could not set up TLS")?;
        let authenticator = auth.map(authenticator).transpose()?;
        Ok(CallerSetup { authenticator, tls })
    }

    /// The authenticator for a reloaded configuration. It is `current` if its settings are unchanged, so that fetched keys
    /// and verified tokens stay known. Whether connections ask for client certificates does not change while serving.
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
                None => authenticator(auth).map(Some),
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

fn authenticator(config: AuthConfig) -> Result<Arc<Authenticator>> {
    if !config.authenticates() && !config.anonymous {
        return Err(advice(
            "`[auth]` accepts no credentials, so nobody could call",
            "add an `[[auth.issuer]]`, `auth.keys` or `listen.tls.client_ca`, or set `auth.anonymous = true`",
        ));
    }
    Ok(Arc::new(Authenticator::new(config).context("could not set up authentication")?))
}

/// The TLS files that the command line names, or else the configuration.
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

/// Resolves a path of the configuration, which is relative to the folder of its `file`.
pub(crate) fn beside(file: Option<&Path>, path: &Path) -> PathBuf {
    file.and_then(Path::parent).unwrap_or(Path::new("")).join(path)
}

/// Whether callers without credentials are refused, so that the server may be reachable from other machines.
pub(crate) fn authenticates(authenticator: Option<&Arc<Authenticator>>) -> bool {
    authenticator.is_some_and(|authenticator| authenticator.config().authenticates())
}

impl CallerSetup {
    /// Whether every caller must [authenticate](authenticates).
    pub(crate) fn must_authenticate(&self) -> bool {
        authenticates(self.authenticator.as_ref())
    }

    /// The host name in the URL of the endpoint, by which clients address it.
    pub(crate) fn host(&self) -> Option<String> {
        let resource = self.authenticator.as_ref()?.config().resource.as_deref()?;
        let (_, rest) = resource.split_once("://")?;
        let host = rest.split(['/', '?', '#']).next()?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        (!name.is_empty()).then(|| name.to_owned())
    }
}
