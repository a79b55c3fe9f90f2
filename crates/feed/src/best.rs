//! The best path: one route a prefix, where several peers have one.
//!
//! The rule is the part of BGP's decision process (RFC 4271, 9.1.2) that a file
//! allows, in this order; the first difference decides:
//!
//! | step | clause | better is |
//! |---|---|---|
//! | `LOCAL_PREF` | 9.1.1 | higher; 100 where there is none |
//! | `AS_PATH`    | 9.1.2.2 a | shorter; a set counts 1, confederations 0 (RFC 5065) |
//! | `ORIGIN`     | 9.1.2.2 b | IGP, then EGP, then incomplete |
//! | BGP identifier | 9.1.2.2 f | lower; only dumps of `TABLE_DUMP_V2` name it |
//! | peer address | 9.1.2.2 g | lower, IPv4 before IPv6 |
//!
//! Omitted: `MULTI_EXIT_DISC` (step c), which compares only routes of one neighboring AS and so
//! gives no order among all (RFC 3345 describes the consequences); external before internal (d) and
//! the distance to the next hop (e), which are not in a file.
//!
//! A dump is ranked while it is read. A stream needs memory: [`BestPath`] keeps each peer's path to
//! each prefix, so that a withdrawal falls back to the next best. A peer is identified by address
//! and AS, its path also by the path identifier (RFC 7911). Announcing and withdrawing cost a hash
//! and a scan over the paths of one prefix; the end of a session costs a walk over all.

use core::cmp::Ordering;
use core::net::IpAddr;

use fib::{Addr, Prefix};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::Label;

/// One difference to a routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<A: Addr> {
    /// The prefix now has this label.
    Announce {
        /// The prefix.
        prefix: Prefix<A>,
        /// Its label from now on.
        label: Label,
    },
    /// The prefix is gone.
    Withdraw {
        /// The prefix.
        prefix: Prefix<A>,
    },
}

/// A BGP speaker that sent routes. The order is the last step of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    pub asn: u32,
}

/// The rank of a path by its attributes; a lower one is better.
///
/// # Examples
///
/// ```
/// use fingerpost_feed::Rank;
/// // LOCAL_PREF before the path's length, the length before the origin.
/// assert!(Rank::new(Some(200), 9, 2) < Rank::new(None, 1, 0));
/// assert!(Rank::new(None, 2, 2) < Rank::new(None, 3, 0));
/// assert!(Rank::new(None, 2, 0) < Rank::new(Some(100), 2, 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(u64);

impl Rank {
    /// Ranks a path by `LOCAL_PREF` (if it has one), the length of its `AS_PATH`
    /// (65,535 and above count alike) and its `ORIGIN` (0 IGP, 1 EGP, 2 incomplete).
    pub fn new(local_pref: Option<u32>, path_length: u32, origin: u8) -> Self {
        let dislike = u64::from(!local_pref.unwrap_or(100));
        let length = u64::from(path_length.min(0xffff));
        Self(dislike << 24 | length << 8 | u64::from(origin))
    }

    /// The rank of a path without attributes, as in the text stream.
    pub const EVEN: Self = Self((!100u32 as u64) << 24);
}

/// The whole rule: the key by which candidates are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DecisionKey {
    pub(crate) rank: Rank,
    /// 0 if the format does not contain it.
    pub(crate) identifier: u32,
    pub(crate) peer: Peer,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    rank: Rank,
    peer: Peer,
    id: u32,
    label: Label,
}

impl Path {
    fn better(&self, other: &Self) -> Ordering {
        (self.rank, self.peer, self.id).cmp(&(other.rank, other.peer, other.id))
    }
}

/// All paths of all peers, and which of them is best.
///
/// # Examples
///
/// ```
/// use fingerpost_feed::{BestPath, Change, Label, Peer, Rank};
/// let peer = |n: u8| Peer { address: [192, 0, 2, n].into(), asn: 64500 };
/// let prefix = "10.0.0.0/8".parse().unwrap();
/// let mut best = BestPath::<u32>::new();
/// let (west, east) = (Label(0), Label(1));
/// assert!(best.announce(prefix, peer(1), 0, Rank::new(None, 3, 0), west).is_some());
/// // A longer path changes nothing,
/// assert!(best.announce(prefix, peer(2), 0, Rank::new(None, 4, 0), east).is_none());
/// // until the shorter one is gone.
/// assert_eq!(best.withdraw(prefix, peer(1), 0), Some(Change::Announce { prefix, label: east }));
/// ```
#[derive(Clone, Debug)]
pub struct BestPath<A: Addr> {
    paths: HashMap<Prefix<A>, Vec<Path>>,
}

impl<A: Addr> Default for BestPath<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Addr> BestPath<A> {
    /// Creates an empty set of paths.
    pub fn new() -> Self {
        Self { paths: HashMap::new() }
    }

    /// Adds a path, or replaces the one with the same prefix, peer and path identifier (0 if there
    /// is none); returns the change to the table if the label of the prefix changes.
    pub fn announce(
        &mut self,
        prefix: Prefix<A>,
        peer: Peer,
        id: u32,
        rank: Rank,
        label: Label,
    ) -> Option<Change<A>> {
        let paths = self.paths.entry(prefix).or_default();
        let before = label_of(paths);
        let path = Path { rank, peer, id, label };
        match paths.iter_mut().find(|path| path.peer == peer && path.id == id) {
            Some(old) => *old = path,
            None => paths.push(path),
        }
        move_best_to_front(paths);
        change(prefix, before, label_of(paths))
    }

