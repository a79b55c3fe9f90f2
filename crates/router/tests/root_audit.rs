//! Tests of the auditor: it detects a wrong table while packets pass, and repairs it.
//!
//! ```text
//!   a0 ═══ a1 ─ Daemon ─ b1 ═══ b0       python sends to 203.0.113.5 at a0
//! ```
//!
//! No part of the product makes a table wrong, so the tests change the plane without the feed: one
//! removes a route that the kernel has, the other adds a route that the kernel does not have.
//!
//! Needs root, `ip` and `python3`, hence the feature `root-tests`.

mod network;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use api::Audit;
use config::{Config, MAIN};
use control::Daemon;
use feed::netlink::{Follower, RouteInfo, Target};
use fib::Prefix;

/// Sends some hundred packets per second until its input is closed.
const PEER: &str = r#"
import select, socket, struct, sys, time
def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return 0xffff - total
head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 46, 0, 0, 64, 17, 0, bytes([198, 51, 100, 9]), bytes([203, 0, 113, 5]))
head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
mac = lambda last: bytes([2, 0, 0, 0, 0, last])
a = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
a.bind(("a0", 0))
while not select.select([sys.stdin], [], [], 0)[0]:
    a.send(mac(0xa1) + mac(0xa0) + b"\x08\x00" + head + bytes(26))
    time.sleep(0.003)
"#;

/// Moves this thread into a new namespace, and starts a router and its traffic there.
fn started() -> (Daemon, Child) {
    network::network(&["a", "b"]);
    network::forwards();
    let text = "interface = [{ name = \"a1\" }, { name = \"b1\" }]\n[control]\nsocket = \"\"\n";
    let config = Config::parse(text, &PathBuf::from("router.toml")).expect("a good configuration");
    let daemon = fingerpost_router::start(config).expect("it starts");
    let peer = Command::new("python3")
        .args(["-c", PEER])
        .stdin(Stdio::piped())
        .spawn()
        .expect("python3 runs (Debian package python3)");
    (daemon, peer)
}

fn audit(daemon: &Daemon) -> Audit {
    daemon
        .control_handle()
        .call(|kernel_sync| kernel_sync.audit().clone())
        .expect("the control thread answers")
}

fn until(daemon: &Daemon, what: &str, there: impl Fn(&Audit) -> bool) -> Audit {
    let start = Instant::now();
    loop {
        let audit = audit(daemon);
        if there(&audit) {
            return audit;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: {audit:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Changes a route of the plane without the feed; the auditor must detect and repair the change.
fn catches(prefix: &str, lie: Option<RouteInfo>, words: &str) {
    let (mut daemon, mut peer) = started();
    let audit = until(&daemon, "packets are audited", |audit| audit.checks > 5);
    assert_eq!((audit.mismatches, audit.route_heals, audit.heals), (0, 0, 0), "{audit:?}");

    let prefix: Prefix<u32> = prefix.parse().unwrap();
    let there = lie.is_some();
    daemon
        .control_handle()
        .call(move |kernel_sync| kernel_sync.plane.route_v4(MAIN, prefix, lie.as_ref()))
        .unwrap();
    let audit = until(&daemon, "it is noticed", |audit| audit.mismatches > 0);
    assert_eq!(audit.last_mismatch.as_deref(), Some(words));
    assert_eq!((audit.route_heals, audit.heals), (1, 0), "one route, and not all of them");

    let start = Instant::now();
    let has = move |daemon: &Daemon| {
        let route = daemon.control_handle().call(move |kernel_sync| {
            kernel_sync.plane.table(MAIN).and_then(|table| table.v4.rib().get(prefix))
        });
        route.unwrap().is_some()
    };
    while has(&daemon) == there {
        assert!(start.elapsed() < Duration::from_secs(10), "it is not mended");
        thread::sleep(Duration::from_millis(20));
    }
    // Packets follow the right route again, and the auditor finds no other difference.
    let before = daemon.stats().sent();
    let checks = audit.checks;
    until(&daemon, "it goes on", |audit| audit.checks > checks + 5);
    assert!(daemon.stats().sent() > before);
    drop(peer.stdin.take());
    peer.wait().unwrap();
    assert!(daemon.stop());
}

#[test]
fn a_route_that_was_lost_is_noticed_and_comes_back() {
    let words =
        "203.0.113.5: the kernel has 203.0.113.0/24 via 192.0.2.2 dev b1, the router nothing";
    catches("203.0.113.0/24", None, words);
}

#[test]
fn a_route_that_nobody_has_is_noticed_and_goes() {
    let lie = RouteInfo { target: Arc::new(Target::Blackhole), metric: 0, protocol: 3 };
    let words = "203.0.113.5: the kernel has 203.0.113.0/24 via 192.0.2.2 dev b1, \
                 the router 203.0.113.0/28 blackhole";
    catches("203.0.113.0/28", Some(lie), words);
}
