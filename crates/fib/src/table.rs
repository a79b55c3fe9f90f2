//! The array that lookups read, and the builder's master copy that updates write.
//!
//! ```text
//!   Master<T>  (builder's)                    Table<T>  (readers')
//!   items  ██████▒▒██████                     ████████████████  64-byte aligned,
//!   journal: 6..8, 3..4, …   ──refresh()──►   copies only what the journal names
//! ```
//!
//! A [`Table`] is a plain, frozen array: aligned to a cache line, or on huge pages of its own
//! from half a huge page on, because a table of some megabytes on 4 KiB pages loses its gain to
//! TLB misses (with half of it on small pages, DIR-24-8 lost a third of its rate). The kernel is
//! advised before the first touch, which decides the page size. A [`Master`] is the builder's
//! copy with a journal of the spans written. A table holds its position in the journal, and
//! [`Master::refresh`] copies the spans written since. With two tables refreshed in turn, one
//! published while the other idles, the cost of an update depends on the size of the change and
//! not on that of the table.
//!
//! The journal holds the last spans: as many as the array has cache lines, since copying the
//! array whole costs no more than copying a line for each of them, and at most [`JOURNAL`]. A
//! table that is further behind is copied whole.
//!
//! Where spans are replaced and never changed, both tables can read one array instead
//! (`shared_pool.rs`).
//!
//! The allocation checks sizes: a table whose bytes exceed the address space panics, as a `Vec`
//! does, and is never shorter than its length.
//!
//! Arrays shrink too: an array that holds less than half of its capacity gives the rest back, so
//! that memory follows the present size of a table.

#![expect(unsafe_code, reason = "aligned memory, and a prefetch that the compiler cannot emit")]

use alloc::alloc::{alloc, dealloc, handle_alloc_error};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::fmt;
use core::ops::{Deref, DerefMut, Range, RangeInclusive};
use core::ptr::NonNull;

mod shared;

pub(crate) use shared::Shared;

/// The alignment of every table: a cache line.
const LINE: usize = 64;
/// A huge page: the alignment and the granularity of tables of at least half of one.
const HUGE: usize = 2 << 20;
/// The least and the greatest number of spans in a journal.
const JOURNAL: RangeInclusive<usize> = 64..=1 << 16;

/// Unused bytes that are allowed at any length: giving back less is not worth a copy.
const SPARE: usize = 64 << 10;

/// Returns whether an array has more than twice the capacity it needs.
fn has_excess<T>(capacity: usize, len: usize) -> bool {
    capacity.saturating_sub(2 * len) * size_of::<T>() > SPARE
}

/// A frozen array of plain values, aligned to cache lines, and on huge pages if it is large.
pub struct Table<T> {
    ptr: NonNull<T>,
    len: usize,
    capacity: usize,
    /// The journal position up to which this copy is current.
    seen: u64,
}

// SAFETY: a table owns its memory like a `Vec<T>` and has no interior
// mutability; it may be sent and shared whenever its items may.
unsafe impl<T: Send> Send for Table<T> {}
// SAFETY: as above; a shared table gives out only `&T`.
unsafe impl<T: Sync> Sync for Table<T> {}

impl<T> Table<T> {
    /// Collects the items of an iterator into aligned memory.
    pub(crate) fn collect(items: impl ExactSizeIterator<Item = T>) -> Self {
        const { assert!(!core::mem::needs_drop::<T>(), "a table drops no items") };
        const { assert!(size_of::<T>() > 0, "items of no size need no table") };
        let mut table = Self::with_capacity(items.len());
        let mut len = 0;
        for item in items.take(table.capacity) {
            // SAFETY: fewer than `capacity` items were written before this one, so the
            // place is within the allocation.
            let place = unsafe { table.ptr.add(len) };
            // SAFETY: as above; the allocation is ours alone and aligned for `T`.
            unsafe { place.write(item) };
            len += 1;
        }
        table.len = len;
        table
    }

