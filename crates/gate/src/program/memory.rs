//! The memory of a run: regions, their addresses and sizes, and the checked access to them.
//!
//! ```text
//!   address   region:32 | offset:32
//!             1 context   2 stack   3 cookie   4 packet's description   5 packet
//!             6 clock's rates       7 constants of the file
//! ```
//!
//! Addresses are virtual: a region's number in the upper half, an offset in the lower. Every access
//! is a slice operation within its region; one that leaves it does nothing and fails. Calls of
//! helpers are here because they return addresses.

use super::insn::Helper;

/// Size of the stack in bytes.
pub(super) const STACK: usize = 512;
/// Size of the packet's description in bytes (`packet.rs`).
pub(super) const DESCRIPTION: usize = 32;

/// Nanoseconds in a second and in a millisecond: the rates of the clock of `now`.
pub(super) const RATES: [u64; 2] = [1_000_000_000, 1_000_000];
/// The rates as bytes in memory.
const RATE_BYTES: [u8; 16] = {
    let (sec, ms) = (RATES[0].to_le_bytes(), RATES[1].to_le_bytes());
    let mut bytes = [0; 16];
    let mut at = 0;
    while at < 8 {
        (bytes[at], bytes[8 + at]) = (sec[at], ms[at]);
        at += 1;
    }
    bytes
};

pub(super) const CONTEXT: u64 = 1 << 32;
pub(super) const STACK_AT: u64 = 2 << 32;
const COOKIE: u64 = 3 << 32;
const PACKET: u64 = 4 << 32;
/// The address of the packet's first byte.
pub(super) const BYTES: u64 = 5 << 32;
pub(super) const CLOCK: u64 = 6 << 32;
pub(super) const RODATA: u64 = 7 << 32;

/// The arguments of a program's `gk_bpf_prep_for_tx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The DSCP, 1 to 63.
    pub priority: u8,
    /// Whether the packet is delivered without the grantor.
    pub direct: bool,
}

/// The memory of a run.
pub(super) struct Memory<'a> {
    pub(super) context: &'a [u8],
    pub(super) stack: &'a mut [u8; STACK],
    pub(super) cookie: &'a mut [u8; 64],
    pub(super) description: &'a [u8; DESCRIPTION],
    pub(super) bytes: &'a [u8],
    pub(super) prepared: Option<Prepared>,
}

impl Memory<'_> {
    #[inline]
    pub(super) fn load(&self, rodata: &[u8], address: u64, size: usize) -> Option<u64> {
        let at = address as u32 as usize;
        let region: &[u8] = match address & !0xffff_ffff {
            STACK_AT => &self.stack[..],
            COOKIE => &self.cookie[..],
            BYTES => self.bytes,
            PACKET => &self.description[..],
            CONTEXT => self.context,
            RODATA => rodata,
            CLOCK => &RATE_BYTES,
            _ => return None,
        };
        read(region.get(at..)?, size)
    }

    #[inline]
    pub(super) fn store(&mut self, address: u64, size: usize, value: u64) -> Option<()> {
        let at = address as u32 as usize;
        let region: &mut [u8] = match address & !0xffff_ffff {
            STACK_AT => &mut self.stack[..],
            COOKIE => &mut self.cookie[..],
            _ => return None,
        };
        let to = region.get_mut(at..)?.get_mut(..size)?;
        to.copy_from_slice(&value.to_le_bytes()[..size]);
        Some(())
    }

    pub(super) fn call(&mut self, helper: i32, regs: &mut [u64; 16]) -> Option<()> {
        regs[0] = match Helper::by_number(helper)? {
            Helper::InitCookie | Helper::PacketCookie => COOKIE,
            Helper::Packet => PACKET,
            Helper::Prepare => match (regs[2], regs[3]) {
                (priority @ 1..64, direct) if direct == 0 || priority == 1 => {
                    let direct = direct != 0;
                    self.prepared = Some(Prepared { priority: priority as u8, direct });
                    0
                }
                _ => {
                    self.prepared = None;
                    u64::MAX
                }
            },
        };
        Some(())
    }
}

#[inline(always)]
fn read(from: &[u8], size: usize) -> Option<u64> {
    Some(match size {
        1 => u64::from(*from.first()?),
        2 => u64::from(u16::from_le_bytes(*from.first_chunk()?)),
        4 => u64::from(u32::from_le_bytes(*from.first_chunk()?)),
        _ => u64::from_le_bytes(*from.first_chunk()?),
    })
}
