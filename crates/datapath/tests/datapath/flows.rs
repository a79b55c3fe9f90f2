//! Groups: a reference for the flow hash, the shares of many flows, and flows that do not move.

use std::sync::Arc;

use fib::Hop;
use fingerpost_datapath::{Adjacencies, Adjacency, FlowHash, FlowKey, Group, Verdict, flow_v4};
use wire::{ipv4, ipv6};

use crate::packets::{sound, sound6, v4, v4_with, v6_with};
use crate::reference::{Gateway, RouteTarget};
use crate::rig::{Rig, adjacencies, hop};

const HERE: u32 = 0xc000_0263;
/// The hop of 10.0.0.0/8; in the model it stands for a gateway.
const TEN: Hop = Hop(2);

fn be(bytes: &[u8], at: usize, count: usize) -> u64 {
    (at..at + count).fold(0, |value, at| value * 256 + u64::from(bytes[at]))
}

/// A key of the flow hash, as the reference knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Layer3,
    Layer4,
    InnerLayer3,
    InnerLayer4,
    Custom(u32),
}

impl Policy {
    fn key(self) -> FlowKey {
        match self {
            Self::Layer3 => FlowKey::LAYER_3,
            Self::Layer4 => FlowKey::LAYER_4,
            Self::InnerLayer3 => FlowKey::INNER_LAYER_3,
            Self::InnerLayer4 => FlowKey::INNER_LAYER_4,
            Self::Custom(fields) => FlowKey::custom(fields),
        }
    }

    fn hash(self, seed: u64) -> FlowHash {
        FlowHash { seed, v4: self.key(), v6: self.key() }
    }
}

/// Computes the flow hash of an IP packet in plain arithmetic; its outer header is valid.
pub(crate) fn flow(packet: &[u8], policy: Policy, seed: u64) -> u64 {
    let outer = read(packet);
    let layer_3 = |fields: &Fields| if fields.addresses.len() == 8 { 0x03 } else { 0x0f };
    let quoted = || quote(&outer).unwrap_or_else(|| outer.clone());
    match policy {
        Policy::Layer3 => quoted().hash(layer_3(&quoted()), seed),
        Policy::Layer4 => outer.hash(0x37, seed),
        Policy::InnerLayer3 => {
            let packet = innermost(&outer).unwrap_or(outer);
            packet.hash(layer_3(&packet), seed)
        }
        Policy::InnerLayer4 => innermost(&outer).unwrap_or(outer).hash(0x37, seed),
        Policy::Custom(fields) => {
            let first = outer.hash(fields & 0x3f, seed);
            match innermost(&outer) {
                Some(inner) if fields >> 6 & 0x3f != 0 => inner.hash(fields >> 6 & 0x3f, first),
                _ => first,
            }
        }
    }
}

/// The fields of a packet, as the reference reads them.
#[derive(Clone, Debug)]
struct Fields {
    /// Source and destination.
    addresses: Vec<u8>,
    label: u64,
    protocol: u8,
    /// The bytes behind the headers; none of a fragment.
    payload: Vec<u8>,
}

impl Fields {
    fn hash(&self, selected: u32, seed: u64) -> u64 {
        let (golden, modulus) = (0x9e37_79b9_7f4a_7c15_u128, 1_u128 << 64);
        let fold = |word: u128, factor: u128| {
            let product = word * factor;
            (product / modulus) ^ (product % modulus)
        };
        let at = match self.protocol {
            6 | 17 | 33 | 50 | 132 | 136 => 0,
            51 => 4,
            _ => usize::MAX - 4,
        };
        let ports = self.payload.get(at..at + 4).unwrap_or(&[0; 4]);
        let half = self.addresses.len() / 2;
        let part = |bit: u32, bytes: &[u8]| match selected & bit {
            0 => vec![0; bytes.len()],
            _ => bytes.to_vec(),
        };
        let mut ends = [
            (part(1, &self.addresses[..half]), part(0x10, &ports[..2])),
            (part(2, &self.addresses[half..]), part(0x20, &ports[2..])),
        ];
        ends.sort();
        let addresses = [&ends[0].0[..], &ends[1].0].concat();
        let mut words: Vec<u64> =
            (0..addresses.len()).step_by(8).map(|at| be(&addresses, at, 8)).collect();
        let label = if selected & 8 == 0 { 0 } else { self.label };
        let protocol = if selected & 4 == 0 { 0 } else { u64::from(self.protocol) };
        let ports = be(&[&ends[0].1[..], &ends[1].1].concat(), 0, 4);
        words.push((label << 40) + (protocol << 32) + ports);
        let each = words.into_iter().enumerate();
        let folded =
            each.map(|(at, word)| fold(word.into(), (2 * at as u128 + 1) * golden % modulus));
        fold(folded.chain([seed.into()]).sum::<u128>() % modulus, golden) as u64
    }
}

