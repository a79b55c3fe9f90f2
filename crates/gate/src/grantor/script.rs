//! The Lua state that a policy runs in: what is there, what is not, and the limits.
//!
//! Lua 5.4, of whose libraries `math`, `string` and `table` are there, without the functions
//! that could escape the limits (`GONE`): a policy that catches errors catches the one that
//! ends its time, and finalizers run with the hook off. `load` and its kin are gone because
//! policies are files. A policy is the operator's own; the limits are against mistakes, and
//! every mistake has to end in bounded time and memory.
//!
//! **Time** is counted in instructions, by a hook every [`EVERY`] of them; a call that is over
//! its limit ends with an error there. LuaJIT is not used because compiled code calls no
//! hooks. One instruction may copy a long text, so the hook looks at the clock too
//! ([`LONGEST_CALL`]). The hook does not run inside C: functions of the library that loop are
//! written in Lua and the others bound their results (`bounded.lua`), and those that match
//! patterns, some in exponential time, are gone.
//!
//! **Memory** is held to a limit by Lua's allocator, and within it a call to [`ALLOWANCE`]
//! beyond what was in use before, so that no single instruction has much to copy. Stores
//! (`store.rs`) are not Lua's memory, and have the same limit again.

use core::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fib::Reader;
use mlua::{AnyUserData, Function, HookTriggers, Lua, LuaOptions, StdLib, UserData, VmState};

use super::headers::{Packet, PacketHeaders};
use super::lists::{Lists, Value};
use super::policy_result::{PolicyResult, parse_result};
use super::store::{Store, StoreBudget};

/// Instructions between two looks at what is left.
const EVERY: u32 = 100;
/// The longest that a call may take, however few instructions it has run.
const LONGEST_CALL: Duration = Duration::from_millis(500);
/// The bytes that a call may take beyond what the policy has in use.
const ALLOWANCE: usize = 16 << 20;
/// The longest policy, in bytes of its text: Lua's compiler is not interrupted either.
const LONGEST_TEXT: usize = 1 << 20;
/// The bytes of an error that are kept.
const LONGEST_ERROR: usize = 4096;
/// How many times the instructions of a call the script itself may run when it is loaded.
const LOADING: u64 = 100;
/// The longest that loading it may take.
const LONGEST_LOAD: Duration = Duration::from_secs(5);

/// What is taken away from the libraries.
const GONE: [&str; 15] = [
    "pcall",
    "xpcall",
    "load",
    "loadfile",
    "dofile",
    "collectgarbage",
    "setmetatable",
    // The one of strings is a table like any other, and `__close` runs after an error.
    "getmetatable",
    "print",
    "warn",
    "string.find",
    "string.match",
    "string.gmatch",
    "string.gsub",
    "string.dump",
];

/// The state that the packet's userdata and the lists read: the request that is being decided.
pub(super) struct ScriptContext {
    pub(super) headers: PacketHeaders,
    /// Its number in the batch.
    pub(super) at: usize,
    pub(super) now: u64,
    pub(super) lists: Reader<Lists>,
    /// The lists that the policy has named, in order.
    pub(super) wanted: Vec<String>,
    /// What they say of the batch's sources, and of its destinations.
    pub(super) found: Vec<[Vec<Option<Value>>; 2]>,
}

impl ScriptContext {
    pub(super) fn found(&self, list: usize, dst: bool) -> Option<&Value> {
        self.found.get(list)?[usize::from(dst)].get(self.at)?.as_ref()
    }
}

/// The context, shared with the functions of a script.
pub(super) type SharedContext = Rc<RefCell<ScriptContext>>;

/// A list that a policy has named.
pub(super) struct ListHandle(pub(super) usize);

impl UserData for ListHandle {}

/// A policy that is loaded.
pub(super) struct Script {
    // Before the state that they are of.
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
    /// Takes one interval of the hook's; false if that was more than was left.
    fn spend(&self) -> bool {
        let left = self.instructions.get().checked_sub(EVERY.into());
        let left = left.filter(|_| Instant::now() < self.deadline.get());
        self.instructions.set(left.unwrap_or(0));
        left.is_some()
    }
}

/// The failure of a call.
#[derive(Debug)]
pub(super) enum Failed {
    /// It exceeded its limit.
    OverTime,
    /// With an error.
    Error(String),
}

impl Script {
    pub(super) fn new(
        text: &str,
        context: &SharedContext,
        limit: u64,
        memory: usize,
    ) -> mlua::Result<Self> {
        if text.len() > LONGEST_TEXT {
            return Err(mlua::Error::runtime("the policy is longer than 1 MiB"));
        }
        let libs = StdLib::MATH | StdLib::STRING | StdLib::TABLE;
        let lua = Lua::new_with(libs, LuaOptions::default())?;
        lua.set_memory_limit(memory)?;
        let budget = Rc::new(Budget {
            instructions: Cell::new(limit.saturating_mul(LOADING)),
            deadline: Cell::new(Instant::now() + LONGEST_LOAD),
        });
        let spent = Rc::clone(&budget);
        lua.set_hook(HookTriggers::new().every_nth_instruction(EVERY), move |_, _| {
            match spent.spend() {
                true => Ok(VmState::Continue),
                false => Err(mlua::Error::runtime("over its limit of instructions")),
            }
        })?;
        lua.load(include_str!("bounded.lua")).set_name("=bounded").exec()?;
        let globals = lua.globals();
        for name in GONE {
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
    pub(super) fn decide(&self) -> Result<PolicyResult, Failed> {
        self.budget.instructions.set(self.limit);
        self.budget.deadline.set(Instant::now() + LONGEST_CALL);
        let allowed = self.lua.used_memory().saturating_add(ALLOWANCE).min(self.memory);
        let limited = self.lua.set_memory_limit(allowed);
        let returned: mlua::Result<mlua::Value> =
            limited.and_then(|_| self.decide.call(&self.packet));
        let judged = returned.and_then(|returned| parse_result(&returned));
        judged.map_err(|error| match self.budget.instructions.get() {
            0 => Failed::OverTime,
            _ => Failed::Error(shortened(error.to_string())),
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

/// Cuts what is longer than errors are kept, at a character's end.
fn shortened(mut error: String) -> String {
    // `floor_char_boundary` is younger than the oldest compiler that is supported.
    let end = (0..=LONGEST_ERROR.min(error.len())).rev().find(|&end| error.is_char_boundary(end));
    let end = end.unwrap_or(0);
    error.truncate(end);
    error
}
