//! Readers: lookups in the table that was committed last, or in one of an image.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use fib::{Fib, Hop, Reader as FibReader};

use crate::argument::{array, array_mut, required};
use crate::pointers::Pointers;
use crate::status::{Failure, Status, guard};
use crate::table::Table;

/// The number of addresses that are converted at a time.
const BATCH: usize = 128;

/// Looks addresses up for one thread.
pub struct Reader(pub(crate) Source);

#[derive(Clone)]
pub(crate) enum Source {
    /// The tables that a table commits.
    Committed { v4: FibReader<Fib<u32>>, v6: FibReader<Fib<u128>>, pointers: Option<Arc<Pointers>> },
    /// The tables of an image.
    Stored { v4: Arc<Fib<u32>>, v6: Arc<Fib<u128>> },
}

/// An address of IPv6 in host order.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Address6 {
    /// The first 64 bits.
    pub high: u64,
    /// The last 64 bits.
    pub low: u64,
}

/// A lookup of one family leaves the former tables of both, for which commits would else wait.
impl Reader {
    #[inline]
    fn v4(&mut self) -> &Fib<u32> {
        match &mut self.0 {
            Source::Committed { v4, v6, .. } => {
                v6.current();
                v4.current()
            }
            Source::Stored { v4, .. } => v4,
        }
    }

    #[inline]
    fn v6(&mut self) -> &Fib<u128> {
        match &mut self.0 {
            Source::Committed { v4, v6, .. } => {
                v4.current();
                v6.current()
            }
            Source::Stored { v6, .. } => v6,
        }
    }
}

/// Returns the labels as the tables write them.
fn as_hops(labels: &mut [u32]) -> &mut [Hop] {
    let hops: *mut [Hop] = std::ptr::from_mut(labels) as *mut [Hop];
    // SAFETY: `Hop` is a transparent u32; the borrow is passed on.
    unsafe { &mut *hops }
}

/// Looks up a batch by `find`.
///
/// # Safety
///
/// As [`array`] and [`array_mut`].
unsafe fn look_up_many<T>(
    reader: Option<&mut Reader>,
    addresses: *const T,
    labels: *mut u32,
    count: usize,
    find: impl FnOnce(&mut Reader, &[T], &mut [u32]),
) -> Status {
    guard(|| {
        let reader = required(reader, "reader")?;
        // SAFETY: the caller's promise.
        let addresses = unsafe { array(addresses, count) };
        // SAFETY: likewise.
        let labels = unsafe { array_mut(labels, count) };
        let wrong = |name| Failure::argument(format_args!("{name} is NULL, or count too large"));
        let addresses = addresses.ok_or_else(|| wrong("addresses"))?;
        find(reader, addresses, labels.ok_or_else(|| wrong("labels"))?);
        Ok(Status::Ok)
    })
}

/// Looks up addresses that are converted piece by piece.
fn converted<T, A: fib::Family>(
    fib: &Fib<A>,
    addresses: &[T],
    labels: &mut [u32],
    convert: impl Fn(&T) -> A,
) {
    let mut batch = [A::MIN; BATCH];
    for (addresses, labels) in addresses.chunks(BATCH).zip(labels.chunks_mut(BATCH)) {
        let batch = &mut batch[..addresses.len()];
        for (place, address) in batch.iter_mut().zip(addresses) {
            *place = convert(address);
        }
        fib.lookup_batch(batch, as_hops(labels));
    }
}

/// Creates a reader for one thread. It has no table until its first lookup. Free it by fp_reader_free.
#[unsafe(no_mangle)]
pub extern "C" fn fp_reader_new(
    table: Option<&Table>,
    reader: Option<&mut MaybeUninit<*mut Reader>>,
) -> Status {
    guard(|| {
        let (table, place) = (required(table, "table")?, required(reader, "reader")?);
        let source = Source::Committed {
            v4: table.v4.reader(),
            v6: table.v6.reader(),
            pointers: table.pointers.as_ref().map(|pointers| Arc::clone(pointers.places())),
        };
        place.write(Box::into_raw(Box::new(Reader(source))));
        Ok(Status::Ok)
    })
}

/// Creates another reader of the same tables, for another thread.
#[unsafe(no_mangle)]
pub extern "C" fn fp_reader_clone(
    reader: Option<&Reader>,
    other: Option<&mut MaybeUninit<*mut Reader>>,
) -> Status {
    guard(|| {
        let (reader, place) = (required(reader, "reader")?, required(other, "other")?);
        place.write(Box::into_raw(Box::new(Reader(reader.0.clone()))));
        Ok(Status::Ok)
    })
}

