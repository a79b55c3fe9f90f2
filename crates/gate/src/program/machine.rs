//! The machine that runs verified programs: an interpreter, without unsafe code.
//!
//! ```text
//!   address   region:32 | offset:32
//!             1 context   2 stack   3 cookie   4 packet's description   5 packet
//!             6 clock's rates       7 constants of the file
//! ```
//!
//! Addresses are virtual: a region's number in the upper half, an offset in the lower. Every access
//! is a slice operation within its region, so that a program that the verifier should have rejected
//! ends in a [`Fault`] and reads or writes nothing else. This is the second check; the first is the
//! verifier (`verify/`), which a program must have passed to run at all. The tests treat each fault
//! as an error of the verifier.
//!
//! A run allocates nothing, and ends after at most as many instructions as the longest path through
//! the program has.

use super::insn::{Helper, Insn, OF_CONSTANT, OF_RODATA, WIDE, alu, class, jump};
use super::packet::DESCRIPTION;
use super::verify::{STACK, Verified};

/// Nanoseconds in a second and in a millisecond: the rates of the clock of `now`.
pub(super) const RATES: [u64; 2] = [1_000_000_000, 1_000_000];
/// The rates as bytes in memory.
const RATE_BYTES: [u8; 16] = {
    let (sec, ms) = (RATES[0].to_le_bytes(), RATES[1].to_le_bytes());
    let mut bytes = [0; 16];
    let mut at = 0;
    while at < 8 {
        (bytes[at], bytes[8 + at]) = (sec[at], ms[at]);
        at += 1;
    }
    bytes
};

const CONTEXT: u64 = 1 << 32;
const STACK_AT: u64 = 2 << 32;
const COOKIE: u64 = 3 << 32;
const PACKET: u64 = 4 << 32;
/// The address of the packet's first byte.
pub(super) const BYTES: u64 = 5 << 32;
const CLOCK: u64 = 6 << 32;
const RODATA: u64 = 7 << 32;

/// An invalid access of a program; a verified program never causes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the instruction.
    pub at: usize,
}

/// The arguments of a program's `gk_bpf_prep_for_tx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The DSCP, 1 to 63.
    pub priority: u8,
    /// Whether the packet is delivered without the grantor.
    pub direct: bool,
}

/// The memory of a run.
pub(super) struct Memory<'a> {
    pub(super) context: &'a [u8],
    pub(super) stack: &'a mut [u8; STACK],
    pub(super) cookie: &'a mut [u8; 64],
    pub(super) description: &'a [u8; DESCRIPTION],
    pub(super) bytes: &'a [u8],
    pub(super) prepared: Option<Prepared>,
}

impl Memory<'_> {
    #[inline]
    fn load(&self, rodata: &[u8], address: u64, size: usize) -> Option<u64> {
        let at = address as u32 as usize;
        let region: &[u8] = match address & !0xffff_ffff {
            STACK_AT => &self.stack[..],
            COOKIE => &self.cookie[..],
            BYTES => self.bytes,
            PACKET => &self.description[..],
            CONTEXT => self.context,
            RODATA => rodata,
            CLOCK => &RATE_BYTES,
            _ => return None,
        };
        read(region.get(at..)?, size)
    }

    #[inline]
    fn store(&mut self, address: u64, size: usize, value: u64) -> Option<()> {
        let at = address as u32 as usize;
        let region: &mut [u8] = match address & !0xffff_ffff {
            STACK_AT => &mut self.stack[..],
            COOKIE => &mut self.cookie[..],
            _ => return None,
        };
        let to = region.get_mut(at..)?.get_mut(..size)?;
        to.copy_from_slice(&value.to_le_bytes()[..size]);
        Some(())
    }

    fn call(&mut self, helper: i32, regs: &mut [u64; 16]) -> Option<()> {
        regs[0] = match Helper::by_number(helper)? {
            Helper::InitCookie | Helper::PacketCookie => COOKIE,
            Helper::Packet => PACKET,
            Helper::Prepare => match (regs[2], regs[3]) {
                (priority @ 1..64, direct) if direct == 0 || priority == 1 => {
                    let direct = direct != 0;
                    self.prepared = Some(Prepared { priority: priority as u8, direct });
                    0
                }
                _ => {
                    self.prepared = None;
                    u64::MAX
                }
            },
        };
        Some(())
    }
}

#[inline(always)]
fn read(from: &[u8], size: usize) -> Option<u64> {
    Some(match size {
        1 => u64::from(*from.first()?),
        2 => u64::from(u16::from_le_bytes(*from.first_chunk()?)),
        4 => u64::from(u32::from_le_bytes(*from.first_chunk()?)),
        _ => u64::from_le_bytes(*from.first_chunk()?),
    })
}

