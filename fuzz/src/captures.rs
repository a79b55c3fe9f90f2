//! Captures: packets read from any bytes are the same when written and read again.
//!
//! ```text
//!   bytes ─► read_each ─► packets ─┬─► pcap   ─► read_each ─► the same packets and times
//!                                  └─► pcapng ─► read_each ─► the same
//! ```

use std::path::Path;

use port::pcap::{CaptureFormat, CaptureWriter, read_each};

/// Counts of the results of inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Packets of captures that were read.
    pub packets: u32,
    /// Captures that were rejected.
    pub refused: u32,
}

/// The longest packet.
const MAX_PACKET: usize = 65_535;

fn read(bytes: &[u8]) -> Option<Vec<(Vec<u8>, u64)>> {
    let mut packets = Vec::new();
    let path = Path::new("fuzz");
    let done = read_each(path, bytes, |time, packet| {
        packets.push((packet.to_vec(), time.as_micros() as u64));
    });
    done.ok().map(|_| packets)
}

/// Plays one input.
///
/// # Panics
///
/// If the packets read differ from those written.
pub fn captures(input: &[u8], tally: &mut Tally) {
    let Some(packets) = read(input) else {
        tally.refused += 1;
        return;
    };
    tally.packets += packets.len() as u32;
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let mut bytes = Vec::new();
        let mut writer = CaptureWriter::new(&mut bytes, format).expect("a vector has room");
        for (packet, micros) in &packets {
            assert!(packet.len() <= MAX_PACKET, "a packet of {} bytes", packet.len());
            // The older format has 32 bits for the seconds.
            let micros = micros % (u64::from(u32::MAX) * 1_000_000);
            writer.write(packet, micros).expect("a vector has room");
        }
        let reread = read(&bytes).expect("a written capture is readable");
        let expected = packets
            .iter()
            .map(|(packet, micros)| (packet.clone(), micros % (u64::from(u32::MAX) * 1_000_000)));
        assert!(reread.into_iter().eq(expected), "{format:?}");
    }
}
