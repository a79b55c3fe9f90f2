//! Changes bytes of images, corrects their checksums, and reads them.
//!
//! ```text
//! bytes ─► edits ─► image of a small table ─► checksum ─► read ─┬─ rejected
//!                                                               └─ looked up, saved, read again
//! ```
//!
//! No content of an image makes a lookup panic. An accepted image is stable: saved and read again
//! it gives the same results, for single lookups and batches. The first byte selects the engine and
//! the family; each edit after it is an index of three bytes into the nonzero bytes, and a value.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use fib::image::{Image, Writer};
use fib::{Choice, Family, Fib, Hop, Prefix, Rib};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// An image, and the offsets of its nonzero bytes.
struct Base {
    v6: bool,
    bytes: Vec<u8>,
    busy: Vec<usize>,
}

/// Returns an image of every engine that can be stored.
fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let mut bases = Vec::new();
        bases.extend(of_family::<u32>(false));
        bases.extend(of_family::<u128>(true));
        bases
    })
}

/// A table of nested routes whose lengths are spread over the family's.
fn rib<A: Family>() -> Rib<A> {
    let mut state = 7u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    let mut routes = BTreeMap::new();
    for hop in 1..120 {
        let near = u128::from(next() % 5) << (A::BITS - 4);
        let addr = near | (u128::from(next()) << 31 | u128::from(next())) & (A::MAX.to_u128() >> 9);
        routes
            .insert(Prefix::truncate(A::from_u128(addr), next() as u32 % (A::BITS + 1)), Hop(hop));
    }
    let mut rib = Rib::new();
    for (prefix, hop) in routes {
        rib.insert(prefix, hop);
    }
    rib
}

fn of_family<A: Family>(v6: bool) -> Vec<Base> {
    let rib = rib::<A>();
    let storable = Choice::every::<A>().into_iter().filter(|choice| choice.is_storable());
    let base = |choice| {
        let fib = Fib::build(&rib, choice, 1).ok()?;
        let bytes = saved(&fib);
        // Larger ones hold the same structures, between more zeros.
        let busy: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
        (bytes.len() < 2 << 20).then_some(Base { v6, bytes, busy })
    };
    storable.filter_map(base).collect()
}

fn saved<A: Family>(fib: &Fib<A>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.table("t", fib).expect("the engine is storable");
    writer.finish()
}

/// Plays one input; returns whether the image was accepted.
///
/// # Panics
///
/// If an accepted image changes when saved and read again, or a lookup panics.
pub fn image(input: &[u8]) -> bool {
    let Some((&which, edits)) = input.split_first() else { return false };
    let base = &bases()[usize::from(which) % bases().len()];
    let mut bytes = base.bytes.clone();
    for edit in edits.chunks_exact(4) {
        let place = usize::from(edit[0]) << 16 | usize::from(edit[1]) << 8 | usize::from(edit[2]);
        // These include the header and the directory; an odd index selects the neighboring byte.
        let at = base.busy[place / 2 % base.busy.len()] + place % 2;
        if let Some(byte) = bytes.get_mut(at) {
            *byte = edit[3];
        }
    }
    let checksum = xxh3_64_with_seed(&bytes[64..], xxh3_64(&bytes[..56]));
    bytes[56..64].copy_from_slice(&checksum.to_le_bytes());
    if base.v6 { look_up::<u128>(&bytes) } else { look_up::<u32>(&bytes) }
}

fn look_up<A: Family>(bytes: &[u8]) -> bool {
    let Ok(image) = Image::read(bytes) else { return false };
    let _ = image.tables();
    let Ok(fib) = image.table::<A>("t") else { return false };
    let rib = rib::<A>();
    let borders = rib.iter().flat_map(|(prefix, _)| [prefix.addr(), prefix.last()]);
    let addrs: Vec<A> = borders.chain([A::MIN, A::MAX]).collect();
    let answers = |fib: &Fib<A>| {
        let mut batch = vec![Hop(9); addrs.len()];
        fib.lookup_batch(&addrs, &mut batch);
        let each: Vec<Hop> = addrs.iter().map(|&addr| fib.lookup(addr)).collect();
        let traced: Vec<Hop> = addrs.iter().map(|&addr| fib.trace(addr).0).collect();
        (batch, each, traced)
    };
    let before = answers(&fib);
    let bytes = saved(&fib);
    let reread = Image::read(&bytes).expect("a saved image is valid");
    let table = reread.table::<A>("t").expect("an accepted table is accepted again");
    assert_eq!(answers(&table), before, "saved and read again");
    true
}
