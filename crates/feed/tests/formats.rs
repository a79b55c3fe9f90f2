//! Small files of every format, right and wrong.

use std::io::{self, Read};

use fingerpost_feed::{Error, Format, Options, RoutingTable, load, read, read_updates};

fn named(table: &RoutingTable) -> Vec<String> {
    let v4 = table.v4.iter().map(|&(prefix, l)| format!("{prefix} {}", table.labels.get(l)));
    let v6 = table.v6.iter().map(|&(prefix, l)| format!("{prefix} {}", table.labels.get(l)));
    v4.chain(v6).collect()
}

fn take(text: &str, options: &Options) -> Result<RoutingTable, Error> {
    read(text.as_bytes(), "small.txt".as_ref(), options)
}

fn good(text: &str) -> RoutingTable {
    take(text, &Options::default()).unwrap()
}

fn bad(text: &str) -> String {
    take(text, &Options::default()).unwrap_err().to_string()
}

#[test]
fn text_table_accepts_comments_both_families_and_any_order() {
    let table = good(
        "; origin table\n# list\n% dump\n\n  10.0.0.0/8\twest more words\r\n\
         2001:db8::/32 {64500,64501}\n10.0.0.0/8 east\n192.0.2.1 64500_64501 # one\n\
         10.0.0.0/9 ; no value\n1.2.3.4",
    );
    assert_eq!(
        named(&table),
        [
            "1.2.3.4/32 ",
            "10.0.0.0/8 east",
            "10.0.0.0/9 ",
            "192.0.2.1/32 64500_64501",
            "2001:db8::/32 {64500,64501}"
        ]
    );
    assert_eq!((table.report.entries, table.report.duplicates), (6, 1));
    assert_eq!(named(&good("# nothing\n")), [""; 0]);
    assert_eq!(named(&good("")), [""; 0]);
}

#[test]
fn prefix_to_as_mappings_are_recognized_by_their_first_line() {
    let table = good(
        "1.0.0.0\t24\t13335\n2001:db8::\t32\t64500,64501\r\n1.2.4.0 22 64500_64501\n0.0.0.0\t0\t1",
    );
    assert_eq!(table.report.format, Some(Format::Pfx2as));
    let right =
        ["0.0.0.0/0 1", "1.0.0.0/24 13335", "1.2.4.0/22 64500_64501", "2001:db8::/32 64500,64501"];
    assert_eq!(named(&table), right);
    for text in [
        "1.0.0.0 24",
        "1.0.0.0 33 1",
        "1.0.0.0/24 24 1",
        "1.0.0.0 24 west",
        "1.0.0.0 24 1 2",
        "10 24 1",
    ] {
        let format = take(text, &Options::default()).map(|table| table.report.format);
        assert_ne!(format.ok().flatten(), Some(Format::Pfx2as), "{text}");
    }
    for (line, part) in [
        ("1.0.0.0\t33\t1", "no valid length"),
        ("1.0.0.1\t24\t1", "did you mean 1.0.0.0/24?"),
        ("1.0.0.0/24\t1", "three fields"),
    ] {
        let error = bad(&format!("# CAIDA\n1.0.0.0\t24\t13335\n{line}\n"));
        assert!(error.contains("line 3") && error.contains(part), "{error}");
    }
}

