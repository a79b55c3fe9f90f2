//! Policy rules: by which table the kernel forwards what comes in by an interface.
//!
//! ```text
//!   0      from all lookup local        own addresses: the steering program's business
//!   100    iif r2 lookup 100            packets of r2: table 100 …
//!   32766  from all lookup main         … and main for what that has no route for
//! ```
//!
//! The kernel goes through the rules in order for every packet (`ip rule`; ip-rule(8)). A
//! port has one table, so a rule can be followed if it says the same of all packets of an
//! interface: by the interface, or of everything. The first such rule that names a table
//! is the port's. What that table has no route for the kernel would look up further on,
//! and it is left to it.
//!
//! Rules that look into the packet (source, destination, TOS, ports) cannot be followed by
//! a table a port; where one comes before the table is settled that is said, with the rule.
//! A mark is 0 when a packet arrives, so rules for other marks say nothing of it; nor do
//! those of the interface that packets leave by, which only the host's own sockets choose.
//!
//! A port whose table the configuration names is isolated where the rules lead elsewhere: the
//! kernel would forward and answer punted packets by routes that the port's table lacks.

use std::fmt;

use feed::netlink::{Action, Rule};

use super::Plane;
use super::store::Store;

/// The kernel's table of its own addresses.
const LOCAL: u32 = 255;
/// The kernel's last table, empty where nobody has put something there.
const DEFAULT: u32 = 253;

/// Where the rules lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Led {
    /// To a table; what that has no route for goes on to others, or ends (`further`).
    Table {
        /// The kernel's number of it.
        number: u32,
        /// Another table is asked after it.
        further: bool,
    },
    /// Nowhere that holds for all packets: this rule asks more of them.
    Depends(String),
    /// To no table.
    Nowhere,
}

impl Led {
    /// Returns whether the rules lead away from a table, for any packet.
    fn is_elsewhere(&self, table: u32) -> bool {
        match self {
            Self::Table { number, .. } => *number != table,
            Self::Depends(_) => false,
            Self::Nowhere => true,
        }
    }
}

/// Where the rules lead packets of a port that go by another table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Where they lead.
    pub led: Led,
    /// Only those of IPv6 do.
    pub v6: bool,
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.v6 { "IPv6" } else { "IPv4" };
        match &self.led {
            Led::Table { number, .. } => write!(f, "the rules of {family} lead to table {number}"),
            Led::Depends(rule) => write!(f, "{rule} asks more than by which interface they came"),
            Led::Nowhere => write!(f, "the rules of {family} lead to no table"),
        }
    }
}

/// Says where the rules of a family lead packets that come in by an interface; `vrf` is the
/// table of the VRF that it belongs to.
///
/// # Complexity
///
/// O(rules), which are in the order of their priority.
pub fn lead(rules: &[Rule], v6: bool, interface: &str, vrf: Option<u32>) -> Led {
    let mut found = None;
    // A goto leads to a later rule only.
    let mut from = 0;
    for rule in rules.iter().filter(|rule| rule.v6 == v6) {
        if rule.priority < from {
            continue;
        }
        let number = match applies(rule, interface) {
            Applies::Never => continue,
            Applies::Sometimes if found.is_none() => return Led::Depends(name(rule)),
            Applies::Sometimes => return further(found),
            Applies::Always => match rule.action {
                Action::Nothing => continue,
                Action::Goto(priority) => {
                    from = priority;
                    continue;
                }
                Action::Vrf => match vrf {
                    Some(table) => table,
                    None => continue,
                },
                Action::Table(number) => number,
                Action::Blackhole | Action::Unreachable | Action::Prohibit | Action::Unknown(_) => {
                    return if found.is_none() { Led::Nowhere } else { further(found) };
                }
            },
        };
        match found {
            _ if number == LOCAL => {}
            None if rule.suppressed.is_some() => return Led::Depends(name(rule)),
            None => found = Some(number),
            Some(table) if number == table || number == DEFAULT => {}
            Some(_) => return further(found),
        }
    }
    found.map_or(Led::Nowhere, |number| Led::Table { number, further: false })
}

