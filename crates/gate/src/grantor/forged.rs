//! No forged packet makes an honest flow worse off, for every shipped policy.
//!
//! ```text
//!   honest packets ──────────────┬─► gate ─► tunnel ─► policy ─► decisions, late ─► gate    alone
//!   the same and forged ones ────┴─► gate ─► tunnel ─► policy ─► decisions, late ─► gate    attacked
//! ```
//!
//! Two networks without a link (what forging does to its queues is the link's), each with a gate
//! and a grantor of its own. Both have the same honest packets, at the same times; the second has
//! forged ones between them: in the names of the honest clients and of others, of any protocol,
//! with any ports and flags, fragments, chains of extension headers that cannot be read, marks of
//! congestion, resets. Forged packets are few and small enough not to use up a granted rate, which
//! they share. Decisions take a while, and some overtake others.
//!
//! The test compares the result of each honest packet: a grant is better than a request, a request
//! better than to be dropped. That it never is worse holds for those that were granted before the
//! attack, at every renewal, and for clients that connect in its midst.

use std::collections::BTreeMap;

use fib::Publisher;
use wire::tunnel::{Ends, Header};
use wire::{ipv4, ipv6, tcp};

use super::shipped::POLICIES;
use super::tests::{grantor, lists};
use super::{Grantor, Lists, Request, decapsulate};
use crate::decision::Item;
use crate::flow::{Flow, Key, Pair};
use crate::gate::{Gate, Packet, Verdict};
use crate::policy::{Action, Address, Grantor as At, Policy, PolicyBuilder};
use crate::program::Programs;
use crate::program::tests::shipped;
use crate::state::Stamp;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The duration: beyond two lifetimes of every grant.
const END: u64 = 700 * SECOND;
/// The start of the attack, and its forged packets a second.
const ATTACK: u64 = 5 * SECOND;
const FORGED: u64 = 40;

/// A gate and a grantor, and decisions on their way between them.
struct Network {
    gate: Gate,
    key: Key,
    grantor: Grantor,
    decisions: BTreeMap<(u64, u64), Item>,
    number: u64,
    rng: fastrand::Rng,
    _policy: Publisher<Policy>,
    _programs: Publisher<Programs>,
}

impl Network {
    fn new(policy: &str, lists: &Publisher<Lists>, seed: u64) -> Self {
        let mut draft = PolicyBuilder::new();
        let set = draft.set(&[At { address: Address::V4(1), weight: 1 }]);
        draft.v4("192.0.2.0/24".parse().unwrap(), Action::Grantors(set));
        draft.v6("2001:db8::/32".parse().unwrap(), Action::Grantors(set));
        let of_gate = Publisher::new(draft.build(1).unwrap());
        let mut programs = Programs::default();
        programs.set(3, Some(std::sync::Arc::new(shipped("web"))));
        let programs = Publisher::new(programs);
        let mut gate: Gate = Gate::new(1 << 15, of_gate.reader(), 0);
        gate.set_programs(programs.reader());
        let mut rng = fastrand::Rng::with_seed(seed);
        Self {
            gate,
            key: Key::new(|| rng.u64(..)),
            grantor: grantor(policy, lists),
            decisions: BTreeMap::new(),
            number: 0,
            rng,
            _policy: of_gate,
            _programs: programs,
        }
    }

    fn send(&mut self, now: u64, flow: Flow, bytes: &[u8]) -> Verdict {
        while let Some(entry) = self.decisions.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, number), item) = entry.remove_entry();
            let stamp = Stamp { sender: 1, number };
            let _ = self.gate.decide(at, &item, stamp, |flow| self.key.hash(flow));
        }
        self.gate.run_maintenance(now, 64);
        let packet = Packet { flow, hash: self.key.hash(&flow), bytes: bytes.len() as u32 + 14 };
        let mut verdict = [Verdict::NoRoute];
        self.gate.process_with(now, &[packet], |_| bytes, &mut verdict);
        let dscp = match verdict[0] {
            Verdict::Request { dscp, .. } => dscp,
            Verdict::Granted { renew: true, .. } => 2,
            _ => return verdict[0],
        };
        let mut sealed = [&[0; ipv4::LEN], bytes].concat();
        let ends = Ends::V4 { src: 9, dst: 1 };
        Header { ends, dscp, hop_limit: 64, udp: None }.emit(&mut sealed).unwrap();
        // The link marks nothing, so that what is marked came so.
        let Ok(opened) = decapsulate(&mut sealed) else { return verdict[0] };
        let (packet, congested) = (&sealed[opened.offset..opened.end], opened.congested);
        let mut decided = Vec::new();
        self.grantor.decide(now, &[Request { packet, dscp, congested }], &mut decided);
        for item in decided.iter().filter_map(|decided| decided.item) {
            self.number += 1;
            let late = match self.rng.u8(..10) {
                0 => self.rng.u64(..50 * MS),
                _ => self.rng.u64(..2 * MS),
            };
            self.decisions.insert((now + late, self.number), item);
        }
        verdict[0]
    }
}

