//! Header views and checksums, without unsafe code.
//!
//! Network byte order exists only here. Every header has a module, and every module has the same
//! three items under the same names:
//!
//! - `View<T>`, a view over bytes that were checked once. `View::parse(bytes)` returns
//!   [`BadHeader`] if the bytes are too short or inconsistent; after it no getter can fail. `T` is
//!   `&[u8]`, `&mut [u8]`, an array or any other type that derefs to bytes; setters exist if the
//!   bytes are writable. `payload()` returns the bytes after the header.
//! - `Header`, the same fields as plain values. `View::header()` reads them all, `Header::emit(&mut
//!   bytes)` writes them all, with the checksum if it covers only the header, and returns the
//!   number of bytes written.
//! - `LEN`, the length of the header, or its minimum if it varies.
//!
//! | module | header | source |
//! |---|---|---|
//! | [`ethernet`] | Ethernet II | IEEE 802.3, RFC 894 |
//! | [`vlan`] | one or two tags | IEEE 802.1Q |
//! | [`arp`] | ARP for IPv4 over Ethernet | RFC 826 |
//! | [`ipv4`] | IPv4 with options | RFC 791 |
//! | [`ipv6`] | IPv6 and its extension headers | RFC 8200, RFC 4302 |
//! | [`icmp`] | ICMP and ICMPv6 | RFC 792, RFC 4443 |
//! | [`tcp`] | TCP with options | RFC 9293 |
//! | [`udp`] | UDP | RFC 768 |
//! | [`gre`] | Generic Routing Encapsulation, version 0 | RFC 2784, RFC 2890 |
//! | [`gue`] | Generic UDP Encapsulation, variant 0 | draft-ietf-intarea-gue |
//!
//! Modules that combine headers: [`tunnel`] is IP in IP (RFC 2003, RFC 2473, RFC 6040),
//! [`fragment`] the fragments of an IPv4 packet (RFC 791), [`icmp_error`] the ICMP errors for packets that
//! cannot be forwarded (RFC 1812, RFC 4443), [`quoted`] the packet that such an error quotes, [`ports`] what
//! several protocols begin with, and [`mss`] the clamping of TCP's segment size.
//!
//! Addresses are host-order integers (`u32`, `u128`) as in the whole project.
//!
//! # Examples
//!
//! ```
//! use fingerpost_wire::{ethernet, ipv4};
//!
//! let mut frame = [0u8; 64];
//! let ether = ethernet::Header { dst: [2, 0, 0, 0, 0, 1], src: [2, 0, 0, 0, 0, 2], kind: ethernet::IPV4 };
//! let at = ether.emit(&mut frame).unwrap();
//! let packet = ipv4::Header { total_len: 50, ttl: 64, protocol: 17, src: 0xc000_0201, dst: 0xc633_6401, ..Default::default() };
//! packet.emit(&mut frame[at..]).unwrap();
//!
//! let ether = ethernet::View::parse(&frame[..]).unwrap();
//! let packet = ipv4::View::parse(ether.payload()).unwrap();
//! assert!(packet.checksum_ok());
//! assert_eq!(packet.ttl(), 64);
//! ```

#![no_std]
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod fragment;
pub mod gre;
pub mod gue;
pub mod icmp;
pub mod icmp_error;
pub mod ipv4;
pub mod ipv6;
pub mod mss;
mod octets;
pub mod ports;
pub mod quoted;
pub mod tcp;
pub mod tunnel;
pub mod udp;
pub mod vlan;

pub use error::BadHeader;

/// The examples of the README, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod examples {}
