//! Maps in the formats of `serde`: a map from prefixes to values, in order.
//!
//! In text formats, as JSON and TOML, a prefix is its text, `192.0.2.0/24`, because their keys are
//! strings; in other formats it is a tuple of its address (upper and lower 64 bits) and its length.
//! A prefix that occurs twice is an error, as is one with host bits.

use alloc::borrow::Cow;
use core::fmt;
use core::marker::PhantomData;

use fib::{Addr, BadPrefix, Prefix};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::dual::IpLpmMap;
use crate::key::{IpPrefix, IpPrefixKey, PrefixKey};
use crate::map::LpmMap;

impl<P: PrefixKey, T: Serialize> Serialize for LpmMap<P, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.prefixes().map(|(prefix, value)| (Key(prefix), value)))
    }
}

impl<'de, P: PrefixKey, T: Deserialize<'de>> Deserialize<'de> for LpmMap<P, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut map = Self::new();
        let insert =
            |Key(prefix): Key<P::Bits>, value| map.insert(P::from_prefix(prefix), value).is_none();
        deserializer.deserialize_map(Entries { insert, item: PhantomData })?;
        Ok(map)
    }
}

impl<P, T: Serialize> Serialize for IpLpmMap<P, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let v4 = self.v4.iter().map(|(prefix, value)| (IpKey(IpPrefix::V4(prefix)), value));
        let v6 = self.v6.iter().map(|(prefix, value)| (IpKey(IpPrefix::V6(prefix)), value));
        serializer.collect_map(v4.chain(v6))
    }
}

impl<'de, P: IpPrefixKey, T: Deserialize<'de>> Deserialize<'de> for IpLpmMap<P, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut map = Self::new();
        let insert = |IpKey(prefix), value| map.insert(P::from_ip_prefix(prefix), value).is_none();
        deserializer.deserialize_map(Entries { insert, item: PhantomData })?;
        Ok(map)
    }
}

/// Inserts the entries of a map; `insert` returns whether the key is new.
struct Entries<K, T, F> {
    insert: F,
    item: PhantomData<fn() -> (K, T)>,
}

impl<'de, K, T, F> Visitor<'de> for Entries<K, T, F>
where
    K: Deserialize<'de>,
    T: Deserialize<'de>,
    F: FnMut(K, T) -> bool,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from prefixes to values")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut entries: M) -> Result<(), M::Error> {
        while let Some((key, value)) = entries.next_entry()? {
            if !(self.insert)(key, value) {
                return Err(Error::custom("duplicate prefix"));
            }
        }
        Ok(())
    }
}

/// A prefix of one family.
struct Key<A>(Prefix<A>);

impl<A: Addr> Serialize for Key<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(&self.0);
        }
        numbers(self.0).serialize(serializer)
    }
}

impl<'de, A: Addr> Deserialize<'de> for Key<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = Cow::<'de, str>::deserialize(deserializer)?;
            let parsed = text.parse::<Prefix<A>>();
            return parsed.map(Self).map_err(|bad| Error::custom(bad.describe::<A>(&text)));
        }
        prefix_of(Deserialize::deserialize(deserializer)?).map(Self).map_err(Error::custom)
    }
}

/// A prefix of either family; the first number of a tuple is the family's width.
struct IpKey(IpPrefix);

impl Serialize for IpKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.0, serializer.is_human_readable()) {
            (IpPrefix::V4(prefix), true) => serializer.collect_str(&prefix),
            (IpPrefix::V6(prefix), true) => serializer.collect_str(&prefix),
            (IpPrefix::V4(prefix), false) => (32_u8, numbers(prefix)).serialize(serializer),
            (IpPrefix::V6(prefix), false) => (128_u8, numbers(prefix)).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for IpKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            let (bits, numbers) = <(u8, _)>::deserialize(deserializer)?;
            return match bits {
                32 => prefix_of(numbers).map(|prefix| Self(IpPrefix::V4(prefix))),
                _ => prefix_of(numbers).map(|prefix| Self(IpPrefix::V6(prefix))),
            }
            .map_err(Error::custom);
        }
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        if text.contains(':') {
            let parsed = text.parse::<Prefix<u128>>();
            let prefix = parsed.map_err(|bad| Error::custom(bad.describe::<u128>(&text)))?;
            return Ok(Self(IpPrefix::V6(prefix)));
        }
        let parsed = text.parse::<Prefix<u32>>();
        let prefix = parsed.map_err(|bad| Error::custom(bad.describe::<u32>(&text)))?;
        Ok(Self(IpPrefix::V4(prefix)))
    }
}

/// Returns the upper and lower half of the address, and the length.
fn numbers<A: Addr>(prefix: Prefix<A>) -> (u64, u64, u8) {
    let addr = prefix.addr().to_u128();
    ((addr >> 64) as u64, addr as u64, prefix.len() as u8)
}

fn prefix_of<A: Addr>((upper, lower, len): (u64, u64, u8)) -> Result<Prefix<A>, BadPrefix> {
    let addr = u128::from(upper) << 64 | u128::from(lower);
    let narrow = A::from_u128(addr);
    if narrow.to_u128() != addr {
        return Err(BadPrefix::Address);
    }
    Prefix::new(narrow, len.into())
}
