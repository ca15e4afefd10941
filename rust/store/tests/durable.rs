//! The whole store on a real folder: what comes back, what is read, what is given up.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
mod small;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mqttcore_store::faults::{Disk, Faults};
use mqttcore_store::files::{Files, Folder};
use mqttcore_store::record::{MessageRecord, RecipientsBuf, Record, SessionOpened};
use mqttcore_store::{
    Batch, CopyProgress, Durability, DurableStore, LogObserver, MemoryStore, Pressure, Recovery,
    SpacePolicy, Store, StoreError, StoreOptions, StoredDelivery, Ticket, WalOptions, tools,
};

use common::append;
use small::OPTIONS;

/// A folder that goes with the test.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let name = format!("mqttcore-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn open(folder: &Temporary) -> Result<(DurableStore, Recovery), StoreError> {
    let files: Arc<dyn Files> = Arc::new(Folder::open(folder.path()).unwrap());
    DurableStore::open(&files, &OPTIONS)
}

fn session(store: &dyn Store, client_id: &str) -> u64 {
    let session = store.numbers(1);
    let opened = SessionOpened {
        session,
        at_ms: 1,
        version: 5,
        expiry_s: 60,
        client_id,
        username: Some("somebody"),
    };
    append(store, &[Record::Opened(opened)]);
    session
}

fn publish(store: &dyn Store, session: u64, topic: &str, payload: &[u8], kept: bool) -> u64 {
    let message = store.numbers(1);
    let mut recipients = RecipientsBuf::default();
    recipients.push(session, 1, false, &[3, 4]);
    append(
        store,
        &[Record::Message(MessageRecord {
            message,
            qos: 1,
            kept,
            topic,
            recipients: recipients.as_recipients(),
            payload,
            ..MessageRecord::default()
        })],
    );
    message
}

fn waiting(store: &dyn Store, session: u64) -> Vec<u64> {
    let queue = store.queue(session, 0, usize::MAX).unwrap();
    queue.iter().map(|delivery| delivery.number).collect()
}

#[test]
fn a_session_and_its_queue_survive_a_restart() {
    let folder = Temporary::new("restart");
    let (store, _) = open(&folder).unwrap();
    let session = session(&store, "meter");
    append(
        &store,
        &[Record::Subscribed {
            session,
            filter: "a/#",
            options: 1,
            id: 9,
        }],
    );
    let message = publish(&store, session, "a/b", b"hot", false);
    store.close().unwrap();
    drop(store);

    let (store, recovery) = open(&folder).unwrap();

    let mut seen = Vec::new();
    store
        .sessions(&mut |kept| {
            seen.push((
                kept.number,
                kept.row.client_id,
                kept.subscriptions.get("a/#").copied(),
            ));
        })
        .unwrap();
    assert_eq!(seen, [(session, "meter".to_owned(), Some((1, 9)))]);
    let queue = store.queue(session, 0, 10).unwrap();
    let delivery = StoredDelivery {
        number: message,
        message,
        qos: 1,
        retain: false,
        bytes: 6,
        subscription_ids: vec![3, 4],
    };
    assert_eq!(queue, [delivery]);
    let kept = store.message(message).unwrap().unwrap();
    assert_eq!(
        (kept.message().topic, kept.message().payload),
        ("a/b", &b"hot"[..])
    );
    assert_eq!(
        (recovery.records, recovery.torn),
        (0, None),
        "the checkpoint had all of it"
    );
    assert!(store.numbers(1) > message);
}

#[test]
fn a_store_that_was_not_closed_replays_its_log() {
    let folder = Temporary::new("replay");
    let (store, _) = open(&folder).unwrap();
    let session = session(&store, "meter");
    let message = publish(&store, session, "a/b", b"hot", true);
    // As after a crash: nothing is closed, and the claim goes with the process.
    let copy = Temporary::new("replay-copy");
    std::fs::create_dir(copy.path()).unwrap();
    for name in Folder::open(folder.path()).unwrap().list().unwrap() {
        std::fs::copy(folder.path().join(&name), copy.path().join(&name)).unwrap();
    }

    let (replayed, recovery) = open(&copy).unwrap();

    assert_eq!(recovery.records, 2);
    assert_eq!(waiting(&replayed, session), [message]);
    let mut retained = Vec::new();
    replayed
        .retained(&mut |topic, number| retained.push((topic.to_owned(), number)))
        .unwrap();
    assert_eq!(retained, [("a/b".to_owned(), message)]);
}

