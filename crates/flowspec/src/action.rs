//! Actions: what the extended communities of a flow specification demand.
//!
//! | community | action |
//! |---|---|
//! | 0x8006, 0x800c | bytes a second, packets a second; 0: none passes |
//! | 0x8007 | T: the specifications behind this one apply, too; S, a sample, is ignored |
//! | 0x8009 | the DSCP that packets get |
//! | 0x8008, 0x8108, 0x8208 | redirection to a VRF: not supported |
//! | 0x0800, 0x010c, 0x000c | redirection to an address: not supported |
//!
//! Source: RFC 8955, section 7; RFC 7674; draft-ietf-idr-flowspec-redirect-ip.

use acl::Rate;

/// The actions of a flow specification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions {
    /// No packet passes.
    pub(crate) is_discard: bool,
    /// The rates beyond which packets are dropped.
    pub(crate) rates: Vec<Rate>,
    /// The DSCP that packets get.
    pub(crate) dscp: Option<u8>,
    /// Whether specifications behind this one apply, too.
    pub(crate) continues: bool,
    /// An action that this router does not have.
    pub(crate) unsupported: Option<&'static str>,
}

impl Actions {
    /// Reads them from the extended communities of an update.
    pub(crate) fn new(communities: &[[u8; 8]]) -> Self {
        let mut actions = Self::default();
        for &[high, low, _, _, a, b, c, d] in communities {
            let rate = f32::from_bits(u32::from_be_bytes([a, b, c, d]));
            match (high, low) {
                (0x80, 0x06) => actions.add_rate(rate, |rate| Rate::Bits((rate * 8.0) as u64)),
                (0x80, 0x0c) => actions.add_rate(rate, |rate| Rate::Packets(rate as u64)),
                (0x80, 0x07) => actions.continues |= d & 1 != 0,
                (0x80..=0x82, 0x08) => actions.unsupported = Some("redirection to a VRF"),
                (0x80, 0x09) => actions.dscp = Some(d & 0x3f),
                (0x08, 0x00) | (0x00 | 0x01, 0x0c) => {
                    actions.unsupported = Some("redirection to an address");
                }
                _ => {}
            }
        }
        actions
    }

    fn add_rate(&mut self, rate: f32, make: impl Fn(f32) -> Rate) {
        match rate {
            // Negative rates and those that are no number count as 0 (RFC 8955, section 7.1).
            _ if rate.is_nan() || rate < 1.0 => self.is_discard = true,
            f32::INFINITY => {}
            _ => self.rates.push(make(rate)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn community(kind: u16, value: u32) -> [u8; 8] {
        let [high, low] = kind.to_be_bytes();
        let [a, b, c, d] = value.to_be_bytes();
        [high, low, 0, 7, a, b, c, d]
    }

    #[test]
    fn communities_have_their_actions() {
        let rate = |kind, rate: f32| Actions::new(&[community(kind, rate.to_bits())]);
        for none in [0.0, -1.0, f32::NAN, 0.5, f32::NEG_INFINITY] {
            let expected = Actions { is_discard: true, ..Actions::default() };
            assert_eq!(rate(0x8006, none), expected);
            assert_eq!(rate(0x800c, none), expected);
        }
        assert_eq!(rate(0x8006, f32::INFINITY), Actions::default());
        assert_eq!(rate(0x8006, 1000.0).rates, [Rate::Bits(8000)]);
        assert_eq!(rate(0x800c, 1000.0).rates, [Rate::Packets(1000)]);
        let both = [community(0x8006, 1e9f32.to_bits()), community(0x800c, 5.0f32.to_bits())];
        assert_eq!(Actions::new(&both).rates, [Rate::Bits(8_000_000_000), Rate::Packets(5)]);
        assert!(Actions::new(&[community(0x8007, 1)]).continues);
        assert!(!Actions::new(&[community(0x8007, 2)]).continues);
        assert_eq!(Actions::new(&[community(0x8009, 0xffff_ffee)]).dscp, Some(46));
        for kind in [0x8008, 0x8108, 0x8208, 0x0800, 0x010c, 0x000c] {
            assert!(Actions::new(&[community(kind, 1)]).unsupported.is_some(), "{kind:#x}");
        }
        // A route target.
        assert_eq!(Actions::new(&[community(0x0002, 1)]), Actions::default());
    }
}
