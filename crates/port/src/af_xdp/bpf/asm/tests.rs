//! Encodings, against RFC 9669 (sections 4 and 5), each worked out by hand from
//! its tables for a little-endian machine: opcode, registers, offset, immediate.

use super::Reg::*;
use super::*;

type Build = for<'a> fn(&'a mut Assembler<'static>) -> &'a mut Assembler<'static>;

fn assemble(build: Build) -> Vec<u8> {
    let mut asm = Assembler::new();
    build(&mut asm);
    asm.finish().unwrap().bytes().to_vec()
}

#[cfg(target_endian = "little")]
#[test]
fn encodings_follow_rfc_9669() {
    let table: &[(Build, [u8; 8])] = &[
        // Section 4.1: ADD is 0, MOV 0xb; class ALU64 7, ALU 4; X is 8.
        (|a| a.add(R1, 5), [0x07, 0x01, 0, 0, 5, 0, 0, 0]),
        (|a| a.add(R1, R2), [0x0f, 0x21, 0, 0, 0, 0, 0, 0]),
        (|a| a.mov(R6, R1), [0xbf, 0x16, 0, 0, 0, 0, 0, 0]),
        (|a| a.mov(R0, -1), [0xb7, 0x00, 0, 0, 0xff, 0xff, 0xff, 0xff]),
        (|a| a.op32(Op::Mov, R0, 2), [0xb4, 0x00, 0, 0, 2, 0, 0, 0]),
        (|a| a.op(Op::Sub, R9, R10), [0x1f, 0xa9, 0, 0, 0, 0, 0, 0]),
        (|a| a.op(Op::Mul, R3, R4), [0x2f, 0x43, 0, 0, 0, 0, 0, 0]),
        (|a| a.op32(Op::Div, R3, 7), [0x34, 0x03, 0, 0, 7, 0, 0, 0]),
        (|a| a.op(Op::Or, R1, R0), [0x4f, 0x01, 0, 0, 0, 0, 0, 0]),
        (|a| a.op(Op::And, R1, 0x3f), [0x57, 0x01, 0, 0, 0x3f, 0, 0, 0]),
        (|a| a.op(Op::Lsh, R1, 3), [0x67, 0x01, 0, 0, 3, 0, 0, 0]),
        (|a| a.op(Op::Rsh, R1, 32), [0x77, 0x01, 0, 0, 32, 0, 0, 0]),
        (|a| a.neg(R2), [0x87, 0x02, 0, 0, 0, 0, 0, 0]),
        (|a| a.op32(Op::Mod, R5, 9), [0x94, 0x05, 0, 0, 9, 0, 0, 0]),
        (|a| a.op(Op::Xor, R7, R8), [0xaf, 0x87, 0, 0, 0, 0, 0, 0]),
        (|a| a.op(Op::Arsh, R7, 1), [0xc7, 0x07, 0, 0, 1, 0, 0, 0]),
        // Section 4.2: END is 0xd of class ALU, source 1 is big-endian.
        (|a| a.big_endian(R2, 16), [0xdc, 0x02, 0, 0, 16, 0, 0, 0]),
        // Section 5: LDX 1, ST 2, STX 3; MEM 0x60; W 0, H 8, B 0x10, DW 0x18.
        (|a| a.load(Size::Word, R2, R1, 4), [0x61, 0x12, 4, 0, 0, 0, 0, 0]),
        (|a| a.load(Size::Half, R2, R1, 12), [0x69, 0x12, 12, 0, 0, 0, 0, 0]),
        (|a| a.load(Size::Byte, R2, R1, 22), [0x71, 0x12, 22, 0, 0, 0, 0, 0]),
        (|a| a.load(Size::Double, R2, R1, 0), [0x79, 0x12, 0, 0, 0, 0, 0, 0]),
        (|a| a.store(Size::Word, R10, -4, 1), [0x62, 0x0a, 0xfc, 0xff, 1, 0, 0, 0]),
        (|a| a.store(Size::Double, R10, -8, R3), [0x7b, 0x3a, 0xf8, 0xff, 0, 0, 0, 0]),
        // Section 5.3: ATOMIC 0xc0, the operation in the immediate.
        (|a| a.atomic_add(Size::Double, R0, 0, R1), [0xdb, 0x10, 0, 0, 0, 0, 0, 0]),
        // Section 4.3: CALL 8, EXIT 9 of class JMP.
        (|a| a.call(Helper::RedirectMap), [0x85, 0, 0, 0, 51, 0, 0, 0]),
        (|a| a.exit(), [0x95, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (build, bytes) in table {
        assert_eq!(assemble(*build), bytes);
    }
}

/// Section 4.3.2: a call of the same program's code has source 1 and the distance in the immediate.
#[cfg(target_endian = "little")]
#[test]
fn call_of_code_counts_slots_from_the_next_instruction() {
    let mut asm = Assembler::new();
    let (before, after) = (asm.label(), asm.label());
    asm.bind(before).call_code(after).exit().bind(after).call_code(before).exit();
    let code = asm.finish().unwrap();
    assert_eq!(code.bytes()[..8], [0x85, 0x10, 0, 0, 1, 0, 0, 0]);
    assert_eq!(code.bytes()[16..24], [0x85, 0x10, 0, 0, 0xfd, 0xff, 0xff, 0xff]);
    let mut asm = Assembler::new();
    let nowhere = asm.label();
    asm.call_code(nowhere);
    assert_eq!(asm.finish().unwrap_err(), BadCode::Unbound { slot: 0 });
}

#[cfg(target_endian = "little")]
#[test]
fn wide_load_takes_two_slots() {
    assert_eq!(
        assemble(|a| a.load_u64(R3, 0x0102_0304_0506_0708)),
        [0x18, 3, 0, 0, 8, 7, 6, 5, 0, 0, 0, 0, 4, 3, 2, 1]
    );
}

#[cfg(target_endian = "little")]
#[test]
fn jump_offset_counts_from_next_slot_across_wide_loads() {
    let mut asm = Assembler::new();
    let (forth, back) = (asm.label(), asm.label());
    asm.bind(back)
        .jump_if(Cond::Gt, R2, R3, forth)
        .load_u64(R1, 0)
        .jump_if32(Cond::Ne, R1, 7, back)
        .bind(forth)
        .jump(back);
    let code = asm.finish().unwrap();
    let offsets: Vec<_> =
        code.bytes().chunks(8).map(|slot| i16::from_le_bytes([slot[2], slot[3]])).collect();
    assert_eq!(offsets, [3, 0, 0, -4, -5]);
    // JGT is 2 and JNE 5; class JMP 5, JMP32 6.
    assert_eq!((code.bytes()[0], code.bytes()[24], code.bytes()[32]), (0x2d, 0x56, 0x05));
}

#[test]
fn conditions_have_the_numbers_of_section_4_3() {
    let numbers = [
        (Cond::Eq, 1),
        (Cond::Gt, 2),
        (Cond::Ge, 3),
        (Cond::Set, 4),
        (Cond::Ne, 5),
        (Cond::Sgt, 6),
        (Cond::Sge, 7),
        (Cond::Lt, 0xa),
        (Cond::Le, 0xb),
        (Cond::Slt, 0xc),
        (Cond::Sle, 0xd),
    ];
    for (cond, number) in numbers {
        assert_eq!(cond as u8 >> 4, number, "{cond:?}");
    }
}

#[test]
fn unbound_label_and_long_jump_are_errors() {
    let mut asm = Assembler::new();
    let nowhere = asm.label();
    asm.exit().jump(nowhere);
    assert_eq!(asm.finish().unwrap_err(), BadCode::Unbound { slot: 1 });

    let mut asm = Assembler::new();
    let far = asm.label();
    asm.jump(far);
    for _ in 0..32_768 {
        asm.exit();
    }
    asm.bind(far);
    assert_eq!(asm.finish().unwrap_err(), BadCode::TooFar { slot: 0 });
}
