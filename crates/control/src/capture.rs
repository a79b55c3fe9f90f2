//! Streams captured packets to a client of the control socket, and returns the last drops.
//!
//! ```text
//!   conditions ─► a session in the recorder of each worker
//!              └► a session in the steering program of each interface (`driver_copies.rs`)
//!   recorders  ─► records, every POLL ─┐
//!   programs ───► ring ────────────────┴► in order of time ─► items ─► client
//! ```
//!
//! With `no_driver` the steering programs leave all packets to the workers while the session is open
//! (`driver_sync.rs`).
//!
//! A session is closed when its client disconnects or sends anything. Workers that a reload adds get
//! the session, too. A reload may give ports other numbers; a capture of one interface then ends
//! with an error.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::{CaptureConditions, CaptureState, Item};
use datapath::Verdict;
use datapath::capture::{Conditions, Filter, Position, Record, SESSIONS};
use datapath::stats::WorkerStats;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::driver_copies::DriverCopies;
use crate::handle::ControlHandle;
use crate::kernel_sync::KernelSync;
use crate::packet_names::PacketNames;
use crate::query::QueryHandle;
use crate::server::{ReplyWriter, RequestError};

/// The interval at which the rings of the workers are read.
const POLL: Duration = Duration::from_millis(5);
/// The longest interval between two states of a capture.
const STATE_INTERVAL: Duration = Duration::from_millis(100);
/// The interval at which the names of the ports are read again.
const NAMES_INTERVAL: Duration = Duration::from_secs(1);

/// The number of the last session: sessions are opened and closed while it is locked.
pub(crate) type SessionNumber = Arc<Mutex<u32>>;

/// A session in the recorders of all workers. Dropping it closes it.
struct Sessions<'n> {
    number: &'n SessionNumber,
    own: u32,
    conditions: Conditions,
    open: Vec<OpenSession>,
}

struct OpenSession {
    stats: Arc<WorkerStats>,
    slot: usize,
    position: Position,
}

impl Sessions<'_> {
    /// Opens the session at the workers that do not have it.
    fn open_for(&mut self, workers: &[Arc<WorkerStats>]) -> Result<(), String> {
        let Some(new @ [_, ..]) = workers.get(self.open.len()..) else { return Ok(()) };
        let _guard = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        for stats in new {
            let opened = stats.recorder().open(self.own, &self.conditions);
            let (slot, position) = opened
                .ok_or_else(|| format!("{SESSIONS} captures are running: end one of them first"))?;
            self.open.push(OpenSession { stats: Arc::clone(stats), slot, position });
        }
        Ok(())
    }

    /// Returns the records since the last call with their workers, and the number of lost ones.
    fn take(&mut self) -> (Vec<(Option<u32>, Record)>, u64) {
        let (mut all, mut lost) = (Vec::new(), 0);
        for (OpenSession { stats, position, .. }, worker) in self.open.iter_mut().zip(0..) {
            let Some(read) = stats.recorder().live(*position) else { continue };
            *position = read.position;
            lost += read.lost;
            let own = read.records.into_iter().filter(|record| record.session == self.own);
            all.extend(own.map(|record| (Some(worker), record)));
        }
        (all, lost)
    }
}

impl Drop for Sessions<'_> {
    fn drop(&mut self) {
        let _guard = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        self.open.iter().for_each(|OpenSession { stats, slot, .. }| stats.recorder().close(*slot));
    }
}

/// Lets the workers forward what would be forwarded in the driver. Dropping it ends that.
struct DriverPause<'c>(&'c ControlHandle<KernelSync>);

impl<'c> DriverPause<'c> {
    fn begin(control: &'c ControlHandle<KernelSync>) -> Self {
        control.call(|sync| sync.pause_driver(true));
        Self(control)
    }
}

impl Drop for DriverPause<'_> {
    fn drop(&mut self) {
        self.0.call(|sync| sync.pause_driver(false));
    }
}

/// Returns the names of the interfaces whose packets are forwarded in the driver, and not captured.
fn in_driver(query: &QueryHandle, copies: &DriverCopies) -> Vec<String> {
    let interfaces = query.view.interfaces();
    let forwarding = interfaces.iter().filter(|interface| interface.forwards_in_driver());
    let missing = forwarding.filter(|interface| !copies.has(interface));
    missing.map(|interface| interface.name()).collect()
}

fn read_names(query: &QueryHandle) -> Option<PacketNames> {
    query.control.call(|sync| PacketNames::of(&sync.plane))
}

fn no_answer() -> RequestError {
    RequestError::Failed("the control thread does not answer".to_owned())
}

