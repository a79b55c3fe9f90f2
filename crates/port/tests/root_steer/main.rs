//! The steering program in the kernel, packet by packet.
//!
//! The program runs under `BPF_PROG_TEST_RUN`, without a device, so no socket is bound and packets
//! for the router end as `NoSocket`. Each literal packet is one line of the rule; then the program
//! is compared with an oracle in Rust, written from the rule and not from the program, on thousands
//! of damaged packets.
//!
//! Needs root (`CAP_BPF`, `CAP_NET_ADMIN`), hence the feature `root-tests`.

mod copies;
mod tags;

use std::net::IpAddr;

use caps::{CapSet, Capability};
use fingerpost_port::af_xdp::Locals;
use fingerpost_port::af_xdp::bpf::asm::{Action, Assembler, Cond, Label, Reg};
use std::sync::Arc;

use fingerpost_port::af_xdp::steer::{
    BlockedSources, EarlyDropConfig, Extensions, SourceExits, SourcePrefix, Steering,
    SteeringOutcome,
};

const MAC: [u8; 6] = [0x02, 0xfe, 0x00, 0x00, 0x80, 0x01];
const PEER: [u8; 6] = [0x02, 0xfe, 0x00, 0x00, 0x80, 0x02];

fn locals() -> Locals {
    ["192.0.2.1", "198.51.100.255", "2001:db8::1"]
        .into_iter()
        .map(|text| text.parse::<IpAddr>().expect("an address"))
        .collect()
}

/// Gives up what the router does not have either: the verifier accepts more from CAP_PERFMON, and
/// CAP_SYS_ADMIN includes it. It is this test's thread alone that does.
fn drop_capabilities() {
    for capability in [Capability::CAP_PERFMON, Capability::CAP_SYS_ADMIN] {
        caps::drop(None, CapSet::Effective, capability).expect("a capability can be dropped");
    }
}

fn steering() -> Steering {
    drop_capabilities();
    Steering::for_router(MAC, 4, &locals()).expect("the program loads (this test needs root)")
}

fn for_gate(early: EarlyDropConfig) -> Steering {
    drop_capabilities();
    Steering::for_gate(MAC, 4, &locals(), early).expect("the program loads")
}

/// A gate's program that drops declined flows.
fn declining() -> Steering {
    for_gate(EarlyDropConfig { flows: 16, ..EarlyDropConfig::default() })
}

fn ethernet(to: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &PEER, &ethertype.to_be_bytes(), payload].concat()
}

fn v4(to: &str, ttl: u8) -> Vec<u8> {
    let to: std::net::Ipv4Addr = to.parse().expect("an address");
    let mut header = [0; 28];
    header[0] = 0x45;
    header[3] = 28;
    header[8] = ttl;
    header[9] = 17;
    header[12..16].copy_from_slice(&[203, 0, 113, 7]);
    header[16..20].copy_from_slice(&to.octets());
    ethernet(MAC, 0x0800, &header)
}

fn v6(to: &str, hop_limit: u8) -> Vec<u8> {
    let to: std::net::Ipv6Addr = to.parse().expect("an address");
    let mut header = [0; 48];
    header[0] = 0x60;
    header[5] = 8;
    header[6] = 17;
    header[7] = hop_limit;
    header[8..10].copy_from_slice(&[0x20, 0x01]);
    header[24..40].copy_from_slice(&to.octets());
    ethernet(MAC, 0x86dd, &header)
}

/// Returns a packet without its priority tags, of which at most four are removed.
fn bare(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    for _ in 0..4 {
        match packet[..] {
            [m0, m1, m2, m3, m4, m5, _, _, _, _, _, _, kind, and, tag, vlan, _, _, ..]
                if [m0, m1, m2, m3, m4, m5] == MAC
                    && matches!([kind, and], [0x81, 0x00] | [0x88, 0xa8])
                    && (tag & 15, vlan) == (0, 0) =>
            {
                packet.drain(12..16);
            }
            _ => break,
        }
    }
    packet
}

/// Returns the packet with tags before its type, each with a type and a priority and VLAN.
fn tagged(packet: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|(kind, tag)| [kind.to_be_bytes(), tag.to_be_bytes()]);
    [&packet[..12], &tags.flatten().collect::<Vec<_>>(), &packet[12..]].concat()
}

