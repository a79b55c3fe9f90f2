//! `fingerpost sflow`: exports packets, drops and interface counters of a running router by sFlow.
//!
//! ```text
//!   capture of arrivals, one in N ──► flow samples ──────┐
//!   last drops, twice a second ──► drop notices ─────────┼─► Exporter ─► datagrams ─► collectors
//!   show interfaces, every 20 s ──► counters samples ────┘
//! ```
//!
//! A flood of drops costs nothing more: the notices are of the drops that the workers keep, some of each
//! reason. Datagrams leave when they are full, and ten times a second.
//!
//! The number of packets that could have been sampled is N for each sample: exact with N = 1, and
//! otherwise an estimate with the error of the sample. Packets that the XDP program forwards or drops are
//! sampled as they arrive.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use api::{CapturedPacket, Interface, Item, Request};
use datapath::Verdict;

use crate::capture::packet_bytes;
use crate::client::{self, RESPONSE_TIMEOUT};
use crate::export::{Collectors, SampleArgs, interfaces, stream, until};
use crate::stop::{SIGINT, SIGTERM, flag_on_signals};
use datagram::{
    Datagrams, InterfaceCounters, Sampled, counters_sample, discarded_packet, flow_sample,
};

mod datagram;
mod reasons;

/// The port of collectors (IANA).
const PORT: u16 = 6343;
/// The interval at which dropped packets are read.
const DROPS_INTERVAL: Duration = Duration::from_millis(500);
/// The interval at which the thread of counters checks for the end.
const CHECK: Duration = Duration::from_millis(100);

/// The arguments of `sflow`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    sample: SampleArgs,
    /// The collector, an address or a name, with a port [default port: 6343]; may be given several times
    #[arg(long, value_name = "HOST[:PORT]", required = true)]
    collector: Vec<String>,
    /// The address by which the collector knows this router [default: the source address of its datagrams]
    #[arg(long, value_name = "ADDR")]
    agent: Option<IpAddr>,
    /// The most drop notices a second; 0 is none
    #[arg(long, value_name = "N", default_value_t = 100)]
    drops: u32,
    /// The bytes of each packet
    #[arg(long, value_name = "BYTES", default_value_t = 128, value_parser = clap::value_parser!(u16).range(14..=512))]
    header: u16,
    /// Seconds between the samples of an interface's counters
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
}

/// The samples of all sources, on their way to the collectors.
struct Exporter {
    collectors: Collectors,
    datagrams: Datagrams,
    start: Instant,
    /// The kernel's indexes of the interfaces.
    indexes: BTreeMap<String, u32>,
    /// The samples so far by interface: of packets, and of counters.
    packets: BTreeMap<u32, u32>,
    counters: BTreeMap<u32, u32>,
    /// The drop notices so far.
    notices: u32,
    /// The samples that were missed.
    lost: u32,
    sent: u64,
}

impl Exporter {
    fn uptime(&self) -> u32 {
        self.start.elapsed().as_millis() as u32
    }

    fn add(&mut self, sample: &[u8]) {
        let full = self.datagrams.add(sample, self.uptime());
        self.send(full);
    }

    fn flush(&mut self) {
        let rest = self.datagrams.take(self.uptime());
        self.send(rest);
    }

    fn send(&mut self, datagram: Option<Vec<u8>>) {
        let Some(datagram) = datagram else { return };
        self.collectors.send(&datagram);
        self.sent += 1;
    }

    /// Returns the index of an interface; that of a VLAN device is not known.
    fn index(&self, name: &str) -> u32 {
        self.indexes.get(name).copied().unwrap_or(0)
    }

    /// Adds a flow sample of a packet that has arrived.
    fn add_arrival(&mut self, packet: &CapturedPacket, one_in: u32) -> anyhow::Result<()> {
        let interface = self.index(&packet.interface);
        let number = self.packets.entry(interface).or_default();
        *number = number.wrapping_add(1);
        let (number, header, drops) = (*number, packet_bytes(packet)?, self.lost);
        let length = packet.length.into();
        let sampled = Sampled { number, interface, length, header: &header, drops };
        self.add(&flow_sample(&sampled, one_in, number.wrapping_mul(one_in)));
        Ok(())
    }

    /// Adds the notice of a dropped packet, one of so many since the start.
    fn add_drop(&mut self, packet: &CapturedPacket, dropped: u64) -> anyhow::Result<()> {
        self.notices = self.notices.wrapping_add(1);
        let verdict = packet.verdict.as_deref().and_then(Verdict::with_name);
        let verdict = verdict.context("a dropped packet has no known verdict")?;
        let header = packet_bytes(packet)?;
        let sampled = Sampled {
            number: self.notices,
            interface: self.index(&packet.interface),
            length: packet.length.into(),
            header: &header,
            drops: dropped.saturating_sub(self.notices.into()) as u32,
        };
        self.add(&discarded_packet(&sampled, reasons::reason(verdict)));
        Ok(())
    }

