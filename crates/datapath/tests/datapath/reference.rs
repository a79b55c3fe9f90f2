//! The slow reference: the whole decision on one packet, as plain as it can be written.
//!
//! It shares no line with the datapath: no views, no batches, no tables, no incremental checksum.
//! It reads bytes by index, in the order of RFC 1812, section 5.2 and RFC 8200, section 3; the
//! routes are a list that it searches from end to end; it computes the header checksum from scratch
//! before and after. It returns the result that the router must produce: the verdict and, for a
//! packet that is sent, the port and every byte of the frame.

use fingerpost_datapath::{ReversePathFilter, Verdict};

use crate::flows::{Policy, flow};
use crate::packets::header_checksum;

pub(crate) struct Gateway {
    pub(crate) dst_mac: [u8; 6],
    pub(crate) src_mac: [u8; 6],
    pub(crate) port: usize,
    pub(crate) mtu: usize,
}

/// The target of a route.
#[derive(Clone, Copy)]
pub(crate) enum RouteTarget {
    /// A gateway, by its index in the list.
    To(usize),
    Blackhole,
    /// The host's own stack.
    Host,
    /// A member of a group, by the group's index and the packet's flow.
    Group(usize),
}

/// The settings for packets of one port.
pub(crate) struct Entrance {
    pub(crate) mac: [u8; 6],
    /// The table's index in the list.
    pub(crate) table: usize,
    pub(crate) sources: [ReversePathFilter; 2],
    /// It is no router to IPv4 packets; to IPv6 packets.
    pub(crate) forwarding_off: [bool; 2],
    /// The host continues with other tables where this one has no route.
    pub(crate) further: bool,
}

/// The routes and own addresses of one table.
#[derive(Default)]
pub(crate) struct Paper {
    pub(crate) own4: Vec<u32>,
    pub(crate) own6: Vec<u128>,
    pub(crate) routes4: Vec<(u32, u32, RouteTarget)>,
    pub(crate) routes6: Vec<(u128, u32, RouteTarget)>,
}

/// A model of the router. IPv4 addresses are numbers of 32 bits, IPv6 addresses of 128; one prefix
/// match serves both.
pub(crate) struct Model {
    pub(crate) ports: Vec<Entrance>,
    pub(crate) tables: Vec<Paper>,
    pub(crate) gateways: Vec<Gateway>,
    /// The gateway of each bucket of each group.
    pub(crate) groups: Vec<Vec<usize>>,
    pub(crate) policy: Policy,
    pub(crate) seed: u64,
    /// The host answers for the router, without limit.
    pub(crate) answers: bool,
}

fn word(bytes: &[u8], at: usize) -> usize {
    bytes[at] as usize * 256 + bytes[at + 1] as usize
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |value, &byte| value * 256 + byte as u128)
}

fn inside(address: u128, block: u128, len: u32, width: u32) -> bool {
    len == 0 || address >> (width - len) == block >> (width - len)
}

impl Model {
    /// Decides about a `frame` that arrived on `port`: returns the verdict and the frames that are
    /// sent, each with its port: one, or the fragments of the packet.
    pub(crate) fn decide(&self, port: usize, frame: &[u8]) -> (Verdict, Vec<(usize, Vec<u8>)>) {
        match self.decide_inner(port, frame) {
            Ok(sent) => (Verdict::Sent, sent),
            Err(Verdict::TooBig) if self.answers && !may_fragment(frame) => {
                (Verdict::Oversize, vec![])
            }
            Err(Verdict::NoRoute) if self.answers => (Verdict::Unreachable, vec![]),
            Err(verdict) => (verdict, vec![]),
        }
    }

