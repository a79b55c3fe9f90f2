//! The steering program as instructions.
//!
//! Registers: r9 is the context, r6 the frame's first byte (later in a tagged frame: 14 bytes before its
//! payload), r7 its end. When the frame is to be
//! taken, r7 has the switches and r8 the family (`flow_key.rs`); then r8 has the action to return
//! and r7 the counter.

use std::sync::Arc;

use super::super::bpf::Map;
use super::super::bpf::asm::{
    Action, Assembler, BadCode, Code, Cond, Helper, Label, Op, Reg, Size, context, half, word,
};
use super::blocked;
use super::declined::DeclinedFlows;
use super::driver_path::{self, PathExits};
use super::extensions::Extensions;
use super::frame_room::FrameRoom;
use super::heartbeat::{self, Heartbeat};
use super::ingress_filter;
use super::packet_copies::{CopyHook, CopyOccasion, PacketCopies};
use super::protected::ProtectedPrefixes;
use super::{SteeringOutcome, flow_key, priority_tags, vlan_tags};
use Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};

/// Switches: the interface is only observed.
pub(super) const OBSERVE_ONLY: u32 = 1;
/// Switches: packets of a family may take the driver's path.
pub(super) const FORWARDS_V4: u32 = 2;
pub(super) const FORWARDS_V6: u32 = 4;

/// The entries of the counters: those of outcomes, then the bytes of forwarded frames.
pub(super) const FORWARDED_BYTES: u32 = SteeringOutcome::ALL.len() as u32;
pub(super) const COUNTS: u32 = FORWARDED_BYTES + 1;

/// Offsets in the frame: an Ethernet header has 14 bytes.
const ETHERTYPE: i16 = 12;
const V4_VERSION: i16 = 14;
const V4_TTL: i16 = 14 + 8;
const V4_DESTINATION: i16 = 14 + 16;
const V4_END: i32 = 14 + 20;
const V6_VERSION: i16 = 14;
const V6_HOP_LIMIT: i16 = 14 + 7;
const V6_DESTINATION: i16 = 14 + 24;
const V6_END: i32 = 14 + 40;

/// The maps of a program, and the settings that it never changes.
#[derive(Debug)]
pub(super) struct ProgramMaps {
    /// The interface's MAC, in the first six bytes of its one element.
    pub(super) mac: Map,
    /// The secondary MACs: the keys are numbers of 48 bits.
    pub(super) secondary_macs: Map,
    /// The tags of the VLAN devices over the interface, unless it is a gate's.
    pub(super) vlans: Option<Map>,
    /// Whether the interface is a gate's.
    pub(super) guards: bool,
    /// Whether packets that no socket takes are dropped.
    pub(super) fail_closed: bool,
    pub(super) sockets: Map,
    /// The arrival time of the first packet that a queue's worker has not received, and its maximum
    /// age.
    pub(super) heartbeat: Heartbeat,
    /// One word, a bit for each switch.
    pub(super) switches: Map,
    pub(super) counts: Map,
    pub(super) locals: [Map; 2],
    /// The bytes of packets of blocked sources.
    pub(super) blocked_bytes: Map,
    pub(super) declined: Option<DeclinedFlows>,
    pub(super) protected: Option<ProtectedPrefixes>,
    /// The longest frame for the sockets, unless longer ones are refused.
    pub(super) room: Option<FrameRoom>,
    /// Whether packets whose TTL is used up are left to the host.
    pub(super) passes_expiring: bool,
    /// The sessions that get copies of packets, if the kernel has ring buffers.
    pub(super) copies: Option<Arc<PacketCopies>>,
}

/// A form of the program, of those that differ by what the kernel has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    /// The helper that returns the time.
    pub(super) clock: Helper,
    /// The program passes frames that are too long for the sockets to the host.
    pub(super) has_room: bool,
    /// The program copies packets for captures.
    pub(super) has_copies: bool,
    /// The program accepts frames of several buffers.
    pub(super) several_buffers: bool,
}

