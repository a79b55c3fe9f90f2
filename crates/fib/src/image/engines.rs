//! Which engines are kept in images, and how each is found by its choice.
//!
//! The sets are those of `factory.rs`, of which a family has some. Where an engine has
//! several widths, the size of an array's items tells which one it is.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::{BadImage, PartReader, Storable};
use crate::engine::Engine;
use crate::engine::dir24_8::Dir24_8;
use crate::engine::dxr::Dxr;
use crate::engine::halves::Halves;
use crate::engine::poptrie::Poptrie;
use crate::engine::rank::{Flat, Rank};
use crate::engine::rank6::Rank6;
use crate::{Addr, Choice, Family};

pub(crate) type Loaded<A> = Option<Result<Box<dyn Engine<A>>, BadImage>>;

/// Loads one of a set of engines; `None` for any other.
pub(crate) type Set<A> = fn(Choice, &PartReader<'_>) -> Loaded<A>;

/// Loads the engine of `choice`, `None` if it is not kept in images. `sets` are those that
/// the family has.
pub(crate) fn load<A: Family>(
    choice: Choice,
    stored: &PartReader<'_>,
    sets: &[Set<A>],
) -> Loaded<A> {
    sets.iter().find_map(|set| set(choice, stored))
}

/// The engines of every family, upper halves included.
pub(crate) fn dxr<A: Family>(choice: Choice, stored: &PartReader<'_>) -> Loaded<A> {
    Some(match choice {
        Choice::Dxr(_) => match stored.each("entries") {
            Ok(8) => load_boxed::<A, Dxr<A, u64>>(choice, stored),
            _ => load_boxed::<A, Dxr<A, u32>>(choice, stored),
        },
        Choice::Halves(_) => match stored.within("upper").each("entries") {
            Ok(8) => load_boxed::<A, Halves<A, u64>>(choice, stored),
            _ => load_boxed::<A, Halves<A, u32>>(choice, stored),
        },
        _ => return None,
    })
}

/// The engines of every family that packets are looked up in.
pub(crate) fn any<A: Family>(choice: Choice, stored: &PartReader<'_>) -> Loaded<A> {
    Some(match choice {
        Choice::Poptrie(_) => match stored.each("leaves") {
            Ok(4) => load_boxed::<A, Poptrie<A, u32>>(choice, stored),
            _ => load_boxed::<A, Poptrie<A, u16>>(choice, stored),
        },
        _ => return None,
    })
}

/// The engines of IPv4, and of the toys.
pub(crate) fn narrow<A: Family>(choice: Choice, stored: &PartReader<'_>) -> Loaded<A> {
    Some(match choice {
        Choice::Dir24_8 => match stored.each("tbl24") {
            Ok(4) => load_boxed::<A, Dir24_8<A, u32>>(choice, stored),
            _ => load_boxed::<A, Dir24_8<A, u16>>(choice, stored),
        },
        Choice::Rank => load_boxed::<A, Rank<A>>(choice, stored),
        Choice::Flat => load_boxed::<A, Flat<A>>(choice, stored),
        _ => return None,
    })
}

/// The engines of IPv6, and of the toys.
pub(crate) fn wide<A: Family>(choice: Choice, stored: &PartReader<'_>) -> Loaded<A> {
    Some(match choice {
        Choice::Rank6 => load_boxed::<A, Rank6<A>>(choice, stored),
        _ => return None,
    })
}

fn load_boxed<A: Addr, E: Engine<A> + Storable>(
    choice: Choice,
    stored: &PartReader<'_>,
) -> Result<Box<dyn Engine<A>>, BadImage> {
    Ok(Box::new(E::load(choice, stored)?))
}

/// Lists the names of the engines that are kept.
pub(super) fn storable_names<A: Family>() -> String {
    let every = Choice::every::<A>();
    let storable = every.iter().filter(|choice| choice.is_storable());
    let names: Vec<String> = storable.map(|choice| choice.name::<A>()).collect();
    names.join(", ")
}

impl Choice {
    /// Says whether tables of this engine are kept in images.
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
}
