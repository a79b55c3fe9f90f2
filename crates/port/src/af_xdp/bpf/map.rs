//! Maps: memory that programs in the kernel and this process share.
//!
//! ```text
//! kind         key              value here                    use
//! Array        u32 index        value_size bytes              configuration, packets
//! PercpuArray  u32 index        one value per possible CPU    counters without atomics
//! Hash         key_size bytes   value_size bytes              sets of addresses
//! LruHash      key_size bytes   value_size bytes              declined flows
//! LpmTrie      u32 bits, bytes  value_size bytes              blocked sources
//! ArrayOfMaps  u32 index        a map's descriptor            waiting for programs, ring buffers
//! Xskmap       u32 queue        an AF_XDP socket's descriptor steering
//! Devmap       u32 index        an interface's index          redirection
//! RingBuffer   none             none: `ring_buffer.rs`        copies of packets
//! ```
//!
//! The kernel rounds the values of arrays up to 8 bytes and copies them to user space at the
//! rounded size for per-CPU maps; [`Map`] hides this: callers use exactly `value_size` bytes.
//!
//! A map lives as long as a descriptor or a loaded program refers to it.
//! Operations are system calls (about a microsecond here); filling an array of
//! a million packets goes through [`Map::fill`], which batches.

#![expect(unsafe_code, reason = "bpf(2) reads keys and writes values through pointers")]

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::sys::{self, Command};

/// The type of a map (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Keys of any size to values.
    Hash = 1,
    /// Values by index, all present and zero from the start.
    Array = 2,
    /// The same, one copy a CPU.
    PercpuArray = 6,
    /// The same as [`Hash`](Self::Hash), but a full map evicts the least recently used entry.
    LruHash = 9,
    /// Prefixes, looked up by longest match: the length in bits as a `u32`, then the bytes.
    LpmTrie = 11,
    /// Maps by index.
    ArrayOfMaps = 12,
    /// Interfaces by index.
    Devmap = 14,
    /// AF_XDP sockets by queue.
    Xskmap = 17,
    /// Records in a ring of so many bytes ([`RingBuffer`](super::RingBuffer)).
    RingBuffer = 27,
}

/// `BPF_F_NO_PREALLOC`.
const NO_PREALLOC: u32 = 1;
/// `BPF_F_MMAPABLE`.
const MAPPABLE: u32 = 1 << 10;

/// A map in the kernel; dropping it closes our descriptor.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    kind: Kind,
    key_size: usize,
    value_size: usize,
    entries: u32,
    /// Bytes the kernel reads or writes for one value.
    transfer: usize,
}

impl Map {
    /// Creates a map of `entries` entries. `bpftool map` shows `name`, of which 15 letters, digits,
    /// `_` or `.` are used.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `EPERM` without `CAP_BPF`, `EINVAL` for sizes the kind does not allow,
    /// `E2BIG` or `ENOMEM` if it is too large.
    pub fn new(
        kind: Kind,
        name: &str,
        key_size: usize,
        value_size: usize,
        entries: u32,
    ) -> io::Result<Self> {
        // Required for this type: nodes are allocated on demand.
        let flags = if kind == Kind::LpmTrie { NO_PREALLOC } else { 0 };
        Self::create(kind, name, [key_size, value_size], entries, flags, None)
    }

    /// Creates an array whose values this process can map (Linux 5.5).
    ///
    /// # Errors
    ///
    /// As for [`Map::new`].
    pub fn mappable(name: &str, value_size: usize, entries: u32) -> io::Result<Self> {
        Self::create(Kind::Array, name, [4, value_size], entries, MAPPABLE, None)
    }

    /// Creates an array of maps like `inner`, which [`set_fd`](Self::set_fd) puts into it.
    ///
    /// # Errors
    ///
    /// As for [`Map::new`].
    pub fn of_maps(name: &str, inner: &Map, entries: u32) -> io::Result<Self> {
        Self::create(Kind::ArrayOfMaps, name, [4, 4], entries, 0, Some(inner))
    }

