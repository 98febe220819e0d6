//! The client certificate of a TLS connection.

use std::sync::Arc;

/// A verified TLS client certificate. A program that embeds the endpoint and terminates TLS itself may add one to the
/// extensions of each request.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate(Arc<[u8]>);

impl ClientCertificate {
    /// A certificate that was verified, in DER.
    pub fn verified(der: impl Into<Arc<[u8]>>) -> Self {
        Self(der.into())
    }

    /// The certificate in DER.
    pub fn der(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClientCertificate({} bytes)", self.0.len())
    }
}
