//! Pieces of the path's code: offsets, the length of a packet, checksums.
//!
//! Registers, here and in `path.rs`: r6 the address 14 bytes before the packet, r7 the end of the frame's first buffer,
//! r8 the packet's length, r9 the context.

use port::af_xdp::bpf::asm::Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use port::af_xdp::bpf::asm::{Assembler, Cond, Helper, Label, Op, Size, context};

use super::groups::HashFields;

/// The bytes of an Ethernet header.
pub(super) const ETHERNET: i16 = 14;
/// The shortest frame that Ethernet carries, without its check sequence.
const SHORTEST: i32 = 60;

/// Offsets in a frame with IPv4.
pub(super) mod v4 {
    use super::ETHERNET;
    pub(in crate::forward) const VERSION: i16 = ETHERNET;
    pub(in crate::forward) const LENGTH: i16 = ETHERNET + 2;
    pub(in crate::forward) const FRAGMENT: i16 = ETHERNET + 6;
    pub(in crate::forward) const TTL: i16 = ETHERNET + 8;
    pub(in crate::forward) const PROTOCOL: i16 = ETHERNET + 9;
    pub(in crate::forward) const CHECKSUM: i16 = ETHERNET + 10;
    pub(in crate::forward) const SOURCE: i16 = ETHERNET + 12;
    pub(in crate::forward) const DESTINATION: i16 = ETHERNET + 16;
    pub(in crate::forward) const PAYLOAD: i16 = ETHERNET + 20;
}

/// Offsets in a frame with IPv6.
pub(super) mod v6 {
    use super::ETHERNET;
    pub(in crate::forward) const LENGTH: i16 = ETHERNET + 4;
    pub(in crate::forward) const NEXT_HEADER: i16 = ETHERNET + 6;
    pub(in crate::forward) const HOP_LIMIT: i16 = ETHERNET + 7;
    pub(in crate::forward) const SOURCE: i16 = ETHERNET + 8;
    pub(in crate::forward) const DESTINATION: i16 = ETHERNET + 24;
    pub(in crate::forward) const PAYLOAD: i16 = ETHERNET + 40;
}

/// Protocol numbers (IANA).
const IPV4_IN_IP: i32 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6_IN_IP: i32 = 41;
const DESTINATION_OPTIONS: i32 = 60;

/// The place on the stack of the number of bytes of a received frame's tags.
pub(super) const TAG_BYTES: i16 = -40;

/// Appends the check that the packet, of length r8, is the whole frame but for the padding of a short one.
pub(super) fn append_length_check(
    asm: &mut Assembler<'_>,
    header: i32,
    several_buffers: bool,
    rest: Label,
) {
    let whole = asm.label();
    asm.jump_if(Cond::Lt, R8, header, rest)
        .mov(R2, R6)
        .add(R2, i32::from(ETHERNET))
        .add(R2, R8)
        .jump_if(Cond::Gt, R2, R7, rest);
    if several_buffers {
        asm.mov(R1, R9)
            .call(Helper::XdpGetBuffLen)
            .load(Size::Double, R1, R10, TAG_BYTES)
            .op(Op::Sub, R0, R1)
            .mov(R2, R8)
            .add(R2, i32::from(ETHERNET))
            .jump_if(Cond::Le, R0, R2, whole)
            .jump_if(Cond::Gt, R0, SHORTEST, rest);
    } else {
        asm.jump_if(Cond::Ge, R2, R7, whole).mov(R2, R6).add(R2, SHORTEST).jump_if(
            Cond::Lt,
            R2,
            R7,
            rest,
        );
    }
    asm.bind(whole);
}

/// Appends the sum of words of 32 bits from `from` to `to` in r1, which continues one there; r2 is overwritten.
fn append_sum(asm: &mut Assembler<'_>, from: i16, to: i16) {
    for at in (from..to).step_by(4) {
        asm.load(Size::Word, R2, R6, at).add(R1, R2);
    }
}

/// Appends the fold of r1, a sum of at most 2^36, to 16 bits (RFC 1071); r2 is overwritten.
fn append_fold(asm: &mut Assembler<'_>) {
    for _ in 0..3 {
        asm.mov(R2, R1).op(Op::Rsh, R2, 16).op(Op::And, R1, 0xffff).add(R1, R2);
    }
}

/// Appends the check of an IPv4 header without options.
pub(super) fn append_header_checksum(asm: &mut Assembler<'_>, rest: Label) {
    asm.mov(R1, 0);
    append_sum(asm, v4::VERSION, v4::PAYLOAD);
    append_fold(asm);
    asm.jump_if(Cond::Ne, R1, 0xffff, rest);
}

