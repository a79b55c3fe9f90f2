//! Builds the items of the control socket's replies from the plane, the workers and the ports.
//!
//! Each function answers one kind of request (`query.rs`). Functions that take a `Plane` run on the
//! control thread and copy their result, so that formatting and writing happen on the client's.

use std::collections::BTreeMap;
use std::net::IpAddr;

use feed::netlink::AnyPrefix;
use fib::{Family, Hop, Prefix};

use super::kernel_sync::KernelSync;
use super::plane::{HopTarget, Plane, PlanePort, PlaneTable, Ports, TableView};
use super::protocols;
use super::target::{TargetView, dev, plane_target_view};
use crate::view::View;
use api::{self, Item};
use datapath::stats::{IcmpCounter, Snapshot};
use datapath::{Class, ReversePathFilter, Verdict, VlanTag};

fn route<A: Family>(plane: &Plane, prefix: Prefix<A>, hop: Hop) -> api::Route {
    let TargetView { kind, via } = match plane.hop_target(hop) {
        Some(target) => plane_target_view(plane, target),
        None => TargetView { kind: "none", via: Vec::new() },
    };
    api::Route { prefix: prefix.to_string(), kind: kind.to_owned(), via, hop: hop.0 }
}

/// Returns the action on packets of a hop.
fn action(plane: &Plane, hop: Hop) -> &'static str {
    if plane.current_adjacencies().group(hop).is_some() {
        return "divide";
    }
    match plane.current_adjacencies().get(hop).port() {
        Ok(_) => "send",
        Err(Verdict::HostRoute) => "host",
        Err(Verdict::Unresolved) => "wait",
        Err(Verdict::Blackhole) => "drop blackhole",
        Err(Verdict::UnreachableRoute) => "drop unreachable_route",
        Err(Verdict::ProhibitRoute) => "drop prohibit_route",
        Err(_) => "drop no_route",
    }
}

fn find_table(plane: &Plane, number: u32) -> Result<PlaneTable<'_>, String> {
    plane.table(number).ok_or_else(|| {
        let followed: Vec<_> = plane.tables().map(|table| table.number.to_string()).collect();
        format!("table {number} is not followed; these are: {}", followed.join(", "))
    })
}

/// Lists the routes of the requested family (of both, if it is `None`), inside `within` if given.
///
/// # Errors
///
/// `within` is not a prefix, or the table is not followed.
pub(super) fn routes(
    plane: &Plane,
    number: u32,
    within: Option<&str>,
    family: Option<u8>,
) -> Result<Vec<api::Route>, String> {
    let table = find_table(plane, number)?;
    let invalid = |error| format!("{}: {error}", within.unwrap_or_default());
    let is_v6 = within.map(|text| text.contains(':'));
    let mut routes = Vec::new();
    if family != Some(6) && is_v6 != Some(true) {
        let within = within.map_or(Ok(Prefix::truncate(0, 0)), str::parse).map_err(invalid)?;
        let covered = table.v4.rib().covered(within);
        routes.extend(covered.map(|(prefix, hop)| route::<u32>(plane, prefix, hop)));
    }
    if family != Some(4) && is_v6 != Some(false) {
        let within = within.map_or(Ok(Prefix::truncate(0, 0)), str::parse).map_err(invalid)?;
        let covered = table.v6.rib().covered(within);
        routes.extend(covered.map(|(prefix, hop)| route::<u128>(plane, prefix, hop)));
    }
    Ok(routes)
}

/// Looks an address up as workers do, and describes the route.
///
/// # Errors
///
/// The table is not followed.
pub(super) fn lookup(
    sync: &KernelSync,
    number: u32,
    address: IpAddr,
) -> Result<api::Answer, String> {
    let plane = &sync.plane;
    let table = find_table(plane, number)?;
    let (mut answer, info, prefix) = match address {
        IpAddr::V4(v4) => {
            let key = u32::from(v4);
            let prefix = table.v4.rib().longest(key).map(|(prefix, _)| prefix);
            let info = prefix.and_then(|prefix| sync.route_v4(number, prefix));
            (lookup_in(plane, table.v4, key, address), info, prefix.map(AnyPrefix::V4))
        }
        IpAddr::V6(v6) => {
            let key = u128::from(v6);
            let prefix = table.v6.rib().longest(key).map(|(prefix, _)| prefix);
            let info = prefix.and_then(|prefix| sync.route_v6(number, prefix));
            (lookup_in(plane, table.v6, key, address), info, prefix.map(AnyPrefix::V6))
        }
    };
    if let (Some(info), Some(prefix)) = (info, prefix) {
        let age = plane.age(number, prefix);
        answer.protocol = Some(protocols::name(info.protocol));
        answer.metric = Some(info.metric);
        answer.age = Some(age.age.as_secs());
        answer.age_or_more = age.or_more;
    }
    Ok(answer)
}

