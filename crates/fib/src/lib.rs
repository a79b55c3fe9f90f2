//! Longest-prefix-match tables small enough for a CPU's cache.

#![no_std]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod addr;
pub mod engine;
mod error;
mod hop;
mod prefix;
pub mod runs;

pub use addr::Addr;
pub use engine::{Builder, Engine};
pub use error::Full;
pub use hop::Hop;
pub use prefix::{BadPrefix, Prefix};
