//! Traces a packet through a worker of its own, which sends nothing.
//!
//! ```text
//!   frame ─► memory port ─► Worker ─► memory ports      the tables, adjacencies, settings and
//!                            │                          access lists that the workers read
//!                            └► recorder ─► ends: verdict, bytes
//!   lookups, matching rules ─► steps
//! ```
//!
//! The worker is the code that forwards; nothing of it is described twice. It runs on the control thread
//! for one packet, with readers that end with it. It has nothing of other packets: no egress queue, no packet
//! that waits, access lists with counters and policers of their own, limits of ICMP errors and punts that are unused.
//!
//! A gate or a grantor decides by its flows, of which this worker has none: `fingerpost flow` shows those.

use std::net::IpAddr;
use std::sync::Arc;

use acl::{Action, PacketFamily};
use api::{
    CaptureDirection, CapturedPacket, Trace, TraceRequest, TracedList, from_hexadecimal,
    hexadecimal,
};
use datapath::capture::Conditions;
use datapath::stats::WorkerStats;
use datapath::{Parsed, PuntRates, ReversePathFilter, Worker, WorkerSetup, arrival, parse, wants};
use fib::Publisher;
use port::{Arena, MemoryPort, Port};

use crate::items;
use crate::kernel_sync::KernelSync;
use crate::packet_names::PacketNames;
use crate::plane::{ActiveList, PlanePort};

/// The length of an Ethernet header, and of the MAC addresses in it, which tags follow.
const HEADER: usize = 14;
const MACS: usize = 12;
/// The frames of the worker: the packet, its fragments, and errors about it.
const FRAMES: u32 = 256;
/// The bytes of a frame, and the number of those for long packets.
const FRAME_SIZE: u32 = 2048;
const LONG_FRAMES: u32 = 8;
/// Turns of the worker: errors about a packet leave in the turn after it.
const TURNS: usize = 4;

/// Traces a packet.
///
/// # Errors
///
/// The interface is no port, or the frame is none that it can receive.
pub(crate) fn trace(sync: &KernelSync, request: &TraceRequest) -> Result<Trace, String> {
    let TraceRequest { interface, frame, addressed } = request;
    let ports = sync.plane.ports();
    let Some((_, device)) = ports.all().find(|(_, port)| port.name == *interface) else {
        let names: Vec<_> = ports.all().map(|(_, port)| port.name.as_str()).collect();
        return Err(format!("{interface:?} is no port; these are: {}", names.join(", ")));
    };
    let physical: Vec<&PlanePort> = ports.iter().collect();
    let receiver = ports.senders(device.interface).first().map(|number| usize::from(*number));
    let Some((at, receiver)) = receiver.and_then(|at| Some((at, *physical.get(at)?))) else {
        return Err(format!("{interface} has no active member"));
    };
    let mut frame = from_hexadecimal(frame).ok_or("the frame is not in hexadecimal digits")?;
    if frame.len() < HEADER || frame.len() > 9216 + HEADER {
        let len = frame.len();
        return Err(format!("the frame has {len} bytes: 14 for its Ethernet header, at most 9230"));
    }
    if *addressed && let Some(to) = frame.first_chunk_mut() {
        *to = device.mac;
    }
    let tags = device.vlan.iter().flat_map(|vlan| &vlan.tags);
    let tags = tags.flat_map(|tag| [tag.protocol, tag.id].map(u16::to_be_bytes).concat());
    frame.splice(MACS..MACS, tags);
    let (held, ends) = run(sync, &physical, at, &frame)?;
    // Packets of an active member are those of its bond, and tagged ones those of their VLAN device.
    let (below, _) = ports.bond_of(receiver).unwrap_or((at as u16, receiver));
    let mut ingresses = sync.plane.ingresses();
    let (number, tags) = arrival(ingresses.current(), below, &frame);
    let port = ports.numbered(number).ok_or("the port of the packet is gone")?;
    let mut trace = Trace {
        interface: receiver.name.clone(),
        device: (port.name != receiver.name).then(|| port.name.clone()),
        frame: hexadecimal(&frame),
        table: port.table,
        parse: String::new(),
        rpf: None,
        source: None,
        access_lists: Vec::new(),
        destination: None,
        held,
        ends,
    };
    frame.drain(MACS..MACS + tags);
    explain(sync, (number, port), &frame, &mut trace)?;
    Ok(trace)
}

