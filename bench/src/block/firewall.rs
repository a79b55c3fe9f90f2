//! The kernel's firewall as contestants: a set of nftables, and one of ipset.
//!
//! nftables has the prefixes in a set of intervals, and its rule at the ingress hook of the device, the earliest it has.
//! ipset has them in a `hash:net`, and a rule of iptables in the table `raw`, the earliest that reads such sets: behind the
//! checks of the IP header, so that the frames have valid ones.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use fib::Prefix;

use super::dropper::Dropper;

/// A set of intervals, and a chain while it runs.
pub(super) struct Nftables;

impl Nftables {
    pub(super) fn new(list: &[Prefix<u32>]) -> anyhow::Result<Self> {
        let elements: Vec<String> = list.iter().map(ToString::to_string).collect();
        run(
            &["nft", "-f", "-"],
            &format!(
                "add table netdev bench\n\
             add set netdev bench listed {{ type ipv4_addr; flags interval; auto-merge; }}\n\
             add element netdev bench listed {{ {} }}\n",
                elements.join(", ")
            ),
        )?;
        Ok(Self)
    }
}

impl Dropper for Nftables {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let commands = "add chain netdev bench drops { type filter hook ingress device v1 priority 0; }\n\
             add rule netdev bench drops ip saddr @listed counter drop\n";
        run(&["nft", "-f", "-"], commands).map(drop)
    }

    fn stop(&mut self) -> anyhow::Result<u64> {
        let output = run(&["nft", "-j", "list", "chain", "netdev", "bench", "drops"], "")?;
        let list: serde_json::Value = serde_json::from_str(&output).context("nft -j")?;
        run(&["nft", "-f", "-"], "delete chain netdev bench drops\n")?;
        let items = list["nftables"].as_array().context("a list")?;
        let terms = items.iter().filter_map(|item| item["rule"]["expr"].as_array()).flatten();
        terms.map(|term| &term["counter"]["packets"]).find_map(|n| n.as_u64()).context("a counter")
    }
}

/// A hash of prefixes, and a rule while it runs.
pub(super) struct Ipset;

/// The rule, behind the command.
const RULE: [&str; 10] =
    ["PREROUTING", "-i", "v1", "-m", "set", "--match-set", "bench", "src", "-j", "DROP"];

impl Ipset {
    pub(super) fn new(list: &[Prefix<u32>]) -> anyhow::Result<Self> {
        use std::fmt::Write as _;
        let size = list.len();
        let mut commands = format!("create bench hash:net hashsize {size} maxelem {size}\n");
        for prefix in list {
            writeln!(commands, "add bench {prefix}")?;
        }
        run(&["ipset", "restore"], &commands)?;
        Ok(Self)
    }
}

impl Dropper for Ipset {
    fn name(&self) -> &'static str {
        "ipset"
    }

    fn start(&mut self) -> anyhow::Result<()> {
        raw("-A", &RULE).map(drop)
    }

    fn stop(&mut self) -> anyhow::Result<u64> {
        let rules = raw("-L", &["PREROUTING", "-v", "-x", "-n"])?;
        raw("-D", &RULE)?;
        let rule = rules.lines().find(|line| line.contains("match-set bench"));
        let packets = rule.and_then(|line| line.split_whitespace().next()?.parse().ok());
        packets.with_context(|| format!("no packets of the rule in {rules}"))
    }
}

/// Runs `iptables` for the table `raw`.
fn raw(command: &str, args: &[&str]) -> anyhow::Result<String> {
    run(&[&["iptables", "-t", "raw", command], args].concat(), "")
}

/// Runs a command with this input, and returns its output.
fn run(command: &[&str], input: &str) -> anyhow::Result<String> {
    let name = command[0];
    let mut process = Command::new(name)
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("running {name}"))?;
    if let Some(mut pipe) = process.stdin.take() {
        // After an error the process reads no more, and states it.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = process.wait_with_output()?;
    // The other lines quote the commands, which may be a million elements.
    let error = String::from_utf8_lossy(&output.stderr);
    let error = error.lines().next().unwrap_or_default();
    ensure!(output.status.success(), "{name}: {} {error}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
