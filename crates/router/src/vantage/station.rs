//! A worker's station: its gate and its share of the link, between its ports.
//!
//! ```text
//!   sift   parse ─► flow, hash ─► Gate::process, a batch ─► verdicts
//!            request, granted, back ─► kept, by number ─► Link
//!            front, not for us ─────► stays in the batch
//!            the rest ──────────────► dropped, counted
//!   next   ICMP first, then in turn cookies and what the Link lets go
//! ```
//!
//! Time is read once a turn. The worker's link is its share of the configured bandwidth;
//! what its queues have no place for is counted as `low_priority` where it was a request,
//! and as `link_full` else.
//!
//! **The hash** of a flow is taken here, under a key that all workers share. A card with
//! several queues has to bring both packets of a pair to one queue whatever their ports,
//! since nothing of a flow is shared between workers: see docs/guide/gate.md.
//!
//! Packets from the back network are routed like any others; where TCP is to be held to what fits
//! the tunnel, the SYNs among them are looked at, because what a server announces is
//! what its client will send through the tunnel.

use std::sync::{Arc, Mutex, PoisonError};

use fib::Reader;
use gate::admission::Terms;
use gate::cookie::{self, Secret};
use gate::decision::{Item, Say};
use gate::flow::{Flow, Key as HashKey, Pair};
use gate::gate::{Gate, Packet, Reason, Verdict as Judged};
use gate::limit::link::{self, Leaving as Left, Link};
use gate::limit::red::Parameters;
use gate::policy::{Address, Policy};
use gate::program::Programs;
use gate::state::Decision;
use port::{Arena, Frame};
use wire::tunnel::{Ends as TunnelEnds, Header, Ports};
use wire::{ethernet, ipv4, ipv6, mss, udp};

use super::config::{Admission, BACK, FRONT, Fixed};
use super::cookie::Asker;
use super::kept::{Kept, To, Waits};
use super::last::Last;
use super::reply::Replies;
use super::retained::{self, Retained};
use super::rings::{Answer, Early, Ends, Known, Question};
use super::sampler::Sampler;
use super::tally::{Sight, Tally};
use crate::datapath::{
    self, Key, Leaving, Parsed, SIZE, Sifting, Verdict, Way, parse, source_v4, source_v6,
};
use crate::stats::WorkerStats;

/// Places for packets that pass without a grantor.
const OPERATIONAL: usize = 256;
/// Queues of granted packets.
const QUEUES: usize = 64;
/// What is done beside packets in a turn, in entries of the table.
const WORK: u32 = 256;
/// Decisions that are taken in a turn.
const DECISIONS: usize = 4096;
/// The outer TTL and hop limit (RFC 2003, 3.1; RFC 2473, 6.3).
const HOPS: u8 = 64;

/// What a station is made from.
pub struct Setup<'a> {
    /// The configuration.
    pub fixed: &'a Fixed,
    /// How many workers share the link.
    pub workers: usize,
    /// Where tunnels over IPv4 begin; 0 where no grantor is reached so.
    pub from4: u32,
    /// The same for IPv6.
    pub from6: u128,
    /// This machine's addresses on the front interface, which ICMP errors come from.
    pub front4: Option<u32>,
    /// The same for IPv6.
    pub front6: Option<u128>,
    /// The longest packet of a tunnel, as far as it is known at the start.
    pub mtu: u16,
    /// The longest outer header, in bytes.
    pub overhead: u16,
    /// What flows are hashed with.
    pub key: HashKey,
    /// What cannot be guessed, for the queues.
    pub seed: u64,
    /// What cookies are made with, the same for all workers.
    pub secret: Secret,
    /// The policy.
    pub policy: Reader<Policy>,
    /// The flow programs.
    pub programs: Reader<Programs>,
    /// Its ends of the rings.
    pub ends: Ends,
    /// Where it shows its numbers.
    pub tally: Arc<Tally>,
    /// Flows that are known from before.
    pub retained: Vec<Retained>,
    /// Where its flows are left in the end, with the worker's number.
    pub leave: Option<(u32, Arc<Mutex<Vec<u8>>>)>,
    /// Monotonic nanoseconds.
    pub clock: Box<dyn FnMut() -> u64 + Send>,
}