/// Runs one packet and returns the counter that it has incremented.
fn run(steering: &Steering, packet: &[u8]) -> SteeringOutcome {
    let before = steering.counts().expect("the counters can be read");
    let run = steering.program().test_run(packet, 1).expect("the program runs");
    let after = steering.counts().expect("the counters can be read");
    assert_eq!(
        run.output,
        bare(packet),
        "steering removes priority tags, and changes nothing else"
    );
    let moved: Vec<SteeringOutcome> = after
        .iter()
        .zip(before.iter())
        .filter(|((_, after), (_, before))| after != before)
        .map(|((which, after), (_, before))| {
            assert_eq!(after, before + 1);
            which
        })
        .collect();
    let [one] = moved[..] else { panic!("{moved:?} were counted for one packet") };
    assert_ne!(one, SteeringOutcome::Taken, "no socket is bound");
    assert_eq!(run.retval, Action::Pass as u32, "{one:?}");
    one
}

#[test]
fn long_frames_are_left_to_the_host() {
    let steering = steering();
    assert!(steering.passes_long_frames(), "Linux 5.18 or later");
    let gate = for_gate(EarlyDropConfig::default());
    assert!(!gate.passes_long_frames());
    for (length, want) in [
        (1514, SteeringOutcome::NoSocket),
        (4096, SteeringOutcome::NoSocket),
        (4097, SteeringOutcome::TooLong),
        (9014, SteeringOutcome::TooLong),
        (20_000, SteeringOutcome::TooLong),
    ] {
        for mut packet in [v4("203.0.113.1", 64), v6("2001:db8:1::1", 64)] {
            packet.resize(length, 0xa5);
            assert_eq!(run(&steering, &packet), want, "{length} bytes");
        }
        // Those for the host are for the host in any case.
        let mut local = v4("192.0.2.1", 64);
        local.resize(length, 0);
        assert_eq!(run(&steering, &local), SteeringOutcome::Local);
    }
}

