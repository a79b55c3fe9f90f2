//! The queues of a link: one for the port's own packets, and one for each device over it that has a rate of
//! its own, such as a VLAN.
//!
//! ```text
//!   port       EgressQueue                ─┐
//!   VLAN 100   EgressQueue ─► its Pacer   ─┼─► the link's Pacer
//!   VLAN 200   EgressQueue ─► its Pacer   ─┤
//!   bond       EgressQueue ─► its Pacer ┬ ─┘
//!   bond.100   EgressQueue ─► its Pacer ┘
//! ```
//!
//! A packet leaves if the link is free and the rate of its device permits, and that of the device around it: the bond,
//! of a VLAN device over one. Packets that go before others in
//! their own queue (control packets and requests within their share) go before those of other devices, too.
//! Otherwise the device goes next that has had the fewest bytes for its weight (start-time fair queueing, Goyal, Vin,
//! Cheng, SIGCOMM 1996): devices that share a full link have parts of it by their weights, up to their rates. A device
//! that had nothing to send starts with as many bytes as the one that is served now.
//!
//! Several workers have such queues of one link, with the same pacers: a packet leaves if it is this worker's turn
//! (`pacer_share.rs`).
//!
//! Choosing a device takes O(devices), and for each O(workers).

use super::{Departure, EgressQueue, EgressQueueParameters, Offer, PacerShare};

/// The number that a byte of a device of weight 1 counts.
const SCALE: u128 = 1 << 20;

/// A device that has a queue.
#[derive(Debug)]
pub struct LinkDevice {
    /// The parameters of the queue.
    pub parameters: EgressQueueParameters,
    /// The rate of the device; `None`: no limit of its own.
    pub pacer: Option<PacerShare>,
    /// The number of the device whose rate limits this one's packets, too. That device is within no other.
    pub within: Option<usize>,
    /// Its part of a full link, in proportion to the weights of the others; at least 1.
    pub weight: u32,
}

/// The queue of a device.
#[derive(Debug)]
struct DeviceQueue<T> {
    queue: EgressQueue<T>,
    pacer: Option<PacerShare>,
    within: Option<usize>,
    /// Whether a packet waits that its rate permits, or that of a device within it, and whether one of these is
    /// urgent: as the device was last examined.
    ready: Option<bool>,
    weight: u32,
    /// The bytes that it has had, with those that it had no use for, times [`SCALE`] by the weight.
    served: u128,
}

impl<T> DeviceQueue<T> {
    /// Returns whether the packet that leaves next is urgent; `None` if no packet waits.
    fn packet(&self) -> Option<bool> {
        (!self.queue.is_empty()).then(|| self.queue.is_urgent())
    }

    /// Returns whether the rate of the device permits a packet.
    fn permits(&self, now: u64, is_urgent: bool) -> bool {
        let permits = |pacer: &PacerShare| pacer.is_free(now) && pacer.is_next(now, is_urgent);
        self.pacer.as_ref().is_none_or(permits)
    }

    /// Publishes to the other workers whether packets wait, those of devices within this one included, and
    /// stores in `ready` whether the rate permits one.
    fn examine(&mut self, now: u64) {
        let waiting = [self.packet(), self.ready].into_iter().flatten().reduce(|a, b| a | b);
        if let Some(pacer) = &mut self.pacer {
            match waiting {
                None => pacer.rest(),
                Some(is_urgent) => pacer.wait(now, is_urgent),
            }
        }
        self.ready = waiting.filter(|is_urgent| self.permits(now, *is_urgent));
    }
}

/// The queues of a link.
#[derive(Debug)]
pub struct LinkQueues<T> {
    pacer: Option<PacerShare>,
    /// The port's own is the first.
    devices: Vec<DeviceQueue<T>>,
    /// The number of packets that wait.
    len: usize,
    /// `served` of the device that was served last.
    served: u128,
    /// The device whose packet was to leave next when it was last selected, and whether that is urgent.
    selected: Option<(usize, bool)>,
    /// Packets have come or left since then.
    has_changed: bool,
    /// Some device is within another.
    is_nested: bool,
}

