//! Ingress: what a worker asks of packets by the port that they came in on.
//!
//! ```text
//!   port 0 ─► Ingress { table: 0, locals ─┐ }
//!   port 1 ─► Ingress { table: 0, locals ─┴─► the own addresses there }
//!   port 2 ─► Ingress { table: 1, locals ───► those of the other table }
//! ```
//!
//! A batch is of one port, and so of one table. Who has several (VRFs) gives each
//! port the number of its table and the addresses that are the router's own in it: an
//! address of one table may be anybody's in another. Which sources are right is asked by
//! port as well (`source.rs`).
//!
//! Addresses come and go while workers run, so the list is published as adjacencies
//! are: `fib::Publisher<Ingresses>` on the control side, a reader in every worker,
//! taken once a batch. Ports that are told the same share it.

use std::sync::Arc;

use super::Locals;

/// Which sources packets of a port may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePathFilter {
    /// Any.
    #[default]
    Off,
    /// Those with a route.
    Loose,
    /// Those whose route leaves by the port that they came in on.
    Strict,
}

/// What holds for packets of one port.
#[derive(Clone, Debug, Default)]
pub struct Ingress {
    /// The port's own hardware address, where that may change; `None`: the one that the port
    /// had when the worker was made.
    pub mac: Option<[u8; 6]>,
    /// The number of the table that its packets are looked up in.
    pub table: usize,
    /// The router's own addresses, as seen from there.
    pub locals: Arc<Locals>,
    /// Which sources its packets may have.
    pub sources: ReversePathFilter,
    /// What the table has no route for is looked up further by the host.
    pub further: bool,
    /// The host would look its packets of IPv4, and of IPv6, up in another table: it forwards
    /// and answers none.
    pub isolated: [bool; 2],
}

/// The ingresses by the worker's port numbers.
#[derive(Clone, Debug, Default)]
pub struct Ingresses {
    by_port: Vec<Ingress>,
    /// For ports beyond the end.
    others: Ingress,
}

impl Ingresses {
    /// Takes what holds for each port, in the order of their numbers. Ports beyond
    /// the end have table 0, no own addresses and no check.
    pub fn new(by_port: impl IntoIterator<Item = Ingress>) -> Self {
        Self { by_port: by_port.into_iter().collect(), others: Ingress::default() }
    }

    /// Tells all ports the same.
    pub fn alike(ingress: Ingress) -> Self {
        Self { by_port: Vec::new(), others: ingress }
    }

    /// Returns what holds for packets of a port.
    #[inline]
    pub fn get(&self, port: usize) -> &Ingress {
        self.by_port.get(port).unwrap_or(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Ingress, Ingresses, Locals};

    #[test]
    fn each_port_has_its_own_and_those_beyond_have_none() {
        let own = |address: u32| Ingress {
            table: address as usize,
            locals: Arc::new(Locals::new([address], [])),
            ..Ingress::default()
        };
        let each = Ingresses::new([own(1), own(2)]);
        assert!(each.get(0).locals.holds_v4(1) && !each.get(0).locals.holds_v4(2));
        assert!(each.get(1).locals.holds_v4(2));
        assert_eq!([0, 1, 2].map(|port| each.get(port).table), [1, 2, 0]);
        assert!(each.get(2).locals.v4().is_empty());
        let alike = Ingresses::alike(own(3));
        assert!(alike.get(0).locals.holds_v4(3) && alike.get(900).locals.holds_v4(3));
    }
}
