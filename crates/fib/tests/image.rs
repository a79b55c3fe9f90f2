//! Images: tables are loaded as they were saved, and all other bytes are refused.
//!
//! Damaged images are truncated at every length, or have one bit flipped, for every bit. Hostile
//! images are damaged ones with a valid checksum, or with truncated arrays in a valid directory: if
//! they are not refused they may give any answer, but every way of looking up must terminate, at
//! every address. The format is implemented here a second time, from its description.

mod tables;

use std::collections::BTreeMap;

use fingerpost_fib::image::{BadImage, Image, Writer};
use fingerpost_fib::{Choice, Family, Fib, Hop, Prefix, Rib};
use tables::{Dice, borders, engines};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

fn rib<A: Family>(table: &BTreeMap<Prefix<A>, Hop>) -> Rib<A> {
    Rib::from_sorted(table.iter().map(|(&prefix, &hop)| (prefix, hop)))
}

fn saved<A: Family>(fib: &Fib<A>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.table("t", fib).unwrap();
    writer.array("beside", &[7u16, 8, 9]);
    writer.finish()
}

fn loaded<A: Family>(bytes: &[u8]) -> Result<Fib<A>, BadImage> {
    Image::read(bytes)?.table("t")
}

/// Lists the engines with an image format, with more shapes than are listed.
fn storable<A: Family>() -> Vec<Choice> {
    let names: &[&str] = match A::BITS {
        8 => &["D1X1R", "D3X3R", "D4R"],
        16 => &["D8X4R", "D2X2R/8", "D3X3R/8"],
        32 => &["D12X6R"],
        _ => &["D12X8R/64", "D20R/64"],
    };
    let more = names.iter().map(|name| Choice::parse::<A>(name).unwrap());
    engines::<A>().into_iter().filter(|choice| choice.is_storable()).chain(more).collect()
}

/// Draws a table: with few hops up to many, which need every width.
fn table<A: Family>(seed: u64, routes: usize) -> BTreeMap<Prefix<A>, Hop> {
    let mut dice = Dice::new(seed);
    let routes = dice.below(routes);
    let hops = [2, 3, 200, 300, 70_000, 1 << 20][seed as usize % 6];
    dice.table::<A>(routes, hops)
}

/// Looks up in every way, checks that the answers are equal, and returns them.
fn answers<A: Family>(fib: &Fib<A>, addrs: &[A]) -> Vec<Hop> {
    let mut out = vec![Hop(9); addrs.len()];
    fib.lookup_batch(addrs, &mut out);
    out
}

fn check_round_trip<A: Family>(seeds: std::ops::Range<u64>, addrs: impl Fn(&[A]) -> Vec<A>) {
    for seed in seeds {
        let table = table::<A>(seed, 80);
        let addrs = addrs(&borders(&table));
        for choice in storable::<A>() {
            let before = Fib::build(&rib(&table), choice, 1).unwrap();
            let after = loaded::<A>(&saved(&before)).unwrap();
            assert_eq!(answers(&after, &addrs), answers(&before, &addrs), "{choice:?}");
            for &addr in addrs.iter().step_by(37) {
                assert_eq!(after.trace(addr), before.trace(addr), "{choice:?}");
            }
            assert_eq!((after.name(), after.parts()), (before.name(), before.parts()));
        }
    }
}

#[test]
fn tables_are_loaded_as_they_were_saved() {
    check_round_trip::<u8>(0..300, |_| (0..=u8::MAX).collect());
    check_round_trip::<u16>(0..12, |_| (0..=u16::MAX).collect());
    let random = |dice: u64| {
        move |near: &[u128]| -> Vec<u128> {
            let mut dice = Dice::new(dice);
            near.iter().copied().chain((0..500).map(|_| dice.addr())).collect()
        }
    };
    check_round_trip::<u128>(0..6, random(5));
    check_round_trip::<u32>(0..6, |near| {
        let mut dice = Dice::new(7);
        near.iter().copied().chain((0..500).map(|_| dice.addr())).collect()
    });
}

