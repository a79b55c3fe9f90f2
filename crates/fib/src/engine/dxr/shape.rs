//! The shape of a DXR table: how many bits each stage resolves, and its name.
//!
//! `D16R` is a direct table on 16 bits and ranges; `D16X4R` has an extension of
//! 4 bits between them (Zec's thesis, chapter 4). K = D + X bits are resolved
//! before a range search, from 16 to 24 for real families.

use core::fmt;
use core::str::FromStr;

use crate::FamilyLayout;

/// The bits resolved by the direct table and by the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    direct: u8,
    extension: u8,
}

impl Shape {
    /// Makes a shape of `direct` and `extension` bits; an extension of 0 is none.
    ///
    /// # Errors
    ///
    /// [`BadShape`] unless K = D + X lies within the family's bounds
    /// ([`FamilyLayout::MIN_K`], [`FamilyLayout::MAX_K`]) and, with an extension, D ≤ 16: its
    /// blocks are numbered in 16 bits.
    pub fn new<A: FamilyLayout>(direct: u32, extension: u32) -> Result<Self, BadShape> {
        let k = direct.saturating_add(extension);
        if direct == 0 || k < A::MIN_K || k > A::MAX_K || (extension > 0 && direct > 16) {
            return Err(BadShape { min: A::MIN_K, max: A::MAX_K });
        }
        Ok(Self { direct: direct as u8, extension: extension as u8 })
    }

    /// Makes the shape of chunks below `k` bits, without stages of their own.
    pub(super) const fn below(k: u32) -> Self {
        Self { direct: k as u8, extension: 0 }
    }

    /// Parses a name such as `D16X4R` or `D18R`, in upper or lower case.
    ///
    /// # Errors
    ///
    /// [`BadShape`] as [`Shape::new`], or if the name is not of that form.
    pub fn parse<A: FamilyLayout>(name: &str) -> Result<Self, BadShape> {
        let bad = BadShape { min: A::MIN_K, max: A::MAX_K };
        let Raw { direct, extension } = name.parse().map_err(|()| bad)?;
        Self::new::<A>(direct, extension)
    }

    /// Returns D, the bits of the direct table.
    #[inline(always)]
    pub fn direct(self) -> u32 {
        u32::from(self.direct)
    }

    /// Returns X, the bits of the extension, 0 if there is none.
    #[inline(always)]
    pub fn extension(self) -> u32 {
        u32::from(self.extension)
    }

    /// Returns K = D + X.
    #[inline(always)]
    pub fn k(self) -> u32 {
        self.direct() + self.extension()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.extension {
            0 => write!(f, "D{}R", self.direct),
            x => write!(f, "D{}X{x}R", self.direct),
        }
    }
}

/// The two numbers of a name, not yet checked against a family.
struct Raw {
    direct: u32,
    extension: u32,
}

impl FromStr for Raw {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let number = |digits: &str| match digits.as_bytes() {
            [b'1'..=b'9'] | [b'1'..=b'9', b'0'..=b'9'] => digits.parse().map_err(|_| ()),
            _ => Err(()),
        };
        let name = name.strip_prefix(['D', 'd']).ok_or(())?;
        let name = name.strip_suffix(['R', 'r']).ok_or(())?;
        match name.split_once(['X', 'x']) {
            None => Ok(Self { direct: number(name)?, extension: 0 }),
            Some((d, x)) => Ok(Self { direct: number(d)?, extension: number(x)? }),
        }
    }
}

/// The error of a name that is no DXR shape, or of a shape that does not suit the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadShape {
    min: u32,
    max: u32,
}

impl fmt::Display for BadShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, max } = self;
        write!(
            f,
            "a DXR table is named D<bits>R or D<bits>X<bits>R, such as D16X4R, with \
             {min} to {max} bits in all and at most 16 before an X"
        )
    }
}

impl core::error::Error for BadShape {}

#[cfg(test)]
mod tests {
    use super::Shape;
    use alloc::string::ToString;

    #[test]
    fn names_are_printed_as_they_were_parsed() {
        for name in ["D16R", "D20R", "D16X4R", "D12X9R", "D14X10R", "D16X8R"] {
            assert_eq!(Shape::parse::<u32>(name).unwrap().to_string(), name);
        }
        assert_eq!(Shape::parse::<u32>("d16x4r").unwrap().to_string(), "D16X4R");
    }

    #[test]
    fn invalid_shapes_are_refused() {
        for name in
            ["", "D", "DR", "D16", "16R", "D16XR", "DX4R", "D16X0R", "D016R", "D+16R", "D12R"]
        {
            assert!(Shape::parse::<u32>(name).is_err(), "{name}");
        }
        // K beyond its bounds, and more direct bits than block numbers reach.
        for name in ["D12X3R", "D25R", "D16X9R", "D17X2R"] {
            assert!(Shape::parse::<u32>(name).is_err(), "{name}");
        }
    }
}
