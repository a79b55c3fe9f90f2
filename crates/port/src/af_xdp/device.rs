//! Queries about a device by name: its MAC, MTU, queues, driver and offloads (`ioctl(2)`).
//!
//! The device is looked up in the network namespace of the calling thread.

#![expect(unsafe_code, reason = "ioctl(2) reads and writes through pointers")]

use std::ffi::{CString, c_char};
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::error::Error;
use super::ethtool::{
    Channels, DriverInfo, FLAG_LRO, FLAG_RX_VLAN, GET_CHANNELS, GET_DRIVER, GET_FLAGS,
    SET_CHANNELS, SET_FLAGS, SET_TX_CHECKSUM, Value, rss_request_words,
};

/// Counts the packets that a device has dropped on the way out, as `ip -s link` shows them.
pub(super) fn dropped(name: &str) -> Option<u64> {
    let all = fs::read_to_string("/proc/thread-self/net/dev").ok()?;
    let mine =
        |line: &str| line.trim_start().strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
    // Eight numbers for receiving, then bytes, packets, errors and drops for sending.
    all.lines().find_map(mine)?.split_whitespace().nth(11)?.parse().ok()
}

/// Counts the receive queues of the device `name`: those that the driver reports, else those
/// that sysfs lists, else one.
///
/// # Errors
///
/// [`Error`]: there is no such interface.
pub fn queues(name: &str) -> Result<u32, Error> {
    let device = Device::find(name)?;
    Ok(device.queues().or_else(|| device.listed_queues()).unwrap_or(1))
}

/// A structure of linux/ethtool.h without pointers and arrays of unknown length, which begins with the command
/// that it belongs to.
trait Request {}

impl Request for Channels {}
impl Request for DriverInfo {}
impl Request for Value {}

/// The longest time until the kernel has released a closed socket.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes the host compute the checksums of packets that it sends over `name`, as `ethtool -K NAME
/// tx off` does.
///
/// A veth leaves them to a card that does not exist, and an AF_XDP socket at its other end has to
/// complete them packet by packet. With this call the sender computes them.
///
/// # Errors
///
/// [`Error`]: there is no such interface, or the right to change it is missing.
pub fn compute_checksums(name: &str) -> Result<(), Error> {
    Device::find(name)?.query(&mut Value { command: SET_TX_CHECKSUM, data: 0 })
}

/// The description of a device before the program is attached to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its hardware address.
    pub mac: [u8; 6],
    /// The largest packet in bytes.
    pub mtu: usize,
    /// The number of its receive queues, where the driver reports it.
    pub queues: Option<u32>,
    /// The most receive queues that it can have, where the driver reports it.
    pub most_queues: Option<u32>,
    /// Whether it merges received packets (large receive offload).
    pub lro: bool,
    /// Whether it strips VLAN tags from received packets.
    pub strips_vlan: bool,
}

/// Describes the device `name` without taking it over.
///
/// # Errors
///
/// [`Error`]: there is no such interface, or it is no Ethernet interface.
pub fn describe(name: &str) -> Result<DeviceInfo, Error> {
    let device = Device::find(name)?;
    let flags = device.flags().unwrap_or(0);
    Ok(DeviceInfo {
        mac: device.mac()?,
        mtu: device.mtu()?,
        queues: device.queues().or_else(|| device.listed_queues()),
        most_queues: device.channels().map(|channels| channels.most()).filter(|most| *most > 0),
        lro: flags & FLAG_LRO != 0,
        strips_vlan: flags & FLAG_RX_VLAN != 0,
    })
}

/// The removal of VLAN tags by a device (`rx-vlan-offload`), turned off until the value is dropped: an XDP
/// program cannot see a tag that the device has removed, so the packets of VLAN devices would look
/// untagged.
#[derive(Debug)]
pub(super) struct TagRemoval {
    device: Device,
    index: u32,
}

impl TagRemoval {
    /// Turns the removal off; returns `None` if that was done before, or if the driver refuses
    /// ([`DeviceInfo::strips_vlan`] stays true then).
    pub(super) fn turn_off(name: &str) -> Option<Self> {
        let device = Device::find(name).ok()?;
        let index = device.index().ok()?;
        let flags = device.flags()?;
        if flags & FLAG_RX_VLAN == 0 {
            return None;
        }
        device.set_flags(flags & !FLAG_RX_VLAN).ok()?;
        Some(Self { device, index })
    }

    /// Turns the removal on again in place of a predecessor that has turned it off.
    pub(super) fn succeed(name: &str) -> Option<Self> {
        let device = Device::find(name).ok()?;
        let index = device.index().ok()?;
        Some(Self { device, index })
    }
}

