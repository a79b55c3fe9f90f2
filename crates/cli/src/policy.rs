//! `fingerpost policy test`: compares a candidate policy with the current one on recorded packets.
//!
//! ```text
//!   --recorded   requests that a grantor recorded ─► both policies            gate::grantor::Shadow
//!   --pcap FILE  any capture ─► a simulated gate and grantor for each policy  gate::grantor::Trial
//!                                          └─► flows with another outcome
//! ```
//!
//! Recorded requests have passed a gate already, and are decided again. A capture has passed no gate.
//! So each policy gets a simulated gate, which forwards the flows that the policy grants, at their
//! granted rates, by the timestamps of the capture. No interface is used. The exit status is 0 also
//! if outcomes differ.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use api::{ChangedDecision, GrantorStatus};
use bundle::MemberConfig;
use clap::Subcommand;
use fib::Publisher;
use gate::flow::{Flow, Pair};
use gate::grantor::{FlowSummary, Grantor, Lists, Request, Shadow, Trial, decapsulate};
use gate::program::{Program, Programs};
use grantor::{CaptureSettings, Config};
use serde::Serialize;
use wire::ethernet;

use output::progress;

/// Entries of the flow table of a simulated gate.
const ENTRIES: usize = 1 << 20;

/// The arguments of `policy`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Test a candidate policy on recorded packets, and list the flows with another outcome
    Test(TestArgs),
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("packets").required(true))]
struct TestArgs {
    /// Candidate policy, in Lua
    #[arg(value_name = "POLICY.lua")]
    candidate: PathBuf,
    /// Configuration of the grantor, with its policy, lists and limits
    #[arg(short, long, value_name = "FILE", default_value = crate::grantor::CONFIG)]
    config: PathBuf,
    /// Read packets to the protected network from a capture (.pcap, .pcapng, also .gz)
    #[arg(long, value_name = "FILE", group = "packets")]
    pcap: Option<PathBuf>,
    /// Read the requests that the grantor has recorded (`[policy] record`)
    #[arg(long, group = "packets")]
    recorded: bool,
    /// Add a flow program to those of the configuration; only with --pcap, may be repeated
    #[arg(long, value_name = "NUMBER=FILE.o")]
    program: Vec<String>,
    /// Limit the list of flows; those with the largest changes come first
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    flows: usize,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// The result of a test.
#[derive(Debug, Default, Serialize)]
struct TestResult {
    /// Packets of the input.
    packets: u64,
    /// Packets that are not IP or truncated.
    unread: u64,
    /// Flows of the packets; only for a capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<u64>,
    /// The packets that pass by each policy; only for a capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Passed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidate: Option<Passed>,
    /// Requests that both policies decided, and the differences; only for recorded requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    changes: BTreeMap<String, u64>,
    /// Failures of the candidate, and its last error.
    failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Flows with another outcome; for recorded requests, at most 256 are distinguished.
    changed: u64,
    /// The flows with the largest changes.
    changed_flows: Vec<ChangedDecision>,
}

/// The packets that pass by a policy.
#[derive(Debug, Default, Serialize)]
struct Passed {
    packets: u64,
    bytes: u64,
    /// Requests that the policy decided.
    requests: u64,
}

/// Runs the test.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Verb::Test(args) = &args.verb;
    let config = Config::load(&args.config)?;
    let text = std::fs::read_to_string(&args.candidate)
        .with_context(|| args.candidate.display().to_string())?;
    let lists = Publisher::new(config.lists.clone());
    let policy = load(&config.policies.policy, &lists, &config)
        .with_context(|| format!("{}: loading the policy", args.config.display()))?;
    let candidate =
        load(&text, &lists, &config).with_context(|| args.candidate.display().to_string())?;
    let mut outcome = match &args.pcap {
        Some(path) => {
            let programs = programs(&config, &args.program)?;
            progress::during("replaying", || replay_capture(path, policy, candidate, &programs))?
        }
        None => {
            let record = config.fixed.record.as_ref().with_context(|| {
                format!(
                    "{}: requests are not recorded: set `[policy] record_file`",
                    args.config.display()
                )
            })?;
            progress::during("deciding", || replay_requests(record, policy, candidate))?
        }
    };
    outcome.changed_flows.truncate(args.flows);
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &outcome)?;
        writeln!(out)?;
    } else {
        write_result(&mut out, &outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn load(text: &str, lists: &Publisher<Lists>, config: &Config) -> anyhow::Result<Grantor> {
    Ok(Grantor::new(text, lists.reader(), config.fixed.limits)?)
}

/// Returns the programs that the grantor sends to its gates, and those of `NUMBER=FILE.o` arguments.
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
            bail!("--program {name}: not NUMBER=FILE.o with a number from 0 to 255");
        };
        let bytes = std::fs::read(file).with_context(|| file.to_owned())?;
        let program = Program::load(&bytes).with_context(|| file.to_owned())?;
        programs.set(number, Some(Arc::new(program)));
    }
    Ok(programs)
}

