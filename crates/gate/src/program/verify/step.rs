//! One instruction in the verifier: its preconditions, and the state after it.

use super::scalar::Scalar;
use super::state::{NETWORK, Pointer, Reg, Region, Slot, State, TRANSPORT};
use crate::program::error::VerifierError;
use crate::program::insn::{
    Helper, Insn, OF_CLOCK, OF_CONSTANT, OF_RODATA, WIDE, alu, class, jump,
};
use crate::program::memory::{RATES, STACK};
use crate::program::object::Section;

/// The greatest offset of a packet pointer from the first byte, by added variables.
const MAX_PACKET_OFFSET: u64 = 1 << 18;
/// The greatest offset of any pointer from its region's beginning, by added constants.
const MAX_OFFSET: i64 = 1 << 16;

/// The next instruction.
pub(super) enum Next {
    At(usize),
    /// Both paths: the second has its own state.
    Either(usize, usize, Box<State>),
    End,
}

/// An instruction with its context.
pub(super) struct Step<'a> {
    pub(super) section: Section,
    /// Size of the constants in bytes.
    pub(super) rodata: usize,
    pub(super) insns: &'a [Insn],
    pub(super) at: usize,
}

impl Step<'_> {
    /// Checks the instruction in this state and applies it to the state.
    pub(super) fn apply(&self, state: &mut State) -> Result<Next, VerifierError> {
        let insn = &self.insns[self.at];
        let mut next = self.at + 1;
        match insn.class() {
            class::LD => {
                state.regs[usize::from(insn.dst)] = self.wide(insn)?;
                next += 1;
            }
            class::LDX => {
                let from = pointer(state, insn.src)?;
                let value = self.load(state, &from, insn.off, insn.size())?;
                state.regs[usize::from(insn.dst)] = value;
            }
            class::ST | class::STX => {
                let value = match insn.class() {
                    class::STX => read(state, insn.src)?,
                    _ => Reg::number(Scalar::constant(i64::from(insn.imm) as u64)),
                };
                let to = pointer(state, insn.dst)?;
                self.store(state, &to, insn.off, insn.size(), value)?;
            }
            class::ALU | class::ALU64 => arithmetic(state, insn)?,
            _ => match insn.op() {
                jump::EXIT => {
                    return match read(state, 0)? {
                        Reg::Pointer(_) => Err(VerifierError::PointerLeak),
                        _ => Ok(Next::End),
                    };
                }
                jump::CALL => self.call(state, insn.imm)?,
                jump::JA => return Ok(Next::At(self.target(insn))),
                _ => return self.branch(state, insn),
            },
        }
        if next >= self.insns.len() { Err(VerifierError::FallsOff) } else { Ok(Next::At(next)) }
    }

    fn target(&self, insn: &Insn) -> usize {
        (self.at + 1).wrapping_add_signed(insn.off.into())
    }

    fn wide(&self, insn: &Insn) -> Result<Reg, VerifierError> {
        debug_assert_eq!(insn.code, WIDE);
        let upper = self.insns[self.at + 1].imm as u32;
        let value = u64::from(insn.imm as u32) | u64::from(upper) << 32;
        let (region, room) = match insn.src {
            OF_CONSTANT => return Ok(Reg::number(Scalar::constant(value))),
            OF_RODATA => (Region::Rodata, self.rodata),
            OF_CLOCK => (Region::Clock, 8 * RATES.len()),
            _ => return Err(VerifierError::Field),
        };
        if value > room as u64 {
            return Err(out_of_bounds(region, value as i64, value as i64, 0, room as i64));
        }
        let at = value as i64;
        Ok(Reg::Pointer(Pointer { low: at, high: at, ..Pointer::to(region) }))
    }

    /// Returns the size of a region in bytes.
    fn size(&self, region: Region) -> i64 {
        match region {
            Region::Context if self.section == Section::Init => 8,
            Region::Context => 20,
            Region::Cookie => 64,
            Region::Packet => 32,
            Region::Clock => 8 * RATES.len() as i64,
            Region::Rodata => self.rodata as i64,
            Region::Stack | Region::Bytes | Region::End => 0,
        }
    }

    /// Checks that an access is within its region, and returns the bounds of its offset.
    fn within(
        &self,
        pointer: &Pointer,
        off: i16,
        size: usize,
    ) -> Result<(i64, i64), VerifierError> {
        let (low, high) = (pointer.low + i64::from(off), pointer.high + i64::from(off));
        let (begin, end) = match pointer.region {
            Region::Stack => (-(STACK as i64), 0),
            Region::Bytes => (0, pointer.proven),
            region => (0, self.size(region)),
        };
        if low < begin || high + size as i64 > end {
            let room = if pointer.region == Region::Stack { STACK as i64 } else { end };
            return Err(out_of_bounds(pointer.region, low, high, size, room));
        }
        Ok((low, high))
    }

    fn load(
        &self,
        state: &State,
        from: &Pointer,
        off: i16,
        size: usize,
    ) -> Result<Reg, VerifierError> {
        let (low, high) = self.within(from, off, size)?;
        let number = Reg::number(Scalar::loaded(size));
        match from.region {
            Region::Stack => load_stack(state, low, high, size),
            Region::Packet if low < 24 => {
                // The three pointers are loaded as a whole only.
                if low != high || size != 8 || low % 8 != 0 {
                    return Err(VerifierError::PartOfPointer);
                }
                let base = |id| Pointer { id, ..Pointer::to(Region::Bytes) };
                Ok(Reg::Pointer(match low {
                    0 => base(NETWORK),
                    8 => base(TRANSPORT),
                    _ => Pointer::to(Region::End),
                }))
            }
            Region::Clock if low == high && size == 8 && low % 8 == 0 => {
                let rate = RATES.get(low as usize / 8).copied().unwrap_or_default();
                Ok(Reg::number(Scalar::constant(rate)))
            }
            // This byte is a bool: 0 or 1.
            Region::Context if low == 19 && high == 19 => Ok(Reg::number(Scalar::between(0, 1))),
            _ => Ok(number),
        }
    }

    fn store(
        &self,
        state: &mut State,
        to: &Pointer,
        off: i16,
        size: usize,
        value: Reg,
    ) -> Result<(), VerifierError> {
        if !matches!(to.region, Region::Stack | Region::Cookie) {
            return Err(VerifierError::ReadOnly(to.region.name()));
        }
        let (low, high) = self.within(to, off, size)?;
        match (to.region, value) {
            (Region::Cookie, Reg::Pointer(_)) => Err(VerifierError::PointerLeak),
            (Region::Cookie, _) => Ok(()),
            _ => store_stack(state, low, high, size, value),
        }
    }

    fn call(&self, state: &mut State, number: i32) -> Result<(), VerifierError> {
        let helper = Helper::by_number(number).ok_or(VerifierError::NoSuchFunction(number))?;
        let section = match helper {
            Helper::InitCookie => Section::Init,
            Helper::PacketCookie | Helper::Packet | Helper::Prepare => Section::Packet,
        };
        if section != self.section {
            return Err(VerifierError::NoSuchFunction(number));
        }
        match read(state, 1)? {
            Reg::Pointer(Pointer { region: Region::Context, low: 0, high: 0, .. }) => {}
            _ => return Err(VerifierError::Argument(1)),
        }
        let result = match helper {
            Helper::InitCookie | Helper::PacketCookie => Reg::Pointer(Pointer::to(Region::Cookie)),
            Helper::Packet => Reg::Pointer(Pointer::to(Region::Packet)),
            Helper::Prepare => {
                for arg in [2, 3] {
                    if !matches!(read(state, arg)?, Reg::Number(..)) {
                        return Err(VerifierError::Argument(arg));
                    }
                }
                Reg::number(Scalar::UNKNOWN)
            }
        };
        state.regs[0] = result;
        state.regs[1..6].fill(Reg::Nothing);
        Ok(())
    }

    fn branch(&self, state: &mut State, insn: &Insn) -> Result<Next, VerifierError> {
        let (to, on) = (self.target(insn), self.at + 1);
        let wide = insn.class() == class::JMP;
        let op = insn.op();
        let first = read(state, insn.dst)?;
        let second = match insn.by_register() {
            true => read(state, insn.src)?,
            false => Reg::number(Scalar::constant(i64::from(insn.imm) as u64)),
        };
        let (mut taken, mut not) = (None, None);
        match (first, second) {
            (Reg::Number(a, id), Reg::Number(b, other)) => {
                let half = |state: &State, op: u8| {
                    let (a, b) = Scalar::refine(op, a, b, wide)?;
                    let mut state = Box::new(state.clone());
                    state.regs[usize::from(insn.dst)] = Reg::Number(a, id);
                    state.narrow(id, a);
                    if insn.by_register() {
                        state.regs[usize::from(insn.src)] = Reg::Number(b, other);
                        state.narrow(other, b);
                    }
                    Some(state)
                };
                // A register compared with itself narrows nothing.
                if insn.by_register() && insn.dst == insn.src || op == jump::SET {
                    (taken, not) = (Some(Box::new(state.clone())), Some(Box::new(state.clone())));
                } else {
                    (taken, not) = (half(state, op), half(state, Scalar::opposite(op)));
                }
            }
            // No pointer is null.
            (Reg::Pointer(_), Reg::Number(zero, _)) if wide && zero.value() == Some(0) => {
                match op {
                    jump::EQ => not = Some(Box::new(state.clone())),
                    jump::NE => taken = Some(Box::new(state.clone())),
                    _ => return Err(VerifierError::PointerComparison),
                }
            }
            (Reg::Pointer(a), Reg::Pointer(b)) if wide => {
                if !compares_pointers(op) {
                    return Err(VerifierError::PointerComparison);
                }
                let half = |state: &State, op: u8| {
                    let mut state = Box::new(state.clone());
                    match (a.region, b.region, op) {
                        (Region::Bytes, Region::End, jump::LE) => state.record_proven(a.id, a.low),
                        (Region::Bytes, Region::End, jump::LT) => {
                            state.record_proven(a.id, a.low + 1);
                        }
                        (Region::End, Region::Bytes, jump::GE) => state.record_proven(b.id, b.low),
                        (Region::End, Region::Bytes, jump::GT) => {
                            state.record_proven(b.id, b.low + 1);
                        }
                        _ => {}
                    }
                    Some(state)
                };
                let packets = [Region::Bytes, Region::End];
                if !packets.contains(&a.region) || !packets.contains(&b.region) {
                    return Err(VerifierError::PointerComparison);
                }
                (taken, not) = (half(state, op), half(state, Scalar::opposite(op)));
            }
            _ => return Err(VerifierError::PointerComparison),
        }
        if not.is_some() && on >= self.insns.len() {
            return Err(VerifierError::FallsOff);
        }
        Ok(match (taken, not) {
            (Some(taken), Some(not)) => {
                *state = *not;
                Next::Either(on, to, taken)
            }
            (Some(taken), None) => {
                *state = *taken;
                Next::At(to)
            }
            (None, Some(not)) => {
                *state = *not;
                Next::At(on)
            }
            // Neither can be true: this code is unreachable.
            (None, None) => Next::End,
        })
    }
}