#[test]
fn a_queue_is_read_in_pages_over_checkpoint_and_memory() {
    let folder = Temporary::new("pages");
    let (store, _) = open(&folder).unwrap();
    let session = session(&store, "meter");
    let mut messages = Vec::new();
    for number in 0..20 {
        messages.push(publish(&store, session, "t", b"x", false));
        if number == 9 {
            store.checkpoint().unwrap();
        }
    }
    append(
        &store,
        &[Record::Dropped {
            session,
            delivery: messages[3],
        }],
    );
    store.checkpoint().unwrap();
    append(
        &store,
        &[Record::Dropped {
            session,
            delivery: messages[4],
        }],
    );
    messages.drain(3..5);

    let mut read = Vec::new();
    let mut from = 0;
    loop {
        let page = store.queue(session, from, 4).unwrap();
        let Some(last) = page.last() else { break };
        from = last.number + 1;
        read.extend(page.iter().map(|delivery| delivery.number));
    }

    assert_eq!(read, messages);
}

#[test]
fn old_segments_go_and_what_is_wanted_of_them_stays() {
    let folder = Temporary::new("segments");
    let (store, _) = open(&folder).unwrap();
    let session = session(&store, "meter");
    let first = publish(&store, session, "t", b"the first of all", false);
    for _ in 0..200 {
        let passing = publish(&store, session, "t", &[7; 1_000], false);
        append(
            &store,
            &[Record::Dropped {
                session,
                delivery: passing,
            }],
        );
    }
    let before = store.stats().log.segments;
    assert!(before > 10);

    store.checkpoint().unwrap();
    // The log's thread drops them between two groups.
    append(
        &store,
        &[Record::Unsubscribed {
            session,
            filter: "none",
        }],
    );

    assert_eq!(waiting(&store, session), [first]);
    let kept = store.message(first).unwrap().unwrap();
    assert_eq!(kept.message().payload, b"the first of all");
    let segments = Folder::open(folder.path()).unwrap().list().unwrap();
    let segments = segments.iter().filter(|name| name.contains(".log")).count();
    assert!(
        segments <= OPTIONS.segments_kept + 1,
        "{segments} segments are left"
    );
}

/// A file that is removed gives its room back when nobody has it open any more.
#[test]
fn a_segment_that_went_is_not_held_open() {
    let folder = Temporary::new("held");
    let (store, _) = open(&folder).unwrap();
    let session = session(&store, "meter");
    let message = publish(&store, session, "t", &[1; 1_000], false);
    for _ in 0..20 {
        publish(&store, session, "t", &[2; 1_000], false);
    }
    store.message(message).unwrap().unwrap();
    append(&store, &[Record::Ended { session }]);

    store.checkpoint().unwrap();
    // Segments go on another thread.
    store.checkpoint().unwrap();

    let first = folder.path().join("00000000000000000001.log");
    assert!(!first.exists());
    let open_files = std::fs::read_dir("/proc/self/fd").unwrap();
    let open_files = open_files.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let held: Vec<_> = open_files
        .filter(|path| {
            path.to_string_lossy()
                .starts_with(&*first.to_string_lossy())
        })
        .collect();
    assert!(held.is_empty(), "{held:?}");
}

