//! What a gate counts: by verdict, by rule of the policy, by destination.
//!
//! Packets by verdict and by rule are exact, and both add up to what was received. Destinations are
//! estimates by samples, of the last seconds, and only those with most packets: gauges, because
//! one that is no longer among them is no longer told. How good they are is told beside them
//! (`web/top.rs` says why).

use std::collections::BTreeMap;
use std::fmt;

use super::Gathered;
use super::help;
use super::writer::{Family, Writer, bytes, family};
use crate::vantage::status::RuleTraffic;
use crate::vantage::{CounterGroup, is_gauge};
use crate::web::Destinations;

impl Gathered {
    pub(super) fn encode_gate(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Ok(gate) = self.role.gate() else { return Ok(()) };
        let numbers = gate.counters();
        let of = |about| {
            let all = numbers.iter().filter(move |it| it.0 == about);
            all.map(|&(_, name, value)| ([("verdict", name)], value))
        };
        let metric = family("gate_packets", "Packets that the gate decided, by verdict");
        to.counter(&metric, of(CounterGroup::Packets))?;
        to.counter(
            &bytes("gate", "Bytes of the packets that the gate decided, by verdict"),
            of(CounterGroup::Bytes),
        )?;
        encode_policies(to, &gate.rule_traffic())?;
        encode_destinations(to, &self.watched.destinations)?;
        let help = "1 while an attack goes on, by the rule of the page: packets dropped by the gate are \
                    many and a large share of all";
        to.gauge(&family("gate_attack", help), [([], self.watched.attack.into())])?;
        let help = "Attacks that have begun since the start; the page and the log have their times";
        to.counter(&family("gate_attacks", help), [([], self.watched.attacks)])?;
        for (about, part) in [(CounterGroup::Table, "flow_table"), (CounterGroup::Link, "link")] {
            for &(_, name, value) in numbers.iter().filter(|it| it.0 == about) {
                let name_of = format!("gate_{part}_{name}");
                let metric = family(&name_of, help::of(about, name).unwrap_or(name));
                if is_gauge(about, name) {
                    to.gauge(&metric, [([], value)])?;
                } else {
                    to.counter(&metric, [([], value)])?;
                }
            }
        }
        let heard = gate.decision_counters();
        let decided = numbers.iter().filter(|it| it.0 == CounterGroup::Decisions);
        let all = decided.map(|it| (it.1, it.2)).chain(heard);
        let metric = family(
            "gate_decisions",
            "Messages and decisions of grantors, by result; forged, replayed and unknown_source \
             are not from a grantor",
        );
        to.counter(&metric, all.map(|(name, value)| ([("result", name)], value)))?;
        let each: Vec<_> = gate
            .grantors()
            .into_iter()
            .map(|(at, gone)| (at.to_string(), u64::from(gone)))
            .collect();
        let metric = family(
            "gate_grantor_silent",
            "1 while a grantor is silent and others get its flows; check it and the path to it",
        );
        to.gauge(&metric, each.iter().map(|(at, gone)| ([("grantor", at.as_str())], *gone)))?;
        let programs: Vec<_> = gate
            .programs()
            .into_iter()
            .filter(|it| it.state == "active")
            .map(|it| (it.number.to_string(), it.origin, it.digest))
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
            &family("gate_reloads", "Reloads of the policy that were applied"),
            [([], reloads)],
        )?;
        let metric = family(
            "gate_reloads_refused",
            "Reloads of the policy that were refused; the previous policy stays in force: see the \
             log",
        );
        to.counter(&metric, [([], refused)])?;
        let Some(shadow) = gate.candidate() else { return Ok(()) };
        // They begin anew with each policy and each candidate.
        let metric = family(
            "gate_candidate_samples",
            "Sampled packets that the candidate has decided beside the policy",
        );
        to.gauge(&metric, [([], shadow.samples)])?;
        let metric = family(
            "gate_candidate_packets",
            "Packets that the candidate's samples represent: an estimate",
        );
        to.gauge(&metric, [([], shadow.packets)])?;
        let metric = family(
            "gate_candidate_changes",
            "Packets for which candidate and policy differ: an estimate",
        );
        let changes = shadow.changes.iter().map(|it| {
            let labels = [("policy", it.policy.as_str()), ("candidate", it.candidate.as_str())];
            (labels, it.packets)
        });
        to.gauge(&metric, changes)
    }
}

/// Writes what became of packets by the rule that decided.
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
    let what = "Packets by the rule of the policy that decided, all that were received";
    write(family("gate_policy_packets", what), |rule| &rule.packets)?;
    write(
        bytes("gate_policy", "Bytes of the packets by the rule of the policy that decided"),
        |rule| &rule.bytes,
    )
}

/// Writes what samples say of destinations.
fn encode_destinations(to: &mut Writer<'_>, it: &Destinations) -> fmt::Result {
    let what = "Seconds that the estimates of destinations cover";
    to.level(&family("gate_sampled_seconds", what), [([], it.seconds)])?;
    let what = "Samples behind the estimates of destinations; few samples make large errors";
    to.gauge(&family("gate_sampled_packets", what), [([], it.samples)])?;
    let what = "At least one packet in this many was a sample; at 1 the estimates are exact";
    to.gauge(&family("gate_sampling_interval", what), [([], it.every.into())])?;
    let names: Vec<String> = it.destinations.iter().map(|it| it.destination.to_string()).collect();
    let all = || names.iter().map(String::as_str).zip(&it.destinations);
    let packets = all().flat_map(|(name, it)| {
        it.outcomes().map(|(outcome, rate)| ([("destination", name), ("outcome", outcome)], rate))
    });
    let what = "Packets a second of the destinations with most of them, by outcome: an estimate by samples";
    to.level(&family("gate_destination_packets_per_second", what), packets)?;
    let what = "Bytes a second of the destinations with most packets: an estimate by samples";
    let each = all().map(|(name, it)| ([("destination", name)], it.bits / 8.0));
    to.level(&family("gate_destination_bytes_per_second", what), each)?;
    let what = "Share of all packets of the destinations with most of them: an estimate by samples";
    let each = all().map(|(name, it)| ([("destination", name)], it.share));
    to.level(&family("gate_destination_share_ratio", what), each)?;
    let what =
        "Relative standard error of the estimates of a destination; 0 if every packet was a sample";
    let each = all().map(|(name, it)| ([("destination", name)], it.error));
    to.level(&family("gate_destination_error_ratio", what), each)
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::web::Destination;

    #[derive(Debug)]
    struct Told(Vec<RuleTraffic>, Destinations);

    impl Collector for Told {
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
        let top = Destinations { seconds: 9.5, samples: 41, every: 8, destinations };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Told(vec![policy], top)));
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
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
