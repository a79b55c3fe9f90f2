//! SYN cookies: a TCP client proves its address before any state is kept for it.
//!
//! ```text
//!   client                          gate                             grantor
//!     SYN seq=x          ──────────►  (table under pressure)
//!     SYN+ACK ack=cookie ◄──────────  cookie ≠ x + 1: unacceptable on purpose
//!     RST seq=cookie     ──────────►  valid: the flow gets its entry
//!     SYN seq=x          ──────────►  a request like any ──────────────►
//! ```
//!
//! A client in SYN-SENT that receives an acknowledgement of data that it never sent answers with a
//! reset that carries the same number, and stays in its state (RFC 9293, 3.10.7.3: `If the ACK bit
//! is set: If SEG.ACK =< ISS or SEG.ACK > SND.NXT, send a reset <SEQ=SEG.ACK><CTL=RST>`). So only
//! the host that has the address can return the number. The client then retransmits its SYN, and
//! the connection is between it and the server: no sequence number is ever translated, as a gate
//! may lose its state at any moment.
//!
//! ```text
//!   cookie   lower 32 bits of SipHash-2-4(key of the slot, addresses | ports and version)
//!   slot     now >> 32: 4.3 s          key   SipHash-2-4(secret, slot | 0), (secret, slot | 1)
//! ```
//!
//! **No state is kept for a challenged source.** A cookie is valid in its own time slot and the
//! next, so for 4.3 to 8.6 seconds, and each slot has a key of its own (Aumasson and Bernstein,
//! "SipHash: a fast short-input PRF", INDOCRYPT 2012). The SYN's sequence number is not in it,
//! because the reset does not carry it. A guess succeeds once in 2^31 packets.
//!
//! **The secret** is rotated ([`Secrets::rotate`]): from a slot on that no worker has reached yet,
//! so that all workers, which have to recognize each other's cookies, change with the same slot.
//! Cookies of the last secret stay valid for as long as any cookie does.
//!
//! **The cookie must not be acceptable** to the SYN that it answers: a number from x + 1 to x + 1 +
//! the data that came with it would establish a connection without a server. Such a SYN, one in
//! 2^32 and less than one in 65535 with any amount of data, is not answered.
//!
//! **The rate of answers is limited**, and resets are checked only until one slot after the last
//! answer. An answer is never longer than its SYN.
//!
//! O(1): about forty rounds of SipHash for a cookie, eighty for a check.

use core::fmt;
use core::hash::Hasher;

use fib::Reader;
use siphasher::sip::SipHasher24;

use crate::flow::Flow;
use crate::limit::bucket::{Bucket, MAX_BURST};

/// The length of a time slot, in nanoseconds, as a power of two.
const SLOT: u32 = 32;
/// The bytes that an answer takes from the bucket, which counts bytes.
const PRICE: u32 = 1000;
/// Maximum number of answers a second: the limit of a bucket.
pub const MAX_ANSWERS: u32 = 100_000_000;

/// The key of cookies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u64; 2]);

impl Secret {
    /// Creates a secret from a random generator, which must not be guessable from outside.
    pub fn new(mut random: impl FnMut() -> u64) -> Self {
        Self([random(), random()])
    }

    /// Creates a secret from the operating system's random generator.
    pub fn random() -> Self {
        Self::new(crate::random::word)
    }
}

impl fmt::Debug for Secret {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The secret in force, and the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secrets {
    current: Secret,
    previous: Secret,
    /// The slot in which the current one takes effect.
    from: u64,
}

impl Secrets {
    /// Starts with one secret.
    pub fn new(secret: Secret) -> Self {
        Self { current: secret, previous: secret, from: 0 }
    }

    /// Returns the secrets as words, for another process.
    pub fn to_words(&self) -> [u64; 5] {
        let Self { current: Secret([a, b]), previous: Secret([c, d]), from } = *self;
        [a, b, c, d, from]
    }

    /// Returns the secrets of these words.
    pub fn from_words([a, b, c, d, from]: [u64; 5]) -> Self {
        Self { current: Secret([a, b]), previous: Secret([c, d]), from }
    }

    /// Returns the secrets with a fresh one, which takes effect two slots after that of `now`.
    #[must_use]
    pub fn rotate(&self, fresh: Secret, now: u64) -> Self {
        Self { current: fresh, previous: self.current, from: (now >> SLOT) + 2 }
    }

    /// Returns the secret of a slot.
    fn of(&self, slot: u64) -> Secret {
        if slot >= self.from { self.current } else { self.previous }
    }
}

/// The parameters of SYN cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieConfig {
    /// The first secret, the same for all workers.
    pub secret: Secret,
    /// Maximum number of answers a second, at most [`MAX_ANSWERS`].
    pub rate: u32,
}

