//! What is known at one instruction: registers, stack, and the packet's checked bytes.
//!
//! ```text
//!   register   nothing | number within bounds | pointer into a kind of memory
//!   stack      64 slots of 8 bytes: which bytes were written, or the register that was
//!   packet     per pointer: bytes from its base on that a comparison with the end has shown
//! ```
//!
//! Numbers and packet pointers carry an `id`: equal ids are the same number, or the same
//! base within the packet, so that what a comparison shows of one holds for all of them.
//!
//! One state *covers* another if whatever is true of the second is true of the first: what
//! was shown from the first on need not be shown again.

use super::scalar::Scalar;
use crate::program::insn::FRAME;

/// Bytes of the stack.
pub(in crate::program) const STACK: usize = 512;
const SLOTS: usize = STACK / 8;

/// What a pointer points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// The program's argument.
    Context,
    /// The stack; offsets are from its end, as the frame pointer is.
    Stack,
    /// The flow's cookie.
    Cookie,
    /// The description of the packet.
    Packet,
    /// The packet's bytes; offsets are from the base that the id names.
    Bytes,
    /// The end of the packet's bytes.
    End,
    /// The rates of the clock.
    Clock,
    /// The constants of the file.
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
    /// The offset's bounds; equal for [`Kind::Bytes`].
    pub(super) low: i64,
    pub(super) high: i64,
    /// Of [`Kind::Bytes`]: which base.
    pub(super) id: u32,
    /// Of [`Kind::Bytes`]: bytes from the base on that are there.
    pub(super) shown: i64,
    /// Of [`Kind::Bytes`]: how far the base can be from the first byte.
    pub(super) far: u64,
}

impl Pointer {
    pub(super) fn to(region: Region) -> Self {
        Self { region, low: 0, high: 0, id: 0, shown: 0, far: 0 }
    }

    fn covers(&self, other: &Self, ids: &mut Ids) -> bool {
        let bytes = self.region == Region::Bytes;
        self.region == other.region
            && self.low <= other.low
            && other.high <= self.high
            && (!bytes
                || self.low == other.low
                    && self.shown <= other.shown
                    && other.far <= self.far
                    && ids.map(self.id, other.id))
    }
}

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reg {
    /// Nothing that may be read.
    Nothing,
    /// A number, and which one where the id is not 0.
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
    /// Bytes of numbers, where the bit is set; the others hold nothing.
    Bytes(u8),
    /// A register as it was.
    Reg(Reg),
}

impl Slot {
    /// Which bytes are those of numbers.
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

/// Which ids of one state are which of another.
#[derive(Default)]
struct Ids(Vec<(u32, u32)>);

impl Ids {
    fn map(&mut self, id: u32, other: u32) -> bool {
        // Loads from the packet's description name these two again.
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

/// What is known at one instruction.
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
    /// As the program begins.
    pub(super) fn new() -> Self {
        let mut regs = [Reg::Nothing; 11];
        regs[1] = Reg::Pointer(Pointer::to(Region::Context));
        regs[usize::from(FRAME)] = Reg::Pointer(Pointer::to(Region::Stack));
        Self { regs, stack: [Slot::Bytes(0); SLOTS], next: TRANSPORT + 1 }
    }

    /// An id that nothing has.
    pub(super) fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Reg> {
        let spilled = self.stack.iter_mut().filter_map(|slot| match slot {
            Slot::Reg(reg) => Some(reg),
            Slot::Bytes(_) => None,
        });
        self.regs.iter_mut().chain(spilled)
    }

    /// Takes note of what is known now of a number with this id.
    pub(super) fn learn(&mut self, id: u32, known: Scalar) {
        if id == 0 {
            return;
        }
        for reg in self.all() {
            if let Reg::Number(scalar, of) = reg
                && *of == id
            {
                *scalar = known;
            }
        }
    }

    /// Takes note that `bytes` from the base with this id on are within the packet.
    pub(super) fn record_shown(&mut self, id: u32, bytes: i64) {
        for reg in self.all() {
            if let Reg::Pointer(pointer) = reg
                && pointer.region == Region::Bytes
                && pointer.id == id
            {
                pointer.shown = pointer.shown.max(bytes);
            }
        }
    }

    /// Forgets registers that are not `live`, and ids of numbers that only one place has.
    pub(super) fn normalize(&mut self, live: u16) {
        for (number, reg) in self.regs.iter_mut().enumerate() {
            if live >> number & 1 == 0 && number != usize::from(FRAME) {
                *reg = Reg::Nothing;
            }
        }
        let mut ids: Vec<u32> = Vec::new();
        self.all().for_each(|reg| {
            if let Reg::Number(_, id) = reg {
                ids.push(*id);
            }
        });
        self.all().for_each(|reg| {
            if let Reg::Number(_, id) = reg
                && *id != 0
                && ids.iter().filter(|other| *other == id).count() == 1
            {
                *id = 0;
            }
        });
    }

    /// Says whether all that is true of `other` is true of this.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let mut ids = Ids::default();
        self.regs.iter().zip(&other.regs).all(|(a, b)| a.covers(b, &mut ids))
            && self.stack.iter().zip(&other.stack).all(|(a, b)| a.covers(b, &mut ids))
    }
}
