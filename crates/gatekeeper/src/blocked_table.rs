//! The kernel's table of blocked sources, whose packets the XDP program drops before a worker sees them.
//!
//! ```text
//!   rules ─► SourceLists ─┬─► policy of the workers
//!                         └─► thread ─► tables of the front interface's program ─► drops, counts
//!   counters and metrics ◄────── added to the workers' counters ──────────────────┘
//! ```
//!
//! With another list, the workers change first and the table follows, address by address: a source about which
//! both lists agree has no other verdict in between ([`xdp::table`]). The workers drop the packets of prefixes for
//! which the table has no room, and of all if the kernel refuses it. A thread of its own changes the table, because
//! one that outgrows its arrays takes another program, and so capabilities that other threads do not have.

use std::error::Error;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fib::{Family, Prefix};
use gate::policy::sources::{SourceClass, SourceLists};
use port::af_xdp::Interface;
use port::af_xdp::steer::SteeringOutcome;
use threads::{Rights, Task};
use xdp::Publication;
use xdp::block::blocked::{ALLOWED, BLOCKED, BlockedLookup, is_blocked};
use xdp::block::tables::ListTables;

/// The part of the list that is in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InstalledPrefixes {
    /// The prefixes in the table.
    pub(super) installed: usize,
    /// Those without room, or refused by the kernel.
    pub(super) omitted: usize,
}

/// Prefixes of one family: allowed ones within blocked ones, and blocked ones.
type Lists<A> = [Vec<Prefix<A>>; 2];

/// A list to be put into the table.
struct Request {
    v4: Lists<u32>,
    v6: Lists<u128>,
    omitted: usize,
    /// Gets a message when the list is in force.
    done: SyncSender<()>,
}

/// The state of the table.
#[derive(Debug, Default)]
struct State {
    tables: Mutex<Option<ListTables>>,
    /// The prefixes in the table, and the updates that the kernel refused. Not locked during an update.
    written: Mutex<(InstalledPrefixes, u64)>,
}

/// The way to the front interface's program.
#[derive(Debug)]
struct Front {
    /// Dropped before the thread, which ends with it.
    requests: SyncSender<Request>,
    _thread: Task,
    interface: Interface,
    /// The most prefixes of a family.
    capacity: usize,
}