#[test]
fn routes_of_click_configurations_are_read_as_click_reads_them() {
    let table = good(
        "// the DXR page's form; (no routes here)\nrequire(library x, y)\n\
         ControlSocket(TCP, 1234);\nAddressInfo(r 10.9.9.9/8);\n\
         rt\t:: DXRIPLookup( 1.0.0.0/24 192.0.2.1 0, /* 9.9.9.9/32 1,\n 8/8 1, */ 18.26/16 -  3,\n\
         10.1.2.3/255.255.0.0\n192.0.2.2 1, 0/0 4, // end\n 1.0.0.0/24 192.0.2.9 7, 192.0.2.77 0,);\n\
         Print(\"a :: RadixIPLookup(5/8 1)\", 5/8 1) -> q :: Queue(1) -> LookupIP6Route(\n\
         2001:db8::/32 fe80::9 0, 2001:db8::/32 fe80::1 0,::/0 ::0 1) -> Discard; rt[0] -> r; // )",
    );
    assert_eq!(table.report.format, Some(Format::Click));
    let right = [
        "0.0.0.0/0 4",
        "1.0.0.0/24 192.0.2.1",
        "10.1.0.0/16 192.0.2.2",
        "18.26.0.0/16 3",
        "192.0.2.77/32 0",
        "::/0 1",
        "2001:db8::/32 fe80::1",
    ];
    assert_eq!(named(&table), right);
    assert_eq!((table.report.entries, table.report.duplicates), (9, 2));
    // A comment of a text table is no element, and an element may have no routes.
    assert_eq!(named(&good("# RadixIPLookup(\n10.0.0.0/8 a\n")), ["10.0.0.0/8 a"]);
    assert_eq!(named(&good("a :: StaticIPLookup();")), [""; 0]);
    for (line, part) in [
        ("10.0.0.0/8 192.0.2.1 west", "\"west\" is no number of an output"),
        ("10.0.0.0/8 192.0.2.1 -1", "is no number"),
        ("10.0.0.0/8 gate 1", "\"gate\" is no gateway"),
        ("10.0.0.0/8 fe80::1 1", "\"fe80::1\" is no gateway"),
        ("2001:db8::/32 192.0.2.1 1", "\"192.0.2.1\" is no gateway"),
        ("10.0.0.0/8", "PREFIX [GATEWAY] OUTPUT"),
        ("10.0.0.0/8 192.0.2.1 1 2", "PREFIX [GATEWAY] OUTPUT"),
        ("10.0.0.0/33 1", "10.0.0.0/33"),
        ("10.0.0.0/255.0.255.0 1", "255.0.255.0"),
        ("1.2.3.4.5/8 1", "1.2.3.4.5"),
        ("1.0.0.0/8 1); b :: LinearIPLookup(2.0.0.0/8 1", "`rt` and `b` both have routes"),
        ("1.0.0.0/8 1); c :: Idle)(", "\")\" without \"(\""),
    ] {
        let error = bad(&format!("rt :: RadixIPLookup(\n9.0.0.0/8 1,\n{line});\n"));
        assert!(error.contains("line 3") && error.contains(part), "{error}");
    }
    let error = bad("rt :: RadixIPLookup(\n9.0.0.0/8 1,\n10.0.0.0/8 19");
    assert!(
        error.contains("line 3") && error.contains("ends within the routes of `rt`"),
        "{error}"
    );
}

#[test]
fn invalid_line_error_names_line_and_remedy() {
    let error = bad("10.0.0.0/8 a\n10.1.2.3/8 b\n");
    for part in ["small.txt", "line 2", "10.1.2.3/8 b", "did you mean 10.0.0.0/8?"] {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
    let truncate = Options { truncate_host_bits: true, ..Options::default() };
    let table = take("10.0.0.0/8 a\n10.1.2.3/8 b\n", &truncate).unwrap();
    assert_eq!(named(&table), ["10.0.0.0/8 b"]);
    for (text, part) in [
        ("10.0.0.0/33 a\n", "0 to 32"),
        ("::/129 a\n", "0 to 128"),
        ("10.0.0.0/8 a\nx\n", "line 2"),
        ("1.1.1.1 \u{ff}\n1.1.1.256\n", "line 2"),
    ] {
        assert!(bad(text).contains(part), "{:?}", bad(text));
    }
    assert!(matches!(take("hello world\n", &Options::default()), Err(Error::Unrecognized { .. })));
    assert!(matches!(load("/no/such/file", &Options::default()), Err(Error::Open { .. })));
    let forced = Options { format: Some(Format::Table), ..Options::default() };
    assert!(matches!(take("hello world\n", &forced), Err(Error::Line { line: 1, .. })));
}

/// A source that fails.
struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk failed"))
    }
}

#[test]
fn content_that_fails_before_it_is_recognized_is_damaged() {
    for text in ["# comment", "hello "] {
        let source = text.as_bytes().chain(Failing);
        let error = read(source, "small.txt".as_ref(), &Options::default()).unwrap_err();
        let Error::Damage { record: 1, what, .. } = error else { panic!("{text:?}: {error}") };
        assert_eq!(what, "reading failed: the disk failed", "{text:?}");
    }
}

#[test]
fn partial_load_keeps_routes_before_damage_and_warns() {
    let text = "10.0.0.0/8 a\n11.0.0.0/8 b\n12.0.0.0/33 c\n13.0.0.0/8 d\n";
    let partial = Options { partial: true, ..Options::default() };
    let table = take(text, &partial).unwrap();
    assert_eq!(named(&table), ["10.0.0.0/8 a", "11.0.0.0/8 b"]);
    let [warning] = &table.report.warnings[..] else { panic!() };
    let error = bad(text);
    let same = error.strip_prefix("small.txt: ").unwrap();
    assert!(warning.starts_with(same), "{warning:?} and {error:?}");
}

