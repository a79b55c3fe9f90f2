//! The succession of processes at an interface: a new process takes it over from a running one.
//!
//! ```text
//!   predecessor   hand_over ─► description, copy of the link's descriptor
//!   successor     succeed: loads its own program and maps        both have the link
//!                 take_over: puts its program in place of the predecessor's
//!                 own: detaches and restores the device at its end ─► the predecessor exits
//!   or else       the successor drops the interface, and the predecessor's `resume` puts its program back
//! ```
//!
//! Each frame passes through one of the two programs, and at no moment through none. The maps are those of the
//! process that loaded the program, so that versions with other maps can follow each other; a new map of sockets
//! is empty until sockets are bound. The counts of the predecessor continue ([`InterfaceCounts`]).
//!
//! The predecessor must end without dropping the interface, as `std::process::exit` does: a drop would detach the
//! program that both share.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::{Attachment, BPF, Error, Interface, ModeChoice, NET_ADMIN, QueueSetup, program_error};
use crate::PortStats;
use crate::af_xdp::bpf::{Link, LoadError, Mode};
use crate::af_xdp::device::{self, ChannelCount, Device, TagRemoval};
use crate::af_xdp::ethtool::Channels;
use crate::af_xdp::rss::{RssChange, RssSetup};
use crate::af_xdp::steer::{Steering, SteeringCounters};

/// The description of an interface that a process hands over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InterfaceHandover {
    /// The device's index.
    pub index: u32,
    /// The queues in use.
    pub queues: u32,
    /// The receive modes that may be used.
    pub choice: ModeChoice,
    /// The configured setup of its queues.
    pub queue_setup: QueueSetup,
    /// Where the program runs.
    mode: Mode,
    fallback: Option<String>,
    device_queues: u32,
    /// Changes of the device, which the process takes back at its end.
    tag_removal: bool,
    channels: Option<(Channels, u32)>,
    rss: Option<RssChange>,
}

/// The counts of an interface at the end of a process, which its successor continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceCounts {
    /// The packets by the decision of the steering program.
    pub outcomes: SteeringCounters,
    /// The bytes of packets forwarded in the driver.
    pub forwarded_bytes: u64,
    /// The bytes of dropped packets of blocked sources.
    pub blocked_bytes: u64,
    /// The bytes of dropped packets of declined flows.
    pub declined_bytes: u64,
    /// The bytes of dropped packets of protected sources.
    pub forged_bytes: u64,
    /// The counters of its sockets and of its device.
    pub sockets: PortStats,
}

impl Interface {
    /// Describes the interface for a successor, with a copy of the descriptor of its link. Returns `None` if no
    /// program is attached.
    ///
    /// # Errors
    ///
    /// The system's, if no descriptor is left.
    pub fn hand_over(&self) -> io::Result<Option<(InterfaceHandover, OwnedFd)>> {
        self.attachment(|now| {
            let Some(link) = &now.link else { return Ok(None) };
            let handover = InterfaceHandover {
                index: now.index,
                queues: self.0.queues,
                choice: self.0.choice,
                queue_setup: now.wanted_queues,
                mode: now.mode,
                fallback: now.fallback.clone(),
                device_queues: now.device_queues,
                tag_removal: now.tag_removal.is_some(),
                channels: now.channels.as_ref().map(ChannelCount::change),
                rss: now.rss.as_ref().map(RssSetup::change),
            };
            Ok(Some((handover, link.as_fd().try_clone_to_owned()?)))
        })
    }

