//! Our MRT reader against bgpkit-parser, which shares no code with it.
//!
//! Updates are compared one by one. For a dump, the best path of each prefix is computed from the
//! other parser's elements, by a second implementation of the rule.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::PathBuf;

use bgpkit_parser::BgpkitParser;
use bgpkit_parser::models::{ElemType, Origin};
use fingerpost_feed::{Change, EventKind, Options, load, updates};

fn data(name: &str) -> PathBuf {
    let folder = std::env::var_os("FINGERPOST_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing: set FINGERPOST_DATA", path.display());
    path
}

fn oracle(name: &str) -> BgpkitParser<Cursor<Vec<u8>>> {
    let packed = std::fs::File::open(data(name)).unwrap();
    let mut bytes = Vec::new();
    // One of the files is truncated: the records before the end are read.
    let _ = bzip2::read::BzDecoder::new(packed).read_to_end(&mut bytes);
    assert!(bytes.len() > 1_000_000);
    BgpkitParser::from_reader(Cursor::new(bytes)).disable_warnings()
}

#[test]
fn updates_equal_bgpkit_one_by_one() {
    let name = "updates-20260222.1530-routeviews-bgp4mp_et.mrt.bz2";
    let ours: Vec<String> = updates(data(name), &Options::default())
        .map(|stream| {
            let show = |event: &fingerpost_feed::Event| {
                let (prefix, hop) = match event.kind {
                    EventKind::V4(Change::Announce { prefix, label }) => {
                        (prefix, stream.labels.get(label))
                    }
                    EventKind::V4(Change::Withdraw { prefix }) => (prefix, "gone"),
                    other => panic!("{other:?} in an IPv4 stream"),
                };
                let peer = event.peer;
                format!("{} {} {} {prefix} {hop}", event.time, peer.address, peer.asn)
            };
            stream.events.iter().map(show).collect()
        })
        .unwrap();
    let theirs: Vec<String> = oracle(name)
        .into_elem_iter()
        .map(|elem| {
            let time = (elem.timestamp * 1e6).round() as u64;
            let hop = match elem.elem_type {
                ElemType::ANNOUNCE => elem.next_hop.unwrap().to_string(),
                ElemType::WITHDRAW => "gone".to_owned(),
            };
            let asn = elem.peer_asn.to_u32();
            format!("{time} {} {asn} {} {hop}", elem.peer_ip, elem.prefix.prefix)
        })
        .collect();
    // The order of withdrawals and announcements within a message is not fixed.
    let sorted = |mut lines: Vec<String>| {
        lines.sort_unstable();
        lines
    };
    let (ours, theirs) = (sorted(ours), sorted(theirs));
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
}

#[test]
fn best_paths_equal_bgpkit() {
    for name in [
        "rib4-20260730.1400-routeviews-first2MB.mrt.bz2",
        "rib6-20260730.1400-routeviews-first1MB.mrt.bz2",
    ] {
        let mut best = BTreeMap::new();
        for elem in oracle(name).into_elem_iter() {
            let origin = match elem.origin {
                Some(Origin::IGP) => 0,
                Some(Origin::EGP) => 1,
                _ => 2,
            };
            let path = elem.as_path.as_ref().map_or(0, |path| path.route_len());
            let dislike = !elem.local_pref.unwrap_or(100);
            let identifier = elem.peer_bgp_id.map(u32::from);
            let rank = (dislike, path, origin, identifier, elem.peer_ip);
            let next = (rank, elem.next_hop.unwrap().to_string());
            let best_next = best.entry(elem.prefix.prefix.to_string()).or_insert(next.clone());
            if next < *best_next {
                *best_next = next;
            }
        }
        let partial = Options { partial: true, ..Options::default() };
        let table = load(data(name), &partial).unwrap();
        let v4 = table.v4.iter().map(|&(prefix, label)| (prefix.to_string(), label));
        let v6 = table.v6.iter().map(|&(prefix, label)| (prefix.to_string(), label));
        let ours: BTreeMap<_, _> = v4.chain(v6).collect();
        // bgpkit-parser skips some records that it cannot read (decision 0003).
        assert!(best.len() <= ours.len() && best.len() + 10 > ours.len(), "{name}");
        for (prefix, (rank, hop)) in &best {
            assert_eq!(table.labels.get(ours[prefix]), hop, "{name} {prefix} {rank:?}");
        }
    }
}
