//! Packet filters: programs of the classic BPF machine, which libpcap compiles expressions to.
//!
//! ```text
//!   "udp port 53" ─► tcpdump -ddd ─► [40 0 0 12] [21 0 8 34525] … ─► Filter ─► run(packet)
//! ```
//!
//! The machine has an accumulator, an index register and sixteen words of memory, and reads the
//! packet in network order (McCanne and Jacobson, "The BSD Packet Filter", 1993; bpf(4)). A program
//! returns the number of bytes to keep; 0 rejects the packet. A load beyond the packet rejects it,
//! and so does a division by zero, as in the kernel.
//!
//! [`Filter::new`] accepts a program that only jumps forward, to an instruction that there is, and
//! ends with a return. [`run`] is safe with any words all the same: it never goes back, and what it
//! does not know rejects the packet. The extensions of Linux (negative offsets) are not here.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most instructions of a program.
pub const MAX_INSTRUCTIONS: usize = 256;
/// The words of memory.
const MEMORY: usize = 16;

/// A program without an instruction accepts every packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Vec<u64>);

/// The reason that a program is no filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidFilter {
    /// More than [`MAX_INSTRUCTIONS`].
    TooLong(usize),
    /// The last instruction does not return.
    NoReturn,
    /// The instruction with this index is unknown, or has a jump, a memory word or a divisor that
    /// there is not.
    Instruction(usize),
}

impl fmt::Display for InvalidFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(count) => write!(
                f,
                "the filter has {count} instructions, and at most {MAX_INSTRUCTIONS} are possible: \
                 make it simpler"
            ),
            Self::NoReturn => f.write_str("the filter does not end with a return"),
            Self::Instruction(at) => write!(f, "instruction {at} of the filter is invalid"),
        }
    }
}

impl std::error::Error for InvalidFilter {}

/// An instruction.
#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

impl Instruction {
    fn word(self) -> u64 {
        let Self { code, if_true, if_false, k } = self;
        u64::from(code) << 48 | u64::from(if_true) << 40 | u64::from(if_false) << 32 | u64::from(k)
    }

    fn new(word: u64) -> Self {
        let [high, low, if_true, if_false, ..] = word.to_be_bytes();
        Self { code: u16::from_be_bytes([high, low]), if_true, if_false, k: word as u32 }
    }
}

impl Filter {
    /// Makes a filter of instructions: code, jump if true, jump if false, operand.
    ///
    /// # Errors
    ///
    /// [`InvalidFilter`].
    pub fn new(program: &[(u16, u8, u8, u32)]) -> Result<Self, InvalidFilter> {
        if program.len() > MAX_INSTRUCTIONS {
            return Err(InvalidFilter::TooLong(program.len()));
        }
        for (at, &(code, if_true, if_false, k)) in program.iter().enumerate() {
            let rest = program.len() - at - 1;
            let reaches = |jump: usize| jump < rest;
            let valid = match code {
                0x00 | 0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 | 0x80 => true,
                0x01 | 0x81 | 0xb1 => true,
                0x60 | 0x61 | 0x02 | 0x03 => (k as usize) < MEMORY,
                0x34 | 0x94 => k != 0,
                0x64 | 0x74 => k < 32,
                0x04 | 0x14 | 0x24 | 0x44 | 0x54 | 0xa4 | 0x84 => true,
                0x0c | 0x1c | 0x2c | 0x3c | 0x4c | 0x5c | 0x6c | 0x7c | 0x9c | 0xac => true,
                0x05 => reaches(k as usize),
                0x15 | 0x25 | 0x35 | 0x45 | 0x1d | 0x2d | 0x3d | 0x4d => {
                    reaches(if_true.into()) && reaches(if_false.into())
                }
                0x06 | 0x16 | 0x07 | 0x87 => true,
                _ => false,
            };
            if !valid {
                return Err(InvalidFilter::Instruction(at));
            }
        }
        if program.last().is_some_and(|last| !matches!(last.0, 0x06 | 0x16)) {
            return Err(InvalidFilter::NoReturn);
        }
        let words = program
            .iter()
            .map(|&(code, if_true, if_false, k)| Instruction { code, if_true, if_false, k }.word());
        Ok(Self(words.collect()))
    }

    /// Returns the words of the program.
    pub(super) fn instructions(&self) -> &[u64] {
        &self.0
    }

    /// Returns whether the filter accepts a packet, which begins with its Ethernet header.
    pub fn accepts(&self, packet: &[u8]) -> bool {
        let program: Vec<_> = self.0.iter().map(|word| AtomicU64::new(*word)).collect();
        program.is_empty() || run(&program, packet) > 0
    }
}

/// Returns `N` bytes of a packet.
fn bytes<const N: usize>(packet: &[u8], at: Option<u32>) -> Option<[u8; N]> {
    packet.get(at? as usize..)?.first_chunk().copied()
}

