//! What leaves next.
//!
//! Answers to what is too big go first: they are few by their rate. Cookies and what the link lets
//! go take turns, so that neither a flood of SYNs nor a full link keeps the other from leaving.

use gate::limit::link::DequeuedPacket;
use gate::policy::Address;
use gate::tunnel::OVERHEAD;
use wire::{ipv4, ipv6, udp};

use super::GateHook;
use crate::datapath::{Disposition, EgressPacket, Key};
use crate::vantage::kept::{To, Waits};

impl GateHook {
    /// Appends what leaves now, as far as there is `room`.
    pub(super) fn dequeue(&mut self, room: usize, egress: &mut Vec<EgressPacket>) {
        for _ in 0..room {
            if let Some(reply) = self.replies.next() {
                egress.push(reply);
                continue;
            }
            // Neither a flood of SYNs nor a full link is to keep the other from leaving.
            self.cookies_first = !self.cookies_first;
            if self.cookies_first
                && let Some(cookie) = self.asker.next()
            {
                egress.push(cookie);
                continue;
            }
            let left = self.link.next(self.now).and_then(|left| match left {
                DequeuedPacket::Operational(number)
                | DequeuedPacket::Request(number, _)
                | DequeuedPacket::Granted(number) => self.kept.take(number),
            });
            match left {
                Some(waits) => egress.push(self.egress_packet(waits)),
                None => match self.asker.next() {
                    Some(cookie) => egress.push(cookie),
                    None => return,
                },
            }
        }
    }

    /// Says how a packet leaves that the link has let go.
    #[inline(always)]
    fn egress_packet(&mut self, waits: Waits) -> EgressPacket {
        let Waits { frame, to, dscp, hash } = waits;
        let (grantor, direct) = match to {
            To::Destination(key) => {
                return EgressPacket { frame, key, disposition: Disposition::Forward };
            }
            To::Grantor(grantor) => (grantor, false),
            To::Direct(grantor) => (grantor, true),
        };
        let key = match grantor {
            Address::V4(address) => Key::V4(address),
            Address::V6(address) => Key::V6(address),
        };
        let sealed = self.seals(grantor);
        EgressPacket { frame, key, disposition: Disposition::Tunnel { dscp, hash, direct, sealed } }
    }

    /// Returns whether packets to this grantor are sealed. Where no tunnel is, nothing is looked
    /// up.
    #[inline(always)]
    fn seals(&mut self, grantor: Address) -> bool {
        self.is_sealing && self.keys.current().find(grantor).is_some()
    }

    /// Returns the bytes that a packet has more on the link than when it came.
    #[inline(always)]
    pub(super) fn outer_len(&mut self, to: To) -> usize {
        let To::Grantor(grantor) = to else { return 0 };
        let outer = match grantor {
            Address::V4(_) => ipv4::LEN,
            Address::V6(_) => ipv6::LEN,
        };
        let between = match (self.seals(grantor), self.tunnels.udp) {
            (true, _) => udp::LEN + OVERHEAD,
            (false, Some(_)) => udp::LEN,
            (false, None) => 0,
        };
        outer + between
    }
}
