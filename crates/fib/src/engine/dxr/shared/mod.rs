//! Many tables in one memory: equal parts are stored once for all of them.
//!
//! A router with virtual routers has a table for each. Most hold a few routes; some
//! hold all of the Internet's, and differ in few of them. In both cases a table should take memory
//! only for its own routes. So DXR's extension is repeated one level above, and every stage but the
//! first is shared by content, among the indexes of one table and among tables:
//!
//! ```text
//!   a table's own    shared by all                                     (IPv4)
//!   root             pages            blocks            chunks
//!   ┌────┐ page no.  ┌────┐ block no. ┌────┐ hop        ┌─────┬───┐
//!   │2^8 ├──────────►│2^8 ├──────────►│2^4 ├───────────►│start│hop│ short, medium,
//!   └────┘ u32       └────┘ u32       └────┘ kind,at,len└─────┴───┘ long or wide
//!   bits 0..8        8..16            16..20            20..32
//! ```
//!
//! A root is 1 KiB. Where a table has no route, or one for a whole /8, its root names
//! a page that others have too; each /8 with routes of its own is a page of 1 KiB more,
//! each /16 a block, and so on down: a table of a few routes takes a few KiB. Two full
//! tables with one route different share all but a root, a page, a block and a chunk.
//!
//! Against a table by itself a lookup has one load more, of a root that stays near.
//! Chunks, blocks and their searches are those of [`Dxr`], whose tables these are. Of
//! IPv6 the bits are cut alike, which is right and not dense: its routes begin where
//! these stages end.
//!
//! Tables are numbered from 0. One that is not there, or is empty, routes nowhere.
//! Limits: 2^32 pages and blocks, the ranges of all tables together as `entry.rs` has
//! them for one; past those entries are made wide ([`Full`](crate::Full) leads there).

use alloc::vec::Vec;

use super::{Dxr, Entry, GROUP};
use crate::engine::{Engine, Part, Step};
use crate::table::Table;
use crate::{Addr, FamilyLayout, Hop};

mod builder;

pub(crate) use builder::SharedBuilder;

/// How many bits each stage resolves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cuts {
    root: u32,
    page: u32,
    block: u32,
}

impl Cuts {
    /// The cuts of a family; toys have fewer, so that their stages have room to differ.
    const fn of<A: Addr>() -> Self {
        match A::BITS {
            ..16 => Self { root: 2, page: 1, block: 1 },
            16 => Self { root: 3, page: 3, block: 2 },
            _ => Self { root: 8, page: 8, block: 4 },
        }
    }

    /// The bits before chunks.
    const fn k(self) -> u32 {
        self.root + self.page + self.block
    }
}

/// Frozen tables.
#[derive(Clone, Debug)]
pub(crate) struct Shared<A: FamilyLayout, E: Copy> {
    cuts: Cuts,
    /// Page numbers, by table and the first bits.
    roots: Table<u32>,
    /// Block numbers.
    pages: Table<u32>,
    /// Blocks, in place of the entries, and the chunks.
    base: Dxr<A, E>,
}

impl<A: FamilyLayout, E: Entry> Shared<A, E> {
    /// Returns where the entry for `addr` is, in a table that is there.
    #[inline(always)]
    fn index(&self, table: usize, addr: A) -> usize {
        let Cuts { root, page, block } = self.cuts;
        let number = self.roots[table << root | addr.bits(0, root)] as usize;
        let number = self.pages[number << page | addr.bits(root, page)] as usize;
        number << block | addr.bits(root + page, block)
    }

    /// Returns whether there is a root of that number.
    #[inline(always)]
    fn has(&self, table: usize) -> bool {
        table < self.roots.len() >> self.cuts.root
    }

    #[inline]
    pub(crate) fn lookup(&self, table: usize, addr: A) -> Hop {
        if !self.has(table) {
            return Hop::NONE;
        }
        self.base.resolve(self.index(table, addr), addr)
    }

    pub(crate) fn lookup_batch(&self, table: usize, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        if !self.has(table) {
            out.fill(Hop::NONE);
            return;
        }
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            self.base.group(|addr| self.index(table, addr), addrs, out);
        }
    }

    pub(crate) fn trace(&self, table: usize, addr: A, steps: &mut Vec<Step>) -> Hop {
        if !self.has(table) {
            return Hop::NONE;
        }
        let Cuts { root, page, .. } = self.cuts;
        let of_root = table << root | addr.bits(0, root);
        steps.push(Step::of("roots", of_root, &self.roots));
        let of_page = (self.roots[of_root] as usize) << page | addr.bits(root, page);
        steps.push(Step::of("pages", of_page, &self.pages));
        self.base.trace_from("blocks", self.index(table, addr), addr, steps)
    }

    pub(crate) fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::from([Part::of("roots", &self.roots), Part::of("pages", &self.pages)]);
        let of_base = self.base.parts().into_iter().filter(|part| part.items > 0);
        parts.extend(of_base.map(|part| match part.name {
            "entries" => Part { name: "blocks", ..part },
            _ => part,
        }));
        parts
    }
}