/// Assembles the program.
pub(super) fn assemble<'m>(
    maps: &'m ProgramMaps,
    variant: Variant,
    extensions: &'m Extensions,
) -> Result<Code<'m>, BadCode> {
    let driver_path = extensions.driver_path.as_deref();
    let (filter, blocked) = (extensions.filter.as_deref(), extensions.blocked.as_deref());
    let ProgramMaps { mac, secondary_macs, sockets, switches, counts, .. } = maps;
    let &ProgramMaps { guards, fail_closed, passes_expiring, .. } = maps;
    let vlans = maps.vlans.as_ref();
    let (declined, protected) = (maps.declined.as_ref(), maps.protected.as_ref());
    let room = maps.room.as_ref().filter(|_| variant.has_room);
    let [v4, v6] = &maps.locals;
    let checks_flows = blocked.is_some() || declined.is_some();
    let mut asm = Assembler::new();
    let copies = maps.copies.as_deref().filter(|_| variant.has_copies);
    let copies = CopyHook::new(&mut asm, copies);
    let exits = SteeringOutcome::ALL.map(|why| (why, asm.label()));
    let to = |why: SteeringOutcome| exits[why as usize].1;
    // Packets for the host whose source has to be checked first: one path for each reason and
    // family.
    let hosts = FOR_HOST.map(|why| (why, [asm.label(), asm.label()]));
    let to_host = |six: bool| {
        move |why: SteeringOutcome| {
            let checked = hosts.iter().find(|(host, _)| protected.is_some() && *host == why);
            checked.map_or(to(why), |(_, labels)| labels[usize::from(six)])
        }
    };

    asm.mov(R9, R1);
    let filter = filter.map(|filter| {
        let entry = asm.label();
        let (maps, drop) = ([switches, &maps.blocked_bytes], to(SteeringOutcome::Blocked));
        let exits = ingress_filter::emit_check(&mut asm, maps, OBSERVE_ONLY, entry, drop);
        (filter, entry, exits)
    });

    // Ethernet.
    asm.load(Size::Word, R6, R9, context::DATA)
        .load(Size::Word, R7, R9, context::DATA_END)
        .mov(R2, R6)
        .add(R2, 14)
        .jump_if(Cond::Gt, R2, R7, to(SteeringOutcome::Short));
    let (mine, not_mine) = (asm.label(), asm.label());
    // Whether the frame is to a secondary MAC, for the driver's path.
    let set_secondary = |asm: &mut Assembler<'m>, is_secondary: bool| {
        if driver_path.is_some() {
            asm.mov(R8, i32::from(is_secondary));
        }
    };
    set_secondary(&mut asm, false);
    asm.load_map_value(R1, mac, 0)
        .load(Size::Word, R2, R6, 0)
        .load(Size::Word, R3, R1, 0)
        .jump_if32(Cond::Ne, R2, R3, not_mine)
        .load(Size::Half, R2, R6, 4)
        .load(Size::Half, R3, R1, 4)
        .jump_if32(Cond::Ne, R2, R3, not_mine)
        .bind(mine);
    let (vlan, payload) = (asm.label(), asm.label());
    let tagged = if vlans.is_some() { vlan } else { to(SteeringOutcome::Tagged) };
    priority_tags::emit_strip(&mut asm, guards, tagged, to);
    let (ipv4, ipv6, redirect) = (asm.label(), asm.label(), asm.label());
    asm.bind(payload)
        .load(Size::Half, R2, R6, ETHERTYPE)
        .jump_if32(Cond::Eq, R2, half([0x08, 0x00]), ipv4)
        .jump_if32(Cond::Eq, R2, half([0x86, 0xdd]), ipv6)
        .jump_if32(Cond::Eq, R2, half([0x08, 0x06]), to(SteeringOutcome::Arp))
        // The tag of devices from before 802.1ad.
        .jump_if32(Cond::Eq, R2, half([0x91, 0x00]), to(SteeringOutcome::Tagged))
        .jump_if32(Cond::Eq, R2, half([0x81, 0x00]), to(SteeringOutcome::Tagged))
        .jump_if32(Cond::Eq, R2, half([0x88, 0xa8]), to(SteeringOutcome::Tagged))
        .jump(to(SteeringOutcome::NotIp));
    if let Some(vlans) = vlans {
        asm.bind(vlan);
        vlan_tags::emit_match(&mut asm, vlans, payload, to);
    }
    asm.bind(not_mine)
        .load(Size::Byte, R2, R6, 0)
        .jump_if32(Cond::Set, R2, 1, to(SteeringOutcome::Group))
        // One store: Linux 6.1 refuses to overwrite half of a slot of the stack.
        .load(Size::Double, R2, R6, 0)
        .big_endian(R2, 64)
        .op(Op::Rsh, R2, 16)
        .store(Size::Double, R10, -8, R2)
        .map_lookup(secondary_macs, -8);
    set_secondary(&mut asm, true);
    asm.jump_if(Cond::Ne, R0, 0, mine).jump(to(if fail_closed {
        SteeringOutcome::Astray
    } else {
        SteeringOutcome::NotMine
    }));

    asm.bind(ipv4);
    steer_v4(&mut asm, v4, passes_expiring, to_host(false));
    if checks_flows {
        flow_key::emit_v4(&mut asm);
    }
    let entries = driver_path.map(|_| [asm.label(), asm.label()]);
    let [take_v4, take_v6] = entries.unwrap_or([redirect; 2]);
    driver_path::emit_check(&mut asm, switches, [FORWARDS_V4, OBSERVE_ONLY], [take_v4, redirect]);
    asm.bind(ipv6);
    steer_v6(&mut asm, v6, passes_expiring, to_host(true));
    if checks_flows {
        flow_key::emit_v6(&mut asm);
    }
    driver_path::emit_check(&mut asm, switches, [FORWARDS_V6, OBSERVE_ONLY], [take_v6, redirect]);

    // The socket of this queue; without one, or if all packets are for the host, pass or drop.
    let take = asm.label();
    asm.bind(redirect)
        .op32(Op::Mov, R2, 0)
        .store(Size::Word, R10, -4, R2)
        .op32(Op::Mov, R7, 0)
        .map_lookup(switches, -4)
        .jump_if(Cond::Eq, R0, 0, take)
        .load(Size::Word, R7, R0, 0)
        .jump_if32(Cond::Set, R7, OBSERVE_ONLY as i32, to(SteeringOutcome::Observed))
        .bind(take);
    let lookup = blocked.map(|sources| {
        let entries = [asm.label(), asm.label()];
        let (bytes, drop) = (&maps.blocked_bytes, to(SteeringOutcome::Blocked));
        (sources, entries, blocked::emit_check(&mut asm, entries, bytes, drop))
    });
    if let Some(declined) = declined {
        declined.emit_check(&mut asm, to(SteeringOutcome::Declined));
    }
    if let Some(room) = room {
        room.emit_check(&mut asm, to(SteeringOutcome::TooLong));
    }
    asm.load_map(R1, sockets)
        .load(Size::Word, R2, R9, context::RX_QUEUE_INDEX)
        .op32(Op::Mov, R3, Action::Pass as i32)
        .call(Helper::RedirectMap)
        .jump_if32(
            Cond::Ne,
            R0,
            Action::Redirect as i32,
            to(if fail_closed { SteeringOutcome::Unserved } else { SteeringOutcome::NoSocket }),
        );
    let stalled = if fail_closed { SteeringOutcome::Unserved } else { SteeringOutcome::Stalled };
    heartbeat::emit_check(
        &mut asm,
        maps.heartbeat.maps(),
        variant.clock,
        to(SteeringOutcome::Taken),
        to(stalled),
    );
    let count = asm.label();
    if let Some(protected) = protected {
        drop_protected(&mut asm, protected, switches, &hosts, [count, to(SteeringOutcome::Forged)]);
    }
    // The verifier rejects unreachable code.
    let there = |why| match why {
        SteeringOutcome::Blocked => blocked.is_some() || filter.is_some(),
        SteeringOutcome::Declined => declined.is_some(),
        SteeringOutcome::Forwarded => driver_path.is_some(),
        SteeringOutcome::Forged => protected.is_some(),
        SteeringOutcome::Expiring if !passes_expiring => false,
        why if FOR_HOST.contains(&why) => protected.is_none(),
        SteeringOutcome::TooLong => room.is_some(),
        SteeringOutcome::Astray => fail_closed,
        SteeringOutcome::NotMine => !fail_closed,
        SteeringOutcome::Unserved => fail_closed,
        SteeringOutcome::NoSocket | SteeringOutcome::Stalled => !fail_closed,
        _ => true,
    };
    for (why, label) in exits.into_iter().filter(|(why, _)| there(*why)) {
        let action = match why {
            SteeringOutcome::Taken | SteeringOutcome::Forwarded => Action::Redirect,
            why if why.drops() => Action::Drop,
            _ => Action::Pass,
        };
        asm.bind(label);
        if why == SteeringOutcome::Forwarded {
            add_forwarded_bytes(&mut asm, counts);
        }
        if why.drops() {
            copies.emit(&mut asm, &[CopyOccasion::Arrival, CopyOccasion::End(why)], None);
        }
        asm.op32(Op::Mov, R8, action as i32).op32(Op::Mov, R7, why as i32).jump(count);
    }
    let end = asm.label();
    // One key per counter instead of pointer arithmetic, which would require CAP_PERFMON.
    asm.bind(count)
        .store(Size::Word, R10, -4, R7)
        .map_lookup(counts, -4)
        .jump_if(Cond::Eq, R0, 0, end)
        .load(Size::Double, R1, R0, 0)
        .add(R1, 1)
        .store(Size::Double, R0, 0, R1)
        .bind(end)
        .mov(R0, R8)
        .exit();
    let filter = filter.map(|(filter, entry, exits)| {
        let lookups = std::array::from_fn(|_| asm.label());
        filter.append(&mut asm, entry, exits, lookups);
        (filter, lookups)
    });
    // The code of a path or of sources ends with subroutines.
    if let (Some(path), Some(entries)) = (driver_path, entries) {
        let forwarded = to(SteeringOutcome::Forwarded);
        let exits = PathExits { rest: redirect, forwarded, copies };
        path.append(&mut asm, entries, exits, variant.several_buffers);
    }
    if let Some((sources, entries, exits)) = lookup {
        sources.append(&mut asm, entries, exits);
    }
    if let Some((filter, lookups)) = filter {
        filter.append_lookups(&mut asm, lookups);
    }
    copies.append(&mut asm);
    asm.finish()
}

