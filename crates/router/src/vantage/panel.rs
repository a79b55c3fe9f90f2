//! The panel: what a gate is asked while it works, and another policy.
//!
//! ```text
//!   client's thread ─► Panel ─┬─ tallies of the workers        counters, the table (panel/counted.rs)
//!                             ├─ rings, a worker at a time     flows (panel/flows.rs)
//!                             ├─ samples ─► shadow             what a candidate would do
//!                             ├─ rules                         which rule, which version
//!                             ├─ blocked                       sources that end in the kernel
//!                             ├─ shelf                         flow programs
//!                             └─ reload: file, bundle ─► policy, trust ─► published together, or not
//! ```
//!
//! Everything here may block; no worker waits for it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fib::Publisher;
use gate::cookie::{Secret, Secrets};
use gate::policy::{Policy, PolicyError};
use port::af_xdp::Interface;
use rtrb::Consumer;

use super::blocked;
use super::config::{Config, Fixed, Rules, ip};
use super::decisions::Decisions;
use super::early;
use super::health::Health;
use super::inside;
use super::policies::Lines;
use super::rings::Talk;
use super::sampler::Sampled;
use super::shadow::Shadow;
use super::shelf::Shelf;
use super::tally::{About, Tally};
use crate::control::progress::Turns;
use crate::distribution::{AgentStatus, Bundle, DistributionMember, HealthSample};

mod counted;
mod flows;
pub mod told;

use told::{CandidateTold, GateTold, ProgramTold};

/// How long the workers may take to go over to another policy, to reclaim the last.
const PASS: Duration = Duration::from_millis(500);
/// How long SYN cookies are made with a secret.
const ROTATION: Duration = Duration::from_secs(3600);

/// What is asked while a gate works.
#[derive(Debug)]
pub(crate) struct Panel {
    path: PathBuf,
    fixed: Fixed,
    tallies: Vec<Arc<Tally>>,
    talks: Mutex<Talks>,
    samples: Mutex<Vec<Consumer<Sampled>>>,
    /// Of the candidate, if there is one.
    shadow: Mutex<Option<Shadow>>,
    rules: Mutex<Ruling>,
    /// The secret of SYN cookies, and the time of its last change.
    secrets: Mutex<Option<(Publisher<Secrets>, Instant)>>,
    blocked: blocked::Writer,
    inside: inside::Writer,
    // Before the shelf, whose thread ends with it.
    decisions: Decisions,
    shelf: Shelf,
    /// Held by who goes over to another policy.
    changing: Mutex<()>,
    /// What is told of bundles, if they come.
    agent_status: Option<Arc<AgentStatus>>,
}

#[derive(Debug)]
struct Talks {
    each: Vec<Talk>,
    ticket: u32,
}

/// The rules in force.
#[derive(Debug)]
struct Ruling {
    rules: Arc<Rules>,
    lines: Lines,
    bundle: Option<Arc<Bundle>>,
    generation: u64,
    policy: Publisher<Policy>,
    reloads: u64,
    refused: u64,
    health: Health,
}

/// Why a configuration was not taken over; what there was before is in force.
#[derive(Debug)]
pub struct Unchanged(String);

impl fmt::Display for Unchanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unchanged {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Panel {
    pub(super) fn new(
        config: &Config,
        policy: Publisher<Policy>,
        shelf: Shelf,
        tallies: Vec<Arc<Tally>>,
        talks: Vec<Talk>,
        decisions: Decisions,
    ) -> Result<Self, PolicyError> {
        let rules = Arc::new(config.rules.clone());
        let shadow = Shadow::new(&rules)?;
        Ok(Self {
            path: config.path.clone(),
            fixed: config.fixed.clone(),
            tallies,
            talks: Mutex::new(Talks { each: talks, ticket: 0 }),
            samples: Mutex::default(),
            shadow: Mutex::new(shadow),
            rules: Mutex::new(Ruling {
                lines: Lines::new(&rules),
                rules,
                bundle: config.bundle.clone(),
                generation: policy.current().generation(),
                policy,
                reloads: 0,
                refused: 0,
                health: Health::default(),
            }),
            secrets: Mutex::default(),
            blocked: blocked::Writer::default(),
            inside: inside::Writer::default(),
            decisions,
            shelf,
            changing: Mutex::default(),
            agent_status: config.fixed.distribution.as_ref().map(|_| Arc::new(AgentStatus::new())),
        })
    }

    /// Returns what is told of bundles, if they come.
    pub(crate) fn agent_status(&self) -> Option<&Arc<AgentStatus>> {
        self.agent_status.as_ref()
    }

    /// Has these samples to give.
    pub(super) fn with_samples(self, samples: Vec<Consumer<Sampled>>) -> Self {
        Self { samples: Mutex::new(samples), ..self }
    }

    /// Rotates these secrets from time to time.
    pub(super) fn with_secrets(self, secrets: Publisher<Secrets>) -> Self {
        Self { secrets: Mutex::new(Some((secrets, Instant::now()))), ..self }
    }

