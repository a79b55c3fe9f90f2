//! The kernel feed against the kernel, with random changes.
//!
//! Batches contain changes of every kind, many of which the kernel rejects. After each batch the
//! mirror is compared with the output of `ip`. In every other batch a resynchronization runs at the
//! same time. A failure names the seed: `FINGERPOST_SEED` repeats that one, and `FINGERPOST_ROUNDS`
//! sets the number of rounds.

use fingerpost_feed::netlink::Kernel;

use crate::namespace::{RecordedState, check_against_ip, network, run_unchecked};

/// Random commands for `ip`, from a seed, so that a failure can be repeated.
struct Commands(fastrand::Rng);

impl Commands {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit)
    }

    fn choose<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    fn nexthop(&mut self, v6: bool) -> String {
        let at = self.below(3) as usize;
        let (pair, last) = (["a", "b", "c"][at], self.below(3) + 2);
        match (v6, self.below(6)) {
            (_, 0) => format!("dev {pair}0"),
            (true, _) => format!("via 2001:db8:{pair}::{last}"),
            (false, 1) => format!("via 192.168.0.{last} dev {pair}0 onlink"),
            (false, 2) => format!("via inet6 fe80::{last} dev {pair}0"),
            (false, _) => format!("via 10.0.{at}.{last}"),
        }
    }

    fn nexthops(&mut self, v6: bool) -> String {
        match self.below(5) {
            0 => {
                let mut text = String::new();
                for _ in 0..self.below(3) + 1 {
                    text += &format!(" nexthop {} weight {}", self.nexthop(v6), self.below(4) + 1);
                }
                text.trim().to_owned()
            }
            1 if v6 => format!("nhid {}", self.choose(&["3", "4", "12"])),
            1 => format!("nhid {}", self.choose(&["1", "2", "5", "10", "11"])),
            _ => self.nexthop(v6),
        }
    }

    fn route(&mut self) -> String {
        let v6 = self.below(2) == 0;
        let verb = self.choose(&["add", "append", "prepend", "replace", "del", "del"]);
        let prefix = if v6 {
            self.choose(&["2001:db8:1::/48", "2001:db8:2::/48", "2001:db8:2::1", "::/0"])
        } else {
            self.choose(&["192.0.2.0/24", "198.51.100.0/24", "198.51.100.1", "0.0.0.0/0"])
        };
        let metric = self.choose(&["", " metric 10", " metric 20"]);
        let table = self.choose(&["", "", " table 300"]);
        // IPv6 gateways that join have a protocol each, of which the kernel reports only one.
        let proto = if v6 { "" } else { self.choose(&["", "", " proto bird"]) };
        if self.below(8) == 0 {
            let kind = self.choose(&["blackhole", "unreachable", "prohibit", "throw"]);
            let metric = if v6 { " metric 30" } else { metric };
            return format!("route {verb} {kind} {prefix}{metric}{table}");
        }
        let nexthops = self.nexthops(v6);
        // A dump of Linux 6.18 skips routes between gateways that have joined, so routes that do
        // not join get a metric of their own.
        let joins = nexthops.matches("dev").count() + nexthops.matches("nhid").count() == 0;
        let metric = if v6 && !joins { " metric 30" } else { metric };
        let source =
            if v6 { "" } else { self.choose(&["", "", "", " src 10.0.0.5", " src 10.0.1.1"]) };
        // Of gateways that join, the kernel reports the MTU of one.
        let mtu = if v6 && joins { "" } else { self.choose(&["", "", " mtu 1300", " mtu 1400"]) };
        let tos = if v6 { "" } else { self.choose(&["", "", "", "", "", " tos 0x10"]) };
        format!("route {verb} {prefix}{mtu} {nexthops}{metric}{table}{proto}{source}{tos}")
    }

    fn other_command(&mut self) -> String {
        let at = self.below(3);
        let pair = ["a", "b", "c"][at as usize];
        match self.below(9) {
            0 => format!("link set {pair}{} down", self.below(2)),
            1 | 2 => format!("link set {pair}{} up", self.below(2)),
            3 => format!("addr {} 10.0.{at}.1/24 dev {pair}0", self.choose(&["del", "add", "add"])),
            4 => format!("addr {} 10.0.{at}.5/24 dev {pair}0", self.choose(&["del", "add", "add"])),
            5 => {
                let verb = self.choose(&["add", "replace", "replace"]);
                let (id, v6) =
                    [(1, false), (2, false), (3, true), (4, true)][self.below(4) as usize];
                format!("nexthop {verb} id {id} {}", self.nexthop(v6).replace("onlink", ""))
            }
            6 => {
                format!(
                    "nexthop del id {}",
                    self.choose(&["1", "2", "3", "4", "5", "10", "11", "12"])
                )
            }
            7 => match self.below(4) {
                0 => "nexthop add id 5 blackhole".to_owned(),
                1 => "nexthop replace id 10 group 1,2/2,3".to_owned(),
                2 => format!("nexthop replace id 11 group {}", self.choose(&["1", "2", "2/1"])),
                _ => "nexthop replace id 12 group 3/4,7".to_owned(),
            },
            _ => {
                // A pair is removed and created again.
                let verb = self.choose(&["del", "add", "add", "add"]);
                match verb {
                    "del" => format!("link del {pair}0"),
                    _ => format!("link add {pair}0 type veth peer name {pair}1"),
                }
            }
        }
    }

    fn restore(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, pair) in ["a", "b", "c"].into_iter().enumerate() {
            lines.push(format!("link set {pair}0 up"));
            lines.push(format!("link set {pair}1 up"));
            lines.push(format!("addr add 10.0.{at}.1/24 dev {pair}0"));
            lines.push(format!("addr add 2001:db8:{pair}::1/64 dev {pair}0 nodad"));
        }
        lines
    }
}

