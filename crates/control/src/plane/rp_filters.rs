//! The reverse path filters of ports: those of the configuration (`rpf`), or else the kernel's.
//!
//! Linux checks the sources of IPv4 packets by the settings `rp_filter`, and those of IPv6 packets by
//! netfilter alone. A filter of the configuration is for both families.

use datapath::ReversePathFilter;
use feed::netlink::RpFilter;

use super::{PlanePort, Ports};

impl Ports {
    /// Returns the filters of a port's packets, of IPv4 and of IPv6.
    pub fn rp_filters(&self, port: &PlanePort) -> [ReversePathFilter; 2] {
        if let Some(configured) = port.sources {
            return [configured; 2];
        }
        let kernel = match self.kernel_filters.get(&port.interface) {
            None | Some(RpFilter::Off) => ReversePathFilter::Off,
            Some(RpFilter::Strict) => ReversePathFilter::Strict,
            Some(RpFilter::Loose) => ReversePathFilter::Loose,
        };
        [kernel, ReversePathFilter::Off]
    }
}