#[test]
fn steering_outcome_follows_the_rule() {
    let steering = steering();
    let broadcast = [0xff; 6];
    let all_nodes = [0x33, 0x33, 0, 0, 0, 1];
    let table: &[(&str, Vec<u8>, SteeringOutcome)] = &[
        ("IPv4", v4("203.0.113.1", 64), SteeringOutcome::NoSocket),
        ("IPv4, TTL 2", v4("203.0.113.1", 2), SteeringOutcome::NoSocket),
        ("IPv4, TTL 1 is the router's to answer", v4("203.0.113.1", 1), SteeringOutcome::NoSocket),
        ("IPv4, TTL 0", v4("203.0.113.1", 0), SteeringOutcome::NoSocket),
        ("IPv4 to me", v4("192.0.2.1", 64), SteeringOutcome::Local),
        ("IPv4 to my other address", v4("198.51.100.255", 64), SteeringOutcome::Local),
        ("IPv4 to my neighbor", v4("192.0.2.2", 64), SteeringOutcome::NoSocket),
        ("IPv4 multicast, first", v4("224.0.0.0", 64), SteeringOutcome::Multicast),
        ("IPv4 multicast, last", v4("239.255.255.255", 64), SteeringOutcome::Multicast),
        ("IPv4 before multicast", v4("223.255.255.255", 64), SteeringOutcome::NoSocket),
        ("IPv4 class E is the router's to drop", v4("240.0.0.1", 64), SteeringOutcome::NoSocket),
        ("IPv4 broadcast", v4("255.255.255.255", 64), SteeringOutcome::Multicast),
        ("IPv4 link-local", v4("169.254.3.4", 64), SteeringOutcome::LinkLocal),
        ("IPv4 beside link-local", v4("169.253.3.4", 64), SteeringOutcome::NoSocket),
        ("IPv4 zero is the router's to drop", v4("0.0.0.0", 64), SteeringOutcome::NoSocket),
        ("IPv6", v6("2001:db8:1::1", 64), SteeringOutcome::NoSocket),
        ("IPv6, hop limit 1", v6("2001:db8:1::1", 1), SteeringOutcome::NoSocket),
        ("IPv6, hop limit 2", v6("2001:db8:1::1", 2), SteeringOutcome::NoSocket),
        ("IPv6 to me", v6("2001:db8::1", 64), SteeringOutcome::Local),
        ("IPv6 to my neighbor", v6("2001:db8::2", 64), SteeringOutcome::NoSocket),
        ("IPv6 link-local, first", v6("fe80::1", 64), SteeringOutcome::LinkLocal),
        ("IPv6 link-local, last", v6("febf:ffff::1", 64), SteeringOutcome::LinkLocal),
        ("IPv6 beside link-local", v6("fec0::1", 64), SteeringOutcome::NoSocket),
        ("IPv6 multicast", v6("ff02::1", 64), SteeringOutcome::Multicast),
        ("ARP to me", ethernet(MAC, 0x0806, &[0; 28]), SteeringOutcome::Arp),
        ("ARP to all", ethernet(broadcast, 0x0806, &[0; 28]), SteeringOutcome::Group),
        (
            "a neighbor solicitation",
            ethernet(all_nodes, 0x86dd, &[0x60; 72]),
            SteeringOutcome::Group,
        ),
        ("to my peer", ethernet(PEER, 0x0800, &[0x45; 28]), SteeringOutcome::NotMine),
        ("one VLAN tag", ethernet(MAC, 0x8100, &[1; 40]), SteeringOutcome::Tagged),
        ("two VLAN tags", ethernet(MAC, 0x88a8, &[1; 40]), SteeringOutcome::Tagged),
        ("the old two tags", ethernet(MAC, 0x9100, &[0; 40]), SteeringOutcome::Tagged),
        ("LLDP", ethernet(MAC, 0x88cc, &[0; 40]), SteeringOutcome::NotIp),
        (
            "an Ethernet header without payload",
            ethernet(MAC, 0x0800, &[]),
            SteeringOutcome::Unparsed,
        ),
        ("IPv4, one byte short", v4("203.0.113.1", 64)[..33].to_vec(), SteeringOutcome::Unparsed),
        (
            "IPv4, exactly its header",
            v4("203.0.113.1", 64)[..34].to_vec(),
            SteeringOutcome::NoSocket,
        ),
        ("IPv6, one byte short", v6("2001:db8:1::1", 64)[..53].to_vec(), SteeringOutcome::Unparsed),
        (
            "IPv6, exactly its header",
            v6("2001:db8:1::1", 64)[..54].to_vec(),
            SteeringOutcome::NoSocket,
        ),
    ];
    for (name, packet, want) in table {
        assert_eq!(run(&steering, packet), *want, "{name}");
    }
    let total: u64 = steering.counts().unwrap().iter().map(|(_, count)| count).sum();
    assert_eq!(total, table.len() as u64, "every packet is counted once");

    let versions = (0..=255_u8).map(|first| {
        let mut packet = v4("203.0.113.1", 64);
        packet[14] = first;
        (first, packet)
    });
    for (first, packet) in versions {
        let good = (0x45..=0x4f).contains(&first);
        let want = if good { SteeringOutcome::NoSocket } else { SteeringOutcome::Unparsed };
        assert_eq!(run(&steering, &packet), want, "version and length {first:#x}");
    }
}

#[test]
fn frames_to_secondary_macs_are_taken_while_these_are_set() {
    const VIRTUAL: [[u8; 6]; 2] = [[0, 0, 0x5e, 0, 1, 5], [0, 0, 0x5e, 0, 2, 5]];
    let steering = steering();
    let to = |mac: [u8; 6], packet: Vec<u8>| [&mac[..], &packet[6..]].concat();
    let forwarded = |mac| run(&steering, &to(mac, v4("203.0.113.1", 64)));
    for (set, taken) in
        [(&VIRTUAL[..], [true, true]), (&VIRTUAL[1..], [false, true]), (&[], [false; 2])]
    {
        steering.set_secondary_macs(set).expect("the map takes them");
        for (mac, taken) in VIRTUAL.into_iter().zip(taken) {
            let want = if taken { SteeringOutcome::NoSocket } else { SteeringOutcome::NotMine };
            assert_eq!(forwarded(mac), want, "{mac:x?} of {set:x?}");
            let local = run(&steering, &to(mac, v6("2001:db8::1", 64)));
            assert_eq!(local == SteeringOutcome::Local, taken);
        }
        assert_eq!(forwarded([0, 0, 0x5e, 0, 1, 6]), SteeringOutcome::NotMine);
        assert_eq!(forwarded(MAC), SteeringOutcome::NoSocket);
    }
}

