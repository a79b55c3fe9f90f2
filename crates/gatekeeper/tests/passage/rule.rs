//! The rules by which a packet may pass a gate, implemented a second time from the documents: slowly,
//! packet by packet, and without the gate's code.

use std::collections::HashMap;

use gate::flow::{Flow, Pair};
use port::af_xdp::steer::SourcePrefix;
use wire::tunnel::Outer;
use wire::{ethernet, icmp, ipv4, ipv6};

use crate::frames::PROTECTED6;
use crate::gate_rig::{BACK4, BACK6, FRONT6, GRANTOR, GRANTOR6};
use crate::packets::{MAC, OWN4};

/// How a packet left the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Exit {
    /// To the grantor, as a request.
    Request,
    /// To the grantor, in a granted flow.
    Granted,
    /// To the grantor, from an allowed source.
    Allowed,
    /// To the back network, by the policy for its destination.
    Back,
    /// To the front network, by the policy for its destination.
    Front,
    /// An answer that the gate originates.
    Answer,
    /// To the gate's kernel.
    Host,
}

/// The action of the rig's policy for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Grantor,
    Grantor6,
    Front,
    Back,
    Drop,
}

type Addresses = (u128, u128);

/// The decisions in force, by which packets may pass.
pub(crate) struct Rule {
    udp: Option<u16>,
    granted: HashMap<Addresses, bool>,
}

/// Maps an IPv4 address to 128 bits, apart from all IPv6 addresses in use.
fn wide(v4: u32) -> u128 {
    u128::MAX << 32 | u128::from(v4)
}

/// Returns the type and the payload of a frame behind priority tags; `None` behind the tag of a VLAN.
fn untagged(frame: &[u8]) -> Option<([u8; 2], &[u8])> {
    let mut rest = &frame[12..];
    while let [0x81, 0x00, tag, low, after @ ..] | [0x88, 0xa8, tag, low, after @ ..] = rest {
        if (tag & 15, *low) != (0, 0) {
            return None;
        }
        rest = after;
    }
    let [kind, and, packet @ ..] = rest else { return None };
    Some(([*kind, *and], packet))
}

/// Returns whether the kernel of a gate with `ip_forward = 1` would forward this frame if it were
/// passed: it is for the interface's MAC address, with at most priority tags, a complete header, hops
/// left, and a destination that is not an own address. A wrong checksum counts as right.
pub(crate) fn kernel_forwards(frame: &[u8]) -> bool {
    let Some((kind, packet)) = untagged(frame).filter(|_| frame[..6] == MAC) else { return false };
    let own4 = [OWN4, BACK4].map(|own| own.to_be_bytes());
    let own6 = [FRONT6, BACK6].map(|own| own.to_be_bytes());
    match kind {
        [0x08, 0x00] if packet.len() >= 20 => {
            let to = &packet[16..20];
            let group = to[0] & 0xf0 == 0xe0 || to == [0xff; 4] || to[..2] == [169, 254];
            let is_valid = packet[0] >> 4 == 4 && packet[0] & 15 >= 5;
            is_valid && packet[8] > 1 && !group && !own4.iter().any(|own| own == to)
        }
        [0x86, 0xdd] if packet.len() >= 40 => {
            let to = &packet[24..40];
            let group = to[0] == 0xff || to[0] == 0xfe && to[1] & 0xc0 == 0x80;
            packet[0] >> 4 == 6 && packet[7] > 1 && !group && !own6.iter().any(|own| own == to)
        }
        _ => false,
    }
}

/// Returns whether the host would answer or accept a frame whose source is a protected host or a
/// grantor: its answer would be a packet without a decision of a grantor. Only packets for this MAC
/// address with a complete header count.
pub(crate) fn host_answers_behind(frame: &[u8]) -> bool {
    let Some((kind, packet)) = untagged(frame).filter(|_| frame[..6] == MAC) else { return false };
    let is_valid = match kind {
        [0x08, 0x00] => packet.len() >= 20 && packet[0] >> 4 == 4 && packet[0] & 15 >= 5,
        [0x86, 0xdd] => packet.len() >= 40 && packet[0] >> 4 == 6,
        _ => false,
    };
    if !is_valid {
        return false;
    }
    let source = match packet[0] >> 4 {
        4 => wide(u32::from_be_bytes([packet[12], packet[13], packet[14], packet[15]])),
        _ => u128::from_be_bytes(packet[8..24].try_into().expect("an address")),
    };
    is_behind(source) && ![wide(OWN4), wide(BACK4), FRONT6, BACK6].contains(&source)
}

/// Returns the addresses of a packet as 128 bits each.
fn addresses(packet: &[u8]) -> Option<Addresses> {
    match packet.first()? >> 4 {
        4 => ipv4::View::parse(packet).ok().map(|view| (wide(view.src()), wide(view.dst()))),
        6 => ipv6::View::parse(packet).ok().map(|view| (view.src(), view.dst())),
        _ => None,
    }
}

/// Returns the action of the longest matching prefix of the rig's policy.
fn policy(to: u128) -> Option<Policy> {
    let v4 = |text: [u8; 4]| wide(u32::from_be_bytes(text));
    let table = [
        (v4([10, 0, 0, 0]), 96 + 8, Policy::Grantor),
        (v4([192, 0, 2, 0]), 96 + 24, Policy::Front),
        (v4([10, 1, 2, 0]), 96 + 24, Policy::Drop),
        (v4([10, 1, 3, 0]), 96 + 24, Policy::Drop),
        (v4([198, 51, 100, 0]), 96 + 24, Policy::Back),
        (PROTECTED6, 32, Policy::Grantor6),
        (PROTECTED6 | 1 << 80, 48, Policy::Grantor),
    ];
    let covers = |&&(prefix, len, _): &&(u128, u32, Policy)| (prefix ^ to).leading_zeros() >= len;
    table.iter().filter(covers).max_by_key(|entry| entry.1).map(|entry| entry.2)
}

