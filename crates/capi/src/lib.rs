//! The C interface of the tables: `libfingerpost`, header `fingerpost.h`.
//!
//! ```text
//!   prefix, label ─► Table ─► commit ─► Reader, one a thread ─► lookups
//!     MRT, text ─► load ┘ └─► save ─► image ─► open ┘
//! ```
//!
//! The header states the rules of units, threads and ownership. Here each function checks its arguments, and
//! runs in `status::guard`, which turns an error or a panic into a status and a message of the calling
//! thread.
//!
//! A nullable pointer of C is an `Option` of a reference, so that a null pointer is an error and needs no
//! unsafe code. The contract with the caller, as in any C library: a pointer that is not null is valid, of the
//! right type, and the object is not in use by another thread unless the header permits it. Texts and arrays
//! are read by `argument.rs`.
//!
//! A shared library has versions for its symbols and a soname, which rustc cannot give it:
//! `install.sh` links it from the static library (docs/decisions/0070).

// Each exported function has this attribute, which the lint counts as unsafe code.
#![allow(unsafe_code, reason = "functions that C calls")]

mod argument;
mod image;
mod labels;
mod load;
mod pointers;
mod prefix;
mod reader;
mod statistics;
mod status;
mod table;
mod visit;

pub use image::{fp_reader_open, fp_table_save};
pub use labels::{Labels, fp_labels_count, fp_labels_free, fp_labels_text};
pub use load::fp_table_load;
pub use prefix::{Prefix, fp_prefix_format, fp_prefix_parse};
pub use reader::{
    Address6, Reader, fp_reader_clone, fp_reader_free, fp_reader_idle, fp_reader_lookup_many4,
    fp_reader_lookup_many4_network, fp_reader_lookup_many6, fp_reader_lookup_many6_network,
    fp_reader_lookup4, fp_reader_lookup6, fp_reader_new, fp_reader_pointer,
};
pub use statistics::{
    Chunks, FP_LOADS, FP_PARTS, Part, Statistics, fp_table_chunks, fp_table_statistics,
};
pub use status::{Status, fp_error_message, fp_version};
pub use table::{
    Change, FP_NO_ROUTE, LabelKind, Table, fp_table_apply, fp_table_commit, fp_table_count,
    fp_table_free, fp_table_get, fp_table_insert, fp_table_insert_pointer, fp_table_longest,
    fp_table_new, fp_table_new_with, fp_table_passed, fp_table_pointer, fp_table_withdraw,
};
pub use visit::{Visit, fp_table_visit, fp_table_visit_covered, fp_table_visit_covering};
