//! The table that is chosen at run time: one of the engines, behind one type.
//!
//! Who knows the engine when compiling uses it directly. Everyone else uses
//! [`Fib`], a private enum that is told apart once a batch: the loop over the
//! addresses is inside the arm, so that the choice costs one predictable branch
//! for some hundred lookups. [`Choice`] names an engine or leaves the choice to
//! the table's size; [`FibBuilder`] builds and patches what was chosen.
//!
//! Widths are always automatic. A build begins with the narrowest entries and,
//! where the engine says [`Full`], is repeated with wider ones: longer chunks
//! first, then 64-bit entries, which cost twice the bytes in the first stages.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::build::build;
use crate::engine::dxr::{BadShape, Dxr, DxrBuilder, Entry, Shape, next_split};
use crate::engine::halves::{Halves, HalvesBuilder};
use crate::engine::linear::Linear;
use crate::engine::{Builder, Engine, Part, Step};
use crate::{Addr, Family, Full, Hop, Rib};
#[cfg(feature = "std")]
use crate::{Prefix, runs::Run};

/// Which engine a table shall be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// What suits the number of routes.
    #[default]
    Auto,
    /// Every route compared: the oracle.
    Linear,
    /// DXR over whole addresses.
    Dxr(Shape),
    /// DXR over the upper halves, and below it another for what is longer.
    Halves(Shape),
}

impl Choice {
    /// Reads a name: `auto`, `linear`, `D16X4R`, or `D16X8R/64` for a table over
    /// the upper half of the bits.
    ///
    /// # Errors
    ///
    /// [`BadShape`] if the name is none of these, or does not suit the family.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::Choice;
    /// assert!(Choice::parse::<u32>("D16X4R").is_ok());
    /// assert!(Choice::parse::<u128>("D16X8R/64").is_ok());
    /// assert!(Choice::parse::<u32>("D99R").is_err());
    /// ```
    pub fn parse<A: Family>(name: &str) -> Result<Self, BadShape> {
        let half = format!("/{}", A::Upper::BITS);
        match name {
            "auto" => Ok(Self::Auto),
            "linear" => Ok(Self::Linear),
            _ => match name.strip_suffix(&half) {
                Some(upper) => Shape::parse::<A::Upper>(upper).map(Self::Halves),
                None => Shape::parse::<A>(name).map(Self::Dxr),
            },
        }
    }

    /// Replaces [`Choice::Auto`] by the engine for a table of `routes` routes.
    ///
    /// Few routes want a small first stage. For a full IPv4 table `D16X4R` was
    /// within a tenth of the fastest shape on every key stream, at less than half
    /// the bytes of `D20R` (`bench lookup`, records in `bench/record/`).
    fn settle<A: Family>(self, routes: usize) -> Self {
        if self != Self::Auto {
            return self;
        }
        let small = routes < 4096;
        let (direct, extension) = match A::BITS {
            ..16 => (2, 2),
            16 => (4, 4),
            32 if small => (12, 6),
            32 => (16, 4),
            _ if small => (12, 8),
            _ => (16, 8),
        };
        let whole = || Shape::new::<A>(direct, extension).map(Self::Dxr);
        let chosen = if A::BITS > 64 {
            Shape::new::<A::Upper>(direct, extension).map(Self::Halves)
        } else {
            whole()
        };
        chosen.unwrap_or(Self::Linear)
    }
}

/// A frozen forwarding table of some engine.
pub struct Fib<A: Family>(Frozen<A>);

enum Frozen<A: Family> {
    Linear(Linear<A>),
    Dxr(Dxr<A, u32>),
    DxrWide(Dxr<A, u64>),
    Halves(Halves<A, u32>),
    HalvesWide(Halves<A, u64>),
}

