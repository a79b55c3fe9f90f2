//! The check of a router's file: it resolves names, parses values and collects every problem
//! (`checker.rs`). A file with a problem results in no [`Config`].

use std::net::IpAddr;
use std::path::Path;

use fib::{Addr, Choice, Prefix};
use port::af_xdp::{ModeChoice, QueueSetup};
use toml::Spanned;

use super::checker::Checker;
use super::{
    Config, ConfigError, DaemonSections, ImageFile, Interface, NextHop, RouteFile, Target,
    TimeSpan, Via, access, block, egress_queue, feeds, flowspec, has_programs, text,
};
use datapath::{Adjacency, PuntRates};

/// The reserved next hop that drops packets.
const BLACKHOLE: &str = "blackhole";

pub(super) fn check(file: text::File, text: &str, path: &Path) -> Result<Config, ConfigError> {
    let mut c = Checker::new(text);
    let sections = DaemonSections {
        workers: file.workers,
        control: file.control,
        metrics: file.metrics,
        log: file.log,
        punt: file.punt,
    };
    let daemon = sections.check(&mut c, PuntRates::ROUTER);
    let interfaces = interfaces(&mut c, file.interface, daemon.cores.len());
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
    let access_lists = access::check(&mut c, file.prefix_list, file.access_list, path);
    let egress_queues = egress_queue::check(&mut c, file.egress_queue, &interfaces);
    let block = file.block.map(|section| block::check(&mut c, section, path, &interfaces));
    let flowspec = file.flowspec.and_then(|section| flowspec::check(&mut c, section));
    let fpm = feeds::check(&mut c, file.feed);
    let engine_v4 = engine(&mut c, file.fib.engine, "fib.engine", Choice::parse::<u32>);
    let engine_v6 = engine(&mut c, file.fib.engine_v6, "fib.engine_v6", Choice::parse::<u128>);
    let image = file.image.map(|text::Image { path, interval }| {
        c.absolute_path(&path, "image.path");
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
                c.problem_at_line(1, key, what);
            }
        }
    }
    if interfaces.iter().any(|interface| interface.mode == ModeChoice::Xdp) {
        for (key, engine) in [("fib.engine", engine_v4), ("fib.engine_v6", engine_v6)] {
            if !has_programs(engine) {
                let what = "programs in the kernel look up in flat and rank only: name one of them, or no \
                            engine, or no interface with `mode = \"xdp\"`";
                c.problem_at_line(1, key, what);
            }
        }
    }
    if interfaces.is_empty() && c.is_valid() {
        c.problem_at_line(1, "interface", "there is none; a router needs at least one");
    }
    c.finish(path)?;
    let mut config = Config {
        path: path.into(),
        interfaces,
        next_hops,
        files,
        routes_v4,
        routes_v6,
        access_lists,
        egress_queues,
        block,
        flowspec,
        engine_v4,
        engine_v6,
        fpm,
        image,
        daemon,
    };
    let follows_kernel = !config.has_static_routes();
    for interface in &mut config.interfaces {
        interface.follows_kernel = follows_kernel;
    }
    Ok(config)
}

fn interfaces(c: &mut Checker<'_>, listed: Vec<text::Interface>, workers: usize) -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for text::Interface { name, mode, queues, channels, rss, table, rpf, observe } in listed {
        if interfaces.iter().any(|other| other.name == *name.get_ref()) {
            let what = format!("{:?} is a duplicate", name.get_ref());
            c.problem(&name, "interface.name", what);
        }
        c.interface_name(&name, "interface.name");
        let mode = c.router_mode(mode.as_ref(), "interface.mode");
        if let Some(queues) = &queues
            && (*queues.get_ref() as usize) < workers
        {
            let what = format!(
                "{} queues and {workers} workers: each worker needs a queue of every interface",
                queues.get_ref()
            );
            c.problem(queues, "interface.queues", what);
        }
        if let Some(channels) = &channels {
            let least = queues.as_ref().map_or(workers as u32, |queues| *queues.get_ref());
            if *channels.get_ref() < least {
                let what = format!(
                    "{} channels: at least {least}, the number of workers, and of `queues` if stated",
                    channels.get_ref()
                );
                c.problem(channels, "interface.channels", what);
            }
        }
        let queues = queues.map(Spanned::into_inner);
        let rss = c.rss(rss.as_ref(), "interface.rss");
        let queue_setup = QueueSetup { channels: channels.map(Spanned::into_inner), rss };
        let sources = c.filter_or_kernel(rpf.as_ref(), "interface.rpf");
        let number = table.as_ref().map(|table| *table.get_ref());
        if let Some(table) = table.filter(|table| matches!(*table.get_ref(), 0 | 255)) {
            let what = format!("{} is no table of routes that can be followed", table.get_ref());
            c.problem(&table, "interface.table", what);
        }
        let name = name.into_inner();
        // `check` sets the packets that are left to the kernel.
        let (table, follows_kernel, guard) = (number, false, None);
        interfaces.push(Interface {
            name,
            mode,
            queues,
            queue_setup,
            table,
            sources,
            observe,
            follows_kernel,
            guard,
        });
    }
    if interfaces.len() > Adjacency::MOST_PORTS {
        let what = format!("more than {}", Adjacency::MOST_PORTS);
        c.problem_at_line(1, "interface", what);
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
            let read = c.read::<IpAddr>(&address, "nexthop.address", "an IP address")?;
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
