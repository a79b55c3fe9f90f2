//! Counts of real files: every number here is from the README of the data folder, where independent
//! programs found them.

use std::path::PathBuf;

use fingerpost_feed::{
    Change, Compression, Error, EventKind, Format, Options, RoutingTable, Update, UpdateStream,
    load, updates,
};

const PARTIAL: Options =
    Options { partial: true, format: None, truncate_host_bits: false, origin: false };

fn data(name: &str) -> PathBuf {
    let folder = std::env::var_os("FINGERPOST_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is missing: set FINGERPOST_DATA to the folder of routing data",
        path.display()
    );
    path
}

fn table(name: &str) -> RoutingTable {
    let loaded = load(data(name), &Options::default()).unwrap();
    assert!(loaded.v4.is_sorted_by(|a, b| a.0 < b.0), "{name}: IPv4 out of order");
    assert!(loaded.v6.is_sorted_by(|a, b| a.0 < b.0), "{name}: IPv6 out of order");
    assert_eq!(loaded.report.v4, loaded.v4.len());
    assert_eq!(loaded.report.v6, loaded.v6.len());
    assert_eq!(loaded.report.warnings, Vec::<String>::new(), "{name}");
    assert_eq!(loaded.report.compression, Compression::Gzip);
    loaded
}

#[test]
fn text_tables_have_published_counts() {
    // (file, IPv4, IPv6, distinct values; 1 where lines have none)
    for (name, v4, v6, values) in [
        ("ipv4-20260730-routeviews-origin.dat.gz", 1_107_938, 0, 78_468),
        ("ipv6-20260730-routeviews-origin.dat.gz", 0, 258_956, 36_487),
        ("ipv4-20151023-pch-nexthop.txt.gz", 577_703, 0, 3_771),
        ("ipv6-20170112-linx-nexthop.txt.gz", 0, 37_343, 52),
        ("ipv4+ipv6-2023-bart-prefixes.txt.gz", 901_899, 160_147, 1),
        ("addresses-ipv6-2022-addrminer-seeds.txt.gz", 0, 78_882, 1),
        ("list-firehol_level1-2026.netset.gz", 4_491, 0, 1),
        ("list-firehol_level2-2026.netset.gz", 17_040, 0, 1),
        ("list-firehol_level3-2026.netset.gz", 13_892, 0, 1),
        ("list-firehol_abusers_30d-2026.netset.gz", 134_034, 0, 1),
        ("list-fullbogons-ipv4-2024.txt.gz", 703, 0, 1),
        ("list-fullbogons-ipv6-2024.txt.gz", 0, 143_544, 1),
    ] {
        let loaded = table(name);
        assert_eq!((loaded.v4.len(), loaded.v6.len()), (v4, v6), "{name}");
        assert_eq!(loaded.labels.len(), values, "{name}");
        assert_eq!(loaded.report.format, Some(Format::Table), "{name}");
    }
    assert_eq!(table("list-ipsum-20260822.txt.gz").v4.len(), 120_430);
    // 79,055 lines, of which 173 are duplicates.
    let seeds = table("addresses-ipv6-2022-addrminer-seeds.txt.gz").report;
    assert_eq!((seeds.entries, seeds.duplicates), (79_055, 173));
}

