//! The check as an XDP program: the twin of [`Checker::check`], test by test in
//! the same order.
//!
//! ```text
//!   type ─► foreign? ─► form ─► sink, MACs ─► TTL ─► checksum ─► destination ─► hash
//!                        │          │          │         │            │          │
//!                        └──────────┴── number of the finding in r1 ──┴──────────┘
//!                                                  ▼
//!                                    counts[r1] += 1, drop
//! ```
//!
//! The frames that a sink expects are constants in the code: the program looks up only the
//! counter. r6 is the frame, r7 its end.

use anyhow::Result;
use port::af_xdp::bpf::asm::{Reg::*, *};
use port::af_xdp::bpf::{Map, Program};

use super::{
    ALL_BUT_LAST, Checker, Finding, HASH_FACTOR, HASH_SEED, MARK, UDP, V4_HASH, V4_HEADER, V4_LEN,
    V4_PAYLOAD, V4_WORDS, V6_HASH, V6_LEN, V6_PAYLOAD, V6_PSEUDO, V6_SUMMED, V6_WORDS, Words,
};

impl Checker {
    /// Makes the same check as an XDP program that counts into `counts`
    /// (see [`super::counters`]) and drops everything.
    pub(in super::super) fn program(&self, counts: &Map) -> Result<Program> {
        let mut asm = Assembler::new();
        let ends = Finding::ALL.map(|_| asm.label());
        let to = |finding: Finding| ends[finding as usize];
        let (v4, v6) = (asm.label(), asm.label());

        // r6: the frame; r7: its end; r1: the number of the finding.
        asm.load(Size::Word, R6, R1, context::DATA)
            .load(Size::Word, R7, R1, context::DATA_END)
            .mov(R2, R6)
            .add(R2, 54)
            .jump_if(Cond::Gt, R2, R7, to(Finding::Form))
            .load(Size::Half, R2, R6, 12)
            .jump_if(Cond::Eq, R2, half([0x08, 0x00]), v4)
            .jump_if(Cond::Eq, R2, half([0x86, 0xdd]), v6)
            .jump_if(Cond::Eq, R2, half([0x08, 0x06]), to(Finding::Foreign))
            .jump(to(Finding::Form));

        asm.bind(v4);
        self.form(&mut asm, V4_LEN, 0x45, 23, V4_PAYLOAD, to(Finding::Form));
        self.link(&mut asm, V4_PAYLOAD, to);
        ttl(&mut asm, 22, V4_PAYLOAD, to(Finding::Ttl));
        asm.mov(R1, 0);
        summed(&mut asm, V4_HEADER, to(Finding::Checksum));
        same(&mut asm, Size::Word, &[(30, V4_PAYLOAD + 8)], to(Finding::Destination));
        hashed(&mut asm, &V4_WORDS, !0, V4_HASH, to(Finding::Payload));
        asm.jump(to(Finding::Right));

        asm.bind(v6)
            .load(Size::Byte, R2, R6, 38)
            .jump_if(Cond::Eq, R2, 0xff, to(Finding::Foreign))
            .load(Size::Half, R2, R6, 38)
            .jump_if(Cond::Eq, R2, half([0xfe, 0x80]), to(Finding::Foreign));
        self.form(&mut asm, V6_LEN, 0x60, 20, V6_PAYLOAD, to(Finding::Form));
        self.link(&mut asm, V6_PAYLOAD, to);
        ttl(&mut asm, 21, V6_PAYLOAD, to(Finding::Ttl));
        let copy = V6_PAYLOAD + 8;
        same(&mut asm, Size::Double, &[(38, copy), (46, copy + 8)], to(Finding::Destination));
        hashed(&mut asm, &V6_WORDS, ALL_BUT_LAST, V6_HASH, to(Finding::Payload));
        asm.mov(R1, V6_PSEUDO as i32).load(Size::Half, R2, R6, V6_LEN as i16 - 2).add(R1, R2);
        summed(&mut asm, V6_SUMMED, to(Finding::Payload));
        asm.jump(to(Finding::Right));

        let (count, none) = (asm.label(), asm.label());
        for finding in Finding::ALL {
            asm.bind(to(finding)).mov(R1, finding as i32).jump(count);
        }
        asm.bind(count)
            .store(Size::Word, R10, -4, R1)
            .map_lookup(counts, -4)
            .jump_if(Cond::Eq, R0, 0, none)
            // One CPU's own, and XDP does not preempt itself: no atomic.
            .load(Size::Double, R1, R0, 0)
            .add(R1, 1)
            .store(Size::Double, R0, 0, R1)
            .bind(none)
            .leave(Action::Drop);
        Ok(Program::load("fp_check", &asm.finish()?)?)
    }

