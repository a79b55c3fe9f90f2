//! The UMEM: an arena as the kernel knows it.
//!
//! The first AF_XDP socket of an arena registers its memory; each later one names a socket that has
//! it and joins with `XDP_SHARED_UMEM`, with its own rings. From then on a frame's offset means the
//! same to all of them, and a frame received on one interface is sent on another by writing its
//! number into another ring.
//!
//! The arena holds weak references to its sockets, so that a new one can name one of them. When the
//! last of them is closed the kernel releases the UMEM, and the next socket registers it again.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// The sockets that share an arena's memory.
#[derive(Debug, Default)]
pub(crate) struct Umem {
    sockets: Vec<Weak<OwnedFd>>,
    /// Whether the sockets' packets may have several buffers, which the first socket determines.
    several_buffers: bool,
}

impl Umem {
    /// Returns a socket to share with, if one is left, and whether packets may have several buffers.
    pub(crate) fn any(&mut self) -> Option<(Arc<OwnedFd>, bool)> {
        self.sockets.retain(|socket| socket.strong_count() > 0);
        let socket = self.sockets.iter().find_map(Weak::upgrade)?;
        Some((socket, self.several_buffers))
    }

    /// Adds a socket that is bound to this UMEM.
    pub(crate) fn join(&mut self, socket: &Arc<OwnedFd>, several_buffers: bool) {
        self.several_buffers = several_buffers;
        self.sockets.push(Arc::downgrade(socket));
    }
}
