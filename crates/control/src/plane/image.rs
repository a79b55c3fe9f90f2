//! Saves the tables and hop targets of a plane to an image, and starts a plane from one.
//!
//! ```text
//!   save    254.v4/…, 254.v6/…   the published tables, of each number
//!           ways                 the target of each hop, interfaces by their names
//!           hops                 the same as text, for people and other programs
//!   adopt   hops ◄── ways        each target has the hop that it had
//!           links, neighbors ─► adjacencies published ─► tables of the image published
//!   retire  all routes have arrived: hops that they do not use are released
//! ```
//!
//! **A hop means the same in both tables.** Tables of the image and tables of the routes contain
//! hops, and a worker may change from one to the other between any two batches. The targets of the
//! image therefore get the hops that they had before any other target gets one, and hold them
//! until the tables of the routes have replaced the image's. A new route with a target of the
//! image has its hop; another route has a hop that the image did not use.
//!
//! **No neighbor is saved.** An adjacency is made of the hop's target and of the kernel's current
//! links and neighbors, so that no MAC is older than the start. A target whose interface is gone is
//! left to the host (`HopTarget::Gone`).
//!
//! While the image's tables are in use no table is published: until [`Plane::retire`], which the
//! first complete dump calls, or FRR's first sweep.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use datapath::FIRST_STACKED;
use feed::netlink::{Target, Via};
use fib::Full;
use fib::image::{BadImage, Image, NotStorable, Writer};
use serde::{Deserialize, Serialize};

use super::{HopTarget, Plane};
use crate::links;

/// The array of targets.
const TARGETS: &str = "ways";
/// The array of targets as text.
const HOPS: &str = "hops";

/// Converts interface indexes to names and back: the indexes may change with a restart.
pub trait InterfaceNames {
    /// Returns the name of an interface.
    fn name(&self, index: u32) -> Option<String>;
    /// Returns the index of the interface with this name.
    fn index(&self, name: &str) -> Option<u32>;
}

/// The interface names of the network namespace of the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct SystemNames;

impl InterfaceNames for SystemNames {
    fn name(&self, index: u32) -> Option<String> {
        nix::net::if_::if_indextoname(index).ok()?.into_string().ok()
    }
    fn index(&self, name: &str) -> Option<u32> {
        nix::net::if_::if_nametoindex(name).ok()
    }
}

/// The reason that a plane cannot start from an image.
#[derive(Debug)]
pub enum AdoptError {
    /// The image is damaged, or of another program.
    Image(BadImage),
    /// The array of targets cannot be parsed.
    Targets(serde_json::Error),
    /// The image has too many targets.
    Full(Full),
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(error) => error.fmt(f),
            Self::Targets(error) => write!(f, "cannot parse the array `{TARGETS}`: {error}"),
            Self::Full(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AdoptError {}

impl From<BadImage> for AdoptError {
    fn from(error: BadImage) -> Self {
        Self::Image(error)
    }
}

/// A target as it is saved.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedTarget {
    Via(Vec<SavedVia>),
    Neighbor { dev: String, address: IpAddr },
    Blackhole,
    Unreachable,
    Prohibit,
    Throw,
    Local,
    Broadcast,
    Multicast,
    Gone,
}

/// A next hop as it is saved.
#[derive(Debug, Serialize, Deserialize)]
struct SavedVia {
    dev: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    weight: u16,
    #[serde(default)]
    onlink: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtu: Option<u16>,
}

impl SavedTarget {
    fn of(target: &HopTarget, names: &impl InterfaceNames) -> Self {
        match target {
            // A router with static routes saves no image.
            HopTarget::Static(_) | HopTarget::Gone(_) => Self::Gone,
            &HopTarget::Neighbor { interface, address } => match names.name(interface) {
                Some(dev) => Self::Neighbor { dev, address },
                None => Self::Gone,
            },
            HopTarget::Route(target) => match &**target {
                Target::Via(vias) => {
                    let via = |via: &Via| {
                        let Via { interface, gateway, weight, onlink, source, mtu } = *via;
                        let dev = names.name(interface)?;
                        Some(SavedVia { dev, gateway, weight, onlink, source, mtu })
                    };
                    vias.iter().map(via).collect::<Option<_>>().map_or(Self::Gone, Self::Via)
                }
                Target::Blackhole => Self::Blackhole,
                Target::Unreachable => Self::Unreachable,
                Target::Prohibit => Self::Prohibit,
                Target::Throw => Self::Throw,
                Target::Local => Self::Local,
                Target::Broadcast => Self::Broadcast,
                Target::Multicast => Self::Multicast,
            },
        }
    }

