//! Packets between workers: each arrives once, complete, in order, or is rejected.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{HandoverPort, HandoverSender, RING_BYTES, channels};
use crate::{Arena, Frame, Port};

/// Makes the packet number `n` from a worker: its length and bytes follow from both.
fn packet(from: usize, n: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(n << 8 | from as u64);
    let len = 17 + rng.usize(..1500);
    let mut packet = vec![0; len];
    rng.fill(&mut packet);
    packet[0] = from as u8;
    packet[1..9].copy_from_slice(&n.to_le_bytes());
    packet
}

/// Returns the mark of packet `n`, with bits in all of its bytes.
fn mark(n: u64) -> u32 {
    (n as u32 + 1).wrapping_mul(0x9e37_79b1)
}

/// Receives all packets, compares their bytes and marks, and returns the sender and number of each.
fn all(handed: &mut HandoverPort, arena: &mut Arena) -> Vec<(usize, u64)> {
    let (mut frames, mut seen) = (Vec::<Frame>::new(), Vec::new());
    while handed.receive(arena, 32, &mut frames) > 0 {
        for frame in frames.drain(..) {
            let bytes = arena.bytes(&frame);
            let (from, n) =
                (usize::from(bytes[0]), u64::from_le_bytes(bytes[1..9].try_into().unwrap()));
            assert_eq!(bytes, packet(from, n));
            assert_eq!(frame.mark(), mark(n));
            seen.push((from, n));
            arena.free(frame);
        }
    }
    seen
}

fn split(workers: usize, bytes: usize) -> (Vec<HandoverSender>, Vec<HandoverPort>) {
    channels(workers, bytes).unwrap().into_iter().unzip()
}

#[test]
fn handed_over_packet_arrives_once_at_its_worker() {
    const WORKERS: usize = 3;
    // Short rings, so that packets and lengths wrap at their ends.
    let (mut senders, mut handed) = split(WORKERS, 8191);
    let mut arena = Arena::new(64, 2048).unwrap();
    let mut rng = Rng::with_seed(3);
    let mut wanted = vec![Vec::new(); WORKERS];
    let mut got = vec![Vec::new(); WORKERS];
    let mut refused = 0;
    for n in 0..20_000 {
        let (from, to) = (rng.usize(..WORKERS), rng.usize(..WORKERS));
        if senders[from].send(to, mark(n), &packet(from, n)) {
            assert_ne!(from, to);
            wanted[to].push((from, n));
        } else {
            refused += 1;
        }
        if rng.u8(..) < 40 {
            let at = rng.usize(..WORKERS);
            got[at].extend(all(&mut handed[at], &mut arena));
        }
    }
    let mut count = 0;
    for (at, handed) in handed.iter_mut().enumerate() {
        got[at].extend(all(handed, &mut arena));
        // Packets of one sender are in order; those of two senders have no order.
        for from in 0..WORKERS {
            let of = |list: &[(usize, u64)]| -> Vec<u64> {
                list.iter().filter(|pair| pair.0 == from).map(|pair| pair.1).collect()
            };
            assert_eq!(of(&got[at]), of(&wanted[at]), "from {from} to {at}");
        }
        assert_eq!(handed.stats().received, got[at].len() as u64);
        count += got[at].len();
    }
    assert_eq!(count + refused, 20_000);
    assert!(count > 10_000, "only {count} arrived");
    assert_eq!(arena.available(), 64);
}

#[test]
fn full_handover_ring_refuses_and_loses_nothing() {
    let (mut senders, mut handed) = split(2, 4096);
    let mut arena = Arena::new(64, 2048).unwrap();
    let given = (0..).take_while(|&n| senders[0].send(1, mark(n), &packet(0, n))).count();
    assert!(given > 0 && !senders[0].send(0, 0, &[0; 60]) && !senders[0].send(2, 0, &[0; 60]));
    assert_eq!(all(&mut handed[1], &mut arena).len(), given);
    assert!(senders[0].send(1, mark(99), &packet(0, 99)));
    assert_eq!(all(&mut handed[1], &mut arena), [(0, 99)]);
    // A worker that has ended receives nothing.
    drop(handed);
    assert!(!senders[0].send(1, 0, &[0; 60]));
}

#[test]
fn empty_arena_leaves_packets_in_handover_ring() {
    let (mut senders, mut handed) = split(2, RING_BYTES);
    let mut arena = Arena::new(2, 2048).unwrap();
    assert!((0..5).all(|n| senders[0].send(1, mark(n), &packet(0, n))));
    assert!(senders[0].send(1, 0, &[0; 2000]), "longer than a frame has room for");
    let mut frames = Vec::new();
    assert_eq!(handed[1].receive(&mut arena, 32, &mut frames), 2);
    assert_eq!(handed[1].receive(&mut arena, 32, &mut frames), 0);
    frames.drain(..).for_each(|frame| arena.free(frame));
    assert_eq!(all(&mut handed[1], &mut arena), [(0, 2), (0, 3), (0, 4)]);
    assert_eq!(handed[1].stats().rx_dropped, 1);
}

/// A lost wakeup would let a worker sleep until poll(2) times out: none is lost, whenever the
/// packet arrives between its last check and its sleep.
#[test]
fn no_wakeup_is_lost() {
    const PACKETS: u64 = 20_000;
    const TIMEOUT_MS: u16 = 5000;
    let (mut senders, mut handed) = split(2, RING_BYTES);
    let mut sender = senders.remove(0);
    let mut handed = handed.remove(1);
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::with_seed(5);
            for n in 0..PACKETS {
                assert!(sender.send(1, mark(n), &packet(0, n)));
                sender.wake_receivers();
                let begin = Instant::now();
                while seen.load(Ordering::Acquire) <= n {
                    assert!(begin.elapsed() < Duration::from_secs(60), "packet {n} is not seen");
                    std::hint::spin_loop();
                }
                (0..rng.u32(..2000)).for_each(|_| std::hint::spin_loop());
            }
        });
        let mut arena = Arena::new(64, 2048).unwrap();
        let mut next = 0;
        while next < PACKETS {
            let got = all(&mut handed, &mut arena);
            if !got.is_empty() {
                next += got.len() as u64;
                seen.store(next, Ordering::Release);
                continue;
            }
            let mut each = [PollFd::new(handed.descriptor().unwrap(), PollFlags::POLLIN)];
            let woken = poll(&mut each, PollTimeout::from(TIMEOUT_MS)).unwrap();
            assert_eq!(woken, 1, "no wakeup for packet {next}");
        }
    });
}
