//! The steering program: selects the packets for the router, and leaves the others to the host.
//!
//! It runs in the kernel on every packet that the interface receives and sends it to one of two
//! destinations: the AF_XDP socket of its queue, or the host's own stack, as if there were no
//! router. The host keeps every packet that the router would not forward anyway, so that ping, ssh,
//! ARP, neighbor discovery, routing daemons and ICMP errors work without code in the router:
//!
//! ```text
//! frame ─ to my MAC? ─ IPv4 or IPv6? ─ whole header? ─ TTL > 1? ─ unicast, not
//!   │         │              │               │             │      link-local? ─ not to
//!   │         ▼              ▼               ▼             ▼           │        me? ──► socket
//!   └──────► the host's stack, one counter for each reason ◄───────────┴──────────┘
//! ```
//!
//! - The MAC is an element of a map, so that a change takes effect between two packets; frames to
//!   the secondary MACs, those of MAC-VLAN devices over the interface, are taken as well. On a gate's
//!   front a unicast frame to any other MAC is dropped ([`EarlyDropConfig::fail_closed`]): the kernel
//!   would drop it too, but if the interface's MAC has just changed and is not known here yet, the
//!   kernel would forward it past the gate.
//! - Packets with TTL or hop limit 1 or less are passed, so that the kernel answers them with Time
//!   Exceeded (RFC 1812, 5.3.1); a router answers them itself and takes them.
//! - A packet with a VLAN tag belongs to a VLAN device over the interface. It is taken if the router
//!   serves that device (`vlan_tags.rs`), otherwise passed. Tags with only a priority are removed before
//!   all checks (`priority_tags.rs`).
//! - Checksums, total lengths, options and martian sources are *not* checked here: the router
//!   checks and counts those packets.
//! - If no socket is bound to the queue the packet is passed, so that none is lost between
//!   attaching the program and binding, or after a socket was closed. On a gate's interface the
//!   packet is dropped and counted instead ([`EarlyDropConfig::fail_closed`]): the host would
//!   forward it undecided.
//! - A packet that does not fit a frame of the sockets' memory is passed on a router's interface
//!   ([`Steering::for_router`], `frame_room.rs`).
//! - A queue whose worker has not received for 100 ms ([`STALL`]) while packets came is treated as
//!   if it had no socket (`heartbeat.rs`).
//! - Packets of sources that a gate blocks and of flows that it has declined are dropped, if the
//!   gate sets them (`blocked.rs`, `declined.rs`), and so are packets for the host with a
//!   source behind the gate (`protected.rs`); an observed interface drops none of them.
//! - A router's program may forward packets itself, in front of the sockets (`driver_path.rs`).
//! - Packets that it drops or forwards are copied for captures (`packet_copies.rs`).
//! - An observed interface passes and counts the packets that it would have taken: one flag, read
//!   last, switches between the two modes from one packet to the next.
//!
//! Its counters are one array per CPU, so that they cost an addition and lose no count: their sum
//! is the number of packets that the interface has received while the program was attached.
//!
//! `assemble.rs` assembles it, `outcome.rs` defines its counters.

mod assemble;
mod blocked;
mod declined;
mod driver_path;
mod extensions;
mod flow_key;
mod frame_room;
mod heartbeat;
mod ingress_filter;
mod outcome;
mod packet_copies;
mod prefix_set;
mod priority_tags;
mod protected;
mod vlan_tags;

pub use blocked::{BlockedSources, SourceExits};
pub use driver_path::{DriverPath, PathExits};
pub use extensions::Extensions;
pub use heartbeat::STALL;
pub use ingress_filter::{FILTER_LOOKUPS, FilterExits, IngressFilter};
pub use outcome::{SteeringCounters, SteeringOutcome};
pub use packet_copies::{
    COPY_SESSIONS, CopyConditions, CopyHook, CopyOccasion, MAX_COPY, PacketCopies, PacketCopy,
};
pub use prefix_set::SourcePrefix;
pub use vlan_tags::VlanTags;

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use super::bpf::asm::Helper;
use super::bpf::{Kind, LoadError, Map, Program};
use assemble::{
    COUNTS, FORWARDED_BYTES, FORWARDS_V4, FORWARDS_V6, OBSERVE_ONLY, ProgramMaps, Variant, assemble,
};
use declined::DeclinedFlows;
use frame_room::FrameRoom;
pub(super) use frame_room::joins_buffers;
use heartbeat::Heartbeat;
use protected::ProtectedPrefixes;
use vlan_tags::VLANS;

