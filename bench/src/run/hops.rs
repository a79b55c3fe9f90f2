//! Assigns a next hop to each route, by a documented and reproducible rule.
//!
//! Public tables name origins, or nothing, and seldom next hops. The size of a table depends on
//! the distribution of next hops over it, since adjacent routes with equal hops form one range.
//!
//! | rule | a route's next hop |
//! |---|---|
//! | `own` | its label's number in the table, as it is |
//! | `hash` | by its label, each of `count` alike |
//! | `cover` | of `share` % by the prefix of `cover` bits that covers it, of the others by itself |
//! | `shares` | by its label, in the given `shares` of 100, the rest evenly over what is left of `count` |
//!
//! `cover` is for lists of prefixes: adjacent prefixes of one block often share a next hop, as a
//! provider's customers do. `shares` is for tables with origins: all routes of one origin
//! share a next hop, as with one best upstream per origin, and the upstreams have real shares.
//!
//! A hash maps a label or prefix to one of `count` hops: FNV-1a of 64 bits over its bytes,
//! multiplied by 0x9e3779b97f4a7c15 (modulo 2^64); the upper 32 bits times `count`, over 2^32. The
//! bytes of a label are its text. The bytes of a prefix are one for the purpose (0: whether its
//! cover decides, 1: its own hop, 2: its hop as a cover), 16 of its address in network order (an
//! IPv4 address is the last 4), and one of its length. Hops are counted from 1.

use anyhow::{bail, ensure};
use feed::{Label, RoutingTable};
use fib::{Addr, Family, Hop, Prefix};
use serde::{Deserialize, Serialize};

/// A rule.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "by", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Rule {
    Own,
    Hash { count: u32 },
    Cover { count: u32, share: u32, cover: u32 },
    Shares { count: u32, shares: Vec<f64> },
}

impl Rule {
    /// Validates the parameters.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match self {
            Self::Own => {}
            Self::Hash { count } => ensure!(*count > 0, "hops: a count"),
            Self::Cover { count, share, cover } => {
                ensure!(*count > 0 && *share <= 100 && *cover <= 128, "hops: count, share, cover");
            }
            Self::Shares { count, shares } => {
                let sum: f64 = shares.iter().sum();
                ensure!(
                    shares.len() < *count as usize && sum <= 100.0,
                    "hops: shares are of 100 in all, and of fewer next hops than there are"
                );
            }
        }
        Ok(())
    }
}

/// Assigns a hop to every route of a family.
pub(super) fn assign<A: Family>(
    rule: &Rule,
    loaded: &RoutingTable,
    bits: u32,
) -> anyhow::Result<Vec<(Prefix<A>, Hop)>> {
    let hop = |prefix: Prefix<A>, label: Label| match rule {
        Rule::Own => Hop(1 + label.0),
        Rule::Hash { count } => Hop(1 + bucket(text(loaded, label), *count)),
        Rule::Cover { count, share, cover } => {
            if bucket(bytes(0, prefix), 100) >= *share || prefix.len() < *cover {
                return Hop(1 + bucket(bytes(1, prefix), *count));
            }
            let cover = Prefix::truncate(prefix.addr(), *cover);
            Hop(1 + bucket(bytes(2, cover), *count))
        }
        Rule::Shares { count, shares } => {
            Hop(1 + weighted_bucket(text(loaded, label), *count, shares))
        }
    };
    let assign_all = |routes: &mut dyn Iterator<Item = (u128, u32, Label)>| {
        let prefix = |addr, len| Prefix::truncate(A::from_u128(addr), len);
        routes
            .map(|(addr, len, label)| (prefix(addr, len), label))
            .map(|(prefix, label)| (prefix, hop(prefix, label)))
            .collect::<Vec<_>>()
    };
    let routes = match bits {
        32 => assign_all(&mut loaded.v4.iter().map(|(p, l)| (p.addr().into(), p.len(), *l))),
        _ => assign_all(&mut loaded.v6.iter().map(|(p, l)| (p.addr(), p.len(), *l))),
    };
    if routes.is_empty() {
        bail!("the table has no route of this family");
    }
    Ok(routes)
}