/// Checks the conditions of a client.
fn check(conditions: &CaptureConditions, names: &PacketNames) -> Result<Conditions, String> {
    let CaptureConditions { arrivals, verdicts, interface, one_in, snap, filter, no_driver: _ } =
        conditions;
    let verdicts = verdicts
        .iter()
        .map(|name| Verdict::with_name(name).ok_or_else(|| format!("{name:?} is no verdict")));
    let port = interface.as_ref().map(|name| {
        names.number(name).ok_or_else(|| {
            let known: Vec<_> = names.ports().collect();
            format!("{name:?} is no interface of the workers; these are: {}", known.join(", "))
        })
    });
    if *one_in == 0 {
        return Err("one packet in 0: at least 1".to_owned());
    }
    Ok(Conditions {
        arrivals: *arrivals,
        verdicts: verdicts.collect::<Result<_, _>>()?,
        port: port.transpose()?,
        one_in: *one_in,
        seed: fastrand::u64(..),
        snap: *snap,
        filter: Filter::new(filter).map_err(|error| error.to_string())?,
    })
}

/// Streams packets to a client until it disconnects or sends anything.
pub(crate) fn stream(
    query: &QueryHandle,
    number: &SessionNumber,
    wanted: &CaptureConditions,
    client: &UnixStream,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), RequestError> {
    let mut names = read_names(query).ok_or_else(no_answer)?;
    let conditions = check(wanted, &names).map_err(RequestError::Failed)?;
    let port = conditions.port;
    let own = {
        let mut last = number.lock().unwrap_or_else(PoisonError::into_inner);
        // 0 is no session.
        *last = last.wrapping_add(1).max(1);
        *last
    };
    let mut sessions = Sessions { number, own, conditions, open: Vec::new() };
    sessions.open_for(&query.view.counting()).map_err(RequestError::Failed)?;
    let _pause = wanted.no_driver.then(|| DriverPause::begin(&query.control));
    // Closed before the sessions of the workers: they are as many, and another capture gets both or none.
    let copies =
        DriverCopies::begin(&query.control, own, &sessions.conditions, &query.view.interfaces());
    let mut copies = copies.map_err(RequestError::Failed)?;
    let mut state = CaptureState { lost: 0, in_driver: in_driver(query, &copies) };
    let mut lost_by_workers = 0;
    reply.item(Item::Capture(state.clone()))?;
    reply.flush()?;
    let mut state_sent = Instant::now();
    let mut names_read = Instant::now();
    loop {
        let (mut records, lost) = sessions.take();
        records.extend(copies.take(&names).into_iter().map(|record| (None, record)));
        // Stable: a packet arrives before it ends.
        records.sort_by_key(|(_, record)| record.time);
        lost_by_workers += lost;
        state.lost = lost_by_workers + copies.lost();
        for (worker, record) in &records {
            reply.item(Item::Packet(names.packet(*worker, record)))?;
        }
        if !records.is_empty() || state_sent.elapsed() >= STATE_INTERVAL {
            reply.item(Item::Capture(state.clone()))?;
            reply.flush()?;
            state_sent = Instant::now();
        }
        if names_read.elapsed() >= NAMES_INTERVAL {
            names = read_names(query).ok_or_else(no_answer)?;
            names_read = Instant::now();
            state.in_driver = in_driver(query, &copies);
            if let (Some(name), Some(port)) = (&wanted.interface, port)
                && names.number(name) != Some(port)
            {
                let reason =
                    format!("the interfaces have changed: start the capture of {name} again");
                return Err(RequestError::Failed(reason));
            }
            sessions.open_for(&query.view.counting()).map_err(RequestError::Failed)?;
            copies.follow(&query.view.interfaces()).map_err(RequestError::Failed)?;
        }
        let mut readable = [PollFd::new(client.as_fd(), PollFlags::POLLIN)];
        if poll(&mut readable, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
            return Ok(());
        }
        if records.is_empty() {
            std::thread::sleep(POLL);
        }
    }
}

/// Returns a state, as before the packets of a capture, and the last dropped packets of each verdict, in
/// order of time.
pub(crate) fn last_drops(query: &QueryHandle) -> Result<Vec<Item>, String> {
    let names = read_names(query).ok_or("the control thread does not answer")?;
    let workers = query.view.counting();
    let each = workers.iter().zip(0..).flat_map(|(stats, worker)| {
        let drops = stats.recorder().last_drops().into_iter();
        drops.map(move |record| (worker, record))
    });
    let mut all: Vec<_> = each.collect();
    all.sort_by_key(|(_, record)| record.time);
    let packets = all.iter().map(|(worker, record)| names.packet(Some(*worker), record));
    let state = Item::Capture(CaptureState::default());
    Ok(std::iter::once(state).chain(packets.map(Item::Packet)).collect())
}
