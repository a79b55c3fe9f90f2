//! The interface: a device with the steering program, for as long as the value lives.
//!
//! [`Interface::open`] looks the device up, loads the steering program for its MAC and attaches it:
//! in the driver if possible (native), else in the stack (generic). This is done once per device.
//! The sockets of its queues hold the interface; the program is detached when the last of them is
//! dropped, or when the process dies: the attachment is a link, which the kernel removes with its
//! descriptor.
//!
//! A device that removes VLAN tags from received packets (`ethtool -k`, rx-vlan-offload) leaves them in for
//! as long as the program is attached; a process that is killed does not turn the removal on again.
//!
//! Everything is looked up in the network namespace of the calling thread; once open, sockets may
//! be used in any.
//!
//! A device can change while a value of this type owns it. The reader of the kernel's link messages
//! reports the change here: another MAC ([`Interface::set_mac`]), another MTU
//! ([`Interface::set_mtu`]), its removal ([`Interface::detach`]), and another device in its place
//! ([`Interface::reattach`]). The steering program, its maps and its counters stay the same
//! throughout, so that no count is lost. The kernel knows a device by its index, and so do the
//! program and the sockets; its name may change ([`Interface::rename`]).
//!
//! Limits: the number of queues is that at the time of opening. Sockets belong to one device and
//! end with it: if another replaces it, they must be bound again.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::bpf::{Link, LoadError, Mode, StoredLink};
use super::counters::SocketCounters;
use super::descriptor;
use super::device::{self, ChannelCount, Device, TagRemoval, dropped};
use super::error::{BPF, Capability, Error, NET_ADMIN, NET_RAW, PERFMON};
use super::host_egress::HostEgress;
use super::rss::{Rss, RssSetup};
use super::steer::{
    EarlyDropConfig, Extensions, Locals, PacketCopies, SourcePrefix, Steering, SteeringCounters,
    SteeringOutcome, VlanTags,
};
use crate::PortStats;

mod attach;
mod extension;
mod refused;
mod succession;

use attach::{adopt_or_attach, attach, attach_error, program_error};
use refused::Refused;
pub use succession::{InterfaceCounts, InterfaceHandover};

/// The receive modes that may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeChoice {
    /// The best available: zero-copy, else copy, else generic.
    #[default]
    Auto,
    /// Only zero-copy: the device writes into the arena.
    ZeroCopy,
    /// Only copy: the driver runs the program, the kernel copies.
    Copy,
    /// Only generic: the stack runs the program, works with any device.
    Generic,
    /// The driver runs the program, which forwards packets itself where it can
    /// ([`Interface::set_driver_path`]); the others as with [`Copy`](Self::Copy).
    Xdp,
}

/// The queues of a device, and the distribution of packets over them, while a program is attached to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSetup {
    /// The number of channels (`ethtool -L`); `None`: as it is.
    pub channels: Option<u32>,
    /// The RSS (`ethtool -X`); `None`: as it is.
    pub rss: Option<Rss>,
}

/// A device with the steering program on it. Clones are the same interface.
#[derive(Clone, Debug)]
pub struct Interface(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    queues: u32,
    choice: ModeChoice,
    /// Declared before `steering`: the program is detached first.
    attachment: RwLock<Attachment>,
    steering: Steering,
    sockets: Mutex<Sockets>,
    /// The counter of the host's packets, once it is wanted.
    host_egress: Mutex<Weak<HostEgress>>,
    refused: Refused,
    /// The counts of the processes that had the interface before.
    past: Mutex<InterfaceCounts>,
}

/// The age of a count of redirected packets after which all of them have arrived or are lost.
const ARRIVAL_TIME: Duration = Duration::from_millis(100);

/// The sockets of an interface, and the counters of the closed ones.
#[derive(Debug, Default)]
struct Sockets {
    open: Vec<Arc<SocketCounters>>,
    closed: PortStats,
    /// The packets taken up to a time.
    taken: Option<(Instant, u64)>,
    undelivered: u64,
    /// The device's drops before it was taken over.
    dropped_before: u64,
    /// The drops of this device and of earlier ones since then; and those of the earlier ones
    /// alone.
    lost: u64,
    lost_before: u64,
}

