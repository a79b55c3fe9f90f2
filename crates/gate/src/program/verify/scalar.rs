//! Bounds of a number: the least and greatest value, unsigned and signed.
//!
//! Each operation of the machine has its counterpart here: for all numbers within the operands'
//! bounds, its result is within the result's bounds. Where an operation has no useful bounds (a sum
//! that may overflow) its result is unknown, which is always sound. Unsigned and signed bounds are
//! both stored because compilers emit comparisons of both kinds, and each narrows the other where
//! the sign is known.
//!
//! The kernel's verifier also tracks known bits. This one does not: the kernel needs them for
//! alignment, which this machine does not require.

use crate::program::arithmetic::{operate32, operate64};
use crate::program::insn::{alu, jump};

/// A number's bounds; both are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::program) struct Scalar {
    pub(in crate::program) umin: u64,
    pub(super) umax: u64,
    pub(super) smin: i64,
    pub(super) smax: i64,
}

impl Scalar {
    pub(in crate::program) const UNKNOWN: Self =
        Self { umin: 0, umax: u64::MAX, smin: i64::MIN, smax: i64::MAX };

    pub(super) fn constant(value: u64) -> Self {
        Self { umin: value, umax: value, smin: value as i64, smax: value as i64 }
    }

    /// Returns the bounds `umin` to `umax`, unsigned.
    pub(in crate::program) fn between(umin: u64, umax: u64) -> Self {
        let mut scalar = Self { umin, umax, ..Self::UNKNOWN };
        scalar.sharpen();
        scalar
    }

    fn between_signed(smin: i64, smax: i64) -> Self {
        let mut scalar = Self { smin, smax, ..Self::UNKNOWN };
        scalar.sharpen();
        scalar
    }

    /// Returns the bounds of a loaded value of so many bytes.
    pub(super) fn loaded(bytes: usize) -> Self {
        if bytes >= 8 { Self::UNKNOWN } else { Self::between(0, (1 << (8 * bytes)) - 1) }
    }

    pub(super) fn value(&self) -> Option<u64> {
        (self.umin == self.umax).then_some(self.umin)
    }

    fn is_possible(&self) -> bool {
        self.umin <= self.umax && self.smin <= self.smax
    }

    pub(super) fn contains(&self, other: &Self) -> bool {
        self.umin <= other.umin
            && other.umax <= self.umax
            && self.smin <= other.smin
            && other.smax <= self.smax
    }

    #[cfg(test)]
    pub(in crate::program) fn holds(&self, value: u64) -> bool {
        self.contains(&Self::constant(value))
    }

    /// Narrows the unsigned bounds by the signed ones, and the reverse.
    fn sharpen(&mut self) {
        for _ in 0..2 {
            if self.smin >= 0 || self.smax < 0 {
                self.umin = self.umin.max(self.smin as u64);
                self.umax = self.umax.min(self.smax as u64);
            }
            if (self.umin as i64 >= 0) == (self.umax as i64 >= 0) {
                self.smin = self.smin.max(self.umin as i64);
                self.smax = self.smax.min(self.umax as i64);
            }
        }
    }

    /// Returns the bounds of the lower 32 bits.
    pub(in crate::program) fn low(&self) -> Self {
        if self.umin >> 32 == self.umax >> 32 {
            Self::between(u64::from(self.umin as u32), u64::from(self.umax as u32))
        } else {
            Self::between(0, u32::MAX.into())
        }
    }

    /// Returns the bounds of an operation's result. The divisor must not be zero; `wide` is 64
    /// bits.
    pub(in crate::program) fn operate(op: u8, a: Self, b: Self, wide: bool) -> Self {
        if wide {
            return Self::operate64(op, a, b);
        }
        let (a, b) = (a.low(), b.low());
        if let (Some(a), Some(b)) = (a.value(), b.value()) {
            return Self::constant(operate32(op, a as u32, b as u32).into());
        }
        match op {
            // The lower halves are computed in 64 bits, and the result is truncated to 32.
            alu::ADD | alu::MUL | alu::OR | alu::AND | alu::XOR | alu::MOV | alu::RSH => {
                let b = if op == alu::RSH { b.shift(31) } else { b };
                Self::operate64(op, a, b).low()
            }
            alu::DIV | alu::MOD => Self::operate64(op, a, b),
            alu::SUB if a.umin >= b.umax => Self::operate64(op, a, b),
            alu::LSH if b.umax < 32 => Self::operate64(op, a, b).low(),
            alu::ARSH if a.umax <= i32::MAX as u64 => {
                Self::operate64(alu::RSH, a, b.shift(31)).low()
            }
            _ => Self::between(0, u32::MAX.into()),
        }
    }

    /// Returns the bounds of a shift count, masked as the machine masks it.
    fn shift(self, mask: u64) -> Self {
        if self.umax <= mask { self } else { Self::between(0, mask) }
    }