/// A worker's gate and its share of the link.
pub struct Station {
    clock: Box<dyn FnMut() -> u64 + Send>,
    now: u64,
    key: HashKey,
    gate: Gate,
    link: Link<u32>,
    kept: Kept,
    /// Places for all but requests.
    others: usize,
    from4: u32,
    from6: u128,
    /// The UDP port that tunnels have at their ends, if they have one.
    udp: Option<u16>,
    /// A secret that flow labels and source ports are made with.
    label: u64,
    most: u16,
    /// What TCP may announce over IPv4, if it is held to that; 20 bytes less over IPv6.
    clamp: Option<u16>,
    replies: Replies,
    asker: Asker,
    /// Cookies have been let go before the link.
    cookies_first: bool,
    ends: Ends,
    /// A list in the making: the question's number, the next entry, flows still to be told.
    listing: Option<(u32, usize, u32)>,
    last: Last,
    sampler: Sampler,
    tally: Arc<Tally>,
    leave: Option<(u32, Arc<Mutex<Vec<u8>>>)>,
    /// The kernel drops packets of declined flows.
    early: bool,
    /// It was not told what it had to be.
    early_lost: bool,
    red_dropped: u64,
    clamped: u64,
    incoming: Vec<Frame>,
    packets: Box<[Packet; SIZE]>,
    verdicts: Box<[Judged; SIZE]>,
    /// Where in the batch each of them is.
    places: Box<[u16; SIZE]>,
    /// Which frames the gate has judged.
    judged: Box<[bool; SIZE]>,
}

/// Says how many frames the stations of a worker may keep.
pub(super) fn places(fixed: &Fixed) -> usize {
    // One more for a request that takes the place of another.
    fixed.requests + 1 + OPERATIONAL + fixed.granted
}

impl Station {
    /// Makes a station, with all the memory it will use.
    pub fn new(setup: Setup<'_>) -> Self {
        let Setup { fixed, mut clock, .. } = setup;
        let now = clock();
        let workers = setup.workers.max(1) as u64;
        let bits = (fixed.bits / workers).max(1);
        let parameters = Parameters {
            packet_time: (1538 * 8 * 1_000_000_000u64).div_ceil(bits),
            ..Parameters::default()
        };
        let link = link::Setup {
            bits,
            requests: fixed.requests,
            queues: QUEUES,
            operational: OPERATIONAL,
            red: parameters,
            seed: setup.seed,
        };
        let answers = fixed.answers.div_ceil(workers as u32);
        let nobody = Packet { flow: Flow::default(), hash: 0, bytes: 0 };
        // IP and TCP without options: 40 bytes of IPv4.
        let clamp = fixed.clamp_mss.then(|| setup.mtu.saturating_sub(setup.overhead + 40));
        let mut gate = Gate::new(fixed.entries, setup.policy, now);
        gate.set_encapsulation(if fixed.udp.is_some() { udp::LEN as u32 } else { 0 });
        gate.set_programs(setup.programs);
        if let Some(Admission { above, remember, cookies }) = fixed.admission {
            gate.set_admission(&Terms { above, remember, seed: (setup.seed >> 32) as u32 });
            if let Some(rate) = cookies {
                let rate = rate.div_ceil(workers as u32);
                gate.set_cookies(&cookie::Terms { secret: setup.secret, rate }, now);
            }
        }
        for (flow, record) in setup.retained {
            gate.restore(now, &flow, setup.key.hash(&flow), record);
        }
        Self {
            clock,
            now,
            key: setup.key,
            gate,
            link: Link::new(&link, now),
            kept: Kept::new(places(fixed)),
            others: fixed.granted + OPERATIONAL,
            from4: setup.from4,
            from6: setup.from6,
            udp: fixed.udp,
            label: setup.seed.rotate_left(17) ^ 0x9e37_79b9_7f4a_7c15,
            most: fixed.mtu,
            clamp,
            replies: Replies::new(setup.front4, setup.front6, answers, now),
            asker: Asker::new(),
            cookies_first: false,
            ends: setup.ends,
            listing: None,
            last: Last::new(),
            sampler: Sampler::new(setup.seed),
            tally: setup.tally,
            leave: setup.leave,
            early: fixed.early > 0,
            early_lost: false,
            red_dropped: 0,
            clamped: 0,
            incoming: Vec::with_capacity(SIZE),
            packets: Box::new([nobody; SIZE]),
            verdicts: Box::new([Judged::NoRoute; SIZE]),
            places: Box::new([0; SIZE]),
            judged: Box::new([false; SIZE]),
        }
    }

