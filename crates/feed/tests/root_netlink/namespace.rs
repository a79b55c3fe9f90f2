//! A namespace for tests, its state by `ip`, and a follower that records the reports.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fib::Prefix;
use fingerpost_feed::netlink::{
    AddressChange, AddressView, Follower, InterfaceSettings, Kernel, Link, Mirror, Neighbor,
    RouteInfo, Rule, Target, Via,
};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

fn run(arguments: &str) -> Output {
    Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .expect("`ip` runs (Debian package iproute2)")
}

/// Runs `ip`, which must succeed.
pub(crate) fn ip(arguments: &str) -> String {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error} (this test needs root)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `ip`, which must fail.
pub(crate) fn ip_fails(arguments: &str) {
    assert!(!run(arguments).status.success(), "ip {arguments}: this should not be possible");
}

/// Runs many lines through one `ip`.
pub(crate) fn batch(lines: impl Iterator<Item = String>) {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("`ip` runs (Debian package iproute2)");
    let mut input = std::io::BufWriter::new(child.stdin.take().expect("its input is ours"));
    for line in lines {
        writeln!(input, "{line}").expect("ip reads its input");
    }
    input.flush().expect("ip reads its input");
    drop(input);
    assert!(child.wait().expect("ip ends").success(), "ip -batch failed");
}

