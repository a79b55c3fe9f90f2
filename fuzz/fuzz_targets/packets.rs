//! Frames against a slow reading of them; see `fingerpost_fuzz::packets`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::packets::packets(input, &mut Default::default());
});
