//! A bounded queue of 64 priorities.
//!
//! ```text
//!   priority 63  ●─●─●            a list for each priority, oldest first
//!   priority 62  (none)
//!   …                             present: a bit for each priority that has any
//!   priority  3  ●─●─●─●─●─●      out of the highest; dropped from the end of the lowest
//! ```
//!
//! Of the waiting items, the one of highest priority leaves next, and of those the oldest. When the
//! queue is full, a newcomer is refused unless an item of lower priority waits; then the youngest of the
//! lowest priority is dropped in its favor. All operations take O(1): the highest and the lowest
//! priority are the ends of 64 bits.

/// The number of priorities: those of a DSCP (RFC 2474).
pub const PRIORITIES: usize = 64;

/// The end of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node<T> {
    item: Option<T>,
    older: u32,
    younger: u32,
}

/// Waiting items, by priority.
#[derive(Debug)]
pub struct PriorityQueue<T> {
    nodes: Box<[Node<T>]>,
    oldest: [u32; PRIORITIES],
    youngest: [u32; PRIORITIES],
    present: u64,
    /// The first unused node; they are linked by `younger`.
    free: u32,
    len: usize,
}

impl<T> PriorityQueue<T> {
    /// Creates a queue for `places` waiting items, at least 1.
    ///
    /// # Panics
    ///
    /// If `places` is 0 or beyond 2^31.
    pub fn new(places: usize) -> Self {
        assert!((1..=1 << 31).contains(&places), "a priority queue has 1 to 2^31 places");
        let node = |at: usize| Node {
            item: None,
            older: NONE,
            younger: if at + 1 < places { at as u32 + 1 } else { NONE },
        };
        Self {
            nodes: (0..places).map(node).collect(),
            oldest: [NONE; PRIORITIES],
            youngest: [NONE; PRIORITIES],
            present: 0,
            free: 0,
            len: 0,
        }
    }

    /// Enqueues an item, and returns the one that is dropped because the queue is full, which may be
    /// itself. Priorities beyond 63 are 63.
    #[inline(always)]
    pub fn offer(&mut self, item: T, priority: u8) -> Option<T> {
        let priority = usize::from(priority).min(PRIORITIES - 1);
        let mut dropped = None;
        if self.free == NONE {
            let lowest = self.present.trailing_zeros() as usize;
            if priority <= lowest {
                return Some(item);
            }
            dropped = self.remove(self.youngest[lowest], lowest);
        }
        let at = self.free;
        let older = self.youngest[priority];
        let node = &mut self.nodes[at as usize];
        self.free = node.younger;
        *node = Node { item: Some(item), older, younger: NONE };
        match older {
            NONE => self.oldest[priority] = at,
            older => self.nodes[older as usize].younger = at,
        }
        self.youngest[priority] = at;
        self.present |= 1 << priority;
        self.len += 1;
        dropped
    }

    /// Dequeues the next item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.present == 0 {
            return None;
        }
        let highest = self.highest();
        self.remove(self.oldest[highest], highest)
    }

    /// Removes and returns the item that a newcomer of this priority would displace from a full queue:
    /// the youngest of the lowest priority, if that is lower.
    pub fn displace(&mut self, priority: u8) -> Option<T> {
        let lowest = self.present.trailing_zeros() as usize;
        if lowest >= usize::from(priority).min(PRIORITIES - 1) {
            return None;
        }
        self.remove(self.youngest[lowest], lowest)
    }

    /// Returns the next item, which stays in the queue.
    #[inline]
    pub fn first(&self) -> Option<&T> {
        if self.present == 0 {
            return None;
        }
        self.nodes[self.oldest[self.highest()] as usize].item.as_ref()
    }

    #[inline(always)]
    fn highest(&self) -> usize {
        63 - self.present.leading_zeros() as usize
    }

    fn remove(&mut self, at: u32, priority: usize) -> Option<T> {
        let node = &mut self.nodes[at as usize];
        let (item, older, younger) = (node.item.take(), node.older, node.younger);
        node.younger = self.free;
        match older {
            NONE => self.oldest[priority] = younger,
            older => self.nodes[older as usize].younger = younger,
        }
        match younger {
            NONE => self.youngest[priority] = older,
            younger => self.nodes[younger as usize].older = older,
        }
        if self.oldest[priority] == NONE {
            self.present &= !(1 << priority);
        }
        self.free = at;
        self.len -= 1;
        item
    }

    /// Counts the waiting items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no item waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a list that is searched: which item leaves, which is dropped, in what order.
    #[test]
    fn queue_equals_a_sorted_list() {
        let mut rng = fastrand::Rng::with_seed(1);
        for places in [1, 7, 64] {
            let mut queue = PriorityQueue::new(places);
            let mut model: Vec<(u32, u8)> = Vec::new();
            for number in 0..50_000 {
                if rng.u8(..5) < 3 {
                    let new = (number, rng.u8(3..12));
                    let mut dropped = None;
                    model.push(new);
                    if model.len() > places {
                        let lowest = model.iter().map(|(_, priority)| *priority).min().unwrap();
                        let last = model.iter().rposition(|(_, priority)| *priority == lowest);
                        dropped = Some(model.remove(last.unwrap()));
                    }
                    assert_eq!(queue.offer(new, new.1), dropped);
                } else {
                    let highest = model.iter().map(|(_, priority)| *priority).max();
                    let first = model.iter().position(|(_, own)| Some(*own) == highest);
                    let first = first.map(|first| model.remove(first));
                    assert_eq!(queue.first().copied(), first);
                    assert_eq!(queue.pop(), first);
                }
                assert_eq!(queue.len(), model.len());
            }
        }
    }

    #[test]
    fn displaced_item_is_the_youngest_of_the_lowest_priority() {
        let mut queue = PriorityQueue::new(8);
        assert_eq!((queue.displace(63), queue.pop()), (None, None));
        for (item, priority) in [(0, 41), (1, 30), (2, 30), (3, 43)] {
            assert_eq!(queue.offer(item, priority), None);
        }
        assert_eq!(queue.displace(30), None);
        assert_eq!((queue.displace(31), queue.displace(63)), (Some(2), Some(1)));
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some(3), Some(0), None]);
        assert!(queue.is_empty());
    }
}