/// The maximum number of the host's own addresses of one family.
const LOCALS: u32 = 4096;

/// The maximum number of secondary MACs: those of 255 virtual routers of each family (RFC 9568, 7.3)
/// fit.
const SECONDARY_MACS: u32 = 512;

/// The host's own addresses, to which packets are passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locals {
    /// Those of IPv4.
    pub v4: HashSet<Ipv4Addr>,
    /// Those of IPv6; link-local ones are passed in any case.
    pub v6: HashSet<Ipv6Addr>,
}

impl FromIterator<IpAddr> for Locals {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let mut locals = Self::default();
        for address in addresses {
            match address {
                IpAddr::V4(address) => locals.v4.insert(address),
                IpAddr::V6(address) => locals.v6.insert(address),
            };
        }
        locals
    }
}

/// The capacity for drops on a gate's interface, for each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyDropConfig {
    /// The number of declined flows.
    pub flows: u32,
    /// The number of prefixes of protected sources, exceptions included.
    pub protected: u32,
    /// Whether packets that no socket takes are dropped; otherwise they are left to the host.
    pub fail_closed: bool,
}

/// The program of one interface, and its maps.
#[derive(Debug)]
pub struct Steering {
    program: RwLock<Arc<Program>>,
    variant: Variant,
    maps: ProgramMaps,
    locals: Mutex<Locals>,
    /// The current elements of `secondary_macs`.
    macs: Mutex<HashSet<[u8; 6]>>,
    /// The current elements of `vlans`.
    tags: Mutex<HashSet<VlanTags>>,
    /// The current value of `switches`.
    on: Mutex<u32>,
}

impl Steering {
    /// Creates the maps and loads the program for an interface with this MAC and this many queues;
    /// it is not attached yet.
    ///
    /// # Errors
    ///
    /// [`LoadError`] from the maps or the program.
    pub fn new(mac: [u8; 6], queues: u32, locals: &Locals) -> Result<Self, LoadError> {
        Self::load(mac, queues, locals, None, false)
    }