fn read(packet: &[u8]) -> Fields {
    if packet[0] / 16 == 4 {
        let (header, total) = (usize::from(packet[0] % 16) * 4, be(packet, 2, 2) as usize);
        let payload = if be(packet, 6, 2) & 0x3fff > 0 { &[][..] } else { &packet[header..total] };
        let (addresses, payload) = (packet[12..20].to_vec(), payload.to_vec());
        return Fields { addresses, label: 0, protocol: packet[9], payload };
    }
    let end = 40 + be(packet, 4, 2) as usize;
    let (protocol, payload) = behind_extensions(packet[6], &packet[40..end]).unwrap_or_default();
    let (addresses, label) = (packet[8..40].to_vec(), be(packet, 0, 4) & 0xf_ffff);
    Fields { addresses, label, protocol, payload: payload.to_vec() }
}

/// Reads the packet that an ICMP error quotes.
fn quote(outer: &Fields) -> Option<Fields> {
    let (kind, quoted) = (*outer.payload.first()?, outer.payload.get(8..)?);
    let payload = Vec::new();
    if outer.addresses.len() == 8 {
        let is_error = outer.protocol == 1 && [3, 4, 5, 11, 12].contains(&kind);
        let whole = is_error && quoted.len() >= 20 && quoted[0] / 16 == 4;
        let addresses = || quoted[12..20].to_vec();
        whole.then(|| Fields { addresses: addresses(), label: 0, protocol: quoted[9], payload })
    } else {
        let is_error = outer.protocol == 58 && (1..=4).contains(&kind);
        let whole = is_error && quoted.len() >= 40 && quoted[0] / 16 == 6;
        whole.then(|| Fields {
            addresses: quoted[8..40].to_vec(),
            label: be(quoted, 0, 4) & 0xf_ffff,
            protocol: quoted[6],
            payload,
        })
    }
}

/// Reads the packet in the last of at most four tunnels.
fn innermost(outer: &Fields) -> Option<Fields> {
    let mut found = None;
    for _ in 0..4 {
        let from = found.as_ref().unwrap_or(outer);
        match inside_tunnel(from) {
            Some(inner) => found = Some(inner),
            None => break,
        }
    }
    found
}

fn inside_tunnel(outer: &Fields) -> Option<Fields> {
    let payload = &outer.payload;
    let (version, packet) = match outer.protocol {
        4 => (4, &payload[..]),
        41 => (6, &payload[..]),
        47 if payload.len() >= 4 && payload[0] & 0x40 == 0 && payload[1] & 7 == 0 => {
            let options = [0x80, 0x20, 0x10].iter().filter(|bit| payload[0] & *bit != 0).count();
            let mut packet = payload.get(4 + 4 * options..)?;
            let mut kind = be(payload, 2, 2);
            if kind == 0x6558 {
                kind = if packet.len() >= 14 { be(packet, 12, 2) } else { 0 };
                packet = packet.get(14..)?;
            }
            (
                if kind == 0x0800 {
                    4
                } else if kind == 0x86dd {
                    6
                } else {
                    0
                },
                packet,
            )
        }
        _ => return None,
    };
    whole(packet, version).then(|| read(packet))
}

fn whole(packet: &[u8], version: u8) -> bool {
    if packet.is_empty() || packet[0] / 16 != version {
        return false;
    }
    if version == 6 {
        return packet.len() >= 40 && packet.len() >= 40 + be(packet, 4, 2) as usize;
    }
    let header = usize::from(packet[0] % 16) * 4;
    packet.len() >= 20 && header >= 20 && {
        let total = be(packet, 2, 2) as usize;
        total >= header && total <= packet.len()
    }
}

