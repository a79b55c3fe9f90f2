//! Feeds bytes to the kernel mirror as netlink messages, and compares its state with its reports.
//!
//! ```text
//! bytes ─► messages ─► Mirror ─► recorded, change by change ┐
//!                        └─────► read at the end ─────────┴─ equal?
//! ```
//!
//! A follower must know the mirror's state from the reports alone: every best route of every table,
//! each reported once; and a rejected message changes nothing. The first byte selects whether the
//! messages of a real kernel (the tests' own) precede those of the input, so that there are links,
//! nexthop objects and routes to change.

use std::collections::BTreeMap;
use std::net::IpAddr;

use feed::netlink::{
    AddressChange, AddressView, Follower, InterfaceSettings, Link, Messages, Mirror, Neighbor,
    RouteInfo, Rule,
};
use fib::Prefix;

const KERNEL: &[u8] = include_bytes!("../../crates/feed/tests/golden/linux-6.18.netlink");

/// The recorded reports: the best route of each prefix by table.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RecordedState {
    pub(crate) v4: BTreeMap<(u32, Prefix<u32>), RouteInfo>,
    pub(crate) v6: BTreeMap<(u32, Prefix<u128>), RouteInfo>,
    links: BTreeMap<u32, Link>,
    rules: Vec<Rule>,
    /// Those that differ from the default.
    settings: BTreeMap<u32, InterfaceSettings>,
}

fn record<K: Ord + std::fmt::Debug, V: Clone + PartialEq>(
    known: &mut BTreeMap<K, V>,
    key: K,
    now: Option<&V>,
) {
    match now {
        Some(now) => drop(known.insert(key, now.clone())),
        None => assert!(known.remove(&key).is_some(), "{key:?} was removed, but not present"),
    }
}

impl Follower for RecordedState {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        record(&mut self.v4, (table, prefix), best);
    }
    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>) {
        record(&mut self.v6, (table, prefix), best);
    }
    fn link(&mut self, index: u32, link: Option<&Link>) {
        record(&mut self.links, index, link);
    }
    fn address(&mut self, _: &AddressView, _: AddressChange) {}
    fn neighbor(&mut self, _: u32, _: IpAddr, _: Option<&Neighbor>) {}
    fn rules(&mut self, rules: &[Rule]) {
        self.rules = rules.to_vec();
    }
    fn settings(&mut self, interface: u32, settings: InterfaceSettings) {
        let before = self.settings.remove(&interface).unwrap_or_default();
        assert_ne!(before, settings, "{interface}: a report without a change");
        if settings != InterfaceSettings::default() {
            self.settings.insert(interface, settings);
        }
    }
}

/// Returns the whole state of a mirror.
fn state_of(mirror: &Mirror) -> RecordedState {
    let mut whole = RecordedState::default();
    mirror.report_routes(&mut whole);
    whole.links.clone_from(mirror.links());
    whole.rules = mirror.rules().to_vec();
    whole.settings = mirror.settings();
    whole.settings.retain(|_, settings| *settings != InterfaceSettings::default());
    whole
}

/// Plays one input; returns the numbers of accepted and rejected messages.
///
/// # Panics
///
/// If the reports and the state differ.
pub fn netlink(input: &[u8]) -> (u32, u32) {
    let Some((mode, input)) = input.split_first() else { return (0, 0) };
    let (mut mirror, mut recorded) = (Mirror::new(), RecordedState::default());
    let (mut taken, mut refused) = (0, 0);
    let before = if mode & 1 == 0 { KERNEL } else { &[] };
    for bytes in [before, input] {
        for message in Messages::new(bytes) {
            // The bytes after a damaged header are not messages.
            let Ok(message) = message else { break };
            let shown = state_of(&mirror);
            match mirror.apply(&message, &mut recorded) {
                Ok(()) => taken += 1,
                Err(damage) => {
                    refused += 1;
                    assert_eq!(state_of(&mirror), shown, "{damage}, but the state has changed");
                }
            }
        }
    }
    let whole = state_of(&mirror);
    assert_eq!(recorded, whole, "the reports and the state");
    (taken, refused)
}
