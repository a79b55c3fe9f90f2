//! Wants: the requests of a worker to resolve next hops.
//!
//! ```text
//!   worker ─ ask ─► requested lately? ─ no ─► ring of SLOTS ─► take ─ control plane
//! ```
//!
//! Each worker has one ring: the worker puts requests, the control plane takes them, and neither
//! waits for the other, locks or allocates. A slot is written before the number of put requests is
//! stored (release), and is read after that number is loaded (acquire); the number of taken
//! requests frees slots in the same way. A full ring accepts nothing: the next packet repeats the
//! request.
//!
//! A request names the hop, which identifies a gateway, and the destination: on a connected network
//! the destination is the neighbor, and one hop stands for all of them. Thousands of packets arrive
//! for one destination, so a small memory of recent requests keeps duplicates out of the ring. Two
//! destinations that share a place in that memory are requested more often than necessary, which
//! the control plane has to tolerate anyway; a held packet repeats its request no more often than
//! that (`hold.rs`).
//!
//! **Use.** The kernel confirms a neighbor that it sends packets to and lets any other become
//! stale, and it does not see the worker's packets. So the worker marks the hops that it uses, a
//! bit each; the control plane takes the marks, clears them and reports the use to the kernel. Hops
//! share bits by their number modulo [`MARKS`], so an unused neighbor may be confirmed. Both sides
//! write a word without a lock, so a mark may be lost: the next packet sets it.

use std::iter;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fib::Hop;

/// The number of slots in the ring.
const SLOTS: usize = 256;
/// The number of entries in the memory of recent requests.
const MEMORY: usize = 256;
/// The number of bits for hops in use.
pub const MARKS: usize = 1 << 16;
/// The number of ticks in which a request is not repeated.
pub(super) const REPEAT_INTERVAL: u64 = 5;

/// A destination, in the representation of its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// IPv4.
    V4(u32),
    /// IPv6.
    V6(u128),
}

/// A request: a next hop that packets wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// The hop whose adjacency is not resolved; of a group, the member.
    pub hop: Hop,
    /// The number of the table that has the route.
    pub table: usize,
    /// The destination of a packet.
    pub address: IpAddr,
}

/// The words of a slot: hop and table, family, address.
type Slot = [AtomicU64; 4];

/// A number that one side writes and the other reads, on its own pair of cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

#[derive(Debug)]
struct Ring {
    slots: [Slot; SLOTS],
    /// The numbers of requests that were put and taken since the start.
    put: Count,
    taken: Count,
    /// The hops in use, a bit each.
    marks: Box<[AtomicU64]>,
}

/// Makes a ring and returns its ends: for a worker, and for the control plane.
pub fn wants() -> (WantSender, WantReceiver) {
    let slots = [const { [const { AtomicU64::new(0) }; 4] }; SLOTS];
    let ring = Arc::new(Ring {
        slots,
        put: Count::default(),
        taken: Count::default(),
        marks: (0..MARKS / 64).map(|_| AtomicU64::new(0)).collect(),
    });
    let recent = vec![None; MEMORY].into();
    (WantSender { ring: Arc::clone(&ring), put: 0, recent }, WantReceiver { ring, taken: 0 })
}

/// A recent request, and its tick.
type RecentRequest = Option<(Hop, usize, Key, u64)>;

/// The worker's end of the ring.
#[derive(Debug)]
pub struct WantSender {
    ring: Arc<Ring>,
    put: u64,
    recent: Box<[RecentRequest]>,
}

