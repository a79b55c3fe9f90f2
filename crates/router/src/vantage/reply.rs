//! Answers to packets that are too big: Packet Too Big, Fragmentation Needed.
//!
//! ```text
//!   packet, MTU ─► rate ─► a frame of its own ─► waits ─► leaves with the next turn
//! ```
//!
//! A tunnel's packets are longer than what enters it, so there are packets that fit
//! the front link and not the tunnel. Their sender is told what fits, as RFC 1191 and RFC
//! 8201 have it, and never left alone with a path that swallows packets. An IPv4 packet
//! that may be fragmented is answered as well: this machine fragments nothing.
//!
//! So many a second at the most (RFC 4443, 2.4(f)); what is beyond that is counted. Some
//! packets are never answered (`wire/src/icmp_error.rs`).

use std::collections::VecDeque;

use gate::limit::bucket::{Bucket, DEEPEST};
use port::{Arena, Frame};
use wire::icmp_error::{LONGEST_V6, Reason, emit_v4, emit_v6};
use wire::{ethernet, ipv4, ipv6};

use crate::datapath::{Key, Leaving, Way};

/// Answers that wait at the most; a turn makes at most one for each packet that left.
const MOST: usize = 64;
/// What an answer takes of a bucket: it counts bytes, and these are all the same.
const PRICE: u32 = 1000;

/// Who answers.
#[derive(Debug)]
pub(super) struct Replies {
    /// From these addresses.
    from4: Option<u32>,
    from6: Option<u128>,
    rate: Bucket,
    ready: VecDeque<(Frame, Key)>,
    scratch: Box<[u8; LONGEST_V6]>,
    pub(super) sent: u64,
    /// Those beyond the rate, and those without an address or a frame to answer by.
    pub(super) spared: u64,
}

impl Replies {
    /// Answers from these addresses, at most so many times a second.
    pub(super) fn new(from4: Option<u32>, from6: Option<u128>, rate: u32, now: u64) -> Self {
        let rate = Bucket::new(u64::from(rate) * u64::from(PRICE), DEEPEST, now);
        let scratch = Box::new([0; LONGEST_V6]);
        let ready = VecDeque::with_capacity(MOST);
        Self { from4, from6, rate, ready, scratch, sent: 0, spared: 0 }
    }

    /// Answers a packet that is longer than `mtu`; says whether it did.
    pub(super) fn too_big(&mut self, arena: &mut Arena, frame: &Frame, mtu: u32, now: u64) -> bool {
        let done = self.ready.len() < MOST
            && self.rate.allows(now, PRICE)
            && self.answer(arena, frame, mtu).is_some();
        if done {
            self.rate.take(PRICE);
            self.sent += 1;
        } else {
            self.spared += 1;
        }
        done
    }

    fn answer(&mut self, arena: &mut Arena, frame: &Frame, mtu: u32) -> Option<()> {
        let packet = arena.bytes(frame).get(ethernet::LEN..)?;
        let out = &mut self.scratch[..];
        let reason = Reason::TooBig(mtu);
        let (len, key, kind) = if packet.first()? >> 4 == 6 {
            let to = ipv6::View::parse(packet).ok()?.src();
            let len = emit_v6(reason, packet, self.from6?, out).ok()??;
            (len, Key::V6(to), ethernet::IPV6)
        } else {
            let to = ipv4::View::parse(packet).ok()?.src();
            let len = emit_v4(reason, packet, self.from4?, out).ok()??;
            (len, Key::V4(to), ethernet::IPV4)
        };
        let mut answer = arena.alloc()?;
        if !arena.resize(&mut answer, ethernet::LEN + len) {
            arena.free(answer);
            return None;
        }
        let (ether, packet) = arena.bytes_mut(&answer).split_at_mut(ethernet::LEN);
        ether[12..].copy_from_slice(&kind.to_be_bytes());
        packet.copy_from_slice(&self.scratch[..len]);
        self.ready.push_back((answer, key));
        Some(())
    }

    /// Returns the answer that leaves next.
    pub(super) fn next(&mut self) -> Option<Leaving> {
        let (frame, key) = self.ready.pop_front()?;
        Some(Leaving { frame, key, way: Way::Own })
    }

    /// Counts the answers that wait.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }
}
