//! The filter: finds the source of a frame, the lists that contain it, and the first one's action.
//!
//! ```text
//!  frame ─ up to two VLAN tags ─┬─ IPv4 ─► lookup ─┬─► lists ─► lowest bit ─► action, counted for the list
//!                               ├─ IPv6 ─► lookup ─┘     └─ none ─► passed, counted as not listed
//!                               └─ others, and headers that are not whole ─► passed, counted as others
//!
//!  with lists for some destinations: lists of the source ─► any? ─► lookup of the destination ─► those for it
//! ```
//!
//! It is a program of its own, or the first part of a steering program ([`IngressFilter`]).
//! ARP and other protocols always pass. Counters are an array for each CPU; their sum is the number of
//! frames that the filter has seen.
//!
//! Registers: r9 is the context, r6 the frame's first byte (later 14 bytes before its payload), r7 its end, then
//! its length; r8 is the counter's index.

use std::io;
use std::sync::Arc;

use port::af_xdp::bpf::asm::Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
use port::af_xdp::bpf::asm::{Action, Assembler, Cond, Label, Op, Size, context};
use port::af_xdp::bpf::{Kind, Map, Program};
use port::af_xdp::steer::{FILTER_LOOKUPS, FilterExits, IngressFilter};

use super::count::{Count, ENTRY, KEY, MAPPED, SOURCE, append_count, read_count};
use super::tables::ListTables;
use super::watch::Watches;
use super::{ListAction, MAX_LISTS};
use crate::{ProgramError, TableArrays, lookup};

/// The entries of the counters: a list each, then these.
const NOT_LISTED: usize = MAX_LISTS;
const OTHERS: usize = MAX_LISTS + 1;
const ENTRIES: usize = MAX_LISTS + 2;

/// The lists of the source, on the stack.
const LISTS: i16 = -32;

/// Offsets from 14 bytes before the payload on.
const TYPE: i16 = 12;
const V4_SOURCE: i16 = 14 + 12;
const V4_DESTINATION: i16 = 14 + 16;
const V4_END: i32 = 14 + 20;
const V6_SOURCE: i16 = 14 + 8;
const V6_DESTINATION: i16 = 14 + 24;
const V6_END: i32 = 14 + 40;

/// The packets that the program has seen, each in one count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those of each list, in the order of priority.
    pub lists: Vec<Count>,
    /// Those of IP whose source is in no list.
    pub not_listed: Count,
    /// Those of other protocols, and with headers that are not whole.
    pub others: Count,
}

/// The maps of the filter, which stay when it gets other tables.
#[derive(Debug)]
pub(super) struct FilterMaps {
    /// The action of each list, a byte each.
    actions: Map,
    counts: Map,
    lists: usize,
    pub(super) watches: Watches,
}

impl FilterMaps {
    /// Creates the maps for lists with these actions.
    pub(super) fn new(actions: &[ListAction]) -> io::Result<Self> {
        let map = Map::array(Kind::Array, "actions", ENTRIES, 1)?;
        // Sources in no list pass.
        let mut values = [Action::Pass as i32 as u8; ENTRIES];
        for (value, action) in values.iter_mut().zip(actions) {
            *value = match action {
                ListAction::Pass => Action::Pass as i32 as u8,
                ListAction::Drop => Action::Drop as i32 as u8,
            };
        }
        map.set(0, &values)?;
        let counts = Map::array(Kind::PercpuArray, "counts", ENTRY, ENTRIES as u32)?;
        Ok(Self { actions: map, counts, lists: actions.len(), watches: Watches::new()? })
    }

    /// Returns the number of lists.
    pub(super) fn lists(&self) -> usize {
        self.lists
    }

    /// Reads the counters.
    pub(super) fn counts(&self) -> io::Result<Counts> {
        let entry = |index| read_count(&self.counts, index);
        Ok(Counts {
            lists: (0..self.lists).map(entry).collect::<io::Result<_>>()?,
            not_listed: entry(NOT_LISTED)?,
            others: entry(OTHERS)?,
        })
    }

