//! The kernel feed against the kernel, with `ip` as the oracle.
//!
//! Each test has its own network namespace, which ends with its thread. After every step the mirror
//! is compared with `ip -j route show table all`, route by route, and with the reports to the
//! follower.
//!
//! Needs root and `ip` (Debian: iproute2), hence the feature `root-tests`.

mod churn;
mod namespace;

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fingerpost_feed::netlink::{InterfaceSettings, Kernel, KernelOptions, RpFilter, Target};
use namespace::{RecordedState, batch, check_against_ip, drain, ip, ip_fails, network};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sched::{CloneFlags, unshare};

/// Starts a feed in a new namespace with the pairs a, b, c and addresses on them.
fn started() -> (Kernel, RecordedState) {
    network();
    ip("addr add 10.0.0.1/24 dev a0");
    ip("addr add 10.0.0.5/24 dev a0");
    ip("addr add 10.0.1.1/24 dev b0");
    ip("addr add 10.0.2.1/24 dev c0");
    ip("addr add 2001:db8:a::1/64 dev a0 nodad");
    ip("addr add 2001:db8:b::1/64 dev b0 nodad");
    ip("addr add 2001:db8:c::1/64 dev c0 nodad");
    let mut kernel = Kernel::open().expect("netlink sockets open");
    let mut recorded = RecordedState::default();
    kernel.start(&mut recorded).expect("the initial dump succeeds");
    drain(&mut kernel, &mut recorded);
    (kernel, recorded)
}

/// Runs each line through `ip`, and compares after each.
fn steps(kernel: &mut Kernel, recorded: &mut RecordedState, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix("! ") {
            Some(line) => ip_fails(line),
            None => drop(ip(line)),
        }
        drain(kernel, recorded);
        check_against_ip(kernel, recorded, line);
    }
}

