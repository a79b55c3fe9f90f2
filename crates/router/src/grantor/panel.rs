//! The panel: what a grantor tells of itself while it works, and another policy.
//!
//! ```text
//!   client's thread ─► Panel ─┬─ deciders, a worker at a time    what the policy said
//!                             ├─ post                            decisions on their way
//!                             └─ reload: file, bundle ─► lists, policy, candidate, or nothing of it
//! ```
//!
//! It owns the threads beside the workers. Everything here may block; no worker waits for it.

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

use super::config::{Config, Fixed};
use super::decide::{Decider, Policies, Setup};
use super::hook::{Ends, FLIGHT, PLACES};
use super::post::Post;
use super::record::Recorder;
use super::told::{GateHeard, GrantorTold, ShadowTold};
use crate::control::progress::Turns;
use crate::distribution::{AgentStatus, Bundle, DistributionMember, HealthSample};
use crate::vantage::told::{ProgramTold, hexadecimal};

/// How long the policies may take to go over to other lists, to reclaim the last.
const PASS: Duration = Duration::from_millis(500);

/// What is asked while a grantor works.
#[derive(Debug)]
pub(crate) struct Panel {
    path: PathBuf,
    fixed: Fixed,
    deciders: Vec<Decider>,
    post: Post,
    recorder: Option<Recorder>,
    ruling: Mutex<Ruling>,
    /// What is told of bundles, if they come.
    agent_status: Option<Arc<AgentStatus>>,
}

/// What can be read anew.
#[derive(Debug)]
struct Ruling {
    lists: Publisher<Lists>,
    policies: Policies,
    bundle: Option<Arc<Bundle>>,
    reloads: u64,
    refused: u64,
}

impl Panel {
    /// Starts the post and a policy for each worker; what is wrong with a policy is an error.
    pub(super) fn start(config: &Config) -> io::Result<(Self, Vec<Ends>)> {
        let (voice, programs) = (config.voice.clone(), config.programs.clone());
        let keys = Publisher::new(GateKeys::default());
        let mut readers: Vec<_> = config.fixed.cores.iter().map(|_| keys.reader()).collect();
        let (post, letters) = Post::start(voice, &config.fixed.gates, programs, keys)?;
        let recorder = config.fixed.record.as_ref().map(Recorder::start).transpose()?;
        let lists = Publisher::new(config.lists.clone());
        let (mut deciders, mut ends) = (Vec::new(), Vec::new());
        for number in 0..config.fixed.cores.len() {
            let (asks, queue) = RingBuffer::new(FLIGHT);
            let (answers, answered) = RingBuffer::new(PLACES);
            let setup = Setup {
                policies: config.policies.clone(),
                lists: [lists.reader(), lists.reader()],
                limits: config.fixed.limits,
                fragments: config.fixed.fragments,
                asks: queue,
                answers,
                post: letters.clone(),
                record: recorder.as_ref().map(|recorder| recorder.taker(PLACES)),
            };
            deciders.push(Decider::start(number, setup)?);
            ends.push(Ends { asks, answers: answered, keys: readers.remove(0) });
        }
        let policies = config.policies.clone();
        let bundle = config.bundle.clone();
        let ruling = Mutex::new(Ruling { lists, policies, bundle, reloads: 0, refused: 0 });
        let (path, fixed) = (config.path.clone(), config.fixed.clone());
        let agent_status = fixed.distribution.as_ref().map(|_| Arc::new(AgentStatus::new()));
        Ok((Self { path, fixed, deciders, post, recorder, ruling, agent_status }, ends))
    }