    /// Removes a path; returns the change to the table if there is one. A missing path is no error:
    /// peers do withdraw paths that they never announced.
    pub fn withdraw(&mut self, prefix: Prefix<A>, peer: Peer, id: u32) -> Option<Change<A>> {
        let Entry::Occupied(mut entry) = self.paths.entry(prefix) else { return None };
        let paths = entry.get_mut();
        let before = label_of(paths);
        paths.retain(|path| path.peer != peer || path.id != id);
        move_best_to_front(paths);
        let after = label_of(paths);
        if after.is_none() {
            entry.remove();
        }
        change(prefix, before, after)
    }

    /// Removes all paths of a peer, as at the end of its session (RFC 4271, 3.1), and calls `each`
    /// with each change to the table, in no particular order.
    pub fn session_down(&mut self, peer: Peer, mut each: impl FnMut(Change<A>)) {
        self.paths.retain(|&prefix, paths| {
            let before = label_of(paths);
            paths.retain(|path| path.peer != peer);
            move_best_to_front(paths);
            let after = label_of(paths);
            if let Some(change) = change(prefix, before, after) {
                each(change);
            }
            after.is_some()
        });
    }

    /// Returns the label of the best path of a prefix.
    pub fn best(&self, prefix: Prefix<A>) -> Option<Label> {
        label_of(self.paths.get(&prefix)?)
    }

    /// Counts the prefixes that have a path.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Returns whether no prefix has a path.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns the table: every prefix with the label of its best path, sorted.
    pub fn table(&self) -> Vec<(Prefix<A>, Label)> {
        let mut table: Vec<_> = self
            .paths
            .iter()
            .filter_map(|(&prefix, paths)| Some((prefix, label_of(paths)?)))
            .collect();
        table.sort_unstable();
        table
    }
}

/// Moves the best path to the front.
fn move_best_to_front(paths: &mut [Path]) {
    let best = (0..paths.len()).min_by(|&a, &b| paths[a].better(&paths[b]));
    if let Some(best) = best {
        paths.swap(0, best);
    }
}

fn label_of(paths: &[Path]) -> Option<Label> {
    paths.first().map(|path| path.label)
}

fn change<A: Addr>(
    prefix: Prefix<A>,
    before: Option<Label>,
    after: Option<Label>,
) -> Option<Change<A>> {
    if before == after {
        return None;
    }
    Some(match after {
        Some(label) => Change::Announce { prefix, label },
        None => Change::Withdraw { prefix },
    })
}

#[cfg(test)]
mod tests {
    use super::{BestPath, Change, Peer, Rank};
    use crate::Label;
    use fib::Prefix;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Announce(u8, u8, u32, u8, u32),
        Withdraw(u8, u8, u32),
        Down(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0u8..4, 0u8..3, 0u32..2, 0u8..3, 0u32..4)
                .prop_map(|(at, peer, id, rank, label)| Step::Announce(at, peer, id, rank, label)),
            4 => (0u8..4, 0u8..3, 0u32..2).prop_map(|(at, peer, id)| Step::Withdraw(at, peer, id)),
            1 => (0u8..3).prop_map(Step::Down),
        ];
        prop::collection::vec(step, 0..80)
    }

    fn peer(n: u8) -> Peer {
        Peer { address: [10, 0, 0, n].into(), asn: u32::from(9 - n) }
    }

    proptest! {
        /// The returned changes, applied to a map, equal the best of a list of all paths after
        /// every step; and every change has an effect.
        #[test]
        fn best_path_equals_brute_force_list(steps in steps()) {
            let mut best = BestPath::<u8>::new();
            let mut table = BTreeMap::new();
            let mut all: BTreeMap<(Prefix<u8>, Peer, u32), (Rank, Label)> = BTreeMap::new();
            for step in steps {
                let mut changes = Vec::new();
                let at = |n: u8| Prefix::truncate(n << 6, 2);
                match step {
                    Step::Announce(n, from, id, rank, label) => {
                        let rank = Rank::new(None, u32::from(rank), 0);
                        all.insert((at(n), peer(from), id), (rank, Label(label)));
                        changes.extend(best.announce(at(n), peer(from), id, rank, Label(label)));
                    }
                    Step::Withdraw(n, from, id) => {
                        all.remove(&(at(n), peer(from), id));
                        changes.extend(best.withdraw(at(n), peer(from), id));
                    }
                    Step::Down(from) => {
                        all.retain(|key, _| key.1 != peer(from));
                        best.session_down(peer(from), |change| changes.push(change));
                    }
                }
                for change in changes {
                    let idle = match change {
                        Change::Announce { prefix, label } => {
                            table.insert(prefix, label) == Some(label)
                        }
                        Change::Withdraw { prefix } => table.remove(&prefix).is_none(),
                    };
                    prop_assert!(!idle, "{change:?} changed nothing");
                }
                let mut expected = BTreeMap::new();
                for (&(prefix, from, id), &(rank, label)) in &all {
                    let here = (rank, from, id, label);
                    let best_path = expected.entry(prefix).or_insert(here);
                    if here < *best_path {
                        *best_path = here;
                    }
                }
                let expected: BTreeMap<_, _> =
                    expected.into_iter().map(|(prefix, best_path)| (prefix, best_path.3)).collect();
                prop_assert_eq!(&table, &expected);
                prop_assert_eq!(best.table(), expected.into_iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn tie_is_broken_by_lower_peer_address() {
        let prefix = Prefix::ALL;
        let mut best = BestPath::<u32>::new();
        best.announce(prefix, peer(2), 0, Rank::EVEN, Label(2));
        best.announce(prefix, peer(1), 0, Rank::EVEN, Label(1));
        assert_eq!(best.best(prefix), Some(Label(1)));
        assert_eq!(Rank::new(None, 0, 0), Rank::EVEN);
    }
}