    fn with_capacity(capacity: usize) -> Self {
        let layout = layout::<T>(capacity);
        let mut ptr = NonNull::dangling();
        if layout.size() > 0 {
            // SAFETY: the layout's size is not zero.
            let raw = unsafe { alloc(layout) };
            ptr = NonNull::new(raw.cast()).unwrap_or_else(|| handle_alloc_error(layout));
            // Before the first touch, when the kernel chooses the page size.
            advise_huge(raw, layout.size(), Advice::BeforeUse);
            // SAFETY: `raw` is not null, and that many bytes of it are ours to write.
            unsafe { raw.write_bytes(0, layout.size()) };
            advise_huge(raw, layout.size(), Advice::Now);
        }
        Self { ptr, len: 0, capacity, seen: 0 }
    }

    /// Returns how many items fill the memory that `items` would get: some more, where that is
    /// huge pages.
    pub(crate) fn filling(items: usize) -> usize {
        layout::<T>(items).size() / size_of::<T>().max(1)
    }
}

impl<T: Copy> Table<T> {
    /// Copies `items` into aligned memory.
    ///
    /// # Panics
    ///
    /// If the memory, which is somewhat larger than `items`, exceeds the address space.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::Table;
    /// let table = Table::new(&[3u32, 1, 4]);
    /// assert_eq!((table[2], table.len()), (4, 3));
    /// ```
    pub fn new(items: &[T]) -> Self {
        let mut table = Self::with_capacity(with_spare(items.len()));
        table.copy_whole(items);
        table
    }

    /// Makes a table of `len` equal items, for an owner that writes it in place.
    ///
    /// # Panics
    ///
    /// If the bytes exceed `isize::MAX`. If the system has no memory left, the process aborts, as
    /// with a `Vec`.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::Table;
    /// let mut counts = Table::filled(0u32, 1000);
    /// counts[7] += 1;
    /// assert_eq!(counts.iter().sum::<u32>(), 1);
    /// ```
    pub fn filled(item: T, len: usize) -> Self {
        Self::collect(core::iter::repeat_n(item, len))
    }

    /// Prefetches item `index`; has no visible effect if that is out of range.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        fetch(self.ptr.as_ptr(), index);
    }

    /// Makes this table equal to `items`.
    fn copy_whole(&mut self, items: &[T]) {
        if items.len() > self.capacity || has_excess::<T>(self.capacity, items.len()) {
            // Some spare capacity, so that growth by updates does not move it each time.
            *self = Self::with_capacity(with_spare(items.len()));
        }
        self.len = items.len();
        self.copy_span(items, 0..items.len());
    }

    /// Copies one span of `items`; both sides must hold it.
    fn copy_span(&mut self, items: &[T], span: Range<usize>) {
        assert!(span.end <= self.capacity, "a table holds every span it copies");
        let source = &items[span.clone()];
        // SAFETY: `start <= end <= capacity` items were allocated, so the result is
        // within or one past the end of one allocation.
        let target = unsafe { self.ptr.as_ptr().add(span.start) };
        // SAFETY:
        // - the slice gives `source.len()` readable items; the assertion gives as
        //   many writable ones from `target`, in memory this table owns alone;
        // - `&mut self` and the borrow of `items` cannot overlap;
        // - `T: Copy`, so nothing is dropped or duplicated.
        unsafe { target.copy_from_nonoverlapping(source.as_ptr(), source.len()) };
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len <= capacity` items were written by `copy_whole`
        // or `copy_span`; an empty table's pointer is dangling but aligned.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Table<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; `&mut self` is the only way to this memory.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        let layout = layout::<T>(self.capacity);
        if layout.size() > 0 {
            // SAFETY: `with_capacity` allocated with this very layout, and the
            // table is not used after. No item needs a drop: they are `Copy`, or `collect`
            // has checked it.
            unsafe { dealloc(self.ptr.as_ptr().cast(), layout) };
        }
    }
}

/// Returns the number of items to allocate for `len` items and some growth.
fn with_spare(len: usize) -> usize {
    len.saturating_add(len / 16)
}

/// Returns the layout of `capacity` items: whole lines, or whole huge pages.
///
/// # Panics
///
/// If it exceeds `isize::MAX` bytes.
fn layout<T>(capacity: usize) -> Layout {
    let layout = capacity.checked_mul(size_of::<T>()).and_then(|bytes| {
        let align = if bytes >= HUGE / 2 { HUGE } else { LINE };
        let bytes = bytes.checked_next_multiple_of(align)?;
        Layout::from_size_align(bytes, align.max(align_of::<T>())).ok()
    });
    match layout {
        Some(layout) => layout,
        None => panic!("a table of {capacity} items is beyond the address space"),
    }
}

impl<T: Copy> Clone for Table<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self);
        copy.seen = self.seen;
        copy
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} items)", self.len)
    }
}

/// Prefetches the cache line in which `item` begins, without waiting for it.
///
/// # Examples
///
/// ```
/// let items = vec![0u64; 1000];
/// fingerpost_fib::fetch_ahead(&items[500]); // read soon
/// ```
#[inline(always)]
pub fn fetch_ahead<T>(item: &T) {
    fetch(item, 0);
}

/// Prefetches `items[index]`; has no visible effect if that is out of range.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    fetch(items.as_ptr(), index);
}

