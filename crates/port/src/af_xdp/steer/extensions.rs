//! The code of other crates in the steering program.

use std::sync::Arc;

use super::blocked::BlockedSources;
use super::driver_path::DriverPath;
use super::ingress_filter::IngressFilter;

/// The code of other crates in the steering program, each part optional.
#[derive(Clone, Debug, Default)]
pub struct Extensions {
    /// Decides about every frame before the program.
    pub filter: Option<Arc<dyn IngressFilter>>,
    /// Forwards packets in front of the sockets.
    pub driver_path: Option<Arc<dyn DriverPath>>,
    /// Looks up the sources that a gate blocks, in front of the sockets.
    pub blocked: Option<Arc<dyn BlockedSources>>,
}
