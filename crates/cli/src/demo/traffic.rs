//! The traffic generator: an XDP program that the kernel runs on live frames.
//!
//! `BPF_PROG_TEST_RUN` passes frames from a pool of pages to the program in a loop; the program
//! overwrites each with the next packet of an array and redirects it into the veth towards the router:
//!
//! ```text
//!  Packets ──Map::fill──► array "fp_packets"
//!                              │ packet number sent mod 2^n
//!   run_live ──► frame ──► program ──► redirect ──► source ═══ in (router)
//!                              │
//!                         "fp_sent" + 1, until "fp_limit",
//!                         not before the time in "fp_pace"
//! ```
//!
//! The program writes every byte each time, because a recycled page contains a packet that the router
//! has changed. One call runs millions of frames without returning to this process, so the limit stops
//! it: after that, the program drops all frames. It also drops a frame that is too early for the pace,
//! without counting it as sent. The kernel counts frames that did not fit in the ring of the veth
//! (the router is slower than the generator) as dropped by the interface `source`; `sent` counts all.

use std::sync::Arc;

use anyhow::{Context, Result};
use port::af_xdp::bpf::asm::{Reg::*, *};
use port::af_xdp::bpf::{Kind, LiveRun, Map, Program};
use threads::{Rights, Stop, Task};

use super::check::{V4_LEN, V6_LEN};
use super::network::SOURCE;
use super::packets::{Packets, RECORD};
use crate::namespace::Namespace;

/// Frames per call: each call has the cost of a new pool.
const REPEAT: u32 = 1 << 22;

/// Packets per burst, as a network card delivers them; a power of two. Single packets would cost the
/// router the cache lines of a ring for each.
const BURST: i32 = 64;

/// A loaded generator that does not run yet.
#[derive(Debug)]
pub(super) struct Generator {
    program: Program,
    sent: Map,
    limit: Map,
    /// The nanoseconds between two bursts, and when the next is due.
    pace: Map,
    _packets: Map,
}

impl Generator {
    /// Loads `packets` and the program that sends them to interface `ifindex`.
    pub(super) fn new(packets: &Packets, ifindex: u32) -> Result<Self> {
        let count = u32::try_from(packets.len()).context("too many packets")?;
        let records = Map::array(Kind::Array, "fp_packets", RECORD, count)
            .context("cannot make the array of packets")?;
        records.fill(0, packets.records()).context("cannot fill the array of packets")?;
        let sent = Map::array(Kind::Array, "fp_sent", 8, 1)?;
        let limit = Map::array(Kind::Array, "fp_limit", 8, 1)?;
        let pace = Map::array(Kind::Array, "fp_pace", 16, 1)?;

        let mut asm = Assembler::new();
        let (v6, out, drop) = (asm.label(), asm.label(), asm.label());
        let (due, catch_up) = (asm.label(), asm.label());
        asm.mov(R6, R1)
            // Within a burst, and without an interval, every packet is due.
            .load_map_value(R7, &sent, 0)
            .load(Size::Double, R8, R7, 0)
            .op(Op::And, R8, BURST - 1)
            .jump_if(Cond::Ne, R8, 0, due)
            .load_map_value(R7, &pace, 0)
            .load(Size::Double, R8, R7, 0)
            .jump_if(Cond::Eq, R8, 0, due)
            .call(Helper::KtimeNs)
            .load(Size::Double, R1, R7, 8)
            .jump_if(Cond::Lt, R0, R1, drop)
            // The generator catches up on at most a millisecond.
            .mov(R2, R1)
            .add(R2, 1_000_000)
            .jump_if(Cond::Ge, R2, R0, catch_up)
            .mov(R1, R0)
            .bind(catch_up)
            .add(R1, R8)
            .store(Size::Double, R7, 8, R1)
            .bind(due)
            // r8: the number of this packet, unless the limit is reached.
            .load_map_value(R7, &sent, 0)
            .load(Size::Double, R8, R7, 0)
            .load_map_value(R1, &limit, 0)
            .load(Size::Double, R1, R1, 0)
            .jump_if(Cond::Ge, R8, R1, drop)
            .mov(R1, R8)
            .add(R1, 1)
            .store(Size::Double, R7, 0, R1)
            // r9: its record.
            .op(Op::And, R8, (count - 1) as i32)
            .store(Size::Word, R10, -4, R8)
            .map_lookup(&records, -4)
            .jump_if(Cond::Eq, R0, 0, drop)
            .mov(R9, R0)
            .load(Size::Half, R1, R9, 12)
            .jump_if(Cond::Eq, R1, i32::from(u16::from_ne_bytes([0x86, 0xdd])), v6)
            // A live frame has the length of an IPv6 packet to begin with.
            .mov(R1, R6)
            .mov(R2, V4_LEN as i32 - V6_LEN as i32)
            .call(Helper::AdjustTail);
        copy(&mut asm, V4_LEN, drop);
        asm.jump(out).bind(v6);
        copy(&mut asm, V6_LEN, drop);
        asm.bind(out)
            .mov(R1, ifindex as i32)
            .mov(R2, 0)
            .call(Helper::Redirect)
            .exit()
            .bind(drop)
            .leave(Action::Drop);
        let program = Program::load("fp_generate", &asm.finish()?)?;
        Ok(Self { program, sent, limit, pace, _packets: records })
    }

