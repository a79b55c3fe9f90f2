//! The process metrics, with the standard names of Prometheus clients.
//!
//! They are read from `/proc/self` (proc(5)). Values that cannot be read are omitted.

use std::fmt;
use std::fs;
use std::time::Duration;

use nix::time::ClockId;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;

use crate::exposition::{Family, Writer, bytes, family};

/// The values of `/proc` for this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Process {
    /// Seconds of processor time, of user and system together.
    cpu: Option<f64>,
    resident: Option<u64>,
    virtual_: Option<u64>,
    threads: Option<u64>,
    /// Seconds since 1970.
    started: Option<f64>,
    open: Option<u64>,
    most_open: Option<u64>,
}

/// Clock ticks a second in `/proc` (`USER_HZ`), the same on every supported processor.
const TICKS: f64 = 100.0;

impl Process {
    /// Reads the values.
    pub(super) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let boot = text("/proc/stat");
        let boot = boot.lines().find_map(|line| line.strip_prefix("btime ")?.parse().ok());
        let cpu = ClockId::CLOCK_PROCESS_CPUTIME_ID.now();
        Self {
            cpu: cpu.ok().map(|time| Duration::from(time).as_secs_f64()),
            started: started(&text("/proc/self/stat"))
                .zip(boot)
                .map(|(up, boot): (_, f64)| up + boot),
            open: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64),
            most_open: limit(&text("/proc/self/limits")),
            ..Self::of(&text("/proc/self/status"))
        }
    }

    /// Parses `/proc/self/status`.
    fn of(status: &str) -> Self {
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.strip_prefix(':')?.split_whitespace().next()?.parse().ok()
        };
        Self {
            resident: field("VmRSS").map(|kib| kib << 10),
            virtual_: field("VmSize").map(|kib| kib << 10),
            threads: field("Threads"),
            ..Self::default()
        }
    }
}

/// Parses `/proc/self/stat`: the start of the process, in seconds after the boot.
fn started(stat: &str) -> Option<f64> {
    // The name, the second field, is in parentheses and may contain blanks and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_whitespace().nth(22 - 3)?.parse().ok()?;
    Some(ticks as f64 / TICKS)
}

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = Writer(encoder);
        let seconds = |name, help| Family { unit: Some(Unit::Seconds), ..family(name, help) };
        let help = "Processor time used, user and system together; workers that poll use a core \
                    each, with or without packets";
        to.total(&seconds("process_cpu", help), self.cpu)?;
        let help = "Memory of the process in RAM; it follows the size of the tables: if it grows \
                    while they do not, please report it";
        to.gauge(&bytes("process_resident_memory", help), each(self.resident))?;
        let help = "Memory that the process has mapped, in RAM or not; a large value is harmless";
        to.gauge(&bytes("process_virtual_memory", help), each(self.virtual_))?;
        let help = "Threads of the process; fewer than after the start means that one has died: \
                    the log has the reason";
        to.gauge(&family("process_threads", help), each(self.threads))?;
        let help = "Open file descriptors; near process_max_fds new connections fail";
        to.gauge(&family("process_open_fds", help), each(self.open))?;
        let help = "The limit of open file descriptors; raise LimitNOFILE= of the unit if \
                    process_open_fds comes near it";
        to.gauge(&family("process_max_fds", help), each(self.most_open))?;
        let help = "Start time of the process, in seconds since 1970; another value is a restart";
        to.level(
            &seconds("process_start_time", help),
            self.started.into_iter().map(|value| ([], value)),
        )
    }
}

fn each(value: Option<u64>) -> impl Iterator<Item = ([(&'static str, &'static str); 0], u64)> {
    value.into_iter().map(|value| ([], value))
}

/// Parses the soft limit of open files; none if there is no limit.
fn limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed_with_any_process_name() {
        let stat = "17 (a ) b) S 1 1 1 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 7 0 300 8192 5 1 1";
        assert_eq!((started(stat), started("")), (Some(3.0), None));
        let status = "Name:\tVmRSS: 9 kB\nVmSize:\t   8 kB\nVmRSS:\t  5 kB\nThreads:\t7\n";
        let process = Process {
            threads: Some(7),
            virtual_: Some(8 << 10),
            resident: Some(5 << 10),
            ..Process::default()
        };
        assert_eq!(Process::of(status), process);
        assert_eq!(Process::of(""), Process::default());
        let limits =
            "Limit       Soft Limit  Hard Limit  Units\nMax open files   1024   4096  files\n";
        assert_eq!((limit(limits), limit("Max open files unlimited 1 files")), (Some(1024), None));
    }

    #[test]
    fn own_process_has_all_values() {
        let process = Process::read();
        assert!(process.cpu.is_some() && process.threads > Some(0), "{process:?}");
        assert!(process.resident > Some(1 << 20) && process.virtual_ >= process.resident);
        assert!(process.open > Some(2) && process.started > Some(1e9), "{process:?}");
    }
}
