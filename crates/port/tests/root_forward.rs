//! Packets between real interfaces, with a check that no program remains.
//!
//! Each test has its own network namespace, which has no name and ends with the thread, with two
//! veth pairs:
//!
//! ```text
//!   a0 ═══ a1 ─ AF_XDP ─ one arena ─ AF_XDP ─ b0 ═══ b1
//!   python's AF_PACKET sockets at a0 and b1 send, receive and compare
//! ```
//!
//! Needs root, `ip` (Debian: iproute2) and `python3`; hence the feature `root-tests`. A test fails
//! with the name of a missing program.

use std::collections::HashSet;
use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use caps::{CapSet, Capability};
use fingerpost_port::af_xdp::bpf::Mode;
use fingerpost_port::af_xdp::steer::{EarlyDropConfig, STALL, SteeringOutcome};
use fingerpost_port::af_xdp::{
    Error, HostEgressShare, HostTraffic, Interface, Locals, ModeChoice, RingSizes, Socket, describe,
};
use fingerpost_port::{Arena, Frame, Port};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .expect("`ip` runs (Debian package iproute2)");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {stderr} (this test needs root)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Moves this thread into a new namespace with the two pairs.
fn network(queues: u32, mtu: u32) {
    unshare(CloneFlags::CLONE_NEWNET).expect("a new network namespace (this test needs root)");
    // IPv6 is disabled: the host would send packets of its own.
    for which in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        std::fs::write(path, "1").expect("IPv6 can be turned off in the namespace");
    }
    for (near, far, macs) in [("a1", "a0", ["a1", "a0"]), ("b0", "b1", ["b0", "b1"])] {
        let both = format!("numrxqueues {queues} numtxqueues {queues}");
        ip(&format!(
            "link add {near} mtu {mtu} address 02:00:00:00:00:{} {both} type veth \
             peer name {far} mtu {mtu} address 02:00:00:00:00:{} {both}",
            macs[0], macs[1]
        ));
        ip(&format!("link set {near} up"));
        ip(&format!("link set {far} up"));
    }
}

fn programs(interface: &str) -> bool {
    ip(&format!("-d link show {interface}")).contains("xdp")
}