    fn create(
        kind: Kind,
        name: &str,
        [key_size, value_size]: [usize; 2],
        entries: u32,
        map_flags: u32,
        inner: Option<&Map>,
    ) -> io::Result<Self> {
        let size = |bytes: usize| {
            u32::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
        };
        let transfer = match kind {
            Kind::PercpuArray => value_size.next_multiple_of(8) * possible_cpus()?,
            _ => value_size,
        };
        let mut attr = sys::MapCreate {
            map_type: kind as u32,
            key_size: size(key_size)?,
            value_size: size(value_size)?,
            max_entries: entries,
            map_flags,
            inner_map_fd: inner.map_or(0, |inner| inner.as_raw_fd() as u32),
            name: sys::name(name),
            ..Default::default()
        };
        // SAFETY: the arm of this command, which holds no pointer; it makes a
        // descriptor.
        let fd = unsafe { sys::open(Command::MapCreate, &mut attr) }?;
        Ok(Self { fd, kind, key_size, value_size, entries, transfer })
    }

    /// Creates an array of `entries` values, or one a CPU, by `u32` index.
    ///
    /// # Errors
    ///
    /// As for [`Map::new`].
    pub fn array(kind: Kind, name: &str, value_size: usize, entries: u32) -> io::Result<Self> {
        Self::new(kind, name, 4, value_size, entries)
    }

    /// Returns the number of entries it was made for.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns the size of one value in bytes.
    pub fn value_size(&self) -> usize {
        self.value_size
    }

    fn element(&self, key: &[u8], value: u64) -> io::Result<sys::MapElement> {
        if key.len() != self.key_size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(sys::MapElement {
            map_fd: self.fd.as_raw_fd() as u32,
            key: key.as_ptr() as u64,
            value,
            ..Default::default()
        })
    }

