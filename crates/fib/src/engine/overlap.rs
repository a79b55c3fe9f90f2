//! Two ways of looking up several addresses at once, so that their waits overlap.
//!
//! A scheme that follows pointers waits for memory at every step. [`Walk`] is such a lookup as a
//! state machine that can be suspended before each load; the two drivers suspend it there:
//!
//! ```text
//!   group (Fu, algorithm 1)               coroutines (Fu, algorithm 2)
//!   begin   a b c d   prefetch each        a b c d   begin, prefetch, yield
//!   step    a b c d   all go one step      a b c d   in turn; a lookup that
//!   step    a   c d   b has answered       a E c d   has answered makes room
//!   step    a     d   … until all have     a E c F   for the next address
//!   next group                             until no address is left
//! ```
//!
//! Qiaobin Fu, *High-Performance Software Packet Processing*, PhD thesis, Boston 2020,
//! sections 2.5.2, 2.5.3, 4.5.3 and 4.5.4; Chen et al., "Improving hash join performance
//! through prefetching", TODS 2007, for the former.
//!
//! A group ends with its longest lookup, and its last steps overlap little; coroutines keep the
//! same number in flight to the end, but each step selects the lookup to resume. The best number
//! in flight depends on the machine and the traffic: [`Tuner`] finds it at run time, as section
//! 4.5.4 does. Neither driver allocates.

use core::array;
use core::ops::ControlFlow;

use crate::arch::{self, Kernel};
use crate::{Addr, Hop};

/// The most lookups in flight.
pub const MAX_IN_FLIGHT: usize = 64;

/// A lookup as a state machine that stops before each load.
pub trait Walk<A: Addr>: Sync {
    /// A lookup that is under way: where it will load next.
    type At: Copy;

    /// Steps count ones, and are worth compiling for CPUs that do so by an
    /// instruction (`arch`); they are `#[inline(always)]` then.
    const COUNTS: bool = false;

    /// Starts a lookup, without any load that may have to wait.
    fn begin(&self, addr: A) -> Self::At;

    /// Prefetches the memory that the next [`step`](Self::step) will load.
    fn prefetch(&self, at: &Self::At);

    /// Loads, and returns the next state, or the answer.
    fn step(&self, at: Self::At) -> ControlFlow<Hop, Self::At>;
}

/// Looks up a single address: the baseline of the drivers.
#[inline(always)]
pub fn alone<A: Addr, W: Walk<A> + ?Sized>(engine: &W, addr: A) -> Hop {
    let mut at = engine.begin(addr);
    loop {
        match engine.step(at) {
            ControlFlow::Continue(next) => at = next,
            ControlFlow::Break(hop) => return hop,
        }
    }
}

/// Looks up `addrs[i]` into `out[i]` for every i, in groups of `N` that step
/// together (Fu, algorithm 1).
///
/// # Panics
///
/// If the slices differ in length.
#[inline(always)]
pub fn group<const N: usize, A: Addr, W: Walk<A> + ?Sized>(
    engine: &W,
    addrs: &[A],
    out: &mut [Hop],
) {
    assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
    for (addrs, out) in addrs.chunks(N).zip(out.chunks_mut(N)) {
        step_together::<N, A, W>(engine, addrs, out);
    }
}

/// Looks up a group of at most `N`.
#[inline(always)]
fn step_together<const N: usize, A: Addr, W: Walk<A> + ?Sized>(
    engine: &W,
    addrs: &[A],
    out: &mut [Hop],
) {
    let Some(&last) = addrs.last() else { return };
    // The lookups in flight, in front; each round rewrites the list without those that have
    // answered.
    let mut list: [(usize, W::At); N] = array::from_fn(|i| {
        let at = engine.begin(addrs.get(i).copied().unwrap_or(last));
        engine.prefetch(&at);
        (i, at)
    });
    let mut live = addrs.len().min(N);
    while live > 0 {
        let mut live_next = 0;
        for i in 0..live {
            let (index, at) = list[i];
            match engine.step(at) {
                ControlFlow::Continue(next) => {
                    engine.prefetch(&next);
                    list[live_next] = (index, next);
                    live_next += 1;
                }
                ControlFlow::Break(hop) => out[index] = hop,
            }
        }
        live = live_next;
    }
}

