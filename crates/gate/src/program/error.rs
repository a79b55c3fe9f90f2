//! Errors of the verifier, with the section and the instruction.

use core::fmt;

use super::insn::Insn;

/// The error that a program is rejected with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramError {
    /// The section, `init` or `pkt`, if the error is in one.
    pub section: Option<&'static str>,
    /// The number and text of the instruction, if the error is in one.
    pub at: Option<(usize, Insn)>,
    /// The error.
    pub error: VerifierError,
}

/// An error in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifierError {
    /// The file is no object file.
    NotAnObject(String),
    /// The file is not for little-endian eBPF.
    NotBpf,
    /// The section is missing or empty.
    NoSection,
    /// The section is not whole instructions, or more than so many.
    Length(usize),
    /// A name that flow programs do not have.
    UnknownName(String),
    /// A relocation of a type that is not known.
    Relocation,
    /// A variable of the program: only constants and the cookie are allowed.
    Variable(String),
    /// An unknown instruction, or one that this machine does not support.
    Opcode,
    /// A register above r10, or a field that must be zero.
    Field,
    /// A write to the frame pointer.
    FramePointer,
    /// A jump to outside the program, or into the middle of an instruction.
    Jump,
    /// The program continues beyond its last instruction.
    FallsOff,
    /// A call to a function of the program.
    OwnFunction,
    /// An unknown helper function, or one that this section may not call.
    NoSuchFunction(i32),
    /// A read of an uninitialized register.
    Unset(u8),
    /// A read of uninitialized bytes of the stack.
    UnsetStack(i64),
    /// An access outside of a region.
    OutOfBounds {
        /// The region.
        of: &'static str,
        /// The lowest offset.
        low: i64,
        /// The highest offset.
        high: i64,
        /// Bytes read or written.
        size: usize,
        /// The size of the region, or the bytes that a comparison has proved to exist.
        room: i64,
    },
    /// A write to read-only memory.
    ReadOnly(&'static str),
    /// A number used as an address.
    NotAPointer(u8),
    /// Arithmetic on a pointer that the verifier cannot follow.
    PointerArithmetic(&'static str),
    /// A comparison that would reveal a pointer.
    PointerComparison,
    /// A pointer would leave the program or be stored beyond its run.
    PointerLeak,
    /// An access to a part of a pointer.
    PartOfPointer,
    /// The divisor can be zero.
    Division,
    /// A shift by the operand's width or more.
    Shift,
    /// An argument of the wrong type.
    Argument(u8),
    /// The same state occurs again: an infinite loop.
    Endless,
    /// Too many states to verify.
    TooComplex(usize),
    /// A path through the program is longer than allowed.
    TooLong(usize),
}

impl fmt::Display for VerifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject(error) => write!(f, "not an object file: {error}"),
            Self::NotBpf => f.write_str("not for eBPF: compile with `clang -target bpfel -c`"),
            Self::NoSection => f.write_str("the section is missing or empty"),
            Self::Length(most) => write!(f, "not 1 to {most} whole instructions"),
            Self::UnknownName(name) => write!(f, "unknown symbol `{name}`"),
            Self::Relocation => f.write_str("a relocation of an unknown type"),
            Self::Variable(name) => {
                write!(f, "`{name}` is a variable: only the cookie lasts; make it const")
            }
            Self::Opcode => f.write_str("unknown opcode (compile with -mcpu=v3 at most)"),
            Self::Field => f.write_str("invalid register or field"),
            Self::FramePointer => f.write_str("writes the frame pointer"),
            Self::Jump => f.write_str("jumps to an address without an instruction"),
            Self::FallsOff => f.write_str("continues beyond the last instruction"),
            Self::OwnFunction => {
                f.write_str("calls a function of its own: make it static and always_inline")
            }
            Self::NoSuchFunction(n) => write!(f, "unknown helper function {n}"),
            Self::Unset(reg) => write!(f, "reads r{reg}, which is not initialized"),
            Self::UnsetStack(offset) => {
                write!(f, "reads the stack at {offset}, which is not initialized")
            }
            Self::OutOfBounds { of, low, high, size, room } => {
                write!(f, "{size} bytes of {of} at {low}")?;
                if high != low {
                    write!(f, " to {high}")?;
                }
                write!(f, ", where {room} are known to exist")
            }
            Self::ReadOnly(what) => write!(f, "writes to {what}, which is read-only"),
            Self::NotAPointer(reg) => write!(f, "uses r{reg} as an address, which it is not"),
            Self::PointerArithmetic(error) => write!(f, "arithmetic with a pointer: {error}"),
            Self::PointerComparison => f.write_str("a comparison that would reveal a pointer"),
            Self::PointerLeak => f.write_str("a pointer would leave the program"),
            Self::PartOfPointer => f.write_str("takes a part of a pointer"),
            Self::Division => f.write_str("the divisor can be zero: check it before"),
            Self::Shift => f.write_str("shifts by more bits than there are"),
            Self::Argument(reg) => write!(f, "r{reg} is not what the function takes"),
            Self::Endless => f.write_str("infinite loop: the same state returns"),
            Self::TooComplex(most) => write!(f, "too complex: not verified within {most} steps"),
            Self::TooLong(most) => write!(f, "runs more than {most} instructions"),
        }
    }
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(section) = self.section {
            write!(f, "{section}")?;
            match self.at {
                Some((number, insn)) => write!(f, ", instruction {number} `{insn}`: ")?,
                None => write!(f, ": ")?,
            }
        }
        write!(f, "{}", self.error)
    }
}

impl core::error::Error for ProgramError {}

impl From<VerifierError> for ProgramError {
    fn from(error: VerifierError) -> Self {
        Self { section: None, at: None, error }
    }
}
