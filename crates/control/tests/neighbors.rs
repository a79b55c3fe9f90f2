//! Tests of next hops that change while a worker runs on a thread: packets that wait for a
//! neighbor, and hops that are reused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::stats::{Snapshot, WorkerStats};
use datapath::{
    Adjacencies, Adjacency, Ingresses, Tables, Verdict, WantReceiver, Worker, WorkerSetup, wants,
};
use fib::{Choice, Hop, Prefix, Publisher, Rib, Updater};
use fingerpost_control::workers::Workers;
use port::{Arena, MemoryPort};
use wire::{ethernet, ipv4};

const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];

/// A worker on a thread, with an input port, an output port and its control side, which publishes
/// the table and the adjacencies.
struct Bench {
    workers: Workers,
    table: Updater<u32>,
    adjacencies: Publisher<Adjacencies>,
    wants: WantReceiver,
    west: MemoryPort,
    east: MemoryPort,
}

impl Bench {
    fn new(routes: &[(Prefix<u32>, Hop)], adjacencies: Adjacencies) -> Self {
        let table =
            Updater::new(Rib::from_sorted(routes.iter().copied()), Choice::Auto, 1).unwrap();
        let v6 = Updater::new(Rib::<u128>::new(), Choice::Auto, 1).unwrap();
        let (west, near) = MemoryPort::pair("west", "near");
        let (east, out) = MemoryPort::pair("east", "out");
        let adjacencies = Publisher::new(adjacencies);
        let (ask, wants) = wants();
        let setup = WorkerSetup {
            arena: Arena::new(1024, 2048).unwrap(),
            ports: vec![Box::new(near.with_mac(MAC)), Box::new(out)],
            tables: Tables::single(table.reader(), v6.reader()),
            adjacencies: adjacencies.reader(),
            ingresses: Publisher::new(Ingresses::default()).reader(),
            wants: ask,
            stats: Arc::new(WorkerStats::new()),
        };
        let workers = Workers::start(vec![(Worker::new(setup), None)]).unwrap();
        Self { workers, table, adjacencies, wants, west, east }
    }

    fn stats(&self) -> Snapshot {
        self.workers.view().snapshots().into_iter().sum()
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            let late = start.elapsed() > Duration::from_secs(60);
            assert!(!late, "{what}: {:?}", self.stats());
            std::thread::yield_now();
        }
    }
}

fn to(dst: u32, id: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    let ether = ethernet::Header { dst: MAC, src: [2, 0, 0, 0, 9, 9], kind: ethernet::IPV4 };
    ether.emit(&mut frame).unwrap();
    ipv4::Header { total_len: 46, ttl: 64, id, src: 0xc000_0201, dst, ..Default::default() }
        .emit(&mut frame[14..])
        .unwrap();
    frame
}

fn next_hop(last: u8) -> Adjacency {
    Adjacency::new(1, [2, 0, 0, 0, 5, last], [2; 6], 1500)
}