#[inline(always)]
fn fetch<T>(items: *const T, index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = items.wrapping_add(index).cast::<i8>();
        // SAFETY: a prefetch reads nothing architecturally and never faults,
        // whatever the address; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(target_arch = "aarch64")]
    {
        let at = items.wrapping_add(index);
        // SAFETY: as above; the instruction is part of the architecture, and touches
        // neither registers, flags nor the stack. The intrinsic for it is not stable.
        unsafe {
            core::arch::asm!(
                "prfm pldl1keep, [{at}]",
                at = in(reg) at,
                options(nostack, preserves_flags, readonly)
            );
        }
    }
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    let _ = (items, index);
}

/// Puts a large array of the control plane, which is accessed at random, on huge pages: with
/// pages of 4 KiB, the access to the page table costs as much as that to the item.
pub(crate) fn use_huge_pages<T>(items: &[T]) {
    advise_huge(items.as_ptr().cast_mut().cast(), size_of_val(items), Advice::Now);
}

/// Makes an empty vector whose memory is put on huge pages when it is first written to, if the
/// system has them and the capacity is at least one: for a structure of the control plane that
/// grows and is accessed at random.
///
/// # Examples
///
/// ```
/// let mut slots = fingerpost_fib::vec_on_huge_pages(1 << 20);
/// slots.push(7_u64);
/// assert!(slots.capacity() >= 1 << 20);
/// ```
pub fn vec_on_huge_pages<T>(capacity: usize) -> Vec<T> {
    let mut items: Vec<T> = Vec::with_capacity(capacity);
    let spare = items.spare_capacity_mut();
    advise_huge(spare.as_mut_ptr().cast(), size_of_val(spare), Advice::BeforeUse);
    items
}

/// When to use huge pages.
#[derive(Clone, Copy)]
enum Advice {
    /// When memory is first written to.
    BeforeUse,
    /// At once, where the allocator returned memory that was used before, in small pages.
    Now,
}

/// Advises the kernel to use huge pages for this memory.
fn advise_huge(raw: *mut u8, bytes: usize, when: Advice) {
    #[cfg(all(feature = "std", target_os = "linux"))]
    if bytes >= HUGE {
        // MADV_COLLAPSE, since Linux 6.1.
        const COLLAPSE: libc::c_int = 25;
        let advice = match when {
            Advice::BeforeUse => libc::MADV_HUGEPAGE,
            Advice::Now => COLLAPSE,
        };
        // Whole huge pages within the range, which for a `Table` is all of it.
        let skipped = raw.align_offset(HUGE);
        let whole = bytes.saturating_sub(skipped) / HUGE * HUGE;
        if whole > 0 {
            // SAFETY: the range lies in one live allocation of ours and begins at a
            // page; neither advice changes content. A kernel that refuses one changes
            // nothing.
            unsafe { libc::madvise(raw.wrapping_add(skipped).cast(), whole, advice) };
        }
    }
    let _ = (raw, bytes, when);
}

