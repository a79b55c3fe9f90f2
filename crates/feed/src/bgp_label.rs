//! The labels of BGP routes: a next hop, the AS that originated the route, or both.
//!
//! Readers make them ([`Labels::intern_route`](crate::Labels::intern_route)) or find them in text tables; MRT and
//! `bgpdump -m` have places for these parts, and for no other text.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::WriteError;
use crate::prefix::AnyPrefix;
use crate::routing_table::RoutingTable;

/// The parts of a label that a BGP route has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BgpLabel {
    pub(crate) next_hop: Option<IpAddr>,
    /// The AS that originated the route, or the members of an AS_SET.
    pub(crate) origins: Vec<u32>,
}

impl BgpLabel {
    /// Reads a label: `192.0.2.1`, `64500`, `192.0.2.1 64500`, `{64500,64501}`, `64500_64501` or nothing.
    pub(crate) fn parse(label: &str) -> Option<Self> {
        let mut parsed = Self::default();
        for (at, word) in label.split_ascii_whitespace().enumerate() {
            match (at, word.parse()) {
                (0, Ok(address)) => parsed.next_hop = Some(address),
                _ if parsed.origins.is_empty() => parsed.origins = origins(word)?,
                _ => return None,
            }
        }
        Some(parsed)
    }

    /// Returns the next hop of a route, or the address that stands for none.
    pub(crate) fn next_hop_of(&self, prefix: &AnyPrefix) -> IpAddr {
        self.next_hop.unwrap_or(match prefix {
            AnyPrefix::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            AnyPrefix::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        })
    }
}

/// Reads one AS number or several, at most the 255 of a segment.
fn origins(word: &str) -> Option<Vec<u32>> {
    let list = word.strip_prefix('{').and_then(|word| word.strip_suffix('}')).unwrap_or(word);
    let origins: Option<Vec<u32>> = list.split([',', '_']).map(|asn| asn.parse().ok()).collect();
    origins.filter(|origins| origins.len() <= 255)
}

/// Returns the parts of the label of each route; an error names the first prefix whose label has others.
pub(crate) fn bgp_labels(table: &RoutingTable) -> Result<Vec<BgpLabel>, WriteError> {
    let parsed: Vec<Option<BgpLabel>> =
        table.labels.iter().map(|(_, label)| BgpLabel::parse(label)).collect();
    table.each_route(|prefix, label| match parsed[label.0 as usize] {
        Some(_) => Ok(()),
        None => {
            let label = table.labels.get(label);
            let what = format!("label {label:?} is neither a next hop nor the AS of an origin");
            Err(WriteError::route(prefix, what))
        }
    })?;
    Ok(parsed.into_iter().map(Option::unwrap_or_default).collect())
}

#[cfg(test)]
mod tests {
    use super::BgpLabel;

    #[test]
    fn label_of_a_bgp_route_has_a_next_hop_and_origins() {
        let parts = |label| BgpLabel::parse(label).map(|l| (l.next_hop, l.origins));
        let address = Some("192.0.2.1".parse().unwrap());
        assert_eq!(parts("192.0.2.1"), Some((address, vec![])));
        assert_eq!(parts("192.0.2.1 64500"), Some((address, vec![64500])));
        assert_eq!(parts("64500"), Some((None, vec![64500])));
        assert_eq!(parts("{64500,64501}"), Some((None, vec![64500, 64501])));
        assert_eq!(parts("64500_4200000000"), Some((None, vec![64500, 4_200_000_000])));
        assert_eq!(parts(""), Some((None, vec![])));
        for label in ["west", "192.0.2.1,192.0.2.2", "192.0.2.1 192.0.2.2", "1 2", "dev eth0", "{1"]
        {
            assert_eq!(parts(label), None, "{label}");
        }
    }
}
