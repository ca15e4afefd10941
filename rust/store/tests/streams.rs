//! Streams over a simulated disk and a real folder: what is seen, when, and what is left of it.
#![cfg(feature = "columnar")]
#![allow(clippy::unwrap_used, reason = "a test fails with it")]

mod common;
mod stream_support;

use std::io;
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use bytes::Bytes;
use common::files;
use mqttcore_store::faults::{Disk, Faults};
use mqttcore_store::files::{Claim, File, Files, FolderAccess, Space};
use mqttcore_store::stream::{Bounds, Definition, ProtobufMessage, StreamError};
use mqttcore_store::{CopyProgress, Durability, NOTED, Store, StoreError, tools};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use stream_support::{Log, STORE, definition, offsets, options, payload, tail};

const SECOND_US: u64 = 1_000_000;

#[test]
fn a_row_is_seen_once_it_is_safe() {
    let disk = Disk::new(1, Faults::default());
    let log = Log::open(&disk, &options(&[definition("plant", 2)])).unwrap();
    log.append(Durability::Os, 1, &[("plant", 0), ("plant", 1)]);
    log.store.step().unwrap();
    assert_eq!(log.bounds("plant")[0].end, 0);

    log.append(Durability::Fsync, 2, &[("plant", 0)]);
    log.store.step().unwrap();

    assert_eq!(
        log.bounds("plant")
            .iter()
            .map(|bounds| bounds.end)
            .collect::<Vec<_>>(),
        [2, 1]
    );
    assert_eq!(offsets(&tail(&log, "plant", 0, 0, 2).unwrap()), [0, 1]);
    assert!(matches!(
        tail(&log, "plant", 1, 0, 2),
        Err(StreamError::Beyond { end: 1, .. })
    ));
    assert!(matches!(
        tail(&log, "other", 0, 0, 1),
        Err(StreamError::Unknown(_))
    ));
    assert!(matches!(
        tail(&log, "plant", 2, 0, 1),
        Err(StreamError::Partition { .. })
    ));
}

#[test]
fn rows_come_back_after_a_restart_sealed_or_not() {
    let disk = Disk::new(1, Faults::default());
    let options = options(&[definition("plant", 1)]);
    let log = Log::open(&disk, &options).unwrap();
    log.publish(&[("plant", 0), ("plant", 0)]);
    log.store.seal().unwrap();
    log.publish(&[("plant", 0)]);
    let expected = Bounds {
        earliest: 0,
        sealed_end: 2,
        end: 3,
    };
    assert_eq!(log.bounds("plant"), [expected]);
    let before = log.rows("plant", 0);

    let disk = disk.after_kill();
    let log = Log::open(&disk, &options).unwrap();

    assert_eq!(log.bounds("plant"), [expected]);
    assert_eq!(offsets(&tail(&log, "plant", 0, 2, 3).unwrap()), [2]);
    assert!(matches!(
        tail(&log, "plant", 0, 0, 3),
        Err(StreamError::Sealed { from: 0, to: 2, .. })
    ));
    assert_eq!(log.rows("plant", 0), before);
    let payloads: Vec<_> = before.into_iter().map(|(_, _, payload)| payload).collect();
    assert_eq!(payloads, [payload(0), payload(1), payload(2)]);
}

/// A name, once given, belongs to one stream of one store for ever.
#[test]
fn a_stream_that_is_not_what_it_was_is_refused() {
    let disk = Disk::new(1, Faults::default());
    drop(Log::open(&disk, &options(&[definition("plant", 2)])).unwrap());
    let mut other_key = definition("plant", 2);
    other_key.key = mqttcore_store::stream::PartitionKey::ClientId;
    let cases = [
        definition("plant", 3),
        other_key,
        definition("../x", 1),
        definition("plant", 0),
    ];

    for case in cases {
        let refused = Log::open(&disk.after_kill(), &options(&[case])).err();
        assert!(
            matches!(refused, Some(StoreError::Stream { .. })),
            "{refused:?}"
        );
    }
    let disk = disk.after_kill();
    disk.corrupt("streams/plant/stream.json", |text| {
        let store = text
            .windows(9)
            .position(|part| part == b"\"store\":\"")
            .unwrap()
            + 9;
        text[store] = if text[store] == b'0' { b'1' } else { b'0' };
    });
    let refused = Log::open(&disk, &options(&[definition("plant", 2)])).err();
    let told = refused.unwrap().to_string();
    assert!(told.contains("belongs to store"), "{told}");
}

