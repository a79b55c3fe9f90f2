//! Every frame is in exactly one place, after any operation.
//!
//! Random operations drive a small network of memory ports with every fault. After each operation
//! the frames of both arenas are counted, and at the end the packets: every lost or repeated packet
//! was counted as such.

use std::collections::BTreeMap;

use fastrand::Rng;
use fingerpost_port::faulty::Faults;
use fingerpost_port::{Arena, Faulty, Frame, MemoryPort, Port};

/// One end: a port, its arena and the frames that the test holds.
struct End {
    arena: Arena,
    port: Faulty<MemoryPort>,
    mine: Vec<Frame>,
    out: Vec<Frame>,
}

impl End {
    fn count(&self) {
        let here = self.mine.len() + self.out.len();
        let sum = self.arena.available() + self.port.held() + here;
        assert_eq!(sum, self.arena.capacity());
    }

    /// Sends a packet that contains `number` twice.
    fn make(&mut self, number: u32) {
        if let Some(frame) = self.arena.copy_in(&[number.to_be_bytes(); 15].concat()) {
            self.out.push(frame);
        }
    }

    fn step(&mut self, rng: &mut Rng, next: &mut u32, got: &mut Vec<Vec<u8>>) {
        match rng.usize(..7) {
            0 => {
                for _ in 0..rng.usize(..20) {
                    self.make(*next);
                    *next += 1;
                }
            }
            1 | 2 => {
                let (room, before) = (rng.usize(..20), self.mine.len());
                let count = self.port.receive(&mut self.arena, room, &mut self.mine);
                assert!(count <= room);
                assert_eq!(self.mine.len(), before + count);
            }
            3 => {
                let before = self.out.len();
                let count = self.port.transmit(&mut self.arena, &mut self.out);
                assert_eq!(self.out.len() + count, before);
            }
            4 => self.port.flush(&mut self.arena),
            5 if !self.mine.is_empty() => {
                let frame = self.mine.swap_remove(rng.usize(..self.mine.len()));
                got.push(self.arena.bytes(&frame).to_vec());
                self.port.punt(&self.arena, &frame);
                self.arena.free(frame);
            }
            _ => {
                for frame in self.mine.drain(..) {
                    got.push(self.arena.bytes(&frame).to_vec());
                    self.arena.free(frame);
                }
            }
        }
        self.count();
    }
}

fn drive(seed: u64, faults: Faults, frames: u32) {
    let mut rng = Rng::with_seed(seed);
    let (a, b) = MemoryPort::pair_with("a", "b", 32);
    let end = |port, seed| End {
        arena: Arena::new(frames, 2048).unwrap(),
        port: Faulty::new(port, faults, seed),
        mine: Vec::new(),
        out: Vec::new(),
    };
    let mut ends = [end(a, seed ^ 1), end(b, seed ^ 2)];
    let (mut next, mut got) = ([0, 1 << 24], [Vec::new(), Vec::new()]);
    for _ in 0..600 {
        let which = rng.usize(..2);
        ends[which].step(&mut rng, &mut next[which], &mut got[which]);
    }
    // Receives the packets in flight.
    for (end, got) in ends.iter_mut().zip(&mut got) {
        end.out.drain(..).for_each(|frame| end.arena.free(frame));
        loop {
            let held = end.mine.len() + end.port.held();
            let count = end.port.receive(&mut end.arena, 64, &mut end.mine);
            for frame in end.mine.drain(..) {
                got.push(end.arena.bytes(&frame).to_vec());
                end.arena.free(frame);
            }
            if held == 0 && count == 0 {
                break;
            }
        }
        end.count();
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = ends[from].port.stats().transmitted;
        let crossed = ends[to].port.inner().stats().received;
        let injected = ends[to].port.injected();
        assert_eq!(sent, crossed, "the cable loses nothing");
        assert_eq!(
            got[to].len() as u64,
            sent - injected.dropped + injected.duplicated,
            "seed {seed}: {injected:?}"
        );
        if faults.corrupt == 0.0 && faults.truncate == 0.0 {
            check_numbers(&got[to], sent, injected.dropped, injected.duplicated);
        }
        assert_eq!(ends[to].arena.available(), frames as usize);
    }
}

/// Checks that every packet is complete, and none occurs more often than it was repeated.
fn check_numbers(got: &[Vec<u8>], sent: u64, dropped: u64, duplicated: u64) {
    let mut times = BTreeMap::new();
    for packet in got {
        assert_eq!(packet.len(), 60);
        assert!(packet.chunks(4).all(|part| part == &packet[..4]), "{packet:02x?}");
        *times.entry(packet[..4].to_vec()).or_insert(0_u64) += 1;
    }
    assert_eq!(times.len() as u64, sent - dropped);
    assert!(times.values().all(|&times| times <= 2));
    assert_eq!(times.values().filter(|&&times| times == 2).count() as u64, duplicated);
}

#[test]
fn frame_accounting_holds_without_faults() {
    (0..200).for_each(|seed| drive(seed, Faults::default(), 96));
}

#[test]
fn frame_accounting_holds_with_every_fault() {
    let all = Faults {
        drop: 0.1,
        corrupt: 0.1,
        truncate: 0.1,
        duplicate: 0.1,
        reorder: 0.2,
        refuse: 0.3,
    };
    (0..200).for_each(|seed| drive(seed, all, 96));
    let whole = Faults { corrupt: 0.0, truncate: 0.0, ..all };
    (0..200).for_each(|seed| drive(seed, whole, 96));
}

#[test]
fn frame_accounting_holds_in_empty_arena() {
    let some = Faults { duplicate: 0.5, reorder: 0.5, refuse: 0.5, ..Faults::default() };
    (0..200).for_each(|seed| drive(seed, some, 5));
}
