//! The grantor's controller: answers status queries and applies other policies while the grantor runs.
//!
//! ```text
//!   client's thread ─► GrantorController ─┬─ deciders, worker by worker   counters of the policy
//!                                         ├─ decision sender              decisions on their way
//!                                         └─ reload: file, bundle ─► lists, policy, candidate: all or none
//! ```
//!
//! It owns the threads beside the workers. Every function here may block; no worker waits for it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fib::Publisher;
use gate::grantor::Lists;
use gate::tunnel::GateKeys;
use rtrb::RingBuffer;
use sha2::{Digest, Sha256};

use super::comparison::add_comparison;
use super::config::{Config, Fixed};
use super::decider::{Decider, DeciderSetup, Policies};
use super::decision_sender::DecisionSender;
use super::hook::{HookRings, RING, SLOTS};
use super::recorder::RequestRecorder;
use api::{GateContact, GrantorStatus, PolicyComparison};
use api::{ProgramInfo, hexadecimal};
use bundle::{AgentStatus, Bundle, DistributionMember, HealthSample, MemberConfig};
use config::restart_message;
use control::progress::Turns;

/// How long to wait for the policies to release the lists before.
const RECLAIM_TIMEOUT: Duration = Duration::from_millis(500);

/// Answers status queries about a grantor and applies other policies.
#[derive(Debug)]
pub(crate) struct GrantorController {
    path: PathBuf,
    fixed: Fixed,
    deciders: Vec<Decider>,
    sender: DecisionSender,
    recorder: Option<RequestRecorder>,
    active: Mutex<ActivePolicies>,
    /// The state of the distribution, if bundles are configured.
    agent_status: Option<Arc<AgentStatus>>,
}

/// The policies in force, which a reload replaces.
#[derive(Debug)]
struct ActivePolicies {
    lists: Publisher<Lists>,
    policies: Policies,
    bundle: Option<Arc<Bundle>>,
    reloads: u64,
    refused: u64,
}

impl GrantorController {
    /// Starts the decision sender and a decider for each worker. An error in a policy is an error.
    pub(super) fn start(config: &Config) -> io::Result<(Self, Vec<HookRings>)> {
        let (version, programs) = (config.fixed.protocol.clone(), config.programs.clone());
        let shares = config.fixed.share_grants;
        let keys = Publisher::new(GateKeys::default());
        let mut readers: Vec<_> = config.fixed.daemon.cores.iter().map(|_| keys.reader()).collect();
        let (sender, decisions) =
            DecisionSender::start(version, &config.fixed.gates, shares, programs, keys)?;
        let recorder = config.fixed.record.as_ref().map(RequestRecorder::start).transpose()?;
        let lists = Publisher::new(config.lists.clone());
        let (mut deciders, mut rings) = (Vec::new(), Vec::new());
        for number in 0..config.fixed.daemon.cores.len() {
            let (requests, received_requests) = RingBuffer::new(RING);
            let (answers, received_answers) = RingBuffer::new(SLOTS);
            let setup = DeciderSetup {
                policies: config.policies.clone(),
                lists: [lists.reader(), lists.reader()],
                limits: config.fixed.limits,
                fragments: config.fixed.fragments,
                requests: received_requests,
                answers,
                decisions: decisions.clone(),
                record: recorder.as_ref().map(|recorder| recorder.add_ring(SLOTS)),
            };
            deciders.push(Decider::start(number, setup)?);
            rings.push(HookRings { requests, answers: received_answers, keys: readers.remove(0) });
        }
        let policies = config.policies.clone();
        let bundle = config.bundle.clone();
        let active = Mutex::new(ActivePolicies { lists, policies, bundle, reloads: 0, refused: 0 });
        let (path, fixed) = (config.path.clone(), config.fixed.clone());
        let agent_status = fixed.distribution.as_ref().map(|_| Arc::new(AgentStatus::default()));
        Ok((Self { path, fixed, deciders, sender, recorder, active, agent_status }, rings))
    }

    /// Reads the policies and the lists again, and applies all of them or none.
    ///
    /// # Errors
    ///
    /// The first problem.
    pub(crate) fn reload(&self) -> Result<String, String> {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        let bundle = active.bundle.clone();
        let result = self.read(bundle.as_ref()).and_then(|config| {
            config.try_policies()?;
            self.apply_config(&mut active, config)
        });
        match &result {
            Ok(_) => active.reloads += 1,
            Err(_) => active.refused += 1,
        }
        result
    }

    /// Returns the state of the distribution, if bundles are configured.
    pub(crate) fn agent_status(&self) -> Option<&Arc<AgentStatus>> {
        self.agent_status.as_ref()
    }

    /// Reads the configuration, with a bundle over it.
    fn read(&self, bundle: Option<&Arc<Bundle>>) -> Result<Config, String> {
        let config = Config::load_over(&self.path, bundle).map_err(|error| error.to_string())?;
        let keys = config.keys_needing_restart(&self.fixed);
        if !keys.is_empty() {
            let what = restart_message(&keys, "grantor");
            return Err(format!("{}: {what}", self.path.display()));
        }
        Ok(config)
    }

