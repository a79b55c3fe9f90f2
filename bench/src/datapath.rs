//! `fingerpost-bench datapath`: packets a second without I/O, on one core.
//!
//! ```text
//!   pool of frames ─► Replay "in" ─► Worker::poll: parse, lookup, rewrite ─► Replay "out"
//! ```
//!
//! The timed part is the whole of [`Worker::poll`], including the copy out of the pool that stands
//! for a driver. Destinations are drawn at random from the table: a route, then an address in it.
//! First the whole pool goes through once, and the number of sent packets is compared with single
//! lookups of all destinations; then time is measured in windows.
//!
//! Five features cost more, and are measured apart: with `--members` every route leads to a group
//! of next hops; with `--sources` the route back to each source is looked up too, and sources are
//! drawn as destinations are; with `--vlans` every packet arrives with the tag of one of as many VLAN
//! devices, in turn, and leaves with the tag of another device; with `--queue` they leave through the queue of a
//! link that is faster than the worker; with `--rules` each packet is examined by
//! an access list of so many rules (`acl.rs`), and none of them is denied; few of the rules are about
//! their addresses, as in the first case of `acl.rs`.
//!
//! With `--capture` a capture takes one packet in so many in every second window, and the windows
//! with it are a case of their own. With `--damaged` one packet in so many is dropped, and among the
//! last drops.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use datapath::capture::Conditions;
use datapath::stats::WorkerStats;
use datapath::{
    AccessLists, Adjacencies, Adjacency, AppliedList, DeviceQueue, FIRST_STACKED, Group, Ingress,
    Ingresses, Locals, PRIORITIES, PortQueue, PortQueues, ReversePathFilter, StackedDevice, Tables,
    VlanTable, VlanTag, Worker, WorkerSetup, wants,
};
use fib::{Choice, Family, Fib, Hop, Prefix, Publisher, Reader, Rib, Updater};
use output::progress;
use port::memory::{Pool, Replay, Sink};
use port::{Arena, Port};
use qos::{EgressQueueParameters, SharedPacer};
use serde::Serialize;
use wire::{ethernet, ipv4, ipv6};

use super::Setting;
use super::clock::{Clock, Summary, hertz, pin};
use super::keys::Stream;
use super::record::Figure;

const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];
/// The router's own address; a destination equal to it would be punted.
const OWN: u32 = 0xc000_0201;
/// Frames in the pool.
const PACKETS: usize = 1 << 20;
/// Parts of the time, each measured on its own.
const WINDOWS: u32 = 30;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// The IPv4 engine
    #[arg(long, value_name = "NAME", default_value = "auto")]
    engine: String,
    /// The IPv6 engine
    #[arg(long, value_name = "NAME", default_value = "auto")]
    engine6: String,
    /// Seconds a case is measured
    #[arg(long, value_name = "S", default_value_t = 6.0)]
    seconds: f64,
    /// Next hops of each route, a group if there are several
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    members: u8,
    /// Check sources too: those without a route are dropped
    #[arg(long)]
    sources: bool,
    /// VLAN devices by which packets arrive; they leave by another one
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=4000))]
    vlans: u16,
    /// Packets leave through an egress queue
    #[arg(long)]
    queue: bool,
    /// Bytes of a frame of the workers' memory: 2048, or 4096 as for a large MTU
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    frame_size: u32,
    /// Rules of an access list by which packets are examined as they arrive
    #[arg(long, value_name = "N", default_value_t = 0)]
    rules: usize,
    /// One packet in so many has another IP version in its header, and is dropped
    #[arg(long, value_name = "N", default_value_t = 0)]
    damaged: usize,
    /// A capture takes one packet in so many in every second window
    #[arg(long, value_name = "N", default_value_t = 0)]
    capture: u32,
    /// The core
    #[arg(long, value_name = "N", default_value_t = 0)]
    core: usize,
}

