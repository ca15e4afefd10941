//! Retention by age and holds count by kept time, whatever the time in the rows says (ADR 0022).
#![cfg(feature = "columnar")]

mod stream_support;

use std::time::Duration;

use mqttcore_store::faults::{Disk, Faults};
use mqttcore_store::stream::StreamOptions;
use mqttcore_store::{Durability, Store};
use stream_support::{Log, append, definition, options};

const MINUTE_US: u64 = 60_000_000;
const YEARS_US: u64 = 20 * 365 * 24 * 60 * MINUTE_US;
const FILE: &str = "streams/plant/data/00000-00000000000000000000.parquet";

/// A stream whose files go after this time, as do holds.
fn plant(age: Duration) -> StreamOptions {
    let mut plant = definition("plant", 1);
    plant.retention_age = Some(age);
    plant.hold_max = Some(age);
    options(&[plant])
}

fn open(disk: &Disk) -> Log {
    open_for(disk, Duration::from_secs(3_600))
}

fn open_for(disk: &Disk, age: Duration) -> Log {
    Log::open(disk, &plant(age)).expect("a store")
}

fn disk() -> Disk {
    Disk::new(1, Faults::default())
}

/// The offset of the first row that retention has left, at this kept time.
fn earliest_at(log: &Log, now_us: u64) -> u64 {
    log.clock.set(now_us);
    log.store.maintain(now_us).expect("tidied");
    log.bounds("plant")[0].earliest
}

/// A row that says `at_us`, in a file of its own.
fn sealed_row(log: &Log, at_us: u64) {
    let ticket = append(&log.store, Durability::Fsync, 1, at_us, &[("plant", 0)]);
    log.store.wait(ticket.expect("appended")).expect("safe");
    log.store.seal().expect("sealed");
}

/// The rows have the time of a clock that was 20 years behind and is right now, or that was ahead
/// and is right now: both go when the file is an hour old.
#[test]
fn a_step_of_the_systems_clock_neither_removes_files_nor_keeps_them() {
    for (name, step) in [("forward", -1), ("back", 1)] {
        let log = open(&disk());
        let begin_us = log.now_us();
        let row_us = begin_us.checked_add_signed(step * YEARS_US.cast_signed());
        sealed_row(&log, row_us.expect("a time"));

        let early = earliest_at(&log, begin_us + 60 * MINUTE_US);
        let late = earliest_at(&log, begin_us + 61 * MINUTE_US);

        assert_eq!((early, late), (0, 1), "{name}");
    }
}

#[test]
fn a_file_is_as_old_in_the_next_run() {
    let disk = disk();
    let log = open(&disk);
    let begin_us = log.now_us();
    sealed_row(&log, begin_us);
    drop(log);

    let log = open(&disk.after_kill());

    assert_eq!(earliest_at(&log, begin_us + 59 * MINUTE_US), 0);
    assert_eq!(earliest_at(&log, begin_us + 61 * MINUTE_US), 1);
}

/// As with `--accept-clock`: the age is counted from there, and the file does not stay for 20 years.
#[test]
fn kept_time_that_is_set_back_counts_the_age_anew() {
    let disk = disk();
    let log = open(&disk);
    let begin_us = log.now_us();
    sealed_row(&log, begin_us);
    drop(log);
    let (disk, back_us) = (disk.after_kill(), begin_us - YEARS_US);

    let log = open(&disk);
    assert_eq!(earliest_at(&log, back_us), 0);
    drop(log);
    let log = open(&disk.after_kill());

    assert_eq!(earliest_at(&log, back_us + 59 * MINUTE_US), 0);
    assert_eq!(earliest_at(&log, back_us + 61 * MINUTE_US), 1);
    assert!(log.disk.content(FILE).is_some(), "the grace is an hour");
    earliest_at(&log, back_us + 122 * MINUTE_US);
    assert!(log.disk.content(FILE).is_none());
}

#[test]
fn kept_time_that_is_set_forward_gives_files_up() {
    let disk = disk();
    let log = open(&disk);
    let begin_us = log.now_us();
    sealed_row(&log, begin_us);
    drop(log);

    let log = open(&disk.after_kill());

    assert_eq!(earliest_at(&log, begin_us + YEARS_US), 1);
}

