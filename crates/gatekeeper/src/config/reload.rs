//! The keys that a reload of a gate cannot change.
//!
//! Policies, lists, senders and programs are live: a reload applies them. All other keys hold as long as
//! the gate runs, also whether there are block lists in front of it. The comparison destructures, so that a new
//! setting does not compile before its key is stated here.

use config::{ChangedKeys, ReloadClass};

use super::{Admission, Config, Fixed, Side};

impl Config {
    /// Lists the keys whose values differ and that only a restart changes.
    pub(crate) fn keys_needing_restart(&self, running: &Fixed) -> Vec<&'static str> {
        // Live: the rules, senders and programs of the file, or of its bundle.
        let Self { path: _, fixed, rules: _, block: _, trust: _, programs: _, bundle: _ } = self;
        running.changed_keys(fixed).not_live()
    }
}

impl Fixed {
    fn changed_keys(&self, new: &Self) -> ChangedKeys {
        let Self {
            front,
            back,
            steering,
            rss,
            fail_open,
            address4,
            address6,
            mtu,
            bits,
            requests,
            granted,
            entries,
            xdp_declined_flows,
            xdp_blocked_prefixes,
            has_block_lists,
            admission,
            keep,
            clamp_mss,
            udp,
            sealed,
            icmp_rate,
            daemon,
            distribution,
        } = self;
        let mut changed = ChangedKeys::default();
        let keys = ["front.interface", "front.mode", "front.rpf"];
        front.compare(&new.front, keys, &mut changed);
        back.compare(&new.back, ["back.interface", "back.mode", "back.rpf"], &mut changed);
        compare("front.steering", steering, &new.steering, &mut changed);
        compare("front.rss", rss, &new.rss, &mut changed);
        compare("front.fail_open", fail_open, &new.fail_open, &mut changed);
        compare("back.address4", address4, &new.address4, &mut changed);
        compare("back.address6", address6, &new.address6, &mut changed);
        compare("back.mtu", mtu, &new.mtu, &mut changed);
        compare("link.bandwidth", bits, &new.bits, &mut changed);
        compare("link.request_queue", requests, &new.requests, &mut changed);
        compare("link.granted_queue", granted, &new.granted, &mut changed);
        compare("flow_table.entries", entries, &new.entries, &mut changed);
        let key = "flow_table.xdp_declined_flows";
        compare(key, xdp_declined_flows, &new.xdp_declined_flows, &mut changed);
        let key = "flow_table.xdp_blocked_prefixes";
        compare(key, xdp_blocked_prefixes, &new.xdp_blocked_prefixes, &mut changed);
        compare("block.lists", has_block_lists, &new.has_block_lists, &mut changed);
        compare("flow_table.state_file", keep, &new.keep, &mut changed);
        match (admission, &new.admission) {
            (Some(old), Some(new)) => old.compare(new, &mut changed),
            (old, new) => compare("admission.enabled", old, new, &mut changed),
        }
        compare("tunnel.clamp_mss", clamp_mss, &new.clamp_mss, &mut changed);
        compare("tunnel.udp_port", udp, &new.udp, &mut changed);
        compare("tunnel.authentication", sealed, &new.sealed, &mut changed);
        compare("tunnel.icmp_rate", icmp_rate, &new.icmp_rate, &mut changed);
        daemon.compare(&new.daemon, &mut changed);
        compare("distribution", distribution, &new.distribution, &mut changed);
        changed
    }
}

impl Side {
    fn compare(&self, new: &Self, keys: [&'static str; 3], changed: &mut ChangedKeys) {
        let Self { name, mode, sources } = self;
        compare(keys[0], name, &new.name, changed);
        compare(keys[1], mode, &new.mode, changed);
        compare(keys[2], sources, &new.sources, changed);
    }
}

impl Admission {
    fn compare(&self, new: &Self, changed: &mut ChangedKeys) {
        let Self { threshold, first_packet_entries, syn_cookie_rate } = self;
        compare("admission.threshold", threshold, &new.threshold, changed);
        let key = "admission.first_packet_entries";
        compare(key, first_packet_entries, &new.first_packet_entries, changed);
        let key = "admission.syn_cookie_rate";
        compare(key, syn_cookie_rate, &new.syn_cookie_rate, changed);
    }
}

fn compare<T: PartialEq>(key: &'static str, old: &T, new: &T, changed: &mut ChangedKeys) {
    changed.compare(key, ReloadClass::NeedsRestart, old, new);
}
