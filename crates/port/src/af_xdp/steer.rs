//! The steering program: which packets are the router's and which the host's.
//!
//! It runs in the kernel on every packet that the interface receives and sends
//! it one of two ways: into the AF_XDP socket of its queue, or on to the host's
//! own stack, as if no router were there. The rule is that the host keeps
//! whatever the router would not forward anyway, so that ping, ssh, ARP,
//! neighbour discovery, routing daemons and ICMP errors work without a line of
//! ours:
//!
//! ```text
//! frame ─ to my MAC? ─ IPv4 or IPv6? ─ whole header? ─ TTL > 1? ─ unicast, not
//!   │         │              │               │             │      link-local? ─ not to
//!   │         ▼              ▼               ▼             ▼           │        me? ──► socket
//!   └──────► the host's stack, one counter for each reason ◄───────────┴──────────┘
//! ```
//!
//! - Packets with TTL or hop limit 1 or less are passed, so that the kernel
//!   answers them with Time Exceeded (RFC 1812 section 5.3.1).
//! - What has a VLAN tag is passed: a tagged packet belongs to a VLAN interface
//!   of the host, not to this one.
//! - Checksums, total lengths, options and martian sources are *not* looked at
//!   here: those packets are the router's to judge and to count.
//! - Where no socket is bound to the queue the packet is passed, so nothing is
//!   lost between attaching the program and binding, or after a socket is gone.
//! - Packets of flows that a gate has declined are dropped, where it says which
//!   (`declined.rs`); an interface that is only observed drops nothing.
//! - An interface that is only observed passes what it would have taken, and
//!   counts it: one flag, looked at last, turns it from one to the other between
//!   two packets.
//!
//! Its counters are an array a CPU, so that they cost an addition and lose
//! none: the sum over all is the number of packets the interface received while
//! the program was on it.
//!
//! Registers: r9 the context, r6 the frame's first byte, r7 its end; then r8
//! the action to return and r7 the counter.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Index;
use std::sync::{Mutex, PoisonError};

use super::bpf::asm::context;
use super::bpf::asm::{Action, Assembler, BadCode, Code, Cond, Helper, Label, Op, Reg, Size};
use super::bpf::{Kind, LoadError, Map, Program};
use super::declined::Declined;
use Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};

/// Addresses of one family that can be the host's own.
const LOCALS: u32 = 4096;

/// Where in the frame things are: Ethernet is 14 bytes long.
const ETHERTYPE: i16 = 12;
const V4_VERSION: i16 = 14;
const V4_TTL: i16 = 14 + 8;
const V4_DESTINATION: i16 = 14 + 16;
const V4_END: i32 = 14 + 20;
const V6_VERSION: i16 = 14;
const V6_HOP_LIMIT: i16 = 14 + 7;
const V6_DESTINATION: i16 = 14 + 24;
const V6_END: i32 = 14 + 40;

/// What became of a packet: taken, dropped, or passed to the host and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Steered {
    /// Into the socket.
    Taken,
    /// Passed: shorter than an Ethernet header.
    Short,
    /// Passed: to a multicast or broadcast MAC (ARP requests, neighbour
    /// solicitations, routing protocols).
    Group,
    /// Passed: to another's MAC.
    NotMine,
    /// Passed: has a VLAN tag.
    Tagged,
    /// Passed: ARP.
    Arp,
    /// Passed: neither IPv4 nor IPv6.
    NotIp,
    /// Passed: the IP header is cut short or its version or length is wrong.
    Unparsed,
    /// Passed: TTL or hop limit is 1 or 0.
    Expiring,
    /// Passed: to a multicast or the broadcast address.
    Multicast,
    /// Passed: to a link-local address.
    LinkLocal,
    /// Passed: to an address of the host.
    Local,
    /// Passed: the router's, but the interface is only observed.
    Observed,
    /// Dropped: of a flow that a gate has declined.
    Declined,
    /// Passed: the router's, but no socket has the queue.
    NoSocket,
}

