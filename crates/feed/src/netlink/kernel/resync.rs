//! A resynchronization: dumps and events into one mirror, in the order of what happened.
//!
//! What a dump says was true when the kernel wrote it down, which is not when it is read:
//! a part is written when the one before it is received (the first, when the dump is
//! asked for), and waits in the socket. An event says what was true when it happened. So
//! for each part it is kept how many events had been read before it was written:
//!
//! ```text
//!   time ─────────────────────────────────────────────────────►
//!   part k     written ······ read
//!   events   a b   │   c  d    │    e f
//!                  └ mark: a and b are older than the part
//!   applied: a b (part k) c d …
//! ```
//!
//! Older events are applied before it: what the part says of a prefix then takes the
//! place of what they have made of it. The others are applied after it. Of those some may
//! have happened while it was being written, a millisecond or so, and be in it already;
//! that does no harm, as an event says what is there and not what is different. (But for
//! IPv4 routes of one prefix and one metric, which `ip route append` and `prepend` make:
//! if one was replaced and then deleted within that millisecond, another may be lost until
//! the next resynchronization.)
//!
//! A dump that the kernel calls interrupted (`NLM_F_DUMP_INTR`: something changed that may
//! have hidden something else) is asked for again and added to what is there: an entry is
//! missed only if every pass missed it. That of IPv6 routes is not called so, though it
//! may skip a route for each that is deleted before it (Linux 6.18 goes on by counting);
//! it counts as interrupted if there was a deletion. Under changes without end that could go on
//! forever, so after some passes it is taken as it is, and another resynchronization
//! follows retry_at.
//!
//! What no dump of Linux 6.18 says: IPv6 routes of one prefix and metric that do not join
//! (a blackhole beside gateways) and stand between some that do. They are known from their
//! events, and lost by a resynchronization.

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

/// What is dumped, in order: the request, the family, the length of its header, and
/// what to call it. What others refer to comes first.
const DUMPS: [(u16, u8, usize, &str); 9] = [
    (RTM_GETLINK, 0, 16, "a dump of links"),
    (RTM_GETNETCONF, AF_INET, 4, "a dump of what is set for IPv4"),
    (RTM_GETNETCONF, AF_INET6, 4, "a dump of what is set for IPv6"),
    (RTM_GETADDR, 0, 8, "a dump of addresses"),
    (RTM_GETRULE, 0, 12, "a dump of rules"),
    (RTM_GETNEXTHOP, 0, 8, "a dump of nexthop objects"),
    (RTM_GETNEIGH, 0, 12, "a dump of neighbors"),
    (RTM_GETROUTE, AF_INET, 12, "a dump of IPv4 routes"),
    (RTM_GETROUTE, AF_INET6, 12, "a dump of IPv6 routes"),
];

/// How often an interrupted dump is asked for again.
const MAX_PASSES: u32 = 5;
/// How many bytes of events may wait for a part of a dump.
const MAX_LOG: usize = 1 << 30;

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There was nothing to read.
    Idle,
    /// Something was read.
    Progress,
    /// Something was lost: it has to begin again.
    Lost,
    /// Everything was read.
    Done,
}

/// A resynchronization that is going on.
pub(super) struct Resync {
    mirror: Mirror,
    /// Events that have yet to be applied, as they were received.
    log: Vec<u8>,
    /// How many bytes of the log were there before the part to be read was written.
    mark: usize,
    /// Which of [`DUMPS`], and where they end.
    at: usize,
    end: usize,
    sequence: u32,
    interrupted: bool,
    /// Whether an IPv6 route was deleted since the dump was asked for.
    deleted_v6: bool,
    pass: u32,
    /// Whether a dump was taken although it was interrupted.
    pub(super) incomplete: bool,
    pub(super) began: Instant,
    /// The time spent receiving.
    pub(super) receiving: Duration,
}

impl Resync {
    /// Asks for the first dump.
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

    /// Leaves the dumps of routes out.
    pub(super) fn without_routes(mut self) -> Self {
        self.end = DUMPS.iter().position(|dump| dump.0 == RTM_GETROUTE).unwrap_or(self.end);
        self
    }

    /// Keeps events; `false` if they have become too many.
    pub(super) fn log_events(&mut self, received: &[u8]) -> bool {
        self.deleted_v6 |= Messages::new(received).flatten().any(|message| {
            message.kind == RTM_DELROUTE && message.payload.first() == Some(&AF_INET6)
        });
        self.log.extend_from_slice(received);
        // Messages begin on multiples of four.
        self.log.resize(self.log.len().next_multiple_of(4), 0);
        self.log.len() <= MAX_LOG
    }

    /// Reads a part of a dump; returns how many messages that were.
    pub(super) fn advance(
        &mut self,
        dump: &mut Socket,
        buffer: &mut Vec<u8>,
        counters: &mut KernelCounters,
    ) -> Result<(Step, usize), Error> {
        // To receive one part is to have the next one written.
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
                    // Nothing tells where the next message begins, or whether that was
                    // the end.
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

    /// Applies what is left, and gives what has come of it.
    pub(super) fn into_mirror(mut self) -> Mirror {
        self.apply_log(self.log.len());
        self.mirror
    }

    fn apply_log(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        for message in Messages::new(&self.log[..bytes]).flatten() {
            // What is damaged was counted when it came.
            let _ = self.mirror.apply(&message, &mut NullFollower);
        }
        self.log.drain(..bytes);
    }

    /// Judges how a dump ended.
    fn check_end(&mut self, said: Option<Errno>) -> Result<(), Error> {
        let (kind, .., request) = DUMPS[self.at];
        match said {
            None => Ok(()),
            // A kernel before 5.3 knows no nexthop objects, and one without sysctls nothing
            // that is set.
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

    /// Asks for the next dump, or again for the same.
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
