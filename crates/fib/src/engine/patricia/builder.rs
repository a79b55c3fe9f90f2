//! The updates of the BSD radix trie.
//!
//! ```text
//!   insert 10.2/16 beside the leaf 10.1/16        remove it again
//!
//!       P                  P                      the reverse: the leaf goes, its
//!       │                  │                      parent with it, and the parent's
//!     leaf 10.1  ──►     node bit 14              masks join the chain of the
//!     └► 10/8            ╱  └masks► 10/8          sibling that takes its place
//!                    leaf 10.1   leaf 10.2
//! ```
//!
//! A new route first runs down to a leaf like an address, to learn in how many bits
//! it agrees with what is there, and then again from the top to the first node that
//! decides no earlier than that. There it joins a chain, lengthens a leaf, or forks
//! off with a node of its own; a chain is cut where the new node decides.
//!
//! Beside the arrays that lookups read the builder notes for each entry the node
//! that leads to its chain, so that an entry can move when the array is kept dense
//! (`nodes.rs`). An update is O(`A::BITS`) loads and a handful of writes.

use alloc::vec::Vec;

use super::{Entry, LEAF, NIL, Node, Patricia, ROOT};
use crate::engine::nodes::{Nodes, note};
use crate::engine::{Leaf, RouteBuilder};
use crate::{Addr, Full, Hop, Prefix, Rib};

/// The builder of [`Patricia`].
#[derive(Debug)]
pub struct PatriciaBuilder<A, L> {
    nodes: Nodes<Node>,
    entries: Nodes<Entry<A, L>>,
    /// By entry: the node whose masks, or a child of which, the chain is.
    owner: Vec<u32>,
}

impl<A: Addr, L: Leaf> Default for PatriciaBuilder<A, L> {
    fn default() -> Self {
        let mut this = Self { nodes: Nodes::new(1), entries: Nodes::new(1), owner: Vec::new() };
        this.clear();
        this
    }
}

impl<A: Addr, L: Leaf> PatriciaBuilder<A, L> {
    /// Leaves the root alone.
    fn clear(&mut self) {
        self.nodes.clear();
        self.entries.clear();
        self.owner.clear();
        let root = Node { child: [NIL; 2], up: ROOT, masks: NIL, bit: 0 };
        let Ok(_) = self.nodes.add(&[root]) else { unreachable!("there is room for one") };
    }

    fn node(&self, at: u32) -> Node {
        self.nodes[at as usize]
    }

    fn entry(&self, at: u32) -> Entry<A, L> {
        self.entries[at as usize]
    }

    fn set_node(&mut self, at: u32, change: impl FnOnce(&mut Node)) {
        let mut node = self.node(at);
        change(&mut node);
        self.nodes.set(at as usize, node);
    }

    fn set_entry(&mut self, at: u32, change: impl FnOnce(&mut Entry<A, L>)) {
        let mut entry = self.entry(at);
        change(&mut entry);
        self.entries.set(at as usize, entry);
    }

    /// Counts the leading bits in which `prefix` agrees with the leaf that it leads
    /// to: within the length of both.
    fn common(&self, prefix: Prefix<A>) -> u32 {
        let mut link = ROOT;
        while link & LEAF == 0 {
            link = self.node(link).towards(prefix.addr());
        }
        if link == NIL {
            return 0;
        }
        let leaf = self.entry(link & !LEAF);
        leaf.key.common(prefix.addr()).min(leaf.len.into()).min(prefix.len())
    }

    /// Runs down to the first node or leaf that does not decide before bit `len`:
    /// (its parent, the link to it).
    fn place(&self, addr: A, len: u32) -> (u32, u32) {
        let (mut parent, mut link) = (ROOT, ROOT);
        while link & LEAF == 0 && u32::from(self.node(link).bit) < len {
            (parent, link) = (link, self.node(link).towards(addr));
        }
        (parent, link)
    }

    /// Returns the first entry of the chain of a node or a leaf.
    fn head(&self, link: u32) -> u32 {
        if link & LEAF == 0 { self.node(link).masks } else { link & !LEAF }
    }

    /// Runs along a chain to the first entry of at most `len` bits: (the entry
    /// before it, that entry), either of which may be [`NIL`].
    fn along(&self, head: u32, len: u32) -> (u32, u32) {
        let (mut before, mut at) = (NIL, head);
        while at != NIL && u32::from(self.entry(at).len) > len {
            (before, at) = (at, self.entry(at).next);
        }
        (before, at)
    }

    /// Notes `owner` for a whole chain.
    fn own(&mut self, mut at: u32, owner: u32) {
        while at != NIL {
            note(&mut self.owner, at, owner);
            at = self.entry(at).next;
        }
    }

