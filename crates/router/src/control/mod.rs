//! The slow path: may block, allocate, log and fail, with words.
//!
//! | file | |
//! |---|---|
//! | `kernel` | the thread that follows the kernel |
//! | `plane` | what the kernel says, as workers read it |
//! | `server`, `api`, `look`, `answer`, `asks` | the control socket: what is asked, and who knows |
//! | `audit` | whether the router does what the kernel would |
//! | `metrics`, `http`, `hosts` | everything that is counted, for Prometheus |
//! | `monitor` | what happens, told to whoever listens |
//! | `links` | what the system says of its interfaces and addresses |
//! | `routes` | files and configuration → tables and adjacencies |
//! | `protocols` | who installs routes, by name |
//! | `rights` | what each thread may do |
//! | `workers` | threads on cores, and their end |

pub mod answer;
pub mod api;
pub mod asks;
pub(crate) mod audit;
pub(crate) mod hosts;
pub(crate) mod http;
pub mod kernel;
pub mod links;
pub(crate) mod look;
pub(crate) mod metrics;
pub(crate) mod monitor;
pub mod plane;
pub mod protocols;
pub mod rights;
pub mod routes;
pub(crate) mod server;
pub mod workers;
