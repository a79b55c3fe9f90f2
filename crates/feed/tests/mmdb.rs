//! MaxMind databases: what MaxMind's own writer has written is found as by MaxMind's own reader, and damage is an error.
//!
//! `data/mmdb/*.answers` are lines of `ADDRESS PREFIX RECORD`, or `ADDRESS - -`; see `data/README.md`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use fib::{Addr, Prefix};
use fingerpost_feed::{Error, Format, Label, Options, RoutingTable, load, read, read_updates};

const DATABASES: [&str; 3] = ["24-4", "28-6-aliases", "32-6-covered"];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/mmdb").join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(golden(&format!("{name}.mmdb"))).unwrap()
}

/// The longest prefix around an address, and the text of its label.
fn longest<A: Addr>(
    table: &RoutingTable,
    routes: &[(Prefix<A>, Label)],
    address: A,
) -> Option<(String, String)> {
    let around = routes.iter().filter(|(prefix, _)| prefix.contains(address));
    let (prefix, label) = around.max_by_key(|(prefix, _)| prefix.len())?;
    Some((prefix.to_string(), table.labels.get(*label).to_owned()))
}

#[test]
fn every_address_has_the_record_that_the_vendors_reader_finds() {
    for name in DATABASES {
        let table = load(golden(&format!("{name}.mmdb")), &Options::default()).unwrap();
        assert_eq!(table.report.format, Some(Format::Mmdb), "{name}");
        let routes = table.v4.len() + table.v6.len();
        assert_eq!(table.report.entries as usize, routes, "{name}");
        let answers = std::fs::read_to_string(golden(&format!("{name}.answers"))).unwrap();
        let mut routed = 0;
        for line in answers.lines() {
            let mut fields = line.splitn(3, ' ');
            let mut field = || fields.next().unwrap();
            let (address, prefix, record) = (field(), field(), field());
            let found = match address.parse().unwrap() {
                IpAddr::V4(address) => longest(&table, &table.v4, address.to_bits()),
                IpAddr::V6(address) => longest(&table, &table.v6, address.to_bits()),
            };
            let Some((found_prefix, found_record)) = found else {
                assert_eq!((prefix, record), ("-", "-"), "{name}: {address}");
                continue;
            };
            routed += 1;
            assert_eq!(found_prefix, prefix, "{name}: {address}");
            let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(json(&found_record), json(record), "{name}: {address}");
        }
        assert!(routed > 20, "{name}: {routed} addresses have a record");
    }
}

#[test]
fn integers_of_128_bits_keep_all_digits_and_bytes_are_hexadecimal() {
    let table = load(golden("32-6-covered.mmdb"), &Options::default()).unwrap();
    let texts = || table.labels.iter().map(|(_, text)| text);
    assert!(texts().any(|text| text.contains("\"huge\":3402823669209384634633746074317682114")));
    assert!(texts().any(|text| text.contains("\"raw\":\"00ff")));
    assert!(texts().any(|text| text.contains("\"large\":18446744073709551615")));
    assert!(texts().any(|text| text.contains("über\\\\")));
}

/// Reads like a random file that never ends.
struct Endless(u64);

impl std::io::Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.0 += out.len() as u64;
        assert!(self.0 < 16 << 20, "{} bytes are read of content that is no database", self.0);
        for (at, byte) in out.iter_mut().enumerate() {
            *byte = (at * at % 251) as u8;
        }
        Ok(out.len())
    }
}

#[test]
fn other_binary_content_is_refused_at_its_beginning() {
    let error = read(Endless(0), "endless".as_ref(), &Options::default()).unwrap_err();
    assert!(matches!(error, Error::Unrecognized { .. }), "{error}");
}

#[test]
fn a_database_is_no_stream_of_updates() {
    let error = read_updates(&bytes("24-4")[..], "x.mmdb".as_ref(), &Options::default());
    assert!(matches!(error.unwrap_err(), Error::Kind { .. }));
}

#[test]
fn cut_database_gives_no_routes() {
    for name in DATABASES {
        let whole = bytes(name);
        for cut in (0..whole.len()).step_by(7) {
            if let Ok(table) = read(&whole[..cut], "cut".as_ref(), &Options::default()) {
                assert!(table.v4.is_empty() && table.v6.is_empty(), "{name} cut at {cut}");
            }
        }
    }
}

/// Also ends: a damaged tree may lead in circles.
#[test]
fn no_changed_byte_makes_the_reader_panic() {
    for name in DATABASES {
        let mut file = bytes(name);
        let whole = read(&file[..], "whole".as_ref(), &Options::default()).unwrap();
        let mut refused = 0;
        for at in 0..file.len() {
            let right = file[at];
            for wrong in [right ^ 0x01, right ^ 0x80, 0, 0xff] {
                file[at] = wrong;
                let options = Options { format: Some(Format::Mmdb), ..Options::default() };
                match read(&file[..], "damaged".as_ref(), &options) {
                    Ok(table) => assert!(table.report.entries <= 4 * whole.report.entries + 64),
                    Err(error) => {
                        refused += 1;
                        assert!(matches!(error, Error::Damage { .. }), "{error}");
                    }
                }
                let partial = Options { partial: true, ..options };
                read(&file[..], "damaged".as_ref(), &partial).unwrap();
            }
            file[at] = right;
        }
        assert!(refused > file.len() / 10, "{name}: {refused} of {} bytes", file.len());
    }
}