/// Sends `rounds` times 64 frames each way, waits for them at the other end and compares them byte
/// by byte; then sends `strays` frames for the host. The protocol is 253 (RFC 3692): a socket of a
/// veth completes the checksum of a UDP datagram that looks partial, and random bytes do in 1 of
/// 65,536.
const PEER: &str = r#"
import os, socket, struct, sys
rounds, strays, ordered = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "ordered"
longest = int(sys.argv[4])
def open_at(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    SO_RCVBUFFORCE = 33
    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    s.bind((name, 0)); s.settimeout(10)
    return s
a, b = open_at("a0"), open_at("b1")
mac = lambda last: bytes([2, 0, 0, 0, 0, last])
def frame(to, source, number):
    size = 60 + number * 7 % (longest - 59)
    if number % 2:
        head = struct.pack("!BBHHHBBH", 0x45, 0, size - 14, number & 0xffff, 0, 64, 253, 0)
        ip = head + bytes([198, 18, 0, 1]) + bytes([203, 0, 113, number & 255]); kind = 0x0800
    else:
        ip = struct.pack("!IHBB", 0x60000000, size - 54, 253, 64) + bytes([0x20, 1] + [0] * 13 + [1])
        ip += bytes([0x20, 2] + [0] * 13 + [number & 255]); kind = 0x86dd
    payload = (struct.pack("!I", number) + os.urandom(longest))
    return (to + source + struct.pack("!H", kind) + ip + payload)[:size]
# Some with tags that bear a priority only, several behind one another, which do not come out.
def worn(packet, number):
    tags = b"".join((b"\x81\x00\x40\x00", b"\x88\xa8\x00\x00")[n % 2] for n in range(number % 5))
    return packet[:12] + tags + packet[12:] if len(packet) < 1400 else packet
def take(s):
    while True:
        data, address = s.recvfrom(1 << 16)
        if address[2] != 4: return data
count = 0
for _ in range(rounds):
    for out, into, to, source in ((a, b, mac(0xa1), mac(0xa0)), (b, a, mac(0xb0), mac(0xb1))):
        batch = [frame(to, source, count + n) for n in range(64)]
        for n, packet in enumerate(batch): out.send(worn(packet, count + n))
        count += 64
        came = [take(into) for _ in batch]
        # Two queues may overtake each other.
        if not ordered: batch.sort(); came.sort()
        for n, (packet, got) in enumerate(zip(batch, came)):
            assert got == packet, (n, packet.hex(), got.hex())
for _ in range(strays):
    a.send(b"\xff" * 6 + mac(0xa0) + b"\x08\x06" + bytes(46))
b.settimeout(0.2)
try:
    print("stray", take(b).hex()); sys.exit(1)
except TimeoutError: pass
"#;

type Open = fn(&str, u32, &Locals, ModeChoice) -> Result<Interface, Error>;

fn forward(choice: ModeChoice, mtu: u32, frame_size: u32, mode: &str) {
    forward_by(Interface::open, choice, mtu, (frame_size, 0), mode);
}

/// Forwards by frames of this size and this number of long ones.
fn forward_by(open: Open, choice: ModeChoice, mtu: u32, (size, long): (u32, u32), mode: &str) {
    const ROUNDS: u64 = 150;
    const STRAYS: u64 = 37;
    network(1, mtu);
    // The longest packet takes five buffers.
    let sizes = RingSizes::all(if long > 0 { 512 } else { 256 });
    let mut arena = Arena::with_long_frames(2 * sizes.frames() + 128, size, long).unwrap();
    let capacity = arena.capacity();
    let open = |name| open(name, 1, &Locals::default(), choice).unwrap();
    let (a1, b0) = (open("a1"), open("b0"));
    // A busy machine may delay this thread for long, without a lost packet.
    for interface in [&a1, &b0] {
        interface.set_stall(None).unwrap();
    }
    let mut a = Socket::bind(&a1, 0, &mut arena, sizes).unwrap();
    let mut b = Socket::bind(&b0, 0, &mut arena, sizes).unwrap();
    assert_eq!(a.mode(), mode, "{:?}", a1.fallback());
    assert_eq!(b.mode(), mode);
    assert!([32, 256].contains(&a.budget()), "{}", a.budget());
    assert_eq!(a.mac(), [2, 0, 0, 0, 0, 0xa1]);
    assert_eq!(b.mtu(), mtu as usize);
    assert!(programs("a1") && programs("b0"));

    let longest = if long > 0 { mtu + 14 } else { 1514 }.to_string();
    let mut child = Command::new("python3")
        .args(["-c", PEER, &ROUNDS.to_string(), &STRAYS.to_string(), "ordered", &longest])
        .spawn()
        .expect("python3 runs (Debian package python3)");
    let mut frames: Vec<Frame> = Vec::with_capacity(64);
    let started = Instant::now();
    let status = loop {
        let mut turn = |from: &mut Socket, to: &mut Socket| {
            let received = from.receive(&mut arena, 64, &mut frames);
            let sent = to.transmit(&mut arena, &mut frames);
            assert_eq!(sent, received, "the rings have room for a batch");
            to.flush(&mut arena);
        };
        turn(&mut a, &mut b);
        turn(&mut b, &mut a);
        assert_eq!(arena.available() + a.held() + b.held(), capacity, "no frame is lost");
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "the peer ends");
    };
    assert!(status.success(), "the peer got what it expected");

    let each = 64 * ROUNDS;
    for (port, interface, strays) in [(&a, &a1, STRAYS), (&b, &b0, 0)] {
        let stats = port.stats();
        assert_eq!(stats.received, each, "{stats:?}");
        assert_eq!(stats.transmitted, each, "{stats:?}");
        assert_eq!(stats.passed, strays, "{stats:?}");
        let lost = [stats.rx_ring_full, stats.fill_empty, stats.rx_dropped, stats.tx_invalid];
        assert_eq!(lost, [0; 4]);
        let counts = interface.counts().unwrap();
        assert_eq!(counts[SteeringOutcome::Taken], each, "{counts:?}");
        assert_eq!(counts[SteeringOutcome::Group], strays, "{counts:?}");
    }
    assert_eq!(a.stats().received_bytes, b.stats().transmitted_bytes);

    // The programs are detached with the values, and the host receives its packets again.
    drop((a, b));
    assert!(programs("a1"), "the interface is still held");
    drop((a1, b0));
    assert!(!programs("a1") && !programs("b0"), "no program is left");
    let before = received_by_host();
    let sent = Command::new("python3").args(["-c", ONE_FRAME]).status().unwrap();
    assert!(sent.success());
    let deadline = Instant::now() + Duration::from_secs(5);
    while received_by_host() == before {
        assert!(Instant::now() < deadline, "the host's stack sees packets again");
        thread::sleep(Duration::from_millis(5));
    }
}