/// Emits code that counts the bytes of a forwarded frame, of length r8.
fn add_forwarded_bytes<'m>(asm: &mut Assembler<'m>, counts: &'m Map) {
    let counted = asm.label();
    asm.op32(Op::Mov, R1, FORWARDED_BYTES as i32)
        .store(Size::Word, R10, -4, R1)
        .map_lookup(counts, -4)
        .jump_if(Cond::Eq, R0, 0, counted)
        .load(Size::Double, R1, R0, 0)
        .add(R1, R8)
        .store(Size::Double, R0, 0, R1)
        .bind(counted);
}

/// Reasons to leave an IP packet to the host.
const FOR_HOST: [SteeringOutcome; 4] = [
    SteeringOutcome::Expiring,
    SteeringOutcome::Multicast,
    SteeringOutcome::LinkLocal,
    SteeringOutcome::Local,
];

/// Emits code that drops packets for the host with a source behind the gate, and passes the others,
/// each with its reason; an observed interface passes all.
fn drop_protected<'m>(
    asm: &mut Assembler<'m>,
    protected: &'m ProtectedPrefixes,
    switches: &'m Map,
    hosts: &[(SteeringOutcome, [Label; 2])],
    [count, drop]: [Label; 2],
) {
    let (v4, v6, kept, look_up, pass) =
        (asm.label(), asm.label(), asm.label(), asm.label(), asm.label());
    for &(why, [four, six]) in hosts {
        asm.bind(four).op32(Op::Mov, R7, why as i32).jump(v4);
        asm.bind(six).op32(Op::Mov, R7, why as i32).jump(v6);
    }
    asm.bind(v4);
    flow_key::emit_v4(asm);
    asm.jump(kept).bind(v6);
    flow_key::emit_v6(asm);
    asm.bind(kept)
        .op32(Op::Mov, R2, 0)
        .store(Size::Word, R10, -4, R2)
        .map_lookup(switches, -4)
        .jump_if(Cond::Eq, R0, 0, look_up)
        .load(Size::Word, R2, R0, 0)
        .jump_if32(Cond::Set, R2, OBSERVE_ONLY as i32, pass)
        .bind(look_up);
    protected.emit_check(asm, pass, drop);
    asm.bind(pass).op32(Op::Mov, R8, Action::Pass as i32).jump(count);
}

