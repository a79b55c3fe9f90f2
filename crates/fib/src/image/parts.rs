//! What an engine gives to an image, and gets back from it.
//!
//! ```text
//!   Engine ── save ──► PartWriter  ─► arrays `v4/direct`, `v4/chunks`, … and numbers
//!   Engine ◄─ load ─── PartReader ◄┘   checked: sizes, then whatever a lookup indexes by
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

/// Where a table's parts are written.
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

    /// Returns where the parts of a part go.
    pub(crate) fn within(&mut self, name: &str) -> PartWriter<'_> {
        PartWriter { name: format!("{}/{name}", self.name), writer: self.writer }
    }
}

/// What was stored of a table.
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
            return Err(self.bad(name, known.min(len), "is one too many, or missing"));
        }
        self.array(name)
    }

    /// Returns a number.
    pub(crate) fn number(&self, name: &str) -> Result<u32, BadImage> {
        let mut items = self.image.items(&self.full(name))?;
        match (items.next(), items.len()) {
            (Some(number), 0) => Ok(number),
            _ => Err(self.bad(name, 0, "should be the only one")),
        }
    }

    /// Returns a word.
    pub(crate) fn text(&self, name: &str) -> Result<String, BadImage> {
        let bytes = self.image.bytes(&self.full(name))?;
        Ok(String::from_utf8_lossy(&bytes[..bytes.len().min(super::NAME)]).into_owned())
    }

    /// Returns how many bytes an item of an array has, by which an engine tells which
    /// width of its own this is.
    pub(crate) fn each(&self, name: &str) -> Result<usize, BadImage> {
        Ok(self.image.find(&self.full(name))?.each)
    }

    /// Returns what was stored of a part that has parts.
    pub(crate) fn within(&self, name: &str) -> Self {
        Self { image: self.image, name: self.full(name) }
    }

    /// Says what is wrong with an item.
    pub(crate) fn bad(&self, name: &str, at: usize, what: &'static str) -> BadImage {
        BadImage::Content { array: self.full(name), at, what }
    }

    /// Refuses the first of the items that is not `sound`.
    pub(crate) fn all<T: Copy>(
        &self,
        name: &str,
        items: &[T],
        what: &'static str,
        sound: impl Fn(T) -> bool,
    ) -> Result<(), BadImage> {
        match items.iter().position(|&item| !sound(item)) {
            Some(at) => Err(self.bad(name, at, what)),
            None => Ok(()),
        }
    }

    fn full(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }
}
