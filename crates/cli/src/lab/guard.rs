//! Who guards the lab's server: BGP speakers all the time, gates and a grantor when asked.
//!
//! ```text
//!   speakers   the router's BIRD ◄─ BGP ─ a BIRD beside each gate, by `gate bgp-config`
//!   guards     `fingerpost gate` twice, `fingerpost grantor`, by the files below
//! ```
//!
//! Each gate has half of the protected link. The grantor's policy is `handshake`, one of
//! those that come with Fingerpost: an operator has it from `fingerpost grantor policy
//! handshake`.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::part::{Part, ourselves};
use super::topology::{PROTECTED, SERVER, TUNNELS_END, Topology, address, put};

/// The policy of the grantor.
pub(super) const POLICY: &str = "handshake";
/// How long BGP may take.
const CONVERGENCE: Duration = Duration::from_secs(30);
/// Flows that a gate remembers: more than ask within the five seconds that one is kept.
const ENTRIES: u32 = 1 << 19;
/// The key that the grantor's decisions are signed with. It guards a network that lives for
/// some minutes within this machine.
const KEY: &str = "6c61622c206c61622c206c61622c206c61622c206c61622c206c61622c206c61";

const NAMES: [&str; 2] = ["gate-a", "gate-b"];

fn gate_config(bits: u64) -> String {
    format!(
        "[front]\ninterface = \"front\"\n[back]\ninterface = \"back\"\n\
         [link]\nbandwidth = \"{}bit\"\n[flow_table]\nentries = {ENTRIES}\n\
         [[grantors]]\nname = \"site\"\nmembers = [{{ address = \"{TUNNELS_END}\" }}]\n\
         [[policy]]\nprefix = \"{PROTECTED}\"\ngrantors = \"site\"\n\
         [[sender]]\nid = 1\nkeys = {{ 1 = \"grantor.key\" }}\n\
         [decisions]\nsources = [\"{}\"]\n[control]\nsocket = \"/tmp/gate.sock\"\n",
        bits / 2,
        address(7, 2)
    )
}