    /// Sets the value of `key`, replacing what was there.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a size is not the map's or it is a per-CPU map, else
    /// those of `bpf(2)`: `E2BIG` where the key is beyond an array or the hash
    /// is full.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if value.len() != self.value_size || self.kind == Kind::PercpuArray {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut attr = self.element(key, value.as_ptr() as u64)?;
        // SAFETY:
        // - the arm of this command;
        // - it reads `key_size` bytes at `key`, checked in `element`, and
        //   `value_size` at `value`, checked above; both slices outlive the call.
        unsafe { sys::bpf(Command::MapUpdate, &mut attr) }.map(drop)
    }

    /// Sets entry `index` of an array.
    ///
    /// # Errors
    ///
    /// As for [`Map::update`].
    pub fn set(&self, index: u32, value: &[u8]) -> io::Result<()> {
        self.update(&index.to_ne_bytes(), value)
    }

    /// Puts a socket into an `Xskmap`, or a map into an array of maps; returns from the latter only
    /// when all programs that could run with the former map have ended (`maybe_wait_bpf_programs` in
    /// kernel/bpf/syscall.c, since Linux 4.20).
    ///
    /// # Errors
    ///
    /// As for [`Map::update`]; `EOPNOTSUPP` if it is not an AF_XDP socket, or
    /// not bound.
    pub fn set_fd(&self, index: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.set(index, &fd.as_raw_fd().to_ne_bytes())
    }

    /// Reads the value of `key`; `None` where there is none. For a per-CPU map
    /// use [`Map::percpu`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the key's size is not the map's, else those of
    /// `bpf(2)`.
    pub fn lookup(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; self.transfer];
        let mut attr = self.element(key, value.as_mut_ptr() as u64)?;
        // SAFETY:
        // - the arm of this command;
        // - it reads `key_size` bytes at `key`, checked in `element`;
        // - it writes `value_size` bytes at `value`, for per-CPU maps the
        //   rounded size times the possible CPUs: that is `transfer`, the
        //   vector's length.
        match unsafe { sys::bpf(Command::MapLookup, &mut attr) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads entry `index` of an array.
    ///
    /// # Errors
    ///
    /// As for [`Map::lookup`]; `NotFound` beyond the array.
    pub fn get(&self, index: u32) -> io::Result<Vec<u8>> {
        self.lookup(&index.to_ne_bytes())?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Reads entry `index` of a per-CPU array: one value a possible CPU.
    ///
    /// # Errors
    ///
    /// As for [`Map::get`].
    pub fn percpu(&self, index: u32) -> io::Result<Vec<Vec<u8>>> {
        let all = self.get(index)?;
        let stride = match self.kind {
            Kind::PercpuArray => self.value_size.next_multiple_of(8),
            _ => self.value_size,
        };
        Ok(all.chunks_exact(stride).map(|value| value[..self.value_size].to_vec()).collect())
    }

    /// Reads entry `index` of an array of 8-byte counters, summed over CPUs.
    ///
    /// # Errors
    ///
    /// As for [`Map::get`]; `InvalidInput` if values are not of 8 bytes.
    pub fn counter(&self, index: u32) -> io::Result<u64> {
        self.percpu(index)?.into_iter().try_fold(0u64, |sum, value| {
            let value = <[u8; 8]>::try_from(value).map_err(|_| io::ErrorKind::InvalidInput)?;
            Ok(sum.wrapping_add(u64::from_ne_bytes(value)))
        })
    }

    /// Removes `key` and returns whether it was present.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the key's size is not the map's, else those of
    /// `bpf(2)`: arrays do not delete (`EINVAL`).
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        let mut attr = self.element(key, 0)?;
        // SAFETY: the arm of this command, which reads `key_size` bytes at
        // `key`, checked in `element`.
        match unsafe { sys::bpf(Command::MapDelete, &mut attr) } {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets entries `from`, `from + 1`, … of an array to the values that lie
    /// one after the other in `values`, in few system calls.
    ///
    /// # Errors
    ///
    /// As for [`Map::update`]; `InvalidInput` if `values` is not a whole number
    /// of values. Entries before an error remain.
    pub fn fill(&self, from: u32, values: &[u8]) -> io::Result<()> {
        // The kernel copies keys and values one by one; this only bounds the vector of keys.
        const BATCH: usize = 4096;
        let whole = self.kind == Kind::Array && values.len().is_multiple_of(self.value_size);
        if !whole {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut next = from;
        for part in values.chunks(BATCH * self.value_size) {
            let count = (part.len() / self.value_size) as u32;
            let keys: Vec<u32> = (next..next + count).collect();
            let mut attr = sys::MapBatch {
                keys: keys.as_ptr() as u64,
                values: part.as_ptr() as u64,
                count,
                map_fd: self.fd.as_raw_fd() as u32,
                ..Default::default()
            };
            // SAFETY:
            // - the arm of this command;
            // - it reads `count` keys of 4 bytes, an array's key size, and
            //   `count` values of `value_size`: the lengths of `keys` and `part`;
            // - it writes only to `attr.count`.
            unsafe { sys::bpf(Command::MapUpdateBatch, &mut attr) }?;
            next += count;
        }
        Ok(())
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Map {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Counts the CPUs for which the kernel allocates per-CPU memory.
///
/// The last number of the list counts, so that a list with gaps gives more than the kernel writes,
/// never less.
fn possible_cpus() -> io::Result<usize> {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    last_of(&list).map(|last| last + 1).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "/sys/devices/system/cpu/possible is not a list of CPUs",
        )
    })
}

fn last_of(list: &str) -> Option<usize> {
    list.trim().split([',', '-']).map(|number| number.parse().ok()).max()?
}

#[cfg(test)]
mod tests {
    #[test]
    fn cpu_list_yields_highest_number() {
        assert_eq!(super::last_of("0-1\n"), Some(1));
        assert_eq!(super::last_of("0"), Some(0));
        assert_eq!(super::last_of("0-3,8-11\n"), Some(11));
        assert_eq!(super::last_of("\n"), None);
    }
}
