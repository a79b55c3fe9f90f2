//! What of a plane is kept in an image, and a start from there.
//!
//! ```text
//!   save    254.v4/…, 254.v6/…   the tables as they are published, of each number
//!           ways                 what each hop stands for, interfaces by their names
//!           hops                 the same in words, for people and other programs
//!   adopt   hops ◄── ways        each way has the hop that it had
//!           links, neighbors ─► adjacencies published ─► tables of the image published
//!   retire  the routes have come: what they do not use goes as any hop does
//! ```
//!
//! **Two tables, one meaning.** Tables of the image and tables of the routes say hops, and a
//! worker may go from one to the other between any two batches. So a hop must mean the same
//! in both: the ways of the image get the hops that they had before anything else gets
//! any, and are held until the tables of the routes are in the place of the image's. A route
//! that comes and leads where one of the image led has its hop; another has one that the
//! image did not use.
//!
//! **Nothing of a neighbor is kept.** What a hop means is made of its way and of what the
//! kernel says now of links and neighbors, so that a MAC is never older than the start.
//! A way by an interface that is gone is left to the host (`HopTarget::Gone`).
//!
//! While the image's tables are in use no table is published: until
//! [`Plane::retire`], which the first whole dump calls, or FRR's first sweep.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use feed::netlink::{Target, Via};
use fib::Full;
use fib::image::{BadImage, Image, NotKept, Writer};
use serde::{Deserialize, Serialize};

use super::{HopTarget, Plane};
use crate::control::links;

/// The array of ways.
const WAYS: &str = "ways";
/// The array of what hops mean in words.
const HOPS: &str = "hops";

/// How interfaces are called: their numbers are others after a restart.
pub trait Names {
    /// Returns the name of an interface.
    fn name(&self, index: u32) -> Option<String>;
    /// Returns the interface of a name.
    fn index(&self, name: &str) -> Option<u32>;
}

/// The names of the network namespace of the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct SystemNames;

impl Names for SystemNames {
    fn name(&self, index: u32) -> Option<String> {
        nix::net::if_::if_indextoname(index).ok()?.into_string().ok()
    }
    fn index(&self, name: &str) -> Option<u32> {
        nix::net::if_::if_nametoindex(name).ok()
    }
}

