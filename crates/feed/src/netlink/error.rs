//! Errors of the kernel feed.
//!
//! [`Damage`] is in the bytes of one message, which is skipped and counted; the feed continues.
//! [`Error`] is a failed system call or a refused request, and ends the feed.

use core::fmt;

use nix::errno::Errno;

/// The place of invalid bytes in a message, and what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The offset in bytes from the start of the receive buffer.
    pub at: usize,
    /// The description of what is invalid.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged at byte {}: {}", self.at, self.what)
    }
}

impl core::error::Error for Damage {}

/// The reason why the feed ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    System {
        /// The operation that failed.
        operation: &'static str,
        /// The system's error.
        source: Errno,
    },
    /// The kernel refused a request.
    Refused {
        /// The request.
        request: &'static str,
        /// The kernel's error.
        source: Errno,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { operation, source } => {
                write!(f, "{operation}: {}", source.desc())?;
                match source {
                    Errno::EPERM | Errno::EACCES => f.write_str(" (it requires CAP_NET_ADMIN)"),
                    Errno::EMFILE | Errno::ENFILE => {
                        f.write_str(" (raise the limit of open files)")
                    }
                    _ => Ok(()),
                }
            }
            Self::Refused { request, source } => {
                write!(f, "the kernel refuses {request}: {}", source.desc())?;
                match source {
                    Errno::EPERM => f.write_str(" (it requires CAP_NET_ADMIN)"),
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
