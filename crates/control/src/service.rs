//! The trait by which a program runs a daemon until a signal: router, gate and grantor alike.

use port::af_xdp::Interface;

use crate::progress::Progress;

/// A daemon with its own threads that runs until it is stopped.
pub trait Service {
    /// Returns whether all threads are alive.
    fn is_alive(&self) -> bool;

    /// Returns the progress counters of the threads, for a watchdog.
    fn progress(&self) -> Progress;

    /// Handles pending events and clients' commands, and logs them; to be called several times a
    /// second.
    fn log_events(&mut self);

    /// Returns a description of each interface that does not work as a port.
    fn problems(&self) -> Vec<String>;

    /// Returns the number of the process that has taken over: this one must exit at once, without dropping anything.
    fn successor(&self) -> Option<u32> {
        None
    }

    /// Returns the interface whose program must stay attached when this process ends, until another one takes its place:
    /// a gate's front interface, if the gate fails closed.
    fn guarded_interface(&self) -> Option<Interface> {
        None
    }

    /// Returns whether a client of the control socket is being served.
    fn has_clients(&self) -> bool {
        false
    }

    /// Reads the configuration again, applies it, and returns a summary of the changes.
    ///
    /// # Errors
    ///
    /// The first problem; the configuration before stays in force.
    fn reload(&mut self) -> Result<String, String>;

    /// Stops all threads but those that serve the counters, which are final afterwards; returns
    /// whether all ended without a panic.
    fn stop(&mut self) -> bool;
}
