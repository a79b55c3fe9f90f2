//! An adjacency: the port, MAC addresses and MTU that a hop of the tables stands for.
//!
//! ```text
//!   0        6        12     14    16
//!   +--------+--------+------+-----+
//!   | dst    | src    | port | mtu |     four to a cache line
//!   +--------+--------+------+-----+
//! ```
//!
//! Adjacencies are published apart from the tables ([`Adjacencies`](super::Adjacencies)).

use super::Verdict;

/// The adjacency of a hop: the port that a packet leaves on, and the MAC addresses that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// The destination and the source, as in a frame.
    macs: [u8; 12],
    /// The port's number, or one of the constants below.
    port: u16,
    /// The link's MTU. If `port` is one of the constants: the number of the port that the next hop
    /// is behind plus one, or 0 for none.
    mtu: u16,
}

const NOWHERE: u16 = u16::MAX;
const BLACKHOLE: u16 = u16::MAX - 1;
const HOST: u16 = u16::MAX - 2;
const GROUP: u16 = u16::MAX - 3;
const UNREACHABLE: u16 = u16::MAX - 4;
const PROHIBIT: u16 = u16::MAX - 5;
const UNRESOLVED: u16 = u16::MAX - 6;

impl Adjacency {
    /// The adjacency of a hop without a route.
    pub const NONE: Self = Self { macs: [0; 12], port: NOWHERE, mtu: 0 };
    /// The adjacency of blackhole routes, whose packets are dropped.
    pub const BLACKHOLE: Self = Self { port: BLACKHOLE, ..Self::NONE };
    /// The adjacency of routes of type `unreachable`, whose packets are dropped with an answer.
    pub const UNREACHABLE: Self = Self { port: UNREACHABLE, ..Self::NONE };
    /// The adjacency of routes of type `prohibit`, whose packets are dropped with an answer.
    pub const PROHIBIT: Self = Self { port: PROHIBIT, ..Self::NONE };
    /// The adjacency of routes to the host's own stack.
    pub const HOST: Self = Self { port: HOST, ..Self::NONE };
    /// Makes the adjacency of an unresolved next hop behind a port: its MAC address is not known.
    /// Packets wait a limited time for a resolved adjacency, and the worker requests it
    /// (`want.rs`).
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    pub fn unresolved(port: u16) -> Self {
        Self { port: UNRESOLVED, ..Self::NONE }.behind(port)
    }

    /// Sets the port whose link the next hop is on, for an adjacency by which the router itself
    /// sends no packets, such as [`HOST`](Self::HOST). The reverse path filter uses it. An
    /// adjacency that has a port is returned unchanged.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    #[must_use]
    pub fn behind(self, port: u16) -> Self {
        assert!(usize::from(port) < Self::MOST_PORTS, "a worker has fewer ports than {port}");
        if usize::from(self.port) < Self::MOST_PORTS {
            self
        } else {
            Self { mtu: port + 1, ..self }
        }
    }

    /// The placeholder for a hop that stands for a group.
    pub(super) const GROUP: Self = Self { port: GROUP, ..Self::NONE };
    /// The most ports a worker can have.
    pub const MOST_PORTS: usize = UNRESOLVED as usize;

    /// Makes the adjacency of a next hop with address `dst_mac` on the worker's
    /// port number `port`, whose own address is `src_mac` and whose link carries
    /// packets of at most `mtu` bytes.
    ///
    /// # Panics
    ///
    /// If the port's number is [`MOST_PORTS`](Self::MOST_PORTS) or above.
    pub fn new(port: u16, dst_mac: [u8; 6], src_mac: [u8; 6], mtu: u16) -> Self {
        assert!(usize::from(port) < Self::MOST_PORTS, "a worker has fewer ports than {port}");
        let ([a, b, c, d, e, f], [g, h, i, j, k, l]) = (dst_mac, src_mac);
        Self { macs: [a, b, c, d, e, f, g, h, i, j, k, l], port, mtu }
    }

    /// Makes the adjacency whose parts [`macs`](Self::macs), [`number`](Self::number) and [`mtu`](Self::mtu)
    /// returned.
    #[inline(always)]
    pub(super) fn from_parts(macs: [u8; 12], number: u16, mtu: u16) -> Self {
        Self { macs, port: number, mtu }
    }

    /// Returns the adjacency for packets of at most `mtu` bytes: that of a route with an MTU of its own, where
    /// the link carries longer packets.
    #[must_use]
    pub fn limited_to(self, mtu: u16) -> Self {
        if self.port().is_ok() { Self { mtu: self.mtu.min(mtu), ..self } } else { self }
    }

    /// Returns the port's number, or the verdict of an adjacency without a port.
    #[inline(always)]
    pub fn port(&self) -> Result<u16, Verdict> {
        match self.port {
            // A group is replaced by a member before this call; a group in a group is no route.
            NOWHERE | GROUP => Err(Verdict::NoRoute),
            BLACKHOLE => Err(Verdict::Blackhole),
            UNREACHABLE => Err(Verdict::UnreachableRoute),
            PROHIBIT => Err(Verdict::ProhibitRoute),
            HOST => Err(Verdict::HostRoute),
            UNRESOLVED => Err(Verdict::Unresolved),
            port => Ok(port),
        }
    }

    /// Returns the port that the next hop is behind, whether packets can leave there
    /// now or not.
    #[inline]
    pub fn exit(&self) -> Option<u16> {
        match self.port {
            port if usize::from(port) < Self::MOST_PORTS => Some(port),
            _ => self.mtu.checked_sub(1),
        }
    }

    /// Returns whether packets are delivered at all: false without a route, and for a route that
    /// discards them.
    #[inline]
    pub fn leads(&self) -> bool {
        !matches!(self.port, NOWHERE | BLACKHOLE | UNREACHABLE | PROHIBIT | GROUP)
    }

    /// Returns whether its hop stands for a group.
    #[inline(always)]
    pub(super) fn is_group(&self) -> bool {
        self.port == GROUP
    }

    /// Returns the next hop's MAC.
    #[inline(always)]
    pub fn dst_mac(&self) -> [u8; 6] {
        let [mac @ .., _, _, _, _, _, _] = self.macs;
        mac
    }

    /// Returns the MAC of the port that packets leave on.
    #[inline(always)]
    pub fn src_mac(&self) -> [u8; 6] {
        let [_, _, _, _, _, _, mac @ ..] = self.macs;
        mac
    }

    /// Returns the port's number; a number from [`MOST_PORTS`](Self::MOST_PORTS) on is no port.
    #[inline(always)]
    pub(super) const fn number(&self) -> u16 {
        self.port
    }

    /// Returns both MACs in the order of a frame.
    #[inline(always)]
    pub(super) const fn macs(&self) -> [u8; 12] {
        self.macs
    }

    /// Returns the longest packet that the link carries, in bytes.
    #[inline(always)]
    pub const fn mtu(&self) -> u16 {
        self.mtu
    }
}

const _: () = assert!(size_of::<Adjacency>() == 16);