/// The result of a packet: 2 granted, 1 request, 0 dropped.
fn worth(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Granted { .. } | Verdict::Direct { .. } => 2,
        Verdict::Request { .. } => 1,
        _ => 0,
    }
}

/// A packet of a flow, whole, with a payload that may be a TCP header.
fn sealed(flow: &Flow, protocol: u8, payload: &[u8], ecn: u8) -> Vec<u8> {
    let mut bytes;
    match flow.pair() {
        Pair::V4 { src, dst } => {
            bytes = [&[0; ipv4::LEN], payload].concat();
            let (total_len, ttl) = (bytes.len() as u16, 60);
            let header =
                ipv4::Header { total_len, protocol, ttl, tos: ecn, src, dst, ..Default::default() };
            header.emit(&mut bytes).unwrap();
        }
        Pair::V6 { src, dst } => {
            bytes = [&[0; ipv6::LEN], payload].concat();
            let payload_len = payload.len() as u16;
            let header = ipv6::Header {
                payload_len,
                next_header: protocol,
                hop_limit: 60,
                traffic_class: ecn,
                src,
                dst,
                ..Default::default()
            };
            header.emit(&mut bytes).unwrap();
        }
    }
    bytes
}

fn segment(src_port: u16, dst_port: u16, flags: u8, sequence: u32) -> [u8; 40] {
    let mut bytes = [0; 40];
    let header = tcp::Header { src_port, dst_port, sequence, flags, ..Default::default() };
    header.emit(&mut bytes, wire::checksum::pseudo_ipv4(0, 0, 6, 40)).unwrap();
    bytes
}

/// An honest client: when it connects, from where, and by which port.
struct Client {
    flow: Flow,
    port: u16,
    begin: u64,
}

/// Some before the attack, some in its midst; over both families.
fn clients() -> Vec<Client> {
    let flow = |number: u32| match number % 3 {
        0 => Flow::v6(0x2001_0db9 << 96 | u128::from(number), 0x2001_0db8 << 96 | 7),
        _ => Flow::v4(0x0a00_0000 + number, 0xc000_0207),
    };
    let begin = |number: u32| match number {
        0..10 => u64::from(number) * 100 * MS,
        _ => ATTACK + u64::from(number) * 10 * SECOND,
    };
    let client = |number: u32| Client {
        flow: flow(number),
        port: 20_000 + number as u16,
        begin: begin(number),
    };
    (0..20).map(client).collect()
}

/// The packets of honest clients, in order: a SYN, an acknowledgement after 100 ms, then data.
fn honest(clients: &[Client]) -> Vec<(u64, Flow, Vec<u8>)> {
    let mut all = Vec::new();
    for (number, Client { flow, port, begin }) in clients.iter().enumerate() {
        let mut sends = |at, flags, sequence| {
            all.push((
                at,
                *flow,
                sealed(flow, tcp::PROTOCOL, &segment(*port, 80, flags, sequence), 2),
            ));
        };
        sends(*begin, tcp::SYN, 1);
        let mut at = begin + 100 * MS;
        while at < END {
            sends(at, tcp::ACK, at as u32);
            at += 700 * MS + number as u64 * 13 * MS;
        }
    }
    all.sort_by_key(|(at, ..)| *at);
    all
}