/// The numbers of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// The number that comes back in the reset.
    pub acknowledgement: u32,
    /// The answer's own sequence number, which no host checks.
    pub sequence: u32,
}

/// The fields of a SYN that a cookie needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syn {
    /// Source port and destination port.
    pub ports: u32,
    /// Its sequence number.
    pub sequence: u32,
    /// The bytes of data in it (RFC 7413).
    pub data: u16,
}

/// Makes and verifies cookies.
#[derive(Debug)]
pub struct Cookies {
    secrets: Secrets,
    /// The reader of published secrets, if any.
    published: Option<Reader<Secrets>>,
    /// The slot of the first key; the other is that of the previous slot.
    slot: u64,
    keys: [[u64; 2]; 2],
    rate: Bucket,
    /// The time at which the last issued cookie becomes invalid.
    until: u64,
}

impl Cookies {
    /// Creates the state with these parameters.
    pub fn new(terms: &CookieConfig, now: u64) -> Self {
        let rate = u64::from(terms.rate.min(MAX_ANSWERS)) * u64::from(PRICE);
        let mut cookies = Self {
            secrets: Secrets::new(terms.secret),
            published: None,
            slot: 0,
            keys: [[0; 2]; 2],
            rate: Bucket::new(rate, MAX_BURST, now),
            until: 0,
        };
        cookies.enter_slot(now >> SLOT);
        cookies
    }

    /// Adopts the published secrets at the beginning of each slot.
    pub fn follow(&mut self, published: Reader<Secrets>) {
        self.published = Some(published);
        self.enter_slot(self.slot);
    }

    fn enter_slot(&mut self, slot: u64) {
        if let Some(published) = &mut self.published {
            self.secrets = *published.current();
            // A slot lasts for seconds, for which the publisher need not wait.
            published.idle();
        }
        let secrets = self.secrets;
        let key = |slot| {
            let Secret(secret) = secrets.of(slot);
            [0, 1].map(|half| siphash(secret, &[slot, half]))
        };
        self.slot = slot;
        self.keys = [key(slot), key(slot.wrapping_sub(1))];
    }

    /// Returns whether an issued cookie may still be valid.
    #[inline]
    pub fn is_outstanding(&self, now: u64) -> bool {
        now < self.until
    }

    /// Returns the answer to a SYN of this flow, unless the rate limit is exceeded or the answer
    /// would be acceptable to the client.
    pub fn issue(&mut self, flow: &Flow, syn: &Syn, now: u64) -> Option<Cookie> {
        self.advance(now);
        let [key, _] = self.keys;
        let hash = cookie(key, flow, syn.ports);
        let acknowledgement = hash as u32;
        // The distance from the first number that would be acceptable.
        let beyond = acknowledgement.wrapping_sub(syn.sequence).wrapping_sub(1);
        if beyond <= u32::from(syn.data) || !self.rate.try_take(now, PRICE) {
            return None;
        }
        self.until = (self.slot + 2) << SLOT;
        Some(Cookie { acknowledgement, sequence: (hash >> 32) as u32 })
    }

    /// Returns whether a reset of this flow, from and to these ports, carries the number of a valid
    /// cookie.
    pub fn verify(&mut self, flow: &Flow, ports: u32, number: u32, now: u64) -> bool {
        self.advance(now);
        self.is_outstanding(now)
            && self.keys.iter().any(|key| cookie(*key, flow, ports) as u32 == number)
    }

    #[inline]
    fn advance(&mut self, now: u64) {
        let slot = now >> SLOT;
        // Time that goes back is still of the current slot.
        if slot > self.slot {
            self.enter_slot(slot);
        }
    }
}

/// Returns the keyed hash of a flow and its ports.
fn cookie(key: [u64; 2], flow: &Flow, ports: u32) -> u64 {
    let [a, b, c, d] = flow.to_words();
    match flow.is_v6() {
        true => siphash(key, &[a, b, c, d, 6 << 32 | u64::from(ports)]),
        false => siphash(key, &[a, 4 << 32 | u64::from(ports)]),
    }
}

