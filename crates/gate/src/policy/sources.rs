//! Sources of which something is said before destinations are asked: who passes, who is blocked.
//!
//! ```text
//!   [allow]  203.0.113.0/24 ─┐  merged, by address        203.0.112.0/20 blocked
//!   [block]  203.0.112.0/20 ─┼──────────────────────►       203.0.113.0/24 allowed ─► Fib
//!            203.0.113.9/32 ─┘                              203.0.113.9/32 left out
//! ```
//!
//! **Who is allowed passes**, whatever else is said of him: a blocked prefix within an allowed one is
//! left out, however long it is, so that the longest match of what is left says it right. What is
//! left out too changes no answer: a prefix within another of which the same is said. So there are at
//! most two prefixes around an address, a blocked one and an allowed one within it.
//!
//! Packets of blocked sources can be dropped before they reach a gate, by whoever goes by the longest
//! match as well. What he has to know is less: prefixes that are blocked, and those within them that
//! pass ([`Sources::early_v4`]).

use fib::{Choice, Family, Fib, Full, Hop, Prefix, Rib};

use crate::flow::{Flow, Pair};

/// What is said of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceClass {
    /// It passes before anything else is asked.
    Allowed,
    /// It is blocked: its packets are dropped, wherever they go.
    Blocked,
}

impl SourceClass {
    fn hop(self) -> Hop {
        match self {
            Self::Allowed => Hop(1),
            Self::Blocked => Hop(2),
        }
    }

    /// Returns what a lookup's answer says, if it is anything.
    #[inline(always)]
    fn of(hop: Hop) -> Option<Self> {
        match hop.0 {
            1 => Some(Self::Allowed),
            2 => Some(Self::Blocked),
            _ => None,
        }
    }
}

/// Sources as they are listed, in any order.
#[derive(Clone, Debug, Default)]
pub struct SourceListBuilder {
    v4: Vec<(Prefix<u32>, SourceClass)>,
    v6: Vec<(Prefix<u128>, SourceClass)>,
}

impl SourceListBuilder {
    /// Says something of the sources within an IPv4 prefix.
    pub fn v4(&mut self, prefix: Prefix<u32>, class: SourceClass) {
        self.v4.push((prefix, class));
    }

    /// Says something of the sources within an IPv6 prefix.
    pub fn v6(&mut self, prefix: Prefix<u128>, class: SourceClass) {
        self.v6.push((prefix, class));
    }

    /// Makes what a gate looks sources up in.
    ///
    /// # Errors
    ///
    /// [`Full`]: there are more prefixes than the tables can hold.
    ///
    /// # Complexity
    ///
    /// O(n log n) for n prefixes.
    pub fn build(self) -> Result<SourceLists, Full> {
        if self.v4.is_empty() && self.v6.is_empty() {
            return Ok(SourceLists::default());
        }
        let (v4, v6) = (merge(self.v4), merge(self.v6));
        let fibs = Some((table(&v4)?, table(&v6)?));
        Ok(SourceLists { fibs, v4, v6 })
    }
}

/// Leaves out what changes no answer, and what is blocked within what is allowed.
fn merge<A: Family>(mut listed: Vec<(Prefix<A>, SourceClass)>) -> Box<[(Prefix<A>, SourceClass)]> {
    // What a prefix covers follows it; of one that is on both lists the allowed one is first.
    listed.sort_unstable();
    let (mut allowed, mut blocked): (Option<Prefix<A>>, Option<Prefix<A>>) = (None, None);
    listed.retain(|&(prefix, class)| {
        let within = |outer: Option<Prefix<A>>| outer.is_some_and(|outer| outer.covers(prefix));
        if within(allowed) || class == SourceClass::Blocked && within(blocked) {
            return false;
        }
        match class {
            SourceClass::Allowed => allowed = Some(prefix),
            SourceClass::Blocked => blocked = Some(prefix),
        }
        true
    });
    listed.into()
}

fn table<A: Family>(merged: &[(Prefix<A>, SourceClass)]) -> Result<Fib<A>, Full> {
    let mut rib = Rib::new();
    for &(prefix, class) in merged {
        rib.insert(prefix, class.hop());
    }
    Fib::build(&rib, Choice::Auto, 1)
}

/// What is said of sources, frozen.
#[derive(Debug, Default)]
pub struct SourceLists {
    /// By family; if anything is said.
    fibs: Option<(Fib<u32>, Fib<u128>)>,
    /// What they are made of, in order.
    v4: Box<[(Prefix<u32>, SourceClass)]>,
    v6: Box<[(Prefix<u128>, SourceClass)]>,
}

