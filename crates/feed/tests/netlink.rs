//! Messages of a real kernel, whole and damaged.
//!
//! `golden/linux-6.18.netlink` is the byte stream that a socket in the groups received, end to end,
//! while `ip` made links, addresses, nexthop objects, routes and rules.

use fib::Prefix;
use fingerpost_feed::netlink::{
    Action, AddressChange, AddressView, Damage, Follower, InterfaceSettings, Link, LinkView,
    Messages, Mirror, Neighbor, NexthopObject, NullFollower, RouteInfo, Rule, Target,
};

const GOLDEN: &[u8] = include_bytes!("golden/linux-6.18.netlink");

/// The golden messages one by one, each with its header.
fn golden() -> Vec<&'static [u8]> {
    let mut list = Vec::new();
    for message in Messages::new(GOLDEN) {
        let message = message.expect("the kernel sends nothing damaged");
        list.push(&GOLDEN[message.at - 16..message.at + message.payload.len()]);
    }
    list
}

fn apply(mirror: &mut Mirror, bytes: &[u8]) -> Result<(), Damage> {
    Messages::new(bytes).try_for_each(|message| mirror.apply(&message?, &mut NullFollower))
}

fn whole() -> Mirror {
    let mut mirror = Mirror::new();
    apply(&mut mirror, GOLDEN).expect("the kernel sends nothing damaged");
    mirror
}

/// Returns the whole content of a mirror as text.
fn shown(mirror: &Mirror) -> String {
    let mut text = format!("{:?}\n{:?}\n", mirror.links(), mirror.addresses());
    text += &format!("{:?}\n{:?}\n", mirror.neighbors(), mirror.nexthop_objects());
    text += &format!("{:?}\n", mirror.rules());
    for &table in mirror.tables().keys() {
        text += &format!("{table} {:?}\n", mirror.routes_v4(table).collect::<Vec<_>>());
        text += &format!("{table} {:?}\n", mirror.routes_v6(table).collect::<Vec<_>>());
    }
    text
}

/// Returns the best route of a prefix, as `interface gateway weight`.
fn leads(mirror: &Mirror, table: u32, prefix: &str) -> String {
    let best = match prefix.parse::<Prefix<u32>>() {
        Ok(prefix) => mirror.best_v4(table, prefix),
        Err(_) => mirror.best_v6(table, prefix.parse().expect("a prefix")),
    };
    let Some(best) = best else { return "nothing".to_owned() };
    let Target::Via(vias) = &*best.target else { return format!("{:?}", best.target) };
    let words = vias.iter().map(|via| {
        let name = &mirror.links()[&via.interface].name;
        let gateway = via.gateway.map_or("-".to_owned(), |gateway| gateway.to_string());
        format!("{name} {gateway} {}{}", via.weight, if via.onlink { " onlink" } else { "" })
    });
    let words: Vec<_> = words.collect();
    format!("{} m{} p{}", words.join(", "), best.metric, best.protocol)
}

#[test]
fn golden_messages_yield_expected_routes() {
    let mirror = whole();
    let leads = |table, prefix| leads(&mirror, table, prefix);
    assert_eq!(leads(254, "192.0.2.0/24"), "a0 10.0.0.2 1 m20 p12");
    assert_eq!(leads(254, "198.51.100.0/24"), "a0 10.0.0.2 3, a0 fe80::2 1 m0 p3");
    assert_eq!(leads(254, "203.0.113.0/24"), "a0 10.0.0.2 3, a0 10.0.0.3 1 m0 p3");
    assert_eq!(leads(100_000, "203.0.113.0/25"), "Blackhole");
    assert_eq!(leads(254, "0.0.0.0/0"), "a0 172.16.0.1 1 onlink m0 p3");
    let both = "a0 2001:db8:a::2 1, a0 2001:db8:a::3 1 m1024 p3";
    assert_eq!(leads(254, "2001:db8:1::/48"), both);
    assert_eq!(leads(254, "2001:db8:2::/48"), "Unreachable");
    assert_eq!(leads(255, "10.0.0.1/32"), "Local");
    assert_eq!(leads(255, "10.0.0.255/32"), "Broadcast");
    let link = mirror.links().values().find(|link| link.name == "a0").expect("a0");
    assert_eq!((link.mac, link.mtu, &link.kind[..]), (Some([2, 0, 0, 0, 0, 0xa0]), 1500, "veth"));
    assert_eq!(mirror.nexthop_objects()[&20], NexthopObject::Blackhole);
    let group = NexthopObject::Group { members: vec![(1, 3), (2, 1)], resilient: true };
    assert_eq!(mirror.nexthop_objects()[&10], group);
    let rule = |priority| mirror.rules().iter().find(|rule| rule.priority == priority).unwrap();
    assert_eq!((rule(500).mark, rule(500).action), (Some((5, 0xff)), Action::Table(1000)));
    assert_eq!(rule(600).action, Action::Blackhole);
    assert!(rule(600).v6 && !rule(600).is_for_all());
    assert_eq!(rule(700).suppressed, Some(0));
    assert!(!rule(700).other.is_empty() && !rule(700).is_for_all());
}

