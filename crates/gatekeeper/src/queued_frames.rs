//! The frames that wait in the link's queues, by number.
//!
//! The queues of [`gate::limit::link::Link`] hold small numbers, which are `Copy`. A frame is not, so
//! that exactly one place owns it: the slot with its number here, with what its transmission needs.

use gate::policy::Address;
use port::Frame;

use datapath::Key;

/// Where a packet goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// To its destination, unchanged.
    Destination(Key),
    /// To a grantor, in a tunnel.
    Grantor(Address),
    /// To the next hop toward the grantor, without a tunnel.
    Direct(Address),
}

/// A packet in a queue.
#[derive(Debug)]
pub(super) struct QueuedFrame {
    pub(super) frame: Frame,
    pub(super) target: Target,
    pub(super) dscp: u8,
    /// The flow's hash.
    pub(super) hash: u32,
}

/// A fixed number of slots for frames.
#[derive(Debug)]
pub(super) struct QueuedFrames {
    slots: Box<[Option<QueuedFrame>]>,
    free: Vec<u32>,
}

impl QueuedFrames {
    /// Allocates `slots` slots.
    pub(super) fn new(slots: usize) -> Self {
        let free = (0..slots as u32).rev().collect();
        Self { slots: (0..slots).map(|_| None).collect(), free }
    }

    /// Stores a packet and returns its number, or returns the packet if all slots are taken.
    pub(super) fn insert(&mut self, packet: QueuedFrame) -> Result<u32, QueuedFrame> {
        let Some(number) = self.free.pop() else { return Err(packet) };
        match self.slots.get_mut(number as usize) {
            Some(slot) => {
                *slot = Some(packet);
                Ok(number)
            }
            None => Err(packet),
        }
    }

    /// Removes and returns the packet with this number.
    pub(super) fn take(&mut self, number: u32) -> Option<QueuedFrame> {
        let packet = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(packet)
    }

    /// Removes and returns any packet.
    pub(super) fn pop(&mut self) -> Option<QueuedFrame> {
        let number = self.slots.iter().position(Option::is_some)?;
        self.take(number as u32)
    }

    /// Returns the number of packets.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