/// An index of an earlier version does not say when a file was sealed.
#[test]
fn a_file_of_unknown_age_is_new_when_retention_first_sees_it() {
    let disk = disk();
    let log = open(&disk);
    let begin_us = log.now_us();
    sealed_row(&log, begin_us);
    drop(log);
    let disk = disk.after_kill();
    disk.corrupt("streams/plant/sealed.json", |index| {
        let text = std::str::from_utf8(index).expect("text");
        let older = text.replace(&format!(r#","sealed_us":{begin_us}"#), "");
        assert_ne!(text, older);
        *index = older.into_bytes();
    });
    let later_us = begin_us + YEARS_US;

    let log = open(&disk);
    assert_eq!(earliest_at(&log, later_us), 0);
    drop(log);
    let log = open(&disk.after_kill());

    assert_eq!(earliest_at(&log, later_us + 59 * MINUTE_US), 0);
    assert_eq!(earliest_at(&log, later_us + 61 * MINUTE_US), 1);
}

#[test]
fn a_merged_file_is_as_old_as_its_youngest_rows() {
    let log = open(&disk());
    let begin_us = log.now_us();
    for minute in 0..16 {
        log.clock.set(begin_us + minute * MINUTE_US);
        sealed_row(&log, begin_us);
    }

    let merged = earliest_at(&log, begin_us + 15 * MINUTE_US);
    let early = earliest_at(&log, begin_us + 75 * MINUTE_US);
    let late = earliest_at(&log, begin_us + 76 * MINUTE_US);

    assert_eq!((merged, early, late), (0, 0, 16));
}

/// The system's clock says another year than kept time.
#[test]
fn a_hold_lasts_as_long_as_the_stream_says_in_kept_time() {
    let disk = disk();
    let log = open(&disk);
    let begin_us = log.now_us();
    sealed_row(&log, begin_us);
    log.clock.set(begin_us + 30 * MINUTE_US);
    log.streams().hold("plant", "spark", &[0]).expect("held");

    assert_eq!(
        earliest_at(&log, begin_us + 61 * MINUTE_US),
        0,
        "it is held"
    );
    drop(log);
    let log = open(&disk.after_kill());
    assert_eq!(earliest_at(&log, begin_us + 89 * MINUTE_US), 0, "still");
    assert_eq!(earliest_at(&log, begin_us + 91 * MINUTE_US), 1);
}

#[test]
fn a_hold_does_not_outlast_kept_time_that_is_set_back() {
    let disk = disk();
    let log = open(&disk);
    let begin_us = log.now_us();
    sealed_row(&log, begin_us);
    log.streams().hold("plant", "spark", &[0]).expect("held");
    drop(log);
    let (disk, back_us) = (disk.after_kill(), begin_us - YEARS_US);

    let log = open(&disk);
    assert_eq!(earliest_at(&log, back_us + 30 * MINUTE_US), 0);
    drop(log);
    let log = open(&disk.after_kill());

    assert_eq!(earliest_at(&log, back_us + 89 * MINUTE_US), 0);
    assert_eq!(earliest_at(&log, back_us + 91 * MINUTE_US), 1);
}

/// A merged file is as old as its youngest row. If that grew for ever, the rows of a slow stream would stay for ever.
#[test]
fn files_that_are_merged_go_nearly_as_soon_as_others() {
    const AGE: u64 = 144;
    let log = open_for(&disk(), Duration::from_secs(AGE * 3_600));
    let begin_us = log.now_us();
    let second = FILE.replace("00.parquet", "01.parquet");

    for hour in 0..4 * AGE {
        let now_us = begin_us + hour * 60 * MINUTE_US;
        log.clock.set(now_us);
        sealed_row(&log, now_us);
        log.store.maintain(now_us).expect("tidied");

        let bounds = log.bounds("plant")[0];
        let kept = bounds.end - bounds.earliest;
        assert!(kept <= AGE + AGE / 8 + 2, "{kept} rows, one an hour");
        assert!(hour < AGE || kept > AGE, "{kept} rows, one an hour");
        assert_eq!(log.disk.content(&second).is_some(), (1..15).contains(&hour));
    }
}
