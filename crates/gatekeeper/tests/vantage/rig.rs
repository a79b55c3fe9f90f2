//! The test rig: a worker with a gate's hook and two ports, the front and the back.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datapath::capture::{Conditions, Occasion, Position};
use datapath::stats::WorkerStats;
use datapath::{
    Adjacencies, Adjacency, Ingress, Ingresses, Locals, Lookup, PuntRates, Verdict, VerdictMap,
    Worker, WorkerSetup, wants,
};
use fib::engine::linear::Linear;
use fib::{Engine, Hop, Prefix, Publisher};
use fingerpost_gatekeeper::{
    Config, ControlRings, CounterSnapshot, GateHook, HookSetup, HookState, SoftwareSteering, rings,
};
use gate::cookie::{Secret, Secrets};
use gate::decision::{FlowCommand, Item, Scope};
use gate::flow::{Flow, Key};
use gate::policy::Policy;
use gate::state::{Decision, Grant, Stamp};
use gate::tunnel::TunnelKeys;
use port::handover::HandoverPort;
use port::memory::PuntedPackets;
use port::{Arena, MemoryPort, Port};

use crate::packets::{OWN4, mac};

pub(crate) const FRAMES: u32 = 4096;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const PROTECTED: u32 = 0x0a00_0001;
pub(crate) const GRANTOR: u32 = 0xac10_0001;
pub(crate) const GRANTOR6: u128 = 0xfd02 << 112 | 2;
pub(crate) const BACK4: u32 = 0xac10_00fe;
pub(crate) const BACK6: u128 = 0xfd02 << 112 | 1;
/// Not behind the gate.
pub(crate) const OUTSIDE6: u128 = 0x2001_0db9 << 96;
/// The gate's own address on the front side.
pub(crate) const FRONT6: u128 = 0xfd01 << 112 | 1;
pub(crate) const NEXT: [u8; 6] = [2, 0, 0, 0, 9, 1];

/// One routing table for all ports.
pub(crate) struct List(Linear<u32>, Linear<u128>);

impl Lookup for List {
    fn lookup_v4(&mut self, _: usize, keys: &[u32], hops: &mut [Hop]) {
        self.0.lookup_batch(keys, hops);
    }
    fn lookup_v6(&mut self, _: usize, keys: &[u128], hops: &mut [Hop]) {
        self.1.lookup_batch(keys, hops);
    }
    fn pass(&mut self) {}
    fn idle(&mut self) {}
}

pub(crate) struct Rig {
    pub(crate) worker: Worker<List>,
    pub(crate) far: Vec<MemoryPort>,
    pub(crate) hosts: Vec<PuntedPackets>,
    pub(crate) clock: Arc<AtomicU64>,
    pub(crate) rings: ControlRings,
    pub(crate) counters: Arc<CounterSnapshot>,
    pub(crate) adjacencies: Publisher<Adjacencies>,
    pub(crate) policy: Publisher<Policy>,
    pub(crate) config: Config,
    /// The position of its capture of all packets, and what it has had.
    captured: RefCell<(Position, VerdictMap<u64>)>,
}

pub(crate) fn config(bandwidth: &str, more: &str) -> Config {
    let text = format!(
        r#"
        [front]
        interface = "front"
        [back]
        interface = "back"
        [link]
        bandwidth = "{bandwidth}"
        request_queue = 64
        granted_queue = 512
        [flow_table]
        entries = 1024
        [[grantors]]
        name = "site"
        members = [{{ address = "172.16.0.1" }}]
        [[grantors]]
        name = "site6"
        members = [{{ address = "fd02::2" }}]
        [[grantors]]
        name = "unavailable"
        members = [{{ address = "172.16.0.9", weight = 0 }}]
        [[policy]]
        prefix = "10.0.0.0/8"
        grantors = "site"
        [[policy]]
        prefix = "192.0.2.0/24"
        action = "front"
        [[policy]]
        prefix = "10.1.2.0/24"
        action = "drop"
        [[policy]]
        prefix = "10.1.3.0/24"
        grantors = "unavailable"
        [[policy]]
        prefix = "198.51.100.0/24"
        action = "back"
        [[policy]]
        prefix = "2001:db8::/32"
        grantors = "site6"
        [[policy]]
        prefix = "2001:db8:1::/48"
        grantors = "site"
        [[policy]]
        prefix = "10.1.4.0/24"
        grantors = "site"
        limit = "400kbit"
        [[policy]]
        prefix = "10.1.5.0/24"
        grantors = "site"
        per_destination_limit = "400kbit"
        {more}"#
    );
    Config::parse(&text, Path::new("gate.toml")).expect("the configuration is valid")
}

pub(crate) fn meanings() -> Adjacencies {
    let mut adjacencies = Adjacencies::new();
    adjacencies.set(Hop(1), Adjacency::new(0, NEXT, mac(0), 1500));
    adjacencies.set(Hop(2), Adjacency::new(1, NEXT, mac(1), 1500));
    adjacencies
}

impl Rig {
    pub(crate) fn new(config: Config) -> Self {
        // A fixed key, so that the same flows share a slot in every run.
        let mut rng = fastrand::Rng::with_seed(43);
        Self::among(config, Key::new(|| rng.u64(..)), None)
    }

    /// Makes one of several workers with software steering.
    pub(crate) fn among(
        config: Config,
        key: Key,
        place: Option<(SoftwareSteering, HandoverPort)>,
    ) -> Self {
        Self::sealing(config, key, place, TunnelKeys::default())
    }