/// Passes the frame through a worker. Returns whether the packet is held, and the packets that have ended.
fn run(
    sync: &KernelSync,
    physical: &[&PlanePort],
    at: usize,
    frame: &[u8],
) -> Result<(bool, Vec<CapturedPacket>), String> {
    let plane = &sync.plane;
    let failed = |error| format!("memory for a trace: {error}");
    let (mut far, mut near) = (Vec::new(), Vec::<Box<dyn Port>>::new());
    for port in physical {
        let (end, own) = MemoryPort::pair("trace", &port.name);
        far.push(end);
        near.push(Box::new(own.with_mac(port.mac).with_mtu(port.mtu as usize)));
    }
    let worker = Worker::new(WorkerSetup {
        arena: Arena::with_long_frames(FRAMES, FRAME_SIZE, LONG_FRAMES).map_err(failed)?,
        ports: near,
        tables: plane.readers(),
        adjacencies: plane.adjacencies(),
        ingresses: plane.ingresses(),
        wants: wants().0,
        stats: Arc::new(WorkerStats::new()),
    });
    // Lists with counters of their own: those of the workers do not count the packet.
    let lists = Publisher::new(plane.separate_access_lists());
    let mut worker = worker.with_access_lists(lists.reader(), 0);
    if let Some(limits) = plane.icmp_limits() {
        worker = worker.with_punts(PuntRates::ROUTER).with_icmp_errors(limits);
    }
    let everything = Conditions::every_end(u16::MAX);
    let stats = Arc::clone(worker.stats());
    let opened = stats.recorder().open(1, &everything);
    let (_, position) = opened.ok_or("no capture can be opened")?;
    if !far[at].send(frame) {
        return Err("the frame does not fit a port".to_owned());
    }
    for _ in 0..TURNS {
        worker.poll();
    }
    let held = worker.held() > 0;
    let records = stats.recorder().live(position).map(|read| read.records).unwrap_or_default();
    let names = PacketNames::of(plane);
    let ends = records.iter().map(|record| names.packet(Some(0), record));
    Ok((held, ends.collect()))
}

/// Adds the steps that need no worker: parsing, the matching rules, the lookups. The frame has no tags of
/// its VLAN device.
fn explain(
    sync: &KernelSync,
    (number, port): (u16, &PlanePort),
    frame: &[u8],
    trace: &mut Trace,
) -> Result<(), String> {
    let plane = &sync.plane;
    let mut ingresses = plane.ingresses();
    let terms = ingresses.current().get(number.into());
    let parsed = parse(frame, terms.mac.unwrap_or(port.mac), &terms.locals);
    let packet = frame.get(HEADER..).unwrap_or_default();
    let (name, family, source, destination) = match parsed {
        Parsed::V4(to) => {
            let source = u32::fields(packet).map(|fields| IpAddr::V4(fields.src.into()));
            ("ipv4", 0, source, IpAddr::V4(to.into()))
        }
        Parsed::V6(to) => {
            let source = u128::fields(packet).map(|fields| IpAddr::V6(fields.src.into()));
            ("ipv6", 1, source, IpAddr::V6(to.into()))
        }
        Parsed::Done(verdict) => {
            verdict.name().clone_into(&mut trace.parse);
            return Ok(());
        }
    };
    name.clone_into(&mut trace.parse);
    let answer = items::lookup(sync, trace.table, destination)?;
    // A route of several next hops has no device of its own.
    let left = trace.ends.iter().find(|end| end.direction == CaptureDirection::Out);
    let egress = answer.dev.clone().or_else(|| left.map(|end| end.interface.clone()));
    let filter = terms.sources[family];
    if filter != ReversePathFilter::Off
        && let Some(source) = source
    {
        trace.rpf = Some(format!("{filter:?}").to_lowercase());
        trace.source = Some(items::lookup(sync, trace.table, source)?);
    }
    let lists = plane.active_lists().iter();
    let applies = |names: &[String], port: &str| {
        let number = plane.ports().named(port);
        number.is_some() && names.iter().any(|name| plane.ports().named(name) == number)
    };
    // All lists of the ingress port precede those of the egress port.
    let inbound = lists.clone().filter(|list| applies(&list.config.inbound, &port.name));
    let outbound = egress
        .iter()
        .flat_map(|egress| lists.clone().filter(|list| applies(&list.config.outbound, egress)));
    let inbound = inbound.map(|list| (list, "inbound"));
    for (list, direction) in inbound.chain(outbound.map(|list| (list, "outbound"))) {
        let traced = match family {
            0 => matching::<u32>(list, direction, packet),
            _ => matching::<u128>(list, direction, packet),
        };
        let Some(traced) = traced else { continue };
        let is_denied = traced.result == "deny";
        trace.access_lists.push(traced);
        if is_denied {
            break;
        }
    }
    trace.destination = Some(answer);
    Ok(())
}

/// Returns the rules of a list that act on a packet.
fn matching<A: PacketFamily>(
    list: &ActiveList,
    direction: &str,
    packet: &[u8],
) -> Option<TracedList> {
    let fields = A::fields(packet)?;
    let installed = list.installed.list();
    let rules: Vec<usize> = installed.matches(&fields).collect();
    let last = rules.last().and_then(|rule| installed.rules().get(*rule));
    let ended = last.map(|rule| &rule.action).filter(|action| action.is_terminal());
    let passes = ended.map_or(list.config.permits, |action| *action == Action::Permit);
    let text = |rule: &usize| {
        let rule_text = installed.rules().get(*rule).map(ToString::to_string);
        (rule + 1, rule_text.unwrap_or_default())
    };
    Some(TracedList {
        name: list.config.name.clone(),
        direction: direction.to_owned(),
        rules: rules.iter().map(text).collect(),
        result: if passes { "permit" } else { "deny" }.to_owned(),
    })
}
