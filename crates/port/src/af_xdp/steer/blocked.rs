//! Blocked sources: packets that end in the kernel, whatever their destination.
//!
//! ```text
//!   to be taken ─► any list? ─► source's longest prefix ─┬─ blocked ─► dropped, counted with its bytes
//!                     │ no          none, or an exception │
//!                     └───────────────┴──────► declined.rs
//! ```
//!
//! The maps are tries (`prefix_set.rs`) of blocked prefixes, and of exceptions within them. Without
//! a list, one bit of a word that is read anyway skips the lookup.
//!
//! **A new list** replaces the old one prefix by prefix. An address always has the result of the
//! old list or of the new one; where both agree, it never has another result. Of the prefixes that
//! cover an address, new ones are written from the longest to the shortest, and then old ones are
//! deleted from the shortest to the longest. Proof: let both lists agree about an address, by `p`
//! in the old one and `q` in the new one. If `q` is shorter than `p`, `p` stays the longest until
//! all shorter old ones are deleted. If `q` is longer, it is written before any shorter one of the
//! new list, and `p` is the longest until then. If there is no room for both lists, the old one is
//! deleted first.
//!
//! A blocked prefix and its exceptions are present together or not at all: if there is no room, or
//! the kernel rejects one of them, the blocked prefix is omitted or removed, and the gate drops its
//! packets in user space. A lost entry costs time but no packet.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::ops::Range;

use super::super::bpf::asm::{Assembler, Cond, Label, Reg};
use super::super::bpf::{Kind, Map};
use super::flow_key;
use super::prefix_set::{PrefixKey, PrefixSet};
use Reg::R7;

/// A prefix of sources, blocked or an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePrefix {
    /// The prefix's address.
    pub address: IpAddr,
    /// Its length in bits.
    pub len: u8,
    /// Whether its packets are dropped; otherwise it is an exception within a blocked prefix.
    pub drops: bool,
}

impl SourcePrefix {
    pub(super) fn key(&self) -> PrefixKey {
        (self.address, self.len)
    }

    /// Returns whether another prefix is within this one.
    fn covers(&self, other: &Self) -> bool {
        let (mine, width) = bits(self.address);
        let (others, other_width) = bits(other.address);
        let rest = width - u32::from(self.len);
        let same = rest == 128 || mine >> rest == others >> rest;
        width == other_width && self.len <= other.len && same
    }
}

/// Returns an address as a number, with its length in bits.
fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u32::from(address).into(), 32),
        IpAddr::V6(address) => (address.into(), 128),
    }
}

/// The part of a list that is installed in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstalledPrefixes {
    /// The installed prefixes.
    pub installed: usize,
    /// The prefixes without room, or rejected by the kernel.
    pub omitted: usize,
}

/// The maps of one interface.
#[derive(Debug)]
pub(super) struct BlockedSources {
    /// Prefixes; packets of marked ones are dropped.
    prefixes: PrefixSet,
    bytes: Map,
}

impl BlockedSources {
    /// Creates maps of this many prefixes of each family.
    pub(super) fn new(prefixes: u32) -> io::Result<Self> {
        Ok(Self {
            prefixes: PrefixSet::new(["fp_blocked4", "fp_blocked6"], prefixes)?,
            bytes: Map::array(Kind::PercpuArray, "fp_blocked", 8, 1)?,
        })
    }