/// Writes blocked and allowed sources to the table of the front interface's XDP program.
#[derive(Debug, Default)]
pub(super) struct BlockedTable {
    front: OnceLock<Front>,
    state: Arc<State>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BlockedTable {
    /// Sets the interface whose program drops the packets, by at most `capacity` prefixes of a family; 0: by none of the
    /// policy, but by the lists in front of the gate.
    pub(super) fn set_front(&self, interface: Interface, capacity: usize) {
        let (requests, receiver) = sync_channel(0);
        let (front, state) = (interface.clone(), Arc::clone(&self.state));
        let run = move |_: &_| follow(&receiver, &front, &state);
        match Task::start("blocked-sources", Rights::Inherited, run) {
            Ok(thread) => {
                // A gate has one front interface as long as it runs.
                let _ = self.front.set(Front { requests, _thread: thread, interface, capacity });
            }
            Err(error) => log::error!("starting the thread of blocked sources: {error}"),
        }
    }

    /// Replaces the contents of the table, and returns when the new ones are in force.
    pub(super) fn replace(&self, sources: &SourceLists) {
        let Some(front) = self.front.get().filter(|front| front.capacity > 0) else { return };
        let (v4, omitted4) = fitting(&sources.drop_list_v4().collect::<Vec<_>>(), front.capacity);
        let (v6, omitted6) = fitting(&sources.drop_list_v6().collect::<Vec<_>>(), front.capacity);
        let (done, is_done) = sync_channel(1);
        let request = Request { v4, v6, omitted: omitted4 + omitted6, done };
        let _ = front.requests.send(request).map(|()| is_done.recv());
    }

    /// Returns whether the XDP program drops packets of a source.
    pub(super) fn blocks(&self, source: IpAddr) -> bool {
        let tables = lock(&self.state.tables);
        tables.as_ref().is_some_and(|tables| {
            is_blocked(match source {
                IpAddr::V4(source) => tables.lists_of(u32::from(source)),
                IpAddr::V6(source) => tables.lists_of(u128::from(source)),
            })
        })
    }

    /// Returns the packets that were dropped and their bytes.
    pub(super) fn dropped(&self) -> (u64, u64) {
        let Some(Front { interface, .. }) = self.front.get() else { return (0, 0) };
        let packets = interface.counts().map_or(0, |counts| counts[SteeringOutcome::Blocked]);
        (packets, interface.blocked_bytes().unwrap_or(0))
    }

    /// Returns the prefixes in the table, and the number of updates that the kernel refused.
    pub(super) fn counts(&self) -> (InstalledPrefixes, u64) {
        *lock(&self.state.written)
    }
}

/// Splits a list by class, as far as it fits, and counts the others. A blocked prefix is there with all allowed ones
/// within it, or not at all; if not all fit, the shortest are there.
fn fitting<A: Family>(list: &[(Prefix<A>, SourceClass)], capacity: usize) -> (Lists<A>, usize) {
    let is_blocked = |(_, class): &(Prefix<A>, SourceClass)| *class == SourceClass::Blocked;
    let mut groups: Vec<&[_]> = list.chunk_by(|_, next| !is_blocked(next)).collect();
    debug_assert!(groups.iter().all(|group| is_blocked(&group[0])));
    if list.len() > capacity {
        groups.sort_by_key(|group| group[0].0.len());
    }
    let mut room = capacity;
    let (mut lists, mut omitted) = (Lists::default(), 0);
    for group in groups {
        if group.len() > room {
            omitted += group.len();
            continue;
        }
        room -= group.len();
        for source in group {
            lists[if is_blocked(source) { BLOCKED } else { ALLOWED }].push(source.0);
        }
    }
    (lists, omitted)
}

/// Puts each requested list into force.
fn follow(requests: &Receiver<Request>, front: &Interface, state: &State) {
    while let Ok(Request { v4, v6, omitted, done }) = requests.recv() {
        let all = v4.iter().map(Vec::len).chain(v6.iter().map(Vec::len)).sum();
        let result = {
            let mut tables = lock(&state.tables);
            let result = put(&v4, &v6, all == 0, front, &mut tables);
            if result.is_err() {
                // After a failure the program drops nothing.
                if front.set_blocked(None).is_err()
                    && let Some(tables) = &mut *tables
                {
                    tables.replace(BLOCKED, &[], &[]);
                    let _ = tables.commit();
                }
                *tables = None;
            }
            result
        };
        let mut written = lock(&state.written);
        written.0 = match result {
            Ok(()) => InstalledPrefixes { installed: all, omitted },
            Err(error) => {
                log::error!("the workers alone drop packets of blocked sources: {error}");
                written.1 += 1;
                InstalledPrefixes { installed: 0, omitted: all + omitted }
            }
        };
        drop(written);
        let _ = done.send(());
    }
}

/// Brings the tables and the program to these lists.
fn put(
    v4: &Lists<u32>,
    v6: &Lists<u128>,
    are_empty: bool,
    front: &Interface,
    tables: &mut Option<ListTables>,
) -> Result<(), Box<dyn Error>> {
    if are_empty {
        if tables.is_some() {
            front.set_blocked(None)?;
            *tables = None;
        }
        return Ok(());
    }
    let is_new = tables.is_none();
    let tables = match tables {
        Some(tables) => tables,
        none => none.insert(ListTables::new()?),
    };
    for list in [ALLOWED, BLOCKED] {
        tables.replace(list, &v4[list], &v6[list]);
    }
    if tables.commit()? == Publication::Replaced || is_new {
        front.set_blocked(Some(Arc::new(BlockedLookup::new(tables))))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_beyond_capacity_is_there_in_part() {
        let mut rng = fastrand::Rng::with_seed(9);
        let mut short = 0;
        for _ in 0..500 {
            // Adjacent blocks of 4 to 16 addresses, with exceptions.
            let (mut list, mut at) = (Vec::new(), 0_u32);
            while at < 64 {
                let bits = rng.u32(2..5);
                at = (at + (1 << bits) - 1) & !((1 << bits) - 1);
                if at < 64 && rng.bool() {
                    list.push((Prefix::truncate(at, 32 - bits), SourceClass::Blocked));
                    let inner = (at..at + (1 << bits)).filter(|_| rng.u8(..4) == 0);
                    list.extend(inner.map(|at| (Prefix::truncate(at, 32), SourceClass::Allowed)));
                }
                at += 1 << bits;
            }
            let capacity = rng.usize(..30);
            let (lists, omitted) = fitting(&list, capacity);
            let there = lists[ALLOWED].len() + lists[BLOCKED].len();
            assert!(there <= capacity && there + omitted == list.len());
            assert!(omitted == 0 || list.len() > capacity);
            short += u32::from(omitted > 0);
            for &(prefix, class) in &list {
                let is_within = lists[BLOCKED].iter().any(|outer| outer.covers(prefix));
                let number = if class == SourceClass::Blocked { BLOCKED } else { ALLOWED };
                assert_eq!(lists[number].contains(&prefix), is_within, "{prefix}");
            }
        }
        assert!((50..450).contains(&short), "{short}");
    }
}
