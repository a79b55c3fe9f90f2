//! Every format that is read is written: reading gives the same table, and other parsers find the same routes.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use bgpkit_parser::BgpkitParser;
use fib::{Addr, Prefix};
use fingerpost_feed::{
    Format, Label, Options, RoutingTable, WriteError, WriteOptions, load, read, write,
};
use maxminddb::Reader;
use serde_json::{Value, json};

const TIME: u64 = 1_785_420_000;

fn options() -> WriteOptions {
    WriteOptions { time: TIME, ..WriteOptions::default() }
}

fn parse(text: &str) -> RoutingTable {
    read(text.as_bytes(), "text".as_ref(), &Options::default()).unwrap()
}

fn written(table: &RoutingTable, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(table, format, &options(), &mut bytes).unwrap();
    bytes
}

/// The routes with their labels' texts.
fn lines(table: &RoutingTable) -> Vec<String> {
    let text = |label| table.labels.get(label);
    let v4 = table.v4.iter().map(|(prefix, label)| format!("{prefix} {}", text(*label)));
    let v6 = table.v6.iter().map(|(prefix, label)| format!("{prefix} {}", text(*label)));
    v4.chain(v6).collect()
}

/// Writes and reads a table; the format must be recognized.
fn rewrite(table: &RoutingTable, format: Format, options: &Options) -> RoutingTable {
    let bytes = written(table, format);
    let table = read(&bytes[..], "again".as_ref(), options).unwrap();
    assert_eq!(table.report.format, Some(format));
    table
}

#[test]
fn every_format_gives_the_same_table_again() {
    let ip_route = br#"[{"dst":"default","gateway":"192.0.2.1"},{"dst":"::/0","dev":"eth0"},
        {"dst":"10.0.0.0/8","via":{"family":"inet6","host":"fe80::1"},"dev":"eth1"},
        {"dst":"10.1.0.0/16","nexthops":[{"gateway":"192.0.2.1","dev":"a"},{"dev":"b"}]},
        {"dst":"2001:db8::/32","type":"blackhole"},{"dst":"192.0.2.9"}]"#;
    let ip_route = read(&ip_route[..], "routes".as_ref(), &Options::default()).unwrap();
    let bgp = parse(
        "0.0.0.0/0 192.0.2.1\n10.0.0.0/8 192.0.2.2\n10.1.2.3 2001:db8::2\n::/0 fe80::1\n2001:db8::/33 ::1\n",
    );
    let records = parse(
        "10.0.0.0/8 {\"city\":{\"de\":\"Bad Ems\",\"a \\\" b\":[1, 2]}} ignored\n10.1.0.0/16 \"x y\"\n\
         10.2.0.0/16 {64500,64501}\n10.3.0.0/16 \"no end\n10.4.0.0/16\n::/1 [\"a b\",2] # comment\n",
    );
    assert_eq!(records.labels.get(records.v4[0].1), r#"{"city":{"de":"Bad Ems","a \" b":[1,"#);
    assert_eq!(records.labels.get(records.v4[1].1), "\"x y\"");
    assert_eq!(records.labels.get(records.v4[3].1), "\"no");
    assert_eq!(records.labels.get(records.v6[0].1), "[\"a b\",2]");
    for (name, table, formats) in [
        ("ip route", &ip_route, &[Format::IpRoute][..]),
        (
            "BGP",
            &bgp,
            &[Format::Table, Format::IpRoute, Format::UpdateText, Format::Bgpdump, Format::Mrt],
        ),
        ("records", &records, &[Format::Table]),
    ] {
        assert!(lines(table).len() >= 5, "{name}");
        for &format in formats {
            let found = rewrite(table, format, &Options::default());
            assert_eq!(lines(&found), lines(table), "{name} as {format}");
        }
    }
    // Where a text table has no place for a label, the label is a JSON string.
    let text = String::from_utf8(written(&ip_route, Format::Table)).unwrap();
    assert!(text.contains("::/0 \"dev eth0\"\n"), "{text}");
    assert_eq!(lines(&parse(&text)).len(), lines(&ip_route).len());
}