fn further(found: Option<u32>) -> Led {
    found.map_or(Led::Nowhere, |number| Led::Table { number, further: true })
}

impl Plane {
    /// Goes by the rules for ports whose tables are theirs to say. Once workers have the
    /// tables, a port that is led elsewhere goes on by its own, and this is noted.
    pub(super) fn follow_rules(&mut self) {
        // Before they are told there are none to go by.
        if self.rules.is_empty() {
            return;
        }
        let Self { ports, rules, vrfs, .. } = self;
        for port in ports.iter_mut() {
            let moved = port.has_moved();
            let vrf = port.master.and_then(|master| vrfs.get(&master)).copied();
            let [v4, v6] = [false, true].map(|v6| lead(rules, v6, &port.name, vrf));
            if !port.ruled {
                let isolated = [&v4, &v6].map(|led| led.is_elsewhere(port.table));
                self.locals_changed |= port.isolated != isolated;
                port.isolated = isolated;
                continue;
            }
            port.stray = None;
            match v4 {
                Led::Table { number, further } if number == port.table || !self.begun => {
                    port.table = number;
                    self.locals_changed |= port.further != further;
                    port.further = further;
                    // A namespace may be without IPv6.
                    let elsewhere = !matches!(v6, Led::Table { number: it, .. } if it == number);
                    if elsewhere && v6 != Led::Nowhere {
                        port.stray = Some(Stray { led: v6, v6: true });
                    }
                }
                led => port.stray = Some(Stray { led, v6: false }),
            }
            self.ports_differ |= port.has_moved() != moved;
        }
        let numbers = self.ports.tables();
        if self.begun || numbers == self.numbers {
            return;
        }
        let (v4, v6, together) = self.wanted;
        // It could have no routes at the start, so it can now.
        let stores =
            (Store::new(numbers.len(), v4, together), Store::new(numbers.len(), v6, together));
        if let (Ok(v4), Ok(v6)) = stores {
            (self.v4, self.v6, self.numbers) = (v4, v6, numbers);
        }
    }
}

/// Of which packets of an interface a rule speaks.
#[derive(PartialEq, Eq)]
enum Applies {
    Always,
    Sometimes,
    Never,
}

fn applies(rule: &Rule, interface: &str) -> Applies {
    let asks_more = rule.source.is_some_and(|(_, length)| length > 0)
        || rule.destination.is_some_and(|(_, length)| length > 0)
        || rule.tos != 0
        || !rule.other.is_empty();
    let elsewhere = rule.input.as_ref().is_some_and(|input| input != interface)
        || rule.output.is_some()
        || rule.mark.is_some_and(|(mark, mask)| mark & mask != 0);
    match (elsewhere, asks_more, rule.inverted) {
        // What does not hold, inverted, does.
        (true, _, true) => Applies::Always,
        (true, _, false) => Applies::Never,
        (false, true, _) => Applies::Sometimes,
        (false, false, true) => Applies::Never,
        (false, false, false) => Applies::Always,
    }
}

