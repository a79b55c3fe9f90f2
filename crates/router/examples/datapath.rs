//! Measures the datapath without I/O: memory ports, 64-byte frames, destinations
//! drawn at random from a full table.
//!
//! ```text
//! cargo run --release -p fingerpost-router --example datapath -- [FILE4 [FILE6 [SECONDS]]]
//! ```
//!
//! One port replays packets that were made before, the other counts and discards.
//! What is timed is the whole of [`Worker::poll`]: the copy out of the pool that
//! stands for a driver, parsing, lookups, rewriting, staging. Half of the answers
//! could be wrong and the rate would be the same, so what was counted is checked
//! against a lookup of every destination one by one.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fib::{Choice, Family, Hop, Prefix, Rib, Updater};
use fingerpost_router::datapath::{
    Adjacencies, Adjacency, Locals, Tables, Verdict, Worker, WorkerSetup,
};
use fingerpost_router::stats::WorkerStats;
use port::memory::{Pool, Replay, Sink};
use port::{Arena, Port};
use wire::{ethernet, ipv4, ipv6};

const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];
/// Next hops that the labels of a file are spread over.
const HOPS: u32 = 64;
const PACKETS: usize = 1 << 20;
/// Parts of the time that are measured each on its own: the median and the best say
/// how much of a bad number is the neighbours'.
const WINDOWS: u32 = 30;

fn main() -> Result<(), Box<dyn Error>> {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let data = std::env::var("FINGERPOST_DATA").unwrap_or_else(|_| data.to_owned());
    let mut args = std::env::args().skip(1);
    let mut file = |name: &str| {
        args.next().unwrap_or_else(|| format!("{data}/{name}-20260730-routeviews-origin.dat.gz"))
    };
    let (file4, file6) = (file("ipv4"), file("ipv6"));
    let seconds = args.next().map_or(Ok(3.0), |text| text.parse::<f64>())?;

    let options = feed::Options::default();
    let v4 = feed::load(&file4, &options)?.v4;
    let v6 = feed::load(&file6, &options)?.v6;
    let hop = |label: feed::Label| Hop(1 + label.0 % HOPS);
    let v4: Vec<_> = v4.into_iter().map(|(prefix, label)| (prefix, hop(label))).collect();
    let v6: Vec<_> = v6.into_iter().map(|(prefix, label)| (prefix, hop(label))).collect();
    let tables4 = Updater::new(Rib::from_sorted(v4.iter().copied()), Choice::Auto, 2)?;
    let tables6 = Updater::new(Rib::from_sorted(v6.iter().copied()), Choice::Auto, 2)?;
    println!("IPv4: {} routes, {:?}", v4.len(), tables4.fib());
    println!("IPv6: {} routes, {:?}", v6.len(), tables6.fib());

    let mut rng = fastrand::Rng::with_seed(1);
    let keys4: Vec<u32> = (0..PACKETS).map(|_| draw(&mut rng, &v4)).collect();
    let keys6: Vec<u128> = (0..PACKETS).map(|_| draw(&mut rng, &v6)).collect();
    let frames4 = || keys4.iter().map(|&dst| frame_v4(dst)).collect::<Pool>();
    let frames6 = || keys6.iter().map(|&dst| frame_v6(dst)).collect::<Pool>();
    let mixed = || {
        let pairs = keys4.iter().zip(&keys6).take(PACKETS / 2);
        pairs.flat_map(|(&v4, &v6)| [frame_v4(v4), frame_v6(v6)]).collect::<Pool>()
    };

    let judge4 = |dst: u32| odd_v4(dst) || !tables4.fib().lookup(dst).is_some();
    let refused4 = keys4.iter().filter(|&&dst| judge4(dst)).count() as f64 / PACKETS as f64;
    for (name, pool, refused) in
        [("IPv4", frames4(), Some(refused4)), ("IPv6", frames6(), None), ("mixed", mixed(), None)]
    {
        let setup = WorkerSetup {
            arena: Arena::new(2048, 2048)?,
            ports: vec![
                Box::new(Replay::new("in", pool, Sink::Count).with_mac(MAC)) as Box<dyn Port>,
                Box::new(Replay::new("out", Pool::new(), Sink::Count)),
            ],
            tables: Tables { v4: tables4.reader(), v6: tables6.reader() },
            adjacencies: Arc::new(adjacencies()),
            locals: Arc::new(Locals::new([0xc000_0201], [1])),
            stats: Arc::new(WorkerStats::new()),
        };
        let mut worker = Worker::new(setup);
        run(&mut worker, 0.2);
        let before = worker.stats().snapshot();
        let mut windows: Vec<f64> =
            (0..WINDOWS).map(|_| run(&mut worker, seconds / f64::from(WINDOWS))).collect();
        windows.sort_by(f64::total_cmp);
        let counted = worker.stats().snapshot() - before;
        assert!(counted.balanced(), "received = sent + punted + dropped");
        let packets = counted.received as f64;
        if let Some(refused) = refused {
            let got = 1.0 - counted.sent() as f64 / packets;
            assert!((got - refused).abs() < 0.001, "{got} refused, {refused} expected");
        }
        print!("{name}:");
        for (what, ns) in [("median", windows[windows.len() / 2]), ("best", windows[0])] {
            print!(" {what} {:.2} million packets/s, {ns:.1} ns", 1e3 / ns);
            if let Some(hertz) = hertz() {
                print!(", {:.0} cycles at {:.2} GHz;", ns * hertz / 1e9, hertz / 1e9);
            }
        }
        println!(" {:.2} % sent", 100.0 * counted.sent() as f64 / packets);
        for (verdict, count) in
            counted.iter().filter(|&(verdict, count)| count > 0 && verdict != Verdict::Sent)
        {
            println!("  {}: {count}", verdict.name());
        }
    }
    Ok(())
}

