//! The choice of an engine: by name, or automatic.
//!
//! [`Choice`] has one value for each engine, with its parameters. The names that a user may
//! write, the names that are listed and the engines that the battery of tests runs come from
//! one list ([`Choice::every`]). The names of DXR are its shapes (`D16X4R`), of which there are
//! many more than are listed. `selection.rs` replaces [`Choice::Auto`] by an engine.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::engine::dxr::Shape;
use crate::{Addr, FamilyLayout};

/// The engine of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choice {
    /// The engine that suits the table and the machine.
    #[default]
    Auto,
    /// One entry, then a leaf of a chunk, found by counting ones.
    Rank,
    /// The same with a leaf for every place of the chunk.
    Flat,
    /// The engine that [`Auto`](Self::Auto) would take if this many bytes were half of the
    /// machine's second-level cache; the smallest if none fits.
    Within(usize),
    /// A comparison with every route: the oracle.
    Linear,
    /// Bloom filters and hash tables, one of each a prefix length.
    Pbf,
    /// Ranks among short sorted starts, for IPv6.
    Rank6,
    /// SAIL for small IPv6 tables.
    Sail6,
    /// SAIL for large IPv6 tables.
    Sail6Large,
    /// A table indexed by 24 bits, then another indexed by 8.
    Dir24_8,
    /// The three-level table of Suez.
    Nart,
    /// Ranges in one sorted array.
    Ranges,
    /// Ranges below a first table of 2^16 entries.
    Ranges16,
    /// Poptrie with a direct table of so many bits.
    Poptrie(u32),
    /// Lulea, levels of half and twice a quarter of the bits.
    Lulea,
    /// Tree Bitmap with this stride, 4 to 6.
    TreeBitmap(u32),
    /// The BSD radix trie.
    Patricia,
    /// The fixed-stride trie of so many bits a level, 1 to 8.
    Multibit(u8),
    /// The unibit trie.
    Binary,
    /// The level- and path-compressed trie.
    LcTrie,
    /// DXR over whole addresses.
    Dxr(Shape),
    /// DXR over the upper halves, and below it another for longer routes.
    Halves(Shape),
    /// SAIL with a bitmap for each length to 24.
    SailB,
    /// SAIL with four bitmaps, one word of which an update touches.
    SailU,
    /// SAIL with levels 16, 24 and 32.
    SailL,
}

/// The families that a scheme supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Any width.
    Every,
    /// The families of packets, IPv4 and IPv6, and the toys.
    All,
    /// Up to 32 bits: IPv4 and the toys.
    Narrow,
    /// IPv6 and the toys.
    Wide,
}

impl Reach {
    fn holds<A: Addr>(self) -> bool {
        match self {
            Self::Every => true,
            // The upper half of IPv6 has DXR and the oracle only.
            Self::All => A::BITS != 64,
            Self::Narrow => A::BITS <= 32,
            Self::Wide => !matches!(A::BITS, 32 | 64),
        }
    }
}

