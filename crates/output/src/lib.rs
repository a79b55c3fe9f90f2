//! Output that the programs `fingerpost` and `fingerpost-bench` share.
//!
//! ```text
//! progress   the name and the elapsed time of a long operation, on a terminal
//! failure    an error and its causes in one line, and the exit status of a closed pipe
//! page       an HTML page of results: title, tables, figures
//! plot       the SVG plots of a page
//! ```
//!
//! Nothing here measures or knows a router: callers pass text and numbers.

#![forbid(unsafe_code)]

pub mod failure;
pub mod page;
pub mod plot;
pub mod progress;