/// Runs lines through one `ip`; the kernel may reject any of them.
pub(crate) fn run_unchecked(lines: &[String]) {
    let mut child = Command::new("ip")
        .args(["-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("`ip` runs (Debian package iproute2)");
    let mut input = child.stdin.take().expect("its input is ours");
    input.write_all((lines.join("\n") + "\n").as_bytes()).expect("ip reads its input");
    drop(input);
    child.wait().expect("ip ends");
}

/// Moves this thread into a new namespace with three pairs of interfaces.
pub(crate) fn network() {
    unshare(CloneFlags::CLONE_NEWNET).expect("a new network namespace (this test needs root)");
    ip("link set lo up");
    for pair in ["a", "b", "c"] {
        ip(&format!("link add {pair}0 type veth peer name {pair}1"));
        ip(&format!("link set {pair}0 up"));
        ip(&format!("link set {pair}1 up"));
    }
}

/// Reads until no more messages arrive and no resynchronization is running.
pub(crate) fn drain(kernel: &mut Kernel, recorded: &mut RecordedState) {
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_millis(15) {
        let pumped = kernel.pump(recorded, 1000).expect("the feed goes on");
        if pumped.messages > 0 || pumped.resynchronizing {
            quiet = Instant::now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A route in comparable form: metric, protocol and destination as text.
type Words = (u64, u64, String);
type Routes = BTreeMap<(u32, IpAddr, u8), Words>;

/// Records the reports.
#[derive(Default)]
pub(crate) struct RecordedState {
    pub(crate) v4: BTreeMap<(u32, Prefix<u32>), RouteInfo>,
    pub(crate) v6: BTreeMap<(u32, Prefix<u128>), RouteInfo>,
    pub(crate) links: BTreeMap<u32, Link>,
    pub(crate) addresses: BTreeMap<(u32, IpAddr, u8), AddressView>,
    pub(crate) neighbors: BTreeMap<(u32, IpAddr), Neighbor>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) settings: BTreeMap<u32, InterfaceSettings>,
    pub(crate) calls: usize,
}

impl Follower for RecordedState {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        self.calls += 1;
        let old = match best {
            Some(best) => self.v4.insert((table, prefix), best.clone()),
            None => self.v4.remove(&(table, prefix)),
        };
        assert_ne!(old.as_ref(), best, "{table} {prefix}: a report without a change");
    }
    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>) {
        self.calls += 1;
        let old = match best {
            Some(best) => self.v6.insert((table, prefix), best.clone()),
            None => self.v6.remove(&(table, prefix)),
        };
        assert_ne!(old.as_ref(), best, "{table} {prefix}: a report without a change");
    }
    fn link(&mut self, index: u32, link: Option<&Link>) {
        self.calls += 1;
        match link {
            Some(link) => drop(self.links.insert(index, link.clone())),
            None => drop(self.links.remove(&index)),
        }
    }
    fn address(&mut self, view: &AddressView, change: AddressChange) {
        self.calls += 1;
        let key = (view.index, view.address, view.length);
        let is_new = match change {
            AddressChange::Listed | AddressChange::Set => {
                self.addresses.insert(key, *view) != Some(*view)
            }
            AddressChange::Removed => self.addresses.remove(&key).is_some(),
        };
        assert!(is_new, "{view:?}: a report without a change");
    }
    fn neighbor(&mut self, index: u32, address: IpAddr, neighbor: Option<&Neighbor>) {
        // Neighbors are not counted: the kernel's timers change them at any time.
        match neighbor {
            Some(neighbor) => drop(self.neighbors.insert((index, address), *neighbor)),
            None => drop(self.neighbors.remove(&(index, address))),
        }
    }
    fn rules(&mut self, rules: &[Rule]) {
        self.calls += 1;
        self.rules = rules.to_vec();
    }
    fn settings(&mut self, interface: u32, settings: InterfaceSettings) {
        self.calls += 1;
        let before = self.settings.insert(interface, settings).unwrap_or_default();
        assert_ne!(before, settings, "{interface}: a report without a change");
    }
}

/// Compares the mirror with `ip`, and the recorded reports with the mirror.
///
/// The kernel makes some changes with a delay (carriers, duplicate address detection), so a
/// difference counts only if it persists.
pub(crate) fn check_against_ip(kernel: &mut Kernel, recorded: &mut RecordedState, step: &str) {
    let begun = Instant::now();
    loop {
        drain(kernel, recorded);
        let wrong = difference(kernel.mirror());
        if wrong.is_empty() {
            break;
        }
        let text = wrong.join("\n  ");
        assert!(begun.elapsed() < Duration::from_secs(4), "after `{step}`:\n  {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mirror = kernel.mirror();
    let mut v4 = BTreeMap::new();
    let mut v6 = BTreeMap::new();
    for &table in mirror.tables().keys() {
        v4.extend(mirror.routes_v4(table).map(|(prefix, best)| ((table, prefix), best.clone())));
        v6.extend(mirror.routes_v6(table).map(|(prefix, best)| ((table, prefix), best.clone())));
    }
    assert!(recorded.v4 == v4, "after `{step}`: recorded {:?}, has {v4:?}", recorded.v4);
    assert!(recorded.v6 == v6, "after `{step}`: recorded {:?}, has {v6:?}", recorded.v6);
    assert_eq!(&recorded.links, mirror.links(), "after `{step}`");
    assert_eq!(&recorded.addresses, mirror.addresses(), "after `{step}`");
    assert_eq!(&recorded.neighbors, mirror.neighbors(), "after `{step}`");
    assert_eq!(recorded.rules, mirror.rules(), "after `{step}`");
}

fn difference(mirror: &Mirror) -> Vec<String> {
    let (ours, theirs) = (ours(mirror), theirs());
    let mut wrong = Vec::new();
    for (key, route) in &theirs {
        match ours.get(key) {
            None => wrong.push(format!("{key:?} is missing: {route:?}")),
            Some(our) if our != route => {
                wrong.push(format!("{key:?} is {route:?}, and not {our:?}"));
            }
            Some(_) => {}
        }
    }
    for (key, route) in &ours {
        if !theirs.contains_key(key) {
            wrong.push(format!("{key:?} is not there: {route:?}"));
        }
    }
    wrong.truncate(20);
    wrong
}

/// Returns the routes of the mirror.
fn ours(mirror: &Mirror) -> Routes {
    let mut routes = Routes::new();
    let words = |best: &RouteInfo| {
        (best.metric.into(), best.protocol.into(), describe_target(mirror, &best.target))
    };
    for &table in mirror.tables().keys() {
        for (prefix, best) in mirror.routes_v4(table) {
            let address = IpAddr::V4(prefix.addr().into());
            routes.insert((table, address, prefix.len() as u8), words(best));
        }
        for (prefix, best) in mirror.routes_v6(table) {
            let address = IpAddr::V6(prefix.addr().into());
            routes.insert((table, address, prefix.len() as u8), words(best));
        }
    }
    routes
}

fn describe_target(mirror: &Mirror, target: &Target) -> String {
    let Target::Via(vias) = target else { return format!("{target:?}").to_lowercase() };
    assert!(vias.is_sorted() && !vias.is_empty());
    let via = |via: &Via| {
        let name = mirror.links().get(&via.interface).map_or("?", |link| &link.name);
        describe_nexthop(name, via.gateway, via.weight.into(), via.onlink, via.mtu)
    };
    let mut words: Vec<_> = vias.iter().map(via).collect();
    words.sort();
    words.join(", ")
}

fn describe_nexthop(
    name: &str,
    gateway: Option<IpAddr>,
    weight: u64,
    onlink: bool,
    mtu: Option<u16>,
) -> String {
    let gateway = gateway.map_or("itself".to_owned(), |gateway| gateway.to_string());
    let onlink = if onlink { " onlink" } else { "" };
    let mtu = mtu.map_or(String::new(), |mtu| format!(" mtu {mtu}"));
    format!("{name} {gateway} x{weight}{onlink}{mtu}")
}

/// Returns the routes by `ip`: the first usable one with the lowest metric of each prefix.
fn theirs() -> Routes {
    let mut routes = Routes::new();
    let carried = carried();
    for family in ["-4", "-6"] {
        let text = ip(&format!("{family} -N -d -j route show table all"));
        let listed: Value = serde_json::from_str(&text).expect("ip writes JSON");
        for route in listed.as_array().expect("a list") {
            if route["tos"].is_string() {
                continue;
            }
            let Some(target) = listed_target(route, &carried, family) else { continue };
            let number = |key: &str, or: u64| match &route[key] {
                Value::String(text) => text.parse().expect("`-N` gives numbers"),
                Value::Number(number) => number.as_u64().expect("a number"),
                _ => or,
            };
            let (address, length) = listed_prefix(route["dst"].as_str().expect("dst"), family);
            let words = (number("metric", 0), number("protocol", 0), target);
            let key = (number("table", 254) as u32, address, length);
            let best = routes.entry(key).or_insert_with(|| words.clone());
            if words.0 < best.0 {
                *best = words;
            }
        }
    }
    routes
}

fn listed_prefix(text: &str, family: &str) -> (IpAddr, u8) {
    let any = if family == "-4" { "0.0.0.0/0" } else { "::/0" };
    let text = if text == "default" { any } else { text };
    match text.split_once('/') {
        Some((address, length)) => (address.parse().unwrap(), length.parse().unwrap()),
        None => (text.parse().unwrap(), if family == "-4" { 32 } else { 128 }),
    }
}

/// The names of the links that have a carrier.
fn carried() -> BTreeSet<String> {
    let listed: Value = serde_json::from_str(&ip("-j link")).expect("ip writes JSON");
    let has = |link: &&Value| {
        link["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "LOWER_UP"))
    };
    let links = listed.as_array().expect("a list").iter().filter(has);
    links.map(|link| link["ifname"].as_str().expect("a name").to_owned()).collect()
}

/// Returns whether routes over a link do not count while it has no carrier.
fn ignored(family: &str, name: &str) -> bool {
    let number = if family == "-4" { "ipv4" } else { "ipv6" };
    let is_set = |name: &str| {
        let path = format!("/proc/sys/net/{number}/conf/{name}/ignore_routes_with_linkdown");
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
    };
    is_set(name) || family == "-4" && is_set("all")
}

fn listed_target(route: &Value, links: &BTreeSet<String>, family: &str) -> Option<String> {
    // The option `-N` gives numbers; `linux/rtnetlink.h` defines them.
    let words = match route["type"].as_str().unwrap_or("1") {
        "1" | "unicast" => "",
        "2" | "4" | "local" | "anycast" => "local",
        "3" => "broadcast",
        "5" => "multicast",
        "6" => "blackhole",
        "7" => "unreachable",
        "8" => "prohibit",
        "9" => "throw",
        other => other,
    };
    if !words.is_empty() {
        return Some(words.to_owned());
    }
    let several = route["nexthops"].as_array().cloned();
    let ways = several.unwrap_or_else(|| vec![route.clone()]);
    let has = |way: &Value, flag: &str| {
        way["flags"].as_array().is_some_and(|flags| flags.iter().any(|have| have == flag))
    };
    // The kernel's flag is wrong for an IPv4 route through an IPv6 gateway: it is not set if the
    // route is added after the loss of the carrier.
    let carried = |way: &Value| {
        !has(way, "linkdown") && links.contains(way["dev"].as_str().unwrap_or_default())
    };
    let counts = |way: &Value| {
        let name = way["dev"].as_str().unwrap_or_default();
        !has(way, "dead") && (carried(way) || !ignored(family, name))
    };
    let alive: Vec<_> = ways.iter().filter(|way| counts(way)).collect();
    let any_carried = alive.iter().any(|way| carried(way));
    let used: Vec<_> = alive.into_iter().filter(|way| !any_carried || carried(way)).collect();
    // A repeated nexthop is one with both weights; the weight of a single nexthop has no meaning.
    let mut weights = BTreeMap::new();
    for way in used {
        let gateway = way["gateway"].as_str().or(way["via"]["host"].as_str());
        let gateway: Option<IpAddr> = gateway.map(|text| text.parse().expect("an address"));
        let name = way["dev"].as_str().expect("dev").to_owned();
        *weights.entry((name, gateway, has(way, "onlink"))).or_insert(0) +=
            way["weight"].as_u64().unwrap_or(1);
    }
    let only = weights.len() == 1;
    let mtu = route["metrics"][0]["mtu"].as_u64();
    let mtu = mtu.map(|mtu| mtu.try_into().expect("an MTU"));
    let mut words: Vec<_> = weights
        .iter()
        .map(|((name, gateway, onlink), &weight)| {
            describe_nexthop(name, *gateway, if only { 1 } else { weight }, *onlink, mtu)
        })
        .collect();
    words.sort();
    (!words.is_empty()).then(|| words.join(", "))
}
