//! Committed tables in files, which are read without the routes.

use std::ffi::c_char;
use std::fs;
use std::mem::MaybeUninit;
use std::sync::Arc;

use fib::image::{Image, Writer, replace};

use crate::argument::{path, required};
use crate::reader::{Reader, Source};
use crate::status::{Failure, Status, guard};
use crate::table::Table;

const V4: &str = "v4";
const V6: &str = "v6";

/// Writes the committed tables of both families to a file, whole or not at all. The table's labels must be
/// numbers.
///
/// # Safety
///
/// `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_table_save(table: Option<&Table>, path: *const c_char) -> Status {
    guard(|| {
        let table = required(table, "table")?;
        // SAFETY: the caller's promise.
        let path = unsafe { self::path(path) }?;
        if table.pointers.is_some() {
            return Err(Failure::argument("pointers mean nothing in a file"));
        }
        let mut writer = Writer::new();
        writer.table(V4, table.v4.fib()).map_err(Failure::argument)?;
        writer.table(V6, table.v6.fib()).map_err(Failure::argument)?;
        replace(path, &writer.finish()).map_err(|error| system("write", path, &error))?;
        Ok(Status::Ok)
    })
}

/// Creates a reader of a file that fp_table_save has written, or `fingerpost table save`. The file is read and
/// checked whole, and may then change. FP_STATUS_FORMAT if it is damaged.
///
/// # Safety
///
/// `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_reader_open(
    path: *const c_char,
    reader: Option<&mut MaybeUninit<*mut Reader>>,
) -> Status {
    guard(|| {
        let place = required(reader, "reader")?;
        // SAFETY: the caller's promise.
        let path = unsafe { self::path(path) }?;
        let bytes = fs::read(path).map_err(|error| system("read", path, &error))?;
        let damaged =
            |error| Failure::new(Status::Format, format_args!("{}: {error}", path.display()));
        let image = Image::read(&bytes).map_err(damaged)?;
        let source = Source::Stored {
            v4: Arc::new(image.table(V4).map_err(damaged)?),
            v6: Arc::new(image.table(V6).map_err(damaged)?),
        };
        place.write(Box::into_raw(Box::new(Reader(source))));
        Ok(Status::Ok)
    })
}

fn system(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::new(Status::System, format_args!("{doing} {}: {error}", path.display()))
}
