//! The table that is chosen at run time: one of the engines, behind one type.
//!
//! Who knows the engine when compiling uses it directly. Everyone else uses
//! [`Fib`]: the engine's type is looked up once a batch, and the loop over the
//! addresses is the engine's own, so that the choice costs one indirect call for
//! some hundred lookups (docs/decisions/0005). [`Choice`] names an engine or leaves
//! it to the table's size; [`FibBuilder`] builds and patches what was chosen.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::choice::Choice;
use crate::engine::overlap::Overlapped;
use crate::engine::{Engine, Part, Step};
use crate::factory::TableBuilder;
use crate::selection::select_engine;
use crate::{Family, Full, Hop, Rib};

mod image;

/// A frozen forwarding table of some engine.
pub struct Fib<A: Family> {
    engine: Box<dyn Engine<A>>,
    choice: Choice,
    why: String,
    generation: u64,
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
        Ok(FibBuilder::build(rib, choice, threads)?.freeze())
    }

    /// Takes a table that was loaded from an image.
    pub(crate) fn loaded(engine: Box<dyn Engine<A>>, choice: Choice) -> Self {
        Self { engine, choice, why: "it was loaded from an image".to_string(), generation: 0 }
    }

    /// Returns the hop of the longest route that holds `addr`, or [`Hop::NONE`].
    #[inline]
    pub fn lookup(&self, addr: A) -> Hop {
        self.engine.lookup(addr)
    }

    /// Looks up `addrs[i]` into `out[i]` for every i; several times faster a
    /// lookup than one by one, from some dozen addresses on.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    #[inline]
    pub fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        self.engine.lookup_batch(addrs, out);
    }

    /// Looks up `addrs[i]` into `out[i]`, each waiting for the answer before it: for
    /// measuring how long one lookup takes.
    pub fn lookup_chained(&self, addrs: &[A], out: &mut [Hop]) {
        self.engine.lookup_chained(addrs, out);
    }

    /// Returns the lookups in the two ways of overlapping their waits, for engines
    /// that chase pointers.
    pub fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        self.engine.overlapped()
    }

    /// Lists the arrays that lookups may touch.
    pub fn parts(&self) -> Vec<Part> {
        self.engine.parts()
    }

    /// Returns the bytes that lookups may touch.
    pub fn footprint(&self) -> usize {
        self.engine.footprint()
    }

    /// Looks `addr` up slowly, and tells every load.
    pub fn trace(&self, addr: A) -> (Hop, Vec<Step>) {
        let mut steps = Vec::new();
        let hop = self.engine.trace(addr, &mut steps);
        (hop, steps)
    }

    /// Returns the engine, to put something in front of it.
    pub fn engine(&self) -> &dyn Engine<A> {
        &*self.engine
    }

    /// Returns the number that tells this table from others of one
    /// [`Updater`](crate::Updater), which counts its publications; 0 for a table
    /// that was built by itself. Who keeps answers, as
    /// [`Hac`](crate::engine::hac::Hac) does, forgets them when it changes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the engine's name, as [`Choice::parse`] reads it.
    pub fn name(&self) -> String {
        self.choice.name::<A>()
    }

    /// Says why it is this engine.
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl<A: Family> fmt::Debug for Fib<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fib({}, {} bytes)", self.name(), self.footprint())
    }
}

/// Builds a [`Fib`], and follows the changes of its routes.
pub(crate) struct FibBuilder<A: Family> {
    builder: Box<dyn TableBuilder<A>>,
    choice: Choice,
    why: String,
}

impl<A: Family> FibBuilder<A> {
    pub(crate) fn build(rib: &Rib<A>, choice: Choice, threads: usize) -> Result<Self, Full> {
        let (choice, why) = select_engine(choice, rib);
        Ok(Self { builder: A::build(rib, choice, threads)?, choice, why })
    }

    pub(crate) fn freeze(&self) -> Fib<A> {
        Fib {
            engine: self.builder.freeze(),
            choice: self.choice,
            why: self.why.clone(),
            generation: 0,
        }
    }
}

/// What following the changes takes; without `std` nothing publishes them.
#[cfg(feature = "std")]
impl<A: Family> FibBuilder<A> {
    /// Takes over all changes of `rib` and marks it clean; returns how many blocks
    /// or routes were laid out again.
    pub(crate) fn follow(&mut self, rib: &mut Rib<A>) -> Result<usize, Full> {
        self.builder.follow(rib)
    }

    /// Gives a table that no one reads yet its number.
    pub(crate) fn number(fib: &mut Fib<A>, generation: u64) {
        fib.generation = generation;
    }

    /// Brings `idle`, frozen from this builder, up to date.
    pub(crate) fn refresh(&self, idle: &mut Fib<A>) {
        self.builder.refresh(&mut *idle.engine);
    }

    /// Counts the 64-bit words of the table written so far.
    pub(crate) fn written(&self) -> u64 {
        self.builder.written()
    }

    /// Counts the bytes of the table that nothing is in.
    pub(crate) fn holes(&self) -> usize {
        self.builder.holes()
    }
}
