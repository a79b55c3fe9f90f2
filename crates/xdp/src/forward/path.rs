//! The path's code: from the checks to the redirection.
//!
//! Every check of the worker's parse (`datapath/parse.rs`) that the steering program has not made is
//! made here; a packet that does not pass is the worker's. All checks precede the first change.

use std::sync::Arc;

use port::af_xdp::bpf::asm::Reg::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use port::af_xdp::bpf::asm::{Action, Assembler, Cond, Helper, Label, Op, Reg, Size, context};
use port::af_xdp::steer::{CopyOccasion, DriverPath, PathExits, SteeringOutcome};

use super::code::{
    self, append_flow_v4, append_flow_v6, append_header_checksum, append_length_check,
    append_partial_check, append_ttl_v4, append_ttl_v6,
};
use super::groups::{GroupHash, append_fold, append_hash_v4, append_hash_v6};
use super::next_hops::{GROUP, MAX_HOPS, MAX_LINKS};
use super::{NextHops, OwnSources};
use crate::{TableArrays, lookup};

/// The words of the next hop and of the link, on the stack; the number of the link that the frame was received on; the
/// tags to be sent, as two words of 4 bytes; and a key of `NextHops::vlans`.
const NEXT_HOP: i16 = -16;
const LINK: i16 = -24;
const INGRESS: i16 = -32;
const SENT_TAGS: i16 = -48;
const KEY: i16 = -64;

/// Offsets of the tags from the address 14 bytes before the packet: the only or the inner one, and the outer one.
const LAST_TAG: i16 = 8;
const OUTER_TAG: i16 = 4;
/// The bits of a tag without those of its priority.
const IDENTIFIER: i32 = i32::from_ne_bytes([0xff, 0xff, 0x0f, 0xff]);
/// The bytes of a tag.
const TAG: i32 = 4;

/// The check of sources (RFC 3704), by the table of the destinations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceCheck {
    /// There is none.
    #[default]
    Off,
    /// There is a route to the source.
    Loose,
    /// The route leads back to the packet's link.
    Strict,
}

/// The path for the packets of one link.
#[derive(Clone, Debug)]
pub struct ForwardPath {
    /// The table of their destinations over IPv4.
    pub v4: Arc<TableArrays<u32>>,
    /// The table of their destinations over IPv6.
    pub v6: Arc<TableArrays<u128>>,
    /// The next hops.
    pub next_hops: Arc<NextHops>,
    /// The own addresses.
    pub own_sources: Arc<OwnSources>,
    /// The number of the link of frames without tags; [`NextHops::set_vlan`] has those of others. Packets that would leave by
    /// their link again are the worker's, since Linux redirects their senders.
    pub link: u16,
    /// The check of sources over IPv4 and over IPv6. Sources that are not behind one resolved next hop are the
    /// worker's.
    pub sources: [SourceCheck; 2],
    /// The flow hash, for groups.
    pub group_hash: GroupHash,
}

