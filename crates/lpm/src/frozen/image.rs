//! Frozen tables in files: the image of the table, and the values behind it.
//!
//! The format is that of `fingerpost_fib::image`: arrays with names, checked by one checksum. A
//! table has its engine's arrays under `lpm/`, and its values in two: the bytes of all, one after
//! the other, and the end of each. The caller encodes and decodes a value, with `serde` or by hand.
//!
//! ```text
//!   lpm/bits, lpm/engine, …   ends: u64 × n   values: u8 × ends[n - 1]
//! ```
//!
//! An image is read from a slice of bytes, so from a mapped file too. A table's arrays are copied
//! and validated: this takes as long as reading a few megabytes, far less than a build, and after
//! it no change of the file can matter. So `mmap` needs no `unsafe` of this library; the caller's
//! mapping has to stay unchanged only while the image is read.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use fib::image::{BadImage, Image, NotStorable, Writer};

use super::FrozenLpm;
use crate::key::PrefixKey;

const TABLE: &str = "lpm";
const ENDS: &str = "ends";
const VALUES: &str = "values";

impl<P: PrefixKey, T> FrozenLpm<P, T> {
    /// Returns the bytes of an image, in which `encode` writes each value.
    ///
    /// # Errors
    ///
    /// [`NotStorable`] if the engine has no image format; those that `Choice::Auto` takes have one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use fingerpost_lpm::{Choice, FrozenLpm, LpmMap};
    /// let map = LpmMap::from([((Ipv4Addr::new(192, 0, 2, 0), 24), String::from("east"))]);
    /// let image = map.freeze(Choice::Auto)?.to_image(|value, bytes| {
    ///     bytes.extend_from_slice(value.as_bytes());
    /// })?;
    ///
    /// // `image` may as well be a file that is mapped into memory.
    /// let decode = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
    /// let table = FrozenLpm::<(Ipv4Addr, u8), String>::from_image(&image, decode)?;
    /// assert_eq!(table.lookup(Ipv4Addr::new(192, 0, 2, 7)).unwrap(), "east");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_image(
        &self,
        mut encode: impl FnMut(&T, &mut Vec<u8>),
    ) -> Result<Vec<u8>, NotStorable> {
        let (mut ends, mut values) = (Vec::with_capacity(self.values.len()), Vec::new());
        for value in &self.values {
            encode(value, &mut values);
            ends.push(values.len() as u64);
        }
        let mut writer = Writer::new();
        writer.table(TABLE, &self.fib)?;
        writer.array(ENDS, &ends);
        writer.array(VALUES, &values);
        Ok(writer.finish())
    }

    /// Reads an image, in which `decode` reads each value.
    ///
    /// # Errors
    ///
    /// [`ImageError::Image`] if the bytes are not an image of this family's table, or are damaged;
    /// [`ImageError::Value`] with the error of `decode`.
    ///
    /// # Complexity
    ///
    /// O(bytes).
    pub fn from_image<E>(
        bytes: &[u8],
        mut decode: impl FnMut(&[u8]) -> Result<T, E>,
    ) -> Result<Self, ImageError<E>> {
        let image = Image::read(bytes)?;
        let (ends, bytes) = (image.array::<u64>(ENDS)?, image.bytes(VALUES)?);
        let mut values = Vec::with_capacity(ends.len());
        let mut start = 0;
        for (index, &end) in ends.iter().enumerate() {
            let end = usize::try_from(end).unwrap_or(usize::MAX);
            let Some(value) = bytes.get(start..end) else {
                let what = "is not within the bytes of the values";
                let array = ENDS.to_string();
                return Err(ImageError::Image(BadImage::Content { array, at: index, what }));
            };
            let decoded = decode(value);
            values.push(decoded.map_err(|error| ImageError::Value { index, error })?);
            start = end;
        }
        Ok(Self { fib: image.table(TABLE)?, values })
    }
}

/// The error of an image that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError<E> {
    /// The image is damaged, or has no table of the family.
    Image(BadImage),
    /// A value cannot be decoded.
    Value {
        /// The index of the value.
        index: usize,
        /// The error of the caller's function.
        error: E,
    },
}

impl<E> From<BadImage> for ImageError<E> {
    fn from(error: BadImage) -> Self {
        Self::Image(error)
    }
}

impl<E: fmt::Display> fmt::Display for ImageError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(error) => error.fmt(f),
            Self::Value { index, error } => {
                write!(f, "value {index} of the image cannot be decoded: {error}")
            }
        }
    }
}

impl<E: core::error::Error> core::error::Error for ImageError<E> {}