#[test]
fn origins_are_kept_where_the_format_has_a_path() {
    let table = parse(
        "10.0.0.0/8 64500\n10.1.0.0/16 {64500,64501}\n10.2.0.0/16\n2001:db8::/32 4200000000\n",
    );
    let with_origin = Options { origin: true, ..Options::default() };
    let origins =
        parse("10.0.0.0/8 64500\n10.1.0.0/16 64500,64501\n10.2.3.4 64500_64501\n::/0 4200000000\n");
    let found = rewrite(&origins, Format::Pfx2as, &Options::default());
    assert_eq!(lines(&found), lines(&origins));
    for format in [Format::Bgpdump, Format::Mrt] {
        let found = rewrite(&table, format, &with_origin);
        let right = [
            "10.0.0.0/8 0.0.0.0 64500",
            "10.1.0.0/16 0.0.0.0",
            "10.2.0.0/16 0.0.0.0",
            "2001:db8::/32 :: 4200000000",
        ];
        assert_eq!(lines(&found), right, "{format}");
        // The labels of dumps read with their origins are written again.
        let second = rewrite(&found, format, &with_origin);
        assert_eq!(lines(&second), right, "{format}, again");
    }
}

#[test]
fn click_configuration_connects_every_output() {
    let table = parse(
        "0.0.0.0/0 2\n10.0.0.0/8 192.0.2.1\n10.1.2.3 192.0.2.2\n::/0 0\n2001:db8::/32 fe80::1\n",
    );
    let found = rewrite(&table, Format::Click, &Options::default());
    assert_eq!(lines(&found), lines(&table));
    let text = String::from_utf8(written(&table, Format::Click)).unwrap();
    let right = "rt :: RadixIPLookup(\n    0.0.0.0/0 2,\n    10.0.0.0/8 192.0.2.1 0,\n    10.1.2.3/32 192.0.2.2 0);\n\
                 Idle -> rt;\nrt[0] -> Discard;\nrt[1] -> Discard;\nrt[2] -> Discard;\n\
                 rt6 :: LookupIP6Route(\n    ::/0 0,\n    2001:db8::/32 fe80::1 0);\n\
                 Idle -> rt6;\nrt6[0] -> Discard;\n";
    assert_eq!(text, right);
    assert!(written(&parse(""), Format::Click).is_empty());
    // RadixIPLookup has at most 255 next hops.
    for (next_hops, class) in [(255, "RadixIPLookup"), (256, "DirectIPLookup")] {
        let routes: String = (0..next_hops).map(|n| format!("10.{n}.0.0/16 {n}\n")).collect();
        let text = String::from_utf8(written(&parse(&routes), Format::Click)).unwrap();
        assert!(text.starts_with(&format!("rt :: {class}(\n")), "{next_hops}");
    }
}

#[test]
fn another_parser_reads_the_same_routes_of_an_mrt_file() {
    let table = parse("10.0.0.0/8 192.0.2.1\n10.1.0.0/17 192.0.2.2\n2001:db8::/33 fe80::1\n");
    let bytes = written(&table, Format::Mrt);
    let elements = BgpkitParser::from_reader(Cursor::new(bytes)).into_iter();
    let found: Vec<String> = elements
        .map(|element| {
            assert_eq!(element.timestamp as u64, TIME);
            format!("{} {}", element.prefix, element.next_hop.unwrap())
        })
        .collect();
    assert_eq!(found, lines(&table));
    let table = parse("10.0.0.0/8 64500\n10.1.0.0/16 {64501,64502}\n");
    let bytes = written(&table, Format::Mrt);
    let elements = BgpkitParser::from_reader(Cursor::new(bytes)).into_iter();
    let paths: Vec<String> = elements.map(|element| element.as_path.unwrap().to_string()).collect();
    assert_eq!(paths, ["64500", "{64501,64502}"]);
}

