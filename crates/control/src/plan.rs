//! The plan of the workers: the queues that each one receives from, and the memory for its packets.
//!
//! ```text
//!   eth0: queues 0 1 2 3      worker 0: eth0 0, 2; eth1 0      sends by the first queue of each
//!   eth1: queues 0 1     ─►   worker 1: eth0 1, 3; eth1 1
//! ```
//!
//! Every worker has one queue of every interface, by which it also sends, and its share of the further ones,
//! from which it only receives. The start follows the plan, and `--check` reports it.

use port::LONG_FRAME;
use port::af_xdp::{self, RingSizes};

use config::Config;
use datapath::{HELD, SIZE};

/// The largest MTU whose packets fit the smaller of the two frame sizes.
const SMALL_FRAME_MTU: usize = af_xdp::largest_mtu(2048);
/// The largest MTU whose packets fit the larger of the two frame sizes.
pub(crate) const LARGEST_MTU: usize = af_xdp::largest_mtu(4096);

/// The number of frames of the rings for each long one: a ring is seldom full of long packets.
const FRAMES_PER_LONG: u32 = 16;

/// Slots for received packets in all further queues of a worker.
const SHARED_SLOTS: u32 = 8 * 2048;

/// The properties of an interface that the plan depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedInterface {
    /// The largest packet that its sockets have to take, in bytes.
    pub(crate) mtu: usize,
    /// The number of queues that the workers share.
    pub(crate) queues: u32,
}

/// The plan of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerPlan {
    /// Its core; `None`: any.
    pub(crate) core: Option<usize>,
    /// The queue of every interface that it sends by.
    pub(crate) first: u32,
    /// The further queues, from which it only receives, with the index of their interface.
    pub(crate) further: Vec<(usize, u32)>,
    /// The number of its frames.
    pub(crate) frames: u32,
    /// The size of each in bytes.
    pub(crate) frame_size: u32,
    /// The number of long frames in addition, for packets that exceed the others.
    pub(crate) long_frames: u32,
}

/// Plans the workers of a configuration; each has `more` frames in addition to those of its rings. If
/// packets may exceed a frame, each of `more` may be such a packet: those that wait for a slow link.
pub(crate) fn workers(
    config: &Config,
    interfaces: &[PlannedInterface],
    more: u32,
) -> Vec<WorkerPlan> {
    let widest = interfaces.iter().map(|interface| interface.mtu).max().unwrap_or(0);
    let frame_size = if widest > SMALL_FRAME_MTU { 4096 } else { 2048 };
    let each = RingSizes::default().frames() + HELD as u32;
    let total = config.daemon.cores.len();
    let worker = |(first, &core): (u32, &Option<usize>)| {
        let further: Vec<(usize, u32)> = interfaces
            .iter()
            .enumerate()
            .flat_map(|(at, interface)| {
                let queues = (first + total as u32..interface.queues).step_by(total);
                queues.map(move |queue| (at, queue))
            })
            .collect();
        let rings = interfaces.len() as u32 * each
            + further.len() as u32 * receiving_only(further.len() as u32).frames();
        let frames = rings + 2 * SIZE as u32 + more;
        let long_frames = if widest > LARGEST_MTU { rings / FRAMES_PER_LONG + more } else { 0 };
        WorkerPlan { core, first, further, frames, frame_size, long_frames }
    };
    (0..).zip(&config.daemon.cores).map(worker).collect()
}

/// Returns the ring sizes of a queue that only receives packets, for a worker with this many such
/// queues: together no more than [`SHARED_SLOTS`], as long as each ring holds a burst.
pub(crate) fn receiving_only(queues: u32) -> RingSizes {
    let receive = (SHARED_SLOTS / queues.max(1)).clamp(256, 2048);
    let receive = 1 << receive.ilog2();
    RingSizes { fill: receive, receive, transmit: 64, completion: 64 }
}

impl WorkerPlan {
    /// Iterates over the queues of the interface with this index that it receives from.
    pub(crate) fn queues_of(&self, interface: usize) -> impl Iterator<Item = u32> {
        let further = self.further.iter().filter(move |(at, _)| *at == interface);
        std::iter::once(self.first).chain(further.map(|(_, queue)| *queue))
    }

    /// Returns the largest MTU whose packets fit its frames.
    pub(crate) fn mtu(&self) -> usize {
        let size = if self.long_frames > 0 { LONG_FRAME } else { self.frame_size };
        af_xdp::largest_mtu(size as usize)
    }

    /// Returns the memory of its frames in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.frames) * u64::from(self.frame_size)
            + u64::from(self.long_frames) * u64::from(LONG_FRAME)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn plan(cores: &str, queues: &[u32], mtu: usize) -> Vec<WorkerPlan> {
        let text = format!("[[interface]]\nname = 'a'\n[workers]\ncores = {cores}\n");
        let config = Config::parse(&text, Path::new("run.toml")).unwrap();
        let interfaces: Vec<_> =
            queues.iter().map(|&queues| PlannedInterface { mtu, queues }).collect();
        workers(&config, &interfaces, 100)
    }

    #[test]
    fn every_queue_has_one_worker() {
        for (cores, count) in [("[0]", 1), ("[0, 1]", 2), ("[0, 1, 2]", 3)] {
            for queues in [[3, 3], [8, 3], [3, 64]] {
                let plan = plan(cores, &queues, 1500);
                assert_eq!(plan.len(), count);
                for (interface, &queues) in queues.iter().enumerate() {
                    let mut served: Vec<u32> =
                        plan.iter().flat_map(|worker| worker.queues_of(interface)).collect();
                    served.sort_unstable();
                    assert_eq!(served, (0..queues).collect::<Vec<_>>(), "{cores} {queues}");
                }
            }
        }
    }

    #[test]
    fn frames_are_those_of_the_rings_and_larger_for_a_larger_mtu() {
        let [one] = plan("[0]", &[1], 1500).try_into().unwrap();
        let rings = RingSizes::default().frames();
        assert_eq!(one.frames, rings + HELD as u32 + 2 * SIZE as u32 + 100);
        assert_eq!(one.bytes(), u64::from(one.frames) * 2048);
        let [large] = plan("[0]", &[1], LARGEST_MTU).try_into().unwrap();
        assert_eq!((large.frames, large.frame_size), (one.frames, 4096));
        assert_eq!([one.mtu(), large.mtu()], [1770, LARGEST_MTU]);
        assert_eq!([one.long_frames, large.long_frames], [0; 2]);
        let [long] = plan("[0]", &[1], LARGEST_MTU + 1).try_into().unwrap();
        assert_eq!((long.frames, long.frame_size), (one.frames, 4096));
        assert_eq!(long.long_frames, (rings + HELD as u32) / 16 + 100);
        assert_eq!(long.mtu(), 16_384 - 256 - 22);
        assert_eq!(long.bytes(), large.bytes() + u64::from(long.long_frames) * 16_384);
        let [several] = plan("[0]", &[3], 1500).try_into().unwrap();
        assert_eq!(several.further, [(0, 1), (0, 2)]);
        assert_eq!(several.frames, one.frames + 2 * receiving_only(2).frames());
    }

    #[test]
    fn many_queues_share_the_slots() {
        assert_eq!(receiving_only(1).receive, 2048);
        assert_eq!(receiving_only(64).receive, 256);
        assert_eq!(receiving_only(1000).receive, 256);
    }
}