#[test]
fn changed_mac_redirects_new_and_passes_old() {
    let steering = steering();
    let to = |mac: [u8; 6]| [&mac[..], &v4("203.0.113.1", 64)[6..]].concat();
    assert_eq!(run(&steering, &to(MAC)), SteeringOutcome::NoSocket);
    // Each byte is compared.
    for byte in 0..6 {
        let mut next = MAC;
        next[byte] ^= 0x10;
        steering.set_mac(next).expect("the MAC is changed");
        assert_eq!(run(&steering, &to(MAC)), SteeringOutcome::NotMine, "byte {byte}");
        let program = steering.program();
        let before = steering.counts().unwrap()[SteeringOutcome::NoSocket];
        assert_eq!(program.test_run(&to(next), 1).unwrap().retval, Action::Pass as u32);
        assert_eq!(
            steering.counts().unwrap()[SteeringOutcome::NoSocket],
            before + 1,
            "byte {byte}"
        );
    }
}

/// A frame to an unknown MAC may be to the interface's next one.
#[test]
fn gate_frame_to_another_mac_is_dropped_and_counted() {
    let closed = EarlyDropConfig { fail_closed: true, ..EarlyDropConfig::default() };
    let gate = for_gate(closed);
    let to = |mac: [u8; 6], packet: &[u8]| [&mac[..], &packet[6..]].concat();
    let packets = [
        v4("203.0.113.1", 64),
        v6("2001:db8:1::1", 64),
        v4("192.0.2.1", 64),
        tagged(&v4("203.0.113.1", 64), &[(0x8100, 0)]),
        ethernet(MAC, 0x0806, &[0; 28]),
    ];
    for (n, packet) in packets.iter().enumerate() {
        let run = gate.program().test_run(&to(PEER, packet), 1).expect("the program runs");
        assert_eq!(run.retval, Action::Drop as u32, "packet {n}");
        assert_eq!(gate.counts().unwrap()[SteeringOutcome::Astray], n as u64 + 1);
    }
    assert_eq!(
        run(&gate, &to([0xff; 6], &packets[4])),
        SteeringOutcome::Group,
        "ARP to all is the host's"
    );
    gate.set_mac(PEER).expect("the MAC is changed");
    let run = gate.program().test_run(&to(PEER, &packets[0]), 1).expect("the program runs");
    assert_eq!(
        (run.retval, gate.counts().unwrap()[SteeringOutcome::Unserved]),
        (Action::Drop as u32, 1)
    );
}

#[test]
fn own_addresses_follow_set_locals() {
    let steering = steering();
    let (mine, next) = (v4("192.0.2.1", 64), v4("192.0.2.9", 64));
    assert_eq!(run(&steering, &mine), SteeringOutcome::Local);
    let other: Locals = ["192.0.2.9".parse::<IpAddr>().unwrap()].into_iter().collect();
    steering.set_locals(&other).unwrap();
    assert_eq!(run(&steering, &mine), SteeringOutcome::NoSocket);
    assert_eq!(run(&steering, &next), SteeringOutcome::Local);
    assert_eq!(run(&steering, &v6("2001:db8::1", 64)), SteeringOutcome::NoSocket);
    steering.set_locals(&locals()).unwrap();
    assert_eq!(run(&steering, &mine), SteeringOutcome::Local);
    assert_eq!(run(&steering, &next), SteeringOutcome::NoSocket);
    assert_eq!(run(&steering, &v6("2001:db8::1", 64)), SteeringOutcome::Local);
}

