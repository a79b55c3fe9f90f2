//! Builds a routing table from routes in order.
//!
//! Each route goes to the right of all earlier ones, so that only the nodes on the path from
//! the root to the last route can still change: the rightmost spine.
//!
//! ```text
//! spine      next: 10.2.0.0/16          spine
//! ○ 0/0                                 ○ 0/0
//! ● 10/8     stays: covers it       ● 10/8
//! ● 10.1/16  left behind ─────┐         ○ 10.0/14 ── ● 10.1/16 ── ● 10.1.128/17
//! ● 10.1.128/17  left behind ─┘         ● 10.2/16
//! ```
//!
//! Nodes that do not cover the new route leave the spine. The last of them (the one nearest to
//! the root) and the new route compete for one link, or are on different sides of the node
//! above. Each node enters and leaves the spine once: O(n) for the whole table, where n inserts
//! would each walk down from the root.

use alloc::vec::Vec;

use super::{ROOT, Rib};
use crate::{Addr, Hop, Prefix};

impl<A: Addr> Rib<A> {
    /// Makes a table of `routes`, which come in the order of [`Prefix`].
    ///
    /// Of two routes with the same prefix the later one is kept. No prefix is dirty afterwards.
    /// Routes out of order are no error: from the first of them on, all are inserted one by one.
    ///
    /// # Complexity
    ///
    /// O(n) for n routes in order.
    pub fn from_sorted(routes: impl IntoIterator<Item = (Prefix<A>, Hop)>) -> Self {
        let mut routes = routes.into_iter();
        let mut rib = Self::new();
        rib.nodes.reserve(routes.size_hint().0);
        let mut spine = Vec::with_capacity(A::BITS as usize + 1);
        spine.push(ROOT);
        let mut last = Prefix::ALL;
        for (prefix, hop) in routes.by_ref() {
            if prefix < last {
                rib.insert(prefix, hop);
                break;
            }
            rib.append(&mut spine, prefix, hop);
            last = prefix;
        }
        for (prefix, hop) in routes {
            rib.insert(prefix, hop);
        }
        rib.mark_clean();
        rib
    }

    /// Adds a route that does not come before any other.
    fn append(&mut self, spine: &mut Vec<u32>, prefix: Prefix<A>, hop: Hop) {
        let mut left = None;
        let top = loop {
            // The root covers everything and so stays on the spine.
            let top = spine[spine.len() - 1];
            if self.nodes[top as usize].covers(prefix) {
                break top;
            }
            left = spine.pop();
        };
        let mut parent = top;
        if u32::from(self.nodes[top as usize].len) == prefix.len() {
            self.set(top, hop);
            return;
        }
        if let Some(rival) = left {
            let addr = self.nodes[rival as usize].addr;
            let split = addr.common(prefix.addr());
            if split > u32::from(self.nodes[top as usize].len) {
                parent = self.alloc(Prefix::truncate(addr, split));
                self.link(parent, rival);
                self.link(top, parent);
                spine.push(parent);
            }
        }
        let new = self.alloc(prefix);
        self.set(new, hop);
        self.link(parent, new);
        spine.push(new);
    }
}
