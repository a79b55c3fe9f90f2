//! Fragments: sends an IPv4 packet that exceeds the next link's MTU in parts, where its sender allows it.
//!
//! ```text
//!   frame ─► free frames: | Ethernet | header | payload | … each staged on the egress, in order
//!      └───► the last fragment, in place: its header is written in front of the rest of the payload
//! ```
//!
//! As in Linux, the path is that of the packet, and the TTL is decremented once. The packet's own frame is
//! the last fragment; the others are packets that this machine originates. All of them are sent at once,
//! with the frames that are staged before them, so that a lane needs no room for more than a batch.
//!
//! The packet is dropped as too big if there are not enough free frames.

use fib::Hop;
use port::Frame;
use wire::ethernet;
use wire::fragment::Fragments;

use super::exit::Exit;
use super::rewrite::decrement_ttl;
use super::turn::{LANE_ROOM, Turn, stage};
use super::{Verdict, flow_v4};

impl Turn<'_> {
    /// Sends a packet as fragments, or drops it. Its sender allows it, and its hop has a port.
    #[cold]
    pub(super) fn send_fragments(&mut self, mut frame: Frame, hop: Hop) {
        let bytes = self.arena.bytes(&frame);
        let exit = self.adjacencies.exit(hop, |hash| flow_v4(bytes, hash));
        decrement_ttl(self.arena.bytes_mut(&frame));
        let packet = self.arena.bytes(&frame).get(ethernet::LEN..).unwrap_or_default();
        let Some(fragments) = Fragments::new(packet, exit.adjacency().mtu()) else {
            return self.drop(frame, Verdict::TooBig);
        };
        let last = fragments.count() - 1;
        let header = ethernet::LEN + fragments.header_len();
        // The first is the longest.
        if self.arena.available_for(header + fragments.payload(0).len()) < last {
            return self.drop(frame, Verdict::TooBig);
        }
        self.stats.fragmented(fragments.count() as u64);
        for number in 0..last {
            let payload = fragments.payload(number);
            let Some(fragment) = self.arena.alloc_for(header + payload.len()) else { continue };
            self.stats.originated();
            let range = ethernet::LEN + payload.start..ethernet::LEN + payload.end;
            self.arena.copy(&frame, range, &fragment, header);
            self.stage_fragment(fragment, &fragments, number, exit);
        }
        let payload = fragments.payload(last);
        self.arena.shrink_front(&mut frame, payload.start - fragments.header_len());
        self.arena.resize(&mut frame, ethernet::LEN + fragments.header_len() + payload.len());
        self.stage_fragment(frame, &fragments, last, exit);
        self.send_lanes(1);
    }

    /// Writes the headers of a fragment, whose payload is in its place, and stages it.
    fn stage_fragment(&mut self, frame: Frame, fragments: &Fragments, number: usize, exit: &Exit) {
        let bytes = self.arena.bytes_mut(&frame);
        let written =
            bytes.split_first_chunk_mut::<{ ethernet::LEN }>().is_some_and(|(ether, packet)| {
                exit.write(ether, 0);
                ether[12..].copy_from_slice(&ethernet::IPV4.to_be_bytes());
                fragments.write_header(number, packet)
            });
        if !written {
            return self.drop(frame, Verdict::TooBig);
        }
        let len = frame.len();
        let from = self.ingress.behind_tags();
        match stage(self.arena, self.lanes, self.adjacencies, frame, from, exit, len) {
            Ok(()) => self.send_lanes(LANE_ROOM),
            Err(frame) => self.drop(frame, Verdict::NoRoute),
        }
    }

    /// Sends the frames of lanes that have staged at least this many.
    fn send_lanes(&mut self, least: usize) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.staged.len() >= least) {
            lane.send(self.arena, self.stats);
        }
    }
}
