//! Sealed files move to object storage: no row is lost or doubled by crashes and outages at any step.
#![cfg(feature = "columnar")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod stream_support;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use mqttcore_store::faults::{Disk, Faults};
use mqttcore_store::files::{Files, FolderAccess};
use mqttcore_store::stream::{Objects, StreamLimits, StreamOptions, TierOptions};
use mqttcore_store::{Durability, Store, StoreError};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use stream_support::{Log, append, definition, options, payload, rows_of};

const INDEX: &str = "streams/plant/sealed.json";
const HOUR_US: u64 = 3_600_000_000;

/// An object store in memory.
#[derive(Debug, Default)]
struct Memory(Mutex<Content>);

#[derive(Clone, Debug, Default)]
struct Content {
    objects: BTreeMap<String, Vec<u8>>,
    calls: u64,
    /// Calls that fail; whether they have their effect all the same.
    outage: Option<(Range<u64>, bool)>,
    /// Whether the next put loses a byte.
    is_torn: bool,
}

impl Memory {
    fn call<T>(&self, act: impl FnOnce(&mut Content) -> io::Result<T>) -> io::Result<T> {
        let mut content = self.0.lock().unwrap();
        content.calls += 1;
        let outage = content.outage.clone();
        match outage {
            Some((calls, acts)) if calls.contains(&content.calls) => {
                if acts {
                    let _ = act(&mut content);
                }
                Err(io::ErrorKind::ConnectionRefused.into())
            }
            _ => act(&mut content),
        }
    }

    fn take_away(&self, calls: Range<u64>, acts: bool) {
        let mut content = self.0.lock().unwrap();
        let now = content.calls;
        content.outage = Some((now + calls.start..now.saturating_add(calls.end), acts));
    }

    fn give_back(&self) {
        self.0.lock().unwrap().outage = None;
    }

    /// The same objects, for a run of its own.
    fn copy(&self) -> Arc<Self> {
        Arc::new(Self(Mutex::new(self.0.lock().unwrap().clone())))
    }

    fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.0.lock().unwrap().objects.get(name).cloned()
    }

    /// Names of the objects of files.
    fn files(&self) -> Vec<String> {
        let content = self.0.lock().unwrap();
        let names = content.objects.keys();
        let names = names.filter_map(|name| name.strip_prefix("plant/data/"));
        names.map(str::to_owned).collect()
    }
}

