//! A table whose engine is chosen at run time, behind one type.
//!
//! Code that fixes the engine at compile time uses its type directly. All other code uses [`Fib`]:
//! a batch makes one indirect call, and the loop over its addresses is the engine's own, so that the
//! choice costs one indirect call for some hundred lookups (docs/decisions/0005). [`Choice`] names
//! an engine or leaves the selection to the table's size; [`FibBuilder`] builds and patches the
//! table.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
#[cfg(all(feature = "std", target_os = "linux"))]
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

#[cfg(all(feature = "std", target_os = "linux"))]
use crate::WordFiles;
use crate::choice::Choice;
use crate::engine::overlap::Overlapped;
use crate::engine::{Engine, Part, Step};
use crate::factory::TableBuilder;
use crate::selection::select_engine;
use crate::{Family, Full, Hop, Rib};

mod image;

/// A frozen forwarding table of any engine.
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

    /// Wraps an engine that was loaded from an image.
    pub(crate) fn loaded(engine: Box<dyn Engine<A>>, choice: Choice) -> Self {
        Self { engine, choice, why: "loaded from an image".to_string(), generation: 0 }
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

    /// Looks up `addrs[i]` into `out[i]`, each lookup waiting for the answer of the one before: to
    /// measure the latency of one lookup.
    pub fn lookup_chained(&self, addrs: &[A], out: &mut [Hop]) {
        self.engine.lookup_chained(addrs, out);
    }

    /// Returns the lookups as state machines, whose waits can be overlapped in two ways; `None` for
    /// engines that do not chase pointers.
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

    /// Looks `addr` up and returns every load: slow, for explanation and counting.
    pub fn trace(&self, addr: A) -> (Hop, Vec<Step>) {
        let mut steps = Vec::new();
        let hop = self.engine.trace(addr, &mut steps);
        (hop, steps)
    }

    /// Returns the engine, for a cache in front of it.
    pub fn engine(&self) -> &dyn Engine<A> {
        &*self.engine
    }

    /// Returns the number of the publication in which an [`Updater`](crate::Updater) published this
    /// table; 0 for a table that was built on its own. A cache of answers, such as
    /// [`Hac`](crate::engine::hac::Hac), clears itself when the number changes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the engine's name, as [`Choice::parse`] reads it.
    pub fn name(&self) -> String {
        self.choice.name::<A>()
    }

    /// Returns the reason for the choice of this engine.
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl<A: Family> fmt::Debug for Fib<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fib({}, {} bytes)", self.name(), self.footprint())
    }
}

/// Builds a [`Fib`], and applies the changes of its routes.
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

/// The methods that apply changes; without `std` nothing publishes them.
#[cfg(feature = "std")]
impl<A: Family> FibBuilder<A> {
    /// Applies all changes of `rib` and marks it clean; returns the number of blocks or routes that
    /// were laid out again.
    pub(crate) fn follow(&mut self, rib: &mut Rib<A>) -> Result<usize, Full> {
        self.builder.follow(rib)
    }

    /// Sets the number of a table that is not yet published.
    pub(crate) fn number(fib: &mut Fib<A>, generation: u64) {
        fib.generation = generation;
    }

    /// Brings `idle`, frozen from this builder, up to date.
    pub(crate) fn refresh(&self, idle: &mut Fib<A>) {
        self.builder.refresh(&mut *idle.engine);
    }

    /// Returns the number of 64-bit words of the table written so far.
    pub(crate) fn written(&self) -> u64 {
        self.builder.written()
    }

    /// Moves the words that tables share into files, if the engine has such words.
    #[cfg(target_os = "linux")]
    pub(crate) fn place_in(&mut self, files: Arc<dyn WordFiles>) {
        self.builder.place_in(files);
    }

    /// Counts the unused bytes within the table.
    pub(crate) fn holes(&self) -> usize {
        self.builder.holes()
    }
}
