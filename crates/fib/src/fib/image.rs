//! Fibs in images: written as the arrays of their engines, and loaded again.
//!
//! ```text
//!   Fib ──Writer::table──► v4/bits, v4/engine, the engine's arrays ──Image::table──► Fib
//! ```

use alloc::borrow::ToOwned;

use super::Fib;
use crate::choice::storable_names;
use crate::image::{BadImage, Image, NotStorable, PartReader, PartWriter, TABLE_NAME, Writer};
use crate::{Choice, Family};

impl Writer {
    /// Adds a table under a name of up to 16 bytes.
    ///
    /// # Errors
    ///
    /// [`NotStorable`] if its engine has no image format; then nothing is added.
    ///
    /// # Panics
    ///
    /// As [`array`](Self::array), or if the name is longer than 16 bytes.
    pub fn table<A: Family>(&mut self, name: &str, fib: &Fib<A>) -> Result<(), NotStorable> {
        assert!(
            name.len() <= TABLE_NAME,
            "the name of a table has at most {TABLE_NAME} bytes: {name}"
        );
        let Some(engine) = fib.engine().storable() else {
            return Err(NotStorable { engine: fib.name(), storable: storable_names::<A>() });
        };
        let mut parts = PartWriter::of(self, name);
        parts.number("bits", A::BITS);
        parts.array("engine", fib.name().as_bytes());
        engine.save(&mut parts);
        Ok(())
    }
}

impl Image<'_> {
    /// Loads and validates the table of this name: no lookup in it panics.
    ///
    /// # Errors
    ///
    /// [`BadImage`].
    ///
    /// # Complexity
    ///
    /// O(bytes of the table).
    pub fn table<A: Family>(&self, name: &str) -> Result<Fib<A>, BadImage> {
        let stored = PartReader::of(self, name);
        let bits = stored.number("bits")?;
        if bits != A::BITS {
            return Err(BadImage::Family { table: name.to_owned(), bits });
        }
        let engine = stored.text("engine")?;
        let choice = Choice::parse::<A>(&engine).ok();
        let loaded = choice.and_then(|choice| Some((choice, A::load(choice, &stored)?)));
        match loaded {
            Some((choice, table)) => Ok(Fib::loaded(table?, choice)),
            None => Err(BadImage::Engine { table: name.to_owned(), engine }),
        }
    }
}
