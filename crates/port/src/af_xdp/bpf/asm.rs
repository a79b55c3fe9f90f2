//! The assembler: typed eBPF instructions with labels.
//!
//! An instruction is eight bytes (RFC 9669, section 3):
//!
//! ```text
//!  0        1            2        4              8
//!  ┌────────┬─────┬──────┬────────┬──────────────┐
//!  │ opcode │ src │ dst  │ offset │  immediate   │   src is the high nibble on a
//!  └────────┴─────┴──────┴────────┴──────────────┘   little-endian machine
//!
//!  opcode of arithmetic and jumps          opcode of loads and stores
//!  ┌────────────┬───┬───────┐              ┌────────┬──────┬───────┐
//!  │ operation4 │ s │ class3│              │ mode 3 │ size2│ class3│
//!  └────────────┴───┴───────┘              └────────┴──────┴───────┘
//!    s = 1: the second operand is a register, else the immediate
//! ```
//!
//! Registers: r0 has results, r1 to r5 arguments (overwritten by a call), r6 to r9 are preserved
//! across calls, r10 is the read-only frame pointer (with 512 bytes below it). A jump's offset
//! counts instructions from the one after it and is 16 bits wide; a 64-bit immediate takes two
//! slots.
//!
//! Code may call other code of the same program ([`Assembler::call_code`]): a subroutine has its own
//! stack of at most 512 bytes less those of its callers, takes up to five arguments and returns r0.
//!
//! Only the features that XDP programs of this project use are supported: no BTF, and no atomics
//! other than addition. The verifier checks whether a program is safe;
//! this file only ensures that the code is well formed: labels are bound, jumps are in range, map
//! descriptors stay open until the program is loaded (the lifetime `'m`).

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};

use super::Map;

/// A register.
#[expect(missing_docs, reason = "a register is only a number")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// The second operand of arithmetic and jumps, or the value of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A register.
    Reg(Reg),
    /// A constant, sign-extended in 64-bit operations.
    Imm(i32),
}

impl From<Reg> for Source {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Source {
    fn from(imm: i32) -> Self {
        Self::Imm(imm)
    }
}

/// The width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    /// Four bytes.
    Word = 0x00,
    /// Two bytes.
    Half = 0x08,
    /// One byte.
    Byte = 0x10,
    /// Eight bytes.
    Double = 0x18,
}

/// Returns two bytes of a packet as a load of [`Size::Half`] does.
pub(in crate::af_xdp) fn half(bytes: [u8; 2]) -> i32 {
    i32::from(u16::from_ne_bytes(bytes))
}

/// Returns four bytes of a packet as a load of [`Size::Word`] does.
pub(in crate::af_xdp) fn word(bytes: [u8; 4]) -> i32 {
    i32::from_ne_bytes(bytes)
}

/// An arithmetic operation: `dst = dst op src`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Adds.
    Add = 0x00,
    /// Subtracts.
    Sub = 0x10,
    /// Multiplies.
    Mul = 0x20,
    /// Divides, unsigned; by zero gives zero.
    Div = 0x30,
    /// Ors.
    Or = 0x40,
    /// Ands.
    And = 0x50,
    /// Shifts left.
    Lsh = 0x60,
    /// Shifts right, filling with zeros.
    Rsh = 0x70,
    /// Takes the remainder, unsigned; by zero leaves `dst`.
    Mod = 0x90,
    /// Exclusive-ors.
    Xor = 0xa0,
    /// Moves.
    Mov = 0xb0,
    /// Shifts right, filling with the sign.
    Arsh = 0xc0,
}

/// A condition of a jump: taken when `dst cond src`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cond {
    /// Equal.
    Eq = 0x10,
    /// Greater, unsigned.
    Gt = 0x20,
    /// Greater or equal, unsigned.
    Ge = 0x30,
    /// Any bit in common.
    Set = 0x40,
    /// Not equal.
    Ne = 0x50,
    /// Greater, signed.
    Sgt = 0x60,
    /// Greater or equal, signed.
    Sge = 0x70,
    /// Less, unsigned.
    Lt = 0xa0,
    /// Less or equal, unsigned.
    Le = 0xb0,
    /// Less, signed.
    Slt = 0xc0,
    /// Less or equal, signed.
    Sle = 0xd0,
}

