//! Tests of the router on real interfaces: start from a configuration, stop, and release.
//!
//! Each test has its own network namespace, which ends with its thread:
//!
//! ```text
//!   a0 ═══ a1 ─ AF_XDP ─ Daemon ─ AF_XDP ─ b1 ═══ b0
//!   python's AF_PACKET sockets at a0 and b0 send and compare
//! ```
//!
//! Needs root, `ip` (Debian: iproute2) and `python3`, hence the feature `root-tests`; a test fails
//! and names the missing program.

mod network;

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use config::Config;
use control::plane::{HopTarget, Plane};
use control::{Daemon, StartError};
use datapath::Verdict;
use fingerpost_router::start_static;
use network::ip;
use port::af_xdp::bpf::asm::{Assembler, Helper, Reg};
use port::af_xdp::bpf::{LiveRun, Program};
use port::af_xdp::steer::SteeringOutcome;

fn network() {
    network::network(&["a", "b"]);
    ip("address add 198.51.100.1/24 dev a1");
}

fn has_program(interface: &str) -> bool {
    ip(&format!("-d link show {interface}")).contains("xdp")
}

const CONFIG: &str = r#"
[[interface]]
name = "a1"
[[interface]]
name = "b1"
[[nexthop]]
name = "east"
interface = "b1"
mac = "02:00:00:00:00:b0"
[[route]]
prefix = "203.0.113.0/24"
nexthop = "east"
[[route]]
prefix = "203.0.113.128/25"
nexthop = "blackhole"
[[route]]
prefix = "2001:db8::/32"
nexthop = "east"
"#;

fn config(text: &str) -> Config {
    let text = format!("{text}\n[control]\nsocket = \"\"\n");
    Config::parse(&text, &PathBuf::from("router.toml")).expect("the configuration is good")
}

/// Sends 100 times two packets to forward, one for the blackhole, one without a route and one for
/// the host; expects the first two at the other end, rewritten.
const PEER: &str = r#"
import socket, struct
def open_at(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind((name, 0)); s.settimeout(10); return s
def mac(last): return bytes([2, 0, 0, 0, 0, last])
def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return 0xffff - total
def v4(dst, ttl, number):
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 46, number, 0, ttl, 17, 0, bytes([198, 51, 100, 9]), dst)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + struct.pack("!26s", b"payload %d" % number)
def v6(limit, number):
    address = bytes([0x20, 1, 0xd, 0xb8] + [0] * 11 + [number])
    return struct.pack("!IHBB", 0x60000000, 6, 17, limit) + address + address + b"sixsix"
a, b = open_at("a0"), open_at("b0")
to_router = mac(0xa1) + mac(0xa0)
to_next = mac(0xb0) + mac(0xb1)
def take():
    while True:
        data, address = b.recvfrom(4096)
        if address[2] != 4: return data
for n in range(100):
    a.send(to_router + b"\x08\x00" + v4(bytes([203, 0, 113, n]), 64, n))
    a.send(to_router + b"\x86\xdd" + v6(64, n))
    a.send(to_router + b"\x08\x00" + v4(bytes([203, 0, 113, 200]), 64, n))
    a.send(to_router + b"\x08\x00" + v4(bytes([8, 8, 8, 8]), 64, n))
    a.send(to_router + b"\x08\x00" + v4(bytes([198, 51, 100, 1]), 64, n))
    for expect in (to_next + b"\x08\x00" + v4(bytes([203, 0, 113, n]), 63, n),
                   to_next + b"\x86\xdd" + v6(63, n)):
        got = take()
        assert got == expect, (n, got.hex(), expect.hex())
"#;

/// Lists the next hops with the number of their routes.
fn next_hops(plane: &Plane) -> Vec<(String, u64)> {
    let name = |target: &HopTarget| match target {
        HopTarget::Static(name) => name.to_string(),
        _ => "blackhole".to_owned(),
    };
    plane.hops().map(|(_, target, routes)| (name(target), routes)).collect()
}

