//! Answers: what the plane, the workers and the ports have to say, item by item.
//!
//! Each function is one kind of question; a question of the plane is run on its thread
//! and copies out what it needs, the words are made here.

use std::collections::BTreeMap;
use std::net::IpAddr;

use feed::netlink::{AnyPrefix, Target};
use fib::{Family, Hop, Prefix};

use super::api::{self, Item};
use super::kernel_sync::KernelSync;
use super::plane::{HopTarget, One, Plane, PlaneTable, Ports};
use super::protocols;
use crate::daemon::View;
use crate::datapath::{Class, Verdict};
use crate::stats::Snapshot;

/// A hop in words.
pub(super) struct Words {
    pub(super) kind: &'static str,
    pub(super) via: Vec<api::Via>,
}

/// Returns the name of an interface by its index; the number where it is no port.
fn dev(plane: &Plane, interface: u32) -> String {
    let port = plane.ports().get(interface);
    port.map_or_else(|| format!("if{interface}"), |port| port.name.clone())
}

/// Puts a way into words, with the names that `dev` has for interfaces.
pub(super) fn words(dev: &dyn Fn(u32) -> String, way: &HopTarget) -> Words {
    let target = match way {
        HopTarget::Route(target) => target,
        &HopTarget::Neighbor { interface, address } => {
            let dev = dev(interface);
            let via = vec![api::Via { gateway: Some(address), dev, weight: 1 }];
            return Words { kind: "neighbor", via };
        }
        HopTarget::Gone(_) => return Words { kind: "gone", via: Vec::new() },
    };
    let kind = match **target {
        Target::Via(_) => "via",
        Target::Blackhole => "blackhole",
        Target::Unreachable => "unreachable",
        Target::Prohibit => "prohibit",
        Target::Throw => "throw",
        Target::Local => "local",
        Target::Broadcast => "broadcast",
        Target::Multicast => "multicast",
    };
    let via = match &**target {
        Target::Via(vias) => vias
            .iter()
            .map(|via| api::Via {
                gateway: via.gateway,
                dev: dev(via.interface),
                weight: via.weight,
            })
            .collect(),
        _ => Vec::new(),
    };
    Words { kind, via }
}

fn route<A: Family>(plane: &Plane, prefix: Prefix<A>, hop: Hop) -> api::Route {
    let Words { kind, via } = match plane.hop_target(hop) {
        Some(way) => words(&|index| dev(plane, index), way),
        None => Words { kind: "none", via: Vec::new() },
    };
    api::Route { prefix: prefix.to_string(), kind: kind.to_owned(), via, hop: hop.0 }
}

/// Says what is done with packets of a hop.
fn action(plane: &Plane, hop: Hop) -> &'static str {
    if plane.meanings().group(hop).is_some() {
        return "divide";
    }
    match plane.meanings().get(hop).port() {
        Ok(_) => "send",
        Err(Verdict::HostRoute) => "host",
        Err(Verdict::Unresolved) => "wait",
        Err(Verdict::Blackhole) => "drop blackhole",
        Err(_) => "drop no_route",
    }
}

fn find(plane: &Plane, number: u32) -> Result<PlaneTable<'_>, String> {
    plane.table(number).ok_or_else(|| {
        let all: Vec<_> = plane.tables().map(|table| table.number.to_string()).collect();
        format!("no table {number} is followed (there is: {})", all.join(", "))
    })
}

/// Lists the routes of the families asked for, inside `within` if that is said.
///
/// # Errors
///
/// Says that `within` is no prefix, or that the table is not followed.
pub(super) fn routes(
    plane: &Plane,
    number: u32,
    within: Option<&str>,
    family: Option<u8>,
) -> Result<Vec<api::Route>, String> {
    let table = find(plane, number)?;
    let bad = |error| format!("{}: {error}", within.unwrap_or_default());
    let six = within.map(|text| text.contains(':'));
    let mut routes = Vec::new();
    if family != Some(6) && six != Some(true) {
        let within = within.map_or(Ok(Prefix::truncate(0, 0)), str::parse).map_err(bad)?;
        let all = table.v4.rib().covered(within);
        routes.extend(all.map(|(prefix, hop)| route::<u32>(plane, prefix, hop)));
    }
    if family != Some(4) && six != Some(false) {
        let within = within.map_or(Ok(Prefix::truncate(0, 0)), str::parse).map_err(bad)?;
        let all = table.v6.rib().covered(within);
        routes.extend(all.map(|(prefix, hop)| route::<u128>(plane, prefix, hop)));
    }
    Ok(routes)
}

/// Says where packets to an address go.
///
/// # Errors
///
/// Says that the table is not followed.
pub(super) fn answer(
    following: &KernelSync,
    number: u32,
    address: IpAddr,
) -> Result<api::Answer, String> {
    let plane = &following.plane;
    let table = find(plane, number)?;
    let (mut answer, told, prefix) = match address {
        IpAddr::V4(it) => {
            let key = u32::from(it);
            let prefix = table.v4.rib().longest(key).map(|(prefix, _)| prefix);
            let told = prefix.and_then(|prefix| following.route_v4(number, prefix));
            (answer_in(plane, table.v4, key, address), told, prefix.map(AnyPrefix::V4))
        }
        IpAddr::V6(it) => {
            let key = u128::from(it);
            let prefix = table.v6.rib().longest(key).map(|(prefix, _)| prefix);
            let told = prefix.and_then(|prefix| following.route_v6(number, prefix));
            (answer_in(plane, table.v6, key, address), told, prefix.map(AnyPrefix::V6))
        }
    };
    if let (Some(told), Some(prefix)) = (told, prefix) {
        let age = plane.age(number, prefix);
        answer.protocol = Some(protocols::name(told.protocol));
        answer.metric = Some(told.metric);
        answer.age = Some(age.age.as_secs());
        answer.age_or_more = age.or_more;
    }
    Ok(answer)
}

