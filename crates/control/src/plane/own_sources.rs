//! Source addresses of this machine's ICMP errors, as the kernel chooses them.
//!
//! ```text
//!   addresses of the interfaces ─┬─► IPv4: OwnSources of a hop's target ─► with the adjacencies
//!                                └─► IPv6: OwnSources of a port         ─► with the ingresses
//! ```
//!
//! **IPv4**: the source that the route prefers (`src`), or the primary address of the egress interface
//! on the network of the next hop, or its first primary address. An interface without an address uses
//! one of its VRF, or otherwise of the first interface in the same VRF or outside all VRFs.
//!
//! With `icmp_errors_use_inbound_ifaddr` it is one of the interface that received the packet.
//!
//! **IPv6** (RFC 6724, 5): addresses that are not deprecated precede others, then those of the interface
//! that received the packet precede those of other interfaces in the same VRF. The worker applies the
//! rules that depend on the destination (`datapath/own_source.rs`).
//!
//! Limits: the preferred source of an IPv6 route, which the kernel changes without a notification, is
//! not used; nor are temporary addresses distinguished (RFC 8981).

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use datapath::{Candidate, OwnSources};
use feed::netlink::{AddressChange, AddressView, Target};
use fib::Hop;

use super::policy::{RuleResult, evaluate};
use super::{HopTarget, Plane, PlanePort};

/// `RT_SCOPE_LINK`.
const LINK_SCOPE: u8 = 253;

/// The addresses of all interfaces, each list in the kernel's order.
#[derive(Debug, Default)]
pub(super) struct InterfaceAddresses {
    by_interface: BTreeMap<u32, Vec<AddressView>>,
    /// The master of each interface that has one.
    masters: HashMap<u32, u32>,
}

impl InterfaceAddresses {
    /// Applies a change.
    pub(super) fn update(&mut self, view: &AddressView, change: AddressChange) {
        let list = self.by_interface.entry(view.index).or_default();
        let same =
            |other: &AddressView| (other.address, other.length) == (view.address, view.length);
        let at = list.iter().position(same);
        match (change, at) {
            (AddressChange::Removed, Some(at)) => drop(list.remove(at)),
            (AddressChange::Removed, None) => {}
            (_, Some(at)) => list[at] = *view,
            // The kernel appends IPv4 addresses, and puts new IPv6 addresses first.
            (AddressChange::Set, None) if view.address.is_ipv6() => list.insert(0, *view),
            (_, None) => list.push(*view),
        }
    }

    /// Sets the master of an interface; returns whether it has changed.
    pub(super) fn set_master(&mut self, interface: u32, master: Option<u32>) -> bool {
        let before = match master {
            Some(master) => self.masters.insert(interface, master),
            None => self.masters.remove(&interface),
        };
        before != master
    }

    /// Lists the primary IPv4 addresses of an interface for packets that leave from it, or from
    /// `another` interface.
    fn v4_of(&self, interface: u32, another: bool) -> Vec<Candidate<u32>> {
        let list = self.by_interface.get(&interface).into_iter().flatten();
        let usable = list.filter(|view| {
            let fits = if another { view.scope < LINK_SCOPE } else { view.scope <= LINK_SCOPE };
            fits && !view.secondary
        });
        let candidate = |view: &AddressView| match view.address {
            IpAddr::V4(address) => Some(Candidate { address: address.into(), length: view.length }),
            IpAddr::V6(_) => None,
        };
        usable.filter_map(candidate).collect()
    }

    /// Lists the IPv4 addresses for packets that leave from an interface; `vrf` returns the VRF of an
    /// interface.
    fn v4(&self, interface: u32, vrf: impl Fn(u32) -> Option<u32>) -> Vec<Candidate<u32>> {
        let own = self.v4_of(interface, false);
        if !own.is_empty() {
            return own;
        }
        let domain = vrf(interface);
        let others = self.by_interface.keys().copied().filter(|other| vrf(*other) == domain);
        let each = domain.into_iter().chain(others);
        each.map(|other| self.v4_of(other, true)).find(|list| !list.is_empty()).unwrap_or_default()
    }

