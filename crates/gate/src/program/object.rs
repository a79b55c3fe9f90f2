//! Object files: reads the code that `clang -target bpfel -O2 -c` writes.
//!
//! These parts of an ELF file are read (by the `object` crate): the sections `init` and `pkt`, each
//! a function from its first instruction on; the constants `.rodata…`, one after the other; and the
//! relocations of the two sections, which resolve symbols to numbers:
//!
//! | relocation | symbol | becomes |
//! |---|---|---|
//! | `R_BPF_64_32` | a helper | its number in the call |
//! | `R_BPF_64_64` | `cycles_per_sec`, `cycles_per_ms` | the address of the rate |
//! | `R_BPF_64_64` | a constant in `.rodata…` | its address |
//!
//! Everything else is rejected with its name: variables (`.data`, `.bss`), maps, functions that
//! were not inlined. Debug sections and BTF are ignored. The file is untrusted input: its numbers
//! are used only as indexes that are checked.

use object::elf::{EM_BPF, R_BPF_64_32, R_BPF_64_64};
use object::read::elf::{ElfFile64, FileHeader};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget,
    SectionIndex,
};

use super::error::{ProgramError, VerifierError};
use super::insn::{Helper, Insn, OF_CLOCK, OF_CONSTANT, OF_RODATA, WIDE};

/// The most instructions of a section.
pub const MAX_INSTRUCTIONS: usize = 4096;
/// The opcode of a call.
const CALL: u8 = 0x85;
/// The most bytes of constants.
const MAX_RODATA: usize = 1 << 15;

/// A section of a program, which determines its context and the helpers that it may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Runs when a decision arrives.
    Init,
    /// Runs for every packet.
    Packet,
}

impl Section {
    /// Returns its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Packet => "pkt",
        }
    }
}

/// Instructions and the constants they read.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub(super) insns: Vec<Insn>,
    pub(super) rodata: Vec<u8>,
}

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// Reads the code of both sections.
pub(super) fn read(bytes: &[u8]) -> Result<(Code, Code), ProgramError> {
    let elf = Elf::parse(bytes).map_err(|error| VerifierError::NotAnObject(error.to_string()))?;
    if elf.elf_header().e_machine(LittleEndian) != EM_BPF {
        return Err(VerifierError::NotBpf.into());
    }
    let mut rodata = Vec::new();
    let mut constants = Vec::new();
    for section in elf.sections() {
        if section.name().is_ok_and(|name| name.starts_with(".rodata")) {
            // Sections start at a multiple of 16, as a linker would place them.
            rodata.resize(rodata.len().next_multiple_of(16), 0);
            constants.push((section.index(), rodata.len()));
            rodata.extend_from_slice(section.data().unwrap_or_default());
        }
    }
    if rodata.len() > MAX_RODATA {
        return Err(VerifierError::Variable(".rodata".into()).into());
    }
    let code = |section| -> Result<Code, ProgramError> {
        let insns = instructions(&elf, section, &constants)?;
        Ok(Code { insns, rodata: rodata.clone() })
    };
    Ok((code(Section::Init)?, code(Section::Packet)?))
}

fn instructions(
    elf: &Elf<'_>,
    of: Section,
    constants: &[(SectionIndex, usize)],
) -> Result<Vec<Insn>, ProgramError> {
    let whole = |error| ProgramError { section: Some(of.name()), at: None, error };
    let section = elf.section_by_name(of.name()).ok_or_else(|| whole(VerifierError::NoSection))?;
    let bytes =
        section.data().map_err(|error| whole(VerifierError::NotAnObject(error.to_string())))?;
    if bytes.is_empty() {
        return Err(whole(VerifierError::NoSection));
    }
    let (chunks, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() || chunks.len() > MAX_INSTRUCTIONS {
        return Err(whole(VerifierError::Length(MAX_INSTRUCTIONS)));
    }
    let mut insns: Vec<Insn> = chunks.iter().map(|bytes| Insn::from_bytes(*bytes)).collect();
    // Only a relocation may turn a wide load into an address and give a call its number.
    let wide = |insn: &Insn| insn.code == WIDE && insn.src != OF_CONSTANT;
    if let Some(at) = insns.iter().position(wide) {
        let at = Some((at, insns[at]));
        return Err(ProgramError { section: Some(of.name()), at, error: VerifierError::Field });
    }
    let mut named = vec![false; insns.len()];
    for (offset, relocation) in section.relocations() {
        let at = offset as usize / 8;
        let Some(insn) = insns.get_mut(at).filter(|_| offset % 8 == 0) else {
            return Err(whole(VerifierError::Relocation));
        };
        let refuse = |insn: Insn, error| ProgramError {
            section: Some(of.name()),
            at: Some((at, insn)),
            error,
        };
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            return Err(refuse(*insn, VerifierError::Relocation));
        };
        let symbol =
            elf.symbol_by_index(symbol).map_err(|_| refuse(*insn, VerifierError::Relocation))?;
        let name = symbol.name().unwrap_or_default();
        match relocation.flags() {
            RelocationFlags::Elf { r_type: R_BPF_64_32 } if insn.code == CALL => {
                if !symbol.is_undefined() {
                    return Err(refuse(*insn, VerifierError::OwnFunction));
                }
                let Some(helper) = Helper::by_name(name) else {
                    return Err(refuse(*insn, VerifierError::UnknownName(name.to_owned())));
                };
                (insn.src, insn.imm) = (0, helper as i32);
            }
            RelocationFlags::Elf { r_type: R_BPF_64_64 } if insn.code == WIDE => {
                let within = |section| constants.iter().find(|(index, _)| *index == section);
                let placed = symbol.section_index().and_then(within);
                let address = match (name, placed) {
                    ("cycles_per_sec", None) if symbol.is_undefined() => (OF_CLOCK, 0),
                    ("cycles_per_ms", None) if symbol.is_undefined() => (OF_CLOCK, 8),
                    (_, Some(&(_, base))) => {
                        let offset = symbol.address().wrapping_add(base as u64);
                        (OF_RODATA, offset.wrapping_add(insn.imm as u32 as u64))
                    }
                    _ if symbol.is_undefined() => {
                        return Err(refuse(*insn, VerifierError::UnknownName(name.to_owned())));
                    }
                    _ => return Err(refuse(*insn, VerifierError::Variable(name.to_owned()))),
                };
                let Ok(imm) = i32::try_from(address.1) else {
                    return Err(refuse(*insn, VerifierError::Relocation));
                };
                (insn.src, insn.imm) = (address.0, imm);
            }
            _ => return Err(refuse(*insn, VerifierError::Relocation)),
        }
        named[at] = true;
    }
    // A call without a relocation names a kernel helper or a function of the program.
    for (at, insn) in insns.iter().enumerate() {
        if insn.code == CALL && !named[at] {
            let own = insn.src == super::insn::PSEUDO_CALL;
            let error = if own {
                VerifierError::OwnFunction
            } else {
                VerifierError::NoSuchFunction(insn.imm)
            };
            return Err(ProgramError { section: Some(of.name()), at: Some((at, *insn)), error });
        }
    }
    Ok(insns)
}
