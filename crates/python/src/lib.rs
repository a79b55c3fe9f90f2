//! The Python module `fingerpost`: longest-prefix-match tables with values of any type.
//!
//! ```text
//!   str, int, bytes, ipaddress ─ key ─┐
//!   MRT, text, mmdb ─ load ───────────┼─► Table ─► State: RIB and lookup table of each family,
//!   pickle ───────────────────────────┘     │             Values: number ─► object
//!   NumPy arrays, lists ─ addresses ─ bulk ─┘
//! ```
//!
//! The stub `fingerpost.pyi` is the reference for users. The rules within:
//!
//! - `Table` locks its `State`. No Python code runs under the lock, so that a
//!   value's methods may use the table: objects are compared by identity, and those that the table releases are
//!   dropped after the lock.
//! - A thread that waits for the lock, commits or looks up in bulk is detached from the interpreter.

#![forbid(unsafe_code)]

mod addresses;
mod bulk;
mod diff;
mod key;
mod load;
mod pickle;
mod state;
mod table;
mod values;

use pyo3::prelude::pymodule;

/// Longest-prefix-match tables of IPv4 and IPv6, small enough for a CPU's cache.
#[pymodule(name = "fingerpost")]
mod module {
    #[pymodule_export]
    use crate::table::Table;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python's modules have for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
