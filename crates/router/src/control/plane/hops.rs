//! Hops that stand for ways out, and give their index back only when nobody can have it.
//!
//! ```text
//!   route comes ─ acquire ─► Hop ─► table ─► workers
//!   route goes  ─ release ─► references left? ── yes ──► one less
//!                                   │ the last
//!                                   ▼
//!                      dropped ─ the tables without it are published ─► parting
//!                                            all workers have passed ─► given back
//! ```
//!
//! A worker in the middle of a batch may still hold the table that has the hop, and look
//! its meaning up a moment later. If the index meant something else by then, the packet
//! would go where no route ever led: so the last reference is kept until the tables
//! without it are published and every worker has left those before them
//! (`datapath/adjacency.rs`, rule 3).

use std::net::IpAddr;
use std::sync::Arc;

use feed::netlink::Target;
use fib::{Full, Hop, HopTable};

/// What a hop stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HopTarget {
    /// Where a route of the kernel leads.
    Route(Arc<Target>),
    /// A neighbor on a link that the router is on itself.
    Neighbor {
        /// The interface.
        interface: u32,
        /// Its address.
        address: IpAddr,
    },
    /// A hop of an image that led where nothing leads any more: the host decides.
    Gone(u32),
}

/// The hops in use, and those that are waiting to be free.
#[derive(Debug, Default)]
pub(super) struct Hops {
    table: HopTable<HopTarget>,
    /// Last references to what tables not yet published are without.
    dropped: Vec<Hop>,
    /// Last references to what no published table has.
    parting: Vec<Hop>,
}

impl Hops {
    /// Adds a reference; says too whether the hop is new and means nothing yet.
    ///
    /// # Errors
    ///
    /// [`Full`] if there is no index left.
    pub(super) fn acquire(&mut self, way: &HopTarget) -> Result<(Hop, bool), Full> {
        if let Some(hop) = self.waiting(way) {
            // The last reference was kept: it is the first one again.
            return Ok((hop, false));
        }
        let hop = self.table.acquire(way)?;
        Ok((hop, self.table.count(hop) == 1))
    }

    /// Takes a way out of those that are to be given back, if it is one.
    fn waiting(&mut self, way: &HopTarget) -> Option<Hop> {
        if self.dropped.is_empty() && self.parting.is_empty() {
            return None;
        }
        let hop = self.table.find(way)?;
        for list in [&mut self.dropped, &mut self.parting] {
            if let Some(at) = list.iter().position(|&other| other == hop) {
                list.swap_remove(at);
                return Some(hop);
            }
        }
        None
    }

    /// Gives the hops from 1 on, of which none is in use, the ways of an image, with a
    /// reference each, and returns those that have one; `None` is a hop that it had not.
    ///
    /// # Errors
    ///
    /// [`Full`] if there is no index left.
    pub(super) fn seed(
        &mut self,
        ways: impl IntoIterator<Item = Option<HopTarget>>,
    ) -> Result<Vec<Hop>, Full> {
        let (mut kept, mut gaps) = (Vec::new(), Vec::new());
        for (number, way) in (1..).zip(ways) {
            let gone = HopTarget::Gone(number);
            // One way has one hop: a second that led there leads nowhere of its own.
            let known = way.as_ref().is_some_and(|way| self.table.find(way).is_some());
            let there = way.is_some();
            let hop = self.table.acquire(way.as_ref().filter(|_| !known).unwrap_or(&gone))?;
            if there { kept.push(hop) } else { gaps.push(hop) }
        }
        for hop in gaps {
            self.table.release(hop);
        }
        Ok(kept)
    }

    /// Drops a reference.
    pub(super) fn release(&mut self, hop: Hop) {
        if self.table.count(hop) > 1 {
            self.table.release(hop);
        } else if hop.is_some() {
            self.dropped.push(hop);
        }
    }

