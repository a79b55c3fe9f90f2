//! Judges what stands in a grantor's file, or in a bundle in its place: everything that is wrong is
//! gathered, each with its line, before anything is said.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gate::decision::FlowCommand;
use gate::decision::v2::chunk::MAX_OBJECT_LEN;
use gate::decision::v2::keys::Keys;
use gate::decision::v2::transfer::ProgramImage;
use gate::grantor::{List, Lists, PolicyResult};
use gate::policy::Address;
use gate::program::Program;
use gate::state::{Decision, Grant, Provisional, Traffic};
use toml::Spanned;

use super::text::{Decisions, Listed, Ruled, Sent};
use crate::config::{ConfigError, Problem, place};
use crate::distribution::FileSource;
use crate::grantor::decide::Policies;
use crate::grantor::post::Voice;
use crate::vantage::config::check::secret;

/// Reads a ruling in words.
fn ruling(text: &str) -> Option<PolicyResult> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["nothing"] => Some(PolicyResult::NOTHING),
        ["decline", seconds] => {
            let expire_s = seconds.parse().ok()?;
            // The contents of a packet that the policy failed on, or that stayed incomplete, are no
            // proof of its source.
            let traffic = Traffic::All;
            let decline = Decision::Provisional(Provisional { expire_s, traffic });
            let say = Some(FlowCommand::Decide(decline));
            Some(PolicyResult { command: say, deliver: false })
        }
        ["grant", rate, seconds] => {
            let (rate_kib, expire_s): (u32, u32) = (rate.parse().ok()?, seconds.parse().ok()?);
            let next_renewal_ms = expire_s.saturating_mul(800);
            let grant = Grant { rate_kib, expire_s, next_renewal_ms, renewal_step_ms: 3_000 };
            Some(PolicyResult {
                command: Some(FlowCommand::Decide(Decision::Grant(grant))),
                deliver: true,
            })
        }
        _ => None,
    }
}

/// Who judges a text, and gathers what is wrong.
pub(super) struct Checker<'t> {
    pub(super) text: &'t str,
    pub(super) problems: Vec<Problem>,
}