/// The schemes with a name of their own. Where two lines have the same choice, the first has
/// its name and the second an alias.
const NAMED: &[(&str, Choice, Reach)] = &[
    ("linear", Choice::Linear, Reach::Every),
    ("rank", Choice::Rank, Reach::Narrow),
    ("flat", Choice::Flat, Reach::All),
    ("pbf", Choice::Pbf, Reach::All),
    ("rank6", Choice::Rank6, Reach::Wide),
    ("sail6", Choice::Sail6, Reach::Wide),
    ("sail6_large", Choice::Sail6Large, Reach::Wide),
    ("dir24_8", Choice::Dir24_8, Reach::Narrow),
    ("nart", Choice::Nart, Reach::Narrow),
    ("sail_b", Choice::SailB, Reach::Narrow),
    ("sail_u", Choice::SailU, Reach::Narrow),
    ("sail_l", Choice::SailL, Reach::Narrow),
    ("ranges", Choice::Ranges, Reach::All),
    ("ranges16", Choice::Ranges16, Reach::All),
    ("poptrie", Choice::Poptrie(18), Reach::All),
    ("poptrie16", Choice::Poptrie(16), Reach::All),
    ("poptrie18", Choice::Poptrie(18), Reach::All),
    ("poptrie20", Choice::Poptrie(20), Reach::All),
    ("lulea", Choice::Lulea, Reach::Narrow),
    ("treebitmap", Choice::TreeBitmap(4), Reach::All),
    ("treebitmap4", Choice::TreeBitmap(4), Reach::All),
    ("treebitmap5", Choice::TreeBitmap(5), Reach::All),
    ("treebitmap6", Choice::TreeBitmap(6), Reach::All),
    ("patricia", Choice::Patricia, Reach::All),
    ("multibit", Choice::Multibit(4), Reach::All),
    ("multibit1", Choice::Multibit(1), Reach::All),
    ("multibit2", Choice::Multibit(2), Reach::All),
    ("multibit3", Choice::Multibit(3), Reach::All),
    ("multibit4", Choice::Multibit(4), Reach::All),
    ("multibit5", Choice::Multibit(5), Reach::All),
    ("multibit6", Choice::Multibit(6), Reach::All),
    ("multibit7", Choice::Multibit(7), Reach::All),
    ("multibit8", Choice::Multibit(8), Reach::All),
    ("binary", Choice::Binary, Reach::All),
    ("lctrie", Choice::LcTrie, Reach::All),
];

impl Choice {
    /// Parses a name: `auto`, `linear` or another of [`every`](Self::every), `D16X4R`
    /// or any other DXR shape, or `D16X8R/64` for one over the upper half of the bits.
    /// Case does not matter.
    ///
    /// # Errors
    ///
    /// [`BadChoice`] if the name is none of these, or does not suit the family.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::Choice;
    /// assert!(Choice::parse::<u32>("D16X4R").is_ok());
    /// assert!(Choice::parse::<u128>("D16X8R/64").is_ok());
    /// assert!(Choice::parse::<u32>("D99R").is_err());
    /// ```
    pub fn parse<A: FamilyLayout>(name: &str) -> Result<Self, BadChoice> {
        if name.eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        let named = NAMED.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
        if let Some(&(_, choice, reach)) = named {
            return if reach.holds::<A>() { Ok(choice) } else { Err(BadChoice::family::<A>(name)) };
        }
        let half = format!("/{}", A::Upper::BITS);
        let shape = match name.strip_suffix(&half) {
            Some(upper) => Shape::parse::<A::Upper>(upper).map(Self::Halves),
            None => Shape::parse::<A>(name).map(Self::Dxr),
        };
        shape.map_err(|bad| BadChoice {
            name: name.to_string(),
            why: if name.starts_with(['D', 'd']) { bad.to_string() } else { names::<A>() },
        })
    }

    /// Lists the engines that suit a family: all schemes, and some shapes of DXR.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::Choice;
    /// assert!(Choice::every::<u32>().contains(&Choice::Linear));
    /// ```
    pub fn every<A: FamilyLayout>() -> Vec<Self> {
        let mut every: Vec<Self> = Vec::new();
        for &(_, choice, reach) in NAMED {
            if reach.holds::<A>() && !every.contains(&choice) {
                every.push(choice);
            }
        }
        let shapes: &[(u32, u32)] = match A::BITS {
            ..16 => &[(2, 0), (6, 0), (2, 2), (1, 5)],
            16 => &[(8, 0), (4, 4), (2, 8)],
            32 => &[(16, 0), (18, 0), (20, 0), (16, 4)],
            _ => &[(16, 0), (16, 8)],
        };
        let shape = |&(direct, extension): &(u32, u32)| Shape::new::<A>(direct, extension).ok();
        every.extend(shapes.iter().filter_map(shape).map(Self::Dxr));
        if A::BITS > 64 {
            let upper = Shape::new::<A::Upper>(16, 8).ok();
            every.extend(upper.map(Self::Halves));
        }
        every
    }

