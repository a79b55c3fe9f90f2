//! The FPM feed, with a sender that behaves as FRR's zebra.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use fib::Prefix;
use fingerpost_feed::fpm::{Fpm, FpmOptions, Peers, Refusal};
use fingerpost_feed::netlink::{
    AddressChange, AddressView, Follower, InterfaceSettings, Link, Neighbor, NullFollower,
    RouteInfo, Rule, Target, Via,
};

const NEW_ROUTE: u16 = 24;
const DEL_ROUTE: u16 = 25;
const NEW_NEXTHOP: u16 = 104;
const DEL_NEXTHOP: u16 = 105;

fn message(kind: u16, header: &[u8], attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; 16];
    bytes.extend(header);
    for (kind, value) in attributes {
        bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    // Request, create, replace: what FRR sets.
    bytes[6..8].copy_from_slice(&0x0501u16.to_ne_bytes());
    bytes
}

/// The bytes that zebra of FRR 8.4.4 sent after it had connected, with `-M dplane_fpm_nl` and
/// nexthop groups: connected routes, static ones, a change of 192.0.2.0/24 and the removal of
/// 203.0.113.0/25.
const GOLDEN: &[u8] = include_bytes!("golden/frr-8.4.4.fpm");

/// A route of 10.x.y.0/24 by a nexthop object.
fn route(kind: u16, number: u32, nexthop: u32) -> Vec<u8> {
    let destination = Ipv4Addr::from(0x0a00_0000 | number << 8);
    let mut attributes = vec![
        (1, destination.octets().to_vec()),
        (6, 20u32.to_ne_bytes().to_vec()),
        (15, 254u32.to_ne_bytes().to_vec()),
    ];
    if kind == NEW_ROUTE {
        attributes.push((30, nexthop.to_ne_bytes().to_vec()));
    }
    // zebra omits the type of a removed route.
    let does = u8::from(kind == NEW_ROUTE);
    message(kind, &[2, 24, 0, 0, 0, 186, 0, does, 0, 0, 0, 0], &attributes)
}

/// A nexthop object: a gateway on interface 7.
fn nexthop(id: u32, gateway: &str) -> Vec<u8> {
    let gateway: Ipv4Addr = gateway.parse().unwrap();
    let attributes = [
        (1, id.to_ne_bytes().to_vec()),
        (6, gateway.octets().to_vec()),
        (5, 7u32.to_ne_bytes().to_vec()),
    ];
    message(NEW_NEXTHOP, &[2, 0, 11, 0, 0, 0, 0, 0], &attributes)
}

fn frame(messages: &[Vec<u8>]) -> Vec<u8> {
    let content = messages.concat();
    let mut bytes = vec![1, 1];
    bytes.extend((content.len() as u16 + 4).to_be_bytes());
    bytes.extend(content);
    bytes
}

/// Records the routes that are reported, and checks that each report is a change.
#[derive(Default)]
struct RecordedRoutes {
    routes: BTreeMap<Prefix<u32>, RouteInfo>,
    calls: usize,
}

impl Follower for RecordedRoutes {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        assert_eq!(table, 254);
        self.calls += 1;
        let old = match best {
            Some(best) => self.routes.insert(prefix, best.clone()),
            None => self.routes.remove(&prefix),
        };
        assert_ne!(old.as_ref(), best, "{prefix}: a report without a change");
    }
    fn route_v6(&mut self, _: u32, _: Prefix<u128>, _: Option<&RouteInfo>) {
        panic!("no route of IPv6 was sent");
    }
    fn link(&mut self, _: u32, _: Option<&Link>) {}
    fn address(&mut self, _: &AddressView, _: AddressChange) {}
    fn neighbor(&mut self, _: u32, _: IpAddr, _: Option<&Neighbor>) {}
    fn rules(&mut self, _: &[Rule]) {}
    fn settings(&mut self, _: u32, _: InterfaceSettings) {}
}

impl RecordedRoutes {
    /// The gateway of 10.x.y.0/24.
    fn gateway(&self, number: u32) -> Option<String> {
        let prefix = Prefix::truncate(0x0a00_0000 | number << 8, 24);
        let Target::Via(vias) = &*self.routes.get(&prefix)?.target else { panic!("a via") };
        assert_eq!((vias.len(), vias[0].interface), (1, 7));
        vias[0].gateway.map(|gateway| gateway.to_string())
    }
}

