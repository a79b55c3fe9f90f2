//! Prefixes and names of engines as text; see `fingerpost_fuzz::text`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fingerpost_fuzz::text::text(input));
