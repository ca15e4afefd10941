//! Memory of a burst is there for the next one. A process of its own: the thresholds are those of the whole process.
#![cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]

use mqttcore_slab::keep_freed;

/// Page faults of this thread so far that needed no disk.
fn page_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux");
    // The name in parentheses may contain spaces; the field is the eighth behind it.
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let minor = fields.split_whitespace().nth(7).expect("faults");
    minor.parse().expect("a number")
}

/// Allocates, touches and frees 1 MiB in blocks of messages.
fn burst() {
    let blocks: Vec<Vec<u8>> = (0..512).map(|_| vec![1; 2_048]).collect();
    drop(std::hint::black_box(blocks));
}

#[test]
fn a_burst_takes_no_page_faults_after_the_first() {
    assert!(keep_freed());
    burst();

    let before = page_faults();
    for _ in 0..100 {
        burst();
    }

    // Without it, each burst takes 256.
    assert!(page_faults() - before < 256);
}