impl Objects for Memory {
    fn url(&self) -> &'static str {
        "memory://store"
    }

    fn put(&self, name: &str, content: &mut dyn Read, _bytes: u64) -> io::Result<()> {
        let mut whole = Vec::new();
        content.read_to_end(&mut whole)?;
        self.call(|store| {
            if std::mem::take(&mut store.is_torn) {
                whole.pop();
            }
            store.objects.insert(name.to_owned(), whole);
            Ok(())
        })
    }

    fn get(&self, name: &str, part: Range<u64>) -> io::Result<Vec<u8>> {
        self.call(|store| {
            let object = store.objects.get(name).ok_or(io::ErrorKind::NotFound)?;
            let place = |at: u64| usize::try_from(at).unwrap().min(object.len());
            Ok(object[place(part.start)..place(part.end)].to_vec())
        })
    }

    fn bytes(&self, name: &str) -> io::Result<u64> {
        self.call(|store| {
            let object = store.objects.get(name).ok_or(io::ErrorKind::NotFound)?;
            Ok(object.len() as u64)
        })
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.call(|store| {
            let start = format!("{folder}/");
            let names = store.objects.keys();
            Ok(names
                .filter_map(|name| name.strip_prefix(&start))
                .map(str::to_owned)
                .collect())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call(|store| {
            store.objects.remove(name);
            Ok(())
        })
    }

    fn close(&self) {}
}

/// One partition whose files go to `objects` at once, and leave the disk at the next look.
fn tiered(objects: &Arc<Memory>) -> StreamOptions {
    let mut plant = definition("plant", 1);
    plant.tier = Some(TierOptions {
        objects: Arc::clone(objects) as Arc<dyn Objects>,
        upload_after: Duration::ZERO,
        local_age: Some(Duration::ZERO),
        local_bytes: None,
        grace: Duration::ZERO,
        start_limit: Duration::from_secs(10),
    });
    // Sixteen files of one row are merged.
    let options = options(&[plant]);
    StreamOptions {
        limits: StreamLimits {
            grace: Duration::ZERO,
            ..options.limits
        },
        ..options
    }
}

fn changed(options: &StreamOptions, change: impl FnOnce(&mut TierOptions)) -> StreamOptions {
    let mut options = options.clone();
    change(options.definitions[0].tier.as_mut().unwrap());
    options
}

fn disk() -> Disk {
    Disk::new(1, Faults::default())
}

fn append_one(log: &Log) -> Result<(), StoreError> {
    let bounds = log.bounds("plant")[0];
    let (at_us, places) = (log.now_us(), [("plant", 0)]);
    let ticket = append(&log.store, Durability::Fsync, bounds.end, at_us, &places)?;
    log.store.wait(ticket)
}

fn seal(log: &Log, count: usize) -> Result<(), StoreError> {
    (0..count).try_for_each(|_| append_one(log).and_then(|()| log.store.seal()))
}

fn names(disk: &Disk) -> Vec<String> {
    let data = disk.folder("streams/plant/data", FolderAccess::Owner);
    data.unwrap().list().unwrap()
}

/// The path of a file on the disk, by its place.
fn file_here(disk: &Disk, place: usize) -> String {
    format!("streams/plant/data/{}", names(disk)[place])
}

/// The index on the disk, its log included.
fn index(disk: &Disk) -> Value {
    let mut index: Value = serde_json::from_slice(&disk.content(INDEX).unwrap()).unwrap();
    let log = disk.content("streams/plant/sealed.log").unwrap_or_default();
    for line in log.split(|byte| *byte == b'\n') {
        let Ok(line) = serde_json::from_slice::<Value>(line) else {
            break;
        };
        if line["snapshot"] == index["snapshot"] {
            let files = index["partitions"][0].as_array_mut();
            files.unwrap().push(line);
        }
    }
    index
}

/// Offset and payload of the rows in the files of an index, from the disk or, as the index says, from the store.
fn rows(index: &Value, disk: Option<&Disk>, objects: &Memory) -> Vec<(i64, Vec<u8>)> {
    let mut rows = Vec::new();
    for file in index["partitions"][0].as_array().unwrap() {
        let name = file["file"].as_str().unwrap();
        let content = match disk.filter(|_| file["remote"] != true) {
            Some(disk) => disk.content(&format!("streams/plant/data/{name}")),
            None => objects.content(&format!("plant/data/{}", file["object"].as_str().unwrap())),
        };
        let content = Bytes::from(content.unwrap_or_else(|| panic!("{file} is missing")));
        let reader = ParquetRecordBatchReaderBuilder::try_new(content);
        for batch in reader.unwrap().build().unwrap() {
            let batch = rows_of(&batch.unwrap());
            rows.extend(
                batch
                    .into_iter()
                    .map(|(offset, _, payload)| (offset, payload)),
            );
        }
    }
    rows
}

fn dense(count: u64) -> Vec<(i64, Vec<u8>)> {
    let row = |offset: u64| (offset.cast_signed(), payload(offset));
    (0..count).map(row).collect()
}

/// Every row once: sealed ones by the index, the others in memory.
fn check(log: &Log, disk: &Disk, objects: &Memory) {
    let bounds = log.bounds("plant")[0];
    let sealed = rows(&index(disk), Some(disk), objects);
    assert_eq!(sealed, dense(bounds.sealed_end));
}

/// What the store alone has: rows from the first one on, without a gap.
fn stored(objects: &Memory) -> u64 {
    let Some(index) = objects.content("plant/sealed.json") else {
        return 0;
    };
    let index: Value = serde_json::from_slice(&index).unwrap();
    let rows = rows(&index, None, objects);
    assert_eq!(rows, dense(rows.len() as u64));
    rows.len() as u64
}

/// A disk with files that have objects and are about to be merged, and the store.
fn many_files() -> (Disk, Arc<Memory>) {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let options = changed(&tiered(&objects), |tier| tier.local_age = None);
    let log = Log::open(&disk, &options).unwrap();
    seal(&log, 15).unwrap();
    log.store.tier(log.now_us()).unwrap();
    (disk, objects)
}

/// Seals, merges, and moves the merged file and others.
fn work(log: &Log) -> Result<(), StoreError> {
    seal(log, 1)?;
    log.store.maintain(log.now_us())?;
    log.store.tier(log.now_us())?;
    seal(log, 1)?;
    log.store.tier(log.now_us())?;
    log.store.maintain(log.now_us())?;
    log.store.tier(log.now_us())
}

#[test]
fn an_uploaded_file_leaves_the_disk_after_the_grace_and_its_rows_stay() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let options = changed(&tiered(&objects), |tier| {
        tier.grace = Duration::from_secs(3_600);
    });
    let log = Log::open(&disk, &options).unwrap();
    seal(&log, 3).unwrap();

    log.store.tier(log.now_us()).unwrap();

    let index_then = index(&disk);
    assert_eq!(index_then["tier"], "memory://store/plant/data");
    for file in index_then["partitions"][0].as_array().unwrap() {
        assert_eq!(file["remote"], true);
    }
    assert_eq!((names(&disk).len(), objects.files().len()), (3, 3));
    log.store.maintain(log.now_us() + HOUR_US / 2).unwrap();
    assert_eq!(names(&disk).len(), 3);
    log.store.maintain(log.now_us() + 2 * HOUR_US).unwrap();
    assert!(names(&disk).is_empty());
    check(&log, &disk, &objects);
    assert_eq!(stored(&objects), 3);
    let told = log.streams().describe("plant").unwrap().tier.unwrap();
    assert_eq!((told.waiting_files, told.remote_files), (0, 3));
    drop(log);
    let log = Log::open(&disk, &options).unwrap();
    seal(&log, 1).unwrap();
    check(&log, &disk, &objects);
}

