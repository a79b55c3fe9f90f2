//! `fingerpost fleet status`: the members' states, each verified with the member's key.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use api::DistributionStatus;
use bundle::state::{MemberKeys, MemberState, SILENCE};
use fleet::{Broker, StoredState};
use serde_json::{Value, json};

use super::{ServerArgs, number_of, read_members, text};

/// The arguments of `fleet status` and `fleet attacks`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    servers: ServerArgs,
    /// Names and public keys of the members, a line each
    #[arg(long, value_name = "FILE")]
    members: PathBuf,
    /// Write JSON
    #[arg(short, long)]
    pub(super) json: bool,
}

impl Args {
    /// Reads and verifies all states.
    pub(super) fn read(&self) -> anyhow::Result<(Broker, Members)> {
        let keys = read_members(&self.members)?;
        let broker = self.servers.connect()?;
        let found = Members::read_all(&broker, &keys)?;
        Ok((broker, found))
    }
}

/// A member, as the fleet shows it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    /// Its verified state, with the age of that; none if it has never reported.
    pub(super) state: Option<(MemberState, Duration)>,
}

impl Member {
    /// Returns whether its last state is too old, or missing.
    pub(super) fn is_silent(&self) -> bool {
        self.state.as_ref().is_none_or(|(_, age)| *age > SILENCE)
    }

    /// Returns its distribution status, if it has reported.
    pub(super) fn distribution(&self) -> Option<&DistributionStatus> {
        self.state.as_ref().map(|(state, _)| &state.distribution)
    }
}

/// The members of a fleet, and the states that were refused.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) members: Vec<Member>,
    /// Names and reasons.
    pub(super) refused: Vec<(String, String)>,
}

impl Members {
    /// Verifies the stored states of a fleet.
    fn verify(fleet: &str, keys: &MemberKeys, stored: &[StoredState]) -> Self {
        let mut refused = Vec::new();
        let mut states = std::collections::BTreeMap::new();
        for StoredState { member, bytes } in stored {
            match keys.verify(fleet, member, bytes) {
                Ok(state) => {
                    let age = state.age();
                    states.insert(member.clone(), (state, age));
                }
                Err(why) => refused.push((member.clone(), why.to_string())),
            }
        }
        let member = |name: &str| Member { name: name.to_owned(), state: states.remove(name) };
        Self { members: keys.names().map(member).collect(), refused }
    }

    /// Reads and verifies the states of the listed members.
    pub(super) fn read(broker: &Broker, keys: &MemberKeys) -> anyhow::Result<Self> {
        Ok(Self::verify(broker.url().fleet(), keys, &broker.members(keys.names())?))
    }

    /// Returns 1 if a state is refused.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Returns the refused states in JSON.
    pub(super) fn refused_json(&self) -> Vec<Value> {
        let entry = |(name, why): &(String, String)| json!({ "name": name, "reason": why });
        self.refused.iter().map(entry).collect()
    }

    /// Writes the refused states.
    pub(super) fn write_refused(&self, out: &mut impl Write) -> std::io::Result<()> {
        self.refused.iter().try_for_each(|(name, why)| writeln!(out, "refused: {name}: {why}"))
    }

    /// Reads and verifies all states.
    fn read_all(broker: &Broker, keys: &MemberKeys) -> anyhow::Result<Self> {
        let names = broker.member_names()?;
        let stored = broker.members(names.iter().map(String::as_str))?;
        Ok(Self::verify(broker.url().fleet(), keys, &stored))
    }
}

/// Prints the status. The exit status is 1 if a state is refused.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (broker, found) = args.read()?;
    let (current, rollout) = (broker.current()?, broker.rollout()?);
    let mut out = std::io::stdout().lock();
    if args.json {
        let members: Vec<Value> = found.members.iter().map(member_json).collect();
        let document = json!({
            "url": broker.url().to_string(),
            "version": current.as_ref().map(|current| current.version),
            "rollout": rollout,
            "members": members,
            "refused": found.refused_json(),
        });
        serde_json::to_writer_pretty(&mut out, &document)?;
        writeln!(out)?;
    } else {
        let version =
            current.map_or("no version yet".to_owned(), |c| format!("version {}", c.version));
        writeln!(out, "{}: {version}", broker.url())?;
        if let Some(rollout) = rollout {
            let reason = rollout.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            let state = text(rollout.state);
            writeln!(
                out,
                "rollout of version {}: {state}, stage {}{reason}",
                rollout.version, rollout.stage
            )?;
        }
        let silent = found.members.iter().filter(|member| member.is_silent()).count();
        writeln!(out, "{}, {silent} silent", number_of(found.members.len(), "member", "members"))?;
        for member in &found.members {
            write_member(&mut out, member)?;
        }
        found.write_refused(&mut out)?;
    }
    Ok(found.exit_code())
}

fn member_json(member: &Member) -> Value {
    let age = member.state.as_ref().map(|(_, age)| age.as_secs());
    let state = member.state.as_ref().map(|(state, _)| state);
    json!({
        "name": member.name,
        "silent": member.is_silent(),
        "age_seconds": age,
        "program": state.map(|state| &state.program),
        "distribution": member.distribution(),
    })
}

fn write_member(out: &mut impl Write, member: &Member) -> std::io::Result<()> {
    let Some((state, age)) = &member.state else {
        return writeln!(out, "{:<24} has not reported", member.name);
    };
    let status = &state.distribution;
    let version = status.version.map_or("local".to_owned(), |version| version.to_string());
    let silent = if member.is_silent() { ", silent" } else { "" };
    write!(
        out,
        "{:<24} {version:>8} {:<12} {} s ago{silent}",
        member.name,
        status.state.replace('_', " "),
        age.as_secs()
    )?;
    if !status.labels.is_empty() {
        write!(out, ", {}", status.labels.join(", "))?;
    }
    if let Some(blocked) = &status.blocked {
        let count = number_of(blocked.applied as usize, "prefix", "prefixes");
        write!(out, ", {count} blocked by list {}", blocked.sequence)?;
        for (prefix, why) in &blocked.refused {
            write!(out, "\n    {prefix} is not blocked: {why}")?;
        }
    }
    for text in status.reason.iter().chain(&status.last_error) {
        write!(out, "\n    {text}")?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use bundle::key::SecretKey;

    use super::*;

    #[test]
    fn members_are_those_of_the_list_with_verified_states() {
        let keys = [1, 2].map(|seed| SecretKey::from_seed([seed; 32]));
        let list = format!("a {}\nb {}\n", keys[0].public(), keys[1].public());
        let state = |name: &str, key: &SecretKey| {
            let distribution =
                DistributionStatus { name: name.to_owned(), ..DistributionStatus::default() };
            let bytes = MemberState::now("site", distribution, None).sign(key);
            StoredState { member: name.to_owned(), bytes }
        };
        // The second one is forged by the first one; the third is not of the list.
        let stored = [state("a", &keys[0]), state("b", &keys[0]), state("c", &keys[0])];
        let found = Members::verify("site", &MemberKeys::parse(&list).unwrap(), &stored);
        let silent: Vec<_> =
            found.members.iter().map(|member| (member.name.as_str(), member.is_silent())).collect();
        assert_eq!(silent, [("a", false), ("b", true)]);
        let refused: Vec<_> = found.refused.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(refused, ["b", "c"]);
    }
}