fn answer_in<A: Family>(plane: &Plane, table: One<'_, A>, key: A, address: IpAddr) -> api::Answer {
    let (hop, steps) = table.trace(key);
    let adjacency = plane.meanings().get(hop);
    let port = adjacency.port().ok().and_then(|at| plane.ports().iter().nth(at.into()));
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

/// Puts a difference into words.
pub fn difference(it: &api::Difference) -> String {
    let side = |said: &Option<api::RouteView>| {
        let Some(said) = said else { return "nothing".to_owned() };
        let mut words = Vec::new();
        words
            .extend((said.prefix != it.of && !said.prefix.is_empty()).then(|| said.prefix.clone()));
        words.extend((said.kind != "via").then(|| said.kind.clone()));
        for via in &said.via {
            words.extend(via.gateway.map(|gateway| format!("via {gateway}")));
            words.push(format!("dev {}", via.dev));
            words.extend((said.via.len() > 1).then(|| format!("weight {}", via.weight)));
        }
        words.join(" ")
    };
    let table = if it.table == 254 { String::new() } else { format!(" table {}", it.table) };
    let (of, kernel, router) = (&it.of, side(&it.kernel), side(&it.router));
    match it.what.as_str() {
        "table" => format!("{of}{table}: the routes have {kernel}, the workers' table {router}"),
        _ => format!("{of}{table}: the kernel has {kernel}, the router {router}"),
    }
}

/// Lists the neighbors that can be used.
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
    let item = |(hop, way, routes): (Hop, &HopTarget, u64)| {
        let Words { kind, via } = words(&|index| dev(plane, index), way);
        let (kind, action) = (kind.to_owned(), action(plane, hop).to_owned());
        Item::NextHop(api::NextHop { hop: hop.0, kind, via, routes, action })
    };
    plane.ways().map(item).collect()
}

/// Describes the tables.
pub(super) fn fibs(plane: &Plane) -> Vec<Item> {
    fn fib<A: Family>(plane: &Plane, number: u32, family: &str, table: One<'_, A>) -> Item {
        let full = plane.full().filter(|(which, _)| which.eq_ignore_ascii_case(family));
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
    let both = |table: PlaneTable<'_>| {
        [fib(plane, table.number, "ipv4", table.v4), fib(plane, table.number, "ipv6", table.v6)]
    };
    plane.tables().flat_map(both).collect()
}

/// Describes the feed.
pub(super) fn feeds(following: &KernelSync) -> Vec<Item> {
    let (feed, counts) = (following.feed(), following.plane.counts());
    let (troubles, last_error) = following.troubles();
    let fpm = following.fpm().map(|fpm| {
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
        errors: troubles,
        last_error: last_error.map(str::to_owned),
    });
    [Some(kernel), fpm].into_iter().flatten().collect()
}

/// Describes the ports.
///
/// # Errors
///
/// Says that the steering program's counters cannot be read.
pub(super) fn interfaces(ports: &Ports, view: &View) -> Result<Vec<Item>, String> {
    let interfaces = view.interfaces();
    let item = |port: &super::plane::PlanePort| {
        let interface = interfaces.iter().find(|it| it.index() == port.interface);
        let counts = interface.map(port::af_xdp::Interface::counts).transpose();
        let counts = counts.map_err(|error| format!("{}: its counters: {error}", port.name))?;
        let stats = interface.map(port::af_xdp::Interface::stats).transpose();
        let stats = stats.map_err(|error| format!("{}: its counters: {error}", port.name))?;
        let stats = stats.unwrap_or_default();
        let names = |counts: &[(&str, u64)]| {
            counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
        };
        let named = |counts: port::af_xdp::steer::Counts| {
            counts.iter().map(|(which, count)| (which.name().to_owned(), count)).collect()
        };
        Ok(Item::Interface(api::Interface {
            name: port.name.clone(),
            index: port.interface,
            mac: api::mac(port.mac),
            mtu: port.mtu,
            up: port.up,
            table: port.table,
            rules: port.stray.as_ref().map(ToString::to_string),
            mode: view.mode(port.interface).to_owned(),
            configured: (port.configured != port.name).then(|| port.configured.clone()),
            problem: port.problem.clone(),
            observe: interface.is_some_and(|it| it.observes().unwrap_or(false)),
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

/// Puts a worker's counters, or their sum, into words.
pub fn counters(stats: &Snapshot) -> api::Counters {
    let of = |class| -> BTreeMap<String, u64> {
        let each = stats.iter().filter(|(verdict, _)| verdict.class() == class);
        each.map(|(verdict, count)| (verdict.name().to_owned(), count)).collect()
    };
    api::Counters {
        received: stats.received,
        received_bytes: stats.received_bytes,
        sent: stats.sent(),
        sent_bytes: stats.sent_bytes,
        punted: of(Class::Punted),
        dropped: of(Class::Dropped),
        originated: stats.originated,
        balanced: stats.balanced(),
    }
}
