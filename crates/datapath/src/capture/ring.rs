//! A ring of packet records that one thread writes and any thread reads.
//!
//! ```text
//!   word 0   words of the record │ occasion │ point │ session
//!   word 1   time, in nanoseconds since 1970
//!   word 2   port │ length of the packet │ copied bytes
//!   word 3   list │ rule, for a packet that a rule refuses
//!   word 4   sequence number
//!   word 5…  the bytes
//!   last     words of the record, so that a reader can go backward
//! ```
//!
//! Positions count words since the beginning and never wrap; a word is at its position modulo the
//! size. The writer stores `reserved` (the end of what it is about to write), the words, and
//! `written`. A reader copies the words before `written`, and then discards the part that lies a
//! ring's length or more behind `reserved`: it may have been overwritten in the meantime (a
//! sequence lock over the ring). It goes backward from the end, because the beginning of the oldest
//! record is not known. The writer never waits.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::{Occasion, Point, RuleIndex};

/// The words of a record beside the packet's bytes: five before and one after them.
const FRAME: usize = 6;
/// The numbers of points.
const EGRESS: u8 = 1;
const REFUSED: u8 = 2;

/// A ring of records.
#[derive(Debug)]
pub(super) struct PacketRing {
    words: Box<[AtomicU64]>,
    reserved: AtomicU64,
    written: AtomicU64,
    /// The records so far.
    count: AtomicU64,
}

/// A recorded packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The number of the session; 0 for the last drops.
    pub session: u32,
    /// The reason that it is recorded.
    pub occasion: Occasion,
    /// The port.
    pub point: Point,
    /// The length of the packet, in bytes.
    pub len: u16,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// A position between two records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    words: u64,
    records: u64,
}

/// Records since a position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The records, in order.
    pub records: Vec<Record>,
    /// The number of records that were overwritten before they were read.
    pub lost: u64,
    /// The position after the records.
    pub position: Position,
}

impl PacketRing {
    /// Allocates a ring of so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            words: (0..bytes / 8).map(|_| AtomicU64::new(0)).collect(),
            reserved: AtomicU64::new(0),
            written: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    /// Returns the position after the last record.
    pub(super) fn position(&self) -> Position {
        let words = self.written.load(Ordering::Acquire);
        Position { words, records: self.count.load(Ordering::Relaxed) }
    }

    #[inline(always)]
    fn word(&self, position: u64) -> Option<&AtomicU64> {
        self.words.get(position as usize % self.words.len().max(1))
    }

    /// Adds a record with at most `snap` bytes of the packet.
    pub(super) fn push(
        &self,
        time: u64,
        session: u32,
        occasion: Occasion,
        point: Point,
        packet: &[u8],
        snap: usize,
    ) {
        let most = (self.words.len().saturating_sub(FRAME) * 8).min(usize::from(u16::MAX));
        let bytes = packet.get(..packet.len().min(snap).min(most)).unwrap_or_default();
        let words = (FRAME + bytes.len().div_ceil(8)) as u64;
        let start = self.written.load(Ordering::Relaxed);
        let end = start + words;
        let count = self.count.load(Ordering::Relaxed);
        let (kind, by) = match point {
            Point::Ingress(_) => (0, RuleIndex::default()),
            Point::Egress(_) => (EGRESS, RuleIndex::default()),
            Point::Refused(_, by) => (REFUSED, by),
        };
        let occasion = u64::from(occasion.number());
        let len = packet.len().min(usize::from(u16::MAX)) as u64;
        let head = [
            words << 48 | occasion << 40 | u64::from(kind) << 32 | u64::from(session),
            time,
            u64::from(point.port()) << 32 | len << 16 | bytes.len() as u64,
            u64::from(by.list) << 32 | u64::from(by.rule),
            count,
        ];
        self.reserved.store(end, Ordering::Relaxed);
        // A reader that sees one of the following words sees `reserved`, too.
        fence(Ordering::Release);
        let (whole, rest) = bytes.as_chunks();
        let mut tail = [0; 8];
        tail.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let tail = (!rest.is_empty()).then_some(tail);
        let body = whole.iter().copied().chain(tail).map(u64::from_le_bytes);
        for (at, word) in head.into_iter().chain(body).chain([words]).enumerate() {
            if let Some(slot) = self.word(start + at as u64) {
                slot.store(word, Ordering::Relaxed);
            }
        }
        self.count.store(count + 1, Ordering::Relaxed);
        self.written.store(end, Ordering::Release);
    }

