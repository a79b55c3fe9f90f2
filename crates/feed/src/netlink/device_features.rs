//! The XDP features of devices: whether a device sends packets that programs redirect to it.
//!
//! ```text
//!   generic netlink ─► family `netdev` ─┬─ NETDEV_CMD_DEV_GET, index ─► NETDEV_A_DEV_XDP_FEATURES
//!                                       └─ group `mgmt` ─► a message upon each change
//! ```
//!
//! Documentation/netlink/specs/netdev.yaml (Linux 6.3). The features change while a device exists: a veth takes
//! redirected packets only while its peer has a program or GRO, and drops them otherwise. The answer arrives within the
//! call.

use std::ffi::CStr;

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::attribute::Attributes;
use super::error::Error;
use super::message::{Message, Messages};
use super::socket::{Received, Socket};
use super::uapi::{NLM_F_REQUEST, NLMSG_ERROR};

/// `GENL_ID_CTRL`: the family of families.
const CONTROLLER: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

const FAMILY: &CStr = c"netdev";
const GROUP: &CStr = c"mgmt";
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_REDIRECT`: programs on the device may redirect.
const REDIRECT: u64 = 1 << 1;
/// `NETDEV_XDP_ACT_NDO_XMIT`: the device sends redirected packets.
const NDO_XMIT: u64 = 1 << 2;
/// `NETDEV_XDP_ACT_XSK_ZEROCOPY`: sockets of AF_XDP may be zero-copy.
const XSK_ZEROCOPY: u64 = 1 << 3;

/// The XDP features of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures(u64);

impl XdpFeatures {
    /// Returns whether programs on the device, in its driver, may redirect packets.
    pub fn redirects(self) -> bool {
        self.0 & REDIRECT != 0
    }

    /// Returns whether the device sends packets that programs redirect to it.
    pub fn sends_redirected(self) -> bool {
        self.0 & NDO_XMIT != 0
    }

    /// Returns whether sockets of AF_XDP may be zero-copy.
    pub fn has_zero_copy(self) -> bool {
        self.0 & XSK_ZEROCOPY != 0
    }
}

/// A connection for queries of features.
#[derive(Debug)]
pub struct DeviceFeatures {
    socket: Socket,
    /// Receives a message upon each change; `None` if the kernel's group cannot be joined.
    changes: Option<Socket>,
    /// The number of the family `netdev`.
    family: u16,
    buffer: Vec<u8>,
}

impl DeviceFeatures {
    /// Opens two sockets in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error`]: `ENOENT` before Linux 6.3.
    pub fn open() -> Result<Self, Error> {
        let socket = Socket::of(SockProtocol::NetlinkGeneric, 0)?;
        let mut features = Self { socket, changes: None, family: 0, buffer: vec![0; 16 << 10] };
        let attribute = encode_attribute(CTRL_ATTR_FAMILY_NAME, FAMILY.to_bytes_with_nul());
        let what = "the family of device features";
        let (family, group) =
            features.get(what, CONTROLLER, CTRL_CMD_GETFAMILY, &attribute, |all| {
                let (mut family, mut group) = (None, None);
                for attribute in all.flatten() {
                    match attribute.kind {
                        CTRL_ATTR_FAMILY_ID => family = attribute.u16().ok(),
                        CTRL_ATTR_MCAST_GROUPS => group = group_id(attribute.nested()),
                        _ => {}
                    }
                }
                family.map(|family| (family, group))
            })?;
        features.family = family;
        // A socket joins groups up to 32 as it is bound.
        let mask = group.and_then(|group| 1_u32.checked_shl(group.checked_sub(1)?));
        let joined = mask.map(|mask| Socket::of(SockProtocol::NetlinkGeneric, mask));
        features.changes = joined.transpose()?;
        Ok(features)
    }

    /// Returns the features of the device with this index.
    ///
    /// # Errors
    ///
    /// [`Error`]: `ENODEV` if there is none.
    pub fn of(&mut self, index: u32) -> Result<XdpFeatures, Error> {
        let attribute = encode_attribute(NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
        let (what, family) = ("the features of a device", self.family);
        self.get(what, family, NETDEV_CMD_DEV_GET, &attribute, |mut all| {
            let found = all.find_map(|attribute| {
                let attribute = attribute.ok()?;
                (attribute.kind == NETDEV_A_DEV_XDP_FEATURES).then_some(attribute.value)
            })?;
            Some(XdpFeatures(u64::from_ne_bytes(found.try_into().ok()?)))
        })
    }

    /// Returns whether the features of any device may have changed since the last call.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn has_changed(&mut self) -> Result<bool, Error> {
        let Some(changes) = &self.changes else { return Ok(true) };
        let changed = changes.receive(&mut self.buffer)? != Received::Nothing;
        if changed {
            changes.drain(&mut self.buffer)?;
        }
        Ok(changed)
    }

    /// Sends a request and reads its answer.
    fn get<T>(
        &mut self,
        request: &'static str,
        family: u16,
        command: u8,
        attribute: &[u8],
        read: impl Fn(Attributes<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        let number = self.socket.number();
        let mut bytes = Vec::with_capacity(20 + attribute.len());
        bytes.extend((20 + attribute.len() as u32).to_ne_bytes());
        bytes.extend(family.to_ne_bytes());
        bytes.extend(NLM_F_REQUEST.to_ne_bytes());
        bytes.extend(number.to_ne_bytes());
        bytes.extend([0; 4]);
        // `struct genlmsghdr`: the command, version 1.
        bytes.extend([command, 1, 0, 0]);
        bytes.extend(attribute);
        self.socket.send(&bytes)?;
        let mut result = Err(Errno::ENODATA);
        while let Received::Bytes(bytes) = self.socket.receive(&mut self.buffer)? {
            let messages = Messages::new(&self.buffer[..bytes]).flatten();
            for message in messages.filter(|message| message.sequence == number) {
                result = match message.kind {
                    NLMSG_ERROR => Err(message.errno().unwrap_or(Errno::ENODATA)),
                    _ => answer(&message, &read).ok_or(Errno::EBADMSG),
                };
            }
        }
        result.map_err(|source| Error::Refused { request, source })
    }
}