#[test]
fn replayed_messages_change_nothing() {
    let mut mirror = whole();
    let last: Vec<u8> = golden().iter().rev().take(12).rev().flat_map(|m| padded(m)).collect();
    let before = shown(&mirror);
    // Everything from the routes on is present already, or is deleted again.
    apply(&mut mirror, &last).expect("nothing is damaged");
    assert_eq!(shown(&mirror), before);
}

fn padded(message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[test]
fn truncated_message_leaves_mirror_unchanged() {
    for (number, message) in golden().into_iter().enumerate() {
        for length in 1..message.len() {
            let mut mirror = whole();
            let before = shown(&mirror);
            // Truncated by the transport: the header states more bytes than there are.
            let damage = apply(&mut mirror, &message[..length]).expect_err("it is cut off");
            assert!(damage.at <= length, "{damage}");
            assert_eq!(shown(&mirror), before, "message {number} cut to {length}");
            // Truncated by the sender: the header agrees.
            if length >= 16 {
                let mut cut = message[..length].to_vec();
                cut[..4].copy_from_slice(&(length as u32).to_ne_bytes());
                let mut mirror = whole();
                if apply(&mut mirror, &cut).is_err() {
                    assert_eq!(shown(&mirror), before, "message {number} cut to {length}");
                }
            }
        }
    }
}

#[test]
fn random_damage_leaves_mirror_unchanged() {
    let messages = golden();
    let mut rng = fastrand::Rng::with_seed(20_261_121);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..20_000 {
        let mut mirror = Mirror::new();
        apply(&mut mirror, GOLDEN).expect("the kernel sends nothing damaged");
        let mut message = messages[rng.usize(..messages.len())].to_vec();
        for _ in 0..=rng.usize(..4) {
            let at = rng.usize(..message.len());
            message[at] = match rng.usize(..3) {
                0 => message[at] ^ 1 << rng.usize(..8),
                1 => 0xff,
                _ => rng.usize(..256) as u8,
            };
        }
        let before = shown(&mirror);
        // Only the first message: behind a reduced length a rest remains.
        let first = Messages::new(&message).next().expect("there is something");
        match first.and_then(|message| mirror.apply(&message, &mut NullFollower)) {
            Err(_) => {
                refused += 1;
                assert_eq!(shown(&mirror), before);
            }
            Ok(()) => taken += 1,
        }
        shown(&mirror);
    }
    assert!(refused > 1000 && taken > 1000, "{refused} refused, {taken} taken");
}

/// Counts the reports, and checks that links are reported before their addresses and routes.
#[derive(Default)]
struct Order {
    links: Vec<u32>,
    routes: usize,
    settings: usize,
}

impl Follower for Order {
    fn route_v4(&mut self, _: u32, _: Prefix<u32>, best: Option<&RouteInfo>) {
        self.route(best);
    }
    fn route_v6(&mut self, _: u32, _: Prefix<u128>, best: Option<&RouteInfo>) {
        self.route(best);
    }
    fn link(&mut self, index: u32, _: Option<&Link>) {
        self.links.push(index);
    }
    fn address(&mut self, address: &AddressView, _: AddressChange) {
        assert!(self.links.contains(&address.index));
    }
    fn neighbor(&mut self, index: u32, _: std::net::IpAddr, _: Option<&Neighbor>) {
        assert!(self.links.contains(&index));
    }
    fn rules(&mut self, _: &[Rule]) {}
    fn settings(&mut self, _: u32, _: InterfaceSettings) {
        self.settings += 1;
    }
}

impl Order {
    fn route(&mut self, best: Option<&RouteInfo>) {
        self.routes += 1;
        if let Some(Target::Via(vias)) = best.map(|best| &*best.target) {
            assert!(vias.iter().all(|via| self.links.contains(&via.interface)));
        }
    }
}

#[test]
fn link_is_reported_before_its_addresses_and_routes() {
    let (mut mirror, mut order) = (Mirror::new(), Order::default());
    for message in Messages::new(GOLDEN) {
        mirror.apply(&message.unwrap(), &mut order).unwrap();
    }
    assert!(order.routes > 15, "{}", order.routes);
}

/// Makes an attribute: its length, its kind, its value, and bytes up to a multiple of four.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Makes a message of this kind.
fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes().into_iter().chain([0; 10]));
    bytes.extend(body);
    bytes
}

