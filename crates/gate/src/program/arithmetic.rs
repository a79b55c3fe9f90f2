//! Arithmetic and conditions of eBPF (RFC 9669, 4.1 and 4.3), for the machine and for the verifier.

use super::insn::{alu, jump};

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