/// The builder's copy of a table, with a journal of the spans written.
#[derive(Debug, Default)]
pub(crate) struct Master<T> {
    items: Vec<T>,
    journal: VecDeque<(u32, u32)>,
    /// The journal position of the oldest span still held.
    oldest: u64,
    /// The number of 64-bit words written.
    written: u64,
}

impl<T: Copy + PartialEq> Master<T> {
    /// Takes `items` as the first content.
    pub(crate) fn new(items: Vec<T>) -> Self {
        Self { items, journal: VecDeque::new(), oldest: 0, written: 0 }
    }

    /// Writes `content` at `at`, and extends the array if `content` reaches beyond its end. Items
    /// at either end of `content` that equal the present ones are not written again.
    ///
    /// # Panics
    ///
    /// If `at` lies beyond the end.
    pub(crate) fn write(&mut self, at: usize, content: &[T]) {
        let old = &self.items[at..];
        let same = old.iter().zip(content).take_while(|(old, new)| old == new).count();
        let (at, content) = (at + same, &content[same..]);
        let mut end = content.len();
        if at + end <= self.items.len() {
            let old = &self.items[at..at + end];
            end -= old.iter().zip(content).rev().take_while(|(old, new)| old == new).count();
        }
        let content = &content[..end];
        if content.is_empty() {
            return;
        }
        let within = (self.items.len() - at).min(content.len());
        self.items[at..at + within].copy_from_slice(&content[..within]);
        self.items.extend_from_slice(&content[within..]);
        let bytes = at * size_of::<T>()..(at + content.len()) * size_of::<T>();
        self.written += (bytes.end.div_ceil(8) - bytes.start / 8) as u64;
        self.note(at, content.len());
    }

    /// Extends the array to `len` items if it is shorter. The values of the new items do not
    /// matter, since no lookup reads them before they are written; so they do not count as
    /// written.
    pub(crate) fn lengthen(&mut self, len: usize)
    where
        T: Default,
    {
        let at = self.items.len();
        if at < len {
            self.items.resize(len, T::default());
            self.note(at, len - at);
        }
    }

    /// Appends a span to the journal.
    fn note(&mut self, at: usize, len: usize) {
        let (Ok(from), Ok(count)) = (u32::try_from(at), u32::try_from(len)) else {
            // The span's numbers are too large: clear the journal, so that every table is further
            // behind than it reaches, and is copied whole.
            self.oldest += self.journal.len() as u64 + 1;
            self.journal.clear();
            return;
        };
        let lines = size_of_val(&self.items[..]) / LINE;
        let most = lines.clamp(*JOURNAL.start(), *JOURNAL.end());
        while self.journal.len() >= most {
            self.journal.pop_front();
            self.oldest += 1;
        }
        self.journal.push_back((from, count));
    }

    /// Writes `content` at `at` as [`write`](Self::write) does, but skips equal items in the
    /// middle of `content` too, in words of 64 bits.
    ///
    /// # Panics
    ///
    /// If `at` lies beyond the end.
    pub(crate) fn amend(&mut self, at: usize, content: &[T]) {
        let word = (8 / size_of::<T>()).max(1);
        let (mut from, mut next) = (0, 0);
        while next < content.len() {
            let this = next;
            next = ((at + this) / word * word + word - at).min(content.len());
            if self.items.get(at + this..at + next) == Some(&content[this..next]) {
                self.write(at + from, &content[from..this]);
                from = next;
            }
        }
        self.write(at + from, &content[from..]);
    }

