//! The verifier: proves that a program is safe to run, before it runs.
//!
//! It walks every path through the program with an abstract state of the machine (`state.rs`):
//! which registers and stack bytes are initialized, between which bounds a number lies
//! (`scalar.rs`), which region a pointer points into, and how far it can be from the region's
//! beginning. Each instruction has to be valid for all values within those bounds (`step.rs`). A
//! conditional jump splits the state in two, each with narrower bounds. This is abstract
//! interpretation by paths, as in the kernel's verifier.
//!
//! ```text
//!   paths to walk ─► state at a jump's target ─► covered by a finished state?   prune
//!        ▲                 │                     equal to one on this path?     endless
//!        └── both paths ◄── step, step, jump
//! ```
//!
//! **Loops** are walked iteration by iteration: a loop of a hundred iterations is a path of a
//! hundred iterations. A loop that returns to the same state never ends. A state that a finished
//! state covers is not walked again. A state that is still being walked does not count, or a loop
//! could prove itself. Registers that no later instruction reads (`live.rs`) do not count.
//!
//! **The verifier terminates**: after [`MAX_STEPS`] steps in all, for any program. The walked
//! states form a finite graph without cycles, so the longest path is known. A program is rejected
//! if that is more than [`MAX_RUN_LENGTH`] instructions, and the machine stops there.
//!
//! Unlike the kernel's, this verifier has no maps, calls within the program, atomics or known bits.
//! Dead code is allowed: no path reaches it.

mod live;
mod scalar;
mod state;
mod step;

use super::error::{ProgramError, VerifierError};
use super::insn::{Insn, WIDE, alu, class, jump};
use super::object::{Code, MAX_INSTRUCTIONS, Section};
#[cfg(test)]
pub(super) use scalar::Scalar;
use state::State;
use step::{Next, Step};

/// The most steps of the verifier for one program.
pub const MAX_STEPS: usize = 100_000;
/// The most instructions that a run may execute.
pub const MAX_RUN_LENGTH: usize = 4096;
/// A new state is compared with at most so many of the latest states of its instruction.
const COMPARED: usize = 256;

/// Code that has passed the verifier.
#[derive(Clone, Debug)]
pub struct Verified {
    code: Code,
    longest: usize,
    steps: usize,
}

impl Verified {
    pub(super) fn code(&self) -> &Code {
        &self.code
    }

    /// Returns the most instructions that a run executes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the number of steps that the verifier took.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Counts the instructions.
    pub fn instructions(&self) -> usize {
        self.code.insns.len()
    }
}

/// A state at the target of a jump.
struct Checkpoint {
    state: State,
    at: usize,
    /// The previous checkpoint on the path to this one.
    before: Option<usize>,
    /// Instructions from the program's beginning to here.
    depth: usize,
    /// Instructions from here to the end of the longest path walked so far.
    farthest: usize,
    /// Whether all paths from here have been walked.
    done: bool,
}

enum Work {
    Walk { at: usize, state: Box<State>, before: Option<usize>, depth: usize },
    Done(usize),
}

