//! The number under which the packets of a rule are counted.

/// Maximum number of rules with counters of their own.
pub const MAX_RULE_IDS: usize = 512;

/// The number of a rule's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(u16);

impl RuleId {
    /// All rules without counters of their own.
    pub const OTHERS: Self = Self(0);
    /// Packets that no rule has decided about.
    pub const NONE: Self = Self(1);
    /// The number of different values.
    pub(crate) const COUNT: usize = MAX_RULE_IDS + 2;

    /// Returns the number of the rule at this position; there are [`MAX_RULE_IDS`].
    pub fn of_rule(number: usize) -> Option<Self> {
        (number < MAX_RULE_IDS).then_some(Self(number as u16 + 2))
    }

    /// Iterates over all values, in order.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u16).map(Self)
    }

    /// Returns its position among all values.
    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}
