//! Small programs that pass the kernel's verifier and run in the kernel.
//!
//! Needs root (`CAP_BPF`, `CAP_NET_ADMIN`), hence the feature `root-tests`.

use std::os::fd::AsFd;

use fingerpost_port::af_xdp::bpf::asm::{Reg::*, *};
use fingerpost_port::af_xdp::bpf::{AttachError, Kind, Link, LiveRun, Map, Mode, Program};

const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    let mut at = 0;
    while at < 60 {
        frame[at] = at as u8;
        at += 1;
    }
    frame
};

fn load(name: &str, asm: Assembler<'_>) -> Program {
    Program::load(name, &asm.finish().expect("labels are bound"))
        .expect("the verifier accepts it (this test needs root)")
}

/// Loads r2 and r3 with the frame's bounds and leaves by `short` if it has not
/// `need` bytes.
fn bounds(asm: &mut Assembler<'_>, need: i32, short: Label) {
    asm.load(Size::Word, R2, R1, context::DATA)
        .load(Size::Word, R3, R1, context::DATA_END)
        .mov(R4, R2)
        .add(R4, need)
        .jump_if(Cond::Gt, R4, R3, short);
}

#[test]
fn test_run_returns_rewritten_frame() {
    let mut asm = Assembler::new();
    let short = asm.label();
    bounds(&mut asm, 16, short);
    // Bytes 0 and 1 as a big-endian number, plus one; then a constant.
    asm.load(Size::Half, R5, R2, 0)
        .big_endian(R5, 16)
        .add(R5, 1)
        .big_endian(R5, 16)
        .store(Size::Half, R2, 0, R5)
        .load_u64(R5, 0x1122_3344_5566_7788)
        .store(Size::Double, R2, 8, R5)
        .leave(Action::Tx)
        .bind(short)
        .leave(Action::Drop);
    let program = load("rewrite", asm);
    let run = program.test_run(&FRAME, 1).unwrap();
    let mut want = FRAME;
    want[..2].copy_from_slice(&[0, 2]);
    want[8..16].copy_from_slice(&0x1122_3344_5566_7788_u64.to_ne_bytes());
    assert_eq!(run.retval, Action::Tx as u32);
    assert_eq!(run.output, want);
    assert_eq!(program.test_run(&FRAME[..14], 1).unwrap().retval, Action::Drop as u32);
}

#[test]
fn map_is_shared_with_program() {
    let config = Map::array(Kind::Array, "config", 12, 1).unwrap();
    let counts = Map::array(Kind::PercpuArray, "counts", 8, 3).unwrap();
    let seen = Map::new(Kind::Hash, "seen", 6, 4, 16).unwrap();
    config.set(0, &[0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]).unwrap();

    let mut asm = Assembler::new();
    let short = asm.label();
    let none = asm.label();
    let known = asm.label();
    bounds(&mut asm, 14, short);
    asm.mov(R6, R2)
        .store(Size::Word, R10, -4, 2)
        .mov(R2, R10)
        .add(R2, -4)
        .load_map(R1, &counts)
        .call(Helper::MapLookup)
        .jump_if(Cond::Eq, R0, 0, none)
        .mov(R1, 1)
        .atomic_add(Size::Double, R0, 0, R1)
        // The source MAC as a key of six bytes.
        .load(Size::Word, R1, R6, 6)
        .store(Size::Word, R10, -16, R1)
        .load(Size::Half, R1, R6, 10)
        .store(Size::Half, R10, -12, R1)
        .mov(R2, R10)
        .add(R2, -16)
        .load_map(R1, &seen)
        .call(Helper::MapLookup)
        .jump_if(Cond::Ne, R0, 0, known)
        .load_map_value(R1, &config, 8)
        .load(Size::Word, R0, R1, 0)
        .exit()
        .bind(known)
        .load(Size::Word, R0, R0, 0)
        .exit()
        .bind(none)
        .leave(Action::Aborted)
        .bind(short)
        .leave(Action::Drop);
    let program = load("maps", asm);

    assert_eq!(program.test_run(&FRAME, 1).unwrap().retval, 7, "the configured constant");
    seen.update(&[6, 7, 8, 9, 10, 11], &9u32.to_ne_bytes()).unwrap();
    assert_eq!(program.test_run(&FRAME, 4).unwrap().retval, 9, "the known address");
    assert!(seen.delete(&[6, 7, 8, 9, 10, 11]).unwrap());
    assert!(!seen.delete(&[6, 7, 8, 9, 10, 11]).unwrap());
    assert_eq!(seen.lookup(&[6, 7, 8, 9, 10, 11]).unwrap(), None);
    assert_eq!(program.test_run(&FRAME, 1).unwrap().retval, 7);

    assert_eq!(counts.counter(2).unwrap(), 6);
    assert_eq!(counts.counter(0).unwrap(), 0);
    assert!(counts.counter(3).is_err(), "beyond the array");
    assert!(config.set(0, &[1]).is_err(), "a value of another size");
    assert!(config.set(1, &[0; 12]).is_err(), "beyond the array");
}

