//! The failure of a gate during an attack: how long its established connections get nothing.
//!
//! ```text
//!   router ─X─ gate-a ─X─ site      both ends go down at once, as if the machine had lost its power
//!     └─────── gate-b ────┘         has the flows of both now
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

use super::server::Counts;
use super::topology::Topology;

/// The time after the failure in which the server's counts are read, and the interval between two readings.
const WINDOW: Duration = Duration::from_secs(8);
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

/// Lets the first gate fail, and returns the longest time in which each stream got nothing, in
/// seconds; `None` at `stop`. The gate stays away.
pub(super) fn measure(
    topology: &Topology,
    counts: &Counts,
    stop: &AtomicBool,
) -> Result<Option<Vec<f64>>> {
    let mut before = counts.read();
    let begin = Instant::now();
    topology.disconnect_gate()?;
    let mut last = vec![begin; before.len()];
    let mut longest = vec![Duration::ZERO; before.len()];
    while begin.elapsed() < WINDOW {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
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
    Ok(Some(longest.iter().map(Duration::as_secs_f64).collect()))
}