    /// Lists the IPv6 candidates for packets about those that arrived on an interface.
    fn v6(&self, interface: u32, vrf: impl Fn(u32) -> Option<u32>) -> Vec<Candidate<u128>> {
        let domain = vrf(interface);
        let all = self.by_interface.iter().filter(|(other, _)| vrf(**other) == domain);
        let all = all.flat_map(|(_, list)| list).filter(|view| !view.tentative);
        let (mut local, mut wide) = (Vec::new(), Vec::new());
        for view in all {
            let IpAddr::V6(address) = view.address else { continue };
            let here = view.index == interface;
            let candidate = Candidate { address: address.into(), length: view.length };
            if address.is_unicast_link_local() {
                local.extend(here.then_some(candidate));
            } else if !address.is_loopback() {
                wide.push(((!view.deprecated, here), candidate));
            }
        }
        let best = wide.iter().map(|(rank, _)| *rank).max();
        let best = wide.iter().filter(|(rank, _)| Some(*rank) == best);
        local.extend(best.map(|(_, candidate)| *candidate));
        local
    }
}

impl Plane {
    /// Returns the VRF that an interface belongs to, or is.
    pub(super) fn vrf_of(&self, interface: u32) -> Option<u32> {
        let is_vrf = |index: &u32| self.vrfs.contains_key(index);
        let master = self.addresses.masters.get(&interface).copied().filter(is_vrf);
        master.or(Some(interface).filter(is_vrf))
    }

    /// Computes the source addresses of a hop; returns whether they have changed.
    pub(super) fn update_own_sources(&mut self, hop: Hop, target: &HopTarget) -> bool {
        let sources = self.own_sources(target).map(Arc::new);
        self.adjacencies.set_own_sources(hop, sources)
    }

    fn own_sources(&self, target: &HopTarget) -> Option<OwnSources> {
        let preferred = |source: Ipv4Addr| Candidate { address: source.into(), length: 32 };
        let (interface, near, source) = match target {
            HopTarget::Route(target) => match &**target {
                Target::Via(vias) => match &vias[..] {
                    [via] => (via.interface, via.gateway, via.source),
                    // The members have their own.
                    vias => {
                        let source = preferred(vias.first()?.source?);
                        return Some(OwnSources::v4_only(vec![source]));
                    }
                },
                _ => return None,
            },
            &HopTarget::Neighbor { interface, address } => (interface, Some(address), None),
            HopTarget::Static(name) => {
                let next = self.static_next_hops.get(name)?;
                (self.ports.iter().nth(next.port)?.interface, next.address, None)
            }
            HopTarget::Gone(_) => return None,
        };
        let vrf = |interface| self.vrf_of(interface);
        let all = self.addresses.v4(interface, vrf);
        let v4 = match (source, near) {
            (Some(source), _) => vec![preferred(source)],
            (None, Some(IpAddr::V4(near))) => {
                let all = OwnSources::v4_only(all);
                all.v4(near.into()).map(|source| preferred(source.into())).into_iter().collect()
            }
            (None, _) => all,
        };
        (!v4.is_empty()).then(|| OwnSources::v4_only(v4))
    }

    /// Iterates over the IPv4 addresses of the interfaces in a VRF, or outside all VRFs.
    pub(super) fn own_v4_of(&self, vrf: Option<u32>) -> impl Iterator<Item = u32> {
        let all = self.addresses.by_interface.values().flatten();
        let all = all.filter(move |view| self.vrf_of(view.index) == vrf);
        all.filter_map(|view| match view.address {
            IpAddr::V4(address) => Some(address.into()),
            IpAddr::V6(_) => None,
        })
    }

    /// Sets whether packets are dropped that Linux drops at its input: IPv4 packets with a source address of
    /// this machine, and packets of an interface whose forwarding is off. A gate handles the former itself,
    /// and forwards what it has decided to forward.
    pub fn set_checks_input(&mut self, checks: bool) {
        self.locals_changed |= self.ports.checks_input != checks;
        self.ports.checks_input = checks;
    }

