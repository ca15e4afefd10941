//! Metrics of the process, read from `/proc/self`.

use std::fs;
use std::path::Path;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::float;

/// CPU time, memory, threads and open files of this process; `None` where the system does not report it.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) cpu_s: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) virtual_bytes: Option<f64>,
    pub(super) threads: Option<f64>,
    pub(super) open_files: Option<f64>,
    pub(super) max_files: Option<f64>,
}

impl Process {
    /// Reads `/proc/self`.
    pub(super) fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self {
            cpu_s: cpu_ticks(&stat).map(|ticks| float(ticks) / float(clock_ticks_per_second())),
            resident_bytes: field(&stat, 24).map(|pages| float(pages * page_size() as u64)),
            virtual_bytes: field(&stat, 23).map(float),
            threads: field(&stat, 20).map(float),
            open_files: open_files(Path::new("/proc/self/fd")).map(float),
            max_files: getrlimit(Resource::Nofile).current.map(float),
        }
    }
}

/// Number of open files: from Linux 6.2 on it is the size of the folder `/proc/self/fd`, which is 0 before. Listing the
/// folder would block the endpoint for milliseconds if there are thousands of connections.
fn open_files(folder: &Path) -> Option<u64> {
    let size = fs::metadata(folder).ok()?.len();
    (size > 0).then_some(size)
}

/// CPU time in user and kernel mode, in ticks.
fn cpu_ticks(stat: &str) -> Option<u64> {
    Some(field(stat, 14)? + field(stat, 15)?)
}

/// A field of `/proc/self/stat` by its number, from 3 on: field 2 is a name in brackets, which may contain spaces.
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
    fn open_files_are_the_size_of_their_folder_and_are_not_listed() {
        let file = std::env::temp_dir().join(format!("open_files_{}", std::process::id()));
        let mut found = Vec::new();
        for text in ["1234567", ""] {
            fs::write(&file, text).expect("written");
            found.push(open_files(&file));
        }
        fs::remove_file(&file).expect("removed");

        assert_eq!(found, [Some(7), None]);
        assert_eq!(open_files(Path::new("/nowhere")), None);
    }

    #[test]
    fn this_process_has_memory_and_files() {
        let process = Process::read();

        assert!(process.resident_bytes > Some(1_000_000.0));
        assert!(process.virtual_bytes > process.resident_bytes);
        assert!(process.threads >= Some(1.0));
        assert!(process.open_files.is_none_or(|count| count >= 3.0));
        assert!(process.max_files >= process.open_files);
        assert!(process.cpu_s >= Some(0.0));
    }
}