/// Runs a program and returns its result.
pub(super) fn run(program: &Verified, memory: &mut Memory<'_>) -> Result<u64, Fault> {
    let code = program.code();
    let mut regs = [0u64; 16];
    regs[1] = CONTEXT;
    regs[10] = STACK_AT + STACK as u64;
    let mut at = 0usize;
    for _ in 0..program.longest() {
        let fault = Fault { at };
        let insn = code.insns.get(at).ok_or(fault)?;
        at += 1;
        let dst = usize::from(insn.dst & 15);
        let src = usize::from(insn.src & 15);
        let second = if insn.by_register() { regs[src] } else { i64::from(insn.imm) as u64 };
        match insn.class() {
            class::ALU64 => regs[dst] = operate64(insn.op(), regs[dst], second),
            class::ALU if insn.op() == alu::END => {
                regs[dst] = swap_bytes(insn, regs[dst]);
            }
            class::ALU => {
                regs[dst] = operate32(insn.op(), regs[dst] as u32, second as u32).into();
            }
            class::LDX => {
                let address = regs[src].wrapping_add(i64::from(insn.off) as u64);
                regs[dst] = memory.load(&code.rodata, address, insn.size()).ok_or(fault)?;
            }
            class::ST | class::STX => {
                let value =
                    if insn.class() == class::STX { regs[src] } else { i64::from(insn.imm) as u64 };
                let address = regs[dst].wrapping_add(i64::from(insn.off) as u64);
                memory.store(address, insn.size(), value).ok_or(fault)?;
            }
            class::JMP | class::JMP32 => match insn.op() {
                jump::EXIT => return Ok(regs[0]),
                jump::CALL => memory.call(insn.imm, &mut regs).ok_or(fault)?,
                op => {
                    let wide = insn.class() == class::JMP;
                    if op == jump::JA || holds(op, regs[dst], second, wide) {
                        at = at.wrapping_add_signed(insn.off.into());
                    }
                }
            },
            _ if insn.code == WIDE => {
                let upper = code.insns.get(at).ok_or(fault)?.imm;
                let value = u64::from(insn.imm as u32) | u64::from(upper as u32) << 32;
                regs[dst] = match insn.src {
                    OF_CONSTANT => value,
                    OF_RODATA => RODATA + value,
                    _ => CLOCK + value,
                };
                at += 1;
            }
            _ => return Err(fault),
        }
    }
    Err(Fault { at })
}

/// Applies a byte-swap instruction.
fn swap_bytes(insn: &Insn, value: u64) -> u64 {
    match (insn.by_register(), insn.imm) {
        (true, 16) => u64::from((value as u16).swap_bytes()),
        (true, 32) => u64::from((value as u32).swap_bytes()),
        (true, _) => value.swap_bytes(),
        (false, 16) => u64::from(value as u16),
        (false, 32) => u64::from(value as u32),
        (false, _) => value,
    }
}

/// Arithmetic in 64 bits (RFC 9669, 4.1): a division by zero gives zero, its remainder the
/// dividend.
#[inline(always)]
pub(super) fn operate64(op: u8, a: u64, b: u64) -> u64 {
    match op {
        alu::ADD => a.wrapping_add(b),
        alu::SUB => a.wrapping_sub(b),
        alu::MUL => a.wrapping_mul(b),
        alu::DIV => a.checked_div(b).unwrap_or(0),
        alu::MOD => a.checked_rem(b).unwrap_or(a),
        alu::OR => a | b,
        alu::AND => a & b,
        alu::XOR => a ^ b,
        alu::LSH => a.wrapping_shl(b as u32),
        alu::RSH => a.wrapping_shr(b as u32),
        alu::ARSH => (a as i64).wrapping_shr(b as u32) as u64,
        alu::NEG => a.wrapping_neg(),
        _ => b,
    }
}

/// Arithmetic in 32 bits.
#[inline(always)]
pub(super) fn operate32(op: u8, a: u32, b: u32) -> u32 {
    match op {
        alu::ADD => a.wrapping_add(b),
        alu::SUB => a.wrapping_sub(b),
        alu::MUL => a.wrapping_mul(b),
        alu::DIV => a.checked_div(b).unwrap_or(0),
        alu::MOD => a.checked_rem(b).unwrap_or(a),
        alu::OR => a | b,
        alu::AND => a & b,
        alu::XOR => a ^ b,
        alu::LSH => a.wrapping_shl(b),
        alu::RSH => a.wrapping_shr(b),
        alu::ARSH => (a as i32).wrapping_shr(b) as u32,
        alu::NEG => a.wrapping_neg(),
        _ => b,
    }
}

/// Returns whether `a condition b` is true.
#[inline(always)]
pub(super) fn holds(condition: u8, a: u64, b: u64, wide: bool) -> bool {
    let (a, b, s, t) = if wide {
        (a, b, a as i64, b as i64)
    } else {
        let (a, b) = (a as u32, b as u32);
        (a.into(), b.into(), i64::from(a as i32), i64::from(b as i32))
    };
    match condition {
        jump::EQ => a == b,
        jump::NE => a != b,
        jump::GT => a > b,
        jump::GE => a >= b,
        jump::LT => a < b,
        jump::LE => a <= b,
        jump::SET => a & b != 0,
        jump::SGT => s > t,
        jump::SGE => s >= t,
        jump::SLT => s < t,
        _ => s <= t,
    }
}
