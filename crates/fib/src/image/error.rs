//! Why a table cannot be put in an image, or an image not be read.

use alloc::string::String;
use core::fmt;

/// Says that a table's engine is not kept in images, and which are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotStorable {
    /// The table's engine.
    pub engine: String,
    /// The names of those that are kept.
    pub storable: String,
}

impl fmt::Display for NotStorable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, storable } = self;
        write!(f, "a table of the engine {engine} is not kept in images; those of {storable} are")
    }
}

impl core::error::Error for NotStorable {}

/// Says why bytes are no image that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadImage {
    /// They do not begin as an image does.
    Foreign,
    /// They are an image of a form that this program does not know.
    Version {
        /// The number of that form.
        found: u32,
    },
    /// They are fewer or more than the image says it has: it was cut off, or added to.
    Length {
        /// How many it says.
        says: u64,
        /// How many there are.
        has: u64,
    },
    /// Some of them are not what they were.
    Checksum {
        /// The checksum that is written in the image.
        says: u64,
        /// That of its bytes.
        is: u64,
    },
    /// The directory of arrays contradicts itself.
    Directory {
        /// The number of the entry, from 0.
        entry: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// There is no array of this name.
    Missing {
        /// Its name.
        array: String,
    },
    /// An array holds what it cannot.
    Content {
        /// Its name.
        array: String,
        /// Which of its items is the first of those.
        at: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A table is of another address family than the one asked for.
    Family {
        /// The table's name.
        table: String,
        /// The bits of its addresses.
        bits: u32,
    },
    /// A table is of an engine that this program does not know, or keep in images.
    Engine {
        /// The table's name.
        table: String,
        /// The engine's name.
        engine: String,
    },
}

impl fmt::Display for BadImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("this is no image of a table: it begins otherwise"),
            Self::Version { found } => write!(
                f,
                "the image is of form {found}, and this program reads form {}",
                super::VERSION
            ),
            Self::Length { says, has } => {
                write!(f, "the image should have {says} bytes, and has {has}")
            }
            Self::Checksum { says, is } => {
                write!(f, "the image is damaged: its checksum is {is:016x} and not {says:016x}")
            }
            Self::Directory { entry, what } => {
                write!(f, "entry {entry} of the image's directory {what}")
            }
            Self::Missing { array } => write!(f, "the image has no array `{array}`"),
            Self::Content { array, at, what } => {
                write!(f, "item {at} of the image's array `{array}` {what}")
            }
            Self::Family { table, bits } => {
                write!(f, "the image's table `{table}` is of addresses of {bits} bits")
            }
            Self::Engine { table, engine } => write!(
                f,
                "the image's table `{table}` is of the engine {engine:?}, which this program does \
                 not read"
            ),
        }
    }
}

impl core::error::Error for BadImage {}
