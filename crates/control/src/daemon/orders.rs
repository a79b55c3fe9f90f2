//! Executes the orders of the control socket's clients on the daemon.

use std::sync::mpsc::Receiver;

use super::Daemon;
use crate::requests::{Orders, SaveImage, UpgradeResult};

impl Orders for Daemon {
    fn reload(&mut self) -> Result<String, String> {
        match Self::reload(self) {
            Ok(report) => Ok(report.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn saver(&self) -> Result<SaveImage, String> {
        let saver = Self::saver(self).map_err(|error| error.to_string())?;
        Ok(Box::new(move || match saver.save() {
            Ok((saved, _)) => Ok(saved.to_string()),
            Err(error) => Err(error.to_string()),
        }))
    }

    fn is_current(&self) -> bool {
        Self::is_current(self)
    }

    fn upgrade(&mut self) -> Result<Receiver<UpgradeResult>, String> {
        Self::upgrade(self)
    }

    fn observe(&mut self, interface: &str, only: bool) -> Result<(), String> {
        Self::observe(self, interface, only)
    }
}
