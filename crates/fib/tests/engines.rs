//! Every engine in every width, on tables of the real families, against the
//! oracle: at all borders and at random addresses.

mod tables;

use std::collections::BTreeMap;

use fingerpost_fib::engine::linear::Linear;
use fingerpost_fib::{Addr, Choice, Engine, Family, Fib, Full, Hop, Prefix, Rib};
use tables::{Dice, borders};

const DXR4: [&str; 9] =
    ["D16R", "D18R", "D20R", "D24R", "D16X4R", "D12X4R", "D12X12R", "D14X6R", "D16X8R"];
const DXR6: [&str; 6] = ["D16R", "D20R", "D16X4R", "D16X8R", "D12X4R", "D14X10R"];

fn rib<A: Addr>(table: &BTreeMap<Prefix<A>, Hop>) -> Rib<A> {
    Rib::from_sorted(table.iter().map(|(&prefix, &hop)| (prefix, hop)))
}

/// Compares one table's answers with the oracle's.
fn compare<A: Family>(table: &BTreeMap<Prefix<A>, Hop>, names: &[String], dice: &mut Dice) {
    let oracle = Linear::new(table.iter().map(|(&prefix, &hop)| (prefix, hop)));
    let mut addrs = borders(table);
    addrs.extend((0..500).map(|_| dice.addr::<A>()));
    let expected: Vec<Hop> = addrs.iter().map(|&addr| oracle.lookup(addr)).collect();
    for name in names {
        let fib = Fib::build(&rib(table), Choice::parse::<A>(name).unwrap(), 1).unwrap();
        let mut out = vec![Hop(9); addrs.len()];
        fib.lookup_batch(&addrs, &mut out);
        for ((&addr, &hop), &batched) in addrs.iter().zip(&expected).zip(&out) {
            assert_eq!(batched, hop, "batch, {name}, {addr:?}, {table:?}");
            assert_eq!(fib.lookup(addr), hop, "{name}, {addr:?}, {table:?}");
        }
        let (addr, hop) = (addrs[0], expected[0]);
        assert_eq!(fib.trace(addr).0, hop, "trace, {name}");
    }
}

fn battery<A: Family>(names: &[String]) {
    for seed in 0..12 {
        let mut dice = Dice::new(seed);
        let hops = [3, 250, 260, 65_534, 1 << 20][seed as usize % 5];
        let table = dice.table::<A>(120, hops);
        compare(&table, names, &mut dice);
    }
}

fn owned(names: &[&str], suffix: &str) -> Vec<String> {
    names.iter().map(|name| format!("{name}{suffix}")).collect()
}

#[test]
fn dxr_answers_ipv4_tables() {
    battery::<u32>(&owned(&DXR4, ""));
}

#[test]
fn dxr_answers_tables_of_the_ipv6_upper_half() {
    battery::<u64>(&owned(&DXR6, ""));
}

#[test]
fn dxr_answers_ipv6_tables_whole_and_in_halves() {
    let mut names = owned(&DXR6, "");
    names.extend(owned(&DXR6, "/64"));
    names.push("auto".into());
    battery::<u128>(&names);
}

#[test]
fn empty_tables_default_and_host_routes_are_right() {
    for len in [0, 1, 31, 32] {
        let table = BTreeMap::from([(Prefix::truncate(u32::MAX, len), Hop(7))]);
        compare(&table, &owned(&DXR4, ""), &mut Dice::new(1));
    }
    for len in [0, 1, 63, 64, 65, 127, 128] {
        let table = BTreeMap::from([(Prefix::truncate(u128::MAX, len), Hop(7))]);
        compare(&table, &owned(&DXR6, "/64"), &mut Dice::new(1));
        compare(&table, &owned(&DXR6, ""), &mut Dice::new(1));
    }
    compare::<u32>(&BTreeMap::new(), &owned(&DXR4, ""), &mut Dice::new(1));
    compare::<u128>(&BTreeMap::new(), &owned(&DXR6, "/64"), &mut Dice::new(1));
}

#[test]
fn chunk_of_65536_ranges_and_65534_next_hops_is_right() {
    // One /16 in which no two neighbors agree: 2^16 ranges and 65,534 next hops.
    let table: BTreeMap<Prefix<u32>, Hop> = (0..1u32 << 16)
        .map(|low| (Prefix::truncate(0x0a01_0000 | low, 32), Hop(1 + low % 65_534)))
        .collect();
    for name in ["D16R", "D16X4R", "D12X4R", "D20R"] {
        let fib = Fib::build(&rib(&table), Choice::parse::<u32>(name).unwrap(), 1).unwrap();
        for low in 0..1u32 << 16 {
            assert_eq!(fib.lookup(0x0a01_0000 | low), Hop(1 + low % 65_534), "{name}");
        }
        assert_eq!(fib.lookup(0x0a00_ffff), Hop::NONE);
        assert_eq!(fib.lookup(0x0a02_0000), Hop::NONE);
    }
}

