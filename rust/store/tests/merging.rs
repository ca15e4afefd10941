//! Small files become large ones, and the cost of the file index does not grow with their number.
#![cfg(feature = "columnar")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod stream_support;

use std::sync::Arc;

use mqttcore_store::faults::{Disk, Faults};
use mqttcore_store::files::{Files, FolderAccess};
use mqttcore_store::stream::{StreamLimits, StreamOptions};
use mqttcore_store::{CopyProgress, Durability, Store, StoreError, tools};
use serde_json::Value;
use stream_support::{Log, append_payload, definition, options};

const INDEX: &str = "streams/plant/sealed.json";
const LOG: &str = "streams/plant/sealed.log";

/// One partition, whose files are not merged from this size on.
fn merged_to(bytes: u64) -> StreamOptions {
    let options = options(&[definition("plant", 1)]);
    StreamOptions {
        limits: StreamLimits {
            merged_bytes: bytes,
            ..options.limits
        },
        ..options
    }
}

/// No file is ever merged.
fn unmerged() -> StreamOptions {
    merged_to(1)
}

fn disk() -> Disk {
    Disk::new(1, Faults::default())
}

/// Bytes that do not become fewer by compression.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn seal_one(log: &Log) -> Result<(), StoreError> {
    let places = [("plant", 0)];
    let at_us = log.now_us();
    let ticket = stream_support::append(&log.store, Durability::Fsync, 7, at_us, &places)?;
    log.store.wait(ticket)?;
    log.store.seal()
}

fn size(disk: &Disk, path: &str) -> u64 {
    disk.content(path).map_or(0, |content| content.len() as u64)
}

/// Names of the files of rows.
fn files(disk: &Disk) -> Vec<String> {
    let data = disk.folder("streams/plant/data", FolderAccess::Owner);
    data.unwrap().list().unwrap()
}

/// Names of the files in the index, as a reader of the folder finds them.
fn indexed(disk: &Disk) -> Vec<String> {
    let index: Value = serde_json::from_slice(&disk.content(INDEX).unwrap()).unwrap();
    let mut files = index["partitions"][0].as_array().unwrap().clone();
    let log = disk.content(LOG).unwrap_or_default();
    // A crash may have left a part of the last line.
    let lines = log.split(|byte| *byte == b'\n');
    let lines = lines.map_while(|line| serde_json::from_slice(line).ok());
    files.extend(lines.filter(|line: &Value| line["snapshot"] == index["snapshot"]));
    let name = |file: &Value| file["file"].as_str().unwrap().to_owned();
    files.iter().map(name).collect()
}

/// At 1 : 64 of the real sizes: files of 2 MB, merged up to 64 MiB.
#[test]
fn the_number_of_files_levels_off_and_bytes_are_written_a_few_times() {
    const SEALS: u64 = 200;
    const FILE_BYTES: usize = 2_000_000 / 64;
    let disk = disk();
    let log = Log::open(&disk, &merged_to(1 << 20)).unwrap();
    let (mut written, mut most) = (0, 0);
    let mut before = Vec::new();
    for seal in 0..SEALS {
        let ticket = append_payload(&log.store, &noise(seal, FILE_BYTES));
        log.store.wait(ticket).unwrap();
        log.store.seal().unwrap();
        log.store.maintain(log.now_us()).unwrap();
        let content = |name: &str| size(&disk, &format!("streams/plant/data/{name}"));
        let now: Vec<_> = files(&disk)
            .into_iter()
            .map(|name| (content(&name), name))
            .collect();
        written += now
            .iter()
            .filter(|file| !before.contains(*file))
            .map(|file| file.0)
            .sum::<u64>();
        most = most.max(now.len());
        before = now;
    }

    let total: u64 = before.iter().map(|file| file.0).sum();
    let large = usize::try_from(total >> 20).unwrap();
    assert!(most <= large + 20, "{most} files of {total} bytes");
    assert!(written <= 4 * total, "{written} bytes written for {total}");
    let largest = before.iter().map(|file| file.0).max().unwrap();
    assert!((1 << 20..2 << 20).contains(&largest), "{largest} bytes");
    assert_eq!(indexed(&disk), files(&disk));
    let rows = log.rows("plant", 0);
    for (seal, row) in (0_u64..).zip(&rows) {
        assert_eq!(
            (row.0, &row.2),
            (seal.cast_signed(), &noise(seal, FILE_BYTES))
        );
    }
    assert_eq!(rows.len() as u64, SEALS);
}

