//! Images: frozen tables in one file, loaded again without the routes.
//!
//! A table consists of plain arrays, so that loading it takes as long as reading and checking a
//! few megabytes; building it from routes takes a hundred times as long, and receiving the routes
//! longer still. The file holds no memory addresses: it may be at any address, and any program
//! may map it. All numbers are little-endian ([`Item`]).
//!
//! ```text
//!    0          8         12       16       24      28                    56         64
//!    ├──────────┼─────────┼────────┼────────┼───────┼─────────────────────┼──────────┤
//!    │ magic    │ version │ order  │ length │ count │ zeros               │ checksum │
//!    ├──────────┴─────────┴────────┴────────┴───────┴──────┬────────┬─────┴─┬──────┬─┤
//!    │ name of array 0, up to 40 bytes, filled with zeros  │ offset │ items │ each │0│
//!    │ … count entries of 64 bytes                                                   │
//!    ├───────────────────────────────────────────────────────────────────────────────┤
//!    │ array 0, its last line filled with zeros                                      │
//!    │ array 1 …  each from a multiple of 64 on, one after the other                 │
//!    └───────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! `order` is 0x01020304: a program that maps the file and reads it reversed must swap the bytes
//! of every number. `length` is that of the file, `each` the bytes of an item. The checksum is
//! XXH3 of all that follows the header, seeded with XXH3 of the 56 bytes before the checksum. It
//! has 64 bits, runs at 10 GB/s and more without special instructions, and collides so rarely
//! that it also serves as a digest, which a CRC of 32 bits cannot.
//!
//! **Names.** A table `v4` consists of the arrays whose names begin with `v4/`: `v4/bits` (32, 64
//! or 128), `v4/engine` (the engine's name, in bytes), and those of the engine, such as
//! `v4/direct`. A number is an array of one item. Arrays of other names belong to the program
//! that writes the image ([`Writer::array`]).
//!
//! **Validation.** The checksum detects damage. Beyond that, every engine checks all that it
//! reads: every index that a lookup can reach must be within its array, and every lookup must
//! terminate ([`Loadable::load`]). Lookups check their indexes too, and so never read outside of
//! an array; but a file must not make a worker panic. Only the checksum can detect wrong answers.
//!
//! An engine has an image format if it is [`Storable`]: the candidates of the automatic choice,
//! [`dir24_8`](crate::engine::dir24_8) and [`poptrie`](crate::engine::poptrie).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

mod error;
#[cfg(feature = "std")]
mod file;
mod parts;

pub use crate::item::Item;
pub use error::{BadImage, NotStorable};
#[cfg(feature = "std")]
pub use file::{replace, replace_with_mode};
pub use parts::{Loadable, PartReader, PartWriter, Storable};

/// The magic number: not text, and damaged by any program that converts it as text.
const MAGIC: [u8; 8] = *b"\x8fFPT\r\n\x1a\n";
/// The format version that this program writes and reads.
pub(crate) const VERSION: u32 = 1;
/// The byte-order mark.
const ORDER: u32 = 0x0102_0304;
/// The bytes of the header, of an entry of the directory, and the alignment of arrays.
const LINE: usize = 64;
/// The offset of the checksum in the header.
const CHECKSUM: usize = LINE - 8;
/// The most bytes of the name of an array.
const NAME: usize = 40;
/// The most bytes of the name of a table, which the names of its arrays begin with.
pub(crate) const TABLE_NAME: usize = 16;

/// One array in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Its name.
    pub name: String,
    /// The number of items.
    pub items: usize,
    /// The bytes of an item.
    pub each: usize,
    /// The offset in the file.
    pub offset: usize,
}

impl Array {
    /// Returns the number of bytes.
    pub fn bytes(&self) -> usize {
        self.items * self.each
    }
}

/// An image that is being written.
///
/// # Examples
///
/// ```
/// use fingerpost_fib::image::{Image, Writer};
/// use fingerpost_fib::{Choice, Fib, Hop, Rib};
/// let mut rib: Rib<u32> = Rib::new();
/// rib.insert("192.0.2.0/24".parse()?, Hop(7));
/// let mut writer = Writer::new();
/// writer.table("v4", &Fib::build(&rib, Choice::Auto, 1)?)?;
/// writer.array("note", b"the meaning of the hops");
/// let bytes = writer.finish();
///
/// let image = Image::read(&bytes)?;
/// assert_eq!(image.table::<u32>("v4")?.lookup(0xc000_0201), Hop(7));
/// assert_eq!(image.bytes("note")?, b"the meaning of the hops");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Writer {
    /// The arrays, with offsets relative to the first.
    arrays: Vec<Array>,
    content: Vec<u8>,
}