fn behind_extensions(first: u8, payload: &[u8]) -> Option<(u8, &[u8])> {
    let (mut protocol, mut rest) = (first, payload);
    for count in 0..9 {
        if ![0, 43, 44, 51, 60].contains(&protocol) {
            return Some((protocol, rest));
        }
        let len = match protocol {
            _ if rest.len() < 8 || count == 8 || protocol == 44 => return None,
            0 if count > 0 => return None,
            51 => (usize::from(rest[1]) + 2) * 4,
            _ => (usize::from(rest[1]) + 1) * 8,
        };
        if len > rest.len() {
            return None;
        }
        (protocol, rest) = (rest[0], &rest[len..]);
    }
    None
}

/// Makes a UDP packet of the flow with this number, of 2^32 flows.
fn of_flow(number: u32) -> Vec<u8> {
    let mut frame = v4(HERE, 0x0a00_0000 | number >> 16 & 0xff);
    frame[34..36].copy_from_slice(&(1024 + (number & 0xff) as u16).to_be_bytes());
    frame[36..38].copy_from_slice(&(number >> 8 & 0xff).to_be_bytes()[2..]);
    frame
}

/// Makes a group of these members, and adjacencies in which hop 2 stands for it. Member number `at`
/// has hop 100 + `at`, and its MAC address ends in `at`.
fn members(weights: &[(u32, u16)], before: &Group) -> (Arc<Group>, Adjacencies) {
    let listed: Vec<_> = weights.iter().map(|&(at, weight)| (Hop(100 + at), weight)).collect();
    let group = Arc::new(Group::of(&listed, before));
    let mut adjacencies = Adjacencies::new();
    adjacencies.set_flow_hash(FlowHash::with_seed(99));
    for &(at, _) in weights {
        let mac = [2, 0, 0, 0, 8, at as u8];
        adjacencies.set(Hop(100 + at), Adjacency::new(1 + at as u16 % 2, mac, mac, 1500));
    }
    adjacencies.set_group(TEN, Arc::clone(&group));
    (group, adjacencies)
}

/// Sends one packet of each of `flows` flows and returns, by the flow's number, the last byte of
/// the MAC address that it was sent to.
fn gateways_of_flows(rig: &mut Rig, flows: u32) -> Vec<u8> {
    let mut gateways = Vec::new();
    for first in (0..flows).step_by(200) {
        let numbers = first..flows.min(first + 200);
        let counted = rig.pass(numbers.clone().map(of_flow));
        assert_eq!(counted.sent(), numbers.len() as u64);
        let mut had = vec![0; numbers.len()];
        for port in [1, 2] {
            while let Some(frame) = rig.far[port].take() {
                let number = (be(&frame, 33, 1) << 16
                    | be(&frame, 36, 2) << 8
                    | (be(&frame, 34, 2) - 1024)) as u32;
                had[(number - first) as usize] = frame[5];
            }
        }
        gateways.extend(had);
    }
    gateways
}

const FLOWS: u32 = 100_000;

fn shares_are_right(gateways: &[u8], weights: &[(u32, u16)]) {
    let total: f64 = weights.iter().map(|member| f64::from(member.1)).sum();
    for &(at, weight) in weights {
        let expect = f64::from(weight) / total;
        let got = gateways.iter().filter(|&&had| u32::from(had) == at).count() as f64;
        let share = got / gateways.len() as f64;
        assert!((share / expect - 1.0).abs() < 0.02, "{at} of {weights:?}: {share} for {expect}");
    }
}

#[test]
fn shares_of_100000_flows_are_within_two_per_cent_of_the_weights() {
    for (weights, flows) in [
        (vec![(1, 1), (2, 1)], FLOWS),
        (vec![(1, 1), (2, 2), (3, 3)], FLOWS),
        ((1..=8).map(|at| (at, 1)).collect(), FLOWS),
        // If 100,000 flows are assigned at random, a share of a twentieth is usually off by 1.4 %,
        // however good the hash; with 400,000 flows by half of that.
        (vec![(1, 10), (2, 1), (3, 5), (4, 4)], 4 * FLOWS),
    ] {
        let mut rig = Rig::new();
        rig.adjacencies.publish(Box::new(members(&weights, &Group::default()).1));
        shares_are_right(&gateways_of_flows(&mut rig, flows), &weights);
    }
}

