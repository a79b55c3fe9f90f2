//! Converts the kernel's routes, links and neighbors to the tables and adjacencies of the workers.
//!
//! ```text
//!   feed::netlink::Kernel ─► Follower ─► Plane
//!       route   ─► HopTarget ─► Hop ─► TableStore (IPv4, IPv6) ─┐
//!       neighbor, link ─► Adjacency of each Hop ────────────────┤ commit
//!       address, local routes ─► Ingresses ─────────────────────┤   └─► published to the workers
//!   configuration ─► AccessLists ───────────────────────────────┘
//! ```
//!
//! Each of the kernel's tables that a port belongs to (main, 254, by default) becomes a forwarding
//! table. The router leaves to the kernel, packet by packet ([`Adjacency::HOST`]), the routes that
//! it cannot execute: next hops behind interfaces that are not its ports. The kernel
//! resolves unresolved neighbors; packets for them wait
//! in the worker (`datapath/hold.rs`).
//!
//! **Several next hops** become a group (`datapath/group.rs`), whose members are hops of
//! their own, one a gateway; a member that is down or not resolved has no flows.
//!
//! **A port that goes down** changes the adjacencies of the hops behind it at once, in one
//! publication before the commit. A million routes may be removed with it, and packets need not
//! wait for that: groups divide their flows among the remaining members, and packets
//! without another next hop are left to the host.
//!
//! **Static routes** (`static_routes.rs`): the tables are those of a configuration; the kernel
//! reports only links and own addresses.
//!
//! **Order of a commit**: adjacencies, then tables, so that every hop of a table has an adjacency.
//! Dropped hops are reclaimed when every worker has left the tables that contained them
//! (`hops.rs`).
//!
//! Packets may be forwarded by the same tables in the driver (`driver.rs`). Apart from that the plane uses no
//! sockets and no threads: a test reports routes to it and reads as workers do.

mod access;
mod ages;
mod bonds;
mod driver;
mod driver_links;
mod hops;
mod host_routes;
mod image;
mod macvlans;
mod neighbors;
mod own_sources;
pub mod policy;
mod ports;
mod settings;
mod stacked;
mod static_routes;
mod store;
mod sysctls;
mod vlans;
mod without_routes;

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use feed::netlink::{
    AddressChange, AddressView, AnyPrefix, Follower, InterfaceSettings, Link, Neighbor, RouteInfo,
    Rule, Target, Via,
};
use fib::{Choice, Full, Hop, Prefix, Publisher, Reader};

use access::PlaneAccess;
use ages::Ages;
use datapath::{
    Adjacencies, Adjacency, FlowHash, Group, IcmpLimits, Ingress, Ingresses, ReversePathFilter,
    Tables,
};
use driver::Driver;
use hops::Hops;
use macvlans::MacVlans;
use neighbors::NeighborTable;
use own_sources::InterfaceAddresses;
use stacked::StackedDevices;
use store::TableStore;

pub use access::ActiveList;
pub use ages::Age;
pub use driver::DriverPort;
pub use hops::HopTarget;
pub use image::{AdoptError, InterfaceNames, SystemNames};
pub use ports::{LeftVlan, PlanePort, PortMacVlan, PortVlan, Ports};
pub(crate) use static_routes::StaticFollower;
pub use static_routes::{StaticNextHop, StaticNextHops, StaticTables};
pub use store::TableView;
pub(crate) use without_routes::WithoutRoutes;

/// The kernel's table of its own addresses.
const LOCAL: u32 = 255;

/// The result of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitResult {
    /// Workers have all changes. If not, some still read data that must change: commit again soon.
    pub published: bool,
    /// The own addresses have changed: the steering programs need them.
    pub locals: bool,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlaneCounters {
    /// Changes that were applied.
    pub changes: u64,
    /// Commits that published something.
    pub commits: u64,
    /// Commits that a table had no room for.
    pub full: u64,
}

/// The adjacency of a target.
enum Resolution {
    Single(Adjacency),
    Group(Group),
}

