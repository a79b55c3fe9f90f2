//! Adjusts the router's interfaces to the kernel's links.
//!
//! ```text
//!   link messages ─► Plane's ports ─┬─► Devices: MAC, MTU, name, program on or off ─► Interface
//!                                   └─► states ─► the thread that owns the workers
//! ```
//!
//! The control thread calls [`Devices::follow`] in the turn in which a port has changed, so that
//! the program compares a new MAC, and a new device has the program, within milliseconds of the
//! kernel's message. A socket belongs to one device: where another device replaces it, or where
//! packets no longer fit the frames, the thread that owns the workers replaces them
//! (`daemon/remake.rs`); it reads [`DeviceStates`].
//!
//! Queues that are added while a gate runs have no socket. [`Devices`] attaches the program to the
//! device again, which drops their packets, and reports a problem; a restart serves them.
//!
//! A router leaves interfaces that it cannot serve to the kernel. A gate never does: packets that
//! come in on its front interface and find no socket are dropped there, unless it is
//! configured to fail open.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use port::af_xdp::{self, Interface};

use super::plane::{PlanePort, Ports};

/// The delay before a refused request to the system is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// The known state of a port's device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// The largest packet that its workers may receive, in bytes.
    pub mtu: usize,
    /// The steering program is attached and the link is administratively up: sockets can be bound.
    pub usable: bool,
    /// The reason that it does not work as a port.
    pub problem: Option<String>,
}

/// The states of all ports, for other threads to read.
#[derive(Clone, Debug, Default)]
pub struct DeviceStates(Arc<RwLock<Vec<DeviceState>>>);

impl DeviceStates {
    /// Returns the states, in the ports' order.
    pub fn get(&self) -> Vec<DeviceState> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, states: Vec<DeviceState>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = states;
    }
}

/// The interfaces and their states.
#[derive(Debug)]
pub struct Devices {
    interfaces: Vec<Interface>,
    states: DeviceStates,
    /// The interfaces belong to a gate: no packet is left to the kernel.
    guards: bool,
    /// The time at which a refused request to the system is repeated, and the number of a gate's
    /// queues is read again.
    retry_at: Option<Instant>,
}

impl Devices {
    /// Takes interfaces in the ports' order, and the states to update. `guards` is set for a gate.
    pub fn new(interfaces: Vec<Interface>, states: DeviceStates, guards: bool) -> Self {
        Self { interfaces, states, guards, retry_at: Some(Instant::now()) }
    }

    /// Returns the interfaces.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Replaces the interfaces.
    pub fn set(&mut self, interfaces: Vec<Interface>) {
        self.interfaces = interfaces;
        self.retry_at = Some(Instant::now());
    }

    /// Returns whether a retry is due.
    pub fn is_due(&self) -> bool {
        self.retry_at.is_some_and(|at| at <= Instant::now())
    }

    /// Adjusts every interface to its port; returns the problem of each, in the ports'
    /// order.
    pub fn follow(&mut self, ports: &Ports) -> Vec<Option<String>> {
        // The number of queues changes without a message of the kernel.
        self.retry_at = self.guards.then(|| Instant::now() + RETRY);
        let (mut problems, mut states) = (Vec::new(), Vec::new());
        for at in 0..self.interfaces.len() {
            let Some(port) = ports.iter().nth(at) else { continue };
            let interface = &self.interfaces[at];
            let has_vlans = ports.vlans_over(port.interface).next().is_some()
                || ports.left_vlans(port.interface).next().is_some();
            let mut problem = match adjust(interface, port, self.guards, has_vlans) {
                Ok(problem) => problem,
                Err(error) => {
                    self.retry_at = Some(Instant::now() + RETRY);
                    Some(error)
                }
            };
            if problem.is_none() && !port.served {
                let state = if port.enabled { "waits for the workers" } else { "is down" };
                problem = Some(format!("{} was created again and {state}", port.name));
            }
            states.push(DeviceState {
                name: port.name.clone(),
                index: port.interface,
                mtu: match usize::from(port.mtu) {
                    mtu if interface.passes_long_frames() => mtu.min(af_xdp::longest_mtu()),
                    mtu => mtu,
                },
                usable: port.enabled && interface.is_attached(),
                problem: problem.clone(),
            });
            problems.push(problem);
        }
        self.states.set(states);
        problems
    }
}

/// Adjusts an interface to its port. Returns the reason that it cannot be a port at the moment; the
/// error is the system's refusal.
fn adjust(
    interface: &Interface,
    port: &PlanePort,
    guards: bool,
    has_vlans: bool,
) -> Result<Option<String>, String> {
    if port.gone {
        interface.detach();
        return Ok(Some(format!("{} is gone", port.name)));
    }
    let failed = |error: std::io::Error| format!("{}: {error}", port.name);
    interface.rename(&port.name);
    let mtu = usize::from(port.mtu);
    if interface.index() != port.interface || !interface.is_attached() {
        let attached = interface.reattach(port.interface, port.mac, mtu);
        attached.map_err(|error| error.to_string())?;
    }
    if interface.mac() != port.mac {
        interface.set_mac(port.mac).map_err(failed)?;
    }
    interface.set_mtu(mtu);
    // Until the router uses the tables that the rules lead to, the kernel forwards.
    let moved = port
        .has_moved()
        .then(|| format!("{} is assigned to another table by the rules", port.name));
    let unserved = || {
        let (queues, served) = (interface.update_queues().ok()?, interface.queues());
        (guards && queues > served).then(|| {
            format!(
                "{} has {queues} receive queues, of which {served} are served: packets of the \
                 others reach no worker until the gate is restarted",
                port.name
            )
        })
    };
    // Packets of its VLAN devices would look like its own.
    let strips = || {
        (has_vlans && interface.strips_tags()).then(|| {
            format!(
                "{} removes VLAN tags before XDP can see them, and its driver keeps this on \
                 (ethtool -k, rx-vlan-offload)",
                port.name
            )
        })
    };
    let problem = port.unfit.clone().or(moved).or_else(unserved).or_else(strips).or_else(|| {
        let effect =
            if guards { "larger packets are dropped" } else { "its packets are left to Linux" };
        let name = &port.name;
        let limit = af_xdp::longest_mtu();
        (mtu > limit && !interface.passes_long_frames())
            .then(|| format!("{name} has an MTU of {mtu} bytes, the limit is {limit}: {effect}"))
    });
    interface.give_back(problem.is_some() && !guards).map_err(failed)?;
    Ok(problem)
}