/// The device that the program is attached to, by its last description.
#[derive(Debug)]
struct Attachment {
    name: String,
    index: u32,
    mac: [u8; 6],
    mtu: usize,
    /// The number of receive queues when the program was attached.
    device_queues: u32,
    /// `None` if the device was removed, or the program could not be attached.
    link: Option<Link>,
    /// The code of other crates in the program.
    extensions: Extensions,
    /// The mode of the program, or its last one.
    mode: Mode,
    fallback: Option<String>,
    /// The device's removal of VLAN tags, if it was on.
    tag_removal: Option<TagRemoval>,
    /// The queues to set up, and what they were before. The RSS is put back first: a table may name queues
    /// that the device did not have before.
    wanted_queues: QueueSetup,
    rss: Option<RssSetup>,
    channels: Option<ChannelCount>,
    /// Whether it is only observed by the configuration, and because it cannot be served.
    observed: bool,
    left: bool,
    /// The link of a predecessor whose program is still attached, and the description of the interface.
    predecessor: Option<(Link, InterfaceHandover)>,
    /// The description of an interface that was taken over and is not owned yet.
    inherited: Option<InterfaceHandover>,
}

impl Attachment {
    /// Describes a device that has no program yet.
    fn detached(
        name: &str,
        index: u32,
        mac: [u8; 6],
        mtu: usize,
        device_queues: u32,
        mode: Mode,
    ) -> Self {
        Self {
            name: name.to_owned(),
            index,
            mac,
            mtu,
            device_queues,
            link: None,
            extensions: Extensions::default(),
            mode,
            fallback: None,
            tag_removal: None,
            wanted_queues: QueueSetup::default(),
            rss: None,
            channels: None,
            observed: false,
            left: false,
            predecessor: None,
            inherited: None,
        }
    }

    /// Detaches the program, and puts back what the device had before.
    fn release(&mut self) {
        self.detach();
        self.tag_removal = None;
        self.rss = None;
        self.channels = None;
    }

    /// Detaches the program.
    fn detach(&mut self) {
        if let Some(link) = self.link.take() {
            link.detach();
        }
    }
}

/// Sets the number of a device's channels, if one is wanted and the device has another.
fn set_channels(name: &str, wanted: QueueSetup) -> Result<Option<ChannelCount>, Error> {
    Ok(wanted.channels.map(|count| ChannelCount::set(name, count)).transpose()?.flatten())
}

/// Sets the RSS of a device for its first `queues` queues, if one is wanted.
fn set_rss(name: &str, wanted: QueueSetup, queues: u32) -> Result<Option<RssSetup>, Error> {
    wanted.rss.map(|rss| RssSetup::set(name, rss, queues)).transpose()
}

impl Interface {
    /// Opens the device `name` with the first `queues` of its receive queues; packets of the others
    /// stay with the host, or are dropped on a gate's interface ([`EarlyDropConfig::fail_closed`]).
    /// [`queues`](super::queues) counts them.
    ///
    /// # Errors
    ///
    /// [`Error`]; the device is then unchanged.
    pub fn open(
        name: &str,
        queues: u32,
        locals: &Locals,
        choice: ModeChoice,
    ) -> Result<Self, Error> {
        let load = |mac| Steering::new(mac, queues, locals);
        Self::acquire(name, queues, choice, load, &mut None)
    }

