//! Files of every format, truncated and changed at random: nothing panics, and a partial load
//! returns a beginning of the whole file's table.

use std::io::Write;

use fingerpost_feed::{
    Format, Options, RoutingTable, UpdateStream, WriteOptions, generate, read, read_updates, write,
};
use proptest::prelude::*;

const PARTIAL: Options =
    Options { partial: true, format: None, truncate_host_bits: false, origin: true };

fn table(bytes: &[u8]) -> Result<RoutingTable, fingerpost_feed::Error> {
    read(bytes, "damaged".as_ref(), &PARTIAL)
}

fn stream(bytes: &[u8]) -> Result<UpdateStream, fingerpost_feed::Error> {
    read_updates(bytes, "damaged".as_ref(), &PARTIAL)
}

/// Some of each format, sorted, so that a beginning of the file is one of the table.
fn files() -> Vec<Vec<u8>> {
    let recipe = fingerpost_feed::Recipe { v4: 300, v6: 100, ..Default::default() };
    let made = generate(&recipe);
    let mut text = Vec::new();
    write(&made, Format::Table, &WriteOptions::default(), &mut text).unwrap();
    let mut dump = String::new();
    let mut json = String::from("[");
    let mut changes = String::new();
    for (n, (prefix, label)) in made.v4.iter().enumerate() {
        let hop = format!("192.0.2.{}", label.0);
        dump += &format!("TABLE_DUMP2|1|B|192.0.2.1|1|{prefix}|1 2|IGP|{hop}|0|0||NAG||\n");
        json += &format!("{{\"dst\":\"{prefix}\",\"gateway\":\"{hop}\"}},\n");
        changes += &format!("{n} a {prefix} {hop}\n");
    }
    json += "{\"dst\":\"255.0.0.0/8\",\"dev\":\"x\"}]";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&text).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(&text).unwrap();
    let mut files = vec![text, dump.into_bytes(), json.into_bytes(), changes.into_bytes()];
    files.extend([gzip.finish().unwrap(), bzip2.finish().unwrap(), mrt_table(&made)]);
    files.push(mrt_updates(&made));
    files
}

fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
    let head = [&[0, 0, 0, 1][..], &kind.to_be_bytes(), &subtype.to_be_bytes()].concat();
    [&head[..], &(body.len() as u32).to_be_bytes(), body].concat()
}

const ATTRIBUTES: [u8; 20] =
    [0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0, 1, 0x40, 3, 4, 192, 0, 2, 1];

fn mrt_table(made: &RoutingTable) -> Vec<u8> {
    let mut out = record(13, 1, &[1, 1, 1, 1, 0, 0, 0, 1, 0, 9, 9, 9, 9, 192, 0, 2, 1, 0, 1]);
    for (prefix, _) in &made.v4 {
        let bytes = prefix.addr().to_be_bytes();
        let mut body = vec![0, 0, 0, 0, prefix.len() as u8];
        body.extend(&bytes[..prefix.len().div_ceil(8) as usize]);
        body.extend([0, 1, 0, 0, 0, 0, 0, 0, 0, 20]);
        body.extend(ATTRIBUTES);
        out.extend(record(13, 2, &body));
    }
    out
}

fn mrt_updates(made: &RoutingTable) -> Vec<u8> {
    let mut out = Vec::new();
    for (prefix, _) in &made.v4 {
        let mut update = vec![0, 0, 0, 20];
        update.extend(ATTRIBUTES);
        update.push(prefix.len() as u8);
        update.extend(&prefix.addr().to_be_bytes()[..prefix.len().div_ceil(8) as usize]);
        let mut body = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2];
        body.extend([0xff; 16]);
        body.extend((update.len() as u16 + 19).to_be_bytes());
        body.push(2);
        body.extend(update);
        out.extend(record(17, 4, &body));
    }
    out
}

#[test]
fn undamaged_files_load_without_warning() {
    for (n, file) in files().iter().enumerate() {
        let whole = read(&file[..], "whole".as_ref(), &Options::default());
        let whole = whole.unwrap_or_else(|error| panic!("file {n}: {error}"));
        assert!(whole.v4.len() >= 300, "file {n} has {}", whole.v4.len());
        assert!(whole.report.warnings.is_empty(), "file {n}: {:?}", whole.report.warnings);
    }
}

#[test]
fn truncated_file_yields_prefix_of_table() {
    for (n, file) in files().iter().enumerate() {
        let whole = table(file).unwrap();
        let names = |table: &RoutingTable| -> Vec<String> {
            let name = |&(prefix, l)| format!("{prefix} {}", table.labels.get(l));
            let v6 = |&(prefix, l)| format!("{prefix} {}", table.labels.get(l));
            table.v4.iter().map(name).chain(table.v6.iter().map(v6)).collect()
        };
        let all = names(&whole);
        let mut most = 0;
        for cut in (0..file.len()).step_by(1 + file.len() / 400) {
            // A file whose format is no longer recognized is an error in both modes.
            let Ok(part) = table(&file[..cut]) else { continue };
            let part = names(&part);
            // The last line of a truncated text may be another route.
            let sure = part.len().saturating_sub(1);
            assert_eq!(part[..sure], all[..sure], "file {n} cut at {cut}");
            assert!(part.len() <= all.len());
            most = most.max(part.len());
            if let (Ok(part), Ok(whole)) = (stream(&file[..cut]), stream(file)) {
                let sure = part.events.len().saturating_sub(1);
                assert!(part.events.len() <= whole.events.len());
                assert!(
                    part.events[..sure]
                        .iter()
                        .zip(&whole.events)
                        .all(|(a, b)| { (a.time, a.peer, a.kind) == (b.time, b.peer, b.kind) })
                );
            }
        }
        assert!(most > all.len() / 2 || n == 5, "file {n}: only {most} were ever kept");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_do_not_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
                                 cut: prop::sample::Index) {
        thread_local!(static FILES: Vec<Vec<u8>> = files());
        FILES.with(|files| for file in files {
            let mut file = file.clone();
            for (at, byte) in &edits {
                let at = at.index(file.len());
                file[at] = *byte;
            }
            for bytes in [&file[..], &file[..cut.index(file.len())]] {
                for format in [None, Some(Format::Mrt)] {
                    let options = Options { format, ..PARTIAL };
                    if let Ok(table) = read(bytes, "damaged".as_ref(), &options) {
                        assert!(table.v4.is_sorted_by(|a, b| a.0 < b.0));
                        assert!(table.v6.is_sorted_by(|a, b| a.0 < b.0));
                    }
                    // In strict mode the same file is an error instead of a warning.
                    let strict = Options { partial: false, ..options };
                    let _ = read(bytes, "damaged".as_ref(), &strict);
                    let _ = read_updates(bytes, "damaged".as_ref(), &options);
                }
            }
        });
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), format in 0..6) {
        use fingerpost_feed::Format::*;
        let format = [Table, Bgpdump, IpRoute, UpdateText, Mrt].get(format as usize).copied();
        let options = Options { format, ..PARTIAL };
        let _ = read(&bytes[..], "noise".as_ref(), &options);
        let _ = read_updates(&bytes[..], "noise".as_ref(), &options);
    }
}
