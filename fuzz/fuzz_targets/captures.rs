//! Captures, read and written; see `fingerpost_fuzz::captures`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::captures::captures(input, &mut Default::default());
});
