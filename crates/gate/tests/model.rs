//! The states of flows against an oracle, over millions of decisions and packets.
//!
//! The oracle implements the rules of `state.rs` independently: exact picoseconds in 128 bits,
//! priorities found by doubling, states as values that carry their data, windows as a list of sent
//! bytes. It shares no code with the gate.
//!
//! The oracle has no table, and of lists only their sources. So it predicts the outcome of packets
//! whether or not their flow has an entry: with and without admission, while entries are made and
//! evicted.

use std::collections::HashMap;
use std::sync::Arc;

use fib::{Prefix, Publisher};
use fingerpost_gate::admission::AdmissionConfig;
use fingerpost_gate::decision::{FlowCommand, Item, Scope};
use fingerpost_gate::flow::{Flow, Key};
use fingerpost_gate::gate::{DropReason, Gate, IgnoredReason, Packet, Verdict};
use fingerpost_gate::policy::sources::{SourceClass, SourceListBuilder};
use fingerpost_gate::policy::{Action, Address, Grantor, PolicyBuilder};
use fingerpost_gate::program::{Prepared, ProgramVerdict};
use fingerpost_gate::state::{
    Decision, Grant, Outcome, Provisional, Record, Stamp, StartedProgram, Traffic,
};

/// Picoseconds.
type Pico = u128;

const SECOND: Pico = 1_000_000_000_000;

enum State {
    Asking { last: Pico, priority: u32, early: u32, out: Option<(Pico, Traffic)>, proven: bool },
    Granted { window: Pico, sent: Vec<u64>, kib: u64, ask_at: Pico, step: Pico },
    Declined,
    Program { number: u8, tag: u16, cookie: Vec<u8> },
}

struct Oracle {
    state: State,
    until: Pico,
    /// The sender and number of the last decision.
    last: Option<(u32, u64)>,
}

/// Nanoseconds, rounded up, as picoseconds: the gate's clock ticks in nanoseconds.
fn ticks(time: Pico) -> Pico {
    time.div_ceil(1000) * 1000
}

impl Oracle {
    fn new(now: Pico) -> Self {
        let mut oracle = Self { state: State::Declined, until: 0, last: None };
        oracle.restart(now);
        oracle
    }

    fn restart(&mut self, now: Pico) {
        self.state = State::Asking { last: now, priority: 38, early: 0, out: None, proven: false };
        self.until = now + ticks(1 << 42);
    }

    /// Returns the traffic of the flow that is declined for now.
    fn traffic(&self) -> Option<Traffic> {
        match self.state {
            State::Asking { out: Some((_, traffic)), .. } => Some(traffic),
            _ => None,
        }
    }

    fn packet(&mut self, now: Pico, bytes: u64) -> Outcome {
        if now >= self.until {
            self.restart(now);
        }
        if let State::Asking { out: Some((end, Traffic::All)), .. } = self.state
            && now >= end
        {
            self.restart(now);
        }
        match &mut self.state {
            State::Declined => Outcome::Declined,
            State::Program { number, .. } => Outcome::Run(*number),
            State::Asking { out: Some((end, traffic)), .. } if now < *end => match traffic {
                Traffic::All => Outcome::Declined,
                _ => Outcome::Classify,
            },
            State::Asking { last, priority, early, out, .. } => {
                *out = None;
                let gap = now - *last;
                let mut log = 0;
                while 2u128.pow(log + 1) <= gap {
                    log += 1;
                }
                *last = now;
                if log >= *priority || *early == 7 {
                    (*priority, *early) = (log, 0);
                    self.until = now + ticks(2u128.pow((log + 4).clamp(30, 63)));
                } else {
                    *early += 1;
                }
                Outcome::Request { dscp: 63.min(*priority + 3) as u8 }
            }
            State::Granted { window, sent, kib, ask_at, step } => {
                if now >= *window + SECOND {
                    *window = now;
                    sent.clear();
                }
                if sent.iter().sum::<u64>() + bytes > *kib * 1024 {
                    return Outcome::OverRate;
                }
                sent.push(bytes);
                let renew = now >= *ask_at;
                if renew {
                    *ask_at = now + *step;
                }
                Outcome::Granted { renew }
            }
        }
    }