/// Polls for so many seconds and returns the nanoseconds a packet for which this
/// thread was on a CPU, which is what a core of its own would have taken.
fn run(worker: &mut Worker<Tables>, seconds: f64) -> f64 {
    let (start, before) = (Instant::now(), on_cpu());
    let mut packets = 0;
    while start.elapsed().as_secs_f64() < seconds {
        for _ in 0..256 {
            packets += worker.poll();
        }
    }
    let time = match (on_cpu(), before) {
        (Some(after), Some(before)) => after - before,
        _ => start.elapsed(),
    };
    time.as_nanos() as f64 / packets as f64
}

/// Reads the time this thread has been on a CPU.
fn on_cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

/// Draws an address of a route that is drawn from the table.
fn draw<A: Family>(rng: &mut fastrand::Rng, routes: &[(Prefix<A>, Hop)]) -> A {
    let (prefix, _) = routes[rng.usize(..routes.len())];
    let host = rng.u128(..) & A::MAX.to_u128().checked_shr(prefix.len()).unwrap_or(0);
    A::from_u128(prefix.addr().to_u128() | host)
}

/// What the datapath refuses before a lookup, as far as these keys go.
fn odd_v4(dst: u32) -> bool {
    matches!(dst >> 24, 0 | 127 | 224..) || dst >> 16 == 0xa9fe || dst == 0xc000_0201
}

fn adjacencies() -> Adjacencies {
    let mut adjacencies = Adjacencies::new();
    for hop in 1..=HOPS {
        adjacencies.set(Hop(hop), Adjacency::new(1, [2, 0, 0, 0, 2, hop as u8], MAC, 1500));
    }
    adjacencies
}

/// A 64-byte frame without its check sequence, which never reaches software.
fn frame_v4(dst: u32) -> [u8; 60] {
    let mut frame = [0; 60];
    let ether = ethernet::Header { dst: MAC, src: [2, 0, 0, 0, 9, 9], kind: ethernet::IPV4 };
    let at = ether.emit(&mut frame).expect("it fits");
    let header = ipv4::Header {
        total_len: 46,
        ttl: 64,
        protocol: 17,
        src: 0xc633_6402,
        dst,
        ..Default::default()
    };
    header.emit(&mut frame[at..]).expect("it fits");
    frame
}

fn frame_v6(dst: u128) -> [u8; 60] {
    let mut frame = [0; 60];
    let ether = ethernet::Header { dst: MAC, src: [2, 0, 0, 0, 9, 9], kind: ethernet::IPV6 };
    let at = ether.emit(&mut frame).expect("it fits");
    let src = 0x2001_0db8 << 96 | 2;
    let header = ipv6::Header {
        payload_len: 6,
        next_header: 17,
        hop_limit: 64,
        src,
        dst,
        ..Default::default()
    };
    header.emit(&mut frame[at..]).expect("it fits");
    frame
}

/// Reads the clock of the first CPU as the kernel states it.
fn hertz() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    Some(line.split(':').nth(1)?.trim().parse::<f64>().ok()? * 1e6)
}
