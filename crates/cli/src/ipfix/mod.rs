//! `fingerpost ipfix`: exports the flows of a running router by IPFIX (RFC 7011).
//!
//! ```text
//!   capture of arrivals and ends ─► FlowTable ─► records ─┐
//!   files of routes ─────────────► Origins ─► AS numbers ─┼─► Messages ─► collectors
//!   show interfaces ─────────────► names, templates ──────┘
//! ```
//!
//! With `--one-in 1` the octets and packets of all records are those that the workers received, and
//! the dropped ones those that they dropped, exactly: each packet is counted on arrival and where it ends.
//! Otherwise a record has what was sampled, and the collector multiplies it: templates announce the
//! rate. The interface that a flow leaves by is taken from its packets that end, and is 0 until one of them
//! is sampled.
//!
//! Packets that the exporter missed, and those in no flow (no IP, or damaged), are reported at each
//! refresh of the templates (RFC 7011, 4.1), as `ignoredPacketTotalCount`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use api::{CaptureDirection, CapturedPacket, Item};
use datapath::{Class, Verdict};

use crate::capture::packet_bytes;
use crate::export::{Collectors, SampleArgs, interfaces, stream, until};
use crate::stop::{SIGINT, SIGTERM, flag_on_signals};
use elements::{
    BIFLOW, COMMON, Element, FlowRecord, IPV4, IPV6, SAMPLED, SELECTOR, specifiers, values,
};
use flows::{FlowTable, Record, Timeouts};
use message::{FIRST_TEMPLATE, Messages, OPTIONS_TEMPLATES, TEMPLATES};
use origins::Origins;
use packet::observe;

mod elements;
mod flows;
mod message;
mod origins;
mod packet;
mod status;

/// The port of collectors (IANA).
const PORT: u16 = 4739;
/// The first bytes of a packet that are read: enough for tags, some extension headers and TCP.
const SNAP: u16 = 160;
/// The interval at which expired flows are exported, and the most of them each time, so that a
/// collector's buffer is not overrun.
const INTERVAL: Duration = Duration::from_millis(100);
const MOST_EXPIRED: usize = 2000;
/// The interval at which templates are sent again (RFC 7011, 8.4) and interfaces and files are read again.
const REFRESH: Duration = Duration::from_secs(10);
/// The records of the last export between two pauses.
const BURST: usize = 200;

/// The numbers of the templates.
const FLOWS_V4: u16 = FIRST_TEMPLATE;
const FLOWS_V6: u16 = FIRST_TEMPLATE + 1;
const SELECTION: u16 = FIRST_TEMPLATE + 2;
const INTERFACE: u16 = FIRST_TEMPLATE + 3;
const STATISTICS: u16 = FIRST_TEMPLATE + 4;

/// The options templates: the scope, and the elements with their lengths.
///
/// * observationDomainId; selectorId, selectorAlgorithm, samplingProbability, and the older
///   samplingInterval, the one rate that nfcapd, nfacctd, Akvorado and goflow2 all read. nfcapd 1.7.1
///   reads no selectorId that is a scope, and no rate beside a samplingAlgorithm; goflow2 takes a
///   samplingPacketInterval for the rate
/// * ingressInterface; interfaceName
/// * observationDomainId; exportedMessageTotalCount, exportedFlowRecordTotalCount,
///   ignoredPacketTotalCount
const OPTIONS: [(u16, &[(u16, u16)]); 3] = [
    (SELECTION, &[(149, 4), (302, 8), (304, 2), (311, 8), (34, 4)]),
    (INTERFACE, &[(10, 4), (82, VARIABLE)]),
    (STATISTICS, &[(149, 4), (41, 8), (42, 8), (164, 8)]),
];
/// The length of an element that has a length in each record (RFC 7011, 7).
const VARIABLE: u16 = u16::MAX;
/// selectorAlgorithm: uniform probabilistic sampling (RFC 5477).
const PROBABILISTIC: u16 = 4;

