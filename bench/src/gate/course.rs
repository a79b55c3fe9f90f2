//! Sends packets through a gate by one of the variants, and checks its counters.

use std::time::Instant;

use anyhow::ensure;
use fib::engine::overlap::Tuner;
use fib::{Prefix, Publisher};
use gate::admission::AdmissionConfig;
use gate::decision::{FlowCommand, Item, Scope};
use gate::flow::{Flow, Key};
use gate::gate::{Gate, Packet, Verdict};
use gate::limit::bucket::Bucket;
use gate::limit::request_queue::{Request, RequestQueue};
use gate::policy::{Action, Address, Grantor, Policy, PolicyBuilder};
use gate::state::{Decision, Grant, Stamp};

/// Packets of a batch.
pub(super) const BATCH: usize = 64;
/// Nanoseconds between packets, for the gate.
pub(super) const GAP: u64 = 200;
/// Where packets go.
pub(super) const PROTECTED: u32 = 0xc000_0207;
/// Spreads numbers over all addresses, each to another.
const SPREAD: u32 = 0x9e37_79b1;

/// Returns the address of a source by its number.
pub(super) fn source(number: u32) -> u32 {
    number.wrapping_mul(SPREAD)
}

/// Numbers of sources: each another, until all have been, or of so many flows by chance.
pub(super) struct Numbers {
    /// How many flows there are to draw from, if not each source is another.
    flows: Option<u32>,
    drawn: u64,
    last: u32,
}

impl Numbers {
    pub(super) fn new(flows: Option<u32>) -> Self {
        Self { flows, drawn: 1, last: 0 }
    }

    /// Returns the next.
    pub(super) fn draw(&mut self) -> u32 {
        match self.flows {
            Some(flows) => {
                self.drawn = self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (((self.drawn >> 32) * u64::from(flows)) >> 32) as u32
            }
            None => {
                self.last = self.last.wrapping_add(1);
                self.last
            }
        }
    }
}

/// A way of taking packets; see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Plain,
    DropOverBatch,
    Groups,
    Coroutines,
    BatchedEnqueue,
    Admission,
    Granted,
}

impl Variant {
    /// Plain first: the others are held against it.
    pub(super) const ALL: [Self; 7] = [
        Self::Plain,
        Self::DropOverBatch,
        Self::Groups,
        Self::Coroutines,
        Self::BatchedEnqueue,
        Self::Admission,
        Self::Granted,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::DropOverBatch => "drop over batch",
            Self::Groups => "group prefetching",
            Self::Coroutines => "coroutines, tuned",
            Self::BatchedEnqueue => "batched enqueue",
            Self::Admission => "admission",
            Self::Granted => "granted",
        }
    }
}

/// A gate under a flood, or with nothing but granted flows.
pub(super) struct Course {
    gate: Gate,
    variant: Variant,
    tuner: Tuner,
    queue: RequestQueue<u32>,
    key: Key,
    /// Readers of the policy read while it lives.
    _policy: Publisher<Policy>,
    entries: usize,
    numbers: Numbers,
    now: u64,
    sent: u64,
}

impl Course {
    pub(super) fn new(entries: usize, variant: Variant) -> anyhow::Result<Self> {
        let mut draft = PolicyBuilder::new();
        let grantor = |address| Grantor { address: Address::V4(address), weight: 1 };
        let set = draft.set(&[grantor(0x0a00_0001), grantor(0x0a00_0002)]);
        draft.v4(Prefix::truncate(PROTECTED, 24), Action::Grantors(set));
        let publisher = Publisher::new(draft.build(1)?);
        let mut gate: Gate = Gate::new(entries, publisher.reader(), 0);
        match variant {
            Variant::Plain => gate.set_group(1),
            Variant::DropOverBatch => gate.disable_eviction(),
            _ => {}
        }
        Ok(Self {
            gate,
            variant,
            tuner: Tuner::new(8),
            queue: RequestQueue::new(512, Bucket::share(10_000_000_000, 5, 0)),
            key: Key::random(),
            _policy: publisher,
            entries,
            numbers: Numbers::new(None),
            now: 0,
            sent: 0,
        })
    }

