//! Counters of packets and bytes, and what the filter and its watches have on the program's stack.

use std::io;

use port::af_xdp::bpf::Map;
use port::af_xdp::bpf::asm::Reg::{R0, R1, R7};
use port::af_xdp::bpf::asm::{Assembler, Size};

/// The bytes of an entry: packets, bytes.
pub(super) const ENTRY: usize = 16;

/// The key of an entry, on the stack.
pub(super) const KEY: i16 = -4;
/// The source as a number of 128 bits, on the stack: its halves. That of IPv4 is mapped (RFC 4291, 2.5.5.2).
pub(super) const SOURCE: [i16; 2] = [-16, -24];

/// The part of a mapped address that is not the address.
pub(super) const MAPPED: u64 = 0xffff << 32;

/// Packets and their bytes, Ethernet headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The packets.
    pub packets: u64,
    /// Their bytes in the first buffer of a frame, which is all of it up to the size of a page.
    pub bytes: u64,
}

/// Appends code that counts a packet of r7 bytes in the entry at r0.
pub(super) fn append_count(asm: &mut Assembler<'_>) {
    // No other packet of this CPU comes between: additions need not be atomic.
    asm.load(Size::Double, R1, R0, 0)
        .add(R1, 1)
        .store(Size::Double, R0, 0, R1)
        .load(Size::Double, R1, R0, 8)
        .add(R1, R7)
        .store(Size::Double, R0, 8, R1);
}

/// Returns an entry of counters, summed over the CPUs.
pub(super) fn read_count(counts: &Map, index: usize) -> io::Result<Count> {
    let values = counts.percpu(index as u32)?;
    Ok(values.iter().fold(Count::default(), |sum, value| Count {
        packets: sum.packets.wrapping_add(number(&value[..8])),
        bytes: sum.bytes.wrapping_add(number(&value[8..])),
    }))
}

fn number(bytes: &[u8]) -> u64 {
    <[u8; 8]>::try_from(bytes).map_or(0, u64::from_ne_bytes)
}