#[test]
fn label_without_a_place_in_the_format_is_an_error_that_names_the_prefix() {
    for (text, format) in [
        ("10.0.0.0/8 192.0.2.1\n10.1.0.0/16 west\n", Format::Mrt),
        ("10.0.0.0/8 192.0.2.1\n10.1.0.0/16 west\n", Format::Bgpdump),
        ("10.0.0.0/8 192.0.2.1\n10.1.0.0/16 west\n", Format::IpRoute),
        ("10.0.0.0/8 192.0.2.1\n10.1.0.0/16\n", Format::UpdateText),
        ("10.0.0.0/8 64500\n10.1.0.0/16 192.0.2.1\n", Format::Pfx2as),
        ("10.0.0.0/8 192.0.2.1\n10.1.0.0/16 fe80::1\n", Format::Click),
        ("10.0.0.0/8 64500\n10.1.0.0/16 65536\n", Format::Click),
        ("10.0.0.0/8 64500\n10.1.0.0/16 0.0.0.0\n", Format::Click),
        ("10.0.0.0/8 192.0.2.1\n10.1.0.0/16 -99999999999\n", Format::Mmdb),
    ] {
        let mut bytes = Vec::new();
        let error = write(&parse(text), format, &options(), &mut bytes).unwrap_err();
        assert!(matches!(error, WriteError::Route { .. }), "{format}: {error}");
        assert!(error.to_string().starts_with("10.1.0.0/16: "), "{format}: {error}");
        assert!(bytes.is_empty(), "{format}");
    }
    for prefix in ["::1/128", "::/96"] {
        let error = write(&parse(prefix), Format::Mmdb, &options(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().starts_with(prefix), "{error}");
    }
    let late = WriteOptions { time: 1 << 32, ..options() };
    let error = write(&parse("::/0 ::1"), Format::Mrt, &late, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, WriteError::Table(_)), "{error}");
}

/// Finds the label of an address by a scan.
fn scan<A: Addr>(routes: &[(Prefix<A>, Label)], address: A) -> Option<Label> {
    let around = routes.iter().filter(|(prefix, _)| prefix.contains(address));
    around.max_by_key(|(prefix, _)| prefix.len()).map(|&(_, label)| label)
}

/// The addresses at and beside the borders of the routes.
fn borders<A: Addr>(routes: &[(Prefix<A>, Label)]) -> Vec<A> {
    let around = |prefix: Prefix<A>| {
        let before = A::from_u128(prefix.addr().to_u128().wrapping_sub(1));
        [before, prefix.addr(), prefix.last(), prefix.last().succ().unwrap_or(A::MIN)]
    };
    routes.iter().flat_map(|&(prefix, _)| around(prefix)).chain([A::MIN, A::MAX]).collect()
}

/// Compares a database with a scan of the table, by the reader of MaxMind's developer; returns the answers with a record.
fn compare(table: &RoutingTable, bytes: &[u8], value: impl Fn(&str) -> Value) -> usize {
    let reader = Reader::from_source(bytes).unwrap();
    reader.verify().unwrap();
    let v4 = borders(&table.v4)
        .into_iter()
        .map(|address| (IpAddr::V4(Ipv4Addr::from_bits(address)), scan(&table.v4, address)));
    let v6 = borders(&table.v6)
        .into_iter()
        .filter(|address| address >> 32 != 0)
        .map(|address| (IpAddr::V6(Ipv6Addr::from_bits(address)), scan(&table.v6, address)));
    let mut routed = 0;
    for (address, label) in v4.chain(v6.filter(|_| !table.v6.is_empty())) {
        let found = reader.lookup(address).unwrap().decode::<Value>().unwrap();
        assert_eq!(found, label.map(|label| value(table.labels.get(label))), "{address}");
        routed += usize::from(found.is_some());
    }
    routed
}

/// The labels' texts that a scan of one table finds at the borders of another.
fn answers<'t>(table: &'t RoutingTable, at: &RoutingTable) -> Vec<Option<&'t str>> {
    let v4 = borders(&at.v4).into_iter().map(|address| scan(&table.v4, address));
    let v6 = borders(&at.v6).into_iter().filter(|address| address >> 32 != 0);
    let labels = v4.chain(v6.map(|address| scan(&table.v6, address)));
    labels.map(|label| label.map(|label| table.labels.get(label))).collect()
}

/// Random nested routes, dense enough that they divide each other.
fn random(seed: u64, v4: usize, v6: usize) -> RoutingTable {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut text = String::new();
    for _ in 0..v4 {
        let len = rng.u32(0..=32);
        let addr = rng.u32(..) & rng.u32(..) & 0xe0ff_00ff;
        text += &format!("{} {}\n", Prefix::truncate(addr, len), rng.u32(..50));
    }
    for _ in 0..v6 {
        let len = rng.u32(0..=128);
        let high = [0, 0x2001 << 112, 0x2002 << 112, 0xffff << 32, rng.u128(..)][rng.usize(..5)];
        let prefix = Prefix::truncate(high | rng.u128(..) & rng.u128(..), len);
        if prefix.len() < 96 || prefix.addr() >> 32 != 0 {
            text += &format!("{prefix} {}\n", rng.u32(..50));
        }
    }
    parse(&text)
}

