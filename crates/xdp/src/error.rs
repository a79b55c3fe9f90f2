//! The error of a program that is not loaded, or not in its place.

use std::error::Error;
use std::fmt;
use std::io;

use port::af_xdp::bpf::LoadError;
use port::af_xdp::bpf::asm::BadCode;

/// The reason why a program was not loaded, or is not in its place.
#[derive(Debug)]
pub enum ProgramError {
    /// The code is malformed.
    Code(BadCode),
    /// The kernel has refused it.
    Load(LoadError),
    /// The kernel has not replaced a function by it.
    Attach(io::Error),
}

impl From<BadCode> for ProgramError {
    fn from(error: BadCode) -> Self {
        Self::Code(error)
    }
}

impl From<LoadError> for ProgramError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(error) => error.fmt(f),
            Self::Load(error) => error.fmt(f),
            Self::Attach(error) => {
                write!(f, "the kernel did not replace the function: {error}")?;
                match error.kind() {
                    io::ErrorKind::ResourceBusy => f.write_str(" (by another process already)"),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl Error for ProgramError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Code(error) => Some(error),
            Self::Load(error) => Some(error),
            Self::Attach(error) => Some(error),
        }
    }
}