const ONE_FRAME: &str = r#"
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(("a0", 0))
s.send(bytes([2, 0, 0, 0, 0, 0xa1, 2, 0, 0, 0, 0, 0xa0, 8, 0]) + bytes.fromhex(
    "4500001c000000004011") + bytes(2) + bytes([198, 18, 0, 1, 203, 0, 113, 1]) + bytes(26))
"#;

/// Packets that reached the host's IPv4 (`InReceives` of `/proc/net/snmp`).
fn received_by_host() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let line = text.lines().filter(|line| line.starts_with("Ip:")).nth(1).unwrap();
    line.split(' ').nth(3).unwrap().parse().unwrap()
}

#[test]
fn packets_cross_in_copy_mode() {
    forward(ModeChoice::Auto, 1500, 2048, "AF_XDP copy");
}

#[test]
fn packets_cross_in_generic_mode() {
    forward(ModeChoice::Generic, 1500, 2048, "AF_XDP generic");
}

#[test]
fn packets_cross_with_an_mtu_beyond_one_page() {
    forward(ModeChoice::Auto, 3700, 4096, "AF_XDP copy");
}

#[test]
fn packets_of_several_buffers_cross() {
    for open in [Interface::open, Interface::open_for_router] {
        forward_by(open, ModeChoice::Auto, 9000, (4096, 256), "AF_XDP copy");
        forward_by(open, ModeChoice::Generic, 9000, (4096, 256), "AF_XDP generic");
    }
    forward_by(Interface::open, ModeChoice::Copy, 16_106, (4096, 256), "AF_XDP copy");
}

#[test]
fn packets_cross_a_router_with_an_mtu_beyond_one_page() {
    let router = |choice, mtu, frame_size, mode| {
        forward_by(Interface::open_for_router, choice, mtu, (frame_size, 0), mode);
    };
    router(ModeChoice::Auto, 3700, 4096, "AF_XDP copy");
    router(ModeChoice::Auto, 9000, 2048, "AF_XDP copy");
    router(ModeChoice::Generic, 9000, 2048, "AF_XDP generic");
}

/// Two workers, each with an arena, a thread and one queue of both interfaces.
#[test]
fn two_queues_are_served_by_two_workers() {
    const ROUNDS: u64 = 60;
    network(2, 1500);
    let sizes = RingSizes::all(256);
    let open = |name| Interface::open(name, 2, &Locals::default(), ModeChoice::Copy).unwrap();
    let (a1, b0) = (open("a1"), open("b0"));
    for interface in [&a1, &b0] {
        interface.set_stall(None).unwrap();
    }
    let stop = AtomicBool::new(false);
    let counts = thread::scope(|scope| {
        let workers = [0, 1].map(|queue| {
            let mut arena = Arena::new(2 * sizes.frames() + 64, 2048).unwrap();
            let mut a = Socket::bind(&a1, queue, &mut arena, sizes).unwrap();
            let mut b = Socket::bind(&b0, queue, &mut arena, sizes).unwrap();
            assert_eq!((a.queue(), &*a.interface().name()), (queue, "a1"));
            let stop = &stop;
            scope.spawn(move || {
                if queue == 1 {
                    // Busy polling changes which thread does the work, but not the result.
                    a.busy_poll(20, 64).unwrap();
                    b.busy_poll(20, 64).unwrap();
                }
                let mut frames = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let mut moved = 0;
                    for (from, to) in [(0, 1), (1, 0)] {
                        let ports = [&mut a, &mut b];
                        moved += ports[from].receive(&mut arena, 64, &mut frames);
                        ports[to].transmit(&mut arena, &mut frames);
                        ports[to].flush(&mut arena);
                    }
                    if moved == 0 {
                        thread::yield_now();
                    }
                }
                [a.stats().received, b.stats().received]
            })
        });
        let status = Command::new("python3")
            .args(["-c", PEER, &ROUNDS.to_string(), "0", "any", "1514"])
            .status()
            .expect("python3 runs (Debian package python3)");
        stop.store(true, Ordering::Relaxed);
        let counts = workers.map(|worker| worker.join().unwrap());
        assert!(status.success(), "the peer got what it expected: {counts:?}");
        counts
    });
    let [[a_first, b_first], [a_second, b_second]] = counts;
    assert_eq!(a_first + a_second, 64 * ROUNDS);
    assert_eq!(b_first + b_second, 64 * ROUNDS);
    assert!(a_first > 0 && a_second > 0, "both queues have traffic: {counts:?}");
    assert_eq!(a1.counts().unwrap()[SteeringOutcome::Taken], 64 * ROUNDS);
}