    /// Returns the outcome for a packet of a flow with declined traffic.
    fn classified(&mut self, now: Pico, is_declined: bool) -> Outcome {
        if is_declined {
            return Outcome::Declined;
        }
        let State::Asking { out, .. } = &mut self.state else { panic!("nothing to classify") };
        let Some((end, traffic)) = out.take() else { panic!("nothing to classify") };
        let outcome = self.packet(now, 0);
        self.until = self.until.max(end);
        if let State::Asking { out, .. } = &mut self.state {
            *out = Some((end, traffic));
        }
        outcome
    }

    fn prove(&mut self, now: Pico) {
        if now >= self.until {
            self.restart(now);
        }
        if let State::Asking { out, proven, .. } = &mut self.state {
            (*out, *proven) = (None, true);
        }
    }

    /// Applies a program's verdict and its cookie.
    fn answer(&mut self, now: Pico, answer: ProgramVerdict, left: &[u8]) -> Outcome {
        if let State::Program { cookie, .. } = &mut self.state {
            *cookie = left.to_vec();
        }
        match answer {
            ProgramVerdict::Forward(Prepared { priority, direct: true }) => {
                assert_eq!(priority, 1);
                Outcome::Direct
            }
            ProgramVerdict::Forward(Prepared { priority: 1, .. }) => {
                Outcome::Granted { renew: false }
            }
            ProgramVerdict::Forward(Prepared { priority: 2, .. }) => {
                Outcome::Granted { renew: true }
            }
            ProgramVerdict::Forward(Prepared { priority, .. }) => {
                Outcome::Request { dscp: priority }
            }
            ProgramVerdict::Decline => Outcome::DeclinedByProgram,
            ProgramVerdict::Error => Outcome::Error,
            ProgramVerdict::Missing => {
                self.restart(now);
                self.packet(now, 0)
            }
        }
    }

    /// Returns the program's tag and its current cookie.
    fn began(&self) -> Option<(u16, &[u8])> {
        match &self.state {
            State::Program { tag, cookie, .. } => Some((*tag, cookie)),
            _ => None,
        }
    }

    fn run(&mut self, now: Pico, started: &StartedProgram, stamp: Stamp) -> bool {
        if !self.in_order(stamp) {
            return false;
        }
        let StartedProgram { program: number, tag, expire_s, cookie } = *started;
        self.state = State::Program { number, tag, cookie: cookie.to_vec() };
        self.until = now + Pico::from(expire_s) * SECOND;
        true
    }

    fn in_order(&mut self, stamp: Stamp) -> bool {
        if stamp.sender != 0 {
            if self.last.is_some_and(|(from, n)| from == stamp.sender && n >= stamp.number) {
                return false;
            }
            self.last = Some((stamp.sender, stamp.number));
        }
        true
    }

    fn decide(&mut self, now: Pico, decision: &Decision, stamp: Stamp) -> bool {
        if let Decision::Provisional(Provisional { expire_s, traffic }) = decision {
            let late = |(from, n)| from == stamp.sender && n >= stamp.number;
            if stamp.sender != 0 && self.last.is_some_and(late) {
                return false;
            }
            if now >= self.until {
                self.restart(now);
            }
            let State::Asking { out, proven: false, .. } = &mut self.state else { return false };
            let end = now + Pico::from(*expire_s.min(&10)) * SECOND;
            *out = Some((end, *traffic));
            self.until = self.until.max(end);
            return true;
        }
        if !self.in_order(stamp) {
            return false;
        }
        match decision {
            Decision::Provisional(_) => unreachable!("above"),
            Decision::Decline { expire_s } => {
                self.state = State::Declined;
                self.until = now + Pico::from(*expire_s) * SECOND;
            }
            Decision::Grant(grant) => {
                let (window, sent) = match &mut self.state {
                    State::Granted { window, sent, .. }
                        if now < self.until && now < *window + SECOND =>
                    {
                        (*window, std::mem::take(sent))
                    }
                    _ => (now, Vec::new()),
                };
                self.state = State::Granted {
                    window,
                    sent,
                    kib: grant.rate_kib.into(),
                    ask_at: now + Pico::from(grant.next_renewal_ms) * (SECOND / 1000),
                    step: Pico::from(grant.renewal_step_ms) * (SECOND / 1000),
                };
                self.until = now + Pico::from(grant.expire_s) * SECOND;
            }
        }
        true
    }
}

