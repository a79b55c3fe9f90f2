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
use flowspec::{FlowRules, Speaker, SpeakerEvent, StatusReader};

use super::{Daemon, compile};

/// Reports of the speaker that the daemon has not applied.
#[derive(Debug, Default)]
struct Reported {
    rules: Option<FlowRules>,
    notices: Vec<String>,
}

/// The flow specifications of a daemon.
#[derive(Debug, Default)]
pub(super) struct Flows {
    speaker: Option<Speaker>,
    reported: Arc<Mutex<Reported>>,
    /// The rules that apply.
    rules: Vec<Rule>,
    notices: Vec<String>,
}

impl Flows {
    /// Starts to listen, if the configuration has the section.
    pub(super) fn start(config: Option<&FlowspecConfig>) -> io::Result<Self> {
        let mut flows = Self::default();
        if let Some(config) = config {
            let reported = Arc::clone(&flows.reported);
            let report = move |event| {
                let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    SpeakerEvent::Rules(rules) => reported.rules = Some(rules),
                    SpeakerEvent::Established(peer) => {
                        reported.notices.push(format!("flowspec: session with {peer} established"));
                    }
                    SpeakerEvent::Ended(peer, reason) => {
                        reported
                            .notices
                            .push(format!("flowspec: session with {peer} ended: {reason}"));
                    }
                }
            };
            flows.speaker = Some(Speaker::start(config.options.clone(), report)?);
        }
        Ok(flows)
    }

    /// Returns a reader of the speaker's state.
    pub(super) fn status(&self) -> Option<StatusReader> {
        self.speaker.as_ref().map(Speaker::status_reader)
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