impl Writer {
    /// Starts an empty image.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array.
    ///
    /// # Panics
    ///
    /// If the name is empty, longer than 40 bytes or already used, or has characters other than
    /// printable ASCII.
    pub fn array<T: Item>(&mut self, name: &str, items: &[T]) {
        assert!(is_name(name.as_bytes()), "{name:?} cannot be the name of an array");
        let known = self.arrays.iter().any(|array| array.name == name);
        assert!(!known, "duplicate array {name}");
        let offset = self.content.len();
        self.content.resize(offset + items.len() * T::BYTES, 0);
        for (item, bytes) in items.iter().zip(self.content[offset..].chunks_exact_mut(T::BYTES)) {
            item.put(bytes);
        }
        self.content.resize(self.content.len().next_multiple_of(LINE), 0);
        let array = Array { name: name.to_owned(), items: items.len(), each: T::BYTES, offset };
        self.arrays.push(array);
    }

    /// Returns the bytes of the file.
    pub fn finish(self) -> Vec<u8> {
        let first = LINE * (1 + self.arrays.len());
        let mut file = Vec::with_capacity(first + self.content.len());
        file.resize(first, 0);
        file.extend_from_slice(&self.content);
        let length = file.len() as u64;
        let (header, directory) = file.split_at_mut(LINE);
        header[..8].copy_from_slice(&MAGIC);
        VERSION.put(&mut header[8..]);
        ORDER.put(&mut header[12..]);
        length.put(&mut header[16..]);
        (self.arrays.len() as u32).put(&mut header[24..]);
        for (array, entry) in self.arrays.iter().zip(directory.chunks_exact_mut(LINE)) {
            entry[..array.name.len()].copy_from_slice(array.name.as_bytes());
            ((first + array.offset) as u64).put(&mut entry[NAME..]);
            (array.items as u64).put(&mut entry[NAME + 8..]);
            (array.each as u32).put(&mut entry[NAME + 16..]);
        }
        let checksum = checksum(&file);
        checksum.put(&mut file[CHECKSUM..]);
        file
    }
}

/// Computes the checksum of a file, which has at least a header.
fn checksum(file: &[u8]) -> u64 {
    xxh3_64_with_seed(&file[LINE..], xxh3_64(&file[..CHECKSUM]))
}

/// Returns whether these bytes can be the name of an array.
fn is_name(bytes: &[u8]) -> bool {
    let visible = |byte: &u8| (b' '..=b'~').contains(byte);
    (1..=NAME).contains(&bytes.len()) && bytes.iter().all(visible)
}

/// The description of a table in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// The table's name.
    pub name: String,
    /// The number of bits of its addresses: 32 for IPv4, 128 for IPv6.
    pub bits: u32,
    /// The engine's name.
    pub engine: String,
    /// The bytes of its arrays.
    pub bytes: usize,
}

/// An image that was read: its checksum and its directory are valid.
#[derive(Clone, Debug)]
pub struct Image<'a> {
    file: &'a [u8],
    arrays: Vec<Array>,
}