struct Scene {
    fpm: Fpm,
    recorded: RecordedRoutes,
}

impl Scene {
    fn new(quiet: u64) -> Self {
        Self::with(FpmOptions { quiet: Duration::from_millis(quiet), ..FpmOptions::default() })
    }

    fn with(settings: FpmOptions) -> Self {
        let settings = FpmOptions { listen: "127.0.0.1:0".parse().unwrap(), ..settings };
        Self {
            fpm: Fpm::listen(settings).expect("the socket listens"),
            recorded: RecordedRoutes::default(),
        }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.fpm.address().expect("an address")).expect("it is listened to")
    }

    /// Pumps until `done`.
    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", self.fpm);
            self.fpm.pump(&mut self.recorded, 100).expect("the listener works");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Pumps until a peer has been refused for `why`, and its connection is closed.
    fn refused(&mut self, mut peer: &TcpStream, count: u64, why: Refusal) {
        self.until(|scene| scene.fpm.counters().refused >= count);
        let refused = self.fpm.counters().last_refused.expect("a peer was refused");
        assert_eq!((self.fpm.counters().refused, refused.why), (count, why), "{refused}");
        // Closed with bytes unread, a connection is reset.
        assert!(matches!(peer.read(&mut [0]), Ok(0) | Err(_)));
    }

    fn frames(&mut self, count: u64) {
        self.until(|scene| scene.fpm.counters().frames >= count);
    }

    fn swept(&mut self, count: u64) {
        self.until(|scene| scene.fpm.counters().sweeps >= count);
    }
}

#[test]
fn frames_in_segments_change_routes_once() {
    let mut scene = Scene::new(50);
    let mut zebra = scene.connect();
    let bytes = [
        frame(&[nexthop(1, "192.0.2.1")]),
        frame(&[route(NEW_ROUTE, 1, 1)]),
        frame(&[route(NEW_ROUTE, 2, 1)]),
        frame(&[]),
    ];
    for piece in bytes.concat().chunks(7) {
        zebra.write_all(piece).expect("it is read");
        zebra.flush().expect("it is read");
        scene.fpm.pump(&mut scene.recorded, 100).expect("the listener works");
    }
    scene.frames(4);
    assert_eq!(scene.recorded.gateway(1).as_deref(), Some("192.0.2.1"));
    assert_eq!(scene.recorded.calls, 2);
    // An update is a deletion and a new route in one frame: one change.
    let update = [route(DEL_ROUTE, 1, 0), route(NEW_ROUTE, 1, 2)];
    zebra.write_all(&frame(&[nexthop(2, "192.0.2.2")])).expect("it is read");
    zebra.write_all(&frame(&update)).expect("it is read");
    scene.frames(6);
    assert_eq!(scene.recorded.gateway(1).as_deref(), Some("192.0.2.2"));
    assert_eq!(scene.recorded.calls, 3);
    // A repeated route is no change, and neither is a removal and return in one frame.
    zebra.write_all(&frame(&update)).expect("it is read");
    scene.frames(7);
    assert_eq!(scene.recorded.calls, 3);
    // A changed nexthop object changes its routes.
    zebra.write_all(&frame(&[nexthop(2, "192.0.2.3")])).expect("it is read");
    scene.frames(8);
    assert_eq!(scene.recorded.gateway(1).as_deref(), Some("192.0.2.3"));
    zebra.write_all(&frame(&[route(DEL_ROUTE, 2, 0)])).expect("it is read");
    scene.frames(9);
    assert_eq!(scene.recorded.gateway(2), None);
    scene.swept(1);
    assert_eq!((scene.recorded.routes.len(), scene.fpm.counters().parse_errors), (1, 0));
}

