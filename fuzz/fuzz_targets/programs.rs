//! Damaged object files, verified and run; see `fingerpost_fuzz::programs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::programs::programs(input, &mut Default::default());
});
