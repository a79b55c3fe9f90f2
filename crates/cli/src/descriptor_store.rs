//! The service manager's descriptor store: a gate's front interface drops while no process of the gate runs.
//!
//! ```text
//!   gate runs        FDSTORE=1, FDNAME=front-native: a copy of the link of the front's program
//!   gate ends        in any way: the copy keeps the program attached; it has no sockets, and drops
//!   gate starts      LISTEN_FDS: its own program replaces that one in one step
//!   unit is stopped  the manager closes the copy: the program is detached
//! ```
//!
//! The unit allows it by `FileDescriptorStoreMax=`. Without a service manager, or without that setting, the kernel detaches
//! the program at the end of the process. A gate that fails open stores nothing.
//!
//! Source: `sd_notify(3)`, `sd_listen_fds(3)`.

use std::env;
use std::io;
use std::os::fd::AsFd;

use port::af_xdp::Interface;
use port::af_xdp::bpf::{Mode, StoredLink};
use sd_notify::NotifyState;

/// The names of the descriptors, by the place at which the program runs.
const NAMES: [(&str, Mode); 2] = [("front-native", Mode::Native), ("front-generic", Mode::Generic)];

/// Takes the link that the process before has stored, if there is one.
pub(crate) fn take_link() -> Option<StoredLink> {
    let passed = sd_notify::listen_fds_with_names().ok()?;
    let mut links = passed.filter_map(|(number, name)| {
        let (_, mode) = NAMES.into_iter().find(|(known, _)| *known == name)?;
        let link = StoredLink::open(number, mode);
        link.inspect_err(|error| log::warn!("{name} of the service manager's store: {error}")).ok()
    });
    links.next()
}

/// The state of the store.
#[derive(Debug, Default)]
pub(crate) struct DescriptorStore {
    /// The kernel's number of the link in it.
    stored: Option<u32>,
    /// Whether the store of a process before has been replaced.
    is_current: bool,
}

impl DescriptorStore {
    /// Stores the link of `interface`, in place of any other, if it is not stored yet; `None` removes the stored one.
    pub(crate) fn update(&mut self, interface: Option<&Interface>) {
        if env::var_os("NOTIFY_SOCKET").is_none() {
            return;
        }
        let link = interface.and_then(Interface::link_id);
        if (link, true) == (self.stored, self.is_current) {
            return;
        }
        (self.stored, self.is_current) = (link, true);
        if let Err(error) = replace(interface.filter(|_| link.is_some())) {
            log::warn!("the front interface passes packets while the gate does not run: {error}");
        }
    }
}

/// Replaces the descriptor in the store by the link of `interface`, or removes it.
fn replace(interface: Option<&Interface>) -> io::Result<()> {
    let link = interface.map_or(Ok(None), Interface::store_link)?;
    for (name, _) in NAMES {
        sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)])?;
    }
    let Some((link, mode)) = link else { return Ok(()) };
    let name = NAMES.into_iter().find(|(_, known)| *known == mode).map_or("", |(name, _)| name);
    sd_notify::notify_with_fds(&[NotifyState::FdStore, NotifyState::FdName(name)], &[link.as_fd()])
}
