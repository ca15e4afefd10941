//! What happens when the process has no file descriptors left (abuse H05).
//!
//! Alone in its process: a limit on descriptors is everybody's.
#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::time::Duration;

use mqttcore_broker::Broker;

use common::{Client, config, eventually, start, v3, v5};

/// Lets the process have `more` descriptors than it has now.
fn allow_descriptors(more: u64) {
    let open = std::fs::read_dir("/proc/self/fd").expect("procfs").count() as u64;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid `rlimit` for the length of each call.
    let set = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = open - 1 + more;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)
    };
    assert_eq!(set, 0, "the soft limit may be lowered");
}

/// Processor time that this process has used; asked without opening a file.
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid `timespec` for the length of the call.
    let got = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(got, 0, "there is such a clock");
    let nanoseconds = u32::try_from(time.tv_nsec).expect("below a second");
    Duration::new(time.tv_sec.unsigned_abs(), nanoseconds)
}

fn exhausted() -> (Broker, Client, Vec<File>) {
    let broker = start(config());
    let bystander = v5("bystander").connect(&broker);
    allow_descriptors(20);
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    (broker, bystander, files)
}

#[test]
fn without_descriptors_clients_go_on_nobody_spins_and_newcomers_are_refused() {
    let (broker, mut bystander, mut files) = exhausted();

    // One descriptor for the client's end; the broker has none but its spare one.
    files.pop();
    let before = processor_time();
    for number in 1..=3 {
        let mut newcomer = v3("newcomer").dial(&broker);
        assert!(newcomer.is_closed_within(Duration::from_secs(10)));
        eventually("the refusal is counted", || {
            broker.stats().connections_refused_descriptors == number
        });
    }
    bystander.hears_nothing_for(Duration::from_millis(600));
    bystander.ping();
    let used = processor_time().saturating_sub(before);
    assert!(used < Duration::from_millis(200), "{used:?}");

    files.pop();
    let mut newcomer = v3("newcomer").connect(&broker);
    newcomer.ping();
    drop(files);
    v5("another").connect(&broker).ping();
    assert_eq!(broker.stats().connections_refused, 3);
}
