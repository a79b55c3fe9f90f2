//! The host address cache: the latest answers, in front of any engine.
//!
//! Tzi-cker Chiueh, Prashant Pradhan, "High-Performance IP Routing Table Lookup
//! Using CPU Caching", IEEE INFOCOM 1999, section 3.1: packets come in trains, so
//! a small table of destination addresses seen lately answers most lookups from
//! the first-level cache; what it misses goes to the routing table and is entered.
//!
//! ```text
//!   addr │ tag ............ │ index │ skip │      one set, here 7 (8):
//!                              │            ┌────┬────┬────┬─────┬────┐
//!                              └──────────► │ *  │ 1  │ 2  │  …  │ 7  │ compared in
//!                                           └────┴────┴────┴─────┴────┘ this order
//!   word │ address │ hop │                    * a copy of the word that hit last
//! ```
//!
//! A *word* is an address and its hop, a *set* some words, of which the first may
//! be a duplicate of the one that hit last: associativity is in software and each
//! comparison costs time, so that the latest address is compared first. The paper's
//! degrees are 1, 2, 3 in 4 words and 7 in 8, the latter two with the duplicate;
//! here any from 1 to 8 with or without it ([`HacShape`]).
//!
//! Different from the paper: the tag is the whole address and not 23 bits of it,
//! since routes may be longer than 30 bits, so a word has 8 bytes for IPv4 where
//! the paper's has 4; nothing is reserved in the cache, which no program can do
//! today without the kernel's help; the sequence of instructions is the
//! compiler's. The paper does not say which word a new address replaces: here the
//! one entered first.
//!
//! It is one thread's own (`&mut self`), and holds for one table: [`Hac::before`]
//! takes the table's generation and empties the cache when that is another one
//! ([`Fib::generation`](crate::Fib::generation)).
//!
//! Invariants: no set holds an address that another set is for, but in words that
//! were never written, whose address is of the neighboring set so that they match
//! nothing; the first word of a set with a duplicate equals another of the set.
//! O(words of a set) a hit; a miss costs that and the engine's lookup.

use alloc::vec;
use alloc::vec::Vec;

use super::Engine;
use crate::{Addr, Hop};

mod shape;

pub use shape::{BadHac, HacShape};

/// The most words of a set.
const WORDS: usize = 8;
/// The number of addresses that a batch looks up in the cache before it uses the engine.
const GROUP: usize = 64;

/// One answer.
#[derive(Clone, Copy, Debug)]
struct Word<A> {
    addr: A,
    hop: Hop,
}

/// Eight words: a cache line of IPv4. A set is one of these or an equal part.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line<A>([Word<A>; WORDS]);

/// A cache of answers for one thread.
///
/// # Examples
///
/// ```
/// use fingerpost_fib::engine::hac::{Hac, HacShape};
/// use fingerpost_fib::engine::linear::Linear;
/// use fingerpost_fib::Hop;
/// let table = Linear::new([("10.0.0.0/8".parse()?, Hop(1))]);
/// let mut hac = Hac::<u32>::new(HacShape::new(1024, 3, true)?);
/// for _ in 0..3 {
///     assert_eq!(hac.before(&table, 0).lookup(0x0a00_0001), Hop(1));
/// }
/// assert_eq!((hac.hits(), hac.misses()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Hac<A> {
    shape: HacShape,
    lines: Vec<Line<A>>,
    /// Which way of each set is replaced next.
    next: Vec<u8>,
    /// The table that the words are from.
    generation: Option<u64>,
    hits: u64,
    misses: u64,
}

impl<A: Addr> Hac<A> {
    /// Makes an empty cache.
    ///
    /// # Panics
    ///
    /// If the address has fewer bits than the index and the skipped ones.
    pub fn new(shape: HacShape) -> Self {
        let used = shape.index_bits + shape.skip;
        assert!(used <= A::BITS, "{used} bits of index in an address of {}", A::BITS);
        let word = Word { addr: A::MIN, hop: Hop::NONE };
        let mut hac = Self {
            shape,
            lines: vec![Line([word; WORDS]); shape.entries() / WORDS],
            next: vec![0; shape.sets()],
            generation: None,
            hits: 0,
            misses: 0,
        };
        hac.clear();
        hac
    }

    /// Returns the shape.
    pub fn shape(&self) -> HacShape {
        self.shape
    }

    /// Discards all answers. The counters keep their values.
    pub fn clear(&mut self) {
        let Self { shape, lines, next, generation, .. } = self;
        let at = A::BITS - shape.skip - shape.index_bits;
        for set in 0..shape.sets() {
            // An address of the neighboring set, which is never looked up in this one.
            let addr = A::from_bits(set ^ 1, at, shape.index_bits);
            let first = set * shape.stride();
            let words = &mut lines[first / WORDS].0[first % WORDS..][..shape.stride()];
            words.fill(Word { addr, hop: Hop::NONE });
        }
        next.fill(0);
        *generation = None;
    }

