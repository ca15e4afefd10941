//! The log with its thread: many writers, a failing disk, an ending.
#![allow(clippy::unwrap_used, reason = "a test fails with it")]

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mqttcore_store::faults::{Disk, Faults};
use mqttcore_store::files::{Files, Folder};
use mqttcore_store::record::Record;
use mqttcore_store::{
    Batch, Durability, DurableStore, LogObserver, Pressure, SpacePolicy, Store, StoreError,
    StoreOptions, Ticket, Wal, WalOptions,
};

const OPTIONS: WalOptions = WalOptions {
    segment_bytes: 16 * 1_024,
    ballast_bytes: 0,
    soft_bytes: 0,
    queue_bytes: 1 << 20,
};

fn batch(session: u64, delivery: u64) -> Batch {
    let mut batch = Batch::default();
    batch.push(&Record::Dropped { session, delivery });
    batch
}

/// What each session dropped, in the order of the log.
fn dropped(files: &Arc<dyn Files>) -> Vec<Vec<u64>> {
    let mut sessions = vec![Vec::new(); 8];
    Wal::open(files, &OPTIONS, &mut |logged| {
        if let Record::Dropped { session, delivery } = logged.record {
            sessions[usize::try_from(session).unwrap()].push(delivery);
        }
        Ok(())
    })
    .unwrap();
    sessions
}

