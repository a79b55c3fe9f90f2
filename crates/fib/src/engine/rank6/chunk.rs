//! The chunk: sorted starts, and as many values and one more.
//!
//! ```text
//!   few    ┃ starts, 16 bits each ┃ values, 8 or 16 bits each ┃
//!   many   ┃ n ┃ every 32nd start, filled up ┃ starts, filled up ┃ values, 8 to 32 bits ┃
//!   node   ┃ starts, 8 bits each ┃ values, 32 bits each ┃
//!   table  ┃ values, 32 bits each, one for every slot ┃
//! ```
//!
//! All are packed in words of 32 bits, the first item in the lowest bits, and each part begins
//! with a word. Value 0 holds from the beginning of the block up to the first start,
//! value i from start i − 1 on: how many starts are not above a probe is the place of
//! its value. With up to 32 starts one vector holds them all. With more, one holds
//! their separators (start 32, start 64 and so on, counted from 0), whose rank is the
//! line of 32 starts to go on in; two lines thus search 1,056 starts. Both are filled up to
//! whole vectors with the highest start there is, so that there is nothing to mask out: what
//! a probe as high counts too many is cut off.

use alloc::vec::Vec;

use crate::arch::search::{BYTES, HALVES, byte, byte_rank, half, half_rank};

/// How a probe's rank among some starts is found.
pub(super) trait Search: Copy {
    /// Counts the bytes, 1 to 64, that are not above the probe.
    fn bytes(self, words: &[u32], count: usize, probe: u32) -> usize;
    /// Counts the pairs of bytes, 1 to 32, that are not above the probe.
    fn halves(self, words: &[u32], count: usize, probe: u32) -> usize;
}

/// By halves, on any CPU.
#[derive(Clone, Copy)]
pub(super) struct Scalar;

impl Search for Scalar {
    #[inline(always)]
    fn bytes(self, words: &[u32], count: usize, probe: u32) -> usize {
        byte_rank(words, count, probe)
    }
    #[inline(always)]
    fn halves(self, words: &[u32], count: usize, probe: u32) -> usize {
        half_rank(words, count, probe)
    }
}

/// How wide a chunk's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Width {
    Bytes,
    Halves,
    Words,
}

impl Width {
    /// Returns the narrowest that holds all values.
    pub(super) fn of(values: impl Iterator<Item = u32>) -> Self {
        match values.max() {
            None | Some(..256) => Self::Bytes,
            Some(256..0x1_0000) => Self::Halves,
            Some(_) => Self::Words,
        }
    }

    /// Returns the words that `values` take.
    pub(super) fn word_count(self, values: usize) -> usize {
        match self {
            Self::Bytes => values.div_ceil(4),
            Self::Halves => values.div_ceil(2),
            Self::Words => values,
        }
    }

    /// Returns value `at`.
    #[inline(always)]
    pub(super) fn value(self, words: &[u32], at: usize) -> u32 {
        match self {
            Self::Bytes => byte(words, at),
            Self::Halves => half(words, at),
            Self::Words => words[at],
        }
    }

    fn bits(self) -> usize {
        match self {
            Self::Bytes => 8,
            Self::Halves => 16,
            Self::Words => 32,
        }
    }
}

/// Returns how many separators `starts` have.
#[inline(always)]
pub(super) const fn separators(starts: usize) -> usize {
    (starts - 1) / HALVES
}

/// Returns whether the separators of `starts` are other than one vector.
pub(super) fn is_large(starts: usize) -> bool {
    !(1..=HALVES).contains(&separators(starts))
}

/// Returns the words of so many starts, filled up to whole vectors, one at least.
#[inline(always)]
const fn filled(starts: usize) -> usize {
    let vectors = starts.div_ceil(HALVES);
    (if vectors == 0 { 1 } else { vectors }) * (HALVES / 2)
}

/// Appends starts, filled up.
fn fill(words: &mut Vec<u32>, starts: impl Iterator<Item = u32>) {
    let begin = words.len();
    let starts: Vec<u32> = starts.collect();
    let all = filled(starts.len()) * 2;
    pack(words, 16, starts.into_iter().chain(core::iter::repeat(0xffff)).take(all));
    debug_assert_eq!(words.len() - begin, all / 2);
}

/// Appends numbers of so many bits, to whole words.
fn pack(words: &mut Vec<u32>, bits: usize, numbers: impl Iterator<Item = u32>) {
    let each = 32 / bits;
    for (at, number) in numbers.enumerate() {
        if at % each == 0 {
            words.push(0);
        }
        if let Some(word) = words.last_mut() {
            *word |= number << (at % each * bits);
        }
    }
}

/// Lays out few starts; `list` has a value and where it begins, the first at 0.
pub(super) fn few(list: &[(u32, u32)], width: Width) -> Vec<u32> {
    let mut words = Vec::new();
    pack(&mut words, 16, list[1..].iter().map(|item| item.0));
    pack(&mut words, width.bits(), list.iter().map(|item| item.1));
    words
}

