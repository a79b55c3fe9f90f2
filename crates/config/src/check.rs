//! The check of the file: it resolves names, parses values and collects every problem.
//!
//! The check continues after a problem, so that the report has all problems of the file. A value
//! that cannot be parsed is replaced by one that raises no further problem; it is never used,
//! because a file with a problem results in no [`Config`].

use std::net::IpAddr;
use std::path::Path;

use fib::{Addr, Choice, Prefix};
use port::af_xdp::ModeChoice;
use toml::Spanned;

use super::checker::Checker;
use super::{
    CONTROL, Config, ConfigError, ImageFile, Interface, Level, Metrics, NextHop, Problem,
    RouteFile, Target, TimeSpan, Via, feeds, place, stall, text,
};
use datapath::{Adjacency, PuntRates, ReversePathFilter};

/// The reserved next hop that drops packets.
const BLACKHOLE: &str = "blackhole";

pub(super) fn check(file: text::File, text: &str, path: &Path) -> Result<Config, ConfigError> {
    let mut c = Checker::new(text);
    let stall = stall(file.workers.stall_timeout);
    let cores = cores(&mut c, file.workers);
    let interfaces = interfaces(&mut c, file.interface, cores.len());
    let next_hops = next_hops(&mut c, file.nexthop, &interfaces);
    let files = files(&mut c, file.routes, &next_hops, path);
    let mut routes_v4 = Vec::new();
    let mut routes_v6 = Vec::new();
    for text::Route { prefix, nexthop } in file.route {
        let target = target(&mut c, &nexthop, "route.nexthop", &next_hops);
        if prefix.get_ref().contains(':') {
            route(&mut c, &prefix, target, &mut routes_v6);
        } else {
            route(&mut c, &prefix, target, &mut routes_v4);
        }
    }
    let fpm = feeds::check(&mut c, file.feed);
    let metrics = Metrics::check(file.metrics, &mut |at, key, what| {
        c.problems.push(Problem { line: place(text, at).0, key, what });
    });
    let log = Level::check(file.log, &mut |at, key, what| {
        c.problems.push(Problem { line: place(text, at).0, key, what });
    });
    let socket = file.control.socket.unwrap_or_else(|| CONTROL.into());
    let control = (!socket.as_os_str().is_empty()).then_some(socket);
    let engine_v4 = engine(&mut c, file.fib.engine, "fib.engine", Choice::parse::<u32>);
    let engine_v6 = engine(&mut c, file.fib.engine_v6, "fib.engine_v6", Choice::parse::<u128>);
    let image = file.image.map(|text::Image { path, interval }| {
        if !path.get_ref().is_absolute() {
            c.problem(
                &path,
                "image.path",
                format!("{:?} must be an absolute path", path.get_ref()),
            );
        }
        let least = TimeSpan::milliseconds(100);
        if let Some(interval) = interval.as_ref().filter(|interval| *interval.get_ref() < least) {
            let what = format!(
                "{} is out of range: at least {least}; without this key the image is saved at the \
                 end only",
                interval.get_ref()
            );
            c.problem(interval, "image.interval", what);
        }
        let every = interval.map(|interval| interval.into_inner().into());
        ImageFile { path: path.into_inner(), every }
    });
    if let Some(image) = &image {
        for (key, engine) in [("fib.engine", engine_v4), ("fib.engine_v6", engine_v6)] {
            if !engine.is_storable() {
                let what =
                    format!("its tables are not kept in an image ({})", image.path.display());
                c.problems.push(Problem { line: 1, key, what });
            }
        }
    }
    if interfaces.is_empty() && c.problems.is_empty() {
        let what = "there is none; a router needs at least one".into();
        c.problems.push(Problem { line: 1, key: "interface", what });
    }
    if !c.problems.is_empty() {
        c.problems.sort_by_key(|problem| problem.line);
        return Err(ConfigError::Sense { path: path.into(), problems: c.problems });
    }
    Ok(Config {
        path: path.into(),
        interfaces,
        next_hops,
        files,
        routes_v4,
        routes_v6,
        cores,
        stall,
        engine_v4,
        engine_v6,
        fpm,
        control,
        image,
        metrics,
        log,
        punts: file.punt.rates(PuntRates::ROUTER),
    })
}