impl<'a> Image<'a> {
    /// Reads the bytes of a file, which may be mapped, and checks their checksum and directory.
    ///
    /// # Errors
    ///
    /// [`BadImage`].
    ///
    /// # Complexity
    ///
    /// O(bytes), at the speed at which memory is read.
    pub fn read(file: &'a [u8]) -> Result<Self, BadImage> {
        if !file.starts_with(&MAGIC) {
            return Err(BadImage::Foreign);
        }
        let found = file.len() as u64;
        let Some((header, content)) = file.split_at_checked(LINE) else {
            return Err(BadImage::Length { expected: LINE as u64, found });
        };
        let version = u32::get(&header[8..]);
        if version != VERSION || u32::get(&header[12..]) != ORDER {
            return Err(BadImage::Version { found: version });
        }
        let expected = u64::get(&header[16..]);
        if expected != found {
            return Err(BadImage::Length { expected, found });
        }
        let (expected, found) = (u64::get(&header[CHECKSUM..]), checksum(file));
        if expected != found {
            return Err(BadImage::Checksum { expected, found });
        }
        let count = u32::get(&header[24..]) as usize;
        if count > content.len() / LINE {
            return Err(BadImage::Directory {
                entry: count,
                what: "is beyond the end of the file",
            });
        }
        let mut arrays: Vec<Array> = Vec::with_capacity(count);
        let mut next = LINE * (1 + count);
        for entry in 0..count {
            let wrong = |what| BadImage::Directory { entry, what };
            let array = describe(&content[entry * LINE..][..LINE]).map_err(wrong)?;
            if array.offset != next {
                return Err(wrong("does not begin where the one before ends"));
            }
            let end = array.items.checked_mul(array.each).and_then(|len| next.checked_add(len));
            let end = end.and_then(|end| end.checked_next_multiple_of(LINE));
            next = end
                .filter(|&end| end <= file.len())
                .ok_or(wrong("ends beyond the end of the file"))?;
            if arrays.iter().any(|known| known.name == array.name) {
                return Err(wrong("has the name of an earlier entry"));
            }
            arrays.push(array);
        }
        if next != file.len() {
            return Err(BadImage::Directory { entry: count, what: "is missing" });
        }
        Ok(Self { file, arrays })
    }

    /// Returns the digest, which identifies this image.
    pub fn digest(&self) -> u64 {
        u64::get(&self.file[CHECKSUM..])
    }

    /// Returns the bytes of the file.
    pub fn file(&self) -> &'a [u8] {
        self.file
    }

    /// Lists the arrays.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// Lists the tables, which this does not validate.
    pub fn tables(&self) -> Vec<TableInfo> {
        let name = |array: &Array| array.name.strip_suffix("/bits").map(str::to_owned);
        let info = |name: String| {
            let stored = PartReader::of(self, &name);
            let bits = stored.number("bits").ok()?;
            let engine = stored.text("engine").ok()?;
            let within = format!("{name}/");
            let mine = self.arrays.iter().filter(|array| array.name.starts_with(&within));
            Some(TableInfo { bits, engine, bytes: mine.map(Array::bytes).sum(), name })
        };
        self.arrays.iter().filter_map(name).filter_map(info).collect()
    }

    /// Returns the items of the array of this name.
    ///
    /// # Errors
    ///
    /// [`BadImage`] if there is no such array, or if its items have another size.
    pub fn array<T: Item>(&self, name: &str) -> Result<Vec<T>, BadImage> {
        Ok(self.items(name)?.collect())
    }

    /// Returns the array of this name, which consists of bytes.
    ///
    /// # Errors
    ///
    /// As [`array`](Self::array).
    pub fn bytes(&self, name: &str) -> Result<&'a [u8], BadImage> {
        self.content::<u8>(name)
    }

    fn items<T: Item>(
        &self,
        name: &str,
    ) -> Result<impl ExactSizeIterator<Item = T> + use<'a, T>, BadImage> {
        Ok(self.content::<T>(name)?.chunks_exact(T::BYTES).map(T::get))
    }

    fn content<T: Item>(&self, name: &str) -> Result<&'a [u8], BadImage> {
        let array = self.find(name)?;
        if array.each != T::BYTES {
            let what = "has the wrong size";
            return Err(BadImage::Content { array: name.to_owned(), at: 0, what });
        }
        Ok(&self.file[array.offset..][..array.bytes()])
    }

    fn find(&self, name: &str) -> Result<&Array, BadImage> {
        let found = self.arrays.iter().find(|array| array.name == name);
        found.ok_or_else(|| BadImage::Missing { array: name.to_owned() })
    }
}

/// Parses an entry of the directory, or returns its fault.
fn describe(entry: &[u8]) -> Result<Array, &'static str> {
    let len = entry[..NAME].iter().position(|&byte| byte == 0).unwrap_or(NAME);
    let (name, filled) = entry[..NAME].split_at(len);
    if !is_name(name) || filled.iter().any(|&byte| byte != 0) {
        return Err("has no name");
    }
    let number = |at: usize| usize::try_from(u64::get(&entry[at..]));
    let (Ok(offset), Ok(items)) = (number(NAME), number(NAME + 8)) else {
        return Err("does not fit the address space");
    };
    let each = u32::get(&entry[NAME + 16..]) as usize;
    if each == 0 || entry[NAME + 20..] != [0; 4] {
        return Err("has items of size 0");
    }
    let name = String::from_utf8_lossy(name).into_owned();
    Ok(Array { name, items, each, offset })
}