impl<T> LinkQueues<T> {
    /// Makes the empty queues of a link with this pacer. The first device is the port itself.
    pub fn new(pacer: Option<PacerShare>, devices: impl IntoIterator<Item = LinkDevice>) -> Self {
        let device = |LinkDevice { parameters, pacer, within, weight }| DeviceQueue {
            queue: EgressQueue::new(parameters),
            pacer,
            within,
            ready: None,
            weight: weight.max(1),
            served: 0,
        };
        let devices: Vec<_> = devices.into_iter().map(device).collect();
        let is_nested = devices.iter().any(|device| device.within.is_some());
        Self { pacer, devices, len: 0, served: 0, selected: None, has_changed: false, is_nested }
    }

    /// Enqueues a packet of a device, and returns the one that is dropped because its class is full; or the
    /// packet itself, if there is no such device.
    pub fn offer(&mut self, device: usize, offer: Offer<T>, now: u64) -> Option<Offer<T>> {
        let Some(device) = self.devices.get_mut(device) else { return Some(offer) };
        if device.queue.is_empty() {
            device.served = device.served.max(self.served);
        }
        let dropped = device.queue.offer(offer, now);
        self.has_changed = true;
        self.len += usize::from(dropped.is_none());
        dropped
    }

    /// Takes the link at `now` for packets that others have sent by it ([`PacerShare::take_others`]).
    pub fn take_others(&self, now: u64, packets: u64, bytes: u64) {
        if let Some(pacer) = &self.pacer {
            pacer.take_others(now, packets, bytes);
        }
    }

    /// Dequeues the packet that leaves next at `now`, with the number of its device, and calls `drop` with
    /// the packets that CoDel drops before it, and their device. Returns `None` if no packet waits or no
    /// rate permits one.
    pub fn next(
        &mut self,
        now: u64,
        mut drop: impl FnMut(usize, T),
    ) -> Option<(usize, Departure<T>)> {
        loop {
            let is_free = self.pacer.as_ref().is_none_or(|pacer| pacer.is_free(now));
            if is_free || self.has_changed {
                self.selected = self.select(now);
                self.has_changed = false;
            }
            if let Some(pacer) = &mut self.pacer {
                match self.selected {
                    None => pacer.rest(),
                    Some((_, is_urgent)) => pacer.wait(now, is_urgent),
                }
            }
            let (at, is_urgent) = self.selected.filter(|_| is_free)?;
            if self.pacer.as_ref().is_some_and(|pacer| !pacer.is_next(now, is_urgent)) {
                return None;
            }
            let device = self.devices.get_mut(at)?;
            let before = device.queue.len();
            let departure = device.queue.next(now, |item| drop(at, item));
            self.len -= before - device.queue.len();
            self.has_changed = true;
            let Some(departure) = departure else { continue };
            self.served = device.served;
            device.served += u128::from(departure.bytes) * SCALE / u128::from(device.weight);
            let around = device.within;
            for pacer in [&mut self.pacer, &mut device.pacer].into_iter().flatten() {
                pacer.take(now, departure.bytes);
            }
            let around = around.and_then(|around| self.devices.get_mut(around));
            if let Some(pacer) = around.and_then(|around| around.pacer.as_mut()) {
                pacer.take(now, departure.bytes);
            }
            return Some((at, departure));
        }
    }

    /// Selects the device whose packet leaves next, and returns whether the packet is urgent.
    fn select(&mut self, now: u64) -> Option<(usize, bool)> {
        if !self.is_nested {
            let ready = self.devices.iter_mut().enumerate().filter_map(|(at, device)| {
                device.ready = None;
                device.examine(now);
                device.ready.map(|is_urgent| (!is_urgent, device.served, at))
            });
            return ready.min().map(|(is_patient, _, at)| (at, !is_patient));
        }
        self.devices.iter_mut().for_each(|device| device.ready = None);
        // Of the packets of devices within another, that one is concerned with those that may leave.
        for at in 0..self.devices.len() {
            let Some(device) = self.devices.get_mut(at) else { continue };
            let Some(around) = device.within else { continue };
            device.examine(now);
            let ready = device.ready;
            if let (Some(around), Some(is_urgent)) = (self.devices.get_mut(around), ready) {
                around.ready = Some(around.ready.unwrap_or(false) | is_urgent);
            }
        }
        let outer = self.devices.iter_mut().filter(|device| device.within.is_none());
        outer.for_each(|device| device.examine(now));
        let ready = self.devices.iter().enumerate().filter_map(|(at, device)| {
            let is_urgent = device.packet()?;
            let around = device.within.and_then(|around| self.devices.get(around));
            let permits = |device: &DeviceQueue<T>| device.permits(now, is_urgent);
            (permits(device) && around.is_none_or(permits)).then_some((
                !is_urgent,
                device.served,
                at,
            ))
        });
        ready.min().map(|(is_patient, _, at)| (at, !is_patient))
    }

