//! Hostile programs: each is rejected, at the invalid instruction and with its error.

use super::{code, insn};
use crate::program::error::VerifierError;
use crate::program::insn::Insn;
use crate::program::object::Section;
use crate::program::verify::{MAX_RUN_LENGTH, MAX_STEPS, verify};

const EXIT: Insn = insn(0x95, 0, 0, 0, 0);
const fn mov(dst: u8, imm: i32) -> Insn {
    insn(0xb7, dst, 0, 0, imm)
}
const fn mov_reg(dst: u8, src: u8) -> Insn {
    insn(0xbf, dst, src, 0, 0)
}
const fn add(dst: u8, imm: i32) -> Insn {
    insn(0x07, dst, 0, 0, imm)
}
const fn add_reg(dst: u8, src: u8) -> Insn {
    insn(0x0f, dst, src, 0, 0)
}
/// Loads of eight bytes and of one.
const fn load(dst: u8, src: u8, off: i16) -> Insn {
    insn(0x79, dst, src, off, 0)
}
const fn load_byte(dst: u8, src: u8, off: i16) -> Insn {
    insn(0x71, dst, src, off, 0)
}
const fn store(dst: u8, off: i16, src: u8) -> Insn {
    insn(0x7b, dst, src, off, 0)
}
const fn store_byte(dst: u8, off: i16, src: u8) -> Insn {
    insn(0x73, dst, src, off, 0)
}
const fn call(helper: i32) -> Insn {
    insn(0x85, 0, 0, 0, helper)
}
const COOKIE: i32 = 2;
const PACKET: i32 = 3;
const PREPARE: i32 = 4;

/// Returns the instruction and the error that a `pkt` is rejected with, if it is.
fn rejection(insns: &[Insn]) -> Option<(usize, VerifierError)> {
    let error = verify(Section::Packet, code(insns)).err()?;
    assert!(error.to_string().starts_with("pkt, instruction "), "{error}");
    Some((error.at.unwrap().0, error.error))
}