/// Says why an image is not started from.
#[derive(Debug)]
pub enum AdoptError {
    /// It is damaged, or another program's.
    Image(BadImage),
    /// What it says of the ways is not understood.
    Ways(serde_json::Error),
    /// There are too many ways.
    Full(Full),
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(error) => error.fmt(f),
            Self::Ways(error) => write!(f, "the image's array `{WAYS}`: {error}"),
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

/// A way, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedTarget {
    Via(Vec<KeptVia>),
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

/// One way out.
#[derive(Debug, Serialize, Deserialize)]
struct KeptVia {
    dev: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    weight: u16,
    #[serde(default)]
    onlink: bool,
}

impl SavedTarget {
    fn of(way: &HopTarget, names: &impl Names) -> Self {
        match way {
            HopTarget::Gone(_) => Self::Gone,
            &HopTarget::Neighbor { interface, address } => match names.name(interface) {
                Some(dev) => Self::Neighbor { dev, address },
                None => Self::Gone,
            },
            HopTarget::Route(target) => match &**target {
                Target::Via(vias) => {
                    let via = |via: &Via| {
                        let Via { gateway, weight, onlink, .. } = *via;
                        Some(KeptVia { dev: names.name(via.interface)?, gateway, weight, onlink })
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

    /// Returns the way of the hop of this number, as interfaces are numbered now.
    fn way(self, hop: u32, names: &impl Names) -> HopTarget {
        let target = match self {
            Self::Gone => None,
            Self::Neighbor { dev, address } => {
                let neighbor = |interface| HopTarget::Neighbor { interface, address };
                return names.index(&dev).map_or(HopTarget::Gone(hop), neighbor);
            }
            Self::Via(vias) => {
                let via = |KeptVia { dev, gateway, weight, onlink }: KeptVia| {
                    Some(Via { interface: names.index(&dev)?, gateway, weight, onlink })
                };
                let vias = vias.into_iter().map(via).collect::<Option<Vec<_>>>();
                vias.filter(|vias| !vias.is_empty()).map(|mut vias| {
                    // As a feed tells them, by the numbers of now.
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
                for (at, KeptVia { dev, gateway, weight, .. }) in vias.iter().enumerate() {
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

/// The names of the tables of a number in an image, IPv4 and IPv6.
fn tables(number: u32) -> [String; 2] {
    [format!("{number}.v4"), format!("{number}.v6")]
}

impl Plane {
    /// Writes the tables that workers have, and what their hops stand for, as an image.
    /// While they are an image's themselves there is none: that one is newer than what is
    /// known.
    ///
    /// # Errors
    ///
    /// [`NotKept`] if the engine of a table is none for images.
    pub fn save(&self, names: &impl Names) -> Result<Option<Vec<u8>>, NotKept> {
        if self.adopted.is_some() {
            return Ok(None);
        }
        let mut writer = Writer::new();
        for table in self.tables() {
            let [v4, v6] = tables(table.number);
            let (Some(fib4), Some(fib6)) = (table.v4.fib(), table.v6.fib()) else {
                return Ok(None);
            };
            writer.table(&v4, fib4)?;
            writer.array(&format!("{v4}/routes"), &[table.v4.rib().len() as u64]);
            writer.table(&v6, fib6)?;
            writer.array(&format!("{v6}/routes"), &[table.v6.rib().len() as u64]);
        }
        // By hop, from 1 on.
        let mut ways: Vec<Option<SavedTarget>> = Vec::new();
        for (hop, way, _) in self.hops.iter() {
            ways.resize_with(hop.0 as usize - 1, || None);
            ways.push(Some(SavedTarget::of(way, names)));
        }
        let word =
            |way: &Option<SavedTarget>| way.as_ref().map_or(String::new(), ToString::to_string);
        let words: Vec<String> =
            std::iter::once(String::new()).chain(ways.iter().map(word)).collect();
        writer.array(WAYS, &serde_json::to_vec(&ways).unwrap_or_default());
        writer.array(HOPS, &serde_json::to_vec(&words).unwrap_or_default());
        Ok(Some(writer.finish()))
    }

    /// Starts with the tables of an image, in a plane without routes to which links and
    /// neighbors have been told. `locals` are the router's own addresses, until the
    /// kernel has told them. Everything is read before anything is changed.
    ///
    /// # Errors
    ///
    /// [`AdoptError`]; the plane is as it was, but for [`AdoptError::Full`].
    pub fn adopt(
        &mut self,
        image: &Image<'_>,
        locals: &[IpAddr],
        names: &impl Names,
    ) -> Result<(), AdoptError> {
        let ways: Vec<Option<SavedTarget>> =
            serde_json::from_slice(image.bytes(WAYS)?).map_err(AdoptError::Ways)?;
        let mut imaged = Vec::new();
        for number in &self.numbers {
            let [v4, v6] = tables(*number);
            imaged.push((image.table::<u32>(&v4)?, image.table::<u128>(&v6)?));
        }
        let way = |(hop, way): (u32, Option<SavedTarget>)| way.map(|way| way.way(hop, names));
        let kept = self.hops.seed((1..).zip(ways).map(way)).map_err(AdoptError::Full)?;
        self.settle_meanings();
        self.publish_adjacencies();
        self.publish_ingresses(locals);
        // What the kernel tells of them is to be published too.
        self.locals_changed = true;
        for (at, (v4, v6)) in imaged.into_iter().enumerate() {
            self.v4.adopt(at, v4);
            self.v6.adopt(at, v6);
        }
        self.adopted = Some(kept);
        self.begun = true;
        Ok(())
    }

    /// Ends the use of an image, if one is in use: all routes have been told, and the next
    /// commit publishes their tables.
    pub fn retire(&mut self) {
        for hop in self.adopted.take().unwrap_or_default() {
            self.hops.release(hop);
        }
    }

    /// Publishes what holds for each port.
    pub(super) fn publish_ingresses(&mut self, locals: &[IpAddr]) {
        let locals = Arc::new(links::locals(locals));
        let ingress = |port: &super::PlanePort| super::Ingress {
            mac: (port.mac != [0; 6]).then_some(port.mac),
            table: self.place(port.table).unwrap_or(0),
            locals: Arc::clone(&locals),
            sources: port.sources,
            further: port.further,
            isolated: port.isolated,
        };
        let ingresses = super::Ingresses::new(self.ports.iter().map(ingress));
        self.ingresses.publish(Box::new(ingresses));
    }
}