#[test]
fn a_stream_that_is_configured_no_more_can_be_read_and_sealed() {
    let disk = Disk::new(1, Faults::default());
    let log = Log::open(&disk, &options(&[definition("plant", 1)])).unwrap();
    log.publish(&[("plant", 0)]);

    let disk = disk.after_kill();
    let log = Log::open(&disk, &options(&[])).unwrap();
    log.store.seal().unwrap();

    assert_eq!(
        log.bounds("plant"),
        [Bounds {
            earliest: 0,
            sealed_end: 1,
            end: 1
        }]
    );
}

/// Rule 3: what was only in the page cache is made safe before it is seen.
#[test]
fn rule_3_what_is_seen_after_a_crash_survives_the_next_one() {
    let disk = Disk::new(1, Faults::default());
    let options = options(&[definition("plant", 1)]);
    let log = Log::open(&disk, &options).unwrap();
    log.append(Durability::Os, 7, &[("plant", 0)]);
    log.store.step().unwrap();

    let disk = disk.after_kill();
    let log = Log::open(&disk, &options).unwrap();
    assert_eq!(log.bounds("plant")[0].end, 1);
    drop(log);
    let log = Log::open(&disk.after_power_cut(), &options).unwrap();

    assert_eq!(log.bounds("plant")[0].end, 1);
}

/// Rule 4: a deleted folder, a restored copy, a log that was set back.
#[test]
fn rule_4_an_offset_of_another_epoch_is_told_from_ours() {
    let disk = Disk::new(1, Faults::default());
    let options = options(&[definition("plant", 1)]);
    let log = Log::open(&disk, &options).unwrap();
    let first = log.epoch("plant");
    log.publish(&[("plant", 0)]);
    drop(log);
    let log = Log::open(&disk.after_kill(), &options).unwrap();
    assert_eq!(log.epoch("plant"), first, "a crash is none of these");
    let disk = disk.after_kill();
    let streams = disk.folder("streams", FolderAccess::Owner).unwrap();
    let folder = streams.folder("plant", FolderAccess::Owner).unwrap();
    folder.remove("stream.json").unwrap();
    folder.sync_names().unwrap();

    let log = Log::open(&disk, &options).unwrap();
    let deleted = log.epoch("plant");
    assert_ne!(deleted, first);
    assert_eq!(log.bounds("plant")[0].end, 0);
    drop(log);
    let disk = disk.after_kill();
    disk.create("restored", 0).unwrap();
    disk.sync_names().unwrap();
    let restored = Log::open(&disk, &options).unwrap().epoch("plant");
    assert_ne!(restored, deleted);
    let disk = disk.after_kill();
    assert_eq!(Log::open(&disk, &options).unwrap().epoch("plant"), restored);
}

#[test]
fn rule_4_a_log_that_ends_below_what_somebody_has_read_begins_a_new_epoch() {
    let disk = Disk::new(1, Faults::default());
    let options = options(&[definition("plant", 1)]);
    let log = Log::open(&disk, &options).unwrap();
    log.publish(&[("plant", 0)]);
    let old = disk.after_kill();
    let disk = old.after_kill();
    let log = Log::open(&disk, &options).unwrap();
    let first = log.epoch("plant");
    log.publish(&[("plant", 0)]);
    log.streams().hold("plant", "spark", &[2]).unwrap();
    let holds = disk.content("streams/plant/holds.json").unwrap();

    // The log of before, and what was read of the one after.
    let old = old.after_kill();
    let streams = old.folder("streams", FolderAccess::Owner).unwrap();
    let folder = streams.folder("plant", FolderAccess::Owner).unwrap();
    let file = folder.create("holds.json", 0).unwrap();
    file.write_at(&holds, 0).unwrap();
    let log = Log::open(&old, &options).unwrap();

    assert_ne!(log.epoch("plant"), first);
}