impl SourceLists {
    /// Says whether nothing is said of anybody.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fibs.is_none()
    }

    /// Returns what is said of a flow's source, if it is anything.
    pub fn of(&self, flow: &Flow) -> Option<SourceClass> {
        let (v4, v6) = self.fibs.as_ref()?;
        SourceClass::of(match flow.pair() {
            Pair::V4 { src, .. } => v4.lookup(src),
            Pair::V6 { src, .. } => v6.lookup(src),
        })
    }

    /// Says of IPv4 sources together, up to as many as `hops` are, what is said of each.
    pub fn v4(
        &self,
        srcs: &[u32],
        hops: &mut [Hop],
        mut each: impl FnMut(usize, Option<SourceClass>),
    ) {
        let Some((v4, _)) = &self.fibs else { return };
        v4.lookup_batch(srcs, hops);
        hops.iter().enumerate().for_each(|(at, &hop)| each(at, SourceClass::of(hop)));
    }

    /// Says so of IPv6 sources.
    pub fn v6(
        &self,
        srcs: &[u128],
        hops: &mut [Hop],
        mut each: impl FnMut(usize, Option<SourceClass>),
    ) {
        let Some((_, v6)) = &self.fibs else { return };
        v6.lookup_batch(srcs, hops);
        hops.iter().enumerate().for_each(|(at, &hop)| each(at, SourceClass::of(hop)));
    }

    /// Walks what has to be known to drop packets of blocked IPv4 sources early: prefixes that are
    /// blocked, each followed by those within it that are allowed.
    pub fn drop_list_v4(&self) -> impl Iterator<Item = (Prefix<u32>, SourceClass)> {
        drop_list(&self.v4)
    }

    /// Walks that of IPv6 sources.
    pub fn drop_list_v6(&self) -> impl Iterator<Item = (Prefix<u128>, SourceClass)> {
        drop_list(&self.v6)
    }
}

/// Leaves out what is allowed within nothing that is blocked.
fn drop_list<A: Family>(
    merged: &[(Prefix<A>, SourceClass)],
) -> impl Iterator<Item = (Prefix<A>, SourceClass)> {
    let mut blocked: Option<Prefix<A>> = None;
    merged.iter().copied().filter(move |&(prefix, class)| {
        if class == SourceClass::Blocked {
            blocked = Some(prefix);
        }
        blocked.is_some_and(|outer| outer.covers(prefix))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow twin: both lists as they are, looked through one by one.
    fn slow<A: Family>(listed: &[(Prefix<A>, SourceClass)], src: A) -> Option<SourceClass> {
        let mut saying = listed.iter().filter(|(prefix, _)| prefix.contains(src));
        saying
            .clone()
            .find(|listed| listed.1 == SourceClass::Allowed)
            .or(saying.next())
            .map(|listed| listed.1)
    }

    /// What one who knows only the early ones says by the longest match: whether it is blocked.
    fn by_longest<A: Family>(early: &[(Prefix<A>, SourceClass)], src: A) -> bool {
        let matching = early.iter().filter(|(prefix, _)| prefix.contains(src));
        matching
            .max_by_key(|listed| listed.0.len())
            .is_some_and(|listed| listed.1 == SourceClass::Blocked)
    }

    #[test]
    fn who_is_on_both_lists_passes_however_long_the_prefixes() {
        let mut rng = fastrand::Rng::with_seed(11);
        let mut met = [0; 3];
        for round in 0..400 {
            let mut listed = SourceListBuilder::default();
            for _ in 0..rng.usize(..30) {
                let class =
                    if rng.u8(..3) == 0 { SourceClass::Allowed } else { SourceClass::Blocked };
                // Small universes, so that prefixes lie within one another and are there twice.
                let prefix = Prefix::truncate(rng.u32(..) & 0xff00_0000, rng.u32(..=8));
                listed.v4(prefix, class);
                let prefix = Prefix::truncate(rng.u128(..) & (0x3f << 64), rng.u32(58..=64));
                listed.v6(prefix, class);
            }
            let (v4, v6) = (listed.v4.clone(), listed.v6.clone());
            let sources = listed.build().unwrap();
            assert_eq!(sources.is_empty(), v4.is_empty());
            let early4: Vec<_> = sources.drop_list_v4().collect();
            let early6: Vec<_> = sources.drop_list_v6().collect();
            assert!(early4.is_sorted() && early6.is_sorted());
            let srcs4: [u32; 64] = core::array::from_fn(|_| rng.u32(..));
            let srcs6: [u128; 64] = core::array::from_fn(|_| rng.u128(..1 << 70));
            let mut fast = [[None; 64]; 2];
            sources.v4(&srcs4, &mut [Hop::NONE; 64], |at, class| fast[0][at] = class);
            sources.v6(&srcs6, &mut [Hop::NONE; 64], |at, class| fast[1][at] = class);
            for at in 0..64 {
                let (four, six) = (slow(&v4, srcs4[at]), slow(&v6, srcs6[at]));
                assert_eq!((fast[0][at], fast[1][at]), (four, six), "round {round}");
                assert_eq!(sources.of(&Flow::v4(srcs4[at], 1)), four);
                assert_eq!(sources.of(&Flow::v6(srcs6[at], 1)), six);
                assert_eq!(by_longest(&early4, srcs4[at]), four == Some(SourceClass::Blocked));
                assert_eq!(by_longest(&early6, srcs6[at]), six == Some(SourceClass::Blocked));
                met[four.map_or(0, |class| class as usize + 1)] += 1;
            }
        }
        assert!(met.iter().all(|&times| times > 1000), "{met:?}");
    }
}
