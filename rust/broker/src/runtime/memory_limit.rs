//! The memory limit of this process: the smallest limit of its control groups, or the memory of the machine.

use std::fs;
use std::path::{Path, PathBuf};

/// Default budget in percent of the limit.
const SHARE: usize = 60;
/// The budget if no limit is known.
const UNKNOWN_LIMIT_BYTES: usize = 1 << 30;

/// The budget in bytes. 0 as `memory_bytes` of the configuration means 60 % of the limit of the control group or of the
/// machine's memory, whichever is smaller.
pub fn memory_budget(memory_bytes: usize) -> usize {
    if memory_bytes > 0 {
        return memory_bytes;
    }
    limit(Path::new("/")).unwrap_or(UNKNOWN_LIMIT_BYTES) / 100 * SHARE
}

/// The smallest limit in the files below `root`.
fn limit(root: &Path) -> Option<usize> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let of_groups = groups.lines().filter_map(|line| limit_of_group(root, line));
    of_groups.chain(machine(root)).min()
}

/// Memory of the machine in bytes.
fn machine(root: &Path) -> Option<usize> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The smallest limit of a line of `/proc/self/cgroup`, `number:controllers:path`: of its group and of the groups
/// above.
///
/// In a container the path may be one of the host; then the root of the mounted hierarchy is the container's own group.
fn limit_of_group(root: &Path, line: &str) -> Option<usize> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, group) = (parts.next()?, parts.next()?);
    let (mount, file) = if controllers.is_empty() {
        ("sys/fs/cgroup", "memory.max")
    } else if controllers.split(',').any(|name| name == "memory") {
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
    } else {
        return None;
    };
    let top = root.join(mount);
    let own: PathBuf = top.join(group.trim_start_matches('/'));
    let groups = own
        .ancestors()
        .take_while(|folder| folder.starts_with(&top));
    groups
        .filter_map(|folder| bytes_in(&folder.join(file)))
        .min()
}

/// The number in `file`; version 2 has `max` if there is no limit.
fn bytes_in(file: &Path) -> Option<usize> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:  8000 kB\nMemFree: 1 kB\n");

    fn limit_with(name: &str, files: &[(&str, &str)]) -> Option<usize> {
        let root = std::env::temp_dir().join(format!("mqttcore-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = limit(&root);
        let _ = fs::remove_dir_all(&root);
        found
    }

    #[test]
    fn without_a_group_the_machines_memory_is_the_limit() {
        assert_eq!(limit_with("machine", &[MACHINE]), Some(8_192_000));
        assert_eq!(limit_with("nothing", &[]), None);
    }

    #[test]
    fn the_smallest_limit_of_a_version_2_group_and_those_above_it_counts() {
        let files = [
            MACHINE,
            ("proc/self/cgroup", "0::/a.slice/b.service\n"),
            ("sys/fs/cgroup/a.slice/memory.max", "3000\n"),
            ("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n"),
        ];

        assert_eq!(limit_with("two", &files), Some(3_000));
    }

    #[test]
    fn the_memory_controller_of_version_1_is_asked() {
        let files = [
            MACHINE,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4000\n"),
        ];

        assert_eq!(limit_with("one", &files), Some(4_000));
    }

    #[test]
    fn a_limit_above_the_machines_memory_is_none() {
        let files = [
            MACHINE,
            ("proc/self/cgroup", "4:memory:/\n"),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712",
            ),
        ];

        assert_eq!(limit_with("wide", &files), Some(8_192_000));
    }

    #[test]
    fn a_configured_budget_is_taken_as_it_is() {
        assert_eq!(memory_budget(77), 77);
        assert!(memory_budget(0) > 0);
    }
}
