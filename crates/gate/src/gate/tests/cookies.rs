//! SYN cookies at the gate: forged sources that send twice get no entry, and sources that answer
//! get one.

use fib::Publisher;
use wire::checksum::{pseudo_ipv4, pseudo_ipv6};
use wire::{ipv4, ipv6, tcp};

use super::{GRANT, PROTECTED, SECOND, admission_above, draft, packet};
use crate::admission;
use crate::cookie::{Cookie, CookieConfig, Secret};
use crate::decision::{FlowCommand, Item, Scope};
use crate::flow::{Flow, Key, Pair};
use crate::gate::{DropReason, Gate, IgnoredReason, Verdict};
use crate::state::{Decision, Provisional, Stamp, Traffic};

const PORT: u16 = 40_000;

/// A segment from its IP header on; `fragment` is the fragment field of IPv4.
fn segment(flow: &Flow, port: u16, flags: u8, sequence: u32, fragment: u16) -> Vec<u8> {
    let header =
        tcp::Header { src_port: port, dst_port: 80, sequence, flags, ..Default::default() };
    match flow.pair() {
        Pair::V4 { src, dst } => {
            let mut bytes = vec![0; 40];
            let (flags, fragment_offset) = ((fragment >> 13) as u8, fragment & 0x1fff);
            let (total_len, ttl, protocol) = (40, 64, tcp::PROTOCOL);
            let ip = ipv4::Header {
                total_len,
                ttl,
                protocol,
                src,
                dst,
                flags,
                fragment_offset,
                ..Default::default()
            };
            ip.emit(&mut bytes).unwrap();
            header.emit(&mut bytes[20..], pseudo_ipv4(src, dst, protocol, 20)).unwrap();
            bytes
        }
        Pair::V6 { src, dst } => {
            // The TCP header follows destination options.
            let mut bytes = vec![0; 68];
            let (payload_len, next_header) = (28, ipv6::DESTINATION);
            let ip = ipv6::Header {
                payload_len,
                next_header,
                hop_limit: 64,
                src,
                dst,
                ..Default::default()
            };
            ip.emit(&mut bytes).unwrap();
            bytes[40..48].copy_from_slice(&[tcp::PROTOCOL, 0, 1, 4, 0, 0, 0, 0]);
            header.emit(&mut bytes[48..], pseudo_ipv6(src, dst, tcp::PROTOCOL, 20)).unwrap();
            bytes
        }
    }
}

struct Rig {
    gate: Gate,
    key: Key,
    _policy: Publisher<crate::policy::Policy>,
}

impl Rig {
    fn new(entries: usize, share: f64, rate: u32) -> Self {
        let policy = Publisher::new(draft().build(1).unwrap());
        let mut gate: Gate = Gate::new(entries, policy.reader(), 0);
        gate.set_admission(&admission::AdmissionConfig {
            tracked_flows: 1 << 20,
            ..admission_above(share)
        });
        gate.set_cookies(&CookieConfig { secret: Secret::random(), rate }, 0);
        // A fixed key: under some keys two of the thousands of flows share a mark.
        let mut random = fastrand::Rng::with_seed(1);
        Self { gate, key: Key::new(|| random.u64(..)), _policy: policy }
    }

    fn send(&mut self, now: u64, flow: Flow, bytes: &[u8]) -> Verdict {
        let mut verdict = [Verdict::NoRoute];
        let sent = [packet(&self.key, flow, 60)];
        self.gate.process_with(now, &sent, |_| bytes, &mut verdict);
        let counts = self.gate.counts();
        assert_eq!(counts.received, counts.ended());
        verdict[0]
    }

    fn syn(&mut self, now: u64, flow: Flow, port: u16) -> Verdict {
        self.send(now, flow, &segment(&flow, port, tcp::SYN, 1000, 0))
    }

    fn challenge(&mut self, now: u64, flow: Flow, port: u16) -> Cookie {
        match self.syn(now, flow, port) {
            Verdict::Ask { cookie } => cookie,
            other => panic!("{other:?}"),
        }
    }

    fn reset(&mut self, now: u64, flow: Flow, port: u16, number: u32) -> Verdict {
        self.send(now, flow, &segment(&flow, port, tcp::RST, number, 0))
    }
}

fn dscp_of(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Request { dscp, .. } => dscp,
        other => panic!("{other:?}"),
    }
}

