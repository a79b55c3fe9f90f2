//! Forwarding in the driver (`mode = "xdp"`): the tables, next hops and links in the kernel, kept equal to those of
//! the workers.
//!
//! ```text
//!   adjacencies ─► next hops ─┐
//!   ports ───────► links ─────┼─► path of each port ─► steering program (`driver_sync.rs`)
//!   tables ──────► arrays ────┘
//! ```
//!
//! A path forwards what is certain, and leaves all other packets to the workers (`xdp::forward`). So a hop has a
//! next hop here only if its adjacency is resolved, by a port or a VLAN device, with its MAC and MTU, or if it stands for
//! a group; hops by MAC-VLAN and bond devices are the workers'. `driver_links.rs` has the links. Packets of a port take the
//! path if it was chosen for that (`driver_choice.rs`) and no access list is active.
//!
//! **Order of a commit**, as for workers: links that end, next hops, tables, links that begin. A dropped hop is
//! reclaimed when every program that could have read a table with it has ended.
//!
//! If the kernel has no room for a table, all packets are left to the workers until a commit succeeds.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use datapath::{Adjacencies, FlowHash, FlowKey, ReversePathFilter};
use fib::{Family, Hop};
use xdp::forward::groups::MAX_GROUPS;
use xdp::forward::{
    ForwardPath, GroupHash, HashFields, NextHop, NextHops, OwnSources, SourceCheck,
};
use xdp::{BpfArrays, KernelTable, Publication, TableError};

use super::driver_links::{DriverLinks, PortLinks, is_served, link_of, port_of};
use super::store::TableStore;
use super::{Plane, PlanePort, Ports};

/// The path of a port's steering program, and the families of packets that take it.
#[derive(Clone, Debug, Default)]
pub struct DriverPort {
    /// The path; `None`: none.
    pub path: Option<Arc<ForwardPath>>,
    /// Whether packets of IPv4, and of IPv6, take it.
    pub families: [bool; 2],
}

impl DriverPort {
    /// Returns whether both have the same path and the same families.
    pub fn is_like(&self, other: &Self) -> bool {
        self.families == other.families && self.has_path_of(other)
    }

    /// Returns whether both have the same path.
    pub fn has_path_of(&self, other: &Self) -> bool {
        match (&self.path, &other.path) {
            (Some(path), Some(other)) => {
                Arc::ptr_eq(&path.v4, &other.v4)
                    && Arc::ptr_eq(&path.v6, &other.v6)
                    && path.sources == other.sources
                    && path.group_hash == other.group_hash
            }
            (None, None) => true,
            _ => false,
        }
    }
}

/// The tables of one family.
#[derive(Debug)]
struct DriverTables<A> {
    files: Arc<BpfArrays>,
    /// In the plane's order; none before the first commit.
    tables: Vec<KernelTable<A>>,
}

impl<A: Family> DriverTables<A> {
    fn new() -> Self {
        Self { files: BpfArrays::new("fp_chunks"), tables: Vec::new() }
    }

    /// Brings the tables up to date; sets `replaced` if programs have former arrays now.
    fn publish(
        &mut self,
        store: &TableStore<A>,
        count: usize,
        replaced: &mut bool,
    ) -> Result<(), TableError> {
        for at in 0..count {
            let Some(fib) = store.view(at).fib() else { continue };
            match self.tables.get_mut(at) {
                Some(table) => *replaced |= table.publish(fib)? == Publication::Replaced,
                None => self.tables.push(KernelTable::new(&self.files, fib)?),
            }
        }
        Ok(())
    }

    fn has_passed(&self) -> bool {
        self.tables.iter().all(KernelTable::has_passed)
    }
}

/// The state in the kernel.
#[derive(Debug)]
pub(super) struct Driver {
    v4: DriverTables<u32>,
    v6: DriverTables<u128>,
    next_hops: Arc<NextHops>,
    own_sources: Arc<OwnSources>,
    /// Whether the mode of a port is `xdp`, in the ports' order.
    wanted: Vec<bool>,
    /// Whether the device of a port sends redirected packets.
    senders: Vec<bool>,
    links: DriverLinks,
    /// The links may be others than those that the programs have.
    links_are_stale: bool,
    /// The slots of groups, by hop, until the hop is reclaimed.
    slots: HashMap<Hop, u16>,
    /// The tables are those of the last commit.
    is_current: bool,
    /// Programs are loaded; some may have former arrays.
    has_programs: bool,
    has_former_programs: bool,
}

