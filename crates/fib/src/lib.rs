//! Longest-prefix-match tables small enough for a CPU's cache.

#![no_std]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod addr;
mod build;
pub mod engine;
mod error;
mod family;
mod fib;
mod hop;
mod pool;
mod prefix;
#[cfg(feature = "std")]
mod publish;
mod rib;
pub mod runs;
#[cfg(feature = "std")]
mod sync;
mod table;
#[cfg(feature = "std")]
mod update;

pub use addr::Addr;
pub use engine::{Builder, Engine};
pub use error::Full;
pub use family::{Family, Slot};
pub use fib::{Choice, Fib};
pub use hop::{Hop, HopTable};
pub use prefix::{BadPrefix, Prefix};
#[cfg(feature = "std")]
pub use publish::{Publisher, Reader};
pub use rib::{Covering, Rib, Walk};
#[cfg(feature = "std")]
pub use update::{Commit, Updater};

/// What the README and the guide show, compiled and run as documentation tests.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/guide/library.md")]
mod shown {}