    /// Returns the number of packets sent since it was loaded.
    pub(super) fn sent(&self) -> Result<u64> {
        Ok(self.sent.counter(0)?)
    }

    /// Sets the rate in packets per second; `None` is the highest possible rate.
    pub(super) fn offer(&self, rate: Option<f64>) -> Result<()> {
        let interval = rate.map_or(0, |rate| (1e9 * f64::from(BURST) / rate.max(1.0)) as u64);
        let mut value = [0; 16];
        value[..8].copy_from_slice(&interval.to_ne_bytes());
        Ok(self.pace.set(0, &value)?)
    }

    fn run(&self, batch: u32, stop: &Stop) -> Result<()> {
        let frame = [0; V6_LEN];
        // Interface 0 is the loopback of the current namespace.
        let run = LiveRun { ifindex: 0, queue: 0, repeat: REPEAT, batch };
        while !stop.is_set() {
            match self.program.run_live(&frame, run) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                result => result.context("the kernel does not run live frames (Linux 5.18)")?,
            }
        }
        Ok(())
    }
}

/// Copies a packet from r9 to the frame of the context in r6.
fn copy(asm: &mut Assembler<'_>, len: usize, short: Label) {
    asm.load(Size::Word, R2, R6, context::DATA)
        .load(Size::Word, R3, R6, context::DATA_END)
        .mov(R4, R2)
        .add(R4, len as i32)
        .jump_if(Cond::Gt, R4, R3, short);
    for at in (0..len as i16).step_by(8) {
        asm.load(Size::Double, R1, R9, at).store(Size::Double, R2, at, R1);
    }
}

/// A running generator with its own thread; stops when dropped.
#[derive(Debug)]
pub(super) struct Traffic {
    generator: Arc<Generator>,
    thread: Option<Task<Result<()>>>,
}

impl Traffic {
    /// Starts to send from `source` on `cpu`, `batch` frames at a time.
    pub(super) fn start(
        generator: &Arc<Generator>,
        source: &Namespace,
        cpu: usize,
        batch: u32,
    ) -> Result<Self> {
        generator.limit.set(0, &u64::MAX.to_ne_bytes())?;
        generator.offer(None)?;
        let ours = Arc::clone(generator);
        // A thread started by a namespace's thread is in that namespace.
        let thread = source.run(move || {
            let run = move |stop: &Stop| {
                super::placement::pin(cpu)?;
                ours.run(batch, stop)
            };
            Ok(Task::start(format!("generate-{SOURCE}"), Rights::Inherited, run)?)
        })?;
        Ok(Self { generator: Arc::clone(generator), thread: Some(thread) })
    }

    /// Returns whether it still sends; if not, [`Traffic::stop`] returns the reason.
    pub(super) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(Task::is_alive)
    }

    /// Stops, and returns the number of packets sent since the generator was loaded.
    pub(super) fn stop(mut self) -> Result<u64> {
        self.end()?;
        self.generator.sent()
    }

    fn end(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let limited = self.generator.limit.set(0, &0u64.to_ne_bytes());
        thread.stop().context("the generator")??;
        Ok(limited?)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        // `stop` reports errors.
        let _ = self.end();
    }
}
