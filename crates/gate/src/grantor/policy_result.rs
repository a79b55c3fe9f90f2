//! The result of a policy: parses and checks the table that it returns.
//!
//! ```text
//!   grant   { rate KiB/s, expire s = 300, renewal s = 0.8 × expire, step s = 3, deliver = true }
//!   decline   expire s, protocol = all, port = all, proven = false  , deliver = false
//!   run     { program, expire s = 300, cookie = "",                  deliver = true }
//!   pass      nothing: the packet is delivered, and the next one is a request again
//!   nil       nothing: the packet is dropped, and the next one is a request again
//! ```
//!
//! Numbers that do not fit into a decision, and negative ones, are errors of the policy.

use mlua::{Error, Table, Value};

use crate::decision::{FlowCommand, ProgramDecision};
use crate::state::{Decision, Grant, Provisional, Traffic};

/// The policy's result for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyResult {
    /// The command for the gate, if any.
    pub command: Option<FlowCommand>,
    /// Whether the packet itself is delivered.
    pub deliver: bool,
}

impl PolicyResult {
    /// No command, and the packet is dropped.
    pub const NOTHING: Self = Self { command: None, deliver: false };
}

/// Default seconds of a grant.
const EXPIRE: f64 = 300.0;
/// Seconds between packets that ask for renewal.
const STEP: f64 = 3.0;

/// Parses the return value of a policy.
pub(super) fn parse_result(returned: &Value) -> mlua::Result<PolicyResult> {
    let table = match returned {
        Value::Nil => return Ok(PolicyResult::NOTHING),
        Value::Table(table) => table,
        _ => return Err(Error::runtime("decide returned neither a decision nor nil")),
    };
    let kind: String = table.raw_get("kind")?;
    let (command, deliver) = match kind.as_str() {
        "grant" => {
            let expire = number(table, "expire", Some(EXPIRE))?;
            let grant = Grant {
                rate_kib: whole("rate", number(table, "rate", None)?)?,
                expire_s: whole("expire", expire)?,
                next_renewal_ms: whole(
                    "renewal",
                    number(table, "renewal", Some(expire * 0.8))? * 1000.0,
                )?,
                renewal_step_ms: whole("step", number(table, "step", Some(STEP))? * 1000.0)?,
            };
            (FlowCommand::Decide(Decision::Grant(grant)), true)
        }
        "pass" => return Ok(PolicyResult { command: None, deliver: true }),
        "decline" => {
            let expire_s = whole("expire", number(table, "expire", None)?)?;
            (FlowCommand::Decide(decline(table, expire_s)?), false)
        }
        "run" => {
            let program = whole("program", number(table, "program", None)?)?;
            let program = u8::try_from(program).map_err(|_| bad("program"))?;
            let expire_s = whole("expire", number(table, "expire", Some(EXPIRE))?)?;
            let text: Option<mlua::LuaString> = table.raw_get("cookie")?;
            let mut cookie = [0; 64];
            if let Some(text) = text {
                let bytes = text.as_bytes();
                cookie.get_mut(..bytes.len()).ok_or_else(|| bad("cookie"))?.copy_from_slice(&bytes);
            }
            (FlowCommand::Run(ProgramDecision { expire_s, program, cookie }), true)
        }
        _ => return Err(bad("kind")),
    };
    let deliver = table.raw_get::<Option<bool>>("deliver")?.unwrap_or(deliver);
    Ok(PolicyResult { command: Some(command), deliver })
}

/// Parses the traffic and proof of a decline: without `proven` it is provisional.
fn decline(table: &Table, expire_s: u32) -> mlua::Result<Decision> {
    let field = |name: &str| -> mlua::Result<Option<f64>> { table.raw_get(name) };
    let small = |name: &str, value: f64, most: u32| {
        whole(name, value).ok().filter(|&value| value <= most).ok_or_else(|| bad(name))
    };
    let proven = table.raw_get::<Option<bool>>("proven")?.unwrap_or(false);
    let traffic = match (field("protocol")?, field("port")?) {
        (None, None) => Traffic::All,
        (None, Some(_)) => return Err(Error::runtime("a `port` without its `protocol`")),
        (Some(protocol), port) => {
            let protocol = small("protocol", protocol, u8::MAX.into())? as u8;
            match port {
                None => Traffic::Protocol(protocol),
                Some(port) => {
                    Traffic::Port { protocol, port: small("port", port, u16::MAX.into())? as u16 }
                }
            }
        }
    };
    match (proven, traffic) {
        (false, traffic) => Ok(Decision::Provisional(Provisional { expire_s, traffic })),
        (true, Traffic::All) => Ok(Decision::Decline { expire_s }),
        (true, _) => Err(Error::runtime("a decline that is `proven` is about the whole flow")),
    }
}

fn number(table: &Table, field: &str, unless: Option<f64>) -> mlua::Result<f64> {
    let returned: Option<f64> = table.raw_get(field)?;
    returned.or(unless).ok_or_else(|| Error::runtime(format!("the decision has no `{field}`")))
}

fn whole(field: &str, number: f64) -> mlua::Result<u32> {
    if number >= 0.0 && number <= f64::from(u32::MAX) { Ok(number as u32) } else { Err(bad(field)) }
}

fn bad(field: &str) -> Error {
    Error::runtime(format!("the decision's `{field}` cannot be that"))
}