fn name(rule: &Rule) -> String {
    let family = if rule.v6 { "IPv6" } else { "IPv4" };
    format!("rule {} of {family}", rule.priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(priority: u32, action: Action) -> Rule {
        Rule {
            v6: false,
            priority,
            action,
            inverted: false,
            source: None,
            destination: None,
            input: None,
            output: None,
            mark: None,
            suppressed: None,
            tos: 0,
            other: Vec::new(),
        }
    }

    fn by(interface: &str, rule: Rule) -> Rule {
        Rule { input: Some(interface.to_owned()), ..rule }
    }

    /// The rules that every kernel has, and some more.
    fn with(more: Vec<Rule>) -> Vec<Rule> {
        let mut all = vec![
            rule(0, Action::Table(LOCAL)),
            rule(32766, Action::Table(254)),
            rule(32767, Action::Table(DEFAULT)),
        ];
        all.extend(more);
        all.sort_by_key(|rule| rule.priority);
        all
    }

    fn table(number: u32, further: bool) -> Led {
        Led::Table { number, further }
    }

    #[test]
    fn the_rules_that_every_kernel_has_lead_to_main() {
        assert_eq!(lead(&with(vec![]), false, "r0", None), table(254, false));
        assert_eq!(lead(&with(vec![]), true, "r0", None), Led::Nowhere, "none of IPv6");
    }

    #[test]
    fn an_interface_has_its_own_table_and_main_after_it() {
        let rules = with(vec![by("r2", rule(100, Action::Table(7)))]);
        assert_eq!(lead(&rules, false, "r2", None), table(7, true));
        assert_eq!(lead(&rules, false, "r1", None), table(254, false));
        let ended = with(vec![
            by("r2", rule(100, Action::Table(7))),
            by("r2", rule(101, Action::Unreachable)),
        ]);
        assert_eq!(lead(&ended, false, "r2", None), table(7, true), "the kernel refuses the rest");
    }

    #[test]
    fn rules_that_lead_to_another_table_or_to_none_isolate_a_port() {
        assert!(table(254, false).is_elsewhere(100) && Led::Nowhere.is_elsewhere(100));
        assert!(!table(100, true).is_elsewhere(100));
        assert!(!Led::Depends("rule 5 of IPv4".to_owned()).is_elsewhere(100));
    }

    #[test]
    fn a_vrfs_rule_is_for_its_interfaces() {
        let rules = with(vec![rule(1000, Action::Vrf)]);
        assert_eq!(lead(&rules, false, "r0", Some(30)), table(30, true));
        assert_eq!(lead(&rules, false, "r0", None), table(254, false));
    }

    #[test]
    fn what_a_rule_asks_of_packets_cannot_be_followed() {
        let from = Some(("10.0.0.0".parse().unwrap(), 8));
        let source = Rule { source: from, ..rule(50, Action::Table(9)) };
        let ports = Rule { other: vec![1], ..rule(50, Action::Table(9)) };
        for asks in [source.clone(), ports] {
            let rules = with(vec![asks]);
            assert_eq!(lead(&rules, false, "r0", None), Led::Depends("rule 50 of IPv4".to_owned()));
        }
        // After the table it is only of what that has no route for; of another
        // interface it is nothing.
        let after = with(vec![by("r0", rule(10, Action::Table(7))), source.clone()]);
        assert_eq!(lead(&after, false, "r0", None), table(7, true));
        let others = with(vec![by("r1", source)]);
        assert_eq!(lead(&others, false, "r0", None), table(254, false));
    }

    #[test]
    fn marks_ways_out_gotos_and_inverted_rules() {
        let marked = Rule { mark: Some((5, 0xff)), ..rule(50, Action::Table(9)) };
        let out = Rule { output: Some("r0".to_owned()), ..rule(51, Action::Table(9)) };
        let skip = rule(52, Action::Goto(60));
        let skipped = rule(55, Action::Table(9));
        let nothing = rule(60, Action::Nothing);
        let but_r1 = Rule { inverted: true, ..by("r1", rule(61, Action::Table(8))) };
        let rules = with(vec![marked, out, skip, skipped, nothing, but_r1]);
        assert_eq!(lead(&rules, false, "r0", None), table(8, true));
        assert_eq!(lead(&rules, false, "r1", None), table(254, false));
        let refused = with(vec![by("r0", rule(5, Action::Prohibit))]);
        assert_eq!(lead(&refused, false, "r0", None), Led::Nowhere);
        let suppressed = Rule { suppressed: Some(0), ..rule(5, Action::Table(254)) };
        assert!(matches!(lead(&with(vec![suppressed]), false, "r0", None), Led::Depends(_)));
    }
}