/// Emits code that passes a packet whose TTL or hop limit, at this offset, is used up.
fn pass_expiring(asm: &mut Assembler<'_>, offset: i16, pass: Label) {
    asm.load(Size::Byte, R2, R6, offset).jump_if32(Cond::Le, R2, 1, pass);
}

fn steer_v4<'m>(
    asm: &mut Assembler<'m>,
    locals: &'m Map,
    passes_expiring: bool,
    to: impl Fn(SteeringOutcome) -> Label,
) {
    asm.mov(R2, R6)
        .add(R2, V4_END)
        .jump_if(Cond::Gt, R2, R7, to(SteeringOutcome::Unparsed))
        // Version 4 and a header of at least 5 words.
        .load(Size::Byte, R2, R6, V4_VERSION)
        .jump_if32(Cond::Lt, R2, 0x45, to(SteeringOutcome::Unparsed))
        .jump_if32(Cond::Gt, R2, 0x4f, to(SteeringOutcome::Unparsed));
    if passes_expiring {
        pass_expiring(asm, V4_TTL, to(SteeringOutcome::Expiring));
    }
    asm.load(Size::Byte, R2, R6, V4_DESTINATION)
        .op32(Op::And, R2, 0xf0)
        .jump_if32(Cond::Eq, R2, 0xe0, to(SteeringOutcome::Multicast))
        .load(Size::Half, R2, R6, V4_DESTINATION)
        .jump_if32(Cond::Eq, R2, half([169, 254]), to(SteeringOutcome::LinkLocal))
        .load(Size::Word, R2, R6, V4_DESTINATION)
        .jump_if32(Cond::Eq, R2, word([255; 4]), to(SteeringOutcome::Multicast))
        .store(Size::Word, R10, -4, R2)
        .map_lookup(locals, -4)
        .jump_if(Cond::Ne, R0, 0, to(SteeringOutcome::Local));
}