impl Steered {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 15] = [
        Self::Taken,
        Self::Short,
        Self::Group,
        Self::NotMine,
        Self::Tagged,
        Self::Arp,
        Self::NotIp,
        Self::Unparsed,
        Self::Expiring,
        Self::Multicast,
        Self::LinkLocal,
        Self::Local,
        Self::Observed,
        Self::Declined,
        Self::NoSocket,
    ];

    /// Returns the name its counter goes by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Short => "short",
            Self::Group => "group_mac",
            Self::NotMine => "other_mac",
            Self::Tagged => "tagged",
            Self::Arp => "arp",
            Self::NotIp => "not_ip",
            Self::Unparsed => "unparsed",
            Self::Expiring => "expiring",
            Self::Multicast => "multicast",
            Self::LinkLocal => "link_local",
            Self::Local => "local",
            Self::Observed => "observed",
            Self::Declined => "declined",
            Self::NoSocket => "no_socket",
        }
    }
}

/// One count for each [`Steered`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; Steered::ALL.len()]);

impl Counts {
    /// Returns the packets left to the host, whatever the reason.
    pub fn passed(&self) -> u64 {
        self.0[1..].iter().sum::<u64>() - self[Steered::Declined]
    }

    /// Returns each with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Steered, u64)> + '_ {
        Steered::ALL.into_iter().zip(self.0)
    }
}

impl Index<Steered> for Counts {
    type Output = u64;

    fn index(&self, which: Steered) -> &u64 {
        &self.0[which as usize]
    }
}

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

/// The program of one interface and the maps it works with.
#[derive(Debug)]
pub struct Steering {
    program: Program,
    sockets: Map,
    /// One word: not zero while the interface is only observed.
    observe: Map,
    counts: Map,
    v4: Map,
    v6: Map,
    declined: Option<Declined>,
    locals: Mutex<Locals>,
}

impl Steering {
    /// Makes the maps and loads the program for an interface with this MAC and
    /// this many queues; it is not attached to anything yet.
    ///
    /// # Errors
    ///
    /// [`LoadError`] from the maps or the program.
    pub fn new(mac: [u8; 6], queues: u32, locals: &Locals) -> Result<Self, LoadError> {
        Self::declining(mac, queues, locals, 0)
    }

