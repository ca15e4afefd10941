//! What Linux says about a process: processor time and resident memory.

use std::fs;
use std::io;

/// User and system time that all threads of the process have used, ended ones too, in seconds.
///
/// It is the clock of the process, in nanoseconds; `/proc` has hundredths of a second.
///
/// # Errors
///
/// When the process is gone.
pub fn cpu_seconds(pid: u32) -> io::Result<f64> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both write to a place on the stack that is theirs until they return.
    let is_read = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    if !is_read {
        return Err(io::Error::other(format!("process {pid} is gone")));
    }
    #[expect(clippy::cast_precision_loss, reason = "a run of seconds")]
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// Resident memory in bytes.
///
/// # Errors
///
/// When the process is gone, or `/proc` is not that of Linux.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .map(|kibibytes| kibibytes * 1_024)
        .ok_or_else(|| io::Error::other(format!("cannot read /proc/{pid}/status")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_has_that_of_its_ended_threads() {
        let cpu = || cpu_seconds(std::process::id()).unwrap();
        let until = cpu() + 0.003;

        let thread = std::thread::spawn(move || while cpu() < until {});
        thread.join().unwrap();

        assert!(cpu() >= until);
    }

    #[test]
    fn a_process_that_is_gone_has_no_time() {
        // Linux gives lower ones only.
        assert!(cpu_seconds(4_194_304).is_err());
    }

    #[test]
    fn this_process_has_memory() {
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
    }
}