    /// Leaves for `bad` unless length, version, protocol and mark are right.
    fn form(
        &self,
        asm: &mut Assembler<'_>,
        len: usize,
        version: i32,
        protocol: i16,
        payload: usize,
        bad: Label,
    ) {
        // The first comparison is for the verifier, the second for "exactly".
        asm.mov(R2, R6)
            .add(R2, len as i32)
            .jump_if(Cond::Gt, R2, R7, bad)
            .mov(R3, R7)
            .op(Op::Sub, R3, R6)
            .jump_if(Cond::Ne, R3, len as i32, bad)
            .load(Size::Byte, R2, R6, 14)
            .jump_if(Cond::Ne, R2, version, bad)
            .load(Size::Byte, R2, R6, protocol)
            .jump_if(Cond::Ne, R2, i32::from(UDP), bad)
            .load(Size::Half, R2, R6, payload as i16)
            .jump_if(Cond::Ne, R2, half(MARK), bad);
    }

    fn link(&self, asm: &mut Assembler<'_>, payload: usize, to: impl Fn(Finding) -> Label) {
        asm.load(Size::Byte, R2, R6, payload as i16 + 2).jump_if(
            Cond::Ne,
            R2,
            i32::from(self.sink),
            to(Finding::Sink),
        );
        let macs = [
            (0, self.dst_mac, to(Finding::DestinationMac)),
            (6, self.src_mac, to(Finding::SourceMac)),
        ];
        for (at, [a, b, c, d, e, f], bad) in macs {
            asm.load(Size::Word, R2, R6, at)
                .op32(Op::Xor, R2, i32::from_ne_bytes([a, b, c, d]))
                .jump_if(Cond::Ne, R2, 0, bad)
                .load(Size::Half, R2, R6, at + 4)
                .jump_if(Cond::Ne, R2, half([e, f]), bad);
        }
    }
}

/// Two bytes of a packet as a half-word load shows them.
fn half(bytes: [u8; 2]) -> i32 {
    i32::from(u16::from_ne_bytes(bytes))
}

/// Adds words to r1, folds it, and leaves for `bad` unless the sum is all ones.
fn summed(asm: &mut Assembler<'_>, words: Words, bad: Label) {
    for at in words.map(|at| at as i16) {
        asm.load(Size::Word, R2, R6, at).add(R1, R2);
    }
    asm.mov(R2, R1).op(Op::Rsh, R2, 32).op32(Op::Mov, R1, R1).add(R1, R2);
    for _ in 0..3 {
        asm.mov(R2, R1).op(Op::Rsh, R2, 16).op(Op::And, R1, 0xffff).add(R1, R2);
    }
    asm.jump_if(Cond::Ne, R1, 0xffff, bad);
}

fn ttl(asm: &mut Assembler<'_>, at: i16, payload: usize, bad: Label) {
    asm.load(Size::Byte, R2, R6, at)
        .load(Size::Byte, R3, R6, payload as i16 + 3)
        .add(R3, -1)
        .op(Op::And, R3, 0xff)
        .jump_if(Cond::Ne, R2, R3, bad);
}

fn same(asm: &mut Assembler<'_>, size: Size, pairs: &[(usize, usize)], bad: Label) {
    for &(one, other) in pairs {
        asm.load(size, R2, R6, one as i16).load(size, R3, R6, other as i16).jump_if(
            Cond::Ne,
            R2,
            R3,
            bad,
        );
    }
}

/// Leaves for `bad` unless the words' hash is the one at `at`; `first` masks
/// the first word.
fn hashed(asm: &mut Assembler<'_>, words: &[usize], first: u64, at: usize, bad: Label) {
    asm.load_u64(R1, HASH_SEED).load_u64(R4, HASH_FACTOR);
    for (i, &word) in words.iter().enumerate() {
        asm.load(Size::Double, R2, R6, word as i16);
        if i == 0 && first != !0 {
            asm.load_u64(R3, first).op(Op::And, R2, R3);
        }
        asm.op(Op::Xor, R1, R2).op(Op::Mul, R1, R4).mov(R2, R1).op(Op::Rsh, R2, 32).op(
            Op::Xor,
            R1,
            R2,
        );
    }
    asm.load(Size::Double, R2, R6, at as i16).jump_if(Cond::Ne, R1, R2, bad);
}
