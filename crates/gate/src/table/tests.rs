//! The table against a map, and evictions from a full one.

use std::collections::HashMap;

use super::{FlowTable, PolicyBinding};
use crate::flow::{Flow, Key};
use crate::index::{Full, Index, chain, cuckoo, hopscotch, lines};
use crate::state::{Decision, Grant, Outcome, Stamp, State};

const SECOND: u64 = 1_000_000_000;
const GRANT: Decision = Decision::Grant(Grant {
    rate_kib: 1024,
    expire_s: 300,
    next_renewal_ms: 240_000,
    renewal_step_ms: 3_000,
});

fn flow(number: u32) -> Flow {
    if number.is_multiple_of(2) { Flow::v4(number, 7) } else { Flow::v6(number.into(), 7) }
}

fn random<I: Index>(seed: u64) {
    const ENTRIES: usize = 200;
    let mut rng = fastrand::Rng::with_seed(seed);
    let key = Key::new(|| rng.u64(..));
    let mut now = 0;
    let mut table = FlowTable::<I>::new(ENTRIES, now);
    // The expiry of each flow by its record.
    let mut model: HashMap<Flow, u64> = HashMap::new();
    for step in 0..30_000 {
        let magnitude = rng.u32(..30);
        now += rng.u64(..1 << magnitude);
        let flow = flow(rng.u32(..400));
        let hash = key.hash(&flow);
        table.fetch(hash);
        let found = table.find_from(table.candidate(hash), &flow, hash);
        assert_eq!(found, table.find(&flow, hash));
        assert_eq!(found.is_some(), model.contains_key(&flow), "{} step {step}", I::NAME);
        let entry = found.or_else(|| {
            let binding = PolicyBinding { set: 3, generation: 9 };
            let entry = table.insert(&flow, hash, binding, now);
            assert_eq!(entry.is_err(), model.len() == ENTRIES, "{} step {step}", I::NAME);
            entry.ok()
        });
        if let Some(entry) = entry {
            match rng.u8(..8) {
                0 => assert!(table.decide(entry, now, &GRANT, Stamp::default())),
                1 => {
                    let decline = Decision::Decline { expire_s: rng.u32(..3) };
                    assert!(table.decide(entry, now, &decline, Stamp::default()));
                }
                _ => drop(table.packet(entry, now, 100)),
            }
            assert_eq!(table.entry(entry).flow(), flow);
            assert_eq!(table.entry(entry).binding(), PolicyBinding { set: 3, generation: 9 });
            model.insert(flow, table.entry(entry).record().expire_at());
            if rng.u8(..16) == 0 {
                table.remove(entry);
                model.remove(&flow);
            }
        }
        if rng.u8(..4) == 0 {
            table.expire(now, 1_000_000);
            // They are removed a tick later at the latest.
            model.retain(|flow, expire_at| {
                let there = table.find(flow, key.hash(flow)).is_some();
                assert!(there || *expire_at <= now, "{} step {step}", I::NAME);
                assert!(!there || *expire_at + (1 << 25) > now, "{} step {step}", I::NAME);
                there
            });
        }
        assert_eq!(table.len(), model.len());
        let count = |state| {
            let of = |state| move |entry: &&(u32, &super::Entry)| entry.1.record().state() == state;
            table.within(0..ENTRIES).filter(|entry| of(state)(&entry)).count()
        };
        if step % 500 == 0 {
            assert_eq!(table.granted(), count(State::Granted));
            assert_eq!(table.declined(), count(State::Declined));
            assert_eq!(table.within(0..ENTRIES).count(), model.len());
        }
    }
}

#[test]
fn table_equals_a_map_with_expiry() {
    random::<lines::Lines>(1);
    random::<chain::Chain>(2);
    random::<cuckoo::Cuckoo>(3);
    random::<hopscotch::Hopscotch>(4);
}

/// A table of requests, of which the first `granted` flows are granted.
fn full(entries: u32, granted: u32, key: &Key) -> FlowTable {
    let mut table = FlowTable::new(entries as usize, 0);
    for number in 0..entries {
        let flow = flow(number);
        let at = u64::from(number) * 1000;
        let entry = table.insert(&flow, key.hash(&flow), PolicyBinding::default(), at).unwrap();
        table.packet(entry, at, 64);
        if number < granted {
            table.decide(entry, at, &GRANT, Stamp::default());
        }
    }
    table
}

#[test]
fn full_table_evicts_requests_and_never_a_grant() {
    const ENTRIES: u32 = 4096;
    const GRANTED: u32 = 1000;
    let key = Key::random();
    let mut table = full(ENTRIES, GRANTED, &key);
    assert_eq!(table.room(), 0);
    let mut now = SECOND;
    for number in ENTRIES..1_000_000 {
        let flow = flow(number);
        if table.room() == 0 {
            assert_eq!(table.insert(&flow, 1, PolicyBinding::default(), now), Err(Full));
            assert_eq!(table.make_room(32), 32);
        }
        let entry = table.insert(&flow, key.hash(&flow), PolicyBinding::default(), now).unwrap();
        table.packet(entry, now, 64);
        now += 1000;
    }
    for number in 0..GRANTED {
        let flow = flow(number);
        let entry = table.find(&flow, key.hash(&flow)).unwrap();
        assert_eq!(table.packet(entry, now, 64), Outcome::Granted { renew: false });
    }
    assert_eq!(table.granted(), GRANTED as usize);
    // Without a request to evict it reports so, and keeps all.
    let mut table = full(64, 64, &key);
    assert_eq!(table.make_room(10), 0);
    assert_eq!(table.len(), 64);
}

#[test]
fn most_patient_flows_are_evicted_last() {
    const ENTRIES: u32 = 4096;
    let key = Key::random();
    let mut table = full(ENTRIES, 0, &key);
    // Every 64th flow has waited two seconds before its second request.
    for number in (0..ENTRIES).step_by(64) {
        let flow = flow(number);
        let entry = table.find(&flow, key.hash(&flow)).unwrap();
        table.packet(entry, 2 * SECOND, 64);
    }
    for number in ENTRIES..8 * ENTRIES {
        let flow = flow(number);
        assert_eq!(table.make_room(1), 1);
        table.insert(&flow, key.hash(&flow), PolicyBinding::default(), 2 * SECOND).unwrap();
    }
    for number in (0..ENTRIES).step_by(64) {
        let flow = flow(number);
        assert!(table.find(&flow, key.hash(&flow)).is_some(), "{number}");
    }
}

#[test]
fn table_allocates_nothing_after_its_creation() {
    let key = Key::random();
    let mut table: FlowTable = FlowTable::new(1000, 0);
    let allocated = allocation_counter::measure(|| {
        for number in 0..20_000u32 {
            let now = u64::from(number) * 1_000_000;
            let flow = flow(number);
            table.expire(now, 64);
            if table.room() == 0 {
                table.make_room(32);
            }
            let entry =
                table.insert(&flow, key.hash(&flow), PolicyBinding::default(), now).unwrap();
            table.packet(entry, now, 100);
            if number % 7 == 0 {
                table.decide(entry, now, &Decision::Decline { expire_s: 2 }, Stamp::default());
            }
        }
    });
    assert_eq!(allocated.count_total, 0);
}
