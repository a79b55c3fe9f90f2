//! Many lookups in the kernel by `BPF_PROG_TEST_RUN`, for tests and benchmarks.
//!
//! ```text
//!   keys (mapped) ─► program: BATCH lookups a run, from the cursor on ─► answers (mapped)
//!                    repeated by one system call
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fib::{Addr, Hop, MappedWords};
use port::af_xdp::bpf::asm::Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
use port::af_xdp::bpf::asm::{Action, Assembler, Cond, Label, Op, Size};
use port::af_xdp::bpf::{Map, Program};

use crate::arrays::BpfArray;
use crate::{ProgramError, TableArrays, lookup};

/// The lookups of one run, which share its overhead.
pub const BATCH: u32 = 64;

/// Where the context waits, on the stack.
const CONTEXT: i16 = -8;

/// A frame for the runs, of which the program reads nothing.
const FRAME: [u8; 64] = [0; 64];

/// Room for keys and their answers, which programs and this process share.
#[derive(Debug)]
pub struct Keys {
    keys: Shared,
    answers: Shared,
    /// The index of the next key, of 64 bits.
    cursor: Shared,
    count: u32,
    /// The words of one key.
    words: u32,
}

/// An array and its mapping.
#[derive(Debug)]
struct Shared {
    array: Arc<BpfArray>,
    words: MappedWords,
}

impl Shared {
    fn new(name: &str, len: u32) -> io::Result<Self> {
        let array = Arc::new(BpfArray::new(name, len as usize)?);
        Ok(Self { words: MappedWords::new(Arc::clone(&array) as _, len as usize)?, array })
    }

    fn map(&self) -> &Map {
        &self.array.0
    }
}

impl Keys {
    /// Makes room for `count` keys of family `A`, of 1 to 2^24.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)` for the arrays; `InvalidInput` for another count.
    pub fn new<A: Addr>(count: u32) -> io::Result<Self> {
        if !(1..=1 << 24).contains(&count) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let words = A::BITS.div_ceil(32);
        Ok(Self {
            keys: Shared::new("keys", count * words)?,
            answers: Shared::new("answers", count)?,
            cursor: Shared::new("cursor", 2)?,
            count,
            words,
        })
    }

    /// Loads a program that looks the keys up by any subroutine: `append` binds the label to it. r1 and r2
    /// are the address as [`lookup::append`] has it, r3 is the context, r0 becomes the answer.
    ///
    /// # Errors
    ///
    /// [`ProgramError`].
    pub fn load<'m>(
        &'m self,
        append: impl FnOnce(&mut Assembler<'m>, Label),
    ) -> Result<Program, ProgramError> {
        let mut asm = Assembler::new();
        let lookup = asm.label();
        self.append(&mut asm, lookup);
        append(&mut asm, lookup);
        Ok(Program::load("probe", &asm.finish()?)?)
    }

    /// Appends code that looks up a batch, by the subroutine `lookup`.
    fn append<'m>(&'m self, asm: &mut Assembler<'m>, lookup: Label) {
        let (next, end) = (asm.label(), asm.label());
        asm.store(Size::Double, R10, CONTEXT, R1)
            .load_map_value(R6, self.cursor.map(), 0)
            .load(Size::Double, R7, R6, 0)
            .mov(R8, 0)
            .bind(next)
            .jump_if(Cond::Ge, R7, self.count as i32, end)
            .mov(R1, R7)
            .op(Op::Lsh, R1, (4 * self.words).ilog2() as i32)
            .load_map_value(R9, self.keys.map(), 0)
            .add(R9, R1);
        if self.words > 1 {
            asm.load(Size::Double, R1, R9, 0).load(Size::Double, R2, R9, 8);
        } else {
            asm.load(Size::Word, R1, R9, 0);
        }
        asm.load(Size::Double, R3, R10, CONTEXT)
            .call_code(lookup)
            .mov(R2, R7)
            .op(Op::Lsh, R2, 2)
            .load_map_value(R1, self.answers.map(), 0)
            .add(R1, R2)
            .store(Size::Word, R1, 0, R0)
            .add(R7, 1)
            .add(R8, 1)
            .jump_if(Cond::Lt, R8, BATCH as i32, next)
            .bind(end)
            .store(Size::Double, R6, 0, R7)
            .leave(Action::Pass);
    }
}

/// A program that looks keys up.
#[derive(Debug)]
pub struct Probe {
    program: Program,
    keys: Keys,
}

impl Probe {
    /// Loads a program that looks `keys` up in `table`.
    ///
    /// # Errors
    ///
    /// [`ProgramError`].
    pub fn new<A: Addr>(keys: Keys, table: &TableArrays<A>) -> Result<Self, ProgramError> {
        let program = keys.load(|asm, label| lookup::append(asm, label, table))?;
        Ok(Self { program, keys })
    }

    /// Takes a program that [`Keys::load`] has made for `keys`.
    pub fn with(keys: Keys, program: Program) -> Self {
        Self { program, keys }
    }

    /// Looks up each of `addrs`, of which there are at most as many as the room for keys, and writes the
    /// answers; returns the mean time of a lookup in nanoseconds, the code around it included.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `EINTR` after a signal; `InvalidInput` for too many addresses.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn run<A: Addr>(&self, addrs: &[A], answers: &mut [Hop]) -> io::Result<f64> {
        assert_eq!(addrs.len(), answers.len(), "there are as many answers as addresses");
        let words = self.keys.words;
        if addrs.len() > self.keys.count as usize || A::BITS.div_ceil(32) != words {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (&addr, key) in addrs.iter().zip(self.keys.keys.words.chunks(words as usize)) {
            // The upper half first; each half is a number in the machine's order.
            let mut bytes = Vec::with_capacity(16);
            let addr = addr.to_u128();
            match words {
                1 => bytes.extend((addr as u32).to_ne_bytes()),
                _ => {
                    bytes.extend(((addr >> 64) as u64).to_ne_bytes());
                    bytes.extend((addr as u64).to_ne_bytes());
                }
            }
            for (word, bytes) in key.iter().zip(bytes.as_chunks().0) {
                word.store(u32::from_ne_bytes(*bytes), Ordering::Relaxed);
            }
        }
        self.keys.cursor.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let runs = (addrs.len() as u32).div_ceil(BATCH).max(1);
        let run = self.program.test_run(&FRAME, runs)?;
        for (answer, word) in answers.iter_mut().zip(&self.keys.answers.words[..]) {
            *answer = Hop(word.load(Ordering::Relaxed));
        }
        Ok(run.duration.as_nanos() as f64 / f64::from(BATCH))
    }
}