#[test]
fn bgpdump_lines_yield_best_path() {
    let table = good(
        "TABLE_DUMP2|1|B|192.0.2.1|64501|10.0.0.0/8|64501 64510 64511|IGP|192.0.2.1|0|0||NAG||\n\
         TABLE_DUMP2|1|B|192.0.2.2|64502|10.0.0.0/8|64502 {64510,64511}|IGP|192.0.2.2|0|0||NAG||\n\
         TABLE_DUMP2|1|B|192.0.2.3|64503|10.0.0.0/8|64503 64511|EGP|192.0.2.3|0|0||NAG||\n\
         TABLE_DUMP2|1|B|2001:db8::1|64503|2001:db8::/32|64503|IGP|2001:db8::1|0|0||NAG||\n\
         TABLE_DUMP2|1|B|192.0.2.1|64501|2001:db8::/32|64501 1 2|IGP|2001:db8::2|200|0||NAG||\n",
    );
    // The shorter path, then IGP; the higher LOCAL_PREF before a shorter path.
    assert_eq!(named(&table), ["10.0.0.0/8 192.0.2.2", "2001:db8::/32 2001:db8::2"]);
    assert_eq!((table.report.entries, table.report.peers), (5, 4));
    assert_eq!(table.report.format, Some(Format::Bgpdump));
    assert!(bad("TABLE_DUMP2|1|B|192.0.2.1|64501\n").contains("no field for the prefix"));
}

#[test]
fn stream_replay_yields_final_table() {
    let text = "BGP4MP|1.5|A|192.0.2.1|1|10.0.0.0/8|1 2|IGP|192.0.2.1|0|0||NAG||\n\
                BGP4MP|2|A|192.0.2.2|2|10.0.0.0/8|2|IGP|192.0.2.2|0|0||NAG||\n\
                BGP4MP|3|A|192.0.2.1|1|11.0.0.0/8|1|IGP|192.0.2.1|0|0||NAG||\n\
                BGP4MP|4|STATE|192.0.2.2|2|6|1\n\
                BGP4MP|5|W|192.0.2.1|1|11.0.0.0/8\n";
    assert_eq!(named(&good(text)), ["10.0.0.0/8 192.0.2.1"]);
    let stream = read_updates(text.as_bytes(), "t".as_ref(), &Options::default()).unwrap();
    assert_eq!(stream.events[0].time, 1_500_000);
    let mut seen = Vec::new();
    stream.replay(|time, update| seen.push((time / 1_000_000, format!("{update:?}"))));
    let times: Vec<u64> = seen.iter().map(|change| change.0).collect();
    // Announce, better, another prefix, fall back when the session ends, withdraw.
    assert_eq!(times, [1, 2, 3, 4, 5], "{seen:?}");

    let text = "# minutes\n100 a 10.0.0.0/8 192.0.2.1\n101 a 11.0.0.0/8 192.0.2.1\n\
                102 w 10.0.0.0/8 0.0.0.0\n";
    assert_eq!(named(&good(text)), ["11.0.0.0/8 192.0.2.1"]);
    assert!(bad("100 a 10.0.0.0/8\n").contains("without a next hop"));
    assert!(bad("100 a 10.0.0.0/8 x\n101 b 10.0.0.0/8 x\n").contains("line 2"));
}

#[test]
fn ip_route_json_yields_both_families() {
    let table = good(
        r#"[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[]},
            {"dst":"192.0.2.0/24","dev":"eth0","protocol":"kernel","prefsrc":"192.0.2.2"},
            {"type":"blackhole","dst":"10.0.0.0/8","metric":10},
            {"dst":"10.0.0.0/8","via":{"family":"inet6","host":"fe80::1"},"metric":5},
            {"dst":"11.0.0.1","nexthops":[{"gateway":"192.0.2.3","dev":"a","weight":1},{"dev":"b"}]}]
           [{"dst":"fd00::/64","dev":"eth0","metric":256},{"dst":"default","dev":"eth0"}]"#,
    );
    assert_eq!(
        named(&table),
        [
            "0.0.0.0/0 192.0.2.1",
            "10.0.0.0/8 fe80::1",
            "11.0.0.1/32 192.0.2.3,dev b",
            "192.0.2.0/24 dev eth0",
            "::/0 dev eth0",
            "fd00::/64 dev eth0"
        ]
    );
    assert_eq!(table.report.format, Some(Format::IpRoute));
    assert_eq!(named(&good("[]")), [""; 0]);
    assert_eq!(named(&good("[{}]")), [""; 0]);
}

#[test]
fn truncated_json_yields_objects_before_the_cut() {
    let text = r#"[{"dst":"10.0.0.0/8","dev":"a"},{"dst":"11.0.0.0/8","dev":"b"},{"dst":"12."#;
    assert!(matches!(take(text, &Options::default()), Err(Error::Damage { record: 3, .. })));
    let partial = Options { partial: true, ..Options::default() };
    let table = take(text, &partial).unwrap();
    assert_eq!(named(&table), ["10.0.0.0/8 dev a", "11.0.0.0/8 dev b"]);
    assert!(bad(r#"[{"dst":"10.0.0.1/8"}]"#).contains("10.0.0.0/8"));
}
