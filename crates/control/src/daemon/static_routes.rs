//! The routes of a daemon with static routes: read from the configuration's files at the start and at
//! each reload.
//!
//! ```text
//!   start, or a reload with other workers ─► files ─► tables built by all processors ─► a new plane
//!   another reload ─► files ─► sorted routes ─► control thread: the differences, one commit
//! ```
//!
//! A reload reads the files even if the configuration has not changed. All steps that can fail come
//! before the first change, except for an engine that has no room for the new routes: workers then
//! read the previous table, and the reload reports the error.

use std::thread::available_parallelism;

use super::{Daemon, RouteOrigin};
use crate::plane::{Plane, Ports};
use crate::routes::{RoutesError, StaticRoutes};
use crate::start::StartError;
use config::Config;

/// Builds the plane of a configuration; also returns the warnings of the files.
pub(super) fn build(config: &Config, ports: Ports) -> Result<(Plane, Vec<String>), StartError> {
    let keys = config.keys_without_effect();
    if !keys.is_empty() {
        return Err(StartError::NotStatic { keys });
    }
    let threads = available_parallelism().map_or(1, usize::from);
    let routes = StaticRoutes::read(config)?;
    let plane = Plane::with_static_routes(ports, routes.build(config, threads)?)?;
    Ok((plane, routes.warnings))
}

impl Daemon {
    /// Reads the routes of a configuration if this daemon has static routes.
    ///
    /// # Errors
    ///
    /// [`StartError`]: static routes with a kernel's daemon, keys of the kernel's routes with
    /// static ones, or a file that cannot be read.
    pub(super) fn read_routes(&self, config: &Config) -> Result<Option<StaticRoutes>, StartError> {
        match self.origin {
            RouteOrigin::Kernel if config.has_static_routes() => Err(StartError::StaticRoutes),
            RouteOrigin::Kernel => Ok(None),
            RouteOrigin::Static => {
                let keys = config.keys_without_effect();
                if !keys.is_empty() {
                    return Err(StartError::NotStatic { keys });
                }
                Ok(Some(StaticRoutes::read(config)?))
            }
        }
    }

    /// Changes the tables to `routes`, which were read for the current configuration; returns the
    /// number of changed routes.
    ///
    /// # Errors
    ///
    /// The engine has no room for the routes.
    pub(super) fn replace_routes(&mut self, mut routes: StaticRoutes) -> Result<u64, StartError> {
        self.warnings.append(&mut routes.warnings);
        let config = self.config.clone();
        let result = self.handle.call(move |sync| {
            let changed = routes.replace_in(&mut sync.plane, &config);
            sync.plane.commit();
            (changed, sync.plane.full())
        });
        match result {
            Some((_, Some((family, source)))) => Err(RoutesError::Full { family, source }.into()),
            Some((changed, None)) => Ok(changed),
            None => Err(StartError::NoAnswer),
        }
    }
}
