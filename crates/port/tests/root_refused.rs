//! Frames that a program redirects are counted if a device refuses them: with the receiving device, and in its own
//! network namespace alone. Needs root, and a kernel with BTF.

use std::process::Command;
use std::sync::Arc;

use fingerpost_port::af_xdp::bpf::asm::{Action, Helper, Reg};
use fingerpost_port::af_xdp::bpf::{Assembler, Kind, LiveRun, Map, Program};
use fingerpost_port::af_xdp::{Interface, Locals, ModeChoice, RefusedFrames};
use nix::sched::{CloneFlags, unshare};

fn run(command: &str) {
    let mut words = command.split(' ');
    let program = words.next().expect("a program");
    let status = Command::new(program).args(words).status();
    assert!(status.is_ok_and(|status| status.success()), "{command}");
}

/// Creates a pair of devices, both up, and returns the index of the first one.
fn pair(name: &str) -> u32 {
    run(&format!("ip link add {name}0 type veth peer name {name}1"));
    for end in [0, 1] {
        run(&format!("ip link set {name}{end} up"));
    }
    index(&format!("{name}0"))
}

fn index(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).expect("it is there")
}

/// The number of frames of a run.
const FRAMES: u32 = 1000;

/// Redirects frames of `len` bytes that `from` appears to receive to the device `to`.
fn redirect(from: u32, to: u32, len: usize) {
    let devices = Map::array(Kind::Devmap, "devices", 4, 1).expect("a map");
    devices.set(0, &to.to_ne_bytes()).expect("the device is there");
    let mut asm = Assembler::new();
    asm.load_map(Reg::R1, &devices)
        .mov(Reg::R2, 0)
        .mov(Reg::R3, Action::Drop as i32)
        .call(Helper::RedirectMap)
        .exit();
    let program = Program::load("redirect", &asm.finish().expect("code")).expect("it is valid");
    let frame = vec![2; len];
    let run = LiveRun { ifindex: from, queue: 0, repeat: FRAMES, batch: 0 };
    program.run_live(&frame, run).expect("live frames");
}

#[test]
fn refused_frames_are_counted_for_the_receiving_device() {
    unshare(CloneFlags::CLONE_NEWNET).expect("root may make a network namespace");
    let [a, b, c] = ["a", "b", "c"].map(pair);
    // The other end of `b` receives what a program redirects, that of `c` does not.
    run("ethtool -K b1 gro on");
    let refused = RefusedFrames::new().expect("a kernel with BTF and tracepoints");
    let counts = || [a, b, c].map(|device| refused.count(device).expect("a count"));
    redirect(a, c, 60);
    assert_eq!(counts(), [0; 3], "no device was added");
    for device in [a, b] {
        refused.add(device).expect("there is room");
    }
    redirect(a, b, 60);
    assert_eq!(counts(), [0; 3], "the device sends all");
    redirect(a, c, 60);
    let all = u64::from(FRAMES);
    assert_eq!(counts(), [all, 0, 0], "nothing receives what it sends");
    redirect(b, c, 60);
    assert_eq!(counts(), [all, all, 0]);
    // Longer than the MTU: refused before the device has the frame.
    run("ip link set b0 mtu 1000");
    redirect(a, b, 1400);
    assert_eq!(counts(), [2 * all, all, 0]);
    refused.add(a).expect("it is there");
    assert_eq!(counts(), [2 * all, all, 0], "a device that is added again keeps its count");

    // Another namespace, where a device has the index of the first one.
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("root may make a network namespace");
            run(&format!("ip link add x0 index {a} type veth peer name x1"));
            run("ip link set x0 up");
            run("ip link set x1 up");
            let from = index("x0");
            assert_eq!(from, a);
            redirect(from, index("x1"), 60);
        });
        other.join().expect("frames of another namespace");
    });
    assert_eq!(counts(), [2 * all, all, 0], "those of another namespace are not counted");
}

#[test]
fn interface_counts_from_the_first_call_on() {
    unshare(CloneFlags::CLONE_NEWNET).expect("root may make a network namespace");
    let [a, b] = ["a", "b"].map(pair);
    let refused = Arc::new(RefusedFrames::new().expect("a kernel with BTF and tracepoints"));
    refused.add(a).expect("there is room");
    redirect(a, b, 60);
    let interface = Interface::open("a0", 1, &Locals::default(), ModeChoice::Auto).expect("a veth");
    let count = || interface.stats().expect("statistics").tx_refused;
    assert_eq!(count(), 0);
    for _ in 0..2 {
        interface.count_refused(&refused).expect("there is room");
        assert_eq!(count(), 0, "what was before");
    }
    redirect(a, b, 60);
    assert_eq!(count(), u64::from(FRAMES));
}