    /// Finds out what becomes of a packet by its verdict.
    fn settle(&mut self, frame: Frame, packet: Packet, judged: Judged) -> Settled {
        let Packet { flow, hash, .. } = packet;
        let ended = |frame, verdict| Settled::Ended(frame, hash, verdict);
        let (to, dscp) = match judged {
            Judged::Front => return Settled::Stays(frame),
            Judged::NoRoute => return ended(frame, Verdict::NoRoute),
            Judged::Drop(Reason::Declined) => return ended(frame, Verdict::Declined),
            Judged::Drop(Reason::OverRate) => return ended(frame, Verdict::OverRate),
            Judged::Drop(Reason::Policy) => return ended(frame, Verdict::Policy),
            Judged::Drop(Reason::NoGrantor) => return ended(frame, Verdict::NoGrantor),
            Judged::Drop(Reason::Program) => return ended(frame, Verdict::Program),
            Judged::Drop(Reason::ProgramError) => return ended(frame, Verdict::ProgramError),
            Judged::Drop(Reason::OverLimit) => return ended(frame, Verdict::OverLimit),
            Judged::Drop(Reason::OverLimitEach) => return ended(frame, Verdict::OverLimitEach),
            Judged::Drop(Reason::Proof) => return ended(frame, Verdict::Proof),
            Judged::Ask { .. } => return ended(frame, Verdict::SynCookie),
            Judged::Back => (To::Destination(key(&flow)), 0),
            Judged::Granted { grantor, renew } => (To::Grantor(grantor), 1 + u8::from(renew)),
            Judged::Allowed { grantor } => (To::Grantor(grantor), 1),
            Judged::Direct { grantor } => (To::Direct(grantor), 1),
            Judged::Request { grantor, dscp } => (To::Grantor(grantor), dscp),
        };
        let asks = matches!(judged, Judged::Request { .. });
        let refused = if asks { Verdict::LowPriority } else { Verdict::LinkFull };
        // Requests have places of their own.
        let crowded = self.kept.len() - self.link.requests().len() >= self.others;
        let bytes = (frame.len() + self.outer_len(to)) as u32;
        if crowded && !asks {
            self.red_dropped += 1;
            return ended(frame, refused);
        }
        let number = match self.kept.put(Waits { frame, to, dscp, hash }) {
            Ok(number) => number,
            Err(waits) => return ended(waits.frame, refused),
        };
        let back = match judged {
            Judged::Request { .. } => self.link.request(number, dscp, bytes),
            Judged::Granted { .. } | Judged::Allowed { .. } | Judged::Direct { .. } => {
                let back = self.link.grant(number, destination(&flow), bytes, self.now);
                self.red_dropped += u64::from(back.is_some());
                back
            }
            _ => self.link.operate(number, bytes),
        };
        // Which may be another that had to go for it.
        match back.and_then(|number| self.kept.take(number)) {
            Some(waits) => Settled::Ended(waits.frame, waits.hash, refused),
            None => Settled::Kept,
        }
    }

