//! A plane that is filled as a kernel would fill it, and the readers of a worker: shared by tests
//! that report changes to the plane and check how packets are forwarded.

use std::net::IpAddr;
use std::sync::Arc;

use datapath::{Adjacencies, Adjacency, Ingresses, Lookup, Tables, Verdict};
use feed::netlink::{Follower, Link, Neighbor, RouteInfo, Target, Via};
use fib::{Choice, Hop, Reader};
use fingerpost_control::plane::{Plane, PlanePort, Ports};

pub(crate) const MAIN: u32 = 254;
pub(crate) const OTHER: u32 = 100;

pub(crate) fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn to(vias: &[(u32, Option<&str>, u16)]) -> RouteInfo {
    let via = |&(interface, gateway, weight): &(u32, Option<&str>, u16)| Via {
        interface,
        gateway: gateway.map(ip),
        weight,
        onlink: false,
        source: None,
        mtu: None,
    };
    info(Target::Via(vias.iter().map(via).collect()))
}

pub(crate) fn info(target: Target) -> RouteInfo {
    RouteInfo { target: Arc::new(target), metric: 0, protocol: 3 }
}

/// A plane with the ports eth1 and eth2 in the main table and eth3 in another table, and the
/// readers of a worker.
pub(crate) struct Rig {
    pub(crate) plane: Plane,
    pub(crate) ingresses: Reader<Ingresses>,
    /// The offset that is added to each interface index.
    pub(crate) by: u32,
    pub(crate) tables: Tables,
    pub(crate) adjacencies: Reader<Adjacencies>,
}

impl Rig {
    /// Makes a rig whose eth1 has the index 1 + `by`, and so on; with `together`, its tables share
    /// their memory.
    pub(crate) fn new(by: u32, together: bool) -> Self {
        let port = |interface: u32| PlanePort {
            table: if interface == 3 { OTHER } else { MAIN },
            follows_rules: interface != 3,
            ..PlanePort::new(interface + by, &format!("eth{interface}"))
        };
        let ports = Ports::new([1, 2, 3].map(port));
        let mut plane = Plane::new(ports, Choice::Auto, Choice::Auto, together).unwrap();
        plane.set_forwards_stacked(true);
        for index in 1..=4 {
            plane.link(index + by, Some(&link(index)));
        }
        let tables = plane.readers();
        let (adjacencies, ingresses) = (plane.adjacencies(), plane.ingresses());
        Self { plane, ingresses, by, tables, adjacencies }
    }

    pub(crate) fn neighbor(&mut self, index: u32, address: &str, last: Option<u8>) {
        let neighbor = last.map(|last| Neighbor { mac: Some(mac(last)), state: 2 });
        self.plane.neighbor(index + self.by, ip(address), neighbor.as_ref());
    }

    pub(crate) fn route(&mut self, table: u32, prefix: &str, best: Option<&RouteInfo>) {
        let best = best.map(|best| self.renumbered(best));
        match prefix.parse() {
            Ok(prefix) => self.plane.route_v4(table, prefix, best.as_ref()),
            Err(_) => self.plane.route_v6(table, prefix.parse().unwrap(), best.as_ref()),
        }
    }

    fn renumbered(&self, best: &RouteInfo) -> RouteInfo {
        let target = match &*best.target {
            Target::Via(vias) => {
                let via = |via: &Via| Via { interface: via.interface + self.by, ..*via };
                Target::Via(vias.iter().map(via).collect())
            }
            other => other.clone(),
        };
        RouteInfo { target: Arc::new(target), ..best.clone() }
    }

    /// Commits until all changes are published, as a control thread does; the worker is idle
    /// between commits.
    pub(crate) fn commit(&mut self) {
        for _ in 0..4 {
            let committed = self.plane.commit();
            self.idle();
            if committed.published {
                return self.plane.reclaim();
            }
        }
        panic!("four commits are not enough");
    }

    pub(crate) fn idle(&mut self) {
        self.tables.idle();
        self.adjacencies.idle();
        self.ingresses.idle();
    }

    /// Returns the hop and the adjacency that a worker finds for a packet of a port to an address.
    pub(crate) fn resolve(&mut self, port: usize, address: &str, flow: u64) -> (Hop, Adjacency) {
        let table = self.ingresses.current().get(port).table;
        let mut hop = [Hop::NONE];
        match ip(address) {
            IpAddr::V4(v4) => self.tables.lookup_v4(table, &[v4.into()], &mut hop),
            IpAddr::V6(v6) => self.tables.lookup_v6(table, &[v6.into()], &mut hop),
        }
        let adjacencies = self.adjacencies.current();
        (hop[0], adjacencies.resolve(hop[0], |_| flow))
    }

    /// Returns the same in short: the port and the last byte of the MAC, or the verdict.
    pub(crate) fn leads(&mut self, address: &str) -> Result<(u16, u8), Verdict> {
        self.leads_from(0, address)
    }

    /// Returns the same for a packet of any port.
    pub(crate) fn leads_from(&mut self, port: usize, address: &str) -> Result<(u16, u8), Verdict> {
        let (_, adjacency) = self.resolve(port, address, 0);
        adjacency.port().map(|port| (port, adjacency.dst_mac()[5]))
    }
}

pub(crate) fn link(index: u32) -> Link {
    Link {
        name: format!("eth{index}"),
        up: true,
        running: true,
        carrier: true,
        mac: Some(mac(0x10 + index as u8)),
        mtu: 1500,
        ..Link::default()
    }
}
