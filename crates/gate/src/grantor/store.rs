//! What a policy remembers from packet to packet: numbers by keys, so many at most.
//!
//! `store(1000)` makes one. When it is full, what was put in first goes: a flood of new keys
//! costs the oldest of them and no memory. Each worker's policy has its own.

use std::collections::{HashMap, VecDeque};

use mlua::{UserData, UserDataMethods};

/// The most keys of a store.
const MOST_KEYS: usize = 1 << 20;
/// The most bytes of a key.
const LONGEST_KEY: usize = 256;

/// Numbers by keys.
#[derive(Debug)]
pub(super) struct Store {
    most: usize,
    numbers: HashMap<Box<[u8]>, f64>,
    order: VecDeque<Box<[u8]>>,
}

impl Store {
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.clamp(1, MOST_KEYS), numbers: HashMap::new(), order: VecDeque::new() }
    }

    fn set(&mut self, key: &[u8], number: f64) {
        if let Some(kept) = self.numbers.get_mut(key) {
            *kept = number;
            return;
        }
        if self.numbers.len() >= self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.numbers.remove(&oldest);
        }
        self.numbers.insert(key.into(), number);
        self.order.push_back(key.into());
    }
}

/// A key: text as it is, a number by its text.
fn key(value: &mlua::Value) -> mlua::Result<Vec<u8>> {
    match value {
        mlua::Value::String(text) if text.as_bytes().len() > LONGEST_KEY => {
            Err(mlua::Error::runtime("a key of more than 256 bytes"))
        }
        mlua::Value::String(text) => Ok(text.as_bytes().to_vec()),
        mlua::Value::Integer(number) => Ok(number.to_string().into_bytes()),
        mlua::Value::Number(number) => Ok(number.to_string().into_bytes()),
        _ => Err(mlua::Error::runtime("a key is a string or a number")),
    }
}

impl UserData for Store {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |_, this, at: mlua::Value| {
            Ok(this.numbers.get(&key(&at)?[..]).copied())
        });
        methods.add_method_mut("set", |_, this, (at, number): (mlua::Value, f64)| {
            this.set(&key(&at)?, number);
            Ok(())
        });
        methods.add_method_mut("add", |_, this, (at, number): (mlua::Value, f64)| {
            let key = key(&at)?;
            let sum = this.numbers.get(&key[..]).copied().unwrap_or(0.0) + number;
            this.set(&key, sum);
            Ok(sum)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_it_is_full() {
        let mut store = Store::new(2);
        store.set(b"a", 1.0);
        store.set(b"b", 2.0);
        store.set(b"a", 3.0);
        store.set(b"c", 4.0);
        assert_eq!(store.numbers.get(&b"a"[..]), None);
        assert_eq!(store.numbers.get(&b"b"[..]), Some(&2.0));
        assert_eq!((store.numbers.len(), store.order.len()), (2, 2));
    }
}