#[test]
fn one_of_eight_members_goes_and_only_its_flows_move() {
    let all: Vec<_> = (1..=8).map(|at| (at, 1)).collect();
    let mut rig = Rig::new();
    let (group, published) = members(&all, &Group::default());
    rig.adjacencies.publish(Box::new(published));
    let before = gateways_of_flows(&mut rig, FLOWS);
    let left: Vec<_> = all.iter().copied().filter(|member| member.0 != 3).collect();
    let (without, published) = members(&left, &group);
    rig.adjacencies.publish(Box::new(published));
    let after = gateways_of_flows(&mut rig, FLOWS);
    shares_are_right(&after, &left);
    for (before, after) in before.iter().zip(&after) {
        assert!(before == after || *before == 3, "a flow of {before} moves to {after}");
        assert_ne!(*after, 3);
    }
    // The member is back and takes its share from all others; nothing else moves.
    rig.adjacencies.publish(Box::new(members(&all, &without).1));
    let restored = gateways_of_flows(&mut rig, FLOWS);
    shares_are_right(&restored, &all);
    assert!(
        restored.iter().zip(&after).all(|(restored, after)| restored == after || *restored == 3)
    );
}

/// Makes the rig with 10.0.0.0/8 and 2001:db8::/32 routed to a group of three gateways, in the
/// worker and in the model; one gateway has the small MTU.
pub(crate) fn grouped() -> Rig {
    grouped_by(Policy::InnerLayer4)
}

/// Makes the same rig with a key of the flow hash.
fn grouped_by(policy: Policy) -> Rig {
    let mut rig = Rig::new();
    for (at, port) in [(4, 1), (5, 2), (6, 2)] {
        let (dst_mac, src_mac) = ([2, 0, 0, 0, 7, at], [2, 0, 0, 0, 6, at]);
        let mtu = if at == 6 { 100 } else { 1500 };
        rig.model.gateways.push(Gateway { dst_mac, src_mac, port, mtu });
    }
    let listed = [(4, 1), (5, 2), (6, 1)].map(|(at, weight)| (hop(RouteTarget::To(at)), weight));
    let group = Arc::new(Group::of(&listed, &Group::default()));
    let gateway = |bucket: &Hop| (4..7).find(|&at| hop(RouteTarget::To(at)) == *bucket).unwrap();
    rig.model.groups = vec![group.buckets().iter().map(gateway).collect()];
    for table in &mut rig.model.tables {
        table.routes4[0].2 = RouteTarget::Group(0);
        let v6 = table.routes6.iter_mut().find(|route| route.1 == 32).unwrap();
        v6.2 = RouteTarget::Group(0);
    }
    (rig.model.policy, rig.model.seed) = (policy, 0x1234_5678_9abc_def0);
    let mut changed = adjacencies(&rig.model);
    changed.set_flow_hash(policy.hash(rig.model.seed));
    changed.set_group(hop(RouteTarget::Group(0)), group);
    let model = std::mem::replace(&mut rig.model, crate::rig::model());
    let mut rig = Rig::of(model);
    rig.adjacencies.publish(Box::new(changed));
    rig
}

/// Tunnels, fragments, extension headers, ICMP errors: each packet leaves by the gateway that the model selects.
#[test]
fn every_kind_of_packet_goes_the_way_of_its_flow() {
    let policies = [
        Policy::Layer3,
        Policy::Layer4,
        Policy::InnerLayer3,
        Policy::InnerLayer4,
        Policy::Custom(0x7),
        Policy::Custom(0xfff),
        Policy::Custom(0x38 << 6),
    ];
    for policy in policies {
        let mut rig = grouped_by(policy);
        let mut rng = fastrand::Rng::with_seed(5);
        let mut ways = [0; 7];
        for _ in 0..1000 {
            let frames: Vec<_> = (0..20).map(|_| odd(&mut rng)).collect();
            for frame in &frames {
                for (_, bytes) in rig.model.decide(0, frame).1 {
                    ways[usize::from(bytes[5])] += 1;
                }
            }
            rig.compare(&frames);
        }

        // Packets outside tunnels have none of the last fields.
        let least = if policy == Policy::Custom(0x38 << 6) { 2 } else { 1000 };
        assert!(ways[4..].iter().all(|&count| count > least), "{policy:?}: {ways:?}");
    }
}

