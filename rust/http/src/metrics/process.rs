//! Figures of the process, as the system has them.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// CPU time, memory and files of this process; each is absent where the system does not tell.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) cpu_s: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) open_files: Option<f64>,
    pub(super) max_files: Option<f64>,
}

impl Process {
    /// Reads `/proc/self`.
    #[expect(clippy::cast_precision_loss, reason = "figures are far below 2^53")]
    pub(super) fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let files = fs::read_dir("/proc/self/fd");
        Self {
            cpu_s: cpu_ticks(&stat).map(|ticks| ticks as f64 / clock_ticks_per_second() as f64),
            resident_bytes: field(&stat, 24).map(|pages| pages as f64 * page_size() as f64),
            // One of them reads the folder.
            open_files: files
                .ok()
                .map(|files| files.count().saturating_sub(1) as f64),
            max_files: getrlimit(Resource::Nofile).current.map(|most| most as f64),
        }
    }
}

/// CPU time in user and kernel mode, in ticks.
fn cpu_ticks(stat: &str) -> Option<u64> {
    Some(field(stat, 14)? + field(stat, 15)?)
}

/// A field of `/proc/self/stat` by its number, from 3 on: the second is a name in brackets, which may have spaces.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(") ")?;
    behind_name.split(' ').nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat =
            "12 (a name) of) S 4 5 6 7 8 9 10 11 12 13 140 15 16 17 18 19 20 21 22 23 24 25\n";

        assert_eq!(cpu_ticks(stat), Some(155));
        assert_eq!(field(stat, 24), Some(24));
        assert_eq!(field("", 14), None);
    }

    #[test]
    fn this_process_has_memory_and_files() {
        let process = Process::read();

        assert!(process.resident_bytes > Some(1_000_000.0));
        assert!(process.open_files >= Some(3.0));
        assert!(process.max_files >= process.open_files);
        assert!(process.cpu_s >= Some(0.0));
    }
}
