//! The packets: a capture's addresses, or generated ones of a stated locality.
//!
//! The paper's trace (184,400,259 packets between a laboratory and the world, in
//! March 1998) is not public. The paper states only the share of each class of route and the hit
//! ratios of caches of several sizes. A generated trace replaces it:
//!
//! * **Recency.** Each packet goes to the address that was the d-th last
//!   different one before it, d drawn again, P(d ≥ x) = (1 + x/scale)^−tail: the
//!   LRU stack model (Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for
//!   storage hierarchies", IBM Systems Journal 9(2), 1970). d = 0 makes packet
//!   trains; the long tail is hosts that return later. A d beyond the remembered
//!   addresses brings a new one.
//! * **Destination.** A new address belongs to a route drawn from the table, its class
//!   with the paper's shares. Some of class AB lie in one route of 16 bits: the site
//!   that the link leads to.
//!
//! ```text
//!   stack  ┃ … │ d = 3 │ d = 2 │ d = 1 │ d = 0 ┃   drawn: d = 2
//!          ┃ … │ d = 3 │ d = 1 │ d = 0 │ (2)   ┃   it comes to the top
//! ```
//!
//! `tail` and `scale` were chosen so that the caches have about the hit ratios of the paper. The
//! hit ratio is therefore an input, not a result; the cycles and their order are results.

use std::path::PathBuf;

use anyhow::ensure;
use fib::engine::Engine;
use fib::{Hop, Prefix};
use wire::{ethernet, ipv4};

use super::simulate::class;

/// The tail and the scale with which caches hit about as often as the paper's.
const FITTED: (f64, f64) = (0.9, 10.0);

/// Where the packets come from.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// A capture of Ethernet, pcap or pcapng, gzip or not; its IPv4 packets are the
    /// trace [default: a generated one]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Which address of a captured packet is looked up
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// Generated: packets
    #[arg(long, value_name = "N", default_value_t = 8 << 20)]
    packets: usize,
    /// Generated: the exponent with which a return becomes less likely
    #[arg(long, value_name = "X", default_value_t = FITTED.0)]
    tail: f64,
    /// Generated: how many addresses back that begins
    #[arg(long, value_name = "X", default_value_t = FITTED.1)]
    scale: f64,
    /// Generated: how many addresses can return
    #[arg(long, value_name = "N", default_value_t = 1 << 16)]
    hosts: usize,
    /// Generated: percent of new addresses with a route of up to 16 bits
    #[arg(long, value_name = "PERCENT", default_value_t = 78.7)]
    ab: f64,
    /// Generated: percent of new addresses with a route of more than 24 bits
    #[arg(long, value_name = "PERCENT", default_value_t = 0.01)]
    cd: f64,
    /// Generated: percent of new addresses in one /16, the site
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    site: f64,
    /// Generated: which of the traces of this kind
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// The address of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// Where it goes
    #[default]
    Destination,
    /// Where it is from: the destination of the replies
    Source,
}

/// Addresses in the order of their packets.
pub(super) struct Trace {
    pub(super) name: String,
    /// The source of the trace, and its difference from the paper's.
    pub(super) about: String,
    pub(super) addrs: Vec<u32>,
}

impl Args {
    /// Reads or generates the trace; `nart` is the table of `routes`, which determines the class
    /// of an address.
    pub(super) fn load(
        &self,
        routes: &[(Prefix<u32>, Hop)],
        nart: &dyn Engine<u32>,
    ) -> anyhow::Result<Trace> {
        let Some(path) = &self.trace else { return self.generate(routes, nart) };
        let pool = port::pcap::read(path)?;
        let addrs: Vec<u32> = pool.iter().filter_map(|frame| address(frame, self.by)).collect();
        ensure!(!addrs.is_empty(), "{}: no packet of IPv4 in it", path.display());
        let by = if self.by == By::Source { "source" } else { "destination" };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let about = format!(
            "the {by} addresses of the {} IPv4 packets of {name}; the paper's trace is not public",
            addrs.len()
        );
        Ok(Trace { name: format!("{name} {by}").replace(',', ";"), about, addrs })
    }

