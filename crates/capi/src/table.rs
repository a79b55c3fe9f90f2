//! Tables: routes of both families, and what readers get of them at each commit.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

use fib::{Choice, Family, Full, Hop, Prefix as FibPrefix, Rib, Updater};

use crate::argument::{array, required, store, text};
use crate::pointers::PointerLabels;
use crate::prefix::{AnyPrefix, Bytes, Prefix, is_v6};
use crate::status::{Failure, Status, guard};

/// The most threads of a build.
const MAX_THREADS: usize = 256;

/// The label of an address that no route matches.
pub const FP_NO_ROUTE: u32 = 0;
const _: () = assert!(FP_NO_ROUTE == Hop::NONE.0);

/// The labels of a table's routes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelKind {
    /// Numbers of the caller, from 1 on.
    Number = 0,
    /// Pointers of the caller, none of them NULL. Equal pointers have one number.
    Pointer = 1,
}

/// Routes of IPv4 and IPv6.
pub struct Table {
    pub(crate) v4: Updater<u32>,
    pub(crate) v6: Updater<u128>,
    /// Without it, labels are numbers.
    pub(crate) pointers: Option<PointerLabels>,
}

/// A change of one route.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The route.
    pub prefix: Prefix,
    /// The label, if the table's labels are numbers; FP_NO_ROUTE withdraws the route.
    pub label: u32,
    /// The label, if they are pointers; NULL withdraws the route.
    pub pointer: *mut c_void,
}

/// A family of a table.
pub(crate) trait Side: Family + Bytes {
    fn of(table: &Table) -> &Updater<Self>;
    fn of_mut(table: &mut Table) -> &mut Updater<Self>;
}

impl Side for u32 {
    fn of(table: &Table) -> &Updater<Self> {
        &table.v4
    }

    fn of_mut(table: &mut Table) -> &mut Updater<Self> {
        &mut table.v4
    }
}

impl Side for u128 {
    fn of(table: &Table) -> &Updater<Self> {
        &table.v6
    }

    fn of_mut(table: &mut Table) -> &mut Updater<Self> {
        &mut table.v6
    }
}

/// A label as an argument.
#[derive(Clone, Copy)]
enum Label {
    Number(u32),
    Pointer(*mut c_void),
}

impl LabelKind {
    fn read(kind: c_int) -> Result<Self, Failure> {
        [Self::Number, Self::Pointer]
            .into_iter()
            .find(|known| *known as c_int == kind)
            .ok_or_else(|| Failure::argument(format_args!("kind {kind} is none of fp_label_kind")))
    }
}

impl Table {
    fn new(kind: LabelKind, engines: [&str; 2], threads: usize) -> Result<Self, Failure> {
        fn choice<A: Family>(engine: &str) -> Result<Choice, Failure> {
            Choice::parse::<A>(engine).map_err(Failure::argument)
        }
        let threads = threads.clamp(1, MAX_THREADS);
        Ok(Self {
            v4: Updater::new(Rib::new(), choice::<u32>(engines[0])?, threads).map_err(full)?,
            v6: Updater::new(Rib::new(), choice::<u128>(engines[1])?, threads).map_err(full)?,
            pointers: (kind == LabelKind::Pointer).then(PointerLabels::default),
        })
    }

    /// Checks that a label is one of this table.
    fn check(&self, label: Label) -> Result<(), Failure> {
        let wrong = match (label, &self.pointers) {
            (Label::Number(_), Some(_)) => "the labels of this table are pointers",
            (Label::Pointer(_), None) => "the labels of this table are numbers",
            (Label::Number(0), None) => "label 0 stands for no route",
            (Label::Pointer(pointer), Some(_)) if pointer.is_null() => "pointer is NULL",
            _ => return Ok(()),
        };
        Err(Failure::argument(wrong))
    }

    /// Adds a route or changes its label; returns the former label.
    fn insert<A: Side>(&mut self, prefix: FibPrefix<A>, label: Label) -> Result<Hop, Failure> {
        let hop = match (label, &mut self.pointers) {
            (Label::Number(number), _) => Hop(number),
            (Label::Pointer(pointer), Some(pointers)) => pointers.acquire(pointer).map_err(full)?,
            (Label::Pointer(_), None) => return Err(Failure::argument("no pointers here")),
        };
        let former = A::of_mut(self).announce(prefix, hop);
        Ok(self.give_up(former))
    }

    fn withdraw<A: Side>(&mut self, prefix: FibPrefix<A>) -> Hop {
        let former = A::of_mut(self).withdraw(prefix);
        self.give_up(former)
    }

    fn give_up(&mut self, former: Option<Hop>) -> Hop {
        if let (Some(former), Some(pointers)) = (former, &mut self.pointers) {
            pointers.give_up(former);
        }
        former.unwrap_or_default()
    }

