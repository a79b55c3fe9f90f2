//! Packets of listed sources that are dropped a second on one core: this project's program, the same with
//! `LPM_TRIE`, nftables, and ipset.
//!
//! ```text
//!   generator: frame with the next listed source ─► redirect ─► v0 ═══ v1 ─► contestant drops and counts it
//!   on one CPU                                                         on another, in a thread of its own
//! ```
//!
//! The generator is an XDP program on live frames, faster than any contestant; the ring of v1 drops what does not
//! fit. `none` drops every packet at once: the limit of the device and the generator.

use std::process::Command;
use std::time::Instant;

use ::xdp::{Blocker, ListAction};
use anyhow::{Context, bail, ensure};
use fib::{Hop, Prefix};
use nix::net::if_::if_nametoindex;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use port::af_xdp::bpf::asm::Reg::{R0, R1, R2, R3, R4, R6, R7, R10};
use port::af_xdp::bpf::asm::{Action, Assembler, Cond, Helper, Op, Size, context};
use port::af_xdp::bpf::{Kind, Link, LiveRun, Map, Mode, Program};
use wire::checksum::checksum;

use super::dropper::Dropper;
use super::firewall::{Ipset, Nftables};
use crate::xdp::{Namespace, trie};

/// The destinations of the list of the contestant `pair`.
const DESTINATIONS: usize = 1000;
/// The sources of the packets, drawn from the list.
const SOURCES: u32 = 1 << 16;

/// The most runs for one result.
const TRIES: u32 = 5;

/// Frames between two flushes.
const BATCH: u32 = 64;

/// Where the source, and the checksum of the header, are in a frame of IPv4.
const SOURCE: i16 = 14 + 12;
const CHECKSUM: i16 = 14 + 10;

/// A frame without source and checksum: IPv4, 50 bytes, a protocol for experiments (RFC 3692), to v1.
const FRAME: [u8; 64] = {
    let mut frame = [0; 64];
    frame[5] = 1;
    frame[11] = 2;
    (frame[0], frame[6]) = (2, 2);
    frame[12] = 0x08;
    (frame[14], frame[17]) = (0x45, 50);
    (frame[22], frame[23]) = (64, 253);
    frame
};

/// An XDP program, with a counter that only grows.
trait Filter {
    fn program(&self) -> &Program;

    fn dropped(&self) -> anyhow::Result<u64>;
}

/// Lists, and the program that acts on them.
struct Loaded {
    blocker: Blocker,
    program: Program,
}

impl Loaded {
    fn new(mut blocker: Blocker, list: &[Prefix<u32>]) -> anyhow::Result<Self> {
        blocker.replace(0, list, &[]);
        blocker.commit()?;
        let program = blocker.load()?;
        Ok(Self { blocker, program })
    }
}

impl Filter for Loaded {
    fn program(&self) -> &Program {
        &self.program
    }

    fn dropped(&self) -> anyhow::Result<u64> {
        Ok(self.blocker.counts()?.lists[0].packets)
    }
}

impl Filter for Plain {
    fn program(&self) -> &Program {
        &self.program
    }

    fn dropped(&self) -> anyhow::Result<u64> {
        Ok(self.count.counter(0)?)
    }
}

/// A filter, attached while it runs.
struct Attachable<T> {
    name: &'static str,
    ifindex: u32,
    filter: T,
    /// The program on the interface, and the count at its begin.
    running: Option<(Link, u64)>,
}

impl<T: Filter> Attachable<T> {
    fn new(name: &'static str, ifindex: u32, filter: T) -> Box<Self> {
        Box::new(Self { name, ifindex, filter, running: None })
    }
}

impl<T: Filter> Dropper for Attachable<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let before = self.filter.dropped()?;
        let link = Link::attach(self.filter.program(), self.ifindex, Mode::Native)?;
        self.running = Some((link, before));
        Ok(())
    }

    fn stop(&mut self) -> anyhow::Result<u64> {
        let (link, before) = self.running.take().context("it runs")?;
        drop(link);
        Ok(self.filter.dropped()? - before)
    }
}