/// Returns SipHash-2-4 of these words, each as eight bytes, the least significant first.
fn siphash([k0, k1]: [u64; 2], words: &[u64]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(k0, k1);
    words.iter().for_each(|word| hasher.write(&word.to_le_bytes()));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use fib::Publisher;

    use super::{CookieConfig, Cookies, SLOT, Secret, Secrets, Syn, siphash};
    use crate::flow::Flow;

    const SECRET: Secret = Secret([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
    const PORTS: u32 = 40_000 << 16 | 80;

    fn new_cookies(rate: u32) -> Cookies {
        Cookies::new(&CookieConfig { secret: SECRET, rate }, 0)
    }

    fn syn(sequence: u32) -> Syn {
        Syn { ports: PORTS, sequence, data: 0 }
    }

    /// The standard library's SipHash, by other authors.
    #[expect(deprecated, reason = "the only SipHash-2-4 there: an oracle")]
    fn oracle_siphash(key: [u64; 2], bytes: &[u8]) -> u64 {
        use std::hash::Hasher;
        let mut hasher = std::hash::SipHasher::new_with_keys(key[0], key[1]);
        hasher.write(bytes);
        hasher.finish()
    }

    /// The oracle of cookies: computed from bytes, by another implementation, without state.
    fn expected_cookie(flow: &Flow, ports: u32, slot: u64) -> u32 {
        let half = |half: u64| {
            oracle_siphash(SECRET.0, &[slot.to_le_bytes(), half.to_le_bytes()].concat())
        };
        let mut bytes: Vec<u8> = Vec::new();
        match flow.pair() {
            crate::flow::Pair::V4 { src, dst } => {
                bytes.extend(dst.to_le_bytes());
                bytes.extend(src.to_le_bytes());
            }
            crate::flow::Pair::V6 { src, dst } => {
                for address in [src, dst] {
                    bytes.extend(((address >> 64) as u64).to_le_bytes());
                    bytes.extend((address as u64).to_le_bytes());
                }
            }
        }
        bytes.extend(ports.to_le_bytes());
        bytes.extend(if flow.is_v6() { 6u32 } else { 4 }.to_le_bytes());
        oracle_siphash([half(0), half(1)], &bytes) as u32
    }

    /// The reference implementation's vectors for whole words.
    #[test]
    fn siphash_matches_the_reference_vectors() {
        let key = SECRET.0;
        assert_eq!(siphash(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash(key, &[key[0]]), 0x93f5_f579_9a93_2462);
        assert_eq!(siphash(key, &[key[0], key[1]]), 0x3f2a_cc7f_57c2_9bdb);
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let words: Vec<u64> = (0..rng.usize(..9)).map(|_| rng.u64(..)).collect();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let key = [rng.u64(..), rng.u64(..)];
            assert_eq!(siphash(key, &words), oracle_siphash(key, &bytes));
        }
    }

    #[test]
    fn cookie_is_valid_in_its_slot_and_the_next() {
        let mut rng = fastrand::Rng::with_seed(2);
        let mut cookies = new_cookies(u32::MAX);
        let mut now = 3u64 << SLOT;
        let mut good = [0u32; 4];
        for _ in 0..50_000 {
            let magnitude = rng.u32(10..34);
            now += rng.u64(..1 << magnitude);
            let flow = match rng.bool() {
                true => Flow::v4(rng.u32(..), rng.u32(..)),
                false => Flow::v6(rng.u128(..), rng.u128(..)),
            };
            let segment = Syn { ports: rng.u32(..), sequence: rng.u32(..), data: rng.u16(..) };
            let slot = now >> SLOT;
            let expect = expected_cookie(&flow, segment.ports, slot);
            let beyond = expect.wrapping_sub(segment.sequence);
            let issued = cookies.issue(&flow, &segment, now).map(|cookie| cookie.acknowledgement);
            assert_eq!(
                issued,
                (beyond == 0 || beyond > 1 + u32::from(segment.data)).then_some(expect)
            );
            let Some(number) = issued else { continue };
            // Some slots later, for another connection, or with another number.
            let later =
                now + (rng.u64(..4) << SLOT) - rng.u64(..1 << SLOT).min(now & ((1 << SLOT) - 1));
            let (ports, number) = match rng.u8(..8) {
                0 => (segment.ports ^ 1 << rng.u32(..32), number),
                1 => (segment.ports, number ^ 1 << rng.u32(..32)),
                _ => (segment.ports, number),
            };
            let slots = [later >> SLOT, (later >> SLOT) - 1];
            let is_valid = slots.iter().any(|slot| expected_cookie(&flow, ports, *slot) == number);
            // Resets are checked only while a cookie is outstanding.
            let mut fresh = new_cookies(u32::MAX);
            fresh.issue(&flow, &segment, now);
            assert_eq!(fresh.verify(&flow, ports, number, later), is_valid, "{now} {later}");
            good[((later >> SLOT) - slot) as usize] += u32::from(is_valid);
        }
        assert!(good[0] > 3_000 && good[1] > 3_000 && good[2] + good[3] == 0, "{good:?}");
    }

    #[test]
    fn answer_is_never_acceptable_to_its_syn() {
        let flow = Flow::v4(1, 2);
        let mut cookies = new_cookies(u32::MAX);
        let number = cookies.issue(&flow, &syn(0), 0).unwrap().acknowledgement;
        let is_answered = |cookies: &mut Cookies, ahead: u32, data: u16| {
            let segment = Syn { ports: PORTS, sequence: number.wrapping_sub(ahead), data };
            cookies.issue(&flow, &segment, 1).is_some()
        };
        assert!(is_answered(&mut cookies, 0, 0), "SEG.ACK = ISS");
        assert!(!is_answered(&mut cookies, 1, 0), "SEG.ACK = ISS + 1");
        assert!(is_answered(&mut cookies, 2, 0), "SEG.ACK > SND.NXT");
        assert!(
            !is_answered(&mut cookies, 501, 500) && is_answered(&mut cookies, 502, 500),
            "with 500 bytes of data"
        );
        assert!(
            is_answered(&mut cookies, 0u32.wrapping_sub(1), u16::MAX)
                && is_answered(&mut cookies, 1 << 31, u16::MAX)
        );
    }

    /// Two workers that read the clock at different times verify each other's cookies while the
    /// secret changes, and a cookie of the last secret is valid for as long as its slots are.
    #[test]
    fn workers_verify_each_others_cookies_while_the_secret_rotates() {
        let mut publisher = Publisher::new(Secrets::new(SECRET));
        let mut workers: [Cookies; 2] = core::array::from_fn(|_| {
            let mut worker = new_cookies(u32::MAX);
            worker.follow(publisher.reader());
            worker
        });
        let mut random = 1u64..;
        let (flow, slot) = (Flow::v4(3, 4), 1u64 << SLOT);
        let mut numbers = std::collections::BTreeSet::new();
        let mut last = None;
        for step in 0..100u64 {
            let now = step * slot / 4;
            if step % 20 == 7 {
                let fresh = Secret::new(|| random.next().unwrap());
                let next = publisher.current().rotate(fresh, now);
                publisher.publish(Box::new(next));
                assert!(publisher.reclaim().is_some(), "no worker holds the previous one");
            }
            let [early, late] = &mut workers;
            let segment = syn(9);
            let number = early.issue(&flow, &segment, now).unwrap().acknowledgement;
            numbers.insert(number);
            // The other worker reads the clock once a slot.
            if step % 4 == 3 {
                late.issue(&Flow::v4(9, 9), &segment, now).unwrap();
                assert!(late.verify(&flow, segment.ports, number, now), "step {step}");
            }
            if let Some((issued_at, number)) = last.replace((now, number)) {
                let good = (now >> SLOT) - (issued_at >> SLOT) <= 1;
                assert_eq!(early.verify(&flow, segment.ports, number, now), good, "step {step}");
            }
            assert!(!early.verify(&flow, segment.ports, number ^ 1, now), "step {step}");
        }
        // One number for each slot: secrets do not overlap.
        assert_eq!(numbers.len(), 25);
        let last = publisher.current().of(u64::MAX);
        assert_ne!(last, SECRET);
    }

    /// Each succeeds with a probability of two in 2^32.
    #[test]
    fn million_forged_resets_are_rejected() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut cookies = new_cookies(u32::MAX);
        let mut right = 0;
        for step in 0..1_000_000u64 {
            let flow = Flow::v4(rng.u32(..), 7);
            let now = step * 1000;
            cookies.issue(&flow, &syn(rng.u32(..)), now);
            right += u32::from(cookies.verify(&flow, PORTS, rng.u32(..), now));
        }
        assert!(right <= 1, "{right}");
        // Each bit of the number is checked.
        let flow = Flow::v6(1, 2);
        let number = cookies.issue(&flow, &syn(9), 0).unwrap().acknowledgement;
        assert!((0..32).all(|bit| !cookies.verify(&flow, PORTS, number ^ 1 << bit, 0)));
        assert!(cookies.verify(&flow, PORTS, number, 0));
        assert!(!cookies.verify(&Flow::v6(2, 1), PORTS, number, 0));
    }

    #[test]
    fn answers_keep_to_the_rate_and_are_outstanding_while_valid() {
        let mut cookies = new_cookies(1000);
        assert!(!cookies.is_outstanding(0));
        let issued = (0..40_000u64).filter(|step| {
            cookies.issue(&Flow::v4(*step as u32, 1), &syn(0), step * 250_000).is_some()
        });
        // A thousand a second for ten seconds, and the 20 ms that a bucket holds.
        assert!((10_000..=10_020).contains(&issued.count()));
        let mut cookies = new_cookies(1000);
        let burst =
            (0..10_000).filter(|src| cookies.issue(&Flow::v4(*src, 1), &syn(0), 5).is_some());
        assert_eq!(burst.count(), 20);
        assert!(cookies.is_outstanding(2 * (1 << SLOT) - 1) && !cookies.is_outstanding(2 << SLOT));
        assert_eq!(format!("{SECRET:?}"), "Secret(..)");
    }
}