impl WantSender {
    /// Requests `hop`, unless it was requested lately; `now` is the current tick.
    pub(super) fn request(&mut self, hop: Hop, table: usize, key: Key, now: u64) {
        let (family, address) = match key {
            Key::V4(address) => (4, address.into()),
            Key::V6(address) => (6, address),
        };
        let (high, low) = ((address >> 64) as u64, address as u64);
        let target = u64::from(hop.0) << 32 | u64::from(table as u32);
        let hash = (target ^ high.rotate_left(32) ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let Some(request) = self.recent.get_mut((hash >> 32) as usize % MEMORY) else { return };
        if let Some((same, of, to, when)) = *request
            && (same, of, to) == (hop, table, key)
            && now - when < REPEAT_INTERVAL
        {
            return;
        }
        // Acquire: the other end has read the slot before it is written again.
        let room = self.put - self.ring.taken.0.load(Ordering::Acquire) < SLOTS as u64;
        if let Some(slot) = self.ring.slots.get(self.put as usize % SLOTS)
            && room
        {
            for (word, value) in slot.iter().zip([target, family, high, low]) {
                word.store(value, Ordering::Relaxed);
            }
            self.put += 1;
            // Release: a receiver that sees the number sees the slot.
            self.ring.put.0.store(self.put, Ordering::Release);
            *request = Some((hop, table, key, now));
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

/// The control plane's end of the ring.
#[derive(Debug)]
pub struct WantReceiver {
    ring: Arc<Ring>,
    taken: u64,
}

impl WantReceiver {
    /// Takes the oldest request.
    pub fn take(&mut self) -> Option<Want> {
        // Acquire: the slots below this number are complete.
        if self.taken == self.ring.put.0.load(Ordering::Acquire) {
            return None;
        }
        let slot = &self.ring.slots[self.taken as usize % SLOTS];
        let [target, family, high, low] = slot.each_ref().map(|word| word.load(Ordering::Relaxed));
        self.taken += 1;
        // Release: the slot was read before it is written again.
        self.ring.taken.0.store(self.taken, Ordering::Release);
        let address = u128::from(high) << 64 | u128::from(low);
        let address = match family {
            4 => IpAddr::V4((address as u32).into()),
            _ => IpAddr::V6(address.into()),
        };
        Some(Want { hop: Hop((target >> 32) as u32), table: target as u32 as usize, address })
    }

    /// Adds the hops that were used since the last call to `used`, which has [`MARKS`] bits: a hop
    /// has the bit at its number modulo [`MARKS`].
    pub fn take_marks(&self, used: &mut [u64]) {
        for (word, used) in self.ring.marks.iter().zip(used) {
            if word.load(Ordering::Relaxed) != 0 {
                *used |= word.swap(0, Ordering::Relaxed);
            }
        }
    }

    /// Takes all requests in the ring.
    pub fn drain(&mut self) -> impl Iterator<Item = Want> {
        iter::from_fn(|| self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::{Hop, Key, MARKS, REPEAT_INTERVAL, SLOTS, Want, wants};

    #[test]
    fn wants_come_out_as_they_went_in_and_not_again_too_soon() {
        let (mut ask, mut get) = wants();
        let six = 0x2001_0db8 << 96 | 7;
        ask.request(Hop(3), 0, Key::V4(0xc000_0201), 0);
        ask.request(Hop(u32::MAX), 70_000, Key::V6(six), 0);
        // The same address in the other family is another request.
        ask.request(Hop(3), 0, Key::V6(0xc000_0201), 0);
        for _ in 0..1000 {
            ask.request(Hop(3), 0, Key::V4(0xc000_0201), REPEAT_INTERVAL - 1);
        }
        ask.request(Hop(3), 0, Key::V4(0xc000_0201), REPEAT_INTERVAL);
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
            ask.request(Hop(1), 0, Key::V4(address), 0);
        }
        assert_eq!(get.drain().count(), SLOTS);
        ask.request(Hop(1), 0, Key::V4(2 * SLOTS as u32 - 1), 0);
        assert_eq!(get.drain().count(), 1, "it was never requested");
    }

    /// Two threads: every request that was put is taken, complete, once and in order.
    #[test]
    fn nothing_is_torn_or_lost_between_threads() {
        const ASKED: u32 = 100_000;
        let (mut ask, mut get) = wants();
        let sender = std::thread::spawn(move || {
            for number in 1..=ASKED {
                let before = ask.put;
                while ask.put == before {
                    let mirror = u128::from(number) << 96 | u128::from(number);
                    ask.request(Hop(number), number as usize, Key::V6(mirror), 0);
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