const PROOF: Verdict = Verdict::Drop(DropReason::CookieReset);

fn families() -> [Flow; 2] {
    [Flow::v4(5, PROTECTED), Flow::v6(5, 0x2001_0db8 << 96 | 1)]
}

#[test]
fn proven_source_has_an_entry_and_the_priority_of_its_waiting_time() {
    for flow in families() {
        let mut rig = Rig::new(100, 0.0, 1000);
        let cookie = rig.challenge(0, flow, PORT);
        assert_ne!(cookie.acknowledgement, 1001);
        // The cookie is invalid for another port.
        let other = rig.reset(1, flow, PORT + 1, cookie.acknowledgement);
        assert_eq!((dscp_of(other), rig.gate.table().len()), (41, 0));
        assert_eq!(rig.gate.counts().invalid_cookies, 1);
        let known = rig.reset(1000, flow, PORT, cookie.acknowledgement);
        assert_eq!((known, rig.gate.table().len()), (PROOF, 1));
        // A repeated proof is consumed by the gate; a reset of the connection is not.
        assert_eq!(rig.reset(1001, flow, PORT, cookie.acknowledgement), PROOF);
        assert_eq!(dscp_of(rig.reset(1002, flow, PORT, 1001)), 41);
        assert_eq!(dscp_of(rig.syn(SECOND + 2000, flow, PORT)), 42);
        assert_eq!(dscp_of(rig.syn(3 * SECOND + 2000, flow, PORT)), 43);
        let counts = rig.gate.counts();
        assert_eq!((counts.validated, counts.inserted, counts.readmitted), (1, 1, 0));
        assert_eq!(
            (
                counts.dropped[DropReason::SynCookie].packets,
                counts.dropped[DropReason::CookieReset].packets
            ),
            (1, 2)
        );
        assert_eq!(counts.invalid_cookies, 1, "none of a flow that has an entry");
        // No cookie is outstanding: resets are ordinary requests again.
        assert_eq!(dscp_of(rig.reset(10 * SECOND, flow, PORT, cookie.acknowledgement)), 45);
    }
}

/// A proof counts from the first SYN, and without the mark of that from the reset.
#[test]
fn waiting_time_counts_from_the_first_syn() {
    for forgotten in [false, true] {
        let mut rig = Rig::new(100, 0.0, 1000);
        let flow = families()[0];
        let cookie = rig.challenge(0, flow, PORT);
        if forgotten {
            let item = Item { scope: Scope::of(&flow), command: FlowCommand::Flush };
            let key = rig.key.clone();
            rig.gate.decide(1, &item, Stamp::default(), |flow| key.hash(flow)).unwrap();
        }
        let started = if forgotten { SECOND } else { 0 };
        assert_eq!(rig.reset(SECOND, flow, PORT, cookie.acknowledgement), PROOF);
        let dscp = dscp_of(rig.syn(started + SECOND * 21 / 10, flow, PORT));
        assert_eq!(dscp, 43, "forgotten: {forgotten}");
    }
}

/// An attack that admission alone does not stop: each forged SYN is sent two or three times.
#[test]
fn forged_sources_that_repeat_have_no_entry() {
    const ENTRIES: usize = 4096;
    let mut rig = Rig::new(ENTRIES, 0.5, 1_000_000);
    let mut now = 0;
    for src in 0..30_000u32 {
        now += 20_000;
        let flow = Flow::v4(1 << 24 | src, PROTECTED);
        let pressed = rig.gate.table().len() >= ENTRIES / 2;
        let first = rig.syn(now, flow, PORT);
        assert_eq!(matches!(first, Verdict::Ask { .. }), pressed, "{src}");
        for delay in [0, 1000] {
            assert_eq!(dscp_of(rig.syn(now + delay, flow, PORT)), 41);
        }
        // Other TCP flags make no entry either.
        let flags = [tcp::ACK, tcp::SYN | tcp::ACK, tcp::RST, tcp::FIN, tcp::SYN | tcp::FIN];
        let other = segment(&flow, PORT, flags[src as usize % 5], src, 0);
        assert_eq!(dscp_of(rig.send(now + 1000, flow, &other)), 41);
    }
    assert_eq!(rig.gate.table().len(), ENTRIES / 2);
    let counts = rig.gate.counts();
    assert_eq!((counts.readmitted, counts.validated, counts.evicted), (0, 0, 0));
    // Sources that answer get the remaining half of the table.
    let before = rig.gate.table().len();
    for src in 0..1000 {
        now += 1000;
        let flow = Flow::v4(1 << 25 | src, PROTECTED);
        let cookie = rig.challenge(now, flow, PORT);
        assert_eq!(rig.reset(now + 500, flow, PORT, cookie.acknowledgement), PROOF);
    }
    assert_eq!(rig.gate.table().len(), before + 1000);
}

