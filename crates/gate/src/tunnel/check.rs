//! The grantor's side: accepts each packet of a gate's tunnel once.
//!
//! ```text
//!   private data? ─► gate's session and key known? ─► tag ─► not too old ─► not taken ─► class
//!     Untagged         Key                            Forged   Replayed      Replayed
//! ```
//!
//! No state changes for a packet before its tag has been verified. Each worker has a verifier of
//! its own: packets of a pair of addresses and ports reach one worker, and a replayed one with
//! other ports has a wrong tag. All memory is allocated at the start.

use wire::tunnel::{Ends, Outer};
use wire::{ipv4, ipv6};

use super::{FORMAT, PRIVATE_LEN, PrivateData, TAGGED_LEN, TunnelKey, UNIT, tag};
use crate::policy::Address;

/// Size of the replay window of a stream, in numbers up to the highest.
pub const WINDOW: u64 = 64 * (WORDS as u64 - 1);
const WORDS: usize = 64;
/// Maximum number of streams of a gate at a time: its workers.
pub const MAX_STREAMS: usize = 64;
/// The largest delay of a packet behind the latest of its gate: two seconds, in units.
const BEHIND: u32 = (2_000_000_000u64 >> UNIT) as u32 + 1;
/// The allowed clock drift, as a fraction of the time.
const DRIFT: u64 = 512;

/// The reason to refuse a packet of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelError {
    /// It has no tag.
    Untagged,
    /// The gate's session is not known, or the key is not one that it shares.
    Key,
    /// The tag is not that of the packet.
    Forged,
    /// It was accepted before, or is older than the replay window.
    Replayed,
}

/// The keys that gates may use, by their addresses.
#[derive(Clone, Debug, Default)]
pub struct GateKeys {
    gates: Vec<(Address, u64, Vec<TunnelKey>)>,
}

impl GateKeys {
    /// Replaces the keys of a gate by those of its current session.
    pub fn set(&mut self, gate: Address, session: u64, keys: Vec<TunnelKey>) {
        self.gates.retain(|(other, ..)| *other != gate);
        self.gates.push((gate, session, keys));
        self.gates.sort_unstable_by_key(|(gate, ..)| *gate);
    }

    fn find(&self, gate: Address, number: u16) -> Option<(u64, &TunnelKey)> {
        let at = self.gates.binary_search_by_key(&gate, |(gate, ..)| *gate).ok()?;
        let (_, session, keys) = self.gates.get(at)?;
        Some((*session, keys.iter().find(|key| key.number == number)?))
    }
}

/// The replay window of a stream (RFC 6479).
#[derive(Clone, Debug)]
struct Window {
    stream: u16,
    /// The time of its latest packet.
    time: u32,
    highest: u64,
    seen: [u64; WORDS],
}

impl Window {
    fn new(stream: u16, time: u32) -> Self {
        Self { stream, time, highest: 0, seen: [0; WORDS] }
    }

    /// Takes a number, and returns whether that is the first time.
    fn take(&mut self, number: u64, time: u32) -> bool {
        if number.saturating_add(WINDOW) <= self.highest {
            return false;
        }
        let word = number / 64;
        if number > self.highest {
            let from = self.highest / 64;
            for gone in 1..=(word - from).min(WORDS as u64) {
                self.seen[(from.wrapping_add(gone) % WORDS as u64) as usize] = 0;
            }
            (self.highest, self.time) = (number, time);
        }
        let (seen, bit) = (&mut self.seen[(word % WORDS as u64) as usize], 1 << (number % 64));
        let first = *seen & bit == 0;
        *seen |= bit;
        first
    }
}

/// The state kept for a gate.
#[derive(Clone, Debug)]
struct GateState {
    gate: Address,
    session: Option<u64>,
    /// The latest time in its packets, and when it was received.
    latest: u32,
    at: u64,
    windows: Vec<Window>,
}

impl GateState {
    /// Returns the time that the gate's clock is expected to show.
    fn expected(&self, now: u64) -> u32 {
        let gone = now.saturating_sub(self.at);
        self.latest.wrapping_add(((gone - gone / DRIFT) >> UNIT) as u32)
    }