#[test]
fn a_damaged_message_is_not_handed_out() {
    let folder = Temporary::new("rot");
    let (store, _) = open(&folder).unwrap();
    let session = session(&store, "meter");
    let message = publish(&store, session, "t", &[0x55; 900], false);
    let path = folder.path().join("00000000000000000001.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes
        .windows(8)
        .position(|window| window == [0x55; 8])
        .unwrap();
    bytes[at] = 0x54;
    std::fs::write(&path, bytes).unwrap();

    assert!(matches!(
        store.message(message),
        Err(StoreError::Damaged(_))
    ));
}

#[test]
fn a_running_store_is_copied_and_goes_on() {
    let (folder, copy) = (Temporary::new("running"), Temporary::new("running-copy"));
    let (store, _) = open(&folder).unwrap();
    let session = session(&store, "meter");
    let mut before = Vec::new();
    for _ in 0..50 {
        before.push(publish(&store, session, "t", &[7; 1_000], false));
    }

    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            for _ in 0..200 {
                publish(&store, session, "t", &[8; 1_000], false);
            }
        });
        store
            .backup(
                &Folder::open(copy.path()).unwrap(),
                &CopyProgress::default(),
            )
            .unwrap();
        busy.join().unwrap();
    });

    let (copied, recovery) = open(&copy).unwrap();
    let there = waiting(&copied, session);
    assert_eq!(there[..50], before);
    assert!(waiting(&store, session).starts_with(&there));
    assert_eq!(recovery.torn, None);
    assert_eq!(
        copied
            .message(there[49])
            .unwrap()
            .unwrap()
            .message()
            .payload,
        [7; 1_000]
    );
}

/// Segments go, checkpoints come, and what was acknowledged before is in each copy.
#[test]
fn copies_are_whole_whatever_the_store_does_meanwhile() {
    let folder = Temporary::new("busy");
    let (store, _) = open(&folder).unwrap();
    let session = session(&store, "meter");
    let is_over = AtomicBool::new(false);

    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..40 {
                    publish(&store, session, "t", &[8; 1_000], false);
                }
                store.checkpoint().unwrap();
            }
        });
        for round in 0..10 {
            let before = waiting(&store, session);
            let copy = Temporary::new(&format!("busy-copy-{round}"));
            Folder::make(copy.path(), |to| store.backup(to, &CopyProgress::default())).unwrap();

            let files: Arc<dyn Files> = Arc::new(Folder::open(copy.path()).unwrap());
            assert_eq!(tools::verify(&files).unwrap().torn, None);
            let (copied, _) = open(&copy).unwrap();
            let there = waiting(&copied, session);
            assert!(there.starts_with(&before));
            // The copy is a store of its own.
            publish(&copied, session, "t", b"more", false);
            assert_eq!(waiting(&copied, session).len(), there.len() + 1);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let files: Arc<dyn Files> = Arc::new(Folder::open(folder.path()).unwrap());
    drop(store);
    tools::verify(&files).unwrap();
}

#[test]
fn a_copy_is_there_whole_or_not_at_all() {
    let folder = Temporary::new("half");
    std::fs::create_dir(folder.path()).unwrap();
    let target = folder.path().join("copy");
    let half = |to: &Folder| {
        to.create("checkpoint.redb", 10).unwrap();
        assert!(!target.exists());
        Err(StoreError::NoSpace)
    };

    assert!(matches!(
        Folder::make(&target, half),
        Err(StoreError::NoSpace)
    ));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    std::fs::create_dir(folder.path().join("copy.part")).unwrap();
    let refused = Folder::make(&target, |_| Ok(1)).unwrap_err();
    assert!(refused.to_string().contains("copy.part"), "{refused}");
    std::fs::remove_dir(folder.path().join("copy.part")).unwrap();

    assert_eq!(Folder::make(&target, |_| Ok(1)).unwrap(), 1);
    assert_eq!(Folder::make(&target, |_| Ok(1)).unwrap(), 1);
    std::fs::write(target.join("mine"), "").unwrap();
    assert!(Folder::make(&target, |_| Ok(1)).is_err());
}

#[test]
fn a_copy_may_be_named_with_a_slash_at_its_end_and_needs_a_name() {
    let folder = Temporary::new("slash");
    let target = folder.path().join("copy/");

    assert_eq!(Folder::make(&target, |_| Ok(1)).unwrap(), 1);

    assert!(target.is_dir());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let never = |_: &Folder| panic!("it is refused before the copy");
    assert!(Folder::make(Path::new("/"), never).is_err());
}