/// Runs an expression on whichever engine there is; the arms are all alike.
macro_rules! each {
    ($frozen:expr, $engine:ident => $what:expr) => {
        match $frozen {
            Frozen::Linear($engine) => $what,
            Frozen::Dxr($engine) => $what,
            Frozen::DxrWide($engine) => $what,
            Frozen::Halves($engine) => $what,
            Frozen::HalvesWide($engine) => $what,
        }
    };
}

impl<A: Family> Fib<A> {
    /// Builds a table of `rib` as it is now, with `threads` threads.
    ///
    /// # Errors
    ///
    /// [`Full`] if the routes exceed every width of the chosen engine.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::{Choice, Fib, Hop, Rib};
    /// let mut rib: Rib<u32> = Rib::new();
    /// rib.insert("192.0.2.0/24".parse()?, Hop(1));
    /// rib.insert("192.0.2.128/25".parse()?, Hop(2));
    /// let fib = Fib::build(&rib, Choice::Auto, 1).unwrap();
    /// assert_eq!(fib.lookup(0xc000_02ff), Hop(2));
    /// assert_eq!(fib.lookup(0xc633_6401), Hop::NONE);
    /// # Ok::<(), fingerpost_fib::BadPrefix>(())
    /// ```
    pub fn build(rib: &Rib<A>, choice: Choice, threads: usize) -> Result<Self, Full> {
        Ok(FibBuilder::build(rib, choice, threads)?.freeze(rib))
    }

    /// Returns the hop of the longest route that holds `addr`, or [`Hop::NONE`].
    #[inline]
    pub fn lookup(&self, addr: A) -> Hop {
        each!(&self.0, engine => engine.lookup(addr))
    }

    /// Looks up `addrs[i]` into `out[i]` for every i; several times faster a
    /// lookup than one by one, from some dozen addresses on.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    #[inline]
    pub fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        each!(&self.0, engine => engine.lookup_batch(addrs, out));
    }

    /// Lists the arrays that lookups may touch.
    pub fn parts(&self) -> Vec<Part> {
        each!(&self.0, engine => engine.parts())
    }

    /// Returns the bytes that lookups may touch.
    pub fn footprint(&self) -> usize {
        each!(&self.0, engine => engine.footprint())
    }

    /// Looks `addr` up slowly, and tells every load.
    pub fn trace(&self, addr: A) -> (Hop, Vec<Step>) {
        let mut steps = Vec::new();
        let hop = each!(&self.0, engine => engine.trace(addr, &mut steps));
        (hop, steps)
    }

    /// Returns the engine's name, as [`Choice::parse`] reads it.
    pub fn name(&self) -> String {
        let half = A::Upper::BITS;
        match &self.0 {
            Frozen::Linear(_) => "linear".to_string(),
            Frozen::Dxr(dxr) => dxr.shape().to_string(),
            Frozen::DxrWide(dxr) => dxr.shape().to_string(),
            Frozen::Halves(halves) => format!("{}/{half}", halves.shape()),
            Frozen::HalvesWide(halves) => format!("{}/{half}", halves.shape()),
        }
    }
}

impl<A: Family> fmt::Debug for Fib<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fib({}, {} bytes)", self.name(), self.footprint())
    }
}

/// Builds a [`Fib`], and follows the changes of its routes.
#[derive(Debug)]
pub(crate) struct FibBuilder<A: Family>(Kind<A>);

#[derive(Debug)]
enum Kind<A: Family> {
    Linear,
    Dxr(Box<DxrBuilder<A, u32>>),
    DxrWide(Box<DxrBuilder<A, u64>>),
    Halves(Box<HalvesBuilder<A, u32>>),
    HalvesWide(Box<HalvesBuilder<A, u64>>),
}