fn churn(seed: u64, rounds: u64) {
    network();
    if seed % 2 == 1 {
        // FRR's packages set this: IPv6 routes are removed without a message, too.
        let path = "/proc/sys/net/ipv6/route/skip_notify_on_dev_down";
        std::fs::write(path, "1").expect("it is set");
    }
    if seed % 4 > 1 {
        for family in ["ipv4", "ipv6"] {
            let path = format!("/proc/sys/net/{family}/conf/all/ignore_routes_with_linkdown");
            std::fs::write(path, "1").expect("it is set");
        }
    }
    let mut commands = Commands(fastrand::Rng::with_seed(seed));
    run_unchecked(&commands.restore());
    let mut kernel = Kernel::open().expect("netlink sockets open");
    let mut recorded = RecordedState::default();
    kernel.start(&mut recorded).expect("the initial dump succeeds");
    for round in 0..rounds {
        let mut lines = Vec::new();
        if round % 4 == 0 {
            lines.extend(commands.restore());
        }
        for _ in 0..commands.below(40) + 1 {
            lines.push(if commands.below(4) == 0 {
                commands.other_command()
            } else {
                commands.route()
            });
        }
        if round % 2 == 1 {
            // Some changes precede the dump of routes, some follow it.
            let (first, second) = lines.split_at(lines.len() / 2);
            kernel.resynchronize().expect("it begins");
            kernel.pump(&mut recorded, 1).expect("it goes on");
            run_unchecked(first);
            for _ in 0..commands.below(8) {
                kernel.pump(&mut recorded, 1).expect("it goes on");
            }
            run_unchecked(second);
        } else {
            run_unchecked(&lines);
        }
        let step = format!("FINGERPOST_SEED={seed}, round {round}:\n  {}", lines.join("\n  "));
        check_against_ip(&mut kernel, &mut recorded, &step);
    }
    let gone = ["a", "b", "c"].map(|pair| format!("link del {pair}0"));
    run_unchecked(&gone);
    check_against_ip(&mut kernel, &mut recorded, "the end");
    assert_eq!(kernel.counters().parse_errors, 0);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn mirror_equals_kernel_under_random_changes() {
    let rounds = number("FINGERPOST_ROUNDS").unwrap_or(60);
    match number("FINGERPOST_SEED") {
        Some(seed) => churn(seed, rounds),
        None => (1..=4).for_each(|seed| churn(seed, rounds)),
    }
}