#[test]
fn array_is_filled_in_batches() {
    let map = Map::array(Kind::Array, "packets", 24, 10_000).unwrap();
    let values: Vec<u8> = (0..9_999u32).flat_map(|n| [n.to_ne_bytes(); 6].concat()).collect();
    map.fill(1, &values).unwrap();
    assert_eq!(map.get(0).unwrap(), [0; 24]);
    for n in [0u32, 4_095, 4_096, 9_998] {
        assert_eq!(map.get(n + 1).unwrap(), [n.to_ne_bytes(); 6].concat());
    }
    assert!(map.fill(2, &values).is_err(), "one beyond the array");
    assert!(map.fill(0, &values[1..]).is_err(), "not whole values");
}

#[test]
fn load_error_quotes_verifier() {
    // Reads the frame without a comparison with its end.
    let mut asm = Assembler::new();
    asm.load(Size::Word, R2, R1, context::DATA).load(Size::Byte, R0, R2, 0).exit();
    let error = Program::load("careless", &asm.finish().unwrap()).unwrap_err();
    assert!(error.log.contains("invalid access to packet"), "{error}");
    assert!(error.to_string().contains("invalid access to packet"));
}

#[test]
fn live_frames_are_counted_and_link_detaches() {
    let counts = Map::array(Kind::PercpuArray, "live", 8, 1).unwrap();
    let mut asm = Assembler::new();
    let none = asm.label();
    asm.store(Size::Word, R10, -4, 0)
        .mov(R2, R10)
        .add(R2, -4)
        .load_map(R1, &counts)
        .call(Helper::MapLookup)
        .jump_if(Cond::Eq, R0, 0, none)
        .load(Size::Double, R1, R0, 0)
        .add(R1, 1)
        .store(Size::Double, R0, 0, R1)
        .bind(none)
        .leave(Action::Drop);
    let program = load("live", asm);
    // The loopback interface has index 1 in every namespace.
    program.run_live(&FRAME, LiveRun { ifindex: 1, queue: 0, repeat: 1000, batch: 0 }).unwrap();
    assert_eq!(counts.counter(0).unwrap(), 1000);
    assert!(
        program
            .run_live(&FRAME, LiveRun { ifindex: u32::MAX >> 1, queue: 0, repeat: 1, batch: 0 })
            .is_err()
    );

    // An XDP_PASS on the loopback interface changes nothing.
    let mut asm = Assembler::new();
    asm.leave(Action::Pass);
    let pass = load("pass", asm);
    assert!(matches!(Link::attach(&pass, 1, Mode::Native), Err(AttachError::Unsupported)));
    assert!(Link::attach(&pass, u32::MAX >> 1, Mode::Generic).is_err());
    let link = Link::attach(&pass, 1, Mode::Generic).unwrap();
    assert_eq!(link.mode(), Mode::Generic);
    assert!(matches!(Link::attach(&pass, 1, Mode::Generic), Err(AttachError::Busy)));
    // A copy of the descriptor, as a process that was just forked has.
    let copy = link.as_fd().try_clone_to_owned().unwrap();
    drop(link);
    drop(Link::attach(&pass, 1, Mode::Generic).expect("the first was detached"));
    drop(copy);
}

/// Counts a frame in entry 0 of `counts` and passes it to the host.
fn counting(name: &str, counts: &Map) -> Program {
    let mut asm = Assembler::new();
    let none = asm.label();
    asm.store(Size::Word, R10, -4, 0)
        .map_lookup(counts, -4)
        .jump_if(Cond::Eq, R0, 0, none)
        .mov(R1, 1)
        .atomic_add(Size::Double, R0, 0, R1)
        .bind(none)
        .leave(Action::Pass);
    load(name, asm)
}

#[test]
fn replaced_program_leaves_no_gap() {
    const DATAGRAMS: u32 = 4000;
    // No frame but ours: an interface of its own.
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
    assert!(up.success());
    let counts: [Map; 2] =
        std::array::from_fn(|_| Map::array(Kind::PercpuArray, "counts", 8, 1).unwrap());
    let [first, second] = [0, 1].map(|nth| counting("counting", &counts[nth]));
    let link = Link::attach(&first, 1, Mode::Generic).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    let mut received = [0; 4];
    for number in 0..DATAGRAMS {
        if number % 100 == 0 {
            link.replace(if number % 200 == 0 { &first } else { &second }).unwrap();
        }
        socket.send(&number.to_ne_bytes()).unwrap();
        socket.recv(&mut received).unwrap();
        assert_eq!(u32::from_ne_bytes(received), number);
    }
    let counted = counts.map(|map| map.counter(0).unwrap());
    // Neither program has missed a frame or seen one of the other.
    assert_eq!(counted, [u64::from(DATAGRAMS) / 2; 2]);
}
