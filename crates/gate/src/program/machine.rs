//! The machine that runs verified programs: an interpreter, without unsafe code.
//!
//! Every access is checked (`memory.rs`), so that a program that the verifier should have rejected
//! ends in a [`Fault`] and reads or writes nothing else. This is the second check; the first is the
//! verifier (`verify/`), which a program must have passed to run at all. The tests treat each fault
//! as an error of the verifier.
//!
//! A run allocates nothing, and ends after at most as many instructions as the longest path through
//! the program has.

use super::arithmetic::{holds, operate32, operate64};
use super::insn::{Insn, OF_CONSTANT, OF_RODATA, WIDE, alu, class, jump};
use super::memory::{CLOCK, CONTEXT, Memory, RODATA, STACK, STACK_AT};
use super::verify::Verified;

/// An invalid access of a program; a verified program never causes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the instruction.
    pub at: usize,
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
