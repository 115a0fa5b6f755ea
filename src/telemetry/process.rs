//! Process metrics from /proc, under the standard names of Prometheus clients.

use std::fs;

use prometheus::{Counter, IntGauge, Registry};

/// Clock ticks per second in /proc, the same on every Linux architecture that the controller is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// One reading of /proc.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ProcessSample {
    cpu_seconds: f64,
    resident_bytes: i64,
    peak_bytes: i64,
}

impl ProcessSample {
    /// Parses `/proc/self/stat` and `/proc/self/status`; `None` if their format is unexpected.
    fn parse(stat: &str, status: &str) -> Option<Self> {
        // The program name, in parentheses, may contain any character.
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks = |index: usize| fields.split_whitespace().nth(index)?.parse::<u32>().ok();
        let bytes = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            let kilobytes = line.split_whitespace().next()?.parse::<i64>().ok()?;
            Some(kilobytes * 1024)
        };
        Some(Self {
            cpu_seconds: (f64::from(ticks(11)?) + f64::from(ticks(12)?)) / TICKS_PER_SECOND,
            resident_bytes: bytes("VmRSS:")?,
            peak_bytes: bytes("VmHWM:")?,
        })
    }
}

/// The metrics of the process, as of the last refresh.
pub(super) struct ProcessMetrics {
    cpu: Counter,
    resident: IntGauge,
    peak: IntGauge,
    open_fds: IntGauge,
}

impl ProcessMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let process = Self {
            cpu: Counter::new("process_cpu_seconds_total", "User and system CPU time spent, in seconds.")?,
            resident: IntGauge::new("process_resident_memory_bytes", "Resident memory, in bytes.")?,
            peak: IntGauge::new("process_resident_memory_max_bytes", "Highest resident memory so far, in bytes.")?,
            open_fds: IntGauge::new("process_open_fds", "Open file descriptors.")?,
        };
        registry.register(Box::new(process.cpu.clone()))?;
        registry.register(Box::new(process.resident.clone()))?;
        registry.register(Box::new(process.peak.clone()))?;
        registry.register(Box::new(process.open_fds.clone()))?;
        let start = IntGauge::new("process_start_time_seconds", "Start of the process, in seconds since the epoch.")?;
        start.set(jiff::Timestamp::now().as_second());
        registry.register(Box::new(start))?;
        Ok(process)
    }

    /// Reads /proc again. On systems without it, the values do not change.
    pub(super) fn refresh(&self) {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        if let Some(sample) = ProcessSample::parse(&read("/proc/self/stat"), &read("/proc/self/status")) {
            self.cpu.inc_by((sample.cpu_seconds - self.cpu.get()).max(0.0));
            self.resident.set(sample.resident_bytes);
            self.peak.set(sample.peak_bytes);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            self.open_fds.set(i64::try_from(open.count()).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_with_spaces_and_parentheses_is_parsed() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 4 0 99 1 1";
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let expected = ProcessSample { cpu_seconds: 2.0, resident_bytes: 1 << 20, peak_bytes: 2 << 20 };
        assert_eq!(ProcessSample::parse(stat, status), Some(expected));
    }

    #[test]
    fn unexpected_proc_format_returns_no_sample() {
        assert_eq!(ProcessSample::parse("", ""), None);
        assert_eq!(ProcessSample::parse("7 (a) S 1", "VmRSS: x"), None);
    }
}