impl Drop for TagRemoval {
    fn drop(&mut self) {
        // The name may have changed. A device that was removed needs nothing.
        if self.device.find_name(self.index).is_ok()
            && let Some(flags) = self.device.flags()
        {
            let _ = self.device.set_flags(flags | FLAG_RX_VLAN);
        }
    }
}

/// The number of a device's channels (`ethtool -L`), changed until the value is dropped. A number that was
/// changed again by another program since stays.
#[derive(Debug)]
pub(super) struct ChannelCount {
    device: Device,
    index: u32,
    before: Channels,
    count: u32,
}

impl ChannelCount {
    /// Sets the number; returns `None` if the device has that already.
    ///
    /// # Errors
    ///
    /// [`Error::BadChannelCount`]: the device cannot have so many, or its driver does not let the number
    /// be changed.
    pub(super) fn set(name: &str, count: u32) -> Result<Option<Self>, Error> {
        let device = Device::find(name)?;
        let before = device.channels().unwrap_or_default();
        let most = before.most();
        if count == 0 || count > most {
            return Err(Error::BadChannelCount { interface: name.to_owned(), wanted: count, most });
        }
        let wanted = before.with_queues(count);
        if (wanted.rx, wanted.tx, wanted.combined) == (before.rx, before.tx, before.combined) {
            return Ok(None);
        }
        let index = device.index()?;
        device.set_channels(wanted)?;
        Ok(Some(Self { device, index, before, count }))
    }

    /// Returns the channels before the change, and the number of queues since then.
    pub(super) fn change(&self) -> (Channels, u32) {
        (self.before, self.count)
    }

    /// Puts the channels back in place of a predecessor that has made this change.
    pub(super) fn succeed(name: &str, (before, count): (Channels, u32)) -> Option<Self> {
        let device = Device::find(name).ok()?;
        let index = device.index().ok()?;
        Some(Self { device, index, before, count })
    }
}

impl Drop for ChannelCount {
    fn drop(&mut self) {
        // The name may have changed. A device that was removed needs nothing.
        if self.device.find_name(self.index).is_ok() && self.device.queues() == Some(self.count) {
            let _ = self.device.set_channels(self.before);
        }
    }
}

/// A device by name, and a socket for queries about it.
#[derive(Debug)]
pub(super) struct Device {
    name: CString,
    socket: OwnedFd,
}

