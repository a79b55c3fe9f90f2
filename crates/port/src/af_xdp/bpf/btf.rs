//! BTF: the layouts of the running kernel's structs, for programs that read them, and the types of functions.
//!
//! ```text
//!   /sys/kernel/btf/vmlinux   header ─┬─► types    name:4 info:4 size:4, then members and the like by kind
//!                                     └─► strings
//! ```
//!
//! Documentation/bpf/btf.rst. The members of a struct have moved from release to release, so a program takes
//! their offsets from here. One pass over the types finds where each begins; an offset is then found by the names of
//! structs and members. Some megabytes are read once. A program has BTF of its own, with its functions.
//!
//! Limits: the byte order of this machine; no bit fields.

#![expect(unsafe_code, reason = "bpf(2) reads types through a pointer")]

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use super::sys::{self, Command};

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
/// The maximum number of names and qualifiers before a struct.
const MAX_ALIASES: usize = 32;
/// `BTF_FUNC_GLOBAL`: in place of the number of parts.
const GLOBAL: u32 = 1;

/// Kinds of types (`BTF_KIND_*`), and the sizes of what follows a type, in bytes: for each of its parts, or in all.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNCTION: u32 = 12;
    pub(super) const PROTOTYPE: u32 = 13;

    /// Returns the bytes that follow the three words of a type of this kind with `parts` parts; `None` for an
    /// unknown kind.
    pub(super) fn tail(kind: u32, parts: usize) -> Option<usize> {
        Some(match kind {
            // Integers, variables, declaration tags.
            INT | 14 | 17 => 4,
            // Arrays.
            3 => 12,
            // Pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags.
            2 | 7..=12 | 16 | 18 => 0,
            // Enumerations and prototypes.
            6 | PROTOTYPE => parts * 8,
            // Structs, unions, sections, enumerations of 64 bits.
            STRUCT | UNION | 15 | 19 => parts * 12,
            _ => return None,
        })
    }
}

/// The types of a kernel.
#[derive(Debug)]
pub struct Btf {
    types: Vec<u8>,
    strings: Vec<u8>,
    /// The offset of each type in `types`; the number 0 is `void`.
    starts: Vec<u32>,
}

/// A type.
#[derive(Clone, Copy, Debug)]
struct Type {
    name: u32,
    kind: u32,
    parts: usize,
    /// A size, or the number of another type.
    other: u32,
    /// The offset of what follows.
    tail: usize,
}

