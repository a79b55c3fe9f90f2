//! Liveness: the registers that an instruction's successors may still read.
//!
//! A register that no later instruction reads need not be known: two paths that differ only in such
//! registers are the same, which keeps loops and long chains of conditions short to walk. This is
//! the standard backward data-flow analysis to a fixed point; a set has a bit for each register.

use crate::program::insn::{Helper, Insn, WIDE, alu, class, jump};

/// Returns, for each instruction, the registers that are read at it or after it before they
/// are written.
pub(super) fn live(insns: &[Insn]) -> Vec<u16> {
    let mut live = vec![0u16; insns.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (at, insn) in insns.iter().enumerate().rev() {
            let (reads, writes) = touches(insn);
            let jumps = matches!(insn.class(), class::JMP | class::JMP32);
            let at_of = |at: usize| live.get(at).copied().unwrap_or_default();
            let target = || at_of((at + 1).wrapping_add_signed(insn.off.into()));
            let after = match insn.op() {
                jump::EXIT if jumps => 0,
                jump::JA if jumps => target(),
                op if jumps && op != jump::CALL => at_of(at + 1) | target(),
                _ if insn.code == WIDE => at_of(at + 2),
                _ => at_of(at + 1),
            };
            let before = reads | after & !writes;
            changed |= live[at] != before;
            live[at] = before;
        }
    }
    live
}

/// Returns the registers that an instruction reads, and those that it writes.
fn touches(insn: &Insn) -> (u16, u16) {
    let dst = 1u16 << (insn.dst & 15);
    let src = 1u16 << (insn.src & 15);
    let second = if insn.by_register() { src } else { 0 };
    match insn.class() {
        class::LD => (0, dst),
        class::LDX => (src, dst),
        class::ST => (dst, 0),
        class::STX => (dst | src, 0),
        class::ALU | class::ALU64 => match insn.op() {
            alu::MOV => (second, dst),
            alu::END => (dst, dst),
            _ => (dst | second, dst),
        },
        _ => match insn.op() {
            jump::JA => (0, 0),
            jump::EXIT => (1, 0),
            jump::CALL => {
                let prepare = Helper::by_number(insn.imm) == Some(Helper::Prepare);
                (if prepare { 0b1110 } else { 0b10 }, 0b11_1111)
            }
            _ => (dst | second, 0),
        },
    }
}
