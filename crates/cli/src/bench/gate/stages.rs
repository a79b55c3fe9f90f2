//! What each stage of a packet's way through a gate takes, by itself.
//!
//! ```text
//!   parse ─► hash ─► find ─┬─ found: state ────────────────────► encapsulate ─► out
//!                          └─ not: policy ─► (state, entry) ─► encapsulate ─► queue ─► out
//! ```
//!
//! The same packets go through one stage after the other, in batches as a worker has them, on
//! a table that is full: packets from new sources, whose flows are not found, or of granted
//! flows, drawn at random, which are. What stands beside them is the gate's whole decision
//! of both, which is more than the stages that it is made of: a new flow's entry, the
//! request given up for it, timers. A stage alone has its code and its lines of the cache to
//! itself, so that the sum is a lower bound of the whole; the loads of one packet's stages
//! do not wait for each other here, which in a worker they may.
//!
//! Each stage says what it found, and a stage that found something else than it should ends
//! the measurement.

use std::hint::black_box;

use anyhow::ensure;
use fib::{Hop, Prefix, Publisher};
use gate::flow::{Flow, Key};
use gate::gate::{Gate, Packet, Verdict};
use gate::limit::bucket::Bucket;
use gate::limit::solicitor::{Request, Solicitor};
use gate::policy::{Action, Address, Draft, Grantor};
use gate::state::Record;
use router::datapath::{Locals, Parsed, parse};
use serde::Serialize;
use wire::tunnel::{Ends, Header};
use wire::{ethernet, ipv4};

use super::course::{BATCH, Course, GAP, PROTECTED, Variant, source};
use crate::bench::clock::{Clock, Summary, hertz};

/// Packets of a part.
const PACKETS: usize = 1 << 16;
const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];
/// Room in front of a frame's packet for the outer header.
const ROOM: usize = ipv4::LEN;
/// A frame of the least length, its checksum apart.
const FRAME: usize = 60;

/// What one stage takes.
#[derive(Serialize)]
pub(super) struct Stage {
    pub(super) name: &'static str,
    /// Nanoseconds a packet.
    #[serde(flatten)]
    pub(super) summary: Summary,
    /// Cycles a packet at the clock that the kernel states, if it does.
    pub(super) cycles: Option<f64>,
}

/// Measures all of them, with a table of so many entries.
pub(super) fn measure(entries: usize, parts: usize) -> anyhow::Result<Vec<Stage>> {
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

    // The last of all numbers: none of those that fill the table. A worker takes packets from
    // unicast addresses only.
    let unicast = |src: &u32| !matches!(src >> 24, 0 | 127 | 224..);
    let sources = (0..u32::MAX).rev().map(source).filter(unicast).take(PACKETS);
    let new: Vec<Flow> = sources.map(|src| Flow::v4(src, PROTECTED)).collect();
    let mut frames: Vec<[u8; ROOM + FRAME]> = new.iter().map(frame).collect::<Result<_, _>>()?;
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

    let mut draft = Draft::new();
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
                policy.actions_v4(black_box(&dsts), &mut hops, |_, action| {
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

    let mut solicitor: Solicitor<u32> = Solicitor::new(512, Bucket::share(10_000_000_000, 5, 0));
    let mut now = 0;
    time(
        "queue, in and out",
        &mut || {
            let mut ended = 0;
            for _ in 0..PACKETS / BATCH {
                now += GAP * BATCH as u64;
                let request = |packet| Request { packet, dscp: 3 + packet as u8 % 38, bytes: 80 };
                solicitor.offer_all((0..BATCH as u32).map(request), |_| ended += 1);
                while solicitor.next(now).is_some() {
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

/// Makes the frame of a flow's packet, behind the room.
fn frame(flow: &Flow) -> anyhow::Result<[u8; ROOM + FRAME]> {
    let gate::flow::Pair::V4 { src, dst } = flow.pair() else {
        anyhow::bail!("the flows are of IPv4");
    };
    let mut frame = [0; ROOM + FRAME];
    let bytes = &mut frame[ROOM..];
    let ether = ethernet::Header { dst: MAC, src: [2, 0, 0, 0, 1, 1], kind: ethernet::IPV4 };
    ether.emit(bytes)?;
    let total_len = (FRAME - ethernet::LEN) as u16;
    let packet = ipv4::Header { total_len, ttl: 64, protocol: 17, src, dst, ..Default::default() };
    packet.emit(&mut bytes[ethernet::LEN..])?;
    Ok(frame)
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
