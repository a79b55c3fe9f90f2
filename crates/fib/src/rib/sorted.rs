//! A table whole, from routes in order.
//!
//! The route at hand always goes to the right of all before it, so that the only
//! nodes that can still change are those on the way from the root to the last
//! route: the rightmost spine.
//!
//! ```text
//! spine      next: 10.2.0.0/16          spine
//! ○ 0/0                                 ○ 0/0
//! ● 10/8     ends here, covers it       ● 10/8
//! ● 10.1/16  left behind ─────┐         ○ 10.0/14 ── ● 10.1/16 ── ● 10.1.128/17
//! ● 10.1.128/17  left behind ─┘         ● 10.2/16
//! ```
//!
//! What does not cover the new route is left behind. The last of it (the one
//! nearest to the root) and the new route are rivals for one link, or stand on
//! either side of the node above. Each node enters and leaves the spine once:
//! O(n) for the whole, where n inserts would walk down from the root each time.

use alloc::vec::Vec;

use super::{ROOT, Rib};
use crate::{Addr, Hop, Prefix};

impl<A: Addr> Rib<A> {
    /// Makes a table of `routes`, which come in the order of [`Prefix`].
    ///
    /// Of two routes with the same prefix the later counts. Nothing is dirty
    /// afterwards. Routes out of order are no error: from the first of them on
    /// they are inserted one by one.
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
