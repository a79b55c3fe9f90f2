//! Wants: which next hops a worker would like to be resolved.
//!
//! ```text
//!   worker ─ ask ─► asked lately? ─ no ─► ring of SLOTS ─► next ─ control side
//! ```
//!
//! One ring a worker, one end each: the worker puts, the control side takes, and
//! neither waits for the other, locks, or allocates. What is put is whole before the
//! number of what was put says so (release), and is read after that number (acquire);
//! the same the other way round for slots that are free again. A full ring takes
//! nothing: the next packet asks again.
//!
//! A want names the hop, so that a gateway can be found by it, and the destination: on a
//! connected network that is the neighbor, and one hop stands for all of them. Packets
//! of one destination come by thousands; a small memory of what was asked lately keeps
//! the ring for what is new. Two destinations that share a place in it ask more often
//! than they need, which who takes must stand anyway; a packet that waits asks for itself
//! no more often than that (`hold.rs`).
//!
//! **Use.** The kernel confirms a neighbor that packets are sent to and lets any other grow
//! stale, and it does not see the worker's packets. So the worker marks the hops that it uses, a
//! bit each, and the control side takes the marks, clears them and tells the kernel. Hops share
//! bits by their number modulo [`MARKS`]: so an unused neighbor may be confirmed.
//! Both sides write a word without a lock, so that a mark may be lost: the next packet sets it.

use std::iter;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fib::Hop;

/// Wants on their way.
const SLOTS: usize = 256;
/// What is remembered of those asked.
const MEMORY: usize = 256;
/// Bits for hops in use.
pub const MARKS: usize = 1 << 16;
/// How many ticks a want is not asked again.
pub(super) const AGAIN: u64 = 5;

/// A destination, in the family's own form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// IPv4.
    V4(u32),
    /// IPv6.
    V6(u128),
}

/// A next hop that packets wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// The hop whose adjacency is not resolved; of a group, the member.
    pub hop: Hop,
    /// The number of the table that has the route.
    pub table: usize,
    /// Where a packet was to go.
    pub address: IpAddr,
}

/// Words of a slot: hop and table, family, address.
type Slot = [AtomicU64; 4];

/// A number that one side writes and the other reads, on a pair of lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

#[derive(Debug)]
struct Ring {
    slots: [Slot; SLOTS],
    /// How many were ever put, and taken.
    put: Count,
    taken: Count,
    /// The hops in use, a bit each.
    marks: Box<[AtomicU64]>,
}

/// Makes a ring and returns its ends: for a worker, and for the control side.
pub fn wants() -> (WantSender, WantReceiver) {
    let slots = [const { [const { AtomicU64::new(0) }; 4] }; SLOTS];
    let ring = Arc::new(Ring {
        slots,
        put: Count::default(),
        taken: Count::default(),
        marks: (0..MARKS / 64).map(|_| AtomicU64::new(0)).collect(),
    });
    let asked = vec![None; MEMORY].into();
    (WantSender { ring: Arc::clone(&ring), put: 0, asked }, WantReceiver { ring, taken: 0 })
}

/// What was asked, and when.
type Asked = Option<(Hop, usize, Key, u64)>;

/// The worker's end.
#[derive(Debug)]
pub struct WantSender {
    ring: Arc<Ring>,
    put: u64,
    asked: Box<[Asked]>,
}

impl WantSender {
    /// Asks for `hop`, unless it was asked lately; `now` counts ticks.
    pub(super) fn ask(&mut self, hop: Hop, table: usize, key: Key, now: u64) {
        let (family, address) = match key {
            Key::V4(address) => (4, address.into()),
            Key::V6(address) => (6, address),
        };
        let (high, low) = ((address >> 64) as u64, address as u64);
        let who = u64::from(hop.0) << 32 | u64::from(table as u32);
        let hash = (who ^ high.rotate_left(32) ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let Some(asked) = self.asked.get_mut((hash >> 32) as usize % MEMORY) else { return };
        if let Some((same, of, to, when)) = *asked
            && (same, of, to) == (hop, table, key)
            && now - when < AGAIN
        {
            return;
        }
        // Acquire: what the other end has read of the slot, it has read before.
        let room = self.put - self.ring.taken.0.load(Ordering::Acquire) < SLOTS as u64;
        if let Some(slot) = self.ring.slots.get(self.put as usize % SLOTS)
            && room
        {
            for (word, value) in slot.iter().zip([who, family, high, low]) {
                word.store(value, Ordering::Relaxed);
            }
            self.put += 1;
            // Release: who sees the number sees the slot.
            self.ring.put.0.store(self.put, Ordering::Release);
            *asked = Some((hop, table, key, now));
        }
    }
}

impl WantSender {
    /// Marks a hop as used.
    #[inline]
    pub(super) fn mark(&self, hop: Hop) {
        let at = hop.0 as usize % MARKS;
        let Some(word) = self.ring.marks.get(at / 64) else { return };
        let (bit, now) = (1 << (at % 64), word.load(Ordering::Relaxed));
        if now & bit == 0 {
            word.store(now | bit, Ordering::Relaxed);
        }
    }
}

/// The control side's end.
#[derive(Debug)]
pub struct WantReceiver {
    ring: Arc<Ring>,
    taken: u64,
}

impl WantReceiver {
    /// Takes the oldest want.
    pub fn take(&mut self) -> Option<Want> {
        // Acquire: the slots below this number are whole.
        if self.taken == self.ring.put.0.load(Ordering::Acquire) {
            return None;
        }
        let slot = &self.ring.slots[self.taken as usize % SLOTS];
        let [who, family, high, low] = slot.each_ref().map(|word| word.load(Ordering::Relaxed));
        self.taken += 1;
        // Release: the slot was read before it is written again.
        self.ring.taken.0.store(self.taken, Ordering::Release);
        let address = u128::from(high) << 64 | u128::from(low);
        let address = match family {
            4 => IpAddr::V4((address as u32).into()),
            _ => IpAddr::V6(address.into()),
        };
        Some(Want { hop: Hop((who >> 32) as u32), table: who as u32 as usize, address })
    }

