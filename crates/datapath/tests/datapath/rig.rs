//! The rig: a worker between memory ports, and the model that it must agree with.
//!
//! There are three ports. Packets arrive on port 0 and leave on 1 and 2 (or back on 0). The worker
//! and the model have the same routes, which include nested prefixes, a blackhole and a small MTU
//! and leave most addresses without a route. Packets that arrive on port 2 are looked up in another
//! table. The reverse path filter is strict on port 1 and loose on port 2.

use std::sync::Arc;

use fib::engine::linear::Linear;
use fib::{Engine, Hop, Prefix, Publisher};
use fingerpost_datapath::capture::{Conditions, Occasion, Position};
use fingerpost_datapath::stats::{Snapshot, WorkerStats};
use fingerpost_datapath::{
    Adjacencies, Adjacency, Ingress, Ingresses, Locals, Lookup, PuntRates, ReversePathFilter,
    Verdict, VerdictMap, WantReceiver, Worker, WorkerSetup, wants,
};
use port::memory::PuntedPackets;
use port::{Arena, MemoryPort, Port};

use crate::flows::Policy;
use crate::packets::{OWN4, OWN6, mac};
use crate::reference::{Entrance, Gateway, Model, Paper, RouteTarget};

/// Lists of routes of each family, in place of tables.
pub(crate) struct Lists(Vec<(Linear<u32>, Linear<u128>)>);

impl Lookup for Lists {
    fn lookup_v4(&mut self, table: usize, keys: &[u32], hops: &mut [Hop]) {
        self.0[table].0.lookup_batch(keys, hops);
    }
    fn lookup_v6(&mut self, table: usize, keys: &[u128], hops: &mut [Hop]) {
        self.0[table].1.lookup_batch(keys, hops);
    }
    fn pass(&mut self) {}
    fn idle(&mut self) {}
}

pub(crate) const FRAMES: u32 = 1024;
pub(crate) const LONG_FRAMES: u32 = 64;

/// The routes as text, with their targets.
pub(crate) const ROUTES: [(&str, RouteTarget); 16] = [
    ("10.0.0.0/8", RouteTarget::To(0)),
    ("10.1.0.0/16", RouteTarget::To(1)),
    ("10.1.2.0/24", RouteTarget::Blackhole),
    ("10.1.2.128/25", RouteTarget::To(0)),
    ("10.1.3.0/24", RouteTarget::Host),
    ("192.0.2.0/24", RouteTarget::To(2)),
    ("198.51.100.0/24", RouteTarget::To(1)),
    ("203.0.113.7/32", RouteTarget::To(3)),
    // Routed, but never forwarded to.
    ("127.0.0.0/8", RouteTarget::To(0)),
    ("2001:db8::/32", RouteTarget::To(0)),
    ("2001:db8:1::/48", RouteTarget::To(1)),
    ("2001:db8:1:2::/64", RouteTarget::Blackhole),
    ("2001:db8:1:2:8000::/65", RouteTarget::To(2)),
    ("2001:db8:1:3::/64", RouteTarget::Host),
    ("2001:db8:3::3/128", RouteTarget::To(3)),
    ("fe80::/10", RouteTarget::To(0)),
];

/// The routes of the other table.
pub(crate) const OTHER_ROUTES: [(&str, RouteTarget); 6] = [
    // The same prefixes with other targets.
    ("10.0.0.0/8", RouteTarget::To(1)),
    ("10.1.0.0/16", RouteTarget::Blackhole),
    ("192.0.2.0/24", RouteTarget::To(0)),
    ("198.51.100.0/24", RouteTarget::To(2)),
    ("2001:db8::/32", RouteTarget::To(2)),
    ("2001:db8:1::/48", RouteTarget::To(0)),
];