#[test]
fn automatic_choice_is_storable_and_other_engines_are_refused() {
    fn check<A: Family>() {
        let rib = rib(&table::<A>(3, 80));
        for choice in engines::<A>() {
            let fib = Fib::build(&rib, choice, 1).unwrap();
            let mut writer = Writer::new();
            match writer.table("t", &fib) {
                Ok(()) => assert!(choice.is_storable(), "{choice:?}"),
                Err(refused) => {
                    assert!(!choice.is_storable(), "{choice:?}");
                    assert_eq!(refused.engine, choice.name::<A>());
                    assert_eq!(writer.finish(), Writer::new().finish(), "nothing was added");
                }
            }
        }
        assert!(Choice::estimates(&rib).iter().all(|estimate| estimate.choice.is_storable()));
        assert!(Choice::Auto.is_storable() && Choice::Within(5).is_storable());
    }
    check::<u32>();
    check::<u128>();
    let fib = Fib::build(&Rib::<u32>::new(), Choice::SailL, 1).unwrap();
    let refused = Writer::new().table("t", &fib).unwrap_err().to_string();
    assert!(refused.starts_with("engine sail_l has no image format"), "{refused}");
    assert!(refused.contains("rank, flat, dir24_8, poptrie"), "{refused}");
}

/// Writes a file according to the description of the format.
fn file(arrays: &[(String, u32, Vec<u8>)]) -> Vec<u8> {
    let mut file = vec![0; 64 * (1 + arrays.len())];
    for (at, (name, each, content)) in arrays.iter().enumerate() {
        let offset = file.len() as u64;
        let entry = &mut file[64 * (1 + at)..][..64];
        entry[..name.len()].copy_from_slice(name.as_bytes());
        entry[40..48].copy_from_slice(&offset.to_le_bytes());
        entry[48..56].copy_from_slice(&(content.len() as u64 / u64::from(*each)).to_le_bytes());
        entry[56..60].copy_from_slice(&each.to_le_bytes());
        file.extend_from_slice(content);
        file.resize(file.len().next_multiple_of(64), 0);
    }
    let length = file.len() as u64;
    file[..8].copy_from_slice(b"\x8fFPT\r\n\x1a\n");
    file[8..12].copy_from_slice(&1u32.to_le_bytes());
    file[12..16].copy_from_slice(&0x0102_0304u32.to_le_bytes());
    file[16..24].copy_from_slice(&length.to_le_bytes());
    file[24..28].copy_from_slice(&(arrays.len() as u32).to_le_bytes());
    set_checksum(&mut file);
    file
}

/// Sets the checksum of the file.
fn set_checksum(file: &mut [u8]) {
    if file.len() >= 64 {
        let checksum = xxh3_64_with_seed(&file[64..], xxh3_64(&file[..56]));
        file[56..64].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Parses the arrays of a file.
fn arrays(file: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let image = Image::read(file).unwrap();
    let content = |array: &fingerpost_fib::image::Array| {
        let bytes = file[array.offset..][..array.bytes()].to_vec();
        (array.name.clone(), array.each as u32, bytes)
    };
    image.arrays().iter().map(content).collect()
}

#[test]
fn format_is_as_described() {
    let fib = Fib::build(&rib(&table::<u32>(3, 80)), Choice::Auto, 1).unwrap();
    let bytes = saved(&fib);
    assert_eq!(file(&arrays(&bytes)), bytes);
    let image = Image::read(&bytes).unwrap();
    assert_eq!(image.digest().to_le_bytes(), bytes[56..64]);
    let [kept] = &image.tables()[..] else { panic!("one table") };
    assert_eq!((&*kept.name, kept.bits, &*kept.engine), ("t", 32, &*fib.name()));
    assert!(kept.bytes >= fib.footprint());
    assert_eq!(image.array::<u16>("beside").unwrap(), [7, 8, 9]);
    assert!(matches!(image.bytes("beside"), Err(BadImage::Content { .. })));
    assert!(matches!(image.bytes("behind"), Err(BadImage::Missing { .. })));
    assert!(matches!(image.table::<u128>("t"), Err(BadImage::Family { bits: 32, .. })));
    assert!(matches!(image.table::<u32>("u"), Err(BadImage::Missing { .. })));
}

#[test]
fn damaged_image_is_refused_with_its_reason() {
    let fib = Fib::build(&rib(&table::<u8>(3, 40)), Choice::Auto, 1).unwrap();
    let bytes = saved(&fib);
    for len in 0..bytes.len() {
        let refused = Image::read(&bytes[..len]).unwrap_err();
        match len {
            ..8 => assert_eq!(refused, BadImage::Foreign),
            _ => assert!(matches!(refused, BadImage::Length { found, .. } if found == len as u64)),
        }
    }
    assert!(matches!(Image::read(&[&bytes[..], b"\n"].concat()), Err(BadImage::Length { .. })));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let refused = Image::read(&damaged).unwrap_err();
            let expected = match at {
                ..8 => matches!(refused, BadImage::Foreign),
                8..16 => matches!(refused, BadImage::Version { .. }),
                16..24 => matches!(refused, BadImage::Length { .. }),
                _ => matches!(refused, BadImage::Checksum { .. }),
            };
            assert!(expected, "byte {at}: {refused}");
            assert!(refused.to_string().len() > 20, "{refused}");
        }
    }
    assert_eq!(Image::read(b"10.0.0.0/8 via 192.0.2.1").unwrap_err(), BadImage::Foreign);
}

