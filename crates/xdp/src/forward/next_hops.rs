//! Next hops in the kernel: the MAC and the link of each hop, and the device of each link.
//!
//! ```text
//!   hops[hop]    ┌ MAC:6 │ link:2 ┬ used:8 ┐        0: not forwarded in the driver; a group: `groups.rs`
//!   links[link]  ┌ MAC:6 │ MTU:2 ┬ tag:4 │ tag:4 ┐  0: not forwarded in the driver; tags as in a frame, 0: none
//!   devices[link] ─► device                         a map of devices (DEVMAP)
//!   vlans[tags, link] ─► link                       the device of frames with tags that a link receives
//! ```
//!
//! A next hop, and a link without its tags, is one word of 8 bytes, which this process stores in one step: no program
//! sees half of a change. A word begins with the MAC as it is in a frame; the numbers behind it are in network order.
//! A link that becomes one of another device is none in between ([`NextHops::set_link`]).
//!
//! **Order.** A hop has its next hop before a table leads to it. A hop that is given to another target has been in no
//! table since every program of that time has ended ([`KernelTable::has_passed`](crate::KernelTable::has_passed)).
//!
//! **Use.** The kernel confirms neighbors that it sends packets to itself, and does not see those of the path. So the
//! program marks each hop that it uses; [`NextHops::take_used`] takes the marks.
//!
//! Limits: [`MAX_HOPS`] hops and [`MAX_LINKS`] links, 16,384 VLAN devices that receive; packets of others are left to the
//! worker.

use std::io;
use std::sync::atomic::Ordering;

use fib::Hop;
use port::af_xdp::bpf::{Kind, Map, MappedArray};

use super::Samples;
use super::groups::Buckets;

/// The number of hops: those below.
pub const MAX_HOPS: u32 = 1 << 16;
/// The number of links: those below.
pub const MAX_LINKS: u16 = 1 << 12;
/// The maximum number of entries of `vlans`.
const MAX_VLANS: u32 = 1 << 14;

/// The number in place of a link's for a hop that stands for a group.
pub(super) const GROUP: u16 = u16::MAX;

/// The words of an entry of a hop, of which the second is the mark.
const HOP_WORDS: usize = 2;
/// The words of an entry of a link, of which the second has the tags.
const LINK_WORDS: usize = 2;

/// The next hop of packets with a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its MAC.
    pub mac: [u8; 6],
    /// The number of the link that it is on.
    pub link: u16,
}

/// A link that packets leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressLink {
    /// The index of its device.
    pub device: u32,
    /// The MAC of the device.
    pub mac: [u8; 6],
    /// The longest packet, in bytes.
    pub mtu: u16,
    /// The tags of its frames.
    pub tags: Tags,
}

/// The VLAN tags of a frame, as they are in it: each with its type, and with the priority 0; the outer one first. Zeros in
/// place of a tag that there is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tags([u8; 8]);

impl Tags {
    /// No tag.
    pub const NONE: Self = Self([0; 8]);

    /// Makes the tags of a device, each by its type and VLAN identifier; `None` if there are more than two.
    pub fn new(tags: impl IntoIterator<Item = (u16, u16)>) -> Option<Self> {
        let mut bytes = [0; 8];
        let mut places = bytes.as_chunks_mut::<4>().0.iter_mut();
        for (protocol, id) in tags {
            let ([a, b], [c, d]) = (protocol.to_be_bytes(), id.to_be_bytes());
            *places.next()? = [a, b, c, d];
        }
        Some(Self(bytes))
    }

    /// Returns whether there is no tag.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }
}

/// The next hops and links of all programs.
#[derive(Debug)]
pub struct NextHops {
    pub(super) hops: MappedArray,
    pub(super) links: MappedArray,
    pub(super) devices: Map,
    pub(super) vlans: Map,
    pub(super) samples: Samples,
    pub(super) buckets: Buckets,
}

