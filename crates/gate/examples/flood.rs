//! Packets a second through a gate, without I/O, on one core: every packet a request from a
//! new source, and packets of granted flows (the ablation of the thesis, figure 4.6).
//!
//! ```text
//!   cargo run --release -p fingerpost-gate --example flood [-- LOG2_ENTRIES …]
//! ```
//!
//! Before each measurement the table is full, as it is seconds after a flood begins. Time
//! goes on for the gate as if five million packets came a second; the time that is
//! measured is what the thread was on a CPU, in ten parts, of which the median is said.
//! Counters are held against what was sent: a figure from a gate that loses count is none.
//!
//! | variant | group | full table | hand-over to the solicitor |
//! |---|---|---|---|
//! | plain | 1 | gives up a request for each | one by one |
//! | drop over batch | 32, first failure ends insertion | keeps all | one by one |
//! | group prefetching | 32 | gives up as many as a group needs | one by one |
//! | batched enqueue | 32 | the same | a batch |
//! | granted | 32 | - | none: all packets are of granted flows, drawn at random |

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use fib::{Prefix, Publisher};
use fingerpost_gate::decision::{Item, Say, Scope};
use fingerpost_gate::flow::{Flow, Key};
use fingerpost_gate::gate::{Gate, Packet, Verdict};
use fingerpost_gate::limit::bucket::Bucket;
use fingerpost_gate::limit::solicitor::{Request, Solicitor};
use fingerpost_gate::policy::{Action, Address, Draft, Grantor};
use fingerpost_gate::state::{Decision, Grant, Stamp};
use nix::time::ClockId;

const BATCH: usize = 64;
/// Nanoseconds between packets, for the gate.
const GAP: u64 = 200;
const PARTS: usize = 10;
const PACKETS: usize = 1 << 19;
const PROTECTED: u32 = 0xc000_0207;

#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Plain,
    DropOverBatch,
    Groups,
    BatchedEnqueue,
    Granted,
}

const VARIANTS: [(Variant, &str); 5] = [
    (Variant::Plain, "plain"),
    (Variant::DropOverBatch, "drop over batch"),
    (Variant::Groups, "group prefetching"),
    (Variant::BatchedEnqueue, "batched enqueue"),
    (Variant::Granted, "granted"),
];

/// The time this thread was on a CPU.
fn on_cpu() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().map(Duration::from).unwrap_or_default()
}

struct Course {
    gate: Gate,
    solicitor: Solicitor<u32>,
    key: Key,
    publisher: Publisher<fingerpost_gate::policy::Policy>,
    now: u64,
    source: u32,
    sent: u64,
}

impl Course {
    fn new(entries: usize) -> Self {
        let mut draft = Draft::new();
        let grantor = |address| Grantor { address: Address::V4(address), weight: 1 };
        let set = draft.set(&[grantor(0x0a00_0001), grantor(0x0a00_0002)]);
        draft.v4(Prefix::truncate(PROTECTED, 24), Action::Grantors(set));
        let policy = draft.build(1).expect("the policy has no holes");
        let publisher = Publisher::new(policy);
        Self {
            gate: Gate::new(entries, publisher.reader(), 0),
            solicitor: Solicitor::new(512, Bucket::share(10_000_000_000, 5, 0)),
            key: Key::random(),
            publisher,
            now: 0,
            source: 0,
            sent: 0,
        }
    }

    fn packet(&mut self, src: u32) -> Packet {
        let flow = Flow::v4(src, PROTECTED);
        Packet { flow, hash: self.key.hash(&flow), bytes: 60 }
    }

    /// A source that has not been before, until all have.
    fn next_source(&mut self) -> u32 {
        self.source = self.source.wrapping_add(1);
        self.source.wrapping_mul(0x9e37_79b1)
    }

