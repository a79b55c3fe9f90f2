//! What a gate counts: by verdict, by rule of the policy, by destination.
//!
//! Packets by verdict and by rule are exact, and both add up to what was received. Destinations are
//! estimates by samples, of the last seconds, and only those with most packets: gauges, because
//! one that is no longer among them is no longer told. How good they are is told beside them
//! (`web/top.rs` says why).

use std::collections::BTreeMap;
use std::fmt;

use super::Gathered;
use super::writer::{Family, Writer, bytes, family};
use crate::vantage::told::PolicyTold;
use crate::vantage::{About, is_gauge};
use crate::web::Destinations;

impl Gathered {
    pub(super) fn encode_gate(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Ok(gate) = self.role.gate() else { return Ok(()) };
        let numbers = gate.numbers();
        let of = |about| {
            let all = numbers.iter().filter(move |it| it.0 == about);
            all.map(|&(_, name, value)| ([("verdict", name)], value))
        };
        let it = family("gate_packets", "Packets that the gate judged, by its verdict");
        to.counter(&it, of(About::Packets))?;
        to.counter(&bytes("gate", "Bytes of them"), of(About::Bytes))?;
        encode_policies(to, &gate.policies())?;
        encode_destinations(to, &self.destinations)?;
        for (about, part) in [(About::Table, "flow_table"), (About::Link, "link")] {
            for &(_, name, value) in numbers.iter().filter(|it| it.0 == about) {
                let name_of = format!("gate_{part}_{name}");
                let it = family(&name_of, "Of the gate's table and link: see the guide");
                if is_gauge(about, name) {
                    to.gauge(&it, [([], value)])?;
                } else {
                    to.counter(&it, [([], value)])?;
                }
            }
        }
        let heard = gate.heard();
        let decided = numbers.iter().filter(|it| it.0 == About::Decisions);
        let all = decided.map(|it| (it.1, it.2)).chain(heard);
        let it = family("gate_decisions", "What grantors have said, and what came of it");
        to.counter(&it, all.map(|(name, value)| ([("what", name)], value)))?;
        let each: Vec<_> = gate
            .grantors()
            .into_iter()
            .map(|(at, gone)| (at.to_string(), u64::from(gone)))
            .collect();
        let it = family("gate_grantor_silent", "It is taken to be gone, and gets no flows");
        to.gauge(&it, each.iter().map(|(at, gone)| ([("grantor", at.as_str())], *gone)))?;
        let programs: Vec<_> = gate
            .programs()
            .into_iter()
            .filter(|it| it.state == "in_force")
            .map(|it| (it.number.to_string(), it.origin, it.digest))
            .collect();
        let it = family("gate_program", "A flow program that decisions may name");
        let labels = programs.iter().map(|(number, origin, digest)| {
            let labels = [("number", number), ("origin", origin), ("sha256", digest)];
            (labels.map(|(name, value)| (name, value.as_str())), 1)
        });
        to.gauge(&it, labels)?;
        let (generation, reloads, refused) = gate.policy();
        to.gauge(&family("gate_policy_generation", "The policy in force"), [([], generation)])?;
        to.counter(&family("gate_reloads", "Policies read anew"), [([], reloads)])?;
        let it = family("gate_reloads_refused", "Those that were not taken over");
        to.counter(&it, [([], refused)])?;
        let Some(shadow) = gate.candidate() else { return Ok(()) };
        // They begin anew with each policy and each candidate.
        let it = family("gate_candidate_samples", "Packets that the candidate was asked about");
        to.gauge(&it, [([], shadow.samples)])?;
        let it = family("gate_candidate_packets", "Packets that these stand for");
        to.gauge(&it, [([], shadow.packets)])?;
        let it = family("gate_candidate_changes", "Those of them that it would decide otherwise");
        let changes = shadow.changes.iter().map(|it| {
            let labels = [("policy", it.policy.as_str()), ("candidate", it.candidate.as_str())];
            (labels, it.packets)
        });
        to.gauge(&it, changes)
    }
}

/// Writes what became of packets by the rule that decided.
fn encode_policies(to: &mut Writer<'_>, policies: &[PolicyTold]) -> fmt::Result {
    let mut write = |it: Family<'_>, of: fn(&PolicyTold) -> &BTreeMap<String, u64>| {
        let values = policies.iter().flat_map(|policy| {
            let each = of(policy).iter();
            each.map(|(outcome, &count)| {
                ([("policy", policy.policy.as_str()), ("outcome", outcome.as_str())], count)
            })
        });
        to.counter(&it, values)
    };
    let what = "Packets by the rule of the policy that decided, all that were received";
    write(family("gate_policy_packets", what), |it| &it.packets)?;
    write(bytes("gate_policy", "Bytes of them"), |it| &it.bytes)
}

/// Writes what samples say of destinations.
fn encode_destinations(to: &mut Writer<'_>, it: &Destinations) -> fmt::Result {
    let what = "Estimates of destinations are of so many seconds";
    to.level(&family("gate_sampled_seconds", what), [([], it.seconds)])?;
    let what = "And by so many samples";
    to.gauge(&family("gate_sampled_packets", what), [([], it.samples)])?;
    let what = "One packet in so many was a sample, at the least; 1: they are exact";
    to.gauge(&family("gate_sampling_interval", what), [([], it.every.into())])?;
    let names: Vec<String> = it.destinations.iter().map(|it| it.destination.to_string()).collect();
    let all = || names.iter().map(String::as_str).zip(&it.destinations);
    let packets = all().flat_map(|(name, it)| {
        it.outcomes().map(|(outcome, rate)| ([("destination", name), ("outcome", outcome)], rate))
    });
    let what = "Of the destinations with most packets, by samples: an estimate";
    to.level(&family("gate_destination_packets_per_second", what), packets)?;
    let what = "Bytes of them, by samples";
    let each = all().map(|(name, it)| ([("destination", name)], it.bits / 8.0));
    to.level(&family("gate_destination_bytes_per_second", what), each)?;
    let what = "Their part of all packets, by samples";
    let each = all().map(|(name, it)| ([("destination", name)], it.share));
    to.level(&family("gate_destination_share_ratio", what), each)?;
    let what = "The relative standard error of these estimates; 0 where every packet was a sample";
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
    struct Told(Vec<PolicyTold>, Destinations);

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
        let policy = PolicyTold {
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