impl Device {
    pub(super) fn find(name: &str) -> Result<Self, Error> {
        let missing = || Error::NoInterface { interface: name.to_owned() };
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(missing());
        }
        let c_name = CString::new(name).map_err(|_| missing())?;
        // SAFETY: no pointer; it makes a descriptor.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return Err(Error::system("query the device", name, &[], error));
        }
        // SAFETY: created just above, and not yet shared.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let device = Self { name: c_name, socket };
        device.index()?;
        Ok(device)
    }

    /// Queries the device.
    fn ioctl(&self, request: libc::Ioctl, ifreq: &mut libc::ifreq) -> Result<(), Error> {
        for (to, from) in ifreq.ifr_name.iter_mut().zip(self.name.as_bytes_with_nul()) {
            *to = *from as c_char;
        }
        // SAFETY:
        // - all requests made here read the name from a `struct ifreq` and write their answer into
        //   it; the caller ensures that a pointer in it is valid.
        let answer = unsafe { libc::ioctl(self.socket.as_raw_fd(), request, &raw mut *ifreq) };
        if answer == 0 {
            return Ok(());
        }
        let (error, name) = (io::Error::last_os_error(), self.name.to_string_lossy());
        Err(match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => Error::NoInterface { interface: name.into() },
            _ => Error::system("query the device", &name, &[], error),
        })
    }

    /// Passes a request of linux/ethtool.h, which begins with its command, to the driver, which answers in place.
    fn query<T: Request>(&self, request: &mut T) -> Result<(), Error> {
        let mut ifreq = Self::empty();
        ifreq.ifr_ifru.ifru_data = (&raw mut *request).cast();
        // The kernel reads and writes the structure of the command, which is what the pointer points to.
        self.ioctl(libc::SIOCETHTOOL as libc::Ioctl, &mut ifreq)
    }

    /// Passes a request about receive side scaling ([`rss`](super::rss)) to the driver, which answers in place.
    ///
    /// # Panics
    ///
    /// The request is shorter than its head states, or is about something else.
    pub(super) fn query_rss(&self, request: &mut [u32]) -> Result<(), Error> {
        assert!(
            request.len() >= rss_request_words(request),
            "a request of {} words",
            request.len()
        );
        let mut ifreq = Self::empty();
        ifreq.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
        // The kernel reads and writes as many words as the head of the request states, which is no more than
        // the pointer points to.
        self.ioctl(libc::SIOCETHTOOL as libc::Ioctl, &mut ifreq)
    }

    fn empty() -> libc::ifreq {
        // SAFETY: a `struct ifreq` is an array of characters and a union of
        // plain integers and pointers; all of them may be zero.
        unsafe { mem::zeroed() }
    }

    pub(super) fn index(&self) -> Result<u32, Error> {
        let mut ifreq = Self::empty();
        self.ioctl(libc::SIOCGIFINDEX as libc::Ioctl, &mut ifreq)?;
        // SAFETY: the arm that SIOCGIFINDEX writes.
        Ok(unsafe { ifreq.ifr_ifru.ifru_ifindex } as u32)
    }

    pub(super) fn mtu(&self) -> Result<usize, Error> {
        let mut ifreq = Self::empty();
        self.ioctl(libc::SIOCGIFMTU as libc::Ioctl, &mut ifreq)?;
        // SAFETY: the arm that SIOCGIFMTU writes.
        Ok(unsafe { ifreq.ifr_ifru.ifru_mtu } as usize)
    }

    pub(super) fn mac(&self) -> Result<[u8; 6], Error> {
        let mut ifreq = Self::empty();
        self.ioctl(libc::SIOCGIFHWADDR as libc::Ioctl, &mut ifreq)?;
        // SAFETY: the arm that SIOCGIFHWADDR writes.
        let address = unsafe { ifreq.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            let interface = self.name.to_string_lossy().into_owned();
            return Err(Error::NotEthernet { interface });
        }
        Ok(std::array::from_fn(|byte| address.sa_data[byte] as u8))
    }

    /// Returns the offloads that are on, where the driver reports them.
    fn flags(&self) -> Option<u32> {
        let mut value = Value { command: GET_FLAGS, data: 0 };
        self.query(&mut value).ok()?;
        Some(value.data)
    }

    /// Sets the offloads.
    fn set_flags(&self, flags: u32) -> Result<(), Error> {
        self.query(&mut Value { command: SET_FLAGS, data: flags })
    }

    /// Sets the name to that of the device with this index.
    pub(super) fn find_name(&mut self, index: u32) -> Result<(), Error> {
        let mut ifreq = Self::empty();
        ifreq.ifr_ifru.ifru_ifindex = index as i32;
        self.ioctl(libc::SIOCGIFNAME as libc::Ioctl, &mut ifreq)?;
        let name = ifreq.ifr_name.iter().map(|&byte| byte as u8);
        self.name = CString::new(name.take_while(|&byte| byte != 0).collect::<Vec<_>>())
            .unwrap_or_default();
        Ok(())
    }

    /// Returns the driver's name, where it reports one.
    pub(super) fn driver(&self) -> Option<Vec<u8>> {
        let mut info = DriverInfo { command: GET_DRIVER, text: [[0; 32]; 5], rest: [0; 8] };
        self.query(&mut info).ok()?;
        let [name, ..] = info.text;
        Some(name.into_iter().take_while(|&byte| byte != 0).collect())
    }

    /// Counts the receive queues that sysfs lists, where it shows this network namespace.
    fn listed_queues(&self) -> Option<u32> {
        let folder = Path::new("/sys/class/net").join(self.name.to_str().ok()?);
        let index = fs::read_to_string(folder.join("ifindex")).ok()?;
        if index.trim().parse() != Ok(self.index().ok()?) {
            return None;
        }
        let entries = fs::read_dir(folder.join("queues")).ok()?.flatten();
        let count =
            entries.filter(|entry| entry.file_name().as_bytes().starts_with(b"rx-")).count();
        u32::try_from(count).ok().filter(|&count| count > 0)
    }

    /// Counts the receive queues, where the driver reports them.
    pub(super) fn queues(&self) -> Option<u32> {
        self.channels().map(|channels| channels.queues()).filter(|queues| *queues > 0)
    }

    /// Returns the channels, where the driver reports them.
    fn channels(&self) -> Option<Channels> {
        let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
        self.query(&mut channels).ok()?;
        Some(channels)
    }

    /// Sets the numbers of channels. The kernel removes no channel with an AF_XDP socket (EINVAL), and
    /// releases one shortly after it is closed, hence several tries.
    fn set_channels(&self, channels: Channels) -> Result<(), Error> {
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        loop {
            let mut channels = Channels { command: SET_CHANNELS, ..channels };
            match self.query(&mut channels) {
                Err(Error::System { source, .. })
                    if source.raw_os_error() == Some(libc::EINVAL) && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Device;

    #[test]
    #[should_panic(expected = "a request of 6 words")]
    fn request_shorter_than_its_head_states_panics() {
        let _ = Device::find("lo").unwrap().query_rss(&mut [0x46, 0, 1, 0, 0, 0]);
    }
}
