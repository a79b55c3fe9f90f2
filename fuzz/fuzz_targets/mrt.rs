//! See `fingerpost_fuzz::mrt`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::mrt::mrt(input);
});
