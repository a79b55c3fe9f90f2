//! The flow hash: a number that all packets of one connection have in common.
//!
//! The datapath computes it only for a hop that is a group (`group.rs`), from a packet that parse
//! accepted. The input, in words of 64 bits, is:
//!
//! ```text
//!   IPv4    source:32 destination:32              | 0:24 protocol:8 ports:32
//!   IPv6    source high | low | destination high | low | 0:24 protocol:8 ports:32
//! ```
//!
//! | packet | protocol, ports |
//! |---|---|
//! | TCP, UDP, UDP-Lite, SCTP, DCCP | the protocol and the first four bytes of its header |
//! | another protocol | the protocol; ports 0 |
//! | a fragment, the first one too | 0: only the first has ports, and all must take one path |
//! | extension headers that cannot be parsed, or are truncated | 0 |
//! | IP in IP (protocols 4 and 41, RFC 2003, RFC 4213) | all words are those of the inner packet |
//!
//! Without the last row a tunnel would be one flow, however much traffic it carries. One level of
//! encapsulation is parsed; if the payload is not a complete IP packet, or the outer packet is
//! a fragment, the outer headers count. The IPv6 flow label is not an input: hosts may change it
//! within a connection (RFC 6437).
//!
//! Word i is multiplied by the odd number 2i + 1 times [`SPREAD`] to 128 bits, and the two halves
//! are combined by exclusive or. The sum of these results and of the seed is folded once more in
//! the same way. The words do not depend on each other; a serial computation would take half as
//! long again for an IPv6 packet. Without a seed, consecutive routers would all make the same
//! choice, and the second one would use only one member of each of its groups.

use wire::{ethernet, ipv4, ipv6};

/// 2^64 divided by the golden ratio, as in `locals.rs`; odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;

/// Returns the flow of an IPv4 packet in an Ethernet frame.
#[inline(never)]
pub fn flow_v4(frame: &[u8], seed: u64) -> u64 {
    frame.get(ethernet::LEN..).map_or(seed, |packet| of_v4(packet, seed, true))
}

/// Returns the flow of an IPv6 packet in an Ethernet frame.
#[inline(never)]
pub fn flow_v6(frame: &[u8], seed: u64) -> u64 {
    frame.get(ethernet::LEN..).map_or(seed, |packet| of_v6(packet, seed, true))
}

/// Returns the flow of the packet in an Ethernet frame without tags, by its type.
pub(super) fn flow(frame: &[u8], seed: u64) -> u64 {
    let is_v4 = ethernet::View::parse(frame).is_ok_and(|ether| ether.kind() == ethernet::IPV4);
    if is_v4 { flow_v4(frame, seed) } else { flow_v6(frame, seed) }
}

fn of_v4(packet: &[u8], seed: u64, outer: bool) -> u64 {
    let Ok(packet) = ipv4::View::parse(packet) else { return seed };
    let mut upper = 0;
    if !packet.is_fragment() {
        if outer && let Some(flow) = inner(packet.protocol(), packet.payload(), seed) {
            return flow;
        }
        upper = protocol(packet.protocol(), packet.payload());
    }
    let addresses = u64::from(packet.src()) << 32 | u64::from(packet.dst());
    mix([addresses, upper], seed)
}

fn of_v6(packet: &[u8], seed: u64, outer: bool) -> u64 {
    let Ok(packet) = ipv6::View::parse(packet) else { return seed };
    let mut word = 0;
    if let Ok(upper) = packet.upper()
        && upper.fragment.is_none()
    {
        let payload = packet.payload().get(upper.offset - ipv6::LEN..).unwrap_or_default();
        if outer && let Some(flow) = inner(upper.protocol, payload, seed) {
            return flow;
        }
        word = protocol(upper.protocol, payload);
    }
    let halves = |address: u128| [(address >> 64) as u64, address as u64];
    let ([s1, s0], [d1, d0]) = (halves(packet.src()), halves(packet.dst()));
    mix([s1, s0, d1, d0, word], seed)
}

/// Returns the flow of an IP packet inside a packet, if the inner packet is complete.
fn inner(protocol: u8, payload: &[u8], seed: u64) -> Option<u64> {
    match protocol {
        IPV4_IN_IP if ipv4::View::parse(payload).is_ok() => Some(of_v4(payload, seed, false)),
        IPV6_IN_IP if ipv6::View::parse(payload).is_ok() => Some(of_v6(payload, seed, false)),
        _ => None,
    }
}

/// Returns the word of the protocol and its ports, where it has some: TCP (RFC 9293),
/// UDP (RFC 768), DCCP (RFC 4340), SCTP (RFC 9260), UDP-Lite (RFC 3828).
fn protocol(protocol: u8, payload: &[u8]) -> u64 {
    let ports = match (protocol, payload.first_chunk()) {
        (6 | 17 | 33 | 132 | 136, Some(&ports)) => u32::from_be_bytes(ports),
        _ => 0,
    };
    u64::from(protocol) << 32 | u64::from(ports)
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
    use super::mix;

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
}