    /// Prepares to take over the device `name` from a predecessor, by its description and its link: loads the
    /// program by `load`, which gets the device's MAC. The predecessor's program stays attached.
    ///
    /// # Errors
    ///
    /// [`Error`]; the device is unchanged.
    pub fn succeed(
        name: &str,
        handover: InterfaceHandover,
        link: OwnedFd,
        load: impl FnOnce([u8; 6]) -> Result<Steering, LoadError>,
    ) -> Result<Self, Error> {
        let device = Device::find(name)?;
        let (mac, mtu, index) = (device.mac()?, device.mtu()?, device.index()?);
        if index != handover.index {
            return Err(Error::NoInterface { interface: name.to_owned() });
        }
        let steering = load(mac).map_err(|error| program_error(error, name, &[BPF, NET_ADMIN]))?;
        let device_queues = device::queues(name).unwrap_or(handover.device_queues);
        let (queues, choice) = (handover.queues, handover.choice);
        let attachment = Attachment {
            fallback: handover.fallback.clone(),
            wanted_queues: handover.queue_setup,
            ..Attachment::detached(name, index, mac, mtu, device_queues, handover.mode)
        };
        let predecessor = Some((Link::succeed(link, handover.mode), handover));
        Ok(Self::new(Attachment { predecessor, ..attachment }, steering, queues, choice))
    }

    /// Puts the program in place of the predecessor's. Has no effect on an interface without one.
    ///
    /// # Errors
    ///
    /// [`Error`]; the predecessor's program stays.
    pub fn take_over(&self) -> Result<(), Error> {
        let mut now = self.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        let Some((link, handover)) = now.predecessor.take() else { return Ok(()) };
        match link.replace(&self.0.steering.program()) {
            Ok(()) => (now.link, now.predecessor) = (Some(link), None),
            Err(cause) => {
                now.predecessor = Some((link, handover));
                return Err(self.not_replaced(&now.name, cause));
            }
        }
        // Those of a device that the predecessor has changed are put back by this process, once it owns them.
        now.inherited = Some(handover);
        Ok(())
    }

    /// Owns an interface that was taken over: its end detaches the program and gives the device its setup back.
    pub fn own(&self) {
        let mut now = self.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        let Some(handover) = now.inherited.take() else { return };
        if let Some(link) = &mut now.link {
            link.own();
        }
        let name = now.name.clone();
        now.tag_removal = handover.tag_removal.then(|| TagRemoval::succeed(&name)).flatten();
        now.channels = handover.channels.and_then(|change| ChannelCount::succeed(&name, change));
        now.rss = handover.rss.and_then(|change| RssSetup::succeed(&name, change));
    }

    /// Puts the program back on an interface whose successor has failed.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn resume(&self) -> Result<(), Error> {
        self.attachment(|now| {
            let replaced =
                now.link.as_ref().map_or(Ok(()), |link| link.replace(&self.0.steering.program()));
            replaced.map_err(|cause| self.not_replaced(&now.name, cause))
        })
    }

    fn not_replaced(&self, name: &str, cause: io::Error) -> Error {
        Error::system("replace the steering program", name, &[BPF, NET_ADMIN], cause)
    }

    /// Reads all counts of the interface, for a successor.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn final_counts(&self) -> io::Result<InterfaceCounts> {
        Ok(InterfaceCounts {
            outcomes: self.counts()?,
            forwarded_bytes: self.forwarded_bytes()?,
            blocked_bytes: self.blocked_bytes()?,
            declined_bytes: self.declined_bytes()?,
            forged_bytes: self.forged_bytes()?,
            sockets: self.stats()?,
        })
    }

    /// Continues the counts of a predecessor: every count of this interface includes them from now on.
    pub fn continue_counts(&self, past: InterfaceCounts) {
        let mut sockets = self.sockets();
        // Those of the interface itself are not sums over its sockets.
        let PortStats { undelivered, tx_lost, .. } = past.sockets;
        sockets.closed +=
            PortStats { undelivered: 0, tx_lost: 0, tx_refused: 0, passed: 0, ..past.sockets };
        sockets.undelivered += undelivered;
        sockets.lost_before += tx_lost;
        // Packets may have been redirected since; they are counted with the next call.
        sockets.taken = None;
        *self.past_mut() = past;
    }

    fn past_mut(&self) -> MutexGuard<'_, InterfaceCounts> {
        self.0.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts of the predecessors.
    pub(super) fn past(&self) -> InterfaceCounts {
        *self.past_mut()
    }
}
