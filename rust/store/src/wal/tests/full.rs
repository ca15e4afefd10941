//! A full disk: new records are refused and leave no trace, essential records are written.

use std::sync::Arc;

use super::{STORE, known, numbered, reopen};
use crate::faults::{Disk, Faults};
use crate::files::Files;
use crate::wal::batch::Batch;
use crate::wal::commit::{Committer, Pressure, Reserve};
use crate::wal::queue::{CommitGroup, Durability, LogQueue, SpacePolicy};

const SEGMENT: u64 = 1_024;

fn full_after(segments: u64) -> Faults {
    Faults {
        capacity_bytes: segments * SEGMENT,
        ..Faults::default()
    }
}

fn committer(disk: &Disk, ballast_bytes: u64) -> Committer {
    let (writer, ..) = reopen(disk, &known(SEGMENT)).unwrap();
    Committer::new(
        writer,
        Reserve {
            ballast_bytes,
            soft_bytes: 0,
        },
    )
    .unwrap()
}

fn group(queue: &mut LogQueue, batches: &[(u64, SpacePolicy)]) -> CommitGroup {
    for &(number, space) in batches {
        let mut batch = Batch::default();
        batch.push(&numbered(number));
        queue.push(&batch, Durability::Fsync, space);
    }
    queue.pop().unwrap()
}

#[test]
fn a_refused_batch_uses_no_number() {
    let disk = Disk::new(1, full_after(1));
    let mut committer = committer(&disk, 0);
    let mut queue = LogQueue::default();

    let mut taken = Vec::new();
    for number in 1..100 {
        let mut group = group(&mut queue, &[(number, SpacePolicy::Ordinary)]);
        let (written, refused) = committer.write(&mut group).unwrap();
        if written.is_some() {
            taken.push(number);
        } else {
            assert_eq!(refused[0].number, number);
        }
    }

    assert!(taken.len() < 99);
    assert_eq!(committer.writer.next_lsn, taken.len() as u64 + 1);
    assert_eq!(committer.pressure().unwrap(), Pressure::Hard);
    committer.writer.sync().unwrap();
    assert_eq!(reopen(&disk, &known(SEGMENT)).unwrap().2, taken);
}

#[test]
fn what_is_essential_gets_the_reserve() {
    let disk = Disk::new(1, full_after(2));
    let mut committer = committer(&disk, SEGMENT);
    let mut queue = LogQueue::default();

    let mut taken = Vec::new();
    for number in (1..100).step_by(2) {
        let batches = [
            (number, SpacePolicy::Ordinary),
            (number + 1, SpacePolicy::Essential),
        ];
        let mut group = group(&mut queue, &batches);
        let (written, refused) = committer.write(&mut group).unwrap();
        if written.is_none() {
            break;
        }
        taken.extend(refused.is_empty().then_some(number));
        taken.push(number + 1);
    }

    assert_eq!(reopen(&disk, &known(SEGMENT)).unwrap().2, taken);
    assert_eq!(taken.iter().filter(|&number| number % 2 == 0).count(), 29);
    assert_eq!(taken.iter().filter(|&number| number % 2 == 1).count(), 12);
}

#[test]
fn room_that_comes_back_is_used() {
    let disk = Disk::new(1, full_after(1));
    let mut committer = committer(&disk, 0);
    let mut queue = LogQueue::default();
    let many: Vec<_> = (1..60)
        .map(|number| (number, SpacePolicy::Ordinary))
        .collect();
    let refused = committer.write(&mut group(&mut queue, &many)).unwrap().1;
    assert_eq!(refused.len(), 59);

    disk.set_faults(Faults::default());
    let written = committer
        .write(&mut group(&mut queue, &[(60, SpacePolicy::Ordinary)]))
        .unwrap()
        .0;

    assert_eq!(written.unwrap().first_lsn, 1);
    assert_eq!(committer.pressure().unwrap(), Pressure::None);
}

#[test]
fn full_segments_go_when_nobody_needs_them() {
    let disk = Disk::new(1, Faults::default());
    let mut committer = committer(&disk, 0);
    let mut queue = LogQueue::default();
    for number in 1..200 {
        let mut group = group(&mut queue, &[(number, SpacePolicy::Ordinary)]);
        committer.write(&mut group).unwrap();
    }
    let files: Arc<dyn Files> = Arc::new(disk);
    let before = files.list().unwrap().len();

    committer.writer.drop_up_to(3).unwrap();

    assert_eq!(files.list().unwrap().len(), before - 3);
}

#[test]
fn a_write_that_finds_no_room_is_taken_back() {
    let disk = Disk::new(1, Faults::default());
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let mut writer = crate::wal::writer::SegmentWriter::begin(files, STORE, SEGMENT).unwrap();
    super::write(&mut writer, &[1]).unwrap();
    writer.sync().unwrap();
    // A file system that shares blocks finds out at the write: here, because the file is short.
    disk.open(&writer.current.name())
        .unwrap()
        .set_len(writer.current.end + 10)
        .unwrap();
    disk.set_faults(Faults {
        capacity_bytes: writer.current.end + 20,
        ..Faults::default()
    });

    let refused = super::write(&mut writer, &[2]).err();
    disk.set_faults(Faults::default());
    super::write(&mut writer, &[3]).unwrap();

    assert!(matches!(refused, Some(crate::error::StoreError::NoSpace)));
    assert_eq!(reopen(&disk, &known(SEGMENT)).unwrap().2, [1, 3]);
}
