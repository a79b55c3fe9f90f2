//! Configurations of Click; see `fingerpost_fuzz::click`.

#![no_main]

use fingerpost_fuzz::click::{Tally, click};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| click(input, &mut Tally::default()));