#[test]
fn observed_interface_passes_all_packets() {
    let steering = steering();
    let (theirs, mine) = (v4("203.0.113.1", 64), v4("192.0.2.1", 64));
    for only in [true, false, true] {
        steering.observe(only).unwrap();
        assert_eq!(steering.observes().unwrap(), only);
        let want = if only { SteeringOutcome::Observed } else { SteeringOutcome::NoSocket };
        assert_eq!(run(&steering, &theirs), want);
        assert_eq!(run(&steering, &v6("2001:db8:1::1", 64)), want);
        assert_eq!(run(&steering, &mine), SteeringOutcome::Local, "for the host in both modes");
    }
}

#[test]
fn too_many_own_addresses_are_an_error() {
    let many: Locals =
        (0..5000_u32).map(|n| IpAddr::from((0x0a00_0000 + n).to_be_bytes())).collect();
    let error = steering().set_locals(&many).expect_err("4096 fit");
    assert_eq!(error.raw_os_error(), Some(7), "E2BIG: {error}");
}

/// The oracle, from the rule: the host keeps packets that the router does not forward.
fn oracle(packet: &[u8]) -> SteeringOutcome {
    let locals = locals();
    if packet[..6] != MAC {
        return if packet[0] % 2 == 1 { SteeringOutcome::Group } else { SteeringOutcome::NotMine };
    }
    let packet = &bare(packet)[..];
    let to = match u16::from_be_bytes([packet[12], packet[13]]) {
        0x0806 => return SteeringOutcome::Arp,
        0x8100 | 0x88a8 | 0x9100 => return SteeringOutcome::Tagged,
        0x0800 => {
            let header = &packet[14..];
            if header.len() < 20 || header[0] / 16 != 4 || header[0] % 16 < 5 {
                return SteeringOutcome::Unparsed;
            }
            let to: [u8; 4] = header[16..20].try_into().unwrap();
            IpAddr::from(to)
        }
        0x86dd => {
            let header = &packet[14..];
            if header.len() < 40 || header[0] / 16 != 6 {
                return SteeringOutcome::Unparsed;
            }
            let to: [u8; 16] = header[24..40].try_into().unwrap();
            IpAddr::from(to)
        }
        _ => return SteeringOutcome::NotIp,
    };
    match to {
        IpAddr::V4(to) if to.is_multicast() || to.is_broadcast() => SteeringOutcome::Multicast,
        IpAddr::V6(to) if to.is_multicast() => SteeringOutcome::Multicast,
        IpAddr::V4(to) if to.is_link_local() => SteeringOutcome::LinkLocal,
        IpAddr::V6(to) if to.is_unicast_link_local() => SteeringOutcome::LinkLocal,
        IpAddr::V4(to) if locals.v4.contains(&to) => SteeringOutcome::Local,
        IpAddr::V6(to) if locals.v6.contains(&to) => SteeringOutcome::Local,
        _ => SteeringOutcome::NoSocket,
    }
}

#[test]
fn program_agrees_with_model_on_damaged_packets() {
    let steering = steering();
    let seeds = [
        v4("203.0.113.1", 64),
        v4("192.0.2.1", 2),
        v4("224.0.0.1", 9),
        v4("169.254.0.1", 9),
        v6("2001:db8:1::1", 64),
        v6("2001:db8::1", 2),
        v6("fe80::1", 9),
        v6("ff05::1", 9),
        tagged(&v4("203.0.113.1", 64), &[(0x8100, 0)]),
        tagged(&v6("2001:db8:1::1", 64), &[(0x88a8, 0xf000), (0x8100, 0)]),
    ];
    // The seed is fixed so that a failure repeats.
    let mut rng = fastrand::Rng::with_seed(0x6669_6e67_6572);
    let mut random = || rng.usize(..);
    let mut seen = std::collections::HashSet::new();
    for round in 0..20_000 {
        let mut packet = seeds[random() % seeds.len()].clone();
        for _ in 0..random() % 3 {
            // Half of the damage is in the bytes that decide.
            let places = [0, 5, 12, 13, 14, 15, 16, 17, 21, 22, 30, 31, 38, 39];
            let at = if random() % 2 == 0 {
                random() % packet.len()
            } else {
                places[random() % places.len()]
            };
            packet[at] = if random() % 2 == 0 { random() as u8 } else { packet[at] ^ 1 };
        }
        if random() % 4 == 0 {
            packet.truncate(14 + random() % (packet.len() - 13));
        }
        let want = oracle(&packet);
        seen.insert(want);
        assert_eq!(run(&steering, &packet), want, "round {round}: {packet:02x?}");
    }
    assert!(seen.len() >= 9, "the damage reaches the rule's branches: {seen:?}");
}

