//! Runs flow programs, for decisions and packets.
//!
//! A worker has one machine and reads programs as it reads its policy: by a pointer that is
//! swapped, so that a program can be loaded, replaced or removed while packets flow. A flow whose
//! program was removed is a request again with its next packet. One whose program was replaced
//! stays with the version that it began with, as long as that is kept (`program/programs.rs`).

use fib::Reader;

use crate::decision::ProgramDecision;
use crate::index::Index;
use crate::program::{Machine, ProgramVerdict, Programs};
use crate::state::{Outcome, StartedProgram};
use crate::table::FlowTable;

/// The programs and the machine that runs them.
#[derive(Debug, Default)]
pub(super) struct ProgramRunner {
    programs: Option<Reader<Programs>>,
    machine: Machine,
}

impl ProgramRunner {
    pub(super) fn set(&mut self, programs: Reader<Programs>) {
        self.programs = Some(programs);
    }

    pub(super) fn idle(&mut self) {
        if let Some(programs) = &mut self.programs {
            programs.idle();
        }
    }

    pub(super) fn faults(&self) -> u64 {
        self.machine.faults()
    }

    /// Returns the initial state of a flow with a program; nothing if the program is missing or
    /// refuses the cookie.
    pub(super) fn begin(&mut self, now: u64, named: &ProgramDecision) -> Option<StartedProgram> {
        let ProgramDecision { expire_s, program: number, mut cookie } = *named;
        let program = self.programs.as_mut()?.current().get(number)?;
        let takes = self.machine.init(program, now, &mut cookie);
        takes.then(|| StartedProgram { program: number, tag: program.tag(), expire_s, cookie })
    }

    /// Returns the outcome for a packet of `length` bytes of the flow with this entry; its bytes
    /// are read only for a program or a decline of some traffic.
    #[inline(always)]
    pub(super) fn outcome<'a, I: Index>(
        &mut self,
        table: &mut FlowTable<I>,
        entry: u32,
        now: u64,
        length: u32,
        bytes: impl FnOnce() -> &'a [u8],
    ) -> Outcome {
        match table.packet(entry, now, length) {
            Outcome::Run(program) => self.packet(table, entry, program, now, bytes(), length),
            Outcome::Classify => table.classify(entry, now, bytes()),
            outcome => outcome,
        }
    }

    /// Runs the program of the flow with this entry on a packet.
    fn packet<I: Index>(
        &mut self,
        table: &mut FlowTable<I>,
        entry: u32,
        program: u8,
        now: u64,
        bytes: &[u8],
        length: u32,
    ) -> Outcome {
        let record = table.entry(entry).record();
        let (expire_at, tag, mut cookie) = (record.expire_at(), record.tag(), record.cookie());
        let programs = self.programs.as_mut();
        let program = programs.and_then(|all| all.current().version(program, tag));
        let answer = match program {
            Some(program) => {
                self.machine.packet(program, now, expire_at, &mut cookie, bytes, length)
            }
            None => ProgramVerdict::Missing,
        };
        table.answer(entry, now, &cookie, answer)
    }
}