    /// Parses what came in, for the gate.
    fn read(&mut self, sifting: &Sifting<'_>) -> usize {
        let mut count = 0;
        let each = self.incoming.iter().zip(self.judged.iter_mut());
        for (at, (frame, judged)) in each.enumerate() {
            let bytes = sifting.arena.bytes(frame);
            let flow = match parse(bytes, sifting.mac, sifting.locals) {
                Parsed::V4(dst) => Some(Flow::v4(source_v4(bytes), dst)),
                Parsed::V6(dst) => Some(Flow::v6(source_v6(bytes), dst)),
                Parsed::Done(_) => None,
            };
            *judged = flow.is_some();
            if let (Some(flow), Some(packet)) = (flow, self.packets.get_mut(count)) {
                self.places[count] = at as u16;
                *packet = Packet { flow, hash: self.key.hash(&flow), bytes: frame.len() as u32 };
                count += 1;
            }
        }
        count
    }

    /// Holds TCP to what fits the tunnel, in SYNs that come from the back network.
    fn clamp(&mut self, sifting: &mut Sifting<'_>) {
        let Some(most) = self.clamp else { return };
        for frame in sifting.frames.iter() {
            let bytes = sifting.arena.bytes_mut(frame);
            let Some(packet) = bytes.get_mut(ethernet::LEN..) else { continue };
            let six = packet.first().is_some_and(|first| first >> 4 == 6);
            let most = if six { most.saturating_sub(20) } else { most };
            // What cannot be read is the parser's to judge.
            self.clamped += u64::from(mss::clamp(packet, most).unwrap_or(false));
        }
    }

    /// Answers questions, as far as there is room for answers.
    fn talk(&mut self) {
        while self.listing.is_none() && self.ends.answers.slots() >= 4 {
            let Ok((ticket, question)) = self.ends.questions.pop() else { break };
            match question {
                Question::Flows(most) => self.listing = Some((ticket, 0, most)),
                Question::About(flow) => {
                    let hash = self.key.hash(&flow);
                    if let Some(entry) = self.gate.table().find(&flow, hash) {
                        let known = self.known(entry);
                        let _ = self.ends.answers.push((ticket, Answer::Known(known)));
                    }
                    if let Some(first) = self.gate.seen(hash, self.now) {
                        let ago = self.now.saturating_sub(first);
                        let _ = self.ends.answers.push((ticket, Answer::Seen(ago)));
                    }
                    if let Some((verdict, when)) = self.last.of(hash) {
                        let ago = self.now.saturating_sub(when);
                        let _ = self.ends.answers.push((ticket, Answer::Dropped(verdict, ago)));
                    }
                    let _ = self.ends.answers.push((ticket, Answer::End));
                }
            }
        }
        self.list();
    }

    /// Goes on with a list, a part of the table a turn: some microseconds.
    fn list(&mut self) {
        const PART: usize = 64;
        const PARTS: usize = 16;
        for _ in 0..PARTS {
            let Some((ticket, next, mut left)) = self.listing else { return };
            if self.ends.answers.slots() <= PART {
                return;
            }
            let part = next..next + PART;
            for (entry, _) in self.gate.table().within(part.clone()) {
                if left == 0 {
                    break;
                }
                left -= 1;
                let known = self.known(entry);
                let _ = self.ends.answers.push((ticket, Answer::Known(known)));
            }
            let over = left == 0 || part.end >= self.gate.table().used();
            if over {
                let _ = self.ends.answers.push((ticket, Answer::End));
            }
            self.listing = (!over).then_some((ticket, part.end, left));
        }
    }

    /// Tells the kernel's side what a decision means for declined flows. What finds no room
    /// there may be lost where it declines; where it does not, all is to be forgotten.
    fn tell_early(&mut self, item: &Item) {
        if !self.early {
            return;
        }
        let (told, may_be_lost) = match (item.scope.flow(), item.say) {
            (Some(flow), Say::Decide(Decision::Decline { expire_s })) => {
                (Early::Decline(flow, expire_s), true)
            }
            (Some(flow), _) => (Early::Forgive(flow), false),
            // Flows within those prefixes are not looked for one by one.
            (None, Say::Decide(Decision::Decline { .. })) => return,
            (None, _) => (Early::Clear, false),
        };
        self.early_lost |= self.ends.early.push(told).is_err() && !may_be_lost;
    }

