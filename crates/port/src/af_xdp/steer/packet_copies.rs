//! Copies of packets that end in the steering program, for captures.
//!
//! ```text
//!   dropped, or forwarded in the driver ─► any session? ─ no ─► goes on
//!                                             │ yes
//!                                             ▼
//!   for each session: wanted? ─► sampled? ─► record in its ring, or counted as lost ─► goes on
//!                                                 │
//!   reader of the session ◄── RingBuffer ─────────┘
//! ```
//!
//! Workers record the packets that they receive (`datapath/src/capture.rs`); those that the program drops or forwards reach
//! no worker. A program has [`COPY_SESSIONS`] slots for sessions. Each has the wanted occasions, a sampling
//! rate and a length in words that this process maps, and a ring, which may be that of the same session at other
//! interfaces. Without a session a packet costs one load and a branch, twice if it is forwarded; the ring's
//! memory exists only while its session does.
//!
//! A record has the time of the kernel's monotonic clock, the packet's end, the number that the session has given to
//! the interface, the link that the packet leaves by, its length, and its first bytes: as the packet
//! arrived, but for priority tags, or as it leaves. Records have one of four lengths, since a program reserves
//! constant numbers of bytes.
//!
//! **Arrivals** of forwarded packets are copied once it is certain that the path forwards them, before their first
//! change; those of packets that it leaves to a worker are that worker's. (A frame without room for another
//! tag would be in both.)
//!
//! **Sampling** takes each packet with the same probability: of several CPUs none knows the last one. A full
//! ring loses the record, and the slot counts it; the program never waits, but for other CPUs that
//! reserve a record in the same ring at the moment.
//!
//! Limits: [`MAX_COPY`] bytes of a packet. Linux 5.18; before, the program is without copies.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use super::super::bpf::asm::{Assembler, Cond, Helper, Label, Op, Reg, Size};
use super::super::bpf::ring_buffer::MIN_RING;
use super::super::bpf::{Kind, Map, MappedArray, RingBuffer};
use super::SteeringOutcome;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// The most sessions at once.
pub const COPY_SESSIONS: usize = 4;
/// The most bytes of a packet in a record.
pub const MAX_COPY: usize = CLASSES[CLASSES.len() - 1] - HEAD;

/// The bytes of records: a program reserves the first number that suffices.
const CLASSES: [usize; 4] = [128, 512, 2048, 16_384];
/// The bytes before those of the packet: time, head, length, copied bytes.
const HEAD: usize = 24;
const HEAD_AT: i16 = 8;
const LENGTH_AT: i16 = 16;
const COPIED_AT: i16 = 20;

/// The word that has a bit for each open session, alone in its cache line.
const OPEN: usize = 0;
/// The words of a slot, in the order of the constants, from the second cache line on.
const OCCASIONS: usize = 0;
const ONE_IN: usize = 1;
const SNAP: usize = 2;
const PORT: usize = 3;
const LOST: usize = 4;
const SLOT_WORDS: usize = 8;

/// The number of an arrival beside those of outcomes.
const ARRIVAL: u32 = 63;
/// `BPF_RB_NO_WAKEUP`: the reader polls.
const NO_WAKEUP: i32 = 1;

/// Stack of the subroutine: a key, a ring.
const KEY: i16 = -4;
const RING: i16 = -16;

/// The reason that a packet is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOccasion {
    /// It has arrived, and ends in the program.
    Arrival,
    /// It has ended.
    End(SteeringOutcome),
}

impl CopyOccasion {
    fn number(self) -> u32 {
        match self {
            Self::Arrival => ARRIVAL,
            Self::End(outcome) => outcome as u32,
        }
    }

    fn with_number(number: u32) -> Option<Self> {
        match number {
            ARRIVAL => Some(Self::Arrival),
            number => SteeringOutcome::ALL.get(number as usize).copied().map(Self::End),
        }
    }
}

/// The packets that a session wants of an interface.
#[derive(Clone, Debug)]
pub struct CopyConditions {
    /// The occasions; packets that are left to the host or to a worker are not copied in any case.
    pub occasions: Vec<CopyOccasion>,
    /// One packet in so many, at random; 1 is every packet.
    pub one_in: u32,
    /// The most bytes of a packet; at most [`MAX_COPY`].
    pub snap: usize,
    /// The number of the interface in the records.
    pub port: u16,
}

