//! A grantor brought to life: a daemon whose workers have stations, and threads beside them.
//!
//! The policies and the post start first, so that what is wrong with a policy is told before an
//! interface is touched; they end after the workers, which may still hand them something.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fib::Publisher;
use gate::grantor::Lists;
use port::af_xdp::Interface;
use rtrb::RingBuffer;
use serde::Serialize;

use super::config::Config;
use super::decide::{Decider, Setup};
use super::post::Post;
use super::station::{PLACES, Station, Tunnels};
use crate::daemon::{Daemon, Guard};
use crate::datapath;
use crate::router::{PortInfo, StartError, Stations, present};
use crate::stats::Snapshot;

/// How long the policies may take to go over to other lists, to reclaim the last.
const PASS: Duration = Duration::from_millis(500);

/// What a grantor tells of itself.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    /// What the policy said, and how often it failed.
    pub policy: BTreeMap<&'static str, u64>,
    /// Its last error.
    pub last_error: Option<String>,
    /// Decisions on their way to the gates.
    pub post: BTreeMap<&'static str, u64>,
    /// Prefixes by list.
    pub lists: BTreeMap<String, usize>,
}

/// A grantor, until it is stopped or dropped.
#[derive(Debug)]
pub struct Grantor {
    daemon: Daemon,
    deciders: Vec<Decider>,
    post: Post,
    lists: Mutex<Publisher<Lists>>,
}

impl Grantor {
    /// Starts a grantor by `config` in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left behind then.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let system = |doing| move |source| StartError::System { doing, source };
        let router = config.router();
        present(&router)?;
        let (post, letters) = Post::start(config.voice.clone(), &config.gates)
            .map_err(system("open sockets for decisions"))?;
        let lists = Publisher::new(config.lists.clone());
        let (mut deciders, mut ends) = (Vec::new(), Vec::new());
        for number in 0..config.cores.len() {
            let (asks, asked) = RingBuffer::new(PLACES);
            let (answers, answered) = RingBuffer::new(PLACES);
            let setup = Setup {
                policy: config.policy.clone(),
                lists: lists.reader(),
                limits: config.limits,
                asks: asked,
                answers,
                post: letters.clone(),
            };
            deciders.push(Decider::start(number, setup).map_err(system("load the policy"))?);
            ends.push((asks, answered));
        }
        let tunnels = Tunnels { ends: config.ends.clone(), gates: config.gates.clone() };
        let mut make = |_: usize, _: &[Interface]| -> Box<dyn datapath::Station> {
            let (asks, answers) = ends.remove(0);
            Box::new(Station::new(tunnels.clone(), asks, answers))
        };
        let stations = Stations { frames: PLACES as u32, make: &mut make };
        let daemon = Daemon::start_guarded(router, Guard { panel: None, stations })?;
        Ok(Self { daemon, deciders, post, lists: Mutex::new(lists) })
    }

    /// Does what clients want done; to be called from time to time.
    pub fn attend(&mut self) {
        self.daemon.attend();
    }

    /// Reads the policy and the lists again, and goes over to them; the rest of the file
    /// stays as it was at the start.
    ///
    /// # Errors
    ///
    /// What is wrong; what there was before is in force then, but for workers that had gone
    /// over to a policy that the next one's thread refused.
    pub fn reload(&self, config: &Config) -> Result<String, String> {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lists.current().clone();
        lists.publish(Box::new(config.lists.clone()));
        for decider in &self.deciders {
            if let Err(bad) = decider.reload(config.policy.clone()) {
                lists.publish(Box::new(before));
                while lists.reclaim_within(PASS).is_some() {}
                return Err(bad);
            }
        }
        while lists.reclaim_within(PASS).is_some() {}
        let prefixes: usize = config.lists.values().map(|list| list.len()).sum();
        Ok(format!("the policy, {} lists, {prefixes} prefixes", config.lists.len()))
    }

    /// Returns the ports, those of the first worker first.
    pub fn ports(&self) -> Vec<PortInfo> {
        self.daemon.ports()
    }

    /// Returns the counters, summed over the workers.
    pub fn stats(&self) -> Snapshot {
        self.daemon.stats()
    }

    /// Describes the grantor.
    pub fn told(&self) -> Told {
        let (mut policy, mut last_error) = (BTreeMap::new(), None);
        for shown in self.deciders.iter().map(Decider::shown) {
            shown.add_to(&mut policy);
            last_error = shown.last_error.or(last_error);
        }
        let sent = &self.post.sent;
        let post = [
            ("items", &sent.items),
            ("messages", &sent.messages),
            ("busy", &sent.busy),
            ("answers", &sent.answers),
            ("answers_refused", &sent.answers_refused),
            ("given_up", &sent.given_up),
            ("failed", &sent.failed),
        ];
        let post = post.map(|(name, counter)| (name, counter.load(Ordering::Relaxed)));
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let lengths = lists.current().iter().map(|(name, list)| (name.clone(), list.len()));
        Told { policy, last_error, post: post.into(), lists: lengths.collect() }
    }

    /// Says whether all threads are at work.
    pub fn alive(&self) -> bool {
        self.daemon.alive() && self.post.alive() && self.deciders.iter().all(Decider::alive)
    }

    /// Stops everything but what shows the counters, which are final afterwards; says
    /// whether all ended as they should.
    pub fn stop(&mut self) -> bool {
        self.daemon.stop()
    }
}
