//! The plane: what the kernel says of routes and neighbors, as workers read it.
//!
//! ```text
//!   feed::netlink::Kernel ─► Follower ─► Plane
//!       route   ─► HopTarget ─► Hop ─► Store (IPv4, IPv6) ───┐
//!       neighbor, link ─► Adjacency of each Hop ──────┤ commit
//!       address, local routes ─► Locals ───────────────┘   └─► published to the workers
//! ```
//!
//! Each of the kernel's tables that a port belongs to (main, 254, where nothing else is
//! said) becomes a forwarding table. What of the routes the router cannot do itself, it
//! leaves to the kernel, packet by packet ([`Adjacency::HOST`]): next hops behind
//! interfaces that are not its ports, and destinations that are to be refused with an
//! ICMP error. Neighbors that are not resolved it has the kernel resolve; packets for
//! them wait in the worker (`datapath/hold.rs`).
//!
//! **AllowedHosts on a link.** A connected route names no gateway: every destination is its own
//! neighbor. For each neighbor that the kernel knows, and whose longest route leads
//! to its link, the plane adds a host route of its own; a route of the kernel for the
//! same address goes first. They are looked through at every commit of changes, which is
//! a lookup for each neighbor and table: where a link's own route is need not be where its
//! packets are looked up.
//!
//! **Several ways out** become a group (`datapath/group.rs`), whose members are hops of
//! their own, one a gateway; a member that is down or not resolved has no flows.
//!
//! **A port that goes down** changes what the hops behind it mean: at once, in one
//! publication, before the commit. The routes that go with it may be a million, and packets
//! need not wait for them: groups divide their flows among the members that are left, and
//! what has no other way is the host's.
//!
//! **Order of a commit**: adjacencies, then tables, so that every hop of a table means
//! something; hops that were dropped are free when every worker has left the tables that
//! had them (`hops.rs`).
//!
//! Nothing here knows of sockets or threads: a test tells it routes and looks at what
//! workers would read.

mod ages;
mod hops;
mod image;
mod neighbors;
pub mod policy;
mod ports;
mod store;

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use feed::netlink::{AnyPrefix, Follower, Link, Neighbor, RouteInfo, Rule, Target, Via};
use fib::{Choice, Family, Full, Hop, Prefix, Publisher, Reader};

use crate::datapath::{Adjacencies, Adjacency, Group, Ingress, Ingresses, SourceCheck, Tables};
use ages::Ages;
use hops::Hops;
use neighbors::NeighborTable;
use store::Store;

pub use ages::Age;
pub use hops::HopTarget;
pub use image::{AdoptError, Names, SystemNames};
pub use ports::{PlanePort, Ports};
pub use store::One;

/// The kernel's table of its own addresses.
const LOCAL: u32 = 255;

/// What a commit came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Workers have everything. If not, some still read what is to be changed: commit
    /// again soon.
    pub published: bool,
    /// The own addresses have changed: the steering programs are to be told.
    pub locals: bool,
}

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Changes that were taken over.
    pub changes: u64,
    /// Commits that published something.
    pub commits: u64,
    /// Commits that a table had no room for.
    pub full: u64,
}

/// What a way means.
enum Meaning {
    One(Adjacency),
    Several(Group),
}

/// One table of the kernel, followed.
#[derive(Clone, Copy, Debug)]
pub struct PlaneTable<'a> {
    /// The kernel's number of it.
    pub number: u32,
    /// The IPv4 routes and their table.
    pub v4: One<'a, u32>,
    /// The IPv6 routes and their table.
    pub v6: One<'a, u128>,
}