/// A packet with a forged source, of any kind that a gate's parser accepts.
fn forged(rng: &mut fastrand::Rng, clients: &[Client]) -> (Flow, Vec<u8>) {
    let client = &clients[rng.usize(..clients.len())];
    let flow = match rng.u8(..10) {
        // Another source, of the honest clients' own systems or of others.
        0 => Flow::v4(0x0a00_0000 + rng.u32(1_000..1_050), 0xc000_0207),
        1 => Flow::v4(rng.u32(200..300), 0xc000_0207),
        2 => Flow::v6(0x2001_0db9 << 96 | rng.u128(1_000..1_050), 0x2001_0db8 << 96 | 7),
        _ => client.flow,
    };
    let ports = [80, 23, 81, 443, rng.u16(..)];
    let to = ports[rng.usize(..ports.len())];
    let from = if rng.u8(..4) == 0 { client.port } else { rng.u16(..) };
    let flags = match rng.u8(..4) {
        0 => tcp::SYN | tcp::ACK,
        1 => tcp::SYN,
        2 => tcp::RST,
        _ => rng.u8(..),
    };
    let payload = segment(from, to, flags, rng.u32(..));
    let protocol = [6, 6, 17, 17, 1, 58, 47, rng.u8(..)][rng.usize(..8)];
    let mut bytes = sealed(&flow, protocol, &payload, rng.u8(..4));
    if flow.is_v6() {
        if rng.u8(..3) == 0 {
            // Extension headers, whole or broken.
            bytes[6] = [0, 43, 44, 51, 60][rng.usize(..5)];
            (bytes[40], bytes[41]) = (rng.u8(..), rng.u8(..));
        }
    } else if rng.u8(..4) == 0 {
        let whole = bytes.clone();
        let view = ipv4::View::parse(&whole[..]).unwrap();
        let mut header = view.header();
        (header.fragment_offset, header.flags) = (rng.u16(..8), rng.u8(..2));
        header.emit(&mut bytes).unwrap();
    }
    (flow, bytes)
}

#[test]
fn forged_packets_make_no_honest_flow_worse_off() {
    let texts = [
        ("allow", "10.0.0.1\n2001:db9::3 2000\n"),
        ("deny", "0.0.1.0/24\n"),
        ("rates", "10.0.0.0/8 100\n0.0.0.0/24 0\n2001:db9::/32 200\n"),
        ("asn", "10.0.0.0/8 64496\n2001:db9::/32 64497\n"),
        ("services", "192.0.2.0/24 80\n2001:db8::/32 80\n"),
    ];
    let clients = clients();
    let honest = honest(&clients);
    for policy in POLICIES {
        let published = Publisher::new(lists(&texts));
        let seed = 11;
        let mut alone = Network::new(policy.text, &published, seed);
        let mut attacked = Network::new(policy.text, &published, seed);
        let mut rng = fastrand::Rng::with_seed(seed + 1);
        let (mut next, mut sent, mut granted) = (ATTACK, [0u32; 3], 0);
        for (now, flow, bytes) in &honest {
            while next <= *now {
                let (flow, bytes) = forged(&mut rng, &clients);
                sent[usize::from(worth(attacked.send(next, flow, &bytes)))] += 1;
                next += rng.u64(..2 * SECOND / FORGED);
            }
            let (without, with) =
                (worth(alone.send(*now, *flow, bytes)), worth(attacked.send(*now, *flow, bytes)));
            let at = now / MS;
            assert!(with >= without, "{}: {flow} at {at} ms: {without}, {with}", policy.name);
            granted += u32::from(without == 2);
        }
        // The test is not empty: nearly all honest packets are granted, and forged packets were
        // requests, were granted in honest names, and were declined where the policy declines
        // anything.
        let (all, name) = (honest.len() as u32, policy.name);
        assert!(granted > all / 10 * 9, "{name}: {granted} of {all}");
        assert!(sent[2] > 1_000 && sent[1] > 10, "{name}: {sent:?}");
        // These grant strangers soon, whose packets pass from then on.
        assert!(sent[0] > 100 || matches!(name, "aimd" | "reputation"), "{name}: {sent:?}");
        let declined = attacked.grantor.counts().declined;
        assert!(declined > 10 || name == "aimd", "{name}: {declined} declined");
        assert_eq!(attacked.grantor.counts().failed, 0, "{name}");
    }
}