#[test]
fn open_error_names_cause() {
    network(2, 1500);
    let none = Locals::default();
    let auto = ModeChoice::Auto;
    let sizes = RingSizes::all(64);
    let mut arena = Arena::new(1024, 2048).unwrap();

    for name in ["nosuch0", "", "a-name-that-is-too-long", "nul\0"] {
        let error = Interface::open(name, 1, &none, auto).unwrap_err();
        assert!(matches!(error, Error::NoInterface { .. }), "{name}: {error}");
    }
    let error = Interface::open("lo", 1, &none, auto).unwrap_err();
    assert!(matches!(error, Error::NotEthernet { .. }), "{error}");
    for queues in [0, 3] {
        let error = Interface::open("a1", queues, &none, auto).unwrap_err();
        assert!(matches!(error, Error::BadQueueCount { queues: 2, .. }), "{error}");
    }
    assert!(!programs("a1"), "a failure leaves nothing on the interface");

    let error = Interface::open("a1", 2, &none, ModeChoice::ZeroCopy)
        .and_then(|a1| Socket::bind(&a1, 0, &mut arena, sizes).map(drop))
        .unwrap_err();
    assert!(matches!(error, Error::NoMode { mode: "zero-copy", .. }), "{error}");
    assert!(!programs("a1"));
    assert_eq!(arena.available(), 1024, "a failure keeps no frame");

    let a1 = Interface::open("a1", 2, &none, auto).unwrap();
    assert_eq!(a1.attached(), Mode::Native);
    let error = Interface::open("a1", 2, &none, auto).unwrap_err();
    assert!(matches!(error, Error::OtherProgram { .. }), "{error}");
    let error = Socket::bind(&a1, 2, &mut arena, sizes).map(drop).unwrap_err();
    assert!(matches!(error, Error::NoQueue { queue: 2, queues: 2, .. }), "{error}");
    for size in [0, 32, 100] {
        let error = Socket::bind(&a1, 0, &mut arena, RingSizes::all(size)).map(drop).unwrap_err();
        assert!(matches!(error, Error::BadRing { .. }), "{error}");
    }
    let first = Socket::bind(&a1, 0, &mut arena, sizes).unwrap();
    let second = Socket::bind(&a1, 1, &mut arena, sizes).unwrap();
    let mut other = Arena::new(1024, 2048).unwrap();
    let error = Socket::bind(&a1, 0, &mut other, sizes).map(drop).unwrap_err();
    assert!(matches!(error, Error::QueueBusy { queue: 0, .. }), "{error}");
    assert_eq!(other.available(), 1024);

    // The queue is free when its socket is closed, for another arena too; and an arena may outlive
    // the socket that registered it.
    drop(first);
    let third = Socket::bind(&a1, 0, &mut other, sizes).unwrap();
    drop(third);
    let fourth = Socket::bind(&a1, 0, &mut arena, sizes).unwrap();
    drop((second, fourth));

    ip("link set a1 mtu 1771");
    let big = Interface::open("a1", 1, &none, auto);
    assert!(matches!(big, Err(Error::OtherProgram { .. })), "the first still holds it");
    drop(a1);
    let a1 = Interface::open("a1", 1, &none, auto).unwrap();
    let error = Socket::bind(&a1, 0, &mut arena, sizes).map(drop).unwrap_err();
    assert!(matches!(error, Error::MtuTooLarge { mtu: 1771, limit: 1770, .. }), "{error}");
    drop(a1);
    // The remedy in the error message works.
    ip("link set a1 mtu 1770");
    let a1 = Interface::open("a1", 1, &none, ModeChoice::Copy).unwrap();
    drop(Socket::bind(&a1, 0, &mut arena, sizes).unwrap());
    // Only long frames have room for all packets of a larger MTU.
    for (mtu, limit) in [(16_106, None), (16_107, Some(16_106))] {
        ip(&format!("link set a1 mtu {mtu}"));
        a1.set_mtu(mtu);
        let mut long = Arena::with_long_frames(1024, 4096, 8).unwrap();
        let error = Socket::bind(&a1, 0, &mut long, sizes).map(drop).err();
        let found = error.map(|error| match error {
            Error::MtuTooLarge { limit, .. } => limit,
            error => panic!("{error}"),
        });
        assert_eq!(found, limit, "{mtu}");
    }
}