#[test]
fn truncated_dump_loads_only_with_partial() {
    for (name, entries, prefixes, peers, v6) in [
        ("rib4-20260730.1400-routeviews-first2MB.mrt.bz2", 679_347, 41_105, 20, false),
        ("rib6-20260730.1400-routeviews-first1MB.mrt.bz2", 164_279, 11_037, 22, true),
    ] {
        let strict = load(data(name), &Options::default()).unwrap_err();
        let text = strict.to_string();
        let Error::Damage { record, offset, .. } = strict else { panic!("{text}") };
        assert_eq!(record, prefixes + 2, "behind the table of peers and the prefixes");
        assert!(text.contains(&format!("byte {offset}")) && text.contains("cut off"), "{text}");

        let loaded = load(data(name), &PARTIAL).unwrap();
        let report = &loaded.report;
        assert_eq!(report.entries, entries);
        assert_eq!(report.records, prefixes + 1);
        assert_eq!(report.peers, peers);
        assert_eq!(report.duplicates, entries - prefixes);
        let counts = if v6 { (0, prefixes as usize) } else { (prefixes as usize, 0) };
        assert_eq!((loaded.v4.len(), loaded.v6.len()), counts);
        let [warning] = &report.warnings[..] else { panic!("{:?}", report.warnings) };
        assert!(text.contains(warning.split("; what came").next().unwrap()), "{warning}");
        assert_eq!((report.format, report.compression), (Some(Format::Mrt), Compression::Bzip2));
    }
    let rib4 = load(data("rib4-20260730.1400-routeviews-first2MB.mrt.bz2"), &PARTIAL).unwrap();
    // A default route comes first, which the range in the README omits.
    assert_eq!(rib4.v4[0].0.to_string(), "0.0.0.0/0");
    assert_eq!(rib4.v4[1].0.to_string(), "1.0.0.0/24");
    assert_eq!(rib4.v4.last().unwrap().0.to_string(), "23.105.0.0/20");
}

fn stream(name: &str, announced: u64, withdrawn: u64) -> UpdateStream {
    let stream = updates(data(name), &Options::default()).unwrap();
    assert_eq!(stream.report.announcements, announced, "{name}");
    assert_eq!(stream.report.withdrawals, withdrawn, "{name}");
    assert!(stream.events.is_sorted_by_key(|event| event.time), "{name}");
    stream
}

#[test]
fn update_streams_have_published_counts() {
    let published = stream("updates-20260222.1530-routeviews-bgp4mp_et.mrt.bz2", 111_057, 7_606);
    assert_eq!((published.report.v4, published.report.v6, published.report.peers), (7_839, 0, 20));
    assert_eq!(published.labels.len(), 20);
    // 15 minutes from 15:30 UTC, with microseconds.
    let from = 1_771_774_200_000_000u64;
    assert!(published.events.iter().all(|event| (from..from + 901_000_000).contains(&event.time)));
    assert!(published.events.iter().any(|event| event.time % 1_000_000 != 0));

    let linx = stream("updates-20141217.0000-linx-p52.txt.gz", 18_141, 5_305);
    assert_eq!((linx.report.v4, linx.report.v6), (3_551, 0));
    assert_eq!(linx.report.format, Some(Format::UpdateText));

    let session = stream("updates-20151023.0201-pch-fulltable-bgp4mp_et.mrt.gz", 577_737, 3);
    assert_eq!((session.report.v4, session.labels.len()), (577_706, 3_771));
    let ups = session.events.iter().filter(|event| event.kind == EventKind::Up).count();
    assert_eq!(ups, 1, "the session comes up once");
}

/// The README's text table was made of this stream by another program.
#[test]
fn replayed_session_equals_published_table() {
    let name = "updates-20151023.0201-pch-fulltable-bgp4mp_et.mrt.gz";
    let replayed = load(data(name), &Options::default()).unwrap();
    let converted = table("ipv4-20151023-pch-nexthop.txt.gz");
    let named = |table: &RoutingTable| -> Vec<String> {
        let name = |&(prefix, label)| format!("{prefix} {}", table.labels.get(label));
        table.v4.iter().map(name).collect()
    };
    assert!(named(&replayed) == named(&converted));

    // The changes, applied one by one, give the same table.
    let mut map = std::collections::BTreeMap::new();
    let stream = updates(data(name), &Options::default()).unwrap();
    stream.replay(|_, update| match update {
        Update::V4(Change::Announce { prefix, label }) => {
            map.insert(prefix, label);
        }
        Update::V4(Change::Withdraw { prefix }) => {
            map.remove(&prefix);
        }
        Update::V6(change) => panic!("{change:?}: there is no IPv6 in this file"),
    });
    assert!(map.into_iter().eq(replayed.v4));
}

#[test]
fn table_is_rejected_as_update_stream() {
    for name in
        ["ipv6-20170112-linx-nexthop.txt.gz", "rib6-20260730.1400-routeviews-first1MB.mrt.bz2"]
    {
        let error = updates(data(name), &PARTIAL).unwrap_err();
        assert!(matches!(error, Error::Kind { .. }), "{error}");
    }
}
