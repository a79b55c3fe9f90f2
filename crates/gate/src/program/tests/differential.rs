//! The machine against an independent one: `rbpf`'s interpreter runs the same random arithmetic and
//! jumps. The verifier's bounds are compared with the machine's results for numbers within them.

use super::{code, insn};
use crate::program::arithmetic;
use crate::program::insn::{Insn, alu, jump};
use crate::program::machine::{self, Fault};
use crate::program::memory::{DESCRIPTION, Memory};
use crate::program::object::Section;
use crate::program::verify::{Scalar, Verified, verify};

fn bytes(insns: &[Insn]) -> Vec<u8> {
    let each = insns.iter().flat_map(|insn| {
        let mut bytes = [0; 8];
        (bytes[0], bytes[1]) = (insn.code, insn.src << 4 | insn.dst);
        bytes[2..4].copy_from_slice(&insn.off.to_le_bytes());
        bytes[4..].copy_from_slice(&insn.imm.to_le_bytes());
        bytes
    });
    each.collect()
}

/// Returns a number of any magnitude, often a boundary value.
fn number(rng: &mut fastrand::Rng) -> u64 {
    match rng.u8(..6) {
        0 => rng.u64(..4),
        1 => u64::MAX - rng.u64(..4),
        2 => (1 << rng.u8(..64)) - rng.u64(..2),
        3 => u64::from(rng.u32(..)),
        _ => rng.u64(..) >> rng.u8(..64),
    }
}

const OPERATIONS: [u8; 13] = [
    alu::ADD,
    alu::SUB,
    alu::MUL,
    alu::DIV,
    alu::OR,
    alu::AND,
    alu::LSH,
    alu::RSH,
    alu::NEG,
    alu::MOD,
    alu::XOR,
    alu::MOV,
    alu::ARSH,
];
const CONDITIONS: [u8; 11] = [
    jump::EQ,
    jump::GT,
    jump::GE,
    jump::SET,
    jump::NE,
    jump::SGT,
    jump::SGE,
    jump::LT,
    jump::LE,
    jump::SLT,
    jump::SLE,
];

/// Returns a program with six random registers, arithmetic, forward jumps, and their sum.
fn random(rng: &mut fastrand::Rng) -> Vec<Insn> {
    let mut insns = Vec::new();
    for reg in 0..6 {
        let value = number(rng);
        insns.push(insn(0x18, reg, 0, 0, value as i32));
        insns.push(insn(0, 0, 0, 0, (value >> 32) as i32));
    }
    let body = rng.i16(5..40);
    for at in 0..body {
        let (dst, src) = (rng.u8(..6), rng.u8(..6));
        let (by_register, narrow) = (rng.bool(), rng.bool());
        let (src, imm) = if by_register { (src, 0) } else { (0, number(rng) as i32) };
        let x = if by_register { 8 } else { 0 };
        insns.push(match rng.u8(..8) {
            0 => {
                let class = if narrow { 6 } else { 5 };
                let condition = CONDITIONS[rng.usize(..CONDITIONS.len())];
                // RFC 9669 and the kernel sign-extend the constant; rbpf does not.
                let imm = if narrow { imm } else { imm & i32::MAX };
                insn(condition | x | class, dst, src, rng.i16(0..body - at), imm)
            }
            1 => insn(alu::END | x | 4, dst, 0, 0, [16, 32, 64][rng.usize(..3)]),
            _ => {
                let class = if narrow { 4 } else { 7 };
                let bits = if narrow { 32 } else { 64 };
                match OPERATIONS[rng.usize(..OPERATIONS.len())] {
                    // rbpf panics if the lowest number is negated.
                    alu::NEG => insn(alu::XOR | class, dst, 0, 0, -1),
                    op @ (alu::DIV | alu::MOD) if !by_register => {
                        insn(op | class, dst, 0, 0, imm | 1)
                    }
                    // Most registers are not known to be nonzero.
                    alu::DIV | alu::MOD if rng.u8(..8) > 0 => {
                        insn(alu::ADD | x | class, dst, src, 0, 0)
                    }
                    op @ (alu::LSH | alu::RSH | alu::ARSH) if !by_register => {
                        insn(op | class, dst, 0, 0, imm.rem_euclid(bits))
                    }
                    op => insn(op | x | class, dst, src, 0, imm),
                }
            }
        });
    }
    for reg in 1..6 {
        insns.push(insn(0x27, 0, 0, 0, 31));
        insns.push(insn(0xaf, 0, reg, 0, 0));
    }
    insns.push(insn(0x95, 0, 0, 0, 0));
    insns
}