/// The arguments of `ipfix`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    sample: SampleArgs,
    /// The collector, an address or a name, with a port [default port: 4739]; may be given several times
    #[arg(long, value_name = "HOST[:PORT]", required = true)]
    collector: Vec<String>,
    /// Take AS numbers and BGP next hops from this file, as of `route get --table`; may be given several times
    #[arg(long, value_name = "FILE")]
    origins: Vec<PathBuf>,
    /// Both directions of a flow in one record (RFC 5103)
    #[arg(long)]
    biflow: bool,
    /// Seconds after which a flow that continues is exported
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    active_timeout: u64,
    /// Seconds after the last packet of a flow at which it is exported
    #[arg(long, value_name = "S", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    idle_timeout: u64,
    /// The most flows at once; a random one is exported for each beyond them
    #[arg(long, value_name = "N", default_value_t = 65536, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    flows: u32,
    /// The observation domain, by which a collector distinguishes exporters with one address
    #[arg(long, value_name = "N", default_value_t = 1)]
    domain: u32,
}

/// The flows, on their way to the collectors.
struct Exporter {
    collectors: Collectors,
    messages: Messages,
    flows: FlowTable,
    one_in: u32,
    is_biflow: bool,
    /// The kernel's indexes of the interfaces.
    indexes: BTreeMap<String, u32>,
    /// The packets so far: received, dropped, of no flow, and missed.
    received: u64,
    dropped: u64,
    ignored: u64,
    missed: u64,
    /// The records and messages so far.
    records: u64,
    sent: u64,
}

/// Returns the time since 1970.
fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