    /// Adds a sample of an interface's counters.
    fn add_counters(&mut self, interface: &Interface) {
        let index = interface.index;
        let number = self.counters.entry(index).or_default();
        *number = number.wrapping_add(1);
        let number = *number;
        let lost = |names: &[&str]| names.iter().filter_map(|name| interface.lost.get(*name)).sum();
        let of = InterfaceCounters {
            index,
            speed: speed(&interface.name),
            up: interface.up,
            received: [
                interface.received_bytes,
                interface.received,
                lost(&["rx_ring_full", "fill_empty", "rx_dropped", "undelivered"]),
            ],
            transmitted: [
                interface.transmitted_bytes,
                interface.transmitted,
                lost(&["tx_invalid", "tx_refused", "tx_dropped"]),
            ],
        };
        self.add(&counters_sample(number, &of));
    }
}

/// Returns the bits a second of an interface in this network namespace; 0 if the kernel does not report them.
fn speed(name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).unwrap_or_default();
    text.trim().parse::<u64>().map_or(0, |megabits| megabits * 1_000_000)
}

/// Exports until Ctrl-C or the end of the router.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let collectors = Collectors::connect(&args.collector, PORT)?;
    let source = collectors.source()?;
    let stop = flag_on_signals(&[SIGINT, SIGTERM])?;
    let exporter = Mutex::new(Exporter {
        collectors,
        datagrams: Datagrams::new(args.agent.unwrap_or(source)),
        start: Instant::now(),
        indexes: BTreeMap::new(),
        packets: BTreeMap::new(),
        counters: BTreeMap::new(),
        notices: 0,
        lost: 0,
        sent: 0,
    });
    // The indexes are known before the first packet.
    export_counters(args, &exporter)?;
    let results = thread::scope(|scope| {
        let threads = [
            scope.spawn(|| packets(args, &exporter, &stop)),
            scope.spawn(|| drops(args, &exporter, &stop)),
            scope.spawn(|| counters(args, &exporter, &stop)),
        ];
        threads.map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread has died")))
    });
    let mut exporter = exporter.into_inner().unwrap_or_else(PoisonError::into_inner);
    exporter.flush();
    let samples: u64 = exporter.packets.values().map(|number| u64::from(*number)).sum();
    eprintln!(
        "fingerpost: {} datagrams: {samples} packets sampled and {} missed, {} drops reported",
        exporter.sent, exporter.lost, exporter.notices
    );
    results.into_iter().collect::<anyhow::Result<()>>()?;
    Ok(ExitCode::SUCCESS)
}

/// Exports packets that arrive.
fn packets(args: &Args, exporter: &Mutex<Exporter>, stop: &AtomicBool) -> anyhow::Result<()> {
    stream(&args.sample, Vec::new(), args.header, stop, |item| {
        let mut exporter = exporter.lock().unwrap_or_else(PoisonError::into_inner);
        match item {
            Item::Packet(packet) => exporter.add_arrival(&packet, args.sample.one_in)?,
            Item::Capture(state) => {
                exporter.lost = state.lost as u32;
                exporter.flush();
            }
            _ => {}
        }
        Ok(())
    })
}

/// Returns the number of dropped packets, and the last ones.
fn last_drops(args: &Args) -> anyhow::Result<(u64, Vec<CapturedPacket>)> {
    let (mut dropped, mut last) = (0, Vec::new());
    let mut take = |item| {
        match item {
            Item::Counters(counters) => dropped = counters.dropped.values().sum(),
            Item::Packet(packet) => last.push(packet),
            _ => {}
        }
        Ok(())
    };
    // In this order: the counters have every packet that is among the last drops.
    client::send(&args.sample.socket, &Request::LastDrops, RESPONSE_TIMEOUT, &mut take)?;
    client::send(&args.sample.socket, &Request::Counters, RESPONSE_TIMEOUT, &mut take)?;
    Ok((dropped, last))
}

/// Exports dropped packets, some of each reason.
fn drops(args: &Args, exporter: &Mutex<Exporter>, stop: &AtomicBool) -> anyhow::Result<()> {
    if args.drops == 0 {
        return Ok(());
    }
    let (before, old) = last_drops(args)?;
    let mut since = old.iter().map(|packet| packet.time_ns).max().unwrap_or(0);
    until(stop, || {
        thread::sleep(DROPS_INTERVAL);
        let (dropped, last) = last_drops(args)?;
        let most = (f64::from(args.drops) * DROPS_INTERVAL.as_secs_f64()).ceil() as usize;
        let mut exporter = exporter.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in last.iter().filter(|packet| packet.time_ns > since).take(most) {
            exporter.add_drop(packet, dropped.saturating_sub(before))?;
        }
        since = last.iter().map(|packet| packet.time_ns).max().unwrap_or(since).max(since);
        Ok(())
    })
}

/// Exports the counters of all interfaces, again and again.
fn counters(args: &Args, exporter: &Mutex<Exporter>, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut last = Instant::now();
    until(stop, || {
        thread::sleep(CHECK);
        if last.elapsed() < Duration::from_secs(args.interval) {
            return Ok(());
        }
        last = Instant::now();
        export_counters(args, exporter)
    })
}

/// Exports the counters of all interfaces.
fn export_counters(args: &Args, exporter: &Mutex<Exporter>) -> anyhow::Result<()> {
    let interfaces = interfaces(&args.sample.socket)?;
    let mut exporter = exporter.lock().unwrap_or_else(PoisonError::into_inner);
    exporter.indexes = interfaces.iter().map(|one| (one.name.clone(), one.index)).collect();
    interfaces.iter().for_each(|interface| exporter.add_counters(interface));
    exporter.flush();
    Ok(())
}