fn text(loaded: &RoutingTable, label: Label) -> impl Iterator<Item = u8> {
    loaded.labels.get(label).bytes()
}

fn bytes<A: Addr>(what: u8, prefix: Prefix<A>) -> impl Iterator<Item = u8> {
    let addr = prefix.addr().to_u128().to_be_bytes();
    std::iter::once(what).chain(addr).chain([prefix.len() as u8])
}

/// Returns 32 bits of hash.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    feed::fnv1a(bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Maps bytes to one of `count` hops by their hash.
fn bucket(bytes: impl Iterator<Item = u8>, count: u32) -> u32 {
    ((hash(bytes) * u64::from(count)) >> 32) as u32
}

/// Maps bytes to one of the first hops by their shares, and to the others evenly.
fn weighted_bucket(bytes: impl Iterator<Item = u8>, count: u32, shares: &[f64]) -> u32 {
    let mut at = hash(bytes) as f64 / 2f64.powi(32) * 100.0;
    for (hop, share) in shares.iter().enumerate() {
        if at < *share {
            return hop as u32;
        }
        at -= share;
    }
    let rest = 100.0 - shares.iter().sum::<f64>();
    let (few, others) = (shares.len() as u32, count - shares.len() as u32);
    few + ((at / rest * f64::from(others)) as u32).min(others - 1)
}

#[cfg(test)]
mod tests {
    use super::{Rule, assign, bucket, hash};
    use fib::{Hop, Prefix};
    use std::collections::BTreeMap;

    fn loaded(text: &str) -> feed::RoutingTable {
        let path = std::env::temp_dir().join(format!(
            "fingerpost-hops-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::write(&path, text).unwrap();
        let loaded = feed::load(&path, &feed::Options::default()).unwrap();
        std::fs::remove_file(&path).unwrap();
        loaded
    }

    #[test]
    fn hash_follows_the_documented_definition() {
        // FNV-1a of "a" is af63dc4c8601ec8c.
        let fnv = 0xaf63_dc4c_8601_ec8c_u64;
        assert_eq!(hash(b"a".iter().copied()), fnv.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
        assert!((0..1000u32).all(|i| bucket(i.to_be_bytes().into_iter(), 7) < 7));
    }

    #[test]
    fn labels_follow_the_shares() {
        let text: String = (0..20_000u32)
            .map(|i| format!("10.{}.{}.0/24\t{}\n", i >> 8, i & 255, 64_000 + i))
            .collect();
        let rule = Rule::Shares { count: 20, shares: vec![50.0, 20.0] };
        let routes = assign::<u32>(&rule, &loaded(&text), 32).unwrap();
        let mut counts = BTreeMap::<u32, usize>::new();
        routes.iter().for_each(|(_, hop)| *counts.entry(hop.0).or_default() += 1);
        assert!((9_600..10_400).contains(&counts[&1]), "{counts:?}");
        assert!((3_700..4_300).contains(&counts[&2]), "{counts:?}");
        assert_eq!(counts.len(), 20);
        assert!((3..=20).all(|hop| (230..440).contains(&counts[&hop])), "{counts:?}");
    }

    #[test]
    fn prefixes_share_the_hop_of_their_cover() {
        let text: String =
            (0..4096u32).map(|i| format!("10.{}.{}.0/24\n", i >> 8, i & 255)).collect();
        let rule = Rule::Cover { count: 148, share: 70, cover: 12 };
        let routes: Vec<(Prefix<u32>, Hop)> = assign(&rule, &loaded(&text), 32).unwrap();
        let mut counts = BTreeMap::<u32, usize>::new();
        routes.iter().for_each(|(_, hop)| *counts.entry(hop.0).or_default() += 1);
        // All of them lie in 10.0.0.0/12.
        assert!((2_700..3_100).contains(counts.values().max().unwrap()), "{counts:?}");
    }
}