/// Returns a time of the kernel's monotonic clock, this many seconds from now.
fn soon(seconds: f64) -> u64 {
    let uptime = std::fs::read_to_string("/proc/uptime").expect("the time since the start");
    let up: f64 = uptime.split(' ').next().and_then(|text| text.parse().ok()).expect("a number");
    ((up + seconds) * 1e9) as u64
}

#[test]
fn declined_flow_is_dropped_until_expiry() {
    let steering = for_gate(EarlyDropConfig { flows: 1024, ..EarlyDropConfig::default() });
    let declined = |packet: &[u8]| {
        let before = steering.counts().unwrap()[SteeringOutcome::Declined];
        let run = steering.program().test_run(packet, 1).expect("the program runs");
        let dropped = steering.counts().unwrap()[SteeringOutcome::Declined] - before == 1;
        assert_eq!(run.retval == Action::Drop as u32, dropped);
        dropped
    };
    let (four, six) = (v4("203.0.113.1", 64), v6("2001:db8:1::1", 64));
    let pair = |src: &str, dst: &str| (src.parse::<IpAddr>().unwrap(), dst.parse().unwrap());
    let (src4, dst4) = pair("203.0.113.7", "203.0.113.1");
    let (src6, dst6) = pair("2001::", "2001:db8:1::1");
    assert!(!declined(&four) && !declined(&six));
    steering.decline(src4, dst4, Some(soon(60.0))).unwrap();
    assert!(declined(&four) && !declined(&six));
    steering.decline(src6, dst6, Some(soon(60.0))).unwrap();
    assert!(declined(&six));
    assert_eq!(steering.declined_bytes().unwrap(), 14 + 28 + 14 + 48);
    // The reverse direction is another flow; packets for the host are still passed.
    steering.decline(dst4, src4, Some(soon(60.0))).unwrap();
    assert!(declined(&four) && !declined(&v4("203.0.113.2", 64)));
    let (_, own) = pair("203.0.113.7", "192.0.2.1");
    steering.decline(src4, own, Some(soon(60.0))).unwrap();
    assert_eq!(run(&steering, &v4("192.0.2.1", 64)), SteeringOutcome::Local);
    // An interface that is only observed drops nothing.
    steering.observe(true).unwrap();
    assert_eq!(run(&steering, &four), SteeringOutcome::Observed);
    steering.observe(false).unwrap();
    // After the expiry, and after a retraction.
    steering.decline(src4, dst4, Some(soon(-1.0))).unwrap();
    steering.decline(src6, dst6, None).unwrap();
    assert!(!declined(&four) && !declined(&six));
    assert!(steering.decline(src4, dst6, None).is_err(), "of two families");
    // More flows than the capacity: the last ones are present.
    for n in 0..5000u32 {
        let src = IpAddr::V4((0x0a00_0000 + n).into());
        steering
            .decline(src, dst4, Some(soon(60.0)))
            .expect("the least recently used flow is evicted");
    }
}

/// Packets that no socket receives are dropped on the interface of a gate that does not fail open;
/// packets for the host are still passed.
#[test]
fn packet_without_socket_is_dropped_when_fail_closed() {
    let closed = EarlyDropConfig { fail_closed: true, ..EarlyDropConfig::default() };
    let front = for_gate(closed);
    let open = for_gate(EarlyDropConfig::default());
    let undecided = [
        v4("203.0.113.1", 64),
        v6("2001:db8:1::1", 64),
        tagged(&v4("203.0.113.1", 64), &[(0x8100, 0)]),
        v4("240.0.0.1", 2),
    ];
    for packet in &undecided {
        let before = front.counts().unwrap();
        let end = front.program().test_run(packet, 1).expect("the program runs");
        assert_eq!(end.retval, Action::Drop as u32, "{packet:02x?}");
        let after = front.counts().unwrap();
        assert_eq!(after[SteeringOutcome::Unserved], before[SteeringOutcome::Unserved] + 1);
        assert_eq!(after.passed(), before.passed(), "it is not counted as passed");
        assert_eq!(
            run(&open, packet),
            SteeringOutcome::NoSocket,
            "a gate that fails open passes it"
        );
    }
    for (packet, want) in [
        (v4("192.0.2.1", 64), SteeringOutcome::Local),
        (v4("203.0.113.1", 1), SteeringOutcome::Expiring),
        (ethernet(MAC, 0x0806, &[0; 28]), SteeringOutcome::Arp),
    ] {
        assert_eq!(run(&front, &packet), want);
    }
    // An observed interface passes all packets, by the operator's configuration.
    front.observe(true).unwrap();
    assert_eq!(run(&front, &undecided[0]), SteeringOutcome::Observed);
}

