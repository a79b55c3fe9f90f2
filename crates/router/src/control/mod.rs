//! The slow path: may block, allocate, log and fail, with words.
//!
//! | file | |
//! |---|---|
//! | `kernel` | the thread that follows the kernel |
//! | `plane` | what the kernel says, as workers read it |
//! | `server`, `api`, `answer`, `asks` | the control socket: what is asked, and who knows |
//! | `links` | what the system says of its interfaces and addresses |
//! | `routes` | files and configuration → tables and adjacencies |
//! | `workers` | threads on cores, and their end |

pub mod answer;
pub mod api;
pub mod asks;
pub mod kernel;
pub mod links;
pub mod plane;
pub mod routes;
pub(crate) mod server;
pub mod workers;