    fn generate(
        &self,
        routes: &[(Prefix<u32>, Hop)],
        nart: &dyn Engine<u32>,
    ) -> anyhow::Result<Trace> {
        let Self { packets, tail, scale, hosts, ab, cd, site, seed, .. } = *self;
        ensure!(packets > 0 && hosts > 0, "--packets and --hosts: at least 1 is needed");
        ensure!(tail > 0.0 && scale > 0.0, "--tail and --scale: above 0");
        let shares = 0.0 <= site && site <= ab && 0.0 <= cd && ab + cd <= 100.0;
        ensure!(shares, "--site, --ab and --cd: 0 ≤ site ≤ ab, and ab + cd ≤ 100");
        let mut rng = fastrand::Rng::with_seed(seed);
        let drawn = Drawn::of(routes, nart, [site, ab, cd])?;
        let mut stack: Vec<u32> = Vec::with_capacity(hosts);
        let mut addrs = Vec::with_capacity(packets);
        for _ in 0..packets {
            let depth = depth(&mut rng, tail, scale);
            if depth < stack.len() {
                let place = stack.len() - 1 - depth;
                stack[place..].rotate_left(1);
            } else {
                if stack.len() == hosts {
                    stack.remove(0);
                }
                stack.push(drawn.addr(&mut rng, nart));
            }
            addrs.extend(stack.last());
        }
        let fitted = if (tail, scale) == FITTED {
            "; the two numbers were set so that caches hit about as often as the paper's"
        } else {
            ""
        };
        let about = format!(
            "{packets} generated packets: a return after d other addresses with P(d ≥ x) = \
             (1 + x/{scale})^-{tail}, {hosts} addresses remembered; new addresses {site} % in \
             {}, {:.2} % in other routes of up to 16 bits, {cd} % in routes over 24, seed {seed}. \
             It stands in for the paper's trace, which is not public{fitted}",
            drawn.site,
            ab - site,
        );
        Ok(Trace { name: format!("generated {tail}/{scale} seed {seed}"), about, addrs })
    }
}

/// Draws how many different addresses came since this one.
fn depth(rng: &mut fastrand::Rng, tail: f64, scale: f64) -> usize {
    let depth = scale * ((1.0 - rng.f64()).powf(-1.0 / tail) - 1.0);
    // A cast of what is too large gives the largest.
    depth as usize
}

/// Where new addresses are drawn from.
struct Drawn {
    /// Routes by class.
    classes: [Vec<Prefix<u32>>; 3],
    site: Prefix<u32>,
    /// In percent: in the site, of class AB with it, of class CD.
    shares: [f64; 3],
}

impl Drawn {
    fn of(
        routes: &[(Prefix<u32>, Hop)],
        nart: &dyn Engine<u32>,
        shares: [f64; 3],
    ) -> anyhow::Result<Self> {
        let mut classes = [const { Vec::new() }; 3];
        for (prefix, _) in routes {
            classes[class_of(*prefix)].push(*prefix);
        }
        for (name, class) in ["16 bits or less", "17 to 24 bits"].iter().zip(&classes) {
            ensure!(!class.is_empty(), "the table has no route of {name} to send packets to");
        }
        // The middle one of the /16 that no longer route divides.
        let whole = |prefix: &&Prefix<u32>| prefix.len() == 16 && reaches(nart, prefix.addr()) == 0;
        let sites: Vec<&Prefix<u32>> = classes[0].iter().filter(whole).collect();
        ensure!(!sites.is_empty() || shares[0] == 0.0, "no /16 can be the site: give --site 0");
        let site = sites.get(sites.len() / 2).map_or(Prefix::ALL, |site| **site);
        Ok(Self { classes, site, shares })
    }

    /// Draws an address. One that lies in a longer route of another class than was
    /// drawn is drawn again, some times.
    fn addr(&self, rng: &mut fastrand::Rng, nart: &dyn Engine<u32>) -> u32 {
        let [site, ab, cd] = self.shares;
        let percent = 100.0 * rng.f64();
        if percent < site {
            return within(rng, self.site);
        }
        let class = match percent {
            _ if percent < ab => 0,
            _ if percent < ab + cd && !self.classes[2].is_empty() => 2,
            _ => 1,
        };
        let routes = &self.classes[class];
        let mut addr = 0;
        for _ in 0..50 {
            let route = rng.usize(..routes.len());
            addr = within(rng, routes[route]);
            if reaches(nart, addr) == class {
                break;
            }
        }
        addr
    }
}

fn within(rng: &mut fastrand::Rng, prefix: Prefix<u32>) -> u32 {
    rng.u32(prefix.addr()..=prefix.last())
}

/// Returns the class of a route: 0 AB, 1 BC, 2 CD.
pub(super) fn class_of(prefix: Prefix<u32>) -> usize {
    match prefix.len() {
        0..=16 => 0,
        17..=24 => 1,
        _ => 2,
    }
}

/// Returns the class of the level at which the lookup of an address ends.
fn reaches(nart: &dyn Engine<u32>, addr: u32) -> usize {
    let mut steps = Vec::new();
    nart.trace(addr, &mut steps);
    class(&steps)
}

/// Returns an address of a frame of IPv4, tagged or not.
fn address(frame: &[u8], by: By) -> Option<u32> {
    let view = ethernet::View::parse(frame).ok()?;
    let (mut kind, mut rest) = (view.kind(), view.payload());
    while matches!(kind, ethernet::VLAN | ethernet::SERVICE_VLAN) {
        kind = u16::from_be_bytes(*rest.get(2..)?.first_chunk()?);
        rest = &rest[4..];
    }
    let packet = (kind == ethernet::IPV4).then(|| ipv4::View::parse(rest).ok())??;
    Some(if by == By::Source { packet.src() } else { packet.dst() })
}

