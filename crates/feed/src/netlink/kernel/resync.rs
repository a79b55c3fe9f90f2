//! A resynchronization: dumps and events into one mirror, in the order in which they happened.
//!
//! A part of a dump is true at the time at which the kernel wrote it, which is earlier than the time
//! at which it is read: the kernel writes a part when the one before it is received (the first, when
//! the dump is requested), and it waits in the socket. An event is true at the time at which it
//! happened. So for each part the number of events read before it was written is recorded:
//!
//! ```text
//!   time ─────────────────────────────────────────────────────►
//!   part k     written ······ read
//!   events   a b   │   c  d    │    e f
//!                  └ mark: a and b are older than the part
//!   applied: a b (part k) c d …
//! ```
//!
//! Older events are applied before the part, whose routes of a prefix then replace theirs. The others
//! are applied after it. Some of those may have happened while the part was being written, a
//! millisecond or so, and be in it already; that does no harm, because an event carries a state and
//! not a difference. (Exception: IPv4 routes of one prefix and one metric, which `ip route append`
//! and `prepend` make. If one was replaced and then deleted within that millisecond, another may be
//! lost until the next resynchronization.)
//!
//! A dump that the kernel marks interrupted (`NLM_F_DUMP_INTR`: a change may have hidden an entry) is
//! requested again and added to the mirror: an entry is missed only if every pass missed it. The
//! kernel does not mark the dump of IPv6 routes, though it may skip a route for each that is deleted
//! before it (Linux 6.18 continues by counting); here it counts as interrupted if a deletion arrived.
//! Under continuous changes this could go on forever, so after some passes the dump is accepted, and
//! another resynchronization follows later.
//!
//! Limit: no dump of Linux 6.18 lists IPv6 routes of one prefix and metric that do not join (a
//! blackhole beside gateways) and stand between some that do. They are known from their events, and a
//! resynchronization loses them.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::counters::{KernelCounters, count_damage};
use crate::netlink::error::Error;
use crate::netlink::follower::NullFollower;
use crate::netlink::message::Messages;
use crate::netlink::mirror::{Mirror, Origin};
use crate::netlink::socket::{Received, Socket};
use crate::netlink::uapi::{
    AF_INET, AF_INET6, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, RTM_DELROUTE,
    RTM_GETADDR, RTM_GETLINK, RTM_GETNEIGH, RTM_GETNETCONF, RTM_GETNEXTHOP, RTM_GETROUTE,
    RTM_GETRULE,
};

/// The dumps in order: request, family, length of its header, and name. Objects that others refer
/// to come first.
const DUMPS: [(u16, u8, usize, &str); 9] = [
    (RTM_GETLINK, 0, 16, "a dump of links"),
    (RTM_GETNETCONF, AF_INET, 4, "a dump of the IPv4 netconf"),
    (RTM_GETNETCONF, AF_INET6, 4, "a dump of the IPv6 netconf"),
    (RTM_GETADDR, 0, 8, "a dump of addresses"),
    (RTM_GETRULE, 0, 12, "a dump of rules"),
    (RTM_GETNEXTHOP, 0, 8, "a dump of nexthop objects"),
    (RTM_GETNEIGH, 0, 12, "a dump of neighbors"),
    (RTM_GETROUTE, AF_INET, 12, "a dump of IPv4 routes"),
    (RTM_GETROUTE, AF_INET6, 12, "a dump of IPv6 routes"),
];

/// The maximum number of passes for an interrupted dump.
const MAX_PASSES: u32 = 5;
/// The maximum number of bytes of events that wait for a part of a dump.
const MAX_LOG: usize = 1 << 30;

/// The result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing was available.
    Idle,
    /// A part was read.
    Progress,
    /// Messages were lost: the resynchronization has to restart.
    Lost,
    /// Everything was read.
    Done,
}

/// A resynchronization in progress.
pub(super) struct Resync {
    mirror: Mirror,
    /// Events that have yet to be applied, as they were received.
    log: Vec<u8>,
    /// The bytes of the log from before the next part was written.
    mark: usize,
    /// The index of the current dump in [`DUMPS`], and of the end.
    at: usize,
    end: usize,
    sequence: u32,
    interrupted: bool,
    /// Whether an IPv6 route was deleted since the dump was requested.
    deleted_v6: bool,
    pass: u32,
    /// Whether an interrupted dump was accepted.
    pub(super) incomplete: bool,
    pub(super) began: Instant,
    /// The time spent receiving.
    pub(super) receiving: Duration,
}

impl Resync {
    /// Requests the first dump.
    pub(super) fn begin(dump: &mut Socket) -> Result<Self, Error> {
        let began = Instant::now();
        let (kind, family, header, _) = DUMPS[0];
        Ok(Self {
            mirror: Mirror::new(),
            log: Vec::new(),
            mark: 0,
            at: 0,
            end: DUMPS.len(),
            sequence: dump.dump(kind, family, header)?,
            interrupted: false,
            deleted_v6: false,
            pass: 1,
            incomplete: false,
            began,
            receiving: began.elapsed(),
        })
    }