/// Verifies the code of a section.
///
/// # Errors
///
/// The first error in the order of the walk.
///
/// # Complexity
///
/// At most [`MAX_STEPS`] steps.
pub(super) fn verify(section: Section, code: Code) -> Result<Verified, ProgramError> {
    let insns = &code.insns;
    let refuse = |at: usize, error: VerifierError| {
        let insn = insns.get(at).copied().unwrap_or_default();
        ProgramError { section: Some(section.name()), at: Some((at, insn)), error }
    };
    let targets = check_structure(insns).map_err(|(at, error)| refuse(at, error))?;
    let mut walker = Walker {
        live: live::live(insns),
        places: Vec::new(),
        by_insn: vec![Vec::new(); insns.len()],
    };
    let first = Work::Walk { at: 0, state: Box::new(State::new()), before: None, depth: 0 };
    let mut work = vec![first];
    let (mut steps, mut longest) = (0, 0);
    while let Some(next) = work.pop() {
        let (mut at, mut state, mut before, mut depth) = match next {
            Work::Done(place) => {
                walker.finish(place);
                continue;
            }
            Work::Walk { at, state, before, depth } => (at, state, before, depth),
        };
        loop {
            if targets[at] {
                match walker.visit(at, &mut state, before, depth) {
                    Visit::Covered(more) => {
                        depth += more;
                        break;
                    }
                    Visit::Same => return Err(refuse(at, VerifierError::Endless)),
                    Visit::New(place) => {
                        before = Some(place);
                        work.push(Work::Done(place));
                    }
                }
            }
            steps += 1;
            depth += 1;
            if steps > MAX_STEPS {
                return Err(refuse(at, VerifierError::TooComplex(MAX_STEPS)));
            }
            if depth > MAX_RUN_LENGTH {
                return Err(refuse(at, VerifierError::TooLong(MAX_RUN_LENGTH)));
            }
            let step = Step { section, rodata: code.rodata.len(), insns, at };
            match step.apply(&mut state).map_err(|error| refuse(at, error))? {
                Next::At(next) => at = next,
                Next::Either(next, other, other_state) => {
                    let state = other_state;
                    work.push(Work::Walk { at: other, state, before, depth });
                    at = next;
                }
                Next::End => break,
            }
        }
        longest = longest.max(depth);
        if depth > MAX_RUN_LENGTH {
            return Err(refuse(at, VerifierError::TooLong(MAX_RUN_LENGTH)));
        }
        if let Some(place) = before {
            let place = &mut walker.places[place];
            place.farthest = place.farthest.max(depth - place.depth);
        }
    }
    Ok(Verified { code, longest, steps })
}

enum Visit {
    /// A finished state covers this one; so many instructions follow at most.
    Covered(usize),
    /// The same state has occurred before on this path.
    Same,
    New(usize),
}

struct Walker {
    /// The registers that may still be read, by instruction.
    live: Vec<u16>,
    places: Vec<Checkpoint>,
    by_insn: Vec<Vec<usize>>,
}

impl Walker {
    fn visit(
        &mut self,
        at: usize,
        state: &mut State,
        before: Option<usize>,
        depth: usize,
    ) -> Visit {
        state.normalize(self.live[at]);
        for &place in self.by_insn[at].iter().rev().take(COMPARED) {
            let place = &self.places[place];
            if place.done {
                if place.state.covers(state) {
                    return Visit::Covered(place.farthest);
                }
            } else if place.state == *state {
                return Visit::Same;
            }
        }
        let number = self.places.len();
        let state = state.clone();
        self.places.push(Checkpoint { state, at, before, depth, farthest: 0, done: false });
        self.by_insn[at].push(number);
        Visit::New(number)
    }

    /// Marks a checkpoint as finished: all paths from it have been walked.
    fn finish(&mut self, place: usize) {
        let Checkpoint { before, depth, farthest, at, .. } = self.places[place];
        debug_assert!(self.by_insn[at].contains(&place));
        self.places[place].done = true;
        if let Some(before) = before {
            let before = &mut self.places[before];
            before.farthest = before.farthest.max(depth - before.depth + farthest);
        }
    }
}

