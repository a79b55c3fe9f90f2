//! The check of a grantor's file, or of a bundle's file in its place: collects every problem with its
//! line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gate::decision::FlowCommand;
use gate::decision::v2::chunk::MAX_OBJECT_LEN;
use gate::decision::v2::keys::Keys;
use gate::decision::v2::transfer::ProgramImage;
use gate::grantor::{List, Lists, PolicyResult};
use gate::program::Program;
use gate::state::{Decision, Grant, Provisional, Traffic};
use toml::Spanned;

use super::text::{Decisions, Listed, ProgramFile, Ruled};
use crate::decider::Policies;
use crate::decision_sender::ProtocolVersion;
use bundle::FileSource;
use config::Checker;

/// The values of `tunnel.authentication`.
pub(super) const ON_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];

/// Parses a ruling such as `decline 10`.
fn parse_ruling(text: &str) -> Option<PolicyResult> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["nothing"] => Some(PolicyResult::NOTHING),
        ["decline", seconds] => {
            let expire_s = seconds.parse().ok()?;
            // A packet on which the policy failed, or that stayed incomplete, does not prove its source.
            let traffic = Traffic::All;
            let decline = Decision::Provisional(Provisional { expire_s, traffic });
            let command = Some(FlowCommand::Decide(decline));
            Some(PolicyResult { command, deliver: false })
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

/// Reads a ruling, if the key is set.
pub(super) fn ruling(
    c: &mut Checker<'_>,
    value: Option<&Spanned<String>>,
    key: &'static str,
) -> Option<PolicyResult> {
    let value = value?;
    let ruling = parse_ruling(value.get_ref());
    if ruling.is_none() {
        let what = format!(
            "{:?} is unknown: \"decline SECONDS\", \"grant KIB SECONDS\" or \"nothing\"",
            value.get_ref()
        );
        c.problem(value, key, what);
    }
    ruling
}

/// Reads the text of a policy.
fn script(
    c: &mut Checker<'_>,
    file: &Spanned<PathBuf>,
    key: &'static str,
    folder: FileSource<'_>,
) -> String {
    let text = folder.read_text(file.get_ref());
    text.unwrap_or_else(|error| {
        c.problem(file, key, format!("{}: {error}", file.get_ref().display()));
        String::new()
    })
}

/// Reads the flow programs, and verifies them as gates do.
fn programs(
    c: &mut Checker<'_>,
    listed: &[ProgramFile],
    version: u8,
    folder: FileSource<'_>,
) -> Vec<ProgramImage> {
    let mut images: Vec<ProgramImage> = Vec::new();
    for ProgramFile { number, file } in listed {
        if images.iter().any(|image| image.number() == *number.get_ref()) {
            let what = format!("{} is a duplicate", number.get_ref());
            c.problem(number, "program.number", what);
        }
        if version == 1 {
            let what = "programs are sent by version 2 of the protocol only";
            c.problem(file, "program.file", what);
        }
        let (name, shown) = (file.get_ref(), file.get_ref().display());
        let read = folder.read(name).map_err(|error| error.to_string());
        let object = read.and_then(|object| match Program::load(&object) {
            Ok(_) if object.len() > MAX_OBJECT_LEN => Err(format!(
                "{} bytes are too many: at most {MAX_OBJECT_LEN}; strip the object (llvm-strip -g)",
                object.len()
            )),
            Ok(_) => Ok(object),
            Err(error) => Err(error.to_string()),
        });
        match object {
            Ok(object) => {
                let name = name.file_stem().unwrap_or_default().to_string_lossy();
                images.push(ProgramImage::new(*number.get_ref(), &name, &object));
            }
            Err(what) => c.problem(file, "program.file", format!("{shown}: {what}")),
        }
    }
    images
}

/// Reads the parts that a bundle may replace, from the file or from a bundle.
pub(super) fn check_ruled(
    c: &mut Checker<'_>,
    ruled: &Ruled,
    version: u8,
    folder: FileSource<'_>,
) -> (Policies, Lists, Vec<ProgramImage>) {
    let candidate = ruled.policy.candidate.as_ref();
    let policies = Policies {
        policy: script(c, &ruled.policy.file, "policy.file", folder),
        candidate: candidate.map(|at| script(c, at, "policy.candidate", folder)),
    };
    let mut lists = Lists::new();
    for Listed { name, file } in &ruled.list {
        let list = folder.read_text(file.get_ref()).map_err(|error| error.to_string());
        match list.and_then(|text| List::parse(&text).map_err(|error| error.to_string())) {
            Ok(list) => {
                if lists.insert(name.get_ref().clone(), Arc::new(list)).is_some() {
                    let what = format!("{:?} is a duplicate", name.get_ref());
                    c.problem(name, "list.name", what);
                }
            }
            Err(what) => {
                let what = format!("{}: {what}", file.get_ref().display());
                c.problem(file, "list.file", what);
            }
        }
    }
    let programs = programs(c, &ruled.program, version, folder);
    (policies, lists, programs)
}

/// Reads the version of the protocol, with its keys.
pub(super) fn protocol_version(
    c: &mut Checker<'_>,
    decisions: &Decisions,
    folder: &Path,
) -> ProtocolVersion {
    match decisions.version.get_ref() {
        1 => return ProtocolVersion::V1,
        2 => {}
        other => {
            let what = format!("{other} is not a version of the protocol: 1 or 2");
            c.problem(&decisions.version, "decisions.version", what);
        }
    }
    if decisions.id == 0 || decisions.keys.is_empty() {
        let what = "version 2 needs an `id` that is not 0, and `keys`";
        c.problem(&decisions.version, "decisions", what);
    }
    let mut keys = Keys::default();
    let secrets = c.secrets(&decisions.keys, folder, "decisions.keys");
    for (number, secret) in &secrets {
        keys.add(*number, secret);
    }
    if let Some((highest, _)) = secrets.iter().max_by_key(|(number, _)| number) {
        keys.sign_with(*highest);
    }
    ProtocolVersion::V2(decisions.id, keys)
}