/// Appends the check that the packet's checksum is not partial: the packet has its first protocol at
/// `protocol`, its addresses from `addresses` on and its payload at `payload`, and is no fragment if the code comes here.
pub(super) fn append_partial_check(
    asm: &mut Assembler<'_>,
    protocol: i16,
    [addresses, payload]: [i16; 2],
    rest: Label,
) {
    let complete = asm.label();
    let transports = [(TCP, 16, asm.label()), (UDP, 6, asm.label())];
    asm.load(Size::Byte, R3, R6, protocol);
    for (number, _, label) in transports {
        asm.jump_if(Cond::Eq, R3, i32::from(number), label);
    }
    // A packet in a packet may have a partial checksum, too.
    for number in [IPV4_IN_IP, IPV6_IN_IP, DESTINATION_OPTIONS] {
        asm.jump_if(Cond::Eq, R3, number, rest);
    }
    asm.jump(complete);
    for (number, offset, label) in transports {
        let field = payload + offset;
        asm.bind(label)
            .mov(R2, R6)
            .add(R2, i32::from(field) + 2)
            .jump_if(Cond::Gt, R2, R7, rest)
            // The length of the payload, in the order of a frame.
            .mov(R1, R8)
            .add(R1, i32::from(ETHERNET - payload))
            .big_endian(R1, 16)
            .add(R1, i32::from(u16::from_ne_bytes([0, number])));
        append_sum(asm, addresses, payload);
        append_fold(asm);
        asm.load(Size::Half, R2, R6, field).jump_if(Cond::Eq, R1, R2, rest);
        if number != UDP {
            asm.jump(complete);
        }
    }
    asm.bind(complete);
}

/// Appends the decrement of the TTL, with the checksum's (RFC 1624: 0xffff becomes 0).
pub(super) fn append_ttl_v4(asm: &mut Assembler<'_>) {
    asm.load(Size::Byte, R1, R6, v4::TTL)
        .add(R1, -1)
        .store(Size::Byte, R6, v4::TTL, R1)
        .load(Size::Half, R1, R6, v4::CHECKSUM)
        .big_endian(R1, 16)
        .add(R1, 0x0100)
        .mov(R2, R1)
        .add(R2, 1)
        .op(Op::Rsh, R2, 16)
        .add(R1, R2)
        .big_endian(R1, 16)
        .store(Size::Half, R6, v4::CHECKSUM, R1);
}

/// Appends the decrement of the hop limit.
pub(super) fn append_ttl_v6(asm: &mut Assembler<'_>) {
    asm.load(Size::Byte, R1, R6, v6::HOP_LIMIT).add(R1, -1).store(
        Size::Byte,
        R6,
        v6::HOP_LIMIT,
        R1,
    );
}

/// Appends the load of the protocol to r3, and with layer 4 of both ports to r5; jumps to `rest` for a packet of
/// neither TCP nor UDP. r2 and r4 are overwritten.
fn append_flow(
    asm: &mut Assembler<'_>,
    fields: HashFields,
    [protocol, payload]: [i16; 2],
    rest: Label,
) {
    let known = asm.label();
    asm.load(Size::Byte, R3, R6, protocol)
        .jump_if(Cond::Eq, R3, i32::from(TCP), known)
        .jump_if(Cond::Ne, R3, i32::from(UDP), rest)
        .bind(known)
        .op(Op::Lsh, R3, 32);
    if fields == HashFields::Layer4 {
        // Padding is no port; the second check is for the verifier.
        asm.jump_if(Cond::Lt, R8, i32::from(payload - ETHERNET) + 4, rest)
            .mov(R2, R6)
            .add(R2, i32::from(payload) + 4)
            .load(Size::Word, R4, R9, context::DATA_END)
            .jump_if(Cond::Gt, R2, R4, rest)
            .load(Size::Word, R5, R6, payload)
            .big_endian(R5, 32);
    }
}

/// Appends the load of the arguments of the hash of an IPv4 packet (`groups.rs`).
pub(super) fn append_flow_v4(asm: &mut Assembler<'_>, fields: HashFields, rest: Label) {
    asm.load(Size::Half, R1, R6, v4::FRAGMENT).big_endian(R1, 16).op(Op::And, R1, 0x3fff).jump_if(
        Cond::Ne,
        R1,
        0,
        rest,
    );
    append_flow(asm, fields, [v4::PROTOCOL, v4::PAYLOAD], rest);
    match fields {
        HashFields::Layer3 => asm.mov(R3, 0).mov(R4, 0),
        HashFields::Layer4 => asm.mov(R4, R3).mov(R3, R5),
    };
    for (address, at) in [(R1, v4::SOURCE), (R2, v4::DESTINATION)] {
        asm.load(Size::Word, address, R6, at).big_endian(address, 32);
    }
}

/// Appends the load of the arguments of the hash of an IPv6 packet.
pub(super) fn append_flow_v6(asm: &mut Assembler<'_>, fields: HashFields, rest: Label) {
    append_flow(asm, fields, [v6::NEXT_HEADER, v6::PAYLOAD], rest);
    if fields == HashFields::Layer3 {
        asm.load(Size::Word, R5, R6, ETHERNET).big_endian(R5, 32).op(Op::And, R5, 0xf_ffff).op(
            Op::Lsh,
            R5,
            40,
        );
    }
    asm.op(Op::Or, R5, R3);
    let halves =
        [(R1, v6::SOURCE), (R2, v6::SOURCE + 8), (R3, v6::DESTINATION), (R4, v6::DESTINATION + 8)];
    for (half, at) in halves {
        asm.load(Size::Double, half, R6, at).big_endian(half, 64);
    }
}
