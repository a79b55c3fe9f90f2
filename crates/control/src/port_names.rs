//! The names of ports by the numbers that workers have for them, and recorded packets with these names.

use api::{CaptureDirection, CapturedPacket, hexadecimal};
use datapath::capture::{Occasion, Point, Record};

use crate::plane::Ports;

/// The names of the ports and the stacked devices, by number.
pub(crate) struct PortNames(Vec<(u16, String)>);

impl PortNames {
    /// Returns the present names.
    pub(crate) fn of(ports: &Ports) -> Self {
        Self(ports.all().map(|(number, port)| (number, port.name.clone())).collect())
    }

    /// Iterates over the names.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, name)| name.as_str())
    }

    /// Returns the number of the port with a name.
    pub(crate) fn number(&self, name: &str) -> Option<u16> {
        self.0.iter().find(|(_, port)| port == name).map(|(number, _)| *number)
    }

    /// Returns a recorded packet for clients.
    pub(crate) fn packet(&self, worker: u32, record: &Record) -> CapturedPacket {
        let (number, direction) = match record.point {
            Point::Ingress(number) => (number, CaptureDirection::In),
            Point::Egress(number) => (number, CaptureDirection::Out),
        };
        let port = self.0.iter().find(|(port, _)| *port == number);
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
            length: record.len,
            data: hexadecimal(&record.bytes),
        }
    }
}
