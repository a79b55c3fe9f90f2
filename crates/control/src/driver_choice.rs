//! The choice of the interfaces whose packets may be forwarded in the driver, made before there are tables.
//!
//! ```text
//!   mode = "xdp"    yes, or the start fails
//!   mode = "auto"   yes, if the device redirects in its driver and has no zero-copy, and nothing
//!                   else is against it (`Config::may_choose_driver`)
//!   others          no
//! ```
//!
//! AF_XDP without zero-copy copies each packet twice, forwarding in the driver copies none. A card with zero-copy
//! does not copy, and its workers have more cores to choose from than its queues.
//!
//! The choice comes first, because the tables of a router that forwards in the driver are in memory that programs
//! read, and of an engine that programs know. It is made again when workers are replaced. Whether
//! packets of an interface take the path then depends on its state (`plane/driver.rs`, `driver_sync.rs`).
//!
//! The choice by `auto` never fails: without `CAP_PERFMON`, and before Linux 6.3, which does not report the features of
//! devices, no interface is chosen.

use std::io;

use config::Config;
use feed::netlink::{DeviceFeatures, XdpFeatures};
use port::af_xdp::ModeChoice;
use threads::rights;

use crate::plane::Plane;
use crate::role::Role;
use crate::start::StartError;

/// Lets packets of the chosen interfaces be forwarded in the driver. Must be called before the plane has routes or readers.
///
/// # Errors
///
/// [`StartError::System`]: without `CAP_PERFMON` for an interface with `mode = "xdp"`; those of
/// [`Plane::forward_in_driver`].
pub(crate) fn forward_in_driver(
    plane: &mut Plane,
    config: &Config,
    role: &dyn Role,
) -> Result<(), StartError> {
    let doing = "forward in the driver (`mode = \"xdp\"`)";
    let failed = |source| StartError::System { doing, source };
    let missing = rights::missing(true);
    if config.forwards_in_driver() && !missing.is_empty() {
        let what = format!("{} missing", missing.join(", "));
        return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, what)));
    }
    let may_choose = role.may_choose_driver() && config.may_choose_driver() && missing.is_empty();
    let mut features = may_choose.then(DeviceFeatures::open).and_then(Result::ok);
    let mut gains = |index| features.as_mut().is_some_and(|all| all.of(index).is_ok_and(gains));
    let ports = config.interfaces.iter().zip(plane.ports().iter());
    let wanted = ports.map(|(interface, port)| match interface.mode {
        ModeChoice::Xdp => true,
        ModeChoice::Auto => gains(port.interface),
        ModeChoice::ZeroCopy | ModeChoice::Copy | ModeChoice::Generic => false,
    });
    let wanted: Vec<_> = wanted.collect();
    if wanted.contains(&true) {
        plane.forward_in_driver(wanted).map_err(failed)?;
    }
    Ok(())
}

/// Returns whether a device with these features gains by forwarding in the driver.
fn gains(features: XdpFeatures) -> bool {
    features.redirects() && !features.has_zero_copy()
}
