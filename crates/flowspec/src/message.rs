//! Messages: those parts of BGP that a speaker needs which only receives flow specifications.
//!
//! ```text
//!   marker: 16 × 0xff │ length: 2 │ type: 1 │ OPEN, UPDATE, NOTIFICATION or KEEPALIVE
//! ```
//!
//! An OPEN has the capabilities of RFC 4760 (address families) and RFC 6793 (AS numbers of four octets). Of an
//! UPDATE the attributes MP_REACH_NLRI, MP_UNREACH_NLRI and EXTENDED COMMUNITIES are read, the others are left
//! to the router that sends it. Sources: RFC 4271, section 4; RFC 5492; RFC 9072; RFC 8955, section 4.

use crate::flow::{FlowFamily, FlowSpec, ReadFlow};
use crate::octets::Octets;

const MARKER: [u8; 16] = [0xff; 16];
const HEADER: usize = 19;
const LONGEST: usize = 4096;

const OPEN: u8 = 1;
const UPDATE: u8 = 2;
const NOTIFICATION: u8 = 3;
const KEEPALIVE: u8 = 4;
const ROUTE_REFRESH: u8 = 5;

/// Stands for an AS number that has four octets (RFC 6793).
const AS_TRANS: u16 = 23456;
const SAFI_FLOWSPEC: u8 = 133;

const PARAMETER_CAPABILITIES: u8 = 2;
const PARAMETER_EXTENDED: u8 = 255;
const CAPABILITY_MULTIPROTOCOL: u8 = 1;
const CAPABILITY_FOUR_OCTET_AS: u8 = 65;

const ATTRIBUTE_EXTENDED_LENGTH: u8 = 0x10;
const MP_REACH_NLRI: u8 = 14;
const MP_UNREACH_NLRI: u8 = 15;
const EXTENDED_COMMUNITIES: u8 = 16;

/// An error that ends a session (RFC 4271, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The error code.
    pub code: u8,
    /// Its subcode.
    pub subcode: u8,
}

impl Notification {
    pub(crate) const NOT_SYNCHRONIZED: Self = Self::new(1, 1);
    pub(crate) const BAD_LENGTH: Self = Self::new(1, 2);
    pub(crate) const BAD_TYPE: Self = Self::new(1, 3);
    pub(crate) const OPEN_MALFORMED: Self = Self::new(2, 0);
    pub(crate) const BAD_VERSION: Self = Self::new(2, 1);
    pub(crate) const BAD_PEER_AS: Self = Self::new(2, 2);
    pub(crate) const BAD_IDENTIFIER: Self = Self::new(2, 3);
    pub(crate) const BAD_HOLD_TIME: Self = Self::new(2, 6);
    pub(crate) const UNSUPPORTED_CAPABILITY: Self = Self::new(2, 7);
    pub(crate) const ATTRIBUTES_MALFORMED: Self = Self::new(3, 1);
    pub(crate) const BAD_NLRI: Self = Self::new(3, 9);
    pub(crate) const HOLD_TIMER_EXPIRED: Self = Self::new(4, 0);
    pub(crate) const UNEXPECTED: Self = Self::new(5, 0);
    pub(crate) const SHUTDOWN: Self = Self::new(6, 2);
    pub(crate) const OUT_OF_RESOURCES: Self = Self::new(6, 8);

    const fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode }
    }

    /// Appends it as a message.
    pub(crate) fn encode(self, to: &mut Vec<u8>) {
        append(to, NOTIFICATION, &[self.code, self.subcode]);
    }
}

impl std::fmt::Display for Notification {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match (self.code, self.subcode) {
            (1, 1) => "connection not synchronized",
            (1, 2) => "bad message length",
            (1, 3) => "bad message type",
            (2, 1) => "unsupported version number",
            (2, 2) => "bad peer AS",
            (2, 3) => "bad BGP identifier",
            (2, 6) => "unacceptable hold time",
            (2, 7) => "unsupported capability",
            (2, _) => "bad OPEN message",
            (3, 1) => "malformed attribute list",
            (3, _) => "bad UPDATE message",
            (4, _) => "hold timer expired",
            (5, _) => "unexpected message",
            (6, 1) => "maximum number of prefixes reached",
            (6, 2) => "administrative shutdown",
            (6, 3) => "peer de-configured",
            (6, 4) => "administrative reset",
            (6, 5) => "connection rejected",
            (6, 6) => "other configuration change",
            (6, 7) => "connection collision",
            (6, 8) => "out of resources",
            (6, _) => "cease",
            _ => "unknown error",
        };
        write!(f, "{text} ({}/{})", self.code, self.subcode)
    }
}