/// One case's figures.
#[derive(Serialize)]
struct Score {
    case: String,
    engine: String,
    routes: usize,
    bytes: usize,
    /// Million packets a second.
    #[serde(flatten)]
    summary: Summary,
    /// Cycles a packet at the clock that the kernel states, if it does.
    cycles: Option<f64>,
    /// The share of packets that were forwarded; the others have no route or a
    /// destination that is never forwarded.
    sent: f64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.seconds > 0.0, "--seconds {}: some time is needed", args.seconds);
    let routes = args.setting.routes()?;
    ensure!(
        !routes.v4.is_empty() && !routes.v6.is_empty(),
        "{}: a table of each family is needed (give --table twice)",
        routes.name
    );
    pin(args.core);
    let v4 = table(&routes.v4, &args.engine)?;
    let v6 = table(&routes.v6, &args.engine6)?;
    let keys4 = Stream::Pfx.keys::<u32>(PACKETS, &routes.v4);
    let keys6 = Stream::Pfx.keys::<u128>(PACKETS, &routes.v6);
    // Access lists have rules about sources.
    let drawn = args.sources || args.rules > 0;
    let right4 = right(&keys4, drawn, args.damaged, |key| forwards4(v4.fib(), key));
    let right6 = right(&keys6, drawn, args.damaged, |key| forwards6(v6.fib(), key));
    let readers = || Tables::single(v4.reader(), v6.reader());
    let hops = routes.v4.iter().map(|r| r.1).chain(routes.v6.iter().map(|r| r.1)).max();
    let adjacencies =
        Publisher::new(adjacencies(hops.unwrap_or(Hop::NONE), args.members, args.vlans));
    let mut scores = Vec::new();
    let options =
        [(args.members > 1, " groups"), (args.sources, " sources"), (args.queue, " queue")];
    let mut options: String =
        options.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
    if args.vlans > 0 {
        options += &format!(" VLANs {}", args.vlans);
    }
    if args.rules > 0 {
        options += &format!(" {} rules", args.rules);
    }
    if args.damaged > 0 {
        options += &format!(" 1 in {} damaged", args.damaged);
    }
    if args.frame_size != 2048 {
        options += &format!(" frames of {}", args.frame_size);
    }
    let access = Publisher::new(access_lists(args.rules, &routes.v4)?);
    for (case, fib, count) in [
        ("IPv4 64 bytes", format!("{:?}", v4.fib()), routes.v4.len()),
        ("IPv6 64 bytes", format!("{:?}", v6.fib()), routes.v6.len()),
    ] {
        let is_v4 = case.starts_with("IPv4");
        let (bytes, engine) = if is_v4 {
            (v4.fib().footprint(), v4.fib().name())
        } else {
            (v6.fib().footprint(), v6.fib().name())
        };
        let pool: Pool = if is_v4 {
            let frame = |(dst, src)| frame_v4(dst, drawn.then_some(src));
            damaged(tagged(pairs(&keys4).map(frame), args.vlans), args.damaged).collect()
        } else {
            let frame = |(dst, src)| frame_v6(dst, drawn.then_some(src));
            damaged(tagged(pairs(&keys6).map(frame), args.vlans), args.damaged).collect()
        };
        let right = if is_v4 { right4 } else { right6 };
        let case = format!("{case}{options}");
        let what = format!("{case}, {fib}");
        let windows = progress::during(&what, || {
            let worker = |source| {
                let worker = worker(readers(), adjacencies.reader(), source, args)?;
                Ok(worker.with_access_lists(access.reader(), 0))
            };
            prove(worker, pool.clone(), right)?;
            windows(worker, pool, args)
        })
        .with_context(|| format!("measuring {case}"))?;
        let captured = format!("{case} capture of 1 in {}", args.capture);
        for (case, windows) in [case, captured].into_iter().zip(windows) {
            let summary = Summary::of(&windows);
            scores.push(Score {
                case,
                engine: engine.clone(),
                routes: count,
                bytes,
                summary,
                cycles: hertz().map(|hertz| hertz / (summary.median * 1e6)),
                sent: right as f64 / PACKETS as f64,
            });
        }
    }
    args.setting.record(scores.iter().map(|score| Figure {
        bench: "datapath",
        table: &routes.name,
        routes: score.routes,
        contestant: &score.engine,
        case: &score.case,
        threads: 1,
        unit: "Mpackets/s",
        summary: score.summary,
        samples: WINDOWS as usize,
        bytes: score.bytes,
    }))?;
    print(args, &routes.name, &scores)?;
    Ok(ExitCode::SUCCESS)
}