    /// The same for a router beside the host: it leaves packets that are too long for the sockets to the
    /// host, which forwards them.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_for_router(
        name: &str,
        queues: u32,
        locals: &Locals,
        choice: ModeChoice,
    ) -> Result<Self, Error> {
        let load = |mac| Steering::for_router(mac, queues, locals);
        Self::acquire(name, queues, choice, load, &mut None)
    }

    /// The same for a gate, which may drop packets there as `early` states. The program replaces that of the `stored`
    /// link in one step, if that is of this device.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_for_gate(
        name: &str,
        queues: u32,
        locals: &Locals,
        choice: ModeChoice,
        early: EarlyDropConfig,
        stored: &mut Option<StoredLink>,
    ) -> Result<Self, Error> {
        let load = |mac| Steering::for_gate(mac, queues, locals, early);
        Self::acquire(name, queues, choice, load, stored)
    }

    fn acquire(
        name: &str,
        queues: u32,
        choice: ModeChoice,
        load: impl FnOnce([u8; 6]) -> Result<Steering, LoadError>,
        stored: &mut Option<StoredLink>,
    ) -> Result<Self, Error> {
        let device = Device::find(name)?;
        // Not every driver reports the queues; bind checks them then.
        let there = device.queues().unwrap_or(queues);
        if queues == 0 || queues > there {
            return Err(Error::BadQueueCount {
                interface: name.to_owned(),
                wanted: queues,
                queues: there,
            });
        }
        // Opened first, so that nothing is attached in vain, and all missing capabilities are
        // reported together.
        drop(descriptor::open(name, &[NET_RAW, NET_ADMIN, BPF])?);
        let (mac, mtu, index) = (device.mac()?, device.mtu()?, device.index()?);
        let steering = load(mac).map_err(|error| program_error(error, name, &[BPF, NET_ADMIN]))?;
        // Before the program is attached, since some drivers restart their queues for either.
        let tag_removal = TagRemoval::turn_off(name);
        let stored = stored.take_if(|stored| stored.interface().is_ok_and(|of| of == index));
        let (link, fallback) = adopt_or_attach(&steering, index, choice, stored);
        let link = link.map_err(|error| attach_error(error, name, mtu))?;
        let device_queues = device::queues(name).unwrap_or(queues);
        let attachment = Attachment {
            fallback,
            tag_removal,
            ..Attachment::detached(name, index, mac, mtu, device_queues, link.mode())
        };
        Ok(Self::new(Attachment { link: Some(link), ..attachment }, steering, queues, choice))
    }

    /// Makes the interface of a device that is described by `attachment`, as yet without sockets.
    fn new(attachment: Attachment, steering: Steering, queues: u32, choice: ModeChoice) -> Self {
        let dropped_before = dropped(&attachment.name).unwrap_or(0);
        Self(Arc::new(Inner {
            queues,
            choice,
            attachment: RwLock::new(attachment),
            steering,
            sockets: Mutex::new(Sockets { dropped_before, ..Sockets::default() }),
            host_egress: Mutex::default(),
            refused: Refused::default(),
            past: Mutex::default(),
        }))
    }

    /// Opens an interface by one of the functions above, whose queues are set up. The device gets its previous
    /// setup back when the program is detached.
    ///
    /// # Errors
    ///
    /// [`Error`]; the device is then unchanged.
    pub fn with_queue_setup(
        name: &str,
        wanted: QueueSetup,
        open: impl FnOnce() -> Result<Self, Error>,
    ) -> Result<Self, Error> {
        let channels = set_channels(name, wanted)?;
        let interface = open()?;
        let rss = set_rss(name, wanted, interface.queues())?;
        let mut now = interface.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        (now.wanted_queues, now.rss, now.channels) = (wanted, rss, channels);
        drop(now);
        Ok(interface)
    }

    /// Returns whether both are clones of one.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the setup of queues that the interface was opened with.
    pub fn queue_setup(&self) -> QueueSetup {
        self.attachment(|now| now.wanted_queues)
    }

    /// Counts the packets that the host sends by the device, as long as the program is attached and a counter is in
    /// use. All callers get the same counter.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `EINVAL` before Linux 6.6.
    pub fn count_host_egress(&self) -> io::Result<Arc<HostEgress>> {
        let index = self.index();
        let mut counter = self.0.host_egress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = counter.upgrade() {
            return Ok(counter);
        }
        let new = Arc::new(HostEgress::new(index)?);
        *counter = Arc::downgrade(&new);
        Ok(new)
    }

    /// Counts the host's packets of another device from now on, or of none, if they are counted.
    fn move_host_egress(&self, index: Option<u32>) {
        let counter = self.0.host_egress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = counter.upgrade() {
            // Without the counter the workers pace their own packets as if the host sent none.
            let _ = counter.attach(index);
        }
    }

    /// Moves to another device that has replaced the previous one: by its index, its MAC and its
    /// MTU in bytes. The program is attached to it on return; sockets must be bound again.
    ///
    /// # Errors
    ///
    /// [`Error`]; the program is then attached to no device.
    pub fn reattach(&self, index: u32, mac: [u8; 6], mtu: usize) -> Result<(), Error> {
        let mut now = self.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        now.release();
        let name = now.name.clone();
        let unset = |source| Error::System {
            doing: "set the MAC of the steering program",
            interface: name.clone(),
            source,
        };
        self.0.steering.set_mac(mac).map_err(unset)?;
        // Until sockets are bound to this device, packets must find none, and not those of the
        // previous device.
        for queue in 0..self.0.queues {
            let _ = self.0.steering.sockets().delete(&queue.to_ne_bytes());
        }
        (now.index, now.mac, now.mtu) = (index, mac, mtu);
        now.channels = set_channels(&name, now.wanted_queues)?;
        now.rss = set_rss(&name, now.wanted_queues, self.0.queues)?;
        now.device_queues = device::queues(&name).unwrap_or(now.device_queues);
        let mut sockets = self.sockets();
        sockets.lost_before = sockets.lost;
        sockets.dropped_before = dropped(&name).unwrap_or(0);
        drop(sockets);
        let tag_removal = TagRemoval::turn_off(&name);
        self.move_host_egress(Some(index));
        self.0.refused.add_device(index);
        let (link, fallback) = attach(&self.0.steering, index, self.0.choice);
        let link = link.map_err(|error| attach_error(error, &name, mtu))?;
        (now.mode, now.tag_removal) = (link.mode(), tag_removal);
        (now.link, now.fallback) = (Some(link), fallback);
        Ok(())
    }

    /// Returns the current number of the device's receive queues. If it has changed since the
    /// program was attached, attaches the program again: a veth in native mode runs no program on
    /// queues that are added later. Packets pass to the host in between.
    ///
    /// # Errors
    ///
    /// [`Error`]; the program may then be attached to no device.
    pub fn update_queues(&self) -> Result<u32, Error> {
        let mut now = self.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        let there = device::queues(&now.name)?;
        if there == now.device_queues || now.link.is_none() {
            return Ok(there);
        }
        now.detach();
        let (link, fallback) = attach(&self.0.steering, now.index, self.0.choice);
        let link = link.map_err(|error| attach_error(error, &now.name, now.mtu))?;
        (now.mode, now.device_queues) = (link.mode(), there);
        (now.link, now.fallback) = (Some(link), fallback);
        Ok(there)
    }

    /// Detaches the program from the device.
    pub fn detach(&self) {
        self.move_host_egress(None);
        let mut now = self.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        now.release();
    }

    /// Returns whether the device removes VLAN tags although the program is attached: its driver does not
    /// let the removal be turned off, or it was turned on again since.
    pub fn strips_tags(&self) -> bool {
        device::describe(&self.name()).is_ok_and(|device| device.strips_vlan)
    }

    /// Returns whether packets that are too long for the sockets are left to the host, as on a router's
    /// interface from Linux 5.18 on: the MTU may then exceed [`largest_mtu`](super::largest_mtu).
    pub fn passes_long_frames(&self) -> bool {
        self.0.steering.passes_long_frames()
    }

    /// Returns whether the program is attached to a device.
    pub fn is_attached(&self) -> bool {
        self.attachment(|now| now.link.is_some())
    }

    /// Sets the device's new MAC: from now on only packets to it are taken.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`; the MAC is then as before.
    pub fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        let mut now = self.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        self.0.steering.set_mac(mac)?;
        now.mac = mac;
        Ok(())
    }

    /// Sets the MACs of the MAC-VLAN devices over the device: packets to them are taken, too.
    ///
    /// # Errors
    ///
    /// See [`Steering::set_secondary_macs`].
    pub fn set_secondary_macs(&self, macs: &[[u8; 6]]) -> io::Result<()> {
        self.0.steering.set_secondary_macs(macs)
    }

    /// Takes packets with these VLAN tags, too, from now on, and with no others.
    ///
    /// # Errors
    ///
    /// See [`Steering::set_vlans`].
    pub fn set_vlans(&self, vlans: &[VlanTags]) -> io::Result<()> {
        self.0.steering.set_vlans(vlans)
    }

    /// Sets the device's new MTU, in bytes.
    pub fn set_mtu(&self, mtu: usize) {
        self.0.attachment.write().unwrap_or_else(PoisonError::into_inner).mtu = mtu;
    }

    fn attachment<T>(&self, read: impl FnOnce(&Attachment) -> T) -> T {
        read(&self.0.attachment.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the device's new name.
    pub fn rename(&self, name: &str) {
        let mut now = self.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        name.clone_into(&mut now.name);
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        self.attachment(|now| now.name.clone())
    }

    /// Returns its index in its network namespace.
    pub fn index(&self) -> u32 {
        self.attachment(|now| now.index)
    }

    /// Returns its hardware address.
    pub fn mac(&self) -> [u8; 6] {
        self.attachment(|now| now.mac)
    }

    /// Returns the largest IP packet, in bytes.
    pub fn mtu(&self) -> usize {
        self.attachment(|now| now.mtu)
    }

    /// Returns the number of its queues that are in use.
    pub fn queues(&self) -> u32 {
        self.0.queues
    }

    /// Returns the mode choice of [`open`](Self::open).
    pub fn choice(&self) -> ModeChoice {
        self.0.choice
    }

    /// Returns where in the kernel the steering program runs.
    pub fn attached(&self) -> Mode {
        self.attachment(|now| now.mode)
    }

    /// Returns the reason why the program is not in the driver, where [`ModeChoice::Auto`]
    /// fell back to generic.
    pub fn fallback(&self) -> Option<String> {
        self.attachment(|now| now.fallback.clone())
    }

    /// Replaces the host's own addresses.
    ///
    /// # Errors
    ///
    /// See [`Steering::set_locals`].
    pub fn set_locals(&self, locals: &Locals) -> io::Result<()> {
        self.0.steering.set_locals(locals)
    }

    /// Drops packets of a flow in the kernel until a time, or no longer.
    ///
    /// # Errors
    ///
    /// See [`Steering::decline`].
    pub fn decline(&self, src: IpAddr, dst: IpAddr, until: Option<u64>) -> io::Result<()> {
        self.0.steering.decline(src, dst, until)
    }

    /// Counts the bytes of packets dropped so.
    ///
    /// # Errors
    ///
    /// See [`Steering::declined_bytes`].
    pub fn declined_bytes(&self) -> io::Result<u64> {
        Ok(self.0.steering.declined_bytes()? + self.past().declined_bytes)
    }

    /// States which prefixes are behind the gate.
    ///
    /// # Errors
    ///
    /// See [`Steering::set_protected`].
    pub fn set_protected(&self, list: &[SourcePrefix]) -> io::Result<()> {
        self.0.steering.set_protected(list)
    }

    /// Counts the bytes of packets for the host that were dropped for a source behind the gate.
    ///
    /// # Errors
    ///
    /// See [`Steering::forged_bytes`].
    pub fn forged_bytes(&self) -> io::Result<u64> {
        Ok(self.0.steering.forged_bytes()? + self.past().forged_bytes)
    }

    /// Counts the bytes of dropped packets of blocked sources.
    ///
    /// # Errors
    ///
    /// See [`Steering::blocked_bytes`].
    pub fn blocked_bytes(&self) -> io::Result<u64> {
        Ok(self.0.steering.blocked_bytes()? + self.past().blocked_bytes)
    }

    /// Leaves all packets to the host from now on and counts those that would have been taken, or
    /// takes them again. The sockets stay open, and may send.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn observe(&self, only: bool) -> io::Result<()> {
        let mut now = self.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        self.0.steering.observe(only || now.left)?;
        now.observed = only;
        Ok(())
    }

    /// Leaves all packets to the host while the device cannot be served, or no longer: then the
    /// last [`observe`](Self::observe) applies again.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn give_back(&self, left: bool) -> io::Result<()> {
        let mut now = self.0.attachment.write().unwrap_or_else(PoisonError::into_inner);
        if now.left != left {
            self.0.steering.observe(now.observed || left)?;
            now.left = left;
        }
        Ok(())
    }

    /// Returns whether all packets are left to the host.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn observes(&self) -> io::Result<bool> {
        self.0.steering.observes()
    }

    /// Reads the counters of the steering program.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn counts(&self) -> io::Result<SteeringCounters> {
        let mut counts = self.0.steering.counts()?;
        counts += self.past().outcomes;
        Ok(counts)
    }

    /// Lets packets of IPv4, and of IPv6, take the driver's path from now on.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn forward_in_driver(&self, families: [bool; 2]) -> io::Result<()> {
        self.0.steering.forward_in_driver(families)
    }

    /// Returns whether packets may be forwarded in the driver.
    pub fn forwards_in_driver(&self) -> bool {
        self.attachment(|now| now.extensions.driver_path.is_some())
            && self.0.steering.forwards_in_driver()
    }

    /// Returns the sessions that get copies of the packets that end in the program; `None` before Linux 5.18.
    pub fn copies(&self) -> Option<Arc<PacketCopies>> {
        self.0.steering.copies().cloned()
    }

    /// Counts the bytes of the frames that were forwarded in the driver.
    ///
    /// # Errors
    ///
    /// See [`Steering::forwarded_bytes`].
    pub fn forwarded_bytes(&self) -> io::Result<u64> {
        Ok(self.0.steering.forwarded_bytes()? + self.past().forwarded_bytes)
    }

    /// Sets how long a worker may stall.
    ///
    /// # Errors
    ///
    /// See [`Steering::set_stall`].
    pub fn set_stall(&self, limit: Option<Duration>) -> io::Result<()> {
        self.0.steering.set_stall(limit)
    }

    /// Returns whether received packets may have partial checksums: those of a veth, whose sender
    /// left them to the device, and those that the kernel has processed already.
    pub(super) fn has_partial_checksums(&self) -> bool {
        let driver = || Device::find(&self.name()).ok()?.driver();
        self.attached() == Mode::Generic || driver().is_none_or(|name| name == *b"veth")
    }

    /// Adds up the counters of the interface's sockets, closed ones included. The device's drops on
    /// the way out (`tx_lost`) cover all packets sent on it, the host's own too.
    ///
    /// The packets that the steering program has redirected are those `received`, waiting and
    /// [lost](PortStats::lost). The kernel does not count failed redirections: they are the packets
    /// missing ([`PortStats::undelivered`]) of those redirected 100 ms or more before the last
    /// call. So they are known when no packets have arrived for that time, or when they exceed
    /// those received meanwhile.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn stats(&self) -> io::Result<PortStats> {
        let counts = self.counts()?;
        let mut sockets = self.sockets();
        let mut sum = sockets.closed;
        let mut waiting = 0;
        for socket in &sockets.open {
            // The waiting packets first: a packet that is received in between counts twice, which
            // is no loss.
            waiting += socket.waiting();
            sum += socket.stats();
        }
        let taken = counts[SteeringOutcome::Taken];
        match sockets.taken {
            Some((when, before)) if when.elapsed() >= ARRIVAL_TIME => {
                let arrived = sum.received + waiting + sum.lost();
                sockets.undelivered = sockets.undelivered.max(before.saturating_sub(arrived));
                sockets.taken = Some((Instant::now(), taken));
            }
            Some(_) => {}
            None => sockets.taken = Some((Instant::now(), taken)),
        }
        let dropped = dropped(&self.name()).unwrap_or(0);
        let lost = sockets.lost_before + dropped.saturating_sub(sockets.dropped_before);
        // A removed device drops nothing more.
        sockets.lost = sockets.lost.max(lost);
        Ok(PortStats {
            passed: counts.passed(),
            undelivered: sockets.undelivered,
            tx_lost: sockets.lost,
            tx_refused: self.0.refused.count() + self.past().sockets.tx_refused,
            ..sum
        })
    }

    /// Adds the counters of a socket.
    pub(super) fn add_socket(&self, socket: &Arc<SocketCounters>) {
        self.sockets().open.push(Arc::clone(socket));
    }

    /// Retains the counters of a socket that closes, if it has joined.
    pub(super) fn remove_socket(&self, socket: &Arc<SocketCounters>) {
        let mut sockets = self.sockets();
        if let Some(at) = sockets.open.iter().position(|open| Arc::ptr_eq(open, socket)) {
            let socket = sockets.open.swap_remove(at);
            sockets.closed += socket.stats();
        }
    }

    fn sockets(&self) -> MutexGuard<'_, Sockets> {
        self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn steering(&self) -> &Steering {
        &self.0.steering
    }
}
