//! Assigns hop indexes to targets, and reclaims an index only when no worker can read it.
//!
//! ```text
//!   route added   ─ acquire ─► Hop ─► table ─► workers
//!   route removed ─ release ─► references left? ── yes ──► one less
//!                                   │ the last
//!                                   ▼
//!                      dropped ─ the tables without it are published ─► retired
//!                                            all workers have passed ─► reclaimed
//! ```
//!
//! A worker in the middle of a batch may still hold the table that contains the hop, and look up
//! the hop's adjacency a moment later. If the index had another target by then, the packet would
//! go where no route ever led. The last reference is therefore kept until the tables without it
//! are published and every worker has left the previous ones (`datapath/adjacencies.rs`, rule 3).

use std::net::IpAddr;
use std::sync::Arc;

use feed::netlink::Target;
use fib::{Full, Hop, HopTable};

/// The target of a hop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HopTarget {
    /// The target of a route of the kernel.
    Route(Arc<Target>),
    /// A neighbor on a link that the router is on itself.
    Neighbor {
        /// The interface.
        interface: u32,
        /// Its address.
        address: IpAddr,
    },
    /// The next hop of the configuration with this name.
    Static(Arc<str>),
    /// A hop of an image whose target no longer exists: the host forwards its packets.
    Gone(u32),
}

/// The hops in use, and those that wait to be reclaimed.
#[derive(Debug, Default)]
pub(super) struct Hops {
    table: HopTable<HopTarget>,
    /// The last references to hops that the next published tables do not contain.
    dropped: Vec<Hop>,
    /// The last references to hops that no published table contains.
    retired: Vec<Hop>,
}

impl From<HopTable<HopTarget>> for Hops {
    fn from(table: HopTable<HopTarget>) -> Self {
        Self { table, ..Self::default() }
    }
}

impl Hops {
    /// Adds a reference; returns the hop, and whether it is new and has no adjacency yet.
    ///
    /// # Errors
    ///
    /// [`Full`] if there is no index left.
    pub(super) fn acquire(&mut self, target: &HopTarget) -> Result<(Hop, bool), Full> {
        if let Some(hop) = self.revive(target) {
            // The kept last reference becomes the first one.
            return Ok((hop, false));
        }
        let hop = self.table.acquire(target)?;
        Ok((hop, self.table.count(hop) == 1))
    }

    /// Removes a target from those that wait to be reclaimed, if it is among them.
    fn revive(&mut self, target: &HopTarget) -> Option<Hop> {
        if self.dropped.is_empty() && self.retired.is_empty() {
            return None;
        }
        let hop = self.table.find(target)?;
        for list in [&mut self.dropped, &mut self.retired] {
            if let Some(at) = list.iter().position(|&other| other == hop) {
                list.swap_remove(at);
                return Some(hop);
            }
        }
        None
    }

    /// Assigns the targets of an image to the hops from 1 on, of which none is in use. Returns the
    /// hops that have a target, with a reference each; `None` is an index that the image lacks.
    ///
    /// # Errors
    ///
    /// [`Full`] if there is no index left.
    pub(super) fn seed(
        &mut self,
        targets: impl IntoIterator<Item = Option<HopTarget>>,
    ) -> Result<Vec<Hop>, Full> {
        let (mut seeded, mut gaps) = (Vec::new(), Vec::new());
        for (number, target) in (1..).zip(targets) {
            let gone = HopTarget::Gone(number);
            // A target has one hop: a second hop with the same target becomes `Gone`.
            let known = target.as_ref().is_some_and(|target| self.table.find(target).is_some());
            let present = target.is_some();
            let hop = self.table.acquire(target.as_ref().filter(|_| !known).unwrap_or(&gone))?;
            if present { seeded.push(hop) } else { gaps.push(hop) }
        }
        for hop in gaps {
            self.table.release(hop);
        }
        Ok(seeded)
    }

    /// Drops a reference.
    pub(super) fn release(&mut self, hop: Hop) {
        if self.table.count(hop) > 1 {
            self.table.release(hop);
        } else if hop.is_some() {
            self.dropped.push(hop);
        }
    }