fn answer(rng: &mut fastrand::Rng) -> ProgramVerdict {
    match rng.u8(..12) {
        0 => ProgramVerdict::Missing,
        1 => ProgramVerdict::Error,
        2..4 => ProgramVerdict::Decline,
        4..6 => ProgramVerdict::Forward(Prepared { priority: 1, direct: true }),
        6 => ProgramVerdict::Forward(Prepared { priority: rng.u8(3..64), direct: false }),
        _ => ProgramVerdict::Forward(Prepared { priority: rng.u8(1..3), direct: false }),
    }
}

fn decision(rng: &mut fastrand::Rng) -> Decision {
    if rng.u8(..3) == 0 {
        return Decision::Decline { expire_s: rng.u32(..20) };
    }
    if rng.u8(..3) == 0 {
        let traffic = match rng.u8(..3) {
            0 => Traffic::All,
            1 => Traffic::Protocol(rng.u8(..)),
            _ => Traffic::Port { protocol: 6, port: rng.u16(..) },
        };
        return Decision::Provisional(Provisional { expire_s: rng.u32(..20), traffic });
    }
    Decision::Grant(Grant {
        rate_kib: rng.u32(..8),
        expire_s: rng.u32(..30),
        next_renewal_ms: rng.u32(..20_000),
        renewal_step_ms: rng.u32(..4_000),
    })
}

#[test]
fn record_equals_the_oracle_over_millions_of_packets() {
    const EVENTS: u32 = 3_000_000;
    let mut rng = fastrand::Rng::with_seed(42);
    let mut seen = [0u32; 16];
    // Many short lifetimes, so that flows begin often.
    for flow in 0..EVENTS / 2_000 {
        let mut now = rng.u64(..1 << 50);
        let mut record = Record::new(now);
        let mut oracle = Oracle::new(Pico::from(now) * 1000);
        for event in 0..2_000 {
            // Gaps of every magnitude up to a minute, often up to the end of a lifetime.
            let magnitude = rng.u32(..36);
            now = match rng.u8(..8) {
                0 => now.max(record.expire_at()),
                1 => now.max(record.expire_at().saturating_sub(1)),
                2 => now.max(record.next_renewal_at().min(now + 60_000_000_000)),
                3 => now + 1_000_000_000,
                _ => now + rng.u64(..1 << magnitude),
            };
            let pico = Pico::from(now) * 1000;
            if rng.u8(..60) == 0 {
                let stamp = Stamp { sender: rng.u32(..3), number: rng.u64(..10) + event / 50 };
                let (number, expire_s) = (rng.u8(..), rng.u32(..30));
                let mut cookie = [0; 64];
                rng.fill(&mut cookie);
                let started =
                    StartedProgram { program: number, tag: rng.u16(..), expire_s, cookie };
                let counted = record.run(now, &started, stamp);
                assert_eq!(counted, oracle.run(pico, &started, stamp));
                seen[8] += u32::from(counted);
            } else if rng.u8(..20) == 0 {
                let decision = decision(&mut rng);
                let stamp = Stamp { sender: rng.u32(..3), number: rng.u64(..10) + event / 50 };
                let counted = record.decide(now, &decision, stamp);
                assert_eq!(counted, oracle.decide(pico, &decision, stamp), "{flow}.{event}");
                seen[usize::from(counted)] += 1;
            } else if rng.u8(..100) == 0 {
                record.prove(now);
                oracle.prove(pico);
                seen[13] += 1;
            } else {
                let bytes = rng.u32(60..2000);
                let mut outcome = record.packet(now, bytes);
                assert_eq!(outcome, oracle.packet(pico, bytes.into()), "{flow}.{event}");
                if let Outcome::Run(_) = outcome {
                    seen[9] += 1;
                    let mut cookie = record.cookie();
                    assert_eq!(Some((record.tag(), &cookie[..])), oracle.began(), "{flow}.{event}");
                    cookie[rng.usize(..64)] = rng.u8(..);
                    record.set_cookie(&cookie);
                    let answer = answer(&mut rng);
                    outcome = record.answer(now, answer);
                    assert_eq!(outcome, oracle.answer(pico, answer, &cookie), "{flow}.{event}");
                }
                if outcome == Outcome::Classify {
                    seen[14] += 1;
                    assert_eq!(
                        Some(record.provisional_traffic()),
                        oracle.traffic(),
                        "{flow}.{event}"
                    );
                    let is_declined = rng.bool();
                    outcome = record.classified(now, is_declined);
                    assert_eq!(outcome, oracle.classified(pico, is_declined), "{flow}.{event}");
                    seen[15] += u32::from(is_declined);
                }
                seen[match outcome {
                    Outcome::Request { dscp: 41 } => 2,
                    Outcome::Request { .. } => 3,
                    Outcome::Granted { renew: false } => 4,
                    Outcome::Granted { renew: true } => 5,
                    Outcome::OverRate => 6,
                    Outcome::Declined => 7,
                    Outcome::Direct => 10,
                    Outcome::DeclinedByProgram => 11,
                    Outcome::Error => 12,
                    Outcome::Run(_) | Outcome::Classify => unreachable!("a program was called"),
                }] += 1;
            }
        }
    }
    assert!(seen.iter().all(|&times| times > 4_000), "not everything was met: {seen:?}");
}

