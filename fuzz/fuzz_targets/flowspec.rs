//! A BGP peer that sends flow specifications; see `fingerpost_fuzz::flowspec`.

#![no_main]

use fingerpost_fuzz::flowspec::{Tally, flowspec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| flowspec(input, &mut Tally::default()));
