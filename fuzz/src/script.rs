//! Scripts: the bytes of an input as a list of operations on one table.
//!
//! ```text
//! byte 0        then, for each operation, one byte and its parameters
//! a header      0-2  announce    len, as many bytes of address as len needs, hop
//! (see engines) 3-5  announce    near a known prefix: which, how, len, hop
//!               6    announce    a row of neighbors: which, len, count, hop
//!               7    withdraw    a known prefix: which
//!               8    withdraw    near a known prefix: which, how, len
//!               9    withdraw    everything within a known prefix: which
//!               10   query       an address: of a known prefix, and an offset
//!               11-13 commit
//!               14   rebuild     commit, and compare with a newly built table
//!               15   sleep/wake  a second reader holds its table, or releases it
//! ```
//!
//! Only the lower four bits select the operation. An input that ends within an operation ends
//! before it, and a commit and a rebuild follow at the end. "Known" prefixes are those that the
//! script has named so far, withdrawn ones too, counted from the latest and modulo their number:
//! every byte has a meaning, and an operation moved elsewhere is still related to the operations
//! before it.

use std::collections::BTreeMap;

use fib::{Addr, Hop, Prefix};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<A: Addr> {
    /// Adds a route or changes its hop.
    Announce(Prefix<A>, Hop),
    /// Removes a route, which may be absent.
    Withdraw(Prefix<A>),
    /// Adds an address to those that are compared from now on.
    Query(A),
    /// Publishes, and compares.
    Commit,
    /// Publishes, and compares with a fresh build too.
    Rebuild,
    /// A second reader takes the present table and holds it.
    Sleep,
    /// That reader releases it.
    Wake,
}

/// The hops at which an engine's next narrower format ends.
const EDGES: [u32; 16] = [
    0,
    254,
    255,
    256,
    257,
    16_383,
    16_384,
    32_767,
    32_768,
    65_534,
    65_535,
    65_536,
    1 << 20,
    1 << 24,
    1 << 31,
    u32::MAX,
];

/// The unread bytes.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        self.0.next().copied()
    }

    /// Reads a prefix length.
    fn len<A: Addr>(&mut self) -> Option<u32> {
        Some(u32::from(self.byte()?) % (A::BITS + 1))
    }

    /// Reads a hop: mostly one of seven, so that neighbors are often equal.
    fn hop(&mut self) -> Option<Hop> {
        let byte = self.byte()?;
        Some(Hop(match byte {
            0..160 => 1 + u32::from(byte) % 7,
            160..208 => EDGES[usize::from(byte) % EDGES.len()],
            208.. => u32::from(byte) * 257,
        }))
    }

    /// Reads a prefix, with as many address bytes as its length needs.
    fn prefix<A: Addr>(&mut self) -> Option<Prefix<A>> {
        let len = self.len::<A>()?;
        let mut addr = 0u128;
        for at in 0..len.div_ceil(8) {
            addr |= u128::from(self.byte()?) << (120 - 8 * at);
        }
        Some(Prefix::truncate(A::from_u128(addr >> (128 - A::BITS)), len))
    }

    /// Reads a known prefix.
    fn known<A: Addr>(&mut self, known: &[Prefix<A>]) -> Option<Prefix<A>> {
        let which = usize::from(self.byte()?);
        // The latest first: operations are most often related to recent ones.
        known.iter().rev().nth(which % known.len().max(1)).copied().or(Some(Prefix::ALL))
    }

    /// Reads a prefix beside, around or within a known one.
    fn related<A: Addr>(&mut self, known: &[Prefix<A>]) -> Option<Prefix<A>> {
        let near = self.known(known)?;
        let how = self.byte()?;
        let len = self.len::<A>()?;
        Some(match how % 5 {
            0 => Prefix::truncate(near.addr(), len),
            1 => Prefix::truncate(near.last(), near.len().max(len)),
            2 => Prefix::truncate(step(near.last(), 1), near.len()),
            3 => Prefix::truncate(step(near.addr(), u128::MAX), near.len()),
            // The other half of one of its covers, or of itself.
            _ => {
                let len = len.clamp(1, near.len().max(1));
                let bit = A::from_bits(1, len - 1, 1).to_u128();
                Prefix::truncate(A::from_u128(near.addr().to_u128() ^ bit), len)
            }
        })
    }
}

/// Returns the address plus `by`, modulo the address space.
pub(crate) fn step<A: Addr>(addr: A, by: u128) -> A {
    A::from_u128(addr.to_u128().wrapping_add(by))
}