/// Follows the kernel, and publishes.
#[derive(Debug)]
pub struct Plane {
    /// The kernel's numbers of the tables, in the order in which workers number them.
    numbers: Vec<u32>,
    v4: Store<u32>,
    v6: Store<u128>,
    hops: Hops,
    /// The members of hops that are groups, with a reference each.
    groups: HashMap<Hop, Vec<Hop>>,
    near: NeighborTable,
    ports: Ports,
    adjacencies: Adjacencies,
    publisher: Publisher<Adjacencies>,
    /// Some hop may mean something else than is published.
    stale: bool,
    /// The router's own addresses, each with its table.
    locals: BTreeSet<(IpAddr, u32)>,
    ingresses: Publisher<Ingresses>,
    locals_changed: bool,
    /// The hops of the image whose tables are in use, with a reference each.
    adopted: Option<Vec<Hop>>,
    full: Option<(&'static str, Full)>,
    counts: Counts,
    /// Something was told since the last commit.
    told: bool,
    /// Which engines, and whether tables are to be together.
    wanted: (Choice, Choice, bool),
    rules: Vec<Rule>,
    /// The tables of VRFs, by the index of their interface.
    vrfs: HashMap<u32, u32>,
    /// Workers may have readers: the tables are settled.
    begun: bool,
    ages: Ages,
    /// A port has changed since the last query.
    ports_differ: bool,
}

impl Plane {
    /// Makes a plane without routes for workers with the ports `ports`: of the kernel's
    /// tables that these name, the first port's first. Those of a family that are several
    /// share their memory if that is wanted (`together`), and no engine is named.
    ///
    /// # Errors
    ///
    /// [`Full`] if the engine cannot even have no routes.
    pub fn new(ports: Ports, v4: Choice, v6: Choice, together: bool) -> Result<Self, Full> {
        let numbers = ports.tables();
        Ok(Self {
            v4: Store::new(numbers.len(), v4, together)?,
            v6: Store::new(numbers.len(), v6, together)?,
            numbers,
            wanted: (v4, v6, together),
            rules: Vec::new(),
            vrfs: HashMap::new(),
            begun: false,
            hops: Hops::default(),
            groups: HashMap::new(),
            near: NeighborTable::default(),
            ports,
            adjacencies: Adjacencies::new().with_seed(seed()),
            publisher: Publisher::new(Adjacencies::new()),
            stale: false,
            locals: BTreeSet::new(),
            ingresses: Publisher::new(Ingresses::default()),
            // Which port has which table is to be told before the first packet.
            locals_changed: true,
            adopted: None,
            full: None,
            counts: Counts::default(),
            told: false,
            ages: Ages::new(),
            ports_differ: false,
        })
    }

    /// Returns readers of the tables, for a worker.
    pub fn readers(&self) -> Tables {
        Tables { v4: self.v4.readers(), v6: self.v6.readers() }
    }

    /// Returns a reader of what the hops mean, for a worker.
    pub fn adjacencies(&self) -> Reader<Adjacencies> {
        self.publisher.reader()
    }

    /// Returns a reader of what holds for packets of each port, for a worker.
    pub fn ingresses(&self) -> Reader<Ingresses> {
        self.ingresses.reader()
    }

    /// Walks the tables, in the workers' order.
    pub fn tables(&self) -> impl Iterator<Item = PlaneTable<'_>> {
        (0..self.numbers.len()).map(|at| self.at(at))
    }