/// A function of the kernel that a program may call (`linux/bpf.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Helper {
    /// `r0 = value of map r1 at key *r2`, or null.
    MapLookup = 1,
    /// `map r1 [*r2] = *r3`, flags r4.
    MapUpdate = 2,
    /// Removes key `*r2` from map r1.
    MapDelete = 3,
    /// Nanoseconds since the machine started.
    KtimeNs = 5,
    /// A pseudo-random 32-bit number.
    RandomU32 = 7,
    /// The number of the CPU this runs on.
    Cpu = 8,
    /// Sends the frame out of interface r1 (flags r2).
    Redirect = 23,
    /// Differences two buffers in the Internet checksum.
    ChecksumDiff = 28,
    /// Moves the start of the frame by r2 bytes.
    AdjustHead = 44,
    /// Sends the frame to entry r2 of map r1; returns r3 if there is none.
    RedirectMap = 51,
    /// Moves the end of the frame by r2 bytes.
    AdjustTail = 65,
    /// Looks up the kernel's routing table.
    FibLookup = 69,
    /// Reads r2 bytes of the kernel's memory at r3 to `*r1`, or zeros if there are none (`CAP_PERFMON`).
    ProbeReadKernel = 113,
    /// Reserves a record of the constant number r2 of bytes in ring buffer r1 (flags r3), or returns null (Linux 5.8).
    RingbufReserve = 131,
    /// Submits the reserved record r1 (flags r2).
    RingbufSubmit = 132,
    /// Gives the reserved record r1 back (flags r2).
    RingbufDiscard = 133,
    /// Nanoseconds since the machine started, as of the last tick (Linux 5.11).
    KtimeCoarseNs = 160,
    /// The length of the frame of context r1, with all its buffers (Linux 5.18).
    XdpGetBuffLen = 188,
    /// Copies r4 bytes from byte r2 of the frame of context r1, in any of its buffers, to `*r3` (Linux 5.18).
    XdpLoadBytes = 189,
}

/// The return value of an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Action {
    /// Drops the frame and reports an error to the tracepoint.
    Aborted = 0,
    /// Drops the frame.
    Drop = 1,
    /// Leaves the frame to the host's own stack.
    Pass = 2,
    /// Sends the frame back out of the interface it came from.
    Tx = 3,
    /// Sends the frame to the target of the redirect helper.
    Redirect = 4,
}

/// The offsets of the fields of an XDP program's argument (`struct xdp_md`).
pub mod context {
    /// The address of the first byte of the frame.
    pub const DATA: i16 = 0;
    /// The address after the last byte of the frame.
    pub const DATA_END: i16 = 4;
    /// The address of the metadata before the frame.
    pub const DATA_META: i16 = 8;
    /// The index of the receiving interface.
    pub const INGRESS_IFINDEX: i16 = 12;
    /// The receive queue.
    pub const RX_QUEUE_INDEX: i16 = 16;
}

// Instruction classes, section 3.2 of the RFC.
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
/// The second operand is a register.
const X: u8 = 0x08;
/// Modes of loads and stores: plain memory, atomic.
const MEM: u8 = 0x60;
const ATOMIC: u8 = 0xc0;
/// Source nibble of a wide load: a map, or an address within its value.
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
/// Source nibble of a call to code of the same program.
const PSEUDO_CALL: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    code: u8,
    dst: u8,
    src: u8,
    off: i16,
    imm: i32,
}

impl Slot {
    fn bytes(self) -> [u8; 8] {
        let nibbles = if cfg!(target_endian = "little") {
            self.src << 4 | self.dst
        } else {
            self.dst << 4 | self.src
        };
        let [o0, o1] = self.off.to_ne_bytes();
        let [i0, i1, i2, i3] = self.imm.to_ne_bytes();
        [self.code, nibbles, o0, o1, i0, i1, i2, i3]
    }
}

/// A position in the code, the target of jumps before or after it is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Code under construction. Each method appends one instruction, except [`Self::map_lookup`].
///
/// # Examples
///
/// A program that drops runts and passes the rest:
///
/// ```
/// use fingerpost_port::af_xdp::bpf::asm::*;
/// use Reg::*;
/// let mut asm = Assembler::new();
/// let runt = asm.label();
/// asm.load(Size::Word, R2, R1, context::DATA)
///     .load(Size::Word, R3, R1, context::DATA_END)
///     .add(R2, 14)
///     .jump_if(Cond::Gt, R2, R3, runt)
///     .leave(Action::Pass)
///     .bind(runt)
///     .leave(Action::Drop);
/// assert_eq!(asm.finish().unwrap().len(), 8);
/// ```
#[derive(Debug, Default)]
pub struct Assembler<'m> {
    slots: Vec<Slot>,
    /// The position of each label, once bound.
    labels: Vec<Option<usize>>,
    /// Jumps whose offset is filled in at the end: slot, label.
    jumps: Vec<(usize, Label)>,
    /// Calls whose distance is filled in at the end: slot, label.
    calls: Vec<(usize, Label)>,
    maps: PhantomData<&'m Map>,
}