    /// Returns the records since a position of this ring.
    ///
    /// # Complexity
    ///
    /// O(words since the position), at most the ring.
    pub(super) fn records_since(&self, since: Position) -> Records {
        let size = self.words.len() as u64;
        let end = self.position();
        let from = since.words.max(end.words.saturating_sub(size));
        let load = |position| self.word(position).map_or(0, |word| word.load(Ordering::Relaxed));
        let copy: Vec<u64> = (from..end.words).map(load).collect();
        // `reserved` is at least the end of the record that any of the words belongs to.
        fence(Ordering::Acquire);
        let intact = self.reserved.load(Ordering::Relaxed).saturating_sub(size);
        let mut rest = copy.get(intact.saturating_sub(from) as usize..).unwrap_or_default();
        let (mut records, mut sequences) = (Vec::new(), None);
        while let Some(&words) = rest.last()
            && let Some(start) = rest.len().checked_sub(words as usize)
            && let Some((before, record)) = rest.split_at_checked(start)
            && let Some((record, sequence)) = read(record)
        {
            let (_, last) = sequences.unwrap_or((sequence, sequence));
            sequences = Some((sequence, last));
            records.push(record);
            rest = before;
        }
        records.reverse();
        let (first, next) = match sequences {
            Some((first, last)) => (first, last + 1),
            None if end.words == since.words => (since.records, since.records),
            None => (end.records, end.records),
        };
        let position = Position { words: end.words, records: next };
        Records { records, lost: first.saturating_sub(since.records), position }
    }
}

/// Reads the words of a record, and returns its sequence number with it.
fn read(words: &[u64]) -> Option<(Record, u64)> {
    let &[head, time, lengths, by, sequence, ref rest @ ..] = words else { return None };
    let bytes = rest.split_last()?.1.iter().flat_map(|word| word.to_le_bytes());
    let port = (lengths >> 32) as u16;
    let record = Record {
        time,
        session: head as u32,
        occasion: Occasion::with_number((head >> 40) as u8)?,
        point: match (head >> 32) as u8 {
            EGRESS => Point::Egress(port),
            REFUSED => {
                let by = RuleIndex { list: (by >> 32) as u16, rule: by as u32 };
                Point::Refused(port, by)
            }
            _ => Point::Ingress(port),
        },
        len: (lengths >> 16) as u16,
        bytes: bytes.take(usize::from(lengths as u16)).collect(),
    };
    Some((record, sequence))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use fastrand::Rng;

    use super::*;
    use crate::Verdict;

    const DROPPED: Occasion = Occasion::End(Verdict::NoRoute);

    /// Returns the bytes of the packet with a number; its length depends on the number.
    fn packet(number: u64) -> Vec<u8> {
        let len = 8 + Rng::with_seed(number).usize(..100);
        number.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    fn number(record: &Record) -> u64 {
        u64::from_le_bytes(record.bytes[..8].try_into().unwrap())
    }

    fn push(ring: &PacketRing, number: u64) {
        let point = Point::Egress(number as u16);
        ring.push(number, number as u32, DROPPED, point, &packet(number), 200);
    }

    #[test]
    fn reader_has_each_record_once_or_as_lost() {
        let ring = PacketRing::new(2048);
        let mut rng = Rng::with_seed(4);
        let (mut next, mut read, mut lost) = (0, 0, 0);
        let mut position = Position::default();
        for _ in 0..2000 {
            for _ in 0..rng.usize(..60) {
                push(&ring, next);
                next += 1;
            }
            let records = ring.records_since(position);
            position = records.position;
            lost += records.lost;
            for record in &records.records {
                assert_eq!(number(record), read + lost);
                assert_eq!(record.bytes, packet(number(record)));
                assert_eq!(record.time, number(record));
                assert_eq!(record.point, Point::Egress(number(record) as u16));
                read += 1;
            }
            assert_eq!(read + lost, next);
        }
        assert!(read > 10_000 && lost > 10_000, "{read} {lost}");
    }

    #[test]
    fn packet_is_cut_to_the_snap_length_and_to_the_ring() {
        let ring = PacketRing::new(512);
        let long: Vec<u8> = (0..9000).map(|byte| byte as u8).collect();
        for (snap, expect) in [(0, 0), (13, 13), (16, 16), (9000, 512 - 8 * FRAME)] {
            let before = ring.position();
            let by = RuleIndex { list: 7, rule: 70_000 };
            let point = Point::Refused(3, by);
            ring.push(1, 2, Occasion::Arrival, point, &long, snap);
            let records = ring.records_since(before).records;
            let [record] = &records[..] else { panic!("{records:?}") };
            assert_eq!((record.len, &record.bytes[..]), (9000, &long[..expect]));
            let of = (record.session, record.occasion, record.point);
            assert_eq!(of, (2, Occasion::Arrival, point));
        }
    }

    /// Two threads: no record is torn, and each is read or lost.
    #[test]
    fn records_are_whole_while_they_are_written() {
        const MANY: u64 = if cfg!(miri) { 300 } else { 200_000 };
        let ring = PacketRing::new(4096);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..MANY {
                    push(&ring, number);
                    if number % 16 == 0 {
                        std::thread::yield_now();
                    }
                }
                done.store(true, Ordering::Release);
            });
            let (mut position, mut next, mut read) = (Position::default(), 0, 0);
            loop {
                let is_done = done.load(Ordering::Acquire);
                let records = ring.records_since(position);
                position = records.position;
                for record in &records.records {
                    let number = number(record);
                    assert!(number >= next, "{number} after {next}");
                    assert_eq!(record.bytes, packet(number));
                    next = number + 1;
                    read += 1;
                }
                if is_done {
                    break;
                }
            }
            assert_eq!(next, MANY, "the last record is never lost");
            assert!(read > 0);
        });
    }
}
