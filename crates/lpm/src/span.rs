//! Arrays that grow and shrink, many in one vector.
//!
//! A node has up to 127 values and 64 children. Each of these arrays is a *span* of consecutive
//! slots in one vector, found by its first index: four bytes in the node, and one allocation for
//! all of them. The room of a span is the smallest of some sizes that holds its items:
//!
//! ```text
//!   1  2  3  4  6  8  12  16  24  32  48  64  96  128
//! ```
//!
//! It follows from the number of items, so that nothing stores it. An item that exceeds it moves
//! the span to the next size, and a removed one moves it back; the old slots are used again for
//! spans of the same size. So the room exceeds the items by at most half, and slots that no span
//! uses are at most as many as were once used for spans of that size.
//!
//! Slots without an item have the default value.

use alloc::vec::Vec;
use core::mem;

use fib::vec_on_huge_pages;

/// The sizes of spans.
const SIZES: [u8; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];

/// The number of the size that holds each number of items.
const SIZE_OF: [u8; 129] = {
    let mut size_of = [0; 129];
    let (mut items, mut size) = (1, 0);
    while items < size_of.len() {
        if items > SIZES[size] as usize {
            size += 1;
        }
        size_of[items] = size as u8;
        items += 1;
    }
    size_of
};

/// A vector of spans.
#[derive(Clone)]
pub(crate) struct Spans<S> {
    slots: Vec<S>,
    /// The first indexes of unused spans, by size.
    free: [Vec<u32>; SIZES.len()],
}

impl<S: Default> Spans<S> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: [const { Vec::new() }; SIZES.len()] }
    }

    /// Returns all slots, those without an item included.
    pub(crate) fn slots(&self) -> &[S] {
        &self.slots
    }

    /// Returns all slots.
    pub(crate) fn slots_mut(&mut self) -> &mut [S] {
        &mut self.slots
    }

    /// Makes room for `items` further items.
    pub(crate) fn reserve(&mut self, items: usize) {
        let capacity = self.slots.len() + items;
        if capacity > self.slots.capacity() {
            self.grow(capacity);
        }
    }

    /// Returns the bytes on the heap, without those that items own.
    pub(crate) fn footprint(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        self.slots.capacity() * size_of::<S>() + free * size_of::<u32>()
    }

    /// Inserts `item` as number `rank` into the span of `count` items at `start`, whose value is
    /// ignored if there are none; returns the span's new start.
    ///
    /// # Panics
    ///
    /// If there would be 2^32 slots.
    #[inline]
    pub(crate) fn insert(&mut self, start: u32, count: usize, rank: usize, item: S) -> u32 {
        let (old, new) = (SIZE_OF[count], SIZE_OF[count + 1]);
        if count > 0 && old == new {
            let at = start as usize + rank;
            let last = start as usize + count;
            self.slots[at..=last].rotate_right(1);
            self.slots[at] = item;
            return start;
        }
        let moved = self.allocate(new.into());
        if count > 0 {
            self.transfer(start as usize, moved as usize, rank);
            self.transfer(start as usize + rank, moved as usize + rank + 1, count - rank);
            self.free[usize::from(old)].push(start);
        }
        self.slots[moved as usize + rank] = item;
        moved
    }

    /// Removes item number `rank` of the span of `count` items at `start`; returns it and the
    /// span's new start.
    pub(crate) fn remove(&mut self, start: u32, count: usize, rank: usize) -> (S, u32) {
        let at = start as usize + rank;
        let item = mem::take(&mut self.slots[at]);
        self.slots[at..start as usize + count].rotate_left(1);
        if count == 1 {
            self.free[usize::from(SIZE_OF[count])].push(start);
            return (item, 0);
        }
        let (old, new) = (SIZE_OF[count], SIZE_OF[count - 1]);
        if old == new {
            return (item, start);
        }
        let moved = self.allocate(new.into());
        self.transfer(start as usize, moved as usize, count - 1);
        self.free[usize::from(old)].push(start);
        (item, moved)
    }

    /// Moves `count` items to slots of another span.
    #[inline]
    fn transfer(&mut self, from: usize, to: usize, count: usize) {
        let (from, to) = if from < to {
            let (low, high) = self.slots.split_at_mut(to);
            (&mut low[from..from + count], &mut high[..count])
        } else {
            let (low, high) = self.slots.split_at_mut(from);
            (&mut high[..count], &mut low[to..to + count])
        };
        from.swap_with_slice(to);
    }

    fn allocate(&mut self, size: usize) -> u32 {
        if let Some(start) = self.free[size].pop() {
            return start;
        }
        let start = self.slots.len();
        let end = start + usize::from(SIZES[size]);
        // The highest index is not used, so that callers can mark an absent slot with it.
        assert!(end < u32::MAX as usize, "a map has fewer than 2^32 - 1 slots");
        if end > self.slots.capacity() {
            self.grow(end.max(2 * start));
        }
        self.slots.resize_with(end, S::default);
        start as u32
    }

    /// Moves the slots to new memory of this capacity, on huge pages where it is large.
    #[cold]
    fn grow(&mut self, capacity: usize) {
        let mut slots = vec_on_huge_pages(capacity);
        slots.append(&mut self.slots);
        self.slots = slots;
    }
}

#[cfg(test)]
mod tests {
    use super::{SIZES, Spans};
    use alloc::vec::Vec;

    #[test]
    fn spans_equal_vectors_after_every_change() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut spans = Spans::<Option<u32>>::new();
        let mut models: Vec<(u32, Vec<u32>)> = (0..20).map(|_| (0, Vec::new())).collect();
        for step in 0..20_000_u32 {
            let grows = step % 4000 < 2500;
            let (start, model) = &mut models[rng.usize(..20)];
            let count = model.len();
            if rng.u32(..10) < if grows { 8 } else { 2 } && count < 127 {
                let rank = rng.usize(..=count);
                *start = spans.insert(*start, count, rank, Some(step));
                model.insert(rank, step);
            } else if count > 0 {
                let rank = rng.usize(..count);
                let (item, moved) = spans.remove(*start, count, rank);
                *start = moved;
                assert_eq!(item, Some(model.remove(rank)));
            }
            if step % 97 == 0 {
                for (start, model) in &models {
                    let items = &spans.slots()[*start as usize..][..model.len()];
                    assert!(items.iter().flatten().eq(model));
                }
                let items = spans.slots().iter().flatten().count();
                assert_eq!(items, models.iter().map(|(_, model)| model.len()).sum::<usize>());
            }
        }
        for (start, model) in &mut models {
            while !model.is_empty() {
                (_, *start) = spans.remove(*start, model.len(), 0);
                model.remove(0);
            }
        }
        let free = spans.free.iter().zip(SIZES).map(|(free, size)| free.len() * usize::from(size));
        assert_eq!(free.sum::<usize>(), spans.slots().len(), "no slot is lost");
    }
}
