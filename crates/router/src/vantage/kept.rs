//! Frames that wait in the link's queues, by number.
//!
//! Queues hold small numbers that can be copied; a frame cannot be, so that it is in one
//! place. Here is which number stands for which frame, and what it needs when it leaves.

use gate::policy::Address;
use port::Frame;

use crate::datapath::Key;

/// Where a packet goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    /// To its destination, as it is.
    Destination(Key),
    /// To a grantor, in a tunnel.
    Grantor(Address),
    /// The way that leads to the grantor, without a tunnel.
    Direct(Address),
}

/// A packet that waits.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) frame: Frame,
    pub(super) to: To,
    pub(super) dscp: u8,
    /// The flow's hash.
    pub(super) hash: u32,
}

/// A fixed number of places.
#[derive(Debug)]
pub(super) struct Kept {
    places: Box<[Option<Waits>]>,
    free: Vec<u32>,
}

impl Kept {
    /// Makes room for so many packets.
    pub(super) fn new(places: usize) -> Self {
        let free = (0..places as u32).rev().collect();
        Self { places: (0..places).map(|_| None).collect(), free }
    }

    /// Puts a packet in and returns its number, or gives it back where there is no room.
    pub(super) fn put(&mut self, waits: Waits) -> Result<u32, Waits> {
        let Some(number) = self.free.pop() else { return Err(waits) };
        match self.places.get_mut(number as usize) {
            Some(place) => {
                *place = Some(waits);
                Ok(number)
            }
            None => Err(waits),
        }
    }

    /// Takes the packet of a number out.
    pub(super) fn take(&mut self, number: u32) -> Option<Waits> {
        let waits = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(waits)
    }

    /// Takes any packet out.
    pub(super) fn pop(&mut self) -> Option<Waits> {
        let number = self.places.iter().position(Option::is_some)?;
        self.take(number as u32)
    }

    /// Counts the packets.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
