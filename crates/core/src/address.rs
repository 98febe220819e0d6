//! Classes of network addresses, for protection against server-side request forgery.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IPv4 address that an IPv6 address embeds (as NAT64 addresses do), or else the address itself.
pub fn without_embedding(address: IpAddr) -> IpAddr {
    embedded(address).map_or(address, IpAddr::V4)
}

fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let [a, b, c, d, e, f, g, h] = address.segments();
    let of = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match (a, b, c, d, e, f) {
        // Mapped, translated and compatible addresses.
        (0, 0, 0, 0, 0, 0xffff) | (0, 0, 0, 0, 0xffff, 0) => of(g, h),
        (0, 0, 0, 0, 0, 0) if g != 0 => of(g, h),
        // NAT64, and 6to4.
        (0x64, 0xff9b, 0, 0, 0, 0) => of(g, h),
        (0x2002, high, low, ..) => of(high, low),
        _ => None,
    }
}

/// Whether an address is certainly public: unicast, and in none of the blocks in the IANA registries of special-purpose
/// addresses that are not globally reachable. Apply [`without_embedding`] first, because IPv6 addresses that embed an
/// IPv4 address never count as public here.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    // The conditions without a method are, in this order: "this network", reserved addresses, carrier-grade NAT, protocol
    // assignments, 6to4 relays and benchmarks.
    !(a == 0
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19)))
}

/// Whether an IPv6 address is global unicast and not special-purpose.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let global_unicast = a & 0xe000 == 0x2000;
    let exception = (a == 0x2001 && (b < 0x200 || b == 0xdb8)) || a == 0x2002 || (a == 0x3fff && b < 0x1000);
    global_unicast && !exception
}

#[cfg(test)]
mod tests {
    use super::{is_public, without_embedding};

    #[test]
    fn addresses_of_this_machine_and_of_private_networks_are_not_public() {
        let public = |text: &str| is_public(without_embedding(text.parse().unwrap()));
        for address in ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101", "::ffff:1.1.1.1"] {
            assert!(public(address), "{address}");
        }
        for address in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fd00::1"] {
            assert!(!public(address), "{address}");
        }
    }
}