#[test]
fn nexthop_deleted_in_frame_of_its_route_leaves_no_route() {
    let mut scene = Scene::new(50);
    let mut zebra = scene.connect();
    let mut gone = nexthop(1, "192.0.2.1");
    gone[4..6].copy_from_slice(&DEL_NEXTHOP.to_ne_bytes());
    let frames = [nexthop(1, "192.0.2.1"), route(NEW_ROUTE, 1, 1), gone, route(NEW_ROUTE, 2, 9)];
    zebra.write_all(&frame(&frames)).expect("it is read");
    scene.frames(1);
    // The follower asserts that every report is a change.
    assert_eq!((scene.recorded.routes.len(), scene.recorded.calls), (0, 2));
}

#[test]
fn golden_zebra_stream_yields_expected_routes() {
    let settings = FpmOptions { listen: "127.0.0.1:0".parse().unwrap(), ..FpmOptions::default() };
    let mut fpm = Fpm::listen(settings).expect("the socket listens");
    let mut zebra = TcpStream::connect(fpm.address().unwrap()).expect("it is listened to");
    let begun = Instant::now();
    while !fpm.pump(&mut NullFollower, 100).expect("the listener works").connected {
        assert!(begun.elapsed() < Duration::from_secs(20), "{fpm:?}");
    }
    zebra.write_all(GOLDEN).expect("there is room in the socket");
    drop(zebra);
    while fpm.pump(&mut NullFollower, 100).expect("the listener works").connected {
        assert!(begun.elapsed() < Duration::from_secs(20), "{fpm:?}");
    }
    let mirror = fpm.mirror();
    assert_eq!((fpm.counters().parse_errors, mirror.left_out()), (0, 0));
    let leads = |prefix: &str| {
        let best = match prefix.parse::<Prefix<u32>>() {
            Ok(prefix) => mirror.best_v4(254, prefix),
            Err(_) => mirror.best_v6(254, prefix.parse().expect("a prefix")),
        };
        match best.map(|best| &*best.target) {
            Some(Target::Via(vias)) => {
                let gateway = |via: &Via| via.gateway.map_or("-".to_owned(), |at| at.to_string());
                vias.iter().map(gateway).collect::<Vec<_>>().join(" ")
            }
            other => format!("{other:?}"),
        }
    };
    assert_eq!(leads("10.0.0.0/24"), "-");
    assert_eq!(leads("192.0.2.0/24"), "10.0.0.2 10.0.1.9");
    assert_eq!(leads("198.51.100.0/24"), "10.0.0.2 10.0.1.2");
    assert_eq!(leads("203.0.113.0/24"), "Some(Blackhole)");
    assert_eq!(leads("203.0.113.0/25"), "None");
    assert_eq!(leads("2001:db8:1::/48"), "2001:db8:a::2");
}

