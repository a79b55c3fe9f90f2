//! `fingerpost-bench acl`: nanoseconds a packet to find its rule in access lists of ten to ten thousand
//! rules, and in a linear search.
//!
//! The rules are about prefixes of the table, in the mix of an edge router's list: sources that are
//! denied, services that are permitted, ports that are denied, and pairs of networks ([`rules`]). Two cases
//! differ in the packets' sources and destinations:
//!
//! - drawn from the table: few rules are about any of them. The classifier does not read their ports; for the
//!   linear search it is the worst case.
//! - drawn from the rules of each list: a packet has the addresses of one rule. The classifier reads all fields
//!   of most packets.
//!
//! Before time is measured, packets are examined by the slow twin, and the results are compared. The lists
//! take turns: each window measures all of them.

use std::process::ExitCode;
use std::time::Instant;

use acl::{AccessList, Addresses, Matcher, PacketFamily, Rule};
use anyhow::{Context, ensure};
use fastrand::Rng;
use fib::{Hop, Prefix};
use output::progress;
use serde::Serialize;
use wire::ipv4;

use super::Setting;
use super::clock::{Clock, Summary, pin};
use super::keys::Stream;
use super::record::Figure;

/// The packets of a batch, as in the datapath.
const BATCH: usize = 256;
const PACKETS: usize = 1 << 16;
const WINDOWS: usize = 15;
/// The packets that the slow twin examines.
const COMPARED: usize = 4096;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// Numbers of rules
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10,100,1000,10000")]
    rules: Vec<usize>,
    /// Seconds a list is measured
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// The core
    #[arg(long, value_name = "N", default_value_t = 0)]
    core: usize,
}

const OF_TABLE: &str = "addresses of the table";
const OF_RULES: &str = "addresses of rules";

/// A packet of 46 bytes.
type Packet = [u8; 46];

/// A way to find the rule of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Contestant {
    Classifier,
    Linear,
}

impl Contestant {
    fn name(self) -> &'static str {
        match self {
            Self::Classifier => "classifier",
            Self::Linear => "linear",
        }
    }
}

/// A list that is measured with some packets.
struct Entry<'e> {
    contestant: Contestant,
    case: &'static str,
    list: &'e AccessList,
    packets: &'e [Packet],
}

