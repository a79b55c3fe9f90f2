//! Punt: packets for the host's stack, policed by class.
//!
//! ```text
//!   verdict ─► class ─► token left? ─ yes ─► port.punt ─► the kernel forwards, answers, delivers
//!                           └ no ──► dropped, or (a redirect, options) forwarded by the router itself
//! ```
//!
//! The kernel does what the router does not: it examines the options of packets, sends a Redirect where a
//! packet leaves by the interface that it came in on (RFC 1812, 5.2.7.2; RFC 4861, 8.2), the ICMP errors of
//! a gate or grantor, and those that a router cannot send (`icmp_errors.rs`).
//! It applies its own settings as it does so: `ip_forward`, `send_redirects`, rate limits by
//! destination, filters.
//!
//! A punt is a system call, in which the kernel does all of its work: some microseconds of the
//! worker's time. So each class has a token bucket, and a flood of one class takes neither the
//! worker's time nor the tokens of another class. Credit is counted in tenths of a packet, so
//! that a tick of the worker, a tenth of a second, adds the rate: no clock is read. A bucket
//! holds two ticks' worth, and at least one packet.
//!
//! Limits: buckets are by class and not by sender, so that one sender can use up a class. Packets
//! that the steering program passes to the kernel (for own addresses, ARP) do not
//! pass here: netfilter polices them.

use wire::{ethernet, ipv4};

use super::Verdict;

/// The kinds of punts that have a rate of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PuntClass {
    /// For the router itself: own addresses, ARP, multicast, broadcast, tags, other protocols.
    Local,
    /// The route leads to the host, which forwards or refuses.
    Forward,
    /// No route, or the TTL is used up: the host answers.
    Unreachable,
    /// Longer than the next link's MTU, and not to be fragmented: the host answers.
    TooBig,
    /// Has IPv4 options or hop-by-hop options: the host examines them, and forwards it.
    Options,
    /// Leaves by its ingress interface: the host forwards it, and sends a Redirect.
    Redirect,
}

/// The maximum number of punts a second, by class. 0: none; [`UNLIMITED`](Self::UNLIMITED): no
/// limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PuntRates {
    /// The rate of [`PuntClass::Local`].
    pub local: u32,
    /// The rate of [`PuntClass::Forward`].
    pub forward: u32,
    /// The rate of [`PuntClass::Unreachable`].
    pub unreachable: u32,
    /// The rate of [`PuntClass::TooBig`].
    pub too_big: u32,
    /// The rate of [`PuntClass::Options`].
    pub options: u32,
    /// The rate of [`PuntClass::Redirect`].
    pub redirect: u32,
}

impl PuntRates {
    /// The rate that does not limit.
    pub const UNLIMITED: u32 = u32::MAX;

    /// Punts only packets for the host, for a router without the kernel's routes.
    pub const LOCAL_ONLY: Self = Self {
        local: Self::UNLIMITED,
        forward: Self::UNLIMITED,
        unreachable: 0,
        too_big: 0,
        options: 0,
        redirect: 0,
    };

    /// The default of a gate: no redirects, because they could lead past it, and no options.
    pub const GATE: Self = Self { options: 0, redirect: 0, ..Self::ROUTER };

    /// The default of a router: at most a few percent of a core, except for packets that the host
    /// forwards by its routes.
    pub const ROUTER: Self = Self {
        local: 20_000,
        forward: Self::UNLIMITED,
        unreachable: 1_000,
        too_big: 10_000,
        options: 10_000,
        redirect: 100,
    };

    /// Returns the share of each of `workers` workers, rounded up.
    #[must_use]
    pub fn share(self, workers: usize) -> Self {
        let share = |rate: u32| match rate {
            Self::UNLIMITED => rate,
            rate => rate.div_ceil(u32::try_from(workers.max(1)).unwrap_or(u32::MAX)),
        };
        Self {
            local: share(self.local),
            forward: share(self.forward),
            unreachable: share(self.unreachable),
            too_big: share(self.too_big),
            options: share(self.options),
            redirect: share(self.redirect),
        }
    }

    /// Returns the rates in the order of the classes.
    fn by_class(self) -> [u32; CLASSES] {
        let Self { local, forward, unreachable, too_big, options, redirect } = self;
        [local, forward, unreachable, too_big, options, redirect]
    }
}

impl Default for PuntRates {
    fn default() -> Self {
        Self::ROUTER
    }
}

const CLASSES: usize = PuntClass::Redirect as usize + 1;
/// The cost of a packet, in tenths: a tick is a tenth of a second.
const PACKET: u64 = 10;

/// The token buckets of one worker.
#[derive(Debug)]
pub(super) struct Policer {
    /// The tokens of a tick, in tenths of a packet.
    rates: [u32; CLASSES],
    /// The tokens left, in tenths of a packet.
    credit: [u64; CLASSES],
}

impl Policer {
    /// Makes full buckets for one worker's share of the rates.
    pub(super) fn new(rates: PuntRates) -> Self {
        let rates = rates.by_class();
        Self { rates, credit: rates.map(depth) }
    }

    /// Takes a token, and returns whether there was one.
    pub(super) fn take(&mut self, class: PuntClass) -> bool {
        let at = class as usize;
        let (Some(rate), Some(credit)) = (self.rates.get(at), self.credit.get_mut(at)) else {
            return false;
        };
        if *rate == PuntRates::UNLIMITED {
            return true;
        }
        let Some(left) = credit.checked_sub(PACKET) else { return false };
        *credit = left;
        true
    }

