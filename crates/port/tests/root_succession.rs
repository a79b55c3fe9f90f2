//! A process takes an interface over from another: each frame passes through one of their programs, the counts continue,
//! and a successor that fails leaves everything to the predecessor. Both are in this process. Needs root.

use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use fingerpost_port::af_xdp::bpf::StoredLink;
use fingerpost_port::af_xdp::steer::{EarlyDropConfig, Steering, SteeringOutcome};
use fingerpost_port::af_xdp::{Interface, Locals, ModeChoice, QueueSetup, RingSizes, Socket};
use fingerpost_port::{Arena, Host, Port};
use nix::sched::{CloneFlags, unshare};

fn run(command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().expect("a program")).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(output.status.success(), "{command}");
    String::from_utf8(output.stdout).expect("text")
}

/// Creates a pair of devices, `a0` and `a1`, of `queues` queues, and moves into their namespace.
fn pair(queues: u32) {
    unshare(CloneFlags::CLONE_NEWNET).expect("root may make a network namespace");
    // Otherwise the kernels at both ends send frames of their own.
    run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    run(&format!("ip link add a0 {queues} type veth peer name a1 {queues}"));
    for end in ["a0", "a1"] {
        run(&format!("ip link set {end} up"));
    }
}

fn open(name: &str) -> Interface {
    Interface::open(name, 1, &Locals::default(), ModeChoice::Copy).expect("a veth")
}

/// The sender at the other end of the pair.
struct Sender {
    arena: Arena,
    port: Socket,
}

impl Sender {
    fn new() -> Self {
        let sizes = RingSizes::all(64);
        let mut arena = Arena::new(4 * sizes.frames(), 2048).expect("memory");
        let port = Socket::bind(&open("a1"), 0, &mut arena, sizes).expect("a queue");
        Self { arena, port }
    }

    /// Sends frames for another host, which every steering program counts.
    fn send(&mut self, count: usize) {
        let mut frame = [0; 60];
        frame[0] = 2;
        frame[12] = 8;
        let copy = |_| self.arena.copy_in(&frame).expect("a free frame");
        let mut frames: Vec<_> = (0..count).map(copy).collect();
        assert_eq!(self.port.transmit(&mut self.arena, &mut frames), count);
        self.port.flush(&mut self.arena);
    }
}

fn counted(interface: &Interface) -> u64 {
    interface.counts().expect("counts")[SteeringOutcome::NotMine]
}

