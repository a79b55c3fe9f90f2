//! `fingerpost policy test`: what another policy would have made of packets that were recorded.
//!
//! ```text
//!   --recorded   requests that a grantor has kept ─► both policies, each request      gate::grantor::Shadow
//!   --pcap FILE  any capture ─► a gate and a grantor for each policy                  gate::grantor::Trial
//!                                          └─► flows whose outcome would change
//! ```
//!
//! What was recorded had passed a gate, and asks as it asked then. A capture taken elsewhere has
//! seen no gate, so each policy gets one of its own, which lets through what its policy granted, at
//! the rate it granted, in the capture's time. Neither touches an interface. Exit status 0 whether
//! or not anything would change: it is a question, not a check.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Subcommand;
use fib::Publisher;
use flate2::read::MultiGzDecoder;
use gate::flow::{Flow, Pair};
use gate::grantor::{Fate, Grantor, Lists, Request, Shadow, Trial, open};
use gate::program::{Program, Programs};
use router::control::api::{Changed, GrantorTold, ShadowTold};
use router::grantor::{Config, Record};
use serde::Serialize;
use wire::ethernet;

use crate::progress;

/// The flows of a trial's table.
const ENTRIES: usize = 1 << 20;

/// What `policy` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Try another policy on recorded packets, and list the flows whose outcome would change
    Test(Test),
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("packets").required(true))]
struct Test {
    /// The other policy, in Lua
    #[arg(value_name = "POLICY.lua")]
    candidate: PathBuf,
    /// The grantor's configuration: its policy, lists and limits
    #[arg(short, long, value_name = "FILE", default_value = crate::grantor::CONFIG)]
    config: PathBuf,
    /// A capture (.pcap, .pcapng, also .gz) of packets to the protected network
    #[arg(long, value_name = "FILE", group = "packets")]
    pcap: Option<PathBuf>,
    /// The requests that the grantor has recorded (`[policy] record`)
    #[arg(long, group = "packets")]
    recorded: bool,
    /// A flow program that decisions may name, beside those of the configuration; with --pcap
    #[arg(long, value_name = "NUMBER=FILE.o")]
    program: Vec<String>,
    /// List at most so many flows, those that change most first
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    flows: usize,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// What came of a test.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    /// Packets that were read.
    packets: u64,
    /// Those that were no IP packets, or cut short.
    unread: u64,
    /// Flows among them; of a capture only.
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<u64>,
    /// What each policy would have let through; of a capture only.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Passed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidate: Option<Passed>,
    /// Requests that both were asked about, and how often they differ; of records only.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    changes: BTreeMap<String, u64>,
    /// Times that the candidate failed, and its last error.
    failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// How many flows would fare differently: of records, at most 256 are told apart.
    changed: u64,
    /// Those that change most.
    changed_flows: Vec<Changed>,
}

/// What passes by a policy.
#[derive(Debug, Default, Serialize)]
struct Passed {
    packets: u64,
    bytes: u64,
    /// Packets that the policy was asked about.
    asked: u64,
}

