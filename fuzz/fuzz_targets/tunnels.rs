//! Packets out of their tunnel; see `fingerpost_fuzz::tunnels`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::tunnels::tunnels(input, &mut Default::default());
});