/// Reads the attributes of an answer.
fn answer<T>(message: &Message<'_>, read: impl Fn(Attributes<'_>) -> Option<T>) -> Option<T> {
    let (_, attributes) = message.split::<4>().ok()?;
    read(attributes)
}

/// Finds the number of the group of changes among the groups of a family.
fn group_id(groups: Attributes<'_>) -> Option<u32> {
    groups.flatten().find_map(|group| {
        let (mut name, mut id) = (None, None);
        for attribute in group.nested().flatten() {
            match attribute.kind {
                CTRL_ATTR_MCAST_GRP_NAME => name = Some(attribute.text()),
                CTRL_ATTR_MCAST_GRP_ID => id = attribute.u32().ok(),
                _ => {}
            }
        }
        id.filter(|_| name == Some(GROUP.to_bytes()))
    })
}

/// Encodes an attribute, padded to a multiple of four bytes.
fn encode_attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut bytes = Vec::with_capacity(length + 3);
    bytes.extend((length as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_no_features_and_unknown_device_is_an_error() {
        // Without privileges; before Linux 6.3 there is no family.
        let mut features = match DeviceFeatures::open() {
            Ok(features) => features,
            Err(error) => {
                assert!(matches!(error, Error::Refused { source: Errno::ENOENT, .. }), "{error}");
                return;
            }
        };
        assert_eq!(features.of(1).unwrap(), XdpFeatures::default());
        let error = features.of(u32::MAX >> 1).unwrap_err();
        assert!(matches!(error, Error::Refused { source: Errno::ENODEV, .. }), "{error}");
        assert!(features.changes.is_some());
        assert!(!features.has_changed().unwrap());
    }
}
