//! The demonstration's checker as an XDP program, compared with its twin.
//!
//! The program must be loaded, which needs root: so this is a test target of its
//! own behind the feature `root-tests`, and takes the modules from the binary. The
//! comparison itself is `check/tests.rs`.

#![expect(dead_code, reason = "the demonstration uses more of these modules than the test")]

#[path = "../src/namespace.rs"]
mod namespace;

#[path = "../src/demo"]
mod demo {
    mod check;
    mod network;
    mod packets;
}