/// Checks each instruction by itself and returns which of them are targets of jumps.
fn check_structure(insns: &[Insn]) -> Result<Vec<bool>, (usize, VerifierError)> {
    let len = insns.len();
    if len == 0 || len > MAX_INSTRUCTIONS {
        return Err((0, VerifierError::Length(MAX_INSTRUCTIONS)));
    }
    let mut begins = vec![true; len];
    let mut jumps = Vec::new();
    let mut at = 0;
    while at < len {
        let insn = &insns[at];
        check_encoding(insn).map_err(|error| (at, error))?;
        if insn.code == WIDE {
            match insns.get(at + 1) {
                Some(Insn { code: 0, dst: 0, src: 0, off: 0, .. }) => begins[at + 1] = false,
                _ => return Err((at, VerifierError::Field)),
            }
            at += 1;
        } else if matches!(insn.class(), class::JMP | class::JMP32)
            && !matches!(insn.op(), jump::CALL | jump::EXIT)
        {
            jumps.push((at, (at + 1).wrapping_add_signed(insn.off.into())));
        }
        at += 1;
    }
    let mut targets = vec![false; len];
    for (at, to) in jumps {
        if !begins.get(to).is_some_and(|begins| *begins) {
            return Err((at, VerifierError::Jump));
        }
        targets[to] = true;
    }
    Ok(targets)
}

/// Checks the fields of one instruction, without its context.
fn check_encoding(insn: &Insn) -> Result<(), VerifierError> {
    let Insn { code, dst, src, off, imm } = *insn;
    let must = |is: bool, error: VerifierError| if is { Ok(()) } else { Err(error) };
    must(dst <= 10 && src <= 10, VerifierError::Field)?;
    let writes = matches!(insn.class(), class::LD | class::LDX | class::ALU | class::ALU64);
    must(!writes || dst < 10, VerifierError::FramePointer)?;
    match insn.class() {
        class::LD => {
            must(code == WIDE, VerifierError::Opcode)?;
            must(off == 0 && matches!(src, 0 | 2 | 3), VerifierError::Field)
        }
        class::LDX => {
            must(code & 0xe0 == super::insn::MEM, VerifierError::Opcode)?;
            must(imm == 0, VerifierError::Field)
        }
        class::ST => {
            must(code & 0xe0 == super::insn::MEM, VerifierError::Opcode)?;
            must(src == 0, VerifierError::Field)
        }
        class::STX => {
            must(code & 0xe0 == super::insn::MEM, VerifierError::Opcode)?;
            must(imm == 0, VerifierError::Field)
        }
        class::ALU | class::ALU64 => {
            let wide = insn.class() == class::ALU64;
            must(insn.op() <= alu::END, VerifierError::Opcode)?;
            // An offset other than 0 would encode signed division or a sign-extending move.
            must(off == 0, VerifierError::Opcode)?;
            match insn.op() {
                alu::END => {
                    must(!wide && matches!(imm, 16 | 32 | 64), VerifierError::Opcode)?;
                    must(src == 0, VerifierError::Field)
                }
                alu::NEG => {
                    must(!insn.by_register(), VerifierError::Opcode)?;
                    must(src == 0 && imm == 0, VerifierError::Field)
                }
                _ if insn.by_register() => must(imm == 0, VerifierError::Field),
                op => {
                    must(src == 0, VerifierError::Field)?;
                    must(!matches!(op, alu::DIV | alu::MOD) || imm != 0, VerifierError::Division)?;
                    let shift = matches!(op, alu::LSH | alu::RSH | alu::ARSH);
                    let bits = if wide { 64 } else { 32 };
                    must(!shift || (0..bits).contains(&imm), VerifierError::Shift)
                }
            }
        }
        _ => {
            let wide = insn.class() == class::JMP;
            must(insn.op() <= jump::SLE, VerifierError::Opcode)?;
            match insn.op() {
                jump::JA | jump::CALL | jump::EXIT => {
                    must(wide && !insn.by_register(), VerifierError::Opcode)?;
                    let call = insn.op() == jump::CALL;
                    must(!call || src != super::insn::PSEUDO_CALL, VerifierError::OwnFunction)?;
                    must(dst == 0 && src == 0, VerifierError::Field)?;
                    must(insn.op() == jump::JA || off == 0, VerifierError::Field)?;
                    must(call || imm == 0, VerifierError::Field)
                }
                _ if insn.by_register() => must(imm == 0, VerifierError::Field),
                _ => must(src == 0, VerifierError::Field),
            }
        }
    }
}
