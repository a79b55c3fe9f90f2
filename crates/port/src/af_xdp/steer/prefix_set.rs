//! A set of prefixes in the kernel, each with a mark: two tries (`BPF_MAP_TYPE_LPM_TRIE`), one for
//! each family.
//!
//! A node takes about 100 bytes; memory is allocated for present prefixes only.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::bpf::asm::{Assembler, Cond, Label, Op, Reg, Size};
use super::super::bpf::{Kind, Map};
use super::flow_key::BITS;
use Reg::{R0, R2, R8, R10};

/// A prefix of sources, or an exception within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePrefix {
    /// The prefix's address.
    pub address: IpAddr,
    /// Its length in bits.
    pub len: u8,
    /// Whether its packets are dropped; otherwise it is an exception.
    pub drops: bool,
}

impl SourcePrefix {
    pub(super) fn key(&self) -> PrefixKey {
        (self.address, self.len)
    }
}

/// A prefix: its address and its length.
pub(super) type PrefixKey = (IpAddr, u8);

/// The content of the tries.
pub(super) type Marks = HashMap<PrefixKey, bool>;

/// The tries, and a copy of their content.
#[derive(Debug)]
pub(super) struct PrefixSet {
    /// Prefixes, each with one byte: the mark.
    v4: Map,
    v6: Map,
    written: Mutex<Marks>,
}

/// A prefix in the tries' encoding.
fn encode_key((address, len): PrefixKey) -> Vec<u8> {
    let mut key = u32::from(len).to_ne_bytes().to_vec();
    match address {
        IpAddr::V4(address) => key.extend(address.octets()),
        IpAddr::V6(address) => key.extend(address.octets()),
    }
    key
}

impl PrefixSet {
    /// Creates tries for this many prefixes of each family.
    pub(super) fn new([v4, v6]: [&str; 2], entries: u32) -> io::Result<Self> {
        Ok(Self {
            v4: Map::new(Kind::LpmTrie, v4, 4 + 4, 1, entries)?,
            v6: Map::new(Kind::LpmTrie, v6, 4 + 16, 1, entries)?,
            written: Mutex::default(),
        })
    }

    pub(super) fn written(&self) -> MutexGuard<'_, Marks> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map(&self, (address, _): PrefixKey) -> &Map {
        if address.is_ipv4() { &self.v4 } else { &self.v6 }
    }

    pub(super) fn write(&self, written: &mut Marks, key: PrefixKey, mark: bool) -> io::Result<()> {
        if written.get(&key) == Some(&mark) {
            return Ok(());
        }
        self.map(key).update(&encode_key(key), &[mark.into()])?;
        written.insert(key, mark);
        Ok(())
    }

    pub(super) fn delete(&self, written: &mut Marks, key: PrefixKey) -> io::Result<()> {
        if written.contains_key(&key) {
            self.map(key).delete(&encode_key(key))?;
            written.remove(&key);
        }
        Ok(())
    }

    /// Emits code for a packet whose flow is on the stack: jumps to `none`, unless the longest
    /// prefix that covers its source has the mark.
    pub(super) fn emit_lookup<'m>(&'m self, asm: &mut Assembler<'m>, none: Label) {
        let (six, found) = (asm.label(), asm.label());
        asm.jump_if32(Cond::Eq, R8, 6, six);
        for (map, width) in [(&self.v4, 32), (&self.v6, 128)] {
            if width == 128 {
                asm.bind(six);
            }
            asm.op32(Op::Mov, R2, width)
                .store(Size::Word, R10, BITS, R2)
                .map_lookup(map, BITS)
                .jump_if(Cond::Ne, R0, 0, found)
                .jump(none);
        }
        asm.bind(found).load(Size::Byte, R2, R0, 0).jump_if32(Cond::Eq, R2, 0, none);
    }
}
