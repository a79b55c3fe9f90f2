//! Evaluates policy rules: finds the table by which the kernel forwards packets of an interface.
//!
//! ```text
//!   0      from all lookup local        own addresses: the steering program handles them
//!   100    iif r2 lookup 100            packets of r2: table 100 …
//!   32766  from all lookup main         … and main if table 100 has no route
//! ```
//!
//! The kernel evaluates the rules in order for every packet (`ip rule`; ip-rule(8)). A port has one
//! table, so a rule can be followed if it matches all packets of an interface or none: by the
//! interface, or unconditionally. The first such rule that names a table determines the port's.
//! Packets for which that table has no route are left to the kernel, which continues with the
//! later rules.
//!
//! Rules that match other fields (source, destination, TOS, ports) cannot be followed with one
//! table a port; where one precedes the rule that names the table, it is reported. A mark is
//! 0 when a packet arrives, so rules for other marks do not match; nor do rules for the output
//! interface, which only sockets of the host set.
//!
//! A port whose table the configuration names is isolated where the rules lead to another table:
//! the kernel would forward and answer punted packets by routes that the port's table lacks.

use std::fmt;

use feed::netlink::{Action, Rule};

use super::Plane;

/// The kernel's table of its own addresses.
const LOCAL: u32 = 255;
/// The kernel's last table, which is empty unless an administrator adds routes to it.
const DEFAULT: u32 = 253;

/// The result of evaluating the rules for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleResult {
    /// All packets use this table first.
    Table {
        /// The kernel's number of it.
        number: u32,
        /// Whether the kernel uses another table for packets without a route in this one.
        further: bool,
    },
    /// The table depends on other fields of the packet, by this rule.
    Depends(String),
    /// The rules name no table.
    None,
}

impl RuleResult {
    /// Returns whether the rules name another table than this for all packets, or none.
    fn is_elsewhere(&self, table: u32) -> bool {
        match self {
            Self::Table { number, .. } => *number != table,
            Self::Depends(_) => false,
            Self::None => true,
        }
    }
}

/// A difference between the table of a port and the one that the rules name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleConflict {
    /// The result of the rules.
    pub result: RuleResult,
    /// Whether it concerns IPv6 only.
    pub v6: bool,
}

impl fmt::Display for RuleConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.v6 { "IPv6" } else { "IPv4" };
        match &self.result {
            RuleResult::Table { number, .. } => {
                write!(f, "the {family} rules select table {number}")
            }
            RuleResult::Depends(rule) => {
                write!(f, "{rule} matches other fields than the input interface")
            }
            RuleResult::None => write!(f, "the {family} rules select no table"),
        }
    }
}

/// Evaluates the rules of a family for packets received on an interface; `vrf` is the table of the
/// VRF that it belongs to.
///
/// # Complexity
///
/// O(rules), which are in the order of their priority.
pub fn evaluate(rules: &[Rule], v6: bool, interface: &str, vrf: Option<u32>) -> RuleResult {
    let mut found = None;
    // The target of a goto is a later rule.
    let mut from = 0;
    for rule in rules.iter().filter(|rule| rule.v6 == v6) {
        if rule.priority < from {
            continue;
        }
        let number = match match_rule(rule, interface) {
            RuleMatch::Never => continue,
            RuleMatch::Sometimes if found.is_none() => return RuleResult::Depends(name(rule)),
            RuleMatch::Sometimes => return with_later_table(found),
            RuleMatch::Always => match rule.action {
                Action::Nop => continue,
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
                    return if found.is_none() {
                        RuleResult::None
                    } else {
                        with_later_table(found)
                    };
                }
            },
        };
        match found {
            _ if number == LOCAL => {}
            None if rule.suppressed.is_some() => return RuleResult::Depends(name(rule)),
            None => found = Some(number),
            Some(table) if number == table || number == DEFAULT => {}
            Some(_) => return with_later_table(found),
        }
    }
    found.map_or(RuleResult::None, |number| RuleResult::Table { number, further: false })
}

