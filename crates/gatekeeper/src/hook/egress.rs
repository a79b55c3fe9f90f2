//! Egress: selects the packets that leave next.
//!
//! ICMP errors leave first: their rate limit keeps them few. SYN cookies and the packets of the link's
//! queues alternate, so that neither a SYN flood nor a full link starves the other.

use gate::limit::link::DequeuedPacket;
use gate::policy::Address;
use gate::tunnel::OVERHEAD;
use wire::{ipv4, ipv6, udp};

use super::GateHook;
use crate::queued_frames::{QueuedFrame, Target};
use datapath::{Disposition, EgressPacket, Key};

impl GateHook {
    /// Appends at most `room` packets that leave now.
    pub(super) fn dequeue(&mut self, room: usize, egress: &mut Vec<EgressPacket>) {
        for _ in 0..room {
            if let Some(error) = self.icmp_errors.next() {
                egress.push(error);
                continue;
            }
            self.cookies_first = !self.cookies_first;
            if self.cookies_first
                && let Some(cookie) = self.syn_cookies.next()
            {
                egress.push(cookie);
                continue;
            }
            let packet = self.link.next(self.now).and_then(|released| match released {
                DequeuedPacket::Operational(number)
                | DequeuedPacket::Request(number, _)
                | DequeuedPacket::Granted(number) => self.queued.take(number),
            });
            match packet {
                Some(packet) => egress.push(self.egress_packet(packet)),
                None => match self.syn_cookies.next() {
                    Some(cookie) => egress.push(cookie),
                    None => return,
                },
            }
        }
    }

    /// Returns the key and the disposition of a packet that the link has released.
    #[inline(always)]
    fn egress_packet(&mut self, packet: QueuedFrame) -> EgressPacket {
        let QueuedFrame { frame, target, dscp, hash } = packet;
        let (grantor, direct) = match target {
            Target::Destination(key) => {
                return EgressPacket { frame, key, disposition: Disposition::Forward };
            }
            Target::Grantor(grantor) => (grantor, false),
            Target::Direct(grantor) => (grantor, true),
        };
        let key = match grantor {
            Address::V4(address) => Key::V4(address),
            Address::V6(address) => Key::V6(address),
        };
        let sealed = self.is_sealed(grantor);
        EgressPacket { frame, key, disposition: Disposition::Tunnel { dscp, hash, direct, sealed } }
    }

    /// Returns whether packets to this grantor are sealed. If no tunnel is sealed, there is no lookup.
    #[inline(always)]
    fn is_sealed(&mut self, grantor: Address) -> bool {
        self.is_sealing && self.keys.current().find(grantor).is_some()
    }

    /// Returns the bytes that a packet to this target gains on the link: its outer headers.
    #[inline(always)]
    pub(super) fn outer_len(&mut self, target: Target) -> usize {
        let Target::Grantor(grantor) = target else { return 0 };
        let outer = match grantor {
            Address::V4(_) => ipv4::LEN,
            Address::V6(_) => ipv6::LEN,
        };
        let between = match (self.is_sealed(grantor), self.tunnels.udp) {
            (true, _) => udp::LEN + OVERHEAD,
            (false, Some(_)) => udp::LEN,
            (false, None) => 0,
        };
        outer + between
    }
}
