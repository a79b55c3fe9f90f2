//! Configurations of a router and a gate; see `fingerpost_fuzz::configs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::configs::configs(input, &mut Default::default());
});