/// A copied packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketCopy {
    /// The time of the kernel's monotonic clock, in nanoseconds.
    pub time: u64,
    /// The reason.
    pub occasion: CopyOccasion,
    /// The number that the session has given to the receiving interface.
    pub port: u16,
    /// The link that a forwarded packet leaves by.
    pub egress: u16,
    /// The length of the frame, in bytes.
    pub length: u32,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

impl PacketCopy {
    /// Reads a record of a ring; `None` if it is none of this version.
    pub fn read(record: &[u8]) -> Option<Self> {
        let (time, rest) = record.split_first_chunk()?;
        let (head, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (copied, bytes) = rest.split_first_chunk()?;
        let head = u64::from_ne_bytes(*head);
        Some(Self {
            time: u64::from_ne_bytes(*time),
            occasion: CopyOccasion::with_number(head as u32 & 0xff)?,
            port: (head >> 16) as u16,
            egress: (head >> 32) as u16,
            length: u32::from_ne_bytes(*length),
            bytes: bytes.get(..u32::from_ne_bytes(*copied) as usize)?.to_vec(),
        })
    }
}

/// The sessions of a program.
#[derive(Debug)]
pub struct PacketCopies {
    words: MappedArray,
    /// The ring of each slot.
    rings: Map,
    /// The open sessions, a bit each.
    open: Mutex<u64>,
}

impl PacketCopies {
    /// Creates the maps, without a session.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `EINVAL` before Linux 5.8.
    pub(super) fn new() -> io::Result<Self> {
        // The map of maps knows the kind of its elements by one of them.
        let like = Map::new(Kind::RingBuffer, "fp_copies_like", 0, 0, MIN_RING)?;
        let words = SLOT_WORDS * (1 + COPY_SESSIONS);
        Ok(Self {
            words: MappedArray::one_value("fp_copies", words as u32)?,
            rings: Map::of_maps("fp_copy_rings", &like, COPY_SESSIONS as u32)?,
            open: Mutex::default(),
        })
    }

    /// Opens a session, whose packets are copied to `ring` from the next one on. Returns its slot, or `None` if
    /// [`COPY_SESSIONS`] are open. Needs no capability from Linux 5.19 on.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn open(&self, ring: &RingBuffer, wanted: &CopyConditions) -> io::Result<Option<usize>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = (!*open).trailing_zeros() as usize;
        if slot >= COPY_SESSIONS {
            return Ok(None);
        }
        // Returns when no program runs that could have read the slot's former words.
        self.rings.set_fd(slot as u32, ring.as_fd())?;
        let CopyConditions { occasions, one_in, snap, port } = wanted;
        let bits = occasions.iter().fold(0, |bits, occasion| bits | 1 << occasion.number());
        self.store(slot, ONE_IN, (*one_in).max(1).into());
        self.store(slot, SNAP, (*snap).min(MAX_COPY) as u64);
        self.store(slot, PORT, (*port).into());
        self.store(slot, LOST, 0);
        self.store(slot, OCCASIONS, bits);
        *open |= 1 << slot;
        self.store_open(*open);
        Ok(Some(slot))
    }

