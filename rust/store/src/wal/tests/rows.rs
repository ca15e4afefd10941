//! Offsets of rows: consecutive, in the order of the log, and only for written rows.

use std::sync::Arc;

use crate::faults::{Disk, Faults};
use crate::files::Files;
use crate::record::{MessageRecord, Record, RowRef, RowRefsBuf, Streamed};
use crate::wal::batch::Batch;
use crate::wal::numbering::Numbering;
use crate::wal::open::{LogExpectation, open};
use crate::wal::writer::SegmentWriter;

const SEGMENT: u64 = 1_024;

fn files(disk: &Disk) -> Arc<dyn Files> {
    Arc::new(disk.clone())
}

fn batch(message: u64, at_us: u64, places: &[(u32, u16)]) -> Batch {
    let mut rows = RowRefsBuf::default();
    for (stream, partition) in places {
        rows.push(*stream, *partition);
    }
    let rows = rows.as_rows();
    let dup = false;
    let mut batch = Batch::default();
    batch.push(&Record::Message(MessageRecord {
        message,
        topic: "plant/1",
        streamed: Some(Streamed { dup, at_us, rows }),
        payload: &[b'x'; 200],
        ..MessageRecord::default()
    }));
    batch
}

/// The rows of the log, with the time of each message, and where the next ones go.
fn read(disk: &Disk) -> (Vec<(u64, Vec<RowRef>)>, Numbering) {
    let (mut seen, mut numbering) = (Vec::new(), Numbering::default());
    open(
        &files(disk),
        &LogExpectation::begin(SEGMENT),
        &mut |logged| {
            numbering.observe(&logged.record);
            if let Record::Message(MessageRecord {
                streamed: Some(streamed),
                ..
            }) = logged.record
            {
                seen.push((streamed.at_us, streamed.rows.iter().collect()));
            }
            Ok(())
        },
    )
    .unwrap();
    (seen, numbering)
}

fn write(writer: &mut SegmentWriter, mut batch: Batch) -> Result<(), crate::StoreError> {
    let written = writer.write(&mut batch.bytes, batch.records)?;
    assert!(written.has_rows);
    writer.sync()
}

fn row(stream: u32, partition: u16, offset: u64) -> RowRef {
    RowRef {
        stream,
        partition,
        offset,
    }
}

#[test]
fn offsets_are_dense_in_each_partition_and_go_on_after_a_restart() {
    let disk = Disk::new(1, Faults::default());
    let mut writer = SegmentWriter::begin(files(&disk), [7; 16], SEGMENT).unwrap();
    write(&mut writer, batch(1, 10, &[(1, 0), (2, 3)])).unwrap();
    write(&mut writer, batch(2, 20, &[(1, 0), (1, 1)])).unwrap();

    let (seen, numbering) = read(&disk);
    let expected = vec![
        (10, vec![row(1, 0, 0), row(2, 3, 0)]),
        (20, vec![row(1, 0, 1), row(1, 1, 0)]),
    ];
    assert_eq!(seen, expected);

    writer.numbering = numbering;
    write(&mut writer, batch(3, 30, &[(1, 0)])).unwrap();
    assert_eq!(read(&disk).0.last(), Some(&(30, vec![row(1, 0, 2)])));
}

/// Decision 3: a refused batch uses no offsets.
#[test]
fn a_group_that_is_refused_gives_its_offsets_back() {
    let disk = Disk::new(1, Faults::default());
    let mut writer = SegmentWriter::begin(files(&disk), [7; 16], SEGMENT).unwrap();
    write(&mut writer, batch(1, 10, &[(1, 0)])).unwrap();
    // A short segment, so that the write itself finds the disk full.
    writer.current.file.set_len(writer.current.end).unwrap();
    disk.set_faults(Faults {
        capacity_bytes: disk.used_bytes() + 1,
        ..Faults::default()
    });
    let before = writer.numbering.clone();

    let refused = write(&mut writer, batch(2, 10, &[(1, 0), (1, 4)]));

    assert!(
        matches!(refused, Err(crate::StoreError::NoSpace)),
        "{refused:?}"
    );
    assert!(
        writer
            .numbering
            .ends()
            .eq(before.ends().chain([((1, 4), 0)]))
    );
    disk.set_faults(Faults::default());
    write(&mut writer, batch(3, 10, &[(1, 0)])).unwrap();
    assert_eq!(read(&disk).0.last(), Some(&(10, vec![row(1, 0, 1)])));
}

/// Rule 12: a clock that is set back, or a shard that was slower, does not turn time around.
#[test]
fn rule_12_the_time_of_rows_never_falls_also_after_a_restart() {
    let disk = Disk::new(1, Faults::default());
    let mut writer = SegmentWriter::begin(files(&disk), [7; 16], SEGMENT).unwrap();
    write(&mut writer, batch(1, 50, &[(1, 0)])).unwrap();
    write(&mut writer, batch(2, 40, &[(1, 0)])).unwrap();
    writer.numbering = read(&disk).1;
    write(&mut writer, batch(3, 30, &[(1, 0)])).unwrap();
    write(&mut writer, batch(4, 60, &[(1, 0)])).unwrap();

    let times: Vec<u64> = read(&disk).0.iter().map(|(at_us, _)| *at_us).collect();
    assert_eq!(times, [50, 50, 50, 60]);
}