impl Driver {
    pub(super) fn new(wanted: Vec<bool>) -> io::Result<Self> {
        Ok(Self {
            v4: DriverTables::new(),
            v6: DriverTables::new(),
            next_hops: Arc::new(NextHops::new()?),
            own_sources: Arc::new(OwnSources::new()?),
            senders: vec![false; wanted.len()],
            wanted,
            links: DriverLinks::new()?,
            links_are_stale: true,
            slots: HashMap::new(),
            is_current: false,
            has_programs: false,
            has_former_programs: false,
        })
    }

    /// Returns the arrays for the words of the tables.
    pub(super) fn files(&self) -> (&Arc<BpfArrays>, &Arc<BpfArrays>) {
        (&self.v4.files, &self.v6.files)
    }

    /// Sets which ports' devices send redirected packets.
    pub(super) fn set_senders(&mut self, senders: Vec<bool>) {
        self.links_are_stale |= self.senders != senders;
        self.senders = senders;
    }

    /// Sets the own addresses.
    pub(super) fn set_own_sources(&self, addresses: &[IpAddr]) {
        self.own_sources.set(addresses.iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(u32::from(*address)),
            IpAddr::V6(_) => None,
        }));
    }

    /// Sets the next hops of `hops`.
    pub(super) fn publish_next_hops(
        &mut self,
        hops: impl Iterator<Item = Hop>,
        adjacencies: &Adjacencies,
        ports: &Ports,
    ) {
        // Groups lead to hops that are set.
        let (groups, singles): (Vec<_>, Vec<_>) =
            hops.partition(|hop| adjacencies.group(*hop).is_some());
        for hop in singles {
            let next = || {
                let adjacency = adjacencies.get(hop);
                let number = adjacency.port().ok()?;
                let (link, port) = (link_of(number)?, ports.numbered(number)?);
                let is_ports = adjacency.src_mac() == port.mac && adjacency.mtu() == port.mtu;
                is_ports.then(|| NextHop { mac: adjacency.dst_mac(), link })
            };
            self.next_hops.set_hop(hop, next());
        }
        for hop in groups {
            let buckets = adjacencies.group(hop).map_or(&[][..], |group| group.buckets());
            match self.slot(hop).filter(|_| !buckets.is_empty()) {
                Some(slot) => self.next_hops.set_group(hop, slot, buckets),
                None => self.next_hops.set_hop(hop, None),
            }
        }
    }

    /// Returns the slot of a group: one that no other hop has; `None` if all are in use.
    fn slot(&mut self, hop: Hop) -> Option<u16> {
        if let Some(slot) = self.slots.get(&hop) {
            return Some(*slot);
        }
        let slot = (0..MAX_GROUPS).find(|slot| !self.slots.values().any(|used| used == slot))?;
        self.slots.insert(hop, slot);
        Some(slot)
    }

    /// Releases the slot of a hop that no program reads any more.
    pub(super) fn release(&mut self, hop: Hop) {
        self.slots.remove(&hop);
    }

    /// Returns the links of these ports.
    fn wanted_links(&self, ports: &Ports) -> PortLinks {
        PortLinks::of(ports, |port| {
            self.is_current && self.senders.get(usize::from(port)) == Some(&true)
        })
    }

    /// Removes the links that have changed, if a port may have (`changed`). Must be called before next hops by new links
    /// are published.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub(super) fn retract_links(&mut self, ports: &Ports, changed: bool) -> Result<(), String> {
        self.links_are_stale |= changed;
        if !self.links_are_stale {
            return Ok(());
        }
        let wanted = self.wanted_links(ports);
        self.links
            .retract(&wanted, &self.next_hops)
            .map_err(|error| format!("forwarding in the driver: cannot remove a link: {error}"))
    }

    /// Brings the links up to date.
    fn publish_links(&mut self, ports: &Ports) -> io::Result<()> {
        if !self.links_are_stale {
            return Ok(());
        }
        let wanted = self.wanted_links(ports);
        self.links.retract(&wanted, &self.next_hops)?;
        self.links_are_stale = !self.links.publish(&wanted, &self.next_hops)?;
        Ok(())
    }

    /// Brings tables and links up to date.
    ///
    /// # Errors
    ///
    /// The kernel's refusal; packets are left to the workers then.
    pub(super) fn commit(
        &mut self,
        (v4, v6, count): (&TableStore<u32>, &TableStore<u128>, usize),
        ports: &Ports,
    ) -> Result<(), String> {
        let mut replaced = false;
        let published = self.v4.publish(v4, count, &mut replaced);
        let published = published.and_then(|()| self.v6.publish(v6, count, &mut replaced));
        self.has_former_programs |= replaced && self.has_programs;
        self.links_are_stale |= self.is_current != published.is_ok();
        self.is_current = published.is_ok();
        let linked = self.publish_links(ports);
        published.map_err(|error| format!("forwarding in the driver: {error}"))?;
        linked.map_err(|error| format!("forwarding in the driver: cannot set a link: {error}"))
    }

    /// Returns the path and the families of each port, in the ports' order; `table_of` returns the index of a
    /// port's table.
    pub(super) fn ports(
        &self,
        ports: &Ports,
        has_lists: bool,
        hash: &FlowHash,
        table_of: impl Fn(&PlanePort) -> Option<usize>,
    ) -> Vec<DriverPort> {
        let port = |(at, port): (u16, &PlanePort)| {
            let is_wanted = self.wanted.get(usize::from(at)) == Some(&true);
            let path = is_wanted.then(|| {
                let table = table_of(port)?;
                Some(Arc::new(ForwardPath {
                    v4: Arc::clone(self.v4.tables.get(table)?.arrays()),
                    v6: Arc::clone(self.v6.tables.get(table)?.arrays()),
                    next_hops: Arc::clone(&self.next_hops),
                    own_sources: Arc::clone(&self.own_sources),
                    link: at,
                    sources: ports.rp_filters(port).map(source_check),
                    group_hash: group_hash(hash),
                }))
            });
            let path = path.flatten();
            let is_on = path.is_some() && self.is_current && !has_lists && is_served(port);
            let families = ports.forwarding_off(port).map(|off| is_on && !off);
            DriverPort { path, families }
        };
        (0..).zip(ports.iter()).map(port).collect()
    }

    /// Returns the hops that packets have used since the last call.
    pub(super) fn take_used(&self) -> impl Iterator<Item = Hop> + '_ {
        self.next_hops.take_used()
    }

    /// Returns the links and destinations of packets since the last call, one of each family.
    fn take_samples(&self) -> impl Iterator<Item = (u16, IpAddr)> {
        let samples = self.next_hops.samples();
        let v4 = samples.take::<u32>().map(|(link, address)| (link, IpAddr::V4(address.into())));
        let v6 = samples.take::<u128>().map(|(link, address)| (link, IpAddr::V6(address.into())));
        v4.into_iter().chain(v6)
    }

    /// Looks an address up as programs do; `None` while packets are left to the workers.
    fn lookup(&self, at: usize, address: IpAddr) -> Option<Hop> {
        if !self.is_current {
            return None;
        }
        Some(match address {
            IpAddr::V4(address) => self.v4.tables.get(at)?.arrays().lookup(address.into()),
            IpAddr::V6(address) => self.v6.tables.get(at)?.arrays().lookup(address.into()),
        })
    }

    /// Returns whether every program has left all tables but the last.
    pub(super) fn has_passed(&self) -> bool {
        !self.has_former_programs && self.v4.has_passed() && self.v6.has_passed()
    }

    /// Records that all programs have the present arrays, after some were replaced.
    fn programs_replaced(&mut self) {
        if std::mem::take(&mut self.has_former_programs) {
            self.v4.tables.iter().for_each(KernelTable::begin_grace_period);
            self.v6.tables.iter().for_each(KernelTable::begin_grace_period);
        }
    }
}

