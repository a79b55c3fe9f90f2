//! The gate's controller: answers status queries and carries out commands while the gate runs.
//!
//! ```text
//!   client's thread ─► GateController ─┬─ counters of the workers  numbers, rules (controller/counters.rs)
//!                                      ├─ rings, worker by worker  flows (controller/flows.rs)
//!                                      ├─ samples ─► candidate     the effect of a candidate policy
//!                                      ├─ rules                    the rule of a flow, the version
//!                                      ├─ maps                     flows and sources dropped by XDP
//!                                      ├─ program store            flow programs
//!                                      └─ reload: file, bundle ─► policy, senders, lists: all or nothing
//! ```
//!
//! Every function here may block; no worker waits for it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fib::Publisher;
use gate::cookie::{Secret, Secrets};
use gate::policy::{Policy, PolicyError};
use port::af_xdp::Interface;
use rtrb::Consumer;

use super::blocked_table::BlockedTable;
use super::candidate::CandidateEvaluation;
use super::config::{Config, Fixed, Rules};
use super::counter_snapshot::{CounterGroup, CounterSnapshot};
use super::decision_receiver::DecisionReceiver;
use super::declined_map;
use super::grantor_monitor::GrantorMonitor;
use super::inside_map::InsideMap;
use super::program_store::ProgramStore;
use super::rings::QueryChannel;
use super::rule_ids::RuleIds;
use bundle::blocks::BlockChange;
use bundle::{AgentStatus, Bundle, DistributionMember, HealthSample, MemberConfig};
use config::restart_message;
use control::block_lists::BlockListHandle;
use control::progress::Turns;
use gate::sample::PacketSample;

mod counters;
mod flows;

use api::{AttackReport, CandidateStatus, GateStatus, Order, ProgramInfo};

/// How long to wait for the workers to release the policy before.
const RECLAIM_TIMEOUT: Duration = Duration::from_millis(500);
/// The lifetime of a secret of SYN cookies.
const ROTATION: Duration = Duration::from_secs(3600);

/// Answers status queries about a gate and carries out commands.
#[derive(Debug)]
pub(crate) struct GateController {
    path: PathBuf,
    fixed: Fixed,
    counters: Vec<Arc<CounterSnapshot>>,
    queries: Mutex<QueryChannels>,
    samples: Mutex<Vec<Consumer<PacketSample>>>,
    /// The evaluation of the candidate, if there is one.
    candidate: Mutex<Option<CandidateEvaluation>>,
    rules: Mutex<ActiveRules>,
    /// The secret of SYN cookies, and the time of its last change.
    secrets: Mutex<Option<(Publisher<Secrets>, Instant)>>,
    blocked: BlockedTable,
    inside: InsideMap,
    /// The lists in front of the gate, if there are any.
    block_lists: OnceLock<BlockListHandle>,
    // Declared, and so dropped, before the store, whose thread ends with the receiver's inbox.
    decisions: DecisionReceiver,
    programs: ProgramStore,
    /// Locked during a change of the policy.
    change: Mutex<()>,
    /// The state of the distribution, if bundles are configured.
    agent_status: Option<Arc<AgentStatus>>,
    /// The last attack since the start.
    attack: Mutex<Option<AttackReport>>,
}

#[derive(Debug)]
struct QueryChannels {
    workers: Vec<QueryChannel>,
    ticket: u32,
}