#[test]
fn builder_of_fixed_width_returns_full_beyond_its_limit() {
    use fingerpost_fib::engine::dxr::{DxrBuilder, Shape};
    use fingerpost_fib::runs::{Run, sweep};
    use fingerpost_fib::{Builder, Full};
    // 512 ranges in one chunk are one more than nine bits of length can say.
    let table = |ranges: u32| -> Vec<Run<u32>> {
        let routes = (0..ranges).map(|i| (Prefix::truncate(0x0a01_0000 + i * 2, 32), Hop(1)));
        let mut runs = Vec::new();
        sweep(Prefix::ALL, Hop::NONE, routes, &mut runs);
        runs
    };
    let shape = Shape::parse::<u32>("D16R").unwrap();
    let mut narrow = DxrBuilder::<u32, u32>::new(shape);
    assert_eq!(narrow.patch(Prefix::ALL, &table(255)), Ok(()));
    // Of two chunks that are too long, the longest is named.
    let mut both = table(256);
    let behind = table(400).into_iter().skip(1);
    both.extend(behind.map(|run| Run { start: run.start + 0x10_0000, hop: run.hop }));
    let full = narrow.patch(Prefix::ALL, &both).unwrap_err();
    assert_eq!(full, Full { what: Full::CHUNK, limit: 511, seen: 800 });
    let mut wide = DxrBuilder::<u32, u64>::new(shape);
    assert_eq!(wide.patch(Prefix::ALL, &table(256)), Ok(()));
    assert_eq!(wide.freeze().lookup(0x0a01_0000 + 510), Hop(1));
}

#[test]
fn several_threads_build_the_same_table() {
    fn both<A: Family>(names: &[&str]) {
        let mut dice = Dice::new(5);
        // Many routes at little cost: the oracle here is the build of one thread.
        let mut table = BTreeMap::new();
        for _ in 0..30_000 {
            let len = (A::BITS / 4) + dice.below(A::BITS as usize / 2) as u32;
            let crowded = Prefix::truncate(dice.addr::<A>().first(A::BITS - 2), len);
            table.insert(crowded, Hop(1 + dice.below(300) as u32));
        }
        let rib = rib(&table);
        let addrs: Vec<A> = borders(&table);
        for name in names {
            let choice = Choice::parse::<A>(name).unwrap();
            let one = Fib::build(&rib, choice, 1).unwrap();
            let mut expected = vec![Hop::NONE; addrs.len()];
            one.lookup_batch(&addrs, &mut expected);
            for threads in [2, 3, 7] {
                let many = Fib::build(&rib, choice, threads).unwrap();
                let mut out = vec![Hop(9); addrs.len()];
                many.lookup_batch(&addrs, &mut out);
                assert!(out == expected, "{name}, {threads} threads");
                // Parts shared by content are shared across threads too.
                assert_eq!(many.footprint(), one.footprint(), "{name}, {threads} threads");
            }
        }
    }
    both::<u32>(&[
        "D16R", "D16X4R", "D12X8R", "linear", "dir24_8", "poptrie", "ranges", "ranges16",
    ]);
    both::<u128>(&["D16X8R", "D16X8R/64", "rank6", "poptrie", "ranges16"]);
}

#[test]
fn highest_hop_is_stored_or_refused() {
    let routes = [(Prefix::truncate(1u128 << 100, 40), Hop(u32::MAX))];
    let rib = Rib::from_sorted(routes);
    let build = |name| Fib::build(&rib, Choice::parse::<u128>(name).unwrap(), 1);
    assert_eq!(build("D16X8R").unwrap().lookup(1 << 100), Hop(u32::MAX));
    assert_eq!(build("D16X8R/64").unwrap_err().what, Full::HOPS);
}

#[test]
fn full_is_described_with_the_limit() {
    let full = Full { what: Full::CHUNK, limit: 511, seen: 600 };
    assert_eq!(full.to_string(), "the table is full: 600 ranges in one chunk, and room for 511");
}

#[test]
fn lower_table_holds_only_longer_routes() {
    let mut dice = Dice::new(11);
    let mut table: BTreeMap<Prefix<u128>, Hop> = BTreeMap::new();
    for _ in 0..500 {
        let len = 20 + dice.below(45) as u32;
        table.insert(Prefix::truncate(dice.addr(), len), Hop(1 + dice.below(9) as u32));
    }
    let below = |table: &BTreeMap<Prefix<u128>, Hop>| -> usize {
        let choice = Choice::parse::<u128>("D16X8R/64").unwrap();
        let parts = Fib::build(&rib(table), choice, 1).unwrap().parts();
        let ranges = parts
            .iter()
            .filter(|part| part.name.starts_with("lower") && part.name.ends_with("ranges"));
        ranges.map(|part| part.items).sum()
    };
    assert_eq!(below(&table), 0);
    // One host route marks its /64. Ranges of its chunk: nowhere, what the /64 has
    // before it, itself, what the /64 has after it, nowhere again.
    table.insert("2001:db8::/32".parse().unwrap(), Hop(3));
    assert_eq!(below(&table), 0);
    table.insert("2001:db8:1:2::5/128".parse().unwrap(), Hop(77));
    assert_eq!(below(&table), 5);
}