    fn decide_inner(&self, port: usize, frame: &[u8]) -> Result<Vec<(usize, Vec<u8>)>, Verdict> {
        if frame.len() < 14 {
            return Err(Verdict::Runt);
        }
        let group = frame[0] % 2 == 1;
        let ours = frame[..6] == self.ports[port].mac;
        if !group && !ours {
            return Err(Verdict::NotOurs);
        }
        match word(frame, 12) {
            0x0806 => Err(Verdict::Arp),
            0x8100 | 0x88a8 => Err(Verdict::Tagged),
            0x0800 | 0x86dd if frame[..6] == [0xff; 6] => Err(Verdict::Broadcast),
            0x0800 | 0x86dd if group && !ours => Err(Verdict::Multicast),
            0x0800 => self.decide_v4(port, frame),
            0x86dd => self.decide_v6(port, frame),
            _ => Err(Verdict::EtherType),
        }
    }

    fn decide_v4(&self, port: usize, frame: &[u8]) -> Result<Vec<(usize, Vec<u8>)>, Verdict> {
        let table = &self.tables[self.ports[port].table];
        let packet = &frame[14..];
        if packet.len() < 20 {
            return Err(Verdict::Truncated);
        }
        if packet[0] / 16 != 4 {
            return Err(Verdict::BadVersion);
        }
        let header_len = packet[0] as usize % 16 * 4;
        if header_len < 20 {
            return Err(Verdict::BadHeaderLength);
        }
        let total = word(packet, 2);
        if total < header_len {
            return Err(Verdict::BadTotalLength);
        }
        if total > packet.len() {
            return Err(Verdict::Truncated);
        }
        let header = &packet[..header_len];
        // 0 and 0xffff are the same number in ones' complement.
        let stated = word(header, 10);
        if stated % 0xffff != header_checksum(header) % 0xffff {
            return Err(Verdict::BadChecksum);
        }
        let mut at = 20;
        while at < header_len {
            match header[at] {
                0 => break,
                1 => at += 1,
                131 | 137 => return Err(Verdict::SourceRoute),
                _ if at + 1 >= header_len || header[at + 1] < 2 => break,
                _ => at += header[at + 1] as usize,
            }
        }

        let src = number(&packet[12..16]) as u32;
        let dst = number(&packet[16..20]) as u32;
        if table.own4.contains(&dst) {
            return Err(Verdict::OwnAddress);
        }
        if dst == 0xffff_ffff {
            return Err(Verdict::Broadcast);
        }
        let [d0, d1, ..] = dst.to_be_bytes();
        let [s0, ..] = src.to_be_bytes();
        if (224..240).contains(&d0) {
            return Err(Verdict::Multicast);
        }
        if d0 == 127 {
            return Err(Verdict::Loopback);
        }
        if dst == 0 {
            return Err(Verdict::MartianDestination);
        }
        if [d0, d1] == [169, 254] {
            return Err(Verdict::LinkLocal);
        }
        if s0 == 127 {
            return Err(Verdict::Loopback);
        }
        if (224..240).contains(&s0) {
            return Err(Verdict::MulticastSource);
        }
        if src == 0 || src == 0xffff_ffff || table.own4.contains(&src) {
            return Err(Verdict::MartianSource);
        }
        let routes = table.routes4.iter().map(|&(block, len, way)| (block.into(), len, way));
        let target = best(dst.into(), 32, routes.clone());
        let is_hosts = self.is_hosts(port, target);
        if self.ports[port].forwarding_off[0] && (packet[8] <= 1 || !is_hosts) {
            return Err(Verdict::ForwardingOff);
        }
        let back = best(src.into(), 32, routes.clone());
        let [filter, _] = self.ports[port].sources;
        if !self.source_is_right(filter, port, back, table.own4.contains(&src)) {
            return Err(Verdict::Spoofed);
        }
        if packet[8] <= 1 {
            return Err(Verdict::TtlExpired);
        }
        let gateway = self.gateway_of(port, dst.into(), 32, routes, packet)?;
        let mut out = frame.to_vec();
        out[14 + 8] -= 1;
        let parts = if total > gateway.mtu {
            fragments(&out[..14 + total], 14 + header_len, gateway.mtu)?
        } else {
            vec![out]
        };
        let sealed = parts.into_iter().map(|mut out| {
            let sum = header_checksum(&out[14..14 + header_len]);
            out[14 + 10] = (sum / 256) as u8;
            out[14 + 11] = (sum % 256) as u8;
            let total = word(&out, 16);
            leave(out, total, gateway)
        });
        Ok(sealed.collect())
    }