/// Compares a whole gate, with its table, with the oracle: a packet's outcome depends on its flow's
/// history and not on an entry.
fn check_gate(above: Option<f64>, packets: u64, seed: u64) {
    const FLOWS: u32 = 600;
    let mut rng = fastrand::Rng::with_seed(seed);
    let key = Key::new(|| rng.u64(..));
    let mut draft = PolicyBuilder::new();
    let set = draft.set(&[Grantor { address: Address::V4(1), weight: 1 }]);
    draft.v4("192.0.2.0/24".parse().unwrap(), Action::Grantors(set));
    // A sixth of the sources is blocked, and a part of these is also on the allow-list.
    let lists = [
        (SourceClass::Blocked, "0.0.0.64/27"),
        (SourceClass::Blocked, "0.0.0.6/31"),
        (SourceClass::Blocked, "0.0.1.0/26"),
        (SourceClass::Allowed, "0.0.1.16/29"),
        (SourceClass::Blocked, "0.0.1.18/32"),
        (SourceClass::Allowed, "0.0.0.2/32"),
    ];
    let lists = lists.map(|(said, text)| (said, text.parse::<Prefix<u32>>().unwrap()));
    let mut listed = SourceListBuilder::default();
    lists.iter().for_each(|&(said, prefix)| listed.v4(prefix, said));
    draft.sources(Arc::new(listed.build().unwrap()));
    let listed = |src: u32, wanted| {
        lists.iter().any(|&(said, prefix)| said == wanted && prefix.contains(src))
    };
    let publisher = Publisher::new(draft.build(1).unwrap());
    // With room for all flows, and a share for declines of all.
    let mut gate: Gate = Gate::new(4 * FLOWS as usize, publisher.reader(), 0);
    if let Some(above) = above {
        gate.set_admission(&AdmissionConfig { threshold: above, tracked_flows: 1 << 14, seed: 1 });
    }
    let mut oracles: HashMap<u32, Oracle> = HashMap::new();
    let (mut now, mut done, mut decisions) = (0u64, 0, 0);
    let mut verdicts = [Verdict::NoRoute; 64];
    let mut highest = [0u64; 64];
    while done < packets {
        let magnitude = rng.u32(14..32);
        now += rng.u64(..1 << magnitude);
        let pico = Pico::from(now) * 1000;
        // Few flows, so that most packets belong to known ones.
        let batch: [(u32, Packet); 64] = core::array::from_fn(|_| {
            let src = if rng.bool() { rng.u32(..FLOWS) } else { rng.u32(..20) };
            let flow = Flow::v4(src, 0xc000_0207);
            (src, Packet { flow, hash: key.hash(&flow), bytes: rng.u32(60..2000) })
        });
        let count = rng.usize(1..65);
        let sent = batch.map(|packet| packet.1);
        gate.process(now, &sent[..count], &mut verdicts[..count]);
        for ((src, packet), verdict) in batch[..count].iter().zip(&verdicts) {
            if listed(*src, SourceClass::Allowed) {
                assert_eq!(*verdict, Verdict::Allowed { grantor: Address::V4(1) });
                continue;
            }
            if listed(*src, SourceClass::Blocked) {
                assert_eq!(*verdict, Verdict::Drop(DropReason::Blocked));
                continue;
            }
            let oracle = oracles.entry(*src).or_insert_with(|| Oracle::new(pico));
            let mut outcome = oracle.packet(pico, packet.bytes.into());
            if outcome == Outcome::Classify {
                // Without bytes, a packet matches no declined traffic.
                outcome = oracle.classified(pico, false);
            }
            let expect = match outcome {
                Outcome::Request { dscp } => {
                    highest[usize::from(dscp)] += 1;
                    Verdict::Request { grantor: Address::V4(1), dscp }
                }
                Outcome::Granted { renew } => Verdict::Granted { grantor: Address::V4(1), renew },
                Outcome::OverRate => Verdict::Drop(DropReason::OverRate),
                Outcome::Declined => Verdict::Drop(DropReason::Declined),
                other => panic!("{other:?}"),
            };
            assert_eq!(*verdict, expect, "{above:?}: {} at {now}", packet.flow);
        }
        done += count as u64;
        for _ in 0..rng.u8(..5) {
            let src = rng.u32(..FLOWS);
            let flow = Flow::v4(src, 0xc000_0207);
            let decision = decision(&mut rng);
            let item = Item { scope: Scope::of(&flow), command: FlowCommand::Decide(decision) };
            let result = gate.decide(now, &item, Stamp::default(), |flow| key.hash(flow));
            decisions += 1;
            if result == Err(IgnoredReason::Unproven)
                && gate.table().find(&flow, key.hash(&flow)).is_none()
            {
                // A flow that needs a second packet gets no entry by a decline either.
                assert!(above.is_some() && matches!(decision, Decision::Provisional(_)));
                continue;
            }
            let oracle = oracles.entry(src).or_insert_with(|| Oracle::new(pico));
            let counts = oracle.decide(pico, &decision, Stamp::default());
            assert_eq!(result, if counts { Ok(()) } else { Err(IgnoredReason::Unproven) });
        }
        gate.run_maintenance(now, rng.u32(..100));
    }
    let counts = gate.counts();
    assert_eq!((counts.evicted, counts.first_seen_overflow), (0, 0));
    assert!(
        counts.dropped[DropReason::Blocked].packets > packets / 10
            && counts.allowed.packets > packets / 100
    );
    assert_eq!(counts.received, counts.ended());
    assert!(decisions > packets / 20 && counts.expired > packets / 2000, "{counts:?}");
    assert!((41..46).all(|dscp| highest[dscp] > 100), "{highest:?}");
    assert_eq!(
        above.is_some(),
        counts.first_seen > packets / 2000 && counts.readmitted > packets / 2000
    );
}

#[test]
fn gate_equals_the_oracle_with_and_without_admission() {
    check_gate(None, 4_000_000, 1);
    check_gate(Some(0.0), 4_000_000, 2);
    check_gate(Some(0.075), 4_000_000, 3);
}
