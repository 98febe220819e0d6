//! TLS for those who ask others: with what the system trusts.

use std::sync::Arc;

use rustls_platform_verifier::BuilderVerifierExt as _;

/// Certificates are checked as the system does, where there are any to check. The provider is named, so that
/// no other part of the program decides.
pub(crate) fn config(secure: bool) -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = match secure {
        true => config.with_platform_verifier()?,
        false => config.with_root_certificates(rustls::RootCertStore::empty()),
    };
    Ok(config.with_no_client_auth())
}