    fn decide_v6(&self, port: usize, frame: &[u8]) -> Result<Vec<(usize, Vec<u8>)>, Verdict> {
        let table = &self.tables[self.ports[port].table];
        let packet = &frame[14..];
        if packet.len() < 40 {
            return Err(Verdict::Truncated);
        }
        if packet[0] / 16 != 6 {
            return Err(Verdict::BadVersion);
        }
        let total = 40 + word(packet, 4);
        if total > packet.len() {
            return Err(Verdict::Truncated);
        }
        let src = number(&packet[8..24]);
        let dst = number(&packet[24..40]);
        if table.own6.contains(&dst) {
            return Err(Verdict::OwnAddress);
        }
        let block = |text: &str, len, address| {
            inside(address, text.parse::<std::net::Ipv6Addr>().unwrap().into(), len, 128)
        };
        if block("ff00::", 8, dst) {
            return Err(Verdict::Multicast);
        }
        if block("::1", 128, dst) {
            return Err(Verdict::Loopback);
        }
        if block("::", 128, dst) || block("::ffff:0:0", 96, dst) {
            return Err(Verdict::MartianDestination);
        }
        if block("fe80::", 10, dst) {
            return Err(Verdict::LinkLocal);
        }
        if block("::1", 128, src) {
            return Err(Verdict::Loopback);
        }
        if block("ff00::", 8, src) {
            return Err(Verdict::MulticastSource);
        }
        if block("::", 128, src) || block("::ffff:0:0", 96, src) {
            return Err(Verdict::MartianSource);
        }
        if block("fe80::", 10, src) {
            return Err(Verdict::LinkLocal);
        }
        let target = best(dst, 128, table.routes6.iter().copied());
        let leads = matches!(target, Some(RouteTarget::To(_) | RouteTarget::Group(_)));
        if self.ports[port].forwarding_off[1] && (packet[7] <= 1 || leads) {
            return Err(Verdict::ForwardingOff);
        }
        let back = best(src, 128, table.routes6.iter().copied());
        let [_, filter] = self.ports[port].sources;
        if !self.source_is_right(filter, port, back, table.own6.contains(&src)) {
            return Err(Verdict::Spoofed);
        }
        if packet[7] <= 1 {
            return Err(Verdict::TtlExpired);
        }
        let gateway = self.gateway_of(port, dst, 128, table.routes6.iter().copied(), packet)?;
        if total > gateway.mtu {
            return Err(Verdict::TooBig);
        }
        let mut out = frame.to_vec();
        out[14 + 7] -= 1;
        Ok(vec![leave(out, total, gateway)])
    }

    /// Returns whether a packet whose source has the route `back` may arrive on `port`.
    fn source_is_right(
        &self,
        filter: ReversePathFilter,
        port: usize,
        back: Option<RouteTarget>,
        own: bool,
    ) -> bool {
        let ports = match back {
            Some(RouteTarget::To(at)) => vec![self.gateways[at].port],
            Some(RouteTarget::Group(at)) => {
                self.groups[at].iter().map(|&at| self.gateways[at].port).collect()
            }
            Some(RouteTarget::Host) => vec![],
            None | Some(RouteTarget::Blackhole) => {
                return filter == ReversePathFilter::Off;
            }
        };
        match filter {
            ReversePathFilter::Off => true,
            ReversePathFilter::Loose => !own,
            ReversePathFilter::Strict => !own && ports.contains(&port),
        }
    }

    /// Returns whether packets by this target are the host's.
    fn is_hosts(&self, port: usize, target: Option<RouteTarget>) -> bool {
        match target {
            None => self.ports[port].further,
            Some(target) => matches!(target, RouteTarget::Host),
        }
    }

