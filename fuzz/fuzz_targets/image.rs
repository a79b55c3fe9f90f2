//! See `fingerpost_fuzz::image`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::image::image(input);
});