/// The full cycle: packets wait, the control side receives the request and resolves the neighbor,
/// the packets leave. A later packet waits without a result and is dropped after about a second,
/// the last one when the worker stops.
#[test]
fn a_neighbor_is_asked_for_answered_and_waited_for_no_longer_than_a_second() {
    let mut unresolved = Adjacencies::new();
    unresolved.set(Hop(1), Adjacency::unresolved(1));
    let mut bench = Bench::new(&[("10.0.0.0/8".parse().unwrap(), Hop(1))], unresolved.clone());
    for id in 0..5_u16 {
        assert!(bench.west.send(&to(0x0a00_0001, id)));
    }
    bench.until("a want comes", |bench| {
        let want = bench.wants.take();
        assert!(want.is_none_or(|want| want.hop == Hop(1) && want.address.is_ipv4()));
        want.is_some()
    });
    bench.until("all five wait", |bench| bench.stats().held == 5);
    let mut resolved = unresolved.clone();
    resolved.set(Hop(1), next_hop(9));
    bench.adjacencies.publish(Box::new(resolved));
    for id in 0..5_u16 {
        let mut got = None;
        bench.until("the packets leave", |bench| {
            got = bench.east.take();
            got.is_some()
        });
        let got = got.unwrap();
        assert_eq!((got[5], got[18..20].to_vec()), (9, id.to_be_bytes().to_vec()));
    }

    bench.adjacencies.publish(Box::new(unresolved));
    let came = Instant::now();
    assert!(bench.west.send(&to(0x0a00_0001, 9)));
    bench.until("it ends", |bench| bench.stats().count(Verdict::Unresolved) == 1);
    let took = came.elapsed().as_secs_f64();
    assert!((0.85..20.0).contains(&took), "it has waited for {took} s");
    assert!(bench.west.send(&to(0x0a00_0001, 10)));
    bench.until("the last waits", |bench| bench.stats().held == 1);
    assert!(bench.stats().balanced());
    assert!(bench.workers.stop());
    let stats = bench.stats();
    assert!(stats.balanced());
    assert_eq!((stats.held, stats.sent(), stats.count(Verdict::Unresolved)), (0, 5, 2));
}

/// Takes and counts the transmitted packets; checks that each left by a next hop of its route.
fn look(bench: &mut Bench, met: &mut BTreeSet<u8>) -> u64 {
    let mut seen = 0;
    while let Some(frame) = bench.east.take() {
        let (dst, last) = (frame[31], frame[5]);
        assert_eq!(last / 100, dst, "a packet to 10.{dst}.0.1 went to next hop {last}");
        met.insert(last);
        seen += 1;
    }
    seen
}

/// Hops are reused while packets pass, in the order that `adjacencies.rs` requires: no packet ever
/// leaves by a next hop that its route did not have.
///
/// 10.0.0.0/16 leads to 20 next hops in turn, 10.1.0.0/16 to another 20; three hops represent all
/// of them in turn.
#[test]
fn a_hop_with_a_new_meaning_never_meets_a_table_of_the_old() {
    let first: Prefix<u32> = "10.0.0.0/16".parse().unwrap();
    let second: Prefix<u32> = "10.1.0.0/16".parse().unwrap();
    let mut meanings = Adjacencies::new();
    meanings.set(Hop(1), next_hop(0));
    meanings.set(Hop(2), next_hop(100));
    let mut bench = Bench::new(&[(first, Hop(1)), (second, Hop(2))], meanings.clone());
    let (mut free, mut used) = (Hop(3), [Hop(1), Hop(2)]);
    let (mut sent, mut seen, mut met) = (0, 0, BTreeSet::new());
    let (start, mut change) = (Instant::now(), 0u32);
    while bench.stats().batches < 1000 || change < 2000 || met.len() < 40 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", bench.stats());
        change += 1;
        for dst in [0x0a00_0001, 0x0a01_0001].repeat(8) {
            // No more packets than fit into the ring at the other end.
            if sent - seen < 900 && bench.west.send(&to(dst, 0)) {
                sent += 1;
            }
        }
        // One of the two routes changes to its following next hop, by the free hop.
        let which = change as usize % 2;
        meanings.set(free, next_hop((which as u32 * 100 + change % 40) as u8));
        bench.adjacencies.publish(Box::new(meanings.clone()));
        bench.table.announce([first, second][which], free);
        while !bench.table.commit().unwrap().published {
            std::thread::yield_now();
        }
        // The previous hop is free when no reader has the table with it any more.
        bench.until("every reader passes", |bench| bench.table.passed());
        while bench.adjacencies.reclaim().is_some() {}
        std::mem::swap(&mut free, &mut used[which]);
        seen += look(&mut bench, &mut met);
    }
    bench.until("all have left", |bench| {
        seen += look(bench, &mut met);
        seen == sent
    });
    assert!(bench.workers.stop());
    assert!(bench.stats().balanced());
}
