//! Losses of ports before a worker receives a packet, or after it sent one, are counted once, by
//! reason.

use std::sync::{Arc, Mutex};

use fingerpost_datapath::Verdict;
use port::{Arena, Frame, MemoryPort, Port, PortStats};

use crate::packets::v4;
use crate::rig::Rig;

/// A port that reports configurable losses.
struct Losing {
    port: MemoryPort,
    lost: Arc<Mutex<PortStats>>,
}

impl Port for Losing {
    fn name(&self) -> &str {
        self.port.name()
    }
    fn mac(&self) -> [u8; 6] {
        self.port.mac()
    }
    fn mtu(&self) -> usize {
        self.port.mtu()
    }
    fn receive(&mut self, arena: &mut Arena, room: usize, out: &mut Vec<Frame>) -> usize {
        self.port.receive(arena, room, out)
    }
    fn transmit(&mut self, arena: &mut Arena, frames: &mut Vec<Frame>) -> usize {
        self.port.transmit(arena, frames)
    }
    fn punt(&mut self, arena: &Arena, frame: &Frame) -> bool {
        self.port.punt(arena, frame)
    }
    fn flush(&mut self, arena: &mut Arena) {
        self.port.flush(arena);
    }
    fn stats(&self) -> PortStats {
        let mut stats = self.port.stats();
        stats += *self.lost.lock().expect("no thread has panicked with it");
        stats
    }
    fn mode(&self) -> &'static str {
        "losing"
    }
}

#[test]
fn port_that_loses_packets_has_them_counted_as_received_and_dropped_once() {
    let lost = Arc::<Mutex<PortStats>>::default();
    let mut rig = Rig::with_ports(|_, port| Box::new(Losing { port, lost: Arc::clone(&lost) }));
    let sent = rig.pass((0..10).map(|n| v4(0xc000_0263, 0x0a00_0001 + n))).sent();
    assert_eq!(sent, 10);
    let mut before = Vec::new();
    rig.worker.count_losses(&mut before);
    assert_eq!(rig.worker.stats().snapshot().received, 10, "nothing is lost yet");

    for round in 1..=2 {
        // Each of the three ports reports these losses.
        *lost.lock().unwrap() = PortStats {
            rx_ring_full: 5 * round,
            fill_empty: 7 * round,
            rx_dropped: 2 * round,
            tx_invalid: round,
            // Events that lose no packet.
            fill_ring_empty: 100,
            fill_invalid: 100,
            tx_ring_empty: 100,
            ..PortStats::default()
        };
        for _ in 0..2 {
            rig.worker.count_losses(&mut before);
            let now = rig.worker.stats().snapshot();
            for (verdict, each) in [
                (Verdict::RxRingFull, 5),
                (Verdict::FillEmpty, 7),
                (Verdict::RxDropped, 2),
                (Verdict::TxInvalid, 1),
                (Verdict::Undelivered, 0),
            ] {
                assert_eq!(now.count(verdict), 3 * each * round, "{verdict:?}");
            }
            assert_eq!((now.received, now.sent()), (10 + 3 * 14 * round, 10 - 3 * round));
            assert!(now.balanced(), "{now:?}");
        }
    }
}