/// Returns whether a comparison is allowed between two pointers into a packet.
fn compares_pointers(op: u8) -> bool {
    matches!(op, jump::EQ | jump::NE | jump::LT | jump::LE | jump::GT | jump::GE)
}

fn out_of_bounds(region: Region, low: i64, high: i64, size: usize, room: i64) -> VerifierError {
    VerifierError::OutOfBounds { of: region.name(), low, high, size, room }
}

fn read(state: &State, reg: u8) -> Result<Reg, VerifierError> {
    match state.regs[usize::from(reg)] {
        Reg::Nothing => Err(VerifierError::Unset(reg)),
        known => Ok(known),
    }
}

fn pointer(state: &State, reg: u8) -> Result<Pointer, VerifierError> {
    match read(state, reg)? {
        Reg::Pointer(pointer) => Ok(pointer),
        _ => Err(VerifierError::NotAPointer(reg)),
    }
}

/// Returns the slots that a stack access touches, each with the mask of its bytes.
fn touched(low: i64, size: usize) -> impl Iterator<Item = (usize, u8)> {
    let begin = (low + STACK as i64) as usize;
    let end = begin + size;
    (begin / 8..end.div_ceil(8)).map(move |slot| {
        let mask = (0..8).filter(|byte| (begin..end).contains(&(8 * slot + byte)));
        (slot, mask.fold(0u8, |mask, byte| mask | 1 << byte))
    })
}