#[test]
fn million_forged_resets_make_no_entry() {
    let mut rig = Rig::new(4096, 0.0, 1_000_000);
    let mut rng = fastrand::Rng::with_seed(8);
    let mut verdicts = [Verdict::NoRoute; 32];
    let mut now = 0;
    for round in 0..1_000_000u32 / 32 {
        now += 10_000;
        // A SYN in each round, so that cookies are always outstanding.
        rig.syn(now, Flow::v4(1 << 26 | round, PROTECTED), PORT);
        let flows: [Flow; 32] = core::array::from_fn(|_| Flow::v4(rng.u32(..), PROTECTED));
        let bytes = flows.map(|flow| segment(&flow, PORT, tcp::RST, rng.u32(..), 0));
        let packets = flows.map(|flow| packet(&rig.key, flow, 60));
        rig.gate.process_with(now, &packets, |at| &bytes[at], &mut verdicts);
    }
    let counts = rig.gate.counts();
    assert!(counts.validated <= 1 && rig.gate.table().len() <= 1, "{counts:?}");
    assert!(counts.invalid_cookies > 900_000, "{counts:?}");
}

/// Only a complete SYN is challenged; other packets are ordinary requests.
#[test]
fn only_complete_syns_are_challenged() {
    let mut rig = Rig::new(100, 0.0, 1000);
    let flow = families()[0];
    let mut udp = segment(&flow, PORT, 0, 0, 0);
    udp[9] = 17;
    assert_eq!(dscp_of(rig.send(0, flow, &udp)), 41);
    assert_eq!((dscp_of(rig.send(SECOND, flow, &udp)), rig.gate.table().len()), (42, 1));
    let fragments = [0x2000, 0x2001, 1].map(|at| segment(&flow, PORT, tcp::SYN, 7, at));
    let others = fragments.into_iter().chain([
        segment(&flow, PORT, tcp::SYN | tcp::ACK, 7, 0),
        segment(&flow, PORT, tcp::SYN | tcp::RST, 7, 0),
        segment(&flow, PORT, tcp::ACK, 7, 0),
    ]);
    for (src, other) in others.enumerate() {
        let flow = Flow::v4(1000 + src as u32, PROTECTED);
        assert_eq!(dscp_of(rig.send(2 * SECOND, flow, &other)), 41);
        assert_eq!(dscp_of(rig.send(3 * SECOND, flow, &other)), 42, "the waiting time counts");
        assert_eq!(
            (rig.gate.table().len(), rig.gate.counts().dropped[DropReason::SynCookie].packets),
            (1, 0)
        );
    }
    // Without bytes no packet is challenged.
    let mut verdict = [Verdict::NoRoute];
    let sent = [packet(&rig.key, Flow::v4(77, PROTECTED), 60)];
    rig.gate.process(4 * SECOND, &sent, &mut verdict);
    assert_eq!(dscp_of(verdict[0]), 41);
    // Flows without a grantor or with a declined prefix are not challenged either.
    let no_grantor = Flow::v4(78, PROTECTED + 250);
    assert_eq!(rig.syn(4 * SECOND, no_grantor, PORT), Verdict::Drop(DropReason::NoGrantor));
    let key = rig.key.clone();
    let scope = Scope::V4(fib::Prefix::truncate(1 << 20, 16), fib::Prefix::ALL);
    let decline = Item { scope, command: FlowCommand::Decide(Decision::Decline { expire_s: 10 }) };
    rig.gate.decide(4 * SECOND, &decline, Stamp::default(), |flow| key.hash(flow)).unwrap();
    let declined = rig.syn(5 * SECOND, Flow::v4(1 << 20, PROTECTED), PORT);
    assert_eq!(declined, Verdict::Drop(DropReason::Declined));
    // SYNs beyond the rate are forwarded as requests, and none of them gets an entry.
    for src in 0..100 {
        rig.syn(6 * SECOND, Flow::v4(2000 + src, PROTECTED), PORT);
    }
    let counts = rig.gate.counts();
    assert_eq!(
        (counts.dropped[DropReason::SynCookie].packets, counts.cookies_rate_limited),
        (20, 80)
    );
}