/// Frees a reader.
#[unsafe(no_mangle)]
pub extern "C" fn fp_reader_free(reader: Option<Box<Reader>>) {
    guard(|| {
        drop(reader);
        Ok(Status::Ok)
    });
}

/// Lets go of the table until the next lookup: for a thread that sleeps, for which commits would else wait.
#[unsafe(no_mangle)]
pub extern "C" fn fp_reader_idle(reader: Option<&mut Reader>) {
    if let Some(Reader(Source::Committed { v4, v6, .. })) = reader {
        v4.idle();
        v6.idle();
    }
}

/// Returns the pointer of a number that this reader's last lookup has returned; NULL for FP_NO_ROUTE, and if
/// the labels are numbers.
#[unsafe(no_mangle)]
pub extern "C" fn fp_reader_pointer(reader: Option<&Reader>, label: u32) -> *mut c_void {
    match reader {
        Some(Reader(Source::Committed { pointers: Some(pointers), .. })) => {
            pointers.get(Hop(label))
        }
        _ => std::ptr::null_mut(),
    }
}

/// Returns the label of the longest route that holds an address of IPv4, in host order; FP_NO_ROUTE if there is
/// none, or `reader` is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn fp_reader_lookup4(reader: Option<&mut Reader>, address: u32) -> u32 {
    reader.map_or(0, |reader| reader.v4().lookup(address).0)
}

/// The same for an address of IPv6: 16 bytes in network order.
#[unsafe(no_mangle)]
pub extern "C" fn fp_reader_lookup6(
    reader: Option<&mut Reader>,
    address: Option<&[u8; 16]>,
) -> u32 {
    let (Some(reader), Some(address)) = (reader, address) else { return 0 };
    reader.v6().lookup(u128::from_be_bytes(*address)).0
}

/// Looks up `count` addresses of IPv4, in host order: `labels[i]` becomes that of `addresses[i]`, FP_NO_ROUTE
/// without a route. From some dozen addresses on several times as fast as one by one. All answers are of one
/// commit. The arrays must not overlap.
///
/// # Safety
///
/// The arrays have `count` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_reader_lookup_many4(
    reader: Option<&mut Reader>,
    addresses: *const u32,
    labels: *mut u32,
    count: usize,
) -> Status {
    let find = |reader: &mut Reader, addresses: &[_], labels: &mut [u32]| {
        reader.v4().lookup_batch(addresses, as_hops(labels));
    };
    // SAFETY: the caller's promise.
    unsafe { look_up_many(reader, addresses, labels, count, find) }
}

/// The same for addresses in network order, such as those of `struct in_addr`.
///
/// # Safety
///
/// The arrays have `count` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_reader_lookup_many4_network(
    reader: Option<&mut Reader>,
    addresses: *const u32,
    labels: *mut u32,
    count: usize,
) -> Status {
    let find = |reader: &mut Reader, addresses: &[_], labels: &mut [u32]| {
        converted(reader.v4(), addresses, labels, |&address| u32::from_be(address));
    };
    // SAFETY: the caller's promise.
    unsafe { look_up_many(reader, addresses, labels, count, find) }
}

/// The same for addresses of IPv6 in host order.
///
/// # Safety
///
/// The arrays have `count` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_reader_lookup_many6(
    reader: Option<&mut Reader>,
    addresses: *const Address6,
    labels: *mut u32,
    count: usize,
) -> Status {
    let find = |reader: &mut Reader, addresses: &[_], labels: &mut [u32]| {
        let whole = |address: &Address6| u128::from(address.high) << 64 | u128::from(address.low);
        converted(reader.v6(), addresses, labels, whole);
    };
    // SAFETY: the caller's promise.
    unsafe { look_up_many(reader, addresses, labels, count, find) }
}

/// The same for addresses of IPv6 in network order, 16 bytes each, such as those of `struct in6_addr`.
///
/// # Safety
///
/// The arrays have `count` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_reader_lookup_many6_network(
    reader: Option<&mut Reader>,
    addresses: *const [u8; 16],
    labels: *mut u32,
    count: usize,
) -> Status {
    let find = |reader: &mut Reader, addresses: &[_], labels: &mut [u32]| {
        converted(reader.v6(), addresses, labels, |&bytes| u128::from_be_bytes(bytes));
    };
    // SAFETY: the caller's promise.
    unsafe { look_up_many(reader, addresses, labels, count, find) }
}