/// A segment that was cut on a full disk ends with its last group.
#[test]
fn a_file_that_is_full_to_its_end_has_nothing_to_be_wiped() {
    let path = std::env::temp_dir().join(format!("mqttcore-wiped-{}", std::process::id()));
    let file = Folder::open(&path).unwrap().create("full", 10).unwrap();
    file.write_at(&[7; 10], 0).unwrap();

    file.zero(10, 0).unwrap();
    file.zero(4, 6).unwrap();

    let mut content = [1; 10];
    file.read_at(&mut content, 0).unwrap();
    assert_eq!(content, [7, 7, 7, 7, 0, 0, 0, 0, 0, 0]);
    assert_eq!(file.bytes().unwrap(), 10);
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn many_writers_share_the_log_and_keep_their_order() {
    let path = std::env::temp_dir().join(format!("mqttcore-threads-{}", std::process::id()));
    let files: Arc<dyn Files> = Arc::new(Folder::open(&path).unwrap());
    let (wal, _) = Wal::open(&files, &OPTIONS, &mut |_| Ok(())).unwrap();

    thread::scope(|scope| {
        for session in 0..8 {
            let wal = &wal;
            scope.spawn(move || {
                let mut last = None;
                for delivery in 0..500 {
                    let batch = &mut batch(session, delivery);
                    last = Some(
                        wal.append(batch, Durability::Fsync, SpacePolicy::Ordinary)
                            .unwrap(),
                    );
                }
                wal.wait(last.unwrap()).unwrap();
            });
        }
    });

    let stats = wal.stats();
    assert_eq!((stats.records, stats.durable_lsn), (4_000, 4_000));
    assert!(
        stats.syncs.count() < 4_000,
        "batches that wait share a sync"
    );
    drop(wal);
    for deliveries in dropped(&files) {
        assert!(deliveries.into_iter().eq(0..500));
    }
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn only_one_process_has_the_folder() {
    let path = std::env::temp_dir().join(format!("mqttcore-claim-{}", std::process::id()));
    let folder = Folder::open(&path).unwrap();
    let claim = folder.claim().unwrap();

    let refused = Folder::open(&path).unwrap().claim().unwrap_err();

    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    drop(claim);
    folder.claim().unwrap();
    let files: Arc<dyn Files> = Arc::new(folder);
    let (store, _) = DurableStore::open(&files, &StoreOptions::default()).unwrap();
    store.close().unwrap();
    files
        .claim()
        .expect("a store that was closed has given it back");
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn lower_durabilities_do_not_sync() {
    let disk = Disk::new(1, Faults::default());
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let (wal, _) = Wal::open(&files, &OPTIONS, &mut |_| Ok(())).unwrap();
    let before = disk.syncs();

    let taken = wal
        .append(&mut batch(1, 1), Durability::Memory, SpacePolicy::Ordinary)
        .unwrap();
    let written = wal
        .append(&mut batch(1, 2), Durability::Os, SpacePolicy::Ordinary)
        .unwrap();
    wal.wait(taken).unwrap();
    wal.wait(written).unwrap();

    assert_eq!(disk.syncs(), before);
    assert_eq!(
        dropped(&(Arc::new(disk.after_kill()) as Arc<dyn Files>))[1],
        [1, 2]
    );
}

#[test]
fn a_failed_sync_stops_the_log_for_good() {
    let disk = Disk::new(1, Faults::default());
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let (wal, _) = Wal::open(&files, &OPTIONS, &mut |_| Ok(())).unwrap();
    let (sender, heard) = channel();
    wal.observe(Arc::new(Heard(Mutex::new(sender))));
    disk.set_faults(Faults {
        sync_error_one_in: 1,
        ..Faults::default()
    });

    let ticket = wal
        .append(&mut batch(1, 1), Durability::Fsync, SpacePolicy::Ordinary)
        .unwrap();
    let lost = wal.wait(ticket).unwrap_err();
    disk.set_faults(Faults::default());

    assert!(matches!(lost, StoreError::Stopped(_)), "{lost}");
    assert!(!wal.is_kept(ticket));
    let refused = wal.append(&mut batch(1, 2), Durability::Memory, SpacePolicy::Essential);
    assert!(matches!(refused, Err(StoreError::Stopped(_))));
    assert!(matches!(
        wal.close(),
        Err(StoreError::Io { doing: "sync", .. })
    ));
    let heard: Vec<Word> = heard.try_iter().collect();
    assert_eq!(heard, [Word::Kept(Durability::Os, 1), Word::Stopped]);
}

#[test]
fn a_full_disk_refuses_and_says_so_before_later_batches_are_kept() {
    let disk = Disk::new(
        1,
        Faults {
            capacity_bytes: 16 * 1_024,
            ..Faults::default()
        },
    );
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let (wal, _) = Wal::open(&files, &OPTIONS, &mut |_| Ok(())).unwrap();
    let (sender, heard) = channel();
    wal.observe(Arc::new(Heard(Mutex::new(sender))));

    let mut kept = 0;
    let refused = loop {
        let ticket = wal
            .append(
                &mut batch(1, kept),
                Durability::Fsync,
                SpacePolicy::Ordinary,
            )
            .unwrap();
        match wal.wait(ticket) {
            Ok(()) => kept += 1,
            Err(StoreError::NoSpace) => break ticket,
            Err(error) => panic!("{error}"),
        }
    };
    disk.set_faults(Faults::default());
    let ticket = wal
        .append(
            &mut batch(1, kept),
            Durability::Fsync,
            SpacePolicy::Ordinary,
        )
        .unwrap();
    wal.wait(ticket).unwrap();

    assert!(!wal.is_kept(refused));
    assert_eq!(wal.stats().refused_batches, 1);
    wal.close().unwrap();
    assert_eq!(wal.pressure(), Pressure::None);
    let heard: Vec<Word> = heard.try_iter().collect();
    let at = heard
        .iter()
        .position(|word| *word == Word::Refused(refused.number))
        .unwrap();
    assert!(!heard[..at].contains(&Word::Kept(Durability::Fsync, refused.number)));
    assert!(dropped(&files)[1].iter().copied().eq(0..=kept));
}

/// What was written before it may be wrong without it, and what comes behind it, too.
#[test]
fn nothing_is_kept_behind_an_essential_batch_that_was_refused() {
    let disk = Disk::new(1, full_after_a_segment());
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let (wal, _) = Wal::open(&files, &OPTIONS, &mut |_| Ok(())).unwrap();
    let (sender, heard) = channel();
    wal.observe(Arc::new(Heard(Mutex::new(sender))));

    let mut kept = 0;
    let refused = loop {
        let ticket = wal
            .append(
                &mut batch(1, kept),
                Durability::Fsync,
                SpacePolicy::Essential,
            )
            .unwrap();
        match wal.wait(ticket) {
            Ok(()) => kept += 1,
            Err(StoreError::NoSpace) => break ticket,
            Err(error) => panic!("{error}"),
        }
    };
    disk.set_faults(Faults::default());
    assert!(matches!(wal.close(), Err(StoreError::NoSpace)));

    let heard: Vec<Word> = heard.try_iter().collect();
    assert_eq!(
        heard[heard.len() - 2..],
        [Word::Refused(refused.number), Word::Stopped]
    );
    assert!(dropped(&files)[1].iter().copied().eq(0..kept));
}

/// While there is none nothing is taken, so no write can find out.
#[test]
fn room_that_comes_back_is_noticed_without_a_write() {
    let disk = Disk::new(1, full_after_a_segment());
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let options = WalOptions {
        ballast_bytes: 1_024,
        soft_bytes: 1_024,
        ..OPTIONS
    };
    let (wal, _) = Wal::open(&files, &options, &mut |_| Ok(())).unwrap();
    eventually(|| wal.pressure() == Pressure::Hard);

    disk.set_faults(Faults::default());

    eventually(|| wal.pressure() == Pressure::None);
    assert!(disk.content("ballast").is_some());
}

#[test]
fn little_is_a_tenth_of_a_small_disk() {
    let disk = Disk::new(
        1,
        Faults {
            capacity_bytes: 200 * 1_024,
            ..Faults::default()
        },
    );
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let options = WalOptions {
        ballast_bytes: 1_024,
        soft_bytes: 1 << 30,
        ..OPTIONS
    };

    let (wal, _) = Wal::open(&files, &options, &mut |_| Ok(())).unwrap();
    let ticket = wal
        .append(&mut batch(1, 1), Durability::Fsync, SpacePolicy::Ordinary)
        .unwrap();

    wal.wait(ticket).unwrap();
    assert_eq!(wal.pressure(), Pressure::None);
}

/// Who waits for room hears that there is some, after it is there.
#[test]
fn a_thread_that_waits_for_room_in_the_log_queue_is_woken() {
    let files: Arc<dyn Files> = Arc::new(Disk::new(1, Faults::default()));
    let options = WalOptions {
        queue_bytes: 1,
        ..OPTIONS
    };
    let (wal, _) = Wal::open(&files, &options, &mut |_| Ok(())).unwrap();
    let (sender, heard) = channel();
    wal.observe(Arc::new(Heard(Mutex::new(sender))));

    wal.append(&mut batch(1, 1), Durability::Os, SpacePolicy::Ordinary)
        .unwrap();

    let longest = Duration::from_secs(20);
    while heard.recv_timeout(longest).unwrap() != Word::Room {}
    assert!(wal.has_room());
}

fn eventually(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "never happened");
        thread::park_timeout(Duration::from_millis(1));
    }
}

fn full_after_a_segment() -> Faults {
    Faults {
        capacity_bytes: 16 * 1_024,
        ..Faults::default()
    }
}

#[test]
fn closing_keeps_queued_batches() {
    let disk = Disk::new(1, Faults::default());
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let (wal, _) = Wal::open(&files, &OPTIONS, &mut |_| Ok(())).unwrap();
    for delivery in 0..100 {
        wal.append(
            &mut batch(3, delivery),
            Durability::Os,
            SpacePolicy::Ordinary,
        )
        .unwrap();
    }

    wal.close().unwrap();

    let survived: Arc<dyn Files> = Arc::new(disk.after_power_cut());
    assert!(dropped(&survived)[3].iter().copied().eq(0..100));
}

#[derive(Debug, Eq, PartialEq)]
enum Word {
    Kept(Durability, u64),
    Refused(u64),
    Room,
    Stopped,
}

struct Heard(Mutex<Sender<Word>>);

impl Heard {
    fn hear(&self, word: Word) {
        // Nobody listens any more once the test is over.
        let _ = self.0.lock().unwrap().send(word);
    }
}

impl LogObserver for Heard {
    fn kept(&self, durability: Durability, number: u64) {
        self.hear(Word::Kept(durability, number));
    }

    fn refused(&self, tickets: &[Ticket]) {
        for ticket in tickets {
            self.hear(Word::Refused(ticket.number));
        }
    }

    fn has_room(&self) {
        self.hear(Word::Room);
    }

    fn stopped(&self, _: &StoreError) {
        self.hear(Word::Stopped);
    }
}