    fn insert(&mut self, prefix: Prefix<A>, hop: Hop) -> Result<(), Full> {
        let (addr, len) = (prefix.addr(), prefix.len());
        let hop = L::pack(hop)?;
        let common = self.common(prefix);
        let (parent, link) = self.place(addr, common);
        let (before, after) = self.along(self.head(link), common);
        if len == common && after != NIL && u32::from(self.entry(after).len) == len {
            self.set_entry(after, |entry| entry.hop = hop);
            return Ok(());
        }
        let next = if len == common { after } else { NIL };
        let new = self.entries.add(&[Entry { key: addr, next, hop, len: len as u8 }])?;
        let leaf = |addr: A, node: &mut Node| {
            node.child[addr.bits(node.bit.into(), 1)] = new | LEAF;
        };
        if len == common {
            // It holds for all below the node, or for the leaf: one more of a chain.
            // A leaf's first is longer still.
            note(&mut self.owner, new, if link & LEAF == 0 { link } else { parent });
            if before == NIL {
                self.set_node(link, |node| node.masks = new);
            } else {
                self.set_entry(before, |entry| entry.next = new);
            }
        } else if link == ROOT {
            // The first route on its side.
            note(&mut self.owner, new, ROOT);
            self.set_node(ROOT, |root| leaf(addr, root));
        } else if link & LEAF != 0 && u32::from(self.entry(link & !LEAF).len) == common {
            // Below a leaf: the leaf becomes longer.
            note(&mut self.owner, new, parent);
            self.set_entry(new, |entry| entry.next = link & !LEAF);
            self.set_node(parent, |node| leaf(addr, node));
        } else {
            // They differ between two nodes: the masks above that bit move up.
            let mut node = Node { child: [link; 2], up: parent, masks: after, bit: common as u8 };
            leaf(addr, &mut node);
            let fork = self.nodes.add(&[node])?;
            note(&mut self.owner, new, fork);
            self.set_node(parent, |node| node.child[addr.bits(node.bit.into(), 1)] = fork);
            if link & LEAF == 0 {
                self.set_node(link, |node| node.up = fork);
                self.own(after, fork);
            } else {
                self.own(link & !LEAF, fork);
            }
            match before {
                NIL => self.set_node(link, |node| node.masks = NIL),
                _ => self.set_entry(before, |entry| entry.next = NIL),
            }
        }
        Ok(())
    }

    fn remove(&mut self, prefix: Prefix<A>) {
        let (addr, len) = (prefix.addr(), prefix.len());
        if self.common(prefix) < len {
            return;
        }
        let (parent, link) = self.place(addr, len);
        let (before, at) = self.along(self.head(link), len);
        if at == NIL || u32::from(self.entry(at).len) < len {
            return;
        }
        let next = self.entry(at).next;
        if before != NIL {
            self.set_entry(before, |entry| entry.next = next);
        } else if link & LEAF == 0 {
            self.set_node(link, |node| node.masks = next);
        } else if next != NIL || parent == ROOT {
            let next = if next == NIL { NIL } else { next | LEAF };
            self.set_node(parent, |node| node.child[addr.bits(node.bit.into(), 1)] = next);
        } else {
            self.join(addr, parent);
        }
        self.entries.give_back(at);
    }

    /// Takes out `gone`, whose child towards `addr` is no more: the other child takes
    /// its place, and its masks go to the end of that one's chain.
    fn join(&mut self, addr: A, gone: u32) {
        let Node { child, up, masks, bit } = self.node(gone);
        let stays = child[1 - addr.bits(bit.into(), 1)];
        self.set_node(up, |node| node.child[addr.bits(node.bit.into(), 1)] = stays);
        let (last, _) = self.along(self.head(stays), 0);
        if masks != NIL {
            match last {
                NIL => self.set_node(stays, |node| node.masks = masks),
                _ => self.set_entry(last, |entry| entry.next = masks),
            }
        }
        if stays & LEAF == 0 {
            self.set_node(stays, |node| node.up = up);
            self.own(masks, stays);
        } else {
            self.own(stays & !LEAF, up);
        }
        self.nodes.give_back(gone);
    }

    /// Keeps both arrays dense.
    fn compact(&mut self) {
        while let Some((from, to)) = self.nodes.next_move() {
            let Node { child, up, masks, .. } = self.node(to);
            self.set_node(up, |node| {
                let side = usize::from(node.child[0] != from);
                node.child[side] = to;
            });
            for child in child {
                if child & LEAF == 0 {
                    self.set_node(child, |node| node.up = to);
                } else if child != NIL {
                    self.own(child & !LEAF, to);
                }
            }
            self.own(masks, to);
        }
        while let Some((from, to)) = self.entries.next_move() {
            let owner = self.owner[from as usize];
            note(&mut self.owner, to, owner);
            self.redirect(owner, from, to);
        }
        self.owner.truncate(self.entries.len());
    }

    /// Leads the chains of `owner` to entry `to` where they led to `from`.
    fn redirect(&mut self, owner: u32, from: u32, to: u32) {
        let Node { child, masks, .. } = self.node(owner);
        if let Some(side) = child.iter().position(|&child| child == from | LEAF) {
            return self.set_node(owner, |node| node.child[side] = to | LEAF);
        }
        if masks == from {
            return self.set_node(owner, |node| node.masks = to);
        }
        let leaves = child.into_iter().filter(|&child| child & LEAF != 0 && child != NIL);
        for head in leaves.map(|leaf| leaf & !LEAF).chain([masks]) {
            let mut at = head;
            while at != NIL {
                let next = self.entry(at).next;
                if next == from {
                    return self.set_entry(at, |entry| entry.next = to);
                }
                at = next;
            }
        }
        unreachable!("an entry is on a chain of its owner");
    }
}

impl<A: Addr, L: Leaf> RouteBuilder<A> for PatriciaBuilder<A, L> {
    type Engine = Patricia<A, L>;

    fn fill(&mut self, rib: &Rib<A>) -> Result<(), Full> {
        self.clear();
        rib.iter().try_for_each(|(prefix, hop)| self.insert(prefix, hop))
    }

    fn change(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        match rib.get(prefix) {
            Some(hop) => self.insert(prefix, hop)?,
            None => self.remove(prefix),
        }
        self.compact();
        Ok(())
    }

    fn freeze(&self) -> Patricia<A, L> {
        Patricia { nodes: self.nodes.freeze(), entries: self.entries.freeze() }
    }

    fn refresh(&self, idle: &mut Patricia<A, L>) {
        self.nodes.refresh(&mut idle.nodes);
        self.entries.refresh(&mut idle.entries);
    }

    fn written(&self) -> u64 {
        self.nodes.written() + self.entries.written()
    }
}