#[test]
fn files_stay_that_fit_into_the_bytes_and_are_young() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let options = changed(&tiered(&objects), |tier| tier.local_age = None);
    let log = Log::open(&disk, &options).unwrap();
    seal(&log, 3).unwrap();
    log.store.tier(log.now_us()).unwrap();
    log.store.maintain(log.now_us()).unwrap();
    assert_eq!((names(&disk).len(), objects.files().len()), (3, 3));
    drop(log);
    let size = disk.content(&file_here(&disk, 0));
    let size = size.unwrap().len() as u64;
    let options = changed(&options, |tier| {
        tier.local_bytes = Some(size * 2 + size / 2);
    });

    let log = Log::open(&disk, &options).unwrap();
    log.store.tier(log.now_us()).unwrap();
    log.store.maintain(log.now_us()).unwrap();

    assert_eq!(names(&disk).len(), 2);
    check(&log, &disk, &objects);
}

#[test]
fn a_small_file_waits_for_a_merge_and_a_merged_object_replaces_its_parts() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let options = changed(&tiered(&objects), |tier| {
        (tier.local_age, tier.upload_after) = (None, Duration::from_secs(60));
    });
    let log = Log::open(&disk, &options).unwrap();
    seal(&log, 4).unwrap();
    log.store.tier(log.now_us()).unwrap();
    assert!(objects.files().is_empty());
    log.store.tier(log.now_us() + 60_000_000).unwrap();
    assert_eq!(objects.files().len(), 4);
    seal(&log, 16).unwrap();

    log.store.maintain(log.now_us()).unwrap();
    assert_eq!(names(&disk).len(), 1);
    log.store.tier(log.now_us()).unwrap();
    // The merged file waits; until then the store has what it had.
    assert_eq!(stored(&objects), 4);
    log.store.tier(log.now_us() + 60_000_000).unwrap();
    assert_eq!(stored(&objects), 20);
    log.store.tier(log.now_us() + 61_000_000).unwrap();
    assert_eq!(objects.files().len(), 1);
    check(&log, &disk, &objects);
}

/// The power goes before each change that uploads, merges and removals make to the disk.
#[test]
fn a_power_cut_at_any_step_loses_and_repeats_no_row() {
    let (first, objects) = many_files();
    for cut in 1.. {
        let objects = objects.copy();
        let start = first.after_kill();
        let log = Log::open(&start, &tiered(&objects)).unwrap();
        start.reseed(cut);
        start.cut_after_changes(cut);
        let done = work(&log);
        let is_over = !start.is_off();
        drop(log);
        let disk = start.after_power_cut();
        let log = Log::open(&disk, &tiered(&objects)).unwrap();
        check(&log, &disk, &objects);
        assert!(stored(&objects) <= log.bounds("plant")[0].sealed_end);

        work(&log).unwrap();

        check(&log, &disk, &objects);
        assert_eq!(stored(&objects), log.bounds("plant")[0].sealed_end);
        drop(log);
        // What nobody names is gone after the next start.
        let log = Log::open(&disk, &tiered(&objects)).unwrap();
        log.store.tier(log.now_us()).unwrap();
        let named = index(&disk)["partitions"][0].as_array().unwrap().len();
        assert_eq!(
            (names(&disk).len(), objects.files().len()),
            (0, named),
            "cut {cut}"
        );
        if is_over {
            done.unwrap();
            assert!(cut > 20, "{cut} cuts");
            return;
        }
    }
}