/// Looks up `addrs[i]` into `out[i]` for every i, with `in_flight` lookups under
/// way that are resumed in turn, the next address taking the place of one that has
/// answered (Fu, algorithm 2). `in_flight` is held between 1 and [`MAX_IN_FLIGHT`].
///
/// # Panics
///
/// If the slices differ in length.
#[inline(always)]
pub fn coroutines<A: Addr, W: Walk<A> + ?Sized>(
    engine: &W,
    addrs: &[A],
    out: &mut [Hop],
    in_flight: usize,
) {
    assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
    let Some(&last) = addrs.last() else { return };
    let start = |i: usize| {
        let at = engine.begin(addrs.get(i).copied().unwrap_or(last));
        engine.prefetch(&at);
        (i, at)
    };
    let mut next = in_flight.clamp(1, MAX_IN_FLIGHT).min(addrs.len());
    let mut ring: [(usize, W::At); MAX_IN_FLIGHT] = {
        let idle = (0, engine.begin(last));
        array::from_fn(|i| if i < next { start(i) } else { idle })
    };
    let mut live = next;
    let mut turn = 0;
    while live > 0 {
        if turn >= live {
            turn = 0;
        }
        let (index, at) = ring[turn];
        match engine.step(at) {
            ControlFlow::Continue(at) => {
                engine.prefetch(&at);
                ring[turn].1 = at;
                turn += 1;
            }
            ControlFlow::Break(hop) => {
                out[index] = hop;
                if next < addrs.len() {
                    ring[turn] = start(next);
                    next += 1;
                    turn += 1;
                } else {
                    live -= 1;
                    ring[turn] = ring[live];
                }
            }
        }
    }
}

/// [`Walk`] behind a reference of any engine's type.
pub trait Overlapped<A> {
    /// Looks up one by one, as [`alone`].
    fn alone(&self, addrs: &[A], out: &mut [Hop]);

    /// Looks up in groups of `in_flight`, 4, 8, 16, 32 or 64 (the next higher).
    fn group(&self, addrs: &[A], out: &mut [Hop], in_flight: usize);

    /// Looks up with [`coroutines`].
    fn coroutines(&self, addrs: &[A], out: &mut [Hop], in_flight: usize);
}

impl<A: Addr, W: Walk<A>> Overlapped<A> for W {
    fn alone(&self, addrs: &[A], out: &mut [Hop]) {
        Drive { engine: self, addrs, out, how: How::Alone }.drive();
    }

    fn group(&self, addrs: &[A], out: &mut [Hop], in_flight: usize) {
        Drive { engine: self, addrs, out, how: How::Group(in_flight) }.drive();
    }

    fn coroutines(&self, addrs: &[A], out: &mut [Hop], in_flight: usize) {
        Drive { engine: self, addrs, out, how: How::Coroutines(in_flight) }.drive();
    }
}

/// A driver of [`Overlapped`], and the number in flight.
enum How {
    Alone,
    Group(usize),
    Coroutines(usize),
}

/// A batch to be looked up in one of the ways.
struct Drive<'a, A, W> {
    engine: &'a W,
    addrs: &'a [A],
    out: &'a mut [Hop],
    how: How,
}

impl<A: Addr, W: Walk<A>> Drive<'_, A, W> {
    fn drive(self) {
        if W::COUNTS {
            arch::run(self);
        } else {
            self.run();
        }
    }
}

impl<A: Addr, W: Walk<A>> Kernel for Drive<'_, A, W> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { engine, addrs, out, how } = self;
        match how {
            How::Alone => {
                for (&addr, out) in addrs.iter().zip(out) {
                    *out = alone(engine, addr);
                }
            }
            How::Group(..=4) => group::<4, A, W>(engine, addrs, out),
            How::Group(5..=8) => group::<8, A, W>(engine, addrs, out),
            How::Group(9..=16) => group::<16, A, W>(engine, addrs, out),
            How::Group(17..=32) => group::<32, A, W>(engine, addrs, out),
            How::Group(_) => group::<64, A, W>(engine, addrs, out),
            How::Coroutines(in_flight) => coroutines(engine, addrs, out, in_flight),
        }
    }
}