impl Plane {
    /// Lets packets of the ports that are `wanted`, in the ports' order, be forwarded in the driver. Must be called
    /// before there are routes or readers.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)` for a map; [`Full`](fib::Full), as an error of the system.
    pub fn forward_in_driver(&mut self, wanted: Vec<bool>) -> io::Result<()> {
        self.driver = Some(Driver::new(wanted)?);
        let stores = self.new_stores(self.numbers.len());
        (self.v4, self.v6) = stores.map_err(io::Error::other)?;
        Ok(())
    }

    /// Returns whether packets of some port may be forwarded in the driver.
    pub fn forwards_in_driver(&self) -> bool {
        self.driver.is_some()
    }

    /// Sets which ports' devices send packets that programs redirect to them; the next commit publishes it.
    pub fn set_redirect_targets(&mut self, senders: Vec<bool>) {
        if let Some(driver) = &mut self.driver {
            driver.set_senders(senders);
        }
    }

    /// Returns the path and the families of each port's steering program, in the ports' order.
    pub fn driver_ports(&self) -> Vec<DriverPort> {
        let table_of = |port: &PlanePort| self.index_of(port.table);
        let (has_lists, hash) = (self.access.has_lists(), self.adjacencies.flow_hash());
        let ports = |driver: &Driver| driver.ports(&self.ports, has_lists, hash, table_of);
        self.driver.as_ref().map(ports).unwrap_or_default()
    }

