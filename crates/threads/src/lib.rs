//! Named threads with the capabilities that they need and a flag that stops them.
//!
//! | module | content |
//! |---|---|
//! | [`rights`] | the capabilities of the process and of each thread |
//! | `task` | [`Task`], a thread that runs until it is stopped or dropped |

#![forbid(unsafe_code)]

pub mod rights;
mod task;

pub use rights::Rights;
pub use task::{Panicked, Stop, Task};