/// Rule 6: a hold keeps rows from being given up, and ends by itself.
#[test]
fn rule_6_a_hold_keeps_rows_until_it_expires() {
    let disk = Disk::new(1, Faults::default());
    let mut plant = definition("plant", 1);
    plant.retention_bytes = Some(1);
    let options = options(&[plant]);
    let log = Log::open(&disk, &options).unwrap();
    log.publish(&[("plant", 0), ("plant", 0)]);
    log.store.seal().unwrap();
    log.publish(&[("plant", 0)]);
    log.store.seal().unwrap();
    log.streams().hold("plant", "spark", &[1]).unwrap();
    let refused = log.streams().hold("plant", "spark", &[4]);
    assert!(matches!(refused, Err(StreamError::Argument { .. })));

    let now_us = log.now_us();
    log.store.maintain(now_us).unwrap();
    assert_eq!(
        log.bounds("plant")[0].earliest,
        0,
        "the first file has row 1"
    );
    drop(log);
    let log = Log::open(&disk.after_kill(), &options).unwrap();
    log.store.maintain(now_us).unwrap();
    assert_eq!(
        log.bounds("plant")[0].earliest,
        0,
        "a hold outlives the broker"
    );

    log.streams().hold("plant", "spark", &[2]).unwrap();
    log.store.maintain(now_us).unwrap();
    assert_eq!(log.bounds("plant")[0].earliest, 2);
    log.store.maintain(now_us + 8 * 86_400 * SECOND_US).unwrap();
    assert_eq!(log.bounds("plant")[0].earliest, 3, "seven days are over");
    assert!(log.streams().release("plant", "spark").unwrap());
    assert!(!log.streams().release("plant", "spark").unwrap());
}

#[test]
fn a_consumer_is_as_far_behind_as_its_hold_until_it_expires() {
    let disk = Disk::new(1, Faults::default());
    let streams = [definition("plant", 2), definition("empty", 1)];
    let log = Log::open(&disk, &options(&streams)).unwrap();
    log.publish(&[("plant", 0), ("plant", 0), ("plant", 1)]);
    let streams = log.streams();
    streams.hold("plant", "spark", &[1, 0]).unwrap();
    streams
        .hold_of_owner("plant", "key", "etl", &[2, 1])
        .unwrap();

    let lags = streams.hold_lags();

    let lags: Vec<_> = lags
        .iter()
        .map(|lag| (&*lag.stream, &*lag.consumer, lag.rows))
        .collect();
    assert_eq!(lags, [("plant", "key: etl", 0), ("plant", "spark", 2)]);
    log.clock.set(log.now_us() + 8 * 86_400 * SECOND_US);
    assert_eq!(log.streams().hold_lags(), []);
}

/// Rule 6: the stream says for how long it waits; the last word of the consumer counts.
#[test]
fn rule_6_a_hold_lasts_as_long_as_the_stream_says() {
    let disk = Disk::new(1, Faults::default());
    let mut plant = definition("plant", 1);
    plant.retention_bytes = Some(1);
    plant.hold_max = Some(std::time::Duration::from_secs(3_600));
    let log = Log::open(&disk, &options(&[plant])).unwrap();
    log.publish(&[("plant", 0)]);
    log.store.seal().unwrap();
    log.streams().hold("plant", "spark", &[0]).unwrap();
    let minute_us = 60 * SECOND_US;

    log.store.maintain(log.now_us() + 59 * minute_us).unwrap();
    assert_eq!(log.bounds("plant")[0].earliest, 0);
    log.store.maintain(log.now_us() + 61 * minute_us).unwrap();

    assert_eq!(log.bounds("plant")[0].earliest, 1);
}