    /// Appends the count of entry r8, and the end with its action.
    fn append_end<'m>(&'m self, asm: &mut Assembler<'m>, exits: FilterExits) {
        let leave = asm.label();
        asm.load(Size::Word, R2, R9, context::DATA)
            .op(Op::Sub, R7, R2)
            .store(Size::Word, R10, KEY, R8)
            .map_lookup(&self.counts, KEY)
            .jump_if(Cond::Eq, R0, 0, leave);
        append_count(asm);
        self.watches.append(asm, leave, NOT_LISTED as i32);
        asm.bind(leave)
            // The verifier forgets the limit of r8 on the way here.
            .op(Op::And, R8, ENTRIES as i32 - 1)
            .load_map_value(R1, &self.actions, 0)
            .add(R1, R8)
            .load(Size::Byte, R0, R1, 0)
            .jump_if(Cond::Eq, R0, Action::Drop as i32, exits.drop)
            .jump(exits.rest);
    }
}

/// The tables of a filter: of lists by source, or by destination.
#[derive(Clone, Debug)]
pub(super) struct FilterTables {
    v4: Arc<TableArrays<u32>>,
    v6: Arc<TableArrays<u128>>,
}

impl FilterTables {
    pub(super) fn new(tables: &ListTables) -> Self {
        let (v4, v6) = tables.arrays();
        Self { v4: Arc::clone(v4), v6: Arc::clone(v6) }
    }

    /// Returns whether these are the present arrays of `tables`.
    pub(super) fn are_of(&self, tables: &ListTables) -> bool {
        let (v4, v6) = tables.arrays();
        Arc::ptr_eq(v4, &self.v4) && Arc::ptr_eq(v6, &self.v6)
    }
}

/// The filter with the present tables.
#[derive(Debug)]
pub struct Filter {
    pub(super) maps: Arc<FilterMaps>,
    pub(super) sources: FilterTables,
    /// The lists by destination, and those that are for all destinations.
    pub(super) destinations: Option<(FilterTables, u32)>,
}

impl Filter {
    /// Loads the filter as a program of its own.
    ///
    /// # Errors
    ///
    /// [`ProgramError`].
    pub(super) fn load(&self) -> Result<Program, ProgramError> {
        let mut asm = Assembler::new();
        let [entry, drop, rest] = std::array::from_fn(|_| asm.label());
        let lookups = std::array::from_fn(|_| asm.label());
        asm.mov(R9, R1).jump(entry).bind(drop).leave(Action::Drop).bind(rest).leave(Action::Pass);
        self.append(&mut asm, entry, FilterExits { drop, rest }, lookups);
        self.append_lookups(&mut asm, lookups);
        let code = asm.finish()?;
        // Before Linux 5.18 there are no frames of several buffers.
        Ok(Program::load_multi_buffer("block", &code).or_else(|_| Program::load("block", &code))?)
    }
}

