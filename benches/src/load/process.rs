//! What Linux says about a process: processor time and resident memory.

use std::fs;
use std::io;

/// `/proc` counts processor time in hundredths of a second on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time that the process and its threads have used, in seconds.
///
/// # Errors
///
/// When the process is gone, or `/proc` is not that of Linux.
pub fn cpu_seconds(pid: u32) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    ticks(&text)
        .map(|ticks| ticks / TICKS_PER_SECOND)
        .ok_or_else(|| unreadable(pid, "stat"))
}

/// Resident memory in bytes.
///
/// # Errors
///
/// As for [`cpu_seconds`].
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .map(|kibibytes| kibibytes * 1_024)
        .ok_or_else(|| unreadable(pid, "status"))
}

fn unreadable(pid: u32, file: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("cannot read /proc/{pid}/{file}"),
    )
}

/// Fields 14 and 15 (utime, stime); the name before them may hold spaces and parentheses.
fn ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_look_like_fields() {
        let stat = "7 (a) 1 2 (b) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 1 0";

        assert_eq!(ticks(stat), Some(300.0));
    }

    #[test]
    fn this_process_has_memory() {
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
    }
}
