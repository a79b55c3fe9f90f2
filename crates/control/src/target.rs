//! The target of a hop (next hops, or a kind of route without one) as the API shows it.

use feed::netlink::Target;

use super::plane::{HopTarget, Plane};

/// The target of a hop as the API shows it.
pub(super) struct TargetView {
    pub(super) kind: &'static str,
    pub(super) via: Vec<api::Via>,
}

/// Returns the name of an interface by its index; `if` and the number where it is no port.
pub(super) fn dev(plane: &Plane, interface: u32) -> String {
    let port = plane.ports().get(interface);
    port.map_or_else(|| format!("if{interface}"), |port| port.name.clone())
}

/// Converts a target of a plane's hops.
pub(super) fn plane_target_view(plane: &Plane, target: &HopTarget) -> TargetView {
    let HopTarget::Static(name) = target else {
        return target_view(&|index| dev(plane, index), target);
    };
    let via = plane.static_next_hop(name).map(|next| {
        let port = plane.ports().iter().nth(next.port);
        let dev = port.map(|port| port.name.clone()).unwrap_or_default();
        api::Via { name: Some(name.to_string()), gateway: next.address, dev, weight: 1 }
    });
    TargetView { kind: "static", via: via.into_iter().collect() }
}

/// Converts a target of a kernel's route, with the names that `dev` returns for interfaces.
pub(super) fn target_view(dev: &dyn Fn(u32) -> String, target: &HopTarget) -> TargetView {
    let target = match target {
        HopTarget::Route(target) => target,
        &HopTarget::Neighbor { interface, address } => {
            let dev = dev(interface);
            let via = vec![api::Via { name: None, gateway: Some(address), dev, weight: 1 }];
            return TargetView { kind: "neighbor", via };
        }
        HopTarget::Static(_) => return TargetView { kind: "static", via: Vec::new() },
        HopTarget::Gone(_) => return TargetView { kind: "gone", via: Vec::new() },
    };
    let kind = match **target {
        Target::Via(_) => "via",
        Target::Blackhole => "blackhole",
        Target::Unreachable => "unreachable",
        Target::Prohibit => "prohibit",
        Target::Throw => "throw",
        Target::Local => "local",
        Target::Broadcast => "broadcast",
        Target::Multicast => "multicast",
    };
    let via = match &**target {
        Target::Via(vias) => vias
            .iter()
            .map(|via| api::Via {
                name: None,
                gateway: via.gateway,
                dev: dev(via.interface),
                weight: via.weight,
            })
            .collect(),
        _ => Vec::new(),
    };
    TargetView { kind, via }
}