fn lookup_in<A: Family>(
    plane: &Plane,
    table: TableView<'_, A>,
    key: A,
    address: IpAddr,
) -> api::Answer {
    let (hop, steps) = table.trace(key);
    let adjacency = plane.current_adjacencies().get(hop);
    let port = adjacency.port().ok().and_then(|at| plane.ports().numbered(at));
    let longest = table.rib().longest(key);
    let loads = steps.iter().map(|step| format!("{}[{}] {} B", step.part, step.index, step.bytes));
    api::Answer {
        address,
        route: longest.map(|(prefix, hop)| route(plane, prefix, hop)),
        hop: hop.0,
        action: action(plane, hop).to_owned(),
        dev: port.map(|port| port.name.clone()),
        mac: port.map(|_| api::mac(adjacency.dst_mac())),
        engine: table.engine(),
        loads: loads.collect(),
        generation: table.generation(),
        protocol: None,
        metric: None,
        age: None,
        age_or_more: false,
    }
}

/// Formats a difference as one line.
pub fn difference(difference: &api::Difference) -> String {
    let side = |route: &Option<api::RouteView>| {
        let Some(route) = route else { return "nothing".to_owned() };
        let is_known = route.prefix != difference.of && !route.prefix.is_empty();
        let mut words = Vec::new();
        words.extend(is_known.then(|| route.prefix.clone()));
        words.extend((route.kind != "via").then(|| route.kind.clone()));
        for via in &route.via {
            words.extend(via.gateway.map(|gateway| format!("via {gateway}")));
            words.push(format!("dev {}", via.dev));
            words.extend((route.via.len() > 1).then(|| format!("weight {}", via.weight)));
        }
        words.join(" ")
    };
    let table = match difference.table {
        254 => String::new(),
        number => format!(" table {number}"),
    };
    let (of, kernel, router) = (&difference.of, side(&difference.kernel), side(&difference.router));
    match difference.what.as_str() {
        "table" => format!("{of}{table}: the routes have {kernel}, the workers' table {router}"),
        _ => format!("{of}{table}: the kernel has {kernel}, the router {router}"),
    }
}

/// Lists the neighbors whose MAC is known.
pub(super) fn neighbors(plane: &Plane) -> Vec<Item> {
    let mut all: Vec<_> = plane.neighbors().collect();
    all.sort();
    let item = |(interface, address, mac)| {
        let dev = dev(plane, interface);
        Item::Neighbor(api::Neighbor { address, dev, mac: api::mac(mac) })
    };
    all.into_iter().map(item).collect()
}

/// Lists the next hops.
pub(super) fn next_hops(plane: &Plane) -> Vec<Item> {
    let item = |(hop, target, routes): (Hop, &HopTarget, u64)| {
        let TargetView { kind, via } = plane_target_view(plane, target);
        let (kind, action) = (kind.to_owned(), action(plane, hop).to_owned());
        Item::NextHop(api::NextHop { hop: hop.0, kind, via, routes, action })
    };
    plane.hops().map(item).collect()
}

/// Describes the tables.
pub(super) fn fibs(plane: &Plane) -> Vec<Item> {
    fn fib<A: Family>(plane: &Plane, number: u32, family: &str, table: TableView<'_, A>) -> Item {
        let full = plane.full().filter(|(name, _)| name.eq_ignore_ascii_case(family));
        Item::Fib(api::Fib {
            table: number,
            family: family.to_owned(),
            routes: table.rib().len() as u64,
            engine: table.engine(),
            bytes: table.footprint() as u64,
            shared: table.is_shared(),
            generation: table.generation(),
            full: full.map(|(_, full)| full.to_string()),
        })
    }
    let families = |table: PlaneTable<'_>| {
        [fib(plane, table.number, "ipv4", table.v4), fib(plane, table.number, "ipv6", table.v6)]
    };
    plane.tables().flat_map(families).collect()
}