/// The part of an OPEN that concerns a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// The AS of its sender.
    pub(crate) my_as: u32,
    /// In seconds.
    pub(crate) hold_time: u16,
    pub(crate) identifier: u32,
    /// Whether the peer sends flow specifications of IPv4, of IPv6.
    pub(crate) has_flowspec: [bool; 2],
}

/// The flow specifications that an UPDATE announces and withdraws.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    pub(crate) announced: Vec<FlowSpec>,
    pub(crate) withdrawn: Vec<FlowSpec>,
    /// The extended communities of those announced.
    pub(crate) communities: Vec<[u8; 8]>,
    /// The number of malformed flow specifications, which were skipped.
    pub(crate) malformed: u32,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Open(Open),
    Update(Update),
    Notification(Notification),
    Keepalive,
    RouteRefresh,
}

fn append(to: &mut Vec<u8>, kind: u8, body: &[u8]) {
    to.extend(MARKER);
    to.extend(((HEADER + body.len()) as u16).to_be_bytes());
    to.push(kind);
    to.extend(body);
}

/// Appends a KEEPALIVE.
pub(crate) fn append_keepalive(to: &mut Vec<u8>) {
    append(to, KEEPALIVE, &[]);
}

impl Open {
    /// Appends it as a message.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        let mut capabilities = Vec::new();
        for (afi, has) in [1, 2].into_iter().zip(self.has_flowspec) {
            if has {
                capabilities.extend([CAPABILITY_MULTIPROTOCOL, 4, 0, afi, 0, SAFI_FLOWSPEC]);
            }
        }
        capabilities.extend([CAPABILITY_FOUR_OCTET_AS, 4]);
        capabilities.extend(self.my_as.to_be_bytes());
        let mut body = vec![4];
        body.extend(u16::try_from(self.my_as).unwrap_or(AS_TRANS).to_be_bytes());
        body.extend(self.hold_time.to_be_bytes());
        body.extend(self.identifier.to_be_bytes());
        body.extend([
            capabilities.len() as u8 + 2,
            PARAMETER_CAPABILITIES,
            capabilities.len() as u8,
        ]);
        body.extend(capabilities);
        append(to, OPEN, &body);
    }

    fn decode(mut body: Octets<'_>) -> Result<Self, Notification> {
        let version = body.u8().ok_or(Notification::BAD_LENGTH)?;
        if version != 4 {
            return Err(Notification::BAD_VERSION);
        }
        let short = Notification::BAD_LENGTH;
        let mut open = Self {
            my_as: body.u16().ok_or(short)?.into(),
            hold_time: body.u16().ok_or(short)?,
            identifier: body.u32().ok_or(short)?,
            has_flowspec: [false; 2],
        };
        let malformed = Notification::OPEN_MALFORMED;
        let mut length = body.u8().ok_or(short)?.into();
        let mut length_octets = 1;
        // RFC 9072: lengths of two octets, behind a parameter of this type.
        if length == 255 && body.0.first() == Some(&PARAMETER_EXTENDED) {
            body.u8();
            (length, length_octets) = (body.u16().ok_or(malformed)?.into(), 2);
        }
        let mut parameters = Octets(body.take(length).ok_or(malformed)?);
        while let Some(kind) = parameters.u8() {
            let length = parameters.number(length_octets).ok_or(malformed)?;
            let mut value = Octets(parameters.take(length as usize).ok_or(malformed)?);
            while kind == PARAMETER_CAPABILITIES && !value.is_empty() {
                let (Some(code), Some(length)) = (value.u8(), value.u8()) else {
                    return Err(malformed);
                };
                open.add_capability(code, Octets(value.take(length.into()).ok_or(malformed)?));
            }
        }
        Ok(open)
    }

    fn add_capability(&mut self, code: u8, mut value: Octets<'_>) {
        match code {
            CAPABILITY_FOUR_OCTET_AS => self.my_as = value.u32().unwrap_or(self.my_as),
            CAPABILITY_MULTIPROTOCOL => {
                if let Some(family) = family(&mut value, 1) {
                    self.has_flowspec[family as usize] = true;
                }
            }
            _ => {}
        }
    }
}

/// Reads an address family, which is one of flow specifications; `reserved` octets are between its parts.
fn family(octets: &mut Octets<'_>, reserved: usize) -> Option<FlowFamily> {
    let afi = octets.u16()?;
    octets.take(reserved)?;
    match (afi, octets.u8()?) {
        (1, SAFI_FLOWSPEC) => Some(FlowFamily::V4),
        (2, SAFI_FLOWSPEC) => Some(FlowFamily::V6),
        _ => None,
    }
}