/// A table of the kernel that the plane follows.
#[derive(Clone, Copy, Debug)]
pub struct PlaneTable<'a> {
    /// The kernel's number of it.
    pub number: u32,
    /// The IPv4 routes and their table.
    pub v4: TableView<'a, u32>,
    /// The IPv6 routes and their table.
    pub v6: TableView<'a, u128>,
}

/// Follows the kernel, and publishes tables and adjacencies to the workers.
#[derive(Debug)]
pub struct Plane {
    /// The kernel's numbers of the tables, in the order in which workers number them.
    numbers: Vec<u32>,
    v4: TableStore<u32>,
    v6: TableStore<u128>,
    hops: Hops,
    /// The members of hops that are groups, with a reference each.
    groups: HashMap<Hop, Vec<Hop>>,
    neighbor_table: NeighborTable,
    ports: Ports,
    adjacencies: Adjacencies,
    publisher: Publisher<Adjacencies>,
    /// The adjacency of some hop may differ from the published one.
    is_stale: bool,
    /// The router's own addresses, each with its table.
    locals: BTreeSet<(IpAddr, u32)>,
    ingresses: Publisher<Ingresses>,
    access: PlaneAccess,
    locals_changed: bool,
    /// The hops of the image whose tables are in use, with a reference each.
    adopted: Option<Vec<Hop>>,
    full: Option<(&'static str, Full)>,
    counts: PlaneCounters,
    /// A change was applied since the last commit.
    is_changed: bool,
    /// The engines, and whether tables share memory.
    options: (Choice, Choice, bool),
    rules: Vec<Rule>,
    /// The tables of VRFs, by the index of their interface.
    vrfs: HashMap<u32, u32>,
    addresses: InterfaceAddresses,
    /// ICMP errors over IPv4 have an address of the interface that received the packet.
    answers_from_inbound: bool,
    /// The limits of each worker's ICMP errors; `None`: those that it began with.
    icmp_limits: Option<IcmpLimits>,
    macvlans: MacVlans,
    stacked: StackedDevices,
    forwards_stacked: bool,
    /// A stacked device has changed since they were assigned.
    stacked_are_stale: bool,
    /// The published adjacencies have other VLAN devices.
    stacked_changed: bool,
    /// Other settings of the adjacencies have changed since the last commit.
    adjacencies_changed: bool,
    /// Workers may have readers: the set of tables is fixed.
    has_readers: bool,
    ages: Ages,
    /// A port has changed since the last query.
    ports_differ: bool,
    /// The state in the kernel, if some port's mode is `xdp`, and its last error.
    driver: Option<Driver>,
    driver_error: Option<String>,
    /// The next hops of the configuration, if it has the routes.
    static_next_hops: StaticNextHops,
    /// An address has changed since the last query; kept for static routes only.
    addresses_differ: bool,
}

impl Plane {
    /// Makes a plane without routes for workers with these ports: with the kernel's tables of
    /// the ports, the first port's first. Several tables of a family share their memory if
    /// `shared` is set and no engine is named.
    ///
    /// # Errors
    ///
    /// [`Full`] if the engine cannot build an empty table.
    pub fn new(ports: Ports, v4: Choice, v6: Choice, shared: bool) -> Result<Self, Full> {
        let numbers = ports.tables();
        let mut adjacencies = Adjacencies::new();
        adjacencies.set_flow_hash(FlowHash::with_seed(seed()));
        Ok(Self {
            v4: TableStore::new(numbers.len(), v4, shared, None)?,
            v6: TableStore::new(numbers.len(), v6, shared, None)?,
            numbers,
            options: (v4, v6, shared),
            rules: Vec::new(),
            vrfs: HashMap::new(),
            addresses: InterfaceAddresses::default(),
            answers_from_inbound: false,
            icmp_limits: None,
            macvlans: MacVlans::default(),
            stacked: StackedDevices::default(),
            forwards_stacked: false,
            stacked_are_stale: false,
            stacked_changed: false,
            adjacencies_changed: false,
            has_readers: false,
            hops: Hops::default(),
            groups: HashMap::new(),
            neighbor_table: NeighborTable::default(),
            ports,
            adjacencies,
            publisher: Publisher::new(Adjacencies::new()),
            is_stale: false,
            locals: BTreeSet::new(),
            ingresses: Publisher::new(Ingresses::default()),
            access: PlaneAccess::new(),
            // The first commit publishes the table of each port.
            locals_changed: true,
            adopted: None,
            full: None,
            counts: PlaneCounters::default(),
            is_changed: false,
            ages: Ages::new(),
            ports_differ: false,
            driver: None,
            driver_error: None,
            static_next_hops: StaticNextHops::new(),
            addresses_differ: false,
        })
    }

