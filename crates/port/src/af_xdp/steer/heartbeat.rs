//! The heartbeat: whether the worker of a queue still receives.
//!
//! ```text
//!   word of a queue:   0 ──── a packet is taken: now ────► time ──── STALL later ────► stalled
//!                      ▲                                    │                            │
//!                      └──────────── the worker receives ◄──┴────────────────────────────┘
//! ```
//!
//! A packet that finds 0 writes the time; the worker writes 0 whenever it receives, even without a
//! packet. So the word is the time of the first packet that the worker has not received yet: a
//! worker that sleeps because no packet arrives never counts as stalled, and needs no clock. A
//! packet that finds a time more than [`STALL`] ago is not redirected: the host receives it, or it
//! is dropped on a gate's interface, until the worker receives again.
//!
//! The clock is the kernel's coarse one, which costs a load and is accurate to a tick (at most 10
//! ms); before Linux 5.11, which does not offer it to programs, the exact one.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::bpf::asm::{Assembler, Cond, Helper, Label, Op, Reg, Size, context};
use super::super::bpf::{Kind, Map, MappedArray};
use Reg::{R0, R1, R2, R6, R8, R9, R10};

/// The default time that a worker may leave a packet unread.
pub const STALL: Duration = Duration::from_millis(100);

/// A word for each queue of an interface.
#[derive(Debug)]
pub(super) struct Heartbeat {
    words: MappedArray,
    /// The time in nanoseconds after which a worker counts as stalled.
    limit: Map,
}

impl Heartbeat {
    /// Creates the words of this many queues.
    pub(super) fn new(queues: u32) -> io::Result<Self> {
        let words = MappedArray::new("fp_pulse", queues)?;
        let limit = Map::array(Kind::Array, "fp_stall", 8, 1)?;
        let heartbeat = Self { words, limit };
        heartbeat.set_limit(Some(STALL))?;
        Ok(heartbeat)
    }

    /// Sets the time for which a worker may stall; `None` means forever.
    pub(super) fn set_limit(&self, limit: Option<Duration>) -> io::Result<()> {
        let nanos = limit.and_then(|limit| i64::try_from(limit.as_nanos()).ok());
        self.limit.set(0, &nanos.unwrap_or(i64::MAX).to_ne_bytes())
    }

    /// Returns the maps: of the words, and of the limit.
    pub(super) fn maps(&self) -> [&Map; 2] {
        [self.words.map(), &self.limit]
    }

    /// Records that the worker of a queue has received.
    #[inline]
    pub(super) fn beat(&self, queue: u32) {
        // Relaxed: no other data depends on it. Written only if there is something to clear,
        // because the program shares the cache line.
        if let Some(word) = self.words.get(queue as usize)
            && word.load(Ordering::Relaxed) != 0
        {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// Emits code that jumps to `taken` if the worker of the packet's queue receives, else to
/// `stalled`. r9 has the context.
pub(super) fn emit_check<'m>(
    asm: &mut Assembler<'m>,
    [heartbeat, limit]: [&'m Map; 2],
    clock: Helper,
    taken: Label,
    stalled: Label,
) {
    let since = asm.label();
    asm.load(Size::Word, R2, R9, context::RX_QUEUE_INDEX)
        .store(Size::Word, R10, -4, R2)
        .map_lookup(heartbeat, -4)
        .jump_if(Cond::Eq, R0, 0, taken)
        .mov(R6, R0)
        .call(clock)
        .load(Size::Double, R8, R6, 0)
        .jump_if(Cond::Ne, R8, 0, since)
        .store(Size::Double, R6, 0, R0)
        .jump(taken)
        // Signed: another CPU may have written a later time than this one's clock shows.
        .bind(since)
        .op(Op::Sub, R0, R8)
        .load_map_value(R1, limit, 0)
        .load(Size::Double, R2, R1, 0)
        .jump_if(Cond::Sgt, R0, R2, stalled)
        .jump(taken);
}