/// Lays out any number of starts, one at least.
pub(super) fn many(list: &[(u32, u32)], width: Width) -> Vec<u32> {
    let starts = &list[1..];
    let mut words = Vec::from([starts.len() as u32]);
    fill(&mut words, starts.iter().step_by(HALVES).skip(1).map(|item| item.0));
    fill(&mut words, starts.iter().map(|item| item.0));
    pack(&mut words, width.bits(), list.iter().map(|item| item.1));
    words
}

/// Lays out a node of up to 64 starts.
pub(super) fn node(list: &[(u32, u32)]) -> Vec<u32> {
    let mut words = Vec::new();
    pack(&mut words, 8, list[1..].iter().map(|item| item.0));
    words.extend(list.iter().map(|item| item.1));
    words
}

/// Returns the words of a chunk of few starts.
#[inline(always)]
pub(super) fn few_len(starts: usize, width: Width) -> usize {
    starts.div_ceil(2) + width.word_count(starts + 1)
}

/// Returns the words of a chunk that begins with its number of starts.
pub(super) fn many_len(starts: usize, width: Width) -> usize {
    many_values(starts) + width.word_count(starts + 1)
}

/// Returns the words of a node.
pub(super) fn node_len(starts: usize) -> usize {
    starts.div_ceil(4) + starts + 1
}

/// Returns where the values of a chunk of many begin.
#[inline(always)]
pub(super) fn many_values(starts: usize) -> usize {
    many_starts(starts) + filled(starts)
}

/// Returns where the starts of a chunk of many begin.
#[inline(always)]
pub(super) const fn many_starts(starts: usize) -> usize {
    1 + filled(separators(starts))
}

/// The lengths in words of the windows through which a node is read, a chunk of few, and one of many
/// with values of a byte and one vector of separators. Each is read as one array of that length:
/// the compiler sees that every index computed from a rank is within it, and omits the check (a
/// tenth more lookups of addresses drawn by prefix).
const NODE_WINDOW: usize = 16 + BYTES + 1;
const FEW_WINDOW: usize = HALVES / 2 + HALVES / 2 + 1;
const MANY_WINDOW: usize = many_starts(MAX_STARTS) + filled(MAX_STARTS) + MAX_STARTS / 4 + 1;
/// The most starts whose separators are one vector.
const MAX_STARTS: usize = HALVES * (HALVES + 1);

/// Returns `N` words from `at` on, if there are as many.
#[inline(always)]
fn load_window<const N: usize>(words: &[u32], at: usize) -> Option<&[u32; N]> {
    words.get(at..at + N)?.first_chunk()
}

/// Looks a probe up in a chunk of few.
#[inline(always)]
pub(super) fn find_few<S: Search>(
    by: S,
    words: &[u32],
    (at, starts): (usize, usize),
    probe: u32,
    width: Width,
) -> u32 {
    match load_window::<FEW_WINDOW>(words, at) {
        Some(chunk) if width != Width::Words => in_few(by, chunk, starts, probe, width),
        _ => few_at_end(words, at, starts, probe, width),
    }
}

#[inline(always)]
fn in_few<S: Search>(by: S, chunk: &[u32], starts: usize, probe: u32, width: Width) -> u32 {
    // Never more: the bound lets the compiler omit a check.
    let starts = (starts - 1) % HALVES + 1;
    let rank = by.halves(chunk, starts, probe);
    width.value(&chunk[starts.div_ceil(2)..], rank)
}

/// Looks a probe up in a chunk of many, of which the separators are one vector, no more
/// and no fewer, or, if `LARGE`, any number.
#[inline(always)]
pub(super) fn find_many<S: Search, const LARGE: bool>(
    by: S,
    words: &[u32],
    at: usize,
    probe: u32,
    width: Width,
) -> u32 {
    if LARGE {
        return in_large(by, &words[at..], probe, width);
    }
    match load_window::<MANY_WINDOW>(words, at) {
        Some(chunk) if width == Width::Bytes => in_many(by, chunk, probe, width),
        _ => many_at_end(words, at, probe, width),
    }
}

#[inline(always)]
fn in_many<S: Search>(by: S, chunk: &[u32], probe: u32, width: Width) -> u32 {
    let starts = chunk[0] as usize;
    // Never more: the bound lets the compiler omit a check.
    let last = separators(starts).min(HALVES);
    let line = by.halves(&chunk[1..], HALVES, probe).min(last);
    let lines = 1 + HALVES / 2;
    let rank = line * HALVES + by.halves(&chunk[lines + line * (HALVES / 2)..], HALVES, probe);
    let values = lines + (last + 1) * (HALVES / 2);
    width.value(&chunk[values..], rank.min(starts))
}

