//! The failure of a gate during an attack, and its return: how long established connections get nothing.
//!
//! ```text
//!   router ─X─ gate-a ─X─ site      links, gate and BGP speaker end at once, as without power; after
//!     └─────── gate-b ────┘         a while all of them start again, and flows move back by BGP
//! ```
//!
//! The kernels of router and site choose the other gate at once, so the time without service is
//! that of the gate and of TCP, which repeats a lost packet after 200 ms (RFC 6298 with Linux's minimum) and
//! doubles that. A connection that used the other gate before is among them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::guard::{Guards, Speakers};
use super::server::Counts;
use super::topology::Topology;

/// The time with one gate, and the one after the start of the other one.
const AWAY: Duration = Duration::from_secs(8);
const BACK: Duration = Duration::from_secs(8);
/// The interval between two readings of the server's counts.
const INTERVAL: Duration = Duration::from_millis(5);

/// The gates that have a flow's grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Grants {
    /// All gates: `share_grants` of the grantor.
    Shared,
    /// The gate that has asked for it.
    Separate,
}

/// The longest time in which each stream got nothing, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Pauses {
    /// While the gate was away, from its failure on.
    pub(super) failed: Vec<f64>,
    /// After it had started again, from its start on.
    pub(super) returned: Vec<f64>,
}

/// Lets the first gate fail and return; `None` at `stop`.
pub(super) fn measure(
    topology: &Topology,
    speakers: &mut Speakers,
    guards: &mut Guards,
    counts: &Counts,
    stop: &AtomicBool,
) -> Result<Option<Pauses>> {
    let failed = longest_pauses(counts, || {
        topology.disconnect_gate()?;
        speakers.kill_first();
        guards.kill_first();
        wait(AWAY, stop);
        Ok(())
    })?;
    let returned = longest_pauses(counts, || {
        topology.connect_gate()?;
        guards.restart_first(topology, stop)?;
        topology.route_by_both_gates()?;
        speakers.restart_first(topology)?;
        speakers.wait_for_routes(topology, stop)?;
        wait(BACK, stop);
        Ok(())
    })?;
    Ok((!stop.load(Ordering::Relaxed)).then_some(Pauses { failed, returned }))
}

/// Waits for a time, or for `stop`.
fn wait(time: Duration, stop: &AtomicBool) {
    let begin = Instant::now();
    while begin.elapsed() < time && !stop.load(Ordering::Relaxed) {
        thread::sleep(INTERVAL);
    }
}

/// Returns the longest time in which each count did not grow during `events`, in seconds.
fn longest_pauses(counts: &Counts, events: impl FnOnce() -> Result<()>) -> Result<Vec<f64>> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_pauses(counts, &done));
        let result = events();
        done.store(true, Ordering::Relaxed);
        let longest = reader.join().unwrap_or_default();
        result.map(|()| longest)
    })
}

fn read_pauses(counts: &Counts, done: &AtomicBool) -> Vec<f64> {
    let mut before = counts.read();
    let mut last = vec![Instant::now(); before.len()];
    let mut longest = vec![Duration::ZERO; before.len()];
    while !done.load(Ordering::Relaxed) {
        thread::sleep(INTERVAL);
        let (now, counts) = (Instant::now(), counts.read());
        for (((count, before), last), longest) in
            counts.iter().zip(&mut before).zip(&mut last).zip(&mut longest)
        {
            *longest = (*longest).max(now - *last);
            if count != before {
                (*before, *last) = (*count, now);
            }
        }
    }
    longest.iter().map(Duration::as_secs_f64).collect()
}
