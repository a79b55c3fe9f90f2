//! `fingerpost-bench agree`: compares the answers of engines with those of DPDK's tables, without measuring time.
//!
//! We wrote the oracle of our tests; `rte_fib` and `rte_fib6` are independent of it. All tables have
//! the same routes and look up millions of addresses: both ends of every route and their neighbors
//! outside, where answers change, addresses drawn from the routes, and random ones. Each lookup
//! function of DPDK is compared, and each engine in batches and by single lookups.

use std::process::ExitCode;

use anyhow::{Context, bail};
use fib::{Choice, Family, Fib, Hop, Prefix, Rib};
use output::progress;
use serde::Serialize;

use super::Setting;
use super::contest::Contestant;
use super::keys::Stream;
use super::rival::{Function, Rival};

/// Addresses per call.
const BATCH: usize = 32;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// Compare IPv6
    #[arg(short = '6')]
    v6: bool,
    /// The engines [default: dir24_8 (IPv4), DXR and poptrie]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    engines: Vec<String>,
    /// Random addresses, and as many from the routes
    #[arg(long, value_name = "N", default_value_t = 1 << 22)]
    addresses: usize,
}

#[derive(Serialize)]
struct Outcome<'a> {
    table: &'a str,
    routes: usize,
    addresses: usize,
    /// The number of addresses with a route.
    routed: usize,
    agree: Vec<String>,
    rival: String,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let routes = args.setting.routes()?;
    if args.v6 {
        compare(args, &routes.name, &routes.v6, &["D16X8R/64", "poptrie"])
    } else {
        compare(args, &routes.name, &routes.v4, &["dir24_8", "D16X4R", "poptrie"])
    }
}

fn compare<A: Family>(
    args: &Args,
    table: &str,
    routes: &[(Prefix<A>, Hop)],
    default: &[&str],
) -> anyhow::Result<ExitCode> {
    if routes.is_empty() {
        bail!("{table} has no route of this family");
    }
    let mut names: Vec<&str> = args.engines.iter().map(String::as_str).collect();
    if names.is_empty() {
        names.extend(default);
    }
    let keys = progress::during("drawing addresses", || addresses(args.addresses, routes));
    let mut theirs = vec![Hop::NONE; keys.len()];
    let mut agree = Vec::new();
    let description = progress::during("looking up in DPDK's table", || {
        let mut rival = Rival::dpdk(routes, Function::Scalar, BATCH)?;
        rival.expect(&keys)?;
        rival.answer(Stream::Rnd, &keys, &mut theirs)?;
        let mut second = vec![Hop::NONE; keys.len()];
        rival.answer(Stream::Seq, &keys, &mut second)?;
        same("rte_fib-scalar", &keys, &theirs, "the same one by one", &second)?;
        agree.push("rte_fib-scalar".to_owned());
        match rival.choose(Function::Vector) {
            Ok(()) => {
                rival.answer(Stream::Rnd, &keys, &mut second)?;
                same("rte_fib-scalar", &keys, &theirs, "rte_fib", &second)?;
                agree.push("rte_fib".to_owned());
            }
            Err(error) => eprintln!("fingerpost-bench: not compared: {error:#}"),
        }
        anyhow::Ok(rival.describe())
    })?;
    let rib = Rib::from_sorted(routes.iter().copied());
    let mut ours = vec![Hop::NONE; keys.len()];
    for name in names {
        let choice = Choice::parse::<A>(name).with_context(|| format!("--engines {name}"))?;
        progress::during(&format!("looking up in {name}"), || {
            let fib = Fib::build(&rib, choice, 2).with_context(|| format!("building {name}"))?;
            fib.lookup_batch(&keys, &mut ours);
            same("rte_fib", &keys, &theirs, name, &ours)?;
            for (&key, hop) in keys.iter().zip(&mut ours) {
                *hop = fib.lookup(key);
            }
            same("rte_fib", &keys, &theirs, &format!("{name}, one by one,"), &ours)
        })?;
        agree.push(name.to_owned());
    }
    let routed = theirs.iter().filter(|&&hop| hop != Hop::NONE).count();
    let addresses = keys.len();
    print(
        args.setting.output.json,
        &Outcome { table, routes: routes.len(), addresses, routed, agree, rival: description },
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Draws the addresses: borders of all routes, then random ones and some in routes.
fn addresses<A: Family>(count: usize, routes: &[(Prefix<A>, Hop)]) -> Vec<A> {
    let mut keys = Vec::with_capacity(routes.len() * 4 + count * 2);
    for (prefix, _) in routes {
        let (first, last) = (prefix.addr(), prefix.last());
        keys.extend([A::from_u128(first.to_u128().wrapping_sub(1)), first, last]);
        keys.extend(last.succ());
    }
    keys.extend(Stream::Rnd.keys::<A>(count, routes));
    keys.extend(Stream::Pfx.keys::<A>(count, routes));
    keys
}

fn same<A: Family>(
    one: &str,
    keys: &[A],
    hops: &[Hop],
    two: &str,
    others: &[Hop],
) -> anyhow::Result<()> {
    let differ = || hops.iter().zip(others).enumerate().filter(|(_, (one, two))| one != two);
    if let Some((at, (hop, other))) = differ().next() {
        let (key, count) = (keys[at], differ().count());
        bail!(
            "{one} and {two} differ on {count} of {} addresses: {key:x?} has {hop:?} and {other:?}",
            keys.len()
        );
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(json: bool, outcome: &Outcome<'_>) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(outcome)?);
        return Ok(());
    }
    let Outcome { table, routes, addresses, routed, agree, rival } = outcome;
    println!("{table}: {routes} routes; {addresses} addresses, of which {routed} have a route");
    println!("{rival}");
    println!("{} agree on every one", agree.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{addresses, same};
    use fib::{Hop, Prefix};

    #[test]
    fn addresses_include_every_border() {
        let routes = [(Prefix::truncate(0x0a00_0000u32, 8), Hop(1)), (Prefix::ALL, Hop(2))];
        let keys = addresses(3, &routes);
        for border in [0x09ff_ffff, 0x0a00_0000, 0x0aff_ffff, 0x0b00_0000, 0, u32::MAX] {
            assert!(keys.contains(&border), "{border:x}");
        }
        // The whole space has no address after it.
        assert_eq!(keys.len(), 4 + 3 + 3 + 3);
    }

    #[test]
    fn same_reports_the_first_difference() {
        let hops = [Hop(1), Hop(2)];
        assert!(same("one", &[1u32, 2], &hops, "two", &hops).is_ok());
        let error = same("one", &[1u32, 2], &hops, "two", &[Hop(1), Hop(3)]).unwrap_err();
        assert!(error.to_string().starts_with("one and two differ on 1 of 2 addresses: 2 has"));
    }
}
