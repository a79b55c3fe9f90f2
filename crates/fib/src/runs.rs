//! Runs: nested prefixes flattened into disjoint ranges.
//!
//! ```text
//! routes (sorted, nested)          runs (disjoint, merged, covering the block)
//! 0.0.0.0/0  A                     0.0.0.0  A
//! 1.0.0.0/8  B       ──sweep──►    1.0.0.0  B
//! 1.2.0.0/16 C                     1.2.0.0  C
//! 1.2.3.0/24 D                     1.2.3.0  D
//! 1.2.4.5/32 C                     1.2.4.0  C      (1.2.4.5 merged away)
//!                                  1.3.0.0  B
//!                                  2.0.0.0  A
//! ```
//!
//! These are figures 3.1 to 3.3 of Zec's thesis (2019, section 3.2). This is the only place of
//! the library that implements longest-prefix match (the oracle, [`crate::engine::linear`],
//! implements it a second time on purpose). A run holds its first address; it ends where the
//! next run starts, or with its block. Two neighbors never have the same hop. Engines only lay
//! runs out in memory.
//!
//! A full build sweeps the whole space; an incremental update sweeps one block,
//! with the hop that covers it from outside. P routes give at most 2P + 1 runs.

use alloc::vec::Vec;

use crate::{Addr, Hop, Prefix, Rib};

/// The addresses from `start` up to the next run's start, and their hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<A> {
    /// The first address of the run.
    pub start: A,
    /// The hop of all of its addresses.
    pub hop: Hop,
}

/// Flattens `routes` over `block` and appends the runs to `out`.
///
/// `cover` is the hop of the longest route strictly shorter than any in
/// `routes` that covers the whole block ([`Hop::NONE`] if there is none).
/// `routes` come in the order of [`Prefix`] and all lie in `block`. The runs
/// appended begin with one at the block's first address.
///
/// # Panics
///
/// In debug builds, if `routes` is out of order or leaves the block.
///
/// # Complexity
///
/// O(n) time, a stack of at most `A::BITS + 1` covering routes.
pub fn sweep<A: Addr>(
    block: Prefix<A>,
    cover: Hop,
    routes: impl IntoIterator<Item = (Prefix<A>, Hop)>,
    out: &mut Vec<Run<A>>,
) {
    let begin = out.len();
    let mut stack: Vec<(A, Hop)> = Vec::with_capacity(A::BITS as usize + 1);
    // Runs are pushed at strictly growing starts, except that a route may begin
    // where its cover does: the later, longer one then replaces the former.
    let push = |out: &mut Vec<Run<A>>, start: A, hop: Hop| {
        if out.len() > begin && out[out.len() - 1].start == start {
            out.pop();
        }
        if out.len() == begin || out[out.len() - 1].hop != hop {
            out.push(Run { start, hop });
        }
    };
    push(out, block.addr(), cover);
    stack.push((block.last(), cover));
    #[cfg(debug_assertions)]
    let mut before: Option<Prefix<A>> = None;
    for (prefix, hop) in routes {
        #[cfg(debug_assertions)]
        {
            assert!(block.covers(prefix), "{prefix} lies outside of the swept block {block}");
            assert!(before < Some(prefix), "{prefix} is out of order");
            before = Some(prefix);
        }
        close(&mut stack, out, prefix.addr(), &push);
        push(out, prefix.addr(), hop);
        stack.push((prefix.last(), hop));
    }
    // Routes that are still open end with the block or before it.
    while let Some((last, _)) = stack.pop() {
        match (last.succ(), stack.last()) {
            (Some(next), Some(&(_, hop))) if last < block.last() => push(out, next, hop),
            _ => {}
        }
    }
}

/// Appends the runs of one block of `rib`.
pub(crate) fn sweep_block<A: Addr>(rib: &Rib<A>, block: Prefix<A>, out: &mut Vec<Run<A>>) {
    let (cover, routes) = rib.block(block);
    sweep(block, cover, routes, out);
}

/// Ends every open route that lies wholly before `at`, and continues its cover.
fn close<A: Addr>(
    stack: &mut Vec<(A, Hop)>,
    out: &mut Vec<Run<A>>,
    at: A,
    push: &impl Fn(&mut Vec<Run<A>>, A, Hop),
) {
    while let [.., (_, cover), (last, _)] = stack[..] {
        if last >= at {
            return;
        }
        stack.pop();
        if let Some(next) = last.succ() {
            push(out, next, cover);
        }
    }
}

/// Cuts `runs`, which tile `block`, into the `2^width` equal parts of the block.
///
/// Each part is a sub-slice of `runs`: its first run may start before the part
/// does, and then applies from the part's first address on. A slice of one run is a leaf pushed
/// down to the part.
///
/// # Examples
///
/// ```
/// use fingerpost_fib::{runs::{split, Run}, Hop, Prefix};
/// let run = |start, hop| Run { start, hop: Hop(hop) };
/// let runs = [run(0x00u8, 1), run(0x30, 2)];
/// let parts: Vec<_> = split(&runs, Prefix::ALL, 2).collect();
/// assert_eq!(parts[0].1, &runs[..]);
/// assert_eq!(parts[3], ("c0/2".parse().unwrap(), &runs[1..]));
/// ```
///
/// # Complexity
///
/// O(2^width + n) over the whole iteration.
pub fn split<A: Addr>(
    runs: &[Run<A>],
    block: Prefix<A>,
    width: u32,
) -> impl Iterator<Item = (Prefix<A>, &[Run<A>])> {
    let len = block.len() + width;
    let mut rest = runs;
    (0..1usize << width).map(move |index| {
        let part = Prefix::truncate(
            A::from_u128(
                block.addr().to_u128() | A::from_bits(index, block.len(), width).to_u128(),
            ),
            len,
        );
        let last = part.last();
        // Skip the runs that end before the part; keep the run that reaches into it.
        let reach = rest.iter().take_while(|run| run.start <= part.addr()).count();
        rest = &rest[reach.saturating_sub(1)..];
        let within = rest.iter().take_while(|run| run.start <= last).count();
        (part, &rest[..within])
    })
}
