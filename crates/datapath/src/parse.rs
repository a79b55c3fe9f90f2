//! Parse: from a frame to an address to look up, or to a verdict.
//!
//! This is the first stage after a port. It makes all checks that need no route, in the order
//! below; the first check that applies decides. A packet that passes has a valid header, may be
//! forwarded and has a TTL above 1. The families are handled separately from here until the packets
//! leave.
//!
//! ```text
//!   frame      14 bytes · own MAC address · ARP and tags to the host · IPv4 or IPv6
//!                │ unicast frames only
//!   header     lengths, version, checksum, source routes     RFC 1812 5.2.2, RFC 8200 3
//!   delivery   own, broadcast, multicast → the host          RFC 1812 5.2.3
//!   martian    destination, then source                      RFC 1812 5.3.7, RFC 4291 2.5
//!   lifetime   TTL above 1                                   RFC 1812 5.3.1
//!                ▼
//!              key: the destination
//! ```
//!
//! The lifetime is checked last, because a packet for the router itself is delivered whatever its
//! TTL (RFC 1812, 5.3.1), and because a martian counts as a martian whatever its TTL. RFC 1812,
//! 5.2.2 puts the checksum before the version and the IHL. The IHL states which bytes the checksum
//! covers, so here the checksum follows them, which changes only the counter.
//!
//! Addresses in 0.0.0.0/8 and 240.0.0.0/4 and IPv4 link-local sources are forwarded as by Linux, against
//! RFC 1812, 5.3.7 and RFC 3927, 2.7.
//!
//! IPv4 options other than source routes and the hop-by-hop options of IPv6 are not examined here: the
//! host does so (`rewrite.rs`), or they are forwarded with the packet (RFC 7126; RFC 8200, section 4:
//! only nodes that are configured to examine them do).

use wire::{BadHeader, ethernet, ipv4, ipv6, vlan};

use super::{Locals, Verdict};

/// The result of parsing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// An IPv4 packet to forward, by its destination.
    V4(u32),
    /// An IPv6 packet to forward, by its destination.
    V6(u128),
    /// A frame whose verdict is decided.
    Done(Verdict),
}

/// Receives the result of parsing a frame. Parsing calls it where it finds the result: to return a value of
/// three kinds, which the caller distinguishes again, costs 10 to 22 instructions a packet.
pub(super) trait ParseSink {
    /// Takes the destination of an IPv4 packet to forward.
    fn put_v4(&mut self, dst: u32);
    /// Takes the destination of an IPv6 packet to forward.
    fn put_v6(&mut self, dst: u128);
    /// Takes the verdict of any other frame.
    fn put_done(&mut self, verdict: Verdict);
}

impl ParseSink for Parsed {
    #[inline(always)]
    fn put_v4(&mut self, dst: u32) {
        *self = Self::V4(dst);
    }

    #[inline(always)]
    fn put_v6(&mut self, dst: u128) {
        *self = Self::V6(dst);
    }

    #[inline(always)]
    fn put_done(&mut self, verdict: Verdict) {
        *self = Self::Done(verdict);
    }
}

/// Parses a frame that arrived on the port with address `mac`.
#[inline(always)]
pub fn parse(frame: &[u8], mac: [u8; 6], locals: &Locals) -> Parsed {
    let mut parsed = Parsed::Done(Verdict::Runt);
    parse_tagged(frame, 0, mac, locals, &mut parsed);
    parsed
}

/// Parses a frame behind the first `tags` bytes of its tags.
#[inline(always)]
pub(super) fn parse_tagged(
    frame: &[u8],
    tags: usize,
    mac: [u8; 6],
    locals: &Locals,
    sink: &mut impl ParseSink,
) {
    match (frame.first_chunk(), frame.get(tags..)) {
        (Some(&dst), Some(frame)) => parse_behind(frame, dst, mac, locals, sink),
        _ => sink.put_done(Verdict::Runt),
    }
}

/// Parses what remains of a frame to `dst` without its tags: its first 12 bytes are no MAC addresses
/// then, and are not read.
#[inline(always)]
fn parse_behind(
    frame: &[u8],
    dst: [u8; 6],
    mac: [u8; 6],
    locals: &Locals,
    sink: &mut impl ParseSink,
) {
    let Ok(ether) = ethernet::View::parse(frame) else {
        return sink.put_done(Verdict::Runt);
    };
    let refused = if dst == mac {
        match ether.kind() {
            ethernet::IPV4 => match parse_v4(ether.payload(), locals) {
                Ok(dst) => return sink.put_v4(dst),
                Err(verdict) => verdict,
            },
            ethernet::IPV6 => match parse_v6(ether.payload(), locals) {
                Ok(dst) => return sink.put_v6(dst),
                Err(verdict) => verdict,
            },
            kind => verdict_of_kind(kind),
        }
    } else {
        elsewhere(dst, ether.kind())
    };
    sink.put_done(refused);
}

