//! The maps that are compared, each behind [`MapContestant`].
//!
//! A contestant has the routes and addresses in the types of its crate. [`Operations`] names the
//! operations of a map; [`Contest`] runs all cases by them, so that every contestant is measured by
//! the same loops.

use std::hint::black_box;

use fib::{Addr, Prefix};
use ip_network::{IpNetwork, Ipv4Network, Ipv6Network};
use ip_network_table::IpNetworkTable;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use iptrie::map::{LCTrieMap, RTrieMap};
use lpm::{Choice, FrozenLpm, LpmMap, PrefixKey};
use prefix_trie::PrefixMap;

use super::{Input, timed};

/// The time of one case.
pub(super) struct Measured {
    pub(super) case: &'static str,
    /// Nanoseconds an item.
    pub(super) nanos: f64,
}

/// The answers of a contestant.
pub(super) struct Answers {
    pub(super) values: Vec<u32>,
    pub(super) entries: u64,
    /// The longest matches, by the form of the map.
    pub(super) longest: Vec<(&'static str, Vec<u32>)>,
    /// The entries that are left after each was removed.
    pub(super) left: usize,
}

/// A map that is measured.
pub(super) trait MapContestant {
    fn name(&self) -> &'static str;
    fn is_ours(&self) -> bool;
    /// Returns the bytes of the filled map as the crate reports them, 0 if it does not.
    fn bytes(&self) -> usize;
    /// Answers all questions once.
    fn answer(&mut self) -> anyhow::Result<Answers>;
    /// Measures all cases once.
    fn measure(&mut self) -> anyhow::Result<Vec<Measured>>;
}

/// The operations of a map, as its users write them.
trait Operations {
    const NAME: &'static str;
    /// The type of prefixes, and of addresses.
    type Key: Copy;
    type Address: Copy;
    /// A second form of the map, for longest matches, and its name.
    type Form;
    const FORM: &'static str;

    fn new() -> Self;
    fn insert(&mut self, key: Self::Key, value: u32);
    fn get(&self, key: &Self::Key) -> Option<u32>;
    fn sum(&self) -> u64;
    fn longest(&self, address: Self::Address) -> u32;
    fn remove(&mut self, key: &Self::Key);
    fn count(&self) -> usize;
    fn bytes(&self) -> usize {
        0
    }
    fn form(&self) -> anyhow::Result<Option<Self::Form>> {
        Ok(None)
    }
    /// Calls `found` with the value of each address's longest match in the second form.
    fn lookup(form: &Self::Form, addresses: &[Self::Address], found: impl FnMut(u32));
}

struct Contest<M: Operations> {
    sorted: Vec<(M::Key, u32)>,
    shuffled: Vec<(M::Key, u32)>,
    queries: Vec<(M::Key, u32)>,
    addresses: Vec<M::Address>,
    bytes: usize,
}

impl<M: Operations> Contest<M> {
    fn boxed<A: Addr>(
        input: &Input<A>,
        key: impl Fn(Prefix<A>) -> M::Key,
        address: impl Fn(A) -> M::Address,
    ) -> Box<dyn MapContestant>
    where
        M: 'static,
    {
        let keys = |routes: &[(Prefix<A>, u32)]| {
            routes.iter().map(|(prefix, value)| (key(*prefix), *value)).collect::<Vec<_>>()
        };
        Box::new(Self {
            sorted: keys(&input.sorted),
            shuffled: keys(&input.shuffled),
            queries: keys(&input.queries),
            addresses: input.addrs.iter().map(|addr| address(*addr)).collect(),
            bytes: 0,
        })
    }

    fn fill(routes: &[(M::Key, u32)]) -> M {
        let mut map = M::new();
        for &(key, value) in routes {
            map.insert(key, value);
        }
        map
    }
}

impl<M: Operations> MapContestant for Contest<M> {
    fn name(&self) -> &'static str {
        M::NAME
    }

