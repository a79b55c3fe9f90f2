//! The source of a plane's routes, and the part of the kernel's state that is followed beside it.

use feed::fpm::Fpm;

/// The source of a plane's routes.
#[derive(Debug)]
pub enum RouteSource {
    /// The kernel.
    Kernel,
    /// FRR, by FPM.
    Fpm(Box<Fpm>),
    /// The configuration.
    Static,
}

/// The part of the kernel's state that the plane follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelScope {
    /// Everything.
    All,
    /// Everything but routes.
    WithoutRoutes,
    /// Links and own addresses.
    Links,
}

impl RouteSource {
    /// Returns the part of the kernel's state that the plane follows beside it.
    pub(super) fn scope(&self) -> KernelScope {
        match self {
            Self::Kernel => KernelScope::All,
            Self::Fpm(_) => KernelScope::WithoutRoutes,
            Self::Static => KernelScope::Links,
        }
    }

    /// Returns the server for FRR, if routes come from there.
    pub(super) fn fpm(&self) -> Option<&Fpm> {
        match self {
            Self::Fpm(fpm) => Some(fpm),
            Self::Kernel | Self::Static => None,
        }
    }
}
