//! Flow programs: eBPF that decides about each packet of a flow (thesis, 4.3.3).
//!
//! A decision can name a program and its initial cookie. From then on the program decides about
//! each packet of the flow, with 64 bytes of state for the flow.
//!
//! ```text
//!   clang ─► object file ─► object.rs ─► Code ─► verify/ ─► Verified ─► Programs ─► a gate
//!                           symbols become       every path through it, by number
//!                           numbers              before it ever runs
//!
//!   a decision ─► init ─► cookie
//!   a packet   ─► pkt, with the cookie ─► forward, prepared with a priority
//!                                         decline
//!                                         error: dropped
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `object.rs` | ELF files, by the `object` crate |
//! | `insn.rs` | instructions and their text form |
//! | `verify/` | the verifier |
//! | `arithmetic.rs` | what the operations and conditions compute |
//! | `memory.rs` | the memory of a run |
//! | `machine.rs` | the machine that runs verified programs |
//! | `packet.rs` | a packet as a program sees it |
//! | `programs.rs` | programs by number, with the previous versions |
//! | `shipped.rs` | the programs that are shipped, in C |
//!
//! The interface is that of Gatekeeper's programs except for access to the packet: `pkt_ctx_to_pkt`
//! returns a description with three pointers, and a comparison with the third, the packet's end,
//! has to precede every access to its bytes, as in the kernel's XDP programs. `programs/flow.h`
//! defines the interface; docs/decisions/0011 explains why the verifier and the machine are our
//! own.

pub mod shipped;

mod arithmetic;
mod error;
mod insn;
mod machine;
mod memory;
mod object;
mod packet;
mod programs;
mod verify;

pub use error::{ProgramError, VerifierError};
pub use insn::{Helper, Insn};
pub use machine::Fault;
pub use memory::Prepared;
pub use object::{MAX_INSTRUCTIONS, Section};
pub use programs::Programs;
pub use verify::{MAX_RUN_LENGTH, MAX_STEPS, Verified};

use memory::{DESCRIPTION, Memory, STACK};
use packet::Parsed;
use sha2::{Digest, Sha256};

/// How many programs a gate can have.
pub const MAX_PROGRAMS: usize = 256;

/// A program that has passed the verifier.
///
/// # Examples
///
/// ```no_run
/// use fingerpost_gate::program::Program;
/// let program = Program::load(&std::fs::read("granted.o")?)?;
/// println!("at most {} instructions a packet", program.packet().longest());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    init: Verified,
    packet: Verified,
    digest: [u8; 32],
}

/// A program's verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramVerdict {
    /// Forward it.
    Forward(Prepared),
    /// Drop it.
    Decline,
    /// The packet is malformed or the program failed: the packet is dropped, and the cookie is
    /// unchanged.
    Error,
    /// The program is missing, in the version that the flow began with. The flow sends requests
    /// again.
    Missing,
}

impl Program {
    /// Reads an object file and verifies its two sections.
    ///
    /// # Errors
    ///
    /// The [`ProgramError`] states which instruction is wrong and why.
    pub fn load(bytes: &[u8]) -> Result<Self, ProgramError> {
        let (init, packet) = object::read(bytes)?;
        let init = verify::verify(Section::Init, init)?;
        let packet = verify::verify(Section::Packet, packet)?;
        Ok(Self { init, packet, digest: digest(bytes) })
    }

    /// Returns the SHA-256 of the object file.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Returns the tag that flows store: the digest's first 16 bits.
    #[inline]
    pub fn tag(&self) -> u16 {
        u16::from_be_bytes([self.digest[0], self.digest[1]])
    }

    /// Returns the code that runs with a decision.
    pub fn init(&self) -> &Verified {
        &self.init
    }

    /// Returns the code that runs with each packet.
    pub fn packet(&self) -> &Verified {
        &self.packet
    }
}

/// Returns the digest of an object file: its SHA-256 (FIPS 180-4).
pub fn digest(object: &[u8]) -> [u8; 32] {
    Sha256::digest(object).into()
}

/// A worker's machine, which runs programs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Not cleared between runs: verified programs read no byte before they have written it.
    stack: [u8; STACK],
    faults: u64,
}

impl Default for Machine {
    fn default() -> Self {
        Self { stack: [0; STACK], faults: 0 }
    }
}

impl Machine {
    /// Runs a program's `init` at `now`, and returns whether it accepts the cookie, which it may
    /// change. The cookie is unchanged if it does not.
    pub fn init(&mut self, program: &Program, now: u64, cookie: &mut [u8; 64]) -> bool {
        let mut scratch = *cookie;
        let mut memory = Memory {
            context: &now.to_le_bytes(),
            stack: &mut self.stack,
            cookie: &mut scratch,
            description: &[0; DESCRIPTION],
            bytes: &[],
            prepared: None,
        };
        let result = machine::run(&program.init, &mut memory);
        self.faults += u64::from(result.is_err());
        let accepted = result == Ok(0);
        if accepted {
            *cookie = scratch;
        }
        accepted
    }

    /// Runs a program's `pkt` for a packet that begins with its IP header, at `now`.
    /// `length` is the frame's, Ethernet header included.
    ///
    /// A packet whose headers cannot be read, one that the program lets go without having prepared
    /// it, and any other return value is [`ProgramVerdict::Error`]: the packet is dropped, and the
    /// flow is unchanged. Any host can forge such a packet of the flow.
    pub fn packet(
        &mut self,
        program: &Program,
        now: u64,
        expire_at: u64,
        cookie: &mut [u8; 64],
        packet: &[u8],
        length: u32,
    ) -> ProgramVerdict {
        let Some(parsed) = Parsed::new(packet) else { return ProgramVerdict::Error };
        let before = *cookie;
        let mut memory = Memory {
            context: &parsed.context(now, expire_at),
            stack: &mut self.stack,
            cookie,
            description: &parsed.description(length),
            bytes: parsed.bytes,
            prepared: None,
        };
        let result = machine::run(&program.packet, &mut memory);
        self.faults += u64::from(result.is_err());
        match (result, memory.prepared) {
            (Ok(0), Some(prepared)) => ProgramVerdict::Forward(prepared),
            (Ok(1), _) => ProgramVerdict::Decline,
            _ => {
                *cookie = before;
                ProgramVerdict::Error
            }
        }
    }

    /// Counts the accesses of verified programs that violate their limits: always 0, or the
    /// verifier is wrong.
    pub fn faults(&self) -> u64 {
        self.faults
    }
}

#[cfg(test)]
pub(crate) mod tests;
