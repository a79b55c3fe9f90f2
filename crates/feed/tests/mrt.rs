//! MRT records made from RFC 6396, 8050, 4271 and 4760: cases that the real files do not contain,
//! and invalid ones.

use fingerpost_feed::{Error, EventKind, Options, RoutingTable, read, read_updates};

fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
    let mut out = 1_000u32.to_be_bytes().to_vec();
    out.extend(kind.to_be_bytes());
    out.extend(subtype.to_be_bytes());
    out.extend((body.len() as u32).to_be_bytes());
    out.extend(body);
    out
}

fn attribute(code: u8, value: &[u8]) -> Vec<u8> {
    // Every other attribute has a length of two bytes, as both are allowed.
    let mut out = if code.is_multiple_of(2) { vec![0x50, code, 0] } else { vec![0x40, code] };
    out.push(value.len() as u8);
    out.extend(value);
    out
}

fn path(ases: &[u32]) -> Vec<u8> {
    let mut out = vec![2, ases.len() as u8];
    out.extend(ases.iter().flat_map(|asn| asn.to_be_bytes()));
    attribute(2, &out)
}

/// Peers 0 and 1 of IPv4 with AS numbers of two and four bytes, 2 of IPv6.
fn peers() -> Vec<u8> {
    let mut body = vec![192, 0, 2, 99, 0, 4];
    body.extend(b"view");
    body.extend([0, 3]);
    body.extend([0, 0, 0, 0, 9, 192, 0, 2, 1, 0xfc, 0]);
    body.extend([2, 0, 0, 0, 5, 192, 0, 2, 2, 0, 0, 0xfc, 1]);
    body.extend([3, 0, 0, 0, 7, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    body.extend([0, 0, 0xfc, 2]);
    record(13, 1, &body)
}

fn entry(peer: u8, path_id: Option<u32>, attributes: &[u8]) -> Vec<u8> {
    let mut out = vec![0, peer, 0, 0, 0, 1];
    out.extend(path_id.into_iter().flat_map(u32::to_be_bytes));
    out.extend((attributes.len() as u16).to_be_bytes());
    out.extend(attributes);
    out
}

fn rib(subtype: u16, prefix: &[u8], entries: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 1];
    body.extend(prefix);
    body.extend((entries.len() as u16).to_be_bytes());
    body.extend(entries.concat());
    record(13, subtype, &body)
}

fn good(bytes: &[u8]) -> RoutingTable {
    read(bytes, "small.mrt".as_ref(), &Options::default()).unwrap()
}

fn named(table: &RoutingTable) -> Vec<String> {
    let v4 = table.v4.iter().map(|&(prefix, l)| format!("{prefix} {}", table.labels.get(l)));
    let v6 = table.v6.iter().map(|&(prefix, l)| format!("{prefix} {}", table.labels.get(l)));
    v4.chain(v6).collect()
}

fn v4_attributes(hop: u8, ases: &[u32], local_pref: Option<u32>) -> Vec<u8> {
    let mut out = [attribute(1, &[0]), path(ases), attribute(3, &[192, 0, 2, hop])].concat();
    out.extend(local_pref.into_iter().flat_map(|n| attribute(5, &n.to_be_bytes())));
    out
}

const GLOBAL: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
const LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

#[test]
fn dump_yields_best_path_of_each_prefix() {
    let short = |hop| v4_attributes(hop, &[1, 2], None);
    let long = |hop| v4_attributes(hop, &[1, 2, 3], None);
    let file = [
        peers(),
        // The shorter path, at any position.
        rib(2, &[8, 10], &[entry(0, None, &long(1)), entry(1, None, &short(2))]),
        rib(2, &[8, 11], &[entry(0, None, &short(1)), entry(1, None, &long(2))]),
        // LOCAL_PREF before that.
        rib(
            2,
            &[8, 12],
            &[entry(0, None, &v4_attributes(1, &[1, 2, 3], Some(101))), entry(1, None, &short(2))],
        ),
        // A tie goes to the lower BGP identifier: peer 1.
        rib(2, &[8, 13], &[entry(0, None, &short(1)), entry(1, None, &short(2))]),
        // Bits beyond the length are ignored; /9 takes two bytes.
        rib(2, &[9, 14, 0xff], &[entry(0, None, &short(1))]),
    ]
    .concat();
    let table = good(&file);
    assert_eq!(
        named(&table),
        [
            "10.0.0.0/8 192.0.2.2",
            "11.0.0.0/8 192.0.2.1",
            "12.0.0.0/8 192.0.2.1",
            "13.0.0.0/8 192.0.2.2",
            "14.128.0.0/9 192.0.2.1"
        ]
    );
    assert_eq!((table.report.entries, table.report.duplicates, table.report.peers), (9, 4, 2));
}

#[test]
fn label_has_the_last_as_of_a_path_unless_that_is_in_a_set() {
    let with = |path: &[u8]| [attribute(2, path), attribute(3, &[192, 0, 2, 1])].concat();
    let routes: [(u8, &[u8]); 6] = [
        (10, &[2, 2, 0, 0, 0xfd, 0xe8, 0xfa, 0x56, 0xea, 1]),
        (11, &[]),
        (12, &[2, 1, 0, 0, 0xfd, 0xe8, 1, 1, 0, 0, 0, 9]),
        (13, &[3, 1, 0, 0, 0, 5, 2, 1, 0, 0, 0xfd, 0xe9]),
        (14, &[2, 1, 0, 0, 0, 7, 2, 1, 0, 0, 0, 8]),
        // With four bytes a number, this one is an AS as any other.
        (15, &[2, 1, 0, 0, 0x5b, 0xa0]),
    ];
    let records = routes.map(|(first, path)| rib(2, &[8, first], &[entry(0, None, &with(path))]));
    let mut file = [peers(), records.concat()].concat();
    let options = Options { origin: true, ..Options::default() };
    let origins = |file: &[u8]| {
        let table = read(file, "small.mrt".as_ref(), &options).unwrap();
        named(&table).iter().map(|route| route.split_once(' ').unwrap().1.to_owned()).collect()
    };
    let expected = [
        "192.0.2.1 4200000001",
        "192.0.2.1",
        "192.0.2.1",
        "192.0.2.1 65001",
        "192.0.2.1 8",
        "192.0.2.1 23456",
    ];
    let found: Vec<String> = origins(&file);
    assert_eq!(found, expected);
    file.truncate(file.len() - 1);
    assert!(read(&file[..], "small.mrt".as_ref(), &options).is_err());

    let announced = update(&[], &v4_attributes(1, &[1, 65001], None), &[8, 10]);
    let found: Vec<String> = origins(&message(4, 2, &announced));
    assert_eq!(found, ["192.0.2.1 65001"]);
    let two_bytes = with(&[2, 2, 0, 9, 0x5b, 0xa0]);
    let found: Vec<String> = origins(&message(1, 2, &update(&[], &two_bytes, &[8, 10])));
    assert_eq!(found, ["192.0.2.1"], "AS_TRANS stands for another number");
}

#[test]
fn ipv6_next_hop_is_read_in_every_form() {
    let one = [&[16][..], &GLOBAL].concat();
    let two = [&[32][..], &GLOBAL, &LOCAL].concat();
    let only_local = [&[32][..], &[0; 16], &LOCAL].concat();
    let whole = [&[0, 2, 1, 16][..], &GLOBAL, &[0, 16, 0x20, 1]].concat();
    let forms = [one, two, only_local, whole];
    let mut file = peers();
    for (n, form) in forms.iter().enumerate() {
        let block = [attribute(1, &[0]), path(&[1]), attribute(14, form)].concat();
        file.extend(rib(4, &[16, 0x20, n as u8], &[entry(2, None, &block)]));
    }
    assert_eq!(
        named(&good(&file)),
        [
            "2000::/16 2001:db8::7",
            "2001::/16 2001:db8::7",
            "2002::/16 fe80::7",
            "2003::/16 2001:db8::7"
        ]
    );
}

#[test]
fn add_path_and_generic_records_are_read() {
    let block = |hop| v4_attributes(hop, &[1, u32::from(hop)], None);
    let longer = v4_attributes(9, &[1, 2, 3], None);
    let file = [
        peers(),
        rib(8, &[8, 10], &[entry(0, Some(1), &longer), entry(0, Some(2), &block(2))]),
        rib(6, &[0, 1, 1, 8, 11], &[entry(0, None, &block(3))]),
        rib(12, &[0, 1, 1, 8, 12], &[entry(0, Some(7), &block(4))]),
        // Multicast, VPN and other records do not belong to this table.
        rib(3, &[8, 13], &[entry(0, None, &block(3))]),
        rib(6, &[0, 1, 128, 8, 14], &[]),
        record(11, 0, b"an OSPF message"),
    ]
    .concat();
    let table = good(&file);
    assert_eq!(
        named(&table),
        ["10.0.0.0/8 192.0.2.2", "11.0.0.0/8 192.0.2.3", "12.0.0.0/8 192.0.2.4"]
    );
    assert_eq!(table.report.warnings.len(), 1);
    assert!(table.report.warnings[0].starts_with("3 records were skipped"));
}

#[test]
fn table_dump_v1_has_one_entry_per_record() {
    let v4 = |hop: u8, ases: &[u16]| {
        let mut path = vec![2, ases.len() as u8];
        path.extend(ases.iter().flat_map(|asn| asn.to_be_bytes()));
        let block =
            [attribute(1, &[0]), attribute(2, &path), attribute(3, &[192, 0, 2, hop])].concat();
        let mut body = vec![0, 0, 0, 1, 10, 0, 0, 0, 8, 1, 0, 0, 0, 0, 192, 0, 2, hop, 0xfc, 0];
        body.extend((block.len() as u16).to_be_bytes());
        body.extend(block);
        record(12, 1, &body)
    };
    let v6 = {
        let block = [attribute(2, &[2, 1, 0, 1]), attribute(14, &[&[16][..], &GLOBAL].concat())];
        let mut body = vec![0, 0, 0, 2, 0x20, 1];
        body.extend([0; 14]);
        body.extend([16, 1, 0, 0, 0, 0]);
        body.extend(GLOBAL);
        body.extend([0xfc, 0]);
        body.extend((block.concat().len() as u16).to_be_bytes());
        body.extend(block.concat());
        record(12, 2, &body)
    };
    let table = good(&[v4(1, &[1, 2, 3]), v4(2, &[1, 2]), v6].concat());
    assert_eq!(named(&table), ["10.0.0.0/8 192.0.2.2", "2001::/16 2001:db8::7"]);
    assert_eq!((table.report.entries, table.report.peers), (3, 3));
}

fn message(subtype: u16, kind: u8, body: &[u8]) -> Vec<u8> {
    let wide = !matches!(subtype, 1 | 8);
    let mut out = if wide { vec![0, 0, 0xfc, 0, 0, 0, 0xfc, 1] } else { vec![0xfc, 0, 0xfc, 1] };
    out.extend([0, 0, 0, 1, 192, 0, 2, 1, 192, 0, 2, 99]);
    out.extend([0xff; 16]);
    out.extend((body.len() as u16 + 19).to_be_bytes());
    out.push(kind);
    out.extend(body);
    record(16, subtype, &out)
}

fn update(withdrawn: &[u8], attributes: &[u8], announced: &[u8]) -> Vec<u8> {
    let mut out = (withdrawn.len() as u16).to_be_bytes().to_vec();
    out.extend(withdrawn);
    out.extend((attributes.len() as u16).to_be_bytes());
    out.extend(attributes);
    out.extend(announced);
    out
}

#[test]
fn updates_of_both_families_and_add_path_are_read() {
    let v4 = v4_attributes(1, &[1], None);
    let reach = [&[0, 2, 1, 32][..], &GLOBAL, &LOCAL, &[0, 16, 0x20, 1, 16, 0x20, 2]].concat();
    let v6 = [path(&[1, 2]), attribute(14, &reach)].concat();
    let gone = attribute(15, &[0, 2, 1, 16, 0x20, 2]);
    // An add-path identifier precedes each prefix.
    let two = [0, 0, 0, 1, 8, 12, 0, 0, 0, 2, 8, 12];
    let narrow = [attribute(1, &[0]), attribute(2, &[2, 1, 0, 1]), attribute(3, &[192, 0, 2, 3])];
    let file = [
        message(4, 1, &[4, 0xfc, 0, 0, 90, 192, 0, 2, 1, 0]), // OPEN
        message(4, 2, &update(&[], &v4, &[8, 10, 8, 11])),
        message(4, 2, &update(&[], &v6, &[])),
        message(4, 4, &[]), // KEEPALIVE
        message(4, 2, &update(&[8, 11], &gone, &[])),
        message(9, 2, &update(&[], &v4, &two)),
        message(9, 2, &update(&[0, 0, 0, 1, 8, 12], &[], &[])),
        message(1, 2, &update(&[], &narrow.concat(), &[8, 13])),
        message(4, 2, &update(&[], &[], &[])), // End-of-RIB (RFC 4724, 2)
    ]
    .concat();
    let table = good(&file);
    assert_eq!(
        named(&table),
        [
            "10.0.0.0/8 192.0.2.1",
            "12.0.0.0/8 192.0.2.1",
            "13.0.0.0/8 192.0.2.3",
            "2001::/16 2001:db8::7"
        ]
    );
    assert_eq!((table.report.announcements, table.report.withdrawals), (7, 3));

    let stream = read_updates(&file[..], "small.mrt".as_ref(), &Options::default()).unwrap();
    assert_eq!(stream.events.len(), 10);
    assert_eq!(stream.events.iter().map(|event| event.path).max(), Some(2));
    assert!(stream.events.iter().all(|event| event.peer.asn == 0xfc00));
}

#[test]
fn session_end_withdraws_its_routes() {
    let state = |old: u8, new: u8| {
        let body = [0, 0, 0xfc, 0, 0, 0, 0xfc, 1, 0, 0, 0, 1, 192, 0, 2, 1, 192, 0, 2, 99];
        record(16, 5, &[&body[..], &[0, old, 0, new]].concat())
    };
    let routes = message(4, 2, &update(&[], &v4_attributes(1, &[1], None), &[8, 10]));
    let file = [state(5, 6), routes, state(6, 1), state(1, 2)].concat();
    assert_eq!(named(&good(&file)), [""; 0]);
    let stream = read_updates(&file[..], "small.mrt".as_ref(), &Options::default()).unwrap();
    let kinds: Vec<_> = stream.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds.len(), 3);
    assert_eq!((kinds[0], kinds[2]), (EventKind::Up, EventKind::Down));
}