/// Returns the verdict of a frame that is neither IPv4 nor IPv6.
#[cold]
fn verdict_of_kind(kind: u16) -> Verdict {
    match kind {
        ethernet::ARP => Verdict::Arp,
        kind if vlan::is_tag(kind) => Verdict::Tagged,
        _ => Verdict::EtherType,
    }
}

/// Returns the verdict of a frame whose destination is not the port's own MAC address.
#[cold]
fn elsewhere(dst: [u8; 6], kind: u16) -> Verdict {
    if !ethernet::is_group(dst) {
        return Verdict::NotOurs;
    }
    if kind != ethernet::IPV4 && kind != ethernet::IPV6 {
        return verdict_of_kind(kind);
    }
    // RFC 1812, 5.3.4: a packet that arrived as a link-layer broadcast or multicast is not
    // forwarded; the host decides whether to accept it.
    if dst == ethernet::BROADCAST { Verdict::Broadcast } else { Verdict::Multicast }
}

/// Returns the verdict of a header that `wire` refused.
#[cold]
fn refused(bad: BadHeader) -> Verdict {
    match bad {
        BadHeader::Version => Verdict::BadVersion,
        BadHeader::HeaderLength => Verdict::BadHeaderLength,
        BadHeader::Length => Verdict::BadTotalLength,
        BadHeader::Checksum => Verdict::BadChecksum,
        BadHeader::Truncated | BadHeader::Kind | BadHeader::Chain => Verdict::Truncated,
    }
}

#[inline(always)]
fn parse_v4(bytes: &[u8], locals: &Locals) -> Result<u32, Verdict> {
    // RFC 1812, 5.2.2 (1), (3), (4), (5).
    let packet = ipv4::View::parse(bytes).map_err(refused)?;
    // RFC 1812, 5.2.2 (2).
    if !packet.checksum_ok() {
        return Err(Verdict::BadChecksum);
    }
    if packet.header_len() > ipv4::LEN && has_source_route(packet.options()) {
        return Err(Verdict::SourceRoute);
    }
    let (src, dst) = (packet.src(), packet.dst());
    // RFC 1812, 5.2.3: local delivery.
    if locals.holds_v4(dst) {
        return Err(Verdict::OwnAddress);
    }
    if odd_v4(dst) || odd_v4(src) {
        judge_v4(src, dst)?;
    }
    // As Linux, unless `accept_local` is set.
    if locals.holds_source_v4(src) {
        return Err(Verdict::MartianSource);
    }
    // RFC 1812, 5.3.1.
    if packet.ttl() <= 1 {
        return Err(Verdict::TtlExpired);
    }
    Ok(dst)
}

/// Returns whether an address is in one of the blocks that [`judge_v4`] checks.
#[inline(always)]
fn odd_v4(address: u32) -> bool {
    let top = address >> 24;
    top == 0 || top == 127 || top >= 224 || address >> 16 == 0xa9fe
}

/// Checks addresses of which at least one is in a special block.
#[cold]
fn judge_v4(src: u32, dst: u32) -> Result<(), Verdict> {
    match dst >> 24 {
        _ if dst == u32::MAX => Err(Verdict::Broadcast), // RFC 1812, 5.3.5.1
        224..=239 => Err(Verdict::Multicast),            // RFC 1112, 4
        127 => Err(Verdict::Loopback),                   // RFC 1812, 5.3.7
        _ if dst == 0 => Err(Verdict::MartianDestination), // RFC 1812, 5.3.7
        _ if dst >> 16 == 0xa9fe => Err(Verdict::LinkLocal), // RFC 3927, 2.7
        _ => Ok(()),
    }?;
    match src >> 24 {
        127 => Err(Verdict::Loopback),
        224..=239 => Err(Verdict::MulticastSource), // RFC 1812, 4.2.2.11
        _ if src == 0 || src == u32::MAX => Err(Verdict::MartianSource),
        _ => Ok(()),
    }
}

/// Returns whether IPv4 options contain a loose or strict source route (RFC 791, 3.1; dropped by
/// default as RFC 7126, 4.3.5 and 4.4.5 advise). Options that cannot be parsed to their end contain
/// none: the router does not repair the packet.
#[cold]
fn has_source_route(mut options: &[u8]) -> bool {
    loop {
        match *options {
            [] | [0, ..] => return false,
            [131 | 137, ..] => return true,
            [1, ref rest @ ..] => options = rest,
            [_, len, ..] if len >= 2 => match options.get(usize::from(len)..) {
                Some(rest) => options = rest,
                None => return false,
            },
            _ => return false,
        }
    }
}

