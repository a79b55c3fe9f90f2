//! Declined flows: packets that end in the kernel, at the least cost.
//!
//! ```text
//!   to be taken ─► flow in the map? ─► not expired? ─► dropped, counted with its bytes
//!                      │ no                │ expired
//!                      └──────► socket ◄───┘
//! ```
//!
//! The idea is the thesis's SmartNIC (Fu, 2020, chapter 5), in the driver: the maps have the flows,
//! pairs of addresses, that a gate has declined, each with its expiry by the kernel's monotonic
//! clock, and the steering program drops their packets. An expired entry needs no update: the next
//! packet is taken again.
//!
//! The maps are LRU hashes: a new flow in a full map evicts the least recently used one, whose
//! packets then reach the gate again and are dropped there. A lost entry costs time but no packet.
//!
//! The steering program of an interface without such maps omits the lookup.

use std::io;
use std::net::IpAddr;

use super::super::bpf::asm::{Assembler, Cond, Helper, Label, Reg, Size};
use super::super::bpf::{Kind, Map};
use super::flow_key::{self, FLOW};
use Reg::{R0, R8};

/// The maps of one interface.
#[derive(Debug)]
pub(super) struct DeclinedFlows {
    /// Source and destination address to the expiry, in nanoseconds.
    v4: Map,
    v6: Map,
    bytes: Map,
}

/// A flow in the order of a header.
fn key(src: IpAddr, dst: IpAddr) -> Option<Vec<u8>> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some([src.octets(), dst.octets()].concat()),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some([src.octets(), dst.octets()].concat()),
        _ => None,
    }
}

impl DeclinedFlows {
    /// Creates maps of this many flows of each family.
    pub(super) fn new(flows: u32) -> io::Result<Self> {
        Ok(Self {
            v4: Map::new(Kind::LruHash, "fp_declined4", 8, 8, flows)?,
            v6: Map::new(Kind::LruHash, "fp_declined6", 32, 8, flows)?,
            bytes: Map::array(Kind::PercpuArray, "fp_declined", 8, 1)?,
        })
    }

    fn map(&self, key: &[u8]) -> &Map {
        if key.len() == 8 { &self.v4 } else { &self.v6 }
    }

    /// Drops a flow's packets until this time of the monotonic clock.
    pub(super) fn decline(&self, src: IpAddr, dst: IpAddr, until: u64) -> io::Result<()> {
        let key = key(src, dst).ok_or(io::ErrorKind::InvalidInput)?;
        self.map(&key).update(&key, &until.to_ne_bytes())
    }

    /// Takes a flow's packets again, and returns whether they were dropped.
    pub(super) fn readmit(&self, src: IpAddr, dst: IpAddr) -> io::Result<bool> {
        let key = key(src, dst).ok_or(io::ErrorKind::InvalidInput)?;
        self.map(&key).delete(&key)
    }

    /// Counts the bytes dropped, with Ethernet headers and without the link's padding.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        self.bytes.counter(0)
    }

    /// Emits code for a packet whose flow is on the stack: jumps to `drop` if it is declined, else
    /// continues.
    pub(super) fn emit_check<'m>(&'m self, asm: &mut Assembler<'m>, drop: Label) {
        let (six, found, over) = (asm.label(), asm.label(), asm.label());
        asm.jump_if32(Cond::Eq, R8, 6, six);
        for (map, last) in [(&self.v4, false), (&self.v6, true)] {
            if last {
                asm.bind(six);
            }
            asm.map_lookup(map, FLOW).jump_if(Cond::Ne, R0, 0, found).jump(over);
        }
        asm.bind(found).load(Size::Double, R8, R0, 0).call(Helper::KtimeNs).jump_if(
            Cond::Ge,
            R0,
            R8,
            over,
        );
        flow_key::emit_count(asm, &self.bytes, drop);
        asm.bind(over);
    }
}
