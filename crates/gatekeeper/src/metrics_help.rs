//! The HELP texts of the numbers of a gate's flow table and link: the counted events, the causes of
//! growth, and the remedy.

use super::counter_snapshot::CounterGroup;

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
        "program_flows" => {
            "Flows whose packets a flow program decides now; 0 while grantors name none"
        }
        "capacity" => {
            "Entries that the flow table has; the size is fixed: raise flow_table.entries if \
             usage_percent is high"
        }
        "flows" => "Entries of the flow table in use now, of all states",
        "granted" => "Flows that a grantor has granted and whose packets pass now",
        "declined" => "Flows that a grantor has declined and whose packets are dropped now",
        "inserted" => {
            "Flows that got an entry of the flow table; its rate is the rate of new flows"
        }
        "first_seen" => {
            "First packets recorded without an entry because the table is nearly full; a second \
             packet of the flow gets an entry"
        }
        "first_seen_overflow" => {
            "First packets that could not be recorded either; if it grows, new sources arrive \
             faster than known ones return: turn on SYN cookies or use a larger table"
        }
        "readmitted" => {
            "Flows that got an entry with their second packet because the table is nearly full"
        }
        "validated" => {
            "TCP sources that answered a SYN cookie and so proved their address; grows with \
             connections of real clients"
        }
        "invalid_cookies" => {
            "Resets with a cookie that the gate did not send: forged or too late; if it grows fast, \
             a sender guesses cookies"
        }
        "evicted" => {
            "Entries of requests and declines evicted for others; if it grows all the time, the \
             table is too small for the attack: raise flow_table.entries"
        }
        "expired" => {
            "Entries removed after their lifetime; in balance with inserted in normal operation"
        }
        "xdp_flows" => {
            "Declined flows whose packets the steering program drops now, before a worker receives \
             them"
        }
        "xdp_prefixes" => "Blocked prefixes whose packets the steering program drops now",
        "xdp_prefixes_overflow" => {
            "Blocked prefixes that the kernel had no room for; workers drop their packets, at a \
             higher cost: shorten or aggregate the list"
        }
        "xdp_map_errors" => {
            "Times that the kernel refused to change a BPF map; workers drop the packets instead, \
             at a higher cost: the log has the reason"
        }
        "usage_percent" => {
            "Share of the flow table in use, of the fullest worker, in percent; if it stays \
             high, raise flow_table.entries"
        }
        "requests" => {
            "Flows that sent a request and have no decision now; if it stays high, a grantor is \
             slow or unreachable"
        }
        _ => return None,
    })
}

fn link(name: &str) -> Option<&'static str> {
    Some(match name {
        "limit_evictions" => {
            "Times that a destination with a limit of its own replaced another one in use and \
             inherited its usage; if it grows fast, an attacker sprays packets over destinations"
        }
        "requests_offered" => {
            "Requests that entered the request channel; requests_sent and requests_dropped are the \
             outcomes"
        }
        "requests_sent" => "Requests that were sent to grantors over the link",
        "requests_dropped" => {
            "Requests without room in the request channel, the lowest priorities first; growth \
             under attack is normal: clients that keep sending requests pass"
        }
        "requests_waiting" => {
            "Requests that wait for the request channel now; at its limit the lowest priority is \
             dropped"
        }
        "waiting" => {
            "Packets of all classes that wait for the link now; if it stays high, the link is full"
        }
        "granted_dropped" => {
            "Granted packets dropped early because their destination's queue grows (RED); if it \
             grows, grants exceed the link: grant less, or raise [link] bandwidth if it is wrong"
        }
        "highest_priority" => {
            "DSCP of the first request that waits now, 0 if none does; requests with a lower one \
             are sent after it"
        }
        "operational_bytes" => {
            "Bytes of operational packets (ARP, ND, ICMP, BGP) sent over the link, those of the host \
             itself included (Linux 6.6 or later); 5 percent of the link are reserved for them"
        }
        "request_bytes" => {
            "Bytes of requests sent over the link, within the share of the request channel"
        }
        "granted_bytes" => "Bytes of granted packets sent over the link",
        "icmp_sent" => {
            "ICMP errors that the gate sent, such as Packet Too Big; grows with packets that exceed \
             a tunnel's MTU"
        }
        "icmp_rate_limited" => {
            "ICMP errors that were not sent because their budget was used up; if it grows without \
             an attack, a tunnel's MTU is too small for what clients send"
        }
        "cookies_sent" => {
            "SYN cookies sent to sources that must prove their address; grows while the table is \
             nearly full"
        }
        "cookies_failed" => {
            "SYN cookies that could not be sent because the port was full; if it grows, the front \
             interface is too slow for the flood"
        }
        "cookies_rate_limited" => {
            "SYNs that got no cookie because the budget of cookies was used up; clients repeat \
             their SYN: raise the rate if the uplink has room"
        }
        "mss_clamped" => "SYNs whose MSS was lowered to fit the tunnel; grows with connections",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::counter_snapshot::counter_names;

    #[test]
    fn every_number_of_table_and_link_has_its_own_help() {
        let mut seen = BTreeSet::new();
        for (group, name) in counter_names() {
            if matches!(group, CounterGroup::Table | CounterGroup::Link) {
                let help =
                    of(group, name).unwrap_or_else(|| panic!("{group:?} {name} has no help"));
                assert!(seen.insert(help), "{name} repeats another number's help");
            }
        }
        assert_eq!(of(CounterGroup::Table, "no such number"), None);
    }
}
