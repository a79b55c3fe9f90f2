//! The metrics of a gate: by verdict, by rule of the policy, of the flow table and the link.
//!
//! Packets by verdict and by rule are exact, and each adds up to the packets received. The estimates
//! by destination are the page's.

use std::collections::BTreeMap;
use std::fmt;

use super::controller::GateController;
use super::counter_snapshot::{CounterGroup, is_gauge};
use super::metrics_help as help;
use api::RuleTraffic;
use control::exposition::{Family, Writer, bytes, family};

impl GateController {
    /// Writes the metrics.
    pub(super) fn encode(&self, to: &mut Writer<'_>) -> fmt::Result {
        let numbers = self.counters();
        let of = |about| {
            let all = numbers.iter().filter(move |number| number.0 == about);
            all.map(|&(_, name, value)| ([("verdict", name)], value))
        };
        let metric = family(
            "gate_packets",
            "Packets that the gate decided, by verdict; the sum grows with all packets received, \
             and a verdict that drops grows with an attack",
        );
        to.counter(&metric, of(CounterGroup::Packets))?;
        to.counter(
            &bytes("gate", "Bytes of the packets that the gate decided, by verdict"),
            of(CounterGroup::Bytes),
        )?;
        encode_policies(to, &self.rule_traffic())?;
        for (about, part) in [(CounterGroup::Table, "flow_table"), (CounterGroup::Link, "link")] {
            for &(_, name, value) in numbers.iter().filter(|number| number.0 == about) {
                let name_of = format!("gate_{part}_{name}");
                let metric = family(&name_of, help::of(about, name).unwrap_or(name));
                if is_gauge(about, name) {
                    to.gauge(&metric, [([], value)])?;
                } else {
                    to.counter(&metric, [([], value)])?;
                }
            }
        }
        let received = self.decision_counters();
        let decided = numbers.iter().filter(|number| number.0 == CounterGroup::Decisions);
        let all = decided.map(|number| (number.1, number.2)).chain(received);
        let metric = family(
            "gate_decisions",
            "Messages and decisions of grantors, by result; forged, replayed and unknown_source \
             are not from a grantor: growth means an attack on the decisions",
        );
        to.counter(&metric, all.map(|(name, value)| ([("result", name)], value)))?;
        let each: Vec<_> = self
            .grantors()
            .into_iter()
            .map(|(at, gone)| (at.to_string(), u64::from(gone)))
            .collect();
        let metric = family(
            "gate_grantor_silent",
            "1 while a grantor sends no messages and other grantors get its flows; check the \
             grantor and the path to it",
        );
        to.gauge(&metric, each.iter().map(|(at, gone)| ([("grantor", at.as_str())], *gone)))?;
        let programs: Vec<_> = self
            .programs()
            .into_iter()
            .filter(|program| program.state == "active")
            .map(|program| (program.number.to_string(), program.origin, program.digest))
            .collect();
        let metric =
            family("gate_program", "A flow program in force that decisions may name; always 1");
        let labels = programs.iter().map(|(number, origin, digest)| {
            let labels = [("number", number), ("origin", origin), ("sha256", digest)];
            (labels.map(|(name, value)| (name, value.as_str())), 1)
        });
        to.gauge(&metric, labels)?;
        let (generation, reloads, refused) = self.policy_counts();
        to.gauge(
            &family(
                "gate_policy_generation",
                "Generation of the policy in force; each applied reload adds one",
            ),
            [([], generation)],
        )?;
        to.counter(
            &family(
                "gate_reloads",
                "Reloads of the policy that were applied; grows with each reload by an operator or \
                 a bundle",
            ),
            [([], reloads)],
        )?;
        let metric = family(
            "gate_reloads_refused",
            "Reloads of the policy that were refused; the previous policy stays in force: correct \
             the error that the log has",
        );
        to.counter(&metric, [([], refused)])?;
        let Some(shadow) = self.candidate() else { return Ok(()) };
        // Gauges, because they start at 0 with each policy and each candidate.
        let metric = family(
            "gate_candidate_samples",
            "PacketSample packets that the candidate has decided beside the policy, since either was \
             loaded; few samples make large errors",
        );
        to.gauge(&metric, [([], shadow.samples)])?;
        let metric = family(
            "gate_candidate_packets",
            "Packets that the candidate's samples represent, since either policy was loaded: an \
             estimate",
        );
        to.gauge(&metric, [([], shadow.packets)])?;
        let metric = family(
            "gate_candidate_changes",
            "Packets for which candidate and policy differ, by both outcomes: an estimate; make \
             the candidate the policy only if every change is intended",
        );
        let changes = shadow.changes.iter().map(|change| {
            let labels =
                [("policy", change.policy.as_str()), ("candidate", change.candidate.as_str())];
            (labels, change.packets)
        });
        to.gauge(&metric, changes)
    }
}

/// Writes the outcomes of packets by the rule that decided.
fn encode_policies(to: &mut Writer<'_>, policies: &[RuleTraffic]) -> fmt::Result {
    let mut write = |metric: Family<'_>, of: fn(&RuleTraffic) -> &BTreeMap<String, u64>| {
        let values = policies.iter().flat_map(|policy| {
            let each = of(policy).iter();
            each.map(|(outcome, &count)| {
                ([("policy", policy.policy.as_str()), ("outcome", outcome.as_str())], count)
            })
        });
        to.counter(&metric, values)
    };
    let help = "Packets by the prefix of the policy's rule that decided, and by outcome; a rule \
                with many dropped packets is the one under attack";
    write(family("gate_policy_packets", help), |rule| &rule.packets)?;
    write(
        bytes("gate_policy", "Bytes of the packets by the rule of the policy that decided"),
        |rule| &rule.bytes,
    )
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;
    use prometheus_client::registry::Registry;

    use super::*;

    #[derive(Debug)]
    struct Example(Vec<RuleTraffic>);

    impl Collector for Example {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            encode_policies(&mut Writer(encoder), &self.0)
        }
    }

    #[test]
    fn rules_are_counters_by_outcome() {
        let counts = |all: [u64; 2]| -> BTreeMap<String, u64> {
            ["dropped", "granted"].map(str::to_owned).into_iter().zip(all).collect()
        };
        let policy = RuleTraffic {
            policy: "2001:db8::/32".into(),
            line: Some(7),
            action: None,
            packets: counts([3, 4]),
            bytes: counts([300, 400]),
        };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Example(vec![policy])));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "gate_policy_packets_total{policy=\"2001:db8::/32\",outcome=\"dropped\"} 3",
            "gate_policy_bytes_total{policy=\"2001:db8::/32\",outcome=\"granted\"} 400",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
    }
}