    fn insert_any(&mut self, prefix: &Prefix, label: Label) -> Result<Hop, Failure> {
        let prefix = prefix.read()?;
        self.check(label)?;
        match prefix {
            AnyPrefix::V4(prefix) => self.insert(prefix, label),
            AnyPrefix::V6(prefix) => self.insert(prefix, label),
        }
    }

    fn withdraw_any(&mut self, prefix: &Prefix) -> Result<Hop, Failure> {
        Ok(match prefix.read()? {
            AnyPrefix::V4(prefix) => self.withdraw(prefix),
            AnyPrefix::V6(prefix) => self.withdraw(prefix),
        })
    }

    fn commit(&mut self) -> Result<Status, Failure> {
        self.forget_unused();
        let v4 = self.v4.commit().map_err(full)?;
        let v6 = self.v6.commit().map_err(full)?;
        if !(v4.published && v6.published) {
            let message =
                "readers still use both tables; commit again when each has looked up, or is idle";
            return Err(Failure::new(Status::Busy, message));
        }
        if let Some(pointers) = &mut self.pointers {
            pointers.published();
        }
        Ok(Status::Ok)
    }

    fn passed(&self) -> bool {
        self.v4.passed() && self.v6.passed()
    }

    fn forget_unused(&mut self) {
        if self.passed()
            && let Some(pointers) = &mut self.pointers
        {
            pointers.passed();
        }
    }
}

pub(crate) fn full(full: Full) -> Failure {
    Failure::new(Status::Full, full)
}

/// Returns a status and stores the label; FP_STATUS_NOT_FOUND for no route.
fn found(hop: Hop, label: Option<&mut MaybeUninit<u32>>) -> Status {
    store(label, hop.0);
    if hop.is_some() { Status::Ok } else { Status::NotFound }
}

/// Creates an empty table with labels of a kind (fp_label_kind), whose engines are chosen by size. Free it by
/// fp_table_free.
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_new(kind: c_int, table: Option<&mut MaybeUninit<*mut Table>>) -> Status {
    guard(|| {
        let place = required(table, "table")?;
        place.write(Box::into_raw(Box::new(Table::new(LabelKind::read(kind)?, ["auto"; 2], 1)?)));
        Ok(Status::Ok)
    })
}

/// The same with engines for IPv4 and IPv6 by name ("auto", "D18R", "flat", …; docs/guide/engines.md lists
/// them), and with this number of threads for whole builds, 1 to 256.
///
/// # Safety
///
/// The texts end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_table_new_with(
    kind: c_int,
    engine4: *const c_char,
    engine6: *const c_char,
    threads: usize,
    table: Option<&mut MaybeUninit<*mut Table>>,
) -> Status {
    guard(|| {
        let place = required(table, "table")?;
        // SAFETY: the caller's promise.
        let engine4 = unsafe { text(engine4, "engine4") }?;
        // SAFETY: likewise.
        let engine6 = unsafe { text(engine6, "engine6") }?;
        let table = Table::new(LabelKind::read(kind)?, [engine4, engine6], threads)?;
        place.write(Box::into_raw(Box::new(table)));
        Ok(Status::Ok)
    })
}

/// Frees a table. Its readers keep the last committed one.
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_free(table: Option<Box<Table>>) {
    guard(|| {
        drop(table);
        Ok(Status::Ok)
    });
}

/// Adds a route or changes its label, from the next commit on, and stores the former label in `former` unless
/// that is NULL: FP_NO_ROUTE for a new route. O(length of the prefix).
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_insert(
    table: Option<&mut Table>,
    prefix: Option<&Prefix>,
    label: u32,
    former: Option<&mut MaybeUninit<u32>>,
) -> Status {
    guard(|| {
        let (table, prefix) = (required(table, "table")?, required(prefix, "prefix")?);
        store(former, table.insert_any(prefix, Label::Number(label))?.0);
        Ok(Status::Ok)
    })
}

/// The same for a table whose labels are pointers. The pointer may be freed when the route has another label or
/// is withdrawn, the table is committed, and fp_table_passed returns true after it.
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_insert_pointer(
    table: Option<&mut Table>,
    prefix: Option<&Prefix>,
    pointer: *mut c_void,
    former: Option<&mut MaybeUninit<u32>>,
) -> Status {
    guard(|| {
        let (table, prefix) = (required(table, "table")?, required(prefix, "prefix")?);
        store(former, table.insert_any(prefix, Label::Pointer(pointer))?.0);
        Ok(Status::Ok)
    })
}

