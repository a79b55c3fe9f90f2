//! The factory of builders: makes the builder of the engine that a [`Choice`] names.
//!
//! [`TableBuilder`] is a type-erased builder: it applies the changes of a [`Rib`], freezes a table
//! and refreshes one that it froze before. It has two implementations, one for each kind of builder:
//! [`Blocks`] sweeps dirty blocks into runs and lays those out, [`Routes`] passes each changed route
//! on. The sets below (`dxr`, `any`, `narrow`, `wide`) are the only code that names the type of
//! every builder, and [`EngineSet`] lists the sets of each family.
//!
//! Widths are always automatic. A build begins with the narrowest entries, and is repeated with
//! wider ones when the engine returns [`Full`].

#![cfg_attr(
    not(feature = "std"),
    expect(dead_code, reason = "only publication, which needs `std`, applies changes")
)]

use alloc::boxed::Box;
#[cfg(all(feature = "std", target_os = "linux"))]
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

#[cfg(all(feature = "std", target_os = "linux"))]
use crate::WordFiles;
use crate::build::build;
use crate::choice::Choice;
use crate::engine::binary::BinaryBuilder;
use crate::engine::dir24_8::Dir24_8Builder;
use crate::engine::dxr::{DxrBuilder, Entry, next_split};
use crate::engine::halves::HalvesBuilder;
use crate::engine::lctrie::LcTrieBuilder;
use crate::engine::linear::LinearBuilder;
use crate::engine::lulea::LuleaBuilder;
use crate::engine::multibit::MultibitBuilder;
use crate::engine::nart::builder::NartBuilder;
use crate::engine::patricia::PatriciaBuilder;
use crate::engine::pbf::PbfBuilder;
use crate::engine::poptrie::PoptrieBuilder;
use crate::engine::ranges::RangesBuilder;
use crate::engine::rank::{Form, Plain, RankBuilder, Ranked};
use crate::engine::rank6::Rank6Builder;
use crate::engine::sail::{self, SailLBuilder};
use crate::engine::sail6::Sail6Builder;
use crate::engine::sail6_large::Sail6LargeBuilder;
use crate::engine::treebitmap::{Bits, TreeBitmapBuilder};
use crate::engine::{Builder, Engine, RouteBuilder};
use crate::image::PartReader;
use crate::runs::sweep_block;
use crate::{Addr, FamilyLayout, Full, Rib};

use load::Loaded;

mod load;

/// The number of dirty blocks whose paths in the routing table are prefetched together before they
/// are swept.
const PREFETCH_GROUP: usize = 64;

/// A builder of any engine.
pub(crate) trait TableBuilder<A: Addr>: Send {
    /// Applies the changes in `rib` since it was last clean, and marks it clean. Returns the number of
    /// blocks or routes.
    ///
    /// After an error this builder must not be used any more.
    fn follow(&mut self, rib: &mut Rib<A>) -> Result<usize, Full>;

    /// Copies the present table.
    fn freeze(&self) -> Box<dyn Engine<A>>;

    /// Brings `idle` up to date, which this builder froze.
    fn refresh(&self, idle: &mut dyn Engine<A>);

    /// Returns the number of 64-bit words of the table written so far.
    fn written(&self) -> u64;

    /// Counts the unused bytes within the table.
    fn holes(&self) -> usize;

    /// Moves the words that tables share into files, if the engine has such words.
    #[cfg(all(feature = "std", target_os = "linux"))]
    fn place_in(&mut self, _files: Arc<dyn WordFiles>) {}
}

/// The engines of a family, compiled here, once, and not again by every crate that builds a
/// table.
pub(crate) trait EngineSet: Addr {
    /// Builds a table by [`construct`] with the sets of engines that the family has.
    fn build(rib: &Rib<Self>, choice: Choice, threads: usize) -> Built<Self>;