pub(crate) struct Rig<L = Lists> {
    pub(crate) worker: Worker<L>,
    pub(crate) far: Vec<MemoryPort>,
    pub(crate) hosts: Vec<PuntedPackets>,
    pub(crate) model: Model,
    pub(crate) adjacencies: Publisher<Adjacencies>,
    pub(crate) ingresses: Publisher<Ingresses>,
    pub(crate) wants: WantReceiver,
    seen: Snapshot,
    /// The position of its capture of all packets.
    captured: Position,
    /// The packets that the capture has as sent, and that their port has not taken yet.
    untaken: u64,
}

/// Makes the model: three ports, two tables, four gateways, the last with a small MTU. The router's
/// own address in one table belongs to another host in the other table.
pub(crate) fn model() -> Model {
    let gateway = |port: usize, mtu| Gateway {
        dst_mac: [2, 0, 0, 0, 9, port as u8],
        src_mac: [2, 0, 0, 0, 1, port as u8],
        port,
        mtu,
    };
    // The last port has other filters for IPv4 and for IPv6.
    let [off, strict, loose] =
        [ReversePathFilter::Off, ReversePathFilter::Strict, ReversePathFilter::Loose];
    let sources = [[off; 2], [strict; 2], [loose, off]];
    let entrance = |port| Entrance {
        mac: mac(port),
        table: port / 2,
        sources: sources[port],
        forwarding_off: [false; 2],
        further: port == 1,
    };
    Model {
        ports: (0..3).map(entrance).collect(),
        tables: vec![paper(&ROUTES, OWN4, OWN6), paper(&OTHER_ROUTES, 0x0a00_0001, OWN6 + 1)],
        gateways: vec![gateway(1, 1500), gateway(2, 1500), gateway(0, 1500), gateway(2, 100)],
        groups: Vec::new(),
        policy: Policy::InnerLayer4,
        seed: 0,
        answers: false,
    }
}

fn paper(routes: &[(&str, RouteTarget)], own4: u32, own6: u128) -> Paper {
    let mut paper = Paper { own4: vec![own4], own6: vec![own6], ..Paper::default() };
    for &(text, way) in routes {
        if let Ok(prefix) = text.parse::<Prefix<u32>>() {
            paper.routes4.push((prefix.addr(), prefix.len(), way));
        } else {
            let prefix = text.parse::<Prefix<u128>>().unwrap();
            paper.routes6.push((prefix.addr(), prefix.len(), way));
        }
    }
    paper
}

/// Returns the adjacencies of the hops of the model's routes.
pub(crate) fn adjacencies(model: &Model) -> Adjacencies {
    let mut adjacencies = Adjacencies::new();
    for (at, gateway) in model.gateways.iter().enumerate() {
        let Gateway { dst_mac, src_mac, port, mtu } = *gateway;
        adjacencies.set(
            hop(RouteTarget::To(at)),
            Adjacency::new(port as u16, dst_mac, src_mac, mtu as u16),
        );
    }
    adjacencies.set(hop(RouteTarget::Blackhole), Adjacency::BLACKHOLE);
    adjacencies.set(hop(RouteTarget::Host), Adjacency::HOST);
    adjacencies
}

pub(crate) fn hop(way: RouteTarget) -> Hop {
    match way {
        RouteTarget::Blackhole => Hop(1),
        RouteTarget::Host => Hop(40),
        RouteTarget::To(at) => Hop(2 + at as u32),
        RouteTarget::Group(at) => Hop(60 + at as u32),
    }
}

/// Returns the settings of the model's ports.
pub(crate) fn ingresses(model: &Model) -> Ingresses {
    Ingresses::new(model.ports.iter().map(|entrance| {
        let Paper { own4, own6, .. } = &model.tables[entrance.table];
        let locals = Locals::new(own4.iter().copied(), own6.iter().copied());
        let locals = Arc::new(locals.with_sources_v4(own4.iter().copied()));
        Ingress {
            mac: None,
            table: entrance.table,
            locals,
            sources: entrance.sources,
            forwarding_off: entrance.forwarding_off,
            further: entrance.further,
            ..Ingress::default()
        }
    }))
}

