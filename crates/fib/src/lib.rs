//! Longest-prefix-match tables small enough for a CPU's cache.
//!
//! The library turns routes into a frozen table. Any number of threads look addresses up in
//! it, several dozen at a time, while one thread builds the next table:
//!
//! ```text
//!   announce, withdraw ─► Rib ─► dirty blocks ─► runs ─► Builder ─► Fib ─► Publisher
//!                                                                            │ one pointer
//!                                                              Reader::current, a batch
//! ```
//!
//! | name | purpose |
//! |---|---|
//! | [`Addr`], [`Family`] | an address as a host-order integer: `u32` is IPv4, `u128` IPv6 |
//! | [`Prefix`] | a block of addresses, canonical by construction |
//! | [`Hop`], [`HopTable`] | a next hop as a small index, and the table of next hops |
//! | [`Rib`] | the routes, exact and ordered |
//! | [`Fib`], [`Choice`] | a frozen table, of an engine chosen by name or by size |
//! | [`Updater`] | routes and the table built from them, published to readers at each commit |
//! | [`Fibs`], [`FibsUpdater`] | the same for many tables, which share equal parts |
//! | [`Publisher`], [`Reader`] | one writer, many readers, wait-free |
//! | [`WordFiles`], [`MappedWords`] | memory for a table that other programs read too |
//! | [`LoadCounts`] | how many loads the lookups of all routes and addresses need |
//! | [`image`] | frozen tables in a file, loaded again without the routes |
//! | [`Full`] | the one error: a limit of a layout, never a wrong answer |
//!
//! [`engine`] and [`runs`] are public for code that implements an engine, or that fixes one at
//! compile time; they may change in minor releases.
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "std")] {
//! use fingerpost_fib::{Choice, Hop, Rib, Updater};
//!
//! let mut rib: Rib<u32> = Rib::new();
//! rib.insert("0.0.0.0/0".parse()?, Hop(1));
//! rib.insert("192.0.2.0/24".parse()?, Hop(2));
//! let mut routes = Updater::new(rib, Choice::Auto, 1)?;
//! let mut reader = routes.reader(); // one for each thread that looks up
//!
//! let addrs = [0xc000_0201, 0x0a00_0001];
//! let mut hops = [Hop::NONE; 2];
//! reader.current().lookup_batch(&addrs, &mut hops);
//! assert_eq!(hops, [Hop(2), Hop(1)]);
//!
//! routes.withdraw("192.0.2.0/24".parse()?);
//! routes.commit()?; // the reader does not stop, and sees it with its next batch
//! assert_eq!(reader.current().lookup(addrs[0]), Hop(1));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Without the feature `std` (on by default) the crate needs `alloc` only, builds
//! with one thread and has no [`Publisher`] and no [`Updater`].

#![no_std]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod addr;
mod arch;
mod arena;
mod build;
mod caches;
mod choice;
#[cfg(feature = "std")]
mod double_buffer;
pub mod engine;
mod error;
mod factory;
mod family;
mod fib;
mod fibs;
mod holes;
mod hop;
pub mod image;
mod item;
mod load_counts;
#[cfg(all(feature = "std", target_os = "linux"))]
mod mapped;
mod pool;
mod prefix;
#[cfg(feature = "std")]
mod publish;
mod rib;
pub mod runs;
mod selection;
mod shared_pool;
#[cfg(feature = "std")]
mod sync;
mod table;
#[cfg(feature = "std")]
mod update;

pub use addr::Addr;
pub use arch::Loads;
pub use caches::Caches;
pub use choice::{BadChoice, Choice};
pub use engine::{Builder, Engine, RouteBuilder};
pub use error::Full;
pub use factory::Family;
pub use family::{FamilyLayout, RangeEntry};
pub use fib::Fib;
pub use fibs::Fibs;
#[cfg(feature = "std")]
pub use fibs::FibsUpdater;
pub use hop::{Hop, HopTable};
pub use load_counts::LoadCounts;
#[cfg(all(feature = "std", target_os = "linux"))]
pub use mapped::{MappedWords, WordFile, WordFiles};
pub use prefix::{BadPrefix, Prefix};
#[cfg(feature = "std")]
pub use publish::{Publisher, Reader};
pub use rib::{Covering, Rib, Walk};
pub use selection::Estimate;
pub use shared_pool::PoolSnapshot;
pub use table::{Table, fetch_ahead, vec_on_huge_pages};
#[cfg(feature = "std")]
pub use update::{Commit, Updater};

/// The examples of both READMEs and the guide, compiled and run as documentation tests.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/guide/library.md")]
mod examples {}