#[test]
fn stale_routes_stay_until_sweep() {
    let mut scene = Scene::new(200);
    let mut zebra = scene.connect();
    let mut all = frame(&[nexthop(1, "192.0.2.1")]);
    (0..1000).for_each(|number| all.extend(frame(&[route(NEW_ROUTE, number, 1)])));
    zebra.write_all(&all).expect("it is read");
    scene.swept(1);
    assert_eq!(scene.recorded.routes.len(), 1000);
    drop(zebra);
    scene.until(|scene| format!("{:?}", scene.fpm).contains("connected: false"));
    assert_eq!(scene.recorded.routes.len(), 1000, "routes stay while zebra is away");

    // It returns with fewer routes, and another meaning of the object's number.
    let calls = scene.recorded.calls;
    let mut zebra = scene.connect();
    let mut some = frame(&[nexthop(1, "192.0.2.9"), nexthop(2, "192.0.2.1")]);
    (0..500).for_each(|number| some.extend(frame(&[route(NEW_ROUTE, number, 2)])));
    some.extend(frame(&[route(NEW_ROUTE, 500, 1)]));
    some.extend(frame(&[route(DEL_ROUTE, 501, 0)]));
    zebra.write_all(&some).expect("it is read");
    let frames = 1001 + 503;
    scene.frames(frames);
    assert_eq!(scene.recorded.gateway(0).as_deref(), Some("192.0.2.1"));
    assert_eq!(scene.recorded.gateway(500).as_deref(), Some("192.0.2.9"));
    assert_eq!(scene.recorded.gateway(501), None);
    assert_eq!(scene.recorded.gateway(502).as_deref(), Some("192.0.2.1"), "as it was meant before");
    assert_eq!(scene.recorded.calls, calls + 2);
    assert_eq!(scene.fpm.stale().len(), 1);

    // Disconnected halfway, and connected again: the routes sent until then count.
    drop(zebra);
    let mut second = scene.connect();
    second.write_all(&frame(&[nexthop(7, "192.0.2.7"), route(NEW_ROUTE, 502, 7)])).expect("read");
    scene.frames(frames + 1);
    assert_eq!(scene.recorded.gateway(502).as_deref(), Some("192.0.2.7"));
    assert_eq!(scene.recorded.gateway(500).as_deref(), Some("192.0.2.9"));
    assert_eq!(scene.recorded.routes.len(), 999);
    // Changes of known prefixes do not postpone the sweep.
    let swept = scene.fpm.counters().sweeps;
    while scene.fpm.counters().sweeps == swept {
        let update = [route(DEL_ROUTE, 502, 0), route(NEW_ROUTE, 502, 7)];
        second.write_all(&frame(&update)).expect("it is read");
        scene.fpm.pump(&mut scene.recorded, 100).expect("the listener works");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(scene.recorded.routes.len(), 1);
    assert!(scene.fpm.stale().is_empty());
    scene.fpm.clear(&mut scene.recorded);
    assert!(scene.recorded.routes.is_empty());
}

#[test]
fn damaged_message_is_skipped_and_damaged_stream_closed() {
    let mut scene = Scene::new(10_000);
    let mut zebra = scene.connect();
    zebra.write_all(&frame(&[nexthop(1, "192.0.2.1"), route(NEW_ROUTE, 1, 1)])).expect("read");
    let mut bad = route(NEW_ROUTE, 2, 1);
    bad[17] = 77; // A prefix of /77.
    zebra.write_all(&frame(&[bad, route(NEW_ROUTE, 3, 1)])).expect("it is read");
    scene.frames(2);
    assert_eq!(scene.fpm.counters().parse_errors, 1);
    assert_eq!(scene.recorded.routes.len(), 2);
    zebra.write_all(&[1, 2, 0, 4]).expect("it is read");
    scene.until(|scene| scene.fpm.counters().parse_errors == 2);
    let damage = scene.fpm.counters().last_damage.expect("the damage is reported");
    assert!(damage.to_string().contains("protobuf"), "{damage}");
    assert!(!scene.fpm.pump(&mut scene.recorded, 1).expect("the listener works").connected);
    assert_eq!(scene.recorded.routes.len(), 2, "what was accepted stays");
    let mut zebra = scene.connect();
    zebra.write_all(&frame(&[nexthop(1, "192.0.2.1"), route(NEW_ROUTE, 4, 1)])).expect("read");
    scene.frames(3);
    assert_eq!(scene.recorded.routes.len(), 3);
}

#[test]
fn random_bytes_do_not_panic() {
    let mut rng = fastrand::Rng::with_seed(20_261_121);
    let settings = FpmOptions { listen: "127.0.0.1:0".parse().unwrap(), ..FpmOptions::default() };
    let mut fpm = Fpm::listen(settings).expect("the socket listens");
    let good = frame(&[nexthop(2, "192.0.2.2"), route(NEW_ROUTE, 2, 2), route(DEL_ROUTE, 3, 0)]);
    for _ in 0..400 {
        let mut zebra = TcpStream::connect(fpm.address().unwrap()).expect("it is listened to");
        let mut bytes = good.repeat(3);
        for _ in 0..rng.usize(..12) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.usize(..256) as u8;
        }
        let begun = Instant::now();
        while !fpm.pump(&mut NullFollower, 100).expect("the listener works").connected {
            assert!(begun.elapsed() < Duration::from_secs(20), "{fpm:?}");
        }
        zebra.write_all(&bytes).expect("there is room in the socket");
        drop(zebra);
        while fpm.pump(&mut NullFollower, 100).expect("the listener works").connected {
            assert!(begun.elapsed() < Duration::from_secs(20), "{fpm:?}");
        }
    }
    let counters = fpm.counters();
    assert!(counters.parse_errors > 100 && counters.frames > 100, "{fpm:?}");
}