    fn known(&self, entry: u32) -> Known {
        let entry = self.gate.table().entry(entry);
        let (record, belongs) = (entry.record(), entry.belongs());
        Known {
            flow: entry.flow(),
            state: record.state(),
            program: record.program(),
            left: record.expire_at().saturating_sub(self.now),
            idle: self.now.saturating_sub(record.last_seen()),
            priority: record.priority(),
            set: belongs.set,
            generation: belongs.generation,
            budget: record.budget(self.now),
            renewal: record.next_renewal_at().saturating_sub(self.now),
            stamp: record.stamp(),
        }
    }

    fn header(&self, grantor: Address, dscp: u8, hash: u32) -> Header {
        let ends = match grantor {
            Address::V4(dst) => TunnelEnds::V4 { src: self.from4, dst },
            Address::V6(dst) => {
                TunnelEnds::V6 { src: self.from6, dst, flow_label: self.label(hash) }
            }
        };
        let udp = self.udp.map(|port| Ports::of(self.label(hash) >> 6, port));
        Header { ends, dscp, hop_limit: HOPS, udp }
    }

    /// Returns the bytes that a packet has more on the link than when it came.
    fn outer_len(&self, to: To) -> usize {
        let udp = if self.udp.is_some() { udp::LEN } else { 0 };
        match to {
            To::Destination(_) | To::Direct(_) => 0,
            To::Grantor(Address::V4(_)) => ipv4::LEN + udp,
            To::Grantor(Address::V6(_)) => ipv6::LEN + udp,
        }
    }

    /// Returns what tells flows apart on the way: not the hash itself, which is a secret.
    fn label(&self, hash: u32) -> u32 {
        ((u64::from(hash) ^ self.label >> 32).wrapping_mul(self.label | 1) >> 44) as u32
    }
}

impl datapath::Station for Station {
    fn begin(&mut self) {
        self.now = (self.clock)();
        for _ in 0..DECISIONS {
            let Ok((item, stamp)) = self.ends.decisions.pop() else { break };
            // What has no effect is counted there.
            let done = self.gate.decide(self.now, &item, stamp, |flow| self.key.hash(flow));
            if done.is_ok() {
                self.tell_early(&item);
            }
        }
        if self.early_lost && self.ends.early.push(Early::Clear).is_ok() {
            self.early_lost = false;
        }
        self.gate.turn(self.now, WORK);
        self.talk();
    }

    fn guards(&self, ingress: usize) -> bool {
        ingress == FRONT || ingress == BACK && self.clamp.is_some()
    }

    fn sift(&mut self, mut sifting: Sifting<'_>) {
        if sifting.ingress != FRONT {
            return self.clamp(&mut sifting);
        }
        std::mem::swap(sifting.frames, &mut self.incoming);
        let count = self.read(&sifting);
        let (packets, verdicts) = (&self.packets[..count], &mut self.verdicts[..count]);
        let (arena, incoming, places) = (&*sifting.arena, &self.incoming, &self.places);
        let bytes = |at: usize| {
            let frame = places.get(at).and_then(|&place| incoming.get(usize::from(place)));
            frame.and_then(|frame| arena.bytes(frame).get(ethernet::LEN..)).unwrap_or_default()
        };
        self.gate.process_with(self.now, packets, bytes, verdicts);
        self.sampler.look(self.now, packets, verdicts, &mut self.ends.samples);
        let (mut taken, mut bytes, mut next) = (0, 0, 0);
        let mut incoming = std::mem::take(&mut self.incoming);
        for (at, frame) in incoming.drain(..).enumerate() {
            if !self.judged.get(at).is_some_and(|judged| *judged) {
                sifting.frames.push(frame);
                continue;
            }
            let (packet, verdict) = (self.packets[next], self.verdicts[next]);
            next += 1;
            let len = frame.len() as u64;
            if let Judged::Ask { cookie } = verdict {
                let Sifting { arena, mac, locals, .. } = &mut sifting;
                if self.asker.answer(arena, &frame, cookie, *mac, locals) {
                    sifting.stats.originated();
                }
            }
            match self.settle(frame, packet, verdict) {
                Settled::Stays(frame) => {
                    sifting.frames.push(frame);
                    continue;
                }
                Settled::Kept => {}
                Settled::Ended(frame, hash, verdict) => {
                    self.last.note(hash, verdict, self.now);
                    sifting.arena.free(frame);
                    sifting.stats.ended(verdict, 1);
                }
            }
            taken += 1;
            bytes += len;
        }
        self.incoming = incoming;
        if taken > 0 {
            sifting.stats.received(taken, bytes);
        }
    }

