//! The log, driven by one thread: records that are read back, cut or refused.

mod bits;
mod full;
mod power;
mod rows;

use std::sync::Arc;

use crate::error::StoreError;
use crate::faults::{Disk, Faults};
use crate::files::Files;
use crate::record::Record;
use crate::wal::batch::Batch;
use crate::wal::open::{LogExpectation, Recovery, open};
use crate::wal::segment::StoreId;
use crate::wal::writer::{SegmentWriter, WrittenGroup};

const STORE: StoreId = *b"0123456789abcdef";

fn known(segment_bytes: u64) -> LogExpectation {
    LogExpectation {
        store: STORE,
        knows_store: false,
        has_checkpoint: false,
        applied_lsn: 0,
        segment_bytes,
        is_read_only: false,
    }
}

/// A record that carries a number.
fn numbered(number: u64) -> Record<'static> {
    Record::Sending {
        session: 7,
        delivery: number,
        packet_id: 1,
    }
}

fn number(record: &Record<'_>) -> u64 {
    match record {
        Record::Sending { delivery, .. } => *delivery,
        other => panic!("{other:?} was never written"),
    }
}

/// Opens the log on `disk`; returns its numbers as well.
fn reopen(
    disk: &Disk,
    known: &LogExpectation,
) -> Result<(SegmentWriter, Recovery, Vec<u64>), StoreError> {
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let mut numbers = Vec::new();
    let mut next = None;
    let (writer, recovery) = open(&files, known, &mut |logged| {
        assert!(next.is_none_or(|next| next == logged.lsn), "LSNs are dense");
        next = Some(logged.lsn + 1);
        numbers.push(number(&logged.record));
        Ok(())
    })?;
    Ok((writer, recovery, numbers))
}

fn write(writer: &mut SegmentWriter, numbers: &[u64]) -> Result<WrittenGroup, StoreError> {
    let mut batch = Batch::default();
    for &number in numbers {
        batch.push(&numbered(number));
    }
    let records = batch.records();
    writer.write(&mut batch.bytes, records)
}

/// A disk with the numbers 1 to 6 in three groups, all safe.
fn small_log() -> Disk {
    let disk = Disk::new(1, Faults::default());
    let (mut writer, ..) = reopen(&disk, &known(1_024)).unwrap();
    for numbers in [&[1, 2][..], &[3], &[4, 5, 6]] {
        write(&mut writer, numbers).unwrap();
        writer.sync().unwrap();
    }
    disk
}

#[test]
fn what_was_written_is_read_back_in_order() {
    let disk = small_log();

    let (writer, recovery, numbers) = reopen(&disk, &known(1_024)).unwrap();

    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert_eq!(
        (recovery.last_lsn, recovery.torn, recovery.renewed),
        (6, None, 3)
    );
    assert_eq!(writer.next_lsn, 7);
}

#[test]
fn a_log_goes_on_behind_what_it_has() {
    let disk = small_log();
    for run in 0..20 {
        let (mut writer, ..) = reopen(&disk, &known(1_024)).unwrap();
        write(&mut writer, &[7 + run]).unwrap();
    }

    let (writer, _, numbers) = reopen(&disk, &known(1_024)).unwrap();

    assert_eq!(numbers, (1..=26).collect::<Vec<_>>());
    assert!(
        !writer.older.is_empty(),
        "it has more than one segment by now"
    );
}

#[test]
fn a_group_that_is_larger_than_a_segment_gets_one_of_its_own() {
    let disk = small_log();
    let (mut writer, ..) = reopen(&disk, &known(1_024)).unwrap();
    let many: Vec<u64> = (7..100).collect();

    write(&mut writer, &many).unwrap();

    let (_, _, numbers) = reopen(&disk, &known(1_024)).unwrap();
    assert_eq!(numbers, (1..100).collect::<Vec<_>>());
}

#[test]
fn what_the_checkpoint_has_is_not_visited() {
    let disk = small_log();
    let known = LogExpectation {
        applied_lsn: 4,
        ..known(1_024)
    };

    let (_, recovery, numbers) = reopen(&disk, &known).unwrap();

    assert_eq!((numbers, recovery.records), (vec![5, 6], 2));
}

#[test]
fn a_log_that_ends_before_the_checkpoint_is_damaged() {
    let disk = small_log();
    let known = LogExpectation {
        applied_lsn: 9,
        ..known(1_024)
    };

    let refused = reopen(&disk, &known).err();

    assert!(matches!(refused, Some(StoreError::Damaged(damage)) if damage.last_lsn == 9));
}

#[test]
fn a_log_without_files_is_damaged_if_the_checkpoint_knows_of_it() {
    let disk = Disk::new(1, Faults::default());
    let known = LogExpectation {
        applied_lsn: 9,
        ..known(1_024)
    };

    assert!(matches!(reopen(&disk, &known), Err(StoreError::Damaged(_))));
}

#[test]
fn a_missing_segment_is_damage() {
    let disk = small_log();
    let (mut writer, ..) = reopen(&disk, &known(1_024)).unwrap();
    for number in 7..80 {
        write(&mut writer, &[number]).unwrap();
    }
    disk.remove("00000000000000000002.log").unwrap();

    let refused = reopen(&disk, &known(1_024)).err();

    assert!(matches!(refused, Some(StoreError::Damaged(damage))
        if damage.reason == "the segment before it is missing"));
}

#[test]
fn a_newer_format_is_named() {
    let disk = small_log();
    disk.corrupt("00000000000000000001.log", |bytes| {
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[..60]).to_le_bytes();
        bytes[60..64].copy_from_slice(&crc);
    });

    let refused = reopen(&disk, &known(1_024)).err();

    assert!(matches!(
        refused,
        Some(StoreError::NewerFormat {
            found: 2,
            known: 1,
            ..
        })
    ));
}

#[test]
fn a_record_of_a_newer_version_is_refused() {
    let disk = small_log();
    let (mut writer, ..) = reopen(&disk, &known(1_024)).unwrap();
    let mut bytes = Vec::new();
    let start = super::frame::begin(200, 0, &mut bytes);
    super::frame::finish(&mut bytes, start);
    writer.write(&mut bytes, 1).unwrap();

    let refused = reopen(&disk, &known(1_024)).err();

    assert!(matches!(
        refused,
        Some(StoreError::UnknownRecord { lsn: 7, .. })
    ));
}

#[test]
fn looking_changes_nothing() {
    let disk = small_log();
    disk.corrupt("00000000000000000001.log", |bytes| bytes[500] = 1);
    let before = disk.content("00000000000000000001.log");

    let known = LogExpectation {
        is_read_only: true,
        ..known(1_024)
    };
    let (_, recovery, _) = reopen(&disk, &known).unwrap();

    assert!(recovery.torn.is_some());
    assert_eq!(disk.content("00000000000000000001.log"), before);
}