/// Calls `each` with each packet of a capture from its IP header on, and with its monotonic time in
/// nanoseconds since the first one. Returns the number of frames that are not IP.
fn for_each_packet(path: &Path, mut each: impl FnMut(u64, &mut [u8])) -> anyhow::Result<u64> {
    let reader = port::pcap::open(path).with_context(|| path.display().to_string())?;
    let (mut first, mut now, mut others) = (None, 0, 0);
    port::pcap::read_each(path, reader, |time, frame| {
        let since = time.saturating_sub(*first.get_or_insert(time));
        now = now.max(since.as_nanos() as u64);
        match ip_packet(frame) {
            Some(packet) => each(now, &mut packet.to_vec()),
            None => others += 1,
        }
    })?;
    Ok(others)
}

/// Returns the IP packet of a frame with at most one VLAN tag.
fn ip_packet(frame: &[u8]) -> Option<&[u8]> {
    const VLAN: [u8; 2] = [0x81, 0];
    let kind = frame.get(12..14)?;
    let (kind, at) =
        if kind == VLAN { (frame.get(16..18)?, ethernet::LEN + 4) } else { (kind, ethernet::LEN) };
    let ip = kind == ethernet::IPV4.to_be_bytes() || kind == ethernet::IPV6.to_be_bytes();
    frame.get(at..).filter(|_| ip)
}