/// Returns whether no host on the front side has this address: it is the gate's, a grantor's or
/// protected.
fn is_behind(source: u128) -> bool {
    let own = [wide(OWN4), wide(BACK4), FRONT6, BACK6];
    let grantors = [wide(GRANTOR), wide(0xac10_0009), GRANTOR6];
    let behind = matches!(policy(source), Some(Policy::Grantor | Policy::Grantor6));
    own.contains(&source) || grantors.contains(&source) || behind
}

/// Returns the prefixes of [`is_behind`] except the gate's own addresses, for the steering program.
pub(crate) fn behind() -> Vec<SourcePrefix> {
    let entry = |text: &str, drops| {
        let (address, len) = text.split_once('/').expect("a prefix");
        SourcePrefix { address: address.parse().unwrap(), len: len.parse().unwrap(), drops }
    };
    let inside = ["10.0.0.0/8", "2001:db8::/32", "172.16.0.1/32", "172.16.0.9/32", "fd02::2/128"];
    let outside = ["10.1.2.0/24"];
    let all = inside.map(|text| entry(text, true)).into_iter();
    all.chain(outside.map(|text| entry(text, false))).collect()
}

/// 192.0.2.39 is on the allow-list, within 192.0.2.36/30 on the block list.
fn is_allowed(source: u128) -> bool {
    source == wide(0xc000_0227)
}

fn is_blocked(source: u128) -> bool {
    source >> 2 == wide(0xc000_0224) >> 2 && !is_allowed(source)
}

impl Rule {
    pub(crate) fn new(udp: Option<u16>) -> Self {
        Self { udp, granted: HashMap::new() }
    }

    /// Records a grantor's decision about a flow: granted or declined.
    pub(crate) fn decide(&mut self, flow: &Flow, grants: bool) {
        let pair = match flow.pair() {
            Pair::V4 { src, dst } => (wide(src), wide(dst)),
            Pair::V6 { src, dst } => (src, dst),
        };
        self.granted.insert(pair, grants);
    }

    /// Returns how a frame may leave to the back network, or why it must not.
    pub(crate) fn back(&self, frame: &[u8]) -> Result<Exit, &'static str> {
        let packet = frame.get(ethernet::LEN..).ok_or("no header")?;
        let (from, to) = addresses(packet).ok_or("no packet")?;
        if ![wide(BACK4), BACK6].contains(&from) {
            // Not encapsulated.
            return match policy(to) {
                _ if is_behind(from) => Err("a forged source"),
                _ if is_blocked(from) => Err("a blocked source"),
                Some(Policy::Back) => Ok(Exit::Back),
                _ => Err("a packet without a tunnel"),
            };
        }
        let outer = Outer::parse_with(packet, self.udp).map_err(|_| "no tunnel")?;
        let inner = packet.get(outer.offset..outer.end).ok_or("an empty tunnel")?;
        let (source, destination) = addresses(inner).ok_or("no packet in the tunnel")?;
        let grantor = match policy(destination).ok_or("no policy")? {
            Policy::Grantor => wide(GRANTOR),
            Policy::Grantor6 => GRANTOR6,
            _ => return Err("no grantor by its policy"),
        };
        if to != grantor {
            return Err("to another grantor");
        }
        if is_behind(source) {
            return Err("a forged source in the tunnel");
        }
        if is_blocked(source) {
            return Err("a blocked source in the tunnel");
        }
        let decided = self.granted.get(&(source, destination));
        match (outer.dscp, decided) {
            (1 | 2, _) if is_allowed(source) => Ok(Exit::Allowed),
            (1 | 2, Some(true)) => Ok(Exit::Granted),
            (1 | 2, _) => Err("as granted, without a grant"),
            (3.., Some(false)) => Err("of a declined flow"),
            (3.., _) => Ok(Exit::Request),
            _ => Err("of no class"),
        }
    }

    /// Returns how a frame may leave to the front network, or why it must not.
    pub(crate) fn front(&self, frame: &[u8]) -> Result<Exit, &'static str> {
        let packet = frame.get(ethernet::LEN..).ok_or("no header")?;
        let (from, to) = addresses(packet).ok_or("no packet")?;
        if [wide(OWN4), FRONT6].contains(&from) {
            let kind = match packet[0] >> 4 {
                4 => packet.get(20),
                _ => packet.get(40),
            };
            let errors = [icmp::UNREACHABLE, 2];
            return match kind {
                Some(kind) if errors.contains(kind) && !is_behind(to) => Ok(Exit::Answer),
                _ => Err("an invalid answer, or one to itself"),
            };
        }
        match policy(to) {
            _ if is_behind(from) => Err("a forged source"),
            _ if is_blocked(from) => Err("a blocked source"),
            Some(Policy::Front) => Ok(Exit::Front),
            _ => Err("a packet for elsewhere"),
        }
    }

    /// Returns an error if this frame must not be punted to the gate's kernel, which would forward it to
    /// a protected host.
    pub(crate) fn host(&self, frame: &[u8]) -> Result<(), &'static str> {
        if !kernel_forwards(frame) {
            return Ok(());
        }
        let (from, to) = addresses(&frame[ethernet::LEN..]).ok_or("no packet")?;
        match policy(to) {
            Some(Policy::Front | Policy::Back) if !is_behind(from) => Ok(()),
            _ => Err("the kernel would forward a punted packet"),
        }
    }
}