impl NextHops {
    /// Creates the arrays, without any next hop.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)` for a map: `EPERM` without `CAP_BPF`.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            hops: MappedArray::one_value("next_hops", MAX_HOPS * HOP_WORDS as u32)?,
            links: MappedArray::one_value("links", u32::from(MAX_LINKS) * LINK_WORDS as u32)?,
            devices: Map::array(Kind::Devmap, "devices", 4, MAX_LINKS.into())?,
            vlans: Map::new(Kind::Hash, "vlans", 12, 4, MAX_VLANS)?,
            samples: Samples::new()?,
            buckets: Buckets::new()?,
        })
    }

    /// Sets the next hop of packets with `hop`; `None` leaves them to the worker. Has no effect on a hop beyond
    /// the limit, whose packets are the worker's.
    pub fn set_hop(&self, hop: Hop, next: Option<NextHop>) {
        self.store_hop(hop, next.map_or(0, |NextHop { mac, link }| packed(mac, link)));
    }

    /// Lets `hop` stand for a group: with these buckets, a power of two and at most
    /// [`BUCKETS`](super::groups::BUCKETS), in a slot below [`MAX_GROUPS`](super::groups::MAX_GROUPS) that no other hop
    /// has. Its members must have been set before.
    pub fn set_group(&self, hop: Hop, slot: u16, buckets: &[Hop]) {
        self.buckets.set(slot, buckets);
        let [high, low] = slot.to_be_bytes();
        self.store_hop(hop, packed([high, low, 0, 0, 0, 0], GROUP));
    }

    fn store_hop(&self, hop: Hop, value: u64) {
        if let Some(word) = self.hops.get(hop.0 as usize * HOP_WORDS)
            && hop.is_some()
            && word.load(Ordering::Relaxed) != value
        {
            word.store(value, Ordering::Release);
        }
    }

    /// Sets the link with this number; `None` leaves packets for it to the worker.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `ENODEV` if the device has gone, `E2BIG` beyond the limit. Packets for it are then
    /// left to the worker.
    pub fn set_link(&self, number: u16, link: Option<EgressLink>) -> io::Result<()> {
        let word = |at| self.links.get(usize::from(number) * LINK_WORDS + at);
        let (Some(word), Some(tags)) = (word(0), word(1)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let value = link.map_or(0, |EgressLink { mac, mtu, .. }| packed(mac, mtu));
        // Packets are the worker's until the device and the tags are right for the word.
        word.store(0, Ordering::Release);
        tags.store(link.map_or(0, |link| u64::from_ne_bytes(link.tags.0)), Ordering::Release);
        let key = u32::from(number).to_ne_bytes();
        match link {
            Some(EgressLink { device, .. }) => self.devices.update(&key, &device.to_ne_bytes())?,
            None => drop(self.devices.delete(&key)?),
        }
        word.store(value, Ordering::Release);
        Ok(())
    }

    /// Sets the link of frames that the link `below` receives with these tags; `None` leaves them to the worker.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `E2BIG` beyond 16,384 pairs of a link and tags.
    pub fn set_vlan(&self, below: u16, tags: Tags, link: Option<u16>) -> io::Result<()> {
        let mut key = [0; 12];
        key[..8].copy_from_slice(&tags.0);
        key[8..].copy_from_slice(&u32::from(below).to_ne_bytes());
        match link {
            Some(link) => self.vlans.update(&key, &u32::from(link).to_ne_bytes()),
            None => self.vlans.delete(&key).map(drop),
        }
    }

    /// Returns the samples of packets.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Returns the hops that packets have used since the last call.
    pub fn take_used(&self) -> impl Iterator<Item = Hop> + '_ {
        (1..MAX_HOPS).filter_map(|hop| {
            let mark = self.hops.get(hop as usize * HOP_WORDS + 1)?;
            let used = mark.load(Ordering::Relaxed) != 0;
            used.then(|| {
                mark.store(0, Ordering::Relaxed);
                Hop(hop)
            })
        })
    }
}

/// Returns the word with a MAC and a number behind it.
fn packed([a, b, c, d, e, f]: [u8; 6], number: u16) -> u64 {
    let [high, low] = number.to_be_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, high, low])
}
