//! The program on an interface, also after the interface is removed and made again.

use std::fmt;

use anyhow::{Context, ensure};
use nix::net::if_::if_nametoindex;
use port::af_xdp::bpf::{AttachError, Link, Mode, Program};

/// The place of the program that the operator chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ModeChoice {
    /// In the driver where it can, else in the stack.
    Auto,
    /// In the driver.
    Native,
    /// In the stack.
    Generic,
}

/// An interface, and the program on it while there is such an interface.
pub(super) struct Attachment {
    name: String,
    /// That of the interface that is served; 0 while there is none.
    index: u32,
    link: Option<Link>,
}

/// Finds the indexes of the interfaces.
pub(super) fn find(names: &[String]) -> anyhow::Result<Vec<(String, u32)>> {
    let mut found: Vec<(String, u32)> = Vec::new();
    for name in names {
        let index = if_nametoindex(name.as_str())
            .with_context(|| format!("no interface {name}; `ip link` lists those there are"))?;
        ensure!(found.iter().all(|(_, other)| *other != index), "{name} is given twice");
        found.push((name.clone(), index));
    }
    Ok(found)
}

/// Attaches the program to all interfaces, or to none.
pub(super) fn attach_all(
    interfaces: &[(String, u32)],
    program: &Program,
    choice: ModeChoice,
) -> anyhow::Result<Vec<Attachment>> {
    let attach = |(name, index): &(String, u32)| {
        let link = attach(*index, program, choice)
            .with_context(|| format!("attaching the program to {name}"))?;
        Ok(Attachment { name: name.clone(), index: *index, link: Some(link) })
    };
    interfaces.iter().map(attach).collect()
}

fn attach(index: u32, program: &Program, choice: ModeChoice) -> Result<Link, AttachError> {
    match choice {
        ModeChoice::Native => Link::attach(program, index, Mode::Native),
        ModeChoice::Generic => Link::attach(program, index, Mode::Generic),
        ModeChoice::Auto => match Link::attach(program, index, Mode::Native) {
            Err(AttachError::Unsupported) => Link::attach(program, index, Mode::Generic),
            other => other,
        },
    }
}

impl Attachment {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the place at which the program runs; `None` while there is no interface.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.link.as_ref().map(Link::mode)
    }

    /// Attaches the program to the interface of this name if that is another one than before.
    pub(super) fn follow(&mut self, program: &Program, choice: ModeChoice) {
        let index = if_nametoindex(self.name.as_str()).unwrap_or(0);
        if index == self.index {
            return;
        }
        self.index = index;
        self.link = None;
        if index == 0 {
            return log::error!(interface = self.name.as_str(); "{}: the interface is gone", self.name);
        }
        match attach(index, program, choice) {
            Ok(link) => {
                log::info!(interface = self.name.as_str(); "{}: there is another interface of this name", self.name);
                self.link = Some(link);
            }
            Err(error) => {
                log::error!(
                    interface = self.name.as_str(), reason:% = error;
                    "{}: the program is not attached to the new interface: {error}",
                    self.name
                );
            }
        }
    }

    /// Puts another program in place of the present one.
    pub(super) fn replace(&self, program: &Program) {
        let Some(link) = &self.link else { return };
        if let Err(error) = link.replace(program) {
            log::error!(
                interface = self.name.as_str(), reason:% = error;
                "{}: the program with the new lists is not attached: {error}",
                self.name
            );
        }
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode() {
            Some(mode) => write!(f, "{} ({mode})", self.name),
            None => write!(f, "{} (gone)", self.name),
        }
    }
}
