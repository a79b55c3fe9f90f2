//! The cost of each stage of the packet path through a gate, by itself.
//!
//! ```text
//!   parse ─► hash ─► find ─┬─ found: state ────────────────────► encapsulate ─► out
//!                          └─ not: policy ─► (state, entry) ─► encapsulate ─► queue ─► out
//! ```
//!
//! The same packets go through one stage after the other, in batches as a worker has them, on
//! a table that is full: packets from new sources, whose flows are not found, or of granted
//! flows, drawn at random, which are found. The gate's whole decision of both is measured too; it
//! is more than the sum of its stages: it creates an entry for a new flow, evicts a request for
//! it and sets timers. A stage alone has the caches to itself, so that the sum is a lower bound of
//! the whole; the loads of one packet's stages do not wait for each other here, as they may in a
//! worker.
//!
//! Each stage counts its results, and an unexpected result ends the measurement.

use std::hint::black_box;
use std::process::ExitCode;

use anyhow::ensure;
use datapath::{Locals, Parsed, parse};
use fib::{Hop, Prefix, Publisher};
use gate::flow::{Flow, Key};
use gate::gate::{Gate, Packet, Verdict};
use gate::limit::bucket::Bucket;
use gate::limit::request_queue::{Request, RequestQueue};
use gate::policy::{Action, Address, Grantor, PolicyBuilder};
use gate::state::Record;
use output::progress;
use serde::Serialize;
use wire::tunnel::{Ends, Header};
use wire::{ethernet, ipv4};

use super::Args;
use super::course::{BATCH, Course, GAP, PROTECTED, Variant, source};
use super::flood::{self, FRAME, is_accepted};
use crate::clock::{Clock, Summary, hertz};
use crate::record::Figure;

/// Packets of a part.
const PACKETS: usize = 1 << 16;
const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];
/// Room in front of a frame's packet for the outer header.
const ROOM: usize = ipv4::LEN;

/// The cost of one stage.
#[derive(Serialize)]
struct Stage {
    name: &'static str,
    /// Nanoseconds a packet.
    #[serde(flatten)]
    summary: Summary,
    /// Cycles a packet at the clock that the kernel states, if it does.
    cycles: Option<f64>,
}

/// Measures the cost of each stage, table by table.
#[expect(clippy::print_stdout, reason = "the result")]
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    for &log in &args.entries {
        let words = format!("stages, 2^{log} entries");
        let stages = progress::during(&words, || measure(1 << log, args.parts))?;
        all.push((1usize << log, stages));
    }
    if args.output.json {
        let tables: Vec<_> = all
            .iter()
            .map(|(entries, stages)| serde_json::json!({ "entries": entries, "stages": stages }))
            .collect();
        println!("{}", serde_json::to_string_pretty(&tables)?);
    } else {
        println!("one core, no I/O, ns a packet, median of {} parts", args.parts);
        for (entries, stages) in &all {
            println!("2^{} entries, all in use", entries.ilog2());
            for Stage { name, summary: Summary { median, mad, min, max }, cycles } in stages {
                print!("  {name:<28} {median:>7.1} ±{mad:.1} ({min:.1} to {max:.1})");
                println!(
                    "{}",
                    cycles.map_or(String::new(), |cycles| format!("  {cycles:.0} cycles"))
                );
            }
        }
    }
    let figures = all.iter().flat_map(|&(entries, ref stages)| {
        stages.iter().map(move |stage| Figure {
            bench: "gate",
            table: "flood",
            routes: entries,
            contestant: stage.name,
            case: "stage",
            threads: 1,
            unit: "ns/packet",
            summary: stage.summary,
            samples: args.parts,
            bytes: entries * size_of::<gate::table::Entry>(),
        })
    });
    args.output.record(figures)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures all of them, with a table of so many entries.