fn table<A: Family>(routes: &[(Prefix<A>, Hop)], engine: &str) -> anyhow::Result<Updater<A>> {
    let choice = Choice::parse::<A>(engine).with_context(|| format!("engine {engine}"))?;
    let rib = Rib::from_sorted(routes.iter().copied());
    Updater::new(rib, choice, 2).with_context(|| format!("building {engine}"))
}

/// Walks the destinations, each with another of them as its source.
fn pairs<A: Copy>(keys: &[A]) -> impl Iterator<Item = (A, A)> {
    let sources = keys.iter().cycle().skip(keys.len() / 2);
    keys.iter().copied().zip(sources.copied())
}

/// Counts the packets that are to leave.
fn right<A: Copy>(
    keys: &[A],
    sources: bool,
    damaged: usize,
    forwards: impl Fn(A) -> bool,
) -> usize {
    let whole = pairs(keys).enumerate().filter(|(at, _)| !is_damaged(*at, damaged));
    whole.filter(|&(_, (dst, src))| forwards(dst) && (!sources || forwards(src))).count()
}

/// Returns whether the packet at this place is damaged, if one in so many is.
fn is_damaged(at: usize, one_in: usize) -> bool {
    one_in > 0 && at % one_in == one_in - 1
}

/// Damages one frame in so many.
fn damaged(frames: impl Iterator<Item = Vec<u8>>, one_in: usize) -> impl Iterator<Item = Vec<u8>> {
    frames.enumerate().map(move |(at, mut frame)| {
        if is_damaged(at, one_in)
            && let Some(first) = frame.get_mut(ethernet::LEN)
        {
            *first ^= 0x10;
        }
        frame
    })
}

/// Returns whether a packet to `dst` is to leave: RFC 1812, 5.3.7, written independently of the datapath.
fn forwards4(fib: &Fib<u32>, dst: u32) -> bool {
    let martian = matches!(dst >> 24, 0 | 127 | 224..) || dst >> 16 == 0xa9fe || dst == OWN;
    !martian && fib.lookup(dst).is_some()
}

fn forwards6(fib: &Fib<u128>, dst: u128) -> bool {
    let odd = dst <= 1 || dst >> 120 == 0xff || dst >> 118 == 0x3fa || dst >> 32 == 0xffff;
    !odd && fib.lookup(dst).is_some()
}

fn worker(
    tables: Tables,
    adjacencies: Reader<Adjacencies>,
    source: Replay,
    args: &Args,
) -> anyhow::Result<Worker<Tables>> {
    let ports: Vec<Box<dyn Port>> = vec![
        Box::new(source.with_mac(MAC)),
        Box::new(Replay::new("out", Pool::new(), Sink::Count)),
    ];
    let sources = if args.sources { ReversePathFilter::Loose } else { ReversePathFilter::Off };
    let locals = Arc::new(Locals::new([OWN], [1]));
    let ingress =
        Ingress { mac: Some(MAC), table: 0, locals, sources: [sources; 2], ..Ingress::default() };
    let mut devices = VlanTable::default();
    (1..=args.vlans).for_each(|id| devices.insert(ethernet::VLAN, id, FIRST_STACKED + id - 1));
    let below = Ingress { vlans: Arc::new(devices), ..ingress.clone() };
    let devices = vec![Some(ingress); args.vlans.into()];
    let ingresses = Ingresses::new([below]).with_stacked(devices);
    let queues = PortQueues {
        by_port: if args.queue { vec![None, Some(queue())] } else { Vec::new() },
        clock: clock(),
    };
    let worker = Worker::new(WorkerSetup {
        arena: Arena::new(2048 + queues.frames(), args.frame_size).context("memory for frames")?,
        ports,
        tables,
        adjacencies,
        ingresses: Publisher::new(ingresses).reader(),
        wants: wants().0,
        stats: Arc::new(WorkerStats::new()),
    });
    Ok(worker.with_egress_queues(queues))
}

