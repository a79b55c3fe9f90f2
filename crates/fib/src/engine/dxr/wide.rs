//! A batch in lanes: the first stages by gathers, each range search by one comparison.
//!
//! ```text
//!   addresses ─► direct ─► extension ─► entries ─┬─ a hop: the answer
//!                                                └─ a chunk, one lookup after the other:
//!
//!   chunk   │ 0·A │ 3·C │ 4·A │ 9·B │ what follows it …       sixteen ranges, one load
//!   probe   │ 5·* │ 5·* │ 5·* │ 5·* │ 5·* …
//!   at most    1     1     1     0    ignored ─► the third range answers
//! ```
//!
//! Ranges lie side by side and in order, so that one load and one comparison tell how
//! many of sixteen begin no later than the address; a longer chunk is halved before,
//! as in `search.rs`, until sixteen are left. With 20 bits resolved before it hardly
//! any chunk is longer. Against a search by gathers, sixteen lookups in step, this waits
//! for one load in place of log2(n) + 1 that depend on each other, and needs no lookups
//! to be gathered from a whole batch: bursts of 32 gained half.
//!
//! What has no numbers of 32 bits or fewer (medium ranges, 64-bit entries, families above
//! 32 bits) is not for lanes.

use core::hint::select_unpredictable;

use super::search::{GROUP, last_not_above, lockstep};
use super::{Dxr, Entry};
use crate::arch::lanes::{self, Abreast, LANES, Ones, Wide, Words, tops};
use crate::{Family, Hop, Slot};

/// A table with its entries as numbers.
pub(super) struct InLanes<'a, A: Family, E: Entry> {
    table: &'a Dxr<A, E>,
    entries: Words<'a>,
}

impl<'a, A: Family, E: Entry> InLanes<'a, A, E> {
    /// Returns the table, if it is one for lanes.
    #[inline(always)]
    pub(super) fn of(table: &'a Dxr<A, E>) -> Option<Self> {
        let entries = E::words(&table.entries).filter(|_| A::BITS <= 32)?;
        Some(Self { table, entries })
    }

    /// Answers a batch, or says that there are no lanes.
    #[inline(always)]
    pub(super) fn batch(&self, addrs: &[A], out: &mut [Hop]) -> bool {
        lanes::batch(self, addrs, out)
    }

    /// Loads the entries of sixteen addresses.
    #[inline(always)]
    fn entries(&self, wide: Wide, addrs: &[A; LANES]) -> lanes::Lanes {
        let (k, x) = (self.table.shape.k(), self.table.shape.extension());
        let top = wide.shr(wide.load(tops(addrs)), 32 - k);
        if x == 0 {
            return wide.gather(self.entries, top, u16::MAX);
        }
        let direct = Words::Half(&self.table.direct);
        let block = wide.gather(direct, wide.shr(top, x), u16::MAX);
        let at = wide.or(wide.shl(block, x), wide.and(top, wide.all((1 << x) - 1)));
        wide.gather(self.entries, at, u16::MAX)
    }

    /// Answers the lookups of the mask, whose chunks are in `slots`. In `out` is what
    /// their entries say behind the kind.
    #[inline(always)]
    fn search<S: Slot<A>>(&self, wide: Wide, slots: &[S], mask: u64, addrs: &[A], out: &mut [Hop]) {
        let Some(words) = S::words(slots) else { return };
        let len_bits = self.table.split.len_bits;
        let hop_bits = 32 - S::MAX_HOP.leading_zeros();
        for lane in Ones(mask) {
            let lane = lane % out.len();
            let payload = out[lane].0;
            let (mut at, mut len) = ((payload >> len_bits) as usize, payload as usize);
            len &= (1 << len_bits) - 1;
            let tail = addrs[lane].tail(self.table.shape.k());
            while len > LANES {
                let half = len / 2;
                at = select_unpredictable(slots[at + half] <= S::probe(tail), at + half, at);
                len -= half;
            }
            let slot = match wide.row(words, at) {
                Some(row) => {
                    let start = tail.bits(0, S::START_BITS) as u32;
                    let probe = wide.all(start << hop_bits | S::MAX_HOP);
                    let begun = u32::from(wide.at_most(row, probe)) & ((1 << len) - 1);
                    slots[at + begun.count_ones() as usize - 1]
                }
                // Fewer than sixteen ranges before the end of the table.
                None => last_not_above(&slots[at..at + len], S::probe(tail)),
            };
            out[lane] = slot.hop();
        }
    }

    /// Answers the lookups of the mask, whose ranges are medium ones, as without lanes.
    #[cold]
    fn medium(&self, mask: u64, addrs: &[A], out: &mut [Hop]) {
        let table = self.table;
        let mut entries = [E::default(); GROUP];
        let mut list = [0u8; GROUP];
        let mut listed = 0;
        for lane in Ones(mask) {
            let index = if table.shape.extension() == 0 {
                table.index::<false>(addrs[lane])
            } else {
                table.index::<true>(addrs[lane])
            };
            entries[lane] = table.entries[index];
            list[listed] = lane as u8;
            listed += 1;
        }
        let (k, split) = (table.shape.k(), table.split);
        lockstep(&table.medium, &list[..listed], k, split, addrs, &entries, out);
    }
}

impl<A: Family, E: Entry> Abreast<A> for InLanes<'_, A, E> {
    #[inline(always)]
    fn abreast<const N: usize>(
        &self,
        wide: Wide,
        addrs: &[[A; LANES]; N],
        out: &mut [[Hop; LANES]; N],
    ) {
        let payload_bits = wide.all((1 << 30) - 1);
        let (mut low, mut high) = (0, 0);
        for i in 0..N {
            let entry = self.entries(wide, &addrs[i]);
            low |= u64::from(wide.test(entry, wide.all(1 << 30))) << (i * LANES);
            high |= u64::from(wide.test(entry, wide.all(1 << 31))) << (i * LANES);
            out[i] = wide.store(wide.and(entry, payload_bits)).map(Hop);
        }
        let (addrs, out) = (addrs.as_flattened(), out.as_flattened_mut());
        self.search::<A::Short>(wide, &self.table.short, low & !high, addrs, out);
        if high != 0 {
            self.search::<A::Long>(wide, &self.table.long, high & low, addrs, out);
            if high & !low != 0 {
                self.medium(high & !low, addrs, out);
            }
        }
    }

    #[inline(always)]
    fn few(&self, addrs: &[A], out: &mut [Hop]) {
        self.table.groups(addrs, out);
    }
}
