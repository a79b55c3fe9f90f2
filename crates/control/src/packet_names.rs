//! The names of ports and rules by the numbers that workers and steering programs have for them, and recorded packets with these names.

use api::{CaptureDirection, CapturedPacket, hexadecimal};
use datapath::capture::{Occasion, Point, Record, RuleIndex};

use crate::plane::Plane;

/// The names of the ports and the stacked devices, by number, and those of the access lists with their number of rules.
pub(crate) struct PacketNames {
    ports: Vec<(u16, String)>,
    lists: Vec<(String, usize)>,
    /// The port by which packets for a link of the driver leave.
    links: Vec<(u16, u16)>,
}

impl PacketNames {
    /// Returns the present names.
    pub(crate) fn of(plane: &Plane) -> Self {
        let ports = plane.ports().all().map(|(number, port)| (number, port.name.clone()));
        let lists = plane.active_lists().iter();
        let lists = lists.map(|list| (list.config.name.clone(), list.config.rules.len()));
        Self { ports: ports.collect(), lists: lists.collect(), links: plane.driver_link_ports() }
    }

    /// Returns names of nothing but links.
    #[cfg(test)]
    pub(crate) fn with_links(links: Vec<(u16, u16)>) -> Self {
        Self { ports: Vec::new(), lists: Vec::new(), links }
    }

    /// Returns the number of the port by which packets for a link of the driver leave.
    pub(crate) fn port_of_link(&self, link: u16) -> u16 {
        // A link that has been removed since.
        self.links.iter().find(|(known, _)| *known == link).map_or(link, |(_, port)| *port)
    }

    /// Iterates over the names of the ports.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().map(|(_, name)| name.as_str())
    }

    /// Returns the number of the port with a name.
    pub(crate) fn number(&self, name: &str) -> Option<u16> {
        self.ports.iter().find(|(_, port)| port == name).map(|(number, _)| *number)
    }

    /// Returns a recorded packet for clients; without a worker it has ended in a steering program.
    pub(crate) fn packet(&self, worker: Option<u32>, record: &Record) -> CapturedPacket {
        let (direction, rule) = match record.point {
            Point::Ingress(_) => (CaptureDirection::In, None),
            Point::Egress(_) => (CaptureDirection::Out, None),
            Point::Refused(_, by) => (CaptureDirection::In, self.rule(by)),
        };
        let number = record.point.port();
        let port = self.ports.iter().find(|(port, _)| *port == number);
        CapturedPacket {
            time_ns: record.time,
            worker,
            // A port that a reload has removed.
            interface: port.map_or_else(|| format!("port{number}"), |(_, name)| name.clone()),
            direction,
            verdict: match record.occasion {
                Occasion::Arrival => None,
                Occasion::End(verdict) => Some(verdict.name().to_owned()),
            },
            rule,
            length: record.len,
            data: hexadecimal(&record.bytes),
        }
    }

    /// Returns the list and the number of a rule, or `default`. The lists may have changed since.
    fn rule(&self, by: RuleIndex) -> Option<String> {
        let (name, rules) = self.lists.get(usize::from(by.list))?;
        let index = by.rule as usize;
        Some(if index < *rules {
            format!("{name} {}", index + 1)
        } else {
            format!("{name} default")
        })
    }
}