/// Removes a route, from the next commit on, and stores its label in `former` unless that is NULL.
/// FP_STATUS_NOT_FOUND if there is none. O(length of the prefix).
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_withdraw(
    table: Option<&mut Table>,
    prefix: Option<&Prefix>,
    former: Option<&mut MaybeUninit<u32>>,
) -> Status {
    guard(|| {
        let (table, prefix) = (required(table, "table")?, required(prefix, "prefix")?);
        Ok(found(table.withdraw_any(prefix)?, former))
    })
}

/// Makes all these changes, from the next commit on, or none of them if one is wrong. A route that is withdrawn
/// need not exist.
///
/// # Safety
///
/// `changes` has `count` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_table_apply(
    table: Option<&mut Table>,
    changes: *const Change,
    count: usize,
) -> Status {
    guard(|| {
        let table = required(table, "table")?;
        // SAFETY: the caller's promise.
        let changes = unsafe { array(changes, count) };
        let changes = changes.ok_or_else(|| Failure::null("changes"))?;
        let has_pointers = table.pointers.is_some();
        let label = |change: &Change| match (has_pointers, change.label, change.pointer) {
            (false, 0, _) => None,
            (false, number, _) => Some(Label::Number(number)),
            (true, _, pointer) => (!pointer.is_null()).then_some(Label::Pointer(pointer)),
        };
        for (index, change) in changes.iter().enumerate() {
            change.prefix.read().map_err(|failure| {
                let message = format_args!("change {index}: {}", failure.message);
                Failure::new(failure.status, message)
            })?;
        }
        for change in changes {
            match label(change) {
                Some(label) => table.insert_any(&change.prefix, label)?,
                None => table.withdraw_any(&change.prefix)?,
            };
        }
        Ok(Status::Ok)
    })
}

/// Gives all changes since the last commit to readers, as one: each has them with its next lookup.
/// FP_STATUS_FULL if the routes exceed a limit of the engine; FP_STATUS_BUSY if readers still use the two
/// tables before. O(routes of the changed blocks), or O(all routes) after many changes.
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_commit(table: Option<&mut Table>) -> Status {
    guard(|| required(table, "table")?.commit())
}

/// Returns whether every reader has left all tables but the last committed one: each has looked up since then,
/// or is idle.
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_passed(table: Option<&Table>) -> bool {
    table.is_some_and(Table::passed)
}

/// Finds the route of exactly this prefix, committed or not, and stores its label. FP_STATUS_NOT_FOUND if there
/// is none.
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_get(
    table: Option<&Table>,
    prefix: Option<&Prefix>,
    label: Option<&mut MaybeUninit<u32>>,
) -> Status {
    guard(|| {
        let table = required(table, "table")?;
        let hop = match required(prefix, "prefix")?.read()? {
            AnyPrefix::V4(prefix) => table.v4.rib().get(prefix),
            AnyPrefix::V6(prefix) => table.v6.rib().get(prefix),
        };
        Ok(found(hop.unwrap_or_default(), label))
    })
}

/// Finds the longest route, committed or not, that holds all addresses of `prefix`, and stores it and its
/// label; either place may be NULL. FP_STATUS_NOT_FOUND if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_longest(
    table: Option<&Table>,
    prefix: Option<&Prefix>,
    route: Option<&mut MaybeUninit<Prefix>>,
    label: Option<&mut MaybeUninit<u32>>,
) -> Status {
    guard(|| {
        fn cover<A: Side>(table: &Table, prefix: FibPrefix<A>) -> Option<(Prefix, Hop)> {
            let (route, hop) = A::of(table).rib().cover(prefix)?;
            Some((A::to_c(route), hop))
        }
        let table = required(table, "table")?;
        let longest = match required(prefix, "prefix")?.read()? {
            AnyPrefix::V4(prefix) => cover(table, prefix),
            AnyPrefix::V6(prefix) => cover(table, prefix),
        };
        let Some((found_route, hop)) = longest else {
            return Ok(found(Hop::NONE, label));
        };
        store(route, found_route);
        Ok(found(hop, label))
    })
}

/// Returns the number of routes of a family (AF_INET, AF_INET6), committed or not; 0 for NULL and other
/// families.
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_count(table: Option<&Table>, family: c_int) -> usize {
    match (table, is_v6(family)) {
        (Some(table), Ok(false)) => table.v4.rib().len(),
        (Some(table), Ok(true)) => table.v6.rib().len(),
        _ => 0,
    }
}

/// Returns the pointer of a number that a function of this table has returned; NULL for FP_NO_ROUTE, and if the
/// labels are numbers.
#[unsafe(no_mangle)]
pub extern "C" fn fp_table_pointer(table: Option<&Table>, label: u32) -> *mut c_void {
    let pointers = table.and_then(|table| table.pointers.as_ref());
    pointers.map_or(std::ptr::null_mut(), |pointers| pointers.places().get(Hop(label)))
}
