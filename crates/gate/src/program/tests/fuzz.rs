//! Fuzzed bytecode and fuzzed packets: programs that the verifier accepts never fault and never
//! read uninitialized memory.
//!
//! The machine checks every access again, so that each error of the verifier becomes a fault here.
//! Reads of uninitialized memory are found by running each program twice, with different stack
//! contents: a program that reads none returns the same both times.

use super::{compile, objects, shipped};
use crate::program::insn::Insn;
use crate::program::object::Section;
use crate::program::object::{self, Code};
use crate::program::shipped::SOURCES;
use crate::program::verify::verify;
use crate::program::{Machine, Program, ProgramVerdict};

/// Writes a packet, valid in most cases.
pub(super) fn packet(rng: &mut fastrand::Rng, into: &mut [u8; 128]) -> usize {
    rng.fill(into);
    let len = rng.usize(20..128);
    if rng.bool() {
        into[0] = if rng.u8(..4) == 0 { 0x40 | rng.u8(5..16) } else { 0x45 };
        into[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        into[9] = [1, 6, 17, 58][rng.usize(..4)];
        if rng.bool() {
            into[6..8].fill(0);
        }
    } else {
        into[0] = 0x60;
        into[4..6].copy_from_slice(&(len.saturating_sub(40) as u16).to_be_bytes());
        into[6] = [0, 43, 44, 60, 6, 17, 58, 51][rng.usize(..8)];
        into[40] = [6, 17, 58, 44][rng.usize(..4)];
        into[41] = 0;
    }
    // Ports that the programs check, and a DNS query.
    if rng.bool() {
        let port: u16 = [53, 80, 443, 22, 51_500][rng.usize(..5)];
        into[22..24].copy_from_slice(&port.to_be_bytes());
        into[28 + 2] = 0;
        into[28 + 4..28 + 6].copy_from_slice(&[0, 1]);
        for at in (40..120).step_by(4) {
            into[at] = rng.u8(..5);
        }
    }
    len
}

#[test]
fn million_fuzzed_packets_cause_no_fault() {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut machine = Machine::default();
    let mut seen = [0u32; 3];
    let mut bytes = [0; 128];
    for source in SOURCES {
        let program = shipped(source.name);
        for flow in 0..1000 {
            let mut cookie = [0; 64];
            rng.fill(&mut cookie);
            // Some get parameters that forward packets.
            if flow % 2 == 0 {
                cookie = [0; 64];
                cookie[2] = rng.u8(..);
                cookie[6] = rng.u8(..);
            }
            let mut now = rng.u64(..1 << 60);
            machine.init(&program, now, &mut cookie);
            for _ in 0..1_000_000 / 1000 / SOURCES.len() + 1 {
                now += rng.u64(..1 << 30);
                let len = packet(&mut rng, &mut bytes);
                let before = cookie;
                let answer =
                    machine.packet(&program, now, u64::MAX, &mut cookie, &bytes[..len], len as u32);
                // A malformed packet does not change its flow, and no packet turns it into a
                // request.
                assert!(answer != ProgramVerdict::Error || cookie == before);
                seen[match answer {
                    ProgramVerdict::Forward(_) => 0,
                    ProgramVerdict::Decline => 1,
                    ProgramVerdict::Error => 2,
                    ProgramVerdict::Missing => panic!("the program is there"),
                }] += 1;
            }
        }
    }
    assert_eq!(machine.faults(), 0);
    assert!(seen[0] > 100_000 && seen[1] > 100_000 && seen[2] > 10_000, "{seen:?}");
    assert!(seen.iter().sum::<u32>() >= 1_000_000);
}

/// Changes a few instructions.
fn mutate(rng: &mut fastrand::Rng, insns: &mut Vec<Insn>) {
    for _ in 0..rng.u8(1..4) {
        let at = rng.usize(..insns.len());
        let other = insns[rng.usize(..insns.len())];
        let insn = &mut insns[at];
        match rng.u8(..10) {
            0 => insn.dst = rng.u8(..11),
            1 => insn.src = rng.u8(..11),
            2 => insn.off = insn.off.wrapping_add(rng.i16(-9..9)),
            3 => insn.imm = insn.imm.wrapping_add(rng.i32(-3..3)),
            4 => insn.code ^= 1 << rng.u8(..8),
            5 => *insn = other,
            6 => insn.off = rng.i16(..),
            7 => insn.imm = 1 << rng.u8(..31),
            8 => {
                insns.remove(at);
            }
            _ => insns.insert(at, other),
        }
        if insns.is_empty() {
            return;
        }
    }
}

#[test]
fn fuzzed_bytecode_that_passes_never_faults() {
    let mut rng = fastrand::Rng::with_seed(12);
    // Larger programs take longer to verify and cover the same.
    let small = |name: &str| ["granted", "grantedv2", "web", "dns", "tables"].contains(&name);
    let tables = compile("tables", TABLES, "v1");
    let mut corpus: Vec<Code> = Vec::new();
    for (name, object) in objects() {
        if small(name.split(' ').next().unwrap_or_default()) {
            corpus.push(object::read(object).unwrap().1);
        }
    }
    corpus.push(object::read(&tables).unwrap().1);
    let init = verify(Section::Init, object::read(&objects()[0].1).unwrap().0).unwrap();
    let (mut passed, mut refused) = (0, 0);
    let mut bytes = [0; 128];
    for _ in 0..6_000 {
        let mut code = corpus[rng.usize(..corpus.len())].clone();
        mutate(&mut rng, &mut code.insns);
        let Ok(packet_code) = verify(Section::Packet, code) else {
            refused += 1;
            continue;
        };
        passed += 1;
        let program = Program { init: init.clone(), packet: packet_code, digest: [0; 32] };
        let (mut one, mut two) = (Machine::default(), Machine::default());
        for _ in 0..20 {
            one.stack.fill(0x55);
            two.stack.fill(0xaa);
            let mut cookie = [0; 64];
            rng.fill(&mut cookie);
            let (mut a, mut b) = (cookie, cookie);
            let now = rng.u64(..1 << 60);
            let len = packet(&mut rng, &mut bytes);
            let first = one.packet(&program, now, now + 9, &mut a, &bytes[..len], len as u32);
            let second = two.packet(&program, now, now + 9, &mut b, &bytes[..len], len as u32);
            assert_eq!((first, a), (second, b), "read uninitialized memory");
        }
        let listing = || {
            let insns = program.packet.code().insns.iter().enumerate();
            insns.map(|(at, insn)| format!("{at} {insn}\n")).collect::<String>()
        };
        assert_eq!(one.faults(), 0, "{}", listing());
    }
    assert!(passed > 300 && refused > 1_000, "{passed} passed, {refused} were rejected");
}

/// Reads the stack, the cookie, the constants and the packet at checked indexes.
const TABLES: &str = r#"
#include "flow.h"
static const uint8_t table[16] = { 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 7, 9, 11 };

SECTION("init") uint64_t on_decision(struct gk_bpf_init_ctx *ctx) { return ctx->now != 0; }

SECTION("pkt") uint64_t on_packet(struct gk_bpf_pkt_ctx *ctx)
{
    uint8_t *cookie = pkt_ctx_to_cookie(ctx);
    const struct packet *packet = pkt_ctx_to_pkt(ctx);
    const uint8_t *at = packet->l3;
    volatile uint8_t seen[32];
    uint32_t sum = 0;

    for (int i = 0; i < 32; i++)
        seen[i] = 0;
#pragma clang loop unroll(disable)
    for (int i = 0; i < 8; i++) {
        if (at + 2 > packet->end)
            break;
        uint32_t value = at[0];
        seen[value & 31] = value;
        sum += table[value & 15] + seen[(value >> 3) & 31];
        if (value < 60)
            cookie[value + 4] = sum;
        at += at[1] & 15;
    }
    if (sum % 3 == 0)
        return DECLINE;
    return gk_bpf_prep_for_tx(ctx, (sum & 63) + 1, 0);
}
"#;
