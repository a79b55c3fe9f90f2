//! The Lua state that a policy runs in: what is there, what is not, and the limits.
//!
//! Lua 5.4, of whose libraries `math`, `string` and `table` are there, without what could
//! escape the limits (`GONE`): whoever can catch an error can catch the one that says that
//! time is over; a finaliser runs with the hook off; a pattern is matched in C, where no hook
//! looks. `load` and its kin are gone because policies are files. A policy is the operator's
//! own; the limits are against mistakes, and what happens then has to be bounded.
//!
//! **Time** is counted in instructions, by a hook every [`EVERY`]; a call that is over its
//! limit ends with an error there. LuaJIT is not used because compiled code calls no
//! hooks. **Memory** is held to a limit by the allocator.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use fib::Reader;
use mlua::{AnyUserData, Function, HookTriggers, Lua, LuaOptions, StdLib, UserData, VmState};

use super::facts::{Facts, Packet};
use super::lists::{Lists, Value};
use super::ruling::{Ruling, ruling};
use super::store::Store;

/// Instructions between two looks at the time.
const EVERY: u32 = 1_000;
/// How many times the limit of a call the script itself may take when it is loaded.
const LOADING: u64 = 100;

/// What is taken away from the libraries.
const GONE: [&str; 14] = [
    "pcall",
    "xpcall",
    "load",
    "loadfile",
    "dofile",
    "collectgarbage",
    "setmetatable",
    "print",
    "warn",
    "string.find",
    "string.match",
    "string.gmatch",
    "string.gsub",
    "string.dump",
];

/// What the packet's userdata and the lists' show: that which is being decided of.
pub(super) struct Board {
    pub(super) facts: Facts,
    /// Its number in the batch.
    pub(super) at: usize,
    pub(super) now: u64,
    pub(super) lists: Reader<Lists>,
    /// The lists that the policy has named, in order.
    pub(super) wanted: Vec<String>,
    /// What they say of the batch's sources, and of its destinations.
    pub(super) found: Vec<[Vec<Option<Value>>; 2]>,
}

impl Board {
    pub(super) fn found(&self, list: usize, dst: bool) -> Option<&Value> {
        self.found.get(list)?[usize::from(dst)].get(self.at)?.as_ref()
    }
}

/// The board, as the functions of a script have it too.
pub(super) type Shared = Rc<RefCell<Board>>;

/// A list that a policy has named.
pub(super) struct Listed(pub(super) usize);

impl UserData for Listed {}

/// A policy that is loaded.
pub(super) struct Script {
    // Before the state that they are of.
    decide: Function,
    packet: AnyUserData,
    lua: Lua,
    /// Instructions left.
    left: Rc<Cell<u64>>,
    limit: u64,
}

/// How a call ended that did not end well.
#[derive(Debug)]
pub(super) enum Failed {
    /// It took more than it may.
    OverTime,
    /// With an error.
    Error(String),
}

impl Script {
    pub(super) fn new(text: &str, board: &Shared, limit: u64, memory: usize) -> mlua::Result<Self> {
        let libs = StdLib::MATH | StdLib::STRING | StdLib::TABLE;
        let lua = Lua::new_with(libs, LuaOptions::default())?;
        lua.set_memory_limit(memory)?;
        let left = Rc::new(Cell::new(limit.saturating_mul(LOADING)));
        let hooks = Rc::clone(&left);
        lua.set_hook(HookTriggers::new().every_nth_instruction(EVERY), move |_, _| {
            match hooks.get().checked_sub(EVERY.into()) {
                Some(left) => {
                    hooks.set(left);
                    Ok(VmState::Continue)
                }
                None => {
                    hooks.set(0);
                    Err(mlua::Error::runtime("over its limit of instructions"))
                }
            }
        })?;
        let globals = lua.globals();
        for name in GONE {
            match name.split_once('.') {
                None => globals.raw_set(name, mlua::Nil)?,
                Some((library, name)) => {
                    globals.raw_get::<mlua::Table>(library)?.raw_set(name, mlua::Nil)?;
                }
            }
        }
        let named = Rc::clone(board);
        let list = lua.create_function(move |_, name: String| {
            let mut board = named.borrow_mut();
            if !board.lists.current().contains_key(&name) {
                return Err(mlua::Error::runtime(format!("there is no list named `{name}`")));
            }
            let number = board.wanted.iter().position(|have| *have == name);
            Ok(Listed(number.unwrap_or_else(|| {
                board.wanted.push(name);
                board.wanted.len() - 1
            })))
        })?;
        globals.set("list", list)?;
        globals.set("store", lua.create_function(|_, most: usize| Ok(Store::new(most)))?)?;
        let clock = Rc::clone(board);
        let now = lua.create_function(move |_, ()| Ok(clock.borrow().now as f64 / 1e9))?;
        globals.set("now", now)?;
        lua.load(include_str!("prelude.lua")).set_name("=prelude").exec()?;
        lua.load(text).set_name("=policy").exec()?;
        let decide: mlua::Value = globals.get("decide")?;
        let mlua::Value::Function(decide) = decide else {
            return Err(mlua::Error::runtime("the policy has no function named `decide`"));
        };
        let packet = lua.create_userdata(Packet(Rc::clone(board)))?;
        Ok(Self { decide, packet, lua, left, limit })
    }

    /// Asks the policy about the packet that is on the board.
    pub(super) fn decide(&self) -> Result<Ruling, Failed> {
        self.left.set(self.limit);
        let said: mlua::Result<mlua::Value> = self.decide.call(&self.packet);
        let judged = said.and_then(|said| ruling(&said));
        judged.map_err(|error| match self.left.get() {
            0 => Failed::OverTime,
            _ => Failed::Error(error.to_string()),
        })
    }

    /// Returns the bytes that the policy has in use.
    pub(super) fn memory(&self) -> usize {
        self.lua.used_memory()
    }
}
