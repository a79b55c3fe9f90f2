//! The observable state of a socket: counters, and packets that wait.
//!
//! A socket belongs to one thread, but other threads read its counters: its interface adds them up
//! over its queues. So the counters are in shared memory. Only the socket writes them, so that
//! adding is a load and a store; the kernel's own counters are read on request.

#![expect(unsafe_code, reason = "an empty value of a struct of the kernel's")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::descriptor::get;
use super::ring::RingDepth;
use crate::PortStats;

/// A counter with one writer.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Adds, for its one writer.
    #[inline]
    pub(super) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The shared counters of a socket.
#[derive(Debug)]
pub(super) struct SocketCounters {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) depth: RingDepth,
    pub(super) received: Count,
    pub(super) received_bytes: Count,
    pub(super) transmitted: Count,
    pub(super) transmitted_bytes: Count,
    pub(super) punted: Count,
    pub(super) tx_invalid: Count,
    /// Received packets of several buffers that found no long frame.
    pub(super) long_frame_missing: Count,
}

impl SocketCounters {
    pub(super) fn new(fd: Arc<OwnedFd>, depth: RingDepth) -> Self {
        Self {
            fd,
            depth,
            received: Count::default(),
            received_bytes: Count::default(),
            transmitted: Count::default(),
            transmitted_bytes: Count::default(),
            punted: Count::default(),
            tx_invalid: Count::default(),
            long_frame_missing: Count::default(),
        }
    }

    /// Counts the packets that wait in the receive ring.
    pub(super) fn waiting(&self) -> u64 {
        self.depth.get().into()
    }

    /// Reads the counters of this queue.
    pub(super) fn stats(&self) -> PortStats {
        // SAFETY: six integers, for which zero is a value.
        let mut kernel: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        // An older kernel fills in fewer; the others stay zero.
        let _ = get(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS, &mut kernel);
        // A packet that found no frame is counted by the kernel in both; a driver in zero-copy mode
        // that only looked for a frame, and lost nothing, in the former.
        let fill_empty = kernel.rx_fill_ring_empty_descs.min(kernel.rx_dropped);
        PortStats {
            received: self.received.get(),
            received_bytes: self.received_bytes.get(),
            transmitted: self.transmitted.get(),
            transmitted_bytes: self.transmitted_bytes.get(),
            punted: self.punted.get(),
            rx_ring_full: kernel.rx_ring_full,
            fill_empty: fill_empty + self.long_frame_missing.get(),
            rx_dropped: kernel.rx_dropped - fill_empty,
            tx_invalid: self.tx_invalid.get() + kernel.tx_invalid_descs,
            fill_ring_empty: kernel.rx_fill_ring_empty_descs,
            fill_invalid: kernel.rx_invalid_descs,
            tx_ring_empty: kernel.tx_ring_empty_descs,
            ..PortStats::default()
        }
    }
}
