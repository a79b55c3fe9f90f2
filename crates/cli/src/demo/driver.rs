//! The driver's path of the router under demonstration (`--mode xdp`): tables, next hops and links in the kernel.
//!
//! ```text
//!   in ═ steering program ─ path ─► table ─► next hop ─► redirected to out-a or out-b
//!              └─ what the path leaves ─► the worker (`forwarder.rs`)
//! ```

use std::sync::Arc;

use anyhow::{Context, Result};
use datapath::Verdict;
use datapath::stats::Snapshot;
use fib::{Choice, Family, Hop, Prefix, Rib, Updater};
use port::af_xdp::Interface;
use port::af_xdp::steer::SteeringOutcome;
use xdp::forward::{
    EgressLink, ForwardPath, GroupHash, NextHop, NextHops, OwnSources, SourceCheck, Tags,
};
use xdp::{BpfArrays, KernelTable, TableArrays};

use super::network::{self, EXITS, MTU};
use super::routes::{self, Routes};

/// The tables of both families in the kernel.
#[derive(Debug)]
pub(super) struct DriverTables {
    v4: InKernel<u32>,
    v6: InKernel<u128>,
}

/// The arrays of these tables.
#[derive(Debug)]
pub(super) struct DriverArrays {
    v4: Arc<TableArrays<u32>>,
    v6: Arc<TableArrays<u128>>,
}

/// A table, with the updater that has its words.
#[derive(Debug)]
struct InKernel<A: Family> {
    table: KernelTable<A>,
    _updater: Updater<A>,
}

impl<A: Family> InKernel<A> {
    fn build(routes: &[(Prefix<A>, Hop)]) -> Result<Self> {
        let files = BpfArrays::new("fp_chunks");
        let rib = Rib::from_sorted(routes.iter().copied());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let updater = Updater::new_in(rib, Choice::Flat, threads, Arc::clone(&files) as _)?;
        let table = KernelTable::new(&files, updater.fib())?;
        Ok(Self { table, _updater: updater })
    }
}

impl DriverTables {
    /// Builds both tables on all CPUs.
    pub(super) fn build(routes: &Routes) -> Result<Self> {
        let v4 = InKernel::build(&routes.v4).context("the IPv4 table in the kernel")?;
        let v6 = InKernel::build(&routes.v6).context("the IPv6 table in the kernel")?;
        Ok(Self { v4, v6 })
    }

    /// Returns their arrays.
    pub(super) fn arrays(&self) -> DriverArrays {
        DriverArrays {
            v4: Arc::clone(self.v4.table.arrays()),
            v6: Arc::clone(self.v6.table.arrays()),
        }
    }
}

impl DriverArrays {
    /// Lets the steering program of the ingress forward; `interfaces` are the ingress, then the exits. Must run in
    /// the router's namespace.
    pub(super) fn attach(self, interfaces: &[Interface]) -> Result<()> {
        let next_hops = NextHops::new()?;
        for hop in routes::hops() {
            let sink = routes::sink_of(hop);
            let mac = EXITS[usize::from(sink)].dst_mac;
            next_hops.set_hop(hop, Some(NextHop { mac, link: 1 + u16::from(sink) }));
        }
        for (number, interface) in (0..).zip(interfaces) {
            let link = EgressLink {
                device: interface.index(),
                mac: interface.mac(),
                mtu: MTU,
                tags: Tags::NONE,
            };
            next_hops.set_link(number, Some(link))?;
        }
        let own_sources = OwnSources::new()?;
        own_sources.set((0..=EXITS.len()).map(|net| network::ipv4(net, 1)));
        let path = ForwardPath {
            v4: self.v4,
            v6: self.v6,
            next_hops: Arc::new(next_hops),
            own_sources: Arc::new(own_sources),
            link: 0,
            sources: [SourceCheck::Off; 2],
            group_hash: GroupHash::default(),
        };
        if let Some(ingress) = interfaces.first() {
            ingress.set_driver_path(Some(Arc::new(path)))?;
            ingress.forward_in_driver([true; 2])?;
        }
        Ok(())
    }
}

/// Returns the packets that the steering programs of `interfaces` have forwarded.
pub(super) fn forwarded(interfaces: &[Interface]) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    for interface in interfaces {
        let packets = interface.counts()?[SteeringOutcome::Forwarded];
        let bytes = interface.forwarded_bytes()?;
        snapshot.received += packets;
        snapshot.verdicts[Verdict::Sent] += packets;
        snapshot.received_bytes += bytes;
        snapshot.sent_bytes += bytes;
    }
    Ok(snapshot)
}