#[test]
fn a_call_that_fails_at_any_step_loses_and_repeats_no_row() {
    outages(1, false);
}

#[test]
fn nor_do_calls_that_have_their_effect_and_fail_from_then_on() {
    outages(u64::MAX, true);
}

/// The store is away from each call on, for so many calls, and the process is killed then, or goes on.
fn outages(length: u64, acts: bool) {
    let (first, objects) = many_files();
    for call in 1.. {
        let (disk, objects) = (first.after_kill(), objects.copy());
        let log = Log::open(&disk, &tiered(&objects)).unwrap();
        objects.take_away(call..call.saturating_add(length), acts);
        let done = work(&log);
        objects.give_back();
        check(&log, &disk, &objects);
        let (log, disk) = if (call % 2 == 0) == acts {
            (log, disk)
        } else {
            drop(log);
            let disk = disk.after_kill();
            (Log::open(&disk, &tiered(&objects)).unwrap(), disk)
        };
        check(&log, &disk, &objects);

        work(&log).unwrap();

        check(&log, &disk, &objects);
        assert_eq!(
            stored(&objects),
            log.bounds("plant")[0].sealed_end,
            "call {call}"
        );
        if done.is_ok() {
            assert!(call > 20, "{call} calls");
            return;
        }
    }
}

#[test]
fn while_the_store_is_away_rows_are_sealed_and_no_file_is_removed() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let log = Log::open(&disk, &tiered(&objects)).unwrap();
    objects.take_away(0..u64::MAX, false);

    for seals in 1..5 {
        seal(&log, 1).unwrap();
        log.store.tier(log.now_us()).unwrap_err();
        log.store.maintain(log.now_us()).unwrap();
        assert_eq!(names(&disk).len(), seals);
    }

    let told = log.streams().describe("plant").unwrap().tier.unwrap();
    assert!(told.problem.unwrap().contains("memory://store/plant/"));
    assert_eq!(told.waiting_files, 4);
    objects.give_back();
    log.store.tier(log.now_us()).unwrap();
    assert_eq!(stored(&objects), 4);
    let told = log.streams().describe("plant").unwrap().tier.unwrap();
    assert_eq!((told.problem, told.waiting_files), (None, 0));
}

/// As a folder that was mounted and is not now.
#[test]
fn a_store_that_is_suddenly_empty_gets_nothing_and_no_file_is_removed() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let options = changed(&tiered(&objects), |tier| {
        tier.local_age = Some(Duration::from_secs(3_600));
    });
    let log = Log::open(&disk, &options).unwrap();
    seal(&log, 2).unwrap();
    log.store.tier(log.now_us()).unwrap();
    let mounted = std::mem::take(&mut objects.0.lock().unwrap().objects);

    let refused = |now_us: u64| {
        let error = log.store.tier(now_us).unwrap_err().to_string();
        assert!(error.contains("had stream.json of this stream"), "{error}");
        log.store.maintain(now_us).unwrap();
    };
    // Files would leave the disk, a file would be uploaded, and an index would be written.
    refused(log.now_us() + 2 * HOUR_US);
    seal(&log, 1).unwrap();
    refused(log.now_us());
    refused(log.now_us() + 2 * HOUR_US);

    assert_eq!(names(&disk).len(), 3);
    assert!(objects.0.lock().unwrap().objects.is_empty());
    objects.0.lock().unwrap().objects = mounted;
    log.store.tier(log.now_us() + 2 * HOUR_US).unwrap();
    log.store.maintain(log.now_us() + 2 * HOUR_US).unwrap();
    assert!(names(&disk).is_empty());
    check(&log, &disk, &objects);
    assert_eq!(stored(&objects), 3);
}

