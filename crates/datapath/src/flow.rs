//! The flow hash: a number that all packets of one flow have in common.
//!
//! The datapath computes it only for a hop that is a group (`group.rs`) or a bond, from a packet that
//! parse accepted. A [`FlowKey`] selects the fields; a router that follows the kernel has that of the
//! sysctls `fib_multipath_hash_policy` and `fib_multipath_hash_fields`:
//!
//! | key | sysctl | fields |
//! |---|---|---|
//! | [`FlowKey::LAYER_3`] | 0 | addresses, for IPv6 also the flow label and the protocol; those of the quoted packet for an ICMP error, so that it takes the path of the flow that it belongs to |
//! | [`FlowKey::LAYER_4`] | 1 | addresses, protocol, ports |
//! | [`FlowKey::INNER_LAYER_3`] | 2 | those of layer 3, but of the packet in a tunnel packet; an ICMP error has its own |
//! | [`FlowKey::custom`] | 3 | any of the packet, and any of the packet in a tunnel packet |
//! | [`FlowKey::INNER_LAYER_4`] | none | those of layer 4, of the packet in a tunnel packet: without a kernel to follow, and for bonds |
//!
//! **Ports** are the first four bytes behind the IP headers of TCP, UDP, UDP-Lite, SCTP and DCCP, and
//! the index (SPI) of ESP and AH. A fragment has none, not even the first one: only that one has
//! the bytes, and all must take one path. A fragment of IPv6, and a packet whose extension headers cannot be
//! parsed, has protocol 0 too.
//!
//! **Tunnel packets** are IP in IP (protocols 4 and 41, RFC 2003, RFC 4213) and GRE version 0 (RFC 2784,
//! RFC 2890) with IP or Ethernet inside; up to [`MAX_DEPTH`] tunnels in each other. A payload that is no
//! complete IP packet does not count, and neither does that of a fragment.
//!
//! **The computation.** The input is, in words of 64 bits:
//!
//! ```text
//!   IPv4    source:32 destination:32              | label:20 of zeros  protocol:8  ports:32
//!   IPv6    source high | low | destination high | low | label:20  protocol:8  ports:32
//! ```
//!
//! A field that is not selected is 0. Source and destination are exchanged, with their ports, if the
//! destination is the smaller one, as the kernel does: both directions of a flow have one hash. Word i is
//! multiplied by the odd number 2i + 1 times [`SPREAD`] to 128 bits, and the two halves are combined by
//! exclusive or. The sum of these results and of the seed is folded once more in the same way; of two
//! packets, the hash of the first is the seed of the second. The words do not depend on each other; a
//! serial computation would take half as long again for an IPv6 packet. Without a seed, consecutive
//! routers would all make the same choice, and the second one would use only one member of each of its
//! groups.

use wire::ports::ports;
use wire::quoted::{Quoted, quoted_v4, quoted_v6};
use wire::{ethernet, gre, icmp, ipv4, ipv6};

/// 2^64 divided by the golden ratio, as in `locals.rs`; odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
/// The most tunnels that are looked into.
const MAX_DEPTH: usize = 4;

// The fields, with the bits that the kernel gives those of the packet itself.
const SOURCE: u8 = 0x01;
const DESTINATION: u8 = 0x02;
const PROTOCOL: u8 = 0x04;
const FLOW_LABEL: u8 = 0x08;
const SOURCE_PORT: u8 = 0x10;
const DESTINATION_PORT: u8 = 0x20;
const ALL: u8 = 0x3f;
const ADDRESSES: u8 = SOURCE | DESTINATION;
const FIVE_TUPLE: u8 = ADDRESSES | PROTOCOL | SOURCE_PORT | DESTINATION_PORT;

/// The fields of packets that select their path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    /// Those of the packet itself.
    outer: Fields,
    /// Those of the packet in a tunnel packet.
    inner: Fields,
    /// Of a tunnel packet only the inner fields count.
    inner_only: bool,
    /// Of an ICMP error the fields of the quoted packet count.
    quoted: bool,
}

/// Fields by the family of their packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    v4: u8,
    v6: u8,
}

impl Fields {
    const NONE: Self = Self::both(0);
    const LAYER_3: Self = Self { v4: ADDRESSES, v6: ADDRESSES | PROTOCOL | FLOW_LABEL };