    /// Puts the cache in front of a table. Answers of another generation are discarded: a
    /// generation is one table, and two tables must not have the same number.
    pub fn before<'a, E>(&'a mut self, engine: &'a E, generation: u64) -> Cached<'a, A, E>
    where
        E: Engine<A> + ?Sized,
    {
        if self.generation != Some(generation) {
            self.clear();
            self.generation = Some(generation);
        }
        Cached { hac: self, engine }
    }

    /// Returns how many lookups were answered from the cache.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// Returns how many lookups went on to the engine. In a batch, an address that
    /// comes twice before it was entered counts twice.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Returns the bytes of words.
    pub fn footprint(&self) -> usize {
        self.lines.len() * size_of::<Line<A>>()
    }

    /// Looks for an address: the hop, and in which word of its set it was, from 0.
    /// Counts nothing; makes it the one that hit last.
    #[inline]
    pub fn probe(&mut self, addr: A) -> Option<(usize, Hop)> {
        match self.shape.words_per_set() {
            1 => self.find::<1>(addr),
            2 => self.find::<2>(addr),
            3 => self.find::<3>(addr),
            4 => self.find::<4>(addr),
            5 => self.find::<5>(addr),
            6 => self.find::<6>(addr),
            7 => self.find::<7>(addr),
            _ => self.find::<8>(addr),
        }
    }

    /// Enters an answer in place of the oldest of its set. Must not be called for
    /// an address that is there already, which would take two words.
    pub fn enter(&mut self, addr: A, hop: Hop) {
        let set = self.set(addr);
        let next = &mut self.next[set];
        let way = usize::from(*next);
        *next = if way + 1 == self.shape.ways as usize { 0 } else { *next + 1 };
        let first = set * self.shape.stride();
        let words = &mut self.lines[first / WORDS].0[first % WORDS..];
        words[way + usize::from(self.shape.duplicate)] = Word { addr, hop };
        words[0] = if self.shape.duplicate { Word { addr, hop } } else { words[0] };
    }

    #[inline(always)]
    fn set(&self, addr: A) -> usize {
        let HacShape { index_bits, skip, .. } = self.shape;
        addr.bits(A::BITS - skip - index_bits, index_bits)
    }

    /// Compares with `W` words.
    #[inline(always)]
    fn find<const W: usize>(&mut self, addr: A) -> Option<(usize, Hop)> {
        let first = self.set(addr) * self.shape.stride();
        let words = &mut self.lines[first / WORDS].0[first % WORDS..];
        let words: &mut [Word<A>; W] = words.first_chunk_mut()?;
        for way in 0..W {
            if words[way].addr == addr {
                let hop = words[way].hop;
                if way > 0 && self.shape.duplicate {
                    words[0] = words[way];
                }
                return Some((way, hop));
            }
        }
        None
    }

    /// Looks up a group of addresses: first all in the cache, then those it has not
    /// in the engine.
    #[inline(always)]
    fn group<const W: usize, E>(&mut self, engine: &E, addrs: &[A], out: &mut [Hop])
    where
        E: Engine<A> + ?Sized,
    {
        let (mut missed, mut places) = ([A::MIN; GROUP], [0; GROUP]);
        let mut count = 0;
        for (place, (&addr, out)) in addrs.iter().zip(&mut *out).enumerate() {
            match self.find::<W>(addr) {
                Some((_, hop)) => *out = hop,
                None => {
                    (missed[count], places[count]) = (addr, place);
                    count += 1;
                }
            }
        }
        self.hits += (addrs.len() - count) as u64;
        self.misses += count as u64;
        if count == 0 {
            return;
        }
        let mut hops = [Hop::NONE; GROUP];
        engine.lookup_batch(&missed[..count], &mut hops[..count]);
        for ((&addr, &hop), &place) in missed[..count].iter().zip(&hops).zip(&places) {
            out[place] = hop;
            // It may have missed twice in this group.
            if self.find::<W>(addr).is_none() {
                self.enter(addr, hop);
            }
        }
    }
}

/// An engine with a cache in front.
#[derive(Debug)]
pub struct Cached<'a, A, E: ?Sized> {
    hac: &'a mut Hac<A>,
    engine: &'a E,
}

