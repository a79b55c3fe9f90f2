//! Table: the flow specifications of all peers, in the order in which they apply, and the rules they make.
//!
//! A flow specification that several peers announce has the actions of the one that announced it first.
//! Limits: [`MOST_FLOWS`] specifications, and as many rules as an access list holds
//! ([`acl::MOST_RULES`]); specifications behind those are refused.

use std::collections::BTreeMap;

use acl::{MOST_RULES, Rule};

use crate::action::Actions;
use crate::flow::FlowSpec;
use crate::message::{Notification, Update};
use crate::rules;

/// The most flow specifications of a table.
pub const MOST_FLOWS: usize = 65_536;

/// The number of a session.
pub type PeerId = u64;

/// The flow specifications of all peers.
#[derive(Debug, Default)]
pub struct Table {
    flows: BTreeMap<FlowSpec, Vec<(PeerId, Actions)>>,
}

/// A flow specification that is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedFlow {
    /// Its conditions.
    pub flow: String,
    /// The condition or action that access lists do not have.
    pub reason: &'static str,
}

/// The rules of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowRules {
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// The number of flow specifications.
    pub flows: usize,
    /// Those without rules.
    pub refused: Vec<RefusedFlow>,
}

impl Table {
    /// Applies an update of a peer: first its withdrawals.
    ///
    /// # Errors
    ///
    /// The table is full.
    pub fn apply(&mut self, peer: PeerId, update: Update) -> Result<(), Notification> {
        let Update { announced, withdrawn, communities, malformed: _ } = update;
        for flow in withdrawn {
            if let Some(paths) = self.flows.get_mut(&flow) {
                paths.retain(|(other, _)| *other != peer);
                if paths.is_empty() {
                    self.flows.remove(&flow);
                }
            }
        }
        let actions = Actions::new(&communities);
        for flow in announced {
            if self.flows.len() >= MOST_FLOWS && !self.flows.contains_key(&flow) {
                return Err(Notification::OUT_OF_RESOURCES);
            }
            let paths = self.flows.entry(flow).or_default();
            match paths.iter_mut().find(|(other, _)| *other == peer) {
                Some((_, before)) => before.clone_from(&actions),
                None => paths.push((peer, actions.clone())),
            }
        }
        Ok(())
    }

    /// Removes the flow specifications of a peer; returns whether there were any.
    pub(crate) fn remove(&mut self, peer: PeerId) -> bool {
        let mut has_any = false;
        self.flows.retain(|_, paths| {
            let before = paths.len();
            paths.retain(|(other, _)| *other != peer);
            has_any |= paths.len() < before;
            !paths.is_empty()
        });
        has_any
    }

    /// Returns the number of flow specifications of a peer. O(specifications).
    pub(crate) fn count(&self, peer: PeerId) -> usize {
        let has = |paths: &&Vec<(PeerId, Actions)>| paths.iter().any(|(other, _)| *other == peer);
        self.flows.values().filter(has).count()
    }

    /// Makes the rules. O(specifications).
    pub fn rules(&self) -> FlowRules {
        let mut all = FlowRules { flows: self.flows.len(), ..FlowRules::default() };
        for (flow, paths) in &self.flows {
            let Some((_, actions)) = paths.first() else { continue };
            let reason = match rules::rules(flow, actions) {
                Ok(rules) if all.rules.len() + rules.len() <= MOST_RULES => {
                    all.rules.extend(rules);
                    continue;
                }
                Ok(_) => "more rules than an access list holds",
                Err(reason) => reason,
            };
            all.refused.push(RefusedFlow { flow: flow.to_string(), reason });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FlowFamily;
    use crate::flow::tests::flow;

    fn update(announced: &[&FlowSpec], withdrawn: &[&FlowSpec], discards: bool) -> Update {
        let owned = |flows: &[&FlowSpec]| flows.iter().map(|flow| (*flow).clone()).collect();
        let communities = if discards { vec![[0x80, 6, 0, 0, 0, 0, 0, 0]] } else { Vec::new() };
        Update {
            announced: owned(announced),
            withdrawn: owned(withdrawn),
            communities,
            malformed: 0,
        }
    }

    fn texts(table: &Table) -> Vec<String> {
        table.rules().rules.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_are_those_of_the_first_peer_in_the_order_of_flows() {
        let udp = flow(FlowFamily::V4, &[3, 0x81, 17]);
        let host = flow(FlowFamily::V4, &[1, 32, 192, 0, 2, 1]);
        let label = flow(FlowFamily::V4, &[12, 0x80, 16]);
        let mut table = Table::default();
        table.apply(1, update(&[&udp, &label], &[], true)).expect("room");
        table.apply(2, update(&[&host, &udp], &[], false)).expect("room");
        assert_eq!(texts(&table), ["permit to 192.0.2.1/32", "deny to 0.0.0.0/0 ipproto udp"]);
        let refused = RefusedFlow { flow: label.to_string(), reason: "unknown fragment bits" };
        assert_eq!(table.rules().refused, [refused]);
        assert_eq!((table.rules().flows, table.count(1), table.count(2)), (3, 2, 2));
        // The other peer's actions, and an announcement that replaces.
        table.apply(1, update(&[], &[&udp], true)).expect("room");
        assert_eq!(texts(&table), ["permit to 192.0.2.1/32", "permit to 0.0.0.0/0 ipproto udp"]);
        table.apply(2, update(&[&udp], &[], true)).expect("room");
        assert_eq!(texts(&table), ["permit to 192.0.2.1/32", "deny to 0.0.0.0/0 ipproto udp"]);
        assert!(table.remove(2) && !table.remove(2));
        assert_eq!((texts(&table).len(), table.rules().flows), (0, 1));
    }

    #[test]
    fn full_table_is_refused() {
        let mut table = Table::default();
        for number in 0..MOST_FLOWS as u32 {
            let [_, a, b, c] = number.to_be_bytes();
            let flow = flow(FlowFamily::V4, &[1, 32, 10, a, b, c]);
            table.apply(1, update(&[&flow], &[], true)).expect("room");
        }
        let one_more = flow(FlowFamily::V4, &[1, 32, 11, 0, 0, 0]);
        assert_eq!(
            table.apply(1, update(&[&one_more], &[], true)),
            Err(Notification::OUT_OF_RESOURCES)
        );
        let known = flow(FlowFamily::V4, &[1, 32, 10, 0, 0, 0]);
        table.apply(1, update(&[&known], &[], true)).expect("a known one");
        assert_eq!(table.rules().rules.len(), MOST_RULES);
    }
}