/// A reader that lists the newest files, or a Delta table that is made of them, finds them for a minute.
#[test]
fn files_are_merged_a_minute_after_they_were_sealed() {
    const MINUTE_US: u64 = 60_000_000;
    let disk = disk();
    let options = StreamOptions {
        limits: StreamLimits::default(),
        ..merged_to(1)
    };
    let log = Log::open(&disk, &options).unwrap();
    for _ in 0..17 {
        seal_one(&log).unwrap();
    }
    let sealed_us = log.now_us();
    let sealed = files(&disk);
    let rows = log.rows("plant", 0);

    log.store.maintain(sealed_us + MINUTE_US - 1).unwrap();
    assert_eq!(files(&disk), sealed);

    // The last file is young.
    log.clock.set(sealed_us + MINUTE_US);
    seal_one(&log).unwrap();
    log.store.maintain(log.now_us()).unwrap();
    assert_eq!(files(&disk).len(), 2);
    assert_eq!(log.rows("plant", 0)[..17], rows);
}

/// What the index costs in bytes for each of 128 seals, on top of `files` files.
fn index_cost(log: &Log, disk: &Disk, files: u64) -> u64 {
    while log.bounds("plant")[0].end < files {
        seal_one(log).unwrap();
    }
    let mut bytes = 0;
    for _ in 0..128 {
        let before = (disk.content(INDEX), size(disk, LOG));
        seal_one(log).unwrap();
        if disk.content(INDEX) == before.0 {
            bytes += size(disk, LOG) - before.1;
        } else {
            bytes += size(disk, INDEX);
        }
    }
    bytes / 128
}

#[test]
fn the_index_costs_no_more_when_there_are_many_files() {
    let disk = disk();
    let log = Log::open(&disk, &unmerged()).unwrap();

    let few = index_cost(&log, &disk, 128);
    let many = index_cost(&log, &disk, 640);

    assert!(many < 2 * few, "{few} bytes a seal, then {many}");
    assert_eq!(indexed(&disk), files(&disk));
}

#[test]
fn files_of_the_log_of_the_index_are_known_in_the_next_run() {
    let disk = disk();
    let log = Log::open(&disk, &unmerged()).unwrap();
    let begin_us = log.now_us();
    while disk.content(LOG).is_none() {
        seal_one(&log).unwrap();
    }
    drop(log);
    let disk = disk.after_kill();

    let mut aged = unmerged();
    aged.definitions[0].retention_age = Some(std::time::Duration::from_secs(60));
    let log = Log::open(&disk, &aged).unwrap();

    assert_eq!(indexed(&disk), files(&disk));
    assert!(disk.content(LOG).is_none(), "the index is whole");
    log.store.maintain(begin_us + 61_000_000).unwrap();
    let bounds = log.bounds("plant")[0];
    assert_eq!(bounds.earliest, bounds.end, "all are as old as they were");
}

/// The log of the index grows: a copy that shared it would name files that it does not have.
#[test]
fn a_copy_has_the_index_of_its_own_files() {
    let disk = disk();
    let log = Log::open(&disk, &unmerged()).unwrap();
    while disk.content(LOG).is_none() {
        seal_one(&log).unwrap();
    }
    drop(log);
    let disk = disk.after_kill();
    let copy = Disk::new(2, Faults::default());

    let from: Arc<dyn Files> = Arc::new(disk.clone());
    tools::backup(&from, &copy, &CopyProgress::default()).unwrap();

    assert_eq!(copy.content(LOG), disk.content(LOG));
    assert_eq!(indexed(&copy), files(&copy));
    assert_eq!(indexed(&copy), files(&disk));
    let copied: Arc<dyn Files> = Arc::new(copy);
    tools::verify(&copied).unwrap();
}

/// The power goes before each change that some seals make to the disk.
#[test]
fn a_power_cut_leaves_an_index_of_what_is_sealed() {
    let first = disk();
    let log = Log::open(&first, &unmerged()).unwrap();
    for _ in 0..70 {
        seal_one(&log).unwrap();
    }
    drop(log);
    for cut in 1.. {
        let start = first.after_kill();
        let log = Log::open(&start, &unmerged()).unwrap();
        start.reseed(cut);
        start.cut_after_changes(cut);
        let sealed = (0..4).take_while(|_| seal_one(&log).is_ok()).count() as u64;
        let is_over = !start.is_off();
        drop(log);
        let disk = start.after_power_cut();
        let held = indexed(&disk).len() as u64;

        let log = Log::open(&disk, &unmerged()).unwrap();
        let bounds = log.bounds("plant")[0];
        assert!(bounds.sealed_end >= 70 + sealed, "cut {cut}");
        assert!(held >= 70 + sealed, "cut {cut}: {held} files in the index");
        assert_eq!(indexed(&disk), files(&disk), "cut {cut}");
        assert_eq!(log.rows("plant", 0).len() as u64, bounds.end, "cut {cut}");
        if is_over {
            assert!(cut > 20, "{cut} cuts");
            return;
        }
    }
}

