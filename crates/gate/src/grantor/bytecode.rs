//! The global names that a policy reads and writes, from its compiled chunk.
//!
//! ```text
//!   text ─► Lua's compiler ─► lua_dump ─► functions ─┬─ GETTABUP _ENV "grnat"   read, line 7
//!                                                    ├─ SETTABUP _ENV "decide"  written
//!                                                    └─ integers: 443, 6, …
//! ```
//!
//! A name that is read but that neither the policy nor its environment defines is a mistake
//! (`grnat`, or `string.find`, which is removed). Lua reports it when the line runs, which may be
//! in the first attack of the year; the compiled chunk has the names of every branch. The integers
//! are those that a policy compares with, mainly ports: a dry run uses them to reach more branches
//! (`dry_run.rs`).
//!
//! The format is that of `ldump.c` and `lopcodes.h` of Lua 5.4, whose compiler is linked into this
//! program: it does not change with the machine, and an unknown format gives `None`. A name whose
//! constant does not fit into the instruction (beyond 255 constants in a function) is read by
//! GETUPVAL and LOADK, which is supported too. A policy with a local variable `_ENV` is not
//! checked.

use std::collections::BTreeSet;

/// Opcodes of `lopcodes.h`.
const LOADI: u32 = 1;
const LOADK: u32 = 3;
const GETUPVAL: u32 = 9;
const GETTABUP: u32 = 11;
const GETTABLE: u32 = 12;
const GETFIELD: u32 = 14;
const SETTABUP: u32 = 15;
const EQI: u32 = 61;
const GEI: u32 = 65;

/// The header of a chunk: signature, version 5.4, format 0, and Lua's check of line ends.
const HEADER: &[u8] = b"\x1bLua\x54\x00\x19\x93\r\n\x1a\n";
/// The greatest depth of nested functions.
const MAX_DEPTH: u32 = 200;

/// A global that is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Read {
    /// The line of the policy.
    pub(super) line: u32,
    /// The name.
    pub(super) name: String,
    /// Its field that is read directly, as in `string.format`.
    pub(super) field: Option<String>,
}

/// The uses of globals in a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Globals {
    /// Globals that are read.
    pub(super) reads: BTreeSet<Read>,
    /// Globals that are written.
    pub(super) writes: BTreeSet<String>,
    /// Integers up to 65535 in it.
    pub(super) numbers: BTreeSet<u16>,
}

/// Reads a chunk as `lua_dump` writes it, not stripped.
pub(super) fn globals(chunk: &[u8]) -> Option<Globals> {
    let mut cursor = Cursor(chunk.strip_prefix(HEADER)?);
    // The sizes of an instruction, an integer and a float; then a sample of the last two.
    if cursor.take(3)? != [4, 8, 8] {
        return None;
    }
    cursor.take(16 + 1)?;
    let mut found = Globals::default();
    let whole = cursor.function(&mut found, 0)?;
    whole.then_some(found)
}

