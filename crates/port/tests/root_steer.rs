//! The steering program in the kernel, packet by packet.
//!
//! The program runs under `BPF_PROG_TEST_RUN`, without a device, so no socket
//! is bound and what the router would take ends as `NoSocket`. Each literal
//! packet is one line of the rule; then the program is compared with a twin in
//! Rust, written from the rule and not from the program, on thousands of
//! damaged packets.
//!
//! Needs root (`CAP_BPF`, `CAP_NET_ADMIN`), hence the feature `root-tests`.

use std::net::IpAddr;

use fingerpost_port::af_xdp::Locals;
use fingerpost_port::af_xdp::bpf::asm::Action;
use fingerpost_port::af_xdp::steer::{Steered, Steering};

const MAC: [u8; 6] = [0x02, 0xfe, 0x00, 0x00, 0x80, 0x01];
const PEER: [u8; 6] = [0x02, 0xfe, 0x00, 0x00, 0x80, 0x02];

fn locals() -> Locals {
    ["192.0.2.1", "198.51.100.255", "2001:db8::1"]
        .into_iter()
        .map(|text| text.parse::<IpAddr>().expect("an address"))
        .collect()
}

fn steering() -> Steering {
    Steering::new(MAC, 4, &locals()).expect("the program loads (this test needs root)")
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

/// Runs one packet and returns the one counter that it moved.
fn run(steering: &Steering, packet: &[u8]) -> Steered {
    let before = steering.counts().expect("the counters can be read");
    let run = steering.program().test_run(packet, 1).expect("the program runs");
    let after = steering.counts().expect("the counters can be read");
    assert_eq!(run.output, packet, "steering changes nothing in a packet");
    let moved: Vec<Steered> = after
        .iter()
        .zip(before.iter())
        .filter(|((_, after), (_, before))| after != before)
        .map(|((which, after), (_, before))| {
            assert_eq!(after, before + 1);
            which
        })
        .collect();
    let [one] = moved[..] else { panic!("{moved:?} were counted for one packet") };
    assert_ne!(one, Steered::Taken, "no socket is bound");
    assert_eq!(run.retval, Action::Pass as u32, "{one:?}");
    one
}

#[test]
fn each_packet_goes_where_the_rule_says() {
    let steering = steering();
    let broadcast = [0xff; 6];
    let all_nodes = [0x33, 0x33, 0, 0, 0, 1];
    let table: &[(&str, Vec<u8>, Steered)] = &[
        ("IPv4", v4("203.0.113.1", 64), Steered::NoSocket),
        ("IPv4, TTL 2", v4("203.0.113.1", 2), Steered::NoSocket),
        ("IPv4, TTL 1", v4("203.0.113.1", 1), Steered::Expiring),
        ("IPv4, TTL 0", v4("203.0.113.1", 0), Steered::Expiring),
        ("IPv4 to me", v4("192.0.2.1", 64), Steered::Local),
        ("IPv4 to my other address", v4("198.51.100.255", 64), Steered::Local),
        ("IPv4 to my neighbour", v4("192.0.2.2", 64), Steered::NoSocket),
        ("IPv4 multicast, first", v4("224.0.0.0", 64), Steered::Multicast),
        ("IPv4 multicast, last", v4("239.255.255.255", 64), Steered::Multicast),
        ("IPv4 before multicast", v4("223.255.255.255", 64), Steered::NoSocket),
        ("IPv4 class E is the router's to drop", v4("240.0.0.1", 64), Steered::NoSocket),
        ("IPv4 broadcast", v4("255.255.255.255", 64), Steered::Multicast),
        ("IPv4 link-local", v4("169.254.3.4", 64), Steered::LinkLocal),
        ("IPv4 beside link-local", v4("169.253.3.4", 64), Steered::NoSocket),
        ("IPv4 zero is the router's to drop", v4("0.0.0.0", 64), Steered::NoSocket),
        ("IPv6", v6("2001:db8:1::1", 64), Steered::NoSocket),
        ("IPv6, hop limit 1", v6("2001:db8:1::1", 1), Steered::Expiring),
        ("IPv6, hop limit 2", v6("2001:db8:1::1", 2), Steered::NoSocket),
        ("IPv6 to me", v6("2001:db8::1", 64), Steered::Local),
        ("IPv6 to my neighbour", v6("2001:db8::2", 64), Steered::NoSocket),
        ("IPv6 link-local, first", v6("fe80::1", 64), Steered::LinkLocal),
        ("IPv6 link-local, last", v6("febf:ffff::1", 64), Steered::LinkLocal),
        ("IPv6 beside link-local", v6("fec0::1", 64), Steered::NoSocket),
        ("IPv6 multicast", v6("ff02::1", 64), Steered::Multicast),
        ("ARP to me", ethernet(MAC, 0x0806, &[0; 28]), Steered::Arp),
        ("ARP to all", ethernet(broadcast, 0x0806, &[0; 28]), Steered::Group),
        ("a neighbour solicitation", ethernet(all_nodes, 0x86dd, &[0x60; 72]), Steered::Group),
        ("to my peer", ethernet(PEER, 0x0800, &[0x45; 28]), Steered::NotMine),
        ("one VLAN tag", ethernet(MAC, 0x8100, &[0; 40]), Steered::Tagged),
        ("two VLAN tags", ethernet(MAC, 0x88a8, &[0; 40]), Steered::Tagged),
        ("the old two tags", ethernet(MAC, 0x9100, &[0; 40]), Steered::Tagged),
        ("LLDP", ethernet(MAC, 0x88cc, &[0; 40]), Steered::NotIp),
        ("a header and nothing in it", ethernet(MAC, 0x0800, &[]), Steered::Unparsed),
        ("IPv4, one byte short", v4("203.0.113.1", 64)[..33].to_vec(), Steered::Unparsed),
        ("IPv4, exactly its header", v4("203.0.113.1", 64)[..34].to_vec(), Steered::NoSocket),
        ("IPv6, one byte short", v6("2001:db8:1::1", 64)[..53].to_vec(), Steered::Unparsed),
        ("IPv6, exactly its header", v6("2001:db8:1::1", 64)[..54].to_vec(), Steered::NoSocket),
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
        let want = if good { Steered::NoSocket } else { Steered::Unparsed };
        assert_eq!(run(&steering, &packet), want, "version and length {first:#x}");
    }
}

#[test]
fn own_addresses_come_and_go() {
    let steering = steering();
    let (mine, next) = (v4("192.0.2.1", 64), v4("192.0.2.9", 64));
    assert_eq!(run(&steering, &mine), Steered::Local);
    let other: Locals = ["192.0.2.9".parse::<IpAddr>().unwrap()].into_iter().collect();
    steering.set_locals(&other).unwrap();
    assert_eq!(run(&steering, &mine), Steered::NoSocket);
    assert_eq!(run(&steering, &next), Steered::Local);
    assert_eq!(run(&steering, &v6("2001:db8::1", 64)), Steered::NoSocket);
    steering.set_locals(&locals()).unwrap();
    assert_eq!(run(&steering, &mine), Steered::Local);
    assert_eq!(run(&steering, &next), Steered::NoSocket);
    assert_eq!(run(&steering, &v6("2001:db8::1", 64)), Steered::Local);
}

#[test]
fn an_interface_that_is_observed_passes_what_it_would_take() {
    let steering = steering();
    let (theirs, mine) = (v4("203.0.113.1", 64), v4("192.0.2.1", 64));
    for only in [true, false, true] {
        steering.observe(only).unwrap();
        assert_eq!(steering.observes().unwrap(), only);
        let want = if only { Steered::Observed } else { Steered::NoSocket };
        assert_eq!(run(&steering, &theirs), want);
        assert_eq!(run(&steering, &v6("2001:db8:1::1", 64)), want);
        assert_eq!(run(&steering, &mine), Steered::Local, "the host's own either way");
    }
}

#[test]
fn more_own_addresses_than_fit_are_an_error() {
    let many: Locals =
        (0..5000_u32).map(|n| IpAddr::from((0x0a00_0000 + n).to_be_bytes())).collect();
    let error = steering().set_locals(&many).expect_err("4096 fit");
    assert_eq!(error.raw_os_error(), Some(7), "E2BIG: {error}");
}

/// The rule, from its words: the host keeps what the router does not forward.
fn twin(packet: &[u8]) -> Steered {
    let locals = locals();
    if packet[..6] != MAC {
        return if packet[0] % 2 == 1 { Steered::Group } else { Steered::NotMine };
    }
    let (header, left, to) = match u16::from_be_bytes([packet[12], packet[13]]) {
        0x0806 => return Steered::Arp,
        0x8100 | 0x88a8 | 0x9100 => return Steered::Tagged,
        0x0800 => {
            let header = &packet[14..];
            if header.len() < 20 || header[0] / 16 != 4 || header[0] % 16 < 5 {
                return Steered::Unparsed;
            }
            let to: [u8; 4] = header[16..20].try_into().unwrap();
            (header, header[8], IpAddr::from(to))
        }
        0x86dd => {
            let header = &packet[14..];
            if header.len() < 40 || header[0] / 16 != 6 {
                return Steered::Unparsed;
            }
            let to: [u8; 16] = header[24..40].try_into().unwrap();
            (header, header[7], IpAddr::from(to))
        }
        _ => return Steered::NotIp,
    };
    assert!(header.len() >= 20);
    match to {
        _ if left <= 1 => Steered::Expiring,
        IpAddr::V4(to) if to.is_multicast() || to.is_broadcast() => Steered::Multicast,
        IpAddr::V6(to) if to.is_multicast() => Steered::Multicast,
        IpAddr::V4(to) if to.is_link_local() => Steered::LinkLocal,
        IpAddr::V6(to) if to.is_unicast_link_local() => Steered::LinkLocal,
        IpAddr::V4(to) if locals.v4.contains(&to) => Steered::Local,
        IpAddr::V6(to) if locals.v6.contains(&to) => Steered::Local,
        _ => Steered::NoSocket,
    }
}

#[test]
fn the_program_agrees_with_its_twin_on_damaged_packets() {
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
    ];
    // SplitMix64; the seed is fixed so that a failure repeats.
    let mut state = 0x6669_6e67_6572_u64;
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize
    };
    let mut seen = std::collections::HashSet::new();
    for round in 0..20_000 {
        let mut packet = seeds[random() % seeds.len()].clone();
        for _ in 0..random() % 3 {
            // Half of the damage where the decisions are made.
            let places = [0, 5, 12, 13, 14, 21, 22, 30, 31, 38, 39];
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
        let want = twin(&packet);
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
fn declined_flows_end_here_until_their_time_is_over() {
    let steering = Steering::declining(MAC, 4, &locals(), 1024).expect("the program loads");
    let declined = |packet: &[u8]| {
        let before = steering.counts().unwrap()[Steered::Declined];
        let run = steering.program().test_run(packet, 1).expect("the program runs");
        let dropped = steering.counts().unwrap()[Steered::Declined] - before == 1;
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
    // The other way round it is another flow; what is the host's stays so.
    steering.decline(dst4, src4, Some(soon(60.0))).unwrap();
    assert!(declined(&four) && !declined(&v4("203.0.113.2", 64)));
    let (_, own) = pair("203.0.113.7", "192.0.2.1");
    steering.decline(src4, own, Some(soon(60.0))).unwrap();
    assert_eq!(run(&steering, &v4("192.0.2.1", 64)), Steered::Local);
    // An interface that is only observed drops nothing.
    steering.observe(true).unwrap();
    assert_eq!(run(&steering, &four), Steered::Observed);
    steering.observe(false).unwrap();
    // Over, and forgiven.
    steering.decline(src4, dst4, Some(soon(-1.0))).unwrap();
    steering.decline(src6, dst6, None).unwrap();
    assert!(!declined(&four) && !declined(&six));
    assert!(steering.decline(src4, dst6, None).is_err(), "of two families");
    // More than there is room for: the last ones are there.
    for n in 0..5000u32 {
        let src = IpAddr::V4((0x0a00_0000 + n).into());
        steering.decline(src, dst4, Some(soon(60.0))).expect("what was not met for long goes");
    }
}
