//! Instructions of eBPF (RFC 9669) that flow programs may use.
//!
//! ```text
//!  0        1            2        4              8
//!  ┌────────┬─────┬──────┬────────┬──────────────┐
//!  │ opcode │ src │ dst  │ offset │  immediate   │   src is the high nibble
//!  └────────┴─────┴──────┴────────┴──────────────┘
//! ```
//!
//! The fields are little-endian on every machine, as `clang -target bpfel` writes them. A wide load
//! takes two slots; the second has the upper half of the constant and is never executed. When a
//! file is loaded, its symbols are resolved to numbers: a call has the number of its [`Helper`];
//! the source nibble of a wide load states whether it is a constant, an address in the file's
//! constants, or the address of a clock rate.

use core::fmt;

/// Classes of instructions, the lower three bits of the opcode.
pub(super) mod class {
    pub(crate) const LD: u8 = 0;
    pub(crate) const LDX: u8 = 1;
    pub(crate) const ST: u8 = 2;
    pub(crate) const STX: u8 = 3;
    pub(crate) const ALU: u8 = 4;
    pub(crate) const JMP: u8 = 5;
    pub(crate) const JMP32: u8 = 6;
    pub(crate) const ALU64: u8 = 7;
}

/// Arithmetic, the upper four bits of the opcode.
pub(super) mod alu {
    pub(crate) const ADD: u8 = 0x00;
    pub(crate) const SUB: u8 = 0x10;
    pub(crate) const MUL: u8 = 0x20;
    pub(crate) const DIV: u8 = 0x30;
    pub(crate) const OR: u8 = 0x40;
    pub(crate) const AND: u8 = 0x50;
    pub(crate) const LSH: u8 = 0x60;
    pub(crate) const RSH: u8 = 0x70;
    pub(crate) const NEG: u8 = 0x80;
    pub(crate) const MOD: u8 = 0x90;
    pub(crate) const XOR: u8 = 0xa0;
    pub(crate) const MOV: u8 = 0xb0;
    pub(crate) const ARSH: u8 = 0xc0;
    pub(crate) const END: u8 = 0xd0;
}

/// Jumps, the upper four bits of the opcode.
pub(super) mod jump {
    pub(crate) const JA: u8 = 0x00;
    pub(crate) const EQ: u8 = 0x10;
    pub(crate) const GT: u8 = 0x20;
    pub(crate) const GE: u8 = 0x30;
    pub(crate) const SET: u8 = 0x40;
    pub(crate) const NE: u8 = 0x50;
    pub(crate) const SGT: u8 = 0x60;
    pub(crate) const SGE: u8 = 0x70;
    pub(crate) const CALL: u8 = 0x80;
    pub(crate) const EXIT: u8 = 0x90;
    pub(crate) const LT: u8 = 0xa0;
    pub(crate) const LE: u8 = 0xb0;
    pub(crate) const SLT: u8 = 0xc0;
    pub(crate) const SLE: u8 = 0xd0;
}

/// The opcode's bit that makes the second operand a register.
pub(super) const X: u8 = 0x08;
/// The mode of plain loads and stores.
pub(super) const MEM: u8 = 0x60;
/// The opcode of a wide load.
pub(super) const WIDE: u8 = 0x18;
/// The source nibble of a wide load of a constant.
pub(super) const OF_CONSTANT: u8 = 0;
/// The source nibble of a wide load of an address within the file's constants.
pub(super) const OF_RODATA: u8 = 2;
/// The source nibble of a wide load of an address within the clock's rates.
pub(super) const OF_CLOCK: u8 = 3;
/// The source nibble of a call to a function of the program.
pub(super) const PSEUDO_CALL: u8 = 1;

/// The frame pointer, which is read-only.
pub(super) const FRAME: u8 = 10;

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Insn {
    /// The opcode.
    pub code: u8,
    /// The destination register, or the first one compared.
    pub dst: u8,
    /// The source register.
    pub src: u8,
    /// The offset of a jump or memory access.
    pub off: i16,
    /// The constant.
    pub imm: i32,
}

