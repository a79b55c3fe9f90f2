//! Loads the engines that images can hold, each found by its choice.
//!
//! The sets are those of the builders (`factory.rs`), of which each family has some. Where an
//! engine has several widths, the size of an array's items determines which one it is.

use alloc::boxed::Box;

use crate::engine::Engine;
use crate::engine::dir24_8::Dir24_8;
use crate::engine::dxr::Dxr;
use crate::engine::halves::Halves;
use crate::engine::poptrie::Poptrie;
use crate::engine::rank::{Flat, Rank};
use crate::engine::rank6::Rank6;
use crate::family::FamilyLayout;
use crate::image::{BadImage, Loadable, PartReader};
use crate::{Addr, Choice};

pub(crate) type Loaded<A> = Option<Result<Box<dyn Engine<A>>, BadImage>>;

/// Loads one of a set of engines; `None` for any other.
pub(crate) type Set<A> = fn(Choice, &PartReader<'_>) -> Loaded<A>;

/// Loads the engine of `choice`; `None` if it has no image format. `sets` are the sets of the
/// family.
pub(crate) fn load<A: FamilyLayout>(
    choice: Choice,
    stored: &PartReader<'_>,
    sets: &[Set<A>],
) -> Loaded<A> {
    sets.iter().find_map(|set| set(choice, stored))
}

/// The engines of every family, upper halves included.
pub(crate) fn dxr<A: FamilyLayout>(choice: Choice, stored: &PartReader<'_>) -> Loaded<A> {
    Some(match choice {
        Choice::Dxr(shape) => match stored.each("entries") {
            Ok(8) => load_boxed::<A, Dxr<A, u64>>(shape, stored),
            _ => load_boxed::<A, Dxr<A, u32>>(shape, stored),
        },
        Choice::Halves(shape) => match stored.within("upper").each("entries") {
            Ok(8) => load_boxed::<A, Halves<A, u64>>(shape, stored),
            _ => load_boxed::<A, Halves<A, u32>>(shape, stored),
        },
        _ => return None,
    })
}

/// The engines of IPv4, IPv6 and the toys.
pub(crate) fn any<A: FamilyLayout>(choice: Choice, stored: &PartReader<'_>) -> Loaded<A> {
    Some(match choice {
        Choice::Flat => load_boxed::<A, Flat<A>>((), stored),
        Choice::Poptrie(bits) => match stored.each("leaves") {
            Ok(4) => load_boxed::<A, Poptrie<A, u32>>(bits, stored),
            _ => load_boxed::<A, Poptrie<A, u16>>(bits, stored),
        },
        _ => return None,
    })
}

/// The engines of IPv4, and of the toys.
pub(crate) fn narrow<A: FamilyLayout>(choice: Choice, stored: &PartReader<'_>) -> Loaded<A> {
    Some(match choice {
        Choice::Dir24_8 => match stored.each("tbl24") {
            Ok(4) => load_boxed::<A, Dir24_8<A, u32>>((), stored),
            _ => load_boxed::<A, Dir24_8<A, u16>>((), stored),
        },
        Choice::Rank => load_boxed::<A, Rank<A>>((), stored),
        _ => return None,
    })
}

/// The engines of IPv6, and of the toys.
pub(crate) fn wide<A: FamilyLayout>(choice: Choice, stored: &PartReader<'_>) -> Loaded<A> {
    Some(match choice {
        Choice::Rank6 => load_boxed::<A, Rank6<A>>((), stored),
        _ => return None,
    })
}

/// Loads an engine and erases its type.
fn load_boxed<A: Addr, E: Engine<A> + Loadable>(
    parameters: E::Parameters,
    stored: &PartReader<'_>,
) -> Result<Box<dyn Engine<A>>, BadImage> {
    Ok(Box::new(E::load(parameters, stored)?))
}
