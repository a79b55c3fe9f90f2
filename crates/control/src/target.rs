//! The target of a hop (next hops, or a kind of route without one) as the API shows it.

use feed::netlink::Target;

use super::plane::HopTarget;

/// The target of a hop as the API shows it.
pub(super) struct TargetView {
    pub(super) kind: &'static str,
    pub(super) via: Vec<api::Via>,
}

/// Converts a target, with the names that `dev` returns for interfaces.
pub(super) fn target_view(dev: &dyn Fn(u32) -> String, target: &HopTarget) -> TargetView {
    let target = match target {
        HopTarget::Route(target) => target,
        &HopTarget::Neighbor { interface, address } => {
            let dev = dev(interface);
            let via = vec![api::Via { gateway: Some(address), dev, weight: 1 }];
            return TargetView { kind: "neighbor", via };
        }
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
                gateway: via.gateway,
                dev: dev(via.interface),
                weight: via.weight,
            })
            .collect(),
        _ => Vec::new(),
    };
    TargetView { kind, via }
}