    /// Adds the hops that were used since the last time to `used`, bit by bit: [`MARKS`] of them,
    /// a hop's at its number modulo that.
    pub fn take_marks(&self, used: &mut [u64]) {
        for (word, used) in self.ring.marks.iter().zip(used) {
            if word.load(Ordering::Relaxed) != 0 {
                *used |= word.swap(0, Ordering::Relaxed);
            }
        }
    }

    /// Takes all that are there.
    pub fn drain(&mut self) -> impl Iterator<Item = Want> {
        iter::from_fn(|| self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::{AGAIN, Hop, Key, MARKS, SLOTS, Want, wants};

    #[test]
    fn wants_come_out_as_they_went_in_and_not_again_too_soon() {
        let (mut ask, mut get) = wants();
        let six = 0x2001_0db8 << 96 | 7;
        ask.ask(Hop(3), 0, Key::V4(0xc000_0201), 0);
        ask.ask(Hop(u32::MAX), 70_000, Key::V6(six), 0);
        // The same address in the other family is another.
        ask.ask(Hop(3), 0, Key::V6(0xc000_0201), 0);
        for _ in 0..1000 {
            ask.ask(Hop(3), 0, Key::V4(0xc000_0201), AGAIN - 1);
        }
        ask.ask(Hop(3), 0, Key::V4(0xc000_0201), AGAIN);
        let want = |hop, table, address: &str| Want {
            hop: Hop(hop),
            table,
            address: address.parse().unwrap(),
        };
        let got: Vec<_> = get.drain().collect();
        let first = want(3, 0, "192.0.2.1");
        let expect =
            [first, want(u32::MAX, 70_000, "2001:db8::7"), want(3, 0, "::192.0.2.1"), first];
        assert_eq!(got, expect);
        assert_eq!(get.take(), None);
    }

    #[test]
    fn marks_are_taken_once_and_hops_far_apart_share_one() {
        let (ask, get) = wants();
        for hop in [3, 64, MARKS as u32 + 3] {
            ask.mark(Hop(hop));
        }
        let mut used = vec![0; MARKS / 64];
        get.take_marks(&mut used);
        assert_eq!((used[0], used[1]), (1 << 3, 1));
        used.fill(0);
        get.take_marks(&mut used);
        assert!(used.iter().all(|word| *word == 0));
    }

    #[test]
    fn a_full_ring_takes_nothing_and_forgets_that_it_was_asked() {
        let (mut ask, mut get) = wants();
        for address in 0..2 * SLOTS as u32 {
            ask.ask(Hop(1), 0, Key::V4(address), 0);
        }
        assert_eq!(get.drain().count(), SLOTS);
        ask.ask(Hop(1), 0, Key::V4(2 * SLOTS as u32 - 1), 0);
        assert_eq!(get.drain().count(), 1, "it was never asked");
    }

    /// Two threads: everything that was put is taken, whole, once and in order.
    #[test]
    fn nothing_is_torn_or_lost_between_threads() {
        const ASKED: u32 = 100_000;
        let (mut ask, mut get) = wants();
        let sender = std::thread::spawn(move || {
            for number in 1..=ASKED {
                let before = ask.put;
                while ask.put == before {
                    let mirror = u128::from(number) << 96 | u128::from(number);
                    ask.ask(Hop(number), number as usize, Key::V6(mirror), 0);
                }
            }
        });
        for number in 1..=ASKED {
            let want = loop {
                match get.take() {
                    Some(want) => break want,
                    None => std::thread::yield_now(),
                }
            };
            let std::net::IpAddr::V6(address) = want.address else { panic!("{want:?}") };
            let mirror = u128::from(number) << 96 | u128::from(number);
            assert_eq!(
                (want.hop, want.table, address.into()),
                (Hop(number), number as usize, mirror)
            );
        }
        sender.join().unwrap();
        assert_eq!(get.take(), None);
    }
}