fn with_later_table(found: Option<u32>) -> RuleResult {
    found.map_or(RuleResult::None, |number| RuleResult::Table { number, further: true })
}

impl Plane {
    /// Evaluates the rules for the ports without a configured table. Once workers have readers of
    /// the tables, a port keeps its table, and a different result is recorded as a conflict.
    pub(super) fn apply_rules(&mut self) {
        self.assign_stacked();
        self.assign_macvlans();
        // The feed has not reported the rules yet.
        if self.rules.is_empty() {
            return;
        }
        let Self { ports, rules, vrfs, .. } = self;
        for port in ports.iter_mut() {
            let moved = port.has_moved();
            let vrf = port.master.and_then(|master| vrfs.get(&master)).copied();
            let [v4, v6] = [false, true].map(|v6| evaluate(rules, v6, &port.name, vrf));
            if !port.follows_rules {
                let isolated = [&v4, &v6].map(|result| result.is_elsewhere(port.table));
                self.locals_changed |= port.isolated != isolated;
                port.isolated = isolated;
                continue;
            }
            port.rule_conflict = None;
            match v4 {
                RuleResult::Table { number, further }
                    if number == port.table || !self.has_readers =>
                {
                    port.table = number;
                    self.locals_changed |= port.further != further;
                    port.further = further;
                    // A namespace may be without IPv6.
                    let same =
                        matches!(v6, RuleResult::Table { number: table, .. } if table == number);
                    if !same && v6 != RuleResult::None {
                        port.rule_conflict = Some(RuleConflict { result: v6, v6: true });
                    }
                }
                result => port.rule_conflict = Some(RuleConflict { result, v6: false }),
            }
            let differs = port.has_moved() != moved;
            self.ports_differ |= differs;
            self.locals_changed |= differs;
        }
        let numbers = self.ports.tables();
        if self.has_readers || numbers == self.numbers {
            return;
        }
        // Empty tables were possible at the start, so they are possible now.
        if let Ok((v4, v6)) = self.new_stores(numbers.len()) {
            (self.v4, self.v6, self.numbers) = (v4, v6, numbers);
        }
    }
}

/// The packets of an interface that a rule matches.
#[derive(PartialEq, Eq)]
enum RuleMatch {
    Always,
    Sometimes,
    Never,
}

fn match_rule(rule: &Rule, interface: &str) -> RuleMatch {
    let has_selectors = rule.source.is_some_and(|(_, length)| length > 0)
        || rule.destination.is_some_and(|(_, length)| length > 0)
        || rule.tos != 0
        || !rule.other.is_empty();
    let elsewhere = rule.input.as_ref().is_some_and(|input| input != interface)
        || rule.output.is_some()
        || rule.mark.is_some_and(|(mark, mask)| mark & mask != 0);
    match (elsewhere, has_selectors, rule.inverted) {
        // An inverted rule that does not match, matches.
        (true, _, true) => RuleMatch::Always,
        (true, _, false) => RuleMatch::Never,
        (false, true, _) => RuleMatch::Sometimes,
        (false, false, true) => RuleMatch::Never,
        (false, false, false) => RuleMatch::Always,
    }
}