    /// Makes `count` tables of each family, without routes.
    fn new_stores(&self, count: usize) -> Result<(TableStore<u32>, TableStore<u128>), Full> {
        let (v4, v6, shared) = self.options;
        let files = self.driver.as_ref().map(Driver::files);
        Ok((
            TableStore::new(count, v4, shared, files.map(|(v4, _)| v4))?,
            TableStore::new(count, v6, shared, files.map(|(_, v6)| v6))?,
        ))
    }

    /// Returns readers of the tables, for a worker.
    pub fn readers(&self) -> Tables {
        Tables { v4: self.v4.readers(), v6: self.v6.readers() }
    }

    /// Returns a reader of the adjacencies, for a worker.
    pub fn adjacencies(&self) -> Reader<Adjacencies> {
        self.publisher.reader()
    }

    /// Returns a reader of the ingress data of each port, for a worker.
    pub fn ingresses(&self) -> Reader<Ingresses> {
        self.ingresses.reader()
    }

    /// Returns the limits of ICMP errors, if the router sends them itself.
    pub(crate) fn icmp_limits(&self) -> Option<IcmpLimits> {
        self.icmp_limits
    }

    /// Iterates over the tables, in the workers' order.
    pub fn tables(&self) -> impl Iterator<Item = PlaneTable<'_>> {
        (0..self.numbers.len()).map(|at| self.at(at))
    }

