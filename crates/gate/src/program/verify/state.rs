//! The abstract state before one instruction: registers, stack, and the packet's checked bytes.
//!
//! ```text
//!   register   uninitialized | number within bounds | pointer into a region
//!   stack      64 slots of 8 bytes: which bytes were written, or the register that was stored
//!   packet     per pointer: bytes from its base on that a comparison with the end has proved
//! ```
//!
//! Numbers and packet pointers carry an `id`. Equal ids are the same number, or the same base
//! within the packet, so that a comparison of one narrows all of them.
//!
//! One state *covers* another if every concrete machine state of the second is also one of the
//! first. Code that is safe from the first state on is then safe from the second.

use super::scalar::Scalar;
use crate::program::insn::FRAME;
use crate::program::memory::STACK;

const SLOTS: usize = STACK / 8;

/// The memory region that a pointer points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// The program's argument.
    Context,
    /// The stack; offsets count from its end, where the frame pointer points.
    Stack,
    /// The flow's cookie.
    Cookie,
    /// The description of the packet.
    Packet,
    /// The packet's bytes; offsets count from the base with the pointer's id.
    Bytes,
    /// The end of the packet's bytes.
    End,
    /// The clock's rates.
    Clock,
    /// The file's constants.
    Rodata,
}

impl Region {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Context => "the context",
            Self::Stack => "the stack",
            Self::Cookie => "the cookie",
            Self::Packet => "the packet's description",
            Self::Bytes => "the packet",
            Self::End => "the packet's end",
            Self::Clock => "the clock's rates",
            Self::Rodata => "the constants",
        }
    }
}

/// A pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) region: Region,
    /// The offset's bounds; equal for [`Region::Bytes`].
    pub(super) low: i64,
    pub(super) high: i64,
    /// The base, for [`Region::Bytes`].
    pub(super) id: u32,
    /// The bytes from the base on that a comparison has proved to exist, for [`Region::Bytes`].
    pub(super) proven: i64,
    /// The greatest distance of the base from the first byte, for [`Region::Bytes`].
    pub(super) max_base: u64,
}

impl Pointer {
    pub(super) fn to(region: Region) -> Self {
        Self { region, low: 0, high: 0, id: 0, proven: 0, max_base: 0 }
    }

    fn covers(&self, other: &Self, ids: &mut Ids) -> bool {
        let bytes = self.region == Region::Bytes;
        self.region == other.region
            && self.low <= other.low
            && other.high <= self.high
            && (!bytes
                || self.low == other.low
                    && self.proven <= other.proven
                    && other.max_base <= self.max_base
                    && ids.map(self.id, other.id))
    }
}

/// The content of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reg {
    /// Uninitialized: must not be read.
    Nothing,
    /// A number; an id other than 0 is shared by copies of the same number.
    Number(Scalar, u32),
    /// A pointer.
    Pointer(Pointer),
}

impl Reg {
    pub(super) fn number(scalar: Scalar) -> Self {
        Self::Number(scalar, 0)
    }

    fn covers(&self, other: &Self, ids: &mut Ids) -> bool {
        match (self, other) {
            (Self::Nothing, _) => true,
            (Self::Number(a, id), Self::Number(b, other)) => {
                a.contains(b) && (*id == 0 || *other != 0 && ids.map(*id, *other))
            }
            (Self::Pointer(a), Self::Pointer(b)) => a.covers(b, ids),
            _ => false,
        }
    }
}

/// Eight bytes of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// A mask of the bytes that hold numbers; the others are uninitialized.
    Bytes(u8),
    /// A stored register.
    Reg(Reg),
}

impl Slot {
    /// Returns the mask of the bytes that hold numbers.
    pub(super) fn numbers(&self) -> u8 {
        match self {
            Self::Bytes(mask) => *mask,
            Self::Reg(Reg::Number(..)) => 0xff,
            Self::Reg(_) => 0,
        }
    }

    fn covers(&self, other: &Self, ids: &mut Ids) -> bool {
        match (self, other) {
            (Self::Bytes(0), _) => true,
            (Self::Bytes(mask), other) => mask & !other.numbers() == 0,
            (Self::Reg(a), Self::Reg(b)) => a.covers(b, ids),
            (Self::Reg(_), Self::Bytes(_)) => false,
        }
    }
}

/// The correspondence between the ids of two states.
#[derive(Default)]
struct Ids(Vec<(u32, u32)>);

impl Ids {
    fn map(&mut self, id: u32, other: u32) -> bool {
        // These two ids are fixed: loads from the packet's description return them.
        if id <= TRANSPORT {
            return id == other;
        }
        match self.0.iter().find(|(from, _)| *from == id) {
            Some(&(_, to)) => to == other,
            None => {
                self.0.push((id, other));
                true
            }
        }
    }
}

/// The abstract state before one instruction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    pub(super) regs: [Reg; 11],
    pub(super) stack: [Slot; SLOTS],
    /// The next id.
    next: u32,
}

/// The base of pointers to the packet's first byte.
pub(super) const NETWORK: u32 = 1;
/// The base of pointers to its transport header.
pub(super) const TRANSPORT: u32 = 2;

impl State {
    /// Returns the state at the program's beginning.
    pub(super) fn new() -> Self {
        let mut regs = [Reg::Nothing; 11];
        regs[1] = Reg::Pointer(Pointer::to(Region::Context));
        regs[usize::from(FRAME)] = Reg::Pointer(Pointer::to(Region::Stack));
        Self { regs, stack: [Slot::Bytes(0); SLOTS], next: TRANSPORT + 1 }
    }

    /// Returns a new id.
    pub(super) fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn registers(&mut self) -> impl Iterator<Item = &mut Reg> {
        let spilled = self.stack.iter_mut().filter_map(|slot| match slot {
            Slot::Reg(reg) => Some(reg),
            Slot::Bytes(_) => None,
        });
        self.regs.iter_mut().chain(spilled)
    }

    /// Narrows all copies of the number with this id.
    pub(super) fn narrow(&mut self, id: u32, known: Scalar) {
        if id == 0 {
            return;
        }
        for reg in self.registers() {
            if let Reg::Number(scalar, of) = reg
                && *of == id
            {
                *scalar = known;
            }
        }
    }

    /// Records that `bytes` from the base with this id on are within the packet.
    pub(super) fn record_proven(&mut self, id: u32, bytes: i64) {
        for reg in self.registers() {
            if let Reg::Pointer(pointer) = reg
                && pointer.region == Region::Bytes
                && pointer.id == id
            {
                pointer.proven = pointer.proven.max(bytes);
            }
        }
    }

    /// Clears registers that are not `live`, and ids that only one number has.
    pub(super) fn normalize(&mut self, live: u16) {
        for (number, reg) in self.regs.iter_mut().enumerate() {
            if live >> number & 1 == 0 && number != usize::from(FRAME) {
                *reg = Reg::Nothing;
            }
        }
        let mut ids: Vec<u32> = Vec::new();
        self.registers().for_each(|reg| {
            if let Reg::Number(_, id) = reg {
                ids.push(*id);
            }
        });
        self.registers().for_each(|reg| {
            if let Reg::Number(_, id) = reg
                && *id != 0
                && ids.iter().filter(|other| *other == id).count() == 1
            {
                *id = 0;
            }
        });
    }

    /// Returns whether this state covers `other`.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let mut ids = Ids::default();
        self.regs.iter().zip(&other.regs).all(|(a, b)| a.covers(b, &mut ids))
            && self.stack.iter().zip(&other.stack).all(|(a, b)| a.covers(b, &mut ids))
    }
}
