//! The contestants: programs that differ in the subroutine of the lookup.

use std::any::Any;
use std::os::fd::{AsFd, AsRawFd};

use ::xdp::probe::Keys;
use ::xdp::{BpfArrays, KernelTable, Probe};
use anyhow::Context;
use fib::{Choice, Family, Hop, Prefix, Rib, Updater};
use port::af_xdp::bpf::asm::Reg::{R0, R1, R2, R3, R4, R10};
use port::af_xdp::bpf::asm::{Assembler, Cond, Helper, Label, Op, Size};
use port::af_xdp::bpf::{Kind, Map};

use super::kernel_routes::KernelFamily;
use crate::contest::Contestant;
use crate::keys::Stream;

/// A program in the kernel that looks keys up.
pub(super) struct Program {
    name: &'static str,
    probe: Probe,
    bytes: usize,
    out: Vec<Hop>,
    /// Must live as long as the program is used.
    _table: Box<dyn Any>,
}

impl Program {
    /// Our table, of the engine `flat` or `rank`.
    pub(super) fn ours<A: Family>(rib: Rib<A>, choice: Choice, keys: u32) -> anyhow::Result<Self> {
        let files = BpfArrays::new("chunks");
        let updater = Updater::new_in(rib, choice, 2, files.clone())?;
        let table = KernelTable::new(&files, updater.fib())?;
        let probe = Probe::new(Keys::new::<A>(keys)?, table.arrays())?;
        let bytes = updater.fib().footprint();
        let name = if choice == Choice::Rank { "rank" } else { "flat" };
        Ok(Self::new(name, probe, bytes, (updater, table)))
    }

    /// The kernel's trie.
    pub(super) fn lpm_trie<A: KernelFamily>(
        routes: &[(Prefix<A>, Hop)],
        keys: u32,
    ) -> anyhow::Result<Self> {
        let map = trie(routes)?;
        let keys = Keys::new::<A>(keys)?;
        let program = keys.load(|asm, label| append_trie_lookup::<A>(asm, label, &map))?;
        Ok(Self::new("lpm_trie", Probe::with(keys, program), memory(&map), map))
    }

    /// The kernel's routing table, as packets from interface `ifindex` are routed.
    pub(super) fn fib_lookup<A: KernelFamily>(ifindex: u32, keys: u32) -> anyhow::Result<Self> {
        let keys = Keys::new::<A>(keys)?;
        let program = keys.load(|asm, label| append_fib_lookup::<A>(asm, label, ifindex))?;
        Ok(Self::new("fib_lookup", Probe::with(keys, program), 0, ()))
    }

    /// No lookup.
    pub(super) fn empty<A: Family>(keys: u32) -> anyhow::Result<Self> {
        let keys = Keys::new::<A>(keys)?;
        let program = keys.load(|asm, label| {
            asm.bind(label).mov(R0, 0).exit();
        })?;
        Ok(Self::new("empty", Probe::with(keys, program), 0, ()))
    }

    fn new(name: &'static str, probe: Probe, bytes: usize, table: impl Any) -> Self {
        Self { name, probe, bytes, out: Vec::new(), _table: Box::new(table) }
    }
}

impl<A: Family> Contestant<A> for Program {
    fn name(&self) -> &str {
        self.name
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn answer(&mut self, _stream: Stream, keys: &[A], out: &mut [Hop]) -> anyhow::Result<()> {
        self.probe.run(keys, out)?;
        Ok(())
    }

    fn rate(&mut self, _stream: Stream, keys: &[A], _threads: usize) -> anyhow::Result<f64> {
        self.out.resize(keys.len(), Hop::NONE);
        Ok(1e3 / self.probe.run(keys, &mut self.out)?)
    }
}

/// Makes a trie of routes, whose values are their hops.
pub(crate) fn trie<A: Family>(routes: &[(Prefix<A>, Hop)]) -> anyhow::Result<Map> {
    let bytes = (A::BITS / 8) as usize;
    let map = Map::new(Kind::LpmTrie, "trie", 4 + bytes, 4, routes.len() as u32)?;
    let mut key = vec![0; 4 + bytes];
    for (prefix, hop) in routes {
        key[..4].copy_from_slice(&prefix.len().to_ne_bytes());
        key[4..].copy_from_slice(&prefix.addr().to_u128().to_be_bytes()[16 - bytes..]);
        map.update(&key, &hop.0.to_ne_bytes()).context("filling the LPM trie")?;
    }
    Ok(map)
}

/// Returns the bytes that the kernel charges for a map; 0 if it does not state them.
fn memory(map: &Map) -> usize {
    let path = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let field = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    field.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
}

/// Appends a lookup in a trie.
fn append_trie_lookup<'m, A: KernelFamily>(asm: &mut Assembler<'m>, label: Label, map: &'m Map) {
    let none = asm.label();
    // struct bpf_lpm_trie_key: the length, then the address.
    let key = -4 - (A::BITS / 8) as i16;
    asm.bind(label).store(Size::Word, R10, key, A::BITS as i32);
    store_address::<A>(asm, key + 4);
    asm.map_lookup(map, key)
        .jump_if(Cond::Eq, R0, 0, none)
        .load(Size::Word, R0, R0, 0)
        .exit()
        .bind(none)
        .mov(R0, 0)
        .exit();
}

/// Appends a lookup in the kernel's routing table.
fn append_fib_lookup<A: KernelFamily>(asm: &mut Assembler<'_>, label: Label, ifindex: u32) {
    // struct bpf_fib_lookup of linux/bpf.h, of 64 bytes.
    const PARAMS: i16 = -64;
    const FAMILY: i16 = PARAMS;
    const IFINDEX: i16 = PARAMS + 8;
    const DESTINATION: i16 = PARAMS + 32;
    // BPF_FIB_LOOKUP_SKIP_NEIGH, since Linux 6.3.
    const SKIP_NEIGHBOR: i32 = 1 << 2;
    let none = asm.label();
    asm.bind(label);
    for at in (PARAMS..0).step_by(8) {
        asm.store(Size::Double, R10, at, 0);
    }
    store_address::<A>(asm, DESTINATION);
    asm.store(Size::Byte, R10, FAMILY, A::FAMILY)
        .store(Size::Word, R10, IFINDEX, ifindex as i32)
        .mov(R1, R3)
        .mov(R2, R10)
        .add(R2, i32::from(PARAMS))
        .mov(R3, 64)
        .mov(R4, SKIP_NEIGHBOR)
        .call(Helper::FibLookup)
        .jump_if(Cond::Ne, R0, 0, none)
        // The last two bytes of the gateway are the hop.
        .load(Size::Half, R0, R10, DESTINATION + (A::BITS / 8) as i16 - 2)
        .big_endian(R0, 16)
        .exit()
        .bind(none)
        .mov(R0, 0)
        .exit();
}

/// Stores the address of r1, or of r1 and r2, in the network's order at `at` of the stack.
fn store_address<A: KernelFamily>(asm: &mut Assembler<'_>, at: i16) {
    if A::BITS == 32 {
        asm.big_endian(R1, 32).store(Size::Word, R10, at, R1);
        return;
    }
    for (half, at) in [(R1, at), (R2, at + 8)] {
        // Words: a key's address is not at a multiple of 8 bytes.
        asm.big_endian(half, 64).store(Size::Word, R10, at, half).op(Op::Rsh, half, 32).store(
            Size::Word,
            R10,
            at + 4,
            half,
        );
    }
}
