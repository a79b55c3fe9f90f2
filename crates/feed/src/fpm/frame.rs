//! The frames of the Forwarding Plane Manager protocol.
//!
//! ```text
//! 0         1      2        4                          length
//! ┌─────────┬──────┬────────┬──────────────────────────┐
//! │ version │ type │ length │ netlink messages         │ next …
//! └─────────┴──────┴────────┴──────────────────────────┘
//!   1         1      big-endian, of the whole frame
//! ```
//!
//! From FRR's `fpm/fpm.h`, where it is documented. A stream has no point of resynchronization:
//! after an invalid header nothing that follows can be trusted, and the connection has to be
//! closed. FRR opens another and sends everything again.

use crate::netlink::Damage;

/// The bytes before the messages.
pub(super) const HEADER: usize = 4;
const VERSION: u8 = 1;
const NETLINK: u8 = 1;
const PROTOBUF: u8 = 2;

/// Returns the length and the messages of the first frame in `bytes`; `None` if it is incomplete.
pub(super) fn first(bytes: &[u8]) -> Result<Option<(usize, &[u8])>, Damage> {
    let Some((&[version, kind, high, low], _)) = bytes.split_first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let damage = |at, what| Err(Damage { at, what });
    if version != VERSION {
        return damage(0, "an FPM frame of another version than 1");
    }
    match kind {
        NETLINK => {}
        PROTOBUF => {
            return damage(1, "an FPM frame of protobuf (load zebra's dplane_fpm_nl instead)");
        }
        _ => return damage(1, "an FPM frame of an unknown type"),
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length < HEADER {
        return damage(2, "an FPM frame that says it is shorter than its header");
    }
    Ok(bytes.get(HEADER..length).map(|content| (length, content)))
}

#[cfg(test)]
mod tests {
    use super::first;

    #[test]
    fn frame_is_returned_once_complete() {
        let bytes = [1, 1, 0, 6, 7, 8, 1];
        for length in 0..6 {
            assert_eq!(first(&bytes[..length]), Ok(None), "{length}");
        }
        assert_eq!(first(&bytes), Ok(Some((6, &[7, 8][..]))));
        assert_eq!(first(&[1, 1, 0, 4]), Ok(Some((4, &[][..]))));
    }

    #[test]
    fn invalid_header_is_damage() {
        for (bytes, at) in
            [([0, 1, 0, 4], 0), ([1, 2, 0, 4], 1), ([1, 9, 0, 4], 1), ([1, 1, 0, 3], 2)]
        {
            assert_eq!(first(&bytes).unwrap_err().at, at);
        }
    }
}
