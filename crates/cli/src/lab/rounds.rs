//! One attack after the other, each with the gate off and then on.
//!
//! ```text
//!   guards? ─► streams, steady ─► calm ──────────► attack: settle ─► window ─────► … ─► end
//!                                  goodput                           new clients,    the last
//!                                  without attack                    goodput         has come
//! ```
//!
//! Goodput is what the server's program has received, and is held against what the same
//! connections send and had in the same round just before the attack. The attack goes on until the
//! last new client is connected or has given up. Gates and grantor are started anew for each
//! round, so that no round profits from what another has taught them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use super::attack::Attack;
use super::clients::{Newcomer, Newcomers, Streams};
use super::guard::{Guards, Kept, Speakers};
use super::sender::{Offered, Sender};
use super::server::Server;
use super::topology::{LinkCount, Topology};

/// Connections that send all the time.
pub(super) const STREAMS: usize = 8;
/// What the streams send together, in percent of the protected link.
pub(super) const LOAD: u64 = 60;
/// From one new client to the next.
const GAP: Duration = Duration::from_millis(250);
/// Streams have come up to speed when all of them have kept it for so long, to so much.
const WARM: Duration = Duration::from_secs(1);
const STEADY: f64 = 0.03;
/// The longest that is waited for.
const LONGEST: Duration = Duration::from_secs(10);
/// How long goodput is measured before the attack.
const CALM: Duration = Duration::from_secs(3);
/// What an attack is given to come up to speed.
pub(super) const SETTLE: Duration = Duration::from_millis(500);
/// The clock of the timeline.
const TICK: Duration = Duration::from_millis(100);
/// The first client that comes new.
const FIRST: u16 = 1024;

/// What every round is measured with.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Scale {
    /// Bits a second of the protected link.
    pub(super) link: u64,
    /// Times that an attack is of it.
    pub(super) factor: f64,
    /// Seconds of an attack in which goodput is measured and clients come.
    pub(super) seconds: u64,
}

impl Scale {
    /// Bytes a second that each stream sends.
    pub(super) fn stream(&self) -> u64 {
        self.link * LOAD / 100 / 8 / STREAMS as u64
    }

    /// How many new clients come in a round.
    pub(super) fn newcomers(&self) -> u16 {
        (Duration::from_secs(self.seconds).as_millis() / GAP.as_millis()) as u16
    }
}

/// What the server's clients got in one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Round {
    /// The attack's name; none for peace.
    pub(super) attack: Option<String>,
    /// Whether the gates and the grantor were at work.
    pub(super) gate: bool,
    /// What the attackers really offered.
    pub(super) offered: Option<Offered>,
    /// What came to the protected link from the attack's beginning to its end.
    pub(super) link: LinkCount,
    /// The new clients, in the order in which they came.
    pub(super) newcomers: Vec<Newcomer>,
    /// Bytes a second of each stream before the attack.
    pub(super) calm: Vec<f64>,
    /// And under it.
    pub(super) under: Vec<f64>,
    /// What gates and grantor have counted.
    pub(super) kept: Option<Kept>,
    /// Seconds from the attack's beginning, and bytes a second of all streams in the tenth
    /// of a second before.
    pub(super) timeline: Vec<(f64, f64)>,
}

/// The lab with its server, ready for rounds.
pub(super) struct Field {
    topology: Topology,
    speakers: Speakers,
    server: Server,
    scale: Scale,
    rounds: u16,
}

impl Field {
    /// Builds it, with a server at `ports`; ends early with `stop`.
    pub(super) fn build(scale: Scale, ports: &[u16], stop: &AtomicBool) -> Result<Self> {
        let topology = Topology::build(scale.link)?;
        let server = Server::start(&topology.server, ports, STREAMS)?;
        let speakers = Speakers::start(&topology, scale.link, stop)?;
        Ok(Self { topology, speakers, server, scale, rounds: 0 })
    }

    /// Runs one round, or none with `stop`.
    pub(super) fn round(
        &mut self,
        attack: Option<&Arc<Attack>>,
        gate: bool,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<Round>> {
        let Self { topology, speakers, server, scale, rounds } = self;
        let port = attack.map_or(super::attack::SERVICE, |attack| attack.port);
        let mut guards = gate.then(|| Guards::start(topology, port, stop)).transpose()?;
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let streams = Streams::start(&topology.clients, STREAMS, scale.stream(), port)?;
        let mut watch = Watch { server, before: server.counts().read(), line: Vec::new() };
        let mut over = |watch: &mut Watch<'_>, time: Duration| -> Result<Option<Vec<f64>>> {
            let (begin, from) = (Instant::now(), server.counts().read());
            while begin.elapsed() < time {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                watch.tick();
                speakers.run()?;
                guards.as_mut().map_or(Ok(()), Guards::run)?;
            }
            let seconds = begin.elapsed().as_secs_f64();
            let each = server.counts().read().into_iter().zip(from);
            Ok(Some(each.map(|(now, from)| (now - from) as f64 / seconds).collect()))
        };
        let begin = Instant::now();
        loop {
            let Some(rates) = over(&mut watch, WARM)? else { return Ok(None) };
            let steady = |rate: &f64| (rate / scale.stream() as f64 - 1.0).abs() < STEADY;
            if rates.iter().all(steady) || begin.elapsed() > LONGEST {
                break;
            }
        }
        let Some(calm) = over(&mut watch, CALM)? else { return Ok(None) };

        let (link, begin) = (topology.link()?, Instant::now());
        let bits = (scale.link as f64 * scale.factor) as u64;
        let sender = attack
            .map(|attack| Sender::start(&topology.attackers, attack, bits))
            .transpose()
            .context("the attackers")?;
        let count = scale.newcomers();
        if over(&mut watch, SETTLE)?.is_none() {
            return Ok(None);
        }
        let first = FIRST + *rounds * count;
        let mut newcomers = Newcomers::start(&topology.clients, first, count, GAP, port, stop)?;
        let Some(under) = over(&mut watch, Duration::from_secs(scale.seconds))? else {
            return Ok(None);
        };
        while !newcomers.over() {
            if over(&mut watch, TICK)?.is_none() {
                return Ok(None);
            }
        }
        let newcomers = newcomers.met(count)?;
        let offered = sender.map(Sender::end).transpose()?;
        let after = topology.link()?;
        let link = LinkCount {
            packets: after.packets - link.packets,
            dropped: after.dropped - link.dropped,
        };
        let timeline = watch.line.iter().map(|&(at, rate)| (since(at, begin), rate)).collect();
        drop(streams);
        let kept = guards.map(Guards::end).transpose()?;
        *rounds += 1;
        let attack = attack.map(|attack| attack.name.clone());
        Ok(Some(Round { attack, gate, offered, link, newcomers, calm, under, kept, timeline }))
    }
}

/// Seconds from `begin` to `at`, which may be before it.
fn since(at: Instant, begin: Instant) -> f64 {
    at.saturating_duration_since(begin).as_secs_f64()
        - begin.saturating_duration_since(at).as_secs_f64()
}

/// The sum of the streams as time goes by.
struct Watch<'s> {
    server: &'s Server,
    before: Vec<u64>,
    line: Vec<(Instant, f64)>,
}

impl Watch<'_> {
    /// Waits for a tick and notes what came in it.
    fn tick(&mut self) {
        let begin = Instant::now();
        thread::sleep(TICK);
        let now = self.server.counts().read();
        let came: u64 = now.iter().zip(&self.before).map(|(now, before)| now - before).sum();
        self.line.push((Instant::now(), came as f64 / begin.elapsed().as_secs_f64()));
        self.before = now;
    }
}
