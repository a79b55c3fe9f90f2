//! Address bits: a condition on some bits of an IPv6 address, wherever they are, as BGP flow specifications
//! have it by the offset of a prefix (RFC 8956, section 3.1).
//!
//! ```text
//!   ::12:0:0:0/::ff:0:0:0      the value / the bits that are compared
//! ```
//!
//! No table is ordered by such bits: the classifier finds rules by their other conditions and compares the bits
//! of those that match.

use std::fmt;
use std::net::Ipv6Addr;

/// The bits that an IPv6 address must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressBits {
    value: u128,
    mask: u128,
}

impl AddressBits {
    /// Makes the condition that an address has the bits of `value` where `mask` has ones.
    pub fn new(value: u128, mask: u128) -> Self {
        Self { value: value & mask, mask }
    }

    /// Parses a value and a mask with `/` between them.
    ///
    /// # Errors
    ///
    /// A description of the error.
    pub fn parse(text: &str) -> Result<Self, String> {
        let address = |text: &str| text.parse::<Ipv6Addr>().ok().map(u128::from);
        let parts =
            text.split_once('/').and_then(|(value, mask)| Some((address(value)?, address(mask)?)));
        let Some((value, mask)) = parts else {
            return Err(format!("{text:?} is not an IPv6 value and a mask such as ::1200/::ff00"));
        };
        if value & !mask != 0 {
            return Err(format!("{text:?} has bits beyond its mask"));
        }
        Ok(Self { value, mask })
    }

    /// Returns whether an address has the bits.
    pub fn matches(self, address: u128) -> bool {
        address & self.mask == self.value
    }

    /// Returns the condition in the words of nftables.
    pub(crate) fn nft(self) -> String {
        format!("& {} == {}", Ipv6Addr::from(self.mask), Ipv6Addr::from(self.value))
    }
}

impl fmt::Display for AddressBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv6Addr::from(self.value), Ipv6Addr::from(self.mask))
    }
}