#[test]
fn missing_capability_is_named() {
    network(1, 1500);
    let none = Locals::default();
    let sizes = RingSizes::all(64);
    let mut arena = Arena::new(1024, 2048).unwrap();
    let a1 = Interface::open("a1", 1, &none, ModeChoice::Auto).unwrap();
    let b0 = Interface::open("b0", 1, &none, ModeChoice::Auto).unwrap();
    // A limit of this process; the other tests have CAP_IPC_LOCK.
    let (_, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap();
    setrlimit(Resource::RLIMIT_MEMLOCK, 64 << 10, hard).unwrap();
    // For this thread only, which ends with the test.
    thread::spawn(move || {
        caps::drop(None, CapSet::Effective, Capability::CAP_IPC_LOCK).unwrap();
        let error = Socket::bind(&b0, 0, &mut arena, sizes).map(drop).unwrap_err();
        assert!(matches!(error, Error::MemoryLock { bytes: 0x20_0000, .. }), "{error}");
        drop(b0);
        // CAP_SYS_ADMIN includes CAP_BPF.
        for right in [Capability::CAP_SYS_ADMIN, Capability::CAP_BPF] {
            caps::drop(None, CapSet::Effective, right).unwrap();
        }
        let error = Interface::open("b0", 1, &none, ModeChoice::Auto).unwrap_err();
        let Error::Permission { missing, .. } = &error else { panic!("{error}") };
        assert_eq!(missing[..], ["CAP_BPF"], "{error}");
        caps::drop(None, CapSet::Effective, Capability::CAP_NET_RAW).unwrap();
        let error = Socket::bind(&a1, 0, &mut arena, sizes).map(drop).unwrap_err();
        let Error::Permission { missing, .. } = &error else { panic!("{error}") };
        assert_eq!(missing[..], ["CAP_NET_RAW"], "{error}");

        caps::drop(None, CapSet::Effective, Capability::CAP_NET_ADMIN).unwrap();
        let error = Interface::open("b0", 1, &none, ModeChoice::Auto).unwrap_err();
        let Error::Permission { missing, .. } = &error else { panic!("{error}") };
        let missing: HashSet<_> = missing.iter().copied().collect();
        let all = ["CAP_NET_RAW", "CAP_BPF", "CAP_NET_ADMIN"];
        assert_eq!(missing, HashSet::from(all), "all at once: {error}");
        assert!(error.to_string().starts_with("b0: "), "{error}");
    })
    .join()
    .unwrap();
    assert!(!programs("b0"));
}

#[test]
fn empty_arena_loses_packets_only() {
    network(1, 1500);
    let sizes = RingSizes::all(64);
    let mut arena = Arena::new(64, 2048).unwrap();
    let a1 = Interface::open("a1", 1, &Locals::default(), ModeChoice::Auto).unwrap();
    let mut a = Socket::bind(&a1, 0, &mut arena, sizes).unwrap();
    assert_eq!((arena.available(), a.held()), (0, 64));
    let flood = "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
                 s.bind(('a0', 0))\nfor n in range(200):\n s.send(bytes([2,0,0,0,0,0xa1,2,0,0,0,0,0xa0,8,0,0x45])\
                 + bytes(7) + bytes([64]) + bytes(37))";
    let send = || assert!(Command::new("python3").args(["-c", flood]).status().unwrap().success());
    // Until the first receive, they go to the host.
    send();
    assert_eq!(a1.counts().unwrap()[SteeringOutcome::Taken], 0);
    let mut frames = Vec::new();
    assert_eq!(a.receive(&mut arena, 16, &mut frames), 0);
    send();
    let wait = |sum: u64| {
        let deadline = Instant::now() + Duration::from_secs(5);
        while a1.counts().unwrap()[SteeringOutcome::Taken] < sum {
            assert!(Instant::now() < deadline, "{:?}", a1.counts());
            thread::sleep(Duration::from_millis(5));
        }
    };
    wait(200);
    while a.receive(&mut arena, 16, &mut frames) > 0 {}
    assert_eq!(frames.len(), 64, "as many as there were frames");
    let stats = a.stats();
    assert_eq!(stats.fill_empty, 200 - 64, "{stats:?}");
    assert_eq!((stats.rx_dropped, stats.rx_ring_full), (0, 0), "{stats:?}");
    assert_eq!((arena.available(), a.held()), (0, 0));

    // When frames are free again, packets arrive again.
    frames.drain(..).for_each(|frame| arena.free(frame));
    assert_eq!(a.receive(&mut arena, 16, &mut frames), 0);
    assert_eq!(a.held(), 64);
    send();
    wait(400);
    while a.receive(&mut arena, 16, &mut frames) > 0 {}
    assert_eq!(frames.len(), 64);
}

#[test]
fn killed_process_leaves_no_program() {
    const HOLD: &str = "FINGERPOST_TEST_HOLD";
    if env::var_os(HOLD).is_some() {
        // The child: holds the interface until it is killed.
        let mut arena = Arena::new(1024, 2048).unwrap();
        let a1 = Interface::open("a1", 1, &Locals::default(), ModeChoice::Auto).unwrap();
        let _port = Socket::bind(&a1, 0, &mut arena, RingSizes::all(64)).unwrap();
        writeln!(io::stdout(), "\nholding").unwrap();
        loop {
            thread::park();
        }
    }
    network(1, 1500);
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "killed_process_leaves_no_program", "--nocapture"])
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "holding"), "the child holds the interface");
    assert!(programs("a1"));
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while programs("a1") {
        assert!(Instant::now() < deadline, "the kernel takes the program away");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn recreated_device_keeps_counters_and_receives() {
    network(1, 1500);
    let sizes = RingSizes::all(64);
    let mut arena = Arena::new(1024, 2048).unwrap();
    let a1 = Interface::open("a1", 1, &Locals::default(), ModeChoice::Auto).unwrap();
    let mut frames = Vec::new();
    // Ten packets to a1, with this last byte of the MAC.
    let send = |last: u8| {
        let text = format!(
            "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\ns.bind(('a0', 0))\n\
             for n in range(10):\n s.send(bytes([2,0,0,0,0,{last},2,0,0,0,0,0xa0,8,0,0x45]) \
             + bytes(7) + bytes([64]) + bytes(37))"
        );
        assert!(Command::new("python3").args(["-c", &text]).status().unwrap().success());
    };
    let mut took = 0;
    let mut takes = |a: &mut Socket, arena: &mut Arena, last| {
        // Packets arrive from the first receive on.
        assert_eq!(a.receive(arena, 64, &mut frames), 0);
        send(last);
        took += 10;
        let deadline = Instant::now() + Duration::from_secs(5);
        while a1.counts().unwrap()[SteeringOutcome::Taken] < took || frames.len() < 10 {
            assert!(Instant::now() < deadline, "{:?}", a1.counts());
            a.receive(arena, 64, &mut frames);
        }
        frames.drain(..).for_each(|frame| arena.free(frame));
    };
    let mut a = Socket::bind(&a1, 0, &mut arena, sizes).unwrap();
    takes(&mut a, &mut arena, 0xa1);
    a1.set_mac([2, 0, 0, 0, 0, 0x77]).unwrap();
    takes(&mut a, &mut arena, 0x77);
    drop(a);

    ip("link delete a1");
    a1.detach();
    assert!(!a1.is_attached());
    ip("link add a1 address 02:00:00:00:00:78 type veth peer name a0 address 02:00:00:00:00:a0");
    ip("link set a0 up");
    ip("link set a1 up");
    let index = nix::net::if_::if_nametoindex("a1").unwrap();
    a1.reattach(index, [2, 0, 0, 0, 0, 0x78], 1500).unwrap();
    assert!(programs("a1") && a1.is_attached() && a1.index() == index);
    let mut a = Socket::bind(&a1, 0, &mut arena, sizes).unwrap();
    takes(&mut a, &mut arena, 0x78);
    a1.reattach(index + 1000, [2; 6], 1500).expect_err("there is no such device");
    assert!(!programs("a1") && !a1.is_attached());
}

#[test]
fn device_removes_no_vlan_tags_while_the_program_is_attached() {
    network(1, 1500);
    let removes = |name: &str| describe(name).unwrap().strips_vlan;
    let open = || Interface::open("a1", 1, &Locals::default(), ModeChoice::Generic).unwrap();
    assert!(removes("a1"), "a veth lets it be turned off");
    let a1 = open();
    assert!(!removes("a1") && !a1.strips_tags());
    a1.detach();
    assert!(removes("a1"));
    let index = a1.index();
    // The second time the removal is already off by this process.
    for _ in 0..2 {
        a1.reattach(index, [2, 0, 0, 0, 0, 0xa1], 1500).unwrap();
        assert!(!removes("a1"));
    }
    a1.reattach(index + 1000, [2; 6], 1500).expect_err("there is no such device");
    assert!(removes("a1"), "no program is attached");
    a1.reattach(index, [2, 0, 0, 0, 0, 0xa1], 1500).unwrap();
    ip("link set a1 down");
    ip("link set a1 name c1");
    drop(a1);
    assert!(removes("c1"), "the device is found by its index");

    // The removal stays off if it was off before.
    ip("link set c1 name a1");
    assert!(
        Command::new("ethtool").args(["-K", "a1", "rxvlan", "off"]).status().unwrap().success()
    );
    drop(open());
    assert!(!removes("a1"));
}

/// Sends this many packets for the router from a0 to a1.
fn send(packets: u64) {
    let text = format!(
        "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\ns.bind(('a0', 0))\n\
         for n in range({packets}):\n s.send(bytes([2,0,0,0,0,0xa1,2,0,0,0,0,0xa0,8,0,0x45]) \
         + bytes(7) + bytes([64]) + bytes(37))"
    );
    assert!(Command::new("python3").args(["-c", &text]).status().unwrap().success());
}

/// Sends frames of these lengths from the host by a device, all with a payload of zeros.
fn host_sends(device: &str, lengths: &[usize]) {
    let text = format!(
        "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\ns.bind(('{device}', 0))\n\
         for length in {lengths:?}:\n s.send(bytes([2,0,0,0,0,1,2,0,0,0,0,2,8,0]) + bytes(length - 14))"
    );
    assert!(Command::new("python3").args(["-c", &text]).status().unwrap().success());
}

#[test]
fn packets_of_the_host_are_counted_and_those_of_sockets_are_not() {
    network(1, 1500);
    let a1 = Interface::open("a1", 1, &Locals::default(), ModeChoice::Auto).unwrap();
    let mut arena = Arena::new(256, 2048).unwrap();
    let mut socket = Socket::bind(&a1, 0, &mut arena, RingSizes::all(64)).unwrap();
    host_sends("a1", &[60]);
    let counter = a1.count_host_egress().unwrap();
    let traffic = |packets, bytes| HostTraffic { packets, bytes };
    assert_eq!(counter.traffic(), traffic(0, 0), "nothing since it was made");
    host_sends("a1", &[60, 1514, 100]);
    assert_eq!(counter.traffic(), traffic(3, 1674));
    // Another device, and a packet of the socket, which leaves.
    host_sends("b0", &[60]);
    let mut frames = vec![arena.copy_in(&[0; 64]).unwrap()];
    assert_eq!(socket.transmit(&mut arena, &mut frames), 1);
    socket.flush(&mut arena);
    assert_eq!(counter.traffic(), traffic(3, 1674));

    let mut shares: Vec<_> =
        (0..2).map(|_| HostEgressShare::new(a1.count_host_egress().unwrap(), 2)).collect();
    host_sends("a1", &[61; 3]);
    let takes = |shares: &mut Vec<HostEgressShare>| {
        shares.iter_mut().map(HostEgressShare::take).collect::<Vec<_>>()
    };
    assert_eq!(takes(&mut shares), [traffic(1, 91); 2]);
    host_sends("a1", &[61; 1]);
    assert_eq!(takes(&mut shares), [traffic(1, 31); 2], "the rest of the division is not lost");
    // A counter that nothing uses ends; the next one begins at 0.
    let other = Interface::open("b0", 1, &Locals::default(), ModeChoice::Auto).unwrap();
    drop(other.count_host_egress().unwrap());
    host_sends("b0", &[60]);
    assert_eq!(other.count_host_egress().unwrap().traffic(), traffic(0, 0));

    // The same counter follows the device that replaces it, and ends with the program.
    ip("link del a1");
    ip("link add a1 address 02:00:00:00:00:a1 type veth peer name a0");
    ip("link set a1 up");
    ip("link set a0 up");
    let link = ip("-o link show a1");
    let index = link.split(':').next().unwrap().trim().parse().unwrap();
    a1.reattach(index, [2, 0, 0, 0, 0, 0xa1], 1500).unwrap();
    host_sends("a1", &[70]);
    assert_eq!(counter.traffic(), traffic(8, 1674 + 4 * 61 + 70));
    a1.detach();
    host_sends("a1", &[70]);
    assert_eq!(counter.traffic(), traffic(8, 1674 + 4 * 61 + 70));
}

/// Waits until the steering program has counted this many packets with an outcome.
fn counted(interface: &Interface, which: SteeringOutcome, count: u64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while interface.counts().unwrap()[which] < count {
        assert!(Instant::now() < deadline, "{which:?}: {:?}", interface.counts());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn stalled_worker_gets_no_packets_until_it_receives() {
    let guard = EarlyDropConfig { fail_closed: true, ..EarlyDropConfig::default() };
    for (guard, end) in [(None, SteeringOutcome::Stalled), (Some(guard), SteeringOutcome::Unserved)]
    {
        network(1, 1500);
        let sizes = RingSizes::all(64);
        let mut arena = Arena::new(256, 2048).unwrap();
        let (none, auto) = (Locals::default(), ModeChoice::Auto);
        let a1 = match guard {
            None => Interface::open("a1", 1, &none, auto),
            Some(early) => Interface::open_for_gate("a1", 1, &none, auto, early, &mut None),
        };
        let a1 = a1.unwrap();
        let mut a = Socket::bind(&a1, 0, &mut arena, sizes).unwrap();
        let mut frames = Vec::new();
        assert_eq!(a.receive(&mut arena, 16, &mut frames), 0);
        // No packet came, so none waits: a sleeping worker does not count as stalled.
        thread::sleep(Duration::from_millis(300));
        send(1);
        counted(&a1, SteeringOutcome::Taken, 1);
        // It was sent to the socket, and is not received.
        thread::sleep(Duration::from_millis(300));
        send(10);
        counted(&a1, end, 10);
        let counts = a1.counts().unwrap();
        assert_eq!((counts[SteeringOutcome::Taken], counts[end]), (1, 10), "{counts:?}");
        assert_eq!(counts.passed(), if end.drops() { 0 } else { 10 });
        // The limit can be disabled.
        a1.set_stall(None).unwrap();
        send(1);
        counted(&a1, SteeringOutcome::Taken, 2);
        a1.set_stall(Some(STALL)).unwrap();
        send(1);
        counted(&a1, end, 11);
        // The worker receives again, and so packets arrive again.
        assert_eq!(a.receive(&mut arena, 16, &mut frames), 2);
        assert_eq!(a.receive(&mut arena, 16, &mut frames), 0);
        send(1);
        counted(&a1, SteeringOutcome::Taken, 3);
        assert_eq!(a.receive(&mut arena, 16, &mut frames), 1);
    }
}

#[test]
fn redirected_packets_equal_received_and_lost_under_overload() {
    network(1, 1500);
    let sizes = RingSizes::all(64);
    let mut arena = Arena::new(128, 2048).unwrap();
    let a1 = Interface::open("a1", 1, &Locals::default(), ModeChoice::Auto).unwrap();
    let mut a = Socket::bind(&a1, 0, &mut arena, sizes).unwrap();
    let mut frames = Vec::new();
    a.receive(&mut arena, 16, &mut frames);
    // More packets than the rings hold, before the worker counts as stalled.
    send(3000);
    while a.receive(&mut arena, 16, &mut frames) > 0 {
        frames.drain(..).for_each(|frame| arena.free(frame));
    }
    let rest = || {
        // The first call only records the taken packets; 100 ms later all have arrived or are lost.
        a1.stats().unwrap();
        thread::sleep(Duration::from_millis(150));
        let (stats, counts) = (a1.stats().unwrap(), a1.counts().unwrap());
        (counts[SteeringOutcome::Taken], counts[SteeringOutcome::Stalled], stats)
    };
    let (taken, stalled, stats) = rest();
    assert_eq!(taken + stalled, 3000);
    assert!(stats.lost() > 0, "{stats:?}");
    assert_eq!(taken, stats.received + stats.lost(), "{stats:?}");
    assert_eq!(stats.undelivered, 0, "{stats:?}");
    assert_eq!(stats.fill_ring_empty, stats.fill_empty, "{stats:?}");
    assert_eq!(stats.received, a.stats().received);

    // A socket closes with packets in its ring: they never arrive, and are counted.
    send(3);
    counted(&a1, SteeringOutcome::Taken, taken + 3);
    drop(a);
    let (taken, _, stats) = rest();
    assert_eq!(stats.undelivered, 3, "{stats:?}");
    assert_eq!(taken, stats.received + stats.lost(), "{stats:?}");
    // Another socket continues the counts.
    let mut b = Socket::bind(&a1, 0, &mut arena, sizes).unwrap();
    b.receive(&mut arena, 16, &mut frames);
    send(2);
    counted(&a1, SteeringOutcome::Taken, taken + 2);
    assert_eq!(b.receive(&mut arena, 16, &mut frames), 2);
    let (taken, _, stats) = rest();
    assert_eq!(taken, stats.received + stats.lost(), "{stats:?}");
    assert_eq!(b.stats().received, 2);
}