/// Finds how many lookups to keep in flight, one step at a time (Fu, 4.5.4): while
/// a change makes lookups cheaper it goes on in that direction; when one does not,
/// it is taken back and the direction turned.
///
/// # Examples
///
/// ```
/// use fingerpost_fib::engine::overlap::Tuner;
/// let mut tuner = Tuner::new(4);
/// // A machine on which 12 in flight are best.
/// for _ in 0..200 {
///     let distance = tuner.in_flight().abs_diff(12) as u64;
///     tuner.observe(1000 * (10 + distance), 1000);
/// }
/// assert!(tuner.in_flight().abs_diff(12) <= 1);
/// ```
#[derive(Clone, Debug)]
pub struct Tuner {
    in_flight: usize,
    up: bool,
    /// The cost of a lookup before the last change, in the caller's unit.
    before: Option<f64>,
}

impl Tuner {
    /// Starts with `in_flight`, held between 1 and [`MAX_IN_FLIGHT`].
    pub fn new(in_flight: usize) -> Self {
        Self { in_flight: in_flight.clamp(1, MAX_IN_FLIGHT), up: true, before: None }
    }

    /// Returns how many to have in flight in the next batch.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Records the cost of the last batch, in any unit of time, and its number of lookups; chooses
    /// the number in flight for the next.
    pub fn observe(&mut self, cost: u64, lookups: usize) {
        if lookups == 0 {
            return;
        }
        let now = cost as f64 / lookups as f64;
        if self.before.is_some_and(|before| now >= before) {
            self.move_on(!self.up);
            self.up = !self.up;
        } else {
            self.move_on(self.up);
        }
        self.before = Some(now);
    }

    fn move_on(&mut self, up: bool) {
        let moved = if up { self.in_flight + 1 } else { self.in_flight - 1 };
        self.in_flight = moved.clamp(1, MAX_IN_FLIGHT);
        if self.in_flight != moved {
            self.up = !up;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_IN_FLIGHT, Tuner, Walk, coroutines, group};
    use crate::Hop;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::ops::ControlFlow;

    /// Takes as many steps as the address says, and answers with the address.
    struct Stairs;

    impl Walk<u16> for Stairs {
        type At = (u16, u16);

        fn begin(&self, addr: u16) -> (u16, u16) {
            (addr, addr % 13)
        }

        fn prefetch(&self, _: &(u16, u16)) {}

        fn step(&self, (addr, left): (u16, u16)) -> ControlFlow<Hop, (u16, u16)> {
            match left {
                0 => ControlFlow::Break(Hop(addr.into())),
                _ => ControlFlow::Continue((addr, left - 1)),
            }
        }
    }

    #[test]
    fn drivers_answer_every_batch_length_with_every_number_in_flight() {
        let addrs: Vec<u16> = (0..150).map(|i| i * 7 + 1).collect();
        let right: Vec<Hop> = addrs.iter().map(|&addr| Hop(addr.into())).collect();
        for len in 0..addrs.len() {
            for in_flight in [0, 1, 2, 7, 32, MAX_IN_FLIGHT, 1000] {
                let mut out = vec![Hop::NONE; len];
                coroutines(&Stairs, &addrs[..len], &mut out, in_flight);
                assert_eq!(out, right[..len]);
            }
            let mut out = vec![Hop::NONE; len];
            group::<16, _, _>(&Stairs, &addrs[..len], &mut out);
            assert_eq!(out, right[..len]);
        }
    }

    #[test]
    fn tuner_stays_in_bounds_and_follows_a_change() {
        let mut tuner = Tuner::new(0);
        for best in [1usize, 40, 90, 3] {
            for _ in 0..500 {
                let cost = 100 + 10 * tuner.in_flight().abs_diff(best) as u64;
                tuner.observe(cost * 32, 32);
                assert!((1..=MAX_IN_FLIGHT).contains(&tuner.in_flight()));
            }
            assert!(tuner.in_flight().abs_diff(best.min(MAX_IN_FLIGHT)) <= 2, "{best}: {tuner:?}");
        }
    }
}
