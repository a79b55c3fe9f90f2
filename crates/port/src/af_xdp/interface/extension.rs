//! The exchange of the code of other crates in an interface's steering program.
//!
//! ```text
//!   new code ─► program with it and with the other parts, loaded ─► replaces the present one ─► kept
//! ```
//!
//! Each frame passes through the former program or the new one. Switches, maps and counters stay. If the kernel
//! refuses the new program, the former one stays.

use std::sync::{Arc, PoisonError};

use super::{BPF, Error, Interface, NET_ADMIN, PERFMON, program_error};
use crate::af_xdp::steer::{BlockedSources, DriverPath, Extensions, IngressFilter};

impl Interface {
    /// Forwards packets by `path` from now on, or by none.
    ///
    /// # Errors
    ///
    /// [`Error`]; the former path stays.
    pub fn set_driver_path(&self, path: Option<Arc<dyn DriverPath>>) -> Result<(), Error> {
        self.extend(|extensions| {
            let changes = path.is_some() || extensions.driver_path.is_some();
            extensions.driver_path = path;
            changes
        })
    }

    /// Drops packets of these sources on a gate's interface from now on, or of none.
    ///
    /// # Errors
    ///
    /// [`Error`]; the former sources stay.
    pub fn set_blocked(&self, sources: Option<Arc<dyn BlockedSources>>) -> Result<(), Error> {
        self.extend(|extensions| {
            extensions.blocked = sources;
            true
        })
    }

    /// Returns whether frames pass through this filter, or through none.
    pub fn has_filter(&self, filter: Option<&Arc<dyn IngressFilter>>) -> bool {
        let now = self.0.attachment.read().unwrap_or_else(PoisonError::into_inner);
        match (&now.extensions.filter, filter) {
            (Some(present), Some(filter)) => Arc::ptr_eq(present, filter),
            (present, filter) => present.is_none() && filter.is_none(),
        }
    }

    /// Drops frames by `filter` from now on, or none.
    ///
    /// # Errors
    ///
    /// [`Error`]; the former filter stays.
    pub fn set_filter(&self, filter: Option<Arc<dyn IngressFilter>>) -> Result<(), Error> {
        self.extend(|extensions| {
            let changes = filter.is_some() || extensions.filter.is_some();
            extensions.filter = filter;
            changes
        })
    }

    /// Has `change` change the extensions, and unless it returns false puts a program with them in place of the
    /// present one.
    fn extend(&self, change: impl FnOnce(&mut Extensions) -> bool) -> Result<(), Error> {
        let mut now = self.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        let mut extensions = now.extensions.clone();
        if !change(&mut extensions) {
            return Ok(());
        }
        let rights = &[BPF, NET_ADMIN, PERFMON];
        let program = self.0.steering.load_with(&extensions);
        let program = program.map_err(|error| program_error(error, &now.name, rights))?;
        let replaced = now.link.as_ref().map_or(Ok(()), |link| link.replace(&program));
        replaced.map_err(|cause| {
            Error::system("replace the steering program", &now.name, rights, cause)
        })?;
        self.0.steering.set_program(program);
        now.extensions = extensions;
        Ok(())
    }
}