/// Draws a packet to the group: of any protocol, with a payload that may be extension headers,
/// fragments, packets in packets, or none of these.
pub(crate) fn odd(rng: &mut fastrand::Rng) -> Vec<u8> {
    let protocols = [0, 4, 6, 17, 33, 41, 43, 44, 47, 50, 51, 58, 60, 132, 136, 1];
    let protocol = protocols[rng.usize(..protocols.len())];
    let len = rng.usize(..80);
    let mut frame = if rng.bool() {
        let fragment = if rng.u8(..) < 64 { rng.u16(..4) } else { 0 };
        let flags = if rng.u8(..) < 64 { rng.u8(..8) } else { 0 };
        v4_with(
            ipv4::Header {
                protocol,
                total_len: 20 + len as u16,
                flags,
                fragment_offset: fragment,
                src: HERE + rng.u32(..4),
                dst: 0x0a02_0000 | rng.u32(..0x100),
                ..sound()
            },
            0,
        )
    } else {
        v6_with(
            ipv6::Header {
                next_header: protocol,
                payload_len: len as u16,
                dst: 0x2001_0db8 << 96 | rng.u128(..0x100),
                ..sound6()
            },
            0,
        )
    };
    let at = frame.len() - len;
    rng.fill(&mut frame[at..]);
    // Half of the time, the bytes behind the header are plausible headers.
    if rng.bool() {
        let mut rest = &mut frame[at..];
        for _ in 0..rng.usize(..4) {
            if rest.len() < 8 {
                break;
            }
            rest[0] = protocols[rng.usize(..protocols.len())];
            rest[1] = rng.u8(..2);
            // The type of a GRE packet.
            if rng.bool() {
                let kind: u16 = [0x0800, 0x86dd, 0x6558][rng.usize(..3)];
                rest[2..4].copy_from_slice(&kind.to_be_bytes());
            }
            let skip = rest.len().min(8 * (usize::from(rest[1]) + 1));
            rest = &mut rest[skip..];
        }
        if rest.len() >= 20 && rng.bool() {
            rest[0] = 0x45;
            let total = rng.u16(18..rest.len() as u16 + 2);
            rest[2..4].copy_from_slice(&total.to_be_bytes());
            rest[6] = if rng.bool() { 0 } else { 0x20 };
            rest[7] = 0;
        } else if rest.len() >= 40 {
            rest[0] = 0x60;
            let payload = rng.u16(..rest.len() as u16 - 36);
            rest[4..6].copy_from_slice(&payload.to_be_bytes());
        }
    }
    frame
}

/// Returns the packet of flow 0 in an IP packet to the group, with a GRE header between them or without.
fn tunneled(mut inner: Vec<u8>, gre: bool) -> Vec<u8> {
    crate::packets::seal(&mut inner);
    let front = if gre { &[0, 0, 8, 0][..] } else { &[] };
    let protocol = if gre { 47 } else { 4 };
    let total_len = (20 + front.len() + inner.len() - 14) as u16;
    let header = ipv4::Header { protocol, total_len, src: HERE, dst: 0x0a02_0001, ..sound() };
    let mut frame = v4_with(header, 0);
    frame.truncate(34);
    frame.extend_from_slice(front);
    frame.extend_from_slice(&inner[14..]);
    frame
}

