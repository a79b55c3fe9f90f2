//! The metrics of egress queues.

use std::fmt;

use api::EgressQueueClass;

use super::Scrape;
use crate::exposition::{Writer, family};

impl Scrape {
    pub(super) fn encode_egress_queues(&self, to: &mut Writer<'_>) -> fmt::Result {
        if self.egress_queues.is_empty() {
            return Ok(());
        }
        let samples = |value: fn(&EgressQueueClass) -> u64| {
            self.egress_queues.iter().flat_map(move |queue| {
                queue.classes.iter().map(move |class| {
                    let labels = [("interface", &*queue.interface), ("class", &*class.class)];
                    (labels, value(class))
                })
            })
        };
        let metric = family(
            "egress_queue_packets",
            "Packets that have left the queue of an interface, by class; compare with the drops of the class",
        );
        to.counter(&metric, samples(|class| class.packets))?;
        let metric = family(
            "egress_queue_bytes",
            "Bytes that have left the queue of an interface, Ethernet header included; at the rate of \
             `bandwidth` the link is full",
        );
        to.counter(&metric, samples(|class| class.bytes))?;
        let host = self
            .egress_queues
            .iter()
            .filter_map(|queue| Some(([("interface", &*queue.interface)], queue.host_bytes?)));
        let metric = family(
            "egress_queue_host_bytes",
            "Bytes that the host itself has sent by an interface with a `bandwidth`, of which they take a part; \
             a steady growth is what the machine's own services need",
        );
        to.counter(&metric, host)?;
        let metric = family(
            "egress_queue_full_packets",
            "Packets dropped because their class had `limit` packets; of control packets or requests: more \
             come than their share of a full link",
        );
        to.counter(&metric, samples(|class| class.dropped_full))?;
        let metric = family(
            "egress_queue_delayed_packets",
            "Packets that CoDel dropped because packets had waited longer than `target`: the sign of a full \
             link to senders without ECN",
        );
        to.counter(&metric, samples(|class| class.dropped_delay))?;
        let metric = family(
            "egress_queue_marked_packets",
            "Packets that CoDel marked as Congestion Experienced: the sign of a full link to senders with ECN",
        );
        to.counter(&metric, samples(|class| class.marked))?;
        let metric = family(
            "egress_queue_waiting_packets",
            "Packets that wait in the queue of an interface; if it stays near `limit`, the senders do not \
             react",
        );
        to.gauge(&metric, samples(|class| class.waiting))?;
        let metric = family(
            "egress_queue_waiting_bytes",
            "Bytes that wait in the queue of an interface; divided by the bandwidth, the delay of a new packet",
        );
        to.gauge(&metric, samples(|class| class.waiting_bytes))
    }
}