    /// Does so for a gate, which declines at most so many flows of each family here; 0: none.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn declining(
        mac: [u8; 6],
        queues: u32,
        locals: &Locals,
        flows: u32,
    ) -> Result<Self, LoadError> {
        let failed = |cause| LoadError { cause, log: String::new() };
        let sockets = Map::array(Kind::Xskmap, "fp_sockets", 4, queues).map_err(failed)?;
        let observe = Map::array(Kind::Array, "fp_observe", 4, 1).map_err(failed)?;
        let reasons = Steered::ALL.len() as u32;
        let counts = Map::array(Kind::PercpuArray, "fp_steered", 8, reasons).map_err(failed)?;
        let v4 = Map::new(Kind::Hash, "fp_locals4", 4, 1, LOCALS).map_err(failed)?;
        let v6 = Map::new(Kind::Hash, "fp_locals6", 16, 1, LOCALS).map_err(failed)?;
        let declined = (flows > 0).then(|| Declined::new(flows)).transpose().map_err(failed)?;
        let code = assemble(mac, &sockets, &observe, &counts, [&v4, &v6], declined.as_ref())
            .unwrap_or_else(|error| unreachable!("the steering program is fixed: {error}"));
        let program = Program::load("fp_steer", &code)?;
        let none = Mutex::new(Locals::default());
        let steering = Self { program, sockets, observe, counts, v4, v6, declined, locals: none };
        steering.set_locals(locals).map_err(failed)?;
        Ok(steering)
    }

    /// Replaces the host's own addresses. New ones are added before old ones
    /// go, so that one that stays is never missed.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `E2BIG` beyond 4096 addresses of a family. What had
    /// been done by then stays.
    pub fn set_locals(&self, locals: &Locals) -> io::Result<()> {
        let mut current = self.locals.lock().unwrap_or_else(PoisonError::into_inner);
        for new in locals.v4.difference(&current.v4.clone()) {
            self.v4.update(&new.octets(), &[1])?;
            current.v4.insert(*new);
        }
        for new in locals.v6.difference(&current.v6.clone()) {
            self.v6.update(&new.octets(), &[1])?;
            current.v6.insert(*new);
        }
        for old in current.v4.clone().difference(&locals.v4) {
            self.v4.delete(&old.octets())?;
            current.v4.remove(old);
        }
        for old in current.v6.clone().difference(&locals.v6) {
            self.v6.delete(&old.octets())?;
            current.v6.remove(old);
        }
        Ok(())
    }

    /// Drops packets of a flow until this moment of the kernel's monotonic clock, in
    /// nanoseconds, or takes them again (`None`); where no flows can be declined nothing
    /// happens.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`; `InvalidInput` if the addresses are of different families.
    pub fn decline(&self, src: IpAddr, dst: IpAddr, until: Option<u64>) -> io::Result<()> {
        match (&self.declined, until) {
            (Some(declined), Some(until)) => declined.decline(src, dst, until),
            (Some(declined), None) => declined.forgive(src, dst).map(drop),
            (None, _) => Ok(()),
        }
    }

    /// Counts the bytes of dropped packets of declined flows.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn declined_bytes(&self) -> io::Result<u64> {
        self.declined.as_ref().map_or(Ok(0), Declined::bytes)
    }

    /// Only observes from the next packet on, or takes packets again.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn observe(&self, only: bool) -> io::Result<()> {
        self.observe.set(0, &u32::from(only).to_ne_bytes())
    }

    /// Says whether packets are only observed.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn observes(&self) -> io::Result<bool> {
        Ok(self.observe.get(0)?.iter().any(|&byte| byte != 0))
    }

    /// Reads the counters, summed over the CPUs.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn counts(&self) -> io::Result<Counts> {
        let mut counts = Counts::default();
        for (reason, sum) in counts.0.iter_mut().enumerate() {
            for cpu in self.counts.percpu(reason as u32)? {
                *sum += cpu.as_chunks::<8>().0.iter().map(|n| u64::from_ne_bytes(*n)).sum::<u64>();
            }
        }
        Ok(counts)
    }

    /// Returns the loaded program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the map of sockets by queue.
    pub(super) fn sockets(&self) -> &Map {
        &self.sockets
    }
}

/// The bytes of a packet as a load into a register shows them.
fn half(bytes: [u8; 2]) -> i32 {
    i32::from(u16::from_ne_bytes(bytes))
}

fn word(bytes: [u8; 4]) -> i32 {
    i32::from_ne_bytes(bytes)
}

