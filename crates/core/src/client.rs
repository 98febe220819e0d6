//! Clients: the units between which limits are divided, one per identity or network address.

use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::OnceLock;

use crate::Identity;

/// The client against whose share of a [`Budget`](crate::Budget) a request counts. All requests of one identity belong to
/// one client, and so do all requests without an identity from one network address.
///
/// A program that embeds an endpoint and identifies clients in another way, such as by a proxy's header, puts a
/// `Client` into the extensions of the HTTP request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client(ClientKey);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ClientKey {
    #[default]
    Unknown,
    Address(IpAddr),
    /// A hash of the principal and a secret. Without the secret, nobody can construct two principals with the same hash.
    Identity(u64),
}

/// The secret in the hashes of principals. Random, unless [`Client::share_secret`] has set it.
static CLIENT_SECRET: OnceLock<[u64; 2]> = OnceLock::new();

impl Client {
    /// The client at this address. An IPv6 /64 network counts as one address, because one owner has all of it.
    pub fn at(address: IpAddr) -> Self {
        Self(ClientKey::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from(network))
            }
            address => address,
        }))
    }

    /// The client with this identity, wherever its requests come from.
    pub fn of(identity: &Identity) -> Self {
        let secret = CLIENT_SECRET.get_or_init(|| {
            let random = RandomState::new();
            [random.hash_one(0), random.hash_one(1)]
        });
        let mut hasher = DefaultHasher::new();
        (secret, identity.name(), identity.authentication()).hash(&mut hasher);
        Self(ClientKey::Identity(hasher.finish()))
    }

    /// Sets the secret with which clients are derived from identities. All processes with the same secret, such as the
    /// replicas of a server, derive the same client from an identity. Has no effect after the first call of this function
    /// or of [`of`](Self::of).
    pub fn share_secret(secret: &str) {
        let part = |number: u8| {
            let mut hasher = DefaultHasher::new();
            (number, secret).hash(&mut hasher);
            hasher.finish()
        };
        let _ = CLIENT_SECRET.set([part(0), part(1)]);
    }

    /// A name of this client, without spaces, for other processes with the same [secret](Self::share_secret); `None` if the
    /// client is not [known](Self::is_known). The name does not reveal the identity.
    pub fn shared_name(self) -> Option<String> {
        match self.0 {
            ClientKey::Unknown => None,
            ClientKey::Address(address) => Some(format!("a{address}")),
            ClientKey::Identity(hash) => Some(format!("i{hash:016x}")),
        }
    }

    /// The client with this [name](Self::shared_name); `None` if `name` is not such a name.
    pub fn from_shared_name(name: &str) -> Option<Self> {
        match (name.get(..1)?, &name[1..]) {
            ("a", address) => address.parse().ok().map(Self::at),
            ("i", hash) => u64::from_str_radix(hash, 16).ok().map(|hash| Self(ClientKey::Identity(hash))),
            _ => None,
        }
    }

    /// The address, or the first address of the IPv6 network; `None` if the client has an identity, or if the transport
    /// has no addresses.
    pub fn address(self) -> Option<IpAddr> {
        match self.0 {
            ClientKey::Address(address) => Some(address),
            ClientKey::Unknown | ClientKey::Identity(_) => None,
        }
    }

    /// Whether the client has an identity.
    pub fn has_identity(self) -> bool {
        matches!(self.0, ClientKey::Identity(_))
    }

    /// Whether the client has an identity or an address.
    pub fn is_known(self) -> bool {
        self.0 != ClientKey::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::Client;
    use crate::Identity;

    #[test]
    fn a_client_has_a_name_that_other_replicas_understand() {
        let (ada, bob) = (Client::of(&Identity::new("ada")), Client::of(&Identity::new("bob")));
        let network = Client::at("2001:db8::1".parse().unwrap());
        for known in [Client::at([127, 0, 0, 1].into()), network, ada, bob] {
            let name = known.shared_name().unwrap();
            assert!(!name.contains(' ') && !name.contains("ada"), "{name}");
            assert_eq!(Client::from_shared_name(&name), Some(known));
        }
        assert_ne!(ada.shared_name(), bob.shared_name());
        assert_eq!(Client::default().shared_name(), None);
        for name in ["", "a", "i", "x1", "é", "a127.0.0", "inone"] {
            assert_eq!(Client::from_shared_name(name), None, "{name}");
        }
    }
}
