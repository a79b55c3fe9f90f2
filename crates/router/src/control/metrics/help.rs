//! HELP texts of a gate's counters: the counted events, the causes of growth, and the remedy.

use crate::vantage::CounterGroup;

/// Returns the HELP of a number of the flow table or the link, or `None`.
pub(super) fn of(about: CounterGroup, name: &str) -> Option<&'static str> {
    match about {
        CounterGroup::Table => table(name),
        CounterGroup::Link => link(name),
        CounterGroup::Packets | CounterGroup::Bytes | CounterGroup::Decisions => None,
    }
}

fn table(name: &str) -> Option<&'static str> {
    Some(match name {
        "program_flows" => "Flows that a flow program decides",
        "capacity" => {
            "Entries of the flow table; the size is fixed: raise flow_table.entries if usage_percent is high"
        }
        "flows" => "Entries of the flow table in use, of all states",
        "granted" => "Flows that a grantor has granted and that may pass",
        "declined" => "Flows that a grantor has declined and that are dropped",
        "inserted" => "Flows that got an entry of the flow table",
        "first_seen" => {
            "First packets that were remembered without an entry while the table fills up"
        }
        "first_seen_overflow" => {
            "First packets without room in that memory either; if it grows, new sources arrive \
             faster than known ones return: turn on SYN cookies or use a larger table"
        }
        "readmitted" => {
            "Flows that got an entry because a second packet came while the table fills up"
        }
        "validated" => "TCP sources that answered a SYN cookie and so proved their address",
        "invalid_cookies" => "Resets with a cookie that the gate did not send: forged, or too late",
        "evicted" => {
            "Entries of requests and declines evicted for others; if it grows all the time, the \
             table is too small for the attack"
        }
        "expired" => "Entries that expired",
        "xdp_flows" => {
            "Declined flows whose packets the steering program drops before a worker \
         receives them"
        }
        "xdp_prefixes" => "Blocked prefixes whose packets the steering program drops",
        "xdp_prefixes_overflow" => {
            "Blocked prefixes that the kernel had no room for; workers drop their packets, at a \
             higher cost: shorten or aggregate the list"
        }
        "xdp_map_errors" => {
            "Times that a map of the kernel could not be written; the packets are dropped by \
             workers instead: look at the log"
        }
        "usage_percent" => "Share of the flow table in use, of the fullest worker, in percent",
        "requests" => "Flows that sent a request and have no decision yet",
        _ => return None,
    })
}

fn link(name: &str) -> Option<&'static str> {
    Some(match name {
        "limit_evictions" => {
            "Times that a destination with a limit of its own replaced another one in use and \
             inherited its usage; if it grows fast, an attacker sprays packets over destinations"
        }
        "requests_offered" => "Requests that were to be sent to grantors",
        "requests_sent" => "Requests that were sent to grantors",
        "requests_dropped" => {
            "Requests without room in the request channel, the lowest priorities first; growth \
             under attack is normal: clients that keep sending requests pass"
        }
        "requests_waiting" => "Requests that wait for the request channel now",
        "waiting" => "Packets that wait for the link now, of all kinds",
        "granted_dropped" => {
            "Granted packets dropped early because their destination's queue grows (RED); if it \
             grows, grants exceed the link: grant less, or raise [link] bandwidth if it is wrong"
        }
        "highest_priority" => "Priority of the first request that waits, 0 if none does",
        "operational_bytes" => "Bytes of the operational reserve that were used (bytes, total)",
        "request_bytes" => "Bytes that requests have sent over the link (bytes, total)",
        "granted_bytes" => "Bytes that granted packets have sent over the link (bytes, total)",
        "icmp_sent" => "ICMP errors that the gate sent, such as Packet Too Big",
        "icmp_rate_limited" => {
            "ICMP errors that were not sent because their budget was used up; if it grows without \
             an attack, a tunnel's MTU is too small for what clients send"
        }
        "cookies_sent" => "SYN cookies sent to sources that have to prove their address",
        "cookies_failed" => "SYN cookies that could not be sent because the port was full",
        "cookies_rate_limited" => {
            "SYNs that got no cookie because the budget of cookies was used up"
        }
        "mss_clamped" => "SYNs whose MSS was lowered to what fits the tunnel",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::vantage::counter_names;

    #[test]
    fn every_number_of_table_and_link_has_a_help_of_its_own() {
        let mut seen = BTreeSet::new();
        for (group, name) in counter_names() {
            if matches!(group, CounterGroup::Table | CounterGroup::Link) {
                let help =
                    of(group, name).unwrap_or_else(|| panic!("{group:?} {name} has no help"));
                assert!(seen.insert(help), "{name} has another's help");
            }
        }
        assert_eq!(of(CounterGroup::Table, "no such number"), None);
    }
}