    /// Has SYN cookies made with another secret where the last one is [`ROTATION`] old.
    pub(super) fn rotate_secrets(&self, now: Instant) {
        let mut secrets = lock(&self.secrets);
        let Some((secrets, since)) = &mut *secrets else { return };
        if now.duration_since(*since) >= ROTATION {
            let next = secrets.current().rotate(Secret::random(), early::now());
            secrets.publish(Box::new(next));
            *since = now;
        }
        while secrets.reclaim().is_some() {}
    }

    /// Takes the samples that workers have left; the candidate is compared by them.
    pub(crate) fn samples(&self, mut take: impl FnMut(Sampled)) {
        let mut samples = lock(&self.samples);
        let (mut shadow, now) = (lock(&self.shadow), Instant::now());
        for ring in samples.iter_mut() {
            while let Ok(sampled) = ring.pop() {
                if let Some(shadow) = &mut *shadow {
                    shadow.see(now, &sampled);
                }
                take(sampled);
            }
        }
    }

    /// Has the candidate compared where nobody else takes samples; to be called often.
    pub(super) fn compare(&self) {
        if self.fixed.metrics.is_none() && lock(&self.shadow).is_some() {
            self.samples(|_| {});
        }
    }

    /// Tells of the candidate, if there is one.
    pub(crate) fn candidate(&self) -> Option<CandidateTold> {
        lock(&self.shadow).as_ref().map(Shadow::told)
    }

    /// Returns where the thread that receives decisions counts its turns.
    pub(super) fn turns(&self) -> Turns {
        self.decisions.turns()
    }

    /// Says whether who listens to grantors is at work.
    pub(super) fn alive(&self) -> bool {
        self.decisions.alive() && self.shelf.alive()
    }

    /// Has declined flows and blocked sources dropped by this interface's program, as far as it may.
    pub(super) fn set_front(&self, front: &Interface) {
        if self.fixed.early > 0 {
            self.decisions.set_front(front.clone());
        }
        let (rules, _) = self.ruling();
        if self.fixed.early_prefixes > 0 {
            self.blocked.set_front(front.clone());
            self.blocked.go_over(&rules.sources);
        }
        self.inside.set_front(front.clone());
        self.inside.write(&rules);
    }

    /// Reads the configuration again and goes over to what may change of it, or to nothing.
    ///
    /// # Errors
    ///
    /// [`Unchanged`], with the reason.
    pub(crate) fn reload(&self) -> Result<String, Unchanged> {
        let _alone = lock(&self.changing);
        let bundle = lock(&self.rules).bundle.clone();
        let done = self.read(bundle.as_ref()).and_then(|config| self.adopt(config));
        if done.is_err() {
            lock(&self.rules).refused += 1;
        }
        done.map_err(Unchanged)
    }

    /// Reads the configuration, with a bundle over it.
    fn read(&self, bundle: Option<&Arc<Bundle>>) -> Result<Config, String> {
        let config = Config::load_over(&self.path, bundle).map_err(|error| error.to_string())?;
        if config.fixed != self.fixed {
            return Err(format!(
                "{}: an interface, an address, the link, the table, admission, the tunnel, the workers, \
                 the control socket, the metrics or the distribution are others than at the start: restart \
                 the gate",
                self.path.display()
            ));
        }
        Ok(config)
    }

    /// Goes over to what was read, or to nothing of it.
    fn adopt(&self, config: Config) -> Result<String, String> {
        let mut ruling = lock(&self.rules);
        let generation = ruling.generation + 1;
        let silent = ruling.health.silent();
        let mut rules = config.rules.clone();
        let lines = ruling.lines.over(&mut rules, &self.ledgers());
        let policy = rules.policy_without(generation, silent);
        let policy = policy.map_err(|error| error.to_string())?;
        let rules = Arc::new(rules);
        let shadow = Shadow::new(&rules).map_err(|error| error.to_string())?;
        let prepared = self.decisions.prepare(&config.trust).map_err(|error| error.to_string())?;
        self.decisions.go_over(prepared);
        ruling.policy.publish(Box::new(policy));
        self.shelf.reload(&config);
        ruling.generation = generation;
        (ruling.rules, ruling.lines) = (rules, lines);
        // Before there was one nobody may have taken samples.
        self.samples(|_| {});
        *lock(&self.shadow) = shadow;
        ruling.bundle = config.bundle;
        ruling.reloads += 1;
        // Flows may have come out of protection, whose packets never reach a worker.
        self.decisions.clear_early();
        // Workers without packets let go of it by themselves.
        while ruling.policy.reclaim_within(PASS).is_some() {}
        let rules = Arc::clone(&ruling.rules);
        drop(ruling);
        // Who asks meanwhile need not wait for it.
        self.blocked.go_over(&rules.sources);
        self.inside.write(&rules);
        let (count, senders) = (rules.rules.len(), config.trust.senders.len());
        let blocked = match rules.block.len() {
            0 => String::new(),
            blocked => format!(", {blocked} of blocked sources"),
        };
        let beside = if rules.candidate.is_some() { ", a candidate beside it" } else { "" };
        Ok(format!(
            "policy generation {generation}: {count} prefixes{blocked}, {senders} senders{beside}"
        ))
    }