#[test]
fn second_peer_is_refused_while_the_first_is_connected() {
    let mut scene = Scene::new(50);
    let mut zebra = scene.connect();
    zebra.write_all(&frame(&[nexthop(1, "192.0.2.1"), route(NEW_ROUTE, 1, 1)])).expect("read");
    scene.swept(1);
    let mut other = scene.connect();
    let theirs = frame(&[nexthop(1, "192.0.2.9"), route(NEW_ROUTE, 1, 1), route(NEW_ROUTE, 2, 1)]);
    other.write_all(&theirs).expect("there is room in the socket");
    scene.refused(&other, 1, Refusal::Busy);
    assert_eq!(scene.recorded.gateway(1).as_deref(), Some("192.0.2.1"));
    assert_eq!((scene.recorded.routes.len(), scene.recorded.calls), (1, 1));
    assert!(scene.fpm.is_complete() && scene.fpm.stale().is_empty());
    // The first connection continues, and another is accepted when it ends.
    zebra.write_all(&frame(&[route(NEW_ROUTE, 3, 1)])).expect("it is read");
    scene.frames(2);
    assert_eq!(scene.recorded.gateway(3).as_deref(), Some("192.0.2.1"));
    drop(zebra);
    let mut zebra = scene.connect();
    zebra.write_all(&frame(&[nexthop(1, "192.0.2.1"), route(NEW_ROUTE, 3, 1)])).expect("read");
    scene.swept(2);
    assert_eq!((scene.fpm.counters().refused, scene.recorded.routes.len()), (1, 1));
}

#[test]
fn peer_of_another_user_is_refused() {
    let own = nix::unistd::Uid::effective().as_raw();
    let peers = Peers { users: vec![own + 1], ..Peers::default() };
    let mut scene = Scene::with(FpmOptions { peers, ..FpmOptions::default() });
    let mut peer = scene.connect();
    peer.write_all(GOLDEN).expect("there is room in the socket");
    scene.refused(&peer, 1, Refusal::User(own));
    assert_eq!((scene.fpm.counters().connections, scene.recorded.calls), (0, 0));
}

#[test]
fn peer_closed_before_accept_is_refused() {
    // The kernel would report root as the owner of its socket.
    let peers = Peers { users: vec![0], ..Peers::default() };
    let mut scene = Scene::with(FpmOptions { peers, ..FpmOptions::default() });
    let mut peer = scene.connect();
    peer.write_all(&frame(&[nexthop(1, "192.0.2.1"), route(NEW_ROUTE, 1, 1)])).expect("room");
    drop(peer);
    scene.until(|scene| scene.fpm.counters().refused == 1);
    let refused = scene.fpm.counters().last_refused.expect("a peer was refused");
    assert_eq!((refused.why, scene.recorded.calls), (Refusal::NoUser, 0));
}

#[test]
fn connection_without_routes_sweeps_nothing() {
    let moment = Duration::from_millis(10);
    let mut scene =
        Scene::with(FpmOptions { quiet: moment, max_wait: moment, ..FpmOptions::default() });
    let mut zebra = scene.connect();
    zebra.write_all(&frame(&[nexthop(1, "192.0.2.1"), route(NEW_ROUTE, 1, 1)])).expect("read");
    scene.swept(1);
    drop(zebra);
    scene.until(|scene| format!("{:?}", scene.fpm).contains("connected: false"));
    let mut zebra = scene.connect();
    let nothing = [nexthop(1, "192.0.2.2"), route(DEL_ROUTE, 9, 0)];
    zebra.write_all(&frame(&nothing)).expect("it is read");
    scene.frames(2);
    std::thread::sleep(3 * moment);
    let pumped = scene.fpm.pump(&mut scene.recorded, 100).expect("the listener works");
    assert!(pumped.resynchronizing && !pumped.resynchronized && scene.fpm.due().is_none());
    assert_eq!((scene.fpm.counters().sweeps, scene.recorded.routes.len()), (1, 1));
    zebra.write_all(&frame(&[route(NEW_ROUTE, 2, 1)])).expect("it is read");
    scene.swept(2);
    assert_eq!(scene.recorded.gateway(1), None);
    assert_eq!(scene.recorded.gateway(2).as_deref(), Some("192.0.2.2"));
}