#[test]
fn scrubbing_finds_rot_where_nobody_looks() {
    let folder = Temporary::new("scrub");
    let (store, _) = open(&folder).unwrap();
    let session = session(&store, "meter");
    for _ in 0..60 {
        publish(&store, session, "t", &[7; 1_000], false);
    }
    let scrub = || {
        let mut last = 0;
        while let Some(number) = store.scrub(last)? {
            last = number;
        }
        Ok::<u64, StoreError>(last)
    };
    assert!(scrub().unwrap() >= 3);
    let path = folder.path().join("00000000000000000002.log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();

    let found = scrub().unwrap_err();

    assert!(matches!(found, StoreError::Damaged(damage)
        if damage.file == "00000000000000000002.log" && damage.offset <= 5_000));
}

/// Sends what the scrubber finds.
#[derive(Debug)]
struct ScrubObserver(std::sync::mpsc::Sender<Option<String>>);

impl LogObserver for ScrubObserver {
    fn kept(&self, _: Durability, _: u64) {}

    fn refused(&self, _: &[Ticket]) {}

    fn scrubbed(&self, damage: Option<&StoreError>) {
        let _ = self.0.send(damage.map(ToString::to_string));
    }

    fn stopped(&self, _: &StoreError) {}
}

#[test]
fn the_scrubber_finds_rot_by_itself_and_again_in_every_round() {
    let folder = Temporary::new("scrubber");
    let (store, _) = open(&folder).unwrap();
    let session = session(&store, "meter");
    for _ in 0..60 {
        publish(&store, session, "t", &[7; 1_000], false);
    }
    let path = folder.path().join("00000000000000000002.log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (sender, heard) = std::sync::mpsc::channel();
    store.observe(Arc::new(ScrubObserver(sender)));

    store.scrub_every(Duration::from_millis(100)).unwrap();

    let (mut whole, mut damaged) = (0, 0);
    while whole < 2 || damaged < 2 {
        match heard.recv_timeout(Duration::from_secs(60)).unwrap() {
            None => whole += 1,
            Some(damage) => {
                assert!(damage.starts_with("00000000000000000002.log is damaged"));
                damaged += 1;
            }
        }
    }
    store.close().unwrap();
    // Its thread has ended.
    while heard.try_recv().is_ok() {}
    assert!(heard.recv_timeout(Duration::from_millis(300)).is_err());
}

#[test]
fn a_folder_that_is_in_use_is_refused() {
    let folder = Temporary::new("claimed");
    let (_store, _) = open(&folder).unwrap();

    let refused = open(&folder).unwrap_err();

    assert!(matches!(refused, StoreError::Locked), "{refused}");
}

#[test]
fn the_log_of_another_store_is_refused() {
    let (one, other) = (Temporary::new("one"), Temporary::new("other"));
    for folder in [&one, &other] {
        let (store, _) = open(folder).unwrap();
        session(&store, "meter");
        store.close().unwrap();
    }
    let segment = "00000000000000000001.log";
    std::fs::copy(other.path().join(segment), one.path().join(segment)).unwrap();

    let refused = open(&one).unwrap_err();

    assert!(matches!(refused, StoreError::Damaged(damage)
        if damage.reason == "it belongs to another store"));
}

#[test]
fn a_checkpoint_that_is_lost_costs_a_replay_only() {
    let folder = Temporary::new("lost");
    let (store, _) = open(&folder).unwrap();
    let session = session(&store, "meter");
    let message = publish(&store, session, "t", b"x", false);
    store.close().unwrap();
    drop(store);
    std::fs::remove_file(folder.path().join("checkpoint.redb")).unwrap();

    let (store, recovery) = open(&folder).unwrap();

    assert_eq!(recovery.records, 2);
    assert_eq!(waiting(&store, session), [message]);
}

/// A disk that fills up: new messages are refused, what is acknowledged goes through and makes
/// room, and then new messages are taken again.
#[test]
fn a_full_disk_refuses_what_is_new_until_something_is_delivered() {
    let disk = Disk::new(1, Faults::default());
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let options = StoreOptions {
        wal: WalOptions {
            ballast_bytes: 2 << 20,
            ..OPTIONS.wal
        },
        ..OPTIONS
    };
    let (store, _) = DurableStore::open(&files, &options).unwrap();
    let session = session(&store, "meter");
    store.checkpoint().unwrap();
    let used: u64 = disk
        .list()
        .unwrap()
        .iter()
        .map(|name| disk.content(name).unwrap().len() as u64)
        .sum();
    disk.set_faults(Faults {
        capacity_bytes: used + (4 << 20),
        ..Faults::default()
    });

    let mut kept = Vec::new();
    let refused = loop {
        match try_publish(&store, session) {
            Ok(message) => kept.push(message),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace), "{refused}");
    assert!(store.pressure() > Pressure::None);
    assert_eq!(waiting(&store, session), kept);
    for delivery in &kept {
        let delivery = *delivery;
        append_essential(&store, &Record::Dropped { session, delivery });
    }
    store.checkpoint().unwrap();
    // The log's thread drops segments between two groups.
    append_essential(&store, &Record::Ended { session: 0 });

    let message = try_publish(&store, session).unwrap();

    assert_eq!(waiting(&store, session), [message]);
    store.close().unwrap();
}

fn append_essential(store: &dyn Store, record: &Record<'_>) {
    let mut batch = Batch::default();
    batch.push(record);
    let ticket = store
        .append(&mut batch, Durability::Fsync, SpacePolicy::Essential)
        .unwrap();
    store.wait(ticket).unwrap();
}

fn try_publish(store: &dyn Store, session: u64) -> Result<u64, StoreError> {
    let message = store.numbers(1);
    let mut recipients = RecipientsBuf::default();
    recipients.push(session, 1, false, &[]);
    let mut batch = Batch::default();
    batch.push(&Record::Message(MessageRecord {
        message,
        qos: 1,
        topic: "t",
        recipients: recipients.as_recipients(),
        payload: &[9; 4_000],
        ..MessageRecord::default()
    }));
    let ticket = store.append(&mut batch, Durability::Fsync, SpacePolicy::Ordinary)?;
    store.wait(ticket)?;
    Ok(message)
}

#[test]
fn memory_stores_nothing_and_acknowledges_at_once() {
    let store = MemoryStore::default();

    append(&store, &[Record::Ended { session: 1 }]);

    assert_eq!(store.stats().log.records, 0);
    assert_ne!(store.numbers(1), store.numbers(1));
}

/// A store whose disk of 16 MiB is nearly full of queued messages of a session.
fn nearly_full() -> (Arc<dyn Files>, DurableStore, u64) {
    let capacity = Faults {
        capacity_bytes: 16 << 20,
        ..Faults::default()
    };
    let files: Arc<dyn Files> = Arc::new(Disk::new(1, capacity));
    let options = StoreOptions {
        wal: WalOptions {
            segment_bytes: 256 * 1_024,
            ballast_bytes: 256 * 1_024,
            soft_bytes: 1 << 30,
            ..OPTIONS.wal
        },
        segments_kept: usize::MAX,
        ..OPTIONS
    };
    let (store, _) = DurableStore::open(&files, &options).unwrap();
    let reader = session(&store, "reader");
    while store.pressure() == Pressure::None {
        publish(&store, reader, "t", &vec![0; 60_000], false);
    }
    (files, store, reader)
}

/// While the disk is nearly full nothing new comes that would make a checkpoint due; what is wanted of the oldest segment
/// keeps all behind it, until it is moved.
#[test]
fn what_is_delivered_makes_room_on_a_disk_that_is_nearly_full() {
    let (files, store, session) = nearly_full();
    let before = files.space().unwrap().free_bytes;

    for delivery in waiting(&store, session).split_off(1) {
        append(&store, &[Record::Dropped { session, delivery }]);
    }

    let start = Instant::now();
    while store.pressure() > Pressure::None {
        assert!(start.elapsed() < Duration::from_secs(20), "never any room");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert!(files.space().unwrap().free_bytes > before + (8 << 20));
}

/// Those who acknowledge all the time leave the store no idle second.
#[test]
fn room_is_made_where_the_log_is_never_idle() {
    // Together less than the room that is left, however late the checkpoint comes.
    const BUSY: usize = 12_000;
    let (_files, store, reader) = nearly_full();
    for delivery in waiting(&store, reader) {
        let session = reader;
        append_essential(&store, &Record::Dropped { session, delivery });
    }

    let (key, value) = ("k", &[b'x'; 32][..]);
    let has_room = (0..BUSY).any(|_| {
        append_essential(&store, &Record::Note { key, value });
        store.pressure() == Pressure::None
    });

    let log_bytes = store.stats().log.log_bytes;
    assert!(has_room, "the log had {log_bytes} bytes");
}

fn notes(store: &dyn Store) -> Vec<(String, Vec<u8>)> {
    let mut notes = Vec::new();
    store
        .notes(&mut |key, value| notes.push((key.to_owned(), value.to_owned())))
        .unwrap();
    notes
}

#[test]
fn the_last_note_of_a_key_comes_back_from_the_log_and_from_the_checkpoint() {
    let folder = Temporary::new("notes");
    let note = |key, value| Record::Note { key, value };
    let (store, _) = open(&folder).unwrap();
    append(&store, &[note("a", b"1"), note("b", b"1"), note("c", b"1")]);
    store.checkpoint().unwrap();
    append(&store, &[note("a", b"2"), note("b", b""), note("d", b"1")]);
    let expected = [("a", "2"), ("c", "1"), ("d", "1")]
        .map(|(key, value)| (key.to_owned(), value.as_bytes().to_owned()));

    assert_eq!(notes(&store), expected);
    store.checkpoint().unwrap();
    drop(store);
    let (store, _) = open(&folder).unwrap();
    assert_eq!(notes(&store), expected);

    append(&store, &[note("d", b"")]);
    drop(store);
    let (store, _) = open(&folder).unwrap();
    assert_eq!(notes(&store), expected[..2]);
}

/// Waits for what another thread does.
fn wait_until(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never came");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// So many sessions in one batch; returns when the index has them.
fn sessions(store: &dyn Store, count: u64) {
    let first = store.numbers(count);
    let names: Vec<String> = (0..count).map(|number| format!("meter-{number}")).collect();
    let opened = (first..).zip(&names).map(|(session, client_id)| {
        Record::Opened(SessionOpened {
            session,
            at_ms: 1,
            version: 5,
            expiry_s: 60,
            client_id,
            username: None,
        })
    });
    append(store, &opened.collect::<Vec<_>>());
    store.queue(first, 0, 1).unwrap();
}

#[test]
fn rows_take_memory_until_the_checkpoint_has_them() {
    const SESSIONS: u64 = 30_000;
    let folder = Temporary::new("weight");
    let (store, _) = open(&folder).unwrap();
    let empty = store.stats().index_memory_bytes;

    sessions(&store, SESSIONS);

    let full = store.stats().index_memory_bytes;
    assert!((60..300).contains(&((full - empty) / SESSIONS)), "{full}");
    store.checkpoint().unwrap();
    let cached = store.stats().index_memory_bytes;
    assert!(cached <= OPTIONS.cache_bytes as u64, "{cached}");
}

#[test]
fn rows_that_take_much_memory_bring_a_checkpoint() {
    let folder = Temporary::new("row-bytes");
    let options = StoreOptions {
        checkpoint_row_bytes: 1 << 20,
        ..OPTIONS
    };
    let files: Arc<dyn Files> = Arc::new(Folder::open(folder.path()).unwrap());
    let (store, _) = DurableStore::open(&files, &options).unwrap();

    for _ in 0..4 {
        sessions(&store, 8_000);
    }

    wait_until(|| store.stats().checkpoints > 0);
}

#[test]
fn a_store_takes_parts_of_a_small_budget_of_memory() {
    let of = |memory_bytes| {
        let options = StoreOptions::within(memory_bytes);
        let parts = [options.cache_bytes, options.checkpoint_row_bytes];
        (parts, options.wal.queue_bytes)
    };

    assert_eq!(of(64 << 20), ([4 << 20, 8 << 20], 16 << 20));
    assert_eq!(of(1 << 20), ([1 << 20, 1 << 20], 1 << 20));
    assert_eq!(of(16 << 30), ([16 << 20, 512 << 20], 32 << 20));
}

#[test]
fn groups_of_the_log_take_memory_until_nothing_is_written() {
    let folder = Temporary::new("groups");
    let (store, _) = open(&folder).unwrap();

    sessions(&store, 8_000);

    assert!(store.stats().log.memory_bytes > 200_000);
    wait_until(|| store.stats().log.memory_bytes == 0);
}
