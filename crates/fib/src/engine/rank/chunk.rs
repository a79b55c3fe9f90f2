//! The builder's side of a chunk: lays it out and reads it back.
//!
//! In both forms, a chunk consists of words of 32 bits without pointers other than leaves of four
//! bytes, so that equal chunks can be shared by content.

use alloc::vec;
use alloc::vec::Vec;

use super::entry::{Entry, MAX_HOP, WORD_BITS, Window};
use super::{Form, rank};

/// The changes of a chunk: the place where each leaf begins, and its entry. The first is at 0,
/// places ascend, and neighboring leaves differ.
pub(super) type Changes = [(u32, Entry)];

/// Lays out a chunk for `changes`: returns the width of its leaves and its window, which the entry
/// stores, and its words, padded to a multiple of 2^`grain`.
pub(super) fn lay_out<F: Form>(changes: &Changes, grain: u32) -> (u32, Window, Vec<u32>) {
    let window = Window::of(changes[1..].iter().map(|&(at, _)| at));
    let highest = changes.iter().map(|&(_, leaf)| leaf.0).max().unwrap_or(0);
    let width = match highest {
        ..0x100 => 0,
        0x100..0x1_0000 => 1,
        _ => 2,
    };
    let mut words: Vec<u32> = Vec::new();
    let bit = |at: u32| (at - window.low) >> window.shift;
    if F::WORDS {
        words.resize(window.words as usize, 0);
        for &(at, _) in &changes[1..] {
            words[(bit(at) / WORD_BITS) as usize] |= 1 << (31 - bit(at) % WORD_BITS);
        }
        let mut before = 0;
        for word in &mut words {
            let ones = word.count_ones();
            *word |= before;
            before += ones;
        }
        put(&mut words, width, changes.iter().map(|&(_, leaf)| leaf));
    } else {
        let mut leaves = vec![changes[0].1; window.bits() as usize];
        for &(at, leaf) in &changes[1..] {
            leaves[bit(at) as usize..].fill(leaf);
        }
        put(&mut words, width, leaves.into_iter());
    }
    words.resize(words.len().next_multiple_of(1 << grain), 0);
    (width, window, words)
}

/// Reads the changes of a chunk back, `words` being its own and no others.
pub(super) fn read<F: Form>(entry: Entry, words: &[u32]) -> Vec<(u32, Entry)> {
    let before = if F::WORDS { entry.word_count() as usize } else { 0 };
    let leaf = |number: u32| {
        let (within, shift, mask) = entry.leaf(number);
        Entry(words[before + within] >> shift & mask)
    };
    let mut changes = vec![(0, leaf(0))];
    if F::WORDS {
        for (i, &word) in words[..before].iter().enumerate() {
            let mut ones = word >> (32 - WORD_BITS) << (32 - WORD_BITS);
            while ones != 0 {
                let bit = ones.leading_zeros();
                ones &= !(1 << (31 - bit));
                let at = entry.address(i as u32 * WORD_BITS + bit);
                changes.push((at, leaf(changes.len() as u32)));
            }
        }
    } else {
        for bit in 1..entry.bits() {
            if leaf(bit) != changes[changes.len() - 1].1 {
                changes.push((entry.address(bit), leaf(bit)));
            }
        }
    }
    changes
}

/// Appends leaves of 2^`width` bytes each.
fn put(words: &mut Vec<u32>, width: u32, leaves: impl Iterator<Item = Entry>) {
    let each = 4 >> width;
    for (i, leaf) in leaves.enumerate() {
        if i % each == 0 {
            words.push(0);
        }
        if let Some(word) = words.last_mut() {
            *word |= leaf.0 << (i % each * (8 << width));
        }
    }
}

/// Counts the words of the chunk that `entry` leads to and whose last word of bits, if
/// the form has any, is `last`.
pub(super) fn len<F: Form>(entry: Entry, last: u32, grain: u32) -> usize {
    let (before, leaves) = if F::WORDS {
        (entry.word_count() as usize, rank(last, WORD_BITS - 1) + 1)
    } else {
        (0, entry.bits())
    };
    let bytes = (leaves as usize) << entry.width();
    (before + bytes.div_ceil(4)).next_multiple_of(1 << grain)
}

/// Returns where among a chunk's words those leaves are that are entries, if any are.
pub(super) fn entries<F: Form>(entry: Entry) -> Option<usize> {
    let before = if F::WORDS { entry.word_count() as usize } else { 0 };
    (entry.width() == 2).then_some(before)
}

/// The highest hop that a chunk can hold.
pub(super) const HOPS: u32 = MAX_HOP;
