//! Tests of a daemon that changes its configuration or replaces its workers while packets pass: every packet arrives
//! exactly once, whether the daemon or the kernel forwards it.
//!
//! ```text
//!   a0 ═══ a1 ─ Daemon or kernel ─ b1 ═══ b0      c1 ═══ c0 comes and goes
//!   python sends numbered packets at a0, and records those that arrive at b0
//! ```
//!
//! Needs root, `ip` and `python3`, hence the feature `root-tests`.

mod network;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use config::Config;
use control::daemon::Guard;
use control::role::PlainRouter;
use control::start::{HookFactory, WorkerHook};
use control::{Daemon, ReloadError};
use datapath::stats::WorkerStats;
use datapath::{EgressBatch, Hook, IngressBatch, PacketHook, Tunnels, Verdict};
use network::{ip, set};
use port::Arena;
use port::af_xdp::steer::SteeringOutcome;

/// Moves this thread into a new namespace whose kernel forwards from a1 to b1.
fn network() {
    network::network(&["a", "b", "c"]);
    network::forwards();
    for end in ["a0", "b0", "c0"] {
        // Packets that have left must not be forwarded back.
        set(&format!("ipv4/conf/{end}/forwarding"), "0");
    }
}

fn config(text: &str) -> Config {
    let text = format!("{text}\n[control]\nsocket = \"\"\n");
    Config::parse(&text, &PathBuf::from("router.toml")).expect("the configuration is good")
}

const TWO: &str = "interface = [{ name = \"a1\" }, { name = \"b1\" }]";
const THREE: &str = "interface = [{ name = \"c1\" }, { name = \"a1\" }, { name = \"b1\" }]";

/// Sends some thousand numbered packets per second until its input is closed; then writes the
/// numbers of packets that it sent, that arrived, and that arrived twice.
const PEER: &str = r#"
import os, select, socket, struct, sys, threading, time
def open_at(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
    s.bind((name, 0)); s.settimeout(1); return s
def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return 0xffff - total
head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 46, 0, 0, 64, 17, 0, bytes([198, 51, 100, 9]), bytes([203, 0, 113, 5]))
head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
mac = lambda last: bytes([2, 0, 0, 0, 0, last])
start = mac(0xa1) + mac(0xa0) + b"\x08\x00" + head
a, b = open_at("a0"), open_at("b0")
sent, twice, seen, done = 0, 0, set(), False
def receive():
    global twice
    while True:
        try: data, address = b.recvfrom(4096)
        except TimeoutError:
            if done: return
            continue
        if address[2] == 4 or data[:6] != mac(0xb0) or data[23] != 17: continue
        assert data[22] == 63, data.hex()
        number = struct.unpack("!Q", data[34:42])[0]
        if number in seen: twice += 1
        seen.add(number)
listener = threading.Thread(target=receive); listener.start()
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(8):
        a.send(start + struct.pack("!Q18x", sent)); sent += 1
    time.sleep(0.001)
done = True
listener.join()
print(sent, len(seen), twice)
"#;