fn steer_v6<'m>(
    asm: &mut Assembler<'m>,
    locals: &'m Map,
    passes_expiring: bool,
    to: impl Fn(SteeringOutcome) -> Label,
) {
    asm.mov(R2, R6)
        .add(R2, V6_END)
        .jump_if(Cond::Gt, R2, R7, to(SteeringOutcome::Unparsed))
        .load(Size::Byte, R2, R6, V6_VERSION)
        .op32(Op::And, R2, 0xf0)
        .jump_if32(Cond::Ne, R2, 0x60, to(SteeringOutcome::Unparsed));
    if passes_expiring {
        pass_expiring(asm, V6_HOP_LIMIT, to(SteeringOutcome::Expiring));
    }
    asm.load(Size::Byte, R2, R6, V6_DESTINATION)
        .jump_if32(Cond::Eq, R2, 0xff, to(SteeringOutcome::Multicast))
        .load(Size::Half, R2, R6, V6_DESTINATION)
        .op32(Op::And, R2, half([0xff, 0xc0]))
        .jump_if32(Cond::Eq, R2, half([0xfe, 0x80]), to(SteeringOutcome::LinkLocal))
        .load(Size::Double, R2, R6, V6_DESTINATION)
        .store(Size::Double, R10, -16, R2)
        .load(Size::Double, R2, R6, V6_DESTINATION + 8)
        .store(Size::Double, R10, -8, R2)
        .map_lookup(locals, -16)
        .jump_if(Cond::Ne, R0, 0, to(SteeringOutcome::Local));
}
