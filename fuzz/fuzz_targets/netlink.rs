//! Messages of the kernel, damaged and made up; see `fingerpost_fuzz::netlink`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fingerpost_fuzz::netlink::netlink(input);
});