/// Returns the mean number of different addresses in windows of 2^0, 2^2, 2^4 …
/// packets, each window beginning where the one before ends.
pub(super) fn working_sets(addrs: &[u32]) -> Vec<(usize, f64)> {
    let mut last: std::collections::HashMap<u32, usize> = std::collections::HashMap::new();
    let sizes: Vec<usize> =
        (0..).step_by(2).map(|bits| 1 << bits).take_while(|&size| size <= addrs.len()).collect();
    // The whole windows only; an address is new in a window that began since.
    let mut distinct = vec![0u64; sizes.len()];
    for (at, &addr) in addrs.iter().enumerate() {
        let before = last.insert(addr, at);
        for (size, distinct) in sizes.iter().zip(&mut distinct) {
            let start = at / size * size;
            let whole = start + size <= addrs.len();
            *distinct += u64::from(whole && before.is_none_or(|before| before < start));
        }
    }
    let mean = |(&size, &count): (&usize, &u64)| (size, count as f64 / (addrs.len() / size) as f64);
    sizes.iter().zip(&distinct).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use fib::{Choice, Fib, Hop, Prefix, Rib};

    use super::{Args, By, address, class, depth, working_sets};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        trace: Args,
    }

    #[test]
    fn a_generated_trace_has_the_stated_classes_and_is_the_same_again() {
        let routes: Vec<(Prefix<u32>, Hop)> = (0..4000u32)
            .map(|n| match n % 4 {
                0 => (Prefix::truncate(0x0a00_0000 + (n << 16), 16), Hop(1)),
                1 | 2 => (Prefix::truncate(0x3000_0000 + (n << 12), 22), Hop(2)),
                _ => (Prefix::truncate(0x5000_0000 + (n << 12), 28), Hop(3)),
            })
            .collect();
        let rib = Rib::from_sorted(routes.iter().copied());
        let nart = Fib::build(&rib, Choice::Nart, 1).unwrap();
        let load = |options: &[&str]| {
            let args = Line::parse_from([&["trace"], options].concat()).trace;
            args.load(&routes, nart.engine()).unwrap().addrs
        };
        // With new addresses only, the shares drawn are the requested ones.
        let all_new = ["--packets", "20000", "--hosts", "1", "--scale", "1e9"];
        let addrs = load(&[&all_new[..], &["--ab", "60", "--site", "20", "--cd", "10"]].concat());
        let (mut classes, mut blocks) = ([0u32; 3], std::collections::HashMap::new());
        for &addr in &addrs {
            let mut steps = Vec::new();
            nart.engine().trace(addr, &mut steps);
            classes[class(&steps)] += 1;
            *blocks.entry(addr >> 16).or_insert(0u32) += 1;
        }
        let near = |count: u32, percent: u32| count.abs_diff(200 * percent) < 400;
        assert!(near(classes[0], 60) && near(classes[1], 30), "{classes:?}");
        assert!(near(classes[2], 10), "{classes:?}");
        assert!(near(blocks.into_values().max().unwrap(), 20));
        let small = ["--packets", "3000"];
        assert_eq!(load(&small), load(&small));
        assert_ne!(load(&small), load(&["--packets", "3000", "--seed", "2"]));
    }

    #[test]
    fn depths_have_the_stated_tail() {
        let mut rng = fastrand::Rng::with_seed(7);
        let depths: Vec<usize> = (0..200_000).map(|_| depth(&mut rng, 0.6, 2.0)).collect();
        for x in [1, 2, 8, 100, 1000, 10_000] {
            let share = depths.iter().filter(|&&d| d >= x).count() as f64 / 200_000.0;
            let stated = (1.0 + x as f64 / 2.0_f64).powf(-0.6);
            assert!((share - stated).abs() < 0.01, "P(d ≥ {x}) is {share}, not {stated}");
        }
    }

    #[test]
    fn a_working_set_counts_each_address_of_a_window_once() {
        let addrs = [1, 1, 2, 1, 3, 3, 3, 3, 1, 2, 3, 4, 1, 1, 1, 1, 9];
        // Of 1; of 4: {1,2}, {3}, {1,2,3,4}, {1}; of 16: {1,2,3,4}.
        assert_eq!(working_sets(&addrs), [(1, 1.0), (4, 2.0), (16, 4.0)]);
    }

    #[test]
    fn addresses_are_found_behind_tags() {
        let mut header = [0u8; 20];
        header[0] = 0x45;
        header[2..4].copy_from_slice(&20u16.to_be_bytes());
        header[12..16].copy_from_slice(&[192, 0, 2, 1]);
        header[16..20].copy_from_slice(&[198, 51, 100, 7]);
        let plain = [&[0; 12][..], &[0x08, 0x00], &header].concat();
        let tagged =
            [&[0; 12][..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x08, 0x00], &header].concat();
        for frame in [&plain, &tagged] {
            assert_eq!(address(frame, By::Destination), Some(0xc633_6407));
            assert_eq!(address(frame, By::Source), Some(0xc000_0201));
        }
        assert_eq!(address(&plain[..20], By::Source), None);
        assert_eq!(address(&tagged[..16], By::Source), None);
        let arp = [&[0; 12][..], &[0x08, 0x06], &header].concat();
        assert_eq!(address(&arp, By::Source), None);
    }
}
