//! The contestants of the dropped packets.

/// A way to drop packets at v1.
pub(super) trait Dropper {
    fn name(&self) -> &'static str;

    /// Begins to drop.
    fn start(&mut self) -> anyhow::Result<()>;

    /// Ends, and returns how many packets it has dropped since the begin.
    fn stop(&mut self) -> anyhow::Result<u64>;
}