/// A store that is written to until the power goes, and what was acknowledged before.
struct Writer {
    log: Log,
    acknowledged: u64,
}

impl Writer {
    fn open(disk: &Disk, options: &StreamOptions) -> Self {
        let log = Log::open(disk, options).unwrap();
        let acknowledged = log.bounds("plant")[0].end;
        Self { log, acknowledged }
    }

    /// One row with its offset as payload.
    fn append(&mut self) -> Result<(), StoreError> {
        let (store, at_us) = (&self.log.store, self.log.now_us());
        let places = [("plant", 0)];
        let ticket =
            stream_support::append(store, Durability::Fsync, self.acknowledged, at_us, &places)?;
        store.wait(ticket)?;
        self.acknowledged += 1;
        Ok(())
    }

    fn seal_one(&mut self) -> Result<(), StoreError> {
        self.append()?;
        self.log.store.seal()
    }

    /// Seals, merges, and seals again; a row that is not sealed is there when the merge begins.
    fn merge_between_seals(&mut self, is_pressed: bool) -> Result<(), StoreError> {
        self.seal_one()?;
        self.append()?;
        self.log.store.maintain(self.log.now_us())?;
        let bounds = self.log.bounds("plant")[0];
        assert_eq!(bounds.sealed_end == bounds.end, is_pressed);
        self.seal_one()
    }

    /// Every acknowledged row is there once; one more may be.
    fn check(&self, acknowledged: u64) {
        let rows = self.log.rows("plant", 0);
        for (offset, row) in (0_u64..).zip(&rows) {
            let payload = stream_support::payload(offset);
            assert_eq!((row.0, &row.2), (offset.cast_signed(), &payload));
        }
        let rows = rows.len() as u64;
        assert_eq!(self.log.bounds("plant")[0].end, rows);
        assert!(
            (acknowledged..=acknowledged + 1).contains(&rows),
            "{rows} rows"
        );
    }
}

/// A disk with many files, of which [`merging`] merges some.
fn many_files() -> Disk {
    let disk = disk();
    let mut writer = Writer::open(&disk, &unmerged());
    for _ in 0..70 {
        writer.seal_one().unwrap();
    }
    drop(writer);
    disk.after_kill()
}

/// Merges four files at once; a pressed store seals during a merge.
fn merging(disk: &Disk, is_pressed: bool) -> StreamOptions {
    let first = size(disk, &format!("streams/plant/data/{}", files(disk)[0]));
    let mut options = merged_to(first * 4 - first / 2);
    if is_pressed {
        options.limits.tail_bytes = 1;
    }
    options
}

/// The power goes before each change that seals and a merge make to the disk: of the file, its name, the index, the log of the
/// index, the parts.
fn cut_the_power_during_a_merge(is_pressed: bool) {
    let first = many_files();
    let options = merging(&first, is_pressed);
    for cut in 1.. {
        let start = first.after_kill();
        let mut writer = Writer::open(&start, &options);
        start.reseed(cut);
        start.cut_after_changes(cut);
        let done = writer.merge_between_seals(is_pressed);
        let is_over = !start.is_off();
        let acknowledged = writer.acknowledged;
        drop(writer);
        let disk = start.after_power_cut();
        let there = files(&disk);
        for name in indexed(&disk) {
            assert!(there.contains(&name), "cut {cut}: {name} is in the index");
        }

        let mut writer = Writer::open(&disk, &options);
        writer.check(acknowledged);
        assert_eq!(indexed(&disk), files(&disk), "cut {cut}");
        writer.merge_between_seals(is_pressed).unwrap();
        writer.check(writer.acknowledged);
        assert_eq!(indexed(&disk), files(&disk), "cut {cut}");
        if is_over {
            done.unwrap();
            assert!(there.len() < 72, "{} files", there.len());
            assert!(cut > 25, "{cut} cuts");
            return;
        }
    }
}

#[test]
fn a_power_cut_during_a_merge_loses_and_repeats_no_row() {
    cut_the_power_during_a_merge(false);
}

#[test]
fn nor_does_one_during_a_merge_that_seals() {
    cut_the_power_during_a_merge(true);
}
