//! Access lists: rules in order, and what happens to a packet that none of them ends.

use std::collections::HashMap;

use fib::Full;

use crate::{Action, Classifier, Fields, PacketFamily, Rule};

/// A list, compiled for both address families.
#[derive(Debug)]
pub struct AccessList {
    /// Its name.
    pub name: String,
    /// Whether packets that no rule ends pass.
    pub permits: bool,
    rules: Box<[Rule]>,
    v4: Classifier<u32>,
    v6: Classifier<u128>,
}

impl AccessList {
    /// Compiles a list of at most [`MOST_RULES`](crate::MOST_RULES) rules.
    ///
    /// # Errors
    ///
    /// [`Full`], if a table's layout has no room for the prefixes.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_acl::{AccessList, Fields, PacketFamily, Rule};
    /// let rules = ["permit ipproto tcp dport 443", "deny from 192.0.2.0/24"];
    /// let rules = rules.map(|text| Rule::parse(text, &|_| None).unwrap());
    /// let list = AccessList::build("edge", true, rules.into())?;
    ///
    /// let mut packet = [0u8; 24];
    /// (packet[0], packet[3], packet[9]) = (0x45, 24, 17); // UDP
    /// packet[12..16].copy_from_slice(&[192, 0, 2, 1]);
    /// let fields = <u32 as PacketFamily>::fields(&packet).unwrap();
    /// assert_eq!(list.matches(&fields).collect::<Vec<_>>(), [1]);
    /// # Ok::<(), fib::Full>(())
    /// ```
    pub fn build(name: &str, permits: bool, rules: Vec<Rule>) -> Result<Self, Full> {
        let (v4, v6) = (Classifier::build(&rules)?, Classifier::build(&rules)?);
        Ok(Self { name: name.to_owned(), permits, rules: rules.into(), v4, v6 })
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the rules for IPv4 packets, compiled.
    #[inline]
    pub fn v4(&self) -> &Classifier<u32> {
        &self.v4
    }

    /// Returns the rules for IPv6 packets, compiled.
    #[inline]
    pub fn v6(&self) -> &Classifier<u128> {
        &self.v6
    }

    /// Iterates over the numbers of the rules that act on a packet: those that match, up to the first
    /// that ends the examination. A code point that a rule sets is that of the packet for the rules behind it.
    /// The slow twin of the classifiers. O(rules).
    pub fn matches<A: PacketFamily>(&self, packet: &Fields<A>) -> impl Iterator<Item = usize> {
        let (mut packet, mut has_ended) = (*packet, false);
        self.rules.iter().enumerate().filter_map(move |(number, rule)| {
            if has_ended || !rule.matches(&packet) {
                return None;
            }
            has_ended = rule.action.is_terminal();
            if let Some(dscp) = rule.set_dscp {
                packet.set_dscp(dscp);
            }
            Some(number)
        })
    }

    /// Lists the interfaces that rules send copies to.
    pub fn mirrors(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter_map(|rule| match &rule.action {
            Action::Mirror { interface, .. } => Some(&**interface),
            _ => None,
        })
    }

    /// Returns the name of a policer that two of these rules give different rates.
    pub fn conflicting_policer(rules: &[Rule]) -> Option<&str> {
        let mut rates = HashMap::new();
        rules.iter().find_map(|rule| {
            let name = rule.policer.as_deref()?;
            (rates.entry(name).or_insert(&rule.action) != &&rule.action).then_some(name)
        })
    }

    /// Returns the size in bytes of what packets are compared with.
    pub fn footprint(&self) -> usize {
        self.v4.footprint() + self.v6.footprint()
    }
}
