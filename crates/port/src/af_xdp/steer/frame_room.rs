//! Frames that the sockets cannot receive: the host forwards them.
//!
//! ```text
//!   to be taken ─► longer than a frame of the arena? ──► socket
//!                      │ yes
//!                      └──► host
//! ```
//!
//! A socket receives a packet in one frame of its arena, or in several buffers (`XDP_USE_SG`, Linux 6.6) of
//! which a long frame is made; the kernel drops longer ones. With a larger MTU, most packets still fit. Only a router's program has the check: past a gate or a grantor, the
//! host would forward a packet undecided, so these refuse an MTU whose packets do not fit the frames.
//!
//! The check needs Linux 5.18. Drivers divide a long frame into several buffers, if the program accepts
//! them; Linux 6.6 and later join them in the socket's frame, and earlier kernels drop them instead. The
//! program of an earlier kernel therefore does not accept them: a driver then refuses it in native mode for
//! a large MTU.

use std::io;

use nix::sys::utsname::uname;

use super::super::bpf::asm::{Assembler, Cond, Helper, Label, Reg, Size};
use super::super::bpf::{Kind, Map};
use Reg::{R0, R1, R2, R9};

/// The length until a socket is bound: the largest frame of an arena.
const LARGEST: u32 = 4096;

/// The longest frame that the sockets receive, in bytes with the Ethernet header.
#[derive(Debug)]
pub(super) struct FrameRoom(Map);

impl FrameRoom {
    pub(super) fn new() -> io::Result<Self> {
        let room = Self(Map::array(Kind::Array, "fp_room", 4, 1)?);
        room.set(LARGEST)?;
        Ok(room)
    }

    /// Sets the length.
    pub(super) fn set(&self, room: u32) -> io::Result<()> {
        self.0.set(0, &room.to_ne_bytes())
    }

    /// Emits code for a frame to be taken, with its context in r9: jumps to `too_long` if it does not
    /// fit, else continues.
    pub(super) fn emit_check<'m>(&'m self, asm: &mut Assembler<'m>, too_long: Label) {
        asm.mov(R1, R9)
            .call(Helper::XdpGetBuffLen)
            .load_map_value(R1, &self.0, 0)
            .load(Size::Word, R2, R1, 0)
            .jump_if(Cond::Gt, R0, R2, too_long);
    }
}

/// Returns whether sockets of this kernel receive packets of several buffers: joined in one frame if it has
/// room, else in several (`XDP_USE_SG`).
pub(in crate::af_xdp) fn joins_buffers() -> bool {
    uname().is_ok_and(|system| version(&system.release().to_string_lossy()) >= Some((6, 6)))
}

/// Parses the two numbers at the beginning of a release such as `6.1.0-28-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_parsed() {
        assert_eq!(version("6.1.0-28-amd64"), Some((6, 1)));
        assert_eq!(version("6.18-rc1"), Some((6, 18)));
        assert_eq!(version("7.0"), Some((7, 0)));
        assert_eq!((version(""), version("six.1"), version("6")), (None, None, None));
    }
}
