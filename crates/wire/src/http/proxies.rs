//! Trusted proxies, which name the client whose request they forward.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use libris_core::Client;

/// A range of addresses, such as `10.0.0.0/8`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The bits that all addresses of the range share. IPv4 addresses are mapped to IPv6.
    network: u128,
    mask: u128,
}

/// An address as 128 bits. IPv4 addresses are mapped to IPv6.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl AddressRange {
    /// Whether an address is in the range.
    pub fn contains(self, address: IpAddr) -> bool {
        bits(address) & self.mask == self.network
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an IP address or a range such as `10.0.0.0/8`");
        let (address, length) = text.split_once('/').map_or((text, None), |(one, two)| (one, Some(two)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most: u32 = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(length) => length.parse().ok().filter(|length| *length <= most).ok_or_else(wrong)?,
        };
        let mask = u128::MAX.checked_shl(most - length).unwrap_or_default();
        Ok(Self { network: bits(address) & mask, mask })
    }
}

/// The header in which trusted proxies name the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl ForwardedHeader {
    /// The name of the header, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }
}

/// The proxies that are trusted to name the client of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// The addresses of the proxies.
    pub ranges: Vec<AddressRange>,
    /// The header in which the proxies name the client. A proxy must set this header or append to it: if it passes the
    /// header on unchanged, a client can name any address.
    pub header: ForwardedHeader,
}

impl TrustedProxies {
    /// Whether the peer at this address is a trusted proxy.
    pub(super) fn trust(&self, peer: Option<IpAddr>) -> bool {
        // A dual-stack listener reports IPv4 peers as mapped IPv6 addresses. `to_canonical` is redundant: `bits` gives
        // both forms of an address the same value.
        !self.ranges.is_empty() && peer.is_some_and(|address| self.is_proxy(address.to_canonical()))
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// The client of a request that a trusted proxy forwards. `values` are the values of the header, in the order of the
    /// request. Each proxy appends the address from which it got the request, so the client is the last address that does
    /// not belong to a trusted proxy; the client itself may have forged the addresses before it. If all addresses
    /// belong to trusted proxies, the client is the first. An element that is not an address ends the search; the
    /// result is then the proxy that appended it.
    pub(super) fn client<'v>(
        &self,
        proxy: Client,
        values: impl DoubleEndedIterator<Item = &'v [u8]>,
    ) -> Client {
        let mut client = proxy;
        for value in values.rev() {
            let Ok(value) = std::str::from_utf8(value) else { return client };
            for element in value.rsplit(',') {
                let Some(address) = self.address(element) else { return client };
                client = Client::at(address);
                if !self.is_proxy(address) {
                    return client;
                }
            }
        }
        client
    }

    /// The address in an element of the header; `None` if the element has none.
    fn address(&self, element: &str) -> Option<IpAddr> {
        let text = match self.header {
            ForwardedHeader::XForwardedFor => element.trim(),
            ForwardedHeader::Forwarded => {
                let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
                let (_, node) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
                node.trim().trim_matches('"')
            }
        };
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressRange, ForwardedHeader, TrustedProxies};
    use libris_core::Client;

    fn at(text: &str) -> Client {
        Client::at(text.parse().unwrap())
    }

    fn proxies(header: ForwardedHeader) -> TrustedProxies {
        TrustedProxies {
            ranges: ["10.0.0.0/8", "2001:db8::1"].map(|text| text.parse().unwrap()).into(),
            header,
        }
    }

    #[test]
    fn ranges_contain_their_addresses() {
        let contains = |range: &str, address: &str| {
            range.parse::<AddressRange>().unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("10.1.2.3", "10.1.2.3") && !contains("10.1.2.3", "10.1.2.4"));
        assert!(contains("0.0.0.0/0", "1.2.3.4") && !contains("0.0.0.0/0", "2001:db8::1"));
        assert!(contains("::/0", "2001:db8::1") && contains("2001:db8::/32", "2001:db8:ffff::1"));
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "localhost", "10.0.0.0/x"] {
            assert!(wrong.parse::<AddressRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_trusted_proxies_name_the_client() {
        let proxies = proxies(ForwardedHeader::XForwardedFor);
        let address = |text: &str| Some(text.parse().unwrap());
        assert!(proxies.trust(address("10.0.0.1")) && !proxies.trust(address("192.0.2.1")));
        assert!(proxies.trust(address("::ffff:10.0.0.1")));
        assert!(!TrustedProxies::default().trust(address("10.0.0.1")));
        let one = TrustedProxies { ranges: vec!["2001:db8::7".parse().unwrap()], ..proxies.clone() };
        assert!(one.trust(address("2001:db8::7")) && !one.trust(address("2001:db8::8")));
        let client =
            |values: &[&str]| proxies.client(at("10.0.0.1"), values.iter().map(|value| value.as_bytes()));
        assert_eq!(client(&["192.0.2.7"]), at("192.0.2.7"));
        // The client may have forged the first address.
        assert_eq!(client(&["198.51.100.1, 192.0.2.7, 10.2.3.4"]), at("192.0.2.7"));
        assert_eq!(client(&["198.51.100.1", "192.0.2.7,10.2.3.4"]), at("192.0.2.7"));
        assert_eq!(client(&["192.0.2.7:4711"]), at("192.0.2.7"));
        assert_eq!(client(&["[2001:db8:1::2]:80"]), at("2001:db8:1::2"));
        assert_eq!(client(&["10.9.9.9"]), at("10.9.9.9"), "a request of a proxy itself");
        for none in [&[][..], &[""], &["unknown"], &["192.0.2.7, nonsense"]] {
            assert_eq!(client(none), at("10.0.0.1"), "{none:?}");
        }
    }

    #[test]
    fn the_forwarded_header_is_parsed() {
        let proxies = proxies(ForwardedHeader::Forwarded);
        let client = |value: &str| proxies.client(at("10.0.0.1"), [value.as_bytes()].into_iter());
        assert_eq!(client("for=192.0.2.7;proto=https"), at("192.0.2.7"));
        assert_eq!(client("for=198.51.100.1, proto=https;FOR=\"192.0.2.7:80\""), at("192.0.2.7"));
        assert_eq!(client("for=\"[2001:db8:2::1]:80\", for=10.0.0.9"), at("2001:db8:2::1"));
        assert_eq!(client("for=_hidden"), at("10.0.0.1"));
        assert_eq!(client("192.0.2.7"), at("10.0.0.1"));
    }
}
