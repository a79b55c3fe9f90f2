//! Routes one after the other: all, those within a prefix, those around it.

use std::ffi::{c_int, c_void};

use fib::{Hop, Prefix as FibPrefix};

use crate::argument::required;
use crate::prefix::{AnyPrefix, Prefix, is_v6};
use crate::status::{Status, guard};
use crate::table::{Side, Table};

/// A function that gets a route and its label; the visit ends when it returns another value than 0. It must
/// return, and may call functions that take the table as `const`.
pub type Visit =
    Option<unsafe extern "C" fn(prefix: *const Prefix, label: u32, argument: *mut c_void) -> c_int>;

type Visitor = unsafe extern "C" fn(*const Prefix, u32, *mut c_void) -> c_int;

/// Calls a function of C with each route until it ends the visit.
///
/// # Safety
///
/// The function accepts `argument`.
unsafe fn each<A: Side>(
    routes: impl Iterator<Item = (FibPrefix<A>, Hop)>,
    visitor: Visitor,
    argument: *mut c_void,
) {
    for (prefix, hop) in routes {
        let prefix = A::to_c(prefix);
        // SAFETY: the caller's promise; the prefix is valid until the function returns.
        if unsafe { visitor(&raw const prefix, hop.0, argument) } != 0 {
            break;
        }
    }
}

/// Calls `visit` with each route of a family (AF_INET, AF_INET6), committed or not, in the order of addresses,
/// the shorter prefix first. FP_STATUS_OK also if `visit` has ended it.
///
/// # Safety
///
/// `visit` accepts `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_table_visit(
    table: Option<&Table>,
    family: c_int,
    visit: Visit,
    argument: *mut c_void,
) -> Status {
    guard(|| {
        let (table, visitor) = (required(table, "table")?, required(visit, "visit")?);
        if is_v6(family)? {
            // SAFETY: the caller's promise.
            unsafe { each(table.v6.rib().iter(), visitor, argument) };
        } else {
            // SAFETY: likewise.
            unsafe { each(table.v4.rib().iter(), visitor, argument) };
        }
        Ok(Status::Ok)
    })
}

/// The same for the routes within `within`, itself included.
///
/// # Safety
///
/// `visit` accepts `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_table_visit_covered(
    table: Option<&Table>,
    within: Option<&Prefix>,
    visit: Visit,
    argument: *mut c_void,
) -> Status {
    guard(|| {
        let (table, visitor) = (required(table, "table")?, required(visit, "visit")?);
        match required(within, "within")?.read()? {
            // SAFETY: the caller's promise.
            AnyPrefix::V4(within) => unsafe {
                each(table.v4.rib().covered(within), visitor, argument);
            },
            // SAFETY: likewise.
            AnyPrefix::V6(within) => unsafe {
                each(table.v6.rib().covered(within), visitor, argument);
            },
        }
        Ok(Status::Ok)
    })
}

/// The same for the routes that hold all addresses of `prefix`, itself included, the shortest first.
///
/// # Safety
///
/// `visit` accepts `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_table_visit_covering(
    table: Option<&Table>,
    prefix: Option<&Prefix>,
    visit: Visit,
    argument: *mut c_void,
) -> Status {
    guard(|| {
        let (table, visitor) = (required(table, "table")?, required(visit, "visit")?);
        match required(prefix, "prefix")?.read()? {
            // SAFETY: the caller's promise.
            AnyPrefix::V4(prefix) => unsafe {
                each(table.v4.rib().covering(prefix), visitor, argument);
            },
            // SAFETY: likewise.
            AnyPrefix::V6(prefix) => unsafe {
                each(table.v6.rib().covering(prefix), visitor, argument);
            },
        }
        Ok(Status::Ok)
    })
}