    /// Fills the table: with requests, or with the flows that are granted.
    pub(super) fn fill(&mut self) {
        if self.variant == Variant::Granted {
            return self.grant((self.entries as u32 / 4 * 3).min(1 << 23));
        }
        let wanted = self.variant;
        if wanted == Variant::Plain {
            self.gate.set_group(gate::gate::GROUP);
            self.variant = Variant::Groups;
        }
        self.send(self.entries + self.entries / 8);
        if wanted == Variant::Plain {
            self.gate.set_group(1);
        }
        self.variant = wanted;
        if wanted == Variant::Admission {
            // As a gate has it by itself.
            let terms =
                AdmissionConfig { threshold: 0.5, tracked_flows: 4 * self.entries, seed: 7 };
            self.gate.set_admission(&terms);
            self.send(terms.tracked_flows);
        }
    }

    fn grant(&mut self, flows: u32) {
        let terms = Grant {
            rate_kib: u32::MAX,
            expire_s: u32::MAX,
            next_renewal_ms: u32::MAX,
            renewal_step_ms: 1,
        };
        for number in 0..flows {
            let flow = Flow::v4(source(number), PROTECTED);
            let item = Item {
                scope: Scope::of(&flow),
                command: FlowCommand::Decide(Decision::Grant(terms)),
            };
            let key = &self.key;
            // A flow that finds no room shows in the final check of the counters.
            let _ = self.gate.decide(self.now, &item, Stamp::default(), |flow| key.hash(flow));
        }
        self.numbers = Numbers::new(Some(flows));
    }

    /// Draws a packet: of a granted flow, or from a source that has not been before, until
    /// all have.
    pub(super) fn packet(&mut self) -> Packet {
        let number = self.numbers.draw();
        self.of(Flow::v4(source(number), PROTECTED))
    }

    /// Makes a packet of a flow.
    pub(super) fn of(&self, flow: Flow) -> Packet {
        Packet { flow, hash: self.key.hash(&flow), bytes: 60 }
    }

    /// Returns the gate.
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Has the gate decide of a batch, and do what is due.
    pub(super) fn decide(&mut self, batch: &[Packet], verdicts: &mut [Verdict]) {
        self.now += GAP * batch.len() as u64;
        self.gate.process(self.now, batch, verdicts);
        self.gate.run_maintenance(self.now, batch.len() as u32);
    }

    /// Sends so many packets by way of the gate, in batches.
    pub(super) fn send(&mut self, packets: usize) {
        let mut verdicts = [Verdict::NoRoute; BATCH];
        for _ in 0..packets / BATCH {
            let batch: [Packet; BATCH] = core::array::from_fn(|_| self.packet());
            self.now += GAP * BATCH as u64;
            if self.variant == Variant::Coroutines {
                let begin = Instant::now();
                let in_flight = self.tuner.in_flight();
                self.gate.process_with_coroutines(self.now, &batch, in_flight, &mut verdicts);
                self.tuner.observe(begin.elapsed().as_nanos() as u64, BATCH);
            } else {
                self.gate.process(self.now, &batch, &mut verdicts);
            }
            let request = |at: usize| match verdicts[at] {
                Verdict::Request { dscp, .. } => {
                    Some(Request { packet: at as u32, dscp, bytes: 80 })
                }
                _ => None,
            };
            if matches!(self.variant, Variant::BatchedEnqueue | Variant::Admission) {
                self.queue.offer_all((0..BATCH).filter_map(request), |_| {});
            } else {
                for request in (0..BATCH).filter_map(request) {
                    self.queue.offer(request);
                }
            }
            while self.queue.next(self.now).is_some() {}
            self.gate.run_maintenance(self.now, BATCH as u32);
        }
        self.sent += (packets / BATCH * BATCH) as u64;
    }

    /// Compares the gate's counters with the packets sent.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let counts = self.gate.counts();
        ensure!(counts.received.packets == self.sent, "the gate has not counted every packet");
        ensure!(
            counts.received == counts.ended(),
            "the counts by verdict do not add up to the received packets"
        );
        let expect =
            if self.variant == Variant::Granted { counts.granted } else { counts.requests };
        let first_seen = counts.first_seen + counts.first_seen_overflow > 0;
        ensure!(
            first_seen == (self.variant == Variant::Admission),
            "the gate did not count first packets of new sources as the variant requires"
        );
        ensure!(
            expect == counts.received,
            "a packet got another verdict than the variant requires: {counts:?}"
        );
        Ok(())
    }

    /// Returns the bytes that an entry and its share of the index take, for all.
    pub(super) fn bytes(&self) -> usize {
        self.entries * size_of::<gate::table::Entry>()
    }
}