    /// Sends so many packets by way of the gate; `granted` is how many flows there are to
    /// draw from, if not new ones.
    fn send(&mut self, packets: usize, variant: Variant, granted: Option<u32>) {
        let mut verdicts = [Verdict::NoRoute; BATCH];
        let mut drawn = 1u64;
        for _ in 0..packets / BATCH {
            let batch: [Packet; BATCH] = core::array::from_fn(|_| {
                let src = match granted {
                    Some(flows) => {
                        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (((drawn >> 32) * u64::from(flows)) >> 32) as u32 + 1
                    }
                    None => 0,
                };
                let src = if granted.is_some() {
                    src.wrapping_mul(0x9e37_79b1)
                } else {
                    self.next_source()
                };
                self.packet(src)
            });
            self.now += GAP * BATCH as u64;
            self.gate.process(self.now, &batch, &mut verdicts);
            let request = |at: usize| match verdicts[at] {
                Verdict::Request { dscp, .. } => {
                    Some(Request { packet: at as u32, dscp, bytes: 80 })
                }
                _ => None,
            };
            if variant == Variant::BatchedEnqueue {
                self.solicitor.offer_all((0..BATCH).filter_map(request), |_| {});
            } else {
                for request in (0..BATCH).filter_map(request) {
                    self.solicitor.offer(request);
                }
            }
            while self.solicitor.next(self.now).is_some() {}
            self.gate.turn(self.now, BATCH as u32);
        }
        self.sent += (packets / BATCH * BATCH) as u64;
    }

    /// Grants the first flows.
    fn grant(&mut self, flows: u32) {
        let grant = Grant {
            rate_kib: u32::MAX,
            expire_s: u32::MAX,
            next_renewal_ms: u32::MAX,
            renewal_step_ms: 1,
        };
        let key = self.key.clone();
        for number in 1..=flows {
            let flow = Flow::v4(number.wrapping_mul(0x9e37_79b1), PROTECTED);
            let item = Item { scope: Scope::of(&flow), say: Say::Decide(Decision::Grant(grant)) };
            let done = self.gate.decide(self.now, &item, Stamp::default(), |flow| key.hash(flow));
            assert_eq!(done, Ok(()), "there is an entry for every granted flow");
        }
    }
}

/// Returns nanoseconds a packet: the median of the parts, and the least.
fn measure(entries: usize, variant: Variant) -> (f64, f64) {
    let mut course = Course::new(entries);
    let granted = (variant == Variant::Granted).then_some((entries as u32 / 4 * 3).min(1 << 23));
    match variant {
        Variant::Plain => course.gate.set_group(1),
        Variant::DropOverBatch => course.gate.keep_all(),
        _ => {}
    }
    match granted {
        Some(flows) => course.grant(flows),
        None => {
            let fast = if variant == Variant::Plain { Variant::Groups } else { variant };
            course.send(entries + entries / 8, fast, None);
        }
    }
    let mut parts: Vec<f64> = (0..PARTS)
        .map(|_| {
            let begin = on_cpu();
            course.send(PACKETS, variant, granted);
            (on_cpu() - begin).as_secs_f64() * 1e9 / PACKETS as f64
        })
        .collect();
    parts.sort_by(f64::total_cmp);
    let counts = course.gate.counts();
    assert_eq!(counts.received.packets, course.sent, "the gate has counted every packet");
    assert_eq!(counts.received, counts.ended(), "every packet has one verdict");
    let expect = if granted.is_some() { counts.granted } else { counts.requests };
    assert_eq!(expect, counts.received, "every packet was what it is to be");
    assert_eq!(course.publisher.pending(), 0);
    ((parts[PARTS / 2 - 1] + parts[PARTS / 2]) / 2.0, parts[0])
}

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let sizes: Result<Vec<u32>, _> = given.iter().map(|log| log.parse()).collect();
    let sizes = match sizes {
        Ok(sizes) if sizes.iter().all(|log| (6..28).contains(log)) => sizes,
        _ => {
            eprintln!("flood: the arguments are base-2 logarithms of numbers of entries, 6 to 27");
            return ExitCode::from(2);
        }
    };
    let sizes = if sizes.is_empty() { vec![15, 20, 24] } else { sizes };
    let mut out = std::io::stdout().lock();
    let _ =
        writeln!(out, "{:<9} {:<18} {:>8} {:>8} {:>10}", "entries", "variant", "ns", "best", "M/s");
    for log in sizes {
        for (variant, name) in VARIANTS {
            let (median, best) = measure(1 << log, variant);
            let rate = 1e3 / median;
            let _ = writeln!(out, "2^{log:<7} {name:<18} {median:>8.1} {best:>8.1} {rate:>10.2}");
        }
    }
    ExitCode::SUCCESS
}
