//! Stateless access lists: rules about packets, and the first rule that matches one.
//!
//! ```text
//!   text ─► Rule ─┐
//!   text ─► Rule ─┼─► AccessList ─► Classifier of IPv4, of IPv6
//!   text ─► Rule ─┘                     ▲ fields of a batch of packets
//!                                       └─► for each packet its rules, in order
//! ```
//!
//! | name | purpose |
//! |---|---|
//! | [`Rule`], [`Action`] | what an operator writes on one line, and what it does (`rule.rs`, `text.rs`) |
//! | [`Fields`] | the fields of a packet that rules are about (`fields.rs`) |
//! | [`AccessList`] | rules in order, with an end (`list.rs`) |
//! | [`InstalledList`] | a list with the state that workers share (`installed.rs`) |
//! | [`Classifier`] | the rules of one address family, compiled (`classifier.rs`) |
//! | [`Matcher`] | a batch of packets that is classified (`matcher.rs`) |
//! | [`RuleCounters`] | packets and bytes by rule (`counters.rs`) |
//! | [`Policer`] | the token bucket of a rule (`policer.rs`) |
//! | [`nft`] | the same list for the kernel's nftables (`nft.rs`) |
//!
//! The rules of a list are examined in order. `permit` and `deny` end the examination; `count`,
//! `police`, `mirror` and `sample` act on the packet, and it goes on to the next rule. A packet that
//! no rule ends is permitted or denied by the list's default.
//!
//! [`Rule::matches`] is the meaning of a rule, and its slow twin: the classifier gives the same rules
//! in the same order, at a cost that hardly depends on their number.

#![forbid(unsafe_code)]

mod address_bits;
mod addresses;
mod classifier;
mod counters;
mod described;
mod dimension;
mod field;
mod fields;
mod filter;
mod installed;
mod list;
mod matcher;
pub mod nft;
mod policer;
mod ranges;
mod rows;
mod rule;
mod text;

pub use address_bits::AddressBits;
pub use addresses::Addresses;
pub use classifier::{Classifier, MOST_RULES};
pub use counters::{RuleCount, RuleCounters};
pub use described::DescribedPacket;
pub use field::{Field, FragmentKind};
pub use fields::{Fields, PacketFamily};
pub use installed::InstalledList;
pub use list::AccessList;
pub use matcher::Matcher;
pub use policer::Policer;
pub use ranges::Ranges;
pub use rule::{Action, FragmentMatch, Rate, Rule, TcpFlags};
pub use text::RuleError;
