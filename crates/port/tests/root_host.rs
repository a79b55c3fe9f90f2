//! The host's stack receives each packet given to a [`Host`] as from its ingress interface: a
//! datagram to one of its addresses reaches a socket, and a packet to elsewhere is routed by the
//! rules for that interface. Needs root.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use fingerpost_port::Host;
use nix::sched::{CloneFlags, unshare};

/// Builds a frame with a UDP datagram over IPv4, its header checksum right.
fn frame(dst: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let total = (28 + payload.len()) as u16;
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 9, 0, 0, 0, 0];
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[16..20].copy_from_slice(&dst);
    let words = ip.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    // To another host's MAC; IPv4 follows.
    let mut frame = vec![2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 9, 8, 0];
    frame.extend(ip);
    frame.extend([0x12, 0x34, 0x27, 0x0f]);
    frame.extend((8 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().expect("ip is installed");
    assert!(status.success(), "ip {words}");
}

/// Creates a pair of devices, both up, and returns the number of the first one.
fn pair(name: &str, peer: &str) -> u32 {
    ip(&format!("link add {name} type veth peer name {peer}"));
    for end in [name, peer] {
        ip(&format!("link set {end} up"));
    }
    nix::net::if_::if_nametoindex(name).expect("it is there")
}

fn sent(interface: &str) -> u64 {
    let args = ["-s", "-j", "link", "show", "dev", interface];
    let output = Command::new("ip").args(args).output().expect("ip is installed");
    let text = String::from_utf8(output.stdout).expect("JSON");
    let tx = text.split("\"tx\":").nth(1).expect("the sent packets");
    let packets = tx.split("\"packets\":").nth(1).expect("packets");
    packets.split(',').next().and_then(|count| count.parse().ok()).expect("a number")
}

#[test]
fn injected_packet_enters_on_its_interface() {
    unshare(CloneFlags::CLONE_NEWNET).expect("root may make a network namespace");
    ip("link set lo up");
    // With IPv6 the devices send packets of their own, which `sent` would count. A kernel without IPv6
    // has no such setting.
    for scope in ["all", "default"] {
        let setting = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        let _ = std::fs::write(setting, "1");
    }
    let (v0, w0) = (pair("v0", "v1"), pair("w0", "w1"));
    pair("x0", "x1");
    ip("address add 192.0.2.1/24 dev v0");
    ip("address add 192.0.3.1/24 dev w0");
    ip("address add 192.0.4.1/24 dev x0");
    ip("route add 198.51.100.0/24 via 192.0.2.9");
    ip("neigh add 192.0.4.9 lladdr 02:00:00:00:00:09 dev x0 nud permanent");
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("the thread's namespace");
    // Only packets from w0 have a route to 203.0.113.0/24.
    ip("route add 203.0.113.0/24 via 192.0.4.9 table 100");
    ip("rule add iif w0 lookup 100");
    ip("route add 198.51.100.0/24 dev w0 table 100");
    let host = Host::open("fp0").expect("a TAP device");
    host.register(v0).expect("v0 is there");
    host.register(w0).expect("w0 is there");
    host.register(w0).expect("once is enough");

    let socket = UdpSocket::bind("192.0.2.1:9999").expect("an address of the host's");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    assert!(host.give(v0, &frame([192, 0, 2, 1], b"hello")));
    let mut got = [0; 64];
    let (len, from) = socket.recv_from(&mut got).expect("the datagram arrives");
    assert_eq!((&got[..len], from.ip().to_string()), (&b"hello"[..], "198.51.100.9".to_owned()));

    // Forwarded within the write.
    let before = sent("x0");
    assert!(host.give(v0, &frame([203, 0, 113, 1], b"not by v0")));
    assert_eq!(sent("x0"), before, "v0's table has no such route");
    assert!(host.give(w0, &frame([203, 0, 113, 1], b"by w0")));
    assert_eq!(sent("x0"), before + 1);

    // A recreated interface has another number; the place of the old one is free again.
    ip("link del w0");
    assert!(host.register(w0).is_ok(), "it was known");
    let second = pair("w0", "w1");
    host.register(second).expect("w0 is there again");
    assert!(host.give(second, &frame([203, 0, 113, 1], b"by w0")));
    let missing = host.register(second + 1000).expect_err("no interface has that number");
    assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));

    // An empty frame, or one without payload, is rejected and not sent.
    assert!(!host.give(v0, &[0; 9]));
    assert!(!host.give(v0, &[0; 14]));
    let taken = Host::open("fp0").expect_err("the name is taken");
    assert!(matches!(taken.kind(), ErrorKind::ResourceBusy | ErrorKind::AlreadyExists), "{taken}");
    drop(host);
    assert!(!Command::new("ip").args(["link", "show", "fp0"]).output().unwrap().status.success());
}