/// Returns the routes of one of the model's tables, by hop.
pub(crate) fn routes4(paper: &Paper) -> impl Iterator<Item = (Prefix<u32>, Hop)> {
    paper.routes4.iter().map(|&(addr, len, way)| (Prefix::truncate(addr, len), hop(way)))
}

/// Returns the IPv6 routes of one of the model's tables, by hop.
pub(crate) fn routes6(paper: &Paper) -> impl Iterator<Item = (Prefix<u128>, Hop)> {
    paper.routes6.iter().map(|&(addr, len, way)| (Prefix::truncate(addr, len), hop(way)))
}

/// Returns the model's routes as lists.
pub(crate) fn lists(model: &Model) -> Lists {
    let each = model.tables.iter();
    Lists(each.map(|paper| (Linear::new(routes4(paper)), Linear::new(routes6(paper)))).collect())
}

impl Rig {
    /// Makes the rig on memory ports.
    pub(crate) fn new() -> Self {
        Self::with_ports(|_, port| Box::new(port))
    }

    /// Makes the rig for another model.
    pub(crate) fn of(model: Model) -> Self {
        Self::assemble(model, FRAMES, lists, |_, port| Box::new(port))
    }

    /// Makes the rig with this number of frames.
    pub(crate) fn with_frames(frames: u32) -> Self {
        Self::assemble(model(), frames, lists, |_, port| Box::new(port))
    }

    /// Makes the rig with each memory port wrapped or replaced.
    pub(crate) fn with_ports(wrap: impl Fn(usize, MemoryPort) -> Box<dyn Port>) -> Self {
        Self::build(lists, wrap)
    }
}

impl<L: Lookup> Rig<L> {
    /// Makes the rig with tables made from the model's routes.
    pub(crate) fn build(
        tables: impl Fn(&Model) -> L,
        wrap: impl Fn(usize, MemoryPort) -> Box<dyn Port>,
    ) -> Self {
        Self::assemble(model(), FRAMES, tables, wrap)
    }

    fn assemble(
        model: Model,
        frames: u32,
        tables: impl Fn(&Model) -> L,
        wrap: impl Fn(usize, MemoryPort) -> Box<dyn Port>,
    ) -> Self {
        let mut far = Vec::new();
        let mut hosts = Vec::new();
        let mut ports: Vec<Box<dyn Port>> = Vec::new();
        for at in 0..3 {
            let (end, near) = MemoryPort::pair(&format!("far{at}"), &format!("near{at}"));
            let near = near.with_mac(mac(at));
            far.push(end);
            hosts.push(near.host());
            ports.push(wrap(at, near));
        }
        let adjacencies = Publisher::new(adjacencies(&model));
        let ingresses = Publisher::new(ingresses(&model));
        let (ask, wants) = wants();
        let worker = Worker::new(WorkerSetup {
            arena: Arena::with_long_frames(frames, 4096, LONG_FRAMES)
                .expect("a small arena can be had"),
            ports,
            tables: tables(&model),
            adjacencies: adjacencies.reader(),
            ingresses: ingresses.reader(),
            wants: ask,
            stats: Arc::new(WorkerStats::new()),
        });
        let everything = Conditions { arrivals: true, ..Conditions::every_end(16) };
        let opened = worker.stats().recorder().open(1, &everything);
        let (_, captured) = opened.expect("the first session");
        let seen = Snapshot::default();
        Self {
            worker,
            far,
            hosts,
            model,
            adjacencies,
            ingresses,
            wants,
            seen,
            captured,
            untaken: 0,
        }
    }

    /// Lets the hosts forward and answer for the router, at these rates.
    pub(crate) fn with_punts(mut self, rates: PuntRates) -> Self {
        self.worker = self.worker.with_punts(rates);
        self
    }

    /// Sends `frames` to port 0; see [`pass_on`](Self::pass_on).
    pub(crate) fn pass<F: AsRef<[u8]>>(&mut self, frames: impl IntoIterator<Item = F>) -> Snapshot {
        self.pass_on(0, frames)
    }

