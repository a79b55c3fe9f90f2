//! See `fingerpost_fuzz::databases`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::databases::databases(input, &mut Default::default());
});