    const fn both(fields: u8) -> Self {
        Self { v4: fields, v6: fields }
    }
}

impl FlowKey {
    /// Addresses, for IPv6 also the flow label and the protocol.
    pub const LAYER_3: Self =
        Self { outer: Fields::LAYER_3, inner: Fields::NONE, inner_only: false, quoted: true };
    /// Addresses, protocol and ports.
    pub const LAYER_4: Self =
        Self { outer: Fields::both(FIVE_TUPLE), quoted: false, ..Self::LAYER_3 };
    /// As [`LAYER_3`](Self::LAYER_3), but of the packet in a tunnel packet, and without regard to the packet
    /// that an ICMP error quotes.
    pub const INNER_LAYER_3: Self =
        Self { inner: Fields::LAYER_3, inner_only: true, quoted: false, ..Self::LAYER_3 };
    /// As [`LAYER_4`](Self::LAYER_4), but of the packet in a tunnel packet.
    pub const INNER_LAYER_4: Self =
        Self { inner: Fields::both(FIVE_TUPLE), inner_only: true, ..Self::LAYER_4 };

    /// Makes the key of a set of fields, with the bits of the kernel's `fib_multipath_hash_fields`: from the
    /// lowest on the source, the destination, the protocol, the flow label, the source port and the
    /// destination port of the packet, and then those of the packet in a tunnel packet. Other bits are
    /// ignored.
    pub const fn custom(fields: u32) -> Self {
        let outer = Fields::both(fields as u8 & ALL);
        let inner = Fields::both((fields >> 6) as u8 & ALL);
        Self { outer, inner, inner_only: false, quoted: false }
    }
}

/// The parameters of the flow hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowHash {
    /// A number that should differ from those of other routers in the path.
    pub seed: u64,
    /// The key of IPv4 packets.
    pub v4: FlowKey,
    /// The key of IPv6 packets.
    pub v6: FlowKey,
}

impl FlowHash {
    /// Makes the parameters with the key [`FlowKey::INNER_LAYER_4`].
    pub const fn with_seed(seed: u64) -> Self {
        Self { seed, v4: FlowKey::INNER_LAYER_4, v6: FlowKey::INNER_LAYER_4 }
    }
}

impl Default for FlowHash {
    fn default() -> Self {
        Self::with_seed(0)
    }
}

/// Returns the flow of an IPv4 packet in an Ethernet frame.
#[inline(never)]
pub fn flow_v4(frame: &[u8], hash: &FlowHash) -> u64 {
    flow_of(frame.get(ethernet::LEN..).and_then(Headers::v4), hash.v4, hash.seed)
}

/// Returns the flow of an IPv6 packet in an Ethernet frame.
#[inline(never)]
pub fn flow_v6(frame: &[u8], hash: &FlowHash) -> u64 {
    flow_of(frame.get(ethernet::LEN..).and_then(Headers::v6), hash.v6, hash.seed)
}

/// Returns the flow of the packet in an Ethernet frame without tags, by its type.
pub(super) fn flow(frame: &[u8], hash: &FlowHash) -> u64 {
    let is_v4 = ethernet::View::parse(frame).is_ok_and(|ether| ether.kind() == ethernet::IPV4);
    if is_v4 { flow_v4(frame, hash) } else { flow_v6(frame, hash) }
}

#[inline]
fn flow_of(headers: Option<Headers<'_>>, key: FlowKey, seed: u64) -> u64 {
    let Some(headers) = headers else { return seed };
    if key.quoted
        && let Some(quoted) = headers.quoted()
    {
        return quoted.hash(key.outer, seed);
    }
    let innermost = if key.inner == Fields::NONE { None } else { headers.innermost() };
    match innermost {
        Some(inner) if key.inner_only => inner.hash(key.inner, seed),
        Some(inner) => inner.hash(key.inner, headers.hash(key.outer, seed)),
        None => headers.hash(key.outer, seed),
    }
}

