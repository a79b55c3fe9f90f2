//! Tests of the control plane: routes from files to tables, workers from threads to counters.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::{Config, Target};
use control::StartError;
use control::plane::{HopTarget, Plane, PlanePort, Ports, StaticTables};
use control::routes::{RoutesError, StaticRoutes};
use control::workers::Workers;
use datapath::stats::{Snapshot, WorkerStats};
use datapath::{Adjacencies, Adjacency, Ingresses, Tables, Verdict, Worker, WorkerSetup, wants};
use feed::netlink::{Follower, Link};
use fib::{Hop, Prefix, Publisher};
use port::memory::{Pool, Replay, Sink};
use port::{Arena, Port};
use wire::{ethernet, ipv4, ipv6};

/// A folder of files, which is deleted at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("fingerpost-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (name, text) in files {
            std::fs::write(path.join(name), text).unwrap();
        }
        Self(path)
    }

    fn config(&self, text: &str) -> Config {
        let path = self.0.join("router.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(&path).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const HOPS: &str = r#"
[[interface]]
name = "west"
[[interface]]
name = "east"
[[nexthop]]
name = "a"
interface = "west"
mac = "02:00:00:00:00:0a"
address = "192.0.2.1"
[[nexthop]]
name = "b"
interface = "east"
mac = "02:00:00:00:00:0b"
address = "2001:db8::b"
"#;

/// Reads the routes of a configuration and builds their tables.
fn load(config: &Config) -> Result<StaticTables, RoutesError> {
    StaticRoutes::read(config)?.build(config, 1)
}

/// Returns the next hop in the configuration that a target names.
fn target_of(config: &Config, target: &HopTarget) -> Target {
    match target {
        HopTarget::Static(name) => {
            let at = config.next_hops.iter().position(|next| next.name == **name);
            Target::NextHop(at.unwrap())
        }
        HopTarget::Route(target) if **target == feed::netlink::Target::Blackhole => {
            Target::Blackhole
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the target of the route of an address.
fn leads(config: &Config, tables: &StaticTables, address: &str) -> Option<Target> {
    let hop = match address.parse::<IpAddr>().unwrap() {
        IpAddr::V4(address) => tables.v4.fib().lookup(address.into()),
        IpAddr::V6(address) => tables.v6.fib().lookup(address.into()),
    };
    tables.hops.get(hop).map(|target| target_of(config, target))
}

/// Makes a plane with these tables, whose port i has `links[i]` as its MAC and MTU.
fn plane(config: &Config, tables: StaticTables, links: &[([u8; 6], u32)]) -> Plane {
    let index = |at: usize| at as u32 + 1;
    let port = |(at, interface): (usize, &config::Interface)| PlanePort {
        sources: interface.sources,
        ..PlanePort::new(index(at), &interface.name)
    };
    let ports = Ports::new(config.interfaces.iter().enumerate().map(port));
    let mut plane = Plane::with_static_routes(ports, tables).unwrap();
    for (at, &(mac, mtu)) in links.iter().enumerate() {
        let link = Link {
            name: config.interfaces[at].name.clone(),
            up: true,
            running: true,
            carrier: true,
            mac: Some(mac),
            mtu,
            kind: "veth".to_owned(),
            ..Link::default()
        };
        plane.link(index(at), Some(&link));
    }
    plane.commit();
    plane
}

#[test]
fn labels_lead_where_the_configuration_says() {
    let folder = Folder::new(
        "labels",
        &[
            ("one.txt", "10.0.0.0/8 whatever\n10.1.0.0/16 else\n2001:db8::/32 more\n"),
            (
                "label.txt",
                "10.1.0.0/16 192.0.2.1\n10.2.0.0/16 b\n10.3.0.0/16 blackhole\n2001:db8:1::/48 2001:db8::b\n",
            ),
        ],
    );
    let config = folder.config(&format!(
        "{HOPS}
         [[routes]]\nfile = \"one.txt\"\nnexthop = \"b\"
         [[routes]]\nfile = \"label.txt\"
         [[route]]\nprefix = \"10.2.0.0/16\"\nnexthop = \"a\"
         [[route]]\nprefix = \"10.4.0.0/16\"\nnexthop = \"blackhole\""
    ));
    let routes = StaticRoutes::read(&config).unwrap();
    let tables = routes.build(&config, 1).unwrap();
    let (a, b) = (Some(Target::NextHop(0)), Some(Target::NextHop(1)));
    for (address, expect) in [
        ("10.0.0.1", b),
        ("10.1.0.1", a), // from the later file
        ("10.2.0.1", a), // from the configuration, not the file
        ("10.3.0.1", Some(Target::Blackhole)),
        ("10.4.0.1", Some(Target::Blackhole)),
        ("11.0.0.1", None),
        ("2001:db8::1", b),
        ("2001:db8:1::1", b),
        ("2001:db9::1", None),
    ] {
        assert_eq!(leads(&config, &tables, address), expect, "{address}");
    }
    assert_eq!((tables.v4.rib().len(), tables.v6.rib().len()), (5, 2));
    assert_eq!(routes.replaced, 2);
    // Hops in the order of their number of routes: b has 3, then a and the blackhole 2 each.
    let first = tables.hops.get(Hop(1)).map(|target| target_of(&config, target));
    assert_eq!(first, Some(Target::NextHop(1)));
    let counts: Vec<_> = tables.hops.iter().map(|(_, _, count)| count).collect();
    assert_eq!(counts, [3, 2, 2]);

    let links = [([2, 0, 0, 0, 0, 1], 1500), ([2, 0, 0, 0, 0, 2], 70_000)];
    let mut plane = plane(&config, tables, &links);
    let of = |plane: &Plane, address: &str| {
        let address: Ipv4Addr = address.parse().unwrap();
        let hop = plane.table(config::MAIN).unwrap().v4.lookup(address.into());
        plane.current_adjacencies().get(hop)
    };
    let to_a = Adjacency::new(0, [2, 0, 0, 0, 0, 10], links[0].0, 1500);
    assert_eq!(
        of(&plane, "10.0.0.1"),
        Adjacency::new(1, [2, 0, 0, 0, 0, 11], links[1].0, u16::MAX)
    );
    assert_eq!(of(&plane, "10.1.0.1"), to_a);
    assert_eq!(of(&plane, "10.3.0.1"), Adjacency::BLACKHOLE);
    assert_eq!(of(&plane, "11.0.0.1"), Adjacency::NONE);

    // A reload changes the routes that differ, and the MAC of a next hop without a route's change.
    let text = std::fs::read_to_string(&config.path).unwrap();
    let text = text.replace("02:00:00:00:00:0a", "02:00:00:00:00:1a");
    let config = folder.config(&text.replace("\"10.4.0.0/16\"", "\"11.0.0.0/16\""));
    let routes = StaticRoutes::read(&config).unwrap();
    assert_eq!(routes.replace_in(&mut plane, &config), 2);
    assert!(plane.commit().published);
    assert_eq!(of(&plane, "10.1.0.1"), Adjacency::new(0, [2, 0, 0, 0, 0, 0x1a], links[0].0, 1500));
    assert_eq!(of(&plane, "10.4.0.1"), of(&plane, "10.0.0.1"), "by the shorter prefix");
    assert_eq!(of(&plane, "11.0.0.1"), Adjacency::BLACKHOLE);
    assert_eq!(routes.replace_in(&mut plane, &config), 0);
}

#[test]
fn a_label_that_nobody_knows_stops_the_loading_and_is_named() {
    let folder = Folder::new(
        "unknown",
        &[("t.txt", "10.0.0.0/8 a\n10.1.0.0/16 x9\n10.2.0.0/16 x9\n2001:db8::/32 y\n")],
    );
    let config = folder.config(&format!("{HOPS}\n[[routes]]\nfile = \"t.txt\""));
    let error = load(&config).unwrap_err();
    let RoutesError::Unknown { prefix, label, routes, .. } = &error else { panic!("{error}") };
    assert_eq!((&**prefix, &**label, *routes), ("10.1.0.0/16", "x9", 3));
    let text = error.to_string();
    assert!(text.contains("t.txt: 10.1.0.0/16 x9: no [[nexthop]] has \"x9\""), "{text}");
    assert!(text.contains("2 more routes"), "{text}");

    let config = folder.config(&format!("{HOPS}\n[[routes]]\nfile = \"none.txt\""));
    let error = load(&config).unwrap_err();
    assert!(matches!(error, RoutesError::Feed(_)) && error.to_string().contains("none.txt"));
}

#[test]
fn spreading_keeps_labels_together_and_uses_every_next_hop() {
    let mut text = String::new();
    for net in 0..2000 {
        text += &format!("10.{}.{}.0/24 AS{}\n", net / 256, net % 256, net / 2);
    }
    let folder = Folder::new("spread", &[("t.txt", &text)]);
    let config =
        folder.config(&format!("{HOPS}\n[[routes]]\nfile = \"t.txt\"\nnexthops = [\"a\", \"b\"]"));
    let tables = load(&config).unwrap();
    let lead = |net: u32| leads(&config, &tables, &format!("10.{}.{}.1", net / 256, net % 256));
    assert!((0..1000).all(|pair| lead(2 * pair) == lead(2 * pair + 1)));
    let a = (0..2000).filter(|&net| lead(net) == Some(Target::NextHop(0))).count();
    assert!((800..1200).contains(&a), "{a} of 2000 to the first of two");
}

#[test]
fn a_missing_interface_is_reported_before_routes_are_loaded() {
    let folder = Folder::new("missing", &[]);
    // The file of routes does not exist either; the interfaces are checked first.
    let config = folder.config(
        "[[interface]]\nname = \"no-such-if0\"\n[[interface]]\nname = \"lo\"\n\
         [[routes]]\nfile = \"none\"\nnexthop = \"blackhole\"",
    );
    let error = fingerpost_router::start_static(config).unwrap_err();
    let StartError::NoInterface { names } = &error else { panic!("{error}") };
    assert_eq!(names, &["no-such-if0"]);
}

const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];

fn frame(index: usize) -> Vec<u8> {
    let mut frame = vec![0; 60];
    let kind = if index.is_multiple_of(2) { ethernet::IPV4 } else { ethernet::IPV6 };
    ethernet::Header { dst: MAC, src: [2, 0, 0, 0, 9, 9], kind }.emit(&mut frame).unwrap();
    if kind == ethernet::IPV4 {
        // One of five packets has no route.
        let dst = if index.is_multiple_of(5) { 0x0b00_0001 } else { 0x0a00_0001 };
        ipv4::Header { total_len: 46, ttl: 64, src: 0xc000_0201, dst, ..Default::default() }
            .emit(&mut frame[14..])
            .unwrap();
    } else {
        let dst = 0x2001_0db8 << 96 | 1;
        ipv6::Header { payload_len: 6, hop_limit: 64, src: dst, dst, ..Default::default() }
            .emit(&mut frame[14..])
            .unwrap();
    }
    frame
}

/// Two workers run on threads while their routes change.
#[test]
fn workers_forward_while_tables_are_swapped_until_stop() {
    const EACH: u64 = 200_000;
    let folder = Folder::new("swap", &[]);
    let config = folder.config(&format!(
        "{HOPS}
         [[route]]\nprefix = \"10.0.0.0/8\"\nnexthop = \"b\"
         [[route]]\nprefix = \"2001:db8::/32\"\nnexthop = \"b\""
    ));
    let mut routes = load(&config).unwrap();
    let links = [(MAC, 1500), ([2, 0, 0, 0, 1, 1], 1500)];
    let first = plane(&config, load(&config).unwrap(), &links).current_adjacencies().clone();
    let mut adjacencies = Publisher::new(first);
    let ingresses = Publisher::new(Ingresses::default());
    let worker = |_| {
        let pool: Pool = (0..10).map(frame).collect();
        let west = Replay::new("west", pool, Sink::Count).with_mac(MAC).with_limit(EACH);
        let east = Replay::new("east", Pool::new(), Sink::Count).with_mac(links[1].0);
        let ports: Vec<Box<dyn Port>> = vec![Box::new(west), Box::new(east)];
        let setup = WorkerSetup {
            arena: Arena::new(1024, 2048).unwrap(),
            ports,
            tables: Tables::single(routes.v4.reader(), routes.v6.reader()),
            adjacencies: adjacencies.reader(),
            ingresses: ingresses.reader(),
            wants: wants().0,
            stats: Arc::new(WorkerStats::new()),
        };
        (Worker::new(setup), None)
    };
    let workers = (0..2).map(worker).collect();
    let mut workers = Workers::start(workers).unwrap();

    let total = || workers.view().snapshots().into_iter().sum::<Snapshot>();
    let hop = routes.v4.fib().lookup(0x0a00_0001);
    let start = Instant::now();
    let mut commits = 0;
    while total().received < 2 * EACH {
        assert!(start.elapsed() < Duration::from_secs(60), "the workers do not get on");
        // The routes of the packets stay; a route beside them is added and removed.
        let beside = Prefix::new(0x0a80_0000 | (commits % 4096) << 8, 24).unwrap();
        routes.v4.announce(beside, hop);
        routes.v4.commit().unwrap();
        routes.v4.withdraw(beside);
        routes.v4.commit().unwrap();
        // A new list with the same neighbors is published like one with a changed neighbor.
        adjacencies.publish(Box::new(adjacencies.current().clone()));
        while adjacencies.reclaim().is_some() {}
        commits += 1;
    }
    assert!(workers.alive());
    assert!(workers.stop(), "both ended as they should");
    assert!(commits > 0);

    let total: Snapshot = workers.view().snapshots().into_iter().sum();
    assert!(total.balanced());
    assert_eq!(total.received, 2 * EACH);
    // Of ten packets, only number 0 has no route: it is the even multiple of five.
    assert_eq!(total.count(Verdict::NoRoute), 2 * EACH / 10);
    assert_eq!(total.sent(), 2 * EACH / 10 * 9);
    assert_eq!(total.lookups_v4 + total.lookups_v6, total.received);
    assert_eq!(total.lookups_v4, EACH);
    for ports in workers.port_stats() {
        assert_eq!(ports[0].received, EACH);
        assert_eq!(ports[1].transmitted, EACH / 10 * 9);
    }
    // Stopped workers hold no list: every retired one can be reclaimed.
    while adjacencies.reclaim().is_some() {}
    assert_eq!(adjacencies.pending(), 0);
    for _ in 0..3 {
        routes.v4.announce(Prefix::new(0x0a80_0000, 24).unwrap(), hop);
        assert!(routes.v4.commit().unwrap().published);
        routes.v4.withdraw(Prefix::new(0x0a80_0000, 24).unwrap());
        assert!(routes.v4.commit().unwrap().published);
    }
}

#[test]
fn a_core_that_is_not_there_is_an_error() {
    let folder = Folder::new("core", &[]);
    let routes = load(&folder.config("[[interface]]\nname = \"lo\"\n")).unwrap();
    let setup = WorkerSetup {
        arena: Arena::new(64, 2048).unwrap(),
        ports: Vec::new(),
        tables: Tables::single(routes.v4.reader(), routes.v6.reader()),
        adjacencies: Publisher::new(Adjacencies::new()).reader(),
        ingresses: Publisher::new(Ingresses::default()).reader(),
        wants: wants().0,
        stats: Arc::new(WorkerStats::new()),
    };
    let error = Workers::start(vec![(Worker::new(setup), Some(1000))]).unwrap_err();
    assert!(error.to_string().contains("core 1000"), "{error}");
}