    /// Returns whether the engine can hold addresses of this family.
    pub fn suits<A: FamilyLayout>(self) -> bool {
        let named = NAMED.iter().find(|(_, choice, _)| *choice == self);
        named.is_none_or(|(_, _, reach)| reach.holds::<A>())
    }

    /// Returns whether images can hold tables of this engine.
    pub fn is_storable(self) -> bool {
        matches!(
            self,
            Self::Auto
                | Self::Within(_)
                | Self::Rank
                | Self::Flat
                | Self::Rank6
                | Self::Dxr(_)
                | Self::Halves(_)
                | Self::Dir24_8
                | Self::Poptrie(_)
        )
    }

    /// Returns the name, as [`parse`](Self::parse) reads it.
    pub fn name<A: FamilyLayout>(self) -> String {
        match self {
            Self::Auto => "auto".to_string(),
            Self::Within(bytes) => format!("auto within {bytes} bytes"),
            Self::Dxr(shape) => shape.to_string(),
            Self::Halves(shape) => format!("{shape}/{}", A::Upper::BITS),
            _ => {
                let named = NAMED.iter().find(|(_, choice, _)| *choice == self);
                // A parameter without a name is printed too.
                named.map_or_else(|| format!("{self:?}"), |(name, ..)| (*name).to_string())
            }
        }
    }
}

/// Lists the names of the engines that images can hold.
pub(crate) fn storable_names<A: FamilyLayout>() -> String {
    let storable = Choice::every::<A>().into_iter().filter(|choice| choice.is_storable());
    let names: Vec<String> = storable.map(|choice| choice.name::<A>()).collect();
    names.join(", ")
}

/// Lists the names of the engines that suit a family.
fn names<A: FamilyLayout>() -> String {
    let names: Vec<String> = Choice::every::<A>().iter().map(|choice| choice.name::<A>()).collect();
    format!("the engines are auto, {}, and other shapes of DXR", names.join(", "))
}

/// The error of a name that no engine has, or whose engine does not suit the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadChoice {
    name: String,
    why: String,
}

impl BadChoice {
    fn family<A: FamilyLayout>(name: &str) -> Self {
        let why = format!("it does not hold addresses of {} bits; {}", A::BITS, names::<A>());
        Self { name: name.to_string(), why }
    }
}

impl fmt::Display for BadChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} cannot be the engine: {}", self.name, self.why)
    }
}

impl core::error::Error for BadChoice {}

#[cfg(test)]
mod tests {
    use super::{Choice, NAMED};
    use crate::FamilyLayout;
    use alloc::string::ToString;

    fn check_names<A: FamilyLayout>() {
        for choice in Choice::every::<A>() {
            assert!(choice.suits::<A>(), "{choice:?}");
            assert_eq!(Choice::parse::<A>(&choice.name::<A>()), Ok(choice));
            assert_eq!(Choice::parse::<A>(&choice.name::<A>().to_uppercase()), Ok(choice));
        }
        for &(name, choice, _) in NAMED {
            match Choice::parse::<A>(name) {
                Ok(parsed) => assert_eq!(parsed, choice),
                Err(_) => assert!(!choice.suits::<A>(), "{name}"),
            }
        }
    }

    #[test]
    fn every_name_is_parsed_back_in_every_family() {
        check_names::<u8>();
        check_names::<u16>();
        check_names::<u32>();
        check_names::<u64>();
        check_names::<u128>();
    }

    #[test]
    fn unknown_name_is_refused_with_the_names_there_are() {
        let error = Choice::parse::<u32>("fast").unwrap_err().to_string();
        assert!(error.starts_with("\"fast\" cannot be the engine: the engines are"), "{error}");
        let error = Choice::parse::<u32>("D99R").unwrap_err().to_string();
        assert!(error.contains("a DXR table is named"), "{error}");
    }
}