fn load_stack(state: &State, low: i64, high: i64, size: usize) -> Result<Reg, VerifierError> {
    if low == high && size == 8 && low % 8 == 0 {
        let (slot, _) = touched(low, 8).next().unwrap_or_default();
        if let Slot::Reg(reg) = state.stack[slot] {
            return Ok(reg);
        }
    }
    for (slot, mask) in touched(low, (high - low) as usize + size) {
        let slot = &state.stack[slot];
        if mask & !slot.numbers() != 0 {
            let pointer = matches!(slot, Slot::Reg(Reg::Pointer(_)));
            return Err(if pointer {
                VerifierError::PartOfPointer
            } else {
                VerifierError::UnsetStack(low)
            });
        }
    }
    Ok(Reg::number(Scalar::loaded(size)))
}

fn store_stack(
    state: &mut State,
    low: i64,
    high: i64,
    size: usize,
    value: Reg,
) -> Result<(), VerifierError> {
    if low == high && size == 8 && low % 8 == 0 {
        let (slot, _) = touched(low, 8).next().unwrap_or_default();
        state.stack[slot] = Slot::Reg(value);
        return Ok(());
    }
    if matches!(value, Reg::Pointer(_)) {
        return Err(VerifierError::PartOfPointer);
    }
    for (slot, mask) in touched(low, (high - low) as usize + size) {
        let slot = &mut state.stack[slot];
        if matches!(slot, Slot::Reg(Reg::Pointer(_))) && low != high {
            return Err(VerifierError::PartOfPointer);
        }
        // With several possible offsets, no byte is certain to be written.
        let written = if low == high { mask } else { 0 };
        *slot = Slot::Bytes(slot.numbers() | written);
    }
    Ok(())
}