impl Btf {
    /// Reads the types of the running kernel.
    ///
    /// # Errors
    ///
    /// Those of the file: `ENOENT` for a kernel without BTF; `InvalidData` if it cannot be parsed.
    pub fn of_kernel() -> io::Result<Self> {
        Self::parse(&fs::read(VMLINUX)?).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{VMLINUX} cannot be parsed"))
        })
    }

    /// Parses types with their header; `None` if they are damaged or have an unknown kind.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let field = |at| word(bytes, at).map(|word| word as usize);
        let header = field(4)?;
        let part = |offset: usize, length: usize| {
            let from = header.checked_add(offset)?;
            bytes.get(from..from.checked_add(length)?).map(<[u8]>::to_vec)
        };
        let (types, strings) = (part(field(8)?, field(12)?)?, part(field(16)?, field(20)?)?);
        let mut btf = Self { types, strings, starts: vec![0] };
        let mut at = 0;
        while at < btf.types.len() {
            btf.starts.push(at as u32);
            let found = btf.at(at)?;
            at = found.tail.checked_add(kind::tail(found.kind, found.parts)?)?;
        }
        Some(btf)
    }

    /// Finds the offset in bytes of a member of a struct, of its member, and so on: `["nd_net", "net"]` of
    /// `net_device`. Members of unnamed structs and unions count as those of the outer one.
    pub fn offset(&self, name: &str, path: &[&str]) -> Option<u32> {
        let numbers = 1..self.starts.len() as u32;
        let is_struct =
            |found: &Type| found.kind == kind::STRUCT && self.is_named(found.name, name);
        let structs = numbers.filter_map(|number| self.numbered(number)).filter(is_struct);
        structs.into_iter().find_map(|found| self.offset_in(found, path))
    }

    /// Finds the number of a global function.
    pub(super) fn function(&self, name: &str) -> Option<u32> {
        (1..self.starts.len() as u32).find(|&number| {
            self.numbered(number).is_some_and(|found| {
                found.kind == kind::FUNCTION
                    && found.parts == GLOBAL as usize
                    && self.is_named(found.name, name)
            })
        })
    }

    /// Finds the offset of a member along `path`, which begins in `outer`.
    fn offset_in(&self, outer: Type, path: &[&str]) -> Option<u32> {
        let (first, rest) = path.split_first()?;
        (0..outer.parts).find_map(|part| {
            let at = outer.tail + part * 12;
            let (name, number) = (word(&self.types, at)?, word(&self.types, at + 4)?);
            // The upper byte is the size of a bit field, if the struct has any.
            let offset = (word(&self.types, at + 8)? & 0xff_ffff) / 8;
            let inner = || self.composite(number);
            let within = match self.is_named(name, first) {
                true if rest.is_empty() => 0,
                true => self.offset_in(inner()?, rest)?,
                false if self.is_named(name, "") => self.offset_in(inner()?, path)?,
                false => return None,
            };
            Some(offset + within)
        })
    }

    /// Returns the struct or union with this number, or the one that it stands for.
    fn composite(&self, mut number: u32) -> Option<Type> {
        for _ in 0..MAX_ALIASES {
            let found = self.numbered(number)?;
            match found.kind {
                kind::STRUCT | kind::UNION => return Some(found),
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT => {
                    number = found.other;
                }
                _ => break,
            }
        }
        None
    }

    fn numbered(&self, number: u32) -> Option<Type> {
        let start = *self.starts.get(number as usize).filter(|_| number != 0)?;
        self.at(start as usize)
    }

    fn at(&self, at: usize) -> Option<Type> {
        let [name, info, other] = [0, 4, 8].map(|field| word(&self.types, at + field));
        let info = info?;
        let (kind, parts) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        Some(Type { name: name?, kind, parts, other: other?, tail: at + 12 })
    }

    fn is_named(&self, name: u32, expected: &str) -> bool {
        let text = self.strings.get(name as usize..).unwrap_or_default();
        text.strip_prefix(expected.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// Encodes the types of one global function, whose arguments and result are integers of these bytes; returns them and the
/// function's number.
pub(super) fn function(name: &str, arguments: &[u32], result: u32) -> (Vec<u8>, u32) {
    // The kernel wants a name for each integer, argument and function.
    let strings = format!("\0u32\0u64\0a\0{name}\0");
    let [u32_name, u64_name, argument_name, function_name] = [1, 5, 9, 11];
    let integer = |size: u32| 1 + u32::from(size == 8);
    let mut types = vec![u32_name, kind::INT << 24, 4, 32, u64_name, kind::INT << 24, 8, 64];
    types.extend([0, kind::PROTOTYPE << 24 | arguments.len() as u32, integer(result)]);
    types.extend(arguments.iter().flat_map(|&size| [argument_name, integer(size)]));
    types.extend([function_name, kind::FUNCTION << 24 | GLOBAL, 3]);
    (encode(&types, &strings), 4)
}

/// Encodes types, each as its words, with these strings.
fn encode(types: &[u32], strings: &str) -> Vec<u8> {
    let (len, text) = (types.len() as u32 * 4, strings.len() as u32);
    let [low, high] = MAGIC.to_ne_bytes();
    // Magic number, version and flags; the length of the header.
    let words = [u32::from_ne_bytes([low, high, 1, 0]), 24, 0, len, len, text];
    let words = words.into_iter().chain(types.iter().copied());
    let mut bytes: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
    bytes.extend(strings.as_bytes());
    bytes
}

/// Hands types to the kernel, for a program.
pub(super) fn load(types: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = sys::BtfLoad {
        types: types.as_ptr() as u64,
        size: types.len() as u32,
        ..Default::default()
    };
    // SAFETY: the arm of this command, which makes a descriptor; it reads `size` bytes of the slice.
    unsafe { sys::open(Command::BtfLoad, &mut attr) }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_follows_names_unnamed_members_and_typedefs() {
        // 1: int; 2: struct in { int a; int b; }; 3: typedef in in_t; 4: struct { int c; };
        // 5: struct out { int a; struct { int c; }; in_t d; }.
        let strings = "\0int\0in\0a\0b\0in_t\0c\0out\0d\0";
        let name = |text: &str| strings.find(&format!("\0{text}\0")).unwrap() as u32 + 1;
        let composite = |parts: u32| kind::STRUCT << 24 | parts;
        let types = [
            vec![name("int"), 1 << 24, 4, 32],
            vec![name("in"), composite(2), 8, name("a"), 1, 0, name("b"), 1, 32],
            vec![name("in_t"), kind::TYPEDEF << 24, 2],
            vec![0, composite(1), 4, name("c"), 1, 0],
            vec![name("out"), composite(3), 16, name("a"), 1, 0, 0, 4, 32, name("d"), 3, 64],
        ];
        let btf = Btf::parse(&encode(&types.concat(), strings)).unwrap();
        assert_eq!(btf.offset("out", &["a"]), Some(0));
        assert_eq!(btf.offset("out", &["c"]), Some(4));
        assert_eq!(btf.offset("out", &["d", "b"]), Some(12));
        assert_eq!(btf.offset("in", &["b"]), Some(4));
        for (of, path) in
            [("out", &["b"][..]), ("out", &["a", "b"]), ("in_t", &["a"]), ("ou", &["a"])]
        {
            assert_eq!(btf.offset(of, path), None, "{of} {path:?}");
        }
    }

    #[test]
    fn a_function_is_found_by_its_name() {
        let (types, number) = function("lookup", &[8, 8], 4);
        let btf = Btf::parse(&types).unwrap();
        assert_eq!(btf.function("lookup"), Some(number));
        for other in ["look", "lookup4", "u32", ""] {
            assert_eq!(btf.function(other), None, "{other}");
        }
    }

    #[test]
    fn damaged_types_are_refused() {
        let whole = encode(&[1, kind::STRUCT << 24 | 1, 4, 1, 1, 0], "\0s\0");
        assert!(Btf::parse(&whole).is_some());
        for len in 0..whole.len() {
            assert!(Btf::parse(&whole[..len]).is_none(), "{len} bytes");
        }
        assert!(Btf::parse(&encode(&[1, 31 << 24, 4], "\0s\0")).is_none(), "an unknown kind");
        assert!(
            Btf::parse(&encode(&[1, kind::STRUCT << 24 | 9, 4], "\0s\0"))
                .is_some_and(|btf| { btf.offset("s", &["a"]).is_none() })
        );
    }

    #[test]
    fn kernel_has_devices_with_an_index_and_a_namespace() {
        // A kernel without BTF has no file.
        let Ok(btf) = Btf::of_kernel() else {
            assert!(!std::path::Path::new(VMLINUX).exists());
            return;
        };
        let [index, net] = [&["ifindex"][..], &["nd_net", "net"]].map(|path| {
            btf.offset("net_device", path).unwrap_or_else(|| panic!("no {path:?} in net_device"))
        });
        assert_ne!(index, net);
        assert!(btf.offset("net", &["ns", "inum"]).is_some());
        assert_eq!(btf.offset("net_device", &["no such member"]), None);
    }
}