#[inline(always)]
fn parse_v6(bytes: &[u8], locals: &Locals) -> Result<u128, Verdict> {
    let packet = ipv6::View::parse(bytes).map_err(refused)?;
    let (src, dst) = (packet.src(), packet.dst());
    if locals.holds_v6(dst) {
        return Err(Verdict::OwnAddress);
    }
    if odd_v6(dst) || odd_v6(src) {
        judge_v6(src, dst)?;
    }
    // RFC 8200, 3: "Hop Limit".
    if packet.hop_limit() <= 1 {
        return Err(Verdict::TtlExpired);
    }
    Ok(dst)
}

/// Returns whether an address is in one of the blocks that [`judge_v6`] checks, or close to one:
/// the first 16 bits are zero, or fe80 or above.
#[inline(always)]
fn odd_v6(address: u128) -> bool {
    let top = (address >> 112) as u16;
    top == 0 || top >= 0xfe80
}

/// Checks addresses of which at least one is in a special block or close to one.
#[cold]
fn judge_v6(src: u128, dst: u128) -> Result<(), Verdict> {
    if dst >> 120 == 0xff {
        return Err(Verdict::Multicast); // RFC 4291, 2.7
    }
    for (address, martian) in [(dst, Verdict::MartianDestination), (src, Verdict::MartianSource)] {
        if address == 1 {
            return Err(Verdict::Loopback); // RFC 4291, 2.5.3
        }
        if address >> 120 == 0xff {
            return Err(Verdict::MulticastSource); // RFC 4291, 2.7
        }
        // Unspecified (RFC 4291, 2.5.2) and IPv4-mapped (2.5.5.2, RFC 6890).
        if address == 0 || address >> 32 == 0xffff {
            return Err(martian);
        }
        if address >> 118 == 0xfe80 >> 6 {
            return Err(Verdict::LinkLocal); // RFC 4291, 2.5.6
        }
    }
    Ok(())
}

/// Returns the source of an IPv4 packet that parse accepted.
#[inline]
pub fn source_v4(frame: &[u8]) -> u32 {
    let packet = frame.get(ethernet::LEN..).unwrap_or_default();
    ipv4::View::parse(packet).map_or(0, |packet| packet.src())
}

/// Returns the source of an IPv6 packet that parse accepted.
#[inline]
pub fn source_v6(frame: &[u8]) -> u128 {
    let packet = frame.get(ethernet::LEN..).unwrap_or_default();
    ipv6::View::parse(packet).map_or(0, |packet| packet.src())
}

#[cfg(test)]
mod tests {
    use super::{has_source_route, judge_v4, judge_v6, odd_v4, odd_v6};

    /// The quick test must cover every address that the complete check refuses.
    #[test]
    fn the_quick_question_misses_nothing() {
        let fine = 0xc000_0201;
        for top in 0..=0xffffu32 {
            for low in [0, 1, 0xffff] {
                let address = top << 16 | low;
                let judged = judge_v4(address, fine).is_err() || judge_v4(fine, address).is_err();
                assert!(!judged || odd_v4(address), "{address:08x}");
            }
        }
        let fine = 0x2001_0db8 << 96 | 1;
        for top in 0..=0xffffu128 {
            for low in [0, 1, 0xffff_0000_0000, 0xffff_c000_0201, u128::MAX >> 16] {
                let address = top << 112 | low;
                let judged = judge_v6(address, fine).is_err() || judge_v6(fine, address).is_err();
                assert!(!judged || odd_v6(address), "{address:032x}");
            }
        }
    }

    #[test]
    fn source_routes_are_found_behind_other_options() {
        assert!(!has_source_route(&[]));
        assert!(!has_source_route(&[1, 1, 1, 0]));
        assert!(!has_source_route(&[148, 4, 0, 0]));
        assert!(has_source_route(&[131, 3, 4, 0]));
        assert!(has_source_route(&[1, 148, 4, 0, 0, 137, 3, 4]));
        assert!(!has_source_route(&[148, 4, 131, 137]), "inside another option");
        assert!(!has_source_route(&[0, 131, 3, 4]), "after the end of the list");
        assert!(!has_source_route(&[7, 0, 131, 3]), "after a length that cannot be");
        assert!(!has_source_route(&[7, 1, 131, 3]), "after a length that cannot be");
        assert!(!has_source_route(&[7, 40, 131, 3]), "beyond the end");
    }
}
