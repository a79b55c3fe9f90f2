//! The protection of the lab's server: BGP speakers in all rounds, gates and a grantor in some.
//!
//! ```text
//!   speakers   the router's BIRD ◄─ BGP ─ a BIRD beside each gate, by `gate bgp-config`
//!   guards     `fingerpost gate` twice, `fingerpost grantor`, with the files below
//! ```
//!
//! Each gate has half of the protected link, or all of it if the other one fails. The grantor's policy is `handshake`, one of those that
//! `fingerpost grantor policy` prints.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::process::{ChildProcess, own_program};
use super::topology::{PROTECTED, SERVER, TUNNELS_END, Topology, address, put};
use crate::namespace::Namespace;

/// The policy of the grantor.
pub(super) const POLICY: &str = "handshake";
/// The time limit for BGP to converge.
const CONVERGENCE: Duration = Duration::from_secs(30);
/// Entries of the flow table of a gate: more than the new flows of the five seconds until one expires.
const ENTRIES: u32 = 1 << 19;
/// The key that authenticates the grantor's decisions. It protects a network that exists for some
/// minutes within this machine.
const KEY: &str = "6c61622c206c61622c206c61622c206c61622c206c61622c206c61622c206c61";

/// The message of a gate that is ready.
const GUARDING: &str = "guarding after";

const NAMES: [&str; 2] = ["gate-a", "gate-b"];

fn gate_config(bits: u64) -> String {
    format!(
        "[front]\ninterface = \"front\"\n[back]\ninterface = \"back\"\n\
         [link]\nbandwidth = \"{}bit\"\n[flow_table]\nentries = {ENTRIES}\n\
         [[grantors]]\nname = \"site\"\nmembers = [{{ address = \"{TUNNELS_END}\" }}]\n\
         [[policy]]\nprefix = \"{PROTECTED}\"\ngrantors = \"site\"\n\
         [[sender]]\nid = 1\nkeys = {{ 1 = \"grantor.key\" }}\n\
         [decisions]\nsources = [\"{}\"]\n[control]\nsocket = \"/tmp/gate.sock\"\n",
        bits,
        address(7, 2)
    )
}

fn grantor_config(shares: bool) -> String {
    format!(
        "interfaces = [\"narrow\", \"inside\"]\n\
         [tunnel]\naddresses = [\"{TUNNELS_END}\"]\ngates = [\"{}\", \"{}\"]\nauthentication = \"off\"\n\
         [policy]\nfile = \"policy.lua\"\n\
         [[list]]\nname = \"services\"\nfile = \"services.txt\"\n\
         [decisions]\nversion = 2\nid = 1\nkeys = {{ 1 = \"grantor.key\" }}\n\
         share_grants = {shares}\n\
         [control]\nsocket = \"/tmp/grantor.sock\"\n",
        address(5, 1),
        address(6, 1)
    )
}

fn router_bird() -> String {
    format!(
        "log stderr all;\nrouter id {};\nprotocol device {{}}\n\
         protocol kernel {{ merge paths on; ipv4 {{ import none; export all; }}; }}\n\
         template bgp gates {{\n    local as 65000;\n    connect delay time 1;\n    \
         connect retry time 1;\n    error wait time 1, 2;\n    \
         ipv4 {{ import all; export none; }};\n}}\n\
         protocol bgp gate_a from gates {{ neighbor {} as 65001; }}\n\
         protocol bgp gate_b from gates {{ neighbor {} as 65001; }}\n",
        address(3, 1),
        address(3, 2),
        address(4, 2)
    )
}

/// The BGP speakers; they end when dropped.
#[derive(Debug)]
pub(super) struct Speakers(Vec<ChildProcess>);

