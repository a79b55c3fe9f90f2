//! The metrics of access lists.

use std::fmt;

use super::Scrape;
use crate::access::ListTotals;
use crate::exposition::{Writer, family};

impl Scrape {
    pub(super) fn encode_access_lists(&self, to: &mut Writer<'_>) -> fmt::Result {
        let packets = self.access_lists.iter().flat_map(|list| {
            let ListTotals { permitted, denied, policed } = list.totals();
            let counts = [("permit", permitted), ("deny", denied), ("police", policed)];
            counts.map(|(action, count)| ([("list", list.name()), ("action", action)], count))
        });
        let metric = family(
            "access_list_packets",
            "Packets that an access list has permitted, denied, or dropped by a policer; `show acl` \
             has the counters of its rules",
        );
        to.counter(&metric, packets)?;
        let idle = self.access_lists.iter().map(|list| {
            let interfaces = list.inbound.iter().chain(&list.outbound);
            let count = interfaces.filter(|interface| !interface.is_port).count();
            ([("list", list.name())], count as u64)
        });
        let metric = family(
            "access_list_interfaces_without_port",
            "Interfaces of an access list that are no ports of the router, so that the list has no \
             effect there; if it stays above 0, correct the name in the configuration",
        );
        to.gauge(&metric, idle)
    }

    pub(super) fn encode_flowspec(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Some(status) = &self.flowspec else { return Ok(()) };
        let metric = family(
            "flowspec_sessions",
            "BGP sessions that bring flow specifications; 0 if the router that connects is down, whose rules \
             are then removed",
        );
        let established = status.sessions.iter().filter(|session| session.is_established);
        to.gauge(&metric, [([], established.count() as u64)])?;
        let metric = family(
            "flowspec_flows",
            "Flow specifications received and not withdrawn; compare with the router that sends them",
        );
        to.gauge(&metric, [([], status.flows as u64)])?;
        let metric = family(
            "flowspec_refused_flows",
            "Flow specifications that are not applied because access lists cannot express them; \
             `show flowspec` has the reasons",
        );
        to.gauge(&metric, [([], status.refused_flows as u64)])?;
        let metric = family(
            "flowspec_malformed_flows",
            "Flow specifications that were skipped because they violate RFC 8955 or RFC 8956; look for an \
             error of the sending router",
        );
        to.counter(&metric, [([], status.malformed)])?;
        let metric = family(
            "flowspec_refused_connections",
            "Connections refused because of their user or address; `show flowspec` has the last one",
        );
        to.counter(&metric, [([], status.refused_connections)])
    }
}
