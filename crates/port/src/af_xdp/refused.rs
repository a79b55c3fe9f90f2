//! Frames that were redirected and not sent: the kernel or the egress device refused them after the program had ended.
//!
//! ```text
//!   program ─► XDP_REDIRECT ─► MTU, device up? ─► bulk queue ─► device's transmit queue ─► sent
//!                                   │ no                             │ full, down, no receiver
//!                      tracepoint xdp_redirect_err       tracepoint xdp_devmap_xmit: drops
//!                                   └────────► counts[receiving device] ◄┘
//! ```
//!
//! A program learns that a map has the device, and not what becomes of the frame. The kernel reports that at two
//! tracepoints alone, with the receiving device; programs there count by its index and network namespace (an index is
//! unique in one namespace only).
//!
//! Limits: a kernel with BTF and `CONFIG_BPF_EVENTS`, as distributions have them; `CAP_PERFMON`; 4096 devices. A frame
//! that was redirected in generic mode, and that a queueing discipline drops, is not counted.

use std::io;
use std::os::unix::fs::MetadataExt;

use super::bpf::asm::{Cond, Helper, Op, Reg, Size};
use super::bpf::{Assembler, Btf, Kind, LoadError, Map, Program, RawTracepoint};
use Reg::{R0, R1, R2, R3, R6, R7, R10};

/// The maximum number of devices that have been counted while the value lives.
const DEVICES: u32 = 4096;

/// Offsets of arguments: `xdp_redirect_err(dev, xdp, tgt, err, map_type, …)` and `xdp_devmap_xmit(from_dev, to_dev, sent,
/// drops, err)` (include/trace/events/xdp.h).
const RECEIVER: i16 = 0;
const MAP_TYPE: i16 = 4 * 8;
const DROPS: i16 = 3 * 8;

/// The key of a count on the stack, the device's index and its namespace, and a pointer to the namespace.
const INDEX: i16 = -8;
const NAMESPACE: i16 = -4;
const NET: i16 = -16;

/// The counter of refused frames, by the device that received them.
#[derive(Debug)]
pub struct RefusedFrames {
    counts: Map,
    namespace: u32,
    _tracepoints: [RawTracepoint; 2],
}

impl RefusedFrames {
    /// Begins to count, for devices of the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// Those of [`Btf::of_kernel`] and of `bpf(2)`: `ENOENT` if the kernel has no BTF or not these tracepoints, `EPERM` without
    /// `CAP_BPF` and `CAP_PERFMON`.
    pub fn new() -> io::Result<Self> {
        let btf = Btf::of_kernel()?;
        let offset = |name, path: &[&str]| {
            btf.offset(name, path).and_then(|offset| i32::try_from(offset).ok()).ok_or_else(|| {
                let what = format!("the kernel's struct {name} has no {}", path.join("."));
                io::Error::new(io::ErrorKind::Unsupported, what)
            })
        };
        let layout = Layout {
            index: offset("net_device", &["ifindex"])?,
            net: offset("net_device", &["nd_net", "net"])?,
            number: offset("net", &["ns", "inum"])?,
        };
        let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino() as u32;
        let counts = Map::new(Kind::Hash, "fp_refused", 8, 8, DEVICES)?;
        let attach = |name, tracepoint, amount: fn(&mut Assembler<'_>, _)| {
            let program = load(name, &counts, &layout, amount).map_err(|error| error.cause)?;
            RawTracepoint::attach(&program, tracepoint)
        };
        let tracepoints = [
            attach("fp_redirect_err", c"xdp_redirect_err", |asm, none| {
                // Frames for sockets are counted by them.
                asm.load(Size::Double, R7, R6, MAP_TYPE)
                    .jump_if32(Cond::Ne, R7, Kind::Devmap as i32, none)
                    .mov(R7, 1);
            })?,
            attach("fp_devmap_xmit", c"xdp_devmap_xmit", |asm, none| {
                asm.load(Size::Double, R7, R6, DROPS).jump_if32(Cond::Sle, R7, 0, none);
            })?,
        ];
        Ok(Self { counts, namespace, _tracepoints: tracepoints })
    }

    /// Counts frames that the device with this index receives; has no effect if they are counted already.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `E2BIG` beyond 4096 devices.
    pub fn add(&self, index: u32) -> io::Result<()> {
        let key = self.key(index);
        match self.counts.lookup(&key)? {
            Some(_) => Ok(()),
            None => self.counts.update(&key, &[0; 8]),
        }
    }

    /// Returns the number of refused frames that the device with this index has received since it was added.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn count(&self, index: u32) -> io::Result<u64> {
        let count = self.counts.lookup(&self.key(index))?;
        Ok(count.and_then(|count| count.try_into().ok()).map_or(0, u64::from_ne_bytes))
    }

    fn key(&self, index: u32) -> [u8; 8] {
        let ([a, b, c, d], [e, f, g, h]) = (index.to_ne_bytes(), self.namespace.to_ne_bytes());
        [a, b, c, d, e, f, g, h]
    }
}

/// Offsets in the kernel's structs.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// The index of a device, and a pointer to its namespace.
    index: i32,
    net: i32,
    /// The number of a namespace.
    number: i32,
}

/// Loads a program that adds to the count of the receiving device what `amount` loads to r7, of the context r6; for nothing
/// that jumps to its label.
fn load(
    name: &str,
    counts: &Map,
    layout: &Layout,
    amount: fn(&mut Assembler<'_>, super::bpf::asm::Label),
) -> Result<Program, LoadError> {
    let mut asm = Assembler::new();
    let end = asm.label();
    asm.mov(R6, R1);
    amount(&mut asm, end);
    for (from, offset, to, size) in [
        ((R6, RECEIVER), layout.index, INDEX, 4),
        ((R6, RECEIVER), layout.net, NET, 8),
        ((R10, NET), layout.number, NAMESPACE, 4),
    ] {
        asm.load(Size::Double, R3, from.0, from.1)
            .add(R3, offset)
            .mov(R2, size)
            .mov(R1, R10)
            .add(R1, i32::from(to))
            .call(Helper::ProbeReadKernel);
    }
    asm.map_lookup(counts, INDEX)
        .jump_if(Cond::Eq, R0, 0, end)
        // The number of frames, an `int`.
        .op32(Op::Mov, R7, R7)
        .atomic_add(Size::Double, R0, 0, R7)
        .bind(end)
        .mov(R0, 0)
        .exit();
    let code = asm
        .finish()
        .map_err(|error| LoadError { cause: io::Error::other(error), log: String::new() })?;
    Program::load_tracepoint(name, &code)
}