impl Speakers {
    /// Starts them, with so many bits a second for each gate, and waits until the router has both
    /// routes to the server, or for `stop`.
    pub(super) fn start(topology: &Topology, bits: u64, stop: &AtomicBool) -> Result<Self> {
        let (router, gates) = (&topology.router, &topology.gates);
        put(router, "bird.conf", router_bird())?;
        for (number, gate) in (0..).zip(gates) {
            put(gate, "grantor.key", format!("{KEY}\n"))?;
            put(gate, "gate.toml", gate_config(bits))?;
            let peer = format!("{},65000", address(3 + number, 1));
            let own = address(3 + number, 2).to_string();
            let output = gate.run(move || {
                let mut command = Command::new(own_program());
                command.args(["gate", "bgp-config", "-c", "/tmp/gate.toml"]);
                command.args(["--local-as", "65001", "--router-id", &own, "--peer", &peer]);
                command.output().context("running `fingerpost gate bgp-config`")
            })?;
            if !output.status.success() {
                bail!("gate bgp-config: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
            put(gate, "bird.conf", String::from_utf8_lossy(&output.stdout).into_owned())?;
        }
        let all = [(router, "the router"), (&gates[0], NAMES[0]), (&gates[1], NAMES[1])];
        let each = all.into_iter().map(|(namespace, owner)| start_speaker(namespace, owner));
        let mut speakers = Self(each.collect::<Result<_>>()?);
        speakers.wait_for_routes(topology, stop)?;
        Ok(speakers)
    }

    /// Kills the speaker of the first gate.
    pub(super) fn kill_first(&mut self) {
        if let Some(speaker) = self.0.get_mut(1) {
            speaker.kill();
        }
    }

    /// Starts the speaker of the first gate again.
    pub(super) fn restart_first(&mut self, topology: &Topology) -> Result<()> {
        if let Some(speaker) = self.0.get_mut(1) {
            *speaker = start_speaker(&topology.gates[0], NAMES[0])?;
        }
        Ok(())
    }

    /// Waits until the router has both routes to the server, or for `stop`.
    pub(super) fn wait_for_routes(&mut self, topology: &Topology, stop: &AtomicBool) -> Result<()> {
        let begin = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let route = topology.router.ip(&format!("route show {PROTECTED}"))?;
            if (3..5).all(|link| route.contains(&format!("via {} ", address(link, 2)))) {
                break;
            }
            self.check_running().context("is the Debian package bird2 installed?")?;
            if begin.elapsed() > CONVERGENCE {
                bail!(
                    "the router does not have two routes to {PROTECTED} by BGP, but: {}",
                    route.trim()
                );
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Returns an error if one of them has ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(ChildProcess::check_running)
    }
}

/// Starts the BGP speaker of a machine, with the file that it has.
fn start_speaker(namespace: &Namespace, owner: &str) -> Result<ChildProcess> {
    let arguments = ["-f", "-c", "/tmp/bird.conf", "-s", "/tmp/bird.ctl"];
    ChildProcess::start(namespace, &format!("BIRD of {owner}"), "bird", &arguments)
}

/// Starts a gate, with the file that its machine has.
fn start_gate(namespace: &Namespace, name: &str) -> Result<ChildProcess> {
    let arguments = ["gate", "-c", "/tmp/gate.toml", "-j"];
    ChildProcess::start(namespace, name, &own_program(), &arguments)
}

/// The counters of both gates and of the grantor. Those of a gate that failed begin with its return.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct GuardCounters {
    /// Packets for the server that reached a gate.
    pub(super) received: u64,
    /// Of those, packets of granted flows.
    pub(super) granted: u64,
    /// Of those, requests.
    pub(super) requests: u64,
    /// Of those, requests that the request queue dropped because of their low priority.
    pub(super) low_priority: u64,
    /// Packets of declined flows.
    pub(super) declined: u64,
    /// Of those, packets that the XDP program dropped before they reached a worker.
    pub(super) xdp_dropped: u64,
    /// Requests that the policy granted.
    pub(super) grants: u64,
    /// Requests that the policy declined.
    pub(super) declines: u64,
    /// Requests that the policy forwarded without a decision.
    pub(super) undecided: u64,
}

/// Running gates and grantor; they end when dropped.
#[derive(Debug)]
pub(super) struct Guards {
    gates: Vec<ChildProcess>,
    grantor: ChildProcess,
}

impl Guards {
    /// Starts them for a service at a port, with grants that all gates have if the grantor `shares` them,
    /// and waits until they are ready, or for `stop`.
    pub(super) fn start(
        topology: &Topology,
        port: u16,
        shares: bool,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let policies = gate::grantor::shipped::POLICIES;
        let policy = policies.iter().find(|policy| policy.name == POLICY);
        let text = policy.with_context(|| format!("there is no policy {POLICY}"))?.text;
        put(&topology.grantor, "policy.lua", text.to_owned())?;
        put(&topology.grantor, "services.txt", format!("{SERVER} {port}\n"))?;
        put(&topology.grantor, "grantor.key", format!("{KEY}\n"))?;
        put(&topology.grantor, "grantor.toml", grantor_config(shares))?;
        let arguments = ["grantor", "-c", "/tmp/grantor.toml", "-j"];
        let mut grantor =
            ChildProcess::start(&topology.grantor, "the grantor", &own_program(), &arguments)?;
        let mut gates = Vec::new();
        for (gate, name) in topology.gates.iter().zip(NAMES) {
            gates.push(start_gate(gate, name)?);
        }
        grantor.wait_for_log("granting", stop)?;
        for gate in &mut gates {
            gate.wait_for_log(GUARDING, stop)?;
        }
        Ok(Self { gates, grantor })
    }

    /// Kills the first gate.
    pub(super) fn kill_first(&mut self) {
        if let Some(gate) = self.gates.first_mut() {
            gate.kill();
        }
    }

    /// Starts the first gate again, and waits until it is ready, or for `stop`.
    pub(super) fn restart_first(&mut self, topology: &Topology, stop: &AtomicBool) -> Result<()> {
        let Some(gate) = self.gates.first_mut() else { return Ok(()) };
        *gate = start_gate(&topology.gates[0], NAMES[0])?;
        gate.wait_for_log(GUARDING, stop)
    }

    /// Returns an error if one of them has ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        self.gates.iter_mut().chain([&mut self.grantor]).try_for_each(ChildProcess::check_running)
    }

    /// Ends them and returns their counters.
    pub(super) fn end(self) -> Result<GuardCounters> {
        let mut counters = GuardCounters::default();
        for (process, name) in self.gates.into_iter().zip(NAMES) {
            let report: Value = serde_json::from_str(&process.end()?)
                .with_context(|| format!("reading the report of {name}"))?;
            let packets = |name: &str| report["gate"]["packets"][name].as_u64().unwrap_or_default();
            let dropped =
                |name: &str| report["counters"]["dropped"][name].as_u64().unwrap_or_default();
            counters.received += packets("received");
            counters.granted += packets("granted");
            counters.requests += packets("request");
            counters.declined += packets("declined");
            counters.xdp_dropped += packets("xdp_dropped");
            counters.low_priority += dropped("low_priority");
        }
        let report: Value = serde_json::from_str(&self.grantor.end()?)
            .context("reading the report of the grantor")?;
        let policy = |name: &str| report["grantor"]["policy"][name].as_u64().unwrap_or_default();
        counters.grants = policy("granted");
        counters.declines = policy("declined");
        counters.undecided = policy("undecided");
        Ok(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_is_a_shipped_one() {
        let policies = gate::grantor::shipped::POLICIES;
        assert!(
            policies.iter().any(|policy| policy.name == POLICY && policy.lists == ["services"])
        );
        assert_eq!(KEY.len(), 64);
        assert!(router_bird().contains(&address(4, 2).to_string()));
        assert!(PROTECTED.parse::<fib::Prefix<u32>>().unwrap().contains(SERVER.into()));
    }
}
