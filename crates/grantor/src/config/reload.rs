//! The keys that a reload of a grantor cannot change.
//!
//! The policy, the candidate, the lists and the programs are live: a reload applies them. All other keys
//! hold as long as the grantor runs. The comparison destructures, so that a new setting does not compile
//! before its key is stated here.

use config::{ChangedKeys, ReloadClass};

use super::{Config, Fixed};
use crate::decision_sender::ProtocolVersion;

impl Config {
    /// Lists the keys whose values differ and that only a restart changes.
    pub(crate) fn keys_needing_restart(&self, running: &Fixed) -> Vec<&'static str> {
        // Live: policies, lists, programs, of the file or of its bundle.
        let Self { path: _, fixed, policies: _, lists: _, programs: _, bundle: _ } = self;
        running.changed_keys(fixed).not_live()
    }
}

impl Fixed {
    fn changed_keys(&self, new: &Self) -> ChangedKeys {
        let Self {
            interfaces,
            ends,
            gates,
            port,
            tunnels,
            sealed,
            limits,
            fragments,
            record,
            protocol,
            share_grants,
            daemon,
            distribution,
        } = self;
        let mut changed = ChangedKeys::default();
        compare("interfaces", interfaces, &new.interfaces, &mut changed);
        compare("tunnel.addresses", ends, &new.ends, &mut changed);
        compare("tunnel.gates", gates, &new.gates, &mut changed);
        compare("tunnel.udp_port", port, &new.port, &mut changed);
        compare("tunnel.interfaces", tunnels, &new.tunnels, &mut changed);
        compare("tunnel.authentication", sealed, &new.sealed, &mut changed);
        let key = "policy.max_instructions, policy.max_memory_mib or policy.fallback";
        compare(key, limits, &new.limits, &mut changed);
        compare("policy.fragments", fragments, &new.fragments, &mut changed);
        let key = "policy.record_file or policy.max_record_mib";
        compare(key, record, &new.record, &mut changed);
        protocol.compare(&new.protocol, &mut changed);
        compare("decisions.share_grants", share_grants, &new.share_grants, &mut changed);
        daemon.compare(&new.daemon, &mut changed);
        compare("distribution", distribution, &new.distribution, &mut changed);
        changed
    }
}

impl ProtocolVersion {
    /// Compares the keys of `[decisions]`: a sender's sequence numbers are those of its session, which
    /// ends with the grantor.
    fn compare(&self, new: &Self, changed: &mut ChangedKeys) {
        match (self, new) {
            (Self::V2(id, keys), Self::V2(new_id, new_keys)) => {
                compare("decisions.id", id, new_id, changed);
                compare("decisions.keys", keys, new_keys, changed);
            }
            (old, new) => compare("decisions.version", old, new, changed),
        }
    }
}

fn compare<T: PartialEq>(key: &'static str, old: &T, new: &T, changed: &mut ChangedKeys) {
    changed.compare(key, ReloadClass::NeedsRestart, old, new);
}
