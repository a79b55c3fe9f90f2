//! What the engines would cost that the automatic choice is between.
//!
//! Their bytes are estimated from the routes; who asks for it has them built, which
//! tells the bytes to the last one, and tried: a quick rate of lookups, in turns, of
//! addresses drawn from the routes. It is for an impression; `bench` measures.

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

use anyhow::Context;
use fib::{Addr, Choice, Family, Fib, Hop, Prefix, Rib};
use serde::Serialize;

use crate::progress;

/// How many addresses are looked up a pass, how many a call, and how many passes.
const KEYS: usize = 1 << 20;
const BATCH: usize = 256;
const PASSES: usize = 5;

/// One engine.
#[derive(Debug, Serialize)]
pub(super) struct Alternative {
    engine: String,
    estimated_bytes: usize,
    #[serde(flatten)]
    built: Option<Tried>,
}

/// What is known of one that was built.
#[derive(Debug, Serialize)]
struct Tried {
    built_bytes: usize,
    build_seconds: f64,
    /// Of the quickest pass.
    million_lookups_a_second: f64,
}

/// Tells the alternatives for `rib`, and tries them if asked to.
pub(super) fn of<A: Family>(
    rib: &Rib<A>,
    build: bool,
    threads: usize,
) -> anyhow::Result<Vec<Alternative>> {
    let estimates = Choice::estimates(rib);
    let mut alternatives: Vec<Alternative> = estimates
        .iter()
        .map(|estimate| Alternative {
            engine: estimate.choice.name::<A>(),
            estimated_bytes: estimate.bytes,
            built: None,
        })
        .collect();
    if !build {
        return Ok(alternatives);
    }
    let mut fibs = Vec::new();
    for (estimate, alternative) in estimates.iter().zip(&mut alternatives) {
        let name = &alternative.engine;
        let start = Instant::now();
        let fib = progress::during(&format!("building {name}"), || {
            Fib::build(rib, estimate.choice, threads)
        })
        .with_context(|| format!("building {name}"))?;
        alternative.built = Some(Tried {
            built_bytes: fib.footprint(),
            build_seconds: start.elapsed().as_secs_f64(),
            million_lookups_a_second: 0.0,
        });
        fibs.push(fib);
    }
    let keys = keys(rib);
    progress::during("looking up", || {
        for _ in 0..PASSES {
            for (fib, alternative) in fibs.iter().zip(&mut alternatives) {
                let rate = rate(fib, &keys);
                if let Some(built) = &mut alternative.built {
                    built.million_lookups_a_second = built.million_lookups_a_second.max(rate);
                }
            }
        }
    });
    Ok(alternatives)
}

/// Draws addresses: of a random route, a random one.
fn keys<A: Addr>(rib: &Rib<A>) -> Vec<A> {
    let routes: Vec<Prefix<A>> = rib.iter().map(|(prefix, _)| prefix).collect();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut draw = || {
        let prefix = routes[rng.usize(..routes.len())];
        let (first, last) = (prefix.addr().to_u128(), prefix.last().to_u128());
        A::from_u128(first | rng.u128(..) & (first ^ last))
    };
    (0..KEYS).map(|_| draw()).collect()
}

fn rate<A: Family>(fib: &Fib<A>, keys: &[A]) -> f64 {
    let mut out = [Hop::NONE; BATCH];
    let start = Instant::now();
    for keys in keys.chunks(BATCH) {
        fib.lookup_batch(keys, &mut out[..keys.len()]);
        black_box(&mut out);
    }
    keys.len() as f64 / start.elapsed().as_secs_f64().max(1e-9) / 1e6
}

impl fmt::Display for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, estimated_bytes, built } = self;
        write!(f, "{engine:<12} about {estimated_bytes:>10} bytes")?;
        if let Some(Tried { built_bytes, build_seconds, million_lookups_a_second }) = built {
            write!(
                f,
                ", built {built_bytes:>10} in {build_seconds:.3} s, \
                 {million_lookups_a_second:.0} million lookups a second"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::of;
    use fib::{Hop, Prefix, Rib};

    #[test]
    fn alternatives_are_built_only_if_asked_for() {
        let routes = (0..5000u32).map(|i| (Prefix::truncate(i << 16, 24), Hop(1 + i % 9)));
        let rib = Rib::from_sorted(routes);
        let told = of(&rib, false, 1).unwrap();
        assert!(told.len() > 1 && told.iter().all(|one| one.built.is_none()));
        for one in of(&rib, true, 1).unwrap() {
            let built = one.built.unwrap();
            assert!(built.built_bytes.abs_diff(one.estimated_bytes) < 4096);
            assert!(built.million_lookups_a_second > 0.0);
        }
    }
}