/// Waits until both programs together have counted this many frames, and returns the counts of each.
fn counts(both: [&Interface; 2], sum: u64) -> [u64; 2] {
    let begin = Instant::now();
    loop {
        let counts = both.map(counted);
        if counts.iter().sum::<u64>() >= sum || begin.elapsed() > Duration::from_secs(5) {
            return counts;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn succeed(predecessor: &Interface) -> Interface {
    let (handover, link) = predecessor.hand_over().expect("a descriptor").expect("a program");
    // As it travels between processes.
    let json = serde_json::to_string(&handover).expect("JSON");
    let handover = serde_json::from_str(&json).expect("the same");
    let load = |mac| Steering::new(mac, predecessor.queues(), &Locals::default());
    Interface::succeed("a0", handover, link, load).expect("a program")
}

fn has_program() -> bool {
    run("ip -d link show a0").contains("prog/xdp")
}

#[test]
fn successor_takes_each_frame_from_its_take_over_on_and_continues_the_counts() {
    pair(1);
    let offload = || run("ethtool -k a0").contains("rx-vlan-offload: on");
    let had_offload = offload();
    let (predecessor, mut sender) = (open("a0"), Sender::new());
    sender.send(10);
    assert_eq!(counts([&predecessor, &predecessor], 20), [10, 10]);
    let successor = succeed(&predecessor);
    sender.send(10);
    assert_eq!(counts([&predecessor, &successor], 20), [20, 0], "the successor only prepares");
    assert!(!successor.is_attached());
    successor.take_over().expect("its program replaces the other");
    assert!(successor.is_attached());
    sender.send(10);
    assert_eq!(counts([&predecessor, &successor], 30), [20, 10]);
    successor.continue_counts(predecessor.final_counts().expect("counts"));
    successor.own();
    assert_eq!(counted(&successor), 30);
    assert_eq!(successor.stats().expect("statistics").passed, 30);
    // The predecessor's process ends without destructors.
    std::mem::forget(predecessor);

    // And again, by a third one.
    let third = succeed(&successor);
    third.take_over().expect("its program replaces the other");
    third.continue_counts(successor.final_counts().expect("counts"));
    third.own();
    std::mem::forget(successor);
    sender.send(5);
    assert_eq!(counts([&third, &third], 70), [35, 35]);
    drop(third);
    assert!(!has_program());
    assert_eq!(offload(), had_offload, "the device has its setting back");
}

/// Opens a0 as the front of a gate that fails closed.
fn open_front(choice: ModeChoice, stored: &mut Option<StoredLink>) -> Interface {
    let closed = EarlyDropConfig { fail_closed: true, ..EarlyDropConfig::default() };
    Interface::open_for_gate("a0", 1, &Locals::default(), choice, closed, stored).expect("a veth")
}

#[test]
fn program_whose_link_is_stored_outlives_its_process_until_the_next_one_replaces_it() {
    pair(1);
    let (first, mut sender) = (open_front(ModeChoice::Copy, &mut None), Sender::new());
    let (index, link) = (first.index(), first.link_id().expect("a link"));
    let (copy, mode) = first.store_link().expect("a descriptor").expect("a program");
    let stored = || StoredLink::open(copy.as_raw_fd(), mode).expect("the copy is open");
    drop(first);
    assert!(has_program(), "the copy keeps it");
    assert_eq!(stored().interface().expect("a link"), index);
    assert!(has_program(), "a stored link that is dropped stays");

    let mut taken = Some(stored());
    let second = open_front(ModeChoice::Auto, &mut taken);
    assert!(taken.is_none());
    assert_eq!(second.link_id(), Some(link), "the same link");
    sender.send(10);
    let dropped = |front: &Interface| front.counts().expect("counts")[SteeringOutcome::Astray];
    let begin = Instant::now();
    while dropped(&second) < 10 && begin.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(dropped(&second), 10, "its own program runs");
    drop(second);
    assert!(has_program(), "the copy keeps this one, too");

    // A program that must run elsewhere cannot take its place.
    let third = open_front(ModeChoice::Generic, &mut Some(stored()));
    assert_ne!(third.link_id(), Some(link));
    drop(third);
    assert!(!has_program(), "its link is stored nowhere");
    assert_eq!(stored().interface().expect("a link"), 0, "of no interface any more");
    // A link of no device of this interface stays unused.
    let mut taken = Some(stored());
    let fourth = open_front(ModeChoice::Copy, &mut taken);
    assert!(taken.is_some());
    assert!(fourth.store_link().expect("a descriptor").is_some());
    fourth.detach();
    assert!(!has_program(), "detached although it was stored");
    let file = std::fs::File::open("/dev/null").expect("a file");
    StoredLink::open(file.as_raw_fd(), mode).expect_err("not a link");
}

#[test]
fn failed_successor_leaves_the_interface_to_the_predecessor() {
    pair(1);
    let (predecessor, mut sender) = (open("a0"), Sender::new());
    drop(succeed(&predecessor));
    assert!(has_program(), "it had only prepared");
    let successor = succeed(&predecessor);
    successor.take_over().expect("its program replaces the other");
    sender.send(10);
    assert_eq!(counts([&predecessor, &successor], 10), [0, 10]);
    drop(successor);
    assert!(has_program(), "it did not own the interface");
    predecessor.resume().expect("its program is back");
    sender.send(10);
    assert_eq!(counts([&predecessor, &predecessor], 20), [10, 10]);
    drop(predecessor);
    assert!(!has_program());
}

#[test]
fn successor_puts_back_the_channels_that_its_predecessor_has_changed() {
    pair(4);
    let channels = || {
        let text = run("ethtool -l a0");
        let current = text.split("Current").nth(1).expect("the current ones");
        let rx = current.lines().find_map(|line| line.strip_prefix("RX:")).expect("a number");
        rx.trim().parse::<u32>().expect("a number")
    };
    // A program in the driver takes no fewer queues than the other end sends on.
    run("ethtool -L a1 rx 1 tx 1");
    let before = channels();
    assert!(before > 1, "{before} channels");
    let wanted = QueueSetup { channels: Some(1), rss: None };
    let predecessor = Interface::with_queue_setup("a0", wanted, || Ok(open("a0"))).expect("a veth");
    assert_eq!(channels(), 1);
    let successor = succeed(&predecessor);
    assert_eq!(successor.queue_setup(), wanted);
    successor.take_over().expect("its program replaces the other");
    successor.own();
    std::mem::forget(predecessor);
    assert_eq!(channels(), 1);
    drop(successor);
    assert_eq!(channels(), before);
}

#[test]
fn host_device_lives_as_long_as_one_of_both_processes() {
    pair(1);
    let predecessor = Host::open("taptest").expect("a TAP device");
    predecessor
        .register(nix::net::if_::if_nametoindex("a0").expect("it is there"))
        .expect("a filter");
    let (handover, device) = predecessor.hand_over().expect("a descriptor");
    let json = serde_json::to_string(&handover).expect("JSON");
    let successor = Host::succeed(serde_json::from_str(&json).expect("the same"), device);
    let filters = || run("tc filter show dev taptest ingress").matches("mirred").count();
    assert_eq!((successor.name(), filters()), ("taptest", 1));
    // Known already, and another one.
    for name in ["a0", "a1"] {
        let index = nix::net::if_::if_nametoindex(name).expect("it is there");
        successor.register(index).expect("a filter");
    }
    assert_eq!(filters(), 2);
    drop(predecessor);
    run("ip link show taptest");
    let index = nix::net::if_::if_nametoindex("a0").expect("it is there");
    let mut frame = [0; 60];
    frame[0] = 0xff;
    assert!(successor.give(index, &frame));
    drop(successor);
    assert!(nix::net::if_::if_nametoindex("taptest").is_err());
}
