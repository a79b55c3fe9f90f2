//! The panel: what a gate is asked while it works, and another policy.
//!
//! ```text
//!   client's thread ─► Panel ─┬─ tallies of the workers        counters, the table
//!                             ├─ rings, a worker at a time     flows
//!                             ├─ rules                         which rule, which version
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
use gate::flow::{Flow, Pair};
use gate::policy::Policy;
use gate::state::State;
use port::af_xdp::Interface;
use rtrb::Consumer;

use super::config::{Config, Fixed, Rule, Rules, ip};
use super::decisions::Decisions;
use super::health::Health;
use super::rings::{Answer, Known, Question, Talk};
use super::sampler::Sampled;
use super::shelf::Shelf;
use super::tally::{About, Tally};
use crate::datapath::Verdict;
use crate::distribution::{Board, Bundle, Member, Sample};

pub mod told;

use told::{FlowTold, GateTold, ProgramTold};

/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a worker is left alone between two looks for an answer.
const LOOK: Duration = Duration::from_millis(1);
/// How long the workers may take to go over to another policy, to reclaim the last.
const PASS: Duration = Duration::from_millis(500);

/// What is asked while a gate works.
#[derive(Debug)]
pub(crate) struct Panel {
    path: PathBuf,
    fixed: Fixed,
    tallies: Vec<Arc<Tally>>,
    talks: Mutex<Talks>,
    samples: Mutex<Vec<Consumer<Sampled>>>,
    rules: Mutex<Ruling>,
    // Before the shelf, whose thread ends with it.
    decisions: Decisions,
    shelf: Shelf,
    /// Held by who goes over to another policy.
    changing: Mutex<()>,
    /// What is told of bundles, if they come.
    board: Option<Arc<Board>>,
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
    ) -> Self {
        Self {
            path: config.path.clone(),
            fixed: config.fixed.clone(),
            tallies,
            talks: Mutex::new(Talks { each: talks, ticket: 0 }),
            samples: Mutex::default(),
            rules: Mutex::new(Ruling {
                rules: Arc::new(config.rules.clone()),
                bundle: config.bundle.clone(),
                generation: policy.current().generation(),
                policy,
                reloads: 0,
                refused: 0,
                health: Health::default(),
            }),
            decisions,
            shelf,
            changing: Mutex::default(),
            board: config.fixed.distribution.as_ref().map(|_| Arc::new(Board::new())),
        }
    }

    /// Returns what is told of bundles, if they come.
    pub(crate) fn board(&self) -> Option<&Arc<Board>> {
        self.board.as_ref()
    }

    /// Has these samples to give.
    pub(super) fn with_samples(self, samples: Vec<Consumer<Sampled>>) -> Self {
        Self { samples: Mutex::new(samples), ..self }
    }

    /// Takes the samples that workers have left.
    pub(crate) fn samples(&self, mut take: impl FnMut(Sampled)) {
        for ring in lock(&self.samples).iter_mut() {
            while let Ok(sampled) = ring.pop() {
                take(sampled);
            }
        }
    }

    /// Says whether who listens to grantors is at work.
    pub(super) fn alive(&self) -> bool {
        self.decisions.alive() && self.shelf.alive()
    }

    /// Has declined flows dropped by this interface's program.
    pub(super) fn set_front(&self, front: Interface) {
        self.decisions.set_front(front);
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
        let policy = config.rules.policy_without(generation, silent);
        let policy = policy.map_err(|error| error.to_string())?;
        let prepared = self.decisions.prepare(&config.trust).map_err(|error| error.to_string())?;
        self.decisions.go_over(prepared);
        ruling.policy.publish(Box::new(policy));
        self.shelf.reload(&config);
        ruling.generation = generation;
        ruling.rules = Arc::new(config.rules);
        ruling.bundle = config.bundle;
        ruling.reloads += 1;
        // Flows may have come out of protection, whose packets never reach a worker.
        self.decisions.clear_early();
        // Workers without packets let go of it by themselves.
        while ruling.policy.reclaim_within(PASS).is_some() {}
        let (count, senders) = (ruling.rules.rules.len(), config.trust.senders.len());
        Ok(format!("policy generation {generation}: {count} prefixes, {senders} senders"))
    }

    /// Looks for grantors that say nothing any more, and gives their flows to others; returns
    /// what is to be said of it.
    pub(super) fn look_after_grantors(&self) -> Vec<String> {
        let mut ruling = lock(&self.rules);
        let ruling = &mut *ruling;
        if !ruling.rules.sets.iter().any(|set| set.silent.is_some()) {
            return Vec::new();
        }
        let told = ruling.health.look(&ruling.rules, &self.decisions.heard(), Instant::now());
        if !told.is_empty() {
            // Which was sound with all of them. Of the same generation: what was granted stays.
            let silent = ruling.health.silent();
            if let Ok(policy) = ruling.rules.policy_without(ruling.generation, silent) {
                ruling.policy.publish(Box::new(policy));
                while ruling.policy.reclaim_within(PASS).is_some() {}
            }
        }
        told
    }

    /// Puts a question to every worker.
    fn ask(&self, question: Question) -> Result<Vec<Answer>, String> {
        let mut talks = lock(&self.talks);
        let Talks { each, ticket } = &mut *talks;
        *ticket = ticket.wrapping_add(1);
        let ticket = *ticket;
        let mut answers = Vec::new();
        for talk in each {
            let gone = || "a worker does not answer".to_owned();
            talk.questions.push((ticket, question)).map_err(|_| gone())?;
            let mut heard = Instant::now();
            loop {
                match talk.answers.pop() {
                    // Of a question that nobody waited for any more.
                    Ok((of, _)) if of != ticket => {}
                    Ok((_, Answer::End)) => break,
                    Ok((_, answer)) => {
                        answers.push(answer);
                        heard = Instant::now();
                    }
                    Err(_) if heard.elapsed() > PATIENCE => return Err(gone()),
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        }
        Ok(answers)
    }

    /// Says what is known of a flow.
    pub(crate) fn flow(&self, src: IpAddr, dst: IpAddr) -> Result<FlowTold, String> {
        let flow = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Flow::v4(src.into(), dst.into()),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Flow::v6(src.into(), dst.into()),
            _ => return Err(format!("{src} and {dst} are of different families")),
        };
        let answers = self.ask(Question::About(flow))?;
        let (rules, generation) = self.ruling();
        let known = answers.iter().find_map(|it| match it {
            Answer::Known(known) => Some(known),
            _ => None,
        });
        let dropped = answers.iter().find_map(|it| match it {
            Answer::Dropped(verdict, ago) => Some((verdict.name(), *ago)),
            _ => None,
        });
        let seen = answers.iter().find_map(|it| match it {
            Answer::Seen(ago) => Some(seconds(*ago)),
            _ => None,
        });
        let mut told = match known {
            Some(known) => tell(known, &rules, generation),
            None => FlowTold::unknown(src, dst, generation),
        };
        told.allowed = rules.allowing(src).map(|prefix| prefix.to_string());
        if told.allowed.is_some() && known.is_none() {
            told.state = "allowed".to_owned();
        }
        if let Some(&Rule { prefix, action, line, limit, limit_each, .. }) = rules.find(dst) {
            told.rule = Some(prefix.to_string());
            (told.limit, told.limit_each) = (limit, limit_each);
            told.action = Some(rules.words(action));
            told.line = Some(line);
        }
        told.seen_ago = seen.filter(|_| known.is_none());
        let cookies = self.fixed.admission.is_some_and(|it| it.cookies.is_some());
        told.proof = (cookies && known.is_none()).then(|| "syn-cookie".to_owned());
        told.early = self.decisions.is_early(&flow);
        told.version = rules.version.clone();
        told.dropped = dropped.map(|(name, _)| name.to_owned());
        told.dropped_ago = dropped.map(|(_, ago)| seconds(ago));
        if told.early {
            told.dropped = Some(Verdict::Declined.name().to_owned());
            told.dropped_ago = None;
        }
        Ok(told)
    }

    /// Lists flows, at most so many of a worker.
    pub(crate) fn flows(&self, most: u32) -> Result<Vec<FlowTold>, String> {
        let answers = self.ask(Question::Flows(most))?;
        let (rules, generation) = self.ruling();
        let known = answers.iter().filter_map(|it| match it {
            Answer::Known(known) => Some(tell(known, &rules, generation)),
            _ => None,
        });
        Ok(known.collect())
    }

    fn ruling(&self) -> (Arc<Rules>, u64) {
        let ruling = lock(&self.rules);
        (Arc::clone(&ruling.rules), ruling.generation)
    }

    /// Describes the gate.
    pub(crate) fn gate(&self) -> GateTold {
        let mut about: BTreeMap<About, BTreeMap<String, u64>> = BTreeMap::new();
        for (which, name, value) in self.numbers() {
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
            grantors: ruling.rules.grantors().map(ip).collect(),
            silent: ruling.health.silent().iter().map(|(_, address)| ip(*address)).collect(),
            reloads: ruling.reloads,
            reloads_refused: ruling.refused,
            packets: take(About::Packets),
            bytes: take(About::Bytes),
            table: take(About::Table),
            link: take(About::Link),
            decisions,
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

    /// Returns the workers' numbers, added up, in the order of the list.
    pub(crate) fn numbers(&self) -> Vec<(About, &'static str, u64)> {
        let mut all: Vec<(About, &'static str, u64)> = Vec::new();
        for tally in &self.tallies {
            for (at, (about, name, value)) in tally.iter().enumerate() {
                match (all.get_mut(at), name) {
                    (Some(sum), "highest_priority" | "percent") => sum.2 = sum.2.max(value),
                    (Some(sum), _) => sum.2 += value,
                    (None, _) => all.push((about, name, value)),
                }
            }
        }
        // As if a worker had dropped them.
        let (packets, bytes) = self.decisions.dropped_early();
        let (flows, troubles) = self.decisions.early();
        for (about, name, value) in &mut all {
            match (about, *name) {
                (About::Packets, "received" | "declined" | "early") => *value += packets,
                (About::Bytes, "received" | "declined") => *value += bytes,
                (About::Table, "early") => *value = flows,
                (About::Table, "early_troubles") => *value = troubles,
                _ => {}
            }
        }
        all
    }
}

impl Member for Panel {
    fn judge(&self, bundle: &Arc<Bundle>) -> Result<(), String> {
        self.read(Some(bundle)).map(|_| ())
    }

    fn go_over(&self, bundle: Option<Arc<Bundle>>) -> Result<String, String> {
        let _alone = lock(&self.changing);
        self.adopt(self.read(bundle.as_ref())?)
    }

    /// Every packet is judged; flow programs that fail are what fails here.
    fn sample(&self) -> Sample {
        let numbers = self.numbers();
        let packets = |wanted: &str| {
            let mut found = numbers.iter().filter(|it| it.0 == About::Packets && it.1 == wanted);
            found.next().map_or(0, |it| it.2)
        };
        Sample {
            failures: packets("program_error"),
            judged: packets("received"),
            granted: packets("granted"),
            silent: lock(&self.rules).health.silent().len() as u64,
        }
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn tell(known: &Known, rules: &Rules, generation: u64) -> FlowTold {
    let (src, dst): (IpAddr, IpAddr) = match known.flow.pair() {
        Pair::V4 { src, dst } => (IpAddr::V4(src.into()), IpAddr::V4(dst.into())),
        Pair::V6 { src, dst } => (IpAddr::V6(src.into()), IpAddr::V6(dst.into())),
    };
    let over = known.left == 0;
    let state = if over { "Expired".to_owned() } else { format!("{:?}", known.state) };
    let granted = known.state == State::Granted && !over;
    let decided = known.state != State::Request && known.stamp.sender != 0;
    FlowTold {
        state: state.to_lowercase(),
        expires: Some(seconds(known.left)),
        program: (known.state == State::Program && !over).then_some(known.program),
        priority: (known.state == State::Request).then_some(known.priority),
        asked_ago: (known.state == State::Request).then(|| seconds(known.idle)),
        budget: granted.then_some(known.budget),
        renewal: granted.then(|| seconds(known.renewal)),
        grantors: rules.set(known.set).map(|set| set.name.clone()),
        stale: known.generation != generation as u16,
        sender: decided.then_some(known.stamp.sender),
        decision: decided.then_some(known.stamp.number),
        ..FlowTold::unknown(src, dst, generation)
    }
}