/// Rule 7: first nobody may begin to read it, an hour later it goes.
#[test]
fn rule_7_a_file_goes_an_hour_after_its_rows_were_given_up() {
    let disk = Disk::new(1, Faults::default());
    let mut plant = definition("plant", 1);
    plant.retention_age = Some(std::time::Duration::from_secs(60));
    let options = options(&[plant]);
    let log = Log::open(&disk, &options).unwrap();
    log.publish(&[("plant", 0)]);
    log.store.seal().unwrap();
    log.publish(&[("plant", 0)]);
    let file = "streams/plant/data/00000-00000000000000000000.parquet";
    let now_us = log.now_us();

    log.store.maintain(now_us).unwrap();
    assert_eq!(log.bounds("plant")[0].earliest, 0);
    log.store.maintain(now_us + 61 * SECOND_US).unwrap();

    assert_eq!(
        log.bounds("plant")[0],
        Bounds {
            earliest: 1,
            sealed_end: 1,
            end: 2
        }
    );
    let gone = tail(&log, "plant", 0, 0, 2);
    assert!(matches!(
        gone,
        Err(StreamError::Gone {
            from: 0,
            to: 1,
            earliest: 1,
            ..
        })
    ));
    assert!(disk.content(file).is_some());
    log.store.maintain(now_us + 3_660 * SECOND_US).unwrap();
    assert!(disk.content(file).is_some());
    log.store.maintain(now_us + 3_662 * SECOND_US).unwrap();
    assert!(disk.content(file).is_none());
    drop(log);
    let log = Log::open(&disk.after_kill(), &options).unwrap();
    assert_eq!(
        log.bounds("plant")[0],
        Bounds {
            earliest: 1,
            sealed_end: 1,
            end: 2
        }
    );
}

#[test]
fn small_neighbours_become_one_file_with_the_same_rows() {
    let disk = Disk::new(1, Faults::default());
    let options = options(&[definition("plant", 1)]);
    let log = Log::open(&disk, &options).unwrap();
    for _ in 0..17 {
        log.publish(&[("plant", 0), ("plant", 0)]);
        log.store.seal().unwrap();
    }
    let before = log.rows("plant", 0);

    log.store.maintain(log.now_us()).unwrap();

    let data = disk
        .folder("streams/plant/data", FolderAccess::Owner)
        .unwrap();
    assert_eq!(data.list().unwrap().len(), 1);
    assert_eq!((before.len(), log.rows("plant", 0)), (34, before));
}

#[test]
fn a_time_leads_to_the_first_row_at_or_behind_it() {
    let disk = Disk::new(1, Faults::default());
    let log = Log::open(&disk, &options(&[definition("plant", 1)])).unwrap();
    let begin = log.now_us();
    for _ in 0..4 {
        log.publish(&[("plant", 0)]);
    }
    log.store.seal().unwrap();
    log.publish(&[("plant", 0)]);
    let at = |half_seconds: u64| {
        let at_us = i64::try_from(begin + half_seconds * SECOND_US / 2).unwrap();
        log.streams().offsets_at("plant", at_us).unwrap()[0]
    };

    let found = [0, 1, 2, 5, 6, 7, 8, 9].map(at);
    assert_eq!(found, [0, 1, 1, 3, 3, 4, 4, 5]);
}

/// Rule 12: what is too large for a row is no row, and is counted.
#[test]
fn rule_12_a_message_too_large_for_a_row_is_refused_and_counted() {
    let disk = Disk::new(1, Faults::default());
    let log = Log::open(&disk, &options(&[definition("plant", 4)])).unwrap();
    let streams = log.streams();
    let plant = streams.find("plant").unwrap();

    let partition = streams.route(plant, "t", "c", 1 << 30).unwrap();
    assert!(partition < 4);
    assert_eq!(streams.route(plant, "t", "c", 2_000), Some(partition));
    assert_eq!(streams.route(plant, "t", "c", (1 << 30) + 1), None);
    assert_eq!(streams.figures().refused_rows, 1);
}

/// A file is adopted whose name was in the page cache alone: the next crash must not take it.
#[test]
fn a_file_that_is_adopted_is_there_after_the_next_power_cut() {
    let options = options(&[definition("plant", 1)]);
    for calls in 1..60 {
        let disk = Disk::new(calls, Faults::default());
        let log = Log::open(&disk, &options).unwrap();
        log.publish(&[("plant", 0), ("plant", 0)]);
        let before = log.rows("plant", 0);
        disk.cut_after(calls);
        // It ends somewhere on the way into the file.
        let _ = log.store.seal();
        let disk = disk.after_kill();
        drop(Log::open(&disk, &options).unwrap());

        let log = Log::open(&disk.after_power_cut(), &options).unwrap();

        assert_eq!(
            log.rows("plant", 0),
            before,
            "the power went in call {calls}"
        );
    }
}