/// Replays a capture against a simulated gate and grantor for each policy.
fn replay_capture(
    path: &Path,
    policy: Grantor,
    candidate: Grantor,
    programs: &Programs,
) -> anyhow::Result<TestResult> {
    let mut policy = Trial::new(ENTRIES, policy, programs.clone());
    let mut candidate = Trial::new(ENTRIES, candidate, programs.clone());
    let mut count = 0;
    let others = for_each_packet(path, |now, packet| {
        count += 1;
        policy.packet(now, packet);
        candidate.packet(now, packet);
    })?;
    let failed = candidate.counts().failed + candidate.counts().over_time;
    let last_error = candidate.last_error();
    let ((was, unread), (will, _)) = (policy.end(), candidate.end());
    // Both have seen the same packets.
    let mut changed: Vec<(&Flow, &FlowSummary, FlowSummary)> = was
        .iter()
        .map(|(flow, fate)| (flow, fate, will.get(flow).copied().unwrap_or_default()))
        .filter(|(_, was, will)| was.passed != will.passed || was.last != will.last)
        .collect();
    changed.sort_unstable_by_key(|(flow, was, will)| {
        (std::cmp::Reverse(was.passed_bytes.abs_diff(will.passed_bytes)), addresses(flow))
    });
    let passed = |fates: &mut dyn Iterator<Item = &FlowSummary>| {
        fates.fold(Passed::default(), |sum, fate| Passed {
            packets: sum.packets + fate.passed,
            bytes: sum.bytes + fate.passed_bytes,
            requests: sum.requests + fate.requests,
        })
    };
    Ok(TestResult {
        packets: count + others,
        unread: unread + others,
        flows: Some(was.len() as u64),
        policy: Some(passed(&mut was.values())),
        candidate: Some(passed(&mut will.values())),
        failed,
        last_error,
        changed: changed.len() as u64,
        changed_flows: changed
            .iter()
            .map(|(flow, was, will)| changed_flow(flow, was, will))
            .collect(),
        ..TestResult::default()
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

/// Describes the outcome of a flow by either policy.
fn changed_flow(flow: &Flow, was: &FlowSummary, will: &FlowSummary) -> ChangedDecision {
    let text = |fate: &FlowSummary| {
        let decision = fate.last.map_or("no request".to_owned(), |last| last.to_string());
        format!("{decision}; {} of {} packets pass", fate.passed, fate.packets)
    };
    let (source, destination) = addresses(flow);
    ChangedDecision {
        source,
        destination,
        policy: text(was),
        candidate: text(will),
        requests: was.requests.max(will.requests),
    }
}

/// Decides the recorded requests of a grantor with both policies.
fn replay_requests(
    record: &CaptureSettings,
    policy: Grantor,
    candidate: Grantor,
) -> anyhow::Result<TestResult> {
    let files = [CaptureSettings::old_path(&record.path), record.path.clone()];
    let files: Vec<_> = files.iter().filter(|path| path.exists()).collect();
    if files.is_empty() {
        bail!("{}: no recorded requests yet", record.path.display());
    }
    let (mut policy, mut shadow) = (policy, Shadow::new(candidate));
    let (mut count, mut unread, mut before, mut last) = (0, 0, 0, 0);
    for path in files {
        unread += for_each_packet(path, |now, packet| {
            count += 1;
            last = before + now;
            let Ok(opened) = decapsulate(packet) else {
                unread += 1;
                return;
            };
            let packet = packet.get(opened.offset..opened.end).unwrap_or_default();
            let request = Request { packet, dscp: opened.dscp, congested: opened.congested };
            let mut decided = Vec::with_capacity(1);
            policy.decide(last, &[request], &mut decided);
            shadow.compare(last, &[request], &decided);
        })?;
        // The time between the two files is unknown.
        before = last;
    }
    let comparison = grantor::comparison(&shadow);
    let changed = comparison.flows.len() as u64;
    Ok(TestResult {
        packets: count,
        unread,
        requests: Some(comparison.requests),
        changes: comparison.changes,
        failed: comparison.failed,
        last_error: shadow.last_error(),
        changed,
        changed_flows: comparison.flows,
        ..TestResult::default()
    })
}

fn write_result(out: &mut impl Write, result: &TestResult) -> std::io::Result<()> {
    let TestResult { packets, unread, .. } = result;
    match (&result.policy, &result.candidate) {
        (Some(policy), Some(candidate)) => {
            let flows = result.flows.unwrap_or(0);
            writeln!(out, "{packets} packets of {flows} flows, {unread} unreadable")?;
            for (which, passed) in [("policy", policy), ("candidate", candidate)] {
                let Passed { packets, bytes, requests } = passed;
                writeln!(
                    out,
                    "{which:<10} {packets} packets pass, {bytes} bytes; {requests} requests"
                )?;
            }
        }
        _ => {
            let requests = result.requests.unwrap_or(0);
            writeln!(out, "{requests} requests, {unread} unreadable")?;
        }
    }
    write_changes(out, &result.changes)?;
    if result.failed > 0 {
        let error = result.last_error.as_deref().unwrap_or("over its time limit");
        writeln!(out, "the candidate failed {} times: {error}", result.failed)?;
    }
    writeln!(out, "{} flows have another outcome", result.changed)?;
    result.changed_flows.iter().try_for_each(|flow| write_flow(out, flow))
}

fn write_changes(out: &mut impl Write, changes: &BTreeMap<String, u64>) -> std::io::Result<()> {
    for (change, count) in changes {
        let (was, will) = change.split_once('_').unwrap_or((change, ""));
        let how = if was == will { " with other parameters" } else { "" };
        writeln!(out, "{count} {was}: {will}{how} by the candidate")?;
    }
    Ok(())
}

fn write_flow(out: &mut impl Write, change: &ChangedDecision) -> std::io::Result<()> {
    writeln!(out, "{} > {}", change.source, change.destination)?;
    writeln!(out, "    policy     {}", change.policy)?;
    writeln!(out, "    candidate  {}", change.candidate)
}

/// Writes the status of a grantor, without counters that are zero.
pub(crate) fn write_grantor(out: &mut impl Write, status: &GrantorStatus) -> std::io::Result<()> {
    let (reloads, refused) = (status.reloads, status.reloads_refused);
    writeln!(out, "policy reloaded {reloads} times, {refused} reloads refused")?;
    writeln!(out, "policy sha256 {}", status.digest)?;
    for gate in &status.gates {
        match gate.heard_ago {
            Some(ago) => writeln!(out, "gate {} last heard {ago:.1} s ago", gate.gate)?,
            None => writeln!(out, "gate {} never heard", gate.gate)?,
        }
    }
    for (name, prefixes) in &status.lists {
        writeln!(out, "list {name} {prefixes} prefixes")?;
    }
    for (part, numbers) in [("policy", &status.policy), ("decisions", &status.decisions)] {
        for (name, value) in numbers.iter().filter(|(_, value)| **value > 0) {
            writeln!(out, "{part} {name} {value}")?;
        }
    }
    for (what, error) in
        [("last error", &status.last_error), ("not recorded", &status.record_failed)]
    {
        error.iter().try_for_each(|error| writeln!(out, "{what}: {error}"))?;
    }
    let Some(shadow) = &status.candidate else { return Ok(()) };
    let (requests, failed) = (shadow.requests, shadow.failed);
    writeln!(out, "candidate decided {requests} requests, failed {failed} times")?;
    write_changes(out, &shadow.changes)?;
    shadow.flows.iter().try_for_each(|flow| write_flow(out, flow))
}
