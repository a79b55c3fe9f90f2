//! Messages of the decision protocol; see `fingerpost_fuzz::decisions`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::decisions::decisions(input, &mut Default::default());
});