impl Checker<'_> {
    pub(super) fn problem<T>(
        &mut self,
        at: &Spanned<T>,
        key: &'static str,
        what: impl Into<String>,
    ) {
        let line = place(self.text, at.span().start).0;
        self.problems.push(Problem { line, key, what: what.into() });
    }

    pub(super) fn addresses(
        &mut self,
        listed: &[Spanned<String>],
        key: &'static str,
    ) -> Vec<Address> {
        let mut read = Vec::new();
        for at in listed {
            match at.get_ref().parse() {
                Ok(IpAddr::V4(address)) => read.push(Address::V4(address.into())),
                Ok(IpAddr::V6(address)) => read.push(Address::V6(address.into())),
                Err(_) => {
                    self.problem(at, key, format!("{:?} is not an IP address", at.get_ref()));
                }
            }
        }
        read
    }

    /// Reads a ruling in words, if there is one.
    pub(super) fn ruling(
        &mut self,
        said: Option<&Spanned<String>>,
        key: &'static str,
    ) -> Option<PolicyResult> {
        let said = said?;
        let ruling = ruling(said.get_ref());
        if ruling.is_none() {
            let what = "neither \"decline SECONDS\", \"grant KIB SECONDS\" nor \"nothing\"";
            self.problem(said, key, what);
        }
        ruling
    }

    /// Reads the text of a policy.
    pub(super) fn script(
        &mut self,
        file: &Spanned<PathBuf>,
        key: &'static str,
        folder: FileSource<'_>,
    ) -> String {
        let text = folder.read_text(file.get_ref());
        text.unwrap_or_else(|error| {
            self.problem(file, key, format!("{}: {error}", file.get_ref().display()));
            String::new()
        })
    }

    /// Reads the flow programs, and has the verifier look at them as gates will.
    pub(super) fn programs(
        &mut self,
        listed: &[Sent],
        version: u8,
        folder: FileSource<'_>,
    ) -> Vec<ProgramImage> {
        let mut parcels: Vec<ProgramImage> = Vec::new();
        for Sent { number, file } in listed {
            if parcels.iter().any(|it| it.number() == *number.get_ref()) {
                let what = format!("{} is a duplicate", number.get_ref());
                self.problem(number, "program.number", what);
            }
            if version == 1 {
                let what = "programs are sent by version 2 of the protocol only";
                self.problem(file, "program.file", what);
            }
            let (name, shown) = (file.get_ref(), file.get_ref().display());
            let read = folder.read(name).map_err(|error| error.to_string());
            let object = read.and_then(|object| match Program::load(&object) {
                Ok(_) if object.len() > MAX_OBJECT_LEN => Err(format!(
                    "{} bytes, where {MAX_OBJECT_LEN} are sent at the most: strip it (llvm-strip -g)",
                    object.len()
                )),
                Ok(_) => Ok(object),
                Err(error) => Err(error.to_string()),
            });
            match object {
                Ok(object) => {
                    let name = name.file_stem().unwrap_or_default().to_string_lossy();
                    parcels.push(ProgramImage::new(*number.get_ref(), &name, &object));
                }
                Err(what) => self.problem(file, "program.file", format!("{shown}: {what}")),
            }
        }
        parcels
    }

    /// Reads what may come in a bundle, whether it does or not.
    pub(super) fn ruled(
        &mut self,
        said: &Ruled,
        version: u8,
        folder: FileSource<'_>,
    ) -> (Policies, Lists, Vec<ProgramImage>) {
        let candidate = said.policy.candidate.as_ref();
        let policies = Policies {
            policy: self.script(&said.policy.file, "policy.file", folder),
            shadow: candidate.map(|at| self.script(at, "policy.candidate", folder)),
        };
        let mut lists = Lists::new();
        for Listed { name, file } in &said.list {
            let list = folder.read_text(file.get_ref()).map_err(|error| error.to_string());
            match list.and_then(|text| List::parse(&text).map_err(|bad| bad.to_string())) {
                Ok(list) => {
                    if lists.insert(name.get_ref().clone(), Arc::new(list)).is_some() {
                        let what = format!("{:?} is a duplicate", name.get_ref());
                        self.problem(name, "list.name", what);
                    }
                }
                Err(what) => {
                    let what = format!("{}: {what}", file.get_ref().display());
                    self.problem(file, "list.file", what);
                }
            }
        }
        let programs = self.programs(&said.program, version, folder);
        (policies, lists, programs)
    }

    /// Ends with an error, if there is a problem.
    pub(super) fn end(&mut self, path: &Path) -> Result<(), ConfigError> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let mut problems = std::mem::take(&mut self.problems);
        problems.sort_by_key(|problem| problem.line);
        Err(ConfigError::Sense { path: path.into(), problems })
    }

    pub(super) fn voice(&mut self, said: &Decisions, beside: &Path) -> Voice {
        match said.version.get_ref() {
            1 => return Voice::V1,
            2 => {}
            other => {
                let what = format!("{other} is no version: 1 or 2");
                self.problem(&said.version, "decisions.version", what);
            }
        }
        if said.id == 0 || said.keys.is_empty() {
            let what = "version 2 needs an `id` that is not 0, and `keys`";
            self.problem(&said.version, "decisions", what);
        }
        let (mut keys, mut highest) = (Keys::default(), 0);
        for (name, file) in &said.keys {
            let number = name.parse::<u16>();
            match (number, secret(&beside.join(file.get_ref()))) {
                (Ok(number), Ok(secret)) => {
                    keys.add(number, &secret);
                    highest = highest.max(number);
                    keys.sign_with(highest);
                }
                (Err(_), _) => {
                    let what = format!("{name:?} is no number up to 65535");
                    self.problem(file, "decisions.keys", what);
                }
                (_, Err(what)) => self.problem(file, "decisions.keys", what),
            }
        }
        Voice::V2(said.id, keys)
    }
}