    /// Says whether hops wait for workers to pass.
    pub(super) fn has_pending_reclaim(&self) -> bool {
        !self.parting.is_empty()
    }

    /// Takes note that all tables without what was dropped are published.
    pub(super) fn published(&mut self) {
        self.parting.append(&mut self.dropped);
    }

    /// Gives back what was parting, as every worker has passed since, and returns it.
    pub(super) fn passed(&mut self) -> Vec<Hop> {
        for &hop in &self.parting {
            self.table.release(hop);
        }
        std::mem::take(&mut self.parting)
    }

    /// Returns what a hop stands for.
    pub(super) fn get(&self, hop: Hop) -> Option<&HopTarget> {
        self.table.get(hop)
    }

    /// Walks the hops with their ways and the number of their references.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Hop, &HopTarget, u64)> {
        self.table.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Hop, HopTarget, Hops, Target};

    fn way(metric: u16) -> HopTarget {
        let address = [10, 0, (metric >> 8) as u8, metric as u8].into();
        HopTarget::Neighbor { interface: 1, address }
    }

    #[test]
    fn an_index_is_free_only_when_all_have_passed() {
        let mut hops = Hops::default();
        let (first, new) = hops.acquire(&way(1)).unwrap();
        assert!(new && hops.acquire(&way(1)).unwrap() == (first, false));
        hops.release(first);
        hops.release(first);
        assert!(!hops.has_pending_reclaim());
        // Neither before the publication nor between it and the last worker's passing.
        assert_eq!(hops.acquire(&way(2)).unwrap().0, Hop(2));
        hops.published();
        assert!(hops.has_pending_reclaim());
        assert_eq!(hops.acquire(&way(3)).unwrap().0, Hop(3));
        hops.passed();
        assert_eq!(hops.get(first), None);
        assert_eq!(hops.acquire(&HopTarget::Route(Arc::new(Target::Local))).unwrap().0, first);
    }

    #[test]
    fn hops_of_an_image_are_where_they_were() {
        let mut hops = Hops::default();
        let ways = [Some(way(1)), None, Some(way(3)), Some(way(1)), Some(way(5))];
        let kept = hops.seed(ways).unwrap();
        assert_eq!(kept, [Hop(1), Hop(3), Hop(4), Hop(5)]);
        assert_eq!(hops.get(Hop(3)), Some(&way(3)));
        assert_eq!(hops.get(Hop(4)), Some(&HopTarget::Gone(4)));
        assert_eq!(hops.acquire(&way(5)).unwrap(), (Hop(5), false));
        // What the image had not is for others, and what it has until it is retired is not.
        assert_eq!(hops.acquire(&way(9)).unwrap(), (Hop(2), true));
        kept.into_iter().for_each(|hop| hops.release(hop));
        hops.published();
        assert_eq!(hops.passed().len(), 3);
        assert_eq!(hops.get(Hop(5)), Some(&way(5)));
        assert_eq!(hops.get(Hop(3)), None);
    }

    #[test]
    fn who_comes_back_in_time_keeps_the_index() {
        let mut hops = Hops::default();
        let (hop, _) = hops.acquire(&way(1)).unwrap();
        hops.release(hop);
        assert_eq!(hops.acquire(&way(1)).unwrap().0, hop);
        hops.published();
        hops.passed();
        assert_eq!(hops.get(hop), Some(&way(1)));
        assert_eq!(hops.iter().map(|(_, _, count)| count).collect::<Vec<_>>(), [1]);
        // Back while it was parting, and gone again: the passing was for before.
        hops.release(hop);
        hops.published();
        assert_eq!(hops.acquire(&way(1)).unwrap(), (hop, false));
        hops.release(hop);
        hops.passed();
        assert_eq!(hops.get(hop), Some(&way(1)));
        hops.published();
        assert_eq!(hops.passed(), [hop]);
        hops.release(Hop::NONE);
        hops.published();
        assert!(!hops.has_pending_reclaim());
    }
}
