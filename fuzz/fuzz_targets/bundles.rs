//! Signed bundles; see `fingerpost_fuzz::bundles`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::bundles::bundles(input, &mut Default::default());
});