impl Update {
    fn decode(mut body: Octets<'_>) -> Result<Self, Notification> {
        let malformed = Notification::ATTRIBUTES_MALFORMED;
        let withdrawn = body.u16().ok_or(malformed)?;
        body.take(withdrawn.into()).ok_or(malformed)?;
        let length = body.u16().ok_or(malformed)?;
        let mut attributes = Octets(body.take(length.into()).ok_or(malformed)?);
        let mut update = Self::default();
        while let Some(flags) = attributes.u8() {
            let kind = attributes.u8().ok_or(malformed)?;
            let octets = if flags & ATTRIBUTE_EXTENDED_LENGTH != 0 { 2 } else { 1 };
            let length = attributes.number(octets).ok_or(malformed)?;
            let mut value = Octets(attributes.take(length as usize).ok_or(malformed)?);
            match kind {
                MP_REACH_NLRI => {
                    let Some(family) = family(&mut value, 0) else { continue };
                    let next_hop = value.u8().ok_or(malformed)?;
                    // And an octet that is reserved.
                    value.take(usize::from(next_hop) + 1).ok_or(malformed)?;
                    read_flows(value, family, &mut update.announced, &mut update.malformed)?;
                }
                MP_UNREACH_NLRI => {
                    let Some(family) = family(&mut value, 0) else { continue };
                    read_flows(value, family, &mut update.withdrawn, &mut update.malformed)?;
                }
                EXTENDED_COMMUNITIES => {
                    let (communities, rest) = value.0.as_chunks();
                    if !rest.is_empty() {
                        return Err(malformed);
                    }
                    update.communities = communities.to_vec();
                }
                _ => {}
            }
        }
        Ok(update)
    }
}

fn read_flows(
    mut octets: Octets<'_>,
    family: FlowFamily,
    to: &mut Vec<FlowSpec>,
    malformed: &mut u32,
) -> Result<(), Notification> {
    while !octets.is_empty() {
        match FlowSpec::read(&mut octets, family) {
            ReadFlow::Flow(flow) => to.push(flow),
            ReadFlow::Malformed => *malformed += 1,
            ReadFlow::Truncated => return Err(Notification::BAD_NLRI),
        }
    }
    Ok(())
}