    /// Makes a worker that seals tunnels with these keys.
    pub(crate) fn sealing(
        config: Config,
        key: Key,
        place: Option<(SoftwareSteering, HandoverPort)>,
        keys: TunnelKeys,
    ) -> Self {
        let (steering, handed) = place.unzip();
        let (mut far, mut hosts) = (Vec::new(), Vec::new());
        let mut ports = Vec::<Box<dyn Port>>::new();
        for at in 0..2 {
            let (end, near) = MemoryPort::pair(&format!("far{at}"), &format!("near{at}"));
            far.push(end);
            hosts.push(near.host());
            ports.push(Box::new(near.with_mac(mac(at))));
        }
        let four = |text: &str, hop| (text.parse::<Prefix<u32>>().unwrap(), Hop(hop));
        let six = |text: &str, hop| (text.parse::<Prefix<u128>>().unwrap(), Hop(hop));
        let v4 = [four("0.0.0.0/0", 1), four("172.16.0.0/16", 2), four("198.51.100.0/24", 2)];
        let v6 = [six("::/0", 1), six("fd02::/64", 2)];
        let locals = Arc::new(Locals::new([OWN4], [FRONT6]));
        let adjacencies = Publisher::new(meanings());
        let ingress =
            |sources| Ingress { locals: Arc::clone(&locals), sources, ..Ingress::default() };
        let sides =
            [&config.fixed.front, &config.fixed.back].map(|side| ingress([side.sources; 2]));
        let ingresses = Publisher::new(Ingresses::new(sides));
        let policy = Publisher::new(config.rules.policy(1).unwrap());
        let keys = Publisher::new(keys);
        let (control_rings, worker_rings) = rings();
        let clock = Arc::new(AtomicU64::new(5_000 * MS));
        let time = Arc::clone(&clock);
        let counters = Arc::new(CounterSnapshot::default());
        let hook = GateHook::install(HookSetup {
            fixed: &config.fixed,
            workers: 1,
            from4: BACK4,
            from6: BACK6,
            front4: Some(OWN4),
            front6: Some(FRONT6),
            mtu: 1500,
            overhead: 40,
            key,
            seed: 7,
            secrets: Publisher::new(Secrets::new(Secret::new(|| 7))).reader(),
            policy: policy.reader(),
            keys: keys.reader(),
            stream: 0,
            programs: Publisher::new(config.programs.clone()).reader(),
            rings: worker_rings,
            steering,
            host: None,
            counters: Arc::clone(&counters),
            restored: HookState::default(),
            save_to: None,
            clock: Box::new(move || time.load(Ordering::Relaxed)),
        });
        let mut worker = Worker::new(WorkerSetup {
            arena: Arena::new(FRAMES, 2048).unwrap(),
            ports,
            tables: List(Linear::new(v4), Linear::new(v6)),
            adjacencies: adjacencies.reader(),
            ingresses: ingresses.reader(),
            wants: wants().0,
            stats: Arc::new(WorkerStats::new()),
        })
        .with_hook(hook)
        .with_punts(PuntRates::GATE);
        if let Some(handed) = handed {
            worker = worker.with_handed(Box::new(handed.with_link(mac(0), 1500)), 0);
        }
        let everything = Conditions::every_end(0);
        let opened = worker.stats().recorder().open(1, &everything);
        let (_, position) = opened.expect("the first session");
        Self {
            worker,
            far,
            hosts,
            clock,
            rings: control_rings,
            counters,
            adjacencies,
            policy,
            config,
            captured: RefCell::new((position, VerdictMap::default())),
        }
    }

    /// Runs turns of a tenth of a millisecond each until nothing is left to do.
    pub(crate) fn rest(&mut self) {
        for _ in 0..100_000 {
            self.clock.fetch_add(MS / 10, Ordering::Relaxed);
            if self.worker.poll() == 0 && self.worker.held() == 0 {
                return;
            }
        }
        panic!("a packet waits forever");
    }

    pub(crate) fn check(&self) {
        let now = self.worker.stats().snapshot();
        assert!(now.balanced(), "{now:?}");
        // A held packet is one frame.
        let back = self.worker.arena().available() + self.worker.held();
        assert_eq!(back, FRAMES as usize);
        let mut captured = self.captured.borrow_mut();
        let (position, ends) = &mut *captured;
        let records = self.worker.stats().recorder().live(*position).expect("a session");
        *position = records.position;
        assert_eq!(records.lost, 0, "check more often");
        for record in records.records {
            let Occasion::End(verdict) = record.occasion else { panic!("{record:?}") };
            ends[verdict] += 1;
        }
        ends[Verdict::Sent] -= now.count(Verdict::TxFull);
        assert_eq!(*ends, now.verdicts, "each packet is in the capture once");
        ends[Verdict::Sent] += now.count(Verdict::TxFull);
    }

    pub(crate) fn count(&self, verdict: Verdict) -> u64 {
        self.worker.stats().snapshot().count(verdict)
    }

    pub(crate) fn grant(&mut self, flow: Flow, rate_kib: u32) {
        let terms =
            Grant { rate_kib, expire_s: 60, next_renewal_ms: 50_000, renewal_step_ms: 1000 };
        let command = FlowCommand::Decide(Decision::Grant(terms));
        assert!(self.rings.decide(Item { scope: Scope::of(&flow), command }, Stamp::default()));
    }

    pub(crate) fn decline(&mut self, flow: Flow) {
        let command = FlowCommand::Decide(Decision::Decline { expire_s: 60 });
        assert!(self.rings.decide(Item { scope: Scope::of(&flow), command }, Stamp::default()));
    }
}