#[derive(Serialize)]
struct Score {
    contestant: Contestant,
    case: &'static str,
    rules: usize,
    bytes: usize,
    /// Nanoseconds a packet.
    #[serde(flatten)]
    summary: Summary,
    /// The median divided by that of the first list.
    ratio: f64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(!args.rules.is_empty(), "--rules: at least one number");
    let routes = args.setting.routes()?;
    ensure!(!routes.v4.is_empty(), "{}: an IPv4 table is needed", routes.name);
    pin(args.core);
    let keys = Stream::Pfx.keys::<u32>(2 * PACKETS, &routes.v4);
    let mut rng = Rng::with_seed(7);
    let packets: Vec<_> =
        keys.chunks_exact(2).map(|key| packet(&mut rng, key[0], key[1])).collect();
    let mut lists = Vec::new();
    for &count in &args.rules {
        let list = AccessList::build("bench", true, rules(count, &routes.v4)).context("a list")?;
        let of_rules: Vec<_> =
            keys.chunks_exact(2).map(|key| addressed(&mut rng, &list, key[0], key[1])).collect();
        for packets in [&packets, &of_rules] {
            compare(&list, packets).with_context(|| format!("{count} rules"))?;
        }
        lists.push((list, of_rules));
    }
    let contestant = Contestant::Classifier;
    let of_table =
        lists.iter().map(|(list, _)| Entry { contestant, case: OF_TABLE, list, packets: &packets });
    let of_rules =
        lists.iter().map(|(list, packets)| Entry { contestant, case: OF_RULES, list, packets });
    let linear = Entry {
        contestant: Contestant::Linear,
        case: OF_TABLE,
        list: &lists[0].0,
        packets: &packets,
    };
    let entries: Vec<_> = of_table.chain(of_rules).chain([linear]).collect();
    let mut times = vec![Vec::new(); entries.len()];
    progress::during("classifying packets", || {
        let mut matcher = Matcher::new(BATCH);
        let seconds = args.seconds / WINDOWS as f64;
        for _ in 0..WINDOWS {
            for (&Entry { contestant, list, packets, .. }, times) in entries.iter().zip(&mut times)
            {
                times.push(match contestant {
                    Contestant::Linear => window(seconds, packets, |packets| search(list, packets)),
                    Contestant::Classifier => window(seconds, packets, |packets| {
                        let mut sum = 0_u32;
                        classify(list, &mut matcher, packets, |_, rule| {
                            sum = sum.wrapping_add(rule.unwrap_or(0));
                        });
                        sum
                    }),
                });
            }
        }
    });
    let first = Summary::of(&times[0]).median;
    let scores: Vec<_> = entries
        .iter()
        .zip(&times)
        .map(|(&Entry { contestant, case, list, .. }, times)| {
            let summary = Summary::of(times);
            let (rules, bytes) = (list.rules().len(), list.footprint());
            Score { contestant, case, rules, bytes, summary, ratio: summary.median / first }
        })
        .collect();
    args.setting.record(scores.iter().map(|score| Figure {
        bench: "acl",
        table: &routes.name,
        routes: score.rules,
        contestant: score.contestant.name(),
        case: score.case,
        threads: 1,
        unit: "ns/packet",
        summary: score.summary,
        samples: WINDOWS,
        bytes: score.bytes,
    }))?;
    print(args, &routes.name, &scores)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes `count` rules about the prefixes of a table.
pub(super) fn rules(count: usize, table: &[(Prefix<u32>, Hop)]) -> Vec<Rule> {
    let mut rng = Rng::with_seed(18);
    let longer: Vec<_> = table.iter().filter(|(prefix, _)| prefix.len() >= 20).collect();
    let ports = [22_u16, 25, 53, 80, 123, 179, 443, 445, 3389, 8080];
    (0..count)
        .map(|_| {
            let mut prefix = || longer[rng.usize(..longer.len())].0;
            let (one, other) = (prefix(), prefix());
            let port = if rng.bool() { ports[rng.usize(..ports.len())] } else { rng.u16(1024..) };
            let text = match rng.u8(..10) {
                0..4 => format!("deny from {one}"),
                4..7 => format!("permit to {one} ipproto tcp dport {port},{}", port / 2),
                7..9 => format!("deny to {one} ipproto udp dport {}-{port}", port / 3),
                _ => format!("deny from {one} to {other}"),
            };
            Rule::parse(&text, &|_| None).expect("a rule of a known form")
        })
        .collect()
}

/// A packet with the addresses of a rule of the list; `src` and `dst` where the rule has none.
fn addressed(rng: &mut Rng, list: &AccessList, src: u32, dst: u32) -> Packet {
    let rule = &list.rules()[rng.usize(..list.rules().len())];
    let mut within = |addresses: &Option<Addresses>, other: u32| {
        let prefix = addresses.as_ref().and_then(|addresses| addresses.v4.first());
        prefix.map_or(other, |prefix| {
            let host = u32::MAX.checked_shr(prefix.len()).unwrap_or(0);
            prefix.addr() | rng.u32(..) & host
        })
    };
    let (src, dst) = (within(&rule.from, src), within(&rule.to, dst));
    packet(rng, src, dst)
}

/// A TCP or UDP packet.
fn packet(rng: &mut Rng, src: u32, dst: u32) -> Packet {
    let protocol = if rng.bool() { 6 } else { 17 };
    let header = ipv4::Header { total_len: 46, ttl: 64, protocol, src, dst, ..Default::default() };
    let mut packet = [0; 46];
    header.emit(&mut packet).expect("46 bytes hold a header");
    rng.fill(&mut packet[20..24]);
    packet
}

fn compare(list: &AccessList, packets: &[Packet]) -> anyhow::Result<()> {
    let mut matcher = Matcher::<u32>::new(BATCH);
    for batch in packets[..COMPARED].chunks(BATCH) {
        let rule = |packet: &Packet| {
            let fields = u32::fields(packet).context("a packet without fields")?;
            anyhow::Ok(list.matches(&fields).next().map(|rule| rule as u32))
        };
        let slowly: Vec<_> = batch.iter().map(rule).collect::<Result<_, _>>()?;
        let mut quickly = vec![None; batch.len()];
        classify(list, &mut matcher, batch, |number, rule| quickly[usize::from(number)] = rule);
        ensure!(quickly == slowly, "{quickly:?} and not {slowly:?}");
    }
    Ok(())
}

/// Finds the rule of each packet that the address filter lets through, by its number.
#[inline(always)]
fn classify(
    list: &AccessList,
    matcher: &mut Matcher<u32>,
    packets: &[Packet],
    mut found: impl FnMut(u16, Option<u32>),
) {
    matcher.clear();
    for (number, packet) in (0..).zip(packets) {
        matcher.push(list.v4(), number, packet);
    }
    matcher.classify(list.v4(), |number| {
        packets.get(usize::from(number)).map_or(&[], |packet| packet)
    });
    for at in 0..matcher.numbers().len() {
        found(matcher.packet(at).0, matcher.first(list.v4(), at, 0));
    }
}

fn search(list: &AccessList, packets: &[Packet]) -> u32 {
    let rule = |packet: &Packet| {
        let fields = u32::fields(packet)?;
        list.matches(&fields).next().map(|rule| rule as u32)
    };
    packets.iter().filter_map(rule).fold(0, u32::wrapping_add)
}

/// Returns the nanoseconds a packet in a window of some seconds.
fn window(seconds: f64, packets: &[Packet], mut examine: impl FnMut(&[Packet]) -> u32) -> f64 {
    let (start, clock) = (Instant::now(), Clock::start());
    let (mut count, mut sum) = (0, 0_u32);
    while start.elapsed().as_secs_f64() < seconds {
        for batch in packets.chunks(BATCH) {
            sum = sum.wrapping_add(examine(batch));
            count += batch.len();
        }
    }
    std::hint::black_box(sum);
    clock.seconds() * 1e9 / count as f64
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, table: &str, scores: &[Score]) -> anyhow::Result<()> {
    if args.setting.output.json {
        println!("{}", serde_json::to_string_pretty(scores)?);
        return Ok(());
    }
    println!("{table}; one core, batches of {BATCH} IPv4 packets, median of {WINDOWS} windows");
    for Score { contestant, case, rules, bytes, summary, ratio } in scores {
        let Summary { median, mad, min, max } = summary;
        print!("  {}, {rules} rules, {case}: {median:.1} ±{mad:.1} ns a packet", contestant.name());
        println!(" ({min:.1} to {max:.1}), {ratio:.2} times the first, {} KiB", bytes / 1024);
    }
    Ok(())
}
