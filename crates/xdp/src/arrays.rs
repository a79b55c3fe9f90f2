//! BPF arrays of one value whose memory this process maps.
//!
//! A program addresses such a value directly, without a call and without a key
//! ([`Assembler::load_map_value`](port::af_xdp::bpf::asm::Assembler::load_map_value)); this process
//! writes it without system calls. The kernel allocates all pages at once and charges them to this
//! process's memory cgroup. The array lives as long as a mapping, a descriptor or a program uses it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use fib::{MappedWords, WordFile, WordFiles};
use port::af_xdp::bpf::Map;

/// One array of one value.
#[derive(Debug)]
pub(crate) struct BpfArray(pub(crate) Map);

impl BpfArray {
    /// Creates an array of `words` words of zero.
    pub(crate) fn new(name: &str, words: usize) -> io::Result<Self> {
        Map::mappable(name, words * size_of::<u32>(), 1).map(Self)
    }

    /// Creates an array of `words` words and maps it.
    pub(crate) fn mapped(name: &str, words: usize) -> io::Result<MappedWords> {
        MappedWords::new(Arc::new(Self::new(name, words)?), words)
    }
}

impl AsFd for BpfArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl WordFile for BpfArray {}

/// Creates BPF arrays for the chunks of a table ([`fib::Updater::new_in`]).
#[derive(Debug)]
pub struct BpfArrays {
    name: String,
    error: Mutex<Option<io::Error>>,
}

impl BpfArrays {
    /// Creates no array yet. `bpftool map` shows `name` with each, of which 15 letters, digits, `_` or
    /// `.` are used.
    pub fn new(name: &str) -> Arc<Self> {
        Arc::new(Self { name: name.into(), error: Mutex::default() })
    }

    /// Returns the error due to which the last array was not created, and forgets it.
    pub fn take_error(&self) -> Option<io::Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl WordFiles for BpfArrays {
    fn create(&self, words: usize) -> io::Result<Arc<dyn WordFile>> {
        BpfArray::new(&self.name, words).map(|array| Arc::new(array) as Arc<dyn WordFile>).map_err(
            |error| {
                let kind = error.kind();
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                kind.into()
            },
        )
    }
}
