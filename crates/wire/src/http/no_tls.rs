//! Replaces the module `tls` if the feature `tls` is off.

use std::io;

use http::Version;
use libris_core::Client;
use tokio::net::TcpStream;

use super::ClientCertificate;
use super::socket::Socket;

/// Uninhabited: without the feature, no TLS server can be created.
pub(super) enum TlsServer {}

pub(super) struct SecuredConnection {
    pub(super) socket: Socket,
    pub(super) version: Version,
    pub(super) certificate: Option<ClientCertificate>,
}

impl TlsServer {
    pub(super) fn reload(&self) {
        match *self {}
    }

    pub(super) async fn accept(&self, _: TcpStream, _: Client) -> io::Result<SecuredConnection> {
        match *self {}
    }
}