impl Insn {
    /// Reads an instruction from its eight bytes.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        let [code, regs, o0, o1, i0, i1, i2, i3] = bytes;
        Self {
            code,
            dst: regs & 0xf,
            src: regs >> 4,
            off: i16::from_le_bytes([o0, o1]),
            imm: i32::from_le_bytes([i0, i1, i2, i3]),
        }
    }

    #[inline(always)]
    pub(super) fn class(&self) -> u8 {
        self.code & 7
    }

    #[inline(always)]
    pub(super) fn op(&self) -> u8 {
        self.code & 0xf0
    }

    #[inline(always)]
    pub(super) fn by_register(&self) -> bool {
        self.code & X != 0
    }

    /// Returns the bytes of a load or store.
    #[inline(always)]
    pub(super) fn size(&self) -> usize {
        match self.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }
}

/// A function that a program may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Helper {
    /// The cookie, in `init`.
    InitCookie = 1,
    /// The cookie, in `pkt`.
    PacketCookie = 2,
    /// The packet.
    Packet = 3,
    /// Prepares the packet for transmission, with a priority.
    Prepare = 4,
}

impl Helper {
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "init_ctx_to_cookie" => Self::InitCookie,
            "pkt_ctx_to_cookie" => Self::PacketCookie,
            "pkt_ctx_to_pkt" => Self::Packet,
            "gk_bpf_prep_for_tx" => Self::Prepare,
            _ => return None,
        })
    }

    pub(super) fn by_number(number: i32) -> Option<Self> {
        [Self::InitCookie, Self::PacketCookie, Self::Packet, Self::Prepare]
            .into_iter()
            .find(|helper| *helper as i32 == number)
    }

    fn name(self) -> &'static str {
        match self {
            Self::InitCookie => "init_ctx_to_cookie",
            Self::PacketCookie => "pkt_ctx_to_cookie",
            Self::Packet => "pkt_ctx_to_pkt",
            Self::Prepare => "gk_bpf_prep_for_tx",
        }
    }
}

/// Writes an instruction in the syntax of `llvm-objdump -d`, except for details.
impl fmt::Display for Insn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dst, src, off, imm, .. } = *self;
        let narrow = matches!(self.class(), class::ALU | class::JMP32);
        let r = if narrow { 'w' } else { 'r' };
        let second = if self.by_register() { format!("{r}{src}") } else { imm.to_string() };
        let unsigned = ["u32", "u16", "u8", "u64"][usize::from(self.code >> 3 & 3)];
        match self.class() {
            class::LD if self.code == WIDE => write!(f, "r{dst} = {imm:#x} ll"),
            class::LDX => write!(f, "r{dst} = *({unsigned} *)(r{src} {off:+})"),
            class::ST => write!(f, "*({unsigned} *)(r{dst} {off:+}) = {imm}"),
            class::STX => write!(f, "*({unsigned} *)(r{dst} {off:+}) = r{src}"),
            class::ALU | class::ALU64 => match self.op() {
                alu::NEG => write!(f, "{r}{dst} = -{r}{dst}"),
                alu::END => {
                    let to = if self.by_register() { "be" } else { "le" };
                    write!(f, "r{dst} = {to}{imm} r{dst}")
                }
                op => {
                    const SIGNS: [&str; 13] = [
                        "+=", "-=", "*=", "/=", "|=", "&=", "<<=", ">>=", "", "%=", "^=", "=",
                        "s>>=",
                    ];
                    let sign = SIGNS.get(usize::from(op >> 4)).unwrap_or(&"?=");
                    write!(f, "{r}{dst} {sign} {second}")
                }
            },
            class::JMP | class::JMP32 => match self.op() {
                jump::JA => write!(f, "goto {off:+}"),
                jump::EXIT => f.write_str("exit"),
                jump::CALL => match Helper::by_number(imm) {
                    Some(helper) => write!(f, "call {}", helper.name()),
                    None => write!(f, "call {imm}"),
                },
                op => {
                    const SIGNS: [&str; 14] = [
                        "", "==", ">", ">=", "&", "!=", "s>", "s>=", "", "", "<", "<=", "s<", "s<=",
                    ];
                    let sign = SIGNS.get(usize::from(op >> 4)).unwrap_or(&"?");
                    write!(f, "if {r}{dst} {sign} {second} goto {off:+}")
                }
            },
            _ => write!(f, "opcode {:#04x}", self.code),
        }
    }
}
