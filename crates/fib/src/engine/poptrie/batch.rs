//! Looks up many addresses, level by level.
//!
//! A group reads all of its entries of D, lists those that lead to a node, and takes
//! the listed ones down together: each round every lookup of the list loads its
//! node, and those whose child is a node again stay on the list. The next step is selected without
//! a branch, so that only the ends of the rounds can be mispredicted; loads of one round overlap,
//! and those of the next are prefetched. The leaves are loaded last, in one pass.
//!
//! In lanes, where addresses have 32 bits and fewer, D is read by gathers, and the
//! lookups that lead to a node, a quarter of random ones, go down one after the other,
//! each to its leaf: their loads overlap as far ahead as the processor looks, which is
//! the farther the fewer instructions there are. Level by level the same took a
//! seventh longer.

use super::{CHUNK, LEAF, Poptrie, chunk};
use crate::arch::Kernel;
use crate::arch::lanes::{LANES, Ones, SimdLookup, Wide, Words, tops};
use crate::engine::{Leaf, chain};
use crate::{Addr, Hop};

/// How many lookups go down together; a position in the group fits a byte.
const GROUP: usize = 128;

/// A batch of lookups, as a kernel.
pub(super) struct Batch<'a, A: Addr, L: Leaf> {
    pub(super) table: &'a Poptrie<A, L>,
    pub(super) addrs: &'a [A],
    pub(super) out: &'a mut [Hop],
}

impl<A: Addr, L: Leaf> Kernel for Batch<'_, A, L> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        for (addrs, out) in self.addrs.chunks(GROUP).zip(self.out.chunks_mut(GROUP)) {
            group(self.table, addrs, out);
        }
    }
}

/// Reads D by gathers, then follows the entries that lead to a node.
impl<A: Addr, L: Leaf> SimdLookup<A> for Poptrie<A, L> {
    const LOADED_SINGLY: bool = true;

    #[inline(always)]
    fn lookup_vectors<const N: usize>(
        &self,
        wide: Wide,
        addrs: &[[A; LANES]; N],
        out: &mut [[Hop; LANES]; N],
    ) {
        let hop_bits = wide.all(!LEAF);
        let leaf = wide.all(LEAF);
        let mut nodes = 0;
        for i in 0..N {
            let at = wide.shr(wide.load(tops(&addrs[i])), 32 - self.direct_bits);
            let entry = wide.gather(Words::Whole(&self.direct), at, u16::MAX);
            out[i] = wide.store(wide.and(entry, hop_bits)).map(Hop);
            nodes |= u64::from(!wide.test(entry, leaf)) << (i * LANES);
        }
        let (addrs, out) = (addrs.as_flattened(), out.as_flattened_mut());
        for lane in Ones(nodes) {
            let lane = lane % (N * LANES);
            out[lane] = self.below(out[lane].0, addrs[lane]);
        }
    }

    #[inline(always)]
    fn remainder(&self, addrs: &[A], out: &mut [Hop]) {
        group(self, addrs, out);
    }
}

/// Lookups that wait for each other, as a kernel.
pub(super) struct Chain<'a, A: Addr, L: Leaf> {
    pub(super) table: &'a Poptrie<A, L>,
    pub(super) addrs: &'a [A],
    pub(super) out: &'a mut [Hop],
}

impl<A: Addr, L: Leaf> Kernel for Chain<'_, A, L> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        chain(self.addrs, self.out, |addr| self.table.lookup_one(addr));
    }
}

#[inline(always)]
fn group<A: Addr, L: Leaf>(table: &Poptrie<A, L>, addrs: &[A], out: &mut [Hop]) {
    let mut depth = table.direct_bits;
    // Each position is written at the list's end, which moves on only for a node.
    let mut list = [0u8; GROUP];
    let mut listed = 0;
    for (i, (&addr, out)) in addrs.iter().zip(&mut *out).enumerate() {
        let entry = table.direct[addr.bits(0, depth)];
        *out = Hop(entry ^ LEAF);
        list[listed % GROUP] = i as u8;
        listed += usize::from(entry & LEAF == 0);
    }
    let list = &list[..listed.min(GROUP)];
    let mut at = [0u32; GROUP];
    let mut under_way = [0u8; GROUP];
    for (&i, under_way) in list.iter().zip(&mut under_way) {
        let i = usize::from(i) % GROUP;
        at[i] = out[i].0 ^ LEAF;
        table.nodes.prefetch(at[i] as usize);
        *under_way = i as u8;
    }
    let mut live = list.len();
    while live > 0 {
        let mut live_next = 0;
        for j in 0..live {
            let i = usize::from(under_way[j]) % GROUP;
            let child = table.nodes[at[i] as usize].child(chunk(addrs[i].tail(depth)));
            at[i] = child.at;
            under_way[live_next] = i as u8;
            live_next += usize::from(child.inner);
        }
        for &i in &under_way[..live_next] {
            table.nodes.prefetch(at[usize::from(i) % GROUP] as usize);
        }
        live = live_next;
        depth += CHUNK;
    }
    for &i in list {
        let i = usize::from(i) % GROUP;
        out[i] = table.leaves[at[i] as usize].hop();
    }
}
