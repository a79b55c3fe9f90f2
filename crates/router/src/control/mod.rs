//! The control plane: it may block, allocate and log, and its errors are messages for operators.
//!
//! | file | |
//! |---|---|
//! | `kernel_sync` | the control thread: follows the kernel or FRR |
//! | `plane` | routes, links and neighbors as workers read them |
//! | `server`, `api`, `handle`, `query`, `items` | the control socket and its requests |
//! | `audit` | compares the router with the kernel |
//! | `churn` | the rate of route changes, which decides when to compare |
//! | `metrics`, `http`, `allowed_hosts`, `clients` | the HTTP server and the Prometheus metrics |
//! | `monitor` | events, published to subscribers |
//! | `devices` | interfaces, adjusted to the kernel's links |
//! | `links` | the system's interfaces and addresses |
//! | `routes` | static routes: files and configuration → tables and adjacencies |
//! | `protocols` | names of route protocols |
//! | `rights` | capabilities of each thread |
//! | `report` | log lines for events of links and feeds |
//! | `slots` | a limit of clients at once |
//! | `progress` | detects threads that no longer make progress |
//! | `workers` | the workers' threads |

pub(crate) mod allowed_hosts;
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
