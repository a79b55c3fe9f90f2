//! The BGP flow specifications of a daemon: the rules that the speaker brings become an access list.
//!
//! ```text
//!   speaker's thread ─► latest rules, log lines ─► the daemon's thread ─► compiled ─► the plane
//! ```
//!
//! The list [`FLOWSPEC_LIST`] is before the configured ones: a packet that its rules permit meets the
//! interface's own list next. Lists are compiled on one thread, so that a reload
//! and a change of rules do not overtake each other.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use acl::Rule;
use config::{AccessListConfig, Config, FLOWSPEC_LIST, FlowspecConfig};
use flowspec::{FlowRules, FlowspecOptions, Speaker, SpeakerEvent};

use super::{Daemon, compile};
use crate::flow_status::FlowStatus;

/// Reports of the speaker that the daemon has not applied.
#[derive(Debug, Default)]
struct Reported {
    rules: Option<FlowRules>,
    notices: Vec<String>,
}

/// The step of the start of a speaker, in error messages.
pub(super) const LISTEN_BGP: &str = "listen for BGP (`[flowspec] listen`)";

/// The flow specifications of a daemon.
#[derive(Debug, Default)]
pub(super) struct Flows {
    speaker: Option<(FlowspecOptions, Speaker)>,
    status: FlowStatus,
    reported: Arc<Mutex<Reported>>,
    /// The rules that apply.
    rules: Vec<Rule>,
    notices: Vec<String>,
}

impl Flows {
    /// Starts, replaces or ends the speaker, if its options are not those of the configuration: its sessions end,
    /// and with them their rules, until the peers connect again.
    ///
    /// # Errors
    ///
    /// The system's, for example if another process listens on the address; the speaker before goes on, with new
    /// sessions if it is to listen on that address.
    pub(super) fn follow(&mut self, config: Option<&FlowspecConfig>) -> io::Result<()> {
        let wanted = config.map(|config| &config.options);
        if self.speaker.as_ref().map(|(options, _)| options) == wanted {
            return Ok(());
        }
        let previous = self.speaker.as_ref().map(|(options, _)| options.clone());
        if previous.as_ref().map(|options| options.listen) == wanted.map(|options| options.listen) {
            // Two cannot listen on one address.
            self.replace(None);
        }
        let started = wanted.map(start).transpose();
        match started {
            Ok(speaker) => {
                self.replace(speaker);
                Ok(())
            }
            Err(error) => {
                if let (None, Some(options)) = (&self.speaker, &previous) {
                    self.replace(start(options).ok());
                }
                Err(error)
            }
        }
    }

    /// Returns to the speaker of the configuration that stays in force.
    pub(super) fn restore(&mut self, config: Option<&FlowspecConfig>) {
        if let Err(error) = self.follow(config) {
            self.notices.push(format!("flowspec: cannot listen as before: {error}"));
        }
    }

    /// Ends the speaker before, and its rules.
    fn replace(&mut self, speaker: Option<StartedSpeaker>) {
        let (speaker, reported) = speaker.unzip();
        self.status.set(speaker.as_ref().map(|(_, speaker)| speaker.status_reader()));
        let before = std::mem::replace(&mut self.speaker, speaker);
        if before.is_some() {
            // Its thread has ended then, and reports no more.
            drop(before);
            self.take_reports();
            self.rules.clear();
        }
        self.reported = reported.unwrap_or_default();
    }

    /// Returns access to the speaker's state.
    pub(super) fn status(&self) -> FlowStatus {
        self.status.clone()
    }

    /// Returns the list of a configuration's flow specifications.
    pub(super) fn list(&self, config: Option<&FlowspecConfig>) -> Option<AccessListConfig> {
        config.map(|config| AccessListConfig {
            name: FLOWSPEC_LIST.to_owned(),
            permits: true,
            rules: self.rules.clone(),
            inbound: config.inbound.clone(),
            outbound: Vec::new(),
        })
    }

    /// Takes the lines for the operator's log.
    pub(super) fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Takes the speaker's reports; returns whether the rules have changed.
    fn take_reports(&mut self) -> bool {
        let reported = {
            let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *reported)
        };
        self.notices.extend(reported.notices);
        match reported.rules {
            Some(rules) => {
                self.rules = rules.rules;
                true
            }
            None => false,
        }
    }
}

/// A speaker with its options, and its reports.
type StartedSpeaker = ((FlowspecOptions, Speaker), Arc<Mutex<Reported>>);

/// Starts a speaker.
fn start(options: &FlowspecOptions) -> io::Result<StartedSpeaker> {
    let reported: Arc<Mutex<Reported>> = Arc::default();
    let reports = Arc::clone(&reported);
    let report = move |event| {
        let mut reported = reports.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            SpeakerEvent::Rules(rules) => reported.rules = Some(rules),
            SpeakerEvent::Established(peer) => {
                reported.notices.push(format!("flowspec: session with {peer} established"));
            }
            SpeakerEvent::Ended(peer, reason) => {
                reported.notices.push(format!("flowspec: session with {peer} ended: {reason}"));
            }
        }
    };
    let speaker = Speaker::start(options.clone(), report)?;
    Ok(((options.clone(), speaker), reported))
}

/// Returns the lists of a configuration, that of the flow specifications first.
pub(super) fn configured(config: &Config, flows: &Flows) -> Vec<AccessListConfig> {
    flows.list(config.flowspec.as_ref()).into_iter().chain(config.access_lists.clone()).collect()
}

impl Daemon {
    /// Applies the flow specifications that have changed.
    pub(super) fn follow_flows(&mut self) {
        if !self.flows.take_reports() {
            return;
        }
        match compile(&self.config, &self.flows, &self.active_lists()) {
            Ok(lists) => drop(self.handle.call(move |sync| sync.plane.set_active_lists(lists))),
            Err(error) => {
                let line = format!("flowspec: the rules before stay in effect: {error}");
                self.flows.notices.push(line);
            }
        }
    }
}