    /// Installs this list: blocked prefixes, none within another, each followed by its exceptions.
    pub(super) fn set(&self, list: &[SourcePrefix]) -> io::Result<InstalledPrefixes> {
        let prefixes = &self.prefixes;
        let mut written = prefixes.written();
        let groups = self.fitting(list);
        let wanted: HashSet<PrefixKey> =
            groups.iter().flat_map(|group| &list[group.clone()]).map(SourcePrefix::key).collect();
        let mut gone: Vec<PrefixKey> =
            written.keys().filter(|key| !wanted.contains(*key)).copied().collect();
        gone.sort_unstable_by_key(|(_, len)| *len);
        // Without room for both lists, no list applies in between.
        let of = |four: bool, all: &mut dyn Iterator<Item = &PrefixKey>| {
            all.filter(|(address, _)| address.is_ipv4() == four).count()
        };
        let [room4, room6] = prefixes.room();
        let crowded = |four: bool, room: usize| {
            of(four, &mut wanted.iter()) + of(four, &mut gone.iter()) > room
        };
        if crowded(true, room4) || crowded(false, room6) {
            let mut all: Vec<PrefixKey> = written.keys().copied().collect();
            all.sort_unstable_by_key(|(_, len)| *len);
            all.into_iter().try_for_each(|key| prefixes.delete(&mut written, key))?;
            gone.clear();
        }
        for group in groups {
            let group = &list[group];
            // The blocked prefix, which is the shortest, is last.
            let mut all = group.iter().rev();
            if all
                .try_for_each(|source| prefixes.write(&mut written, source.key(), source.drops))
                .is_err()
            {
                group.iter().try_for_each(|source| prefixes.delete(&mut written, source.key()))?;
            }
        }
        gone.into_iter().try_for_each(|key| prefixes.delete(&mut written, key))?;
        Ok(InstalledPrefixes { installed: written.len(), omitted: list.len() - written.len() })
    }

    /// Returns the groups of a list that fit, each a blocked prefix with its exceptions: if not all
    /// fit, those of the shortest prefixes.
    fn fitting(&self, list: &[SourcePrefix]) -> Vec<Range<usize>> {
        let mut starts: Vec<usize> = (0..list.len()).filter(|&at| list[at].drops).collect();
        starts.push(list.len());
        let mut groups: Vec<_> = starts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        debug_assert!(groups.iter().all(|group| {
            let first = &list[group.start];
            list[group.clone()][1..].iter().all(|source| first.covers(source))
        }));
        let mut room = self.prefixes.room();
        let all = list.iter().filter(|source| source.address.is_ipv4()).count();
        if all > room[0] || list.len() - all > room[1] {
            groups.sort_by_key(|group| list[group.start].len);
        }
        groups.retain(|group| {
            let room = &mut room[usize::from(list[group.start].address.is_ipv6())];
            let fits = group.len() <= *room;
            *room -= if fits { group.len() } else { 0 };
            fits
        });
        groups
    }

    /// Returns whether the longest installed prefix that covers a source is a blocked one.
    pub(super) fn drops(&self, source: IpAddr) -> io::Result<bool> {
        Ok(self.prefixes.find(source)? == Some(true))
    }

    /// Counts the bytes dropped, with Ethernet headers and without the link's padding.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        self.bytes.counter(0)
    }

    /// Emits code for a packet whose flow is on the stack: jumps to `drop` if its source is
    /// blocked, else continues. r7 has the switches, of which `any` states whether there is a list.
    pub(super) fn emit_check<'m>(&'m self, asm: &mut Assembler<'m>, any: i32, drop: Label) {
        let (ask, over) = (asm.label(), asm.label());
        asm.jump_if32(Cond::Set, R7, any, ask).jump(over).bind(ask);
        self.prefixes.emit_lookup(asm, over);
        flow_key::emit_count(asm, &self.bytes, drop);
        asm.bind(over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_covers_addresses_with_same_leading_bits() {
        let source = |text: &str| {
            let (address, len) = text.split_once('/').unwrap();
            SourcePrefix {
                address: address.parse().unwrap(),
                len: len.parse().unwrap(),
                drops: true,
            }
        };
        for (outer, inner, covers) in [
            ("10.0.0.0/8", "10.255.0.0/16", true),
            ("10.0.0.0/8", "11.0.0.0/16", false),
            ("10.0.0.0/8", "10.0.0.0/7", false),
            ("0.0.0.0/0", "255.255.255.255/32", true),
            ("0.0.0.0/0", "2001:db8::/32", false),
            ("::/0", "2001:db8::/32", true),
            ("::/0", "10.0.0.0/8", false),
            ("2001:db8::/32", "2001:db8:ffff::1/128", true),
            ("2001:db8::/33", "2001:db8:ffff::1/128", false),
        ] {
            assert_eq!(source(outer).covers(&source(inner)), covers, "{outer} {inner}");
        }
    }
}