/// A store with rows in files and rows in the log alone.
fn half_sealed() -> (Disk, Vec<stream_support::Row>) {
    let disk = Disk::new(1, Faults::default());
    let log = Log::open(&disk, &options(&[definition("plant", 1)])).unwrap();
    log.publish(&[("plant", 0); 20]);
    log.store.seal().unwrap();
    log.publish(&[("plant", 0); 20]);
    let rows = log.rows("plant", 0);
    (disk.after_kill(), rows)
}

#[test]
fn a_store_that_nobody_has_open_is_described_verified_and_sealed() {
    let (disk, rows) = half_sealed();

    let info = tools::info(&files(&disk)).unwrap();
    let told = |streams: &[tools::StreamInfo]| {
        let plant = &streams[0];
        (
            plant.name.clone(),
            plant.rows,
            plant.unsealed_rows,
            plant.files,
        )
    };
    assert_eq!(told(&info.streams), ("plant".to_owned(), 40, 20, 1));
    assert_eq!(tools::verify(&files(&disk)).unwrap().streams, info.streams);

    let sealed = tools::seal(&files(&disk), &STORE).unwrap();

    assert_eq!(told(&sealed), ("plant".to_owned(), 40, 0, 2));
    tools::verify(&files(&disk)).unwrap();
    let log = Log::open(&disk, &options(&[definition("plant", 1)])).unwrap();
    assert_eq!(
        log.bounds("plant")[0],
        Bounds {
            earliest: 0,
            sealed_end: 40,
            end: 40
        }
    );
    assert_eq!(log.rows("plant", 0), rows);
}

/// Rule 5: what is missing is an error that names it, here and at every reader.
#[test]
fn rule_5_a_file_that_is_gone_or_broken_is_named() {
    let file = "00000-00000000000000000000.parquet";
    let (disk, _) = half_sealed();
    let data = disk
        .folder("streams/plant/data", FolderAccess::Owner)
        .unwrap();
    data.remove(file).unwrap();
    data.sync_names().unwrap();
    let told = tools::verify(&files(&disk)).unwrap_err().to_string();
    assert!(
        told.contains("offsets 0 to 20 (exclusive) are missing"),
        "{told}"
    );
    let log = Log::open(&disk, &options(&[definition("plant", 1)])).unwrap();
    assert_eq!(
        log.bounds("plant")[0].earliest,
        0,
        "nothing is skipped in silence"
    );

    let (disk, _) = half_sealed();
    disk.corrupt(&format!("streams/plant/data/{file}"), |content| {
        for byte in &mut content[20..200] {
            *byte ^= 0x55;
        }
    });
    let told = tools::verify(&files(&disk)).unwrap_err().to_string();
    assert!(told.contains(file), "{told}");
}

/// Rule 4: whoever knows an offset of the original is told that the copy is another log.
#[test]
fn rule_4_a_copy_has_all_rows_and_an_epoch_of_its_own() {
    let (disk, rows) = half_sealed();
    let copy = Disk::new(2, Faults::default());

    tools::backup(&files(&disk), &copy, &CopyProgress::default()).unwrap();

    let options = options(&[definition("plant", 1)]);
    let epoch = Log::open(&disk, &options).unwrap().epoch("plant");
    tools::verify(&files(&copy)).unwrap();
    let log = Log::open(&copy, &options).unwrap();
    assert_eq!(log.rows("plant", 0), rows);
    assert_ne!(log.epoch("plant"), epoch);
}

/// A folder that has something done before the first file is copied into it.
struct Meddled {
    disk: Disk,
    meddle: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Meddled {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.disk.fmt(formatter)
    }
}