    /// Accepts a packet with a valid tag, and returns whether it is fresh.
    fn take(&mut self, session: u64, stream: u16, time: u32, number: u64, now: u64) -> bool {
        if self.session != Some(session) {
            self.session = Some(session);
            self.windows.clear();
            (self.latest, self.at) = (time, now);
        }
        let expected = self.expected(now);
        // Both clocks run alike: half of the circle is 1.1 years.
        let ahead = time.wrapping_sub(expected).cast_signed();
        if ahead < -(BEHIND.cast_signed()) {
            return false;
        }
        let at = match self.windows.iter().position(|window| window.stream == stream) {
            Some(at) => at,
            None => {
                if self.windows.len() == MAX_STREAMS {
                    // Packets that a stream sent before such a silence are refused by their time.
                    let behind = |window: &Window| expected.wrapping_sub(window.time).cast_signed();
                    let silent = |window: &Window| behind(window) > 2 * BEHIND.cast_signed();
                    let Some(at) = self.windows.iter().position(silent) else { return false };
                    self.windows.swap_remove(at);
                }
                self.windows.push(Window::new(stream, time));
                self.windows.len() - 1
            }
        };
        let first = self.windows.get_mut(at).is_some_and(|window| window.take(number, time));
        if first && ahead >= 0 {
            (self.latest, self.at) = (time, now);
        }
        first
    }
}

/// The verifier of a worker.
#[derive(Debug)]
pub struct TunnelVerifier {
    gates: Vec<GateState>,
}

impl TunnelVerifier {
    /// Allocates the state of these gates: about 35 KB each.
    pub fn new(gates: impl IntoIterator<Item = Address>) -> Self {
        let state_of = |gate| GateState {
            gate,
            session: None,
            latest: 0,
            at: 0,
            windows: Vec::with_capacity(MAX_STREAMS),
        };
        Self { gates: gates.into_iter().map(state_of).collect() }
    }

    /// Verifies a packet of a tunnel, from its outer IP header on, at `now` by any monotonic clock,
    /// and returns the class that its gate assigned.
    ///
    /// # Errors
    ///
    /// [`TunnelError`], by the first check that fails.
    #[inline]
    pub fn check(
        &mut self,
        keys: &GateKeys,
        packet: &[u8],
        outer: &Outer,
        now: u64,
    ) -> Result<u8, TunnelError> {
        let (Some(ports), PRIVATE_LEN) = (outer.ports, outer.private) else {
            return Err(TunnelError::Untagged);
        };
        let private = outer.offset.checked_sub(PRIVATE_LEN).and_then(|from| packet.get(from..));
        let private = private.and_then(|bytes| bytes.first_chunk::<PRIVATE_LEN>());
        let inner = packet.get(outer.offset..outer.end);
        let (Some(private), Some(inner), Some(ends)) = (private, inner, ends(packet)) else {
            return Err(TunnelError::Untagged);
        };
        let PrivateFields { number, class, epoch, stream, time, sequence } =
            PrivateFields::read(private)?;
        let gate = match ends {
            Ends::V4 { src, .. } => Address::V4(src),
            Ends::V6 { src, .. } => Address::V6(src),
        };
        let (session, key) = keys.find(gate, number).ok_or(TunnelError::Key)?;
        if key.epoch != epoch {
            return Err(TunnelError::Key);
        }
        let (mark, code) =
            private.split_first_chunk::<TAGGED_LEN>().ok_or(TunnelError::Untagged)?;
        let [low, high] = tag(key, ends, ports, mark, inner);
        let (code, _) = code.as_chunks::<8>();
        let wrong = (low ^ u64::from_le_bytes(code[0])) | (high ^ u64::from_le_bytes(code[1]));
        if wrong != 0 {
            return Err(TunnelError::Forged);
        }
        let gates =
            self.gates.iter_mut().find(|gates| gates.gate == gate).ok_or(TunnelError::Key)?;
        match gates.take(session, stream, time, sequence, now) {
            true => Ok(class),
            false => Err(TunnelError::Replayed),
        }
    }
}

/// The fields of the private data.
struct PrivateFields {
    number: u16,
    class: u8,
    epoch: u16,
    stream: u16,
    time: u32,
    sequence: u64,
}

impl PrivateFields {
    fn read(private: &PrivateData) -> Result<Self, TunnelError> {
        let (words, _) = private.as_chunks::<4>();
        let [key, stream, time, high, low] =
            [0, 1, 2, 3, 4].map(|at| u32::from_be_bytes(words[at]));
        let [class, format] = [(key >> 8) as u8, key as u8];
        if format != FORMAT || class > 63 {
            return Err(TunnelError::Untagged);
        }
        Ok(Self {
            number: (key >> 16) as u16,
            class,
            epoch: (stream >> 16) as u16,
            stream: stream as u16,
            time,
            sequence: u64::from(high) << 32 | u64::from(low),
        })
    }
}

/// Returns the ends of a tunnel by a packet's outer header.
fn ends(packet: &[u8]) -> Option<Ends> {
    if packet.first()? >> 4 == 6 {
        let ip = ipv6::View::parse(packet).ok()?;
        return Some(Ends::V6 { src: ip.src(), dst: ip.dst(), flow_label: 0 });
    }
    let ip = ipv4::View::parse(packet).ok()?;
    Some(Ends::V4 { src: ip.src(), dst: ip.dst() })
}