    /// Returns whether hops wait to be reclaimed when workers have passed.
    pub(super) fn has_pending_reclaim(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Retires the dropped hops: all tables without them are published.
    pub(super) fn retire_dropped(&mut self) {
        self.retired.append(&mut self.dropped);
    }

    /// Reclaims the retired hops, which every worker has passed since, and returns them.
    pub(super) fn reclaim(&mut self) -> Vec<Hop> {
        for &hop in &self.retired {
            self.table.release(hop);
        }
        std::mem::take(&mut self.retired)
    }

    /// Returns the target of a hop.
    pub(super) fn get(&self, hop: Hop) -> Option<&HopTarget> {
        self.table.get(hop)
    }

    /// Iterates over the hops with their targets and the number of their references.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Hop, &HopTarget, u64)> {
        self.table.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Hop, HopTarget, Hops, Target};

    fn target(metric: u16) -> HopTarget {
        let address = [10, 0, (metric >> 8) as u8, metric as u8].into();
        HopTarget::Neighbor { interface: 1, address }
    }

    #[test]
    fn index_is_reclaimed_only_after_all_workers_have_passed() {
        let mut hops = Hops::default();
        let (first, new) = hops.acquire(&target(1)).unwrap();
        assert!(new && hops.acquire(&target(1)).unwrap() == (first, false));
        hops.release(first);
        hops.release(first);
        assert!(!hops.has_pending_reclaim());
        // Neither before the publication nor between it and the last worker's passing.
        assert_eq!(hops.acquire(&target(2)).unwrap().0, Hop(2));
        hops.retire_dropped();
        assert!(hops.has_pending_reclaim());
        assert_eq!(hops.acquire(&target(3)).unwrap().0, Hop(3));
        hops.reclaim();
        assert_eq!(hops.get(first), None);
        assert_eq!(hops.acquire(&HopTarget::Route(Arc::new(Target::Local))).unwrap().0, first);
    }

    #[test]
    fn hops_of_an_image_keep_their_indexes() {
        let mut hops = Hops::default();
        let targets = [Some(target(1)), None, Some(target(3)), Some(target(1)), Some(target(5))];
        let seeded = hops.seed(targets).unwrap();
        assert_eq!(seeded, [Hop(1), Hop(3), Hop(4), Hop(5)]);
        assert_eq!(hops.get(Hop(3)), Some(&target(3)));
        assert_eq!(hops.get(Hop(4)), Some(&HopTarget::Gone(4)));
        assert_eq!(hops.acquire(&target(5)).unwrap(), (Hop(5), false));
        // An index that the image lacks is free; those of the image are not before it is retired.
        assert_eq!(hops.acquire(&target(9)).unwrap(), (Hop(2), true));
        seeded.into_iter().for_each(|hop| hops.release(hop));
        hops.retire_dropped();
        assert_eq!(hops.reclaim().len(), 3);
        assert_eq!(hops.get(Hop(5)), Some(&target(5)));
        assert_eq!(hops.get(Hop(3)), None);
    }

    #[test]
    fn target_acquired_again_before_the_reclaim_keeps_its_index() {
        let mut hops = Hops::default();
        let (hop, _) = hops.acquire(&target(1)).unwrap();
        hops.release(hop);
        assert_eq!(hops.acquire(&target(1)).unwrap().0, hop);
        hops.retire_dropped();
        hops.reclaim();
        assert_eq!(hops.get(hop), Some(&target(1)));
        assert_eq!(hops.iter().map(|(_, _, count)| count).collect::<Vec<_>>(), [1]);
        // Acquired while it was retired, and released again: the earlier passing does not count.
        hops.release(hop);
        hops.retire_dropped();
        assert_eq!(hops.acquire(&target(1)).unwrap(), (hop, false));
        hops.release(hop);
        hops.reclaim();
        assert_eq!(hops.get(hop), Some(&target(1)));
        hops.retire_dropped();
        assert_eq!(hops.reclaim(), [hop]);
        hops.release(Hop::NONE);
        hops.retire_dropped();
        assert!(!hops.has_pending_reclaim());
    }
}