/// Makes the queue of a link of 1 Tbit/s, which no worker fills.
fn queue() -> PortQueue {
    let own = DeviceQueue {
        parameters: EgressQueueParameters::default(),
        pacer: Some(Arc::new(SharedPacer::new(1_000_000_000_000, 24, 1))),
        worker: 0,
        within: None,
        weight: 1,
        requests_to: Arc::default(),
        counters: Arc::default(),
    };
    PortQueue { own, stacked: Vec::new(), host: None }
}

/// Returns the clock of the queues.
fn clock() -> Box<dyn Fn() -> u64 + Send> {
    let origin = Instant::now();
    Box::new(move || origin.elapsed().as_nanos() as u64)
}

/// Sends the pool through once and counts.
fn prove(
    worker: impl Fn(Replay) -> anyhow::Result<Worker<Tables>>,
    pool: Pool,
    right: usize,
) -> anyhow::Result<()> {
    let source = Replay::new("in", pool, Sink::Count).with_limit(PACKETS as u64);
    let mut worker = worker(source)?;
    while worker.poll() > 0 {}
    let counted = worker.stats().snapshot();
    ensure!(counted.balanced(), "received is not sent + punted + dropped: {counted:?}");
    ensure!(counted.received == PACKETS as u64, "{} of {PACKETS} received", counted.received);
    ensure!(counted.sent() == right as u64, "{} sent, {right} expected", counted.sent());
    Ok(())
}

/// Returns the million packets a second of each window: in turns without and with a capture, if there
/// is one.
fn windows(
    worker: impl Fn(Replay) -> anyhow::Result<Worker<Tables>>,
    pool: Pool,
    args: &Args,
) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut worker = worker(Replay::new("in", pool, Sink::Count))?;
    let stats = Arc::clone(worker.stats());
    let mut window = |length: Duration| {
        let (start, clock) = (Instant::now(), Clock::start());
        let mut packets = 0;
        while start.elapsed() < length {
            for _ in 0..256 {
                packets += worker.poll();
            }
        }
        packets as f64 / clock.seconds() / 1e6
    };
    window(Duration::from_millis(200));
    let length = Duration::from_secs_f64(args.seconds / f64::from(WINDOWS));
    if args.capture == 0 {
        return Ok(vec![(0..WINDOWS).map(|_| window(length)).collect()]);
    }
    let conditions =
        Conditions { one_in: args.capture, seed: 1, ..Conditions::every_end(u16::MAX) };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for number in 1..=WINDOWS {
        without.push(window(length));
        let before = stats.snapshot();
        let opened = stats.recorder().open(number, &conditions);
        let (slot, position) = opened.context("no session is free")?;
        with.push(window(length));
        stats.recorder().close(slot);
        let records = stats.recorder().live(position).context("no ring")?;
        let taken = records.records.len() as u64 + records.lost;
        let ended = stats.snapshot() - before;
        let expected = ended.received / u64::from(args.capture);
        ensure!(
            (expected / 2..=2 * expected + 10).contains(&taken),
            "{taken} packets captured of {}",
            ended.received
        );
    }
    Ok(vec![without, with])
}

/// Makes the list that received packets are examined by, if it has rules. All of its rules permit, so that
/// the packets that are to leave are the same.
fn access_lists(count: usize, table: &[(Prefix<u32>, Hop)]) -> anyhow::Result<AccessLists> {
    if count == 0 {
        return Ok(AccessLists::default());
    }
    let mut rules = super::acl::rules(count, table);
    rules.iter_mut().for_each(|rule| rule.action = acl::Action::Permit);
    let list = acl::AccessList::build("bench", true, rules).context("an access list")?;
    let list = Arc::new(acl::InstalledList::new(Arc::new(list), 1));
    let port = [(0, 0)];
    Ok(AccessLists::new(vec![AppliedList::new(list, |_| None)], port, []))
}