impl DriverPath for ForwardPath {
    fn append<'m>(
        &'m self,
        asm: &mut Assembler<'m>,
        [entry_v4, entry_v6]: [Label; 2],
        exits: PathExits<'m>,
        several_buffers: bool,
    ) {
        let [lookup_v4, lookup_v6] = [asm.label(), asm.label()];
        let hashes = GroupCode { hash_v4: asm.label(), hash_v6: asm.label(), fold: asm.label() };
        let rest = exits.rest;
        asm.bind(entry_v4);
        self.append_ingress(asm, rest);
        asm.load(Size::Byte, R1, R6, code::v4::VERSION)
            // Options are the worker's.
            .jump_if(Cond::Ne, R1, 0x45, rest)
            .load(Size::Half, R8, R6, code::v4::LENGTH)
            .big_endian(R8, 16)
            // For the verifier, which has forgotten that there are 16 bits.
            .op(Op::And, R8, 0xffff);
        append_length_check(
            asm,
            i32::from(code::v4::PAYLOAD - code::ETHERNET),
            several_buffers,
            rest,
        );
        append_header_checksum(asm, rest);
        asm.load(Size::Byte, R1, R6, code::v4::TTL).jump_if(Cond::Le, R1, 1, rest);
        append_load_v4(asm, code::v4::SOURCE, rest);
        self.own_sources.append_check(asm, rest);
        let whole = asm.label();
        asm.load(Size::Half, R1, R6, code::v4::FRAGMENT)
            .big_endian(R1, 16)
            .op(Op::And, R1, 0x3fff)
            // The sender completes the checksum before it fragments.
            .jump_if(Cond::Ne, R1, 0, whole);
        let parts = [code::v4::SOURCE, code::v4::PAYLOAD];
        append_partial_check(asm, code::v4::PROTOCOL, parts, rest);
        asm.bind(whole);
        let [check_v4, check_v6] = self.sources;
        if check_v4 != SourceCheck::Off {
            append_load_v4(asm, code::v4::SOURCE, rest);
            asm.call_code(lookup_v4);
            self.append_source_check(asm, check_v4, rest);
        }
        let samples = &self.next_hops.samples;
        samples.append_fill::<u32>(asm, code::v4::DESTINATION, INGRESS);
        append_load_v4(asm, code::v4::DESTINATION, rest);
        asm.call_code(lookup_v4);
        self.append_next_hop(asm, R7, rest);
        self.append_group(asm, false, &hashes, rest);
        let kind = ([0x08, 0x00], code::v4::PAYLOAD);
        self.append_redirect(asm, kind, exits, append_ttl_v4);

        asm.bind(entry_v6);
        self.append_ingress(asm, rest);
        asm.load(Size::Byte, R1, R6, code::v6::NEXT_HEADER)
            // Hop-by-hop options are the worker's.
            .jump_if(Cond::Eq, R1, 0, rest)
            .load(Size::Byte, R1, R6, code::v6::HOP_LIMIT)
            .jump_if(Cond::Le, R1, 1, rest);
        for address in [code::v6::SOURCE, code::v6::DESTINATION] {
            // Loopback, mapped and unspecified addresses; link-local ones and groups.
            asm.load(Size::Half, R1, R6, address)
                .big_endian(R1, 16)
                .jump_if(Cond::Eq, R1, 0, rest)
                .jump_if(Cond::Ge, R1, 0xfe80, rest);
        }
        asm.load(Size::Half, R8, R6, code::v6::LENGTH)
            .big_endian(R8, 16)
            .op(Op::And, R8, 0xffff)
            .add(R8, i32::from(code::v6::PAYLOAD - code::ETHERNET));
        append_length_check(
            asm,
            i32::from(code::v6::PAYLOAD - code::ETHERNET),
            several_buffers,
            rest,
        );
        let parts = [code::v6::SOURCE, code::v6::PAYLOAD];
        append_partial_check(asm, code::v6::NEXT_HEADER, parts, rest);
        if check_v6 != SourceCheck::Off {
            append_load_v6(asm, code::v6::SOURCE);
            asm.call_code(lookup_v6);
            self.append_source_check(asm, check_v6, rest);
        }
        samples.append_fill::<u128>(asm, code::v6::DESTINATION, INGRESS);
        append_load_v6(asm, code::v6::DESTINATION);
        asm.call_code(lookup_v6);
        self.append_next_hop(asm, R7, rest);
        self.append_group(asm, true, &hashes, rest);
        let kind = ([0x86, 0xdd], code::v6::PAYLOAD);
        self.append_redirect(asm, kind, exits, append_ttl_v6);
        lookup::append(asm, lookup_v4, &self.v4);
        lookup::append(asm, lookup_v6, &self.v6);
        let GroupHash { seed, fields: [v4, v6] } = self.group_hash;
        // The verifier rejects unreachable code.
        if v4.is_some() {
            append_hash_v4(asm, hashes.hash_v4, hashes.fold, seed);
        }
        if v6.is_some() {
            append_hash_v6(asm, hashes.hash_v6, hashes.fold, seed);
        }
        if v4.or(v6).is_some() {
            append_fold(asm, hashes.fold);
        }
    }
}

/// The subroutines for groups.
struct GroupCode {
    hash_v4: Label,
    hash_v6: Label,
    fold: Label,
}

/// Appends the load of an IPv4 address to r1, as a number; jumps to `rest` if it is in a block that the worker
/// examines. r2 is overwritten.
fn append_load_v4(asm: &mut Assembler<'_>, at: i16, rest: Label) {
    asm.load(Size::Word, R1, R6, at)
        .big_endian(R1, 32)
        .mov(R2, R1)
        .op(Op::Rsh, R2, 16)
        .jump_if(Cond::Eq, R2, 0xa9fe, rest)
        .op(Op::Rsh, R2, 8)
        .jump_if(Cond::Eq, R2, 0, rest)
        .jump_if(Cond::Eq, R2, 127, rest)
        .jump_if(Cond::Ge, R2, 224, rest);
}

/// Appends the load of an IPv6 address to r1 and r2, as numbers.
fn append_load_v6(asm: &mut Assembler<'_>, at: i16) {
    for (half, offset) in [(R1, at), (R2, at + 8)] {
        asm.load(Size::Double, half, R6, offset).big_endian(half, 64);
    }
}