/// Runs a program and returns its result.
pub(super) fn run(program: &[AtomicU64], packet: &[u8]) -> u32 {
    evaluate(program, packet).unwrap_or(0)
}

fn evaluate(program: &[AtomicU64], packet: &[u8]) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; MEMORY]);
    let mut at = 0;
    loop {
        let Instruction { code, if_true, if_false, k } =
            Instruction::new(program.get(at)?.load(Ordering::Relaxed));
        at += 1;
        // The operand of arithmetic and comparisons.
        let operand = if code & 0x08 != 0 { x } else { k };
        let jump = |condition| usize::from(if condition { if_true } else { if_false });
        match code {
            0x00 => a = k,
            0x20 => a = bytes(packet, Some(k)).map(u32::from_be_bytes)?,
            0x28 => a = bytes(packet, Some(k)).map(u16::from_be_bytes)?.into(),
            0x30 => a = bytes(packet, Some(k)).map(u8::from_be_bytes)?.into(),
            0x40 => a = bytes(packet, x.checked_add(k)).map(u32::from_be_bytes)?,
            0x48 => a = bytes(packet, x.checked_add(k)).map(u16::from_be_bytes)?.into(),
            0x50 => a = bytes(packet, x.checked_add(k)).map(u8::from_be_bytes)?.into(),
            0x60 => a = *memory.get(k as usize)?,
            0x80 => a = packet.len() as u32,
            0x01 => x = k,
            0x61 => x = *memory.get(k as usize)?,
            0x81 => x = packet.len() as u32,
            // The length of an IPv4 header.
            0xb1 => x = u32::from(bytes(packet, Some(k)).map(u8::from_be_bytes)? & 15) * 4,
            0x02 => *memory.get_mut(k as usize)? = a,
            0x03 => *memory.get_mut(k as usize)? = x,
            0x04 | 0x0c => a = a.wrapping_add(operand),
            0x14 | 0x1c => a = a.wrapping_sub(operand),
            0x24 | 0x2c => a = a.wrapping_mul(operand),
            0x34 | 0x3c => a = a.checked_div(operand)?,
            0x94 | 0x9c => a = a.checked_rem(operand)?,
            0x44 | 0x4c => a |= operand,
            0x54 | 0x5c => a &= operand,
            0xa4 | 0xac => a ^= operand,
            0x64 | 0x6c => a = a.wrapping_shl(operand),
            0x74 | 0x7c => a = a.wrapping_shr(operand),
            0x84 => a = a.wrapping_neg(),
            0x05 => at = at.checked_add(k as usize)?,
            0x15 | 0x1d => at += jump(a == operand),
            0x25 | 0x2d => at += jump(a > operand),
            0x35 | 0x3d => at += jump(a >= operand),
            0x45 | 0x4d => at += jump(a & operand != 0),
            0x06 => return Some(k),
            0x16 => return Some(a),
            0x07 => x = a,
            0x87 => a = x,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// A program that tests one thing about a packet of eight bytes, and its result.
    fn result(program: &[(u16, u8, u8, u32)]) -> u32 {
        Filter::new(program).expect("the program is valid");
        let words = program.iter().map(|&(code, if_true, if_false, k)| {
            AtomicU64::new(Instruction { code, if_true, if_false, k }.word())
        });
        run(&words.collect::<Vec<_>>(), &[0x45, 1, 2, 3, 4, 5, 6, 7])
    }

    #[test]
    fn each_instruction_does_what_bpf_says() {
        let with_a =
            |program: &[(u16, u8, u8, u32)]| result(&[program, &[(0x16, 0, 0, 0)]].concat());
        let ldx = |k| (0x01, 0, 0, k);
        // Loads.
        assert_eq!(with_a(&[(0x00, 0, 0, 77)]), 77);
        assert_eq!(with_a(&[(0x20, 0, 0, 1)]), 0x0102_0304);
        assert_eq!(with_a(&[(0x28, 0, 0, 6)]), 0x0607);
        assert_eq!(with_a(&[(0x30, 0, 0, 7)]), 7);
        assert_eq!(with_a(&[ldx(2), (0x40, 0, 0, 1)]), 0x0304_0506);
        assert_eq!(with_a(&[ldx(2), (0x48, 0, 0, 1)]), 0x0304);
        assert_eq!(with_a(&[ldx(2), (0x50, 0, 0, 1)]), 3);
        assert_eq!(with_a(&[(0x80, 0, 0, 0)]), 8);
        assert_eq!(with_a(&[(0x81, 0, 0, 0), (0x87, 0, 0, 0)]), 8);
        assert_eq!(with_a(&[(0xb1, 0, 0, 0), (0x87, 0, 0, 0)]), 20);
        // Beyond the packet, also by an overflow.
        for load in [(0x20, 0, 0, 5), (0x28, 0, 0, 7), (0x30, 0, 0, 8), (0xb1, 0, 0, 8)] {
            assert_eq!(result(&[load, (0x06, 0, 0, 1)]), 0);
        }
        assert_eq!(result(&[ldx(u32::MAX), (0x50, 0, 0, 1), (0x06, 0, 0, 1)]), 0);
        // Memory, and both registers.
        let store = [(0x00, 0, 0, 5), (0x02, 0, 0, 3), (0x00, 0, 0, 9), (0x60, 0, 0, 3)];
        assert_eq!(with_a(&store), 5);
        assert_eq!(with_a(&[ldx(6), (0x03, 0, 0, 15), (0x61, 0, 0, 15), (0x87, 0, 0, 0)]), 6);
        assert_eq!(with_a(&[(0x00, 0, 0, 4), (0x07, 0, 0, 0), (0x0c, 0, 0, 0)]), 8);
        // Arithmetic, by the constant and by the index register.
        for (operation, a, b, expect) in [
            (0x00, 7, 5, 12),
            (0x10, 7, 8, u32::MAX),
            (0x20, 7, 5, 35),
            (0x30, 17, 5, 3),
            (0x40, 6, 9, 15),
            (0x50, 6, 12, 4),
            (0x60, 3, 4, 48),
            (0x70, 48, 4, 3),
            (0x90, 17, 5, 2),
            (0xa0, 6, 12, 10),
        ] {
            assert_eq!(with_a(&[(0x00, 0, 0, a), (0x04 | operation, 0, 0, b)]), expect);
            assert_eq!(with_a(&[(0x00, 0, 0, a), ldx(b), (0x0c | operation, 0, 0, 0)]), expect);
        }
        assert_eq!(with_a(&[(0x00, 0, 0, 1), (0x84, 0, 0, 0)]), u32::MAX);
        assert_eq!(with_a(&[(0x00, 0, 0, 1), (0x3c, 0, 0, 0)]), 0, "a division by zero rejects");
        // Jumps.
        for (code, k, holds) in [
            (0x15, 5, true),
            (0x15, 6, false),
            (0x25, 4, true),
            (0x25, 5, false),
            (0x35, 5, true),
            (0x35, 6, false),
            (0x45, 4, true),
            (0x45, 2, false),
        ] {
            let ends = [(0x06, 0, 0, 10), (0x06, 0, 0, 20)];
            let expect = if holds { 20 } else { 10 };
            assert_eq!(result(&[&[(0x00, 0, 0, 5), (code, 1, 0, k)][..], &ends].concat()), expect);
            let by_x = [(0x00, 0, 0, 5), ldx(k), (code | 8, 1, 0, 0)];
            assert_eq!(result(&[&by_x[..], &ends].concat()), expect);
        }
        assert_eq!(result(&[(0x05, 0, 0, 1), (0x06, 0, 0, 1), (0x06, 0, 0, 2)]), 2);
    }

    #[test]
    fn invalid_programs_are_refused_with_the_instruction() {
        let ret = (0x06, 0, 0, 1);
        for (bad, at) in [
            (vec![(0x15, 1, 0, 0), ret], 0),
            (vec![ret, (0x05, 0, 0, u32::MAX), ret], 1),
            (vec![(0x60, 0, 0, 16), ret], 0),
            (vec![(0x34, 0, 0, 0), ret], 0),
            (vec![(0x64, 0, 0, 32), ret], 0),
            (vec![(0xffff, 0, 0, 0), ret], 0),
        ] {
            assert_eq!(Filter::new(&bad), Err(InvalidFilter::Instruction(at)), "{bad:?}");
        }
        assert_eq!(Filter::new(&[(0x00, 0, 0, 1)]), Err(InvalidFilter::NoReturn));
        let long = vec![ret; MAX_INSTRUCTIONS + 1];
        assert_eq!(Filter::new(&long), Err(InvalidFilter::TooLong(MAX_INSTRUCTIONS + 1)));
        assert!(Filter::new(&long[1..]).is_ok());
        assert!(Filter::default().accepts(&[]));
    }

    /// Any words: a worker may read a program while it is replaced.
    #[test]
    fn any_words_end() {
        let mut rng = Rng::with_seed(8);
        let codes = [0x00, 0x20, 0x28, 0x40, 0xb1, 0x60, 0x03, 0x3c, 0x64, 0x05, 0x15, 0x45, 0x06];
        for _ in 0..20_000 {
            let program: Vec<_> = (0..rng.usize(..MAX_INSTRUCTIONS))
                .map(|_| {
                    let code = if rng.u8(..) == 0 { rng.u16(..) } else { codes[rng.usize(..13)] };
                    let k = if rng.bool() { rng.u32(..) } else { rng.u32(..20) };
                    let (if_true, if_false) = (rng.u8(..), rng.u8(..4));
                    AtomicU64::new(Instruction { code, if_true, if_false, k }.word())
                })
                .collect();
            let packet: Vec<u8> = (0..rng.usize(..60)).map(|_| rng.u8(..)).collect();
            run(&program, &packet);
        }
    }
}
