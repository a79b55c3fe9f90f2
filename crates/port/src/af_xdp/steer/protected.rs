//! Sources behind a gate: packets that arrive at its front with one of these addresses are forged,
//! also those for the host.
//!
//! ```text
//!   for the host: own address, TTL expiring, multicast, link-local ─► source's longest prefix
//!                                              inside ─► dropped, counted with its bytes
//!                                              none, or outside, or only observed ─► the host
//! ```
//!
//! The host would answer such a packet to its source (RFC 1122, 3.2.2.6; RFC 1812, 5.3.1), which is
//! a protected host: an attacker could make the gate itself send any number of packets there
//! without a decision of a grantor (RFC 2827). The gate itself checks packets that a socket takes.
//!
//! Limit: a frame to a group MAC, which only a neighbor on the link can send, is left to the host.

use std::collections::HashMap;
use std::io;

use super::super::bpf::asm::{Assembler, Label};
use super::super::bpf::{Kind, Map};
use super::flow_key;
use super::prefix_set::{PrefixKey, PrefixSet, SourcePrefix};

/// The maps of one interface.
#[derive(Debug)]
pub(super) struct ProtectedPrefixes {
    /// Prefixes; marked ones are behind the gate.
    prefixes: PrefixSet,
    bytes: Map,
}

impl ProtectedPrefixes {
    /// Creates maps of this many prefixes of each family.
    pub(super) fn new(prefixes: u32) -> io::Result<Self> {
        Ok(Self {
            prefixes: PrefixSet::new(["fp_inside4", "fp_inside6"], prefixes)?,
            bytes: Map::array(Kind::PercpuArray, "fp_forged", 8, 1)?,
        })
    }

    /// Replaces the prefixes: writes from the longest to the shortest, then deletes from the
    /// shortest to the longest.
    pub(super) fn set(&self, list: &[SourcePrefix]) -> io::Result<()> {
        let mut written = self.prefixes.written();
        let wanted: HashMap<PrefixKey, bool> =
            list.iter().map(|source| (source.key(), source.drops)).collect();
        let mut new: Vec<PrefixKey> = wanted.keys().copied().collect();
        new.sort_unstable_by_key(|(_, len)| std::cmp::Reverse(*len));
        let mut gone: Vec<PrefixKey> =
            written.keys().filter(|key| !wanted.contains_key(*key)).copied().collect();
        gone.sort_unstable_by_key(|(_, len)| *len);
        new.into_iter().try_for_each(|key| self.prefixes.write(&mut written, key, wanted[&key]))?;
        gone.into_iter().try_for_each(|key| self.prefixes.delete(&mut written, key))
    }

    /// Counts the bytes dropped, with Ethernet headers and without the link's padding.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        self.bytes.counter(0)
    }

    /// Emits code for a packet whose flow is on the stack: jumps to `drop` if its source is behind
    /// the gate, else to `pass`.
    pub(super) fn emit_check<'m>(&'m self, asm: &mut Assembler<'m>, pass: Label, drop: Label) {
        self.prefixes.emit_lookup(asm, pass);
        flow_key::emit_count(asm, &self.bytes, drop);
    }
}