impl<'m> Assembler<'m> {
    /// Starts with no code.
    pub fn new() -> Self {
        Self::default()
    }

    fn push(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) -> &mut Self {
        self.slots.push(Slot { code, dst, src, off, imm });
        self
    }

    fn push_source(&mut self, code: u8, dst: Reg, source: Source, off: i16) -> &mut Self {
        match source {
            Source::Reg(src) => self.push(code | X, dst as u8, src as u8, off, 0),
            Source::Imm(imm) => self.push(code, dst as u8, 0, off, imm),
        }
    }

    /// Creates a label; jumps may go forwards or backwards.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds `label` to the next instruction.
    pub fn bind(&mut self, label: Label) -> &mut Self {
        self.labels[label.0] = Some(self.slots.len());
        self
    }

    /// Computes `dst = dst op source` on all 64 bits.
    pub fn op(&mut self, op: Op, dst: Reg, source: impl Into<Source>) -> &mut Self {
        self.push_source(ALU64 | op as u8, dst, source.into(), 0)
    }

    /// Computes `dst = dst op source` on the low 32 bits and clears the upper.
    pub fn op32(&mut self, op: Op, dst: Reg, source: impl Into<Source>) -> &mut Self {
        self.push_source(ALU | op as u8, dst, source.into(), 0)
    }

    /// Moves 64 bits.
    pub fn mov(&mut self, dst: Reg, source: impl Into<Source>) -> &mut Self {
        self.op(Op::Mov, dst, source)
    }

    /// Adds 64 bits.
    pub fn add(&mut self, dst: Reg, source: impl Into<Source>) -> &mut Self {
        self.op(Op::Add, dst, source)
    }

    /// Negates 64 bits.
    pub fn neg(&mut self, dst: Reg) -> &mut Self {
        self.push(ALU64 | 0x80, dst as u8, 0, 0, 0)
    }

    /// Converts the low `bits` (16, 32 or 64) between host and network byte order, and clears the
    /// others.
    pub fn big_endian(&mut self, dst: Reg, bits: i32) -> &mut Self {
        self.push(ALU | 0xd0 | X, dst as u8, 0, 0, bits)
    }

    /// Loads `dst = *(base + off)` and clears the other bits.
    pub fn load(&mut self, size: Size, dst: Reg, base: Reg, off: i16) -> &mut Self {
        self.push(LDX | MEM | size as u8, dst as u8, base as u8, off, 0)
    }

    /// Stores `*(base + off) = source`.
    pub fn store(
        &mut self,
        size: Size,
        base: Reg,
        off: i16,
        source: impl Into<Source>,
    ) -> &mut Self {
        match source.into() {
            Source::Reg(src) => self.push(STX | MEM | size as u8, base as u8, src as u8, off, 0),
            Source::Imm(imm) => self.push(ST | MEM | size as u8, base as u8, 0, off, imm),
        }
    }

    /// Adds `src` to `*(base + off)` in one step; words and doubles only.
    pub fn atomic_add(&mut self, size: Size, base: Reg, off: i16, src: Reg) -> &mut Self {
        self.push(STX | ATOMIC | size as u8, base as u8, src as u8, off, Op::Add as i32)
    }

    fn wide(&mut self, dst: Reg, src: u8, low: i32, high: i32) -> &mut Self {
        self.push(LD | Size::Double as u8, dst as u8, src, 0, low).push(0, 0, 0, 0, high)
    }

    /// Loads a 64-bit constant (two slots).
    pub fn load_u64(&mut self, dst: Reg, value: u64) -> &mut Self {
        self.wide(dst, 0, value as i32, (value >> 32) as i32)
    }

    /// Loads the map itself, as the helpers expect it (two slots).
    pub fn load_map(&mut self, dst: Reg, map: &'m Map) -> &mut Self {
        self.wide(dst, PSEUDO_MAP_FD, map.as_fd().as_raw_fd(), 0)
    }

