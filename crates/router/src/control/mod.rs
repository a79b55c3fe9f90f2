//! The slow path: may block, allocate, log and fail, with words.
//!
//! | file | |
//! |---|---|
//! | `kernel` | the thread that follows the kernel |
//! | `plane` | what the kernel says, as workers read it |
//! | `server`, `api`, `look`, `answer`, `asks` | the control socket: what is asked, and who knows |
//! | `audit` | whether the router does what the kernel would |
//! | `metrics`, `http`, `hosts`, `clients` | everything that is counted, for Prometheus |
//! | `monitor` | what happens, told to whoever listens |
//! | `devices` | the interfaces, kept what the kernel's links are |
//! | `links` | what the system says of its interfaces and addresses |
//! | `routes` | files and configuration → tables and adjacencies |
//! | `protocols` | who installs routes, by name |
//! | `rights` | what each thread may do |
//! | `report` | a line of the log for each event of links and feeds |
//! | `slots` | a limit of clients at once, freed by their end of any kind |
//! | `workers` | threads on cores, and their end |

pub(crate) mod allowed_hosts;
pub mod api;
pub(crate) mod audit;
mod churn;
pub(crate) mod clients;
pub mod devices;
pub mod handle;
pub(crate) mod http;
pub mod items;
pub mod kernel_sync;
pub mod links;
pub(crate) mod metrics;
pub(crate) mod monitor;
pub mod plane;
pub mod progress;
pub mod protocols;
pub(crate) mod query;
pub(crate) mod report;
pub mod rights;
pub mod routes;
pub(crate) mod server;
pub(crate) mod slots;
pub mod workers;
