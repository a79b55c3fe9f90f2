//! The program: finds the source of a frame, the lists that contain it, and the first one's action.
//!
//! ```text
//!  frame ─ up to two VLAN tags ─┬─ IPv4 ─► lookup ─┬─► lists ─► lowest bit ─► action, counted for the list
//!                               ├─ IPv6 ─► lookup ─┘     └─ none ─► passed, counted as not listed
//!                               └─ others, and headers that are not whole ─► passed, counted as others
//! ```
//!
//! ARP and other protocols always pass. Counters are an array for each CPU; their sum is the number of
//! frames that the program has seen.
//!
//! Registers: r9 is the context, r6 the frame's first byte (later 14 bytes before its payload), r7 its end; then
//! r8 is the counter's index.

use std::io;
use std::sync::Arc;

use port::af_xdp::bpf::asm::Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
use port::af_xdp::bpf::asm::{Action, Assembler, Cond, Label, Op, Size, context};
use port::af_xdp::bpf::{Kind, Map, Program};

use super::{ListAction, MAX_LISTS};
use crate::{ProgramError, TableArrays, lookup};

/// The entries of the counters: a list each, then these.
const NOT_LISTED: usize = MAX_LISTS;
const OTHERS: usize = MAX_LISTS + 1;
const ENTRIES: usize = MAX_LISTS + 2;

/// The bytes of an entry: packets, bytes.
const ENTRY: usize = 16;

/// The key of an entry, on the stack.
const KEY: i16 = -4;

/// Offsets from 14 bytes before the payload on.
const TYPE: i16 = 12;
const V4_SOURCE: i16 = 14 + 12;
const V4_END: i32 = 14 + 20;
const V6_SOURCE: i16 = 14 + 8;
const V6_END: i32 = 14 + 40;

/// Packets and their bytes, Ethernet headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The packets.
    pub packets: u64,
    /// Their bytes in the first buffer of a frame, which is all of it up to the size of a page.
    pub bytes: u64,
}

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

/// The tables of a program.
type Tables = (Arc<TableArrays<u32>>, Arc<TableArrays<u128>>);

/// The maps of the program, which another program with other tables uses too.
#[derive(Debug)]
pub struct Filter {
    /// The return value for each list, a byte each.
    actions: Map,
    counts: Map,
    lists: usize,
    /// The tables of the program that was loaded last.
    tables: Option<Tables>,
}

impl Filter {
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
        Ok(Self { actions: map, counts, lists: actions.len(), tables: None })
    }

    /// Returns the number of lists.
    pub(super) fn lists(&self) -> usize {
        self.lists
    }

    /// Loads the program for two tables.
    pub(super) fn load(
        &mut self,
        v4: &Arc<TableArrays<u32>>,
        v6: &Arc<TableArrays<u128>>,
    ) -> Result<Program, ProgramError> {
        let program = {
            let mut asm = Assembler::new();
            self.append(&mut asm, v4, v6);
            let code = asm.finish()?;
            // Before Linux 5.18 there are no frames of several buffers.
            Program::load_multi_buffer("block", &code).or_else(|_| Program::load("block", &code))?
        };
        self.tables = Some((Arc::clone(v4), Arc::clone(v6)));
        Ok(program)
    }

    /// Returns whether the program loaded last has these tables.
    pub(super) fn is_of(&self, v4: &Arc<TableArrays<u32>>, v6: &Arc<TableArrays<u128>>) -> bool {
        let of = |(four, six): &Tables| Arc::ptr_eq(four, v4) && Arc::ptr_eq(six, v6);
        self.tables.as_ref().is_some_and(of)
    }

    /// Reads the counters.
    pub(super) fn counts(&self) -> io::Result<Counts> {
        let entry = |index: usize| {
            let values = self.counts.percpu(index as u32)?;
            Ok(values.iter().fold(Count::default(), |sum, value| Count {
                packets: sum.packets.wrapping_add(number(&value[..8])),
                bytes: sum.bytes.wrapping_add(number(&value[8..])),
            }))
        };
        Ok(Counts {
            lists: (0..self.lists).map(entry).collect::<io::Result<_>>()?,
            not_listed: entry(NOT_LISTED)?,
            others: entry(OTHERS)?,
        })
    }

    fn append<'m>(
        &'m self,
        asm: &mut Assembler<'m>,
        v4: &'m TableArrays<u32>,
        v6: &'m TableArrays<u128>,
    ) {
        let [ipv4, ipv6, others, found, count] = std::array::from_fn(|_| asm.label());
        let [lookup4, lookup6] = std::array::from_fn(|_| asm.label());
        asm.mov(R9, R1).load(Size::Word, R6, R9, context::DATA).load(
            Size::Word,
            R7,
            R9,
            context::DATA_END,
        );
        append_types(asm, [ipv4, ipv6], others);
        append_bound(asm, ipv4, V4_END, others);
        asm.load(Size::Word, R1, R6, V4_SOURCE).big_endian(R1, 32).call_code(lookup4).jump(found);
        append_bound(asm, ipv6, V6_END, others);
        asm.load(Size::Double, R1, R6, V6_SOURCE)
            .big_endian(R1, 64)
            .load(Size::Double, R2, R6, V6_SOURCE + 8)
            .big_endian(R2, 64)
            .call_code(lookup6)
            .bind(found)
            .mov(R8, NOT_LISTED as i32)
            .jump_if(Cond::Eq, R0, 0, count);
        append_first(asm);
        asm.jump(count).bind(others).mov(R8, OTHERS as i32).bind(count);
        self.append_end(asm);
        lookup::append(asm, lookup4, v4);
        lookup::append(asm, lookup6, v6);
    }

    /// Appends the count of entry r8, and the end with its action.
    fn append_end<'m>(&'m self, asm: &mut Assembler<'m>) {
        let leave = asm.label();
        asm.store(Size::Word, R10, KEY, R8)
            .map_lookup(&self.counts, KEY)
            .jump_if(Cond::Eq, R0, 0, leave)
            // No other packet of this CPU comes between: additions need not be atomic.
            .load(Size::Double, R1, R0, 0)
            .add(R1, 1)
            .store(Size::Double, R0, 0, R1)
            .load(Size::Word, R2, R9, context::DATA)
            .op(Op::Sub, R7, R2)
            .load(Size::Double, R1, R0, 8)
            .add(R1, R7)
            .store(Size::Double, R0, 8, R1)
            .bind(leave)
            // The verifier forgets the limit of r8 on the way here.
            .op(Op::And, R8, ENTRIES as i32 - 1)
            .load_map_value(R1, &self.actions, 0)
            .add(R1, R8)
            .load(Size::Byte, R0, R1, 0)
            .exit();
    }
}

const _: () = assert!(ENTRIES == 32, "an index is five bits");

fn number(bytes: &[u8]) -> u64 {
    <[u8; 8]>::try_from(bytes).map_or(0, u64::from_ne_bytes)
}

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