    /// Cuts the array to `len` items, and gives unneeded capacity back: half of it at a time,
    /// because a builder that cuts everything off usually fills the array again.
    ///
    /// # Complexity
    ///
    /// O(1) amortized over the items written and cut off.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.items.truncate(len);
        let capacity = self.items.capacity();
        if has_excess::<T>(capacity, len) {
            self.items.shrink_to((capacity / 2).max(len + len / 4));
        }
    }

    /// Copies the whole array out.
    pub(crate) fn freeze(&self) -> Table<T> {
        let mut table = Table::new(&self.items);
        table.seen = self.position();
        table
    }

    /// Brings `table`, frozen from this master, up to date.
    ///
    /// # Complexity
    ///
    /// O(items written since `table` was last current), amortized: O(items) when the
    /// array has outgrown the table's memory, or uses less than half of it.
    pub(crate) fn refresh(&self, table: &mut Table<T>) {
        let len = self.items.len();
        let misfit = len > table.capacity || has_excess::<T>(table.capacity, len);
        if table.seen < self.oldest || misfit {
            table.copy_whole(&self.items);
        } else {
            table.len = self.items.len();
            for &(at, len) in self.journal.iter().skip((table.seen - self.oldest) as usize) {
                // A span may end beyond the array if that was cut since.
                let end = (at as usize + len as usize).min(self.items.len());
                if (at as usize) < end {
                    table.copy_span(&self.items, at as usize..end);
                }
            }
        }
        table.seen = self.position();
    }

    /// Returns the number of 64-bit words that [`write`](Self::write) has written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    fn position(&self) -> u64 {
        self.oldest + self.journal.len() as u64
    }
}

impl<T> Deref for Master<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

#[cfg(test)]
mod tests {
    use super::{HUGE, JOURNAL, LINE, Master, SPARE, Table};
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn tables_are_aligned_whatever_their_size() {
        for bytes in [0, 1, 64, HUGE / 4, HUGE - 1, HUGE, 3 * HUGE + 5] {
            let table = Table::new(&vec![7u8; bytes]);
            assert_eq!(table.len(), bytes);
            assert!(table.iter().all(|&b| b == 7));
            let align = if bytes >= HUGE / 2 { HUGE } else { LINE.min(bytes) };
            assert_eq!(table.as_ptr() as usize % align.max(1), 0);
        }
    }

    #[test]
    fn table_beyond_the_address_space_is_refused() {
        let most = isize::MAX as usize;
        // Without the check, the first would allocate eight bytes for its 2^61 + 1 items.
        let sizes: [fn(usize) -> usize; 4] = [
            |_| Table::filled(1u64, (1 << 61) + 1).len(),
            |_| Table::filled(1u64, usize::MAX).len(),
            |most| Table::filled(1u8, most).len(),
            |most| Table::<u32>::filling(most / 4 + 1),
        ];
        for (number, make) in sizes.into_iter().enumerate() {
            let refused = std::panic::catch_unwind(|| make(most)).expect_err("it is refused");
            let words = refused.downcast::<alloc::string::String>().expect("words");
            assert!(words.contains("beyond the address space"), "{number}: {words}");
        }
    }

    #[test]
    fn span_beyond_the_journals_numbers_makes_refresh_copy_the_table_whole() {
        let mut master = Master::new(vec![1u32, 2]);
        let mut table = master.freeze();
        master.items[1] = 3;
        master.note(1 << 32, 1);
        master.refresh(&mut table);
        assert_eq!(table[..], [1, 3]);
        let before = table.seen;
        master.write(0, &[9]);
        master.refresh(&mut table);
        assert_eq!((&table[..], table.seen), (&[9, 3][..], before + 1));
    }

