//! The errors of writing a table to an image, and of reading an image.

use alloc::string::String;
use core::fmt;

/// The error of a table whose engine has no image format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotStorable {
    /// The table's engine.
    pub engine: String,
    /// The names of the engines that have one.
    pub storable: String,
}

impl fmt::Display for NotStorable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, storable } = self;
        write!(f, "engine {engine} has no image format; the engines that have one are {storable}")
    }
}

impl core::error::Error for NotStorable {}

/// The error of bytes that are not a valid image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadImage {
    /// The magic number at the start is missing.
    Foreign,
    /// The image has a format version that this program does not support.
    Version {
        /// The version.
        found: u32,
    },
    /// The length differs from that in the header: the image was truncated, or extended.
    Length {
        /// The length in the header.
        expected: u64,
        /// The number of bytes read.
        found: u64,
    },
    /// The checksum differs: some bytes are damaged.
    Checksum {
        /// The checksum in the header.
        expected: u64,
        /// The checksum of the bytes.
        found: u64,
    },
    /// The directory of arrays is inconsistent.
    Directory {
        /// The number of the entry, from 0.
        entry: usize,
        /// The fault, as a predicate ("is beyond the end").
        what: &'static str,
    },
    /// The image has no array of this name.
    Missing {
        /// The name of the array.
        array: String,
    },
    /// An array has an invalid item.
    Content {
        /// The name of the array.
        array: String,
        /// The index of the first invalid item.
        at: usize,
        /// The fault, as a predicate ("is beyond the end").
        what: &'static str,
    },
    /// A table has another address family than the caller's.
    Family {
        /// The table's name.
        table: String,
        /// The number of bits of its addresses.
        bits: u32,
    },
    /// A table has an engine that this program does not know, or that has no image format.
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
            Self::Foreign => f.write_str("not an image of a table: the magic number is missing"),
            Self::Version { found } => write!(
                f,
                "the image has format version {found}; this program reads version {}",
                super::VERSION
            ),
            Self::Length { expected, found } => {
                write!(f, "the image has {found} bytes instead of {expected}")
            }
            Self::Checksum { expected, found } => {
                write!(f, "the image is damaged: checksum {found:016x} instead of {expected:016x}")
            }
            Self::Directory { entry, what } => {
                write!(f, "entry {entry} of the image's directory {what}")
            }
            Self::Missing { array } => write!(f, "the image has no array `{array}`"),
            Self::Content { array, at, what } => {
                write!(f, "item {at} of the image's array `{array}` {what}")
            }
            Self::Family { table, bits } => {
                write!(f, "the image's table `{table}` has addresses of {bits} bits")
            }
            Self::Engine { table, engine } => write!(
                f,
                "the image's table `{table}` has the engine {engine:?}, which this program cannot read"
            ),
        }
    }
}

impl core::error::Error for BadImage {}
