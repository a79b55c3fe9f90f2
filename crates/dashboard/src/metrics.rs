//! The metrics of the recorder of a gate: attacks, and destinations.
//!
//! Destinations are estimates from samples of the last seconds, for those with most packets only:
//! gauges, because a destination that is no longer among them disappears. Their standard errors are
//! exported too (`destinations.rs`).

use std::fmt;

use super::destinations::DestinationList;
use control::exposition::{Writer, family};
use control::metrics::MetricSet;

/// The results of the recorder at one moment.
#[derive(Debug, Default)]
pub(super) struct RecorderMetrics {
    /// Whether attacks and destinations are recorded, as those of a gate are.
    pub(super) is_of_gate: bool,
    /// The destinations as estimated from samples.
    pub(super) destinations: DestinationList,
    /// Whether an attack is in progress.
    pub(super) is_under_attack: bool,
    /// Attacks since the start.
    pub(super) attacks: u64,
}

impl MetricSet for RecorderMetrics {
    fn encode(&self, to: &mut Writer<'_>) -> fmt::Result {
        if !self.is_of_gate {
            return Ok(());
        }
        encode_destinations(to, &self.destinations)?;
        let help = "1 during an attack: the gate drops at least 100 packets a second and a tenth of \
                    all; fingerpost_gate_packets_total has the verdicts";
        to.gauge(&family("gate_attack", help), [([], self.is_under_attack.into())])?;
        let help = "Attacks that have begun since the start; the page and the log have their times";
        to.counter(&family("gate_attacks", help), [([], self.attacks)])
    }
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
    use crate::destinations::Destination;

    #[derive(Debug)]
    struct Example(DestinationList);

    impl Collector for Example {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            encode_destinations(&mut Writer(encoder), &self.0)
        }
    }

    #[test]
    fn destinations_are_gauges_with_their_errors() {
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
        registry.register_collector(Box::new(Example(list)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let rate = "gate_destination_packets_per_second{destination=\"2001:db8::7\",outcome=";
        for line in [
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
