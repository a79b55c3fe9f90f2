//! The Lua state of a policy: its libraries and its limits.
//!
//! Lua 5.4 with the libraries `math`, `string` and `table`, without the functions that could escape
//! the limits (`REMOVED`): a policy that catches errors would catch the one that ends its time, and
//! finalizers run with the hook off. `load` and similar functions are removed because policies are
//! files. A policy is the operator's own; the limits are against mistakes, and every mistake has to
//! end in bounded time and memory.
//!
//! **Time** is counted in instructions, by a hook every [`HOOK_INTERVAL`] of them; a call that
//! exceeds its limit ends with an error there. LuaJIT is not used because compiled code calls no
//! hooks. One instruction may copy a long text, so the hook checks the clock too
//! ([`MAX_CALL_TIME`]). The hook does not run inside C: library functions that loop are written in
//! Lua, the others bound their results (`bounded.lua`), and those that match patterns, some in
//! exponential time, are removed.
//!
//! **Memory** is limited by Lua's allocator, and a call is limited to [`MAX_CALL_MEMORY`] more than
//! was in use before it, so that no single instruction has much to copy. Stores (`store.rs`) are
//! not in Lua's memory and have a limit of the same size.

use core::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mlua::{AnyUserData, Function, HookTriggers, Lua, LuaOptions, StdLib, VmState};

use super::policy_result::{PolicyResult, parse_result};
use super::script_context::{ListHandle, Packet, SharedContext};
use super::store::{Store, StoreBudget};

/// Instructions between two checks of the remaining budget.
const HOOK_INTERVAL: u32 = 100;
/// The most time that a call may take, whatever its instructions.
const MAX_CALL_TIME: Duration = Duration::from_millis(500);
/// The most bytes that a call may allocate beyond those in use.
const MAX_CALL_MEMORY: usize = 16 << 20;
/// The longest policy, in bytes of text: Lua's compiler cannot be interrupted.
const MAX_POLICY_LEN: usize = 1 << 20;
/// The longest error message, in bytes.
const MAX_ERROR_LEN: usize = 4096;
/// Loading the script may take this many times the instructions of a call.
const LOAD_FACTOR: u64 = 100;
/// The most time that loading the script may take.
const MAX_LOAD_TIME: Duration = Duration::from_secs(5);

/// The functions that are removed from the libraries.
const REMOVED: [&str; 15] = [
    "pcall",
    "xpcall",
    "load",
    "loadfile",
    "dofile",
    "collectgarbage",
    "setmetatable",
    // The metatable of strings could be changed, and `__close` runs after an error.
    "getmetatable",
    "print",
    "warn",
    "string.find",
    "string.match",
    "string.gmatch",
    "string.gsub",
    "string.dump",
];

/// A policy that is loaded.
pub(super) struct Script {
    // Declared before `lua`, so that they are dropped before it.
    decide: Function,
    packet: AnyUserData,
    lua: Lua,
    budget: Rc<Budget>,
    limit: u64,
    memory: usize,
}

/// The remaining budget of a call.
struct Budget {
    instructions: Cell<u64>,
    deadline: Cell<Instant>,
}

impl Budget {
    /// Charges one interval of the hook; false if the budget is exhausted.
    fn spend(&self) -> bool {
        let left = self.instructions.get().checked_sub(HOOK_INTERVAL.into());
        let left = left.filter(|_| Instant::now() < self.deadline.get());
        self.instructions.set(left.unwrap_or(0));
        left.is_some()
    }
}

/// The failure of a call.
#[derive(Debug)]
pub(super) enum CallError {
    /// It exceeded its limit.
    OverTime,
    /// It ended with an error.
    Error(String),
}