/// Reads the message that `bytes` begins with; `None` if more bytes are needed. Returns its length, too.
///
/// # Errors
///
/// The notification for the sender.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Message, usize)>, Notification> {
    let mut octets = Octets(bytes);
    let Some(marker) = octets.take(MARKER.len()) else { return Ok(None) };
    if marker != MARKER {
        return Err(Notification::NOT_SYNCHRONIZED);
    }
    let (Some(length), Some(kind)) = (octets.u16(), octets.u8()) else { return Ok(None) };
    let length = usize::from(length);
    if !(HEADER..=LONGEST).contains(&length) {
        return Err(Notification::BAD_LENGTH);
    }
    let Some(body) = octets.take(length - HEADER) else { return Ok(None) };
    let body = Octets(body);
    let message = match kind {
        OPEN => Message::Open(Open::decode(body)?),
        UPDATE => Message::Update(Update::decode(body)?),
        NOTIFICATION => match body.0 {
            [code, subcode, ..] => {
                Message::Notification(Notification { code: *code, subcode: *subcode })
            }
            _ => return Err(Notification::BAD_LENGTH),
        },
        KEEPALIVE if body.is_empty() => Message::Keepalive,
        KEEPALIVE => return Err(Notification::BAD_LENGTH),
        ROUTE_REFRESH => Message::RouteRefresh,
        _ => return Err(Notification::BAD_TYPE),
    };
    Ok(Some((message, length)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::flow::tests::flow;

    /// Makes an UPDATE with these attributes: type and value.
    pub(crate) fn update(attributes: &[(u8, &[u8])]) -> Vec<u8> {
        let mut list = Vec::new();
        for (kind, value) in attributes {
            list.extend([0x90, *kind]);
            list.extend((value.len() as u16).to_be_bytes());
            list.extend(*value);
        }
        let mut body = vec![0, 0];
        body.extend((list.len() as u16).to_be_bytes());
        body.extend(list);
        let mut message = Vec::new();
        append(&mut message, UPDATE, &body);
        message
    }

    #[test]
    fn open_that_is_sent_is_read_again() {
        for my_as in [65001, 4_200_000_000] {
            let open =
                Open { my_as, hold_time: 90, identifier: 0x0a00_0001, has_flowspec: [true, true] };
            let mut bytes = Vec::new();
            open.encode(&mut bytes);
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes[..len]), Ok(None));
            }
            assert_eq!(decode(&bytes), Ok(Some((Message::Open(open), bytes.len()))));
        }
    }

    #[test]
    fn capabilities_of_other_forms_of_open_are_read() {
        let mut classic = Vec::new();
        // Two parameters, one of them with an unknown capability.
        let body = [
            4, 0xfd, 0xe9, 0, 90, 10, 0, 0, 1, 16, 2, 8, 70, 0, 1, 4, 0, 1, 0, 133, 2, 4, 2, 0, 99,
            0,
        ];
        append(&mut classic, OPEN, &body);
        let mut extended = Vec::new();
        let body = [4, 0xfd, 0xe9, 0, 90, 10, 0, 0, 1, 255, 255, 0, 9, 2, 0, 6, 1, 4, 0, 1, 0, 133];
        append(&mut extended, OPEN, &body);
        for bytes in [classic, extended] {
            let open = decode(&bytes).expect("an OPEN").expect("a whole one").0;
            let expected = Open {
                my_as: 65001,
                hold_time: 90,
                identifier: 0x0a00_0001,
                has_flowspec: [true, false],
            };
            assert_eq!(open, Message::Open(expected));
        }
    }

    #[test]
    fn update_has_its_flows_and_communities() {
        let bytes = update(&[
            (1, &[0]),
            (14, &[0, 1, 133, 0, 0, 3, 3, 0x81, 6, 2, 99, 0, 5, 1, 24, 192, 0, 2]),
            (15, &[0, 2, 133, 3, 3, 0x81, 17]),
            (16, &[0x80, 6, 0, 0, 0, 0, 0, 0]),
            // Prefixes of another family.
            (15, &[0, 1, 1, 24, 10, 0, 0]),
        ]);
        let expected = Update {
            announced: vec![
                flow(FlowFamily::V4, &[3, 0x81, 6]),
                flow(FlowFamily::V4, &[1, 24, 192, 0, 2]),
            ],
            withdrawn: vec![flow(FlowFamily::V6, &[3, 0x81, 17])],
            communities: vec![[0x80, 6, 0, 0, 0, 0, 0, 0]],
            malformed: 1,
        };
        assert_eq!(decode(&bytes), Ok(Some((Message::Update(expected), bytes.len()))));
    }

    #[test]
    fn malformed_message_has_its_notification() {
        let message = |kind, body: &[u8]| {
            let mut bytes = Vec::new();
            append(&mut bytes, kind, body);
            bytes
        };
        let mut unsynchronized = message(KEEPALIVE, &[]);
        unsynchronized[3] = 0;
        let mut long = message(KEEPALIVE, &[]);
        long[16] = 0x10;
        long[17] = 1;
        for (bytes, expected) in [
            (unsynchronized, Notification::NOT_SYNCHRONIZED),
            (long, Notification::BAD_LENGTH),
            (message(9, &[]), Notification::BAD_TYPE),
            (message(KEEPALIVE, &[0]), Notification::BAD_LENGTH),
            (message(NOTIFICATION, &[6]), Notification::BAD_LENGTH),
            (message(OPEN, &[3, 0, 0]), Notification::BAD_VERSION),
            (message(OPEN, &[4, 0, 1]), Notification::BAD_LENGTH),
            (
                message(OPEN, &[4, 0, 1, 0, 90, 1, 1, 1, 1, 4, 2, 3, 1, 4]),
                Notification::OPEN_MALFORMED,
            ),
            (message(UPDATE, &[0, 9, 0, 0]), Notification::ATTRIBUTES_MALFORMED),
            (message(UPDATE, &[0, 0, 0, 3, 0x90, 14, 0]), Notification::ATTRIBUTES_MALFORMED),
            (update(&[(14, &[0, 1, 133, 4, 0])]), Notification::ATTRIBUTES_MALFORMED),
            (update(&[(14, &[0, 1, 133, 0, 0, 9, 3])]), Notification::BAD_NLRI),
            (update(&[(16, &[0; 9])]), Notification::ATTRIBUTES_MALFORMED),
        ] {
            assert_eq!(decode(&bytes), Err(expected), "{bytes:?}");
        }
    }

    #[test]
    fn random_bytes_in_messages_are_read_or_refused() {
        let seed = update(&[
            (14, &[0, 1, 133, 0, 0, 3, 3, 0x81, 6, 5, 1, 24, 192, 0, 2]),
            (16, &[0x80, 6, 0, 0, 0, 0, 0, 0]),
        ]);
        let mut state = 1u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize
        };
        let (mut read, mut refused) = (0, 0);
        for _ in 0..100_000 {
            let mut bytes = seed.clone();
            for _ in 0..=random() % 4 {
                let at = HEADER - 1 + random() % (bytes.len() - HEADER + 1);
                bytes[at] = random() as u8;
            }
            match decode(&bytes) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(read > 10_000 && refused > 10_000, "{read} read, {refused} refused");
    }
}
