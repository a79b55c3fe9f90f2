//! What a hook is made from, and the memory that it will use.
//!
//! All of it is made here: places for what waits, the arrays of a batch, the gate's table. Rates and
//! places of the link are this worker's share; the table is its own.

use std::sync::{Arc, Mutex};

use fib::Reader;
use gate::admission::AdmissionConfig;
use gate::cookie::{self, Secret, Secrets};
use gate::flow::Key as HashKey;
use gate::gate::{Gate, Verdict as Judged};
use gate::limit::link::{self, Link};
use gate::limit::red::RedParameters;
use gate::policy::Policy;
use gate::program::Programs;
use gate::tunnel::{Stream, TunnelKeys};
use wire::tunnel::GUE;

use super::GateHook;
use super::ingress::PART;
use crate::datapath::{SIZE, TunnelParameters};
use crate::vantage::config::Fixed;
use crate::vantage::cookie::Asker;
use crate::vantage::kept::Kept;
use crate::vantage::last::Last;
use crate::vantage::reply::Replies;
use crate::vantage::retained::Retained;
use crate::vantage::rings::Ends;
use crate::vantage::sampler::Sampler;
use crate::vantage::steering::Steering;
use crate::vantage::tally::Tally;

/// Places for packets that pass without a grantor.
const OPERATIONAL: usize = 256;
/// Queues of granted packets.
const QUEUES: usize = 64;

/// What a hook is made from.
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
    pub secrets: Reader<Secrets>,
    /// The policy.
    pub policy: Reader<Policy>,
    /// The keys of sealed tunnels.
    pub keys: Reader<TunnelKeys>,
    /// The number of this worker's stream of sealed packets, no other's in this session.
    pub stream: u16,
    /// The flow programs.
    pub programs: Reader<Programs>,
    /// Its ends of the rings.
    pub ends: Ends,
    /// Its place among workers that hand each other their flows' packets, if they do.
    pub steering: Option<Steering>,
    /// Where it shows its numbers.
    pub tally: Arc<Tally>,
    /// Flows that are known from before.
    pub retained: Vec<Retained>,
    /// Where its flows are left in the end, with the worker's number.
    pub leave: Option<(u32, Arc<Mutex<Vec<u8>>>)>,
    /// Monotonic nanoseconds.
    pub clock: Box<dyn FnMut() -> u64 + Send>,
}

/// Says how many frames the hooks of a worker may keep.
pub(in crate::vantage) fn places(fixed: &Fixed) -> usize {
    // One more for a request that takes the place of another.
    fixed.requests + 1 + OPERATIONAL + fixed.granted
}

impl GateHook {
    /// Makes a hook, with all the memory it will use.
    pub fn new(setup: Setup<'_>) -> Self {
        let Setup { fixed, mut clock, .. } = setup;
        let now = clock();
        let workers = setup.workers.max(1) as u64;
        let bits = (fixed.bits / workers).max(1);
        let parameters = RedParameters {
            packet_time: (1538 * 8 * 1_000_000_000u64).div_ceil(bits),
            ..RedParameters::default()
        };
        let link = link::LinkConfig {
            bits,
            requests: fixed.requests,
            queues: QUEUES,
            operational: OPERATIONAL,
            red: parameters,
            seed: setup.seed,
        };
        let answers = fixed.answers.div_ceil(workers as u32);
        // IP and TCP without options: 40 bytes of IPv4.
        let clamp = fixed.clamp_mss.then(|| setup.mtu.saturating_sub(setup.overhead + 40));
        let mut gate = Gate::new(fixed.entries, setup.policy, now);
        gate.set_encapsulation(fixed.between() as u32);
        gate.set_programs(setup.programs);
        gate.set_ledger(Arc::clone(setup.tally.ledger()));
        if let Some(admission) = &fixed.admission {
            gate.set_admission(&AdmissionConfig {
                threshold: admission.threshold,
                tracked_flows: admission.first_packet_entries,
                seed: (setup.seed >> 32) as u32,
            });
            if let Some(rate) = admission.syn_cookie_rate {
                let rate = rate.div_ceil(workers as u32);
                gate.set_cookies(&cookie::CookieConfig { secret: Secret::random(), rate }, now);
                gate.follow_secrets(setup.secrets);
            }
        }
        for (flow, record) in setup.retained {
            let hash = setup.key.hash(&flow);
            if setup.steering.as_ref().is_none_or(|steering| steering.has(hash)) {
                gate.restore(now, &flow, hash, record);
            }
        }
        Self {
            clock,
            now,
            key: setup.key,
            gate,
            link: Link::new(&link, now),
            kept: Kept::new(places(fixed)),
            others: fixed.granted + OPERATIONAL,
            tunnels: TunnelParameters {
                from4: setup.from4,
                from6: setup.from6,
                udp: fixed.udp,
                sealed: fixed.udp.unwrap_or(GUE),
                secret: setup.seed.rotate_left(17) ^ 0x9e37_79b9_7f4a_7c15,
                mtu: fixed.mtu,
            },
            keys: setup.keys,
            is_sealing: false,
            stream: Stream::new(setup.stream),
            clamp,
            steering: setup.steering,
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
            packets: Vec::with_capacity(PART),
            flows: Vec::with_capacity(PART),
            verdicts: vec![Judged::NoRoute; PART],
        }
    }
}
