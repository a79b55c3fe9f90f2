//! What a [`Host`] is given, the host's stack has: a datagram to one of its addresses
//! reaches a socket, and a packet to elsewhere is routed. Needs root.

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
    let mut frame = vec![0; 14];
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

#[test]
fn a_packet_that_is_given_back_is_received_and_the_device_goes() {
    unshare(CloneFlags::CLONE_NEWNET).expect("root may make a network namespace");
    ip("link set lo up");
    ip("address add 192.0.2.1/32 dev lo");
    // A route back, which a check of sources by reverse path asks for.
    let host = Host::open("fp0").expect("a TUN device");
    ip("route add 198.51.100.0/24 dev fp0");
    let socket = UdpSocket::bind("192.0.2.1:9999").expect("an address of the host's");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");

    assert!(host.give(&frame([192, 0, 2, 1], b"hello")));
    let mut got = [0; 64];
    let (len, from) = socket.recv_from(&mut got).expect("the datagram arrives");
    assert_eq!((&got[..len], from.ip().to_string()), (&b"hello"[..], "198.51.100.9".to_owned()));

    // No packet at all, or nothing behind the header: refused, not sent.
    assert!(!host.give(&[0; 9]));
    assert!(!host.give(&[0; 14]));
    let taken = Host::open("fp0").expect_err("the name is taken");
    assert!(matches!(taken.kind(), ErrorKind::ResourceBusy | ErrorKind::AlreadyExists), "{taken}");
    drop(host);
    assert!(!Command::new("ip").args(["link", "show", "fp0"]).output().unwrap().status.success());
}