#[test]
fn an_object_that_differs_from_its_file_does_not_count() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let log = Log::open(&disk, &tiered(&objects)).unwrap();
    log.store.tier(log.now_us()).unwrap();
    seal(&log, 1).unwrap();
    objects.0.lock().unwrap().is_torn = true;

    let error = log.store.tier(log.now_us()).unwrap_err().to_string();

    assert!(error.contains("differs from the file"), "{error}");
    assert!(objects.files().is_empty());
    assert_eq!(names(&disk).len(), 1);
    log.store.tier(log.now_us()).unwrap();
    assert_eq!(stored(&objects), 1);
}

#[test]
fn a_file_that_cannot_be_uploaded_is_told_and_holds_no_other_one() {
    let (first, objects) = (disk(), Arc::new(Memory::default()));
    let options = changed(&tiered(&objects), |tier| tier.local_age = None);
    let log = Log::open(&first, &options).unwrap();
    log.store.tier(log.now_us()).unwrap();
    seal(&log, 4).unwrap();
    let bad = file_here(&first, 1);
    let whole = first.content(&bad).unwrap();

    for is_missing in [false, true] {
        if is_missing {
            let data = first.folder("streams/plant/data", FolderAccess::Owner);
            data.unwrap().remove(&names(&first)[1]).unwrap();
        } else {
            first.corrupt(&bad, |content| content.truncate(100));
        }
        let error = log.store.tier(log.now_us()).unwrap_err().to_string();
        let name = bad.rsplit_once('/').unwrap().1;
        assert!(error.contains(&format!("{name} here: ")), "{error}");
        assert!(error.contains("Put the file back"), "{error}");
        // The index in the store ends before the file.
        assert_eq!((stored(&objects), objects.files().len()), (1, 3));
        // The objects of the others are noted in the index here.
        let noted = index(&first)["partitions"][0].as_array().unwrap().clone();
        let has_object = |file: &Value| file["object"].is_string();
        assert_eq!(noted.iter().filter(|file| has_object(file)).count(), 3);
    }

    let data = first.folder("streams/plant/data", FolderAccess::Owner);
    let data = data.unwrap();
    let back = data.create(bad.rsplit_once('/').unwrap().1, 0).unwrap();
    back.write_at(&whole, 0).unwrap();
    log.store.tier(log.now_us()).unwrap();
    assert_eq!(stored(&objects), 4);
    check(&log, &first, &objects);
}

/// Seals three files, which have objects from then on, and closes the store.
fn seal_and_upload(disk: &Disk, options: &StreamOptions) {
    let log = Log::open(disk, options).unwrap();
    seal(&log, 3).unwrap();
    log.store.tier(log.now_us()).unwrap();
}

#[test]
fn a_file_that_was_damaged_here_is_read_from_its_object() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let options = changed(&tiered(&objects), |tier| tier.local_age = None);
    seal_and_upload(&disk, &options);
    let damaged = file_here(&disk, 1);
    disk.corrupt(&damaged, |content| content.truncate(100));

    let log = Log::open(&disk, &options).unwrap();
    log.store.tier(log.now_us()).unwrap();
    log.store.tier(log.now_us()).unwrap();

    check(&log, &disk, &objects);
    assert_eq!((stored(&objects), objects.files().len()), (3, 3));
    assert_eq!(disk.content(&damaged), None);
}

/// The index does not know how many columns the file has, as one of an older version: the footer is read.
fn forget_columns(disk: &Disk) {
    disk.corrupt(INDEX, |text| {
        let mut index: Value = serde_json::from_slice(text).unwrap();
        for file in index["partitions"][0].as_array_mut().unwrap() {
            file.as_object_mut().unwrap().remove("typed");
        }
        *text = serde_json::to_vec(&index).unwrap();
    });
}

#[test]
fn a_file_that_cannot_be_read_is_read_from_its_object_or_the_start_fails() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let tiered = changed(&tiered(&objects), |tier| tier.local_age = None);
    seal_and_upload(&disk, &tiered);
    forget_columns(&disk);
    let bad = file_here(&disk, 1);
    disk.make_unreadable(&bad);

    let refused = Log::open(&disk, &options(&[definition("plant", 1)]));

    let error = refused.err().unwrap().to_string();
    assert!(error.contains(bad.rsplit_once('/').unwrap().1), "{error}");
    assert!(error.contains("os error 5"), "{error}");
    assert_eq!(names(&disk).len(), 3);
    let log = Log::open(&disk, &tiered).unwrap();
    check(&log, &disk, &objects);
}