    /// Closes the session in a slot; on return no program writes to its ring. Returns the number of packets that its
    /// ring had no room for.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`; no packet is copied for the session all the same.
    pub fn close(&self, slot: usize) -> io::Result<u64> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.store(slot, OCCASIONS, 0);
        *open &= !(1 << slot);
        self.store_open(*open);
        self.rings.delete(&(slot as u32).to_ne_bytes())?;
        Ok(self.lost(slot))
    }

    /// Counts the packets since the session's begin that its ring had no room for.
    pub fn lost(&self, slot: usize) -> u64 {
        let word = self.words.get(SLOT_WORDS * (1 + slot) + LOST);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns whether a session is open.
    pub fn is_open(&self) -> bool {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) != 0
    }

    fn store(&self, slot: usize, at: usize, value: u64) {
        if let Some(word) = self.words.get(SLOT_WORDS * (1 + slot) + at) {
            word.store(value, Ordering::Release);
        }
    }

    fn store_open(&self, bits: u64) {
        if let Some(word) = self.words.get(OPEN) {
            word.store(bits, Ordering::Release);
        }
    }

    /// Emits code that copies the packet of context r9 to the sessions that want it on these occasions, by the subroutine
    /// at `copy`, and continues. With `egress` that register has the number of the link that the packet leaves by. r0
    /// to r5 are overwritten.
    fn emit<'m>(
        &'m self,
        asm: &mut Assembler<'m>,
        copy: Label,
        occasions: &[CopyOccasion],
        egress: Option<Reg>,
    ) {
        let none = asm.label();
        asm.load_map_value(R1, self.words.map(), byte(OPEN)).load(Size::Double, R2, R1, 0).jump_if(
            Cond::Eq,
            R2,
            0,
            none,
        );
        for occasion in occasions {
            match egress {
                Some(egress) => asm.mov(R3, egress),
                None => asm.mov(R3, 0),
            };
            asm.mov(R1, R9).mov(R2, occasion.number() as i32).call_code(copy);
        }
        asm.bind(none);
    }

    /// Appends the subroutines, of which `copy` is the first: r1 is the context, r2 the number of the occasion, r3
    /// the link.
    fn append<'m>(&'m self, asm: &mut Assembler<'m>, copy: Label) {
        let write = asm.label();
        asm.bind(copy)
            .mov(R6, R1)
            .mov(R7, R2)
            // The upper half of the head is the link, its lowest byte the occasion.
            .mov(R8, R3)
            .op(Op::Lsh, R8, 32)
            .op(Op::Or, R8, R7);
        for slot in 0..COPY_SESSIONS {
            let (next, taken, fits) = (asm.label(), asm.label(), asm.label());
            let word = |at: usize| byte(SLOT_WORDS * (1 + slot) + at);
            let load = |asm: &mut Assembler<'m>, to: Reg, at: usize| {
                asm.load_map_value(to, self.words.map(), word(at)).load(Size::Double, to, to, 0);
            };
            load(asm, R2, OCCASIONS);
            asm.op(Op::Rsh, R2, R7).op(Op::And, R2, 1).jump_if(Cond::Eq, R2, 0, next);
            load(asm, R1, ONE_IN);
            asm.jump_if(Cond::Eq, R1, 1, taken).call(Helper::RandomU32).op32(Op::Mov, R0, R0);
            load(asm, R1, ONE_IN);
            asm.op(Op::Mul, R0, R1).op(Op::Rsh, R0, 32).jump_if(Cond::Ne, R0, 0, next).bind(taken);
            asm.mov(R1, R6).call(Helper::XdpGetBuffLen).mov(R9, R0);
            load(asm, R4, SNAP);
            asm.jump_if(Cond::Le, R4, R9, fits).mov(R4, R9).bind(fits);
            load(asm, R3, PORT);
            asm.op(Op::Lsh, R3, 16)
                .op(Op::Or, R3, R8)
                .mov(R1, R6)
                .mov(R2, slot as i32)
                .mov(R5, R9)
                .call_code(write)
                .jump_if(Cond::Eq, R0, 0, next)
                .load_map_value(R1, self.words.map(), word(LOST))
                .mov(R2, 1)
                .atomic_add(Size::Double, R1, 0, R2)
                .bind(next);
        }
        asm.mov(R0, 0).exit();
        self.append_write(asm, write);
    }

    /// Appends the subroutine that writes a record: r1 is the context, r2 the slot, r3 the head, r4 the bytes to copy,
    /// r5 the length of the frame; r0 becomes 1 if the record is lost, else 0.
    fn append_write<'m>(&'m self, asm: &mut Assembler<'m>, write: Label) {
        let (reserved, submit, lost, closed) = (asm.label(), asm.label(), asm.label(), asm.label());
        asm.bind(write)
            .mov(R6, R1)
            .mov(R7, R3)
            .mov(R8, R4)
            .mov(R9, R5)
            .store(Size::Word, R10, KEY, R2)
            .map_lookup(&self.rings, KEY)
            .jump_if(Cond::Eq, R0, 0, closed)
            .store(Size::Double, R10, RING, R0);
        for class in CLASSES {
            let next = asm.label();
            asm.jump_if(Cond::Gt, R8, (class - HEAD) as i32, next)
                .load(Size::Double, R1, R10, RING)
                .mov(R2, class as i32)
                .mov(R3, 0)
                .call(Helper::RingbufReserve)
                .jump_if(Cond::Ne, R0, 0, reserved)
                .jump(lost)
                .bind(next);
        }
        // Not reached: `open` limits the bytes to the last class.
        asm.bind(lost)
            .mov(R0, 1)
            .exit()
            .bind(reserved)
            .store(Size::Double, R0, HEAD_AT, R7)
            .store(Size::Word, R0, LENGTH_AT, R9)
            .store(Size::Word, R0, COPIED_AT, R8)
            .mov(R7, R0)
            .call(Helper::KtimeNs)
            .store(Size::Double, R7, 0, R0)
            // Not `Eq`, from which the verifier learns no lower bound before Linux 6.8.
            .jump_if(Cond::Lt, R8, 1, submit)
            .mov(R1, R6)
            .mov(R2, 0)
            .mov(R3, R7)
            .add(R3, HEAD as i32)
            .mov(R4, R8)
            .call(Helper::XdpLoadBytes)
            .jump_if(Cond::Eq, R0, 0, submit)
            .mov(R1, R7)
            .mov(R2, NO_WAKEUP)
            .call(Helper::RingbufDiscard)
            .jump(lost)
            .bind(submit)
            .mov(R1, R7)
            .mov(R2, NO_WAKEUP)
            .call(Helper::RingbufSubmit)
            .bind(closed)
            .mov(R0, 0)
            .exit();
    }
}