    /// Returns the table with this number in the kernel.
    pub fn table(&self, number: u32) -> Option<PlaneTable<'_>> {
        self.index_of(number).map(|at| self.at(at))
    }

    fn at(&self, at: usize) -> PlaneTable<'_> {
        PlaneTable { number: self.numbers[at], v4: self.v4.view(at), v6: self.v6.view(at) }
    }

    /// Returns the workers' index of a table of the kernel.
    fn index_of(&self, number: u32) -> Option<usize> {
        self.numbers.iter().position(|followed| *followed == number)
    }

    /// Returns the target of a hop.
    pub fn hop_target(&self, hop: Hop) -> Option<&HopTarget> {
        self.hops.get(hop)
    }

    /// Iterates over the hops in use: each with its target and the number of its references.
    pub fn hops(&self) -> impl Iterator<Item = (Hop, &HopTarget, u64)> {
        self.hops.iter()
    }

    /// Returns the adjacencies of the hops.
    pub fn current_adjacencies(&self) -> &Adjacencies {
        &self.adjacencies
    }

    /// Returns the ports, as the kernel last described them.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Iterates over the neighbors whose MAC is known.
    pub fn neighbors(&self) -> impl Iterator<Item = (u32, IpAddr, [u8; 6])> {
        self.neighbor_table.iter()
    }

    /// Assigns to ports whose device is gone the devices among `links` with their names; returns
    /// whether it assigned any.
    pub fn adopt_devices<'l>(&mut self, links: impl Iterator<Item = (u32, &'l Link)>) -> bool {
        let adopted = self.ports.adopt(links);
        if adopted {
            self.ports_changed();
            self.apply_rules();
            self.count_change();
        }
        adopted
    }

    /// Sets which ports workers have sockets on, in the ports' order.
    pub fn set_served(&mut self, served: &[bool]) {
        for (port, served) in self.ports.iter_mut().zip(served) {
            port.served = *served;
        }
        self.assign_stacked();
        self.ports_changed();
    }

    /// Sets or clears the problem of the port with index `at`.
    pub(crate) fn set_problem(&mut self, at: usize, problem: Option<String>) {
        if let Some(port) = self.ports.at_mut(at) {
            port.problem = problem;
        }
    }

    /// Returns whether a port has changed since the last call.
    pub fn take_port_changes(&mut self) -> bool {
        std::mem::take(&mut self.ports_differ)
    }

    fn ports_changed(&mut self) {
        self.is_stale = true;
        self.ports_differ = true;
        // The next commit publishes the MAC of each port.
        self.locals_changed = true;
    }

    /// Returns the time since an existing route last changed.
    pub fn age(&self, table: u32, prefix: AnyPrefix) -> Age {
        self.ages.age(table, prefix)
    }

    /// Begins a replay: routes reported until the next commit are known ones and keep their ages.
    pub(crate) fn begin_replay(&mut self) {
        self.ages.is_paused = true;
    }

    /// Returns whether workers read the tables of an image, in place of the routes'.
    pub fn has_adopted(&self) -> bool {
        self.adopted.is_some()
    }

    /// Returns the MAC of a neighbor, if it is known.
    pub fn mac(&self, interface: u32, address: IpAddr) -> Option<[u8; 6]> {
        self.neighbor_table.mac(interface, address)
    }

    /// Lists the router's own addresses, broadcast addresses included.
    pub fn locals(&self) -> Vec<IpAddr> {
        let mut locals: Vec<_> = self.locals.iter().map(|(address, _)| *address).collect();
        locals.dedup();
        locals
    }

    /// Returns whether an address is the router's own, or a broadcast address of its links.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        self.locals.range((address, 0)..=(address, u32::MAX)).next().is_some()
    }

    /// Changes the reverse path filters of the ports, in the ports' order; `None`: that of the kernel.
    pub fn set_sources(&mut self, sources: &[Option<ReversePathFilter>]) {
        self.ports.set_sources(sources);
        self.assign_stacked();
        // The next commit publishes the ingress data of each port.
        self.locals_changed = true;
    }

    /// Returns the counters.
    pub fn counts(&self) -> PlaneCounters {
        self.counts
    }

    /// Returns the reason that the last commit of a table failed, if it did: workers read the
    /// previous table.
    pub fn full(&self) -> Option<(&'static str, Full)> {
        self.full
    }

    /// Lists the gateways behind ports, for the kernel to confirm them: the unresolved ones, or
    /// all.
    pub fn gateways(&self, all: bool) -> Vec<(u32, IpAddr)> {
        let vias = self.hops.iter().filter_map(|(_, target, _)| match target {
            HopTarget::Route(target) => match &**target {
                Target::Via(vias) => Some(vias),
                _ => None,
            },
            HopTarget::Neighbor { .. } | HopTarget::Static(_) | HopTarget::Gone(_) => None,
        });
        let gateways = vias.flatten().filter_map(|via| Some((via.interface, via.gateway?)));
        let own = gateways.filter(|(interface, _)| self.ports.leads_from(*interface));
        let is_listed = |gateway: &(u32, IpAddr)| {
            all || self.neighbor_table.mac(gateway.0, gateway.1).is_none()
        };
        let list: BTreeSet<_> = own.filter(is_listed).collect();
        list.into_iter().collect()
    }

    /// Lists the neighbors behind ports that packets of these hops are sent to; of a group, all
    /// its members. `used` returns whether packets used a hop.
    pub fn in_use(&self, used: impl Fn(Hop) -> bool) -> BTreeSet<(u32, IpAddr)> {
        let mut list = BTreeSet::new();
        for (_, target, _) in self.hops.iter().filter(|(hop, ..)| used(*hop)) {
            match target {
                HopTarget::Route(target) => {
                    if let Target::Via(vias) = &**target {
                        let each =
                            vias.iter().filter_map(|via| Some((via.interface, via.gateway?)));
                        list.extend(each);
                    }
                }
                &HopTarget::Neighbor { interface, address } => {
                    list.insert((interface, address));
                }
                HopTarget::Static(_) | HopTarget::Gone(_) => {}
            }
        }
        list.retain(|(interface, _)| self.ports.leads_from(*interface));
        list
    }

    /// Lists the neighbors that can take a packet with `hop` and the destination `address`.
    pub fn neighbors_of(&self, hop: Hop, address: IpAddr) -> Vec<(u32, IpAddr)> {
        match self.hops.get(hop) {
            Some(HopTarget::Route(target)) => match &**target {
                Target::Via(vias) => {
                    let each =
                        vias.iter().map(|via| (via.interface, via.gateway.unwrap_or(address)));
                    each.filter(|(interface, _)| self.ports.leads_from(*interface)).collect()
                }
                _ => Vec::new(),
            },
            Some(&HopTarget::Neighbor { interface, address }) => vec![(interface, address)],
            Some(HopTarget::Static(_) | HopTarget::Gone(_)) | None => Vec::new(),
        }
    }

    /// Publishes what has changed.
    pub fn commit(&mut self) -> CommitResult {
        self.has_readers = true;
        if self.stacked_are_stale {
            self.assign_stacked();
        }
        if std::mem::take(&mut self.is_changed) {
            self.update_host_routes();
        }
        // Routes before the first commit existed before the start.
        self.ages.is_paused = false;
        let changed = self.is_stale && self.update_adjacencies();
        self.access.publish(&self.ports, self.locals_changed || self.stacked_changed);
        self.retract_driver_links();
        if changed || self.stacked_changed || self.adjacencies_changed {
            self.publish_adjacencies();
        }
        let mut result = CommitResult { published: true, locals: self.locals_changed };
        if self.locals_changed {
            self.locals_changed = false;
            let locals = self.locals();
            self.publish_ingresses(&locals);
            if let Some(driver) = &self.driver {
                driver.set_own_sources(&locals);
            }
        }
        self.full = None;
        // Before all routes have arrived, their tables would have gaps.
        if self.adopted.is_none() {
            for (family, outcome) in [("IPv4", self.v4.commit()), ("IPv6", self.v6.commit())] {
                let (published, commits, full) = outcome;
                result.published &= published;
                self.counts.commits += commits;
                if let Some(full) = full {
                    self.full = Some((family, full));
                    self.counts.full += 1;
                }
            }
            self.commit_driver();
        }
        if result.published && self.full.is_none() {
            self.hops.retire_dropped();
        }
        self.reclaim();
        result
    }

    /// Computes the adjacency of every hop; returns whether one has changed.
    fn update_adjacencies(&mut self) -> bool {
        self.is_stale = false;
        let targets: Vec<_> =
            self.hops.iter().map(|(hop, target, _)| (hop, target.clone())).collect();
        let mut changed = false;
        for (hop, target) in targets {
            let resolution = self.resolve(hop, &target);
            let before = self.adjacencies.group(hop);
            changed |= match &resolution {
                Resolution::Single(adjacency) => {
                    before.is_some() || self.adjacencies.get(hop) != *adjacency
                }
                Resolution::Group(group) => before.is_none_or(|before| **before != *group),
            };
            match resolution {
                Resolution::Single(adjacency) => self.adjacencies.set(hop, adjacency),
                Resolution::Group(group) => self.adjacencies.set_group(hop, Arc::new(group)),
            }
            changed |= self.update_own_sources(hop, &target);
        }
        changed
    }

    /// Frees data that no worker reads any more; to be called regularly.
    pub fn reclaim(&mut self) {
        while self.publisher.reclaim().is_some() {}
        while self.ingresses.reclaim().is_some() {}
        let has_passed = |driver: &Driver| driver.has_passed();
        if self.hops.has_pending_reclaim()
            && self.v4.passed()
            && self.v6.passed()
            && self.driver.as_ref().is_none_or(has_passed)
        {
            for hop in self.hops.reclaim() {
                if let Some(driver) = &mut self.driver {
                    driver.release(hop);
                }
                for member in self.groups.remove(&hop).unwrap_or_default() {
                    self.hops.release(member);
                }
            }
        }
    }

    fn publish_adjacencies(&mut self) {
        (self.stacked_changed, self.adjacencies_changed) = (false, false);
        self.publisher.publish(Box::new(self.adjacencies.clone()));
        if let Some(driver) = &mut self.driver {
            let hops = self.hops.iter().map(|(hop, ..)| hop);
            driver.publish_next_hops(hops, &self.adjacencies, &self.ports);
        }
    }

    /// Returns the current adjacency of a target.
    fn resolve(&mut self, hop: Hop, target: &HopTarget) -> Resolution {
        let adjacency = match target {
            HopTarget::Route(target) => match &**target {
                Target::Via(vias) => match &vias[..] {
                    [via] => match via.gateway {
                        Some(gateway) => Some(self.gateway_adjacency(via, gateway)),
                        // Each destination is its own neighbor: known neighbors have host routes,
                        // so this one is unresolved.
                        None => Some(self.ports.unresolved(via.interface)),
                    },
                    vias => return self.resolve_group(hop, vias),
                },
                Target::Blackhole => Some(Adjacency::BLACKHOLE),
                Target::Unreachable => Some(Adjacency::UNREACHABLE),
                Target::Prohibit => Some(Adjacency::PROHIBIT),
                Target::Throw | Target::Local | Target::Broadcast | Target::Multicast => None,
            },
            &HopTarget::Neighbor { interface, address } => {
                Some(self.neighbor_adjacency(interface, address))
            }
            HopTarget::Static(name) => self.static_adjacency(name),
            HopTarget::Gone(_) => None,
        };
        Resolution::Single(adjacency.unwrap_or(Adjacency::HOST))
    }

    /// Returns the group of several next hops, with those that can be used. Where one of
    /// them is not behind a port, or has no gateway, the kernel divides the flows.
    fn resolve_group(&mut self, hop: Hop, vias: &[Via]) -> Resolution {
        let gateway = |via: &Via| {
            let address = via.gateway.filter(|_| self.ports.leads_from(via.interface))?;
            Some(member(via, address))
        };
        let Some(targets) = vias.iter().map(gateway).collect::<Option<Vec<_>>>() else {
            return Resolution::Single(Adjacency::HOST);
        };
        if !self.groups.contains_key(&hop) {
            let members = targets.iter().filter_map(|target| self.hops.acquire(target).ok());
            let members = members.map(|(member, _)| member).collect();
            self.groups.insert(hop, members);
        }
        let members = self.groups[&hop].clone();
        let mut weights = Vec::new();
        for (member, (via, target)) in members.into_iter().zip(vias.iter().zip(&targets)) {
            let Some(gateway) = via.gateway else { continue };
            let adjacency = self.gateway_adjacency(via, gateway);
            self.update_own_sources(member, target);
            // A new member has no adjacency yet.
            self.adjacencies.set(member, adjacency);
            weights.push((member, via.weight, adjacency.port().is_ok()));
        }
        // While no member is usable, packets wait for the member of their flow.
        let none_usable = weights.iter().all(|(.., usable)| !usable);
        let weigh =
            |(member, weight, usable)| (member, if usable || none_usable { weight } else { 0 });
        let weights: Vec<_> = weights.into_iter().map(weigh).collect();
        let before = self.adjacencies.group(hop).cloned().unwrap_or_default();
        Resolution::Group(Group::of(&weights, &before))
    }

    /// Returns the current adjacency of a route's gateway.
    fn gateway_adjacency(&self, via: &Via, gateway: IpAddr) -> Adjacency {
        let adjacency = self.neighbor_adjacency(via.interface, gateway);
        via.mtu.map_or(adjacency, |mtu| adjacency.limited_to(mtu))
    }

    /// Returns the current adjacency of a neighbor.
    fn neighbor_adjacency(&self, interface: u32, address: IpAddr) -> Adjacency {
        match self.neighbor_table.mac(interface, address) {
            Some(mac) => self.ports.adjacency(interface, mac),
            None => self.ports.unresolved(interface),
        }
    }

    fn count_change(&mut self) {
        self.counts.changes += 1;
        self.is_changed = true;
    }

    /// Applies a change of the local table, or of a followed table, in which a VRF has the
    /// addresses of its interfaces: the router's own addresses, and the broadcast addresses.
    fn update_local(&mut self, table: u32, address: Option<IpAddr>, best: Option<&RouteInfo>) {
        let Some(address) = address else { return };
        let is_local = best.is_some_and(|best| best.target.is_delivered());
        self.locals_changed |= if is_local {
            self.locals.insert((address, table))
        } else {
            self.locals.remove(&(address, table))
        };
    }
}