/// Proofs among the packets of one group; then a table full of decided flows, which has no room for
/// a proof.
#[test]
fn proofs_are_recognized_in_groups_and_with_a_full_table() {
    let mut rig = Rig::new(64, 0.0, 100_000);
    let flows: Vec<Flow> = (0..32).map(|src| Flow::v4(src, PROTECTED)).collect();
    let numbers: Vec<u32> =
        flows.iter().map(|flow| rig.challenge(0, *flow, PORT).acknowledgement).collect();
    let packets: Vec<_> = flows.iter().map(|flow| packet(&rig.key, *flow, 60)).collect();
    let bytes: Vec<Vec<u8>> = flows
        .iter()
        .zip(numbers)
        .enumerate()
        .map(|(at, (flow, number))| {
            let flags = if at % 2 == 0 { tcp::RST } else { tcp::RST | tcp::ACK };
            segment(flow, PORT, flags, number ^ u32::from(at % 4 == 3), 0)
        })
        .collect();
    let mut verdicts = [Verdict::NoRoute; 32];
    rig.gate.process_with(9, &packets, |at| &bytes[at], &mut verdicts);
    for (at, verdict) in verdicts.into_iter().enumerate() {
        assert_eq!(verdict == PROOF, at % 4 != 3, "{at}");
    }
    assert_eq!((rig.gate.table().len(), rig.gate.counts().invalid_cookies), (24, 8));
    let key = rig.key.clone();
    for src in 0..64 {
        let scope = Scope::of(&Flow::v4(1 << 16 | src, PROTECTED));
        let item = Item { scope, command: FlowCommand::Decide(Decision::Grant(GRANT)) };
        rig.gate.decide(10, &item, Stamp::default(), |flow| key.hash(flow)).unwrap();
    }
    let late = Flow::v4(99, PROTECTED);
    let cookie = rig.challenge(20, late, PORT);
    assert_eq!(rig.reset(30, late, PORT, cookie.acknowledgement), PROOF);
    assert_eq!((rig.gate.table().granted(), rig.gate.counts().validated), (64, 24));
    assert_eq!(dscp_of(rig.syn(SECOND, late, PORT)), 42);
}

/// A proven source is not declined for packets that attackers send with its address.
#[test]
fn decline_without_proof_has_no_effect_on_a_proven_flow() {
    let mut rig = Rig::new(100, 0.0, 1000);
    let flow = Flow::v4(7, PROTECTED);
    let decide = |rig: &mut Rig, now, decision| {
        let key = rig.key.clone();
        let item = Item { scope: Scope::of(&flow), command: FlowCommand::Decide(decision) };
        rig.gate.decide(now, &item, Stamp::default(), |flow| key.hash(flow))
    };
    let decline = Decision::Provisional(Provisional { expire_s: 600, traffic: Traffic::All });
    let cookie = rig.challenge(0, flow, PORT);
    assert_eq!(rig.reset(1, flow, PORT, cookie.acknowledgement), PROOF);
    assert_eq!(decide(&mut rig, 2, decline), Err(IgnoredReason::Unproven));
    assert_eq!(dscp_of(rig.syn(3, flow, PORT)), 41);
    // An entry without a proof is proven by the next answer.
    assert_eq!(decide(&mut rig, 4, Decision::Decline { expire_s: 0 }), Ok(()));
    assert_eq!(dscp_of(rig.syn(5, flow, PORT)), 41);
    assert_eq!(decide(&mut rig, 6, decline), Ok(()));
    assert_eq!(rig.syn(7, flow, PORT), Verdict::Drop(DropReason::Declined));
    assert_eq!(rig.reset(8, flow, PORT, cookie.acknowledgement), PROOF);
    assert_eq!(dscp_of(rig.syn(9, flow, PORT)), 41);
    assert_eq!(decide(&mut rig, 10, decline), Err(IgnoredReason::Unproven));
    assert_eq!(rig.gate.counts().unproven, 2);
}