    fn is_ours(&self) -> bool {
        M::NAME == OURS
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn answer(&mut self) -> anyhow::Result<Answers> {
        let mut map = Self::fill(&self.shuffled);
        self.bytes = map.bytes();
        let longest = self.addresses.iter().map(|address| map.longest(*address)).collect();
        let mut longest = vec![("map", longest)];
        if let Some(form) = map.form()? {
            let mut found = Vec::with_capacity(self.addresses.len());
            M::lookup(&form, &self.addresses, |value| found.push(value));
            longest.push((M::FORM, found));
        }
        // The value 0 is no route's.
        let values = self.queries.iter().map(|(key, _)| map.get(key).unwrap_or(0)).collect();
        let entries = map.sum();
        for (key, _) in &self.queries {
            map.remove(key);
        }
        Ok(Answers { values, entries, longest, left: map.count() })
    }

    fn measure(&mut self) -> anyhow::Result<Vec<Measured>> {
        let routes = self.sorted.len();
        let mut measured = Vec::new();
        let mut note = |case, nanos| measured.push(Measured { case, nanos });
        note("insert in order", timed(routes, || Self::fill(&self.sorted)).1);
        let (mut map, nanos) = timed(routes, || Self::fill(&self.shuffled));
        note("insert shuffled", nanos);
        let values = || self.queries.iter().map(|(key, _)| map.get(key).unwrap_or(0));
        note("exact", timed(routes, || values().fold(0, u32::wrapping_add)).1);
        note("iterate", timed(routes, || map.sum()).1);
        let found = || self.addresses.iter().map(|address| map.longest(*address));
        note("longest", timed(self.addresses.len(), || found().fold(0, u32::wrapping_add)).1);
        if let Some(form) = map.form()? {
            let sum = || {
                let mut sum = 0_u32;
                M::lookup(&form, &self.addresses, |value| sum = sum.wrapping_add(value));
                sum
            };
            let case = if self.is_ours() { "longest, frozen" } else { "longest, compressed" };
            note(case, timed(self.addresses.len(), sum).1);
        }
        let remove = || {
            for (key, _) in &self.queries {
                map.remove(key);
            }
        };
        note("remove", timed(routes, remove).1);
        black_box(&map);
        Ok(measured)
    }
}

/// The name of our crate.
const OURS: &str = "fingerpost-lpm";

pub(super) fn contestants_of_v4(input: &Input<u32>) -> Vec<Box<dyn MapContestant>> {
    let net = Ipv4Net::from_prefix;
    let full = |addr: u32| Ipv4Net::from(std::net::Ipv4Addr::from(addr));
    vec![
        Contest::<LpmMap<Ipv4Net, u32>>::boxed(input, net, Into::into),
        Contest::<PrefixMap<Ipv4Net, u32>>::boxed(input, net, full),
        Contest::<NetworkTable<Ipv4Network>>::boxed(input, network, Into::into),
        Contest::<RTrieMap<Ipv4Net, u32>>::boxed(input, net, full),
    ]
}

pub(super) fn contestants_of_v6(input: &Input<u128>) -> Vec<Box<dyn MapContestant>> {
    let net = Ipv6Net::from_prefix;
    let full = |addr: u128| Ipv6Net::from(std::net::Ipv6Addr::from(addr));
    vec![
        Contest::<LpmMap<Ipv6Net, u32>>::boxed(input, net, Into::into),
        Contest::<PrefixMap<Ipv6Net, u32>>::boxed(input, net, full),
        Contest::<NetworkTable<Ipv6Network>>::boxed(input, network, Into::into),
        Contest::<RTrieMap<Ipv6Net, u32>>::boxed(input, net, full),
    ]
}

impl<P: PrefixKey> Operations for LpmMap<P, u32> {
    const NAME: &'static str = OURS;
    type Key = P;
    type Address = P::Address;
    type Form = FrozenLpm<P, u32>;
    const FORM: &'static str = "frozen";

    fn new() -> Self {
        Self::new()
    }
    fn insert(&mut self, key: P, value: u32) {
        self.insert(key, value);
    }
    fn get(&self, key: &P) -> Option<u32> {
        self.get(key).copied()
    }
    fn sum(&self) -> u64 {
        self.iter().map(|(key, value)| u64::from(key.to_prefix().len()) + u64::from(*value)).sum()
    }
    fn longest(&self, address: P::Address) -> u32 {
        self.longest(address).map_or(0, |(_, value)| *value)
    }
    fn remove(&mut self, key: &P) {
        self.remove(key);
    }
    fn count(&self) -> usize {
        self.iter().count()
    }
    fn bytes(&self) -> usize {
        self.footprint()
    }
    fn form(&self) -> anyhow::Result<Option<Self::Form>> {
        Ok(Some(self.freeze(Choice::Auto)?))
    }
    fn lookup(form: &Self::Form, addresses: &[P::Address], mut found: impl FnMut(u32)) {
        const BATCH: usize = 256;
        let mut values = [None; BATCH];
        for addresses in addresses.chunks(BATCH) {
            let values = &mut values[..addresses.len()];
            form.lookup_many(addresses, values);
            values.iter().for_each(|value| found(value.copied().unwrap_or(0)));
        }
    }
}

/// A contestant without a second form.
enum NoForm {}

impl<P: prefix_trie::Prefix + PrefixKey> Operations for PrefixMap<P, u32> {
    const NAME: &'static str = "prefix-trie";
    type Key = P;
    type Address = P;
    type Form = NoForm;
    const FORM: &'static str = "";

