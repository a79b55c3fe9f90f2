//! An array in pages that the builder and every frozen table share.
//!
//! ```text
//!   builder   ┃p0┃p1┃p2'┃p3┃        p2 was written to after the table was frozen:
//!              │  │      │          only that page was copied
//!   frozen    ┃p0┃p1┃p2 ┃p3┃
//! ```
//!
//! Sixty-four FIBs with a full table each fill more than a gigabyte. Held twice, as
//! other engines hold their one table, or three times while two are published in
//! turn, they would take several gigabytes. So a frozen table is a list of references to pages,
//! and a write copies the page first if anyone else still refers to it. The price
//! is one more load a lookup, from a list that is a thousandth of the array.
//!
//! A new page is a reference to a blank one, so that pages never written take no memory.

use alloc::sync::Arc;
use alloc::vec::Vec;

/// Items in a page: 8 KB of hops.
pub(super) const PAGE: usize = 4096;

/// An array of which equal copies share memory.
#[derive(Clone, Debug)]
pub(super) struct Pages<T> {
    pages: Vec<Arc<[T; PAGE]>>,
    blank: Arc<[T; PAGE]>,
    len: usize,
    written: u64,
}

impl<T: Copy + PartialEq + Default> Pages<T> {
    /// Makes an array of `len` zeros.
    pub(super) fn new(len: usize) -> Self {
        let blank = Arc::new([T::default(); PAGE]);
        let mut new = Self { pages: Vec::new(), blank, len: 0, written: 0 };
        new.resize(len);
        new
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the item `at`.
    ///
    /// # Panics
    ///
    /// If there is no page for it.
    #[inline(always)]
    pub(super) fn get(&self, at: usize) -> T {
        self.pages[at / PAGE][at % PAGE]
    }

    /// Makes it `len` items: cut off, or longer by items that are zeros or what was
    /// there before it was cut.
    pub(super) fn resize(&mut self, len: usize) {
        self.pages.resize(len.div_ceil(PAGE), self.blank.clone());
        self.len = len;
    }

    /// Writes `content` at `at`, which has to be within the array; words of 64 bits
    /// that are there already do not count as written, and pages that do not change
    /// stay shared.
    pub(super) fn amend(&mut self, mut at: usize, mut content: &[T]) {
        debug_assert!(at + content.len() <= self.len, "a write stays within the array");
        while !content.is_empty() {
            let first = at % PAGE;
            let (this, rest) = content.split_at(content.len().min(PAGE - first));
            let page = &mut self.pages[at / PAGE];
            if page[first..first + this.len()] != *this {
                self.written += differing(first, &page[first..], this);
                Arc::make_mut(page)[first..first + this.len()].copy_from_slice(this);
            }
            at += this.len();
            content = rest;
        }
    }

    /// Makes `len` items from `at` on `item`.
    pub(super) fn fill(&mut self, at: usize, len: usize, item: T) {
        self.amend(at, &alloc::vec![item; len]);
    }

    /// Copies `len` items from `from` to `to`.
    pub(super) fn copy(&mut self, from: usize, to: usize, len: usize) {
        let content: Vec<T> = (from..from + len).map(|at| self.get(at)).collect();
        self.amend(to, &content);
    }

    /// Counts the 64-bit words that were written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Counts the bytes of the pages that are not blank, and of their list.
    pub(super) fn resident(&self) -> usize {
        let full = self.pages.iter().filter(|page| !Arc::ptr_eq(page, &self.blank)).count();
        full * size_of::<[T; PAGE]>() + self.pages.capacity() * size_of::<Arc<[T; PAGE]>>()
    }
}

/// Counts the words in which `new` differs from the old items at `first` and on.
fn differing<T: PartialEq>(first: usize, old: &[T], new: &[T]) -> u64 {
    let word = (8 / size_of::<T>()).max(1);
    let (mut from, mut count) = (0, 0);
    while from < new.len() {
        let to = ((first + from) / word * word + word - first).min(new.len());
        count += u64::from(old[from..to] != new[from..to]);
        from = to;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{PAGE, Pages};

    #[test]
    fn a_copy_keeps_what_it_was_and_shares_the_rest() {
        let mut pages = Pages::<u16>::new(3 * PAGE);
        pages.fill(PAGE - 2, 4, 7);
        assert_eq!(pages.written(), 2);
        let frozen = pages.clone();
        pages.amend(2 * PAGE + 5, &[1, 2, 3]);
        assert_eq!(pages.written(), 3);
        pages.amend(0, &[0; PAGE - 2]);
        assert_eq!(pages.written(), 3, "zeros were there");
        assert_eq!((frozen.get(2 * PAGE + 6), pages.get(2 * PAGE + 6)), (0, 2));
        assert_eq!((frozen.get(PAGE), pages.get(PAGE)), (7, 7));
        for page in 0..2 {
            assert!(alloc::sync::Arc::ptr_eq(&frozen.pages[page], &pages.pages[page]));
        }
        pages.copy(PAGE, 0, 3);
        assert_eq!([0, 1, 2].map(|at| pages.get(at)), [7, 7, 0]);
    }
}