impl<A: Family> FibBuilder<A> {
    pub(crate) fn build(rib: &Rib<A>, choice: Choice, threads: usize) -> Result<Self, Full> {
        let kind = match choice.settle::<A>(rib.len()) {
            Choice::Auto => unreachable!("an automatic choice has just been settled"),
            Choice::Linear => Kind::Linear,
            Choice::Dxr(shape) => {
                let narrow = |bits| DxrBuilder::with_len_bits(shape, bits);
                let wide = || DxrBuilder::with_len_bits(shape, <u64 as Entry>::LEN_BITS);
                match widening::<u32, _, _>(rib, narrow, threads)? {
                    Some(builder) => Kind::Dxr(Box::new(builder)),
                    None => Kind::DxrWide(Box::new(build(rib, wide, threads)?)),
                }
            }
            Choice::Halves(shape) => {
                let narrow = |bits| HalvesBuilder::with_len_bits(shape, bits);
                let wide = || HalvesBuilder::with_len_bits(shape, <u64 as Entry>::LEN_BITS);
                match widening::<u32, _, _>(rib, narrow, threads)? {
                    Some(builder) => Kind::Halves(Box::new(builder)),
                    None => Kind::HalvesWide(Box::new(build(rib, wide, threads)?)),
                }
            }
        };
        Ok(Self(kind))
    }

    pub(crate) fn freeze(&self, rib: &Rib<A>) -> Fib<A> {
        Fib(match &self.0 {
            Kind::Linear => Frozen::Linear(Linear::new(rib)),
            Kind::Dxr(builder) => Frozen::Dxr(builder.freeze()),
            Kind::DxrWide(builder) => Frozen::DxrWide(builder.freeze()),
            Kind::Halves(builder) => Frozen::Halves(builder.freeze()),
            Kind::HalvesWide(builder) => Frozen::HalvesWide(builder.freeze()),
        })
    }
}

/// What following the changes takes; without `std` nothing publishes them.
#[cfg(feature = "std")]
impl<A: Family> FibBuilder<A> {
    /// Returns the longest blocks worth patching; `None` if all is rebuilt.
    pub(crate) fn block_len(&self) -> Option<u32> {
        match &self.0 {
            Kind::Linear => None,
            Kind::Dxr(builder) => Some(builder.block_len()),
            Kind::DxrWide(builder) => Some(builder.block_len()),
            Kind::Halves(builder) => Some(builder.block_len()),
            Kind::HalvesWide(builder) => Some(builder.block_len()),
        }
    }

    pub(crate) fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        match &mut self.0 {
            Kind::Linear => Ok(()),
            Kind::Dxr(builder) => builder.patch(block, runs),
            Kind::DxrWide(builder) => builder.patch(block, runs),
            Kind::Halves(builder) => builder.patch(block, runs),
            Kind::HalvesWide(builder) => builder.patch(block, runs),
        }
    }

    /// Brings `idle`, frozen from this builder, up to date.
    pub(crate) fn refresh(&self, idle: &mut Fib<A>, rib: &Rib<A>) {
        match (&self.0, &mut idle.0) {
            (Kind::Dxr(builder), Frozen::Dxr(idle)) => builder.refresh(idle),
            (Kind::DxrWide(builder), Frozen::DxrWide(idle)) => builder.refresh(idle),
            (Kind::Halves(builder), Frozen::Halves(idle)) => builder.refresh(idle),
            (Kind::HalvesWide(builder), Frozen::HalvesWide(idle)) => builder.refresh(idle),
            _ => *idle = self.freeze(rib),
        }
    }
}

/// Builds with entries of `E`, giving chunks more room while that is what lacks.
/// `None` if entries of this width will not do.
fn widening<E: Entry, A: Family, B: Builder<A>>(
    rib: &Rib<A>,
    make: impl Fn(u32) -> B + Sync,
    threads: usize,
) -> Result<Option<B>, Full> {
    let mut len_bits = E::LEN_BITS;
    loop {
        match build(rib, || make(len_bits), threads) {
            Ok(builder) => return Ok(Some(builder)),
            Err(full) => match next_split::<E>(len_bits, full) {
                Some(wider) => len_bits = wider,
                None => return Ok(None),
            },
        }
    }
}