    fn new() -> Self {
        Self::new()
    }
    fn insert(&mut self, key: P, value: u32) {
        self.insert(key, value);
    }
    fn get(&self, key: &P) -> Option<u32> {
        self.get(key).copied()
    }
    fn sum(&self) -> u64 {
        self.iter().map(|(key, value)| u64::from(key.prefix_len()) + u64::from(*value)).sum()
    }
    fn longest(&self, address: P) -> u32 {
        self.get_lpm(&address).map_or(0, |(_, value)| *value)
    }
    fn remove(&mut self, key: &P) {
        self.remove(key);
    }
    fn count(&self) -> usize {
        self.iter().count()
    }
    fn bytes(&self) -> usize {
        self.mem_size()
    }
    fn lookup(form: &NoForm, _: &[P], _: impl FnMut(u32)) {
        match *form {}
    }
}

/// `IpNetworkTable`, which has both families, with the networks of one.
struct NetworkTable<N> {
    table: IpNetworkTable<u32>,
    network: std::marker::PhantomData<N>,
}

/// Makes the crate's type of a prefix.
fn network<A: Addr, N: Network>(prefix: Prefix<A>) -> N {
    N::make(prefix.addr().to_u128(), prefix.len() as u8)
}

/// A network of one family.
trait Network: Copy + Into<IpNetwork> + 'static {
    type Address: Copy;
    fn make(addr: u128, len: u8) -> Self;
    fn sum(table: &IpNetworkTable<u32>) -> u64;
    fn longest(table: &IpNetworkTable<u32>, address: Self::Address) -> u32;
}

impl Network for Ipv4Network {
    type Address = std::net::Ipv4Addr;
    fn make(addr: u128, len: u8) -> Self {
        Self::new((addr as u32).into(), len).expect("a prefix has no host bits")
    }
    fn sum(table: &IpNetworkTable<u32>) -> u64 {
        table.iter_ipv4().map(|(key, value)| u64::from(key.netmask()) + u64::from(*value)).sum()
    }
    fn longest(table: &IpNetworkTable<u32>, address: Self::Address) -> u32 {
        table.longest_match_ipv4(address).map_or(0, |(_, value)| *value)
    }
}

impl Network for Ipv6Network {
    type Address = std::net::Ipv6Addr;
    fn make(addr: u128, len: u8) -> Self {
        Self::new(addr.into(), len).expect("a prefix has no host bits")
    }
    fn sum(table: &IpNetworkTable<u32>) -> u64 {
        table.iter_ipv6().map(|(key, value)| u64::from(key.netmask()) + u64::from(*value)).sum()
    }
    fn longest(table: &IpNetworkTable<u32>, address: Self::Address) -> u32 {
        table.longest_match_ipv6(address).map_or(0, |(_, value)| *value)
    }
}

impl<N: Network> Operations for NetworkTable<N> {
    const NAME: &'static str = "ip_network_table";
    type Key = N;
    type Address = N::Address;
    type Form = NoForm;
    const FORM: &'static str = "";

    fn new() -> Self {
        Self { table: IpNetworkTable::new(), network: std::marker::PhantomData }
    }
    fn insert(&mut self, key: N, value: u32) {
        self.table.insert(key, value);
    }
    fn get(&self, key: &N) -> Option<u32> {
        self.table.exact_match(*key).copied()
    }
    fn sum(&self) -> u64 {
        N::sum(&self.table)
    }
    fn longest(&self, address: N::Address) -> u32 {
        N::longest(&self.table, address)
    }
    fn remove(&mut self, key: &N) {
        self.table.remove(*key);
    }
    fn count(&self) -> usize {
        self.table.iter().count()
    }
    fn lookup(form: &NoForm, _: &[N::Address], _: impl FnMut(u32)) {
        match *form {}
    }
}

/// The keys of `iptrie` that the cases use: its root has a value always, which is 0 here.
trait TrieKey: iptrie::IpRootPrefix + PrefixKey + Copy + Into<IpNet> + 'static {}
impl TrieKey for Ipv4Net {}
impl TrieKey for Ipv6Net {}

fn len_of(key: impl Into<IpNet>) -> u64 {
    key.into().prefix_len().into()
}

impl<P: TrieKey> Operations for RTrieMap<P, u32> {
    const NAME: &'static str = "iptrie";
    type Key = P;
    type Address = P;
    type Form = LCTrieMap<P, u32>;
    const FORM: &'static str = "compressed";

    fn new() -> Self {
        Self::default()
    }
    fn insert(&mut self, key: P, value: u32) {
        self.insert(key, value);
    }
    fn get(&self, key: &P) -> Option<u32> {
        self.get(key).copied()
    }
    fn sum(&self) -> u64 {
        self.iter().map(|(key, value)| len_of(*key) + u64::from(*value)).sum()
    }
    fn longest(&self, address: P) -> u32 {
        *self.lookup(&address).1
    }
    fn remove(&mut self, key: &P) {
        self.remove(key);
    }
    fn count(&self) -> usize {
        // Without the root, which cannot be removed.
        self.iter().count() - 1
    }
    fn form(&self) -> anyhow::Result<Option<Self::Form>> {
        Ok(Some(self.clone().compress()))
    }
    fn lookup(form: &Self::Form, addresses: &[P], mut found: impl FnMut(u32)) {
        addresses.iter().for_each(|address| found(*form.lookup(address).1));
    }
}