/// The rules in force.
#[derive(Debug)]
struct ActiveRules {
    rules: Arc<Rules>,
    counters: RuleIds,
    bundle: Option<Arc<Bundle>>,
    generation: u64,
    policy: Publisher<Policy>,
    reloads: u64,
    refused: u64,
    monitor: GrantorMonitor,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GateController {
    pub(super) fn new(
        config: &Config,
        policy: Publisher<Policy>,
        programs: ProgramStore,
        counters: Vec<Arc<CounterSnapshot>>,
        queries: Vec<QueryChannel>,
        decisions: DecisionReceiver,
    ) -> Result<Self, PolicyError> {
        let rules = Arc::new(config.rules.clone());
        let candidate = CandidateEvaluation::new(&rules)?;
        Ok(Self {
            path: config.path.clone(),
            fixed: config.fixed.clone(),
            counters,
            queries: Mutex::new(QueryChannels { workers: queries, ticket: 0 }),
            samples: Mutex::default(),
            candidate: Mutex::new(candidate),
            rules: Mutex::new(ActiveRules {
                counters: RuleIds::new(&rules),
                rules,
                bundle: config.bundle.clone(),
                generation: policy.current().generation(),
                policy,
                reloads: 0,
                refused: 0,
                monitor: GrantorMonitor::default(),
            }),
            secrets: Mutex::default(),
            blocked: BlockedTable::default(),
            inside: InsideMap::default(),
            block_lists: OnceLock::new(),
            decisions,
            programs,
            change: Mutex::default(),
            attack: Mutex::new(None),
            agent_status: config
                .fixed
                .distribution
                .as_ref()
                .map(|_| Arc::new(AgentStatus::default())),
        })
    }

    /// Returns the state of the distribution, if bundles are configured.
    pub(crate) fn agent_status(&self) -> Option<&Arc<AgentStatus>> {
        self.agent_status.as_ref()
    }

    /// Adds the workers' sample rings.
    pub(super) fn with_samples(self, samples: Vec<Consumer<PacketSample>>) -> Self {
        Self { samples: Mutex::new(samples), ..self }
    }

    /// Adds the secrets of SYN cookies, to rotate them.
    pub(super) fn with_secrets(self, secrets: Publisher<Secrets>) -> Self {
        Self { secrets: Mutex::new(Some((secrets, Instant::now()))), ..self }
    }

    /// Returns the secrets of SYN cookies.
    pub(super) fn cookie_secrets(&self) -> Option<Secrets> {
        lock(&self.secrets).as_ref().map(|(secrets, _)| *secrets.current())
    }

    /// Continues with the secrets of a predecessor, whose cookies are still on their way.
    pub(super) fn set_cookie_secrets(&self, inherited: Secrets) {
        if let Some((secrets, _)) = &mut *lock(&self.secrets) {
            secrets.publish(Box::new(inherited));
        }
    }

    /// Returns the receiver of decisions.
    pub(super) fn decision_receiver(&self) -> &DecisionReceiver {
        &self.decisions
    }

    /// Replaces the secret of SYN cookies if it is [`ROTATION`] old.
    pub(super) fn rotate_secrets(&self, now: Instant) {
        let mut secrets = lock(&self.secrets);
        let Some((secrets, since)) = &mut *secrets else { return };
        if now.duration_since(*since) >= ROTATION {
            let next = secrets.current().rotate(Secret::random(), declined_map::now());
            secrets.publish(Box::new(next));
            *since = now;
        }
        while secrets.reclaim().is_some() {}
    }

    /// Removes the workers' samples from their rings, evaluates the candidate with them and passes them
    /// to `take`.
    pub(crate) fn drain_samples(&self, take: &mut dyn FnMut(PacketSample)) {
        let mut samples = lock(&self.samples);
        let (mut candidate, now) = (lock(&self.candidate), Instant::now());
        for ring in samples.iter_mut() {
            while let Ok(sample) = ring.pop() {
                if let Some(candidate) = &mut *candidate {
                    candidate.evaluate(now, &sample);
                }
                take(sample);
            }
        }
    }

    /// Evaluates the candidate if no dashboard drains the samples; to be called often.
    pub(super) fn evaluate_candidate(&self) {
        if self.fixed.daemon.metrics.is_none() && lock(&self.candidate).is_some() {
            self.drain_samples(&mut |_| {});
        }
    }

    /// Returns the result of the candidate's evaluation, if there is a candidate.
    pub(crate) fn candidate(&self) -> Option<CandidateStatus> {
        lock(&self.candidate).as_ref().map(CandidateEvaluation::status)
    }

    /// Returns the turn counter of the decision receiver's thread.
    pub(super) fn turns(&self) -> Turns {
        self.decisions.turns()
    }

    /// Returns whether the threads of the decision receiver and the program store run.
    pub(super) fn is_alive(&self) -> bool {
        self.decisions.is_alive() && self.programs.is_alive()
    }

    /// Sets the interface whose XDP program drops declined flows, blocked sources and forged packets.
    pub(super) fn set_front(&self, front: &Interface) {
        if self.fixed.xdp_declined_flows > 0 {
            self.decisions.set_front(front.clone());
        }
        let (rules, _) = self.active_rules();
        self.blocked.set_front(front.clone(), self.fixed.xdp_blocked_prefixes as usize);
        self.blocked.replace(&rules.sources);
        self.inside.set_front(front.clone());
        self.inside.replace(&rules);
    }

    /// Sets the access to the lists in front of the gate, which are changed with the rules.
    pub(super) fn set_block_lists(&self, lists: BlockListHandle) {
        // A gate has one daemon.
        let _ = self.block_lists.set(lists);
    }

    /// Reads the configuration again and applies the parts that may change: all of them or none.
    ///
    /// # Errors
    ///
    /// The first problem; the configuration before stays in force.
    pub(crate) fn reload(&self) -> Result<String, String> {
        let _change = lock(&self.change);
        let bundle = lock(&self.rules).bundle.clone();
        let result = self.read(bundle.as_ref()).and_then(|config| self.apply_config(config));
        if result.is_err() {
            lock(&self.rules).refused += 1;
        }
        result
    }

    /// Reads the configuration, with a bundle over it.
    fn read(&self, bundle: Option<&Arc<Bundle>>) -> Result<Config, String> {
        let config = Config::load_over(&self.path, bundle).map_err(|error| error.to_string())?;
        let keys = config.keys_needing_restart(&self.fixed);
        if !keys.is_empty() {
            let what = restart_message(&keys, "gate");
            return Err(format!("{}: {what}", self.path.display()));
        }
        Ok(config)
    }

    /// Applies a configuration, all of it or nothing.
    fn apply_config(&self, config: Config) -> Result<String, String> {
        let mut active = lock(&self.rules);
        let generation = active.generation + 1;
        let silent = active.monitor.silent();
        let mut rules = config.rules.clone();
        let counters = active.counters.assign_lines(&mut rules, &self.ledgers());
        let policy = rules.policy_without(generation, silent);
        let policy = policy.map_err(|error| error.to_string())?;
        let rules = Arc::new(rules);
        let candidate = CandidateEvaluation::new(&rules).map_err(|error| error.to_string())?;
        let prepared = self.decisions.prepare(&config.trust).map_err(|error| error.to_string())?;
        if let (Some(lists), Some(block)) = (self.block_lists.get(), &config.block) {
            lists.reconfigure(block).map_err(|error| error.to_string())?;
        }
        self.decisions.apply(prepared);
        active.policy.publish(Box::new(policy));
        self.programs.reload(&config);
        active.generation = generation;
        (active.rules, active.counters) = (rules, counters);
        // Removes samples from before the candidate.
        self.drain_samples(&mut |_| {});
        *lock(&self.candidate) = candidate;
        active.bundle = config.bundle;
        active.reloads += 1;
        // Flows in the map may be unprotected now, and their packets never reach a worker.
        self.decisions.clear_declined();
        // Workers without packets release the old policy too, when they are idle.
        while active.policy.reclaim_within(RECLAIM_TIMEOUT).is_some() {}
        let rules = Arc::clone(&active.rules);
        drop(active);
        // Status queries need not wait for the maps.
        self.blocked.replace(&rules.sources);
        self.inside.replace(&rules);
        let (count, senders) = (rules.rules.len(), config.trust.senders.len());
        let blocked = match rules.block.len() {
            0 => String::new(),
            blocked => format!(", {blocked} blocked prefixes"),
        };
        let candidate = if rules.candidate.is_some() { ", 1 candidate policy" } else { "" };
        Ok(format!(
            "policy generation {generation}: {count} prefixes{blocked}, {senders} senders{candidate}"
        ))
    }

    /// Retracts all decisions of a sender so far, and returns a confirmation.
    ///
    /// # Errors
    ///
    /// Sender 0 is invalid.
    pub(crate) fn flush(&self, sender: u32) -> Result<String, String> {
        if sender == 0 {
            return Err("sender 0 is invalid: name the id of a [[sender]]".to_owned());
        }
        self.decisions.flush(sender);
        Ok(format!("retracted all decisions of sender {sender}: their flows send requests again"))
    }

    /// Takes silent grantors out of the policy, gives their flows to others, and logs it.
    pub(super) fn monitor_grantors(&self) {
        let mut active = lock(&self.rules);
        let active = &mut *active;
        if !active.rules.sets.iter().any(|set| set.hold_time.is_some()) {
            return;
        }
        let last_messages = self.decisions.last_messages();
        let lines = active.monitor.update(&active.rules, &last_messages, Instant::now());
        if !lines.is_empty() {
            lines.iter().for_each(|line| log::warn!("{line}"));
            // The policy was valid with all grantors. The generation stays, so that grants stay valid.
            let silent = active.monitor.silent();
            if let Ok(policy) = active.rules.policy_without(active.generation, silent) {
                active.policy.publish(Box::new(policy));
                while active.policy.reclaim_within(RECLAIM_TIMEOUT).is_some() {}
            }
        }
    }

    /// Returns the rules in force and their generation.
    fn active_rules(&self) -> (Arc<Rules>, u64) {
        let active = lock(&self.rules);
        (Arc::clone(&active.rules), active.generation)
    }

    /// Returns the status of the gate.
    pub(crate) fn status(&self) -> GateStatus {
        let mut groups: BTreeMap<CounterGroup, BTreeMap<String, u64>> = BTreeMap::new();
        let xdp = self.xdp_drops();
        for (group, name, value) in self.counters_with(&xdp) {
            groups.entry(group).or_default().insert(name.to_owned(), value);
        }
        let mut take = |group| groups.remove(&group).unwrap_or_default();
        let mut decisions = take(CounterGroup::Decisions);
        let received = self.decision_counters().into_iter();
        decisions.extend(received.map(|(name, count)| (name.to_owned(), count)));
        let active = lock(&self.rules);
        GateStatus {
            front: self.fixed.front.name.clone(),
            back: self.fixed.back.name.clone(),
            bandwidth: self.fixed.bits,
            generation: active.generation,
            version: active.rules.version.clone(),
            prefixes: active.rules.rules.len() as u64,
            allowed: active.rules.allow.len() as u64,
            blocked: active.rules.block.len() as u64,
            grantors: active.rules.grantors().map(IpAddr::from).collect(),
            silent: active
                .monitor
                .silent()
                .iter()
                .map(|(_, address)| IpAddr::from(*address))
                .collect(),
            reloads: active.reloads,
            reloads_refused: active.refused,
            policies: self.rule_traffic_of(&active, &xdp),
            packets: take(CounterGroup::Packets),
            bytes: take(CounterGroup::Bytes),
            table: take(CounterGroup::Table),
            link: take(CounterGroup::Link),
            decisions,
            candidate: self.candidate(),
        }
    }

    /// Returns the counters of the decision receiver and the program store.
    pub(crate) fn decision_counters(&self) -> BTreeMap<&'static str, u64> {
        let mut counters = self.decisions.counts();
        counters.extend(self.programs.counts());
        counters
    }

