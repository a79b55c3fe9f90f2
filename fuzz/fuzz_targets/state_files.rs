//! State files, read and written; see `fingerpost_fuzz::state_files`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::state_files::state_files(input, &mut Default::default());
});
