//! Every engine against the oracle; see `fingerpost_fuzz::engines`.

#![no_main]

use std::cell::RefCell;

use fingerpost_fuzz::Bench;
use libfuzzer_sys::fuzz_target;

thread_local! {
    /// libFuzzer calls a function, from one thread, so what is kept has to live here.
    static BENCH: RefCell<Bench> = RefCell::default();
}

fuzz_target!(|input: &[u8]| BENCH.with_borrow_mut(|bench| bench.wide(input)));