/// A program of our own assembly, its counter and its trie.
struct Plain {
    program: Program,
    count: Map,
    _trie: Option<Map>,
}

impl Plain {
    /// Drops packets whose source is in the trie, or all.
    fn new(trie: Option<Map>) -> anyhow::Result<Self> {
        let count = Map::array(Kind::PercpuArray, "dropped", 8, 1)?;
        let program = {
            let mut asm = Assembler::new();
            let pass = asm.label();
            asm.load(Size::Word, R2, R1, context::DATA)
                .load(Size::Word, R3, R1, context::DATA_END)
                .mov(R4, R2)
                .add(R4, 34)
                .jump_if(Cond::Gt, R4, R3, pass)
                .load(Size::Half, R4, R2, 12)
                .jump_if(Cond::Ne, R4, i32::from(u16::from_ne_bytes([8, 0])), pass);
            if let Some(trie) = &trie {
                asm.load(Size::Word, R4, R2, SOURCE)
                    .store(Size::Word, R10, -4, R4)
                    .store(Size::Word, R10, -8, 32)
                    .map_lookup(trie, -8)
                    .jump_if(Cond::Eq, R0, 0, pass);
            }
            asm.store(Size::Word, R10, -4, 0)
                .map_lookup(&count, -4)
                .jump_if(Cond::Eq, R0, 0, pass)
                .load(Size::Double, R1, R0, 0)
                .add(R1, 1)
                .store(Size::Double, R0, 0, R1)
                .leave(Action::Drop)
                .bind(pass)
                .leave(Action::Pass);
            Program::load("drops", &asm.finish()?)?
        };
        Ok(Self { program, count, _trie: trie })
    }
}

/// Sends packets of listed sources into v0.
struct Generator {
    program: Program,
    _sources: Map,
    _cursor: Map,
}

impl Generator {
    fn new(list: &[Prefix<u32>], rng: &mut fastrand::Rng) -> anyhow::Result<Self> {
        let sources = Map::array(Kind::Array, "sources", 8, SOURCES)?;
        let mut values = Vec::with_capacity(8 * SOURCES as usize);
        for _ in 0..SOURCES {
            let prefix = list[rng.usize(..list.len())];
            let source = rng.u32(prefix.addr()..=prefix.last()).to_be_bytes();
            let mut header = FRAME[14..34].to_vec();
            header[12..16].copy_from_slice(&source);
            values.extend(source);
            values.extend(checksum(&header).to_be_bytes());
            values.extend([0; 2]);
        }
        sources.fill(0, &values)?;
        let cursor = Map::array(Kind::Array, "cursor", 8, 1)?;
        let program = {
            let mut asm = Assembler::new();
            let drop = asm.label();
            asm.mov(R6, R1)
                .load_map_value(R7, &cursor, 0)
                .load(Size::Double, R1, R7, 0)
                .mov(R2, R1)
                .add(R2, 1)
                .store(Size::Double, R7, 0, R2)
                .op(Op::And, R1, SOURCES as i32 - 1)
                .store(Size::Word, R10, -4, R1)
                .map_lookup(&sources, -4)
                .jump_if(Cond::Eq, R0, 0, drop)
                .load(Size::Word, R1, R0, 0)
                .load(Size::Half, R0, R0, 4)
                .load(Size::Word, R2, R6, context::DATA)
                .load(Size::Word, R3, R6, context::DATA_END)
                .mov(R4, R2)
                .add(R4, 34)
                .jump_if(Cond::Gt, R4, R3, drop)
                .store(Size::Word, R2, SOURCE, R1)
                .store(Size::Half, R2, CHECKSUM, R0)
                .mov(R1, if_nametoindex("v0")? as i32)
                .mov(R2, 0)
                .call(Helper::Redirect)
                .exit()
                .bind(drop)
                .leave(Action::Drop);
            Program::load("sources", &asm.finish()?)?
        };
        Ok(Self { program, _sources: sources, _cursor: cursor })
    }