    /// Returns the table of the kernel's number.
    pub fn table(&self, number: u32) -> Option<PlaneTable<'_>> {
        self.place(number).map(|at| self.at(at))
    }

    fn at(&self, at: usize) -> PlaneTable<'_> {
        PlaneTable { number: self.numbers[at], v4: self.v4.one(at), v6: self.v6.one(at) }
    }

    /// Returns the workers' number of a table of the kernel's.
    fn place(&self, number: u32) -> Option<usize> {
        self.numbers.iter().position(|it| *it == number)
    }

    /// Returns what a hop stands for.
    pub fn hop_target(&self, hop: Hop) -> Option<&HopTarget> {
        self.hops.get(hop)
    }

    /// Walks the hops in use: each with its way and the number of its references.
    pub fn ways(&self) -> impl Iterator<Item = (Hop, &HopTarget, u64)> {
        self.hops.iter()
    }

    /// Returns what the hops mean, as it is published.
    pub fn meanings(&self) -> &Adjacencies {
        &self.adjacencies
    }

    /// Returns the ports, as the kernel last described them.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Walks the neighbors that are known, with their MACs.
    pub fn neighbors(&self) -> impl Iterator<Item = (u32, IpAddr, [u8; 6])> {
        self.near.iter()
    }

    /// Gives ports whose device is gone the devices among `links` that have their names; returns
    /// whether it gave any.
    pub fn adopt_devices<'l>(&mut self, links: impl Iterator<Item = (u32, &'l Link)>) -> bool {
        let adopted = self.ports.adopt(links);
        if adopted {
            self.ports_changed();
            self.follow_rules();
            self.touched();
        }
        adopted
    }

    /// Notes which ports workers have sockets on, in the ports' order.
    pub fn set_served(&mut self, served: &[bool]) {
        for (port, served) in self.ports.iter_mut().zip(served) {
            port.served = *served;
        }
        self.ports_changed();
    }

    /// Notes why a port does not work, or that it does again, by its place.
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
        self.stale = true;
        self.ports_differ = true;
        // The next commit publishes the MAC of each port.
        self.locals_changed = true;
    }

    /// Says how long a route that is there has been what it is.
    pub fn age(&self, table: u32, prefix: AnyPrefix) -> Age {
        self.ages.age(table, prefix)
    }

    /// What is told until the next commit is told again, and has not changed.
    pub(crate) fn begin_replay(&mut self) {
        self.ages.asleep = true;
    }

    /// Says whether workers have the tables of an image, in place of the routes.
    pub fn has_adopted(&self) -> bool {
        self.adopted.is_some()
    }

    /// Returns the MAC of a neighbor, if it is known.
    pub fn mac(&self, interface: u32, address: IpAddr) -> Option<[u8; 6]> {
        self.near.mac(interface, address)
    }

    /// Lists the router's own addresses, broadcast addresses included.
    pub fn locals(&self) -> Vec<IpAddr> {
        let mut locals: Vec<_> = self.locals.iter().map(|(address, _)| *address).collect();
        locals.dedup();
        locals
    }

    /// Changes which sources packets of the ports may have, in the ports' order.
    pub fn set_sources(&mut self, sources: &[SourceCheck]) {
        self.ports.set_sources(sources);
        // The next commit publishes what holds for each port.
        self.locals_changed = true;
    }

    /// Returns what has happened.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns why the last commit of a table failed, if it did: workers have the table
    /// from before.
    pub fn full(&self) -> Option<(&'static str, Full)> {
        self.full
    }

    /// Lists the gateways behind ports, for the kernel to confirm them: those that nobody
    /// has resolved, or all.
    pub fn gateways(&self, all: bool) -> Vec<(u32, IpAddr)> {
        let vias = self.hops.iter().filter_map(|(_, way, _)| match way {
            HopTarget::Route(target) => match &**target {
                Target::Via(vias) => Some(vias),
                _ => None,
            },
            HopTarget::Neighbor { .. } | HopTarget::Gone(_) => None,
        });
        let gateways = vias.flatten().filter_map(|via| Some((via.interface, via.gateway?)));
        let mine = gateways.filter(|(interface, _)| self.ports.get(*interface).is_some());
        let asked = |gateway: &(u32, IpAddr)| all || self.near.mac(gateway.0, gateway.1).is_none();
        let list: BTreeSet<_> = mine.filter(asked).collect();
        list.into_iter().collect()
    }

    /// Lists the neighbors behind ports that packets of these hops are sent to; of a group, all
    /// its members. `used` returns whether packets used a hop.
    pub fn in_use(&self, used: impl Fn(Hop) -> bool) -> BTreeSet<(u32, IpAddr)> {
        let mut list = BTreeSet::new();
        for (_, way, _) in self.hops.iter().filter(|(hop, ..)| used(*hop)) {
            match way {
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
                HopTarget::Gone(_) => {}
            }
        }
        list.retain(|(interface, _)| self.ports.get(*interface).is_some());
        list
    }

    /// Says which neighbors a packet waits for that wants `hop` and goes to `address`.
    pub fn wanted(&self, hop: Hop, address: IpAddr) -> Vec<(u32, IpAddr)> {
        match self.hops.get(hop) {
            Some(HopTarget::Route(target)) => match &**target {
                Target::Via(vias) => {
                    let each =
                        vias.iter().map(|via| (via.interface, via.gateway.unwrap_or(address)));
                    each.filter(|(interface, _)| self.ports.get(*interface).is_some()).collect()
                }
                _ => Vec::new(),
            },
            Some(&HopTarget::Neighbor { interface, address }) => vec![(interface, address)],
            Some(HopTarget::Gone(_)) | None => Vec::new(),
        }
    }

    /// Publishes what has changed.
    pub fn commit(&mut self) -> Committed {
        self.begun = true;
        if std::mem::take(&mut self.told) {
            self.settle_near();
        }
        // What is told before the first commit was there before.
        self.ages.asleep = false;
        if self.stale && self.settle_meanings() {
            self.publish_adjacencies();
        }
        let mut committed = Committed { published: true, locals: self.locals_changed };
        if self.locals_changed {
            self.locals_changed = false;
            self.publish_ingresses(&self.locals());
        }
        self.full = None;
        // While the routes have not all been told, their tables would have gaps.
        if self.adopted.is_none() {
            for (family, done) in [("IPv4", self.v4.commit()), ("IPv6", self.v6.commit())] {
                let (published, commits, full) = done;
                committed.published &= published;
                self.counts.commits += commits;
                if let Some(full) = full {
                    self.full = Some((family, full));
                    self.counts.full += 1;
                }
            }
        }
        if committed.published && self.full.is_none() {
            self.hops.published();
        }
        self.reclaim();
        committed
    }

    /// Gives every hop its meaning of this moment; says whether one has changed.
    fn settle_meanings(&mut self) -> bool {
        self.stale = false;
        let ways: Vec<_> = self.hops.iter().map(|(hop, way, _)| (hop, way.clone())).collect();
        let mut changed = false;
        for (hop, way) in ways {
            let meaning = self.mean(hop, &way);
            let group = self.adjacencies.group(hop);
            changed |= match &meaning {
                Meaning::One(one) => group.is_some() || self.adjacencies.get(hop) != one,
                Meaning::Several(several) => group.is_none_or(|group| **group != *several),
            };
            match meaning {
                Meaning::One(one) => self.adjacencies.set(hop, one),
                Meaning::Several(several) => self.adjacencies.set_group(hop, Arc::new(several)),
            }
        }
        changed
    }

    /// Frees what no worker reads any more; to be called from time to time.
    pub fn reclaim(&mut self) {
        while self.publisher.reclaim().is_some() {}
        while self.ingresses.reclaim().is_some() {}
        if self.hops.has_pending_reclaim() && self.v4.passed() && self.v6.passed() {
            for hop in self.hops.passed() {
                for member in self.groups.remove(&hop).unwrap_or_default() {
                    self.hops.release(member);
                }
            }
        }
    }

    fn publish_adjacencies(&mut self) {
        self.publisher.publish(Box::new(self.adjacencies.clone()));
    }

    /// Says what a way means at this moment.
    fn mean(&mut self, hop: Hop, way: &HopTarget) -> Meaning {
        let one = match way {
            HopTarget::Route(target) => match &**target {
                Target::Via(vias) => match &vias[..] {
                    [via] => match via.gateway {
                        Some(gateway) => Some(self.through(via.interface, gateway)),
                        // Each destination is its own neighbor: those that are known have
                        // routes of their own, so this one is not.
                        None => Some(self.ports.unresolved(via.interface)),
                    },
                    vias => return self.mean_group(hop, vias),
                },
                Target::Blackhole => Some(Adjacency::BLACKHOLE),
                Target::Unreachable
                | Target::Prohibit
                | Target::Throw
                | Target::Local
                | Target::Broadcast
                | Target::Multicast => None,
            },
            &HopTarget::Neighbor { interface, address } => Some(self.through(interface, address)),
            HopTarget::Gone(_) => None,
        };
        Meaning::One(one.unwrap_or(Adjacency::HOST))
    }

    /// Says what several ways out mean: a group of those that can be used. Where one of
    /// them is not behind a port, or has no gateway, the kernel divides the flows.
    fn mean_group(&mut self, hop: Hop, vias: &[Via]) -> Meaning {
        let gateway = |via: &Via| {
            let address = via.gateway.filter(|_| self.ports.get(via.interface).is_some())?;
            Some(HopTarget::Neighbor { interface: via.interface, address })
        };
        let Some(ways) = vias.iter().map(gateway).collect::<Option<Vec<_>>>() else {
            return Meaning::One(Adjacency::HOST);
        };
        if !self.groups.contains_key(&hop) {
            let members = ways.iter().filter_map(|way| self.hops.acquire(way).ok());
            let members = members.map(|(member, _)| member).collect();
            self.groups.insert(hop, members);
        }
        let members = &self.groups[&hop];
        let mut weights = Vec::new();
        for (&member, via) in members.iter().zip(vias) {
            let Some(gateway) = via.gateway else { continue };
            let meaning = self.through(via.interface, gateway);
            // A member may be new, and its turn to get a meaning over.
            self.adjacencies.set(member, meaning);
            weights.push((member, via.weight, meaning.port().is_ok()));
        }
        // While nobody can be reached packets wait for whom they would go to.
        let nobody = weights.iter().all(|(.., there)| !there);
        let weigh = |(member, weight, there)| (member, if there || nobody { weight } else { 0 });
        let weights: Vec<_> = weights.into_iter().map(weigh).collect();
        let before = self.adjacencies.group(hop).cloned().unwrap_or_default();
        Meaning::Several(Group::of(&weights, &before))
    }

    /// Says how a packet is handed to a neighbor.
    fn through(&self, interface: u32, address: IpAddr) -> Adjacency {
        match self.near.mac(interface, address) {
            Some(mac) => self.ports.adjacency(interface, mac),
            None => self.ports.unresolved(interface),
        }
    }

    fn touched(&mut self) {
        self.counts.changes += 1;
        self.told = true;
    }

    /// Gives host routes to the neighbors whose link is where their routes lead, in each
    /// table by its own routes, and takes away those of others.
    fn settle_near(&mut self) {
        for (interface, address) in self.near.all() {
            for at in 0..self.numbers.len() {
                self.settle_neighbor(interface, address, at);
            }
        }
        self.near.forget();
    }

    fn settle_neighbor(&mut self, interface: u32, address: IpAddr, at: usize) {
        let hops = &mut self.hops;
        let wanted = self.near.mac(interface, address).is_some()
            && self.ports.get(interface).is_some()
            && match address {
                IpAddr::V4(it) => on_link(self.v4.one(at), hops, u32::from(it), interface),
                IpAddr::V6(it) => on_link(self.v6.one(at), hops, u128::from(it), interface),
            };
        if wanted == self.near.has_route(interface, address, at) {
            return;
        }
        let mut hop = None;
        if wanted {
            let Ok(got) = hops.acquire(&HopTarget::Neighbor { interface, address }) else { return };
            self.stale |= got.1;
            hop = Some(got.0);
        }
        let old = match address {
            IpAddr::V4(it) => self.v4.put(at, host(u32::from(it)), hop),
            IpAddr::V6(it) => self.v6.put(at, host(u128::from(it)), hop),
        };
        hops.release(old.unwrap_or(Hop::NONE));
        self.near.set_route(interface, address, at, wanted);
    }

    /// Notes that a route of the kernel's to an address has taken the place of ours, in
    /// the table of this place.
    fn lost_route(&mut self, at: usize, address: IpAddr) {
        for port in self.ports.iter() {
            self.near.set_route(port.interface, address, at, false);
        }
    }

    /// Applies a change of the local table, or of a followed one, in which a VRF has the
    /// addresses of its interfaces: the router's own addresses, and those of all hosts on a link.
    fn local(&mut self, table: u32, address: Option<IpAddr>, best: Option<&RouteInfo>) {
        let Some(address) = address else { return };
        let mine = best.is_some_and(|best| {
            matches!(*best.target, Target::Local | Target::Broadcast | Target::Multicast)
        });
        self.locals_changed |= if mine {
            self.locals.insert((address, table))
        } else {
            self.locals.remove(&(address, table))
        };
    }
}