/// Describes the feeds.
pub(super) fn feeds(sync: &KernelSync) -> Vec<Item> {
    let (feed, counts) = (sync.feed(), sync.plane.counts());
    let (errors, last_error) = sync.errors();
    let fpm = sync.fpm().map(|fpm| {
        Item::Feed(api::Feed {
            name: "fpm".to_owned(),
            messages: fpm.messages,
            overruns: 0,
            resynchronizations: fpm.sweeps,
            parse_errors: fpm.parse_errors,
            refused: fpm.refused,
            changes: counts.changes,
            commits: counts.commits,
            errors: 0,
            last_error: fpm.last_refused.map(|refused| refused.to_string()),
        })
    });
    let kernel = Item::Feed(api::Feed {
        name: "kernel".to_owned(),
        messages: feed.messages,
        overruns: feed.overruns,
        resynchronizations: feed.resynchronizations,
        parse_errors: feed.parse_errors,
        refused: 0,
        changes: counts.changes,
        commits: counts.commits,
        errors,
        last_error: last_error.map(str::to_owned),
    });
    [Some(kernel), fpm].into_iter().flatten().collect()
}

/// Describes the bond that a port is an active member of.
fn bond(ports: &Ports, port: &PlanePort) -> Option<api::Bond> {
    let (_, bond) = ports.bond_of(port)?;
    let members = bond.bond.iter().flat_map(|bond| &bond.members);
    let name = |member: &u32| Some(ports.get(*member)?.name.clone());
    Some(api::Bond {
        name: bond.name.clone(),
        mac: api::mac(bond.mac),
        mtu: bond.mtu,
        up: bond.up,
        table: bond.table,
        members: members.filter_map(name).collect(),
    })
}

/// Names the reverse path filters of a port, of IPv4 and of IPv6.
fn rp_filters(ports: &Ports, port: &PlanePort) -> [Option<String>; 2] {
    let name = |filter: ReversePathFilter| {
        (filter != ReversePathFilter::Off).then(|| filter.name().to_owned())
    };
    ports.rp_filters(port).map(name)
}

/// Names the families whose packets are dropped because the kernel's forwarding is off for a port.
fn forwarding_off(ports: &Ports, port: &PlanePort) -> Vec<String> {
    let families = ["IPv4", "IPv6"].into_iter().zip(ports.forwarding_off(port));
    families.filter(|(_, is_off)| *is_off).map(|(family, _)| family.to_owned()).collect()
}

/// Describes the VLAN devices over a port.
fn vlans(ports: &Ports, interface: u32) -> Vec<api::Vlan> {
    let tag = |tag: &VlanTag| match tag.protocol {
        0x88a8 => format!("802.1ad {}", tag.id),
        _ => format!("802.1Q {}", tag.id),
    };
    let bond = ports.get(interface).and_then(|port| ports.bond_of(port));
    let mut below: Vec<u32> = bond.map(|(_, bond)| bond.interface).into_iter().collect();
    below.push(interface);
    let mut all = Vec::new();
    for port in ports.vlans_over(interface) {
        below.push(port.interface);
        let tags = port.vlan.iter().flat_map(|vlan| vlan.tags.iter().map(tag)).collect();
        let [rpf_v4, rpf_v6] = rp_filters(ports, port);
        all.push(api::Vlan {
            name: port.name.clone(),
            tags,
            mac: Some(api::mac(port.mac)),
            mtu: Some(port.mtu),
            up: port.up,
            table: Some(port.table),
            rpf_v4,
            rpf_v6,
            forwarding_off: forwarding_off(ports, port),
            problem: None,
        });
    }
    let left = below.into_iter().flat_map(|below| ports.left_vlans(below));
    all.extend(left.map(|left| api::Vlan {
        name: left.name.clone(),
        tags: Vec::new(),
        mac: None,
        mtu: None,
        up: true,
        table: None,
        rpf_v4: None,
        rpf_v6: None,
        forwarding_off: Vec::new(),
        problem: Some(left.reason.clone()),
    }));
    all
}