/// Pumps for a while, or until a prefix has no route; returns the elapsed time.
fn pumped_until_gone(
    kernel: &mut Kernel,
    follower: &mut RecordedState,
    prefix: &str,
) -> Option<Duration> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        kernel.pump(follower, 1000).expect("the kernel goes on");
        if kernel.mirror().best_v6(254, prefix.parse().unwrap()).is_none() {
            return Some(began.elapsed());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

#[test]
fn ipv6_route_expires_unless_lifetime_is_prolonged() {
    const PREFIX: &str = "2001:db8:9::/48";
    let (mut kernel, mut follower) = started();
    let add = |verb: &str, seconds: u32| {
        ip(&format!("-6 route {verb} {PREFIX} via 2001:db8:a::2 expires {seconds}"));
    };
    add("add", 2);
    let gone = pumped_until_gone(&mut kernel, &mut follower, PREFIX).expect("the route ends");
    assert!(gone > Duration::from_millis(1_500), "after {gone:?}");
    assert!(kernel.counters().resynchronizations > 1);
    // The kernel may not have removed the namespace of the thread that has ended.
    add("replace", 1);
    add("replace", 100);
    assert_eq!(pumped_until_gone(&mut kernel, &mut follower, PREFIX), None, "it was prolonged");
}

#[test]
fn existing_state_is_read_at_start() {
    network();
    ip("addr add 10.0.0.1/24 dev a0");
    ip("addr add 2001:db8:a::1/64 dev a0 nodad");
    ip("nexthop add id 7 via 10.0.0.7 dev a0");
    ip("route add 192.0.2.0/24 nhid 7");
    ip("route add blackhole 198.51.100.0/24 table 1000");
    ip("-6 route add 2001:db8:1::/48 nexthop via 2001:db8:a::2 nexthop via 2001:db8:a::3");
    ip("rule add from 203.0.113.0/24 iif b0 lookup 1000 priority 500");
    ip("neigh add 10.0.0.7 lladdr 02:00:00:00:00:07 dev a0 nud permanent");
    let mut kernel = Kernel::open().expect("netlink sockets open");
    let mut recorded = RecordedState::default();
    kernel.start(&mut recorded).expect("the initial dump succeeds");
    check_against_ip(&mut kernel, &mut recorded, "start");
    let mirror = kernel.mirror();
    let target = |prefix: &str| {
        let best = mirror.best_v4(254, prefix.parse().unwrap()).expect("it is there");
        (*best.target).clone()
    };
    let Target::Via(vias) = target("192.0.2.0/24") else { panic!("it goes out") };
    assert_eq!(vias[0].gateway, Some("10.0.0.7".parse().unwrap()));
    assert_eq!(mirror.tables().get(&1000), Some(&(1, 0)));
    let rule = mirror.rules().iter().find(|rule| rule.priority == 500).expect("the rule");
    assert_eq!(rule.input.as_deref(), Some("b0"));
    assert_eq!(rule.source, Some(("203.0.113.0".parse().unwrap(), 24)));
    let macs: Vec<_> = mirror.neighbors().values().filter_map(|n| n.mac).collect();
    assert!(macs.contains(&[2, 0, 0, 0, 0, 7]));
    assert_eq!(kernel.counters().resynchronizations, 1);
    assert_eq!(kernel.counters().parse_errors, 0);
}

#[test]
fn ipv4_routes_follow_add_replace_append_delete() {
    let (mut kernel, mut recorded) = started();
    steps(
        &mut kernel,
        &mut recorded,
        "
        route add 192.0.2.0/24 via 10.0.0.2
        route add 192.0.2.0/24 via 10.0.1.2 metric 20
        route add 192.0.2.0/24 via 10.0.2.2 metric 10
        route del 192.0.2.0/24 via 10.0.0.2
        route replace 192.0.2.0/24 via 10.0.0.3 metric 10
        route append 192.0.2.0/24 via 10.0.1.3 metric 10
        route prepend 192.0.2.0/24 via 10.0.2.3 metric 10
        route replace 192.0.2.0/24 via 10.0.2.4 metric 10
        route del 192.0.2.0/24 via 10.0.2.4 metric 10
        route del 192.0.2.0/24 metric 10
        route del 192.0.2.0/24 metric 10
        ! route del 192.0.2.0/24 metric 10
        route del 192.0.2.0/24
        route add 192.0.2.0/24 nexthop via 10.0.0.2 weight 3 nexthop via 10.0.1.2 weight 256
        route change 192.0.2.0/24 nexthop via 10.0.0.2 nexthop dev c0
        route del 192.0.2.0/24
        route add blackhole 192.0.2.0/24
        route append unreachable 192.0.2.0/24
        route add prohibit 192.0.2.0/25 table 77
        route add throw default table 77
        route add 192.0.2.9 via 172.16.0.1 dev a0 onlink
        route add 192.0.2.10 via inet6 fe80::1 dev b0
        route add 192.0.2.11 nexthop via inet6 fe80::1 dev b0 nexthop via 10.0.0.2
        route add 192.0.2.12 dev a0 tos 0x10
        route add 192.0.2.12 dev b0
        route del 192.0.2.12 tos 0x10
        route add 192.0.2.14 via 10.0.0.2 mtu 1300
        route change 192.0.2.14 via 10.0.0.2 mtu 1200
        route append 192.0.2.14 via 10.0.1.2 mtu 1100
        route del 192.0.2.14 via 10.0.0.2 mtu 1200
        route replace 192.0.2.14 mtu 1000 nexthop via 10.0.0.2 nexthop via 10.0.1.2
        route replace 192.0.2.14 via 10.0.0.2
        route add default via 10.0.0.2 proto bird metric 32
        route replace default via 10.0.1.2 proto bgp metric 20
        route add 192.0.2.13 via 10.0.0.2 table 100000
        route flush table 100000
        route flush table 77
        route flush root 192.0.2.0/24
        ",
    );
}

#[test]
fn ipv6_gateways_join_and_split() {
    let (mut kernel, mut recorded) = started();
    steps(
        &mut kernel,
        &mut recorded,
        "
        -6 route add 2001:db8:7::/48 via 2001:db8:a::2 mtu 1300
        -6 route change 2001:db8:7::/48 via 2001:db8:a::2 mtu 1400
        -6 route replace 2001:db8:7::/48 dev c0 mtu 1300
        -6 route del 2001:db8:7::/48
        -6 route add 2001:db8:1::/48 via 2001:db8:a::2
        -6 route append 2001:db8:1::/48 via 2001:db8:b::2
        -6 route append 2001:db8:1::/48 via 2001:db8:c::2
        -6 route append 2001:db8:1::/48 dev c0
        -6 route del 2001:db8:1::/48 via 2001:db8:b::2
        -6 route replace 2001:db8:1::/48 via 2001:db8:b::9
        -6 route del 2001:db8:1::/48 dev c0
        -6 route replace 2001:db8:1::/48 nexthop via 2001:db8:a::2 weight 5 nexthop via 2001:db8:b::2
        -6 route add 2001:db8:1::/48 via 2001:db8:c::2 metric 10
        -6 route del 2001:db8:1::/48 metric 10
        -6 route del 2001:db8:1::/48 nexthop via 2001:db8:a::2 weight 5 nexthop via 2001:db8:b::2
        -6 route add 2001:db8:1::/48 dev a0
        -6 route append 2001:db8:1::/48 dev b0
        -6 route replace 2001:db8:1::/48 via 2001:db8:b::2
        -6 route flush root 2001:db8:1::/48
        -6 route add blackhole 2001:db8:2::/48
        -6 route replace unreachable 2001:db8:2::/48
        -6 route del unreachable 2001:db8:2::/48
        -6 route add default via fe80::1 dev a0 proto ra metric 1024
        -6 route append default via fe80::1 dev b0 proto ra metric 1024
        -6 route del default via fe80::1 dev a0 metric 1024
        -6 route add 2001:db8:3::/48 via 2001:db8:a::2 table 500
        -6 route append 2001:db8:3::/48 via 2001:db8:b::2 table 500
        link set a0 down
        link set a0 up
        -6 route flush table 500
        ",
    );
}

#[test]
fn nexthop_objects_and_groups_resolve_to_targets() {
    let (mut kernel, mut recorded) = started();
    steps(
        &mut kernel,
        &mut recorded,
        "
        nexthop add id 1 via 10.0.0.2 dev a0
        nexthop add id 2 via 10.0.1.2 dev b0
        nexthop add id 3 via 2001:db8:a::2 dev a0
        nexthop add id 4 via 2001:db8:b::2 dev b0
        nexthop add id 5 blackhole
        nexthop add id 10 group 1,3/2,1
        nexthop add id 11 group 3/4
        nexthop add id 12 group 1,10/2,20 type resilient buckets 32
        route add 192.0.2.0/24 nhid 10
        route add 198.51.100.0/24 nhid 1
        route add 203.0.113.0/24 nhid 12
        route add 203.0.113.0/25 nhid 5
        -6 route add 2001:db8:1::/48 nhid 11
        -6 route add 2001:db8:2::/48 nhid 3
        nexthop replace id 1 via 10.0.0.9 dev a0
        nexthop replace id 10 group 2
        nexthop replace id 3 via 2001:db8:a::9 dev a0
        nexthop del id 2
        nexthop replace id 1 blackhole
        nexthop replace id 1 via 10.0.2.9 dev c0
        nexthop del id 5
        nexthop del id 3
        nexthop del id 4
        nexthop del id 1
        ",
    );
    assert!(
        kernel.mirror().nexthop_objects().is_empty(),
        "{:?}",
        kernel.mirror().nexthop_objects()
    );
}

#[test]
fn link_loss_removes_ipv4_routes_without_notification() {
    let (mut kernel, mut recorded) = started();
    steps(
        &mut kernel,
        &mut recorded,
        "
        nexthop add id 1 via 10.0.0.2 dev a0
        nexthop add id 2 via 10.0.1.2 dev b0
        nexthop add id 3 via 2001:db8:a::2 dev a0
        nexthop add id 10 group 1,3/2,1
        nexthop add id 11 group 1
        route add 192.0.2.0/24 via 10.0.0.2
        route add 192.0.2.0/24 via 10.0.1.2 metric 20
        route add 192.0.2.1 nhid 1
        route add 192.0.2.2 nhid 10
        route add 192.0.2.3 nhid 11
        route add 192.0.2.4 nexthop via 10.0.0.2 nexthop via 10.0.1.2 weight 2
        route add 192.0.2.5 via 10.0.0.2 table 200
        -6 route add 2001:db8:1::/48 nhid 3
        -6 route add 2001:db8:2::/48 nexthop via 2001:db8:a::2 nexthop via 2001:db8:b::2
        -6 route add 2001:db8:3::/48 via 2001:db8:a::2
        link set a1 down
        link set a1 up
        link set a0 down
        link set a0 up
        route add 192.0.2.0/24 via 10.0.0.2
        route add 192.0.2.6 via 10.0.0.2
        link set b1 down
        link set b0 down
        link set b0 up
        link set b1 up
        route add 192.0.2.7 nexthop via 10.0.0.2 nexthop via 10.0.2.2
        -6 route add 2001:db8:4::/48 nexthop via 2001:db8:c::2 nexthop via fe80::7 dev b0
        link set c0 name d0
        link set d0 mtu 1400
        link del d0
        link del a0
        ",
    );
    assert!(!kernel.mirror().links().values().any(|link| link.name.starts_with('a')));
}

#[test]
fn link_loss_removes_ipv6_routes_under_skip_notify() {
    network();
    std::fs::write("/proc/sys/net/ipv6/route/skip_notify_on_dev_down", "1").expect("it is set");
    ip("addr add 2001:db8:a::1/64 dev a0 nodad");
    ip("addr add 2001:db8:b::1/64 dev b0 nodad");
    let mut kernel = Kernel::open().expect("netlink sockets open");
    let mut recorded = RecordedState::default();
    kernel.start(&mut recorded).expect("the initial dump succeeds");
    drain(&mut kernel, &mut recorded);
    steps(
        &mut kernel,
        &mut recorded,
        "
        -6 route add 2001:db8:1::/48 via 2001:db8:a::2
        -6 route add 2001:db8:2::/48 nexthop via 2001:db8:a::2 nexthop via 2001:db8:b::2
        -6 route add blackhole 2001:db8:3::/48
        link set a0 down
        link set a0 up
        link del a0
        ",
    );
}

#[test]
fn routes_without_carrier_follow_ignore_routes_with_linkdown() {
    let (mut kernel, mut recorded) = started();
    let set = |kernel: &mut Kernel, recorded: &mut RecordedState, what: &str, value: &str| {
        let path = format!("/proc/sys/net/{what}/ignore_routes_with_linkdown");
        std::fs::write(path, value).expect("it is set");
        check_against_ip(kernel, recorded, &format!("{what} {value}"));
    };
    steps(
        &mut kernel,
        &mut recorded,
        "
        route add 192.0.2.0/24 via 10.0.0.2
        route add 192.0.2.0/24 via 10.0.1.2 metric 20
        route add 192.0.2.1 nexthop via 10.0.0.2 nexthop via 10.0.1.2
        -6 route add 2001:db8:1::/48 via 2001:db8:a::2
        -6 route add 2001:db8:1::/48 via 2001:db8:b::2 metric 2000
        link set a1 down
        ",
    );
    let prefix = "192.0.2.0/24".parse().unwrap();
    let metric = |kernel: &Kernel| kernel.mirror().best_v4(254, prefix).unwrap().metric;
    assert_eq!(metric(&kernel), 0);
    for (what, best) in [("ipv4/conf/all", 20), ("ipv4/conf/a0", 20), ("ipv6/conf/all", 0)] {
        set(&mut kernel, &mut recorded, what, "1");
        assert_eq!(metric(&kernel), best, "{what}");
        kernel.resynchronize().expect("it begins");
        check_against_ip(&mut kernel, &mut recorded, "a resynchronization");
        steps(&mut kernel, &mut recorded, "link set a1 up");
        assert_eq!(metric(&kernel), 0, "{what}");
        steps(&mut kernel, &mut recorded, "link set a1 down");
        set(&mut kernel, &mut recorded, what, "0");
        assert_eq!(metric(&kernel), 0, "{what}");
    }
    set(&mut kernel, &mut recorded, "ipv6/conf/a0", "1");
}

/// Compares the reported settings with the kernel's files; returns those of a0 and b0.
fn settings_of_a0_and_b0(
    kernel: &mut Kernel,
    recorded: &mut RecordedState,
    step: &str,
) -> [InterfaceSettings; 2] {
    let get = |path: &str| -> u32 {
        let text = std::fs::read_to_string(format!("/proc/sys/net/{path}")).expect("a setting");
        text.trim().parse().expect("a number")
    };
    drain(kernel, recorded);
    let mut found = [None; 2];
    for (index, link) in &recorded.links {
        let name = &link.name;
        let filter = |name: &str| get(&format!("ipv4/conf/{name}/rp_filter"));
        let expected = InterfaceSettings {
            rp_filter: RpFilter::of(filter(name).max(filter("all"))),
            forwards_v4: get(&format!("ipv4/conf/{name}/forwarding")) != 0,
            forwards_v6: get("ipv6/conf/all/forwarding") != 0,
        };
        let settings = recorded.settings.get(index).copied().unwrap_or_default();
        assert_eq!(settings, expected, "{name} after {step}");
        if let Some(at) = ["a0", "b0"].iter().position(|known| known == name) {
            found[at] = Some(settings);
        }
    }
    found.map(|settings| settings.expect("a link"))
}

fn set(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{path}"), value).expect("it is set");
}

#[test]
fn reverse_path_filters_follow_the_settings_of_interfaces_and_of_all() {
    let (mut kernel, mut recorded) = started();
    use RpFilter::{Loose, Off, Strict};
    let steps_and_filters = [
        ("all", "0", None),
        ("a0", "1", Some([Strict, Off])),
        ("b0", "2", Some([Strict, Loose])),
        ("all", "1", Some([Strict, Loose])),
        ("a0", "0", Some([Strict, Loose])),
        ("all", "2", Some([Loose, Loose])),
        ("all", "0", Some([Off, Loose])),
        ("b0", "7", Some([Off, Loose])),
        ("default", "1", Some([Off, Loose])),
    ];
    for (name, value, filters) in steps_and_filters {
        let step = format!("{name} {value}");
        set(&format!("ipv4/conf/{name}/rp_filter"), value);
        let found = settings_of_a0_and_b0(&mut kernel, &mut recorded, &step);
        let of = found.map(|settings| settings.rp_filter);
        assert!(filters.is_none_or(|filters| filters == of), "{step}: {of:?}");
        kernel.resynchronize().expect("it begins");
        let step = "a resynchronization";
        assert_eq!(settings_of_a0_and_b0(&mut kernel, &mut recorded, step), found);
    }
    // A new device has the default.
    ip("link add d0 type veth peer name d1");
    settings_of_a0_and_b0(&mut kernel, &mut recorded, "a new device");
    let (&d0, _) = recorded.links.iter().find(|(_, link)| link.name == "d0").unwrap();
    assert_eq!(recorded.settings[&d0].rp_filter, Strict);
    ip("link del d0");
    settings_of_a0_and_b0(&mut kernel, &mut recorded, "its end");
    assert_eq!(recorded.settings[&d0].rp_filter, Off);
}

#[test]
fn forwarding_follows_the_settings_of_interfaces_and_of_all() {
    let (mut kernel, mut recorded) = started();
    // The families that a0 and b0 forward: IPv4, IPv6.
    let steps_and_forwarding = [
        ("ipv4/ip_forward", "0", [[false; 2]; 2], true),
        ("ipv6/conf/all/forwarding", "0", [[false; 2]; 2], false),
        ("ipv4/conf/b0/forwarding", "1", [[false, false], [true, false]], false),
        ("ipv6/conf/a0/forwarding", "1", [[false, false], [true, false]], false),
        ("ipv6/conf/all/forwarding", "1", [[false, true], [true, true]], false),
        ("ipv4/ip_forward", "1", [[true; 2]; 2], false),
        ("ipv4/conf/a0/forwarding", "0", [[false, true], [true, true]], false),
    ];
    let forwarding = |found: [InterfaceSettings; 2]| {
        found.map(|settings| [settings.forwards_v4, settings.forwards_v6])
    };
    for (path, value, expected, is_v6_unknown) in steps_and_forwarding {
        set(path, value);
        let step = format!("{path} {value}");
        let found = settings_of_a0_and_b0(&mut kernel, &mut recorded, &step);
        assert!(is_v6_unknown || forwarding(found) == expected, "{step}: {found:?}");
        kernel.resynchronize().expect("it begins");
        let step = "a resynchronization";
        assert_eq!(settings_of_a0_and_b0(&mut kernel, &mut recorded, step), found);
    }
    // A new device has the default.
    set("ipv4/conf/default/forwarding", "0");
    ip("link add d0 type veth peer name d1");
    settings_of_a0_and_b0(&mut kernel, &mut recorded, "a new device");
    let (&d0, _) = recorded.links.iter().find(|(_, link)| link.name == "d0").unwrap();
    assert!(!recorded.settings[&d0].forwards_v4);
}

#[test]
fn address_removal_removes_routes_without_notification() {
    let (mut kernel, mut recorded) = started();
    steps(
        &mut kernel,
        &mut recorded,
        "
        route add 192.0.2.0/24 via 10.0.0.2 src 10.0.0.5
        route add 192.0.2.1 via 10.0.1.2 src 10.0.0.5
        route add 192.0.2.2 via 10.0.0.2 src 10.0.0.5 table 300
        route add 192.0.2.3 via 10.0.0.2
        addr add 10.0.0.5/32 dev lo
        addr del 10.0.0.5/24 dev a0
        addr del 10.0.0.5/32 dev lo
        nexthop add id 2 via 10.0.1.2 dev b0
        route add 192.0.2.4 nhid 2
        route add 192.0.2.5 nexthop via 10.0.0.2 nexthop via 10.0.1.2
        route add 192.0.2.6 via 10.0.1.2
        addr del 10.0.1.1/24 dev b0
        addr add 10.0.1.7/24 dev b0
        route add 192.0.2.6 dev b0
        addr flush dev b0
        link set b0 down
        link set b0 up
        addr flush dev a0
        ",
    );
}

#[test]
fn resynchronization_reports_differences_only() {
    let (mut kernel, mut recorded) = started();
    batch((0..2000u32).map(|n| format!("route add 100.64.{}.{} via 10.0.0.2", n >> 8, n & 255)));
    drain(&mut kernel, &mut recorded);
    check_against_ip(&mut kernel, &mut recorded, "2000 routes");
    recorded.calls = 0;
    kernel.resynchronize().expect("it begins");
    drain(&mut kernel, &mut recorded);
    assert_eq!(kernel.counters().resynchronizations, 2);
    assert_eq!(recorded.calls, 0, "nothing has changed, and something was reported");
    // Changes during the resynchronization: some before their dump, some after.
    kernel.resynchronize().expect("it begins");
    for round in 0..20 {
        ip(&format!("route replace 100.64.0.{round} via 10.0.1.2"));
        ip(&format!("route del 100.64.7.{round}"));
        kernel.pump(&mut recorded, 1).expect("it goes on");
        ip(&format!("route add 100.64.7.{round} via 10.0.1.2"));
        ip(&format!("route del 100.64.1.{round}"));
    }
    drain(&mut kernel, &mut recorded);
    check_against_ip(&mut kernel, &mut recorded, "changes in the midst of a resynchronization");
}

#[test]
fn overrun_ends_in_correct_table() {
    network();
    ip("addr add 10.0.0.1/24 dev a0");
    ip("addr add 10.0.1.1/24 dev b0");
    let settings = KernelOptions { buffer: 4096, ..KernelOptions::default() };
    let mut kernel = Kernel::open_with(settings).expect("netlink sockets open");
    let mut recorded = RecordedState::default();
    kernel.start(&mut recorded).expect("the initial dump succeeds");
    let route = |n: u32| format!("100.{}.{}.{}", 64 + (n >> 16), n >> 8 & 255, n & 255);
    let adds = (0..50_000).map(|n| format!("route add {} via 10.0.0.2", route(n)));
    let changes = (0..50_000).map(|n| match n % 3 {
        0 => format!("route del {}", route(n)),
        _ => format!("route replace {} via 10.0.1.2", route(n)),
    });
    let lines: Vec<_> = adds.chain(changes).collect();
    let loading = std::thread::scope(|scope| {
        let loader = scope.spawn(|| batch(lines.into_iter()));
        while !loader.is_finished() {
            kernel.pump(&mut recorded, 100).expect("the feed goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
        loader.join()
    });
    loading.expect("ip takes the routes");
    drain(&mut kernel, &mut recorded);
    assert!(kernel.counters().overruns > 0, "the buffer was not small enough");
    assert!(kernel.counters().buffer > 8192, "the buffer has not grown");
    check_against_ip(&mut kernel, &mut recorded, "100,000 changes and a tiny buffer");
}

#[test]
fn interrupted_dump_is_repeated() {
    let (mut kernel, mut recorded) = started();
    let route = |n: u32| format!("2001:db8:{:x}:{:x}::/64", 0x100 + (n >> 8), n & 255);
    batch((0..20_000).map(|n| format!("route add {} via 2001:db8:a::2", route(n))));
    let changes = (0..20_000).map(|n| match n % 3 {
        0 => format!("route del {}", route(n)),
        1 => format!("route replace {} via 2001:db8:b::2", route(n)),
        _ => format!("route append {} via 2001:db8:b::2", route(n)),
    });
    let mut lines: Vec<_> = changes.collect();
    // The scheduler decides whether a deletion falls into a dump: the changes go on until one does.
    for _ in 0..20 {
        std::thread::scope(|scope| {
            let loader = scope.spawn(|| batch(lines.iter().cloned()));
            while !loader.is_finished() {
                if !kernel.is_resynchronizing() {
                    kernel.resynchronize().expect("it begins");
                }
                kernel.pump(&mut recorded, 100).expect("the feed goes on");
            }
        });
        if kernel.counters().interrupted > 0 {
            break;
        }
        // All routes are there, and go and come back one by one.
        let replace = |n| format!("route replace {} via 2001:db8:a::3", route(n));
        let pairs = (0..20_000).flat_map(|n| [format!("route del {}", route(n)), replace(n)]);
        lines = (0..20_000).map(replace).chain(pairs).collect();
    }
    check_against_ip(&mut kernel, &mut recorded, "changes while dumps go on");
    let counters = kernel.counters();
    assert!(counters.interrupted > 0, "no dump was interrupted: {counters:?}");
    assert!(counters.resynchronizations > 1, "{counters:?}");
}

#[test]
fn resolve_request_yields_neighbor() {
    let (mut kernel, mut recorded) = started();
    let index = index_of(&kernel, "a0");
    let (sender, receiver) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (moved, has_moved) = std::sync::mpsc::channel::<()>();
    let far = std::thread::spawn(move || {
        // The other end is in a namespace that ends with this thread.
        unshare(CloneFlags::CLONE_NEWNET).expect("a new network namespace");
        sender.send(nix::unistd::gettid()).expect("the test waits");
        has_moved.recv().expect("the interface comes");
        ip("link set a1 up address 02:00:00:00:00:99");
        ip("addr add 10.0.0.99/24 dev a1");
        ip("addr add 2001:db8:a::99/64 dev a1 nodad");
        sender.send(nix::unistd::gettid()).expect("the test waits");
        let _ = ended.recv();
    });
    ip(&format!("link set a1 netns {}", receiver.recv().expect("there is another namespace")));
    moved.send(()).expect("the thread waits");
    receiver.recv().expect("the other end is up");
    for text in ["10.0.0.99", "2001:db8:a::99"] {
        let address: IpAddr = text.parse().unwrap();
        let begun = Instant::now();
        kernel.resolve(index, address).expect("the kernel is willing");
        loop {
            let mut fds = [PollFd::new(kernel.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, 200u16).expect("the feed can be waited for");
            kernel.pump(&mut recorded, 100).expect("the feed goes on");
            let known = recorded.neighbors.get(&(index, address));
            if known.and_then(|neighbor| neighbor.mac) == Some([2, 0, 0, 0, 0, 0x99]) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{text}: {known:?}");
        }
    }
    let failed = kernel.resolve(9999, "10.0.0.99".parse().unwrap());
    assert_eq!(
        failed.expect_err("there is no such interface").to_string(),
        "the kernel refuses to resolve a neighbor: No such device \
         (there is no such interface any more)"
    );
    drop(end);
    far.join().expect("the other end goes");
}

fn index_of(kernel: &Kernel, name: &str) -> u32 {
    let mut links = kernel.mirror().links().iter();
    *links.find(|(_, link)| link.name == name).expect("the interface is there").0
}

#[test]
fn reread_corrects_route_before_its_message() {
    let (mut kernel, mut follower) = started();
    let main = 254;
    for (line, address) in [
        ("route add 198.51.100.0/24 via 10.0.0.2", "198.51.100.9"),
        ("route add 198.51.100.0/28 via 10.0.1.2 metric 7", "198.51.100.9"),
        ("route replace 198.51.100.0/28 via 10.0.2.2 metric 7", "198.51.100.9"),
        ("route del 198.51.100.0/28", "198.51.100.9"),
        ("route del 198.51.100.0/24", "198.51.100.9"),
        ("-6 route add 2001:db8:1::/48 via 2001:db8:a::2", "2001:db8:1::9"),
        ("-6 route replace 2001:db8:1::/48 via 2001:db8:b::2", "2001:db8:1::9"),
        ("-6 route add 2001:db8:1::/64 via 2001:db8:c::2", "2001:db8:1::9"),
        ("-6 route del 2001:db8:1::/48", "2001:db8:1::9"),
        ("-6 route del 2001:db8:1::/64", "2001:db8:1::9"),
    ] {
        ip(line);
        let address: IpAddr = address.parse().expect("an address");
        let before = follower.calls;
        assert_eq!(kernel.reread(main, address, &mut follower), Ok(true), "{line}");
        let seen = follower.calls;
        // A lookup of this address returns nothing about a route that another one covers.
        assert_eq!(seen - before, usize::from(line != "-6 route del 2001:db8:1::/48"), "{line}");
        assert_eq!(kernel.reread(main, address, &mut follower), Ok(true), "{line}");
        assert_eq!(follower.calls, seen, "{line}: agreed upon, and reported again");
        // The later message changes nothing, or only what could not be known.
        check_against_ip(&mut kernel, &mut follower, line);
    }
    ip("route add blackhole 203.0.113.0/24");
    let address = "203.0.113.1".parse().expect("an address");
    assert_eq!(kernel.reread(main, address, &mut follower), Ok(false), "it has no prefix");
    check_against_ip(&mut kernel, &mut follower, "a blackhole");
}