    /// Loads the address of byte `off` of a one-element array's value (two
    /// slots): no call, no key, never null.
    pub fn load_map_value(&mut self, dst: Reg, map: &'m Map, off: u32) -> &mut Self {
        self.wide(dst, PSEUDO_MAP_VALUE, map.as_fd().as_raw_fd(), off as i32)
    }

    /// Looks up the key at `key` on the stack: r0 is the address of its value, or zero; r1 to r5
    /// are overwritten (five slots).
    pub fn map_lookup(&mut self, map: &'m Map, key: i16) -> &mut Self {
        self.load_map(Reg::R1, map)
            .mov(Reg::R2, Reg::R10)
            .add(Reg::R2, i32::from(key))
            .call(Helper::MapLookup)
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.jumps.push((self.slots.len(), to));
        self.push(JMP, 0, 0, 0, 0)
    }

    /// Jumps when `dst cond source` holds for all 64 bits.
    pub fn jump_if(
        &mut self,
        cond: Cond,
        dst: Reg,
        source: impl Into<Source>,
        to: Label,
    ) -> &mut Self {
        self.jumps.push((self.slots.len(), to));
        self.push_source(JMP | cond as u8, dst, source.into(), 0)
    }

    /// Jumps when `dst cond source` holds for the low 32 bits.
    pub fn jump_if32(
        &mut self,
        cond: Cond,
        dst: Reg,
        source: impl Into<Source>,
        to: Label,
    ) -> &mut Self {
        self.jumps.push((self.slots.len(), to));
        self.push_source(JMP32 | cond as u8, dst, source.into(), 0)
    }

    /// Calls a helper with r1 to r5; its result is in r0, and r1 to r5 are overwritten.
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(JMP | 0x80, 0, 0, 0, helper as i32)
    }

    /// Calls the code at `to` with r1 to r5; its result is in r0, and r1 to r5 are overwritten. That
    /// code begins with only r1 to r5 and r10 defined, and ends with [`exit`](Self::exit); no jump
    /// leads into it or out of it.
    pub fn call_code(&mut self, to: Label) -> &mut Self {
        self.calls.push((self.slots.len(), to));
        self.push(JMP | 0x80, 0, PSEUDO_CALL, 0, 0)
    }

    /// Returns r0.
    pub fn exit(&mut self) -> &mut Self {
        self.push(JMP | 0x90, 0, 0, 0, 0)
    }

    /// Returns `action`.
    pub fn leave(&mut self, action: Action) -> &mut Self {
        self.op32(Op::Mov, Reg::R0, action as i32).exit()
    }

    /// Fills in the jumps and calls.
    ///
    /// # Errors
    ///
    /// [`BadCode`] if the label of a jump or call was never bound, or that of a jump is more than 16
    /// bits away.
    pub fn finish(mut self) -> Result<Code<'m>, BadCode> {
        let distance = |slot: usize, label: Label| {
            let to = self.labels[label.0].ok_or(BadCode::Unbound { slot })?;
            Ok(to as i64 - (slot as i64 + 1))
        };
        for &(slot, label) in &self.jumps {
            let off = distance(slot, label)?;
            self.slots[slot].off = i16::try_from(off).map_err(|_| BadCode::TooFar { slot })?;
        }
        for &(slot, label) in &self.calls {
            let off = distance(slot, label)?;
            self.slots[slot].imm = i32::try_from(off).map_err(|_| BadCode::TooFar { slot })?;
        }
        Ok(Code {
            bytes: self.slots.iter().flat_map(|slot| slot.bytes()).collect(),
            maps: PhantomData,
        })
    }
}

/// Finished code; borrows its maps, which must stay open until it is loaded (the loaded program
/// then holds them).
#[derive(Clone, Debug)]
pub struct Code<'m> {
    bytes: Vec<u8>,
    maps: PhantomData<&'m Map>,
}

impl Code<'_> {
    /// Returns the encoded instructions, eight bytes each.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Counts the slots of eight bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() / 8
    }

    /// Returns whether there is no instruction.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// An error in code before it is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCode {
    /// The jump or call in this slot goes to a label that was never bound.
    Unbound {
        /// Its slot.
        slot: usize,
    },
    /// The jump in this slot is more than 32,767 slots long.
    TooFar {
        /// The jump's slot.
        slot: usize,
    },
}

impl fmt::Display for BadCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbound { slot } => write!(f, "the jump at {slot} goes to an unbound label"),
            Self::TooFar { slot } => write!(f, "the jump at {slot} is longer than 16 bits"),
        }
    }
}

impl Error for BadCode {}

#[cfg(test)]
mod tests;
