//! Protection against server-side request forgery: which addresses requests may go to.
//!
//! [`AddressGuard`] is also the DNS resolver of the client. It returns only allowed addresses, and the client connects
//! to no others, so DNS rebinding has no effect.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use libris_core::address::{is_public, without_embedding};
use serde::{Deserialize, Deserializer};
use tower_service::Service;

use super::config::RequestLimits;

/// A range of addresses, such as `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    length: u8,
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        let shared = match (self.address, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
            _ => return false,
        };
        shared >= u32::from(self.length)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a network such as `10.1.0.0/16`");
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if length > most {
            return Err(wrong());
        }
        Ok(Self { address, length })
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The addresses that requests may go to.
#[derive(Clone, Debug)]
pub(super) struct AddressGuard {
    pub(super) allow_private: bool,
    pub(super) networks: Vec<Network>,
}

impl AddressGuard {
    pub(super) fn new(limits: &RequestLimits) -> Self {
        Self { allow_private: limits.allow_private, networks: limits.networks.clone() }
    }

    /// Whether requests to this address are allowed.
    pub(super) fn allows(&self, address: IpAddr) -> bool {
        // An IPv4 address in IPv6 form, such as `::ffff:127.0.0.1`, counts as that IPv4 address.
        let address = without_embedding(address);
        self.allow_private
            || is_public(address)
            || self.networks.iter().any(|network| network.contains(address))
    }
}

/// The error for a name without allowed addresses.
#[derive(Debug)]
pub(super) struct ForbiddenAddress;

impl fmt::Display for ForbiddenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "its address is not public: set `limits.allow_private`, or name its network in `limits.networks`",
        )
    }
}

impl std::error::Error for ForbiddenAddress {}

/// The DNS resolver of the client.
impl Service<Name> for AddressGuard {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|address| guard.allows(address.ip())).collect();
            if allowed.is_empty() {
                return Err(io::Error::other(ForbiddenAddress));
            }
            Ok(allowed.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressGuard, ForbiddenAddress, IpAddr, Network, Service as _};

    fn allows(guard: &AddressGuard, address: &str) -> bool {
        guard.allows(address.parse().unwrap())
    }

    #[test]
    fn only_public_addresses_are_allowed() {
        let guard = AddressGuard { allow_private: false, networks: Vec::new() };
        for address in ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "64:ff9b::101:101", "::ffff:1.1.1.1"] {
            assert!(allows(&guard, address), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.192",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!allows(&guard, address), "{address}");
        }
    }

    /// The addresses that a connection to `localhost` may use.
    async fn resolved(networks: &[&str]) -> std::io::Result<Vec<IpAddr>> {
        let networks = networks.iter().map(|text| text.parse().unwrap()).collect();
        let mut guard = AddressGuard { allow_private: false, networks };
        Ok(guard.call("localhost".parse().unwrap()).await?.map(|address| address.ip()).collect())
    }

    #[tokio::test]
    async fn names_resolve_only_to_allowed_addresses() {
        for networks in [&[][..], &["10.0.0.0/8"]] {
            let error = resolved(networks).await.expect_err("its addresses are private");
            assert!(error.get_ref().is_some_and(|cause| cause.is::<ForbiddenAddress>()), "{error:?}");
        }
        let allowed = resolved(&["127.0.0.0/8"]).await.unwrap();
        assert!(!allowed.is_empty() && allowed.iter().all(IpAddr::is_ipv4), "{allowed:?}");
    }

    #[test]
    fn networks_may_be_allowed() {
        let networks = ["10.1.0.0/16", "fd00::/8", "127.0.0.1"].map(|text| text.parse().unwrap());
        let guard = AddressGuard { allow_private: false, networks: networks.into() };
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "fd00::7", "127.0.0.1"] {
            assert!(allows(&guard, address), "{address}");
        }
        for address in ["10.2.0.1", "fc00::1", "127.0.0.2"] {
            assert!(!allows(&guard, address), "{address}");
        }
        for wrong in ["10.0.0.0/33", "10.0.0/8", "fd00::/129", "", "example.org/8"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