fn peer() -> Child {
    Command::new("python3")
        .args(["-c", PEER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs (Debian package python3)")
}

/// Ends the peer; returns the numbers of packets sent, of packets that arrived, and of those that
/// arrived twice.
fn ends(peer: Child) -> (u64, u64, u64) {
    let output = peer.wait_with_output().expect("the peer ends with its input");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("numbers");
    let numbers: Vec<u64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    (numbers[0], numbers[1], numbers[2])
}

/// Waits until the router has received more than `received` packets in total.
fn forwards(daemon: &Daemon, received: u64) {
    let start = Instant::now();
    while daemon.stats().received <= received {
        assert!(daemon.alive() && start.elapsed() < Duration::from_secs(20), "it forwards");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the number of packets that the veths dropped because their rings were full: a ring holds
/// 256, and on a busy machine it may not be emptied for a long time.
fn lost() -> u64 {
    let dropped = |name: &str| {
        let text =
            std::fs::read_to_string("/proc/thread-self/net/dev").expect("the namespace's counters");
        let line = text.lines().find(|line| line.trim().starts_with(&format!("{name}:")));
        let sent = line.expect("the interface").split_whitespace().skip(9);
        sent.map(|number| number.parse::<u64>().unwrap()).nth(3).unwrap()
    };
    dropped("a0") + dropped("b1")
}

fn program(interface: &str) -> bool {
    ip(&format!("-d link show {interface}")).contains("xdp")
}

#[test]
fn no_packet_is_lost_from_one_configuration_to_another() {
    network();
    let pause = || thread::sleep(Duration::from_millis(200));
    // A veth that gets or loses a native XDP program may lose the packets in its own ring, so
    // packets pass only while it has one.
    let mut daemon = fingerpost_router::start(config(TWO)).expect("it starts");
    let peer = peer();
    pause();
    forwards(&daemon, 0);

    // Keys that the running workers apply in place.
    let reloaded = daemon.change(config(&TWO.replace("\"a1\"", "\"a1\", rpf = \"loose\"")));
    assert_eq!(reloaded.unwrap().to_string(), "changed a1; applied interface.rpf");
    pause();
    let reloaded = daemon.change(config(&TWO.replace("\"a1\"", "\"a1\", observe = true"))).unwrap();
    assert!(!reloaded.replaced, "{reloaded}");
    pause();
    let quiet = daemon.stats().received;
    pause();
    assert_eq!(daemon.stats().received, quiet, "an observed interface is the kernel's");
    daemon.observe("a1", false).unwrap();
    assert!(daemon.observe("c1", true).unwrap_err().contains("a1, b1"));
    forwards(&daemon, quiet);
    daemon.change(config(TWO)).unwrap();

    // Keys that need new workers: another port, in another order; an engine; two workers and back.
    let engine = format!("{THREE}\n[fib]\nengine = \"D18R\"");
    let cores = format!("{THREE}\n[workers]\ncores = [0, 1]");
    for (text, words) in [
        (THREE.to_owned(), "added c1; workers replaced (interface)"),
        (engine, "workers replaced (fib.engine)"),
        (TWO.to_owned(), "removed c1; workers replaced (interface, fib.engine)"),
        (
            TWO.replace("\"b1\"", "\"b1\", mode = \"generic\""),
            "changed b1; workers replaced (interface.mode)",
        ),
        (TWO.to_owned(), "changed b1; workers replaced (interface.mode)"),
        (TWO.to_owned(), "nothing to change"),
    ] {
        let received = daemon.stats().received;
        let reloaded =
            daemon.change(config(&text)).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(reloaded.to_string(), words);
        assert_eq!(program("c1"), text.contains("c1"));
        forwards(&daemon, received);
    }
    // A veth has one queue, so two workers cannot start, and the old configuration stays in force.
    let error = daemon.change(config(&cores)).expect_err("one queue");
    assert!(matches!(error, ReloadError::Start(_)), "{error}");
    pause();
    let received = daemon.stats().received;
    let error = daemon.change(config(&format!("{TWO}\n[feed]\nfpm = \"127.0.0.1:2620\"")));
    assert!(error.unwrap_err().to_string().contains("feed.fpm"));
    let error = daemon.change(config(&TWO.replace("b1", "b7"))).expect_err("no such interface");
    assert!(error.to_string().contains("b7"), "{error}");
    forwards(&daemon, received);
    assert!(!program("c1"));

    assert!(daemon.stop());
    let stats = daemon.stats();
    assert!(stats.balanced(), "{stats:?}");
    pause();
    let (sent, came, twice) = ends(peer);
    let steered: Vec<_> =
        daemon.interfaces().iter().map(|interface| interface.counts().unwrap()).collect();
    drop(daemon);
    assert!(!program("a1") && !program("b1"));
    assert_eq!((came + lost(), twice), (sent, 0), "once each: {stats:?}\n{steered:?}");
    assert!(sent > 5_000 && stats.received < sent, "some were the kernel's: {sent}");
}

/// Deletes a1 and creates it again, with a peer.
fn make_again() {
    ip("link delete a1");
    ip("link add a1 address 02:00:00:00:00:a1 type veth peer name a0 address 02:00:00:00:00:a0");
    ip("link set a0 up");
    ip("link set a1 up");
    ip("address add 198.51.100.1/24 dev a1");
}

/// Waits until the router's program is attached to a1 and its interfaces have no problem.
fn taken_over(daemon: &mut Daemon, attend: bool) {
    let start = Instant::now();
    while !(program("a1") && daemon.problems().is_empty()) {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", daemon.problems());
        if attend {
            daemon.poll();
        } else if program("a1") {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn interface_made_again_is_taken_over_with_its_counters_without_and_with_a_reload() {
    network();
    let mut daemon = fingerpost_router::start(config(TWO)).expect("it starts");
    let passes = |daemon: &Daemon| {
        let (peer, received) = (peer(), daemon.stats().received);
        forwards(daemon, received);
        let (sent, came, twice) = ends(peer);
        assert_eq!((came + lost(), twice), (sent, 0));
    };
    passes(&daemon);
    let before = daemon.interfaces()[0].counts().unwrap();
    make_again();
    taken_over(&mut daemon, true);
    passes(&daemon);
    let after = daemon.interfaces()[0].counts().unwrap();
    assert!(
        after[SteeringOutcome::Taken] > before[SteeringOutcome::Taken],
        "{before:?}, then {after:?}"
    );
    let changes = daemon.change(config(TWO)).expect("nothing has changed");
    assert_eq!(changes.to_string(), "nothing to change");

    // A reload before the workers are replaced has the same result.
    make_again();
    taken_over(&mut daemon, false);
    let reloaded = daemon.change(config(TWO)).expect("it is found");
    assert_eq!(reloaded.to_string(), "changed a1; workers replaced");
    passes(&daemon);

    // A renamed interface stays the same one, for the unchanged file and for one with the new name.
    ip("link set a1 down");
    ip("link set a1 name x1");
    ip("link set x1 up");
    let changes = daemon.change(config(TWO)).expect("the name means what it meant");
    assert_eq!(changes.to_string(), "nothing to change");
    passes(&daemon);
    let changes = daemon.change(config(&TWO.replace("a1", "x1"))).expect("it is the router's");
    assert_eq!(changes.to_string(), "added x1; removed a1; workers replaced (interface)");
    passes(&daemon);
    assert!(daemon.stop() && daemon.stats().balanced());
}

/// A hook that leaves all packets to its worker, and panics with the next batch once it is armed.
struct PanickingHook {
    armed: Arc<AtomicBool>,
}

impl PacketHook for PanickingHook {
    fn begin_turn(&mut self) -> u64 {
        0
    }
    fn handles_port(&self, _: usize) -> bool {
        true
    }
    fn process_ingress(&mut self, batch: &mut IngressBatch<'_>) {
        let is_due = !batch.frames.is_empty() && self.armed.swap(false, Ordering::Relaxed);
        assert!(!is_due, "a panic of the test");
    }
    fn dequeue_egress(&mut self, _: EgressBatch<'_>) {}
    fn end_turn(&mut self, _: bool) {}
    fn has_pending_work(&self) -> bool {
        false
    }
    fn queued(&self) -> usize {
        0
    }
    fn drop_queued(&mut self, _: &mut Arena, _: &WorkerStats) {}
    fn close(&mut self, _: &mut Arena, _: &WorkerStats) {}
}

/// Starts a daemon whose worker panics with the next packet once the returned flag is set.
fn start_with_panicking_hook() -> (Daemon, Arc<AtomicBool>) {
    let armed = Arc::<AtomicBool>::default();
    let mut make = |_: usize, _: &[_]| {
        let packets = Box::new(PanickingHook { armed: Arc::clone(&armed) });
        Some(WorkerHook { hook: Hook { packets, tunnels: Tunnels::default() }, handed: None })
    };
    let hooks = HookFactory { frames: 0, make: &mut make };
    let guard = Guard { role: Arc::new(PlainRouter), hooks, succession: None, stored: None };
    let page = |_, _: Option<&_>| unreachable!("no `[metrics]`");
    let daemon = Daemon::start_guarded(config(TWO), guard, None, &page).expect("it starts");
    (daemon, armed)
}

#[test]
fn workers_replace_one_that_panics_and_too_many_panics_end_the_daemon() {
    network();
    let (mut daemon, armed) = start_with_panicking_hook();
    let peer = peer();
    forwards(&daemon, 0);
    let panics = |daemon: &Daemon| daemon.stats().panics;
    let mut pauses = Vec::new();
    for round in 1..=3 {
        armed.store(true, Ordering::Relaxed);
        let start = Instant::now();
        while panics(&daemon) < round {
            assert!(start.elapsed() < Duration::from_secs(20), "no panic");
            thread::sleep(Duration::from_millis(1));
        }
        let panicked = Instant::now();
        assert!(daemon.poll().is_none());
        assert!(daemon.alive(), "new workers run");
        let received = daemon.stats().received;
        forwards(&daemon, received);
        pauses.push(panicked.elapsed());
    }
    eprintln!("from a panic to the first packet of the new worker: {pauses:?}");

    // The fourth in a minute: the kernel forwards again, at once by its routes.
    armed.store(true, Ordering::Relaxed);
    let start = Instant::now();
    while daemon.alive() {
        assert!(start.elapsed() < Duration::from_secs(20), "it continues");
        daemon.poll();
        thread::sleep(Duration::from_millis(1));
    }
    assert!(!daemon.stop(), "a worker has panicked");
    let stats = daemon.stats();
    assert!(stats.balanced(), "{stats:?}");
    assert_eq!(stats.panics, 4);
    thread::sleep(Duration::from_millis(200));
    let (sent, came, twice) = ends(peer);
    drop(daemon);
    assert!(!program("a1") && !program("b1"), "the interfaces are the kernel's");
    let ended = stats.count(Verdict::WorkerPanicked);
    assert!(ended >= 4, "{stats:?}");
    // Those that were on their way to a socket when it was closed.
    let undelivered = stats.count(Verdict::Undelivered);
    assert_eq!((came + ended + undelivered + lost(), twice), (sent, 0), "{stats:?}");
}
