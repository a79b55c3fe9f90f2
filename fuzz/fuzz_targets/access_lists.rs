//! Rules of access lists, and packets; see `fingerpost_fuzz::access_lists`.

#![no_main]

use fingerpost_fuzz::access_lists::{Tally, access_lists};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| access_lists(input, &mut Tally::default()));