    /// Applies a configuration, all of it or nothing.
    fn apply_config(&self, active: &mut ActivePolicies, config: Config) -> Result<String, String> {
        let before = active.lists.current().clone();
        active.lists.publish(Box::new(config.lists.clone()));
        for (at, decider) in self.deciders.iter().enumerate() {
            if let Err(error) = decider.reload(config.policies.clone()) {
                active.lists.publish(Box::new(before));
                // The policy before was valid, so that this reload succeeds.
                for decider in &self.deciders[..at] {
                    let _ = decider.reload(active.policies.clone());
                }
                while active.lists.reclaim_within(RECLAIM_TIMEOUT).is_some() {}
                return Err(error);
            }
        }
        while active.lists.reclaim_within(RECLAIM_TIMEOUT).is_some() {}
        let programs = config.programs.len();
        self.sender.programs.replace(config.programs);
        let prefixes: usize = config.lists.values().map(|list| list.len()).sum();
        let candidate =
            if config.policies.candidate.is_some() { ", 1 candidate policy" } else { "" };
        active.policies = config.policies;
        active.bundle = config.bundle;
        let lists = config.lists.len();
        let programs = match programs {
            0 => String::new(),
            count => format!(", {count} programs"),
        };
        Ok(format!("the policy{candidate}, {lists} lists, {prefixes} prefixes{programs}"))
    }

    /// Lists the flow programs by gate, with their state there.
    pub(crate) fn programs(&self) -> Vec<ProgramInfo> {
        self.sender.programs.list()
    }

    /// Removes and returns the messages for the log.
    pub(super) fn drain_messages(&self) -> Vec<String> {
        self.sender.programs.drain_messages()
    }

    /// Returns the status of the grantor.
    pub(crate) fn status(&self) -> GrantorStatus {
        let (mut policy, mut last_error) = (BTreeMap::new(), None);
        let mut candidate: Option<PolicyComparison> = None;
        for status in self.deciders.iter().map(Decider::status) {
            status.add_to(&mut policy);
            last_error = status.last_error.or(last_error);
            if let Some(comparison) = status.candidate {
                add_comparison(candidate.get_or_insert_default(), comparison);
            }
        }
        let counters = &self.sender.counters;
        let decisions = [
            ("items", &counters.items),
            ("messages", &counters.messages),
            ("busy", &counters.busy),
            ("shared", &counters.shared),
            ("shared_busy", &counters.shared_busy),
            ("replayed", &counters.replayed),
            ("acks_received", &counters.answers),
            ("acks_refused", &counters.answers_refused),
            ("abandoned", &counters.abandoned),
            ("failed", &counters.failed),
        ];
        let decisions =
            decisions.map(|(name, counter)| (name.into(), counter.load(Ordering::Relaxed)));
        let active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        let lists = active.lists.current().iter();
        GrantorStatus {
            policy,
            last_error,
            decisions: decisions.into(),
            digest: hexadecimal(&Sha256::digest(&active.policies.policy)),
            gates: counters.last_answers().into_iter().map(gate_contact).collect(),
            lists: lists.map(|(name, list)| (name.clone(), list.len())).collect(),
            reloads: active.reloads,
            reloads_refused: active.refused,
            candidate,
            record_failed: self.recorder.as_ref().and_then(RequestRecorder::failed),
        }
    }

    /// Returns the turn counters of the threads that make and send decisions.
    pub(super) fn turns(&self) -> impl Iterator<Item = Turns> {
        self.deciders.iter().map(Decider::turns).chain([self.sender.turns()])
    }

    /// Returns whether all threads run.
    pub(super) fn is_alive(&self) -> bool {
        self.sender.is_alive() && self.deciders.iter().all(Decider::is_alive)
    }
}

fn gate_contact((gate, ago): (IpAddr, Option<Duration>)) -> GateContact {
    GateContact { gate, heard_ago: ago.map(|ago| ago.as_secs_f64()) }
}

impl DistributionMember for GrantorController {
    fn validate(&self, bundle: &Arc<Bundle>) -> Result<(), String> {
        self.read(Some(bundle))?.try_policies()
    }

    fn apply(&self, bundle: Option<Arc<Bundle>>) -> Result<String, String> {
        let config = self.read(bundle.as_ref())?;
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        self.apply_config(&mut active, config)
    }

    /// Requests count as decided, and those whose packets are delivered as granted.
    fn sample(&self) -> HealthSample {
        let mut counts = BTreeMap::new();
        for decider in &self.deciders {
            decider.status().add_to(&mut counts);
        }
        let count = |name: &str| counts.get(name).copied().unwrap_or(0);
        HealthSample {
            failures: count("failed") + count("over_time"),
            decided: count("requests"),
            granted: count("delivered"),
            silent_grantors: 0,
        }
    }
}