#[test]
fn packets_are_forwarded_counted_and_nothing_stays() {
    network();
    let mut running = start_static(config(CONFIG)).expect("the router starts");
    assert!(has_program("a1") && has_program("b1"));
    let modes: Vec<_> = running.ports().into_iter().map(|port| (port.name, port.mode)).collect();
    assert_eq!(modes, [("a1".into(), "AF_XDP copy"), ("b1".into(), "AF_XDP copy")]);
    let next_hops = running.control_handle().call(|sync| next_hops(&sync.plane));
    assert_eq!(next_hops, Some(vec![("east".into(), 2), ("blackhole".into(), 1)]));

    let peer = Command::new("python3").args(["-c", PEER]).status();
    assert!(peer.expect("python3 runs (Debian package python3)").success());
    let start = Instant::now();
    while running.stats().received < 400 {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", running.stats());
        thread::sleep(Duration::from_millis(5));
    }
    assert!(running.alive());
    assert!(running.stop());
    let stats = running.stats();
    assert!(stats.balanced(), "{stats:?}");
    assert_eq!((stats.received, stats.sent()), (400, 200));
    assert_eq!(stats.count(Verdict::Blackhole), 100);
    assert_eq!(stats.count(Verdict::NoRoute), 100);
    let interfaces = running.interfaces();
    let ports: Vec<_> =
        interfaces.iter().map(|interface| interface.stats().expect("its counters")).collect();
    assert_eq!((ports[0].received, ports[1].transmitted), (400, 200));
    // The router never received those for the host.
    assert_eq!(ports[0].passed, 100);
    drop((interfaces, running));
    assert!(!has_program("a1") && !has_program("b1"));

    // The released interfaces can be opened again.
    let running = start_static(config(CONFIG)).expect("the router starts again");
    assert!(has_program("a1"));
    drop(running);
    assert!(!has_program("a1") && !has_program("b1"));
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    network();
    // b1 has at most one queue for each CPU, and certainly not 900.
    let many: Vec<_> = (0..900).map(|core| core.to_string()).collect();
    let queues = format!("{CONFIG}\n[workers]\ncores = [{}]\n", many.join(", "));
    let zero_copy = CONFIG.replace("name = \"b1\"", "name = \"b1\"\nmode = \"zero-copy\"");
    let core = format!("{CONFIG}\n[workers]\ncores = [900]\n");
    let taken = "[[interface]]\nname = \"a1\"\n[[interface]]\nname = \"b1\"\n";
    for (text, words) in [
        (queues.as_str(), "a1: 900 queues wanted"),
        (zero_copy.as_str(), "b1: "),
        (core.as_str(), "core 900"),
    ] {
        let error = start_static(config(text)).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
        assert!(!has_program("a1") && !has_program("b1"), "after {error}");
    }
    // The second router reports an error, and the first continues to run.
    let first = start_static(config("[[interface]]\nname = \"b1\"\n")).expect("it starts");
    let error = start_static(config(taken)).expect_err("b1 is taken");
    assert!(matches!(error, StartError::Port(_)), "{error}");
    assert!(error.to_string().starts_with("b1: another XDP program"), "{error}");
    assert!(!has_program("a1") && has_program("b1"));
    assert!(first.alive());
}

/// Writes a file of routes and the configuration that names it.
struct Files(PathBuf);

