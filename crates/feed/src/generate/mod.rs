//! A synthetic Internet table, for use where no real one is available.
//!
//! A routing table is hard or easy for a forwarding engine not by its number of prefixes but by
//! their structure: their lengths, their nesting, which blocks are crowded, and how often neighbors
//! have the same next hop. All of that was measured on the RouteViews tables of 2026-07-30 and is
//! built into the program as two small models ([`model`] states what is counted); a table is dealt
//! from the counts like cards from a deck ([`deal`]).
//!
//! | property of the measured tables | accuracy, at full size |
//! |---|---|
//! | prefixes of each length | exact |
//! | share nested in a longer cover, by bands of the covering length | exact; by each length within 0.02 |
//! | which blocks of 8 bits (IPv6: 16) have routes | exact |
//! | how crowded they, their /16 and /20 (/32 and /40) are | by five classes each |
//! | routes with both halves of their parent in use | exact by kind of place |
//! | routes with the label of the route before | within 0.01 |
//! | routes with the label of their cover | within 0.03 (IPv6: 0.10, too many) |
//! | distinct labels, if no number is requested | exact |
//! | runs of the swept table | within 5 % (IPv6: 10 %), too many |
//!
//! The tests measure the real tables again and compare the generator with them. Not reproduced: the
//! order of crowded and empty blocks within a class, so that the fullest /16 has about half the
//! runs of the fullest real one; the few largest origins, which are half as large; anything about
//! the owners of address space.
//!
//! With a requested number of labels, each origin is given one next hop, the i-th with a weight of
//! i^-1.25. Measured on the table of one router (`ipv4-20151023-pch`): 3,771 next hops, an entropy
//! of 6.1 bits, the largest with 20 % of the routes; these weights give 6.3 bits and 25 %.
//!
//! A seed gives the same table on every machine: the generator uses integers only, and its own
//! random generator.

mod deal;
#[cfg(test)]
mod measure;
mod model;
mod random;

use fib::{Addr, Prefix};

use self::model::Model;
use self::random::Random;
use hashbrown::HashMap;

use crate::{Label, Labels, Report, RoutingTable};

/// The parameters of a generated table.
///
/// # Examples
///
/// ```
/// use fingerpost_feed::{generate, Recipe};
/// let small = Recipe { v4: 1000, v6: 100, labels: Some(8), ..Recipe::default() };
/// let table = generate(&small);
/// assert_eq!((table.v4.len(), table.v6.len(), table.labels.len()), (1000, 100, 8));
/// assert_eq!(table.v4, generate(&small).v4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The seed: each gives another table of this kind.
    pub seed: u64,
    /// The number of IPv4 routes.
    pub v4: usize,
    /// The number of IPv6 routes.
    pub v6: usize,
    /// The number of labels, `nh1` and so on, that both families share; `None`
    /// for the origins themselves, written as AS numbers of the private range.
    pub labels: Option<u32>,
}

impl Default for Recipe {
    /// The sizes of the Internet's tables of 2026-07-30 and 148 next hops.
    fn default() -> Self {
        Self { seed: 1, v4: 1_107_938, v6: 258_956, labels: Some(148) }
    }
}

/// Generates a table.
///
/// The number of routes is limited by the space under the measured prefixes: beyond that, the
/// report has a warning with the number of routes.
///
/// # Complexity
///
/// Time of the full table even for a smaller one; O(n) for a larger.
pub fn generate(recipe: &Recipe) -> RoutingTable {
    let mut report = Report::default();
    let mut v4 = family(include_str!("ipv4-20260730.model"), recipe.v4, recipe.seed, &mut report);
    let mut v6 = family(include_str!("ipv6-20260730.model"), recipe.v6, recipe.seed, &mut report);
    let mut origins: HashMap<Label, u32> = HashMap::new();
    let mut number = |label: &mut Label| {
        let next = origins.len() as u32;
        label.0 = *origins.entry(*label).or_insert(next);
    };
    v4.iter_mut().for_each(|route| number(&mut route.1));
    v6.iter_mut().for_each(|route| number(&mut route.1));
    let origins = origins.len() as u32;
    let mut labels = Labels::new();
    match recipe.labels {
        Some(count) => {
            let count = count.max(1);
            let hops = next_hops(origins, count, recipe.seed);
            v4.iter_mut().for_each(|route| route.1 = hops[route.1.0 as usize]);
            v6.iter_mut().for_each(|route| route.1 = hops[route.1.0 as usize]);
            (0..count.min(origins)).for_each(|n| {
                labels.intern(&format!("nh{}", n + 1));
            });
        }
        // The private range of RFC 6996.
        None => (0..origins).for_each(|n| {
            labels.intern(&(4_200_000_000 + n).to_string());
        }),
    }
    report.entries = (v4.len() + v6.len()) as u64;
    report.v4 = v4.len();
    report.v6 = v6.len();
    RoutingTable { v4, v6, labels, report }
}

fn family<A: Addr>(
    text: &str,
    count: usize,
    seed: u64,
    report: &mut Report,
) -> Vec<(Prefix<A>, Label)> {
    if count == 0 {
        return Vec::new();
    }
    let model: Model = text.parse().expect("the built-in model is well formed: a test reads it");
    let mut random = Random::new(seed, u64::from(A::BITS));
    let mut prefixes: Vec<Prefix<A>> = deal::prefixes(&model, &mut random);
    if count < prefixes.len() {
        deal::thin(&mut prefixes, count, &mut random);
    } else if count > prefixes.len() {
        deal::grow(&mut prefixes, count, &mut random);
    }
    if prefixes.len() < count {
        report.warnings.push(format!(
            "there is room for {} routes of {} bits only, not for {count}",
            prefixes.len(),
            A::BITS
        ));
    }
    deal::labels(&model, &prefixes, &mut random)
}

/// Gives each origin a next hop below `count`, by weight. The first origins get one each, so that
/// all next hops are used if there are enough origins.
fn next_hops(origins: u32, count: u32, seed: u64) -> Vec<Label> {
    // (i + 1)^-1.25 in integers: floating-point powers differ between machines.
    let mut sum = 0u64;
    let sums: Vec<u64> = (1..=u128::from(count))
        .map(|i| {
            let power = i.saturating_pow(5).saturating_mul(1 << 32).isqrt().isqrt();
            sum += ((1u128 << 48) / power.max(1)).max(1) as u64;
            sum
        })
        .collect();
    let mut random = Random::new(seed, 1);
    (0..origins)
        .map(|origin| {
            if origin < count {
                return Label(origin);
            }
            let at = random.below(sum);
            Label(sums.partition_point(|&bound| bound <= at) as u32)
        })
        .collect()
}

#[cfg(test)]
mod tests;