    /// Sends packets, and returns the seconds.
    fn send(&self, packets: u32) -> anyhow::Result<f64> {
        let begin = Instant::now();
        self.program
            .run_live(&FRAME, LiveRun { ifindex: 0, queue: 0, repeat: packets, batch: BATCH })?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

/// Makes a thread receive the packets of v1, and binds it to `cpu`.
fn receive_on(cpu: usize) -> anyhow::Result<()> {
    // /sys shows the devices of the namespace in which it was mounted.
    let script = "mount -t sysfs none /sys && echo 1 >/sys/class/net/v1/threaded";
    let status = Command::new("unshare").args(["-m", "sh", "-c", script]).status();
    ensure!(status.context("running unshare")?.success(), "v1 gets no thread to receive");
    for process in std::fs::read_dir("/proc")?.flatten() {
        let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        if !name.starts_with("napi/v1-") {
            continue;
        }
        let number: i32 = process.file_name().to_string_lossy().parse()?;
        let mut set = CpuSet::new();
        set.set(cpu)?;
        sched_setaffinity(Pid::from_raw(number), &set).context("binding the thread of v1")?;
        return Ok(());
    }
    bail!("no thread receives for v1")
}

/// Measures all in turns, on `cpu`, while the calling thread sends; returns the million packets a second of each that
/// were dropped, a number for each round.
pub(super) fn measure(
    list: &[Prefix<u32>],
    packets: u32,
    rounds: usize,
    cpu: usize,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Vec<(&'static str, Vec<f64>)>> {
    let _namespace = Namespace::new()?;
    // With GRO, a veth without an XDP program takes frames of one, too.
    let status = Command::new("ethtool").args(["-K", "v1", "gro", "on"]).status();
    ensure!(status.context("running ethtool")?.success(), "ethtool -K v1 gro on");
    let ifindex = if_nametoindex("v1")?;
    let block = Loaded::new(Blocker::new(&[ListAction::Drop])?, list)?;
    let mut pair = Blocker::for_destinations(&[ListAction::Drop], 1)?;
    // The packets are for 0.0.0.0.
    let random = (1..DESTINATIONS).map(|_| Prefix::truncate(rng.u32(..), rng.u32(16..=32)));
    let destinations: Vec<Prefix<u32>> = random.chain([Prefix::truncate(0, 24)]).collect();
    pair.replace_destinations(0, &destinations, &[]);
    let pair = Loaded::new(pair, list)?;
    let routes: Vec<(Prefix<u32>, Hop)> = list.iter().map(|&prefix| (prefix, Hop(1))).collect();
    let lpm_trie = Plain::new(Some(trie(&routes)?))?;
    let mut droppers: Vec<Box<dyn Dropper>> = vec![
        Attachable::new("block", ifindex, block),
        Attachable::new("pair", ifindex, pair),
        Attachable::new("lpm_trie", ifindex, lpm_trie),
        Box::new(Nftables::new(list)?),
        Attachable::new("none", ifindex, Plain::new(None)?),
    ];
    match Ipset::new(list) {
        Ok(ipset) => droppers.push(Box::new(ipset)),
        Err(error) => eprintln!("fingerpost-bench: without ipset: {error:#}"),
    }
    let generator = Generator::new(list, rng)?;
    let mut rates: Vec<(&'static str, Vec<f64>)> =
        droppers.iter().map(|dropper| (dropper.name(), Vec::new())).collect();
    for _ in 0..rounds {
        for (dropper, (name, rates)) in droppers.iter_mut().zip(&mut rates) {
            let (mut seconds, mut dropped) = (0.0, 0);
            // On a busy machine the thread that reads the packets may not run at all while they are sent.
            for _ in 0..TRIES {
                dropper.start()?;
                // A veth creates its rings, and the thread that reads them, whenever a program is attached.
                receive_on(cpu)?;
                seconds = generator.send(packets)?;
                dropped = dropper.stop()?;
                if dropped > 0 {
                    break;
                }
            }
            ensure!(
                (1..=u64::from(packets)).contains(&dropped),
                "{name} has dropped {dropped} of {packets} packets"
            );
            rates.push(dropped as f64 / seconds / 1e6);
        }
    }
    Ok(rates)
}