/// Draws a seed for the hash of flows, which nobody outside is to know.
fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// Makes the prefix of one address.
fn host<A: Family>(address: A) -> Prefix<A> {
    Prefix::truncate(address, A::BITS)
}

/// Says whether the longest route to `address`, but for one to itself, leads to the link
/// of `interface` without a gateway; and that the kernel has none to the address itself.
fn on_link<A: Family>(table: One<'_, A>, hops: &Hops, address: A, interface: u32) -> bool {
    let host = host(address);
    let mut longest = None;
    for (prefix, hop) in table.rib().covering(host) {
        match hops.get(hop) {
            Some(HopTarget::Route(_)) if prefix == host => return false,
            Some(HopTarget::Route(target))
                if longest.is_none_or(|(len, _)| prefix.len() >= len) =>
            {
                longest = Some((prefix.len(), target));
            }
            _ => {}
        }
    }
    longest.is_some_and(|(_, target)| match &**target {
        Target::Via(vias) => {
            vias.iter().any(|via| via.gateway.is_none() && via.interface == interface)
        }
        _ => false,
    })
}

impl Follower for Plane {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        if table == LOCAL {
            let one = prefix.len() == 32;
            return self.local(table, one.then(|| IpAddr::V4(prefix.addr().into())), best);
        }
        let Some(at) = self.place(table) else { return };
        if prefix.len() == 32 {
            self.local(table, Some(IpAddr::V4(prefix.addr().into())), best);
        }
        self.stale |= self.v4.follow(at, &mut self.hops, prefix, best);
        self.ages.changed(table, AnyPrefix::V4(prefix));
        self.touched();
        if prefix.len() == 32 {
            self.lost_route(at, IpAddr::V4(prefix.addr().into()));
        }
    }

    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>) {
        if table == LOCAL {
            let one = prefix.len() == 128;
            return self.local(table, one.then(|| IpAddr::V6(prefix.addr().into())), best);
        }
        let Some(at) = self.place(table) else { return };
        if prefix.len() == 128 {
            self.local(table, Some(IpAddr::V6(prefix.addr().into())), best);
        }
        self.stale |= self.v6.follow(at, &mut self.hops, prefix, best);
        self.ages.changed(table, AnyPrefix::V6(prefix));
        self.touched();
        if prefix.len() == 128 {
            self.lost_route(at, IpAddr::V6(prefix.addr().into()));
        }
    }

    fn link(&mut self, index: u32, link: Option<&Link>) {
        let was_up = self.ports.get(index).is_some_and(|port| port.up);
        let changed = self.ports.update(index, link);
        if changed {
            self.ports_changed();
        }
        let is_up = self.ports.get(index).is_some_and(|port| port.up);
        if self.begun && was_up && !is_up && self.settle_meanings() {
            self.publish_adjacencies();
        }
        let vrf = link.filter(|link| link.kind == "vrf").and_then(|link| link.table);
        let before = match vrf {
            Some(table) => self.vrfs.insert(index, table),
            None => self.vrfs.remove(&index),
        };
        // A rule may name a port by its name, or by the VRF that it is in, or was.
        if before != vrf || changed {
            self.follow_rules();
        }
        self.touched();
    }

    fn address(&mut self, _: u32, _: IpAddr, _: u8, _: bool) {
        // The local table says the same, and of broadcast addresses too.
    }

    fn neighbor(&mut self, index: u32, address: IpAddr, neighbor: Option<&Neighbor>) {
        // The kernel lists groups as neighbors too; they are nobody's next hop.
        if address.is_multicast() {
            return;
        }
        self.stale |= self.near.update(index, address, neighbor.and_then(|one| one.mac));
        self.touched();
    }

    fn rules(&mut self, rules: &[Rule]) {
        self.rules = rules.to_vec();
        self.follow_rules();
    }
}

/// The plane without the kernel's routes, where another feed has them: own addresses,
/// links and neighbors are still the kernel's to tell.
#[derive(Debug)]
pub(crate) struct WithoutRoutes<'a>(pub(crate) &'a mut Plane);

impl Follower for WithoutRoutes<'_> {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        if table == LOCAL {
            self.0.route_v4(table, prefix, best);
        }
    }

    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>) {
        if table == LOCAL {
            self.0.route_v6(table, prefix, best);
        }
    }

    fn link(&mut self, index: u32, link: Option<&Link>) {
        self.0.link(index, link);
    }

    fn address(&mut self, index: u32, address: IpAddr, length: u8, there: bool) {
        self.0.address(index, address, length, there);
    }

    fn neighbor(&mut self, index: u32, address: IpAddr, neighbor: Option<&Neighbor>) {
        self.0.neighbor(index, address, neighbor);
    }

    fn rules(&mut self, rules: &[Rule]) {
        self.0.rules(rules);
    }
}