/// Checks an arithmetic instruction and applies it.
fn arithmetic(state: &mut State, insn: &Insn) -> Result<(), VerifierError> {
    let wide = insn.class() == class::ALU64;
    let (op, dst) = (insn.op(), usize::from(insn.dst));
    let second = match insn.by_register() && op != alu::END {
        true => read(state, insn.src)?,
        false => Reg::number(Scalar::constant(i64::from(insn.imm) as u64)),
    };
    if op == alu::MOV {
        state.regs[dst] = match second {
            Reg::Number(number, _) if !wide => Reg::number(number.low()),
            Reg::Number(number, id) if insn.by_register() && number.value().is_none() => {
                // Both registers hold the same number: they share an id.
                let id = if id == 0 { state.fresh() } else { id };
                state.regs[usize::from(insn.src)] = Reg::Number(number, id);
                Reg::Number(number, id)
            }
            Reg::Pointer(_) if !wide => return Err(VerifierError::PartOfPointer),
            other => other,
        };
        return Ok(());
    }
    let first = read(state, insn.dst)?;
    let result = match (first, second) {
        (Reg::Number(a, _), _) if op == alu::END => {
            Reg::number(match (insn.by_register(), insn.imm) {
                (false, 32) => a.low(),
                (false, 64) => a,
                (_, bits) => Scalar::loaded(bits as usize / 8),
            })
        }
        (Reg::Number(a, _), Reg::Number(b, _)) => {
            // The bounds of the divisor, in the operation's width.
            let by = if wide { b } else { b.low() };
            if matches!(op, alu::DIV | alu::MOD) && by.umin == 0 {
                return Err(VerifierError::Division);
            }
            Reg::number(Scalar::operate(op, a, b, wide))
        }
        (Reg::Pointer(a), Reg::Number(b, _)) => match op {
            alu::ADD if wide => Reg::Pointer(offset_pointer(state, a, b)?),
            alu::SUB if wide => {
                let back = Scalar::operate(alu::SUB, Scalar::constant(0), b, true);
                if a.region == Region::Bytes && b.value().is_none() {
                    return Err(VerifierError::PointerArithmetic(
                        "only a constant may be subtracted",
                    ));
                }
                Reg::Pointer(offset_pointer(state, a, back)?)
            }
            _ => {
                return Err(VerifierError::PointerArithmetic(
                    "only addition and subtraction are allowed",
                ));
            }
        },
        (Reg::Number(a, _), Reg::Pointer(b)) if op == alu::ADD && wide => {
            Reg::Pointer(offset_pointer(state, b, a)?)
        }
        // The rest of the packet: a number, which reveals no address.
        (Reg::Pointer(a), Reg::Pointer(b))
            if op == alu::SUB
                && wide
                && [a, b].iter().all(|p| matches!(p.region, Region::Bytes | Region::End)) =>
        {
            Reg::number(Scalar::UNKNOWN)
        }
        _ => {
            return Err(VerifierError::PointerArithmetic(
                "a pointer must be the first operand, except of an addition",
            ));
        }
    };
    state.regs[dst] = result;
    Ok(())
}

/// Returns a pointer moved by a number.
fn offset_pointer(
    state: &mut State,
    pointer: Pointer,
    by: Scalar,
) -> Result<Pointer, VerifierError> {
    const OUT_OF_RANGE: VerifierError =
        VerifierError::PointerArithmetic("the offset exceeds the region's size");
    let mut to = pointer;
    match (pointer.region, by.value()) {
        // Comparisons with the end prove which bytes exist, so it must not change.
        (Region::End, _) => {
            return Err(VerifierError::PointerArithmetic("the packet's end must not be changed"));
        }
        (Region::Context | Region::Packet, None) => {
            return Err(VerifierError::PointerArithmetic(
                "this pointer takes constant offsets only",
            ));
        }
        (Region::Bytes, None) => {
            to.max_base = pointer.max_base.saturating_add(by.umax);
            if to.max_base > MAX_PACKET_OFFSET {
                return Err(OUT_OF_RANGE);
            }
            // A new base: no byte from it on is proved yet.
            to.id = state.fresh();
            to.proven = 0;
        }
        _ => {
            to.low = pointer.low.checked_add(by.smin).ok_or(OUT_OF_RANGE)?;
            to.high = pointer.high.checked_add(by.smax).ok_or(OUT_OF_RANGE)?;
        }
    }
    if to.low < -MAX_OFFSET || to.high > MAX_OFFSET {
        return Err(OUT_OF_RANGE);
    }
    Ok(to)
}
