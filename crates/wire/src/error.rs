//! Why bytes are not the header they were taken for.

use core::fmt;

/// The reason why bytes are not the header they were taken for.
///
/// The first reason met is the one reported: length before content, and the
/// fields in the order in which they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BadHeader {
    /// The bytes end before the header, or what its length field promises, does.
    Truncated,
    /// The version field names another protocol.
    Version,
    /// The header length field is below the least length, or above the total.
    HeaderLength,
    /// A length field contradicts the header, or a value does not fit in it.
    Length,
    /// A type field names something else than this view reads.
    Kind,
    /// More extension headers, or more tags, than the bound.
    Chain,
    /// The checksum is wrong, of what is only read where it is right.
    Checksum,
}

impl fmt::Display for BadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the bytes end before the header does",
            Self::Version => "the version is not this protocol's",
            Self::HeaderLength => "the header length is impossible",
            Self::Length => "a length field contradicts the header",
            Self::Kind => "the type is not the one this header has",
            Self::Chain => "more headers follow one another than the bound allows",
            Self::Checksum => "the checksum is wrong",
        })
    }
}

impl core::error::Error for BadHeader {}