#[test]
fn damage_error_names_byte_and_record() {
    let block = v4_attributes(1, &[1], None);
    let fine = [peers(), rib(2, &[8, 10], &[entry(0, None, &block)])].concat();
    let segment = [attribute(2, &[9, 1, 0, 0, 0, 1]), attribute(3, &[192, 0, 2, 1])].concat();
    for (tail, part) in [
        (record(99, 0, b""), "no MRT type 99"),
        (record(13, 2, b"abc"), "sequence number"),
        (rib(2, &[33, 1, 2, 3, 4, 5], &[]), "a prefix of /33"),
        (rib(2, &[8, 11], &[entry(7, None, &block)]), "peer 7, of 3"),
        (rib(2, &[8, 11], &[entry(0, None, &block[..block.len() - 1])]), "an attribute"),
        (rib(2, &[8, 11], &[entry(0, None, &segment)]), "segment of type 9"),
        (message(4, 2, &update(&[], &[], &[8, 11])), "without a next hop"),
        (vec![0, 0, 0, 0, 0, 13, 0, 2, 0xff, 0, 0, 0], "claims"),
        (vec![0, 0, 0, 0, 0, 13], "6 bytes into the record's header"),
        (record(13, 2, &[0; 40])[..30].to_vec(), "30 bytes into a record of 40"),
    ] {
        let file = [&fine[..], &tail].concat();
        let error = read(&file[..], "small.mrt".as_ref(), &Options::default()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(part), "{part:?} is not in {text:?}");
        let Error::Damage { offset, record, .. } = error else { panic!("{text}") };
        assert_eq!((offset, record), (fine.len() as u64, 3), "{text}");
        let partial = Options { partial: true, ..Options::default() };
        let table = read(&file[..], "small.mrt".as_ref(), &partial).unwrap();
        assert_eq!(named(&table), ["10.0.0.0/8 192.0.2.1"]);
        assert!(table.report.warnings[0].contains(part));
    }
    let orphan = rib(2, &[8, 10], &[entry(0, None, &block)]);
    let error = read(&orphan[..], "small.mrt".as_ref(), &Options::default()).unwrap_err();
    assert!(error.to_string().contains("before the table of peers"), "{error}");
}
