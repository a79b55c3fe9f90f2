//! The settings of interfaces that decide which of their packets the kernel forwards.
//!
//! ```text
//!   message (netconf) ─► own values, by interface; values for all ─► InterfaceSettings of each interface
//! ```
//!
//! | setting | of an interface |
//! |---|---|
//! | `net.ipv4.conf.IFACE.rp_filter` | the larger of its own value and that for all |
//! | `net.ipv4.conf.IFACE.forwarding` | its own; the kernel sets all of them with that for all |
//! | `net.ipv6.conf.all.forwarding` | that for all |
//!
//! A value that is never reported does not refuse packets: a kernel without sysctls reports none. The kernel
//! reports that `net.ipv6.conf.IFACE.force_forwarding` (since Linux 6.17) has changed, but not its value.

use std::collections::{BTreeMap, BTreeSet};

use super::follower::{InterfaceSettings, RpFilter};
use super::netconf::{ALL, DEFAULT, NetconfView};

/// The settings as the kernel has reported them.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportedSettings {
    /// The values by interface index.
    own: BTreeMap<i32, Values>,
}

/// The values of one index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Values {
    rp_filter: Option<u32>,
    forwarding_v4: Option<bool>,
    forwarding_v6: Option<bool>,
}

impl ReportedSettings {
    /// Applies a message, which is about removed settings unless `is_present`; returns the interfaces whose
    /// settings may differ from those before, with the settings before.
    pub(super) fn apply(
        &mut self,
        view: &NetconfView,
        is_present: bool,
    ) -> Vec<(i32, InterfaceSettings)> {
        let affected = match view.index {
            ALL => self.own.keys().copied().collect(),
            index => vec![index],
        };
        let before = affected.into_iter().map(|index| (index, self.of(index))).collect();
        let values = self.own.entry(view.index).or_default();
        match (view.v6, is_present) {
            (false, true) => {
                values.rp_filter = view.rp_filter.or(values.rp_filter);
                values.forwarding_v4 = view.forwarding.or(values.forwarding_v4);
            }
            (true, true) => values.forwarding_v6 = view.forwarding.or(values.forwarding_v6),
            (false, false) => (values.rp_filter, values.forwarding_v4) = (None, None),
            (true, false) => values.forwarding_v6 = None,
        }
        if *values == Values::default() {
            self.own.remove(&view.index);
        }
        before
    }

    /// Returns whether the kernel copies the values of a message to interfaces without a message about each:
    /// a new default, to those whose own value was never set.
    pub(super) fn is_copied(&self, view: &NetconfView) -> bool {
        let known = self.own.get(&DEFAULT).and_then(|values| values.rp_filter);
        let is_changed = view.rp_filter.is_some() && view.rp_filter != known;
        view.index == DEFAULT && !view.v6 && known.is_some() && is_changed
    }

    /// Lists the interfaces that have values here or in `other`.
    pub(super) fn interfaces(&self, other: &Self) -> BTreeSet<i32> {
        self.own.keys().chain(other.own.keys()).copied().filter(|index| *index > 0).collect()
    }

    /// Returns the settings of an interface: the default if none are reported of it.
    pub(super) fn of(&self, index: i32) -> InterfaceSettings {
        let Some(own) = self.own.get(&index) else { return InterfaceSettings::default() };
        let all = self.own.get(&ALL).copied().unwrap_or_default();
        let filter = own.rp_filter.map(|own| own.max(all.rp_filter.unwrap_or(0)));
        InterfaceSettings {
            rp_filter: filter.map_or(RpFilter::Off, RpFilter::of),
            forwards_v4: own.forwarding_v4.unwrap_or(true),
            forwards_v6: all.forwarding_v6.unwrap_or(true),
        }
    }
}