#[test]
fn without_object_storage_a_damaged_file_stays_and_its_object_is_not_forgotten() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let tiered = changed(&tiered(&objects), |tier| tier.local_age = None);
    seal_and_upload(&disk, &tiered);
    let damaged = file_here(&disk, 1);
    disk.corrupt(&damaged, |content| content.truncate(100));

    let log = Log::open(&disk, &options(&[definition("plant", 1)])).unwrap();
    drop(log);

    assert_eq!(disk.content(&damaged).unwrap().len(), 100);
    let file = index(&disk)["partitions"][0][1].clone();
    assert!(
        file["object"].is_string() && file["remote"].is_null(),
        "{file}"
    );
    let log = Log::open(&disk, &tiered).unwrap();
    check(&log, &disk, &objects);
    assert_eq!(disk.content(&damaged), None);
}

#[test]
fn a_stream_without_its_object_storage_tells_what_it_has_there() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let tiered = tiered(&objects);
    let log = Log::open(&disk, &tiered).unwrap();
    seal(&log, 3).unwrap();
    log.store.tier(log.now_us()).unwrap();
    assert!(log.streams().notices().is_empty());
    drop(log);

    for definitions in [vec![definition("plant", 1)], Vec::new()] {
        let is_configured = !definitions.is_empty();
        let log = Log::open(&disk, &options(&definitions)).unwrap();
        let notices = log.streams().notices();
        let told = notices.last().unwrap();
        for part in [
            "stream plant: ",
            "3 objects in memory://store/plant/data. 3 of its files are there only",
            "Set url = \"memory://store\"",
        ] {
            assert!(told.contains(part), "{told}");
        }
        if !is_configured {
            assert!(notices[0].contains("not configured"), "{notices:?}");
            assert!(notices[0].contains(" 0 files with 0 bytes"), "{notices:?}");
        }
        assert_eq!(notices.len(), 2 - usize::from(is_configured));
    }
    let log = Log::open(&disk, &tiered).unwrap();
    assert!(log.streams().notices().is_empty());
    check(&log, &disk, &objects);
}

#[test]
fn retention_removes_objects_after_the_grace() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let mut options = changed(&tiered(&objects), |tier| {
        tier.grace = Duration::from_secs(3_600);
    });
    options.definitions[0].retention_age = Some(Duration::from_secs(10 * 3_600));
    let log = Log::open(&disk, &options).unwrap();
    seal(&log, 3).unwrap();
    log.store.tier(log.now_us()).unwrap();
    let later_us = log.now_us() + 11 * HOUR_US;

    log.store.maintain(later_us).unwrap();
    log.store.tier(later_us).unwrap();

    assert_eq!(log.bounds("plant")[0].earliest, 3);
    assert_eq!((objects.files().len(), stored(&objects)), (3, 0));
    log.store.tier(later_us + HOUR_US).unwrap();
    assert!(objects.files().is_empty());
}

#[test]
fn a_stream_whose_disk_is_lost_goes_on_behind_its_last_uploaded_row() {
    let (lost, objects) = (disk(), Arc::new(Memory::default()));
    let log = Log::open(&lost, &tiered(&objects)).unwrap();
    seal(&log, 4).unwrap();
    log.store.tier(log.now_us()).unwrap();
    let old_epoch = log.epoch("plant");
    append_one(&log).unwrap();

    let empty = disk();
    let restored = Log::open(&empty, &tiered(&objects)).unwrap();

    let bounds = restored.bounds("plant")[0];
    assert_eq!((bounds.earliest, bounds.sealed_end, bounds.end), (0, 4, 4));
    assert_ne!(restored.epoch("plant"), old_epoch);
    assert!(restored.streams().notices()[0].contains("4 rows were restored"));
    check(&restored, &empty, &objects);
    let at_us = i64::try_from(log.now_us()).unwrap() - 3_000_000;
    let found = restored.streams().offsets_at("plant", at_us).unwrap();
    assert_eq!(found, log.streams().offsets_at("plant", at_us).unwrap());
    work(&restored).unwrap();
    check(&restored, &empty, &objects);
    assert_eq!(stored(&objects), 6);
    // The first one, if it is still there, does not write over that.
    seal(&log, 1).unwrap();
    let error = log.store.tier(log.now_us()).unwrap_err().to_string();
    assert!(error.contains("another broker uses it"), "{error}");
    assert_eq!(stored(&objects), 6);
}