impl IngressFilter for Filter {
    fn append<'m>(
        &'m self,
        asm: &mut Assembler<'m>,
        entry: Label,
        exits: FilterExits,
        [lookup4, lookup6, destination4, destination6]: [Label; FILTER_LOOKUPS],
    ) {
        let [ipv4, ipv6, others, found, count, not_listed] = std::array::from_fn(|_| asm.label());
        let [upper, lower] = SOURCE;
        asm.bind(entry).load(Size::Word, R6, R9, context::DATA).load(
            Size::Word,
            R7,
            R9,
            context::DATA_END,
        );
        append_types(asm, [ipv4, ipv6], others);
        append_bound(asm, ipv4, V4_END, others);
        asm.load(Size::Word, R1, R6, V4_SOURCE)
            .big_endian(R1, 32)
            .load_u64(R2, MAPPED)
            .op(Op::Or, R2, R1)
            .store(Size::Double, R10, lower, R2)
            .mov(R2, 0)
            .store(Size::Double, R10, upper, R2)
            .call_code(lookup4);
        if self.destinations.is_some() {
            asm.jump_if(Cond::Eq, R0, 0, not_listed)
                .store(Size::Double, R10, LISTS, R0)
                .load(Size::Word, R1, R6, V4_DESTINATION)
                .big_endian(R1, 32)
                .call_code(destination4);
        }
        asm.jump(found);
        append_bound(asm, ipv6, V6_END, others);
        asm.load(Size::Double, R1, R6, V6_SOURCE)
            .big_endian(R1, 64)
            .store(Size::Double, R10, upper, R1)
            .load(Size::Double, R2, R6, V6_SOURCE + 8)
            .big_endian(R2, 64)
            .store(Size::Double, R10, lower, R2)
            .call_code(lookup6);
        if self.destinations.is_some() {
            asm.jump_if(Cond::Eq, R0, 0, not_listed)
                .store(Size::Double, R10, LISTS, R0)
                .load(Size::Double, R1, R6, V6_DESTINATION)
                .big_endian(R1, 64)
                .load(Size::Double, R2, R6, V6_DESTINATION + 8)
                .big_endian(R2, 64)
                .call_code(destination6);
        }
        asm.bind(found);
        if let Some((_, everywhere)) = self.destinations {
            asm.op32(Op::Or, R0, everywhere as i32).load(Size::Double, R1, R10, LISTS).op(
                Op::And,
                R0,
                R1,
            );
        }
        asm.bind(not_listed).mov(R8, NOT_LISTED as i32).jump_if(Cond::Eq, R0, 0, count);
        append_first(asm);
        asm.jump(count).bind(others).mov(R8, OTHERS as i32).bind(count);
        self.maps.append_end(asm, exits);
    }

    fn append_lookups<'m>(
        &'m self,
        asm: &mut Assembler<'m>,
        [lookup4, lookup6, destination4, destination6]: [Label; FILTER_LOOKUPS],
    ) {
        lookup::append(asm, lookup4, &self.sources.v4);
        lookup::append(asm, lookup6, &self.sources.v6);
        if let Some((tables, _)) = &self.destinations {
            lookup::append(asm, destination4, &tables.v4);
            lookup::append(asm, destination6, &tables.v6);
        }
    }
}

const _: () = assert!(ENTRIES == 32, "an index is five bits");

/// Appends the walk over up to two VLAN tags, to the code of the payload's type.
fn append_types(asm: &mut Assembler<'_>, [ipv4, ipv6]: [Label; 2], others: Label) {
    let half = |bytes| i32::from(u16::from_ne_bytes(bytes));
    for tags in 0..3 {
        asm.mov(R2, R6)
            .add(R2, 14)
            .jump_if(Cond::Gt, R2, R7, others)
            .load(Size::Half, R3, R6, TYPE)
            .jump_if(Cond::Eq, R3, half([0x08, 0x00]), ipv4)
            .jump_if(Cond::Eq, R3, half([0x86, 0xdd]), ipv6);
        if tags < 2 {
            let tagged = asm.label();
            asm.jump_if(Cond::Eq, R3, half([0x81, 0x00]), tagged)
                .jump_if(Cond::Ne, R3, half([0x88, 0xa8]), others)
                .bind(tagged)
                .add(R6, 4);
        }
    }
    asm.jump(others);
}

/// Binds `label` and appends the check that the header's `end` is within the frame.
fn append_bound(asm: &mut Assembler<'_>, label: Label, end: i32, others: Label) {
    asm.bind(label).mov(R2, R6).add(R2, end).jump_if(Cond::Gt, R2, R7, others);
}

/// Appends the search for the lowest bit of r0, which is not 0: r8 becomes its number.
fn append_first(asm: &mut Assembler<'_>) {
    asm.mov(R1, R0).neg(R1).op(Op::And, R0, R1).mov(R8, 0);
    for step in [16, 8, 4, 2, 1] {
        let below = asm.label();
        asm.mov(R1, R0)
            .op(Op::Rsh, R1, step)
            .jump_if(Cond::Eq, R1, 0, below)
            .mov(R0, R1)
            .add(R8, step)
            .bind(below);
    }
}
