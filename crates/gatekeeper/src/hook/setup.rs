//! The parameters of a gate's hook, and the allocation of all memory that it uses.
//!
//! The queues, the arrays of a batch and the gate's table are allocated here, and nothing later. The
//! rates of the link are this worker's share of the configured ones; the table is the worker's own.

use std::sync::{Arc, Mutex};

use fib::Reader;
use gate::admission::AdmissionConfig;
use gate::cookie::{self, Secret, Secrets};
use gate::flow::Key as HashKey;
use gate::gate::{Gate, Verdict as GateVerdict};
use gate::limit::link::{self, Link};
use gate::limit::red::RedParameters;
use gate::policy::Policy;
use gate::program::Programs;
use gate::tunnel::{Stream, TunnelKeys};
use port::af_xdp::HostEgressShare;
use wire::tunnel::GUE;

use super::ingress::PART;
use super::queue::QueuedFrames;
use super::{GateHook, GateSealer};
use crate::config::Fixed;
use crate::counter_snapshot::CounterSnapshot;
use crate::hook_state::HookState;
use crate::icmp_errors::IcmpErrorResponder;
use crate::recent_drops::RecentDrops;
use crate::rings::WorkerRings;
use crate::sampler::Sampler;
use crate::steering::SoftwareSteering;
use crate::syn_cookies::SynCookieResponder;
use datapath::{Hook, SIZE, TunnelParameters, Tunnels};

/// Queue slots for packets that pass without a grantor.
const OPERATIONAL: usize = 256;
/// The number of queues for granted packets.
const QUEUES: usize = 64;

/// The parameters of a hook.
pub struct HookSetup<'a> {
    /// The configuration.
    pub fixed: &'a Fixed,
    /// The number of workers that share the link.
    pub workers: usize,
    /// The source address of tunnels over IPv4; 0 if no grantor has an IPv4 address.
    pub from4: u32,
    /// The same for IPv6.
    pub from6: u128,
    /// The front interface's IPv4 address, the source of ICMP errors.
    pub front4: Option<u32>,
    /// The same for IPv6.
    pub front6: Option<u128>,
    /// The maximum length of an encapsulated packet, as known at the start.
    pub mtu: u16,
    /// The length of the longest outer header, in bytes.
    pub overhead: u16,
    /// The key of the flow hash, and of the slots of ICMP errors.
    pub key: HashKey,
    /// A random seed for the queues.
    pub seed: u64,
    /// The secrets of SYN cookies, the same for all workers.
    pub secrets: Reader<Secrets>,
    /// The policy.
    pub policy: Reader<Policy>,
    /// The keys of sealed tunnels.
    pub keys: Reader<TunnelKeys>,
    /// The number of this worker's stream of sealed packets, unique in the session.
    pub stream: u16,
    /// The flow programs.
    pub programs: Reader<Programs>,
    /// The worker's ends of its rings.
    pub rings: WorkerRings,
    /// Its part in software steering, if workers hand packets over.
    pub steering: Option<SoftwareSteering>,
    /// Its share of what the host itself sends by the link; `None`: not counted.
    pub host: Option<HostEgressShare>,
    /// Where it publishes its counters.
    pub counters: Arc<CounterSnapshot>,
    /// The state from before the start.
    pub restored: HookState,
    /// Where its flows are saved at the end, with the worker's number.
    pub save_to: Option<(u32, Arc<Mutex<Vec<u8>>>)>,
    /// Returns the monotonic time in nanoseconds.
    pub clock: Box<dyn FnMut() -> u64 + Send>,
}

/// Returns the number of frames that a worker's hook may queue.
pub(crate) fn queue_slots(fixed: &Fixed) -> usize {
    // One more for a request that displaces another.
    fixed.requests + 1 + OPERATIONAL + fixed.granted
}

impl GateHook {
    /// Makes a hook and its tunnels, with all the memory that they use.
    pub fn install(setup: HookSetup<'_>) -> Hook {
        let HookSetup { fixed, mut clock, .. } = setup;
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
        let icmp_rate = fixed.icmp_rate.div_ceil(workers as u32);
        // IP and TCP without options: 40 bytes of IPv4.
        let clamp = fixed.clamp_mss.then(|| setup.mtu.saturating_sub(setup.overhead + 40));
        let tunnels = TunnelParameters {
            from4: setup.from4,
            from6: setup.from6,
            udp: fixed.udp,
            sealed: fixed.udp.unwrap_or(GUE),
            secret: setup.seed.rotate_left(17) ^ 0x9e37_79b9_7f4a_7c15,
            mtu: fixed.mtu,
        };
        let sealer = GateSealer { keys: setup.keys.clone(), stream: Stream::new(setup.stream) };
        let mut gate = Gate::new(fixed.entries, setup.policy, now);
        gate.set_encapsulation(fixed.encapsulation_len() as u32);
        gate.set_programs(setup.programs);
        gate.set_ledger(Arc::clone(setup.counters.ledger()));
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
        for (item, stamp) in setup.restored.prefix_decisions {
            // The gate counts those without an effect.
            let _ = gate.decide(now, &item, stamp, |flow| setup.key.hash(flow));
        }
        for (flow, record) in setup.restored.flows {
            let hash = setup.key.hash(&flow);
            if setup.steering.as_ref().is_none_or(|steering| steering.is_owner(hash)) {
                gate.restore(now, &flow, hash, record);
            }
        }
        let icmp_errors =
            IcmpErrorResponder::new(setup.front4, setup.front6, icmp_rate, setup.key.clone(), now);
        let hook = Self {
            clock,
            now,
            key: setup.key,
            gate,
            link: Link::new(&link, now),
            host: setup.host,
            queued: QueuedFrames::new(queue_slots(fixed)),
            other_slots: fixed.granted + OPERATIONAL,
            tunnels,
            keys: setup.keys,
            is_sealing: false,
            clamp,
            steering: setup.steering,
            icmp_errors,
            syn_cookies: SynCookieResponder::new(),
            cookies_first: false,
            rings: setup.rings,
            listing: None,
            recent_drops: RecentDrops::new(),
            sampler: Sampler::new(setup.seed),
            counters: setup.counters,
            save_to: setup.save_to,
            reports_declined: fixed.xdp_declined_flows > 0,
            must_clear_declined: false,
            red_dropped: 0,
            clamped: 0,
            incoming: Vec::with_capacity(SIZE),
            packets: Vec::with_capacity(PART),
            frames: Vec::with_capacity(PART),
            verdicts: vec![GateVerdict::NoRoute; PART],
        };
        let tunnels = Tunnels { parameters: tunnels, sealer: Some(Box::new(sealer)) };
        Hook { packets: Box::new(hook), tunnels }
    }
}