impl ForwardPath {
    /// Appends code that finds the link of the frame, and stores its number and the bytes of the frame's tags; only r6, r7
    /// and r9 keep their values.
    fn append_ingress<'m>(&'m self, asm: &mut Assembler<'m>, rest: Label) {
        let (one, known) = (asm.label(), asm.label());
        asm.mov(R8, i32::from(self.link))
            .mov(R1, R6)
            .load(Size::Word, R2, R9, context::DATA)
            .op(Op::Sub, R1, R2)
            .store(Size::Double, R10, code::TAG_BYTES, R1)
            .jump_if(Cond::Eq, R1, 0, known)
            .mov(R3, 0)
            .load(Size::Word, R2, R6, LAST_TAG)
            .op32(Op::And, R2, IDENTIFIER)
            .jump_if(Cond::Eq, R1, TAG, one)
            .mov(R3, R2)
            .load(Size::Word, R2, R6, OUTER_TAG)
            .op32(Op::And, R2, IDENTIFIER)
            .bind(one)
            .store(Size::Word, R10, KEY, R2)
            .store(Size::Word, R10, KEY + 4, R3)
            .store(Size::Word, R10, KEY + 8, R8)
            .map_lookup(&self.next_hops.vlans, KEY)
            .jump_if(Cond::Eq, R0, 0, rest)
            .load(Size::Word, R8, R0, 0)
            .bind(known)
            .store(Size::Double, R10, INGRESS, R8);
    }

    /// Appends the load of the next hop of hop r0 to r1, with `entry` at its place.
    fn append_next_hop<'m>(&'m self, asm: &mut Assembler<'m>, entry: Reg, rest: Label) {
        asm.jump_if(Cond::Eq, R0, 0, rest)
            .jump_if(Cond::Ge, R0, MAX_HOPS as i32, rest)
            .op(Op::Lsh, R0, 4)
            .load_map_value(entry, self.next_hops.hops.map(), 0)
            .add(entry, R0)
            .load(Size::Double, R1, entry, 0)
            .jump_if(Cond::Eq, R1, 0, rest);
    }

    /// Appends the check of a source with hop r0; only r6 to r9 keep their values. A group is the worker's.
    fn append_source_check<'m>(&'m self, asm: &mut Assembler<'m>, check: SourceCheck, rest: Label) {
        self.append_next_hop(asm, R4, rest);
        asm.big_endian(R1, 64).op(Op::And, R1, 0xffff);
        match check {
            SourceCheck::Strict => {
                asm.load(Size::Double, R2, R10, INGRESS).jump_if(Cond::Ne, R1, R2, rest)
            }
            _ => asm.jump_if(Cond::Eq, R1, i32::from(GROUP), rest),
        };
    }

    /// Appends the choice of a member if the next hop in r1 is a group: r1 becomes the member's next hop, with r7 at its
    /// place.
    fn append_group<'m>(
        &'m self,
        asm: &mut Assembler<'m>,
        six: bool,
        code: &GroupCode,
        rest: Label,
    ) {
        let single = asm.label();
        asm.mov(R2, R1).big_endian(R2, 64).mov(R3, R2).op(Op::And, R3, 0xffff);
        let Some(fields) = self.group_hash.fields[usize::from(six)] else {
            asm.jump_if(Cond::Eq, R3, i32::from(GROUP), rest);
            return;
        };
        asm.jump_if(Cond::Ne, R3, i32::from(GROUP), single)
            // r7: the slot.
            .mov(R7, R2)
            .op(Op::Rsh, R7, 48);
        if six {
            append_flow_v6(asm, fields, rest);
            asm.call_code(code.hash_v6);
        } else {
            append_flow_v4(asm, fields, rest);
            asm.call_code(code.hash_v4);
        }
        self.next_hops.buckets.append_member(asm, R7);
        self.append_next_hop(asm, R7, rest);
        asm.bind(single);
    }

    /// Appends the redirection of the packet, of which `kind` is the type with the end of the header, to the next hop in
    /// r1, with r7 at its place and with `append_ttl` for the TTL.
    fn append_redirect<'m>(
        &'m self,
        asm: &mut Assembler<'m>,
        kind: ([u8; 2], i16),
        PathExits { rest, forwarded, copies }: PathExits<'m>,
        append_ttl: impl FnOnce(&mut Assembler<'m>),
    ) {
        let NextHops { links, devices, .. } = &*self.next_hops;
        asm.store(Size::Double, R10, NEXT_HOP, R1)
            // r1: the number of the link.
            .big_endian(R1, 64)
            .op(Op::And, R1, 0xffff)
            .load(Size::Double, R2, R10, INGRESS)
            .jump_if(Cond::Eq, R1, R2, rest)
            .jump_if(Cond::Ge, R1, i32::from(MAX_LINKS), rest)
            .mov(R2, R1)
            .op(Op::Lsh, R2, 4)
            .load_map_value(R4, links.map(), 0)
            .add(R4, R2)
            .load(Size::Double, R3, R4, 0)
            .jump_if(Cond::Eq, R3, 0, rest)
            .store(Size::Double, R10, LINK, R3)
            .load(Size::Word, R2, R4, 8)
            .store(Size::Word, R10, SENT_TAGS, R2)
            .load(Size::Word, R2, R4, 12)
            .store(Size::Word, R10, SENT_TAGS + 4, R2)
            // r3: the MTU.
            .big_endian(R3, 64)
            .op(Op::And, R3, 0xffff)
            .jump_if(Cond::Gt, R8, R3, rest)
            .mov(R2, R1)
            .load_map(R1, devices)
            .mov(R3, Action::Pass as i32)
            .call(Helper::RedirectMap)
            .jump_if(Cond::Ne, R0, Action::Redirect as i32, rest);
        copies.emit(asm, &[CopyOccasion::Arrival], None);
        let (tagged, packet) = (asm.label(), asm.label());
        let kind_word = i32::from(u16::from_ne_bytes(kind.0));
        asm.load(Size::Double, R1, R10, code::TAG_BYTES)
            .load(Size::Word, R2, R10, SENT_TAGS)
            .mov(R3, R1)
            .op(Op::Or, R3, R2)
            .jump_if(Cond::Ne, R3, 0, tagged);
        append_macs(asm);
        asm.mov(R1, kind_word).store(Size::Half, R6, 12, R1).jump(packet).bind(tagged);
        append_tags(asm, kind_word, kind.1, rest);
        asm.bind(packet);
        append_ttl(asm);
        // The length of the frame, which has one buffer.
        asm.load(Size::Word, R8, R9, context::DATA_END).load(Size::Word, R1, R9, context::DATA).op(
            Op::Sub,
            R8,
            R1,
        );
        // The mark is written once, so that CPUs do not compete for its cache line.
        let marked = asm.label();
        asm.load(Size::Double, R1, R7, 8)
            .jump_if(Cond::Ne, R1, 0, marked)
            .mov(R1, 1)
            .store(Size::Double, R7, 8, R1)
            .bind(marked)
            .load(Size::Double, R7, R10, NEXT_HOP)
            .big_endian(R7, 64)
            .op(Op::And, R7, 0xffff);
        copies.emit(asm, &[CopyOccasion::End(SteeringOutcome::Forwarded)], Some(R7));
        asm.jump(forwarded);
    }
}