fn cores(c: &mut Checker<'_>, workers: text::Workers) -> Vec<Option<usize>> {
    let Some(listed) = workers.cores else { return vec![None] };
    if listed.get_ref().is_empty() {
        c.problem(&listed, "workers.cores", "an empty list; leave it out for one worker anywhere");
        return vec![None];
    }
    let mut cores = Vec::new();
    for core in listed.into_inner() {
        let number = *core.get_ref();
        if cores.contains(&Some(number)) {
            c.problem(&core, "workers.cores", format!("core {number} is listed twice"));
        }
        cores.push(Some(number));
    }
    cores
}

fn interfaces(c: &mut Checker<'_>, listed: Vec<text::Interface>, workers: usize) -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for text::Interface { name, mode, queues, table, rpf, observe } in listed {
        if interfaces.iter().any(|other| other.name == *name.get_ref()) {
            let what = format!("{:?} is a duplicate", name.get_ref());
            c.problem(&name, "interface.name", what);
        }
        // IFNAMSIZ is 16 with the zero at the end.
        if name.get_ref().is_empty() || name.get_ref().len() > 15 {
            let what = format!("{:?} cannot be an interface: 1 to 15 bytes", name.get_ref());
            c.problem(&name, "interface.name", what);
        }
        let choice = match mode.as_ref().map(|mode| mode.get_ref().as_str()) {
            None | Some("auto") => ModeChoice::Auto,
            Some("zero-copy") => ModeChoice::ZeroCopy,
            Some("copy") => ModeChoice::Copy,
            Some("generic") => ModeChoice::Generic,
            Some(other) => {
                let what = format!("{other:?} is none of auto, zero-copy, copy, generic");
                if let Some(mode) = &mode {
                    c.problem(mode, "interface.mode", what);
                }
                ModeChoice::Auto
            }
        };
        if let Some(queues) = &queues
            && (*queues.get_ref() as usize) < workers
        {
            let what = format!(
                "{} queues and {workers} workers: each worker needs a queue of every interface",
                queues.get_ref()
            );
            c.problem(queues, "interface.queues", what);
        }
        let queues = queues.map(Spanned::into_inner);
        let sources = match rpf.as_ref().map(|rpf| rpf.get_ref().as_str()) {
            None | Some("off") => ReversePathFilter::Off,
            Some("loose") => ReversePathFilter::Loose,
            Some("strict") => ReversePathFilter::Strict,
            Some(other) => {
                let what = format!("{other:?} is none of off, loose, strict");
                if let Some(rpf) = &rpf {
                    c.problem(rpf, "interface.rpf", what);
                }
                ReversePathFilter::Off
            }
        };
        let number = table.as_ref().map(|table| *table.get_ref());
        if let Some(table) = table.filter(|table| matches!(*table.get_ref(), 0 | 255)) {
            let what = format!("{} is no table of routes that can be followed", table.get_ref());
            c.problem(&table, "interface.table", what);
        }
        let name = name.into_inner();
        let (mode, table) = (choice, number);
        let guard = None;
        interfaces.push(Interface { name, mode, queues, table, sources, observe, guard });
    }
    if interfaces.len() > Adjacency::MOST_PORTS {
        let what = format!("more than {}", Adjacency::MOST_PORTS);
        c.problems.push(Problem { line: 1, key: "interface", what });
    }
    interfaces
}

fn next_hops(
    c: &mut Checker<'_>,
    listed: Vec<text::NextHop>,
    interfaces: &[Interface],
) -> Vec<NextHop> {
    let mut next_hops: Vec<NextHop> = Vec::new();
    for text::NextHop { name, interface, mac, address } in listed {
        if *name.get_ref() == BLACKHOLE {
            let what = format!("{BLACKHOLE:?} already means that packets are dropped");
            c.problem(&name, "nexthop.name", what);
        }
        if next_hops.iter().any(|other| other.name == *name.get_ref()) {
            c.problem(&name, "nexthop.name", format!("{:?} is a duplicate", name.get_ref()));
        }
        let behind = interfaces.iter().position(|other| other.name == *interface.get_ref());
        if behind.is_none() {
            let what = format!(
                "there is no [[interface]] {:?} ({})",
                interface.get_ref(),
                known(interfaces.iter().map(|interface| &*interface.name))
            );
            c.problem(&interface, "nexthop.interface", what);
        }
        let station = match read_mac(mac.get_ref()) {
            Some(octets) if octets[0] & 1 == 1 || octets == [0; 6] => {
                let what = format!("{:?} is not the address of one station", mac.get_ref());
                c.problem(&mac, "nexthop.mac", what);
                octets
            }
            Some(octets) => octets,
            None => {
                let what = format!("{:?} is not a MAC such as 02:00:00:00:00:01", mac.get_ref());
                c.problem(&mac, "nexthop.mac", what);
                [0; 6]
            }
        };
        let address = address.and_then(|address| {
            let Ok(read) = address.get_ref().parse::<IpAddr>() else {
                let what = format!("{:?} is not an IP address", address.get_ref());
                c.problem(&address, "nexthop.address", what);
                return None;
            };
            if let Some(other) = next_hops.iter().find(|other| other.address == Some(read)) {
                let what = format!("{read} is that of {:?} already", other.name);
                c.problem(&address, "nexthop.address", what);
            }
            Some(read)
        });
        let (name, interface) = (name.into_inner(), behind.unwrap_or(0));
        next_hops.push(NextHop { name, interface, mac: station, address });
    }
    next_hops
}

