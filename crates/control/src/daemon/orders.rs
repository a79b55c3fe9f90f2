//! Executes the orders of the control socket's clients on the daemon.

use super::Daemon;
use crate::requests::{Orders, SaveImage};

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

    fn observe(&mut self, interface: &str, only: bool) -> Result<(), String> {
        Self::observe(self, interface, only)
    }
}