    /// Reads the policies and the lists again, and goes over to them, or to nothing of it.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub(crate) fn reload(&self) -> Result<String, String> {
        let mut ruling = self.ruling.lock().unwrap_or_else(PoisonError::into_inner);
        let bundle = ruling.bundle.clone();
        let done = self.read(bundle.as_ref()).and_then(|config| {
            config.try_policies()?;
            self.adopt(&mut ruling, config)
        });
        match &done {
            Ok(_) => ruling.reloads += 1,
            Err(_) => ruling.refused += 1,
        }
        done
    }

    /// Returns what is told of bundles, if they come.
    pub(crate) fn agent_status(&self) -> Option<&Arc<AgentStatus>> {
        self.agent_status.as_ref()
    }

    /// Reads the configuration, with a bundle over it.
    fn read(&self, bundle: Option<&Arc<Bundle>>) -> Result<Config, String> {
        let config = Config::load_over(&self.path, bundle).map_err(|error| error.to_string())?;
        if config.fixed != self.fixed {
            return Err(format!(
                "{}: an interface, a tunnel's end, a gate, a limit, the record, the workers, the control \
                 socket, the metrics or the distribution are others than at the start: restart the grantor",
                self.path.display()
            ));
        }
        Ok(config)
    }

    /// Goes over to what was read, or to nothing of it.
    fn adopt(&self, ruling: &mut Ruling, config: Config) -> Result<String, String> {
        let before = ruling.lists.current().clone();
        ruling.lists.publish(Box::new(config.lists.clone()));
        for (at, decider) in self.deciders.iter().enumerate() {
            if let Err(bad) = decider.reload(config.policies.clone()) {
                ruling.lists.publish(Box::new(before));
                // Which was loaded before.
                for decider in &self.deciders[..at] {
                    let _ = decider.reload(ruling.policies.clone());
                }
                while ruling.lists.reclaim_within(PASS).is_some() {}
                return Err(bad);
            }
        }
        while ruling.lists.reclaim_within(PASS).is_some() {}
        let programs = config.programs.len();
        self.post.programs.set(config.programs);
        let prefixes: usize = config.lists.values().map(|list| list.len()).sum();
        let beside = if config.policies.shadow.is_some() { ", a candidate beside it" } else { "" };
        ruling.policies = config.policies;
        ruling.bundle = config.bundle;
        let lists = config.lists.len();
        let programs = match programs {
            0 => String::new(),
            some => format!(", {some} programs"),
        };
        Ok(format!("the policy{beside}, {lists} lists, {prefixes} prefixes{programs}"))
    }

    /// Lists the flow programs by gate, and how it stands with them there.
    pub(crate) fn programs(&self) -> Vec<ProgramTold> {
        self.post.programs.list()
    }

    /// Takes what an operator should know.
    pub(super) fn news(&self) -> Vec<String> {
        self.post.programs.news()
    }

    /// Describes the grantor.
    pub(crate) fn told(&self) -> GrantorTold {
        let (mut policy, mut last_error) = (BTreeMap::new(), None);
        let mut shadow: Option<ShadowTold> = None;
        for shown in self.deciders.iter().map(Decider::shown) {
            shown.add_to(&mut policy);
            last_error = shown.last_error.or(last_error);
            if let Some(one) = shown.shadow {
                shadow.get_or_insert_default().add(one);
            }
        }
        let sent = &self.post.sent;
        let post = [
            ("items", &sent.items),
            ("messages", &sent.messages),
            ("busy", &sent.busy),
            ("acks_received", &sent.answers),
            ("acks_refused", &sent.answers_refused),
            ("abandoned", &sent.given_up),
            ("failed", &sent.failed),
        ];
        let post = post.map(|(name, counter)| (name.into(), counter.load(Ordering::Relaxed)));
        let ruling = self.ruling.lock().unwrap_or_else(PoisonError::into_inner);
        let lists = ruling.lists.current().iter();
        GrantorTold {
            policy,
            last_error,
            decisions: post.into(),
            digest: hexadecimal(&Sha256::digest(&ruling.policies.policy)),
            gates: sent.heard().into_iter().map(gate_heard).collect(),
            lists: lists.map(|(name, list)| (name.clone(), list.len())).collect(),
            reloads: ruling.reloads,
            reloads_refused: ruling.refused,
            candidate: shadow,
            record_failed: self.recorder.as_ref().and_then(Recorder::failed),
        }
    }

    /// Returns where the threads that make and send decisions count their turns.
    pub(super) fn turns(&self) -> impl Iterator<Item = Turns> {
        self.deciders.iter().map(Decider::turns).chain([self.post.turns()])
    }

    /// Says whether all threads are at work.
    pub(super) fn alive(&self) -> bool {
        self.post.alive() && self.deciders.iter().all(Decider::alive)
    }
}

fn gate_heard((gate, ago): (IpAddr, Option<Duration>)) -> GateHeard {
    GateHeard { gate, heard_ago: ago.map(|ago| ago.as_secs_f64()) }
}

impl DistributionMember for Panel {
    fn validate(&self, bundle: &Arc<Bundle>) -> Result<(), String> {
        self.read(Some(bundle))?.try_policies()
    }

    fn apply(&self, bundle: Option<Arc<Bundle>>) -> Result<String, String> {
        let config = self.read(bundle.as_ref())?;
        let mut ruling = self.ruling.lock().unwrap_or_else(PoisonError::into_inner);
        self.adopt(&mut ruling, config)
    }

    /// Requests are what is judged, and those whose packets go on are what is granted.
    fn sample(&self) -> HealthSample {
        let mut counts = BTreeMap::new();
        for decider in &self.deciders {
            decider.shown().add_to(&mut counts);
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
