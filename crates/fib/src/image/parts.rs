//! The interface between engines and images: the parts of a table.
//!
//! ```text
//!   Engine ── save ──► PartWriter ─► arrays `v4/direct`, `v4/chunks`, … and numbers
//!   Engine ◄─ load ─── PartReader ◄┘   checked: sizes, then all that a lookup indexes by
//! ```

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

use super::{BadImage, Image, Item, Writer};
use crate::table::Table;

/// A frozen table that an image can hold: the writing half.
pub trait Storable {
    /// Writes the arrays of the table, and the numbers that its lookups depend on.
    fn save(&self, parts: &mut PartWriter<'_>);
}

/// A frozen table that an image can hold: the reading half.
pub trait Loadable: Storable + Sized {
    /// The parameters in the engine's name, such as the shape of a DXR table.
    type Parameters;

    /// Makes the table from what [`Storable::save`] wrote. Every lookup in it terminates, and
    /// none indexes beyond an array.
    ///
    /// # Errors
    ///
    /// [`BadImage`], with the array and the item that is wrong.
    fn load(parameters: Self::Parameters, stored: &PartReader<'_>) -> Result<Self, BadImage>;
}

/// Writes the parts of a table to an image.
#[derive(Debug)]
pub struct PartWriter<'a> {
    writer: &'a mut Writer,
    name: String,
}

impl<'a> PartWriter<'a> {
    pub(crate) fn of(writer: &'a mut Writer, name: &str) -> Self {
        Self { writer, name: name.to_owned() }
    }

    /// Adds an array.
    pub(crate) fn array<T: Item>(&mut self, name: &str, items: &[T]) {
        self.writer.array(&format!("{}/{name}", self.name), items);
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, name: &str, number: u32) {
        self.array(name, &[number]);
    }

    /// Returns a writer for a part that has parts itself.
    pub(crate) fn within(&mut self, name: &str) -> PartWriter<'_> {
        PartWriter { name: format!("{}/{name}", self.name), writer: self.writer }
    }
}

/// Reads the parts of a table from an image.
#[derive(Clone, Debug)]
pub struct PartReader<'a> {
    image: &'a Image<'a>,
    name: String,
}

impl<'a> PartReader<'a> {
    pub(crate) fn of(image: &'a Image<'a>, name: &str) -> Self {
        Self { image, name: name.to_owned() }
    }

    /// Returns an array.
    pub(crate) fn array<T: Item>(&self, name: &str) -> Result<Table<T>, BadImage> {
        Ok(Table::collect(self.image.items(&self.full(name))?))
    }

    /// Returns an array that must have `len` items.
    pub(crate) fn array_of<T: Item>(&self, name: &str, len: usize) -> Result<Table<T>, BadImage> {
        let known = self.image.find(&self.full(name))?.items;
        if known != len {
            return Err(self.bad(name, known.min(len), "is missing, or one too many"));
        }
        self.array(name)
    }

    /// Returns a number.
    pub(crate) fn number(&self, name: &str) -> Result<u32, BadImage> {
        let mut items = self.image.items(&self.full(name))?;
        match (items.next(), items.len()) {
            (Some(number), 0) => Ok(number),
            _ => Err(self.bad(name, 0, "is not the only item")),
        }
    }

    /// Returns a text.
    pub(crate) fn text(&self, name: &str) -> Result<String, BadImage> {
        let bytes = self.image.bytes(&self.full(name))?;
        Ok(String::from_utf8_lossy(&bytes[..bytes.len().min(super::NAME)]).into_owned())
    }

    /// Returns the bytes of an item of an array, which determine the width of an engine.
    pub(crate) fn each(&self, name: &str) -> Result<usize, BadImage> {
        Ok(self.image.find(&self.full(name))?.each)
    }

    /// Returns a reader of a part that has parts itself.
    pub(crate) fn within(&self, name: &str) -> Self {
        Self { image: self.image, name: self.full(name) }
    }

    /// Makes the error of an invalid item.
    pub(crate) fn bad(&self, name: &str, at: usize, what: &'static str) -> BadImage {
        BadImage::Content { array: self.full(name), at, what }
    }

    /// Checks all items with `is_valid`; the first invalid one is an error.
    pub(crate) fn all<T: Copy>(
        &self,
        name: &str,
        items: &[T],
        what: &'static str,
        is_valid: impl Fn(T) -> bool,
    ) -> Result<(), BadImage> {
        match items.iter().position(|&item| !is_valid(item)) {
            Some(at) => Err(self.bad(name, at, what)),
            None => Ok(()),
        }
    }

    fn full(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }
}