    /// Records that steering programs will be loaded with the present paths: until
    /// [`end_driver_load`](Self::end_driver_load), some may have former arrays, and no hop is reclaimed.
    pub(crate) fn begin_driver_load(&mut self) {
        if let Some(driver) = &mut self.driver {
            driver.has_programs = true;
        }
    }

    /// Records that all steering programs have the present paths.
    pub(crate) fn end_driver_load(&mut self) {
        if let Some(driver) = &mut self.driver {
            driver.programs_replaced();
        }
    }

    /// Returns the hops that packets in the driver have used since the last call.
    pub fn take_driver_hops(&self) -> impl Iterator<Item = Hop> + '_ {
        self.driver.iter().flat_map(Driver::take_used)
    }

    /// Returns destinations of packets that were forwarded in the driver since the last call, each with the index of
    /// its table.
    pub fn take_driver_samples(&self) -> Vec<(usize, IpAddr)> {
        let table_of = |link: u16| self.index_of(self.ports.numbered(port_of(link))?.table);
        let samples = self.driver.iter().flat_map(Driver::take_samples);
        samples.filter_map(|(link, address)| Some((table_of(link)?, address))).collect()
    }

    /// Returns the links of the driver, each with the number of the port by which its packets leave.
    pub(crate) fn driver_link_ports(&self) -> Vec<(u16, u16)> {
        let of = |(number, port): (u16, &PlanePort)| {
            let sender = self.ports.senders(port.interface).first().copied();
            link_of(number).zip(sender)
        };
        let ports = self.driver.iter().flat_map(|_| self.ports.all());
        ports.filter_map(of).collect()
    }

    /// Looks an address up in the table with index `at` as programs in the kernel do; `None` without forwarding in the
    /// driver.
    pub fn driver_lookup(&self, at: usize, address: IpAddr) -> Option<Hop> {
        self.driver.as_ref()?.lookup(at, address)
    }

    /// Takes the reason that the last commit left all packets to the workers, if it did.
    pub fn take_driver_error(&mut self) -> Option<String> {
        self.driver_error.take()
    }

    /// Removes the links of the driver that have changed.
    pub(super) fn retract_driver_links(&mut self) {
        if let Some(driver) = &mut self.driver {
            let changed = self.locals_changed || self.stacked_changed;
            self.driver_error = driver.retract_links(&self.ports, changed).err();
        }
    }

    /// Brings the kernel's state up to date with the tables and ports.
    pub(super) fn commit_driver(&mut self) {
        if let Some(driver) = &mut self.driver {
            let tables = (&self.v4, &self.v6, self.numbers.len());
            let error = driver.commit(tables, &self.ports).err();
            self.driver_error = error.or(self.driver_error.take());
        }
    }
}

fn group_hash(&FlowHash { seed, v4, v6 }: &FlowHash) -> GroupHash {
    let fields = |key| match key {
        FlowKey::LAYER_3 => Some(HashFields::Layer3),
        FlowKey::LAYER_4 => Some(HashFields::Layer4),
        _ => None,
    };
    GroupHash { seed, fields: [v4, v6].map(fields) }
}

fn source_check(filter: ReversePathFilter) -> SourceCheck {
    match filter {
        ReversePathFilter::Off => SourceCheck::Off,
        ReversePathFilter::Loose => SourceCheck::Loose,
        ReversePathFilter::Strict => SourceCheck::Strict,
    }
}