/// The fields of an IP packet.
struct Headers<'a> {
    is_v4: bool,
    src: u128,
    dst: u128,
    label: u32,
    /// The protocol behind extension headers; 0 if they cannot be parsed, and for a fragment, of which
    /// only the first may have all of them.
    protocol: u8,
    /// The bytes behind the headers; none of a fragment.
    payload: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Reads those of a complete IPv4 packet.
    #[inline]
    fn v4(packet: &'a [u8]) -> Option<Self> {
        let view = ipv4::View::parse(packet).ok()?;
        let at = view.header_len()..view.total_len().into();
        let payload = packet.get(at).filter(|_| !view.is_fragment()).unwrap_or_default();
        let (src, dst) = (view.src().into(), view.dst().into());
        Some(Self { is_v4: true, src, dst, label: 0, protocol: view.protocol(), payload })
    }

    /// Reads those of a complete IPv6 packet.
    #[inline]
    fn v6(packet: &'a [u8]) -> Option<Self> {
        let view = ipv6::View::parse(packet).ok()?;
        let (src, dst, label) = (view.src(), view.dst(), view.flow_label());
        let end = ipv6::LEN + usize::from(view.payload_len());
        let (protocol, payload) = match view.upper() {
            Ok(upper) if upper.fragment.is_none() => {
                (upper.protocol, packet.get(upper.offset..end).unwrap_or_default())
            }
            _ => (0, &[][..]),
        };
        Some(Self { is_v4: false, src, dst, label, protocol, payload })
    }

    /// Returns the headers of the packet inside, if it is a complete IP packet.
    fn inner(&self) -> Option<Self> {
        match self.protocol {
            IPV4_IN_IP => Self::v4(self.payload),
            IPV6_IN_IP => Self::v6(self.payload),
            gre::PROTOCOL => match in_gre(self.payload)? {
                (ethernet::IPV4, packet) => Self::v4(packet),
                (ethernet::IPV6, packet) => Self::v6(packet),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the headers of the packet in all tunnels, if there is a tunnel.
    fn innermost(&self) -> Option<Self> {
        let first = self.inner()?;
        Some(
            (1..MAX_DEPTH)
                .try_fold(first, |headers, _| headers.inner().ok_or(headers))
                .unwrap_or_else(|last| last),
        )
    }

    /// Returns the headers of the packet that an ICMP error quotes, as far as they are there.
    fn quoted(&self) -> Option<Self> {
        let protocol = if self.is_v4 { icmp::PROTOCOL } else { icmp::PROTOCOL_V6 };
        if self.protocol != protocol {
            return None;
        }
        if self.is_v4 {
            quoted_v4(self.payload).map(|quoted| Self::of_quoted(true, quoted))
        } else {
            quoted_v6(self.payload).map(|quoted| Self::of_quoted(false, quoted))
        }
    }

    fn of_quoted<A: Into<u128>>(is_v4: bool, quoted: Quoted<A>) -> Self {
        let Quoted { src, dst, protocol, flow_label: label } = quoted;
        Self { is_v4, src: src.into(), dst: dst.into(), label, protocol, payload: &[] }
    }

    /// Returns the hash of the selected fields.
    #[inline]
    fn hash(&self, fields: Fields, seed: u64) -> u64 {
        let fields = if self.is_v4 { fields.v4 } else { fields.v6 };
        let has = |field: u8| fields & field != 0;
        let (src_port, dst_port) = if has(SOURCE_PORT | DESTINATION_PORT) {
            ports(self.protocol, self.payload).unwrap_or_default()
        } else {
            (0, 0)
        };
        let select = |field, address, port_field, port| {
            (if has(field) { address } else { 0 }, if has(port_field) { port } else { 0 })
        };
        let source = select(SOURCE, self.src, SOURCE_PORT, src_port);
        let destination = select(DESTINATION, self.dst, DESTINATION_PORT, dst_port);
        let ((src, src_port), (dst, dst_port)) =
            if destination < source { (destination, source) } else { (source, destination) };
        let label = if has(FLOW_LABEL) { self.label } else { 0 };
        let protocol = if has(PROTOCOL) { self.protocol } else { 0 };
        let upper = u64::from(label) << 40
            | u64::from(protocol) << 32
            | u64::from(src_port) << 16
            | u64::from(dst_port);
        if self.is_v4 {
            return mix([(src as u64) << 32 | dst as u64, upper], seed);
        }
        let halves = |address: u128| [(address >> 64) as u64, address as u64];
        let ([s1, s0], [d1, d0]) = (halves(src), halves(dst));
        mix([s1, s0, d1, d0, upper], seed)
    }
}

/// Returns the type and the packet in a GRE packet.
fn in_gre(packet: &[u8]) -> Option<(u16, &[u8])> {
    let view = gre::View::parse(packet).ok()?;
    let (kind, payload) = (view.kind(), packet.get(view.header_len()..)?);
    if kind != gre::ETHERNET {
        return Some((kind, payload));
    }
    let ether = ethernet::View::parse(payload).ok()?;
    Some((ether.kind(), payload.get(ethernet::LEN..)?))
}

#[inline]
fn mix<const N: usize>(words: [u64; N], seed: u64) -> u64 {
    let (mut sum, mut factor) = (seed, SPREAD);
    for word in words {
        sum = sum.wrapping_add(fold(word, factor));
        factor = factor.wrapping_add(SPREAD.wrapping_mul(2));
    }
    fold(sum, SPREAD)
}

#[inline]
fn fold(word: u64, factor: u64) -> u64 {
    let product = u128::from(word) * u128::from(factor);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use fib::Hop;

    use super::mix;
    use crate::Group;

    /// A function that returns the words of the flow with this number.
    type Words = fn(u64) -> [u64; 2];

    /// Flows that differ in few bits, as real ones do, fill 4096 buckets as random numbers would:
    /// chi-squared divided by its degrees of freedom is 1, within 0.022.
    #[test]
    fn flows_that_are_alike_are_spread_as_if_by_chance() {
        const FLOWS: u64 = 100_000;
        const BUCKETS: usize = 4096;
        const NEAR: u64 = 0xc000_0263_0a00_0000;
        const WEB: u64 = 6 << 32 | 443;
        let ways: [(&str, Words); 5] = [
            ("source ports", |n| [NEAR + n / 60_000, WEB | (n % 60_000) << 16]),
            ("destination ports", |n| [NEAR + n / 60_000, 17 << 32 | (n % 60_000)]),
            ("sources", |n| [NEAR + (n << 32), WEB]),
            ("destinations", |n| [NEAR + n, WEB]),
            ("sources and destinations", |n| [NEAR + ((n % 316) << 32) + n / 316, 6 << 32]),
        ];
        for (what, words) in ways {
            for seed in [0, 1, 0x1234_5678_9abc_def0] {
                // By the low bits, as groups choose, and by the high ones, as bonds do.
                let [mut four, mut six] = [(); 2].map(|()| [(); 2].map(|()| vec![0_u32; BUCKETS]));
                for n in 0..FLOWS {
                    let [addresses, upper] = words(n);
                    let (src, dst) = (addresses >> 32, addresses & 0xffff_ffff);
                    let prefix = 0x2001_0db8 << 32;
                    let flows = [
                        mix([addresses, upper], seed),
                        mix([prefix, src, prefix, dst, upper], seed),
                    ];
                    for (flow, [low, high]) in flows.into_iter().zip([&mut four, &mut six]) {
                        low[flow as usize % BUCKETS] += 1;
                        high[(flow >> 52) as usize] += 1;
                    }
                }
                let even = FLOWS as f64 / BUCKETS as f64;
                for buckets in four.into_iter().chain(six) {
                    let off = buckets.iter().map(|&had| (f64::from(had) - even).powi(2) / even);
                    let chi = off.sum::<f64>() / (BUCKETS - 1) as f64;
                    assert!((0.9..1.1).contains(&chi), "{what}, seed {seed}: {chi}");
                }
            }
        }
    }

    /// Few flows in a row are divided as if by chance, too: of 64 flows, fewer than 10 take one of two paths once
    /// in 10^8 cases.
    #[test]
    fn few_flows_that_are_alike_take_both_paths() {
        let group = Group::of(&[(Hop(1), 1), (Hop(2), 1)], &Group::default());
        for word in 0..5 {
            for shift in [0, 16, 32] {
                for seed in (0..400_u64).map(|n| n.wrapping_mul(0x1234_5678_9abc_def1)) {
                    let takes_first = |n: &u64| {
                        let mut words = [0x2001_0db8 << 32, 1, 0x2001_0db8 << 32, 1, 17 << 32];
                        words[word] = u64::wrapping_add(words[word], n << shift);
                        group.choose(mix(words, seed)) == Hop(1)
                    };
                    let count = (0..64).filter(takes_first).count();
                    assert!((10..=54).contains(&count), "word {word} << {shift}, {seed}: {count}");
                }
            }
        }
    }
}