fn measure(entries: usize, parts: usize) -> anyhow::Result<Vec<Stage>> {
    let mut stages = Vec::new();
    let mut time = |name, stage: &mut dyn FnMut() -> anyhow::Result<usize>, expect: usize| {
        let mut part = || {
            let clock = Clock::start();
            let found = stage()?;
            let took = clock.seconds() * 1e9 / PACKETS as f64;
            ensure!(found == expect, "{name}: {found} of {PACKETS} packets, not {expect}");
            Ok(took)
        };
        let parts: Vec<f64> = (0..parts).map(|_| part()).collect::<anyhow::Result<_>>()?;
        let summary = Summary::of(&parts);
        let cycles = hertz().map(|hertz| summary.median * hertz / 1e9);
        stages.push(Stage { name, summary, cycles });
        anyhow::Ok(())
    };

    // The last of all numbers: none of those that fill the table.
    let sources = (0..u32::MAX).rev().map(source).filter(|&src| is_accepted(src)).take(PACKETS);
    let sources: Vec<u32> = sources.collect();
    let new: Vec<Flow> = sources.iter().map(|&src| Flow::v4(src, PROTECTED)).collect();
    let mut frames: Vec<_> = sources.into_iter().map(behind).collect::<Result<_, _>>()?;
    let locals = Locals::default();
    let parsed = |frame: &[u8; ROOM + FRAME]| parse(&frame[ROOM..], MAC, &locals);
    time(
        "parse",
        &mut || Ok(frames.iter().filter(|frame| parsed(frame) == Parsed::V4(PROTECTED)).count()),
        PACKETS,
    )?;

    let key = Key::random();
    let mut hashes = vec![0; PACKETS];
    time(
        "hash of the flow",
        &mut || {
            for (hash, flow) in hashes.iter_mut().zip(&new) {
                *hash = key.hash(flow);
            }
            Ok(black_box(&hashes).len())
        },
        PACKETS,
    )?;

    for (variant, find, whole) in [
        (Variant::BatchedEnqueue, "find, not there", "whole decision, new source"),
        (Variant::Granted, "find, there", "whole decision, granted"),
    ] {
        let mut course = Course::new(entries, variant)?;
        course.fill();
        let mut draw = || (0..PACKETS).map(|_| course.packet()).collect::<Vec<Packet>>();
        let drawn: Vec<Vec<Packet>> = (0..parts).map(|_| draw()).collect();
        let ours = match variant {
            Variant::Granted => drawn[0].clone(),
            // Those that are drawn are to be new when they are decided of.
            _ => new.iter().map(|flow| course.of(*flow)).collect(),
        };
        let there = if variant == Variant::Granted { PACKETS } else { 0 };
        time(find, &mut || Ok(found(course.gate(), &ours)), there)?;
        let mut drawn = drawn.iter();
        let mut next = || Ok(drawn.next().map_or(0, |packets| decided(&mut course, packets)));
        time(whole, &mut next, PACKETS)?;
    }

    let mut draft = PolicyBuilder::new();
    let set = draft.set(&[Grantor { address: Address::V4(0x0a00_0001), weight: 1 }]);
    draft.v4(Prefix::truncate(PROTECTED, 24), Action::Grantors(set));
    let policy = Publisher::new(draft.build(1)?);
    let mut reader = policy.reader();
    time(
        "policy",
        &mut || {
            let policy = reader.current();
            let (dsts, mut hops, mut protected) = ([PROTECTED; BATCH], [Hop::NONE; BATCH], 0);
            for _ in 0..PACKETS / BATCH {
                policy.actions_v4(black_box(&dsts), &mut hops, |_, action, _| {
                    protected += usize::from(action == Some(Action::Grantors(set)));
                });
            }
            Ok(protected)
        },
        PACKETS,
    )?;

    let mut now = 0;
    let mut records = vec![Record::new(now); PACKETS];
    time(
        "state of a request",
        &mut || {
            now += 1_000_000_000;
            for record in &mut records {
                black_box(record.packet(now, 60));
            }
            Ok(records.len())
        },
        PACKETS,
    )?;

    let ends = Ends::V4 { src: 0x0a02_0001, dst: 0x0a00_0001 };
    let header = Header { ends, dscp: 41, hop_limit: 64, udp: None };
    time(
        "encapsulate",
        &mut || {
            // The outer header goes where the inner one's Ethernet header was.
            let emit = |frame: &mut [u8; ROOM + FRAME]| header.emit(&mut frame[ethernet::LEN..]);
            Ok(frames.iter_mut().filter_map(|frame| emit(frame).ok()).count())
        },
        PACKETS,
    )?;

    let mut queue: RequestQueue<u32> = RequestQueue::new(512, Bucket::share(10_000_000_000, 5, 0));
    let mut now = 0;
    time(
        "queue, in and out",
        &mut || {
            let mut ended = 0;
            for _ in 0..PACKETS / BATCH {
                now += GAP * BATCH as u64;
                let request = |packet| Request { packet, dscp: 3 + packet as u8 % 38, bytes: 80 };
                queue.offer_all((0..BATCH as u32).map(request), |_| ended += 1);
                while queue.next(now).is_some() {
                    ended += 1;
                }
            }
            // The others wait, no more than there are places.
            Ok(if PACKETS.abs_diff(ended) <= 512 { PACKETS } else { ended })
        },
        PACKETS,
    )?;
    Ok(stages)
}

/// Makes the frame of a source's packet, behind the room.
fn behind(src: u32) -> anyhow::Result<[u8; ROOM + FRAME]> {
    let mut bytes = [0; ROOM + FRAME];
    bytes[ROOM..].copy_from_slice(&flood::frame(MAC, src)?);
    Ok(bytes)
}

/// Finds packets' flows as a gate does: all indexes of a batch, all entries, all comparisons.
fn found(gate: &Gate, packets: &[Packet]) -> usize {
    let table = gate.table();
    let mut found = 0;
    for batch in packets.chunks(gate::gate::GROUP) {
        batch.iter().for_each(|packet| table.fetch(packet.hash));
        let mut candidates = [None; gate::gate::GROUP];
        for (candidate, packet) in candidates.iter_mut().zip(batch) {
            *candidate = table.candidate(packet.hash);
        }
        for (candidate, packet) in candidates.iter().zip(batch) {
            let entry = table.find_from(*candidate, &packet.flow, packet.hash);
            found += usize::from(entry.is_some());
        }
    }
    found
}

/// Has a gate decide of packets, and counts those that it lets on.
fn decided(course: &mut Course, packets: &[Packet]) -> usize {
    let mut verdicts = [Verdict::NoRoute; BATCH];
    let mut on = 0;
    for batch in packets.chunks_exact(BATCH) {
        course.decide(batch, &mut verdicts);
        let goes = |verdict: &&Verdict| {
            matches!(verdict, Verdict::Request { .. } | Verdict::Granted { .. })
        };
        on += verdicts.iter().filter(goes).count();
    }
    on
}