/// Writes the program down.
fn assemble<'m>(
    mac: [u8; 6],
    sockets: &'m Map,
    observe: &'m Map,
    counts: &'m Map,
    [v4, v6]: [&'m Map; 2],
    declined: Option<&'m Declined>,
) -> Result<Code<'m>, BadCode> {
    let mut asm = Assembler::new();
    let exits = Steered::ALL.map(|why| (why, asm.label()));
    let to = |why: Steered| exits[why as usize].1;

    // Ethernet.
    asm.mov(R9, R1)
        .load(Size::Word, R6, R9, context::DATA)
        .load(Size::Word, R7, R9, context::DATA_END)
        .mov(R2, R6)
        .add(R2, 14)
        .jump_if(Cond::Gt, R2, R7, to(Steered::Short));
    let [m0, m1, m2, m3, m4, m5] = mac;
    let not_mine = asm.label();
    asm.load(Size::Word, R2, R6, 0)
        .jump_if32(Cond::Ne, R2, word([m0, m1, m2, m3]), not_mine)
        .load(Size::Half, R2, R6, 4)
        .jump_if32(Cond::Ne, R2, half([m4, m5]), not_mine);
    let (ipv4, ipv6, redirect) = (asm.label(), asm.label(), asm.label());
    asm.load(Size::Half, R2, R6, ETHERTYPE)
        .jump_if32(Cond::Eq, R2, half([0x08, 0x00]), ipv4)
        .jump_if32(Cond::Eq, R2, half([0x86, 0xdd]), ipv6)
        .jump_if32(Cond::Eq, R2, half([0x08, 0x06]), to(Steered::Arp))
        // 802.1Q, 802.1ad, and what some sent before there was 802.1ad.
        .jump_if32(Cond::Eq, R2, half([0x81, 0x00]), to(Steered::Tagged))
        .jump_if32(Cond::Eq, R2, half([0x88, 0xa8]), to(Steered::Tagged))
        .jump_if32(Cond::Eq, R2, half([0x91, 0x00]), to(Steered::Tagged))
        .jump(to(Steered::NotIp));
    asm.bind(not_mine)
        .load(Size::Byte, R2, R6, 0)
        .jump_if32(Cond::Set, R2, 1, to(Steered::Group))
        .jump(to(Steered::NotMine));

    asm.bind(ipv4);
    steer_v4(&mut asm, v4, to);
    if declined.is_some() {
        Declined::keep_v4(&mut asm);
    }
    asm.jump(redirect);
    asm.bind(ipv6);
    steer_v6(&mut asm, v6, to);
    if declined.is_some() {
        Declined::keep_v6(&mut asm);
    }
    asm.jump(redirect);

    // The socket of this queue, or the host where there is none, or all are its own.
    let take = asm.label();
    asm.bind(redirect)
        .op32(Op::Mov, R2, 0)
        .store(Size::Word, R10, -4, R2)
        .load_map(R1, observe)
        .mov(R2, R10)
        .add(R2, -4)
        .call(Helper::MapLookup)
        .jump_if(Cond::Eq, R0, 0, take)
        .load(Size::Word, R2, R0, 0)
        .jump_if32(Cond::Ne, R2, 0, to(Steered::Observed))
        .bind(take);
    if let Some(declined) = declined {
        declined.ask(&mut asm, to(Steered::Declined));
    }
    asm.load_map(R1, sockets)
        .load(Size::Word, R2, R9, context::RX_QUEUE_INDEX)
        .op32(Op::Mov, R3, Action::Pass as i32)
        .call(Helper::RedirectMap)
        .jump_if32(Cond::Eq, R0, Action::Redirect as i32, to(Steered::Taken));
    // Falls through to `NoSocket`, which is why that one stands first here.
    let count = asm.label();
    // The verifier takes no code that nothing leads to.
    let there = |why| why != Steered::Declined || declined.is_some();
    for (why, label) in exits.into_iter().rev().filter(|(why, _)| there(*why)) {
        let action = match why {
            Steered::Taken => Action::Redirect,
            Steered::Declined => Action::Drop,
            _ => Action::Pass,
        };
        asm.bind(label).op32(Op::Mov, R8, action as i32).op32(Op::Mov, R7, why as i32).jump(count);
    }
    let end = asm.label();
    // A key a counter, and no arithmetic on the pointer: that would take
    // CAP_PERFMON to load.
    asm.bind(count)
        .store(Size::Word, R10, -4, R7)
        .load_map(R1, counts)
        .mov(R2, R10)
        .add(R2, -4)
        .call(Helper::MapLookup)
        .jump_if(Cond::Eq, R0, 0, end)
        .load(Size::Double, R1, R0, 0)
        .add(R1, 1)
        .store(Size::Double, R0, 0, R1)
        .bind(end)
        .mov(R0, R8)
        .exit();
    asm.finish()
}