    /// Sends `frames` to a port, polls until no packet is left, and returns the counts of this
    /// call. It also checks the balance, so that every test does.
    pub(crate) fn pass_on<F: AsRef<[u8]>>(
        &mut self,
        port: usize,
        frames: impl IntoIterator<Item = F>,
    ) -> Snapshot {
        for frame in frames {
            assert!(self.far[port].send(frame.as_ref()), "the cable has room");
        }
        while self.worker.poll() > 0 {}
        let now = self.worker.stats().snapshot();
        assert!(now.balanced(), "received = sent + punted + dropped: {now:?}");
        let arena = self.worker.arena();
        let back = arena.available() + self.worker.held();
        assert_eq!(back, arena.capacity(), "every frame is back, or waits");
        let change = now - self.seen;
        self.seen = now;
        self.check_capture(&change);
        change
    }

    /// Checks that the capture of all packets has each packet of a change once.
    fn check_capture(&mut self, change: &Snapshot) {
        let records = self.worker.stats().recorder().live(self.captured).expect("a session");
        self.captured = records.position;
        assert_eq!(records.lost, 0);
        let (mut ends, mut arrivals) = (VerdictMap::<u64>::default(), 0);
        for record in records.records.iter().filter(|record| record.session == 1) {
            match record.occasion {
                Occasion::Arrival => arrivals += 1,
                Occasion::End(verdict) => ends[verdict] += 1,
            }
        }
        for (verdict, count) in change.iter().filter(|(verdict, _)| !verdict.is_ports()) {
            if verdict == Verdict::Sent {
                // Packets that were handed to a port, and refused or not taken yet.
                self.untaken += ends[verdict];
                self.untaken -= count + change.count(Verdict::TxFull);
                assert!(self.untaken <= self.worker.held() as u64, "{} not taken", self.untaken);
            } else {
                assert_eq!(ends[verdict], count, "{verdict:?} in the capture");
            }
        }
        let lost = change.iter().filter(|(verdict, _)| verdict.is_ports());
        assert_eq!(arrivals + lost.map(|(_, count)| count).sum::<u64>(), change.received);
    }

    /// Sends `frames` to port 0; see [`compare_on`](Self::compare_on).
    pub(crate) fn compare(&mut self, frames: &[Vec<u8>]) -> Snapshot {
        self.compare_on(0, frames)
    }

    /// Sends `frames` to a port and compares all output, byte for byte and in order, and all
    /// counters with the model.
    pub(crate) fn compare_on(&mut self, port: usize, frames: &[Vec<u8>]) -> Snapshot {
        let mut sent = vec![Vec::new(); 3];
        let mut punted = Vec::new();
        let mut verdicts = VerdictMap::<u64>::default();
        let mut originated = 0;
        for frame in frames {
            let (verdict, out) = self.model.decide(port, frame);
            verdicts[verdict] += out.len().max(1) as u64;
            originated += out.len().saturating_sub(1) as u64;
            for (egress, bytes) in out {
                sent[egress].push(bytes);
            }
            if verdict.class() == fingerpost_datapath::Class::Punted {
                punted.push(frame.clone());
            }
        }
        let counted = self.pass_on(port, frames);
        for (egress, sent) in sent.into_iter().enumerate() {
            for expect in sent {
                let got = self.far[egress].take();
                assert_eq!(got.as_deref(), Some(&expect[..]), "what leaves on port {egress}");
            }
            assert_eq!(self.far[egress].take(), None, "nothing more leaves on port {egress}");
        }
        for expect in punted {
            assert_eq!(self.hosts[port].take(), Some(expect), "what the host is given");
        }
        assert_eq!(self.hosts[port].take(), None, "the host is given nothing more");
        assert_eq!(counted.verdicts, verdicts, "the counters");
        assert_eq!(counted.originated, originated, "the fragments but one of each packet");
        assert_eq!(counted.fragments, originated + counted.fragmented);
        counted
    }
}