impl<A: Addr, E: Engine<A> + ?Sized> Cached<'_, A, E> {
    /// Looks up one address, as [`Engine::lookup`].
    #[inline]
    pub fn lookup(&mut self, addr: A) -> Hop {
        if let Some((_, hop)) = self.hac.probe(addr) {
            self.hac.hits += 1;
            return hop;
        }
        self.hac.misses += 1;
        let hop = self.engine.lookup(addr);
        self.hac.enter(addr, hop);
        hop
    }

    /// Looks up `addrs[i]` into `out[i]` for every i.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn lookup_batch(&mut self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        let Self { hac, engine } = self;
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            match hac.shape.words_per_set() {
                1 => hac.group::<1, E>(engine, addrs, out),
                2 => hac.group::<2, E>(engine, addrs, out),
                3 => hac.group::<3, E>(engine, addrs, out),
                4 => hac.group::<4, E>(engine, addrs, out),
                5 => hac.group::<5, E>(engine, addrs, out),
                6 => hac.group::<6, E>(engine, addrs, out),
                7 => hac.group::<7, E>(engine, addrs, out),
                _ => hac.group::<8, E>(engine, addrs, out),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Hac, HacShape};
    use crate::Hop;

    /// Probes, enters the address on a miss, and returns the word of a hit.
    fn probe(hac: &mut Hac<u16>, addr: u16) -> Option<usize> {
        let found = hac.probe(addr);
        match found {
            Some((_, hop)) => assert_eq!(hop, Hop(addr.into())),
            None => hac.enter(addr, Hop(addr.into())),
        }
        found.map(|(word, _)| word)
    }

    #[test]
    fn one_way_keeps_the_last_of_each_set() {
        let mut hac = Hac::new(HacShape::new(16, 1, false).unwrap());
        assert_eq!(probe(&mut hac, 0x0001), None);
        assert_eq!(probe(&mut hac, 0x0001), Some(0));
        assert_eq!(probe(&mut hac, 0x0002), None, "another set");
        assert_eq!(probe(&mut hac, 0x0011), None, "the same set");
        assert_eq!(probe(&mut hac, 0x0001), None, "was replaced");
        assert_eq!(probe(&mut hac, 0x0002), Some(0));
    }

    #[test]
    fn the_oldest_way_is_replaced() {
        let mut hac = Hac::new(HacShape::new(16, 2, false).unwrap());
        assert_eq!(hac.shape().sets(), 8);
        assert_eq!(probe(&mut hac, 0x00), None);
        assert_eq!(probe(&mut hac, 0x08), None);
        assert_eq!(probe(&mut hac, 0x00), Some(0));
        assert_eq!(probe(&mut hac, 0x08), Some(1));
        assert_eq!(probe(&mut hac, 0x10), None, "in place of 00, entered first");
        assert_eq!(probe(&mut hac, 0x08), Some(1));
        assert_eq!(probe(&mut hac, 0x10), Some(0));
        assert_eq!(probe(&mut hac, 0x00), None, "in place of 08");
        assert_eq!(probe(&mut hac, 0x08), None);
    }

    #[test]
    fn latest_hit_is_found_first() {
        let mut hac = Hac::new(HacShape::new(16, 3, true).unwrap());
        assert_eq!((hac.shape().sets(), hac.shape().words_per_set()), (4, 4));
        assert_eq!(probe(&mut hac, 0x00), None);
        assert_eq!(probe(&mut hac, 0x00), Some(0), "the copy");
        assert_eq!(probe(&mut hac, 0x04), None);
        assert_eq!(probe(&mut hac, 0x08), None);
        assert_eq!(probe(&mut hac, 0x04), Some(2));
        assert_eq!(probe(&mut hac, 0x04), Some(0));
        assert_eq!(probe(&mut hac, 0x00), Some(1));
        assert_eq!(probe(&mut hac, 0x0c), None, "in place of 00 and its copy");
        assert_eq!(probe(&mut hac, 0x08), Some(3));
        assert_eq!(probe(&mut hac, 0x00), None);
    }

    #[test]
    fn skipped_bits_are_in_the_tag_only() {
        let mut hac = Hac::new(HacShape::new(16, 1, false).unwrap().with_skip(2));
        assert_eq!(probe(&mut hac, 0x0100), None);
        assert_eq!(probe(&mut hac, 0x0103), None, "the same set, another address");
        assert_eq!(probe(&mut hac, 0x0100), None);
        assert_eq!(probe(&mut hac, 0x0104), None);
        assert_eq!(probe(&mut hac, 0x0100), Some(0));
    }

    #[test]
    fn an_empty_cache_holds_no_address() {
        for (ways, duplicate) in [(1, false), (2, false), (3, true), (7, true), (8, false)] {
            let mut hac = Hac::new(HacShape::new(64, ways, duplicate).unwrap());
            assert!((0..=u16::MAX).all(|addr| hac.probe(addr).is_none()));
            (0..500).for_each(|addr| _ = probe(&mut hac, addr));
            hac.clear();
            assert!((0..=u16::MAX).all(|addr| hac.probe(addr).is_none()));
        }
    }
}