    /// Returns the target for a hop, with the current indexes of the interfaces.
    fn into_target(self, hop: u32, names: &impl InterfaceNames) -> HopTarget {
        let target = match self {
            Self::Gone => None,
            Self::Neighbor { dev, address } => {
                let neighbor = |interface| HopTarget::Neighbor { interface, address };
                return names.index(&dev).map_or(HopTarget::Gone(hop), neighbor);
            }
            Self::Via(vias) => {
                let via = |SavedVia { dev, gateway, weight, onlink, source, mtu }: SavedVia| {
                    let interface = names.index(&dev)?;
                    Some(Via { interface, gateway, weight, onlink, source, mtu })
                };
                let vias = vias.into_iter().map(via).collect::<Option<Vec<_>>>();
                vias.filter(|vias| !vias.is_empty()).map(|mut vias| {
                    // In the order of a feed: by the current indexes.
                    vias.sort_unstable();
                    Target::Via(vias)
                })
            }
            Self::Blackhole => Some(Target::Blackhole),
            Self::Unreachable => Some(Target::Unreachable),
            Self::Prohibit => Some(Target::Prohibit),
            Self::Throw => Some(Target::Throw),
            Self::Local => Some(Target::Local),
            Self::Broadcast => Some(Target::Broadcast),
            Self::Multicast => Some(Target::Multicast),
        };
        target.map_or(HopTarget::Gone(hop), |target| HopTarget::Route(Arc::new(target)))
    }
}

impl fmt::Display for SavedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Via(vias) => {
                for (at, SavedVia { dev, gateway, weight, .. }) in vias.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { " " })?;
                    if let Some(gateway) = gateway {
                        write!(f, "{gateway} ")?;
                    }
                    write!(f, "dev {dev}")?;
                    if vias.len() > 1 {
                        write!(f, " weight {weight}")?;
                    }
                }
                Ok(())
            }
            Self::Neighbor { dev, address } => write!(f, "{address} dev {dev}"),
            Self::Blackhole => f.write_str("blackhole"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Prohibit => f.write_str("prohibit"),
            Self::Throw => f.write_str("throw"),
            Self::Local => f.write_str("local"),
            Self::Broadcast => f.write_str("broadcast"),
            Self::Multicast => f.write_str("multicast"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

/// Returns the names in an image of the IPv4 and the IPv6 table of a number.
fn table_names(number: u32) -> [String; 2] {
    [format!("{number}.v4"), format!("{number}.v6")]
}

impl Plane {
    /// Writes the tables that workers read, and the targets of their hops, as an image. Returns
    /// `None` while workers read the tables of an image, which is newer than the routes so far, and
    /// where tables are shared.
    ///
    /// # Errors
    ///
    /// [`NotStorable`] if the engine of a table cannot be saved.
    pub fn save(&self, names: &impl InterfaceNames) -> Result<Option<Vec<u8>>, NotStorable> {
        if self.adopted.is_some() {
            return Ok(None);
        }
        let mut writer = Writer::new();
        for table in self.tables() {
            let [v4, v6] = table_names(table.number);
            let (Some(fib4), Some(fib6)) = (table.v4.fib(), table.v6.fib()) else {
                return Ok(None);
            };
            writer.table(&v4, fib4)?;
            writer.array(&format!("{v4}/routes"), &[table.v4.rib().len() as u64]);
            writer.table(&v6, fib6)?;
            writer.array(&format!("{v6}/routes"), &[table.v6.rib().len() as u64]);
        }
        // The targets by hop, from 1 on.
        let mut targets: Vec<Option<SavedTarget>> = Vec::new();
        for (hop, target, _) in self.hops.iter() {
            targets.resize_with(hop.0 as usize - 1, || None);
            targets.push(Some(SavedTarget::of(target, names)));
        }
        let text = |target: &Option<SavedTarget>| {
            target.as_ref().map_or(String::new(), ToString::to_string)
        };
        let texts: Vec<String> =
            std::iter::once(String::new()).chain(targets.iter().map(text)).collect();
        writer.array(TARGETS, &serde_json::to_vec(&targets).unwrap_or_default());
        writer.array(HOPS, &serde_json::to_vec(&texts).unwrap_or_default());
        Ok(Some(writer.finish()))
    }

    /// Starts with the tables of an image, in a plane that has links and neighbors but no routes.
    /// `locals` are the router's own addresses, until the kernel has reported them. Everything is
    /// read before anything is changed.
    ///
    /// # Errors
    ///
    /// [`AdoptError`]; the plane is unchanged, except with [`AdoptError::Full`].
    pub fn adopt(
        &mut self,
        image: &Image<'_>,
        locals: &[IpAddr],
        names: &impl InterfaceNames,
    ) -> Result<(), AdoptError> {
        let targets: Vec<Option<SavedTarget>> =
            serde_json::from_slice(image.bytes(TARGETS)?).map_err(AdoptError::Targets)?;
        let mut tables = Vec::new();
        for number in &self.numbers {
            let [v4, v6] = table_names(*number);
            tables.push((image.table::<u32>(&v4)?, image.table::<u128>(&v6)?));
        }
        let target = |(hop, target): (u32, Option<SavedTarget>)| {
            target.map(|target| target.into_target(hop, names))
        };
        let held = self.hops.seed((1..).zip(targets).map(target)).map_err(AdoptError::Full)?;
        self.update_adjacencies();
        self.publish_adjacencies();
        self.access.publish(&self.ports, true);
        self.publish_ingresses(locals);
        // The next commit publishes the addresses that the kernel reports.
        self.locals_changed = true;
        for (at, (v4, v6)) in tables.into_iter().enumerate() {
            self.v4.adopt(at, v4);
            self.v6.adopt(at, v6);
        }
        self.adopted = Some(held);
        self.has_readers = true;
        Ok(())
    }

    /// Ends the use of an image, if one is in use: all routes have arrived, and the next
    /// commit publishes their tables.
    pub fn retire(&mut self) {
        for hop in self.adopted.take().unwrap_or_default() {
            self.hops.release(hop);
        }
    }

    /// Publishes the ingress data of each port.
    pub(super) fn publish_ingresses(&mut self, locals: &[IpAddr]) {
        let locals = links::locals(locals);
        // Another VRF may have a host with the same address.
        let mut by_vrf: HashMap<_, Arc<_>> = HashMap::new();
        let mut locals_of = |interface| {
            let vrf = self.vrf_of(interface).filter(|_| self.ports.checks_input);
            let with_sources = || match self.ports.checks_input {
                true => locals.clone().with_sources_v4(self.own_v4_of(vrf)),
                false => locals.clone(),
            };
            Arc::clone(by_vrf.entry(vrf).or_insert_with(|| with_sources().into()))
        };
        let mut tables = self.ports.vlan_tables();
        let mut ingress = |number: u16, port: &super::PlanePort| super::Ingress {
            mac: (port.mac != [0; 6]).then_some(port.mac),
            secondary_macs: port.secondary_macs().into(),
            member_of: self.ports.bond_of(port).map(|(number, _)| number),
            vlans: tables.remove(&number).unwrap_or_default().into(),
            priorities: port.vlan.as_ref().map_or([0; 8], |vlan| vlan.priorities),
            table: self.index_of(port.table).unwrap_or(0),
            locals: locals_of(port.interface),
            sources: self.ports.rp_filters(port),
            forwarding_off: self.ports.forwarding_off(port),
            further: port.further,
            isolated: port.isolated,
            answers: [false, true].map(|v6| self.answer_table(port, v6)),
            answer_sources: self.inbound_sources(port.interface).into(),
        };
        let ports: Vec<_> =
            (0..).zip(self.ports.iter()).map(|(at, port)| ingress(at, port)).collect();
        let slots = (FIRST_STACKED..).zip(self.ports.stacked_slots());
        let stacked = slots.map(|(at, port)| port.as_ref().map(|port| ingress(at, port))).collect();
        let ingresses =
            super::Ingresses::new(ports).with_stacked(stacked).with_icmp_limits(self.icmp_limits);
        self.ingresses.publish(Box::new(ingresses));
    }
}