/// Makes an RTM_NEWLINK message of interface 7, and reads it.
fn read_link(info: &[Vec<u8>]) -> Link {
    let body =
        [vec![0; 4], 7_u32.to_ne_bytes().to_vec(), vec![0; 8], attribute(18, &info.concat())];
    let bytes = message(16, &body.concat());
    let message = Messages::new(&bytes).next().expect("a message").expect("it is complete");
    LinkView::parse(&message).expect("no damage").link()
}

/// The numbers are those of linux/if_link.h and linux/if_bonding.h.
#[test]
fn bond_has_a_mode_and_members_are_active_by_their_state_and_their_link() {
    let bond = [attribute(1, b"bond\0"), attribute(2, &attribute(1, &[4]))];
    assert_eq!(read_link(&bond).bond_mode, Some(4));
    let other = [attribute(1, b"vrf\0"), attribute(2, &attribute(1, &[4, 0, 0, 0]))];
    assert_eq!(read_link(&other).bond_mode, None);
    let member = |state, link| {
        let data = [attribute(1, &[state]), attribute(2, &[link])].concat();
        read_link(&[attribute(4, b"bond\0"), attribute(5, &data)])
    };
    for state in 0..2 {
        for link in 0..4 {
            let read = member(state, link);
            assert_eq!(read.member_of, "bond");
            assert_eq!(read.is_active_member, state == 0 && link <= 1, "{state} {link}");
        }
    }
    let without_state = [attribute(4, b"bond\0"), attribute(5, &[])];
    assert!(!read_link(&without_state).is_active_member);
}

/// The numbers are those of linux/if_link.h.
#[test]
fn vlan_device_has_the_priorities_of_packets_and_of_tags() {
    let map = |pairs: &[[u32; 2]]| -> Vec<u8> {
        let pair = |pair: &[u32; 2]| attribute(1, &pair.map(u32::to_ne_bytes).concat());
        pairs.iter().flat_map(pair).collect()
    };
    let data = [
        attribute(1, &30_u16.to_ne_bytes()),
        attribute(3, &map(&[[6, 5], [77, 1]])),
        // A tag has no priority 8.
        attribute(4, &map(&[[3, 6], [8, 1], [7, 77]])),
    ];
    let link = read_link(&[attribute(1, b"vlan\0"), attribute(2, &data.concat())]);
    let vlan = link.vlan.expect("a VLAN device");
    assert_eq!((vlan.protocol, vlan.id), (0x8100, 30));
    assert_eq!(vlan.egress_priorities, [(6, 5), (77, 1)]);
    assert_eq!(vlan.ingress_priorities, [0, 0, 0, 6, 0, 0, 0, 77]);
}

/// The numbers are those of linux/netconf.h: an index, and `rp_filter`.
#[test]
fn settings_without_an_index_are_of_no_interface() {
    for index in [None, Some(0_u32), Some(7)] {
        let index_of = index.map(|index| attribute(1, &index.to_ne_bytes())).unwrap_or_default();
        let body = [vec![2, 0, 0, 0], index_of, attribute(3, &2_u32.to_ne_bytes())];
        let (mut mirror, mut order) = (Mirror::new(), Order::default());
        for message in Messages::new(&message(80, &body.concat())) {
            mirror.apply(&message.unwrap(), &mut order).unwrap();
        }
        let expected = usize::from(index == Some(7));
        assert_eq!((order.settings, mirror.settings().len()), (expected, expected), "{index:?}");
    }
}
