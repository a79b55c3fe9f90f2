//! Memory of a policy from packet to packet: a bounded map from keys to numbers.
//!
//! `store(1000)` creates one. A full store evicts its oldest key for a new one: a flood of new keys
//! costs the oldest ones and no memory. Each worker's policy has its own stores. All stores of a
//! policy share a budget of bytes ([`StoreBudget`]), as large as the limit of its Lua state; when
//! it is used up, a new key evicts the oldest keys of its own store.

use core::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use mlua::{UserData, UserDataMethods};

/// The most keys of a store.
const MAX_KEYS: usize = 1 << 20;
/// The most bytes of a key.
const MAX_KEY_LEN: usize = 256;
/// The overhead of a key in bytes. The key itself is stored twice: in the map and in the order.
const OVERHEAD: usize = 128;

/// The bytes left for all stores of a policy.
#[derive(Clone, Debug)]
pub(super) struct StoreBudget(Rc<Cell<usize>>);

impl StoreBudget {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Rc::new(Cell::new(bytes)))
    }

    fn take(&self, bytes: usize) -> bool {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.unwrap_or(self.0.get()));
        left.is_some()
    }

    fn release(&self, bytes: usize) {
        self.0.set(self.0.get().saturating_add(bytes));
    }
}

fn cost(key: &[u8]) -> usize {
    2 * key.len() + OVERHEAD
}

/// Numbers by keys.
#[derive(Debug)]
pub(super) struct Store {
    most: usize,
    numbers: HashMap<Box<[u8]>, f64>,
    order: VecDeque<Box<[u8]>>,
    room: StoreBudget,
}

impl Store {
    pub(super) fn new(most: usize, room: &StoreBudget) -> Self {
        Self {
            most: most.clamp(1, MAX_KEYS),
            numbers: HashMap::new(),
            order: VecDeque::new(),
            room: room.clone(),
        }
    }

    /// Sets the number of a key; false if other stores have used up the budget.
    fn set(&mut self, key: &[u8], number: f64) -> bool {
        if let Some(present) = self.numbers.get_mut(key) {
            *present = number;
            return true;
        }
        if self.numbers.len() >= self.most {
            self.remove_oldest();
        }
        while !self.room.take(cost(key)) {
            if !self.remove_oldest() {
                return false;
            }
        }
        self.numbers.insert(key.into(), number);
        self.order.push_back(key.into());
        true
    }

    /// Removes the oldest key; false if the store is empty.
    fn remove_oldest(&mut self) -> bool {
        let Some(oldest) = self.order.pop_front() else { return false };
        self.room.release(cost(&oldest));
        self.numbers.remove(&oldest);
        true
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.room.release(self.order.iter().map(|key| cost(key)).sum());
    }
}

/// Returns the bytes of a key: a string's own, or those of a number's text.
fn key(value: &mlua::Value) -> mlua::Result<Vec<u8>> {
    match value {
        mlua::Value::String(text) if text.as_bytes().len() > MAX_KEY_LEN => {
            Err(mlua::Error::runtime("a key is longer than 256 bytes"))
        }
        mlua::Value::String(text) => Ok(text.as_bytes().to_vec()),
        mlua::Value::Integer(number) => Ok(number.to_string().into_bytes()),
        mlua::Value::Number(number) => Ok(number.to_string().into_bytes()),
        _ => Err(mlua::Error::runtime("a key must be a string or a number")),
    }
}

fn stored(done: bool) -> mlua::Result<()> {
    done.then_some(()).ok_or_else(|| mlua::Error::runtime("the policy's stores are full"))
}

impl UserData for Store {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |_, this, at: mlua::Value| {
            Ok(this.numbers.get(&key(&at)?[..]).copied())
        });
        methods.add_method_mut("set", |_, this, (at, number): (mlua::Value, f64)| {
            stored(this.set(&key(&at)?, number))
        });
        methods.add_method_mut("add", |_, this, (at, number): (mlua::Value, f64)| {
            let key = key(&at)?;
            let sum = this.numbers.get(&key[..]).copied().unwrap_or(0.0) + number;
            stored(this.set(&key, sum))?;
            Ok(sum)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_store_evicts_the_oldest_key() {
        let mut store = Store::new(2, &StoreBudget::new(1 << 20));
        assert!(store.set(b"a", 1.0) && store.set(b"b", 2.0));
        assert!(store.set(b"a", 3.0) && store.set(b"c", 4.0));
        assert_eq!(store.numbers.get(&b"a"[..]), None);
        assert_eq!(store.numbers.get(&b"b"[..]), Some(&2.0));
        assert_eq!((store.numbers.len(), store.order.len()), (2, 2));
    }

    #[test]
    fn stores_share_their_budget_and_release_it() {
        let room = StoreBudget::new(3 * cost(b"a"));
        let (mut first, mut second) = (Store::new(99, &room), Store::new(99, &room));
        assert!(first.set(b"a", 1.0) && first.set(b"b", 2.0) && first.set(b"c", 3.0));
        assert!(!second.set(b"d", 4.0), "the first store has used up the budget");
        // Within a store, the oldest key is evicted.
        assert!(first.set(b"e", 5.0));
        assert_eq!((first.numbers.len(), first.numbers.get(&b"a"[..])), (3, None));
        drop(first);
        assert!(second.set(b"d", 4.0));
        drop(second);
        assert_eq!(room.0.get(), 3 * cost(b"a"));
    }
}
