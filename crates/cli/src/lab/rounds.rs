//! The rounds: one attack after the other, each with the gate off and then on.
//!
//! ```text
//!   guards? ─► streams, steady ─► baseline ─────► attack: ramp-up ─► window ─────► … ─► failover? ─► end
//!                                  goodput                           new clients,    the last client
//!                                  without attack                    goodput         has finished
//! ```
//!
//! Goodput is the data that the server's program has received. It is compared with the offered rate
//! and with the goodput of the same connections just before the attack. The attack continues until
//! the last new client is connected or has given up. Gates and grantor start again for each
//! round, so that no round depends on the state that another one left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use super::attack::Attack;
use super::clients::{NewClient, NewClients, Streams};
use super::failover::{self, Grants, Pauses};
use super::guard::{GuardCounters, Guards, Speakers};
use super::sender::{Offered, Sender};
use super::server::Server;
use super::topology::{LinkCount, Topology};

/// Established connections, which send all the time.
pub(super) const STREAMS: usize = 8;
/// The offered rate of all streams, in percent of the protected link.
pub(super) const LOAD: u64 = 60;
/// The interval between the starts of two new clients.
const GAP: Duration = Duration::from_millis(250);
/// Streams are steady once the rate of each stays for this time within this share of its offered rate.
const STEADY_TIME: Duration = Duration::from_secs(1);
const TOLERANCE: f64 = 0.03;
/// The time limit for streams to become steady.
const STEADY_LIMIT: Duration = Duration::from_secs(10);
/// The time of the measurement before the attack.
const BASELINE: Duration = Duration::from_secs(3);
/// The time from the start of an attack to its full rate.
pub(super) const RAMP_UP: Duration = Duration::from_millis(500);
/// The interval of the timeline.
const TICK: Duration = Duration::from_millis(100);
/// The number of the first new client.
const FIRST: u16 = 1024;

/// The parameters of every round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Scale {
    /// Bandwidth of the protected link, in bits per second.
    pub(super) link: u64,
    /// Rate of an attack, as a multiple of it.
    pub(super) factor: f64,
    /// Seconds of an attack in which goodput is measured and new clients start.
    pub(super) seconds: u64,
    /// A gate fails during each attack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failover: Option<Grants>,
}

impl Scale {
    /// Returns the offered rate of a stream, in bytes per second.
    pub(super) fn stream(&self) -> u64 {
        self.link * LOAD / 100 / 8 / STREAMS as u64
    }

    /// Returns the bandwidth that each gate may use. The one that remains after a failure has to carry all.
    pub(super) fn gate_link(&self) -> u64 {
        if self.failover.is_some() { self.link } else { self.link / 2 }
    }

    /// Returns the number of new clients in a round.
    pub(super) fn new_clients(&self) -> u16 {
        (Duration::from_secs(self.seconds).as_millis() / GAP.as_millis()) as u16
    }
}

/// The measurements of one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Round {
    /// The name of the attack, if there was one.
    pub(super) attack: Option<String>,
    /// Whether the gates and the grantor were running.
    pub(super) gate: bool,
    /// The rate that the attackers sent.
    pub(super) offered: Option<Offered>,
    /// The packets at the protected link from the beginning of the attack to its end.
    pub(super) link: LinkCount,
    /// The new clients, in the order of their starts.
    pub(super) new_clients: Vec<NewClient>,
    /// Goodput of each stream before the attack, in bytes per second.
    pub(super) baseline: Vec<f64>,
    /// Goodput of each stream during the attack, in bytes per second.
    pub(super) under_attack: Vec<f64>,
    /// The longest time in which each stream got nothing while a gate failed and returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failover: Option<Pauses>,
    /// The counters of gates and grantor, if they were running.
    pub(super) counters: Option<GuardCounters>,
    /// Seconds from the beginning of the attack, and bytes per second of all streams in the tenth of a
    /// second before.
    pub(super) timeline: Vec<(f64, f64)>,
}

/// The network, the speakers and the server, ready for rounds.
pub(super) struct Lab {
    topology: Topology,
    speakers: Speakers,
    server: Server,
    scale: Scale,
    rounds: u16,
}

impl Lab {
    /// Builds them, with a server at `ports`; returns early at `stop`.
    pub(super) fn build(scale: Scale, ports: &[u16], stop: &AtomicBool) -> Result<Self> {
        let topology = Topology::build(scale.link)?;
        let server = Server::start(&topology.server, ports, STREAMS)?;
        let speakers = Speakers::start(&topology, scale.gate_link(), stop)?;
        Ok(Self { topology, speakers, server, scale, rounds: 0 })
    }

