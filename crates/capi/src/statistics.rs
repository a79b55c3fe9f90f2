//! Statistics of a table (thesis section 5.3): coverage, the arrays of the engine, loads of lookups.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use fib::LoadCounts;
use fib::engine::ChunkCounts;

use crate::argument::required;
use crate::prefix::is_v6;
use crate::status::{Status, guard};
use crate::table::{Side, Table};

/// The counts of lookups by their loads.
pub const FP_LOADS: usize = 32;
/// The most arrays of an engine.
pub const FP_PARTS: usize = 8;

/// An array that lookups read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The name in the engine's paper, such as "direct" or "ranges"; "" if there is no further one.
    pub name: [c_char; 32],
    /// The number of items.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// Statistics of the committed table of one family.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    /// The number of routes, with those that are not yet committed.
    pub routes: usize,
    /// The share of the addresses that a route holds, 0 to 1.
    pub coverage: f64,
    /// The number of commits that gave readers another table.
    pub commits: u64,
    /// The bytes that lookups may read.
    pub bytes: usize,
    /// The engine's name.
    pub engine: [c_char; 32],
    /// The arrays that lookups read.
    pub parts: [Part; FP_PARTS],
    /// The routes whose first address is found by so many loads from memory. The last count has those with
    /// more, too.
    pub loads: [usize; FP_LOADS],
}

/// The chunks of a DXR table ("D16R", "D12X8R/64": of the upper halves), before and after equal ones are
/// stored once. All is 0 with another engine.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Chunks {
    /// The share of the address space that needs no chunk, 0 to 1.
    pub direct_coverage: f64,
    /// The number of chunks.
    pub chunks: usize,
    /// The ranges of them all.
    pub ranges: usize,
    /// The number of different chunks, which are stored.
    pub stored_chunks: usize,
    /// The ranges of the different chunks.
    pub stored_ranges: usize,
    /// The ranges of the longest chunk.
    pub longest: usize,
}

/// Computes the statistics of a family (AF_INET, AF_INET6). O(routes).
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_statistics(
    table: Option<&Table>,
    family: c_int,
    statistics: Option<&mut MaybeUninit<Statistics>>,
) -> Status {
    guard(|| {
        let (table, place) = (required(table, "table")?, required(statistics, "statistics")?);
        let is_v6 = is_v6(family)?;
        place.write(if is_v6 { of::<u128>(table) } else { of::<u32>(table) });
        Ok(Status::Ok)
    })
}

fn of<A: Side>(table: &Table) -> Statistics {
    let updater = A::of(table);
    let (rib, fib) = (updater.rib(), updater.fib());
    let (mut coverage, mut outer) = (0.0, None);
    for (prefix, _) in rib {
        if !outer.is_some_and(|outer: fib::Prefix<A>| outer.covers(prefix)) {
            outer = Some(prefix);
            coverage += 0.5_f64.powi(prefix.len() as i32);
        }
    }
    let mut loads = [0; FP_LOADS];
    for (count, routes) in LoadCounts::of_routes(fib, rib).iter() {
        loads[count.min(FP_LOADS - 1)] += routes as usize;
    }
    let mut parts = [Part { name: [0; 32], items: 0, bytes: 0 }; FP_PARTS];
    for (place, part) in parts.iter_mut().zip(fib.parts()) {
        *place = Part { name: text(part.name), items: part.items, bytes: part.bytes };
    }
    Statistics {
        routes: rib.len(),
        coverage,
        commits: updater.generation(),
        bytes: fib.footprint(),
        engine: text(&fib.name()),
        parts,
        loads,
    }
}

/// Counts the chunks of the committed table of a family (AF_INET, AF_INET6). O(2^K).
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_chunks(
    table: Option<&Table>,
    family: c_int,
    chunks: Option<&mut MaybeUninit<Chunks>>,
) -> Status {
    guard(|| {
        let (table, place) = (required(table, "table")?, required(chunks, "chunks")?);
        let counts = if is_v6(family)? {
            <u128 as Side>::of(table).fib().engine().chunks()
        } else {
            <u32 as Side>::of(table).fib().engine().chunks()
        };
        place.write(counts.as_ref().map(of_chunks).unwrap_or_default());
        Ok(Status::Ok)
    })
}

fn of_chunks(counts: &fib::engine::Chunks) -> Chunks {
    let ChunkCounts { chunks, ranges, stored_chunks, stored_ranges } = counts.total();
    let (direct_coverage, longest) = (counts.direct_coverage(), counts.longest);
    Chunks { direct_coverage, chunks, ranges, stored_chunks, stored_ranges, longest }
}

/// Returns the first bytes of a text with a zero at its end.
fn text(from: &str) -> [c_char; 32] {
    let mut text = [0; 32];
    for (place, &byte) in text[..31].iter_mut().zip(from.as_bytes()) {
        *place = byte as c_char;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut() {
        let long = text(&"x".repeat(40));
        assert_eq!((long[30], long[31]), (b'x' as c_char, 0));
    }
}
