//! The words of an entry in the arrays, and the values in them.

use alloc::vec::Vec;
use core::ops::Range;

use super::chunk::{Width, few_len, many_len, many_starts, many_values, node_len};
use super::entry::{counted, kind, kind_of, many_at, payload};
use crate::arch::search::{HALVES, byte_rank, half_rank};
use crate::engine::Step;

/// Returns the words of an entry, which lie in `words`; `slots` are those of a table.
pub(super) fn words_of(entry: u32, words: &[u32], slots: usize) -> Range<usize> {
    let place = payload(entry) as usize;
    let (at, len) = match kind_of(entry) {
        kind::FEW_BYTES => few(entry, Width::Bytes),
        kind::FEW_HALVES => few(entry, Width::Halves),
        kind::MANY_BYTES => many(entry, words, Width::Bytes),
        kind::MANY_HALVES => many(entry, words, Width::Halves),
        kind::DEEP => many(entry, words, Width::Words),
        kind::NODE => {
            let (at, starts) = counted(entry);
            (at, node_len(starts))
        }
        kind::TABLE => (place, slots),
        _ => (0, 0),
    };
    at..at + len
}

fn few(entry: u32, width: Width) -> (usize, usize) {
    let (at, starts) = counted(entry);
    (at, few_len(starts, width))
}

fn many(entry: u32, words: &[u32], width: Width) -> (usize, usize) {
    let at = many_at(entry);
    (at, many_len(words[at] as usize, width))
}

/// Returns where the entries are among the words of an entry, if it has such.
pub(super) fn entries_of(entry: u32, words: &[u32]) -> Range<usize> {
    match kind_of(entry) {
        kind::DEEP => many_values(words[0] as usize)..words.len(),
        kind::NODE => counted(entry).1.div_ceil(4)..words.len(),
        kind::TABLE => 0..words.len(),
        _ => 0..0,
    }
}

/// Lists entries that lead further, each once where it stands several times in a row.
pub(super) fn leading(entries: &[u32]) -> impl Iterator<Item = u32> {
    let repeats = |at: usize| at > 0 && entries[at - 1] == entries[at];
    let leads = move |&at: &usize| kind_of(entries[at]) != kind::HOP && !repeats(at);
    (0..entries.len()).filter(leads).map(|at| entries[at])
}

/// Appends the loads of one step, a line each.
pub(super) fn trace(
    entry: u32,
    part: &'static str,
    words: &[u32],
    probe: u32,
    steps: &mut Vec<Step>,
) {
    let mut load = |at: usize| steps.push(Step::of(part, at, words));
    let place = payload(entry) as usize;
    let value = |starts: usize, rank: usize, width: Width| match width {
        Width::Bytes => starts + rank / 4,
        Width::Halves => starts + rank / 2,
        Width::Words => starts + rank,
    };
    let width = match kind_of(entry) {
        kind::NODE => {
            let (at, starts) = counted(entry);
            load(at);
            load(at + starts.div_ceil(4) + byte_rank(&words[at..], starts, probe));
            return;
        }
        kind::TABLE => {
            load(place + probe as usize);
            return;
        }
        kind::FEW_BYTES | kind::MANY_BYTES => Width::Bytes,
        kind::FEW_HALVES | kind::MANY_HALVES => Width::Halves,
        _ => Width::Words,
    };
    if matches!(kind_of(entry), kind::FEW_BYTES | kind::FEW_HALVES) {
        let (at, starts) = counted(entry);
        load(at);
        load(value(at + starts.div_ceil(2), half_rank(&words[at..], starts, probe), width));
        return;
    }
    let place = many_at(entry);
    let starts = words[place] as usize;
    load(place);
    let all = place + many_starts(starts);
    let rank = half_rank(&words[all..], starts, probe);
    load(all + (rank / HALVES * HALVES).min(starts - 1) / 2);
    load(value(place + many_values(starts), rank, width));
}