    /// Runs one round; returns `None` at `stop`.
    pub(super) fn run_round(
        &mut self,
        attack: Option<&Arc<Attack>>,
        gate: bool,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<Round>> {
        let Self { topology, speakers, server, scale, rounds } = self;
        let port = attack.map_or(super::attack::SERVICE, |attack| attack.port);
        let shares = scale.failover == Some(Grants::Shared);
        let guards = gate.then(|| Guards::start(topology, port, shares, stop));
        let mut guards = guards.transpose()?;
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let streams = Streams::start(&topology.clients, STREAMS, scale.stream(), port)?;
        let mut monitor =
            GoodputMonitor { server, before: server.counts().read(), timeline: Vec::new() };
        let mut measure =
            |monitor: &mut GoodputMonitor<'_>, time: Duration| -> Result<Option<Vec<f64>>> {
                let (begin, from) = (Instant::now(), server.counts().read());
                while begin.elapsed() < time {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                    monitor.tick();
                    speakers.check_running()?;
                    guards.as_mut().map_or(Ok(()), Guards::check_running)?;
                }
                let seconds = begin.elapsed().as_secs_f64();
                let each = server.counts().read().into_iter().zip(from);
                Ok(Some(each.map(|(now, from)| (now - from) as f64 / seconds).collect()))
            };
        let begin = Instant::now();
        loop {
            let Some(rates) = measure(&mut monitor, STEADY_TIME)? else { return Ok(None) };
            let steady = |rate: &f64| (rate / scale.stream() as f64 - 1.0).abs() < TOLERANCE;
            if rates.iter().all(steady) || begin.elapsed() > STEADY_LIMIT {
                break;
            }
        }
        let Some(baseline) = measure(&mut monitor, BASELINE)? else { return Ok(None) };

        let (link, begin) = (topology.link()?, Instant::now());
        let bits = (scale.link as f64 * scale.factor) as u64;
        let sender = attack
            .map(|attack| Sender::start(&topology.attackers, attack, bits))
            .transpose()
            .context("the attackers")?;
        let count = scale.new_clients();
        if measure(&mut monitor, RAMP_UP)?.is_none() {
            return Ok(None);
        }
        let first = FIRST + *rounds * count;
        let mut new_clients = NewClients::start(&topology.clients, first, count, GAP, port, stop)?;
        let Some(under_attack) = measure(&mut monitor, Duration::from_secs(scale.seconds))? else {
            return Ok(None);
        };
        while !new_clients.have_finished() {
            if measure(&mut monitor, TICK)?.is_none() {
                return Ok(None);
            }
        }
        let new_clients = new_clients.results(count)?;
        let failover = match &mut guards {
            Some(guards) if attack.is_some() && scale.failover.is_some() => {
                let counts = server.counts();
                let Some(pauses) = failover::measure(topology, speakers, guards, counts, stop)?
                else {
                    return Ok(None);
                };
                Some(pauses)
            }
            _ => None,
        };
        let offered = sender.map(Sender::end).transpose()?;
        let after = topology.link()?;
        let link = LinkCount {
            packets: after.packets - link.packets,
            dropped: after.dropped - link.dropped,
        };
        let timeline =
            monitor.timeline.iter().map(|&(at, rate)| (since(at, begin), rate)).collect();
        for (client, error) in streams.end() {
            eprintln!("fingerpost: the connection of {client} has failed: {error}");
        }
        let counters = guards.map(Guards::end).transpose()?;
        *rounds += 1;
        let attack = attack.map(|attack| attack.name.clone());
        Ok(Some(Round {
            attack,
            gate,
            offered,
            link,
            new_clients,
            baseline,
            under_attack,
            failover,
            counters,
            timeline,
        }))
    }
}

/// Returns the seconds from `begin` to `at`, negative if `at` is earlier.
fn since(at: Instant, begin: Instant) -> f64 {
    at.saturating_duration_since(begin).as_secs_f64()
        - begin.saturating_duration_since(at).as_secs_f64()
}

/// Records the goodput of all streams over time.
struct GoodputMonitor<'s> {
    server: &'s Server,
    before: Vec<u64>,
    timeline: Vec<(Instant, f64)>,
}

impl GoodputMonitor<'_> {
    /// Waits for an interval and records its goodput.
    fn tick(&mut self) {
        let begin = Instant::now();
        thread::sleep(TICK);
        let now = self.server.counts().read();
        let received: u64 = now.iter().zip(&self.before).map(|(now, before)| now - before).sum();
        self.timeline.push((Instant::now(), received as f64 / begin.elapsed().as_secs_f64()));
        self.before = now;
    }
}