/// The cases in which rbpf differs from RFC 9669, 4.2 and 4.3.
#[test]
fn constants_are_sign_extended() {
    assert!(arithmetic::holds(jump::EQ, u64::MAX, -1i64 as u64, true));
    // r0 = -1; if r0 == -1 goto +1; r0 = 0; exit, and by the verifier too.
    let insns = [
        insn(0xb7, 0, 0, 0, -1),
        insn(0x15, 0, 0, 1, -1),
        insn(0xb7, 0, 0, 0, 0),
        insn(0x95, 0, 0, 0, 0),
    ];
    let verified = verify(Section::Packet, code(&insns)).unwrap();
    assert_eq!((verified.longest(), run(&verified)), (3, Ok(u64::MAX)));
    assert_eq!(arithmetic::operate64(alu::NEG, 1 << 63, 0), 1 << 63);
}

fn run(verified: &Verified) -> Result<u64, Fault> {
    let mut memory = Memory {
        context: &[],
        stack: &mut [0; 512],
        cookie: &mut [0; 64],
        description: &[0; DESCRIPTION],
        bytes: &[],
        prepared: None,
    };
    machine::run(verified, &mut memory)
}

#[test]
fn machine_agrees_with_rbpf() {
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut compared, mut refused) = (0, 0);
    while compared < 20_000 {
        let insns = random(&mut rng);
        // The verifier rejects divisions whose divisor may be zero.
        let Ok(verified) = verify(Section::Packet, code(&insns)) else {
            refused += 1;
            continue;
        };
        let bytes = bytes(&insns);
        let theirs = rbpf::EbpfVmNoData::new(Some(&bytes)).unwrap().execute_program().unwrap();
        let ours = run(&verified);
        let listing: Vec<String> = insns.iter().map(ToString::to_string).collect();
        assert_eq!(ours, Ok(theirs), "{}", listing.join("\n"));
        compared += 1;
    }
    assert!(refused < compared, "{refused} rejected");
}

/// Returns random bounds, and a number within them.
fn within(rng: &mut fastrand::Rng) -> (Scalar, u64) {
    let (a, b) = (number(rng), number(rng));
    let near = rng.bool().then(|| a.saturating_add(rng.u64(..300)));
    let b = near.unwrap_or(b);
    let scalar = Scalar::between(a.min(b), a.max(b));
    let value = match rng.u8(..3) {
        0 => a,
        1 => b,
        _ => rng.u64(a.min(b)..=a.max(b)),
    };
    (scalar, value)
}

#[test]
fn results_are_within_their_bounds() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut narrow = 0;
    for _ in 0..1_000_000 {
        let ((a, x), (b, y)) = (within(&mut rng), within(&mut rng));
        let op = OPERATIONS[rng.usize(..OPERATIONS.len())];
        let wide = rng.bool();
        let (divisor, result) = match wide {
            true => (y, arithmetic::operate64(op, x, y)),
            false => (y & 0xffff_ffff, arithmetic::operate32(op, x as u32, y as u32).into()),
        };
        if matches!(op, alu::DIV | alu::MOD) && divisor == 0 {
            continue;
        }
        // The verifier accepts a divisor only if it is not zero.
        let by = if wide { b } else { b.low() };
        if matches!(op, alu::DIV | alu::MOD) && by.umin == 0 {
            continue;
        }
        let known = Scalar::operate(op, a, b, wide);
        assert!(known.holds(result), "{op:#x} {wide}: {x:#x} of {a:?}, {y:#x} of {b:?}: {known:?}");
        narrow += u32::from(known != Scalar::UNKNOWN);
    }
    assert!(narrow > 500_000, "{narrow}");
}

#[test]
fn condition_keeps_the_numbers_that_satisfy_it() {
    let mut rng = fastrand::Rng::with_seed(3);
    let (mut held, mut sharper) = (0, 0);
    for _ in 0..1_000_000 {
        let ((a, x), (b, y)) = (within(&mut rng), within(&mut rng));
        let condition = CONDITIONS[rng.usize(..CONDITIONS.len())];
        let wide = rng.bool();
        let refined = Scalar::refine(condition, a, b, wide);
        if arithmetic::holds(condition, x, y, wide) {
            let (c, d) = refined.unwrap_or_else(|| panic!("{condition:#x} {wide} {x:#x} {y:#x}"));
            assert!(c.holds(x) && d.holds(y), "{condition:#x} {wide} {x:#x} of {a:?}: {c:?}");
            held += 1;
            sharper += u32::from((c, d) != (a, b));
        }
    }
    assert!(held > 100_000 && sharper > 20_000, "{held}, {sharper}");
}