/// Reads a script; any bytes are one.
pub fn decode<A: Addr>(bytes: &[u8]) -> Vec<Op<A>> {
    let mut bytes = Bytes(bytes.iter());
    let mut script = Script { ops: Vec::new(), known: Vec::new(), routes: BTreeMap::new() };
    let mut asleep = false;
    while script.operation(&mut bytes, &mut asleep).is_some() {}
    script.ops.push(Op::Rebuild);
    script.ops
}

/// A script under construction.
struct Script<A: Addr> {
    ops: Vec<Op<A>>,
    known: Vec<Prefix<A>>,
    /// The present routes, for the operation that withdraws all within a prefix.
    routes: BTreeMap<Prefix<A>, Hop>,
}

impl<A: Addr> Script<A> {
    fn operation(&mut self, bytes: &mut Bytes<'_>, asleep: &mut bool) -> Option<()> {
        match bytes.byte()? & 15 {
            0..3 => {
                let prefix = bytes.prefix()?;
                self.announce(prefix, bytes.hop()?);
            }
            3..6 => {
                let prefix = bytes.related(&self.known)?;
                self.announce(prefix, bytes.hop()?);
            }
            6 => {
                let first = bytes.known(&self.known)?;
                let len = bytes.len::<A>()?.max(first.len());
                let (count, hop) = (bytes.byte()?, bytes.hop()?);
                let mut prefix = Prefix::truncate(first.addr(), len);
                for index in 0..=u32::from(count % 64) {
                    // Adjacent hops differ, except that every third repeats.
                    self.announce(prefix, Hop(hop.0.saturating_add(index % 3)));
                    prefix = Prefix::truncate(step(prefix.last(), 1), len);
                }
            }
            7 => {
                let prefix = bytes.known(&self.known)?;
                self.withdraw(prefix);
            }
            8 => {
                let prefix = bytes.related(&self.known)?;
                self.withdraw(prefix);
            }
            9 => {
                let within = bytes.known(&self.known)?;
                let all: Vec<_> = self.routes.keys().copied().collect();
                for prefix in all.into_iter().filter(|&prefix| within.covers(prefix)) {
                    self.withdraw(prefix);
                }
            }
            10 => {
                let near = bytes.known(&self.known)?;
                let (shift, by) = (bytes.len::<A>()?, u128::from(bytes.byte()?));
                let by = by.checked_shl(shift.min(127)).unwrap_or(0);
                self.ops.push(Op::Query(step(near.addr(), by)));
            }
            14 => self.ops.push(Op::Rebuild),
            15 => {
                self.ops.push(if *asleep { Op::Wake } else { Op::Sleep });
                *asleep = !*asleep;
            }
            _ => self.ops.push(Op::Commit),
        }
        Some(())
    }

    fn announce(&mut self, prefix: Prefix<A>, hop: Hop) {
        self.known.push(prefix);
        self.routes.insert(prefix, hop);
        self.ops.push(Op::Announce(prefix, hop));
    }

    fn withdraw(&mut self, prefix: Prefix<A>) {
        self.routes.remove(&prefix);
        self.ops.push(Op::Withdraw(prefix));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_decode_to_their_operations() {
        let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
        let bytes = [
            0, 16, 10, 1, 2, // 10.1.0.0/16, hop 3
            3, 0, 4, 8, 0, // the other half of its /8's cover, hop 1
            11, 6, 1, 17, 1, 6, // two /17 from 10.1 on
            9, 3, 15, 15, 14, 0, 16, 10, // and an incomplete operation
        ];
        let ops = decode::<u32>(&bytes);
        assert_eq!(ops[0], Op::Announce(p("10.1.0.0/16"), Hop(3)));
        assert_eq!(ops[1], Op::Announce(p("11.0.0.0/8"), Hop(1)));
        assert_eq!(ops[2], Op::Commit);
        assert_eq!(ops[3], Op::Announce(p("10.1.0.0/17"), Hop(7)));
        assert_eq!(ops[4], Op::Announce(p("10.1.128.0/17"), Hop(8)));
        assert_eq!(ops[5], Op::Withdraw(p("10.1.0.0/16")));
        assert_eq!(ops[6], Op::Withdraw(p("10.1.0.0/17")));
        assert_eq!(ops[7], Op::Withdraw(p("10.1.128.0/17")));
        assert_eq!(ops[8..], [Op::Sleep, Op::Wake, Op::Rebuild, Op::Rebuild]);
    }

    #[test]
    fn arbitrary_bytes_decode_to_a_script() {
        let mut state = 1u32;
        let bytes: Vec<u8> = (0..20_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        for chunk in bytes.chunks(100) {
            assert_eq!(decode::<u8>(chunk).last(), Some(&Op::Rebuild));
            assert_eq!(decode::<u128>(chunk).last(), Some(&Op::Rebuild));
        }
        assert_eq!(decode::<u16>(&[]), [Op::Rebuild]);
    }
}