#[test]
fn database_has_the_longest_prefix_of_every_border() {
    let number = |label: &str| json!(label.parse::<u32>().unwrap());
    for seed in 0..10 {
        let (v4, v6) = [(200, 200), (200, 0), (0, 200), (1, 1), (3, 3)][seed as usize % 5];
        let table = random(seed, v4, v6);
        let bytes = written(&table, Format::Mmdb);
        let routed = compare(&table, &bytes, number);
        assert!(routed >= table.v4.len().max(table.v6.len()), "seed {seed}: {routed}");
        let rewritten = read(&bytes[..], "again".as_ref(), &Options::default()).unwrap();
        assert_eq!(rewritten.report.format, Some(Format::Mmdb), "seed {seed}");
        assert_eq!(answers(&rewritten, &table), answers(&table, &table), "seed {seed}");
    }
}

#[test]
fn smallest_tables_are_databases() {
    for (text, networks) in
        [("", 0), ("0.0.0.0/0 1", 2), ("::/0 1", 96), ("0.0.0.0/0 1\n::/0 2", 97)]
    {
        let table = parse(text);
        let bytes = written(&table, Format::Mmdb);
        compare(&table, &bytes, |label| json!(label.parse::<u32>().unwrap()));
        let reader = Reader::from_source(&bytes[..]).unwrap();
        assert_eq!(reader.networks(Default::default()).unwrap().count(), networks, "{text}");
    }
}

#[test]
fn aliases_lead_to_ipv4_where_no_route_is() {
    let find = |text: &str, address: &str| {
        let bytes = written(&parse(text), Format::Mmdb);
        let reader = Reader::from_source(&bytes[..]).unwrap();
        reader.lookup(address.parse().unwrap()).unwrap().decode::<u32>().unwrap()
    };
    let free = "10.0.0.0/8 1\n2001:db8::/32 2\n";
    for address in ["::ffff:10.1.2.3", "2002:a01:203::1", "2001:0:a01:203::"] {
        assert_eq!(find(free, address), Some(1), "{address}");
    }
    assert_eq!(find(free, "2001:db8::1"), Some(2));
    assert_eq!(find(free, "2002:b01:203::1"), None);
    assert_eq!(find("10.0.0.0/8 1\n2002:b00::/24 2\n", "2002:a01:203::1"), None);
    assert_eq!(find("10.0.0.0/8 1\n2000::/3 2\n", "2002:a01:203::1"), Some(2));
    // IPv4 does not have IPv6's default route.
    assert_eq!(find("10.0.0.0/8 1\n::/0 2\n", "11.0.0.1"), None);
}

#[test]
fn records_have_the_types_of_their_json() {
    let texts = [
        r#"{"a":1,"b":[true,false,-5],"c":1.5,"d":"ü\"\n","e":{},"f":[]}"#,
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "-2147483648",
        "true",
        "[\"a b\",{\"x\":\"a b\"}]",
        "\"quoted\"",
    ];
    let plain = ["192.0.2.1", "west", "1.10", "{64500,64501}", "007", "null", "[", "-", "true!"];
    let routes = texts.iter().chain(&plain).zip(0..);
    let text: String = routes.map(|(label, at)| format!("10.{at}.0.0/16 {label}\n")).collect();
    let table = parse(&text);
    let bytes = written(&table, Format::Mmdb);
    let routed = compare(&table, &bytes, |label| {
        if texts.contains(&label) { serde_json::from_str(label).unwrap() } else { label.into() }
    });
    assert!(routed > texts.len() + plain.len());
    let all = parse("10.0.0.0/8 340282366920938463463374607431768211455\n11.0.0.0/8\n");
    let rewritten = rewrite(&all, Format::Mmdb, &Options::default());
    assert_eq!(
        lines(&rewritten),
        ["10.0.0.0/8 340282366920938463463374607431768211455", "11.0.0.0/8 {}"]
    );
}