impl Files for Meddled {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn File>> {
        if name.contains(".log")
            && let Some(meddle) = self.meddle.lock().unwrap().take()
        {
            meddle();
        }
        self.disk.create(name, bytes)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.disk.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn folder(&self, name: &str, access: FolderAccess) -> io::Result<Arc<dyn Files>> {
        self.disk.folder(name, access)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }

    fn space(&self) -> io::Result<Space> {
        self.disk.space()
    }

    fn claim(&self) -> io::Result<Claim> {
        self.disk.claim()
    }
}

/// Rule 4: nobody waits for a copy, and what goes or comes meanwhile is in it as it was when it began.
#[test]
fn rule_4_a_copy_is_of_one_moment_whatever_is_sealed_merged_and_removed_meanwhile() {
    let disk = Disk::new(1, Faults::default());
    let mut plant = definition("plant", 1);
    plant.retention_bytes = Some(1);
    let options = options(&[plant]);
    let log = Arc::new(Log::open(&disk, &options).unwrap());
    for _ in 0..3 {
        log.publish(&[("plant", 0); 20]);
        log.store.seal().unwrap();
    }
    log.publish(&[("plant", 0); 20]);
    let (rows, epoch) = (log.rows("plant", 0), log.epoch("plant"));
    let copy = Disk::new(2, Faults::default());
    let meddled = Arc::clone(&log);
    let to = Meddled {
        disk: copy.clone(),
        meddle: Mutex::new(Some(Box::new(move || {
            meddled.publish(&[("plant", 0); 20]);
            meddled.store.seal().unwrap();
            let now_us = meddled.now_us();
            meddled.store.maintain(now_us).unwrap();
            meddled.store.maintain(now_us + 4_000 * SECOND_US).unwrap();
            meddled.store.checkpoint().unwrap();
        }))),
    };

    log.store.backup(&to, &CopyProgress::default()).unwrap();

    assert_eq!(log.bounds("plant")[0].earliest, 100, "all files are gone");
    tools::verify(&files(&copy)).unwrap();
    let copied = Log::open(&copy, &options).unwrap();
    assert_eq!(copied.rows("plant", 0), rows, "from offset 0 on");
    assert_ne!(copied.epoch("plant"), epoch);
    assert_eq!(log.epoch("plant"), epoch, "the original goes on as it was");
}

/// What notes tell of is in a copy, and what is not whole yet is not.
#[test]
fn a_copy_has_the_files_that_notes_tell_of() {
    let disk = Disk::new(1, Faults::default());
    let log = Log::open(&disk, &options(&[])).unwrap();
    let folder = disk.folder(NOTED, FolderAccess::Owner).unwrap();
    for name in ["q.0.one.arrow", "_q.0.two.arrow"] {
        let file = folder.create(name, 0).unwrap();
        file.write_at(name.as_bytes(), 0).unwrap();
    }
    let copies = [2, 3].map(|number| Disk::new(number, Faults::default()));

    log.store
        .backup(&copies[0], &CopyProgress::default())
        .unwrap();
    drop(log);
    tools::backup(&files(&disk), &copies[1], &CopyProgress::default()).unwrap();

    for copy in copies {
        let folder = copy.folder(NOTED, FolderAccess::Owner).unwrap();
        assert_eq!(folder.list().unwrap(), ["q.0.one.arrow"]);
        let content = copy.content(&format!("{NOTED}/q.0.one.arrow"));
        assert_eq!(content.unwrap(), b"q.0.one.arrow");
    }
}

/// Rule 4: damage in the log takes the rows in it and no others.
#[test]
fn rule_4_a_repaired_log_keeps_the_readable_rows_and_begins_an_epoch() {
    let (disk, rows) = half_sealed();
    let options = options(&[definition("plant", 1)]);
    let epoch = Log::open(&disk.after_kill(), &options)
        .unwrap()
        .epoch("plant");
    let disk = disk.after_kill();
    hit_row(&disk);

    let repair = tools::repair(&files(&disk), &STORE).unwrap();

    assert!(repair.damage.is_some());
    let log = Log::open(&disk, &options).unwrap();
    assert_ne!(log.epoch("plant"), epoch);
    assert_eq!(log.bounds("plant")[0].sealed_end, 40);
    let left = stream_support::read(&disk, &log.streams(), "plant", 0);
    assert!(left.len() < 40 && left.len() > 30, "{} rows", left.len());
    assert!(left.iter().all(|row| rows.contains(row)));
    log.publish(&[("plant", 0)]);
    assert_eq!(log.bounds("plant")[0].end, 41, "no offset is given again");
}

/// Overwrites a row behind those that are sealed, in a full segment.
fn hit_row(disk: &Disk) {
    let names = disk.list().unwrap();
    let mut logs = names
        .iter()
        .filter(|name| name.strip_suffix(".log").is_some());
    let hit = logs.nth_back(1).unwrap();
    disk.corrupt(hit, |content| {
        content[1_590..1_640].iter_mut().for_each(|byte| *byte ^= 1);
    });
}

/// Rule 4, whenever the power goes in between: rows are saved once, under their offsets, and in a later epoch.
#[test]
fn rule_4_a_repair_that_is_cut_anywhere_keeps_the_rows_that_another_one_keeps() {
    let (damaged, _) = half_sealed();
    hit_row(&damaged);
    let options = options(&[definition("plant", 1)]);
    let opened = |disk: &Disk| {
        let log = Log::open(disk, &options)?;
        Ok::<_, StoreError>((log.rows("plant", 0), log.bounds("plant")[0].end))
    };
    let disk = damaged.after_kill();
    tools::repair(&files(&disk), &STORE).unwrap();
    let mended = opened(&disk).unwrap();
    for changes in 1.. {
        let disk = damaged.after_kill();
        disk.reseed(changes);
        disk.cut_after_changes(changes);
        let _ = tools::repair(&files(&disk), &STORE);
        if !disk.is_off() {
            assert!(changes > 50, "{changes}");
            break;
        }
        let disk = disk.after_power_cut();
        match opened(&disk) {
            Ok(rows) => assert!(rows == mended, "change {changes}"),
            Err(error) => {
                let is_told = matches!(error, StoreError::Damaged(_));
                assert!(is_told, "change {changes}: {error}");
            }
        }
        tools::repair(&files(&disk), &STORE)
            .unwrap_or_else(|error| panic!("change {changes}: {error}"));
        assert!(opened(&disk).unwrap() == mended, "change {changes}");
    }
}

/// Rule 12: typed columns are added, and nothing else.
#[test]
fn rule_12_typed_columns_are_added_and_never_changed() {
    let disk = Disk::new(1, Faults::default());
    let columns = |names: &[(&str, &str)]| {
        let mut plant = definition("plant", 1);
        plant.decode = Some("json".to_owned());
        let own = |text: &&str| (*text).to_owned();
        plant.columns = names
            .iter()
            .map(|(name, kind)| (own(name), own(kind)))
            .collect();
        options(&[plant])
    };
    let log = Log::open(&disk, &columns(&[("value", "double")])).unwrap();
    let row = |log: &Log, payload: &[u8]| {
        let ticket = stream_support::append_payload(&log.store, payload);
        log.store.wait(ticket).unwrap();
        log.store.seal().unwrap();
    };
    row(&log, b"{\"value\": 1.5, \"count\": 7}");
    row(&log, b"no json");
    let disk = disk.after_kill();

    let refused = Log::open(&disk.after_kill(), &columns(&[("value", "long")])).err();
    assert!(
        matches!(refused, Some(StoreError::Stream { .. })),
        "{refused:?}"
    );
    let disk = disk.after_kill();
    let refused = Log::open(&disk.after_kill(), &columns(&[("count", "long")])).err();
    assert!(
        matches!(refused, Some(StoreError::Stream { .. })),
        "{refused:?}"
    );
    let disk = disk.after_kill();
    let log = Log::open(&disk, &columns(&[("value", "double"), ("count", "long")])).unwrap();
    assert!(
        log.streams()
            .describe("plant")
            .unwrap()
            .schema
            .contains("\"version\":2")
    );
    for _ in 0..14 {
        row(&log, b"{\"value\": 2.5, \"count\": 8}");
    }
    log.store.maintain(log.now_us()).unwrap();

    let merged = stream_support::column_f64_i64(&disk, "00000-00000000000000000000.parquet");
    assert_eq!(merged.len(), 16, "old rows and new ones are in one file");
    assert_eq!(
        merged[0],
        (Some(1.5), Some(7)),
        "an old row has the new column, too"
    );
    assert_eq!(
        (merged[1], merged[15]),
        ((None, None), (Some(2.5), Some(8)))
    );
}

/// Messages of Protocol Buffers become typed columns, by a descriptor that is kept in the folder of the stream.
#[test]
fn payloads_of_protocol_buffers_become_typed_columns() {
    let disk = Disk::new(1, Faults::default());
    let plant = |message: &str, columns: &[(&str, &str)]| {
        let columns = columns.iter();
        let columns = columns.map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()));
        options(&[Definition {
            decode: Some("protobuf".to_owned()),
            protobuf: Some(ProtobufMessage {
                descriptor: include_bytes!("../../columnar/tests/protobuf/machine.binpb").to_vec(),
                name: message.to_owned(),
            }),
            columns: columns.collect(),
            ..definition("plant", 1)
        }])
    };
    let columns = [("temperature", "double"), ("unit", "string")];
    let log = Log::open(&disk, &plant("factory.Machine", &columns)).unwrap();
    // temperature = 21.5 and unit = "K"; no message
    for payload in [&b"\x09\0\0\0\0\0\x80\x35\x40\x52\x01K"[..], b"\xff"] {
        let ticket = stream_support::append_payload(&log.store, payload);
        log.store.wait(ticket).unwrap();
    }
    drop(log);

    // Nobody configures it any more: it is decoded still.
    let disk = disk.after_kill();
    let log = Log::open(&disk, &options(&[])).unwrap();
    log.store.seal().unwrap();

    let file = "streams/plant/data/00000-00000000000000000000.parquet";
    let content = Bytes::from(disk.content(file).unwrap());
    let reader = ParquetRecordBatchReaderBuilder::try_new(content).unwrap();
    let batch = reader.build().unwrap().next().unwrap().unwrap();
    let temperatures = batch["temperature"].as_primitive::<Float64Type>();
    assert_eq!(temperatures.iter().collect::<Vec<_>>(), [Some(21.5), None]);
    let units = batch["unit"].as_string::<i32>();
    assert_eq!(units.iter().collect::<Vec<_>>(), [Some("K"), None]);
    drop(log);
    let refused = Log::open(&disk.after_kill(), &plant("Engine", &columns)).err();
    let told = refused.unwrap().to_string();
    assert!(
        told.contains("plant") && told.contains("factory.Machine"),
        "{told}"
    );
}