    /// Adds the tokens of one tick.
    pub(super) fn tick(&mut self) {
        for (credit, rate) in self.credit.iter_mut().zip(self.rates) {
            *credit = (*credit + u64::from(rate)).min(depth(rate));
        }
    }
}

/// Returns the maximum credit of a rate, in tenths of a packet: two ticks' worth, and enough that
/// no fraction of a packet is lost at a tick.
fn depth(rate: u32) -> u64 {
    let rate = u64::from(rate);
    if rate == 0 { 0 } else { (2 * rate).max(PACKET - 1 + rate) }
}

/// The class of a punt, and the verdict in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Punt {
    /// The class to police; `None`: a token was taken before.
    pub(super) class: Option<PuntClass>,
    /// The verdict of a packet that the host accepted.
    pub(super) taken: Verdict,
    /// The verdict if its class has no token left.
    pub(super) limited: Verdict,
    /// The verdict if the port has no host, or the host refuses the packet.
    pub(super) refused: Verdict,
}

impl Punt {
    /// Returns how to punt a packet that ends in `verdict`, or `None` if it is not punted. With
    /// `further`, the host continues with other tables where this one has no route; with `answers`,
    /// it answers expired packets that the router does not answer itself.
    pub(super) fn of(verdict: Verdict, further: bool, answers: bool) -> Option<Self> {
        let (class, taken) = match verdict {
            Verdict::TooBig => {
                let (class, taken) = (Some(PuntClass::TooBig), Verdict::Oversize);
                return Some(Self { class, taken, limited: verdict, refused: verdict });
            }
            Verdict::NoRoute if !further => {
                let (class, taken) = (Some(PuntClass::Unreachable), Verdict::Unreachable);
                return Some(Self { class, taken, limited: verdict, refused: verdict });
            }
            Verdict::UnreachableRoute | Verdict::ProhibitRoute => {
                let (class, taken) = (Some(PuntClass::Unreachable), Verdict::Unreachable);
                return Some(Self { class, taken, limited: verdict, refused: verdict });
            }
            // Linux drops it, unless `accept_source_route` is set, or its options are wrong.
            Verdict::SourceRoute if answers => {
                let (class, taken) = (Some(PuntClass::Options), Verdict::Options);
                return Some(Self { class, taken, limited: verdict, refused: verdict });
            }
            // Beyond the scope of its source (RFC 4443, 3.1).
            Verdict::LinkLocal if answers => {
                let (class, taken) = (Some(PuntClass::Unreachable), Verdict::Unreachable);
                return Some(Self { class, taken, limited: verdict, refused: verdict });
            }
            Verdict::TtlExpired if answers => {
                let (class, taken) = (Some(PuntClass::Unreachable), Verdict::Expired);
                return Some(Self { class, taken, limited: verdict, refused: verdict });
            }
            Verdict::NoRoute | Verdict::HostRoute => (Some(PuntClass::Forward), Verdict::HostRoute),
            Verdict::Redirect | Verdict::Options => (None, verdict),
            Verdict::OwnAddress
            | Verdict::Arp
            | Verdict::Multicast
            | Verdict::Broadcast
            | Verdict::Tagged
            | Verdict::EtherType => (Some(PuntClass::Local), verdict),
            _ => return None,
        };
        Some(Self { class, taken, limited: Verdict::PuntLimit, refused: Verdict::NoHost })
    }

    /// Returns whether the packet is for the host itself.
    pub(super) fn is_local(&self) -> bool {
        self.class == Some(PuntClass::Local)
    }
}

/// Returns whether a router may fragment a packet: IPv4 without Don't Fragment (RFC 791, 3.1).
pub(super) fn may_fragment(frame: &[u8]) -> bool {
    const DONT_FRAGMENT: u8 = 0b010;
    let packet = frame.get(ethernet::LEN..).unwrap_or_default();
    packet.first().is_some_and(|first| first >> 4 == 4)
        && ipv4::View::parse(packet).is_ok_and(|packet| packet.flags() & DONT_FRAGMENT == 0)
}

#[cfg(test)]
mod tests {
    use super::{Policer, PuntClass, PuntRates};

    #[test]
    fn policer_over_any_time_takes_rate_and_two_ticks_and_no_more() {
        for rate in [1, 3, 10, 1_000, 20_000] {
            let mut policer = Policer::new(PuntRates { too_big: rate, ..PuntRates::default() });
            let mut taken = 0;
            for _ in 0..100 {
                while policer.take(PuntClass::TooBig) {
                    taken += 1;
                }
                policer.tick();
            }
            let burst = (rate / 5).max(1);
            assert!(
                (10 * rate - rate / 10..=10 * rate + burst).contains(&taken),
                "{rate}: {taken}"
            );
            assert!(policer.take(PuntClass::Unreachable), "another class has its own");
        }
    }

    #[test]
    fn policer_of_rate_zero_takes_nothing_and_unlimited_all() {
        let mut policer = Policer::new(PuntRates::LOCAL_ONLY);
        policer.tick();
        for _ in 0..100_000 {
            assert!(policer.take(PuntClass::Local) && !policer.take(PuntClass::Redirect));
        }
    }

    #[test]
    fn shares_of_workers_add_up_to_the_rate() {
        let share = PuntRates { too_big: 10, redirect: 0, ..PuntRates::default() }.share(4);
        assert_eq!((share.too_big, share.redirect), (3, 0));
        assert_eq!(share.forward, PuntRates::UNLIMITED);
    }
}