fn name(rule: &Rule) -> String {
    let family = if rule.v6 { "IPv6" } else { "IPv4" };
    format!("rule {} of {family}", rule.priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iif(interface: &str, rule: Rule) -> Rule {
        Rule { input: Some(interface.to_owned()), ..rule }
    }

    /// Adds rules to the ones that every kernel has.
    fn with_default_rules(more: Vec<Rule>) -> Vec<Rule> {
        let mut all = vec![
            Rule::all(0, Action::Table(LOCAL)),
            Rule::all(32766, Action::Table(254)),
            Rule::all(32767, Action::Table(DEFAULT)),
        ];
        all.extend(more);
        all.sort_by_key(|rule| rule.priority);
        all
    }

    fn table(number: u32, further: bool) -> RuleResult {
        RuleResult::Table { number, further }
    }

    #[test]
    fn default_rules_select_main() {
        assert_eq!(evaluate(&with_default_rules(vec![]), false, "r0", None), table(254, false));
        assert_eq!(
            evaluate(&with_default_rules(vec![]), true, "r0", None),
            RuleResult::None,
            "none of IPv6"
        );
    }

    #[test]
    fn rule_by_interface_selects_its_table_and_main_after_it() {
        let rules = with_default_rules(vec![iif("r2", Rule::all(100, Action::Table(7)))]);
        assert_eq!(evaluate(&rules, false, "r2", None), table(7, true));
        assert_eq!(evaluate(&rules, false, "r1", None), table(254, false));
        let ended = with_default_rules(vec![
            iif("r2", Rule::all(100, Action::Table(7))),
            iif("r2", Rule::all(101, Action::Unreachable)),
        ]);
        assert_eq!(
            evaluate(&ended, false, "r2", None),
            table(7, true),
            "the kernel refuses the rest"
        );
    }

    #[test]
    fn result_with_another_table_or_none_isolates_a_port() {
        assert!(table(254, false).is_elsewhere(100) && RuleResult::None.is_elsewhere(100));
        assert!(!table(100, true).is_elsewhere(100));
        assert!(!RuleResult::Depends("rule 5 of IPv4".to_owned()).is_elsewhere(100));
    }

    #[test]
    fn vrf_rule_matches_interfaces_of_a_vrf_only() {
        let rules = with_default_rules(vec![Rule::all(1000, Action::Vrf)]);
        assert_eq!(evaluate(&rules, false, "r0", Some(30)), table(30, true));
        assert_eq!(evaluate(&rules, false, "r0", None), table(254, false));
    }

    #[test]
    fn rule_with_other_selectors_makes_the_result_depend_on_packets() {
        let from = Some(("10.0.0.0".parse().unwrap(), 8));
        let source = Rule { source: from, ..Rule::all(50, Action::Table(9)) };
        let ports = Rule { other: vec![1], ..Rule::all(50, Action::Table(9)) };
        for selector in [source.clone(), ports] {
            let rules = with_default_rules(vec![selector]);
            assert_eq!(
                evaluate(&rules, false, "r0", None),
                RuleResult::Depends("rule 50 of IPv4".to_owned())
            );
        }
        // After the table's rule it concerns packets without a route there; with another
        // interface it does not match.
        let after =
            with_default_rules(vec![iif("r0", Rule::all(10, Action::Table(7))), source.clone()]);
        assert_eq!(evaluate(&after, false, "r0", None), table(7, true));
        let others = with_default_rules(vec![iif("r1", source)]);
        assert_eq!(evaluate(&others, false, "r0", None), table(254, false));
    }

    #[test]
    fn marks_output_interfaces_gotos_and_inverted_rules_are_evaluated() {
        let marked = Rule { mark: Some((5, 0xff)), ..Rule::all(50, Action::Table(9)) };
        let out = Rule { output: Some("r0".to_owned()), ..Rule::all(51, Action::Table(9)) };
        let skip = Rule::all(52, Action::Goto(60));
        let skipped = Rule::all(55, Action::Table(9));
        let nothing = Rule::all(60, Action::Nop);
        let not_r1 = Rule { inverted: true, ..iif("r1", Rule::all(61, Action::Table(8))) };
        let rules = with_default_rules(vec![marked, out, skip, skipped, nothing, not_r1]);
        assert_eq!(evaluate(&rules, false, "r0", None), table(8, true));
        assert_eq!(evaluate(&rules, false, "r1", None), table(254, false));
        let refused = with_default_rules(vec![iif("r0", Rule::all(5, Action::Prohibit))]);
        assert_eq!(evaluate(&refused, false, "r0", None), RuleResult::None);
        let suppressed = Rule { suppressed: Some(0), ..Rule::all(5, Action::Table(254)) };
        assert!(matches!(
            evaluate(&with_default_rules(vec![suppressed]), false, "r0", None),
            RuleResult::Depends(_)
        ));
    }
}