/// A constant: a name, or any other.
enum Constant {
    Name(String),
    Other,
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    /// Reads a size: seven bits a byte, the highest first, the last byte marked.
    fn size(&mut self) -> Option<usize> {
        let mut size = 0usize;
        loop {
            let byte = self.byte()?;
            size = size.checked_mul(128)? | usize::from(byte & 0x7f);
            if byte & 0x80 != 0 {
                return Some(size);
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        let size = self.size()?;
        let bytes = self.take(size.saturating_sub(1))?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    fn constant(&mut self, found: &mut Globals) -> Option<Constant> {
        match self.byte()? {
            // nil, false, true
            0x00 | 0x01 | 0x11 => {}
            0x03 => {
                let number = i64::from_ne_bytes(self.take(8)?.try_into().ok()?);
                found.numbers.extend(u16::try_from(number));
            }
            0x13 => {
                self.take(8)?;
            }
            0x04 | 0x14 => return Some(Constant::Name(self.string()?)),
            _ => return None,
        }
        Some(Constant::Other)
    }

    /// Reads a function and its nested functions. Returns false if `_ENV` is a local variable.
    fn function(&mut self, found: &mut Globals, depth: u32) -> Option<bool> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.string()?;
        let (begin, _end) = (self.size()?, self.size()?);
        self.take(3)?;
        let instructions = self.size()?;
        let code: Vec<u32> = self
            .take(instructions.checked_mul(4)?)?
            .chunks_exact(4)
            .map(|bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect();
        let count = self.size()?;
        let constants = (0..count).map(|_| self.constant(found)).collect::<Option<Vec<_>>>()?;
        let upvalues = self.size()?;
        self.take(upvalues.checked_mul(3)?)?;
        let mut whole = true;
        for _ in 0..self.size()? {
            whole &= self.function(found, depth + 1)?;
        }
        let lines = self.lines(begin)?;
        for _ in 0..self.size()? {
            whole &= self.string()? != "_ENV";
            self.size()?;
            self.size()?;
        }
        let names = self.size()?;
        let names = (0..names).map(|_| self.string()).collect::<Option<Vec<_>>>()?;
        let env = names.iter().position(|name| name == "_ENV");
        scan(&code, &constants, &lines, env, found);
        Some(whole)
    }

    /// Reads the line of each instruction.
    fn lines(&mut self, begin: usize) -> Option<Vec<u32>> {
        let count = self.size()?;
        let steps = self.take(count)?;
        let mut known = Vec::new();
        for _ in 0..self.size()? {
            known.push((self.size()?, self.size()?));
        }
        let mut line = i64::try_from(begin).ok()?;
        let line_of = |(at, step): (usize, &u8)| {
            let step = step.cast_signed();
            line = match known.iter().find(|(pc, _)| *pc == at && step == i8::MIN) {
                Some((_, known)) => i64::try_from(*known).ok()?,
                None => line + i64::from(step),
            };
            u32::try_from(line).ok()
        };
        steps.iter().enumerate().map(line_of).collect()
    }
}

/// Scans the code of one function.
fn scan(
    code: &[u32],
    constants: &[Constant],
    lines: &[u32],
    env: Option<usize>,
    found: &mut Globals,
) {
    let op = |instruction: u32| instruction & 0x7f;
    let a = |instruction: u32| instruction >> 7 & 0xff;
    let b = |instruction: u32| instruction >> 16 & 0xff;
    let c = |instruction: u32| instruction >> 24;
    let bx = |instruction: u32| instruction >> 15;
    let name = |at: u32| match constants.get(at as usize) {
        Some(Constant::Name(name)) => Some(name.clone()),
        _ => None,
    };
    let is_env = |upvalue: u32| env == Some(upvalue as usize);
    for (at, &this) in code.iter().enumerate() {
        let next = |steps: usize| code.get(at + steps).copied().unwrap_or(0);
        let line = lines.get(at).copied().unwrap_or(0);
        match op(this) {
            GETTABUP if is_env(b(this)) => {
                let field = next(1);
                let field = (op(field) == GETFIELD && b(field) == a(this)).then(|| name(c(field)));
                if let Some(name) = name(c(this)) {
                    found.reads.insert(Read { line, name, field: field.flatten() });
                }
            }
            SETTABUP if is_env(a(this)) => found.writes.extend(name(b(this))),
            GETUPVAL if is_env(b(this)) && op(next(1)) == LOADK => {
                let Some(name) = name(bx(next(1))) else { continue };
                if op(next(2)) == GETTABLE && b(next(2)) == a(this) {
                    found.reads.insert(Read { line, name, field: None });
                } else {
                    found.writes.insert(name);
                }
            }
            LOADI => {
                found.numbers.extend(u16::try_from(i64::from(bx(this)) - 65_535));
            }
            EQI..=GEI => {
                found.numbers.extend(u16::try_from(i64::from(b(this)) - 127));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Globals {
        let lua = mlua::Lua::new();
        let chunk = lua.load(text).set_name("=policy").into_function().unwrap().dump(false);
        globals(&chunk).unwrap()
    }

    fn reads(text: &str) -> Vec<(u32, String)> {
        let name = |read: Read| match read.field {
            Some(field) => format!("{}.{field}", read.name),
            None => read.name,
        };
        of(text).reads.into_iter().map(|read| (read.line, name(read))).collect()
    }

    #[test]
    fn globals_of_every_branch_are_found_with_their_lines() {
        let text = "local a = one\n\nfunction decide(p)\n  if p.x then\n    return two(three.four)\n  \
                    end\n  local f = function()\n    five = six\n  end\n  return a.b\nend\n";
        let expected = [(1, "one"), (5, "three.four"), (5, "two"), (8, "six")];
        assert_eq!(reads(text), expected.map(|(line, name)| (line, name.to_owned())));
        let writes: Vec<_> = of(text).writes.into_iter().collect();
        assert_eq!(writes, ["decide", "five"]);
    }

    #[test]
    fn globals_beyond_255_constants_are_found() {
        let mut text = String::from("function decide(p)\n");
        for number in 0..600 {
            text += &format!("  local x = p['name{number}'] x = nil\n  do end\n");
            text = text.replace("local x", "x");
        }
        text += "  late = 1\n  return missing\nend\n";
        let found = of(&text);
        assert!(found.reads.iter().any(|read| read.name == "missing" && read.line == 1203));
        assert!(found.writes.contains("late"));
    }

    #[test]
    fn numbers_of_a_policy_are_found() {
        let text = "local open = { [8443] = true }\nfunction decide(p)\n  if p.dst_port == 443 or \
                    p.protocol > 17 then return 5 end\n  return -1\nend\n";
        let numbers = of(text).numbers;
        for number in [8443, 443, 17, 5] {
            assert!(numbers.contains(&number), "{number} is not in {numbers:?}");
        }
    }

    #[test]
    fn truncated_or_damaged_chunk_does_not_panic() {
        let lua = mlua::Lua::new();
        let text = include_str!("../../policies/handshake.lua");
        let chunk = lua.load(text).into_function().unwrap().dump(false);
        assert!(globals(&chunk).is_some());
        for length in 0..chunk.len() {
            assert_eq!(globals(&chunk[..length]), None, "{length}");
        }
        for at in 0..chunk.len() {
            for bit in 0..8 {
                let mut damaged = chunk.clone();
                damaged[at] ^= 1 << bit;
                let _ = globals(&damaged);
            }
        }
    }
}
