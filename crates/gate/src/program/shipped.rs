//! The shipped programs, as sources in C.
//!
//! Operators compile them with the installed clang (`fingerpost program build NAME`), so that the
//! source that they read is the program that runs. The header is `programs/flow.h`.

/// A program's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSource {
    /// Its name: the file's, without the extension.
    pub name: &'static str,
    /// The number that Gatekeeper gives it; higher ones are ours.
    pub number: u8,
    /// The file in C.
    pub text: &'static str,
}

/// The header that programs include as `"flow.h"`.
pub const HEADER: &str = include_str!("../../programs/flow.h");

/// The shared code of programs with two limits, which they include as `"limit.h"`.
pub const LIMIT: &str = include_str!("../../programs/limit.h");

/// The headers by their names.
pub const HEADERS: [(&str, &str); 2] = [("flow.h", HEADER), ("limit.h", LIMIT)];

/// The arguments of clang before the names of the files.
pub const CLANG: [&str; 8] =
    ["-target", "bpfel", "-O2", "-g0", "-ffreestanding", "-Wall", "-Wextra", "-c"];

/// All shipped programs.
pub const SOURCES: [ProgramSource; 6] = [
    ProgramSource { name: "granted", number: 0, text: include_str!("../../programs/granted.c") },
    ProgramSource { name: "declined", number: 1, text: include_str!("../../programs/declined.c") },
    ProgramSource {
        name: "grantedv2",
        number: 2,
        text: include_str!("../../programs/grantedv2.c"),
    },
    ProgramSource { name: "web", number: 3, text: include_str!("../../programs/web.c") },
    ProgramSource {
        name: "tcp-services",
        number: 4,
        text: include_str!("../../programs/tcp-services.c"),
    },
    ProgramSource { name: "dns", number: 5, text: include_str!("../../programs/dns.c") },
];
