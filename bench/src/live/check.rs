//! Compares the table that is published after the changes with two references.
//!
//! The references are independent of the updater: a table built from scratch from the routes after
//! all changes, and an oracle without a trie, a hash map that is queried with every prefix length,
//! longest first. The comparison covers every border of every route, also of removed ones, and one
//! address to either side.

use std::collections::HashMap;

use anyhow::Context;
use fib::{Choice, Family, Fib, Hop, Prefix, Rib};

use crate::contest::check;
use crate::engines::changes::borders;

/// Compares `fib` with both; returns the number of compared addresses.
pub(super) fn verify<A: Family>(
    fib: &Fib<A>,
    choice: Choice,
    routes: &[(Prefix<A>, Hop)],
    list: &[(Prefix<A>, Hop)],
) -> anyhow::Result<usize> {
    let mut model: HashMap<Prefix<A>, Hop> = routes.iter().copied().collect();
    for &(prefix, hop) in list {
        match hop {
            Hop::NONE => model.remove(&prefix),
            hop => model.insert(prefix, hop),
        };
    }
    let mut now: Vec<_> = model.iter().map(|(&prefix, &hop)| (prefix, hop)).collect();
    now.sort_unstable_by_key(|&(prefix, _)| prefix);
    let rebuilt = Fib::build(&Rib::from_sorted(now.iter().copied()), choice, 1)
        .context("rebuilding the table")?;
    now.extend(routes);
    now.extend(list);
    let addrs = borders(&now);
    let mut lens = [false; 129];
    model.keys().for_each(|prefix| lens[prefix.len() as usize] = true);
    let oracle = |addr: &A| {
        let lens = (0..=A::BITS).rev().filter(|&len| lens[len as usize]);
        let mut hops = lens.filter_map(|len| model.get(&Prefix::truncate(*addr, len)));
        hops.next().copied().unwrap_or(Hop::NONE)
    };
    let right: Vec<Hop> = addrs.iter().map(oracle).collect();
    let mut hops = vec![Hop::NONE; addrs.len()];
    rebuilt.lookup_batch(&addrs, &mut hops);
    check("the rebuilt table", &addrs, &right, &hops)?;
    hops.fill(Hop::NONE);
    fib.lookup_batch(&addrs, &mut hops);
    check("the table after the changes", &addrs, &right, &hops)?;
    Ok(addrs.len())
}

#[cfg(test)]
mod tests {
    use super::verify;
    use fib::{Choice, Fib, Hop, Prefix, Rib};

    #[test]
    fn verify_detects_a_missed_change() {
        let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
        let routes = [(p("10.0.0.0/8"), Hop(1)), (p("10.1.0.0/16"), Hop(2))];
        let list = [(p("10.1.0.0/16"), Hop::NONE), (p("10.2.0.0/15"), Hop(3))];
        let mut rib = Rib::from_sorted(routes);
        let build = |rib: &Rib<u32>| Fib::build(rib, Choice::Auto, 1).unwrap();
        assert!(verify(&build(&rib), Choice::Auto, &routes, &[]).is_ok());
        rib.remove(list[0].0);
        let error = verify(&build(&rib), Choice::Auto, &routes, &list).unwrap_err();
        assert!(error.to_string().contains("after the changes"), "{error:#}");
        rib.insert(list[1].0, list[1].1);
        assert!(verify(&build(&rib), Choice::Auto, &routes, &list).unwrap() >= 8);
    }
}