    /// Skips the dumps of routes.
    pub(super) fn without_routes(mut self) -> Self {
        self.end = DUMPS.iter().position(|dump| dump.0 == RTM_GETROUTE).unwrap_or(self.end);
        self
    }

    /// Appends events to the log; returns `false` if it has become too long.
    pub(super) fn log_events(&mut self, received: &[u8]) -> bool {
        self.deleted_v6 |= Messages::new(received).flatten().any(|message| {
            message.kind == RTM_DELROUTE && message.payload.first() == Some(&AF_INET6)
        });
        self.log.extend_from_slice(received);
        // Messages begin at multiples of four bytes.
        self.log.resize(self.log.len().next_multiple_of(4), 0);
        self.log.len() <= MAX_LOG
    }

    /// Reads a part of a dump; returns the number of messages in it.
    pub(super) fn advance(
        &mut self,
        dump: &mut Socket,
        buffer: &mut Vec<u8>,
        counters: &mut KernelCounters,
    ) -> Result<(Step, usize), Error> {
        // When one part is received the kernel writes the next one.
        let next_mark = self.log.len();
        let before = Instant::now();
        let received = dump.receive(buffer)?;
        self.receiving += before.elapsed();
        let bytes = match received {
            Received::Nothing => return Ok((Step::Idle, 0)),
            Received::Lost => return Ok((Step::Lost, 0)),
            Received::Bytes(bytes) => bytes,
        };
        self.apply_log(self.mark);
        self.mark = next_mark - self.mark;
        let (mut count, mut done) = (0, false);
        for message in Messages::new(&buffer[..bytes]) {
            count += 1;
            let message = match message {
                Ok(message) if message.sequence != self.sequence => continue,
                Ok(message) => message,
                Err(damage) => {
                    // The start of the next message is unknown, and so is whether this was the end.
                    count_damage(counters, Err(damage));
                    return Ok((Step::Lost, count));
                }
            };
            self.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.kind {
                NLMSG_DONE | NLMSG_ERROR => {
                    done = true;
                    self.check_end(message.errno())?;
                }
                NLMSG_NOOP => {}
                _ => {
                    let applied = self.mirror.apply_from(&message, Origin::Dump, &mut NullFollower);
                    count_damage(counters, applied);
                }
            }
        }
        let step = if done { self.request_next(dump, counters)? } else { Step::Progress };
        Ok((step, count))
    }

    /// Applies the remaining events and returns the mirror.
    pub(super) fn into_mirror(mut self) -> Mirror {
        self.apply_log(self.log.len());
        self.mirror
    }

    fn apply_log(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        for message in Messages::new(&self.log[..bytes]).flatten() {
            // Damage was counted when the event was received.
            let _ = self.mirror.apply(&message, &mut NullFollower);
        }
        self.log.drain(..bytes);
    }

    /// Checks the result of a dump.
    fn check_end(&mut self, error: Option<Errno>) -> Result<(), Error> {
        let (kind, .., request) = DUMPS[self.at];
        match error {
            None => Ok(()),
            // A kernel before 5.3 has no nexthop objects, and one without sysctls no netconf.
            Some(Errno::EOPNOTSUPP | Errno::EINVAL)
                if matches!(kind, RTM_GETNEXTHOP | RTM_GETNETCONF) =>
            {
                Ok(())
            }
            Some(Errno::EINTR | Errno::EAGAIN) => {
                self.interrupted = true;
                Ok(())
            }
            Some(source) => Err(Error::Refused { request, source }),
        }
    }

    /// Requests the next dump, or the same one again.
    fn request_next(
        &mut self,
        dump: &mut Socket,
        counters: &mut KernelCounters,
    ) -> Result<Step, Error> {
        let (kind, family, ..) = DUMPS[self.at];
        self.interrupted |= self.deleted_v6 && (kind, family) == (RTM_GETROUTE, AF_INET6);
        if self.interrupted {
            counters.interrupted += 1;
        }
        if self.interrupted && self.pass < MAX_PASSES {
            self.pass += 1;
        } else {
            self.incomplete |= self.interrupted;
            self.pass = 1;
            self.at += 1;
        }
        self.interrupted = false;
        self.deleted_v6 = false;
        let rest = DUMPS.get(self.at..self.end);
        let Some(&(kind, family, header, _)) = rest.and_then(<[_]>::first) else {
            return Ok(Step::Done);
        };
        self.mark = self.log.len();
        self.mirror.begin_dump();
        self.sequence = dump.dump(kind, family, header)?;
        Ok(Step::Progress)
    }
}