    fn next(&mut self) -> Option<Leaving> {
        if let Some(reply) = self.replies.next() {
            return Some(reply);
        }
        // Neither a flood of SYNs nor a full link is to keep the other from leaving.
        self.cookies_first = !self.cookies_first;
        if self.cookies_first
            && let Some(cookie) = self.asker.next()
        {
            return Some(cookie);
        }
        let Some(Left::Operational(number) | Left::Request(number, _) | Left::Granted(number)) =
            self.link.next(self.now)
        else {
            return self.asker.next();
        };
        let Waits { frame, to, dscp, hash } = self.kept.take(number)?;
        let (key, way) = match to {
            To::Destination(key) => (key, Way::Forwarded),
            To::Grantor(grantor) | To::Direct(grantor) => {
                let key = match grantor {
                    Address::V4(address) => Key::V4(address),
                    Address::V6(address) => Key::V6(address),
                };
                let header = self.header(grantor, dscp, hash);
                let direct = matches!(to, To::Direct(_));
                (key, Way::Tunnel { header, most: self.most, direct })
            }
        };
        Some(Leaving { frame, key, way })
    }

    fn too_big(&mut self, arena: &mut Arena, frame: &Frame, mtu: u32, stats: &WorkerStats) {
        if self.replies.too_big(arena, frame, mtu, self.now) {
            stats.originated();
        }
    }

    fn end(&mut self, idle: bool) {
        if idle {
            self.gate.idle();
        }
        self.tally.show(&Sight {
            counts: self.gate.counts(),
            table: self.gate.table(),
            link: &self.link,
            answered: self.replies.sent,
            unanswered: self.replies.spared,
            cookies_sent: self.asker.sent,
            cookies_unsent: self.asker.unsent,
            clamped: self.clamped,
            red_dropped: self.red_dropped,
            uncounted: self.gate.uncounted(),
        });
    }

    fn is_busy(&self) -> bool {
        self.listing.is_some() || !self.ends.questions.is_empty()
    }

    fn waiting(&self) -> usize {
        self.kept.len() + self.replies.len() + self.asker.len()
    }

    fn close(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        while let Some(waits) = self.kept.pop() {
            arena.free(waits.frame);
            stats.ended(Verdict::LinkFull, 1);
        }
        while let Some(reply) = self.replies.next().or_else(|| self.asker.next()) {
            arena.free(reply.frame);
            stats.ended(Verdict::LinkFull, 1);
        }
        // Once: a worker ends a second time when it is dropped.
        if let Some((worker, left)) = self.leave.take() {
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            let table = self.gate.table();
            for (_, entry) in table.within(0..table.capacity()) {
                retained::put(&mut left, worker, &entry.flow(), entry.record());
            }
        }
        datapath::Station::end(self, true);
    }
}

/// What becomes of a packet.
enum Settled {
    /// It is routed by its destination.
    Stays(Frame),
    /// It waits for the link.
    Kept,
    /// A packet of the flow with this hash, this one or another, has ended.
    Ended(Frame, u32, Verdict),
}

fn key(flow: &Flow) -> Key {
    match flow.pair() {
        Pair::V4 { dst, .. } => Key::V4(dst),
        Pair::V6 { dst, .. } => Key::V6(dst),
    }
}

/// Returns what the queues of granted packets are chosen by.
fn destination(flow: &Flow) -> u128 {
    match flow.pair() {
        Pair::V4 { dst, .. } => dst.into(),
        Pair::V6 { dst, .. } => dst,
    }
}
