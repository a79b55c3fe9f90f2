//! The slow path: may block, allocate, log and fail, with words.
//!
//! | file | |
//! |---|---|
//! | `links` | what the system says of its interfaces and addresses |
//! | `routes` | files and configuration → tables and adjacencies |
//! | `workers` | threads on cores, and their end |

pub mod links;
pub mod routes;
pub mod workers;