    /// Returns the source addresses of ICMP errors about packets that arrived on an interface.
    pub(super) fn inbound_sources(&self, interface: u32) -> OwnSources {
        let vrf = |interface| self.vrf_of(interface);
        let v4 =
            if self.answers_from_inbound { self.addresses.v4(interface, vrf) } else { Vec::new() };
        OwnSources { v4, v6: self.addresses.v6(interface, vrf) }
    }

    /// Returns the workers' index of the table by which the kernel sends ICMP errors about packets of
    /// a port: that of its VRF, or of the host's own packets. `None` if it depends on more, or the
    /// workers have no such table.
    pub(super) fn answer_table(&self, port: &PlanePort, v6: bool) -> Option<usize> {
        let vrf = port.master.and_then(|master| self.vrfs.get(&master)).copied();
        // Packets of the host have the loopback interface as input interface.
        let number = match evaluate(&self.rules, v6, "lo", vrf) {
            RuleResult::Table { number, .. } => number,
            RuleResult::Depends(_) | RuleResult::None => return None,
        };
        self.index_of(number)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn view(index: u32, text: &str) -> AddressView {
        let (address, length) = text.split_once('/').unwrap();
        let (address, length) = (address.parse().unwrap(), length.parse().unwrap());
        let (secondary, scope, deprecated, tentative) = (false, 0, false, false);
        AddressView { index, address, length, secondary, scope, deprecated, tentative }
    }

    fn interfaces(list: &[AddressView]) -> InterfaceAddresses {
        let mut addresses = InterfaceAddresses::default();
        list.iter().for_each(|view| addresses.update(view, AddressChange::Listed));
        addresses
    }

    fn v6(addresses: &InterfaceAddresses, interface: u32) -> Vec<String> {
        let list = addresses.v6(interface, |_| None);
        list.iter().map(|candidate| Ipv6Addr::from(candidate.address).to_string()).collect()
    }

    #[test]
    fn secondary_addresses_and_other_interfaces_are_used_last() {
        let second = AddressView { secondary: true, ..view(2, "10.0.0.9/24") };
        let host = AddressView { scope: 254, ..view(1, "127.0.0.1/8") };
        let list = [host, view(1, "192.0.2.1/32"), view(2, "10.0.0.1/24"), second];
        let addresses = interfaces(&list);
        let of = |interface| {
            let list = addresses.v4(interface, |_| None);
            let text = |candidate: &Candidate<u32>| Ipv4Addr::from(candidate.address).to_string();
            list.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(of(2), ["10.0.0.1"]);
        assert_eq!(of(3), ["192.0.2.1"], "an unnumbered interface");
        let vrf = |interface: u32| (interface > 2).then_some(9);
        assert!(addresses.v4(3, vrf).is_empty(), "another VRF");
    }

    #[test]
    fn ipv6_candidates_are_preferred_then_on_the_interface() {
        let old = AddressView { deprecated: true, ..view(2, "2001:db8:2::1/64") };
        let tentative = AddressView { tentative: true, ..view(2, "2001:db8:2::2/64") };
        let mut addresses =
            interfaces(&[view(1, "2001:db8:1::1/128"), view(2, "fe80::2/64"), old, tentative]);
        assert_eq!(v6(&addresses, 2), ["fe80::2", "2001:db8:1::1"], "a deprecated one is last");
        addresses.update(&view(2, "2001:db8:2::3/64"), AddressChange::Set);
        assert_eq!(v6(&addresses, 2), ["fe80::2", "2001:db8:2::3"]);
        addresses.update(&view(2, "2001:db8:2::4/64"), AddressChange::Set);
        assert_eq!(v6(&addresses, 2), ["fe80::2", "2001:db8:2::4", "2001:db8:2::3"], "new first");
        addresses.update(&view(2, "2001:db8:2::4/64"), AddressChange::Removed);
        assert_eq!(v6(&addresses, 2), ["fe80::2", "2001:db8:2::3"]);
    }
}
