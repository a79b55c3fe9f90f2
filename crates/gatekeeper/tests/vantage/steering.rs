//! Software steering: the owner of a flow processes its packets, whichever worker receives them; each
//! packet is counted by one worker, and nothing is allocated.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use datapath::Verdict;
use fastrand::Rng;
use fingerpost_gatekeeper::SoftwareSteering;
use gate::flow::{Flow, Key};
use port::handover;
use wire::tunnel::Outer;
use wire::{ipv4, ipv6};

use super::{MS, PROTECTED, Rig, config};
use crate::packets::{v4, v6};

const SIX: u128 = 0x2001_0db8 << 96;

fn rigs(workers: usize, bytes: usize) -> Vec<Rig> {
    let key = Key::random();
    let ends = handover::channels(workers, bytes).unwrap();
    let place = |(at, (giver, handed))| {
        let steering = SoftwareSteering::new(at, workers, giver);
        Rig::among(config("1gbit", ""), key.clone(), Some((steering, handed)))
    };
    ends.into_iter().enumerate().map(place).collect()
}

/// Runs one turn, checks that it allocates nothing, and returns whether it had work.
fn turn(rig: &mut Rig) -> bool {
    rig.clock.fetch_add(MS / 10, Ordering::Relaxed);
    let mut busy = false;
    let allocated = allocation_counter::measure(|| {
        busy = rig.worker.poll() > 0 || rig.worker.held() > 0;
    });
    assert_eq!(allocated.count_total, 0);
    busy
}

/// Runs turns of all workers until none has work.
fn rest(rigs: &mut [Rig]) {
    for _ in 0..100_000 {
        let mut busy = false;
        for rig in rigs.iter_mut() {
            busy |= turn(rig);
        }
        if !busy {
            return;
        }
    }
    panic!("something waits for ever");
}

/// Returns the address pair of a tunnel's inner packet.
fn pair(frame: &[u8]) -> (u128, u128) {
    let outer = Outer::parse(&frame[14..]).unwrap();
    let inner = &frame[14 + outer.offset..14 + outer.end];
    if inner[0] >> 4 == 6 {
        let view = ipv6::View::parse(inner).unwrap();
        return (view.src(), view.dst());
    }
    let view = ipv4::View::parse(inner).unwrap();
    (view.src().into(), view.dst().into())
}

#[test]
fn packets_of_a_flow_are_processed_by_its_owner() {
    const WORKERS: usize = 3;
    let mut rigs = rigs(WORKERS, handover::RING_BYTES);
    let mut rng = Rng::with_seed(11);
    let mut judged_by = HashMap::new();
    let (mut sent, mut left, mut passed) = (0, 0, 0);
    for _ in 0..400 {
        for _ in 0..rng.u32(..40) {
            let n = rng.u32(..300);
            let packet = match n % 3 {
                0 => v4(0xc000_0200 + n, PROTECTED),
                1 => v6(SIX + (1 << 96) + u128::from(n), SIX | 9),
                // Outside of the protected networks: it leaves by the front, from either worker.
                _ => v4(0xc633_6400 + n, 0xc000_0207),
            };
            assert!(rigs[rng.usize(..WORKERS)].far[0].send(&packet));
            sent += 1;
        }
        rest(&mut rigs);
        for (at, rig) in rigs.iter_mut().enumerate() {
            while let Some(frame) = rig.far[1].take() {
                let owner = *judged_by.entry(pair(&frame)).or_insert(at);
                assert_eq!(owner, at, "a flow has been with two workers");
                left += 1;
            }
            while rig.far[0].take().is_some() {
                passed += 1;
            }
            rig.check();
        }
    }
    assert_eq!(judged_by.len(), 200, "every flow has been seen");
    let all: Vec<_> = rigs.iter().map(|rig| rig.worker.stats().snapshot()).collect();
    assert_eq!(all.iter().map(|stats| stats.received).sum::<u64>(), sent);
    let refused: u64 = all.iter().map(|stats| stats.count(Verdict::LowPriority)).sum();
    assert_eq!(left + passed + refused, sent);
    assert!(left > 1000 && passed > 1000, "{left} left, {passed} passed");
    for (at, rig) in rigs.iter().enumerate() {
        let flows = judged_by.values().filter(|owner| **owner == at).count();
        assert_eq!(rig.counters.packets("received"), all[at].received);
        assert!((35..100).contains(&flows), "worker {at} has {flows} of 200");
    }
}

#[test]
fn packet_for_a_full_ring_is_dropped_and_counted() {
    let mut rigs = rigs(2, 4096);
    // The other worker runs no turn.
    for n in 0..500 {
        assert!(rigs[0].far[0].send(&v4(0xc000_0200 + n, PROTECTED)));
    }
    (0..50).for_each(|_| _ = turn(&mut rigs[0]));
    rigs[0].check();
    let full = rigs[0].count(Verdict::HandoverFull);
    let own = rigs[0].counters.packets("received");
    assert!(full > 100 && own > 150, "{full} found no room, {own} are its own");
    assert_eq!(rigs[0].worker.stats().snapshot().received, full + own);
    rest(&mut rigs);
    assert_eq!(rigs[1].worker.stats().snapshot().received, 500 - full - own);
    rigs.iter().for_each(Rig::check);
}

/// The owner uses the hash of the worker that handed the packet over: with another hash it does not
/// find the flow.
#[test]
fn handed_packet_is_looked_up_by_the_hash_that_came_with_it() {
    const FLOWS: u32 = 40;
    let mut rng = Rng::with_seed(3);
    let key = Key::new(|| rng.u64(..));
    let mut ends = handover::channels(2, handover::RING_BYTES).unwrap();
    let (mut other, _) = ends.pop().unwrap();
    let (giver, handed) = ends.pop().unwrap();
    let place = Some((SoftwareSteering::new(0, 2, giver), handed));
    let mut rig = Rig::among(config("1gbit", ""), key.clone(), place);
    // The flows of the other worker are unknown here, granted or not.
    (0..FLOWS).for_each(|n| rig.grant(Flow::v4(0xc000_0200 + n, PROTECTED), 1000));
    rig.rest();
    let mut granted = |rig: &mut Rig, change: u32| {
        for n in 0..FLOWS {
            let hash = key.hash(&Flow::v4(0xc000_0200 + n, PROTECTED)) ^ change;
            assert!(other.send(0, hash, &v4(0xc000_0200 + n, PROTECTED)));
        }
        other.wake_receivers();
        rig.rest();
        let dscps = std::iter::from_fn(|| rig.far[1].take())
            .map(|frame| Outer::parse(&frame[14..]).unwrap().dscp);
        let (granted, asking): (Vec<_>, Vec<_>) = dscps.partition(|dscp| *dscp == 1);
        assert_eq!((granted.len() + asking.len()) as u32, FLOWS);
        granted.len()
    };
    let right = granted(&mut rig, 0);
    assert!((10..30).contains(&right), "{right} of {FLOWS} are its own");
    assert_eq!(granted(&mut rig, 1), 0);
    assert_eq!(rig.worker.stats().snapshot().received, u64::from(2 * FLOWS));
    rig.check();
}