/// The power goes during a restore; the next start begins again.
#[test]
fn a_restore_that_is_interrupted_is_done_by_the_next_start() {
    let (lost, objects) = (disk(), Arc::new(Memory::default()));
    let log = Log::open(&lost, &tiered(&objects)).unwrap();
    seal(&log, 4).unwrap();
    log.store.tier(log.now_us()).unwrap();
    drop(log);
    for cut in 1.. {
        let objects = objects.copy();
        let empty = disk();
        empty.cut_after_changes(cut);
        let is_over = Log::open(&empty, &tiered(&objects)).is_ok();
        let disk = empty.after_power_cut();

        let restored = Log::open(&disk, &tiered(&objects)).unwrap();

        assert_eq!(restored.bounds("plant")[0].end, 4, "cut {cut}");
        work(&restored).unwrap();
        check(&restored, &disk, &objects);
        assert_eq!(stored(&objects), 6);
        if is_over {
            return;
        }
    }
}

#[test]
fn a_stream_does_not_begin_anew_while_its_store_is_away() {
    let objects = Arc::new(Memory::default());
    objects.take_away(0..u64::MAX, false);

    let refused = Log::open(&disk(), &tiered(&objects));

    let error = refused.err().unwrap().to_string();
    assert!(
        error.contains("memory://store/plant/stream.json"),
        "{error}"
    );
}

/// An object store that never answers.
#[derive(Debug, Default)]
struct Silent {
    closed: Mutex<bool>,
    is_closed: Condvar,
}

impl Silent {
    /// Waits until it is closed.
    fn hang<T>(&self) -> io::Result<T> {
        let closed = self.closed.lock().unwrap();
        drop(
            self.is_closed
                .wait_while(closed, |closed| !*closed)
                .unwrap(),
        );
        Err(io::ErrorKind::Interrupted.into())
    }
}

impl Objects for Silent {
    fn url(&self) -> &'static str {
        "silent://store"
    }

    fn place(&self) -> String {
        "silent://store at 192.0.2.1".to_owned()
    }

    fn put(&self, _: &str, _: &mut dyn Read, _: u64) -> io::Result<()> {
        self.hang()
    }

    fn get(&self, _: &str, _: Range<u64>) -> io::Result<Vec<u8>> {
        self.hang()
    }

    fn bytes(&self, _: &str) -> io::Result<u64> {
        self.hang()
    }

    fn list(&self, _: &str) -> io::Result<Vec<String>> {
        self.hang()
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        self.hang()
    }

    fn close(&self) {
        *self.closed.lock().unwrap() = true;
        self.is_closed.notify_all();
    }
}

