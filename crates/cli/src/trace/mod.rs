//! `fingerpost trace`: the steps that a running router takes with a packet, without sending it.
//!
//! ```text
//!   words ─► frame ─┐
//!   --hex ──────────┼─► control socket ─► steps ─► lines, or JSON
//!   --next ─► capture of arrivals ─► frame, interface ─┘
//! ```
//!
//! The packet goes through a worker that sends nothing, with the tables, settings and access lists of those
//! that forward. With `--next` it is the next packet that arrives and that a filter accepts; its steps are those
//! of the tables a moment later.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use api::{CaptureConditions, CapturedPacket, Item, Request, Trace, TraceRequest};

use crate::capture::{compile, packet_line};
use crate::client::{self, RESPONSE_TIMEOUT, SocketArgs};
use crate::show::write_answer;

mod frame;

/// The arguments of `trace`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: SocketArgs,
    /// Write JSON, an array of traces
    #[arg(short, long)]
    json: bool,
    /// The interface that the packet arrives on; with `--next`, only packets that arrive there
    #[arg(short, long, value_name = "NAME", required_unless_present = "next")]
    interface: Option<String>,
    /// TTL or hop limit of the packet
    #[arg(long, value_name = "N", default_value_t = 64, conflicts_with_all = ["hex", "next"])]
    ttl: u8,
    /// The frame, from its Ethernet header on, in hexadecimal digits, in place of words; on a VLAN device without its tags
    #[arg(long, value_name = "DIGITS", conflicts_with_all = ["next", "words"])]
    hex: Option<String>,
    /// Trace the next packets that arrive, so many; then the words are a filter of tcpdump
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    next: Option<u16>,
    /// Packet, in the words of an access list: from ADDR to ADDR [ipproto PROTO] [sport N] [dport N] …
    #[arg(value_name = "PACKET", trailing_var_arg = true)]
    words: Vec<String>,
}

/// Traces a packet, or the next packets that arrive.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let words = args.words.join(" ");
    let requests = match (args.next, &args.interface) {
        (Some(count), interface) => {
            let arrived = arrivals(&args.socket, interface.clone(), count.into(), &words)?;
            let request = |packet: CapturedPacket| TraceRequest {
                interface: packet.interface,
                frame: packet.data,
                addressed: false,
            };
            arrived.into_iter().map(request).collect()
        }
        (None, Some(interface)) => {
            let (frame, addressed) = match &args.hex {
                Some(digits) => (digits.replace([' ', ':'], ""), false),
                None => (api::hexadecimal(&frame::build(&words, args.ttl)?), true),
            };
            vec![TraceRequest { interface: interface.clone(), frame, addressed }]
        }
        (None, None) => bail!("--interface is required without --next"),
    };
    let mut traces = Vec::new();
    for request in requests {
        let request = Request::Trace(request);
        client::send(&args.socket, &request, RESPONSE_TIMEOUT, &mut |item| {
            if let Item::Trace(trace) = item {
                traces.push(*trace);
            }
            Ok(())
        })?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &traces)?;
        writeln!(out)?;
    } else {
        for (at, trace) in traces.iter().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            write_trace(&mut out, trace)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Receives the next packets that arrive and that the filter accepts.
fn arrivals(
    socket: &SocketArgs,
    interface: Option<String>,
    count: usize,
    filter: &str,
) -> anyhow::Result<Vec<CapturedPacket>> {
    let conditions = CaptureConditions {
        arrivals: true,
        verdicts: Vec::new(),
        interface,
        no_driver: true,
        one_in: 1,
        snap: u16::MAX,
        filter: if filter.is_empty() { Vec::new() } else { compile(filter)? },
    };
    eprintln!("fingerpost: waiting for {count} packets; Ctrl-C stops");
    let mut arrived = Vec::new();
    let received =
        client::send(socket, &Request::Capture(conditions), RESPONSE_TIMEOUT, &mut |item| {
            // Without a worker it was dropped before one, which the trace's worker does not.
            if let Item::Packet(packet) = item
                && packet.worker.is_some()
            {
                arrived.push(packet);
            }
            // An error ends the request.
            if arrived.len() < count { Ok(()) } else { bail!("all have arrived") }
        });
    match received {
        Err(error) if arrived.len() < count => Err(error),
        _ => Ok(arrived),
    }
}

/// Writes the steps, a line or more each.
fn write_trace(out: &mut impl Write, trace: &Trace) -> anyhow::Result<()> {
    let arrived = CapturedPacket {
        time_ns: 0,
        worker: None,
        interface: trace.interface.clone(),
        direction: api::CaptureDirection::In,
        verdict: None,
        rule: None,
        length: (trace.frame.len() / 2).try_into().context("the frame is too long")?,
        data: trace.frame.clone(),
    };
    writeln!(out, "packet: {}", packet_line(&arrived)?)?;
    if let Some(device) = &trace.device {
        writeln!(out, "device: {device}")?;
    }
    writeln!(out, "parse: {}", trace.parse)?;
    if let (Some(rpf), Some(source)) = (&trace.rpf, &trace.source) {
        write!(out, "source, rpf {rpf}, table {}: ", trace.table)?;
        write_answer(out, source, false)?;
    }
    for list in &trace.access_lists {
        writeln!(out, "access list {} {}: {}", list.name, list.direction, list.result)?;
        for (number, rule) in &list.rules {
            writeln!(out, "    {number}: {rule}")?;
        }
    }
    if let Some(destination) = &trace.destination {
        write!(out, "destination, table {}: ", trace.table)?;
        write_answer(out, destination, true)?;
    }
    if trace.held {
        let waiting = if trace.ends.is_empty() { "it" } else { "an ICMP error" };
        writeln!(out, "held: {waiting} waits for the MAC address of its next hop")?;
    }
    for end in &trace.ends {
        let end = CapturedPacket { time_ns: 0, ..end.clone() };
        writeln!(out, "end: {}", packet_line(&end)?)?;
    }
    Ok(())
}