/// The outcomes of hostile images.
#[derive(Default)]
struct Tried {
    accepted: usize,
    /// Refused because of the content of an array.
    refused: usize,
}

/// Looks up all addresses in a hostile image, if it is not refused.
fn survive<A: Family>(bytes: &[u8], addrs: &[A], tried: &mut Tried) {
    let Ok(image) = Image::read(bytes) else { return };
    let _ = image.tables();
    let fib = match image.table::<A>("t") {
        Ok(fib) => fib,
        Err(error) => {
            tried.refused += usize::from(matches!(error, BadImage::Content { .. }));
            return;
        }
    };
    tried.accepted += 1;
    let mut out = vec![Hop(9); addrs.len()];
    fib.lookup_batch(addrs, &mut out);
    fib.lookup_chained(addrs, &mut out);
    if let Some(overlapped) = fib.overlapped() {
        overlapped.group(addrs, &mut out, 16);
    }
    for &addr in addrs {
        let _ = fib.lookup(addr);
        let _ = fib.trace(addr);
    }
}

/// Flips bits of a file, and sets its checksum.
fn flip_bits<A: Family>(
    bytes: &[u8],
    places: impl Iterator<Item = usize>,
    addrs: &[A],
    tried: &mut Tried,
) {
    let mut dice = Dice::new(9);
    for at in places {
        for turned in [1 << dice.below(8), 0x80, 0xff, 1 + dice.below(255) as u8] {
            let mut hostile = bytes.to_vec();
            hostile[at] ^= turned;
            set_checksum(&mut hostile);
            survive(&hostile, addrs, tried);
        }
    }
}

#[test]
fn hostile_image_makes_no_lookup_panic() {
    let universe: Vec<u8> = (0..=u8::MAX).collect();
    for choice in storable::<u8>() {
        let mut tried = Tried::default();
        for seed in 0..8 {
            let bytes = saved(&Fib::build(&rib(&table::<u8>(seed, 60)), choice, 1).unwrap());
            flip_bits(&bytes, 0..bytes.len(), &universe, &mut tried);
        }
        assert!(tried.accepted > 0, "{choice:?}: a hop that is another is no reason to refuse");
        assert!(tried.refused > 100, "{choice:?}: some of it must have been worth refusing");
    }
}