fn files(
    c: &mut Checker<'_>,
    listed: Vec<Spanned<text::Routes>>,
    next_hops: &[NextHop],
    path: &Path,
) -> Vec<RouteFile> {
    let mut files = Vec::new();
    for entry in listed {
        if entry.get_ref().nexthop.is_some() && entry.get_ref().nexthops.is_some() {
            c.problem(&entry, "routes", "`nexthop` and `nexthops` exclude each other: remove one");
        }
        let text::Routes { file, nexthop, nexthops } = entry.into_inner();
        let via = match (nexthop, nexthops) {
            (Some(name), _) => Via::One(target(c, &name, "routes.nexthop", next_hops)),
            (None, Some(names)) => {
                if names.get_ref().is_empty() {
                    c.problem(&names, "routes.nexthops", "an empty list of next hops");
                }
                let names = names.into_inner();
                let each = names.iter().map(|name| target(c, name, "routes.nexthops", next_hops));
                Via::Spread(each.collect())
            }
            (None, None) => Via::Label,
        };
        let beside = path.parent().unwrap_or(Path::new(""));
        files.push(RouteFile { path: beside.join(file), via });
    }
    files
}

fn target(
    c: &mut Checker<'_>,
    name: &Spanned<String>,
    key: &'static str,
    next_hops: &[NextHop],
) -> Target {
    if name.get_ref() == BLACKHOLE {
        return Target::Blackhole;
    }
    match next_hops.iter().position(|next_hop| next_hop.name == *name.get_ref()) {
        Some(at) => Target::NextHop(at),
        None => {
            let what = format!(
                "there is no [[nexthop]] {:?} ({})",
                name.get_ref(),
                known(next_hops.iter().map(|next_hop| &*next_hop.name))
            );
            c.problem(name, key, what);
            Target::Blackhole
        }
    }
}

fn route<A: Addr>(
    c: &mut Checker<'_>,
    prefix: &Spanned<String>,
    target: Target,
    routes: &mut Vec<(Prefix<A>, Target)>,
) {
    match prefix.get_ref().parse::<Prefix<A>>() {
        Ok(read) if routes.iter().any(|(other, _)| *other == read) => {
            c.problem(prefix, "route.prefix", format!("{read} is a duplicate"));
        }
        Ok(read) => routes.push((read, target)),
        Err(error) => c.problem(prefix, "route.prefix", error.describe::<A>(prefix.get_ref())),
    }
}

fn engine<E: std::fmt::Display>(
    c: &mut Checker<'_>,
    name: Option<Spanned<String>>,
    key: &'static str,
    parse: impl Fn(&str) -> Result<Choice, E>,
) -> Choice {
    let Some(name) = name else { return Choice::Auto };
    parse(name.get_ref()).unwrap_or_else(|error| {
        c.problem(&name, key, format!("{:?}: {error}", name.get_ref()));
        Choice::Auto
    })
}

/// Lists the first few of the defined names.
fn known<'n>(names: impl Iterator<Item = &'n str> + Clone) -> String {
    const SHOWN: usize = 8;
    let count = names.clone().count();
    let list: Vec<_> = names.take(SHOWN).collect();
    match count {
        0 => "there is none".into(),
        _ if count > SHOWN => format!("there is: {}, … {count} in all", list.join(", ")),
        _ => format!("there is: {}", list.join(", ")),
    }
}

fn read_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut octets = text.split([':', '-']);
    for slot in &mut mac {
        let octet = octets.next()?;
        if octet.is_empty() || octet.len() > 2 || octet.starts_with('+') {
            return None;
        }
        *slot = u8::from_str_radix(octet, 16).ok()?;
    }
    octets.next().is_none().then_some(mac)
}