    fn operate64(op: u8, a: Self, b: Self) -> Self {
        if let (Some(a), Some(b)) = (a.value(), b.value()) {
            return Self::constant(operate64(op, a, b));
        }
        /// Returns a mask of all bits up to the value's highest set bit.
        fn ones(value: u64) -> u64 {
            u64::MAX.checked_shr(value.leading_zeros()).unwrap_or(0)
        }
        match op {
            alu::ADD => {
                let mut sum = Self::UNKNOWN;
                if let Some(umax) = a.umax.checked_add(b.umax) {
                    (sum.umin, sum.umax) = (a.umin + b.umin, umax);
                }
                let ends = (a.smin.checked_add(b.smin), a.smax.checked_add(b.smax));
                if let (Some(smin), Some(smax)) = ends {
                    (sum.smin, sum.smax) = (smin, smax);
                }
                sum.sharpen();
                sum
            }
            alu::SUB => {
                let mut difference = Self::UNKNOWN;
                if a.umin >= b.umax {
                    (difference.umin, difference.umax) = (a.umin - b.umax, a.umax - b.umin);
                }
                let ends = (a.smin.checked_sub(b.smax), a.smax.checked_sub(b.smin));
                if let (Some(smin), Some(smax)) = ends {
                    (difference.smin, difference.smax) = (smin, smax);
                }
                difference.sharpen();
                difference
            }
            alu::MUL => match a.umax.checked_mul(b.umax) {
                Some(umax) => Self::between(a.umin * b.umin, umax),
                None => Self::UNKNOWN,
            },
            alu::DIV if b.umin > 0 => Self::between(a.umin / b.umax, a.umax / b.umin),
            alu::MOD if b.umin > 0 => {
                if a.umax < b.umin {
                    a
                } else {
                    Self::between(0, a.umax.min(b.umax - 1))
                }
            }
            alu::AND => Self::between(0, a.umax.min(b.umax)),
            alu::OR => Self::between(a.umin.max(b.umin), ones(a.umax | b.umax)),
            alu::XOR => Self::between(0, ones(a.umax | b.umax)),
            alu::LSH => {
                let b = b.shift(63);
                if a.umax <= u64::MAX >> b.umax {
                    Self::between(a.umin << b.umin, a.umax << b.umax)
                } else {
                    Self::UNKNOWN
                }
            }
            alu::RSH => {
                let b = b.shift(63);
                Self::between(a.umin >> b.umax, a.umax >> b.umin)
            }
            alu::ARSH => match b.value() {
                Some(places) => {
                    Self::between_signed(a.smin >> (places & 63), a.smax >> (places & 63))
                }
                None if a.smin >= 0 => Self::between_signed(0, a.smax),
                None => Self::UNKNOWN,
            },
            alu::MOV => b,
            _ => Self::UNKNOWN,
        }
    }

    /// Returns the negation of a condition.
    pub(super) fn opposite(condition: u8) -> u8 {
        match condition {
            jump::EQ => jump::NE,
            jump::NE => jump::EQ,
            jump::GT => jump::LE,
            jump::LE => jump::GT,
            jump::GE => jump::LT,
            jump::LT => jump::GE,
            jump::SGT => jump::SLE,
            jump::SLE => jump::SGT,
            jump::SGE => jump::SLT,
            jump::SLT => jump::SGE,
            other => other,
        }
    }

    /// Narrows the bounds of two numbers by `a condition b`; `None` if the condition cannot hold.
    /// `SET` narrows nothing and must not be passed.
    pub(in crate::program) fn refine(
        condition: u8,
        a: Self,
        b: Self,
        wide: bool,
    ) -> Option<(Self, Self)> {
        if !wide {
            // The condition compares the lower halves, which are the numbers if these are small
            // enough.
            let most = match condition {
                jump::SGT | jump::SGE | jump::SLT | jump::SLE => i32::MAX as u64,
                _ => u32::MAX.into(),
            };
            if a.umax > most || b.low().umax > most {
                return Some((a, b));
            }
            let low = b.low();
            let (a, narrowed) = Self::refine(condition, a, low, true)?;
            return Some((a, if b.umax <= most { narrowed } else { b }));
        }
        let (mut a, mut b) = (a, b);
        match condition {
            jump::EQ => {
                let both = Self {
                    umin: a.umin.max(b.umin),
                    umax: a.umax.min(b.umax),
                    smin: a.smin.max(b.smin),
                    smax: a.smax.min(b.smax),
                };
                (a, b) = (both, both);
            }
            jump::NE => {
                if a.value().is_some() && a.value() == b.value() {
                    return None;
                }
                a.exclude(&b);
                b.exclude(&a);
            }
            jump::GT => {
                a.umin = a.umin.max(b.umin.checked_add(1)?);
                b.umax = b.umax.min(a.umax.checked_sub(1)?);
            }
            jump::GE => {
                a.umin = a.umin.max(b.umin);
                b.umax = b.umax.min(a.umax);
            }
            jump::SGT => {
                a.smin = a.smin.max(b.smin.checked_add(1)?);
                b.smax = b.smax.min(a.smax.checked_sub(1)?);
            }
            jump::SGE => {
                a.smin = a.smin.max(b.smin);
                b.smax = b.smax.min(a.smax);
            }
            jump::LT => return Self::refine(jump::GT, b, a, true).map(|(b, a)| (a, b)),
            jump::LE => return Self::refine(jump::GE, b, a, true).map(|(b, a)| (a, b)),
            jump::SLT => return Self::refine(jump::SGT, b, a, true).map(|(b, a)| (a, b)),
            jump::SLE => return Self::refine(jump::SGE, b, a, true).map(|(b, a)| (a, b)),
            _ => {}
        }
        if !a.is_possible() || !b.is_possible() {
            return None;
        }
        a.sharpen();
        b.sharpen();
        (a.is_possible() && b.is_possible()).then_some((a, b))
    }

    /// Excludes the other number, if it is constant, from either end of the bounds.
    fn exclude(&mut self, other: &Self) {
        let Some(value) = other.value() else { return };
        if self.umin == value && self.umax > value {
            self.umin += 1;
        } else if self.umax == value && self.umin < value {
            self.umax -= 1;
        }
    }
}
