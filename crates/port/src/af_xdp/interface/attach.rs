//! Attaches the steering program to a device: in the driver or in the stack, in place of the program of a process before,
//! and so that it stays for the process after.
//!
//! ```text
//!   nothing attached            Link::attach, native first
//!   a stored link of the device StoredLink::adopt: each frame passes through one of the two programs
//!   store_link                  the service manager's copy keeps the program attached when the process ends
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

use super::{BPF, Capability, Error, Interface, ModeChoice, NET_ADMIN};
use crate::af_xdp::bpf::{AttachError, Link, LoadError, Mode, StoredLink};
use crate::af_xdp::steer::Steering;

impl Interface {
    /// Returns the kernel's number of the link of the attached program.
    pub fn link_id(&self) -> Option<u32> {
        self.attachment(|now| now.link.as_ref()?.id().ok())
    }

    /// Returns a copy of the link of the attached program for a service manager, and the place at which the program
    /// runs: from now on the end of this process leaves the program attached.
    ///
    /// # Errors
    ///
    /// The system's, if no descriptor is left.
    pub fn store_link(&self) -> io::Result<Option<(OwnedFd, Mode)>> {
        let mut now = self.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        let Some(link) = &mut now.link else { return Ok(None) };
        Ok(Some((link.store()?, link.mode())))
    }
}

/// Puts the program in place of that of a stored link, or attaches it as `choice` allows; returns the reason against the
/// driver, if that was tried.
pub(super) fn adopt_or_attach(
    steering: &Steering,
    index: u32,
    choice: ModeChoice,
    stored: Option<StoredLink>,
) -> (Result<Link, AttachError>, Option<String>) {
    let Some(stored) = stored else { return attach(steering, index, choice) };
    let may_stay = match stored.mode() {
        Mode::Generic => matches!(choice, ModeChoice::Generic | ModeChoice::Auto),
        Mode::Native => choice != ModeChoice::Generic,
    };
    if !may_stay {
        stored.detach();
        return attach(steering, index, choice);
    }
    match stored.adopt(&steering.program()) {
        Ok(link) => (Ok(link), None),
        Err(error) => {
            let (link, fallback) = attach(steering, index, choice);
            let reason =
                format!("the program of the process before could not be replaced: {error}");
            (link, fallback.or(Some(reason)))
        }
    }
}

/// Attaches the program as `choice` allows; returns the reason against the driver, if that was
/// tried.
pub(super) fn attach(
    steering: &Steering,
    index: u32,
    choice: ModeChoice,
) -> (Result<Link, AttachError>, Option<String>) {
    let attach = |mode| Link::attach(&steering.program(), index, mode);
    match choice {
        ModeChoice::Generic => (attach(Mode::Generic), None),
        _ => match attach(Mode::Native) {
            Err(
                why @ (AttachError::Unsupported
                | AttachError::Queues
                | AttachError::Mtu
                | AttachError::Other(_)),
            ) if choice == ModeChoice::Auto => (attach(Mode::Generic), Some(why.to_string())),
            other => (other, None),
        },
    }
}

/// Returns the error of a program that was not loaded; `rights` are those that it takes.
pub(super) fn program_error(error: LoadError, name: &str, rights: &[Capability]) -> Error {
    match error.cause.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if error.log.is_empty() => {
            Error::system("load the steering program", name, rights, error.cause)
        }
        _ => Error::Program(error),
    }
}

pub(super) fn attach_error(error: AttachError, name: &str, mtu: usize) -> Error {
    let interface = name.to_owned();
    let native =
        |because| Error::NoMode { interface: name.to_owned(), mode: "native XDP", because };
    match error {
        AttachError::Permission => Error::system(
            "attach the steering program",
            name,
            &[NET_ADMIN, BPF],
            io::Error::from_raw_os_error(libc::EPERM),
        ),
        AttachError::NoInterface => Error::NoInterface { interface },
        AttachError::Busy => Error::OtherProgram { interface },
        AttachError::Unsupported => native("the driver has none (choose `auto` or `generic`)"),
        AttachError::Queues => native(
            "the interface has fewer receive queues than its peer has transmit queues (set them equal with `ethtool -L`, or choose `auto` or `generic`)",
        ),
        // A page, less the headroom and the kernel's data behind a packet.
        AttachError::Mtu => Error::MtuTooLarge {
            interface,
            mtu,
            limit: 3506,
            limited_by: "native XDP, one page a packet,",
        },
        AttachError::Other(source) => {
            Error::System { doing: "attach the steering program", interface, source }
        }
    }
}
