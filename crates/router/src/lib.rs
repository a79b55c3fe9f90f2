//! Joins routes and packets: configuration, control, datapath, counters.
//!
//! ```text
//!   datapath/   never blocks, allocates, logs or panics
//!   stats       counters, one writer each
//! ```

#![forbid(unsafe_code)]

pub mod datapath;
pub mod stats;
