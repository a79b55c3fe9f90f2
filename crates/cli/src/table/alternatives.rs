//! The costs of the engines of the automatic choice.
//!
//! The bytes are estimated from the routes. With `--alternatives` each engine is built, which gives
//! its exact bytes, and its lookup rate is measured shortly, engine by engine in turns, with addresses
//! drawn from the routes. The rate is a rough value; `fingerpost-bench engines` measures exactly.

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

use anyhow::Context;
use fib::{Addr, Choice, Family, Fib, Hop, Prefix, Rib};
use serde::Serialize;

use output::progress;

/// Addresses per pass.
const KEYS: usize = 1 << 20;
/// Addresses per call.
const BATCH: usize = 256;
/// Passes, of which the fastest counts.
const PASSES: usize = 5;

/// An engine of the automatic choice.
#[derive(Debug, Serialize)]
pub(super) struct Alternative {
    engine: String,
    estimated_bytes: usize,
    #[serde(flatten)]
    built: Option<Measured>,
}

/// The measured costs of an engine.
#[derive(Debug, Serialize)]
struct Measured {
    built_bytes: usize,
    build_seconds: f64,
    /// The rate of the fastest pass.
    million_lookups_a_second: f64,
}

/// Lists the engines for `rib`; builds and measures them if `build` is set.
pub(super) fn list<A: Family>(
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
        alternative.built = Some(Measured {
            built_bytes: fib.footprint(),
            build_seconds: start.elapsed().as_secs_f64(),
            million_lookups_a_second: 0.0,
        });
        fibs.push(fib);
    }
    let keys = keys(rib);
    progress::during("measuring lookups", || {
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

/// Draws random addresses of random routes.
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
        if let Some(Measured { built_bytes, build_seconds, million_lookups_a_second }) = built {
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
    use super::list;
    use fib::{Hop, Prefix, Rib};

    #[test]
    fn alternatives_are_built_only_on_request() {
        let routes = (0..5000u32).map(|i| (Prefix::truncate(i << 16, 24), Hop(1 + i % 9)));
        let rib = Rib::from_sorted(routes);
        let estimated = list(&rib, false, 1).unwrap();
        assert!(estimated.len() > 1 && estimated.iter().all(|engine| engine.built.is_none()));
        for engine in list(&rib, true, 1).unwrap() {
            let built = engine.built.unwrap();
            assert!(built.built_bytes.abs_diff(engine.estimated_bytes) < 4096);
            assert!(built.million_lookups_a_second > 0.0);
        }
    }
}