    /// The same for a router beside the host, which receives the packets that are too long for the sockets
    /// (from Linux 5.18 on); packets whose TTL is used up are the router's.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn for_router(mac: [u8; 6], queues: u32, locals: &Locals) -> Result<Self, LoadError> {
        Self::load(mac, queues, locals, None, true)
    }

    /// The same for a gate, with this capacity for drops.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn for_gate(
        mac: [u8; 6],
        queues: u32,
        locals: &Locals,
        early: EarlyDropConfig,
    ) -> Result<Self, LoadError> {
        Self::load(mac, queues, locals, Some(early), false)
    }

    fn load(
        mac: [u8; 6],
        queues: u32,
        locals: &Locals,
        guards: Option<EarlyDropConfig>,
        is_router: bool,
    ) -> Result<Self, LoadError> {
        let failed = |cause| LoadError { cause, log: String::new() };
        let mac_map = Map::array(Kind::Array, "fp_mac", 8, 1).map_err(failed)?;
        let secondary_macs =
            Map::new(Kind::Hash, "fp_macs", 8, 1, SECONDARY_MACS).map_err(failed)?;
        let vlans = guards.is_none().then(|| Map::new(Kind::Hash, "fp_vlans", 8, 1, VLANS));
        let vlans = vlans.transpose().map_err(failed)?;
        let sockets = Map::array(Kind::Xskmap, "fp_sockets", 4, queues).map_err(failed)?;
        let heartbeat = Heartbeat::new(queues).map_err(failed)?;
        let switches = Map::array(Kind::Array, "fp_switches", 4, 1).map_err(failed)?;
        let counts = Map::array(Kind::PercpuArray, "fp_steered", 8, COUNTS).map_err(failed)?;
        let v4 = Map::new(Kind::Hash, "fp_locals4", 4, 1, LOCALS).map_err(failed)?;
        let v6 = Map::new(Kind::Hash, "fp_locals6", 16, 1, LOCALS).map_err(failed)?;
        let EarlyDropConfig { flows, protected, fail_closed } = guards.unwrap_or_default();
        let blocked_bytes = Map::array(Kind::PercpuArray, "fp_blocked", 8, 1).map_err(failed)?;
        let declined =
            (flows > 0).then(|| DeclinedFlows::new(flows)).transpose().map_err(failed)?;
        let protected = (protected > 0)
            .then(|| ProtectedPrefixes::new(protected))
            .transpose()
            .map_err(failed)?;
        let room = is_router.then(FrameRoom::new).transpose().map_err(failed)?;
        let maps = ProgramMaps {
            mac: mac_map,
            secondary_macs,
            vlans,
            guards: guards.is_some(),
            fail_closed,
            sockets,
            heartbeat,
            switches,
            counts,
            locals: [v4, v6],
            blocked_bytes,
            declined,
            protected,
            room,
            passes_expiring: !is_router,
            // A kernel without ring buffers has no copies.
            copies: PacketCopies::new().ok().map(Arc::new),
        };
        // With all that a kernel may have; then without copies, without room for longer frames (both take helpers
        // of Linux 5.18), and with the exact clock in place of the coarse one (5.11).
        let newest = Variant {
            clock: Helper::KtimeCoarseNs,
            has_room: maps.room.is_some(),
            has_copies: maps.copies.is_some(),
            several_buffers: joins_buffers(),
        };
        let no_copies = Variant { has_copies: false, ..newest };
        let no_room = Variant { has_room: false, ..no_copies };
        let exact = Variant { clock: Helper::KtimeNs, ..no_room };
        let attempt = |variant| {
            load_program(&maps, variant, &Extensions::default()).map(|program| (program, variant))
        };
        let (program, variant) = attempt(newest)
            .or_else(|_| attempt(no_copies))
            .or_else(|_| attempt(no_room))
            .or_else(|_| attempt(exact))?;
        let steering = Self {
            program: RwLock::new(Arc::new(program)),
            variant,
            maps,
            locals: Mutex::default(),
            macs: Mutex::default(),
            tags: Mutex::default(),
            on: Mutex::default(),
        };
        steering.set_mac(mac).map_err(failed)?;
        steering.set_locals(locals).map_err(failed)?;
        Ok(steering)
    }

    /// Redirects packets to this MAC from now on, and to no other.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        let [m0, m1, m2, m3, m4, m5] = mac;
        self.maps.mac.set(0, &[m0, m1, m2, m3, m4, m5, 0, 0])
    }

    /// Takes frames to these MACs, too, from now on, and to no others but the interface's own.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `E2BIG` beyond 512 MACs. Changes before the error remain.
    pub fn set_secondary_macs(&self, macs: &[[u8; 6]]) -> io::Result<()> {
        let mut current = self.macs.lock().unwrap_or_else(PoisonError::into_inner);
        for old in current.clone().into_iter().filter(|mac| !macs.contains(mac)) {
            self.maps.secondary_macs.delete(&mac_key(old))?;
            current.remove(&old);
        }
        for &new in macs {
            if !current.contains(&new) {
                self.maps.secondary_macs.update(&mac_key(new), &[1])?;
                current.insert(new);
            }
        }
        Ok(())
    }

    /// Takes packets with these tags, too, from now on, and with no others. Has no effect on a gate's
    /// interface.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `E2BIG` beyond 16,384 VLAN devices. Changes before the error remain.
    pub fn set_vlans(&self, vlans: &[VlanTags]) -> io::Result<()> {
        let Some(map) = &self.maps.vlans else { return Ok(()) };
        let mut current = self.tags.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: HashSet<VlanTags> = vlans.iter().copied().collect();
        for old in current.clone().difference(&wanted) {
            map.delete(&old.key())?;
            current.remove(old);
        }
        for new in wanted.difference(&current.clone()) {
            map.update(&new.key(), &[1])?;
            current.insert(*new);
        }
        Ok(())
    }

    /// Replaces the host's own addresses. New ones are added before old ones are removed, so that
    /// an unchanged one is never missing.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `E2BIG` beyond 4096 addresses of a family. Changes before the error
    /// remain.
    pub fn set_locals(&self, locals: &Locals) -> io::Result<()> {
        let mut current = self.locals.lock().unwrap_or_else(PoisonError::into_inner);
        for new in locals.v4.difference(&current.v4.clone()) {
            self.maps.locals[0].update(&new.octets(), &[1])?;
            current.v4.insert(*new);
        }
        for new in locals.v6.difference(&current.v6.clone()) {
            self.maps.locals[1].update(&new.octets(), &[1])?;
            current.v6.insert(*new);
        }
        for old in current.v4.clone().difference(&locals.v4) {
            self.maps.locals[0].delete(&old.octets())?;
            current.v4.remove(old);
        }
        for old in current.v6.clone().difference(&locals.v6) {
            self.maps.locals[1].delete(&old.octets())?;
            current.v6.remove(old);
        }
        Ok(())
    }

    /// Drops packets of a flow until this time of the kernel's monotonic clock, in nanoseconds, or
    /// takes them again (`None`). Has no effect if the capacity for declined flows is 0.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`; `InvalidInput` if the addresses are of different families.
    pub fn decline(&self, src: IpAddr, dst: IpAddr, until: Option<u64>) -> io::Result<()> {
        match (&self.maps.declined, until) {
            (Some(declined), Some(until)) => declined.decline(src, dst, until),
            (Some(declined), None) => declined.readmit(src, dst).map(drop),
            (None, _) => Ok(()),
        }
    }

    /// Counts the bytes of dropped packets of declined flows.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn declined_bytes(&self) -> io::Result<u64> {
        self.maps.declined.as_ref().map_or(Ok(0), DeclinedFlows::bytes)
    }

    /// Counts the bytes of dropped packets of blocked sources.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn blocked_bytes(&self) -> io::Result<u64> {
        self.maps.blocked_bytes.counter(0)
    }

    /// Sets the prefixes behind the gate, and their exceptions (`drops` false): a packet for the
    /// host with a source behind the gate is dropped from now on. Has no effect if
    /// [`EarlyDropConfig::protected`] is 0.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `ENOSPC` beyond the capacity for prefixes. Entries before the error
    /// remain.
    pub fn set_protected(&self, list: &[SourcePrefix]) -> io::Result<()> {
        self.maps.protected.as_ref().map_or(Ok(()), |protected| protected.set(list))
    }

    /// Counts the bytes of packets of protected sources that were dropped.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn forged_bytes(&self) -> io::Result<u64> {
        self.maps.protected.as_ref().map_or(Ok(0), ProtectedPrefixes::bytes)
    }

    /// Observes only, from the next packet on, or takes packets again.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn observe(&self, only: bool) -> io::Result<()> {
        self.switch(OBSERVE_ONLY, only)
    }

    /// Returns whether packets of a family may take the driver's path.
    pub fn forwards_in_driver(&self) -> bool {
        *self.on.lock().unwrap_or_else(PoisonError::into_inner) & (FORWARDS_V4 | FORWARDS_V6) != 0
    }

    fn switch(&self, which: u32, on: bool) -> io::Result<()> {
        let mut now = self.on.lock().unwrap_or_else(PoisonError::into_inner);
        let then = if on { *now | which } else { *now & !which };
        self.maps.switches.set(0, &then.to_ne_bytes())?;
        *now = then;
        Ok(())
    }

    /// Returns whether packets are only observed.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn observes(&self) -> io::Result<bool> {
        let word = self.maps.switches.get(0)?.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(u32::from_ne_bytes(word) & OBSERVE_ONLY != 0)
    }

    /// Reads the counters, summed over the CPUs.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn counts(&self) -> io::Result<SteeringCounters> {
        let mut counts = SteeringCounters::default();
        for (reason, sum) in counts.0.iter_mut().enumerate() {
            for cpu in self.maps.counts.percpu(reason as u32)? {
                *sum += cpu.as_chunks::<8>().0.iter().map(|n| u64::from_ne_bytes(*n)).sum::<u64>();
            }
        }
        Ok(counts)
    }

    /// Reads one counter, summed over the CPUs.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn count(&self, which: SteeringOutcome) -> io::Result<u64> {
        self.maps.counts.counter(which as u32)
    }

    /// Counts the bytes of the frames that were forwarded in the driver.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn forwarded_bytes(&self) -> io::Result<u64> {
        self.maps.counts.counter(FORWARDED_BYTES)
    }

    /// Sets the time for which a worker may leave packets unread before the host receives them or
    /// they are dropped; `None` means forever. The default is [`STALL`].
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn set_stall(&self, limit: Option<Duration>) -> io::Result<()> {
        self.maps.heartbeat.set_limit(limit)
    }

    /// Records that the worker of a queue has received.
    #[inline]
    pub(super) fn beat(&self, queue: u32) {
        self.maps.heartbeat.beat(queue);
    }

    /// Returns whether frames that are too long for the sockets are passed to the host. If not, an
    /// interface may have no such frames.
    pub fn passes_long_frames(&self) -> bool {
        self.variant.has_room
    }

    /// Returns the sessions that get copies of packets, unless the kernel has not what they need (Linux 5.18).
    pub fn copies(&self) -> Option<&Arc<PacketCopies>> {
        self.maps.copies.as_ref().filter(|_| self.variant.has_copies)
    }

    /// Passes frames of more than `room` bytes to the host from now on.
    pub(super) fn set_room(&self, room: usize) -> io::Result<()> {
        self.maps.room.as_ref().map_or(Ok(()), |map| map.set(room as u32))
    }

    /// Returns the loaded program.
    pub fn program(&self) -> Arc<Program> {
        Arc::clone(&self.program.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Loads the program again, with these extensions. All maps stay, and their counts.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn load_with(&self, extensions: &Extensions) -> Result<Program, LoadError> {
        load_program(&self.maps, self.variant, extensions)
    }

    /// Sets the present program: one of [`load_with`](Self::load_with).
    pub fn set_program(&self, program: Program) {
        *self.program.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(program);
    }

    /// Lets packets of IPv4, and of IPv6, take the driver's path, if the program has one.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn forward_in_driver(&self, [v4, v6]: [bool; 2]) -> io::Result<()> {
        self.switch(FORWARDS_V4, v4)?;
        self.switch(FORWARDS_V6, v6)
    }

    /// Returns the map of sockets by queue.
    pub(super) fn sockets(&self) -> &Map {
        &self.maps.sockets
    }
}

/// Assembles and loads a program.
fn load_program(
    maps: &ProgramMaps,
    variant: Variant,
    extensions: &Extensions,
) -> Result<Program, LoadError> {
    let code = assemble(maps, variant, extensions)
        .unwrap_or_else(|error| unreachable!("the steering program is fixed: {error}"));
    if variant.several_buffers {
        Program::load_multi_buffer("fp_steer", &code)
    } else {
        Program::load("fp_steer", &code)
    }
}

/// Returns the key of a secondary MAC: the number that it is.
fn mac_key([m0, m1, m2, m3, m4, m5]: [u8; 6]) -> [u8; 8] {
    u64::from_be_bytes([0, 0, m0, m1, m2, m3, m4, m5]).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locals_are_split_by_family() {
        let text = ["192.0.2.1", "2001:db8::1", "192.0.2.1"];
        let locals: Locals = text.iter().map(|text| text.parse::<IpAddr>().unwrap()).collect();
        assert_eq!((locals.v4.len(), locals.v6.len()), (1, 1));
    }
}
