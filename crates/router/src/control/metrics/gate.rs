//! The metrics of a gate: by verdict, by rule of the policy, by destination.
//!
//! Packets by verdict and by rule are exact, and each adds up to the packets received. Destinations
//! are estimates from samples of the last seconds, for those with most packets only: gauges,
//! because a destination that is no longer among them disappears. Their standard errors are
//! exported too (`web/destinations.rs`).

use std::collections::BTreeMap;
use std::fmt;

use super::Scrape;
use super::help;
use super::writer::{Family, Writer, bytes, family};
use crate::vantage::{CounterGroup, is_gauge};
use crate::web::DestinationList;
use api::RuleTraffic;

impl Scrape {
    pub(super) fn encode_gate(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Ok(gate) = self.role.gate() else { return Ok(()) };
        let numbers = gate.counters();
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
        encode_policies(to, &gate.rule_traffic())?;
        encode_destinations(to, &self.recorder.destinations)?;
        let help = "1 during an attack: the gate drops at least 100 packets a second and a tenth of \
                    all; fingerpost_gate_packets_total has the verdicts";
        to.gauge(&family("gate_attack", help), [([], self.recorder.is_under_attack.into())])?;
        let help = "Attacks that have begun since the start; the page and the log have their times";
        to.counter(&family("gate_attacks", help), [([], self.recorder.attacks)])?;
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
        let received = gate.decision_counters();
        let decided = numbers.iter().filter(|number| number.0 == CounterGroup::Decisions);
        let all = decided.map(|number| (number.1, number.2)).chain(received);
        let metric = family(
            "gate_decisions",
            "Messages and decisions of grantors, by result; forged, replayed and unknown_source \
             are not from a grantor: growth means an attack on the decisions",
        );
        to.counter(&metric, all.map(|(name, value)| ([("result", name)], value)))?;
        let each: Vec<_> = gate
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
        let programs: Vec<_> = gate
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
        let (generation, reloads, refused) = gate.policy_counts();
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
        let Some(shadow) = gate.candidate() else { return Ok(()) };
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

/// Writes the estimates of destinations.
fn encode_destinations(to: &mut Writer<'_>, list: &DestinationList) -> fmt::Result {
    let help = "Seconds that the estimates of destinations cover now";
    to.level(&family("gate_sampled_seconds", help), [([], list.seconds)])?;
    let help = "Samples behind the estimates of destinations; few samples make large errors";
    to.gauge(&family("gate_sampled_packets", help), [([], list.samples)])?;
    let help = "One packet in this many was sampled, at the least; at 1 the estimates are exact";
    to.gauge(&family("gate_sampling_interval", help), [([], list.every.into())])?;
    let names: Vec<String> =
        list.destinations.iter().map(|item| item.destination.to_string()).collect();
    let all = || names.iter().map(String::as_str).zip(&list.destinations);
    let packets = all().flat_map(|(name, item)| {
        item.outcomes().map(|(outcome, rate)| ([("destination", name), ("outcome", outcome)], rate))
    });
    let help = "Packets a second to the destinations with most packets, by outcome, estimated from \
                samples; many dropped ones mark the target of an attack";
    to.level(&family("gate_destination_packets_per_second", help), packets)?;
    let help = "Bytes a second to the destinations with most packets, estimated from samples";
    let each = all().map(|(name, item)| ([("destination", name)], item.bits / 8.0));
    to.level(&family("gate_destination_bytes_per_second", help), each)?;
    let help = "Share of all packets that goes to a destination, for those with most packets, \
                estimated from samples";
    let each = all().map(|(name, item)| ([("destination", name)], item.share));
    to.level(&family("gate_destination_share_ratio", help), each)?;
    let help =
        "Relative standard error of a destination's estimates; 0 if every packet was sampled";
    let each = all().map(|(name, item)| ([("destination", name)], item.error));
    to.level(&family("gate_destination_error_ratio", help), each)
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::web::Destination;

    #[derive(Debug)]
    struct Example(Vec<RuleTraffic>, DestinationList);

    impl Collector for Example {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let mut to = Writer(encoder);
            encode_policies(&mut to, &self.0)?;
            encode_destinations(&mut to, &self.1)
        }
    }

    #[test]
    fn rules_are_counters_and_destinations_estimates() {
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
        let destination = Destination {
            destination: "2001:db8::7".parse().unwrap(),
            share: 0.25,
            packets: 10.0,
            bits: 8000.0,
            requests: 1.0,
            granted: 2.0,
            passed: 3.0,
            dropped: 4.0,
            error: 0.5,
        };
        let destinations = vec![destination];
        let list = DestinationList { seconds: 9.5, samples: 41, every: 8, destinations };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Example(vec![policy], list)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let rate = "gate_destination_packets_per_second{destination=\"2001:db8::7\",outcome=";
        for line in [
            "gate_policy_packets_total{policy=\"2001:db8::/32\",outcome=\"dropped\"} 3".to_owned(),
            "gate_policy_bytes_total{policy=\"2001:db8::/32\",outcome=\"granted\"} 400".to_owned(),
            format!("{rate}\"request\"}} 1.0"),
            format!("{rate}\"granted\"}} 2.0"),
            format!("{rate}\"passed\"}} 3.0"),
            format!("{rate}\"dropped\"}} 4.0"),
            "gate_destination_bytes_per_second{destination=\"2001:db8::7\"} 1000.0".to_owned(),
            "gate_destination_share_ratio{destination=\"2001:db8::7\"} 0.25".to_owned(),
            "gate_destination_error_ratio{destination=\"2001:db8::7\"} 0.5".to_owned(),
            "gate_sampled_seconds 9.5".to_owned(),
            "gate_sampled_packets 41.0".to_owned(),
            "gate_sampling_interval 8.0".to_owned(),
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
    }
}
