//! What a daemon is: a router, or one with more between its ports than a table.
//!
//! A gate and a grantor have a panel, which says what they know and takes another policy over;
//! a router has neither, and goes over to another configuration as a whole.

use std::sync::Arc;

use crate::{grantor, vantage};
use api::ProgramInfo;
use bundle::AgentStatus;

/// What a daemon is.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// A router, and no more.
    Router,
    /// A gate at a vantage point.
    Gate(Arc<vantage::GateController>),
    /// A grantor.
    Grantor(Arc<grantor::GrantorController>),
}

impl Role {
    /// Returns its name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Gate(_) => "gate",
            Self::Grantor(_) => "grantor",
        }
    }

    /// Returns who is asked about the gate.
    ///
    /// # Errors
    ///
    /// Says what this is instead.
    pub(crate) fn gate(&self) -> Result<&Arc<vantage::GateController>, String> {
        match self {
            Self::Gate(panel) => Ok(panel),
            other => Err(format!("this is a {}, and no gate", other.name())),
        }
    }

    /// Returns who is asked about the grantor.
    ///
    /// # Errors
    ///
    /// Says what this is instead.
    pub(crate) fn grantor(&self) -> Result<&Arc<grantor::GrantorController>, String> {
        match self {
            Self::Grantor(panel) => Ok(panel),
            other => Err(format!("this is a {}, and no grantor", other.name())),
        }
    }

    /// Lists the flow programs.
    ///
    /// # Errors
    ///
    /// Says what this is instead.
    pub(crate) fn programs(&self) -> Result<Vec<ProgramInfo>, String> {
        match self {
            Self::Gate(panel) => Ok(panel.programs()),
            Self::Grantor(panel) => Ok(panel.programs()),
            Self::Router => Err("this is a router, and has no flow programs".to_owned()),
        }
    }

    /// Returns who is asked about bundles.
    ///
    /// # Errors
    ///
    /// Says that none come here.
    pub(crate) fn distribution(&self) -> Result<&Arc<AgentStatus>, String> {
        let agent_status = match self {
            Self::Router => None,
            Self::Gate(panel) => panel.agent_status(),
            Self::Grantor(panel) => panel.agent_status(),
        };
        agent_status.ok_or_else(|| {
            format!("this {} has no [distribution] in its configuration", self.name())
        })
    }

    /// Goes over to the policy as it is now, where that is all that can change.
    pub(crate) fn reload(&self) -> Option<Result<String, String>> {
        match self {
            Self::Router => None,
            Self::Gate(panel) => Some(panel.reload().map_err(|error| error.to_string())),
            Self::Grantor(panel) => Some(panel.reload()),
        }
    }
}
