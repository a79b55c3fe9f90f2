//! SYN cookies on the wire: a SYN+ACK with a cookie, sent back to where the SYN came from.
//!
//! ```text
//!   SYN    │ from x to gate │ S > D │ sport > dport  seq=i          SYN     options, data │
//!   answer │ from gate to x │ D > S │ dport > sport  seq, ack=cookie SYN+ACK              │
//! ```
//!
//! The gate computes the cookie and decides which SYNs get one (`gate/src/cookie.rs`). This file
//! builds the answer: it leaves by the port of the SYN, to the MAC address that sent it, without a
//! route lookup. An attacker that forges a source address can thus have an answer sent only to a
//! place where it could send a packet itself, and never into the protected network.
//!
//! An answer has 40 bytes, or 60 over IPv6, and no SYN is shorter: nothing is amplified. It has no
//! options and a window of 0. A SYN gets no answer if its source is an address of this machine
//! (directed broadcasts of its links among them) or its sender's MAC address is a group address. Other
//! impossible sources are dropped before the gate sees them (`datapath/parse.rs`).

use std::collections::VecDeque;

use gate::cookie::Cookie;
use port::{Arena, Frame};
use wire::checksum::{pseudo_ipv4, pseudo_ipv6};
use wire::{ethernet, ipv4, ipv6, tcp};

use super::config::FRONT;
use datapath::{Disposition, EgressPacket, Key, Locals, SIZE};

/// The maximum number of queued answers: twice those of a turn.
const CAPACITY: usize = 2 * SIZE;
/// The length of the longest answer.
const MAX_FRAME: usize = ethernet::LEN + ipv6::LEN + tcp::LEN;
const HOP_LIMIT: u8 = 64;

/// Answers SYNs with cookies.
#[derive(Debug)]
pub(super) struct SynCookieResponder {
    ready: VecDeque<(Frame, Key)>,
    pub(super) sent: u64,
    /// Answers that were not sent: no free frame, a full queue, or no valid receiver.
    pub(super) failed: u64,
}

impl SynCookieResponder {
    pub(super) fn new() -> Self {
        Self { ready: VecDeque::with_capacity(CAPACITY), sent: 0, failed: 0 }
    }

    /// Queues an answer to a SYN of the front port, whose MAC address is `mac`; returns whether it did.
    pub(super) fn answer(
        &mut self,
        arena: &mut Arena,
        syn: &Frame,
        cookie: Cookie,
        mac: [u8; 6],
        locals: &Locals,
    ) -> bool {
        let queued =
            self.ready.len() < CAPACITY && self.enqueue(arena, syn, cookie, mac, locals).is_some();
        *if queued { &mut self.sent } else { &mut self.failed } += 1;
        queued
    }

    fn enqueue(
        &mut self,
        arena: &mut Arena,
        syn: &Frame,
        cookie: Cookie,
        mac: [u8; 6],
        locals: &Locals,
    ) -> Option<()> {
        let mut bytes = [0; MAX_FRAME];
        let (len, key) = emit(arena.bytes(syn), cookie, mac, &mut bytes)?;
        let own = match key {
            Key::V4(address) => locals.holds_v4(address),
            Key::V6(address) => locals.holds_v6(address),
        };
        if own {
            return None;
        }
        let mut frame = arena.alloc()?;
        if !arena.resize(&mut frame, len) {
            arena.free(frame);
            return None;
        }
        arena.bytes_mut(&frame).copy_from_slice(&bytes[..len]);
        self.ready.push_back((frame, key));
        Some(())
    }

    /// Removes and returns the next answer.
    pub(super) fn next(&mut self) -> Option<EgressPacket> {
        let (frame, key) = self.ready.pop_front()?;
        Some(EgressPacket { frame, key, disposition: Disposition::Return { port: FRONT as u16 } })
    }

    /// Returns the number of queued answers.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }
}

/// Writes the answer to a SYN and returns its length and receiver; `None` if the sender's MAC address
/// is a group address or the frame is not TCP.
fn emit(
    syn: &[u8],
    cookie: Cookie,
    mac: [u8; 6],
    out: &mut [u8; MAX_FRAME],
) -> Option<(usize, Key)> {
    let ether = ethernet::View::parse(syn).ok()?;
    if ethernet::is_group(ether.src()) || ether.src() == mac {
        return None;
    }
    let packet = ether.payload();
    let (front, body) = out.split_at_mut(ethernet::LEN);
    front[..6].copy_from_slice(&ether.src());
    front[6..12].copy_from_slice(&mac);
    front[12..].copy_from_slice(&ether.kind().to_be_bytes());
    let (len, key) = if packet.first()? >> 4 == 6 {
        let ip = ipv6::View::parse(packet).ok()?;
        let upper = ip.upper().ok()?;
        let header = ipv6::Header {
            payload_len: tcp::LEN as u16,
            next_header: tcp::PROTOCOL,
            hop_limit: HOP_LIMIT,
            src: ip.dst(),
            dst: ip.src(),
            ..ipv6::Header::default()
        };
        let begin = header.emit(body).ok()?;
        let pseudo = pseudo_ipv6(header.src, header.dst, tcp::PROTOCOL, tcp::LEN as u32);
        let segment = ip.payload().get(upper.offset - ipv6::LEN..)?;
        let room = body.get_mut(begin..begin + tcp::LEN)?;
        tcp_header(segment, cookie)?.emit(room, pseudo).ok()?;
        (begin + tcp::LEN, Key::V6(header.dst))
    } else {
        let ip = ipv4::View::parse(packet).ok()?;
        let header = ipv4::Header {
            total_len: (ipv4::LEN + tcp::LEN) as u16,
            flags: ipv4::DONT_FRAGMENT,
            ttl: HOP_LIMIT,
            protocol: tcp::PROTOCOL,
            src: ip.dst(),
            dst: ip.src(),
            ..ipv4::Header::default()
        };
        let begin = header.emit(body).ok()?;
        let pseudo = pseudo_ipv4(header.src, header.dst, tcp::PROTOCOL, tcp::LEN as u16);
        let room = body.get_mut(begin..begin + tcp::LEN)?;
        tcp_header(ip.payload(), cookie)?.emit(room, pseudo).ok()?;
        (begin + tcp::LEN, Key::V4(header.dst))
    };
    Some((ethernet::LEN + len, key))
}

/// Returns the TCP header of the answer to a SYN.
fn tcp_header(segment: &[u8], cookie: Cookie) -> Option<tcp::Header<'static>> {
    let syn = tcp::View::parse(segment).ok()?;
    Some(tcp::Header {
        src_port: syn.dst_port(),
        dst_port: syn.src_port(),
        sequence: cookie.sequence,
        acknowledgement: cookie.acknowledgement,
        flags: tcp::SYN | tcp::ACK,
        ..tcp::Header::default()
    })
}