#[test]
fn flow_hash_depends_on_the_fields_of_its_key_only() {
    // The byte of a frame of flow 0, and the bit of its field.
    let fields = [(29, 0x01), (33, 0x02), (23, 0x04), (35, 0x10), (37, 0x20)];
    let ports_and_addresses = 0x33;
    for (policy, outer, inner) in [
        (Policy::Layer3, 0x03, 0),
        (Policy::Layer4, 0x37, 0),
        (Policy::InnerLayer3, 0x03, 0x03),
        (Policy::InnerLayer4, 0x37, 0x37),
        (Policy::Custom(0x10), 0x10, 0),
        (Policy::Custom(0x22), 0x22, 0),
        (Policy::Custom(0x42), 0x02, 0x01),
        (Policy::Custom(0x807), 0x07, 0x20),
    ] {
        let mut rig = grouped_by(policy);
        let mut gateways = |make: &dyn Fn(u8) -> Vec<u8>| {
            let mut seen = std::collections::BTreeSet::new();
            for step in 0..60 {
                let mut frame = make(step);
                crate::packets::seal(&mut frame);
                assert_eq!(rig.compare(std::slice::from_ref(&frame)).sent(), 1);
                seen.insert(rig.model.decide(0, &frame).1[0].1[5]);
            }
            seen.len()
        };
        let changed = |at: usize, step: u8| {
            let mut frame = of_flow(0);
            // No protocol that has ports.
            frame[at] = if at == 23 { 143 + step } else { step };
            frame
        };
        for (at, bit) in fields {
            let count = gateways(&|step| changed(at, step));
            assert_eq!(count, if outer & bit == 0 { 1 } else { 3 }, "{policy:?}, byte {at}");
            // Ports of a tunnel packet that is no tunnel to the key are those of no protocol.
            for gre in [false, true] {
                let count = gateways(&|step| tunneled(changed(at, step), gre));
                assert_eq!(
                    count,
                    if inner & bit == 0 { 1 } else { 3 },
                    "{policy:?} in a tunnel, {at}"
                );
            }
        }
        for at in [15, 19, 40] {
            assert_eq!(gateways(&|step| changed(at, step)), 1, "{policy:?}, byte {at}");
        }
        let part = |step: u8| {
            let mut frame = changed(35, step);
            (frame[20], frame[21]) = (0x20, 0);
            frame
        };
        assert_eq!(
            gateways(&part),
            1,
            "{policy:?}: fragments are of one flow, whatever their ports"
        );
        let hash = policy.hash(7);
        for step in 0..60 {
            let there = changed(35, step);
            let mut back = there.clone();
            back[26..30].copy_from_slice(&there[30..34]);
            back[30..34].copy_from_slice(&there[26..30]);
            back[34..36].copy_from_slice(&there[36..38]);
            back[36..38].copy_from_slice(&there[34..36]);
            if outer & ports_and_addresses == ports_and_addresses {
                assert_eq!(
                    flow_v4(&there, &hash),
                    flow_v4(&back, &hash),
                    "{policy:?}: both directions"
                );
            }
        }
    }
}

/// An ICMP error takes the path of the packets that it quotes.
#[test]
fn icmp_error_has_the_flow_of_its_quoted_packet_by_layer_3() {
    let quoted = of_flow(77);
    let header = ipv4::Header { protocol: 1, total_len: 20 + 8 + 28, dst: HERE, ..sound() };
    let mut error = v4_with(header, 0);
    error.truncate(34);
    error.extend_from_slice(&[11, 0, 0, 0, 0, 0, 0, 0]);
    error.extend_from_slice(&quoted[14..42]);
    let is_alike =
        |policy: Policy| flow_v4(&error, &policy.hash(3)) == flow_v4(&quoted, &policy.hash(3));
    assert!(is_alike(Policy::Layer3));
    assert!(!is_alike(Policy::Layer4) && !is_alike(Policy::InnerLayer3));
}

#[test]
fn an_empty_group_and_a_nested_group_are_no_route() {
    let mut rig = Rig::new();
    let frames = || (0..10).map(of_flow);
    let empty = Arc::new(Group::default());
    let mut published = Adjacencies::new();
    published.set_group(TEN, Arc::clone(&empty));
    rig.adjacencies.publish(Box::new(published));
    assert_eq!(rig.pass(frames()).count(Verdict::NoRoute), 10);
    let (group, mut published) = members(&[(1, 1)], &Group::default());
    published.set_group(Hop(101), group);
    rig.adjacencies.publish(Box::new(published.clone()));
    assert_eq!(rig.pass(frames()).count(Verdict::NoRoute), 10);
    // A group that is replaced by a next hop is no group any more.
    published.set(TEN, Adjacency::new(1, [2; 6], [2; 6], 1500));
    assert!(published.group(TEN).is_none());
    rig.adjacencies.publish(Box::new(published));
    assert_eq!(rig.pass(frames()).sent(), 10);
}