impl Script {
    pub(super) fn new(
        text: &str,
        context: &SharedContext,
        limit: u64,
        memory: usize,
    ) -> mlua::Result<Self> {
        if text.len() > MAX_POLICY_LEN {
            return Err(mlua::Error::runtime("the policy is longer than 1 MiB"));
        }
        let libs = StdLib::MATH | StdLib::STRING | StdLib::TABLE;
        let lua = Lua::new_with(libs, LuaOptions::default())?;
        lua.set_memory_limit(memory)?;
        let budget = Rc::new(Budget {
            instructions: Cell::new(limit.saturating_mul(LOAD_FACTOR)),
            deadline: Cell::new(Instant::now() + MAX_LOAD_TIME),
        });
        let spent = Rc::clone(&budget);
        lua.set_hook(HookTriggers::new().every_nth_instruction(HOOK_INTERVAL), move |_, _| {
            match spent.spend() {
                true => Ok(VmState::Continue),
                false => Err(mlua::Error::runtime("exceeded its limit of instructions")),
            }
        })?;
        lua.load(include_str!("bounded.lua")).set_name("=bounded").exec()?;
        let globals = lua.globals();
        for name in REMOVED {
            match name.split_once('.') {
                None => globals.raw_set(name, mlua::Nil)?,
                Some((library, name)) => {
                    globals.raw_get::<mlua::Table>(library)?.raw_set(name, mlua::Nil)?;
                }
            }
        }
        let named = Rc::clone(context);
        let list = lua.create_function(move |_, name: String| {
            let mut context = named.borrow_mut();
            if !context.lists.current().contains_key(&name) {
                return Err(mlua::Error::runtime(format!("there is no list named `{name}`")));
            }
            let number = context.wanted.iter().position(|have| *have == name);
            Ok(ListHandle(number.unwrap_or_else(|| {
                context.wanted.push(name);
                context.wanted.len() - 1
            })))
        })?;
        globals.set("list", list)?;
        let room = StoreBudget::new(memory);
        let store = lua.create_function(move |_, most: usize| Ok(Store::new(most, &room)))?;
        globals.set("store", store)?;
        let clock = Rc::clone(context);
        let now = lua.create_function(move |_, ()| Ok(clock.borrow().now as f64 / 1e9))?;
        globals.set("now", now)?;
        lua.load(include_str!("prelude.lua")).set_name("=prelude").exec()?;
        lua.load(text).set_name("=policy").exec()?;
        let decide: mlua::Value = globals.get("decide")?;
        let mlua::Value::Function(decide) = decide else {
            return Err(mlua::Error::runtime("the policy has no function named `decide`"));
        };
        let packet = lua.create_userdata(Packet(Rc::clone(context)))?;
        Ok(Self { decide, packet, lua, budget, limit, memory })
    }

    /// Calls the policy for the packet in the context.
    pub(super) fn decide(&self) -> Result<PolicyResult, CallError> {
        self.budget.instructions.set(self.limit);
        self.budget.deadline.set(Instant::now() + MAX_CALL_TIME);
        let allowed = self.lua.used_memory().saturating_add(MAX_CALL_MEMORY).min(self.memory);
        let limited = self.lua.set_memory_limit(allowed);
        let returned: mlua::Result<mlua::Value> =
            limited.and_then(|_| self.decide.call(&self.packet));
        let result = returned.and_then(|returned| parse_result(&returned));
        result.map_err(|error| match self.budget.instructions.get() {
            0 => CallError::OverTime,
            _ => CallError::Error(shortened(error.to_string())),
        })
    }

    /// Compiles the text of a policy, and returns the chunk.
    pub(super) fn compile(&self, text: &str) -> mlua::Result<Vec<u8>> {
        Ok(self.lua.load(text).set_name("=policy").into_function()?.dump(false))
    }

    /// Returns whether there is a global of this name, with this field if one is named.
    pub(super) fn defines(&self, name: &str, field: Option<&str>) -> bool {
        match (self.lua.globals().raw_get::<mlua::Value>(name), field) {
            (Ok(mlua::Value::Nil) | Err(_), _) => false,
            (Ok(mlua::Value::Table(table)), Some(field)) => {
                !matches!(table.raw_get(field), Ok(mlua::Value::Nil) | Err(_))
            }
            _ => true,
        }
    }

    /// Returns the bytes that the policy has in use.
    pub(super) fn memory(&self) -> usize {
        self.lua.used_memory()
    }
}

/// Truncates an error message to the maximum, at a character boundary.
fn shortened(mut error: String) -> String {
    // `floor_char_boundary` is newer than the oldest supported compiler.
    let end = (0..=MAX_ERROR_LEN.min(error.len())).rev().find(|&end| error.is_char_boundary(end));
    let end = end.unwrap_or(0);
    error.truncate(end);
    error
}