    #[test]
    fn two_tables_in_turn_follow_every_write() {
        let mut master = Master::new(vec![0u32; 100]);
        let mut tables = [master.freeze(), master.freeze()];
        let mut rng = fastrand::Rng::with_seed(1);
        for step in 0..5_000u32 {
            let state = rng.u64(..);
            let at = (state >> 33) as usize % (master.len() + 1);
            let content: Vec<u32> = (0..(state >> 60) as u32).map(|i| step * 100 + i).collect();
            master.write(at, &content);
            if state & 0xff00 == 0 {
                master.truncate(master.len() - 3);
            }
            let table = &mut tables[step as usize % 2];
            master.refresh(table);
            assert_eq!(&table[..], &master[..]);
        }
    }

    #[test]
    fn capacity_that_is_not_needed_is_given_back() {
        let most = 1 << 20;
        let mut master = Master::new((0..most).collect::<Vec<u32>>());
        let mut table = master.freeze();
        for len in (0..=most as usize).rev().step_by(1000) {
            master.truncate(len);
            master.refresh(&mut table);
            assert_eq!(table[..], master[..]);
            let most = 2 * len + SPARE / size_of::<u32>();
            assert!(master.items.capacity() <= most && table.capacity <= most);
        }
        // An array that is emptied at once keeps half of its capacity.
        let mut master = Master::new(vec![0u32; most as usize]);
        master.truncate(0);
        assert_eq!(master.items.capacity(), most as usize / 2);
    }

    #[test]
    fn only_words_that_differ_count_as_written() {
        let mut master = Master::new(vec![0u16; 16]);
        master.write(2, &[0, 0, 7, 0]);
        assert_eq!(master.written(), 1);
        master.write(0, &[0, 0, 0, 0, 7]);
        assert_eq!(master.written(), 1);
        // From the last item of one word to the first of the next but one.
        master.write(3, &[1; 6]);
        assert_eq!(master.written(), 4);
        master.write(16, &[0; 5]);
        assert_eq!(master.written(), 6);
        assert_eq!(master[..10], [0, 0, 0, 1, 1, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn amendment_does_not_write_equal_words() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut next = move |below: usize| {
            let state = rng.u64(..);
            (state >> 33) as usize % below
        };
        for _ in 0..2_000 {
            let old: Vec<u16> = (0..next(40)).map(|_| next(2) as u16).collect();
            let mut master = Master::new(old.clone());
            let mut table = master.freeze();
            let at = next(old.len() + 1);
            let content: Vec<u16> = (0..next(40)).map(|_| next(2) as u16).collect();
            master.amend(at, &content);
            let mut new = old.clone();
            new.resize(old.len().max(at + content.len()), 0);
            new[at..at + content.len()].copy_from_slice(&content);
            assert_eq!(master[..], new[..]);
            master.refresh(&mut table);
            assert_eq!(table[..], new[..]);
            let word = |items: &[u16], i: usize| items.chunks(4).nth(i).map(<[u16]>::to_vec);
            let differ = |&i: &usize| word(&old, i) != word(&new, i);
            assert_eq!(master.written(), (0..20).filter(differ).count() as u64);
        }
    }

    #[test]
    fn table_beyond_the_journal_is_copied_whole() {
        let mut master = Master::new(vec![0u8; 10]);
        let mut table = master.freeze();
        for i in 0..*JOURNAL.end() + 5 {
            master.write(i % 10, &[i as u8]);
        }
        master.refresh(&mut table);
        assert_eq!(&table[..], &master[..]);
    }

    #[test]
    fn journal_has_at_most_one_span_for_each_line_of_the_array() {
        for lines in [1, 100, 3 * JOURNAL.end()] {
            let mut master = Master::new(vec![0u64; lines * LINE / 8]);
            for i in 0..2 * *JOURNAL.end() as u64 {
                master.write(i as usize % 8, &[i + 1]);
            }
            let most = lines.clamp(*JOURNAL.start(), *JOURNAL.end());
            assert_eq!(master.journal.len(), most);
            // After a cut the journal is shortened too.
            master.truncate(8);
            master.write(0, &[7]);
            assert_eq!(master.journal.len(), *JOURNAL.start());
        }
    }
}
