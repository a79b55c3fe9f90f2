//! Traffic control by netlink, as far as [`Host`](super::Host) needs it: the hook on a device's
//! receive path, and filters there that redirect frames to another interface.
//!
//! A filter is a classic BPF program that compares the last four bytes of a frame with the number
//! of an interface, and the action `mirred`, which redirects to that interface's receive path.
//! Messages are those of rtnetlink(7) with `linux/pkt_sched.h`, `linux/pkt_cls.h` and
//! `linux/tc_act/tc_mirred.h`; the kernel answers each with an error number or 0.

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

// linux/rtnetlink.h, linux/netlink.h.
const RTM_NEWQDISC: u16 = 36;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const NLA_F_NESTED: u16 = 0x8000;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
// linux/pkt_sched.h: the handle and parent of `clsact`, and its ingress hook.
const CLSACT: u32 = 0xffff_0000;
const CLSACT_PARENT: u32 = 0xffff_fff1;
const RECEIVED: u32 = 0xffff_fff2;
/// `ETH_P_ALL`, as a filter names it.
const ALL: u16 = 3u16.to_be();
// linux/pkt_cls.h.
const TCA_BPF_ACT: u16 = 1;
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TC_ACT_STOLEN: u32 = 4;
// linux/tc_act/tc_mirred.h.
const TCA_MIRRED_PARMS: u16 = 2;
const TCA_INGRESS_REDIR: u32 = 3;

/// The length of a netlink header, and of `struct tcmsg` behind it.
const HEADER: usize = 16;

/// Puts the hooks of `clsact` on a device.
pub(super) fn add_clsact(device: u32) -> io::Result<()> {
    let mut message = tcmsg(device, CLSACT, CLSACT_PARENT, 0);
    attribute(&mut message, TCA_KIND, b"clsact\0");
    request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, &message)
}

/// Redirects frames that a device receives with the number of `interface` at their end to that
/// interface's receive path. `place` orders the filters of the device.
pub(super) fn add_redirect(device: u32, place: u16, interface: u32) -> io::Result<()> {
    let mut message = filter(device, place);
    nest(&mut message, TCA_OPTIONS, |options| {
        nest(options, TCA_BPF_ACT, |actions| {
            nest(actions, 1, |action| {
                attribute(action, TCA_ACT_KIND, b"mirred\0");
                nest(action, TCA_ACT_OPTIONS, |mirred| {
                    // struct tc_mirred: index, capabilities, action, references, bindings, and
                    // the action and its interface.
                    let words = [0, 0, TC_ACT_STOLEN, 0, 0, TCA_INGRESS_REDIR, interface];
                    attribute(mirred, TCA_MIRRED_PARMS, &words.map(u32::to_ne_bytes).concat());
                });
            });
        });
        let program = ends_with(interface);
        let length = (program.len() / 8) as u16;
        attribute(options, TCA_BPF_OPS_LEN, &length.to_ne_bytes());
        attribute(options, TCA_BPF_OPS, &program);
    });
    request(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, &message)
}

/// Removes the filter at a place.
pub(super) fn delete_redirect(device: u32, place: u16) -> io::Result<()> {
    request(RTM_DELTFILTER, 0, &filter(device, place))
}

/// Returns classic BPF that accepts frames that end with a number: `struct sock_filter` each.
fn ends_with(number: u32) -> Vec<u8> {
    let each: [(u16, u8, u8, u32); 7] = [
        (0x80, 0, 0, 0),        // ld len
        (0x14, 0, 0, 4),        // sub #4
        (0x07, 0, 0, 0),        // tax
        (0x40, 0, 0, 0),        // ld [x + 0]
        (0x15, 0, 1, number),   // jeq #number
        (0x06, 0, 0, u32::MAX), // ret #-1: it matches
        (0x06, 0, 0, 0),        // ret #0
    ];
    let bytes = |(code, yes, no, k): (u16, u8, u8, u32)| {
        let ([a, b], [c, d, e, f]) = (code.to_ne_bytes(), k.to_ne_bytes());
        [a, b, yes, no, c, d, e, f]
    };
    each.map(bytes).concat()
}

/// Begins the message of a filter at a place.
fn filter(device: u32, place: u16) -> Vec<u8> {
    let info = u32::from(place) << 16 | u32::from(ALL);
    let mut message = tcmsg(device, 0, RECEIVED, info);
    attribute(&mut message, TCA_KIND, b"bpf\0");
    message
}

/// Returns a `struct tcmsg`.
fn tcmsg(device: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, device, handle, parent, info].map(u32::to_ne_bytes).concat()
}

/// Appends an attribute (`struct nlattr`), padded to four bytes.
fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend((value.len() as u16 + 4).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Appends an attribute of attributes.
fn nest(message: &mut Vec<u8>, kind: u16, inner: impl FnOnce(&mut Vec<u8>)) {
    let mut value = Vec::new();
    inner(&mut value);
    attribute(message, kind | NLA_F_NESTED, &value);
}

/// Sends a request, and receives the kernel's answer, which is available at once.
fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    // Sequence number and sender: there is one request on this socket.
    message.extend([0; 8]);
    message.extend(body);
    sendto(socket.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 4096];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let answer = answer.get(..length).unwrap_or_default();
    let kind = answer.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    match answer.get(HEADER..HEADER + 4) {
        Some(&[a, b, c, d]) if kind == Some(NLMSG_ERROR) => {
            match i32::from_ne_bytes([a, b, c, d]) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            }
        }
        _ => Err(io::Error::other("traffic control: not an answer to the request")),
    }
}
