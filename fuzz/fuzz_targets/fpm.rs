//! See `fingerpost_fuzz::fpm`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::fpm::fpm(input);
});
