//! Feeds bytes to the mirror of the kernel as messages of netlink, and holds it to what it
//! has recorded.
//!
//! ```text
//! bytes ─► messages ─► Mirror ─► recorded, change by change ┐
//!                        └─────► asked, whole ──────────┴─ equal?
//! ```
//!
//! A follower that only listens must know what the mirror shows: every best route of every
//! table, each recorded once; and a message that is refused leaves all as it was. The first
//! byte says whether the messages of a real kernel (the tests' own) come before those of
//! the input, so that there are links, nexthop objects and routes to change.

use std::collections::BTreeMap;
use std::net::IpAddr;

use feed::netlink::{Follower, Link, Messages, Mirror, Neighbor, RouteInfo, Rule};
use fib::Prefix;

const KERNEL: &[u8] = include_bytes!("../../crates/feed/tests/golden/linux-6.18.netlink");

/// What has been recorded: the best route of each prefix by table.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RecordedState {
    pub(crate) v4: BTreeMap<(u32, Prefix<u32>), RouteInfo>,
    pub(crate) v6: BTreeMap<(u32, Prefix<u128>), RouteInfo>,
    links: BTreeMap<u32, Link>,
    rules: Vec<Rule>,
}

fn note<K: Ord + std::fmt::Debug, V: Clone + PartialEq>(
    known: &mut BTreeMap<K, V>,
    key: K,
    now: Option<&V>,
) {
    match now {
        Some(now) => drop(known.insert(key, now.clone())),
        None => assert!(known.remove(&key).is_some(), "{key:?} is gone, which was not there"),
    }
}

impl Follower for RecordedState {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        note(&mut self.v4, (table, prefix), best);
    }
    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>) {
        note(&mut self.v6, (table, prefix), best);
    }
    fn link(&mut self, index: u32, link: Option<&Link>) {
        note(&mut self.links, index, link);
    }
    fn address(&mut self, _: u32, _: IpAddr, _: u8, _: bool) {}
    fn neighbor(&mut self, _: u32, _: IpAddr, _: Option<&Neighbor>) {}
    fn rules(&mut self, rules: &[Rule]) {
        self.rules = rules.to_vec();
    }
}

/// What a mirror shows, asked whole.
fn asked(mirror: &Mirror) -> RecordedState {
    let mut whole = RecordedState::default();
    mirror.report_routes(&mut whole);
    whole.links.clone_from(mirror.links());
    whole.rules = mirror.rules().to_vec();
    whole
}

/// Plays one input; says how many messages were taken and how many refused.
///
/// # Panics
///
/// If what was recorded and what is shown differ.
pub fn netlink(input: &[u8]) -> (u32, u32) {
    let Some((mode, input)) = input.split_first() else { return (0, 0) };
    let (mut mirror, mut recorded) = (Mirror::new(), RecordedState::default());
    let (mut taken, mut refused) = (0, 0);
    let before = if mode & 1 == 0 { KERNEL } else { &[] };
    for bytes in [before, input] {
        for message in Messages::new(bytes) {
            // What follows a damaged header cannot be recorded from it.
            let Ok(message) = message else { break };
            let shown = asked(&mirror);
            match mirror.apply(&message, &mut recorded) {
                Ok(()) => taken += 1,
                Err(damage) => {
                    refused += 1;
                    assert_eq!(asked(&mirror), shown, "{damage}, and something has changed");
                }
            }
        }
    }
    let whole = asked(&mirror);
    assert_eq!(recorded, whole, "what was recorded, and what is shown");
    (taken, refused)
}
