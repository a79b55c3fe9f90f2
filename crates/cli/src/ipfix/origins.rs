//! The AS numbers and BGP next hops of addresses, from files of routes.
//!
//! The kernel's routes have neither. BIRD's `protocol mrt` and FRR's `dump bgp routes-mrt` write both at
//! intervals; a file whose time of change differs is read again. A text table has what its labels are:
//! the number of an AS, an address, or both.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use fib::{Hop, Rib};

use crate::tables::Tables;

/// The AS that originates the routes to an address, and their next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// 0 is unknown.
    pub(super) asn: u32,
    pub(super) next_hop: Option<IpAddr>,
}

impl Origin {
    /// Reads the label of a route. Several AS of one prefix are none.
    fn parse(label: &str) -> Self {
        let mut origin = Self::default();
        for field in label.split_ascii_whitespace() {
            if let Ok(next_hop) = field.parse() {
                origin.next_hop = Some(next_hop);
            } else if let Ok(asn) = field.trim_start_matches("AS").parse() {
                origin.asn = asn;
            }
        }
        origin
    }
}

/// The origins of all addresses.
pub(super) struct Origins {
    files: Vec<PathBuf>,
    /// When each file was changed before it was read.
    changed: Vec<Option<SystemTime>>,
    v4: Rib<u32>,
    v6: Rib<u128>,
    /// By hop.
    origins: Vec<Origin>,
}

/// Returns when each file was changed.
fn changed(files: &[PathBuf]) -> Vec<Option<SystemTime>> {
    files.iter().map(|file| std::fs::metadata(file).ok()?.modified().ok()).collect()
}

impl Origins {
    /// Reads the files, of which a later one wins.
    pub(super) fn load(files: &[PathBuf]) -> anyhow::Result<Self> {
        let changed = changed(files);
        let tables = Tables::load_with_origins(files)?;
        let origins = tables.labels().into_iter().map(Origin::parse).collect();
        let Tables { v4, v6, .. } = tables;
        Ok(Self { files: files.to_vec(), changed, v4, v6, origins })
    }

    /// Reads the files again if one has changed. A damaged file leaves all as it was.
    pub(super) fn refresh(&mut self) {
        let changed = changed(&self.files);
        if changed == self.changed {
            return;
        }
        match Self::load(&self.files) {
            Ok(new) => *self = new,
            Err(error) => {
                self.changed = changed;
                eprintln!("fingerpost: warning: {error:#}; its former routes remain in use");
            }
        }
    }

    /// Returns the origin of an address.
    pub(super) fn of(&self, address: IpAddr) -> Origin {
        let hop = match address {
            IpAddr::V4(address) => self.v4.longest(address.into()).map(|(_, hop)| hop),
            IpAddr::V6(address) => self.v6.longest(address.into()).map(|(_, hop)| hop),
        };
        let Hop(index) = hop.unwrap_or(Hop::NONE);
        self.origins.get(index as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_an_as_a_next_hop_or_both() {
        let next_hop = Some(IpAddr::from([192, 0, 2, 1]));
        for (label, asn, next_hop) in [
            ("192.0.2.1 65001", 65001, next_hop),
            ("192.0.2.1", 0, next_hop),
            ("65001", 65001, None),
            ("AS65001", 65001, None),
            ("65001,65002", 0, None),
            ("", 0, None),
        ] {
            assert_eq!(Origin::parse(label), Origin { asn, next_hop }, "{label}");
        }
    }
}
