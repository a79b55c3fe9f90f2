//! A port that receives a flood: each packet from another source, or of flows by chance.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use port::{Arena, Frame, Port, PortStats};
use wire::checksum::update32;
use wire::{ethernet, ipv4};

use super::course::{Numbers, PROTECTED, source};

/// A frame of the least length, its check sequence apart.
pub(super) const FRAME: usize = 60;
/// Where in the frame the checksum and the source are.
const CHECKSUM: usize = ethernet::LEN + 10;
const SOURCE: usize = ethernet::LEN + 12;
/// The ends of the gate's tunnels: its grantor and itself.
pub(super) const GRANTOR: u32 = 0xac10_0001;
pub(super) const BACK: u32 = 0xac10_00fe;

/// Makes the frame of a packet from `src` to the protected network.
pub(super) fn frame(mac: [u8; 6], src: u32) -> Result<[u8; FRAME], wire::BadHeader> {
    let mut frame = [0; FRAME];
    let ether = ethernet::Header { dst: mac, src: [2, 0, 0, 0, 1, 1], kind: ethernet::IPV4 };
    let at = ether.emit(&mut frame)?;
    let total_len = (FRAME - ethernet::LEN) as u16;
    let dst = PROTECTED;
    ipv4::Header { total_len, ttl: 64, protocol: 17, src, dst, ..Default::default() }
        .emit(&mut frame[at..])?;
    Ok(frame)
}

/// Returns whether a gate accepts packets from this address: one that a router forwards, and neither in the
/// protected network nor an end of its tunnels: such packets are forged at the front.
pub(super) fn is_accepted(src: u32) -> bool {
    !matches!(src >> 24, 0 | 127 | 224..)
        && src >> 16 != 0xa9fe
        && src >> 8 != PROTECTED >> 8
        && src != GRANTOR
        && src != BACK
}

/// Receives packets as long as there are any left, and sends none.
pub(super) struct Flood {
    mac: [u8; 6],
    /// A packet from address 0, which is patched.
    packet: [u8; FRAME],
    checksum: u16,
    left: Arc<AtomicU64>,
    numbers: Numbers,
    stats: PortStats,
}

impl Flood {
    /// Creates the port, and the counter of packets left to send.
    pub(super) fn new(
        mac: [u8; 6],
        flows: Option<u32>,
    ) -> Result<(Self, Arc<AtomicU64>), wire::BadHeader> {
        let packet = frame(mac, 0)?;
        let checksum = u16::from_be_bytes([packet[CHECKSUM], packet[CHECKSUM + 1]]);
        let (left, stats) = (Arc::<AtomicU64>::default(), PortStats::default());
        let numbers = Numbers::new(flows);
        let port = Self { mac, packet, checksum, left: left.clone(), numbers, stats };
        Ok((port, left))
    }

    /// Returns the next source that the gate accepts packets from.
    fn next(&mut self) -> u32 {
        loop {
            let number = self.numbers.draw();
            if is_accepted(source(number)) {
                return source(number);
            }
        }
    }
}

impl Port for Flood {
    fn name(&self) -> &'static str {
        "flood"
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> usize {
        1500
    }

    fn receive(&mut self, arena: &mut Arena, room: usize, out: &mut Vec<Frame>) -> usize {
        let left = self.left.load(Ordering::Relaxed);
        let wanted = (room as u64).min(left) as usize;
        let mut received = 0;
        while received < wanted {
            let src = self.next();
            self.packet[SOURCE..SOURCE + 4].copy_from_slice(&src.to_be_bytes());
            let checksum = update32(self.checksum, 0, src);
            self.packet[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
            let Some(frame) = arena.copy_in(&self.packet) else { break };
            out.push(frame);
            received += 1;
        }
        self.left.store(left - received as u64, Ordering::Relaxed);
        self.stats.received += received as u64;
        self.stats.received_bytes += (received * FRAME) as u64;
        received
    }

    fn transmit(&mut self, arena: &mut Arena, frames: &mut Vec<Frame>) -> usize {
        let count = frames.len();
        frames.drain(..).for_each(|frame| arena.free(frame));
        self.stats.transmitted += count as u64;
        count
    }

    fn punt(&mut self, _: &Arena, _: &Frame) -> bool {
        self.stats.punted += 1;
        true
    }

    fn flush(&mut self, _: &mut Arena) {}

    fn stats(&self) -> PortStats {
        self.stats
    }

    fn mode(&self) -> &'static str {
        "flood"
    }
}