/// Looks a probe up in a chunk of any number of separators.
#[inline(always)]
fn in_large<S: Search>(by: S, chunk: &[u32], probe: u32, width: Width) -> u32 {
    let starts = chunk[0] as usize;
    let last = separators(starts);
    let lines = many_starts(starts);
    // All vectors before the one with the line are below the probe.
    let mut line = 0;
    for at in (1..lines).step_by(HALVES / 2) {
        line += by.halves(&chunk[at..], HALVES, probe);
    }
    let line = line.min(last);
    let rank = line * HALVES + by.halves(&chunk[lines + line * (HALVES / 2)..], HALVES, probe);
    let values = lines + (last + 1) * (HALVES / 2);
    width.value(&chunk[values..], rank.min(starts))
}

/// Looks a probe up in a node.
#[inline(always)]
pub(super) fn find_node<S: Search>(
    by: S,
    words: &[u32],
    (at, starts): (usize, usize),
    probe: u32,
) -> u32 {
    match load_window::<NODE_WINDOW>(words, at) {
        Some(node) => in_node(by, node, starts, probe),
        None => node_at_end(words, at, starts, probe),
    }
}

#[inline(always)]
fn in_node<S: Search>(by: S, node: &[u32], starts: usize, probe: u32) -> u32 {
    let rank = by.bytes(node, starts, probe);
    node[starts.div_ceil(4) + rank]
}

// Chunks and nodes at the end of an array, where no window fits.

#[cold]
#[inline(never)]
fn few_at_end(words: &[u32], at: usize, starts: usize, probe: u32, width: Width) -> u32 {
    in_few(Scalar, &words[at..], starts, probe, width)
}

#[cold]
#[inline(never)]
fn many_at_end(words: &[u32], at: usize, probe: u32, width: Width) -> u32 {
    in_many(Scalar, &words[at..], probe, width)
}

#[cold]
#[inline(never)]
fn node_at_end(words: &[u32], at: usize, starts: usize, probe: u32) -> u32 {
    in_node(Scalar, &words[at..], starts, probe)
}

#[cfg(test)]
mod tests {
    use super::{
        MANY_WINDOW, Scalar, Width, few, few_len, find_few, find_many, find_node, is_large, many,
        many_len, many_values, node, node_len,
    };
    use alloc::vec::Vec;

    /// The words with others behind them, as but the last of an array have.
    fn followed(words: &[u32]) -> Vec<u32> {
        words.iter().copied().chain(0..MANY_WINDOW as u32).collect()
    }

    #[test]
    fn every_format_agrees_with_a_scan() {
        for starts in (1..70).chain([1000, 1056, 1057, 1090, 3000, 20_000]) {
            let step = (65_535 / starts as u32).min(13);
            for (top, width) in
                [(255, Width::Bytes), (65_535, Width::Halves), (1 << 30, Width::Words)]
            {
                let value = |at: u32| if at == 1 { top } else { at * 7 % 251 };
                let list: Vec<(u32, u32)> =
                    (0..=starts as u32).map(|at| (at * step, value(at))).collect();
                assert_eq!(Width::of(list.iter().map(|item| item.1)), width);
                let mut words = many(&list, width);
                assert_eq!(words.len(), many_len(starts, width));
                assert_eq!(words.len() - many_values(starts), width.word_count(starts + 1));
                words.insert(0, 9);
                let scan = |probe| list.iter().rev().find(|item| item.0 <= probe).unwrap().1;
                if !is_large(starts) {
                    let longer = followed(&words);
                    for probe in (0..=65_535).step_by(11) {
                        for words in [&words, &longer] {
                            let found = find_many::<_, false>(Scalar, words, 1, probe, width);
                            assert_eq!(found, scan(probe));
                        }
                    }
                }
                let last = starts as u32 * step;
                let probes = || (0..=last + 1).step_by(if starts > 100 { 7 } else { 1 });
                for probe in probes() {
                    assert_eq!(find_many::<_, true>(Scalar, &words, 1, probe, width), scan(probe));
                }
                if starts <= 32 {
                    let words = few(&list, width);
                    assert_eq!(words.len(), few_len(starts, width));
                    let longer = followed(&words);
                    for probe in probes() {
                        for words in [&words, &longer] {
                            let found = find_few(Scalar, words, (0, starts), probe, width);
                            assert_eq!(found, scan(probe));
                        }
                    }
                }
            }
            if starts <= 64 {
                let list: Vec<(u32, u32)> =
                    (0..=starts as u32).map(|at| (at * 3, at * 77_777)).collect();
                let words = node(&list);
                assert_eq!(words.len(), node_len(starts));
                let longer = followed(&words);
                for probe in 0..=255 {
                    let scan = list.iter().rev().find(|item| item.0 <= probe).unwrap().1;
                    for words in [&words, &longer] {
                        assert_eq!(find_node(Scalar, words, (0, starts), probe), scan);
                    }
                }
            }
        }
    }
}