    /// Finds the gateway of the longest route that contains `address`.
    fn gateway_of(
        &self,
        port: usize,
        address: u128,
        width: u32,
        routes: impl Iterator<Item = (u128, u32, RouteTarget)>,
        packet: &[u8],
    ) -> Result<&Gateway, Verdict> {
        match best(address, width, routes) {
            None if self.ports[port].further => Err(Verdict::HostRoute),
            None => Err(Verdict::NoRoute),
            Some(RouteTarget::Blackhole) => Err(Verdict::Blackhole),
            Some(RouteTarget::Host) => Err(Verdict::HostRoute),
            Some(RouteTarget::To(at)) => Ok(&self.gateways[at]),
            Some(RouteTarget::Group(at)) => {
                let buckets = &self.groups[at];
                let bucket = flow(packet, self.policy, self.seed) % buckets.len() as u64;
                Ok(&self.gateways[buckets[bucket as usize]])
            }
        }
    }
}

/// Finds the target of the longest route that contains `address`.
fn best(
    address: u128,
    width: u32,
    routes: impl Iterator<Item = (u128, u32, RouteTarget)>,
) -> Option<RouteTarget> {
    let mut best: Option<(u32, RouteTarget)> = None;
    for (block, len, way) in routes {
        if inside(address, block, len, width) && best.is_none_or(|(longest, _)| len > longest) {
            best = Some((len, way));
        }
    }
    best.map(|(_, way)| way)
}

/// Writes the MAC addresses and cuts off the bytes behind the packet, down to 60 bytes.
/// Returns whether a packet is IPv4 without Don't Fragment.
pub(crate) fn may_fragment(frame: &[u8]) -> bool {
    frame[14] / 16 == 4 && frame[14 + 6] & 0x40 == 0
}

/// Divides a frame, whose headers have `front` bytes, into frames of at most `mtu` bytes behind the
/// Ethernet header, byte by byte: a new one begins where the next eight, or the last ones, would not fit (RFC 791, 3.2).
fn fragments(frame: &[u8], front: usize, mtu: usize) -> Result<Vec<Vec<u8>>, Verdict> {
    if !may_fragment(frame) {
        return Err(Verdict::TooBig);
    }
    let field = word(frame, 14 + 6);
    let (mut parts, mut offsets) = (Vec::<Vec<u8>>::new(), Vec::new());
    for (at, eight) in frame[front..].chunks(8).enumerate() {
        if parts.last().is_none_or(|part| part.len() - 14 + eight.len() > mtu) {
            let mut head = frame[..front].to_vec();
            if at > 0 && field & 0x1fff == 0 {
                without_first_options(&mut head[34..]);
            }
            parts.push(head);
            offsets.push(at + (field & 0x1fff));
        }
        parts.last_mut().unwrap().extend_from_slice(eight);
    }
    if offsets.iter().any(|offset| *offset > 0x1fff) {
        return Err(Verdict::TooBig);
    }
    let last = parts.len() - 1;
    for (at, part) in parts.iter_mut().enumerate() {
        let more = at < last || field & 0x2000 != 0;
        for (place, value) in [(16, part.len() - 14), (20, offsets[at] + 0x2000 * more as usize)] {
            part[place] = (value / 256) as u8;
            part[place + 1] = (value % 256) as u8;
        }
    }
    Ok(parts)
}

/// Replaces the options that later fragments do not repeat, as far as the options can be parsed.
fn without_first_options(options: &mut [u8]) {
    let mut at = 0;
    while at < options.len() && options[at] != 0 {
        if options[at] == 1 {
            at += 1;
            continue;
        }
        let len = if at + 1 < options.len() { options[at + 1] as usize } else { 0 };
        if len < 2 || at + len > options.len() {
            return;
        }
        if options[at] < 128 {
            options[at..at + len].fill(1);
        }
        at += len;
    }
}

fn leave(mut out: Vec<u8>, total: usize, gateway: &Gateway) -> (usize, Vec<u8>) {
    out[..6].copy_from_slice(&gateway.dst_mac);
    out[6..12].copy_from_slice(&gateway.src_mac);
    if out.len() > 60 && out.len() > 14 + total {
        out.truncate(std::cmp::max(60, 14 + total));
    }
    (gateway.port, out)
}
