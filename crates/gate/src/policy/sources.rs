//! The allow-list and the block list of sources, which are looked up before destinations.
//!
//! ```text
//!   [allow]  203.0.113.0/24 ─┐  merged, by address        203.0.112.0/20 blocked
//!   [block]  203.0.112.0/20 ─┼──────────────────────►       203.0.113.0/24 allowed ─► Fib
//!            203.0.113.9/32 ─┘                              203.0.113.9/32 left out
//! ```
//!
//! **The allow-list takes precedence**: a blocked prefix within an allowed one is left out, however
//! long it is, so that the longest match of the remaining prefixes is right. A prefix within
//! another one of the same list is left out too, as it changes no result. So an address is in at
//! most two prefixes: a blocked one and an allowed one within it.
//!
//! Packets of blocked sources can be dropped before they reach a gate, by any device with
//! longest-prefix match. It needs fewer prefixes: the blocked ones, and the allowed ones within
//! those ([`SourceLists::drop_list_v4`]).

use fib::{Choice, Family, Fib, Full, Hop, Prefix, Rib};

use crate::flow::{Flow, Pair};

/// The list that a source is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceClass {
    /// Its packets pass before anything else is looked up.
    Allowed,
    /// Its packets are dropped, whatever their destination.
    Blocked,
}

impl SourceClass {
    fn hop(self) -> Hop {
        match self {
            Self::Allowed => Hop(1),
            Self::Blocked => Hop(2),
        }
    }

    /// Returns the list that a lookup's hop stands for, if any.
    #[inline(always)]
    fn of(hop: Hop) -> Option<Self> {
        match hop.0 {
            1 => Some(Self::Allowed),
            2 => Some(Self::Blocked),
            _ => None,
        }
    }
}

/// Collects listed sources, in any order.
#[derive(Clone, Debug, Default)]
pub struct SourceListBuilder {
    v4: Vec<(Prefix<u32>, SourceClass)>,
    v6: Vec<(Prefix<u128>, SourceClass)>,
}

impl SourceListBuilder {
    /// Lists the sources within an IPv4 prefix.
    pub fn v4(&mut self, prefix: Prefix<u32>, class: SourceClass) {
        self.v4.push((prefix, class));
    }

    /// Lists the sources within an IPv6 prefix.
    pub fn v6(&mut self, prefix: Prefix<u128>, class: SourceClass) {
        self.v6.push((prefix, class));
    }

    /// Builds the tables that a gate looks sources up in.
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

/// Leaves out prefixes that change no result, and blocked ones within allowed ones.
fn merge<A: Family>(mut listed: Vec<(Prefix<A>, SourceClass)>) -> Box<[(Prefix<A>, SourceClass)]> {
    // Covered prefixes follow their cover; of a prefix on both lists the allowed one is first.
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

/// The lists of sources, frozen.
#[derive(Debug, Default)]
pub struct SourceLists {
    /// The tables by family; none if the lists are empty.
    fibs: Option<(Fib<u32>, Fib<u128>)>,
    /// The prefixes in the tables, in order.
    v4: Box<[(Prefix<u32>, SourceClass)]>,
    v6: Box<[(Prefix<u128>, SourceClass)]>,
}

impl SourceLists {
    /// Returns whether the lists are empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fibs.is_none()
    }

    /// Returns the list that a flow's source is on, if any.
    pub fn of(&self, flow: &Flow) -> Option<SourceClass> {
        let (v4, v6) = self.fibs.as_ref()?;
        SourceClass::of(match flow.pair() {
            Pair::V4 { src, .. } => v4.lookup(src),
            Pair::V6 { src, .. } => v6.lookup(src),
        })
    }

    /// Looks up IPv4 sources together, up to as many as there are hops, and calls `each` with the
    /// list of each.
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

    /// Looks up IPv6 sources together.
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

    /// Iterates over the prefixes that are needed to drop packets of blocked IPv4 sources early:
    /// blocked prefixes, each followed by the allowed ones within it.
    pub fn drop_list_v4(&self) -> impl Iterator<Item = (Prefix<u32>, SourceClass)> {
        drop_list(&self.v4)
    }

    /// The same for IPv6 sources.
    pub fn drop_list_v6(&self) -> impl Iterator<Item = (Prefix<u128>, SourceClass)> {
        drop_list(&self.v6)
    }
}

/// Leaves out allowed prefixes that are within no blocked one.
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

    /// The slow twin: both lists unchanged, scanned one by one.
    fn slow<A: Family>(listed: &[(Prefix<A>, SourceClass)], src: A) -> Option<SourceClass> {
        let mut saying = listed.iter().filter(|(prefix, _)| prefix.contains(src));
        saying
            .clone()
            .find(|listed| listed.1 == SourceClass::Allowed)
            .or(saying.next())
            .map(|listed| listed.1)
    }

    /// Whether a longest match in the drop list alone blocks a source.
    fn by_longest<A: Family>(early: &[(Prefix<A>, SourceClass)], src: A) -> bool {
        let matching = early.iter().filter(|(prefix, _)| prefix.contains(src));
        matching
            .max_by_key(|listed| listed.0.len())
            .is_some_and(|listed| listed.1 == SourceClass::Blocked)
    }

    #[test]
    fn source_on_both_lists_passes_with_any_prefix_lengths() {
        let mut rng = fastrand::Rng::with_seed(11);
        let mut met = [0; 3];
        for round in 0..400 {
            let mut listed = SourceListBuilder::default();
            for _ in 0..rng.usize(..30) {
                let class =
                    if rng.u8(..3) == 0 { SourceClass::Allowed } else { SourceClass::Blocked };
                // Small universes, so that prefixes lie within one another and repeat.
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