/// Tests a policy.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Verb::Test(args) = &args.verb;
    let config = Config::load(&args.config)?;
    let text = std::fs::read_to_string(&args.candidate)
        .with_context(|| args.candidate.display().to_string())?;
    let lists = Publisher::new(config.lists.clone());
    let policy = load(&config.policies.policy, &lists, &config)
        .with_context(|| format!("{}: the policy", args.config.display()))?;
    let candidate =
        load(&text, &lists, &config).with_context(|| args.candidate.display().to_string())?;
    let mut outcome = match &args.pcap {
        Some(path) => {
            let programs = programs(&config, &args.program)?;
            progress::during("replaying", || replay(path, policy, candidate, &programs))?
        }
        None => {
            let record = config.fixed.record.as_ref().with_context(|| {
                format!("{}: nothing is recorded; set `[policy] record`", args.config.display())
            })?;
            progress::during("asking", || ask(record, policy, candidate))?
        }
    };
    outcome.changed_flows.truncate(args.flows);
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &outcome)?;
        writeln!(out)?;
    } else {
        tell(&mut out, &outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn load(text: &str, lists: &Publisher<Lists>, config: &Config) -> anyhow::Result<Grantor> {
    Ok(Grantor::new(text, lists.reader(), config.fixed.limits)?)
}

/// Has the programs that the grantor sends to its gates, and reads `NUMBER=FILE.o`, each.
fn programs(config: &Config, named: &[String]) -> anyhow::Result<Programs> {
    let mut programs = Programs::default();
    for sent in &config.programs {
        let program = Program::load(sent.object()).with_context(|| sent.name().to_owned())?;
        programs.set(sent.number(), Some(Arc::new(program)));
    }
    for name in named {
        let parts = name
            .split_once('=')
            .and_then(|(number, file)| Some((number.parse::<u8>().ok()?, file)));
        let Some((number, file)) = parts else {
            bail!("--program {name}: not NUMBER=FILE.o with a number up to 255");
        };
        let bytes = std::fs::read(file).with_context(|| file.to_owned())?;
        let program = Program::load(&bytes).with_context(|| file.to_owned())?;
        programs.set(number, Some(Arc::new(program)));
    }
    Ok(programs)
}

/// Hands out each packet of a capture from its IP header on, with its time in nanoseconds since
/// the first, which only grows; counts those that are of no IP.
fn packets(path: &Path, mut each: impl FnMut(u64, &mut [u8])) -> anyhow::Result<u64> {
    let file = BufReader::new(File::open(path).with_context(|| path.display().to_string())?);
    let packed = path.extension().is_some_and(|extension| extension == "gz");
    let reader: Box<dyn Read + Send> =
        if packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let (mut first, mut now, mut others) = (None, 0, 0);
    port::pcap::read_each(path, reader, |time, frame| {
        let since = time.saturating_sub(*first.get_or_insert(time));
        now = now.max(since.as_nanos() as u64);
        match inner(frame) {
            Some(packet) => each(now, &mut packet.to_vec()),
            None => others += 1,
        }
    })?;
    Ok(others)
}

/// Returns the IP packet of a frame, with one VLAN tag or none.
fn inner(frame: &[u8]) -> Option<&[u8]> {
    const VLAN: [u8; 2] = [0x81, 0];
    let kind = frame.get(12..14)?;
    let (kind, at) =
        if kind == VLAN { (frame.get(16..18)?, ethernet::LEN + 4) } else { (kind, ethernet::LEN) };
    let ip = kind == ethernet::IPV4.to_be_bytes() || kind == ethernet::IPV6.to_be_bytes();
    frame.get(at..).filter(|_| ip)
}

/// Has a gate and a grantor for each policy make what they would of a capture.
fn replay(
    path: &Path,
    policy: Grantor,
    candidate: Grantor,
    programs: &Programs,
) -> anyhow::Result<Outcome> {
    let mut policy = Trial::new(ENTRIES, policy, programs.clone());
    let mut candidate = Trial::new(ENTRIES, candidate, programs.clone());
    let mut count = 0;
    let others = packets(path, |now, packet| {
        count += 1;
        policy.packet(now, packet);
        candidate.packet(now, packet);
    })?;
    let failed = candidate.counts().failed + candidate.counts().over_time;
    let last_error = candidate.last_error();
    let ((was, unread), (will, _)) = (policy.end(), candidate.end());
    // Both have seen the same packets.
    let mut changed: Vec<(&Flow, &Fate, Fate)> = was
        .iter()
        .map(|(flow, fate)| (flow, fate, will.get(flow).copied().unwrap_or_default()))
        .filter(|(_, was, will)| was.passed != will.passed || was.last != will.last)
        .collect();
    changed.sort_unstable_by_key(|(flow, was, will)| {
        (std::cmp::Reverse(was.passed_bytes.abs_diff(will.passed_bytes)), addresses(flow))
    });
    let passed = |fates: &mut dyn Iterator<Item = &Fate>| {
        fates.fold(Passed::default(), |sum, fate| Passed {
            packets: sum.packets + fate.passed,
            bytes: sum.bytes + fate.passed_bytes,
            asked: sum.asked + fate.asked,
        })
    };
    Ok(Outcome {
        packets: count + others,
        unread: unread + others,
        flows: Some(was.len() as u64),
        policy: Some(passed(&mut was.values())),
        candidate: Some(passed(&mut will.values())),
        failed,
        last_error,
        changed: changed.len() as u64,
        changed_flows: changed.iter().map(|(flow, was, will)| fared(flow, was, will)).collect(),
        ..Outcome::default()
    })
}

fn addresses(flow: &Flow) -> (std::net::IpAddr, std::net::IpAddr) {
    match flow.pair() {
        Pair::V4 { src, dst } => {
            (std::net::Ipv4Addr::from(src).into(), std::net::Ipv4Addr::from(dst).into())
        }
        Pair::V6 { src, dst } => {
            (std::net::Ipv6Addr::from(src).into(), std::net::Ipv6Addr::from(dst).into())
        }
    }
}

/// Says how a flow fares by either policy.
fn fared(flow: &Flow, was: &Fate, will: &Fate) -> Changed {
    let words = |fate: &Fate| {
        let said = fate.last.map_or("never asked".to_owned(), |last| last.to_string());
        format!("{said}; {} of {} packets pass", fate.passed, fate.packets)
    };
    let (source, destination) = addresses(flow);
    Changed {
        source,
        destination,
        policy: words(was),
        candidate: words(will),
        requests: was.asked.max(will.asked),
    }
}

/// Asks both policies about the requests that a grantor has kept.
fn ask(record: &Record, policy: Grantor, candidate: Grantor) -> anyhow::Result<Outcome> {
    let files = [Record::old(&record.path), record.path.clone()];
    let files: Vec<_> = files.iter().filter(|path| path.exists()).collect();
    if files.is_empty() {
        bail!("{}: nothing has been recorded yet", record.path.display());
    }
    let (mut policy, mut shadow) = (policy, Shadow::new(candidate));
    let (mut count, mut unread, mut before, mut last) = (0, 0, 0, 0);
    for path in files {
        unread += packets(path, |now, packet| {
            count += 1;
            last = before + now;
            let Ok(opened) = open(packet) else {
                unread += 1;
                return;
            };
            let packet = packet.get(opened.offset..opened.end).unwrap_or_default();
            let request = Request { packet, dscp: opened.dscp, congested: opened.congested };
            let mut decided = Vec::with_capacity(1);
            policy.decide(last, &[request], &mut decided);
            shadow.compare(last, &[request], &decided);
        })?;
        // How long it was between the two is not known.
        before = last;
    }
    let told = ShadowTold::of(&shadow);
    let changed = told.flows.len() as u64;
    Ok(Outcome {
        packets: count,
        unread,
        requests: Some(told.requests),
        changes: told.changes,
        failed: told.failed,
        last_error: shadow.last_error(),
        changed,
        changed_flows: told.flows,
        ..Outcome::default()
    })
}

fn tell(out: &mut impl Write, it: &Outcome) -> std::io::Result<()> {
    let Outcome { packets, unread, .. } = it;
    match (&it.policy, &it.candidate) {
        (Some(policy), Some(candidate)) => {
            let flows = it.flows.unwrap_or(0);
            writeln!(out, "{packets} packets of {flows} flows, {unread} of no IP")?;
            for (which, it) in [("policy", policy), ("candidate", candidate)] {
                let Passed { packets, bytes, asked } = it;
                writeln!(
                    out,
                    "{which:<10} {packets} packets pass, {bytes} bytes; asked about {asked}"
                )?;
            }
        }
        _ => {
            let requests = it.requests.unwrap_or(0);
            writeln!(out, "{requests} requests, {unread} unread")?;
        }
    }
    changes(out, &it.changes)?;
    if it.failed > 0 {
        let error = it.last_error.as_deref().unwrap_or("over its time");
        writeln!(out, "the candidate failed {} times: {error}", it.failed)?;
    }
    writeln!(out, "{} flows would fare differently", it.changed)?;
    it.changed_flows.iter().try_for_each(|it| flow(out, it))
}

fn changes(out: &mut impl Write, changes: &BTreeMap<String, u64>) -> std::io::Result<()> {
    for (change, count) in changes {
        let (was, will) = change.split_once('_').unwrap_or((change, ""));
        let how = if was == will { "otherwise" } else { "instead" };
        writeln!(out, "{count} {was}: {will} {how} by the candidate")?;
    }
    Ok(())
}

fn flow(out: &mut impl Write, it: &Changed) -> std::io::Result<()> {
    writeln!(out, "{} > {}", it.source, it.destination)?;
    writeln!(out, "    policy     {}", it.policy)?;
    writeln!(out, "    candidate  {}", it.candidate)
}

/// Writes what a grantor says of itself; numbers that are zero are left out.
pub(crate) fn grantor(out: &mut impl Write, it: &GrantorTold) -> std::io::Result<()> {
    let (reloads, refused) = (it.reloads, it.reloads_refused);
    writeln!(out, "policy read anew {reloads} times, {refused} refused")?;
    writeln!(out, "policy sha256 {}", it.digest)?;
    for it in &it.gates {
        match it.heard_ago {
            Some(ago) => writeln!(out, "gate {} heard {ago:.1} s ago", it.gate)?,
            None => writeln!(out, "gate {} not heard", it.gate)?,
        }
    }
    for (name, prefixes) in &it.lists {
        writeln!(out, "list {name} {prefixes} prefixes")?;
    }
    for (part, numbers) in [("policy", &it.policy), ("decisions", &it.decisions)] {
        for (name, value) in numbers.iter().filter(|(_, value)| **value > 0) {
            writeln!(out, "{part} {name} {value}")?;
        }
    }
    for (what, words) in [("last error", &it.last_error), ("not recorded", &it.record_failed)] {
        words.iter().try_for_each(|words| writeln!(out, "{what}: {words}"))?;
    }
    let Some(shadow) = &it.candidate else { return Ok(()) };
    let (requests, failed) = (shadow.requests, shadow.failed);
    writeln!(out, "candidate asked about {requests} requests, failed {failed} times")?;
    changes(out, &shadow.changes)?;
    shadow.flows.iter().try_for_each(|it| flow(out, it))
}
