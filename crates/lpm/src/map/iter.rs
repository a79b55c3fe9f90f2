//! The iterators over a map: all in order, a range, what covers a prefix, what lies first below it.

use alloc::vec::Vec;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::mem;
use core::ops::Bound;

use fib::{Addr, Prefix};

use crate::cursor::Cursor;
use crate::key::PrefixKey;
use crate::stride::{chunk, depth_of, from, path, position};
use crate::trie::{Nodes, ROOT, Trie};

/// The prefixes of a map and their values, in order.
pub struct Iter<'a, P: PrefixKey, T> {
    trie: &'a Trie<P::Bits, T>,
    cursor: Cursor,
    left: usize,
    key: PhantomData<fn() -> P>,
}

impl<'a, P: PrefixKey, T> Iter<'a, P, T> {
    pub(super) fn new(trie: &'a Trie<P::Bits, T>) -> Self {
        let cursor = Cursor::start(trie.nodes());
        Self { trie, cursor, left: trie.len(), key: PhantomData }
    }
}

impl<'a, P: PrefixKey, T> Iterator for Iter<'a, P, T> {
    type Item = (P, &'a T);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (prefix, slot) = self.cursor.next(self.trie.nodes())?;
        self.left -= 1;
        Some((P::from_prefix(prefix), self.trie.value(slot)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<P: PrefixKey, T> ExactSizeIterator for Iter<'_, P, T> {}
impl<P: PrefixKey, T> FusedIterator for Iter<'_, P, T> {}

impl<P: PrefixKey, T> Clone for Iter<'_, P, T> {
    fn clone(&self) -> Self {
        Self { cursor: self.cursor.clone(), ..*self }
    }
}

/// The prefixes of a map in order.
pub struct Keys<'a, P: PrefixKey, T>(Iter<'a, P, T>);

impl<'a, P: PrefixKey, T> Keys<'a, P, T> {
    pub(super) fn new(iter: Iter<'a, P, T>) -> Self {
        Self(iter)
    }
}

impl<P: PrefixKey, T> Iterator for Keys<'_, P, T> {
    type Item = P;

    #[inline]
    fn next(&mut self) -> Option<P> {
        self.0.next().map(|(prefix, _)| prefix)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<P: PrefixKey, T> ExactSizeIterator for Keys<'_, P, T> {}
impl<P: PrefixKey, T> FusedIterator for Keys<'_, P, T> {}

/// The values of a map in the order of their prefixes.
pub struct Values<'a, P: PrefixKey, T>(Iter<'a, P, T>);

impl<'a, P: PrefixKey, T> Values<'a, P, T> {
    pub(super) fn new(iter: Iter<'a, P, T>) -> Self {
        Self(iter)
    }
}

impl<'a, P: PrefixKey, T> Iterator for Values<'a, P, T> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        self.0.next().map(|(_, value)| value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<P: PrefixKey, T> ExactSizeIterator for Values<'_, P, T> {}
impl<P: PrefixKey, T> FusedIterator for Values<'_, P, T> {}

/// The prefixes of a map and their values, to be changed, in order.
pub struct IterMut<'a, P: PrefixKey, T> {
    nodes: Nodes<'a, P::Bits>,
    values: Vec<Option<&'a mut T>>,
    cursor: Cursor,
    left: usize,
    key: PhantomData<fn() -> P>,
}

impl<'a, P: PrefixKey, T> IterMut<'a, P, T> {
    pub(super) fn new(trie: &'a mut Trie<P::Bits, T>) -> Self {
        let left = trie.len();
        let (nodes, slots) = trie.parts_mut();
        let values = slots.iter_mut().map(Option::as_mut).collect();
        Self { nodes, values, cursor: Cursor::start(nodes), left, key: PhantomData }
    }
}

impl<'a, P: PrefixKey, T> Iterator for IterMut<'a, P, T> {
    type Item = (P, &'a mut T);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (prefix, slot) = self.cursor.next(self.nodes)?;
        self.left -= 1;
        Some((P::from_prefix(prefix), self.values[slot as usize].take()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<P: PrefixKey, T> ExactSizeIterator for IterMut<'_, P, T> {}
impl<P: PrefixKey, T> FusedIterator for IterMut<'_, P, T> {}

/// The prefixes of a map and their values, in order, taken out of it.
pub struct IntoIter<P: PrefixKey, T> {
    trie: Trie<P::Bits, T>,
    cursor: Cursor,
    left: usize,
    key: PhantomData<fn() -> P>,
}

impl<P: PrefixKey, T> IntoIter<P, T> {
    pub(super) fn new(trie: Trie<P::Bits, T>) -> Self {
        let (cursor, left) = (Cursor::start(trie.nodes()), trie.len());
        Self { trie, cursor, left, key: PhantomData }
    }
}

impl<P: PrefixKey, T> Iterator for IntoIter<P, T> {
    type Item = (P, T);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (nodes, slots) = self.trie.parts_mut();
        let (prefix, slot) = self.cursor.next(nodes)?;
        self.left -= 1;
        Some((P::from_prefix(prefix), slots[slot as usize].take()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<P: PrefixKey, T> ExactSizeIterator for IntoIter<P, T> {}
impl<P: PrefixKey, T> FusedIterator for IntoIter<P, T> {}

/// A part of a map in order.
pub struct Range<'a, P: PrefixKey, T> {
    trie: &'a Trie<P::Bits, T>,
    cursor: Cursor,
    end: Bound<Prefix<P::Bits>>,
}

impl<'a, P: PrefixKey, T> Range<'a, P, T> {
    pub(super) fn new(
        trie: &'a Trie<P::Bits, T>,
        start: Bound<Prefix<P::Bits>>,
        end: Bound<Prefix<P::Bits>>,
    ) -> Self {
        let nodes = trie.nodes();
        let cursor = match start {
            Bound::Unbounded => Cursor::start(nodes),
            Bound::Included(prefix) => Cursor::seek(nodes, prefix),
            Bound::Excluded(prefix) => {
                let mut cursor = Cursor::seek(nodes, prefix);
                let mut first = cursor.clone();
                if first.next(nodes).is_some_and(|(found, _)| found == prefix) {
                    cursor = first;
                }
                cursor
            }
        };
        Self { trie, cursor, end }
    }

    /// The prefixes that `prefix` covers: the last could be that of its last address.
    pub(super) fn covered(trie: &'a Trie<P::Bits, T>, prefix: Prefix<P::Bits>) -> Self {
        let last = Prefix::truncate(prefix.last(), P::Bits::BITS);
        Self::new(trie, Bound::Included(prefix), Bound::Included(last))
    }
}

impl<'a, P: PrefixKey, T> Iterator for Range<'a, P, T> {
    type Item = (P, &'a T);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (prefix, slot) = self.cursor.next(self.trie.nodes())?;
        let is_within = match self.end {
            Bound::Unbounded => true,
            Bound::Included(end) => prefix <= end,
            Bound::Excluded(end) => prefix < end,
        };
        if !is_within {
            // Behind the end there is nothing, also if the caller continues.
            self.cursor = Cursor::end();
            return None;
        }
        Some((P::from_prefix(prefix), self.trie.value(slot)))
    }
}

impl<P: PrefixKey, T> FusedIterator for Range<'_, P, T> {}

impl<P: PrefixKey, T> Clone for Range<'_, P, T> {
    fn clone(&self) -> Self {
        Self { cursor: self.cursor.clone(), ..*self }
    }
}

/// The prefixes first below another, in order.
pub struct Children<'a, P: PrefixKey, T> {
    trie: &'a Trie<P::Bits, T>,
    parent: Prefix<P::Bits>,
    cursor: Option<Cursor>,
}

impl<'a, P: PrefixKey, T> Children<'a, P, T> {
    pub(super) fn new(trie: &'a Trie<P::Bits, T>, parent: Prefix<P::Bits>) -> Self {
        let cursor = Some(Cursor::seek(trie.nodes(), parent));
        Self { trie, parent, cursor }
    }
}

impl<'a, P: PrefixKey, T> Iterator for Children<'a, P, T> {
    type Item = (P, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        let nodes = self.trie.nodes();
        let mut cursor = self.cursor.take()?;
        let (mut prefix, mut slot) = cursor.next(nodes)?;
        if prefix == self.parent {
            (prefix, slot) = cursor.next(nodes)?;
        }
        if !self.parent.covers(prefix) {
            return None;
        }
        // Continue behind all that this one covers, if there is an address behind it.
        let next = prefix.last().succ();
        self.cursor = next.map(|addr| {
            let len = P::Bits::BITS - addr.to_u128().trailing_zeros();
            Cursor::seek(nodes, Prefix::truncate(addr, len))
        });
        Some((P::from_prefix(prefix), self.trie.value(slot)))
    }
}

impl<P: PrefixKey, T> FusedIterator for Children<'_, P, T> {}

/// The prefixes that cover another, shortest first.
pub struct Covering<'a, P: PrefixKey, T> {
    trie: &'a Trie<P::Bits, T>,
    prefix: Prefix<P::Bits>,
    node: Option<u32>,
    /// The positions of the present node that are still to come.
    positions: u128,
}

impl<'a, P: PrefixKey, T> Covering<'a, P, T> {
    pub(super) fn new(trie: &'a Trie<P::Bits, T>, prefix: Prefix<P::Bits>) -> Self {
        let mut covering = Self { trie, prefix, node: None, positions: 0 };
        if !trie.nodes().links.is_empty() {
            covering.enter(ROOT);
        }
        covering
    }

    fn enter(&mut self, at: u32) {
        let nodes = self.trie.nodes();
        let depth = nodes.links[at as usize].depth();
        let bits = chunk(self.prefix.addr(), depth);
        self.node = Some(at);
        self.positions = nodes.nodes[at as usize].data() & path(bits);
        if depth == depth_of(self.prefix.len()) {
            self.positions &= !from(position(bits, self.prefix.len(), depth) + 1);
        }
    }

    /// Goes on to the next node on the path.
    fn descend(&mut self) {
        let nodes = self.trie.nodes();
        let Some(at) = mem::take(&mut self.node) else { return };
        let link = &nodes.links[at as usize];
        let (addr, home) = (self.prefix.addr(), depth_of(self.prefix.len()));
        if link.depth() == home {
            return;
        }
        let Some(next) = link.child(chunk(addr, link.depth())) else { return };
        let depth = nodes.links[next as usize].depth();
        if depth <= home && nodes.nodes[next as usize].addr.common(addr) >= depth {
            self.enter(next);
        }
    }
}

impl<'a, P: PrefixKey, T> Iterator for Covering<'a, P, T> {
    type Item = (P, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(at) = self.node {
            if self.positions != 0 {
                let position = self.positions.trailing_zeros();
                self.positions &= self.positions - 1;
                let nodes = self.trie.nodes();
                let node = &nodes.nodes[at as usize];
                let prefix = node.prefix(nodes.links[at as usize].depth(), position);
                return Some((P::from_prefix(prefix), self.trie.value(node.slot(position))));
            }
            self.descend();
        }
        None
    }
}

impl<P: PrefixKey, T> FusedIterator for Covering<'_, P, T> {}