impl Files {
    fn write(&self, routes: &str, more: &str) {
        std::fs::write(self.0.join("routes.txt"), routes).expect("a file is written");
        let text = format!(
            "{CONFIG}\n[[routes]]\nfile = \"routes.txt\"\n[control]\nsocket = \"\"\n{more}"
        );
        std::fs::write(self.0.join("router.toml"), text).expect("a file is written");
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn reload_reads_the_files_of_routes_again_and_keeps_the_workers() {
    network();
    let folder = std::env::temp_dir().join(format!("fingerpost-static-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder is made");
    let files = Files(folder);
    files.write("10.0.0.0/8 east\n10.1.0.0/16 east\n", "");
    let config = Config::load(files.0.join("router.toml")).expect("the configuration is good");
    let mut running = start_static(config).expect("the router starts");
    let uses = |running: &Daemon| running.control_handle().call(|sync| next_hops(&sync.plane));
    assert_eq!(uses(&running), Some(vec![("east".into(), 4), ("blackhole".into(), 1)]));

    files.write("10.0.0.0/8 east\n10.2.0.0/16 blackhole\n10.3.0.0/16 east\n", "");
    let changes = running.reload().expect("the reload is done");
    assert_eq!((changes.routes, changes.replaced), (3, false), "{changes}");
    assert_eq!(changes.to_string(), "3 routes changed");
    assert_eq!(uses(&running), Some(vec![("east".into(), 4), ("blackhole".into(), 2)]));
    assert_eq!(running.reload().expect("nothing has changed").to_string(), "nothing to change");

    // A file with an error changes nothing.
    files.write("10.0.0.0/8 west\n", "");
    let error = running.reload().expect_err("there is no next hop west").to_string();
    assert!(error.contains("no [[nexthop]] has \"west\""), "{error}");
    assert_eq!(uses(&running), Some(vec![("east".into(), 4), ("blackhole".into(), 2)]));

    // Another engine needs other workers, which have the new routes.
    files.write("10.0.0.0/8 east\n", "[fib]\nengine = \"dir24_8\"\n");
    let changes = running.reload().expect("the reload is done");
    assert!(changes.replaced, "{changes}");
    assert_eq!(uses(&running), Some(vec![("east".into(), 3), ("blackhole".into(), 1)]));
    assert!(running.alive());

    // The kernel's keys have no effect on static routes.
    files.write("10.0.0.0/8 east\n", "[image]\npath = \"/tmp/x\"\n");
    let error = running.reload().expect_err("an image is refused").to_string();
    assert!(error.contains("image.path"), "{error}");
    assert!(running.stop());
}

/// Returns an IPv4 packet from a0 to a1 for which the router has a blackhole.
fn blackholed() -> Vec<u8> {
    let mut frame = [2, 0, 0, 0, 0, 0xa1, 2, 0, 0, 0, 0, 0xa0, 8, 0].to_vec();
    let mut header = [0; 20];
    header[..10].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    header[12..].copy_from_slice(&[198, 51, 100, 9, 203, 0, 113, 200]);
    let words = header.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    frame.extend(header);
    frame.resize(60, 0);
    frame
}

#[test]
fn overload_every_packet_taken_is_counted_as_received_and_dropped() {
    network();
    let mut running = start_static(config(CONFIG)).expect("the router starts");
    // The kernel itself sends on a0, and so into a1, faster than a worker receives.
    let mut asm = Assembler::new();
    let a0 = nix::net::if_::if_nametoindex("a0").expect("it is there");
    asm.mov(Reg::R1, a0 as i32).mov(Reg::R2, 0).call(Helper::Redirect).exit();
    let flood = Program::load("flood", &asm.finish().expect("it is sound")).expect("it loads");
    let frame = blackholed();
    let lost = |running: &Daemon| {
        let stats = running.stats();
        stats.iter().filter(|(verdict, _)| verdict.is_ports()).map(|(_, count)| count).sum::<u64>()
    };
    let start = Instant::now();
    while lost(&running) == 0 {
        let run = LiveRun { ifindex: a0, queue: 0, repeat: 200_000, batch: 64 };
        flood.run_live(&frame, run).expect("frames are sent");
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", running.stats());
    }
    assert!(running.stop());
    let (stats, a1) = (running.stats(), running.interfaces()[0].clone());
    assert!(stats.balanced(), "{stats:?}");
    let taken = a1.counts().expect("its counters")[SteeringOutcome::Taken];
    assert_eq!(stats.received, taken, "{stats:?}");
    assert_eq!(stats.dropped(), taken, "{stats:?}");
    // The interface, whose sockets are closed, counts the same packets.
    a1.stats().expect("its counters");
    thread::sleep(Duration::from_millis(150));
    let port = a1.stats().expect("its counters");
    assert_eq!(port.received + port.lost(), taken, "{port:?}");
    assert_eq!((port.lost(), port.undelivered), (lost(&running), 0), "{port:?}");
}