#[test]
fn record_key_and_metadata_are_those_of_the_options() {
    let options = WriteOptions {
        time: TIME,
        record_key: Some("autonomous_system_number".into()),
        database_type: "GeoLite2-ASN".into(),
    };
    let mut bytes = Vec::new();
    write(&parse("10.0.0.0/8 64500\n::/1 west\n"), Format::Mmdb, &options, &mut bytes).unwrap();
    let reader = Reader::from_source(&bytes[..]).unwrap();
    let find = |address: &str| {
        reader
            .lookup(address.parse().unwrap())
            .unwrap()
            .decode::<BTreeMap<String, Value>>()
            .unwrap()
    };
    let record = |value| Some(BTreeMap::from([("autonomous_system_number".into(), value)]));
    assert_eq!(find("10.0.0.1"), record(json!(64500)));
    assert_eq!(find("1::"), record(json!("west")));
    let key = b"autonomous_system_number";
    assert_eq!(bytes.windows(key.len()).filter(|window| window == key).count(), 1);
    assert_eq!(reader.metadata().database_type, "GeoLite2-ASN");
    assert_eq!(reader.metadata().build_epoch, TIME);
    assert_eq!((reader.metadata().ip_version, reader.metadata().record_size), (6, 24));
}

#[test]
fn equal_parts_of_records_are_stored_once() {
    let name = "x".repeat(1000);
    let text: String = (0..100)
        .map(|n| format!("10.{n}.0.0/16 {{\"city\":{n},\"country\":{{\"name\":\"{name}\"}}}}\n"))
        .collect();
    let table = parse(&text);
    let bytes = written(&table, Format::Mmdb);
    assert!(bytes.len() < 6000, "{} bytes", bytes.len());
    compare(&table, &bytes, |label| serde_json::from_str(label).unwrap());
}

/// A record that is a part of another one stands on its own: MaxMind's reader for Go verifies that the tree leads to
/// whole records only.
#[test]
fn equal_part_of_another_record_is_a_record() {
    let table = parse(
        "10.0.0.0/9 {\"name\":\"long enough\",\"list\":[1,2,3,4]}\n\
         10.128.0.0/9 \"long enough\"\n11.0.0.0/9 [1,2,3,4]\n11.128.0.0/9 {\"list\":[1,2,3,4]}\n",
    );
    let bytes = written(&table, Format::Mmdb);
    assert!(compare(&table, &bytes, |label| serde_json::from_str(label).unwrap()) >= 8);
    let text = b"long enough";
    assert_eq!(bytes.windows(text.len()).filter(|window| window == text).count(), 2);
}

#[test]
fn label_of_a_hidden_prefix_has_no_record() {
    let halves = "10.0.0.0/9 1\n10.128.0.0/9 2\n";
    let hidden = parse(&format!("10.0.0.0/8 hidden\n{halves}"));
    assert_eq!(written(&hidden, Format::Mmdb), written(&parse(halves), Format::Mmdb));
}

#[test]
fn large_records_need_wider_nodes() {
    let text: String =
        (0..255).map(|n| format!("10.{n}.0.0/16 {n}{}\n", "x".repeat(66_000))).collect();
    let table = parse(&text);
    let bytes = written(&table, Format::Mmdb);
    assert_eq!(Reader::from_source(&bytes[..]).unwrap().metadata().record_size, 28);
    compare(&table, &bytes, |label| label.into());
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/mmdb").join(name)
}

#[test]
fn records_of_the_vendors_databases_are_found_again() {
    for name in ["24-4", "28-6-aliases", "32-6-covered"] {
        let table = load(golden(&format!("{name}.mmdb")), &Options::default()).unwrap();
        let text = written(&table, Format::Table);
        let from_text = read(&text[..], "text".as_ref(), &Options::default()).unwrap();
        assert_eq!(lines(&from_text), lines(&table), "{name} as text");
        let bytes = written(&from_text, Format::Mmdb);
        let rewritten = read(&bytes[..], "again".as_ref(), &Options::default()).unwrap();
        let right = answers(&table, &table);
        assert_eq!(answers(&rewritten, &table), right, "{name}");
        let found = right.iter().flatten().count();
        assert!(found > 15, "{name}: {found}");
    }
}