fn grantor_config() -> String {
    format!(
        "interfaces = [\"narrow\", \"inside\"]\n\
         [tunnel]\naddresses = [\"{TUNNELS_END}\"]\ngates = [\"{}\", \"{}\"]\nauthentication = \"off\"\n\
         [policy]\nfile = \"policy.lua\"\n\
         [[list]]\nname = \"services\"\nfile = \"services.txt\"\n\
         [decisions]\nversion = 2\nid = 1\nkeys = {{ 1 = \"grantor.key\" }}\n\
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
pub(super) struct Speakers(Vec<Part>);

impl Speakers {
    /// Starts them and waits until the router has both ways to the server, or for `stop`.
    pub(super) fn start(topology: &Topology, bits: u64, stop: &AtomicBool) -> Result<Self> {
        let (router, gates) = (&topology.router, &topology.gates);
        put(router, "bird.conf", router_bird())?;
        for (number, gate) in (0..).zip(gates) {
            put(gate, "grantor.key", format!("{KEY}\n"))?;
            put(gate, "gate.toml", gate_config(bits))?;
            let peer = format!("{},65000", address(3 + number, 1));
            let own = address(3 + number, 2).to_string();
            let output = gate.run(move || {
                let mut command = Command::new(ourselves());
                command.args(["gate", "bgp-config", "-c", "/tmp/gate.toml"]);
                command.args(["--local-as", "65001", "--router-id", &own, "--peer", &peer]);
                command.output().context("running `fingerpost gate bgp-config`")
            })?;
            if !output.status.success() {
                bail!("gate bgp-config: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
            put(gate, "bird.conf", String::from_utf8_lossy(&output.stdout).into_owned())?;
        }
        let mut speakers = Vec::new();
        for (namespace, of) in
            [(router, "the router"), (&gates[0], NAMES[0]), (&gates[1], NAMES[1])]
        {
            let arguments = ["-f", "-c", "/tmp/bird.conf", "-s", "/tmp/bird.ctl"];
            speakers.push(Part::start(namespace, &format!("BIRD of {of}"), "bird", &arguments)?);
        }
        let mut speakers = Self(speakers);
        let begin = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let route = router.ip(&format!("route show {PROTECTED}"))?;
            if (3..5).all(|link| route.contains(&format!("via {} ", address(link, 2)))) {
                break;
            }
            speakers.run().context("is the Debian package bird2 installed?")?;
            if begin.elapsed() > CONVERGENCE {
                bail!("the router has not both ways to {PROTECTED} by BGP, but: {}", route.trim());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(speakers)
    }

    /// Is an error if one of them runs no more.
    pub(super) fn run(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(Part::runs)
    }
}

/// What became of packets at both gates, and of requests at the grantor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Kept {
    /// Packets for the server that reached a gate.
    pub(super) received: u64,
    /// Of those, packets of flows that were granted.
    pub(super) granted: u64,
    /// Of those, packets that asked.
    pub(super) requests: u64,
    /// Of those, packets that found no room in the channel for requests.
    pub(super) low_priority: u64,
    /// Packets of flows that were declined.
    pub(super) declined: u64,
    /// Of those, packets that the kernel dropped before they cost a worker anything.
    pub(super) early: u64,
    /// Requests that the policy granted.
    pub(super) grants: u64,
    /// Requests that the policy declined.
    pub(super) declines: u64,
    /// Requests that it let through without a word.
    pub(super) passed: u64,
}

/// Gates and grantor at work; they end when dropped.
#[derive(Debug)]
pub(super) struct Guards {
    gates: Vec<Part>,
    grantor: Part,
}

impl Guards {
    /// Starts them for a service at a port, and waits until they guard, or for `stop`.
    pub(super) fn start(topology: &Topology, port: u16, stop: &AtomicBool) -> Result<Self> {
        let policies = gate::grantor::shipped::POLICIES;
        let policy = policies.iter().find(|policy| policy.name == POLICY);
        let text = policy.with_context(|| format!("there is no policy {POLICY}"))?.text;
        put(&topology.grantor, "policy.lua", text.to_owned())?;
        put(&topology.grantor, "services.txt", format!("{SERVER} {port}\n"))?;
        put(&topology.grantor, "grantor.key", format!("{KEY}\n"))?;
        put(&topology.grantor, "grantor.toml", grantor_config())?;
        let start = |namespace, name: &str, arguments: &[&str]| {
            Part::start(namespace, name, &ourselves(), arguments)
        };
        let arguments = ["grantor", "-c", "/tmp/grantor.toml", "-j"];
        let mut grantor = start(&topology.grantor, "the grantor", &arguments)?;
        let mut gates = Vec::new();
        for (gate, name) in topology.gates.iter().zip(NAMES) {
            gates.push(start(gate, name, &["gate", "-c", "/tmp/gate.toml", "-j"])?);
        }
        grantor.says("granting", stop)?;
        for gate in &mut gates {
            gate.says("guarding after", stop)?;
        }
        Ok(Self { gates, grantor })
    }

    /// Is an error if one of them runs no more.
    pub(super) fn run(&mut self) -> Result<()> {
        self.gates.iter_mut().chain([&mut self.grantor]).try_for_each(Part::runs)
    }

    /// Ends them and returns what they have counted.
    pub(super) fn end(self) -> Result<Kept> {
        let mut kept = Kept::default();
        for (part, name) in self.gates.into_iter().zip(NAMES) {
            let report: Value = serde_json::from_str(&part.end()?)
                .with_context(|| format!("what {name} has counted"))?;
            let packets = |of: &str| report["gate"]["packets"][of].as_u64().unwrap_or_default();
            let dropped = |of: &str| report["counters"]["dropped"][of].as_u64().unwrap_or_default();
            kept.received += packets("received");
            kept.granted += packets("granted");
            kept.requests += packets("request");
            kept.declined += packets("declined");
            kept.early += packets("xdp_dropped");
            kept.low_priority += dropped("low_priority");
        }
        let report: Value =
            serde_json::from_str(&self.grantor.end()?).context("what the grantor has counted")?;
        let policy = |of: &str| report["grantor"]["policy"][of].as_u64().unwrap_or_default();
        kept.grants = policy("granted");
        kept.declines = policy("declined");
        kept.passed = policy("undecided");
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_one_that_ships() {
        let policies = gate::grantor::shipped::POLICIES;
        assert!(
            policies.iter().any(|policy| policy.name == POLICY && policy.lists == ["services"])
        );
        assert_eq!(KEY.len(), 64);
        assert!(router_bird().contains(&address(4, 2).to_string()));
        assert!(PROTECTED.parse::<fib::Prefix<u32>>().unwrap().contains(SERVER.into()));
    }
}
