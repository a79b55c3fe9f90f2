//! Lines of the control socket; see `fingerpost_fuzz::control`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::control::control(input, &mut Default::default());
});