/// Returns the offset of a word.
const fn byte(word: usize) -> u32 {
    (word * size_of::<u64>()) as u32
}

/// The copies within code: none if the kernel has not what they need.
#[derive(Clone, Copy, Debug)]
pub struct CopyHook<'m>(Option<(&'m PacketCopies, Label)>);

impl<'m> CopyHook<'m> {
    /// Makes the hook of a program; the code must end with [`append`](Self::append).
    pub(super) fn new(asm: &mut Assembler<'m>, copies: Option<&'m PacketCopies>) -> Self {
        Self(copies.map(|copies| (copies, asm.label())))
    }

    /// Emits code that copies the packet of context r9 if a capture wants it on these occasions. With `egress`, one of r6
    /// to r8, that register has the number of the link that the packet leaves by. r0 to r5 are overwritten.
    pub fn emit(self, asm: &mut Assembler<'m>, occasions: &[CopyOccasion], egress: Option<Reg>) {
        if let Some((copies, copy)) = self.0 {
            copies.emit(asm, copy, occasions, egress);
        }
    }

    /// Appends the subroutines.
    pub(super) fn append(self, asm: &mut Assembler<'m>) {
        if let Some((copies, copy)) = self.0 {
            copies.append(asm, copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_back() {
        let head = 9u64 << 32 | 7 << 16 | SteeringOutcome::Forged as u64;
        let mut record = [1u64.to_ne_bytes(), head.to_ne_bytes()].concat();
        record.extend([1500u32.to_ne_bytes(), 3u32.to_ne_bytes()].concat());
        record.extend([1, 2, 3, 0, 0]);
        let want = PacketCopy {
            time: 1,
            occasion: CopyOccasion::End(SteeringOutcome::Forged),
            port: 7,
            egress: 9,
            length: 1500,
            bytes: vec![1, 2, 3],
        };
        assert_eq!(PacketCopy::read(&record), Some(want));
        assert_eq!(PacketCopy::read(&record[..26]), None, "fewer bytes than the record states");
        record[8] = 62;
        assert_eq!(PacketCopy::read(&record), None, "an unknown occasion");
    }

    #[test]
    fn occasions_have_numbers_of_their_own() {
        assert!(SteeringOutcome::ALL.len() < ARRIVAL as usize);
        for occasion in
            SteeringOutcome::ALL.map(CopyOccasion::End).into_iter().chain([CopyOccasion::Arrival])
        {
            assert_eq!(CopyOccasion::with_number(occasion.number()), Some(occasion));
        }
    }
}