    /// Lists the flow programs.
    pub(crate) fn programs(&self) -> Vec<ProgramInfo> {
        self.programs.list()
    }

    /// Removes and returns the log messages about programs of grantors.
    pub(super) fn drain_program_messages(&self) -> Vec<String> {
        self.programs.drain_messages()
    }

    /// Returns the generation of the policy, and the numbers of reloads and of refused ones.
    pub(crate) fn policy_counts(&self) -> (u64, u64, u64) {
        let active = lock(&self.rules);
        (active.generation, active.reloads, active.refused)
    }

    /// Returns the grantors, and whether each is silent.
    pub(crate) fn grantors(&self) -> Vec<(IpAddr, bool)> {
        let active = lock(&self.rules);
        let is_silent =
            |address| active.monitor.silent().iter().any(|(_, other)| *other == address);
        let grantors = active.rules.grantors();
        let mut all: Vec<_> =
            grantors.map(|address| (IpAddr::from(address), is_silent(address))).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl GateController {
    /// Records the report of an attack.
    pub(crate) fn set_attack(&self, report: AttackReport) {
        *lock(&self.attack) = Some(report);
    }
}

impl DistributionMember for GateController {
    fn attack(&self) -> Option<AttackReport> {
        lock(&self.attack).clone()
    }

    fn change_block(&self, change: BlockChange) -> Option<Result<String, String>> {
        let order = match change {
            BlockChange::Block(prefix, seconds) => Order::Ban { prefix, seconds },
            BlockChange::Unblock(prefix) => Order::Unban { prefix },
        };
        let missing = || Err("no section [block] with `bans`".to_owned());
        Some(self.block_lists.get().map_or_else(missing, |lists| lists.execute(order)))
    }

    fn validate(&self, bundle: &Arc<Bundle>) -> Result<(), String> {
        self.read(Some(bundle)).map(|_| ())
    }

    fn apply(&self, bundle: Option<Arc<Bundle>>) -> Result<String, String> {
        let _change = lock(&self.change);
        self.apply_config(self.read(bundle.as_ref())?)
    }

    /// Every packet counts as decided; the failures are those of flow programs.
    fn sample(&self) -> HealthSample {
        let counters = self.counters();
        let packets = |wanted: &str| {
            let mut found = counters
                .iter()
                .filter(|(group, name, _)| *group == CounterGroup::Packets && *name == wanted);
            found.next().map_or(0, |counter| counter.2)
        };
        HealthSample {
            failures: packets("program_error"),
            decided: packets("received"),
            granted: packets("granted"),
            silent_grantors: lock(&self.rules).monitor.silent().len() as u64,
        }
    }
}