fn adjacencies(highest: Hop, members: u8, vlans: u16) -> Adjacencies {
    let mut adjacencies = Adjacencies::new();
    let device = |port, id| {
        let tag = VlanTag { protocol: ethernet::VLAN, id, priorities: [0; PRIORITIES] };
        Some(StackedDevice::new(&[port], &[tag]))
    };
    let devices = (1..=vlans).map(|id| device(0, id)).chain([device(1, 4094)]);
    adjacencies.set_stacked(devices.collect());
    let port = if vlans > 0 { FIRST_STACKED + vlans } else { 1 };
    let members = if members > 1 { u32::from(members) } else { 0 };
    for hop in 1..=highest.0 + members {
        let [_, high, middle, low] = hop.to_be_bytes();
        adjacencies.set(Hop(hop), Adjacency::new(port, [2, 0, 0, high, middle, low], MAC, 1500));
    }
    if members > 1 {
        let listed: Vec<_> = (1..=members).map(|member| (Hop(highest.0 + member), 1)).collect();
        let group = Arc::new(Group::of(&listed, &Group::default()));
        (1..=highest.0).for_each(|hop| adjacencies.set_group(Hop(hop), Arc::clone(&group)));
    }
    adjacencies
}

/// Adds to each frame the tag of one of `vlans` VLANs, if there are any.
fn tagged(frames: impl Iterator<Item = [u8; 60]>, vlans: u16) -> impl Iterator<Item = Vec<u8>> {
    (0..).zip(frames).map(move |(at, frame): (usize, _)| {
        let mut frame = frame.to_vec();
        if vlans > 0 {
            let [high, low] = ((at % usize::from(vlans)) as u16 + 1).to_be_bytes();
            frame.splice(12..12, [0x81, 0x00, high, low]);
        }
        frame
    })
}

/// A 64-byte frame without its check sequence, which never reaches software.
fn frame_v4(dst: u32, src: Option<u32>) -> [u8; 60] {
    let header = ipv4::Header {
        total_len: 46,
        ttl: 64,
        protocol: 17,
        src: src.unwrap_or(0xc633_6402),
        dst,
        ..Default::default()
    };
    frame(ethernet::IPV4, |packet| header.emit(packet).is_ok())
}

fn frame_v6(dst: u128, src: Option<u128>) -> [u8; 60] {
    let header = ipv6::Header {
        payload_len: 6,
        next_header: 17,
        hop_limit: 64,
        src: src.unwrap_or(0x2001_0db8 << 96 | 2),
        dst,
        ..Default::default()
    };
    frame(ethernet::IPV6, |packet| header.emit(packet).is_ok())
}

fn frame(kind: u16, emit: impl Fn(&mut [u8]) -> bool) -> [u8; 60] {
    let mut frame = [0; 60];
    let ether = ethernet::Header { dst: MAC, src: [2, 0, 0, 0, 9, 9], kind };
    let fits = ether.emit(&mut frame).is_ok_and(|at| emit(&mut frame[at..]));
    assert!(fits, "60 bytes hold an Ethernet and an IP header");
    frame
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, table: &str, scores: &[Score]) -> anyhow::Result<()> {
    if args.setting.output.json {
        println!("{}", serde_json::to_string_pretty(scores)?);
        return Ok(());
    }
    println!("{table}; one core, memory ports, median of {WINDOWS} windows");
    for score in scores {
        let Score { case, engine, routes, cycles, sent, .. } = score;
        let Summary { median, mad, min, max } = score.summary;
        print!("  {case}, {engine}, {routes} routes: {median:.2} ±{mad:.2} million packets/s");
        print!(" ({min:.2} to {max:.2}), {:.1} % sent", sent * 100.0);
        match cycles {
            Some(cycles) => println!(", {cycles:.0} cycles a packet at the stated clock"),
            None => println!(),
        }
    }
    Ok(())
}
