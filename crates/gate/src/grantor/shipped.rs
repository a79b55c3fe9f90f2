//! The shipped policies, as sources in Lua: to use unchanged or as a starting point.

/// A policy's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicySource {
    /// Its name: the file's, without the extension.
    pub name: &'static str,
    /// The lists that it names.
    pub lists: &'static [&'static str],
    /// The file in Lua.
    pub text: &'static str,
}

/// All shipped policies.
pub const POLICIES: [PolicySource; 5] = [
    PolicySource {
        name: "lists",
        lists: &["allow", "deny"],
        text: include_str!("../../policies/lists.lua"),
    },
    PolicySource {
        name: "rates",
        lists: &["rates"],
        text: include_str!("../../policies/rates.lua"),
    },
    PolicySource {
        name: "reputation",
        lists: &["asn"],
        text: include_str!("../../policies/reputation.lua"),
    },
    PolicySource { name: "aimd", lists: &[], text: include_str!("../../policies/aimd.lua") },
    PolicySource {
        name: "handshake",
        lists: &["services"],
        text: include_str!("../../policies/handshake.lua"),
    },
];