    /// Loads a table by [`load::load`] with the same sets.
    fn load(choice: Choice, stored: &PartReader<'_>) -> Loaded<Self>;
}

/// An address family that tables can be built for.
#[expect(private_bounds, reason = "sealed: the families are those that the library compiles")]
pub trait Family: FamilyLayout + EngineSet {}

/// Lists the engines of each family. Where the condition holds, the programs that use them compile
/// them, and not the library: those of families that no packet is looked up in, unless the feature
/// `toys` is on, and all of them under loom and ThreadSanitizer, whose tests build no table.
/// AddressSanitizer has the engines with lookup kernels alone: the others have no `unsafe` code.
macro_rules! engines {
    ($addr:ty, $compiled_by_users:meta, $($set:ident)*, $($scalar:ident)*) => {
        impl EngineSet for $addr {
            #[cfg_attr($compiled_by_users, inline)]
            fn build(rib: &Rib<Self>, choice: Choice, threads: usize) -> Built<Self> {
                let sets: &[Set<Self>] = &[$($set,)* $(#[cfg(not(asan))] $scalar,)*];
                construct(rib, choice, threads, sets)
            }

            #[cfg_attr($compiled_by_users, inline)]
            fn load(choice: Choice, stored: &PartReader<'_>) -> Loaded<Self> {
                load::load(choice, stored, &[$(load::$set),*])
            }
        }

        impl Family for $addr {}
    };
}

engines!(u8, any(loom, tsan, not(feature = "toys")), dxr any narrow wide,
    any_scalar narrow_scalar wide_scalar);
engines!(u16, any(loom, tsan, not(feature = "toys")), dxr any narrow wide,
    any_scalar narrow_scalar wide_scalar);
engines!(u32, any(loom, tsan), dxr any narrow, any_scalar narrow_scalar);
engines!(u64, any(loom, tsan, not(feature = "toys")), dxr,);
engines!(u128, any(loom, tsan), dxr any wide, any_scalar wide_scalar);

/// The erased form of a builder that lays out runs.
struct Blocks<B>(B);

impl<A: Addr, B: Builder<A>> TableBuilder<A> for Blocks<B> {
    fn follow(&mut self, rib: &mut Rib<A>) -> Result<usize, Full> {
        let dirty = rib.take_dirty(self.0.block_len());
        let mut runs = Vec::new();
        for group in dirty.chunks(PREFETCH_GROUP) {
            if group.len() > 1 {
                rib.prepare(group);
            }
            for &block in group {
                runs.clear();
                sweep_block(rib, block, &mut runs);
                self.0.patch(block, &runs)?;
            }
        }
        Ok(dirty.len())
    }

    fn freeze(&self) -> Box<dyn Engine<A>> {
        Box::new(self.0.freeze())
    }

    fn refresh(&self, idle: &mut dyn Engine<A>) {
        self.0.refresh(downcast(idle));
    }

    fn written(&self) -> u64 {
        self.0.written()
    }

    fn holes(&self) -> usize {
        self.0.holes()
    }

    #[cfg(all(feature = "std", target_os = "linux"))]
    fn place_in(&mut self, files: Arc<dyn WordFiles>) {
        self.0.place_in(files);
    }
}

/// The erased form of a builder that keeps routes.
struct Routes<B>(B);

impl<A: Addr, B: RouteBuilder<A>> TableBuilder<A> for Routes<B> {
    fn follow(&mut self, rib: &mut Rib<A>) -> Result<usize, Full> {
        let changed = rib.take_changed();
        for &prefix in &changed {
            self.0.change(rib, prefix)?;
        }
        Ok(changed.len())
    }

    fn freeze(&self) -> Box<dyn Engine<A>> {
        Box::new(self.0.freeze())
    }

    fn refresh(&self, idle: &mut dyn Engine<A>) {
        self.0.refresh(downcast(idle));
    }

    fn written(&self) -> u64 {
        self.0.written()
    }

    fn holes(&self) -> usize {
        self.0.holes()
    }
}

fn downcast<A: Addr, E: Engine<A>>(engine: &mut dyn Engine<A>) -> &mut E {
    let engine: &mut dyn Any = engine;
    match engine.downcast_mut() {
        Some(engine) => engine,
        None => unreachable!("a builder refreshes what it froze"),
    }
}

pub(crate) type Built<A> = Result<Box<dyn TableBuilder<A>>, Full>;

/// Builds one of a set of engines with the threads given; `None` for any other.
type Set<A> = fn(&Rib<A>, Choice, usize) -> Option<Built<A>>;

/// Builds `rib` in the engine of `choice`, which is not automatic, with `threads` threads if the
/// build can be divided. `sets` are the sets of the family.
fn construct<A: FamilyLayout>(
    rib: &Rib<A>,
    choice: Choice,
    threads: usize,
    sets: &[Set<A>],
) -> Built<A> {
    let full = Full { what: Full::BITS, limit: 32, seen: A::BITS.into() };
    sets.iter().find_map(|set| set(rib, choice, threads)).unwrap_or(Err(full))
}

/// The engines of every family, upper halves included.
fn dxr<A: FamilyLayout>(rib: &Rib<A>, choice: Choice, threads: usize) -> Option<Built<A>> {
    Some(match choice {
        Choice::Linear => routes(rib, LinearBuilder::default()),
        Choice::Dxr(shape) => widening::<A, DxrBuilder<A, u32>, DxrBuilder<A, u64>>(
            rib,
            |bits| DxrBuilder::with_len_bits(shape, bits),
            |bits| DxrBuilder::with_len_bits(shape, bits),
            threads,
        ),
        Choice::Halves(shape) => widening::<A, HalvesBuilder<A, u32>, HalvesBuilder<A, u64>>(
            rib,
            |bits| HalvesBuilder::with_len_bits(shape, bits),
            |bits| HalvesBuilder::with_len_bits(shape, bits),
            threads,
        ),
        _ => return None,
    })
}

/// The engines of IPv4, IPv6 and the toys that have lookup kernels.
fn any<A: FamilyLayout>(rib: &Rib<A>, choice: Choice, threads: usize) -> Option<Built<A>> {
    Some(match choice {
        Choice::Flat => chunked::<A, Plain>(rib, threads),
        Choice::Poptrie(bits) => {
            either(blocks(rib, || PoptrieBuilder::<A, u16>::new(bits), threads), || {
                blocks(rib, || PoptrieBuilder::<A, u32>::new(bits), threads)
            })
        }
        Choice::TreeBitmap(6) => treebitmap::<A, u64>(rib),
        Choice::TreeBitmap(5) => treebitmap::<A, u32>(rib),
        Choice::TreeBitmap(_) => treebitmap::<A, u16>(rib),
        _ => return None,
    })
}

/// The engines of IPv4, and of the toys, that have lookup kernels.
fn narrow<A: FamilyLayout>(rib: &Rib<A>, choice: Choice, threads: usize) -> Option<Built<A>> {
    Some(match choice {
        Choice::Dir24_8 => either(blocks(rib, Dir24_8Builder::<A, u16>::new, threads), || {
            blocks(rib, Dir24_8Builder::<A, u32>::new, threads)
        }),
        Choice::Rank => chunked::<A, Ranked>(rib, threads),
        Choice::SailL => either(blocks(rib, SailLBuilder::<A, u16>::new, threads), || {
            blocks(rib, SailLBuilder::<A, u32>::new, threads)
        }),
        _ => return None,
    })
}

/// The engine of IPv6, and of the toys, that has lookup kernels.
fn wide<A: FamilyLayout>(rib: &Rib<A>, choice: Choice, threads: usize) -> Option<Built<A>> {
    Some(match choice {
        Choice::Rank6 => blocks(rib, Rank6Builder::default, threads),
        _ => return None,
    })
}

/// The other engines of IPv4, IPv6 and the toys.
fn any_scalar<A: FamilyLayout>(rib: &Rib<A>, choice: Choice, threads: usize) -> Option<Built<A>> {
    Some(match choice {
        Choice::Pbf => either(routes(rib, PbfBuilder::<A, u16>::default()), || {
            routes(rib, PbfBuilder::<A, u32>::default())
        }),
        Choice::Ranges => either(blocks(rib, RangesBuilder::<A, u16>::new, threads), || {
            blocks(rib, RangesBuilder::<A, u32>::new, threads)
        }),
        Choice::Ranges16 => {
            either(blocks(rib, RangesBuilder::<A, u16>::with_table, threads), || {
                blocks(rib, RangesBuilder::<A, u32>::with_table, threads)
            })
        }
        Choice::Patricia => either(routes(rib, PatriciaBuilder::<A, u16>::default()), || {
            routes(rib, PatriciaBuilder::<A, u32>::default())
        }),
        Choice::Multibit(stride) => {
            either(routes(rib, MultibitBuilder::<A, u16>::new(stride.into())), || {
                routes(rib, MultibitBuilder::<A, u32>::new(stride.into()))
            })
        }
        Choice::Binary => either(routes(rib, BinaryBuilder::<A, u16>::default()), || {
            routes(rib, BinaryBuilder::<A, u32>::default())
        }),
        Choice::LcTrie => either(routes(rib, LcTrieBuilder::<A, u16>::default()), || {
            routes(rib, LcTrieBuilder::<A, u32>::default())
        }),
        _ => return None,
    })
}

/// The other engines of IPv4, and of the toys.
fn narrow_scalar<A: FamilyLayout>(
    rib: &Rib<A>,
    choice: Choice,
    threads: usize,
) -> Option<Built<A>> {
    Some(match choice {
        Choice::Nart => either(routes(rib, NartBuilder::<A, u16>::default()), || {
            routes(rib, NartBuilder::<A, u32>::default())
        }),
        Choice::Lulea => lulea(rib, threads),
        Choice::SailB => either(routes(rib, sail::SailBBuilder::<A, u16>::new()), || {
            routes(rib, sail::SailBBuilder::<A, u32>::new())
        }),
        Choice::SailU => either(routes(rib, sail::SailUBuilder::<A, u16>::new()), || {
            routes(rib, sail::SailUBuilder::<A, u32>::new())
        }),
        _ => return None,
    })
}

/// The other engines of IPv6, and of the toys.
fn wide_scalar<A: FamilyLayout>(rib: &Rib<A>, choice: Choice, threads: usize) -> Option<Built<A>> {
    Some(match choice {
        Choice::Sail6 => blocks(rib, Sail6Builder::default, threads),
        Choice::Sail6Large => either(routes(rib, Sail6LargeBuilder::<A, u16>::default()), || {
            routes(rib, Sail6LargeBuilder::<A, u32>::default())
        }),
        _ => return None,
    })
}

/// Builds from runs.
fn blocks<A: FamilyLayout, B: Builder<A> + 'static>(
    rib: &Rib<A>,
    make: impl Fn() -> B + Sync,
    threads: usize,
) -> Built<A> {
    Ok(Box::new(Blocks(build(rib, make, threads)?)))
}

/// Builds from routes.
fn routes<A: FamilyLayout, B: RouteBuilder<A> + 'static>(rib: &Rib<A>, mut builder: B) -> Built<A> {
    builder.fill(rib)?;
    Ok(Box::new(Routes(builder)))
}

/// Builds chunks, with larger grains while there are too few places.
fn chunked<A: FamilyLayout, F: Form>(rib: &Rib<A>, threads: usize) -> Built<A> {
    let mut built = None;
    for grain in RankBuilder::<A, F>::GRAINS {
        built = Some(blocks(rib, || RankBuilder::<A, F>::new(grain), threads));
        match &built {
            Some(Err(full)) if full.what == Full::WORDS => {}
            _ => break,
        }
    }
    built.unwrap_or_else(|| unreachable!("there are grains"))
}

/// Builds Lulea with the paper's pointers, or with wider ones if they cannot address all chunks or
/// next hops.
fn lulea<A: FamilyLayout>(rib: &Rib<A>, threads: usize) -> Built<A> {
    let wide = || {
        either(blocks(rib, LuleaBuilder::<u32, u16>::new::<A>, threads), || {
            blocks(rib, LuleaBuilder::<u32, u32>::new::<A>, threads)
        })
    };
    blocks(rib, LuleaBuilder::<u16, u16>::new::<A>, threads).or_else(|_| wide())
}

/// Builds a tree bitmap with bitmaps of the width of `W`.
fn treebitmap<A: FamilyLayout, W: Bits>(rib: &Rib<A>) -> Built<A> {
    either(routes(rib, TreeBitmapBuilder::<A, W, u16>::new()), || {
        routes(rib, TreeBitmapBuilder::<A, W, u32>::new())
    })
}

/// Takes entries of 16 bits, or wide ones if those hold too few hops, blocks or chunks.
fn either<A: FamilyLayout>(narrow: Built<A>, wide: impl FnOnce() -> Built<A>) -> Built<A> {
    match narrow {
        Err(full) if matches!(full.what, Full::HOPS | Full::BLOCKS | Full::CHUNKS) => wide(),
        built => built,
    }
}

/// Builds DXR with 32-bit entries, of which it gives more bits to a chunk's length while chunks are
/// too long, or with 64-bit entries if that does not suffice.
fn widening<A: FamilyLayout, N: Builder<A> + 'static, W: Builder<A> + 'static>(
    rib: &Rib<A>,
    narrow: impl Fn(u32) -> N + Sync,
    wide: impl Fn(u32) -> W + Sync,
    threads: usize,
) -> Built<A> {
    let mut len_bits = <u32 as Entry>::LEN_BITS;
    loop {
        match blocks(rib, || narrow(len_bits), threads) {
            Ok(builder) => return Ok(builder),
            Err(full) => match next_split::<u32>(len_bits, full) {
                Some(wider) => len_bits = wider,
                None => return blocks(rib, || wide(<u64 as Entry>::LEN_BITS), threads),
            },
        }
    }
}