#[test]
fn a_start_that_needs_a_silent_store_is_refused_within_its_limit() {
    let silent = Arc::new(Silent::default());
    let tiered = changed(&tiered(&Arc::default()), |tier| {
        tier.objects = Arc::clone(&silent) as Arc<dyn Objects>;
        tier.start_limit = Duration::from_millis(20);
    });

    let refused = Log::open(&disk(), &tiered);

    let error = refused.err().unwrap().to_string();
    for part in [
        "silent://store/plant/stream.json",
        "silent://store at 192.0.2.1 did not answer within 0 s",
        "without [streams.tier]",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert!(*silent.closed.lock().unwrap());
}

#[test]
fn a_file_that_is_still_here_is_read_here_when_object_storage_is_given_up() {
    let (disk, objects) = (disk(), Arc::new(Memory::default()));
    let hour = Duration::from_secs(3_600);
    let tiered = changed(&tiered(&objects), |tier| tier.grace = hour);
    seal_and_upload(&disk, &tiered);
    let here = names(&disk);
    let remote = |disk: &Disk| {
        let files = index(disk)["partitions"][0].clone();
        let files = files.as_array().unwrap().clone();
        files.iter().filter(|file| file["remote"] == true).count()
    };
    assert!(remote(&disk) > 0 && here.len() == remote(&disk), "{here:?}");

    let log = Log::open(&disk, &options(&[definition("plant", 1)])).unwrap();
    let told = log.streams().notices().last().unwrap().clone();
    drop(log);

    assert!(told.contains(". 0 of its files are there only"), "{told}");
    assert_eq!((names(&disk), remote(&disk)), (here, 0));
    let log = Log::open(&disk, &tiered).unwrap();
    check(&log, &disk, &objects);
}

#[test]
fn a_folder_that_is_older_than_its_objects_changes_none_of_them() {
    let (first, objects) = (disk(), Arc::new(Memory::default()));
    let log = Log::open(&first, &tiered(&objects)).unwrap();
    seal(&log, 1).unwrap();
    drop(log);
    let (newer, older) = (first.after_kill(), first.after_kill());
    let log = Log::open(&newer, &tiered(&objects)).unwrap();
    seal(&log, 1).unwrap();
    log.store.tier(log.now_us()).unwrap();
    drop(log);
    let before = objects.copy();

    let log = Log::open(&older, &tiered(&objects)).unwrap();
    let error = log.store.tier(log.now_us()).unwrap_err().to_string();

    assert!(error.contains("older copy"), "{error}");
    assert_eq!(objects.files(), before.files());
    assert_eq!(stored(&objects), 2);
    // Rows of its own do not make it newer.
    seal(&log, 3).unwrap();
    log.store.tier(log.now_us()).unwrap_err();
    assert_eq!(objects.files(), before.files());
    assert_eq!(stored(&objects), 2);
}

/// The second stream cannot begin an epoch, so the first one does not take its objects over either.
#[test]
fn a_start_that_is_refused_takes_the_objects_of_no_stream_over() {
    let (first, objects) = (disk(), Arc::new(Memory::default()));
    let mut both = changed(&tiered(&objects), |tier| tier.local_age = None);
    let mut yard = both.definitions[0].clone();
    yard.name = "yard".to_owned();
    both.definitions.push(yard);
    let seal_both = |log: &Log| {
        log.publish(&[("plant", 0), ("yard", 0)]);
        log.store.seal().unwrap();
        log.store.tier(log.now_us()).unwrap();
    };
    let log = Log::open(&first, &both).unwrap();
    seal_both(&log);
    drop(log);
    let (newer, older) = (first.after_kill(), first.after_kill());
    older.create("restored", 0).unwrap();
    let log = Log::open(&newer, &both).unwrap();
    log.publish(&[("yard", 0)]);
    log.store.seal().unwrap();
    log.store.tier(log.now_us()).unwrap();
    let owner = objects.content("plant/stream.json").unwrap();

    for _ in 0..2 {
        let refused = Log::open(&older, &both).err().unwrap().to_string();
        assert!(
            refused.contains("stream yard: partition 0 ends at 1 here"),
            "{refused}"
        );
        assert_eq!(objects.content("plant/stream.json").unwrap(), owner);
    }

    // The other broker goes on.
    seal_both(&log);
    assert_eq!(objects.files().len(), 2);
}

/// The rows that were uploaded after a backup are in object storage only.
#[test]
fn a_restored_backup_does_not_begin_an_epoch_before_object_storage_has_answered() {
    let (first, objects) = (disk(), Arc::new(Memory::default()));
    let options = changed(&tiered(&objects), |tier| tier.local_age = None);
    let log = Log::open(&first, &options).unwrap();
    seal(&log, 2).unwrap();
    log.store.tier(log.now_us()).unwrap();
    drop(log);
    let (newer, same, older) = (first.after_kill(), first.after_kill(), first.after_kill());
    for copy in [&same, &older] {
        copy.create("restored", 0).unwrap();
    }
    let refused = |disk: &Disk| Log::open(disk, &options).err().unwrap().to_string();

    objects.take_away(0..u64::MAX, false);
    let error = refused(&same);
    assert!(
        error.contains("memory://store/plant/stream.json"),
        "{error}"
    );
    refused(&same);
    objects.give_back();
    let log = Log::open(&newer, &options).unwrap();
    seal(&log, 2).unwrap();
    log.store.tier(log.now_us()).unwrap();
    drop(log);
    let error = refused(&older);
    assert!(error.contains("ends at 2 here, and at 4"), "{error}");
    refused(&older);

    assert_eq!(stored(&objects), 4);
    let log = Log::open(&newer, &options).unwrap();
    seal(&log, 1).unwrap();
    log.store.tier(log.now_us()).unwrap();
    assert_eq!(stored(&objects), 5);
}
