//! Gives each port's steering program its path in the driver, and follows which devices send redirected packets.
//!
//! ```text
//!   netlink: features of devices ─► Plane: links ─┐ commit
//!   Plane: path and families of each port ◄───────┘
//!        └─► Interface: program replaced, switches
//! ```
//!
//! A veth sends redirected packets only while its peer has a program or GRO, and a device that stops to do so
//! drops them. The control thread reads the features again in the turn in which the kernel reports a change, within some
//! milliseconds.
//!
//! Before Linux 6.3 the kernel reports no features: all packets are the workers'.

use std::sync::Arc;
use std::time::{Duration, Instant};

use feed::netlink::{DeviceFeatures, XdpFeatures};
use port::af_xdp::bpf::Mode;
use port::af_xdp::steer::DriverPath;
use port::af_xdp::{Interface, RefusedFrames};

use super::plane::{DriverPort, Plane};

/// The delay before a program that the kernel refused is loaded again.
const RETRY: Duration = Duration::from_secs(1);

/// The state of the steering programs.
#[derive(Debug)]
pub(crate) struct DriverSync {
    features: DeviceFeatures,
    /// The counter of frames that devices refuse, unless the kernel has none.
    refused: Option<Arc<RefusedFrames>>,
    /// The present path and families of each port's program; `None`: not known.
    applied: Vec<Option<DriverPort>>,
    /// The features were read.
    is_read: bool,
    retry_at: Option<Instant>,
    /// The workers forward all packets, for so many captures.
    pauses: usize,
}

impl DriverSync {
    /// Opens the sockets for the features in the network namespace of the calling thread, and begins to count frames
    /// that devices refuse.
    ///
    /// # Errors
    ///
    /// The reason, as a text.
    pub(crate) fn open() -> Result<Self, String> {
        let features = DeviceFeatures::open();
        let features = features.map_err(|error| format!("forwarding in the driver: {error}"))?;
        let refused = match RefusedFrames::new() {
            Ok(refused) => Some(Arc::new(refused)),
            Err(error) => {
                log::warn!(
                    "forwarding in the driver: frames that an egress device refuses count as sent: {error}"
                );
                None
            }
        };
        Ok(Self {
            features,
            refused,
            applied: Vec::new(),
            is_read: false,
            retry_at: None,
            pauses: 0,
        })
    }

    /// Reads which devices send redirected packets, if that or a port may have changed.
    ///
    /// # Errors
    ///
    /// The reason, as a text; all devices are read again at the next call.
    pub(crate) fn follow(&mut self, plane: &mut Plane, ports_changed: bool) -> Result<(), String> {
        let failed = |error| format!("forwarding in the driver: {error}");
        let was_read = std::mem::take(&mut self.is_read);
        let changed = self.features.has_changed().map_err(failed)?;
        if was_read && !changed && !ports_changed {
            self.is_read = true;
            return Ok(());
        }
        // A device may have gone in the meantime, which the kernel reports as well.
        let senders = plane
            .ports()
            .iter()
            .map(|port| self.features.of(port.interface).is_ok_and(XdpFeatures::sends_redirected));
        let senders = senders.collect();
        plane.set_redirect_targets(senders);
        self.is_read = true;
        Ok(())
    }

    /// Lets the workers forward all packets until as many calls have ended it as have begun it; from the next
    /// [`apply`](Self::apply) on.
    pub(crate) fn pause(&mut self, begins: bool) {
        self.pauses = if begins { self.pauses + 1 } else { self.pauses.saturating_sub(1) };
    }

    /// Forgets the present state of the programs: the interfaces are others.
    pub(crate) fn forget(&mut self) {
        self.applied.clear();
        self.is_read = false;
    }

    /// Brings the steering programs to the state that the plane has for them. The workers forward the packets of an
    /// interface whose program the kernel refuses: its former one may have a former table.
    ///
    /// # Errors
    ///
    /// The last reason, as a text; another attempt follows in a second.
    pub(crate) fn apply(
        &mut self,
        plane: &mut Plane,
        interfaces: &[Interface],
    ) -> Result<(), String> {
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            return Ok(());
        }
        self.retry_at = None;
        let mut result = Ok(());
        let wanted = plane.driver_ports();
        self.applied.resize(interfaces.len(), None);
        for ((interface, wanted), applied) in interfaces.iter().zip(wanted).zip(&mut self.applied) {
            // With `mode = "auto"` the program may be in the stack, which gains nothing by a path.
            let wanted = match interface.attached() {
                Mode::Native if self.pauses > 0 => DriverPort { families: [false; 2], ..wanted },
                Mode::Native => wanted,
                Mode::Generic => DriverPort::default(),
            };
            if applied.as_ref().is_some_and(|applied| applied.is_like(&wanted)) {
                continue;
            }
            plane.begin_driver_load();
            let before = applied.take();
            if let (Some(refused), Some(_)) = (&self.refused, &wanted.path)
                && let Err(error) = interface.count_refused(refused)
            {
                log::warn!(
                    "{}: frames that an egress device refuses count as sent: {error}",
                    interface.name()
                );
            }
            match set(interface, before.as_ref(), &wanted) {
                Ok(()) => *applied = Some(wanted),
                Err(reason) => {
                    // The switches remain if the kernel refuses this too, which is the reason then.
                    let off = interface.forward_in_driver([false; 2]);
                    result = Err(off.map_or_else(|error| error.to_string(), |()| reason));
                    self.retry_at = Some(Instant::now() + RETRY);
                }
            }
        }
        if result.is_ok() {
            plane.end_driver_load();
        }
        result
    }
}

/// Changes the program of an interface and its switches.
fn set(
    interface: &Interface,
    before: Option<&DriverPort>,
    wanted: &DriverPort,
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("{}: forwarding in the driver: {error}", interface.name())
    };
    if before.is_none_or(|before| !before.has_path_of(wanted)) {
        let path = wanted.path.clone().map(|path| path as Arc<dyn DriverPath>);
        interface.set_driver_path(path).map_err(|error| failed(&error))?;
    }
    interface.forward_in_driver(wanted.families).map_err(|error| failed(&error))
}
