//! The TLS server. It reads its certificates from files, and reads them again when the files change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::Version;
use libris_core::{Budget, Client, FileVersion, FileVersionStamp, regular_file};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{WebPkiClientVerifier, danger::ClientCertVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::ClientCertificate;
use super::socket::Socket;
use crate::lock::lock;

/// The time limit of a handshake, including the time that it waits for a permit.
const HANDSHAKE_TIME_LIMIT: Duration = Duration::from_secs(10);

/// The maximum number of concurrent handshakes, of which one client may have three quarters. Each takes up to 100 KiB,
/// because a message of a handshake may have 64 KiB. Further handshakes wait; their bytes are not read meanwhile.
const MAX_HANDSHAKES: usize = 256;

/// The maximum number of handshakes that wait; further connections are closed.
const MAX_WAITING_HANDSHAKES: usize = 2_048;

/// The largest file of certificates or keys, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// The files of a TLS server, in PEM.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsFiles {
    /// The certificate of the server, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificate authorities whose client certificates are accepted; `None` to not ask clients for certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether a connection without a client certificate is refused.
    pub require_client_certificate: bool,
}

/// The error if TLS cannot be served with these files. No message contains a part of a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file has no certificates or cannot be read.
    #[error("could not read the certificates in `{}`; hint: name a PEM file with certificates that this user may read", .0.display())]
    Certificate(PathBuf, #[source] pem::Error),
    /// A file has no private key or cannot be read.
    #[error("could not read the private key in `{}`; hint: name a PEM file with a private key that this user may read", .0.display())]
    Key(PathBuf, #[source] pem::Error),
    /// The certificates of the authorities for client certificates cannot be used.
    #[error("the certificates in `{}` cannot be used as certificate authorities; hint: name a PEM file of CA certificates", .0.display())]
    Authorities(PathBuf, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The key does not belong to the certificate, or is of an unknown kind.
    #[error("the certificate and the private key cannot be used; hint: check that they belong together")]
    Unusable(#[source] rustls::Error),
}

impl TlsError {
    /// Whether a file could not be read, which says nothing about its contents.
    fn is_unreadable(&self) -> bool {
        match self {
            Self::Certificate(_, cause) | Self::Key(_, cause) => matches!(cause, pem::Error::Io(_)),
            Self::Authorities(..) | Self::Unusable(_) => false,
        }
    }
}

/// The TLS configuration of a server. The certificate can be replaced while the server runs.
pub struct TlsServer {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
    version: Mutex<FileVersion<TlsFileStamps>>,
    handshakes: Arc<Budget>,
}

/// The stamp of each of the files; `None` if there is no such file.
type TlsFileStamps = Vec<Option<FileVersionStamp>>;

/// A connection after the handshake.
pub(super) struct SecuredConnection {
    pub(super) socket: Socket,
    pub(super) version: Version,
    pub(super) certificate: Option<ClientCertificate>,
}

impl TlsServer {
    /// Reads the files.
    pub fn open(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        let version = Mutex::new(FileVersion::new(files.stamps()));
        let config = RwLock::new(Arc::new(files.config()?));
        let handshakes = Budget::with_waiters(MAX_HANDSHAKES, MAX_WAITING_HANDSHAKES);
        Ok(Arc::new(Self { files, config, version, handshakes }))
    }

    /// The number of handshakes in progress.
    pub fn handshakes(&self) -> usize {
        self.handshakes.used()
    }

    /// Reads the files again if one of them has changed. If they cannot be used, the previous certificate stays in effect
    /// and the files are tried again when they change, or at the next call if they could not be read.
    pub fn reload(&self) {
        let mut version = lock(&self.version);
        let now = self.files.stamps();
        // A missing file is most likely being replaced.
        if !version.is_due(&now) || now.iter().any(Option::is_none) {
            return;
        }
        let config = self.files.config();
        let is_new = match &config {
            Err(error) if error.is_unreadable() => version.set_unreadable(now),
            _ => {
                version.set_read(now);
                true
            }
        };
        match config {
            Ok(config) => {
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                tracing::info!(certificate = %self.files.certificate.display(), "reloaded the TLS certificate");
            }
            Err(_) if !is_new => {}
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "the previous TLS certificate stays in effect; hint: correct the files of the certificate and the key");
            }
        }
    }

    /// Completes the handshake of a connection of this client.
    pub(super) async fn accept(&self, stream: TcpStream, client: Client) -> io::Result<SecuredConnection> {
        let handshake = async {
            let _permit =
                self.handshakes.take(client, 1).await.ok_or(io::Error::from(io::ErrorKind::ResourceBusy))?;
            let config = self.config.read().unwrap_or_else(PoisonError::into_inner).clone();
            TlsAcceptor::from(config).accept(stream).await
        };
        let stream = tokio::time::timeout(HANDSHAKE_TIME_LIMIT, handshake).await??;
        let (_, session) = stream.get_ref();
        let version = match session.alpn_protocol() {
            Some(b"h2") => Version::HTTP_2,
            _ => Version::HTTP_11,
        };
        let certificate = session.peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.map(|certificate| ClientCertificate::verified(&**certificate));
        Ok(SecuredConnection { socket: Socket::Tls(Box::new(stream)), version, certificate })
    }
}

impl TlsFiles {
    fn stamps(&self) -> TlsFileStamps {
        let paths = [&self.certificate, &self.key].into_iter().chain(&self.client_ca);
        paths.map(|path| FileVersionStamp::of(path)).collect()
    }

    fn config(&self) -> Result<ServerConfig, TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = read(&self.key).and_then(|pem| PrivateKeyDer::from_pem_slice(&pem));
        let key = key.map_err(|cause| TlsError::Key(self.key.clone(), cause))?;
        // The provider is explicit, so that it does not depend on the process-wide default.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unusable)?;
        let builder = match self.client_verifier(provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn client_verifier(
        &self,
        provider: Arc<rustls::crypto::CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        let Some(path) = &self.client_ca else { return Ok(None) };
        let unusable =
            |cause: Box<dyn std::error::Error + Send + Sync>| TlsError::Authorities(path.clone(), cause);
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|cause| unusable(cause.into()))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = match self.require_client_certificate {
            true => verifier,
            false => verifier.allow_unauthenticated(),
        };
        Ok(Some(verifier.build().map_err(|cause| unusable(cause.into()))?))
    }
}

/// The contents of a PEM file. A pipe does not block, and a huge file is not read.
fn read(path: &Path) -> Result<Vec<u8>, pem::Error> {
    regular_file::read(path, MAX_FILE).map_err(pem::Error::Io)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |cause| TlsError::Certificate(path.to_owned(), cause);
    let pem = read(path).map_err(failed)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(failed)?;
    match found.is_empty() {
        true => Err(failed(pem::Error::NoItemsFound)),
        false => Ok(found),
    }
}
