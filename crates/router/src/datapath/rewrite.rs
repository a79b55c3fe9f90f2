//! Rewrite: what changes in a packet before it leaves.
//!
//! ```text
//!   dst MAC | src MAC | kind |  … TTL-1 … checksum' …  | payload | padding
//!   └─ from the adjacency ─┘    └─── in the header ───┘            └ cut off
//! ```
//!
//! The MACs become the next hop's and the port's; the TTL or hop limit becomes one
//! less (RFC 1812, 5.3.1; RFC 8200, 3), and IPv4's checksum follows it by RFC
//! 1624; nothing else of the packet changes. Bytes behind the packet, other than
//! the padding of a short frame, are cut off: they are not part of it and might not
//! fit the link it leaves on.
//!
//! Nothing is written before all is decided: a packet that is dropped here is the
//! packet that came.
//!
//! An [`Adjacency`] is what a [`Hop`] means: sixteen bytes, four to a cache line,
//! the MACs in the order in which they stand in a frame.

use fib::Hop;
use wire::{ethernet, ipv4, ipv6};

use super::Verdict;

/// The shortest frame that Ethernet carries, without its check sequence.
const SHORTEST: usize = 60;

/// What a hop means: where a packet leaves and what it is given on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    dst_mac: [u8; 6],
    src_mac: [u8; 6],
    /// The port's number, or one of the two below.
    port: u16,
    mtu: u16,
}

const NOWHERE: u16 = u16::MAX;
const BLACKHOLE: u16 = u16::MAX - 1;

impl Adjacency {
    /// What no route means.
    pub const NONE: Self = Self { dst_mac: [0; 6], src_mac: [0; 6], port: NOWHERE, mtu: 0 };
    /// Where routes lead whose packets are to be dropped.
    pub const BLACKHOLE: Self = Self { port: BLACKHOLE, ..Self::NONE };
    /// The most ports a worker can have.
    pub const MOST_PORTS: usize = BLACKHOLE as usize;

    /// Makes the adjacency of a next hop with address `dst_mac` on the worker's
    /// port number `port`, whose own address is `src_mac` and whose link carries
    /// packets of at most `mtu` bytes.
    ///
    /// # Panics
    ///
    /// If the port's number is [`MOST_PORTS`](Self::MOST_PORTS) or above.
    pub fn new(port: u16, dst_mac: [u8; 6], src_mac: [u8; 6], mtu: u16) -> Self {
        assert!(usize::from(port) < Self::MOST_PORTS, "a worker has fewer ports than {port}");
        Self { dst_mac, src_mac, port, mtu }
    }

    /// Returns the port's number, or the verdict on what has none.
    #[inline(always)]
    pub fn port(&self) -> Result<u16, Verdict> {
        match self.port {
            NOWHERE => Err(Verdict::NoRoute),
            BLACKHOLE => Err(Verdict::Blackhole),
            port => Ok(port),
        }
    }

    /// Returns the next hop's MAC.
    pub fn dst_mac(&self) -> [u8; 6] {
        self.dst_mac
    }

    /// Returns the MAC of the port that packets leave on.
    pub fn src_mac(&self) -> [u8; 6] {
        self.src_mac
    }

    /// Returns the longest packet that the link carries, in bytes.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }
}

/// The adjacencies by [`Hop`]. A hop beyond the end means no route.
#[derive(Clone, Debug, Default)]
pub struct Adjacencies {
    by_hop: Vec<Adjacency>,
}

impl Adjacencies {
    /// Makes a table in which no hop means anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says what `hop` means from now on. [`Hop::NONE`] always means no route and
    /// is left so.
    pub fn set(&mut self, hop: Hop, adjacency: Adjacency) {
        let at = hop.0 as usize;
        if hop.is_some() {
            self.by_hop.resize(self.by_hop.len().max(at + 1), Adjacency::NONE);
            self.by_hop[at] = adjacency;
        }
    }

    /// Returns what `hop` means.
    #[inline(always)]
    pub fn get(&self, hop: Hop) -> &Adjacency {
        self.by_hop.get(hop.0 as usize).unwrap_or(&Adjacency::NONE)
    }
}

/// What the rewriting of a packet came to: the port to leave on and the frame's
/// length from now on, at most what it was.
pub type Rewritten = Result<(u16, usize), Verdict>;

/// Prepares an IPv4 packet that was parsed for leaving.
#[inline(always)]
pub fn rewrite_v4(frame: &mut [u8], adjacency: &Adjacency) -> Rewritten {
    let port = adjacency.port()?;
    let len = frame.len();
    let (ether, packet) =
        frame.split_first_chunk_mut::<{ ethernet::LEN }>().ok_or(Verdict::Runt)?;
    let mut packet = ipv4::View::parse(packet).map_err(|_| Verdict::Truncated)?;
    let total = packet.total_len();
    if total > adjacency.mtu {
        return Err(Verdict::TooBig);
    }
    packet.decrement_ttl();
    address(ether, adjacency);
    Ok((port, trimmed(len, usize::from(total))))
}

/// Prepares an IPv6 packet that was parsed for leaving.
#[inline(always)]
pub fn rewrite_v6(frame: &mut [u8], adjacency: &Adjacency) -> Rewritten {
    let port = adjacency.port()?;
    let len = frame.len();
    let (ether, packet) =
        frame.split_first_chunk_mut::<{ ethernet::LEN }>().ok_or(Verdict::Runt)?;
    let mut packet = ipv6::View::parse(packet).map_err(|_| Verdict::Truncated)?;
    let total = ipv6::LEN + usize::from(packet.payload_len());
    if total > usize::from(adjacency.mtu) {
        return Err(Verdict::TooBig);
    }
    packet.decrement_hop_limit();
    address(ether, adjacency);
    Ok((port, trimmed(len, total)))
}

#[inline(always)]
fn address(ether: &mut [u8; ethernet::LEN], adjacency: &Adjacency) {
    ether[..6].copy_from_slice(&adjacency.dst_mac);
    ether[6..12].copy_from_slice(&adjacency.src_mac);
}

/// Returns the length of a frame of `len` bytes with a packet of `total` in it once
/// what is behind the packet is cut off; a short frame keeps its padding.
#[inline(always)]
fn trimmed(len: usize, total: usize) -> usize {
    len.min((ethernet::LEN + total).max(SHORTEST))
}

const _: () = assert!(size_of::<Adjacency>() == 16);