    /// Dequeues any packet, without CoDel and rates: for the end of the queues.
    pub fn pop(&mut self) -> Option<T> {
        let item = self.devices.iter_mut().find_map(|device| device.queue.pop())?;
        self.len -= 1;
        Some(item)
    }

    /// Counts the waiting packets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the queues, that of the port first.
    pub fn queues(&self) -> impl Iterator<Item = &EgressQueue<T>> {
        self.devices.iter().map(|device| &device.queue)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{CodelParameters, SharedPacer, TrafficClass};

    const SECOND: u64 = 1_000_000_000;
    const STEP: u64 = 10_000;

    fn parameters() -> EgressQueueParameters {
        // No packet of these tests has waited for too long.
        let codel = CodelParameters { target: 100 * SECOND, interval: 1000 * SECOND };
        EgressQueueParameters { places: 64, codel, control_share: 10, request_share: 5 }
    }

    fn pacer(rate: u64) -> Option<PacerShare> {
        Some(PacerShare::new(Arc::new(SharedPacer::new(rate, 0, 1)), 0))
    }

    fn device(pacer: Option<PacerShare>) -> LinkDevice {
        LinkDevice { parameters: parameters(), pacer, within: None, weight: 1 }
    }

    fn offer(class: TrafficClass, bytes: u32) -> Offer<u32> {
        Offer { item: 0, bytes, class, dscp: 0, is_ecn_capable: false }
    }

    /// The Mbit/s of each device, whose queues are kept full of packets of these bytes for a second.
    fn rates(mut link: LinkQueues<u32>, bytes: &[u32]) -> Vec<f64> {
        let mut sent = vec![0u64; bytes.len()];
        for now in (SECOND..2 * SECOND).step_by(STEP as usize) {
            for (device, &bytes) in bytes.iter().enumerate() {
                while bytes > 0
                    && link.offer(device, offer(TrafficClass::Default, bytes), now).is_none()
                {
                }
            }
            while let Some((device, departure)) = link.next(now, |_, _| panic!("no delay")) {
                sent[device] += u64::from(departure.bytes);
            }
        }
        sent.iter().map(|&bytes| bytes as f64 * 8.0 / 1e6).collect()
    }

    fn assert_near(rates: &[f64], expected: &[f64]) {
        for (rate, expected) in rates.iter().zip(expected) {
            assert!((rate - expected).abs() < 1.0 + expected * 0.02, "{rates:?}");
        }
    }

    #[test]
    fn devices_share_a_full_link_up_to_their_rates() {
        let link = || {
            let devices = [None, pacer(10_000_000), None].map(device);
            LinkQueues::new(pacer(100_000_000), devices)
        };
        // The length of their packets makes no difference.
        assert_near(&rates(link(), &[1500, 1500, 100]), &[45.0, 10.0, 45.0]);
        assert_near(&rates(link(), &[0, 300, 1500]), &[0.0, 10.0, 90.0]);
        assert_near(&rates(link(), &[0, 300, 0]), &[0.0, 10.0, 0.0]);
    }

    #[test]
    fn link_without_a_rate_keeps_those_of_its_devices() {
        let devices = [None, pacer(10_000_000)].map(device);
        assert_near(&rates(LinkQueues::new(None, devices), &[0, 1000]), &[0.0, 10.0]);
    }

    #[test]
    fn devices_share_a_full_link_by_their_weights() {
        let link = || {
            let weight = |weight| LinkDevice { weight, ..device(None) };
            LinkQueues::new(pacer(100_000_000), [1, 3, 1000].map(weight))
        };
        assert_near(&rates(link(), &[1500, 300, 0]), &[25.0, 75.0, 0.0]);
        assert_near(&rates(link(), &[1500, 0, 1500]), &[0.1, 0.0, 99.9]);
    }

    /// A bond of 40 Mbit/s and a VLAN device of 10 and one without a rate over it, and the rest of the port.
    #[test]
    fn devices_within_another_share_its_rate() {
        let link = || {
            let within = |pacer| LinkDevice { within: Some(1), ..device(pacer) };
            let bond = device(pacer(40_000_000));
            let devices = [device(None), bond, within(pacer(10_000_000)), within(None)];
            LinkQueues::new(pacer(100_000_000), devices)
        };
        assert_near(&rates(link(), &[1500, 1500, 1500, 1500]), &[60.0, 15.0, 10.0, 15.0]);
        assert_near(&rates(link(), &[1500, 0, 1500, 300]), &[60.0, 0.0, 10.0, 30.0]);
        assert_near(&rates(link(), &[0, 0, 0, 1000]), &[0.0, 0.0, 0.0, 40.0]);
        assert_near(&rates(link(), &[0, 0, 1000, 0]), &[0.0, 0.0, 10.0, 0.0]);
    }

    /// Two workers with the same two devices within one: none waits for packets of the other that may not leave.
    #[test]
    fn workers_share_the_rate_around_devices() {
        let shared = |rate| Arc::new(SharedPacer::new(rate, 0, 2));
        let (bond, slow) = (shared(40_000_000), shared(4_000_000));
        let mut workers = [0, 1].map(|worker| {
            let share = |of: &Arc<SharedPacer>| Some(PacerShare::new(Arc::clone(of), worker));
            let within = |pacer| LinkDevice { within: Some(1), ..device(pacer) };
            let devices = [device(None), device(share(&bond)), within(share(&slow)), within(None)];
            LinkQueues::new(None, devices)
        });
        // Worker 0 has packets of the slow device only, worker 1 of the other one.
        let mut sent = [0_u64; 2];
        for now in (SECOND..2 * SECOND).step_by(STEP as usize) {
            for ((worker, link), sent) in workers.iter_mut().enumerate().zip(&mut sent) {
                while link.offer(2 + worker, offer(TrafficClass::Default, 1000), now).is_none() {}
                while let Some((_, departure)) = link.next(now, |_, _| panic!("no delay")) {
                    *sent += u64::from(departure.bytes);
                }
            }
        }
        let rates = sent.map(|bytes| bytes as f64 * 8.0 / 1e6);
        assert_near(&rates, &[4.0, 36.0]);
    }

    #[test]
    fn device_that_was_idle_does_not_make_up_for_it() {
        let mut link = LinkQueues::new(None, [None, None].map(device));
        for _ in 0..1000 {
            assert!(link.offer(0, offer(TrafficClass::Default, 1000), 0).is_none());
            assert_eq!(link.next(0, |_, _| {}).unwrap().0, 0);
        }
        for device in [0, 1] {
            for _ in 0..10 {
                assert!(link.offer(device, offer(TrafficClass::Default, 1000), 0).is_none());
            }
        }
        let first: Vec<_> = (0..10).map(|_| link.next(0, |_, _| {}).unwrap().0).collect();
        assert_eq!(first.iter().sum::<usize>(), 5, "{first:?}");
        assert_eq!(link.len(), 10);
    }

    #[test]
    fn control_packets_of_any_device_go_first() {
        let mut link = LinkQueues::new(None, [None, None].map(device));
        assert!(link.offer(0, offer(TrafficClass::Default, 100), 0).is_none());
        assert!(link.offer(1, offer(TrafficClass::Default, 100), 0).is_none());
        assert!(link.offer(1, offer(TrafficClass::Control, 1500), 0).is_none());
        let first = link.next(0, |_, _| {}).unwrap();
        assert_eq!((first.0, first.1.class), (1, TrafficClass::Control));
        // It counts: the other device is next.
        assert_eq!(link.next(0, |_, _| {}).unwrap().0, 0);
        let refused = link.offer(7, offer(TrafficClass::Default, 1), 0);
        assert_eq!((refused.is_some(), link.len()), (true, 1));
        assert_eq!((link.pop(), link.pop(), link.is_empty()), (Some(0), None, true));
    }
}