/// A lookup without a table: one source of each family is blocked.
#[derive(Debug)]
struct Few {
    v4: u32,
    v6: u128,
}

impl BlockedSources for Few {
    fn append<'m>(&'m self, asm: &mut Assembler<'m>, entries: [Label; 2], exits: SourceExits) {
        let half = |asm: &mut Assembler<'m>, register, half: u64| {
            asm.load_u64(Reg::R3, half).jump_if(Cond::Ne, register, Reg::R3, exits.rest);
        };
        asm.bind(entries[0]);
        half(asm, Reg::R1, self.v4.into());
        asm.jump(exits.blocked).bind(entries[1]);
        half(asm, Reg::R1, (self.v6 >> 64) as u64);
        half(asm, Reg::R2, self.v6 as u64);
        asm.jump(exits.blocked);
    }
}

/// Returns a packet of a source to a remote address.
fn of(src: &str) -> Vec<u8> {
    match src.parse().unwrap() {
        IpAddr::V4(src) => {
            let mut packet = v4("198.51.100.7", 64);
            packet[26..30].copy_from_slice(&src.octets());
            packet
        }
        IpAddr::V6(src) => {
            let mut packet = v6("2001:db8:1::1", 64);
            packet[22..38].copy_from_slice(&src.octets());
            packet
        }
    }
}

/// Returns whether the program drops a packet as one of a blocked source, and checks its counters.
fn drops(steering: &Steering, packet: &[u8]) -> bool {
    let counts = || (steering.counts().unwrap(), steering.blocked_bytes().unwrap());
    let (before, bytes) = counts();
    let run = steering.program().test_run(packet, 1).expect("the program runs");
    let (after, more) = counts();
    let dropped = after[SteeringOutcome::Blocked] - before[SteeringOutcome::Blocked] == 1;
    assert_eq!(run.retval == Action::Drop as u32, dropped);
    assert_eq!(more - bytes, if dropped { packet.len() as u64 } else { 0 });
    let all = |counts: &fingerpost_port::af_xdp::steer::SteeringCounters| {
        counts.iter().map(|(_, count)| count).sum::<u64>()
    };
    assert_eq!(all(&after), all(&before) + 1);
    dropped
}

/// The lookup gets the source; its table has tests of its own (`xdp/tests/root_block.rs`).
#[test]
fn packet_of_blocked_source_is_dropped_and_counted() {
    let steering = declining();
    let few = Few { v4: 0xcb00_7107, v6: 0x2001_0db8_00ff_0000_0102_0304_0506_0708 };
    let [four, six] = ["203.0.113.7", "2001:db8:ff:0:102:304:506:708"].map(of);
    assert!(!drops(&steering, &four) && !drops(&steering, &six));
    let few = Extensions { blocked: Some(Arc::new(few)), ..Extensions::default() };
    steering.set_program(steering.load_with(&few).unwrap());
    assert!(drops(&steering, &four) && drops(&steering, &six));
    let others = ["203.0.113.6", "7.113.0.203", "2001:db8:ff:1:102:304:506:708", "2001:db8:ff::"];
    assert!(others.iter().all(|other| !drops(&steering, &of(other))));
    // Packets for the host are still passed, and an observed interface drops nothing.
    let to_host = |packet: &[u8], to: &[u8]| {
        let mut packet = packet.to_vec();
        let at = if to.len() == 4 { 30 } else { 38 };
        packet[at..at + to.len()].copy_from_slice(to);
        packet
    };
    assert_eq!(run(&steering, &to_host(&four, &[192, 0, 2, 1])), SteeringOutcome::Local);
    let link_local = [&[0xfe, 0x80][..], &[0; 14]].concat();
    assert_eq!(run(&steering, &to_host(&six, &link_local)), SteeringOutcome::LinkLocal);
    steering.observe(true).unwrap();
    assert_eq!(run(&steering, &six), SteeringOutcome::Observed);
    steering.observe(false).unwrap();
    assert!(drops(&steering, &six));
    steering.set_program(steering.load_with(&Extensions::default()).unwrap());
    assert!(!drops(&steering, &four) && !drops(&steering, &six));
}