/// Appends the MACs at the begin of a frame at r6. Each word has two bytes more than a MAC, which the next store overwrites.
fn append_macs(asm: &mut Assembler<'_>) {
    asm.load(Size::Double, R1, R10, NEXT_HOP)
        .store(Size::Double, R6, 0, R1)
        .load(Size::Double, R1, R10, LINK)
        .store(Size::Double, R6, 6, R1);
}

/// Appends the change from the received tags, of r1 bytes, to those to be sent, of which r2 is the outer one; with the MACs
/// and the type `kind` behind them. The packet's header ends at `end`. r6 is again the address 14 bytes before the packet.
fn append_tags(asm: &mut Assembler<'_>, kind: i32, end: i16, rest: Label) {
    let (counted, two, done) = (asm.label(), asm.label(), asm.label());
    // r8: the bytes of the tags to be sent.
    asm.mov(R8, 0)
        .jump_if(Cond::Eq, R2, 0, counted)
        .mov(R8, TAG)
        .load(Size::Word, R2, R10, SENT_TAGS + 4)
        .jump_if(Cond::Eq, R2, 0, counted)
        .mov(R8, 2 * TAG)
        .bind(counted)
        .mov(R2, R1)
        .op(Op::Sub, R2, R8)
        .mov(R1, R9)
        .call(Helper::AdjustHead)
        // Without room for a tag the frame is as it was.
        .jump_if(Cond::Ne, R0, 0, rest)
        .load(Size::Word, R6, R9, context::DATA)
        .load(Size::Word, R1, R9, context::DATA_END)
        .mov(R2, R6)
        .add(R2, R8)
        .add(R2, i32::from(end))
        // For the verifier: the header was there before.
        .jump_if(Cond::Gt, R2, R1, rest);
    append_macs(asm);
    asm.mov(R3, kind);
    let plain = asm.label();
    asm.jump_if(Cond::Eq, R8, 0, plain)
        .load(Size::Word, R1, R10, SENT_TAGS)
        .store(Size::Word, R6, 12, R1)
        .add(R6, TAG)
        .jump_if(Cond::Ne, R8, TAG, two)
        .bind(plain)
        .store(Size::Half, R6, 12, R3)
        .jump(done)
        .bind(two)
        .load(Size::Word, R1, R10, SENT_TAGS + 4)
        .store(Size::Word, R6, 12, R1)
        .add(R6, TAG)
        .store(Size::Half, R6, 12, R3)
        .bind(done);
}