/// Returns the target of a member of a group: the gateway, or the gateway with the MTU of its route.
fn member(via: &Via, gateway: IpAddr) -> HopTarget {
    match via.mtu {
        None => HopTarget::Neighbor { interface: via.interface, address: gateway },
        Some(_) => HopTarget::Route(Arc::new(Target::Via(vec![Via { weight: 1, ..*via }]))),
    }
}

/// Draws the seed of the flow hash, which must stay unknown to senders.
fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

impl Follower for Plane {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        if table == LOCAL {
            let is_host = prefix.len() == 32;
            return self.update_local(
                table,
                is_host.then(|| IpAddr::V4(prefix.addr().into())),
                best,
            );
        }
        let Some(at) = self.index_of(table) else { return };
        if prefix.len() == 32 {
            self.update_local(table, Some(IpAddr::V4(prefix.addr().into())), best);
        }
        self.is_stale |= self.v4.apply(at, &mut self.hops, prefix, best);
        self.ages.record(table, AnyPrefix::V4(prefix));
        self.count_change();
        if prefix.len() == 32 {
            self.host_route_replaced(at, IpAddr::V4(prefix.addr().into()));
        }
    }

    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>) {
        if table == LOCAL {
            let is_host = prefix.len() == 128;
            return self.update_local(
                table,
                is_host.then(|| IpAddr::V6(prefix.addr().into())),
                best,
            );
        }
        let Some(at) = self.index_of(table) else { return };
        if prefix.len() == 128 {
            self.update_local(table, Some(IpAddr::V6(prefix.addr().into())), best);
        }
        self.is_stale |= self.v6.apply(at, &mut self.hops, prefix, best);
        self.ages.record(table, AnyPrefix::V6(prefix));
        self.count_change();
        if prefix.len() == 128 {
            self.host_route_replaced(at, IpAddr::V6(prefix.addr().into()));
        }
    }

    fn link(&mut self, index: u32, link: Option<&Link>) {
        let was_up = self.ports.get(index).is_some_and(|port| port.up);
        let changed = self.ports.update(index, link);
        if changed {
            self.ports_changed();
        }
        let is_up = self.ports.get(index).is_some_and(|port| port.up);
        if self.has_readers && was_up && !is_up && self.update_adjacencies() {
            self.publish_adjacencies();
        }
        let vrf = link.filter(|link| link.kind == "vrf").and_then(|link| link.table);
        if self.addresses.set_master(index, link.and_then(|link| link.master)) {
            self.is_stale = true;
            self.locals_changed = true;
        }
        let before = match vrf {
            Some(table) => self.vrfs.insert(index, table),
            None => self.vrfs.remove(&index),
        };
        if changed {
            // Those over a port follow its state.
            self.assign_stacked();
        }
        self.update_stacked(index, link);
        self.update_macvlan(index, link);
        // A rule may name a port, or match its VRF, which may have changed.
        if before != vrf || changed {
            self.apply_rules();
        }
        self.count_change();
    }

    fn address(&mut self, view: &AddressView, change: AddressChange) {
        // The local table has the own addresses, and the broadcast addresses too; this list has their
        // interfaces and order, which determine the source of ICMP errors.
        self.addresses.update(view, change);
        self.is_stale = true;
        self.locals_changed = true;
        self.count_change();
    }

    fn neighbor(&mut self, index: u32, address: IpAddr, neighbor: Option<&Neighbor>) {
        // The kernel lists multicast groups as neighbors; they are never a next hop.
        if address.is_multicast() {
            return;
        }
        self.is_stale |=
            self.neighbor_table.update(index, address, neighbor.and_then(|neighbor| neighbor.mac));
        self.count_change();
    }

    fn rules(&mut self, rules: &[Rule]) {
        self.rules = rules.to_vec();
        self.apply_rules();
    }

    fn settings(&mut self, interface: u32, settings: InterfaceSettings) {
        if settings == InterfaceSettings::default() {
            self.ports.kernel_settings.remove(&interface);
        } else {
            self.ports.kernel_settings.insert(interface, settings);
        }
        self.locals_changed = true;
        self.count_change();
    }
}