#[test]
fn hostile_image_of_a_larger_table_makes_no_lookup_panic() {
    fn check<A: Family>(seeds: std::ops::Range<u64>, addrs: impl Fn(&mut Dice) -> Vec<A>) {
        for seed in seeds {
            let mut dice = Dice::new(seed);
            let table = table::<A>(seed, 150);
            let mut addrs = addrs(&mut dice);
            addrs.extend(borders(&table));
            for choice in storable::<A>() {
                let mut tried = Tried::default();
                let bytes = saved(&Fib::build(&rib(&table), choice, 1).unwrap());
                // 32 MiB for each trial would take minutes; the toys have the same code.
                if bytes.len() > 4 << 20 {
                    continue;
                }
                let full = arrays(&bytes);
                // Large arrays are mostly empty; only other items are worth changing.
                let busy: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
                let places = (0..40).map(|_| busy[dice.below(busy.len())]).collect::<Vec<_>>();
                flip_bits(&bytes, places.into_iter(), &addrs, &mut tried);
                for at in 0..full.len() {
                    for keep in [0, 1, 2, 3] {
                        let mut cut = full.clone();
                        let each = cut[at].1 as usize;
                        let items = cut[at].2.len() / each;
                        let items = [0, items / 2, items.saturating_sub(1), items / 3][keep];
                        cut[at].2.truncate(items * each);
                        survive(&file(&cut), &addrs, &mut tried);
                    }
                    let mut without = full.clone();
                    without.remove(at);
                    survive(&file(&without), &addrs, &mut tried);
                }
                assert!(tried.refused > 0, "{choice:?}: an array that is cut off");
            }
        }
    }
    check::<u16>(0..3, |_| (0..=u16::MAX).step_by(3).collect());
    check::<u32>(0..2, |dice| (0..300).map(|_| dice.addr()).collect());
    check::<u128>(0..2, |dice| (0..300).map(|_| dice.addr()).collect());
}

/// Every item of every array takes every value that is close, far, or that of another item.
#[test]
fn exchanged_items_make_no_lookup_panic() {
    let universe: Vec<u8> = (0..=u8::MAX).collect();
    for choice in storable::<u8>() {
        let mut tried = Tried::default();
        for seed in [1, 3, 4, 5] {
            let table = table::<u8>(seed, 60);
            let full = arrays(&saved(&Fib::build(&rib(&table), choice, 1).unwrap()));
            for at in 0..full.len() {
                let each = full[at].1 as usize;
                let items = full[at].2.len() / each;
                for item in 0..items {
                    let span = item * each..(item + 1) * each;
                    for other in (0..items).filter(|other| (other * 7 + item) % 3 == 0) {
                        let mut hostile = full.clone();
                        let from = other * each..(other + 1) * each;
                        hostile[at].2.copy_within(from, span.start);
                        survive(&file(&hostile), &universe, &mut tried);
                    }
                    for step in [1u8, 2, 16, 255] {
                        let mut hostile = full.clone();
                        let low = &mut hostile[at].2[span.start];
                        *low = low.wrapping_add(step);
                        survive(&file(&hostile), &universe, &mut tried);
                    }
                }
            }
        }
        assert!(tried.accepted > 0 && tried.refused > 0, "{choice:?}");
    }
}

/// Images of one version of the program are read by the next. If this fails because an engine's
/// layout of the same arrays changed, update the digest; if the meaning of an array changed, rename
/// the array or increase the version.
#[test]
fn format_is_unchanged() {
    fn digest<A: Family>(name: &str) -> u64 {
        let choice = Choice::parse::<A>(name).unwrap();
        let bytes = saved(&Fib::build(&rib(&table::<A>(4, 400)), choice, 1).unwrap());
        Image::read(&bytes).unwrap().digest()
    }
    let four = ["rank", "flat", "D20R", "D16X4R", "poptrie", "dir24_8"].map(digest::<u32>);
    let six = ["rank6", "D16X8R/64", "D16X8R", "poptrie", "flat"].map(digest::<u128>);
    assert_eq!(
        four,
        [
            15254048085392530587,
            16736838130714273100,
            642187911412803086,
            9746373894102690739,
            6774365120097776916,
            3089789634605690677
        ]
    );
    assert_eq!(
        six,
        [
            7928611225873154482,
            13579636617102196852,
            15903724523950548881,
            11699369141606663977,
            10441081205687900867
        ]
    );
}

#[test]
#[should_panic(expected = "duplicate array note")]
fn duplicate_name_panics() {
    let mut writer = Writer::new();
    writer.array("note", b"one");
    writer.array("note", b"two");
}

#[test]
fn empty_image_is_valid() {
    let bytes = Writer::new().finish();
    let image = Image::read(&bytes).unwrap();
    assert!(image.arrays().is_empty() && image.tables().is_empty());
    assert_eq!(bytes.len(), 64);
}