/// A packet for the host with a source behind the gate is dropped, since the host would answer to
/// that source.
#[test]
fn host_packet_with_protected_source_is_dropped_and_counted() {
    let early = EarlyDropConfig { protected: 8, fail_closed: true, ..EarlyDropConfig::default() };
    let front = for_gate(early);
    let entry =
        |text: &str, len, drops| SourcePrefix { address: text.parse().unwrap(), len, drops };
    let inside = [
        entry("203.0.113.0", 24, true),
        entry("203.0.113.8", 29, false),
        entry("2001::", 16, true),
        entry("2001:db8:ffff::", 48, false),
    ];
    let from = |mut packet: Vec<u8>, src: &str| {
        match src.parse().unwrap() {
            IpAddr::V4(src) => packet[26..30].copy_from_slice(&src.octets()),
            IpAddr::V6(src) => packet[22..38].copy_from_slice(&src.octets()),
        }
        packet
    };
    let mine = [
        (v4("192.0.2.1", 64), SteeringOutcome::Local),
        (v4("203.0.113.200", 1), SteeringOutcome::Expiring),
        (v4("224.0.0.5", 64), SteeringOutcome::Multicast),
        (v4("169.254.1.1", 64), SteeringOutcome::LinkLocal),
        (v6("2001:db8::1", 64), SteeringOutcome::Local),
        (v6("2001:db8:5::5", 1), SteeringOutcome::Expiring),
        (v6("ff02::5", 64), SteeringOutcome::Multicast),
        (v6("fe80::5", 64), SteeringOutcome::LinkLocal),
    ];
    for (packet, want) in &mine {
        assert_eq!(run(&front, packet), *want, "no prefix is behind the gate yet");
    }
    front.set_protected(&inside).expect("there is room");
    let (mut dropped, mut bytes) = (0, 0);
    for (packet, want) in &mine {
        let six = packet[12..14] == [0x86, 0xdd];
        let [forged, honest, beside] = match six {
            false => ["203.0.113.7", "203.0.113.9", "198.51.100.1"],
            true => ["2001:db8::7", "2001:db8:ffff::7", "fd00::1"],
        };
        let packet = |src| tagged(&from(packet.clone(), src), &[(0x8100, 0)]);
        let result = front.program().test_run(&packet(forged), 1).expect("the program runs");
        assert_eq!(result.retval, Action::Drop as u32, "{want:?}");
        (dropped, bytes) = (dropped + 1, bytes + packet(forged).len() as u64 - 4);
        assert_eq!(front.counts().unwrap()[SteeringOutcome::Forged], dropped);
        assert_eq!(front.forged_bytes().unwrap(), bytes);
        assert_eq!(run(&front, &packet(honest)), *want, "an exception");
        assert_eq!(run(&front, &packet(beside)), *want);
        front.observe(true).unwrap();
        assert_eq!(run(&front, &packet(forged)), *want, "an interface that is only observed");
        front.observe(false).unwrap();
    }
    // Another list, then no list.
    front.set_protected(&inside[2..]).expect("there is room");
    assert_eq!(run(&front, &mine[0].0), SteeringOutcome::Local);
    front.set_protected(&[]).expect("nothing is written");
    assert_eq!(run(&front, &mine[4].0), SteeringOutcome::Local);
    let many: Vec<SourcePrefix> = (0..9).map(|n| entry(&format!("10.{n}.0.0"), 16, true)).collect();
    assert_eq!(front.set_protected(&many).unwrap_err().raw_os_error(), Some(28), "ENOSPC");
}