impl Exporter {
    /// Returns the elements of a family's records.
    fn elements(&self, of_family: &'static [Element]) -> impl Iterator<Item = &'static Element> {
        let biflow = if self.is_biflow { BIFLOW } else { &[] };
        let sampled = if self.one_in > 1 { SAMPLED } else { &[] };
        of_family.iter().chain(COMMON).chain(biflow).chain(sampled)
    }

    fn add(&mut self, set: u16, record: &[u8]) {
        let full = self.messages.add(set, record, now().as_secs() as u32);
        self.send(full);
    }

    fn flush(&mut self) {
        let rest = self.messages.take(now().as_secs() as u32);
        self.send(rest);
    }

    fn send(&mut self, message: Option<Vec<u8>>) {
        let Some(message) = message else { return };
        self.collectors.send(&message);
        self.sent += 1;
    }

    /// Sends the templates, and the records of options.
    fn refresh(&mut self) {
        for (template, family) in [(FLOWS_V4, IPV4), (FLOWS_V6, IPV6)] {
            let count = self.elements(family).count() as u16;
            let fields = specifiers(self.elements(family));
            self.add(TEMPLATES, &[&u16s(&[template, count])[..], &fields].concat());
        }
        let is_sampled = self.one_in > 1;
        let domain = self.messages.domain().to_be_bytes();
        for (template, fields) in OPTIONS {
            if template != SELECTION || is_sampled {
                // The first field is the scope.
                let head = u16s(&[template, fields.len() as u16, 1]);
                let fields = fields.iter().flat_map(|(id, octets)| u16s(&[*id, *octets]));
                self.add(OPTIONS_TEMPLATES, &head.into_iter().chain(fields).collect::<Vec<_>>());
            }
        }
        if is_sampled {
            let record = [
                &domain[..],
                &SELECTOR.to_be_bytes(),
                &PROBABILISTIC.to_be_bytes(),
                &f64::from(self.one_in).recip().to_be_bytes(),
                &self.one_in.to_be_bytes(),
            ];
            self.add(SELECTION, &record.concat());
        }
        for (name, index) in self.indexes.clone() {
            let name = name.as_bytes();
            self.add(INTERFACE, &[&index.to_be_bytes()[..], &[name.len() as u8], name].concat());
        }
        let ignored = self.ignored + self.missed;
        let counts = [self.sent, self.records, ignored].map(u64::to_be_bytes).concat();
        self.add(STATISTICS, &[&domain[..], &counts].concat());
        self.flush();
    }

    /// Counts a packet that has arrived or ended.
    fn count(&mut self, packet: &CapturedPacket) -> anyhow::Result<()> {
        let verdict = match &packet.verdict {
            Some(name) => Some(Verdict::with_name(name).context("a packet has no known verdict")?),
            None => None,
        };
        match verdict.map(Verdict::class) {
            None => self.received += 1,
            Some(Class::Dropped) => self.dropped += 1,
            Some(_) => {}
        }
        let Some(observed) = observe(packet_bytes(packet)?, packet.length.into()) else {
            self.ignored += u64::from(verdict.is_none());
            return Ok(());
        };
        let interface = self.indexes.get(&packet.interface).copied().unwrap_or(0);
        match verdict {
            None => self.flows.count_arrival(&observed, interface, packet.time_ns),
            Some(verdict) => {
                let egress = (packet.direction == CaptureDirection::Out).then_some(interface);
                self.flows.count_end(&observed, verdict, egress, packet.time_ns);
            }
        }
        Ok(())
    }

    /// Exports records.
    fn export(&mut self, records: &[Record], origins: &Origins) {
        self.records += records.len() as u64;
        for &(flow, reason) in records {
            let origins = [flow.key.src, flow.key.dst].map(|address| origins.of(address));
            let (template, family) = match flow.key.src {
                IpAddr::V4(_) => (FLOWS_V4, IPV4),
                IpAddr::V6(_) => (FLOWS_V6, IPV6),
            };
            let record = FlowRecord { flow, reason, origins };
            let record = values(self.elements(family), &record);
            self.add(template, &record);
        }
        self.flush();
    }
}

fn u16s(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn lock(exporter: &Mutex<Exporter>) -> MutexGuard<'_, Exporter> {
    exporter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Exports until Ctrl-C or the end of the router.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let collectors = Collectors::connect(&args.collector, PORT)?;
    let stop = flag_on_signals(&[SIGINT, SIGTERM])?;
    let mut origins = Origins::load(&args.origins)?;
    let timeouts = Timeouts {
        active: Duration::from_secs(args.active_timeout),
        idle: Duration::from_secs(args.idle_timeout),
    };
    let exporter = Mutex::new(Exporter {
        collectors,
        messages: Messages::new(args.domain),
        flows: FlowTable::new(args.flows as usize, args.biflow, timeouts),
        one_in: args.sample.one_in,
        is_biflow: args.biflow,
        indexes: BTreeMap::new(),
        received: 0,
        dropped: 0,
        ignored: 0,
        missed: 0,
        records: 0,
        sent: 0,
    });
    // The templates and the indexes are known before the first packet.
    refresh(args, &exporter)?;
    let results = thread::scope(|scope| {
        let packets = scope.spawn(|| packets(args, &exporter, &stop));
        let records = scope.spawn(|| records(args, &exporter, &mut origins, &stop));
        [packets, records]
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread has died")))
    });
    let mut exporter = exporter.into_inner().unwrap_or_else(PoisonError::into_inner);
    for part in exporter.flows.end_all().chunks(BURST) {
        exporter.export(part, &origins);
        thread::sleep(Duration::from_millis(1));
    }
    exporter.refresh();
    let Exporter { received, dropped, ignored, missed, records, sent, .. } = exporter;
    eprintln!(
        "fingerpost: {records} records in {sent} messages: {received} packets received, {dropped} dropped; \
         {ignored} of no flow, {missed} missed"
    );
    results.into_iter().collect::<anyhow::Result<()>>()?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the interfaces again, and sends the templates.
fn refresh(args: &Args, exporter: &Mutex<Exporter>) -> anyhow::Result<()> {
    let interfaces = interfaces(&args.sample.socket)?;
    let mut exporter = lock(exporter);
    exporter.indexes = interfaces.into_iter().map(|one| (one.name, one.index)).collect();
    exporter.refresh();
    Ok(())
}

/// Counts packets.
fn packets(args: &Args, exporter: &Mutex<Exporter>, stop: &AtomicBool) -> anyhow::Result<()> {
    let verdicts = Verdict::ALL.iter().map(|verdict| verdict.name().to_owned()).collect();
    stream(&args.sample, verdicts, SNAP, stop, |item| {
        match item {
            Item::Packet(packet) => lock(exporter).count(&packet)?,
            Item::Capture(state) => lock(exporter).missed = state.lost,
            _ => {}
        }
        Ok(())
    })
}

/// Exports the records of expired flows.
fn records(
    args: &Args,
    exporter: &Mutex<Exporter>,
    origins: &mut Origins,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut last_refresh = Instant::now();
    until(stop, || {
        thread::sleep(INTERVAL);
        if last_refresh.elapsed() >= REFRESH && !stop.load(Ordering::Relaxed) {
            last_refresh = Instant::now();
            refresh(args, exporter)?;
            origins.refresh();
        }
        let mut exporter = lock(exporter);
        let due = exporter.flows.expire(now().as_nanos() as u64, MOST_EXPIRED);
        exporter.export(&due, origins);
        Ok(())
    })
}
