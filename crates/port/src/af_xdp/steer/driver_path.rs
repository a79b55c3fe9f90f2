//! The driver's path: forwards packets within the steering program, in front of the sockets.
//!
//! ```text
//!   checks of the steering program ─► switch on, own MAC? ─► path ─┬─► forwarded: another device
//!                                          │               └─► rest ─┐
//!                                          └─────────────────────────┴─► socket
//! ```
//!
//! Another crate, which knows tables, has the code of the path ([`DriverPath`]); this module has its place in
//! the program. A packet that the path does not forward continues to the socket as if there were no path.
//! The path can be exchanged while packets pass ([`Interface::set_driver_path`](crate::af_xdp::Interface::set_driver_path)).

use std::fmt;

use super::super::bpf::Map;
use super::super::bpf::asm::{Assembler, Cond, Label, Op, Reg, Size};
use super::packet_copies::CopyHook;
use Reg::{R1, R2, R8};

/// Where the code of a path continues, and what it does there.
#[derive(Clone, Copy, Debug)]
pub struct PathExits<'m> {
    /// For a packet that the path leaves as it is: the socket.
    pub rest: Label,
    /// For a packet that is rewritten and was given to [`RedirectMap`](crate::af_xdp::bpf::asm::Helper::RedirectMap);
    /// r8 is the length of its frame in bytes.
    pub forwarded: Label,
    /// Copies a packet that the path forwards: on arrival before its first change, and where it ends, as
    /// [`SteeringOutcome::Forwarded`](super::SteeringOutcome::Forwarded) with the number of its link.
    pub copies: CopyHook<'m>,
}

/// The code that forwards packets, and the maps that it uses.
pub trait DriverPath: fmt::Debug + Send + Sync {
    /// Appends the code; `entries` are its labels to bind, for IPv4 and for IPv6.
    ///
    /// At either entry r6 is the address 14 bytes before the packet, r7 the end of the frame's first buffer and r9
    /// the context. Without tags r6 is the frame's first byte; with one or two, which the steering program knows
    /// (`set_vlans`), it is 4 or 8 bytes behind that. The frame is to the MAC of the interface itself, and its first
    /// buffer has the IP header without options or extensions. Its version is right; its destination is no own address, no multicast
    /// or broadcast address, and not link-local. Nothing else is checked. The code may overwrite any register
    /// but r9 and r10. With `several_buffers` the frame may have further buffers.
    fn append<'m>(
        &'m self,
        asm: &mut Assembler<'m>,
        entries: [Label; 2],
        exits: PathExits<'m>,
        several_buffers: bool,
    );
}

/// Emits code that continues at `path` if the switch `on` is on, the switch `off` is off and r8 is 0 (the frame
/// is to the MAC of the interface itself), else at `rest`. Both are the same without a path.
pub(super) fn emit_check<'m>(
    asm: &mut Assembler<'m>,
    switches: &'m Map,
    [on, off]: [u32; 2],
    [path, rest]: [Label; 2],
) {
    if path != rest {
        asm.jump_if(Cond::Ne, R8, 0, rest)
            .load_map_value(R1, switches, 0)
            .load(Size::Word, R2, R1, 0)
            .op32(Op::And, R2, (on | off) as i32)
            .jump_if32(Cond::Eq, R2, on as i32, path);
    }
    asm.jump(rest);
}
