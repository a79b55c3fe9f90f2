//! What can be wrong between the kernel and us: what, where, and what to do.
//!
//! Two kinds. [`Damage`] is in the bytes of one message, which is left out and
//! counted; the feed goes on. [`Error`] is what the system refuses, and ends it.

use core::fmt;

use nix::errno::Errno;

/// Says where in the bytes received something cannot be, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The offset in bytes, counted from the start of what was received.
    pub at: usize,
    /// What cannot be.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged at byte {}: {}", self.at, self.what)
    }
}

impl core::error::Error for Damage {}

/// The reason why the kernel cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    System {
        /// What was being done.
        operation: &'static str,
        /// What the system said.
        source: Errno,
    },
    /// The kernel refused a request.
    Refused {
        /// What was asked for.
        request: &'static str,
        /// What it said.
        source: Errno,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { operation, source } => {
                write!(f, "{operation}: {}", source.desc())?;
                match source {
                    Errno::EPERM | Errno::EACCES => f.write_str(" (it takes CAP_NET_ADMIN)"),
                    Errno::EMFILE | Errno::ENFILE => {
                        f.write_str(" (raise the limit of open files)")
                    }
                    _ => Ok(()),
                }
            }
            Self::Refused { request, source } => {
                write!(f, "the kernel refuses {request}: {}", source.desc())?;
                match source {
                    Errno::EPERM => f.write_str(" (it takes CAP_NET_ADMIN)"),
                    Errno::ENODEV => f.write_str(" (there is no such interface any more)"),
                    Errno::ENETDOWN => f.write_str(" (the interface is down)"),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        let (Self::System { source, .. } | Self::Refused { source, .. }) = self;
        Some(source)
    }
}
