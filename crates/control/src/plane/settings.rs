//! The kernel's settings of ports that decide which of their packets are forwarded: the reverse path filters, unless
//! the configuration has some (`rpf`), and forwarding itself.
//!
//! Linux checks the sources of IPv4 packets by the settings `rp_filter`, and those of IPv6 packets by
//! netfilter alone. A filter of the configuration is for both families.

use datapath::ReversePathFilter;
use feed::netlink::{InterfaceSettings, RpFilter};

use super::{PlanePort, Ports};

impl Ports {
    /// Returns the filters of a port's packets, of IPv4 and of IPv6.
    pub fn rp_filters(&self, port: &PlanePort) -> [ReversePathFilter; 2] {
        if let Some(configured) = port.sources {
            return [configured; 2];
        }
        let kernel = match self.kernel_settings(port).rp_filter {
            RpFilter::Off => ReversePathFilter::Off,
            RpFilter::Strict => ReversePathFilter::Strict,
            RpFilter::Loose => ReversePathFilter::Loose,
        };
        [kernel, ReversePathFilter::Off]
    }

    /// Returns whether a port's packets are dropped because the kernel's forwarding is off, for IPv4 and for
    /// IPv6.
    pub fn forwarding_off(&self, port: &PlanePort) -> [bool; 2] {
        let settings = self.kernel_settings(port);
        let v6 = settings.forwards_v6 || self.forced_v6.contains(&port.interface);
        [settings.forwards_v4, v6].map(|forwards| self.checks_input && !forwards)
    }

    /// Lists the ports, with VLAN devices and bonds, for which forwarding of IPv6 is off unless it is forced.
    pub(crate) fn without_forwarding_v6(&self) -> impl Iterator<Item = &PlanePort> {
        self.all().map(|(_, port)| port).filter(|port| !self.kernel_settings(port).forwards_v6)
    }

    fn kernel_settings(&self, port: &PlanePort) -> InterfaceSettings {
        self.kernel_settings.get(&port.interface).copied().unwrap_or_default()
    }
}