fn out_of(insns: &[Insn], what: &str, number: usize) {
    match rejection(insns) {
        Some((at, VerifierError::OutOfBounds { of, .. })) => assert_eq!((at, of), (number, what)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn endless_program_is_rejected() {
    // goto -1
    assert_eq!(rejection(&[insn(0x05, 0, 0, -1, 0), EXIT]), Some((0, VerifierError::Endless)));
    // A loop whose counter is never compared.
    let back = [mov(0, 0), add(0, 1), insn(0x05, 0, 0, -2, 0), EXIT];
    assert!(matches!(rejection(&back), Some((_, VerifierError::TooLong(MAX_RUN_LENGTH)))));
    // Until a byte of the cookie is 0, which the loop does not change.
    let sender = [call(COOKIE), load_byte(1, 0, 0), insn(0x55, 1, 0, -2, 0), mov(0, 0), EXIT];
    assert_eq!(rejection(&sender), Some((1, VerifierError::Endless)));
    // A finite loop with too many iterations.
    let late = [mov(0, 0), add(0, 1), insn(0xa5, 0, 0, -2, 5000), EXIT];
    assert!(matches!(rejection(&late), Some((_, VerifierError::TooLong(_)))));
    let in_time = [mov(0, 0), add(0, 1), insn(0xa5, 0, 0, -2, 2000), EXIT];
    assert_eq!(verify(Section::Packet, code(&in_time)).unwrap().longest(), 4002);
}

#[test]
fn complex_program_is_rejected() {
    // Forty bits of the cookie, each of which gives two paths that never merge.
    let mut insns = vec![call(COOKIE), mov_reg(6, 0), mov(7, 0)];
    for bit in 0..40i16 {
        insns.extend([
            load_byte(1, 6, bit),
            insn(0x15, 1, 0, 1, 0),
            // A different sum for each.
            add(7, 1),
            insn(0x67, 7, 0, 0, 1),
        ]);
    }
    insns.extend([mov_reg(0, 7), EXIT]);
    let refused = rejection(&insns);
    assert!(matches!(refused, Some((_, VerifierError::TooComplex(MAX_STEPS)))), "{refused:?}");
}

#[test]
fn memory_out_of_bounds() {
    out_of(&[load(0, 10, 0), EXIT], "the stack", 0);
    out_of(&[mov(1, 1), store(10, -520, 1), mov(0, 0), EXIT], "the stack", 1);
    out_of(&[load(0, 1, 16), EXIT], "the context", 0);
    out_of(&[call(COOKIE), load(0, 0, 57), EXIT], "the cookie", 1);
    out_of(&[call(COOKIE), mov(1, 0), store(0, -1, 1), mov(0, 0), EXIT], "the cookie", 2);
    // By an index that is never compared.
    let index = [call(COOKIE), load_byte(1, 0, 0), add_reg(0, 1), load_byte(0, 0, 0), EXIT];
    out_of(&index, "the cookie", 3);
    let masked = [
        call(COOKIE),
        load_byte(1, 0, 0),
        insn(0x57, 1, 0, 0, 63),
        add_reg(0, 1),
        load_byte(0, 0, 0),
        EXIT,
    ];
    assert_eq!(rejection(&masked), None);
    let masked_too_wide =
        masked.map(|each| if each.imm == 63 { insn(0x57, 1, 0, 0, 64) } else { each });
    out_of(&masked_too_wide, "the cookie", 4);
}

#[test]
fn packet_access_without_a_comparison_is_rejected() {
    // r6 = l3, r7 = end
    let begin = [call(PACKET), load(6, 0, 0), load(7, 0, 16), mov_reg(2, 6), add(2, 20)];
    let with = |rest: &[Insn]| [&begin, rest].concat();
    out_of(&with(&[load_byte(0, 6, 0), EXIT]), "the packet", 5);
    // if r2 > r7 goto exit
    let checked =
        |at: i16| with(&[insn(0x2d, 2, 7, 2, 0), load_byte(0, 6, at), EXIT, mov(0, 0), EXIT]);
    assert_eq!(rejection(&checked(19)), None);
    out_of(&checked(20), "the packet", 6);
    out_of(&checked(-1), "the packet", 6);
    // The comparison is reversed.
    let wrong = with(&[insn(0xbd, 2, 7, 2, 0), load_byte(0, 6, 0), EXIT, mov(0, 0), EXIT]);
    out_of(&wrong, "the packet", 6);
    // By a comparison of the lower halves.
    let narrow = with(&[insn(0x2e, 2, 7, 2, 0), load_byte(0, 6, 0), EXIT, mov(0, 0), EXIT]);
    assert_eq!(rejection(&narrow), Some((5, VerifierError::PointerComparison)));
    // A comparison of one base, a read from another.
    let other =
        with(&[call(PACKET), insn(0x2d, 2, 7, 2, 0), load_byte(0, 6, 0), EXIT, mov(0, 0), EXIT]);
    assert!(
        matches!(rejection(&other), Some((5, VerifierError::Unset(1)))),
        "{:?}",
        rejection(&other)
    );
    // The end must not be changed.
    let end =
        with(&[add(7, 100), insn(0x2d, 2, 7, 2, 0), load_byte(0, 6, 0), EXIT, mov(0, 0), EXIT]);
    assert!(matches!(rejection(&end), Some((5, VerifierError::PointerArithmetic(_)))));
    // Moved by a value from the packet, without a new comparison.
    let moved = with(&[
        insn(0x2d, 2, 7, 4, 0),
        load_byte(3, 6, 0),
        add_reg(6, 3),
        load_byte(0, 6, 0),
        EXIT,
        mov(0, 0),
        EXIT,
    ]);
    out_of(&moved, "the packet", 8);
    assert!(matches!(
        rejection(&with(&[store_byte(6, 0, 7), mov(0, 0), EXIT])),
        Some((5, VerifierError::ReadOnly("the packet")))
    ));
}

#[test]
fn read_of_uninitialized_memory_is_rejected() {
    assert_eq!(rejection(&[EXIT]), Some((0, VerifierError::Unset(0))));
    assert_eq!(rejection(&[mov_reg(0, 3), EXIT]), Some((0, VerifierError::Unset(3))));
    assert_eq!(rejection(&[load(0, 10, -8), EXIT]), Some((0, VerifierError::UnsetStack(-8))));
    // Seven bytes of eight.
    let part =
        [mov(1, 0), insn(0x63, 10, 1, -8, 0), insn(0x6b, 10, 1, -4, 0), load(0, 10, -8), EXIT];
    assert_eq!(rejection(&part), Some((3, VerifierError::UnsetStack(-8))));
    // A call clears r1 to r5.
    let lost = [mov_reg(6, 1), call(COOKIE), mov_reg(0, 1), EXIT];
    assert_eq!(rejection(&lost), Some((2, VerifierError::Unset(1))));
    // Written on one path only.
    let one_way = [load_byte(2, 1, 18), insn(0x15, 2, 0, 1, 6), mov(0, 0), EXIT];
    assert_eq!(rejection(&one_way), Some((3, VerifierError::Unset(0))));
}

#[test]
fn jump_without_a_target_instruction_is_rejected() {
    assert_eq!(rejection(&[insn(0x05, 0, 0, 1, 0), EXIT]), Some((0, VerifierError::Jump)));
    assert_eq!(rejection(&[insn(0x05, 0, 0, -2, 0), EXIT]), Some((0, VerifierError::Jump)));
    // Into the middle of a wide load.
    let wide = [insn(0x05, 0, 0, 1, 0), insn(0x18, 0, 0, 0, 1), insn(0, 0, 0, 0, 0), EXIT];
    assert_eq!(rejection(&wide), Some((0, VerifierError::Jump)));
    assert_eq!(rejection(&[mov(0, 0)]), Some((0, VerifierError::FallsOff)));
    assert_eq!(rejection(&[mov(0, 0), insn(0x18, 0, 0, 0, 1)]), Some((1, VerifierError::Field)));
    let last = [mov(0, 0), insn(0x15, 0, 0, -2, 1)];
    assert_eq!(rejection(&last), Some((1, VerifierError::FallsOff)));
}

#[test]
fn pointer_that_leaves_the_program_is_rejected() {
    assert_eq!(rejection(&[mov_reg(0, 10), EXIT]), Some((1, VerifierError::PointerLeak)));
    let stored = [mov_reg(6, 1), call(COOKIE), store(0, 0, 6), mov(0, 0), EXIT];
    assert_eq!(rejection(&stored), Some((2, VerifierError::PointerLeak)));
    // A part of a pointer, through the stack.
    let part = [store(10, -8, 10), insn(0x61, 0, 10, -8, 0), EXIT];
    assert_eq!(rejection(&part), Some((1, VerifierError::PartOfPointer)));
    let over = [store(10, -8, 10), mov(1, 0), store_byte(10, -8, 1), load_byte(0, 10, -7), EXIT];
    assert_eq!(rejection(&over), Some((3, VerifierError::UnsetStack(-7))));
    // By arithmetic and by comparison.
    let shifted = [mov_reg(0, 10), insn(0x77, 0, 0, 0, 1), EXIT];
    assert!(matches!(rejection(&shifted), Some((1, VerifierError::PointerArithmetic(_)))));
    let narrow = [insn(0xbc, 0, 10, 0, 0), EXIT];
    assert_eq!(rejection(&narrow), Some((0, VerifierError::PartOfPointer)));
    let compared = [mov(0, 0), insn(0x25, 10, 0, 1, 5), EXIT, EXIT];
    assert_eq!(rejection(&compared), Some((1, VerifierError::PointerComparison)));
    // A pointer as a function's number.
    let argument = [mov_reg(2, 10), mov(3, 0), call(PREPARE), EXIT];
    assert_eq!(rejection(&argument), Some((2, VerifierError::Argument(2))));
    // A number used as a pointer.
    assert_eq!(
        rejection(&[mov(1, 64), load(0, 1, 0), EXIT]),
        Some((1, VerifierError::NotAPointer(1)))
    );
    let context = [add(1, 8), call(COOKIE), mov(0, 0), EXIT];
    assert_eq!(rejection(&context), Some((1, VerifierError::Argument(1))));
}

#[test]
fn undefined_arithmetic_is_rejected() {
    let by_zero = [mov(0, 1), insn(0x37, 0, 0, 0, 0), EXIT];
    assert_eq!(rejection(&by_zero), Some((1, VerifierError::Division)));
    let unchecked = [load_byte(2, 1, 18), mov(0, 1), insn(0x9f, 0, 2, 0, 0), EXIT];
    assert_eq!(rejection(&unchecked), Some((2, VerifierError::Division)));
    let checked =
        [load_byte(2, 1, 18), mov(0, 1), insn(0x15, 2, 0, 1, 0), insn(0x9f, 0, 2, 0, 0), EXIT];
    assert_eq!(rejection(&checked), None);
    // Zero in the lower half, which is the divisor.
    let half = [mov(2, 1), insn(0x67, 2, 0, 0, 32), mov(0, 1), insn(0x3c, 0, 2, 0, 0), EXIT];
    assert_eq!(rejection(&half), Some((3, VerifierError::Division)));
    assert_eq!(
        rejection(&[mov(0, 1), insn(0x67, 0, 0, 0, 64), EXIT]),
        Some((1, VerifierError::Shift))
    );
    assert_eq!(rejection(&[mov(10, 1), EXIT]), Some((0, VerifierError::FramePointer)));
    assert_eq!(rejection(&[insn(0xb7, 11, 0, 0, 0), EXIT]), Some((0, VerifierError::Field)));
    // Atomics, legacy packet loads, signed division, tail calls by number.
    for other in [insn(0xdb, 10, 1, -8, 0), insn(0x30, 0, 0, 0, 0), insn(0x37, 0, 0, 1, 3)] {
        assert_eq!(rejection(&[mov(0, 1), other, EXIT]), Some((1, VerifierError::Opcode)));
    }
    assert_eq!(rejection(&[call(12), EXIT]), Some((0, VerifierError::NoSuchFunction(12))));
    let own = [insn(0x85, 0, 1, 0, 1), EXIT, mov(0, 0), EXIT];
    assert_eq!(rejection(&own), Some((0, VerifierError::OwnFunction)));
    // A helper of the other section.
    assert_eq!(rejection(&[call(1), EXIT]), Some((0, VerifierError::NoSuchFunction(1))));
    let init = verify(Section::Init, code(&[call(PACKET), EXIT])).unwrap_err();
    assert_eq!(init.error, VerifierError::NoSuchFunction(PACKET));
    assert_eq!(
        init.to_string(),
        "init, instruction 0 `call pkt_ctx_to_pkt`: unknown helper function 3"
    );
}