    /// Retracts all decisions of a sender so far, and returns a confirmation.
    ///
    /// # Errors
    /// Reports that 0 is no sender.
    pub(crate) fn flush(&self, sender: u32) -> Result<String, String> {
        if sender == 0 {
            return Err("0 is no sender: name one of [[sender]]".to_owned());
        }
        self.decisions.flush(sender);
        Ok(format!("retracted all decisions of sender {sender}: their flows send requests again"))
    }

    /// Looks for grantors that have become silent, gives their flows to others, and logs it.
    pub(super) fn look_after_grantors(&self) {
        let mut ruling = lock(&self.rules);
        let ruling = &mut *ruling;
        if !ruling.rules.sets.iter().any(|set| set.hold_time.is_some()) {
            return;
        }
        let lines = ruling.health.look(&ruling.rules, &self.decisions.heard(), Instant::now());
        if !lines.is_empty() {
            lines.iter().for_each(|line| log::warn!("{line}"));
            // Which was sound with all of them. Of the same generation: what was granted stays.
            let silent = ruling.health.silent();
            if let Ok(policy) = ruling.rules.policy_without(ruling.generation, silent) {
                ruling.policy.publish(Box::new(policy));
                while ruling.policy.reclaim_within(PASS).is_some() {}
            }
        }
    }

    fn ruling(&self) -> (Arc<Rules>, u64) {
        let ruling = lock(&self.rules);
        (Arc::clone(&ruling.rules), ruling.generation)
    }

    /// Describes the gate.
    pub(crate) fn gate(&self) -> GateTold {
        let mut about: BTreeMap<About, BTreeMap<String, u64>> = BTreeMap::new();
        let kernel = self.kernel();
        for (which, name, value) in self.numbers_with(&kernel) {
            about.entry(which).or_default().insert(name.to_owned(), value);
        }
        let mut take = |which| about.remove(&which).unwrap_or_default();
        let mut decisions = take(About::Decisions);
        decisions.extend(self.heard().into_iter().map(|(name, it)| (name.to_owned(), it)));
        let ruling = lock(&self.rules);
        GateTold {
            front: self.fixed.front.name.clone(),
            back: self.fixed.back.name.clone(),
            bandwidth: self.fixed.bits,
            generation: ruling.generation,
            version: ruling.rules.version.clone(),
            prefixes: ruling.rules.rules.len() as u64,
            allowed: ruling.rules.allow.len() as u64,
            blocked: ruling.rules.block.len() as u64,
            grantors: ruling.rules.grantors().map(ip).collect(),
            silent: ruling.health.silent().iter().map(|(_, address)| ip(*address)).collect(),
            reloads: ruling.reloads,
            reloads_refused: ruling.refused,
            policies: self.policies_of(&ruling, &kernel),
            packets: take(About::Packets),
            bytes: take(About::Bytes),
            table: take(About::Table),
            link: take(About::Link),
            decisions,
            candidate: self.candidate(),
        }
    }

    /// Returns what was heard of grantors.
    pub(crate) fn heard(&self) -> BTreeMap<&'static str, u64> {
        let mut heard = self.decisions.counts();
        heard.extend(self.shelf.counts());
        heard
    }

    /// Lists the flow programs.
    pub(crate) fn programs(&self) -> Vec<ProgramTold> {
        self.shelf.list()
    }

    /// Takes what is to be said of programs that grantors have sent.
    pub(super) fn news_of_programs(&self) -> Vec<String> {
        self.shelf.news()
    }

    /// Returns the generation of the policy, and how often it was read anew and refused.
    pub(crate) fn policy(&self) -> (u64, u64, u64) {
        let ruling = lock(&self.rules);
        (ruling.generation, ruling.reloads, ruling.refused)
    }

    /// Returns the grantors, and whether each is taken to be gone.
    pub(crate) fn grantors(&self) -> Vec<(IpAddr, bool)> {
        let ruling = lock(&self.rules);
        let gone = |address| ruling.health.silent().iter().any(|(_, silent)| *silent == address);
        let mut all: Vec<_> = ruling.rules.grantors().map(|it| (ip(it), gone(it))).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl DistributionMember for Panel {
    fn validate(&self, bundle: &Arc<Bundle>) -> Result<(), String> {
        self.read(Some(bundle)).map(|_| ())
    }

    fn apply(&self, bundle: Option<Arc<Bundle>>) -> Result<String, String> {
        let _alone = lock(&self.changing);
        self.adopt(self.read(bundle.as_ref())?)
    }

    /// Every packet is judged; flow programs that fail are what fails here.
    fn sample(&self) -> HealthSample {
        let numbers = self.numbers();
        let packets = |wanted: &str| {
            let mut found = numbers.iter().filter(|it| it.0 == About::Packets && it.1 == wanted);
            found.next().map_or(0, |it| it.2)
        };
        HealthSample {
            failures: packets("program_error"),
            decided: packets("received"),
            granted: packets("granted"),
            silent_grantors: lock(&self.rules).health.silent().len() as u64,
        }
    }
}