/// Describes the ports.
///
/// # Errors
///
/// The counters of the steering program or of a socket cannot be read.
pub(super) fn interfaces(ports: &Ports, view: &View) -> Result<Vec<Item>, String> {
    let interfaces = view.interfaces();
    let item = |port: &PlanePort| {
        let interface = interfaces.iter().find(|interface| interface.index() == port.interface);
        let counts = interface.map(port::af_xdp::Interface::counts).transpose();
        let unreadable =
            |error| format!("{}: cannot read the steering program's counters: {error}", port.name);
        let counts = counts.map_err(unreadable)?;
        let stats = interface.map(port::af_xdp::Interface::stats).transpose();
        let unreadable =
            |error| format!("{}: cannot read the sockets' counters: {error}", port.name);
        let stats = stats.map_err(unreadable)?.unwrap_or_default();
        let names = |counts: &[(&str, u64)]| {
            counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
        };
        let named = |counts: port::af_xdp::steer::SteeringCounters| {
            counts.iter().map(|(counter, count)| (counter.name().to_owned(), count)).collect()
        };
        let [rpf_v4, rpf_v6] = rp_filters(ports, port);
        Ok(Item::Interface(api::Interface {
            name: port.name.clone(),
            index: port.interface,
            mac: api::mac(port.mac),
            secondary_macs: port.secondary_macs().into_iter().map(api::mac).collect(),
            bond: bond(ports, port),
            vlans: vlans(ports, port.interface),
            mtu: port.mtu,
            up: port.up,
            table: port.table,
            rpf_v4,
            rpf_v6,
            forwarding_off: forwarding_off(ports, port),
            rules: port.rule_conflict.as_ref().map(ToString::to_string),
            mode: view.mode(port.interface),
            configured: (port.configured != port.name).then(|| port.configured.clone()),
            problem: port.problem.clone(),
            observe: interface.is_some_and(|interface| interface.observes().unwrap_or(false)),
            steered: counts.map(named).unwrap_or_default(),
            received: stats.received,
            received_bytes: stats.received_bytes,
            transmitted: stats.transmitted,
            transmitted_bytes: stats.transmitted_bytes,
            lost: names(&[
                ("rx_ring_full", stats.rx_ring_full),
                ("fill_empty", stats.fill_empty),
                ("rx_dropped", stats.rx_dropped),
                ("undelivered", stats.undelivered),
                ("tx_invalid", stats.tx_invalid),
                ("tx_refused", stats.tx_refused),
                ("tx_dropped", stats.tx_lost),
            ]),
            rings: names(&[
                ("fill_ring_empty", stats.fill_ring_empty),
                ("fill_invalid", stats.fill_invalid),
                ("tx_ring_empty", stats.tx_ring_empty),
            ]),
        }))
    };
    ports.iter().map(item).collect()
}

/// Describes the workers.
pub(super) fn workers(stats: &[Snapshot]) -> Vec<Item> {
    let item = |(worker, stats): (usize, &Snapshot)| {
        Item::Worker(api::Worker { worker: worker as u64, counters: counters(stats) })
    };
    stats.iter().enumerate().map(item).collect()
}

/// Converts the counters of ICMP errors, if one has counted.
fn icmp_errors(stats: &Snapshot) -> BTreeMap<String, u64> {
    if stats.icmp.iter().all(|count| *count == 0) {
        return BTreeMap::new();
    }
    let each = IcmpCounter::ALL.iter().zip(stats.icmp);
    each.map(|(counter, count)| (counter.name().to_owned(), count)).collect()
}

/// Converts a worker's counters, or the sum of all workers', with their names.
pub fn counters(stats: &Snapshot) -> api::Counters {
    let of_class = |class| -> BTreeMap<String, u64> {
        let each = stats.iter().filter(|(verdict, _)| verdict.class() == class);
        each.map(|(verdict, count)| (verdict.name().to_owned(), count)).collect()
    };
    api::Counters {
        received: stats.received,
        received_bytes: stats.received_bytes,
        sent: stats.sent(),
        sent_bytes: stats.sent_bytes,
        punted: of_class(Class::Punted),
        dropped: of_class(Class::Dropped),
        icmp_errors: icmp_errors(stats),
        originated: stats.originated,
        fragmented: stats.fragmented,
        fragments: stats.fragments,
        balanced: stats.balanced(),
    }
}