fn steer_v4<'m>(asm: &mut Assembler<'m>, locals: &'m Map, to: impl Fn(Steered) -> Label) {
    asm.mov(R2, R6)
        .add(R2, V4_END)
        .jump_if(Cond::Gt, R2, R7, to(Steered::Unparsed))
        // Version 4 and a header of at least 5 words.
        .load(Size::Byte, R2, R6, V4_VERSION)
        .jump_if32(Cond::Lt, R2, 0x45, to(Steered::Unparsed))
        .jump_if32(Cond::Gt, R2, 0x4f, to(Steered::Unparsed))
        .load(Size::Byte, R2, R6, V4_TTL)
        .jump_if32(Cond::Le, R2, 1, to(Steered::Expiring))
        .load(Size::Byte, R2, R6, V4_DESTINATION)
        .op32(Op::And, R2, 0xf0)
        .jump_if32(Cond::Eq, R2, 0xe0, to(Steered::Multicast))
        .load(Size::Half, R2, R6, V4_DESTINATION)
        .jump_if32(Cond::Eq, R2, half([169, 254]), to(Steered::LinkLocal))
        .load(Size::Word, R2, R6, V4_DESTINATION)
        .jump_if32(Cond::Eq, R2, word([255; 4]), to(Steered::Multicast))
        .store(Size::Word, R10, -4, R2)
        .load_map(R1, locals)
        .mov(R2, R10)
        .add(R2, -4)
        .call(Helper::MapLookup)
        .jump_if(Cond::Ne, R0, 0, to(Steered::Local));
}

fn steer_v6<'m>(asm: &mut Assembler<'m>, locals: &'m Map, to: impl Fn(Steered) -> Label) {
    asm.mov(R2, R6)
        .add(R2, V6_END)
        .jump_if(Cond::Gt, R2, R7, to(Steered::Unparsed))
        .load(Size::Byte, R2, R6, V6_VERSION)
        .op32(Op::And, R2, 0xf0)
        .jump_if32(Cond::Ne, R2, 0x60, to(Steered::Unparsed))
        .load(Size::Byte, R2, R6, V6_HOP_LIMIT)
        .jump_if32(Cond::Le, R2, 1, to(Steered::Expiring))
        .load(Size::Byte, R2, R6, V6_DESTINATION)
        .jump_if32(Cond::Eq, R2, 0xff, to(Steered::Multicast))
        .load(Size::Half, R2, R6, V6_DESTINATION)
        .op32(Op::And, R2, half([0xff, 0xc0]))
        .jump_if32(Cond::Eq, R2, half([0xfe, 0x80]), to(Steered::LinkLocal))
        .load(Size::Double, R2, R6, V6_DESTINATION)
        .store(Size::Double, R10, -16, R2)
        .load(Size::Double, R2, R6, V6_DESTINATION + 8)
        .store(Size::Double, R10, -8, R2)
        .load_map(R1, locals)
        .mov(R2, R10)
        .add(R2, -16)
        .call(Helper::MapLookup)
        .jump_if(Cond::Ne, R0, 0, to(Steered::Local));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_one_counter_and_one_name() {
        let names: HashSet<&str> = Steered::ALL.map(Steered::name).into_iter().collect();
        assert_eq!(names.len(), Steered::ALL.len());
        for (n, which) in Steered::ALL.into_iter().enumerate() {
            assert_eq!(which as usize, n, "{which:?}");
        }
        let counts = Counts(std::array::from_fn(|n| 1 << n));
        assert_eq!(counts[Steered::Taken], 1);
        assert_eq!(counts[Steered::Short], 2);
        let dropped = 1 << Steered::Declined as u32;
        assert_eq!(counts.passed(), (1 << Steered::ALL.len()) - 2 - dropped);
    }

    #[test]
    fn locals_are_sorted_by_family() {
        let text = ["192.0.2.1", "2001:db8::1", "192.0.2.1"];
        let locals: Locals = text.iter().map(|text| text.parse::<IpAddr>().unwrap()).collect();
        assert_eq!((locals.v4.len(), locals.v6.len()), (1, 1));
    }
}