/// What a change of the configuration leaves behind is said at the start.
#[test]
fn a_stream_that_is_renamed_and_one_with_other_filters_are_reported() {
    let disk = Disk::new(1, Faults::default());
    let log = Log::open(
        &disk,
        &options(&[definition("old", 1), definition("plant", 1)]),
    )
    .unwrap();
    assert!(log.streams().notices().is_empty());
    log.publish(&[("old", 0), ("plant", 0)]);
    log.store.seal().unwrap();
    log.streams().hold("old", "etl", &[0]).unwrap();
    drop(log);
    let disk = disk.after_kill();

    let mut plant = definition("plant", 1);
    plant.filters = vec!["plant/#".to_owned()];
    let changed = options(&[definition("new", 1), plant]);
    let notices = Log::open(&disk, &changed).unwrap().streams().notices();
    let again = Log::open(&disk.after_kill(), &changed).unwrap();

    let (old, plant) = (&notices[0], &notices[1]);
    for part in [
        "stream old: it is not configured",
        "1 files with",
        "in streams/old, held by etl",
    ] {
        assert!(old.contains(part), "{old}");
    }
    let filters = r##"its filters were ["#"] and are ["plant/#"]"##;
    assert!(plant.contains(filters), "{plant}");
    assert_eq!(notices.len(), 2);
    assert_eq!(
        again.streams().notices(),
        [old.as_str()],
        "a change is told once"
    );
    assert!(!again.streams().describe("old").unwrap().is_configured);
    assert!(again.streams().describe("plant").unwrap().is_configured);
}
