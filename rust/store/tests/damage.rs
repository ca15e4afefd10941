//! What becomes of a store after each kind of damage: what opening says, what mending saves.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use mqttcore_store::faults::{Disk, Faults, Random};
use mqttcore_store::files::Files as _;
use mqttcore_store::record::{MessageRecord, RecipientsBuf, Record, SessionOpened};
use mqttcore_store::{DurableStore, Recovery, Store, StoreError, StoreOptions, tools};

use common::{append, files};

const CHECKPOINT: &str = "checkpoint.redb";
const FIRST: &str = "00000000000000000001.log";
const OPTIONS: StoreOptions = StoreOptions::small(4 * 1_024, 0);
/// Messages that were acknowledged, four a segment.
const COUNT: u8 = 40;

/// A session named `meter` for which [`COUNT`] messages wait, of a broker that was killed. The
/// checkpoint was written after the first `checkpointed` of them: their segments are gone.
fn store(checkpointed: u8) -> Disk {
    let disk = Disk::new(1, Faults::default());
    let (store, _) = DurableStore::open(&files(&disk), &OPTIONS).unwrap();
    let session = store.numbers(1);
    append(
        &store,
        &[Record::Opened(SessionOpened {
            session,
            at_ms: 1,
            version: 5,
            expiry_s: 60,
            client_id: "meter",
            username: None,
        })],
    );
    let mut recipients = RecipientsBuf::default();
    recipients.push(session, 1, false, &[]);
    for number in 0..COUNT {
        let message = MessageRecord {
            message: store.numbers(1),
            qos: 1,
            topic: "hall/heat",
            recipients: recipients.as_recipients(),
            payload: &[number; 900],
            ..MessageRecord::default()
        };
        append(&store, &[Record::Message(message)]);
        if number + 1 == checkpointed {
            store.checkpoint().unwrap();
            let has_gone = || !segments(&disk).contains(&FIRST.to_owned());
            while !has_gone() {
                std::thread::yield_now();
            }
        }
    }
    disk.after_kill()
}

fn segments(disk: &Disk) -> Vec<String> {
    let names = disk.list().unwrap().into_iter();
    names
        .filter(|name| name.strip_suffix(".log").is_some())
        .collect()
}

/// Opens the store; returns what was said, and the first byte of each message that waits.
fn opened(disk: &Disk) -> Result<(Recovery, Vec<u8>), StoreError> {
    let (store, recovery) = DurableStore::open(&files(disk), &OPTIONS)?;
    let mut sessions = Vec::new();
    store
        .sessions(&mut |kept| sessions.push(kept.number))
        .unwrap();
    let mut found = Vec::new();
    for session in sessions {
        for delivery in store.queue(session, 0, usize::MAX).unwrap() {
            found.push(
                store
                    .message(delivery.message)
                    .unwrap()
                    .unwrap()
                    .message()
                    .payload[0],
            );
        }
    }
    store.close().unwrap();
    Ok((recovery, found))
}

/// What opening a damaged store comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    /// All is there, and nothing was damaged that anybody needs.
    Silent,
    /// All is there, and what was made anew is told.
    Rebuilt,
    /// It is refused; the file is named.
    Refused(&'static str),
}

struct Case {
    name: &'static str,
    checkpointed: u8,
    damage: fn(&Disk),
    start: Start,
    /// Messages that mending loses.
    lost: u8,
}

fn flip(disk: &Disk, name: &str, at: usize) {
    disk.corrupt(name, |bytes| bytes[at] ^= 0x10);
}

fn last(disk: &Disk) -> String {
    segments(disk).pop().unwrap()
}

const CASES: &[Case] = &[
    Case {
        name: "checkpoint: removed, the log is complete",
        checkpointed: 0,
        damage: |disk| disk.remove(CHECKPOINT).unwrap(),
        start: Start::Silent,
        lost: 0,
    },
    Case {
        name: "checkpoint: zeroed, the log is complete",
        checkpointed: 0,
        damage: |disk| disk.corrupt(CHECKPOINT, |bytes| bytes.fill(0)),
        start: Start::Rebuilt,
        lost: 0,
    },
    Case {
        name: "checkpoint: cut, the log is complete",
        checkpointed: 0,
        damage: |disk| disk.corrupt(CHECKPOINT, |bytes| bytes.truncate(5_000)),
        start: Start::Rebuilt,
        lost: 0,
    },
    Case {
        name: "checkpoint: removed, it had absorbed segments",
        checkpointed: 20,
        damage: |disk| disk.remove(CHECKPOINT).unwrap(),
        start: Start::Refused(".log is damaged (it is missing): LSN 1 to "),
        lost: COUNT,
    },
    Case {
        name: "checkpoint: zeroed, it had absorbed segments",
        checkpointed: 20,
        damage: |disk| disk.corrupt(CHECKPOINT, |bytes| bytes.fill(0)),
        start: Start::Refused(
            "checkpoint.redb is damaged (its checksums or its structure are wrong): LSN 1 to ",
        ),
        lost: COUNT,
    },
    Case {
        name: "log: header of its first segment, one bit",
        checkpointed: 0,
        damage: |disk| flip(disk, FIRST, 20),
        start: Start::Rebuilt,
        lost: 0,
    },
    Case {
        name: "log: header of its last segment, zeroed",
        checkpointed: 0,
        damage: |disk| disk.corrupt(&last(disk), |bytes| bytes[..64].fill(0)),
        start: Start::Rebuilt,
        lost: 0,
    },
    Case {
        name: "log: first segment removed",
        checkpointed: 0,
        damage: |disk| disk.remove(FIRST).unwrap(),
        start: Start::Refused("00000000000000000001.log is damaged (it is missing): LSN 1 to "),
        lost: COUNT,
    },
    Case {
        name: "log: all of it removed",
        checkpointed: 20,
        damage: |disk| {
            for name in segments(disk) {
                disk.remove(&name).unwrap();
            }
        },
        start: Start::Refused(
            "(it is missing, and messages in it are needed); it is needed by client meter",
        ),
        // The segment that was written to when the checkpoint came is among them.
        lost: 24,
    },
    Case {
        name: "log: one in the middle removed",
        checkpointed: 0,
        damage: |disk| disk.remove("00000000000000000004.log").unwrap(),
        start: Start::Refused(
            "00000000000000000005.log is damaged (the segment before it is missing)",
        ),
        lost: 4,
    },
    Case {
        name: "log: one in the middle zeroed",
        checkpointed: 0,
        damage: |disk| disk.corrupt("00000000000000000004.log", |bytes| bytes.fill(0)),
        start: Start::Refused("00000000000000000004.log is damaged (the header is damaged)"),
        lost: 4,
    },
    Case {
        name: "log: last segment removed",
        checkpointed: 0,
        damage: |disk| disk.remove(&last(disk)).unwrap(),
        start: Start::Refused("(it is missing): LSN 38 and the records after it are missing"),
        lost: 4,
    },
    Case {
        name: "log: last segment emptied",
        checkpointed: 0,
        damage: |disk| disk.corrupt(&last(disk), Vec::clear),
        start: Start::Refused("(it is empty, but records were written to it): LSN 38 and"),
        lost: 4,
    },
    Case {
        name: "log: last segment zeroed",
        checkpointed: 0,
        damage: |disk| disk.corrupt(&last(disk), |bytes| bytes.fill(0)),
        start: Start::Refused("(it is empty, but records were written to it): LSN 38 and"),
        lost: 4,
    },
    Case {
        name: "log: last segment cut",
        checkpointed: 0,
        damage: |disk| disk.corrupt(&last(disk), |bytes| bytes.truncate(1_100)),
        start: Start::Refused("(it is shorter than when it was created): LSN"),
        lost: 3,
    },
    Case {
        name: "log: a message, one bit",
        checkpointed: 0,
        damage: |disk| flip(disk, "00000000000000000004.log", 2_000),
        start: Start::Refused("00000000000000000004.log is damaged at "),
        lost: 1,
    },
];

#[test]
fn each_kind_of_damage_is_reported_and_costs_what_it_must() {
    for case in CASES {
        let name = case.name;
        let disk = store(case.checkpointed);
        (case.damage)(&disk);
        let repaired = disk.after_kill();
        let disk = repaired.after_kill();
        let verified = tools::verify(&files(&disk));

        let start = opened(&disk);

        match (case.start, start) {
            (Start::Refused(says), Err(StoreError::Damaged(damage))) => {
                let told = damage.to_string();
                assert!(told.contains(says), "{name}: {told}");
                let verified = verified.unwrap_err().to_string();
                assert!(verified.contains(says), "{name}: verify says {verified}");
            }
            (Start::Silent | Start::Rebuilt, Ok((recovery, found))) => {
                let is_told = !recovery.rebuilt.is_empty();
                assert_eq!(
                    is_told,
                    case.start == Start::Rebuilt,
                    "{name}: {recovery:?}"
                );
                assert!(found.into_iter().eq(0..COUNT), "{name}");
                let (again, _) = opened(&disk).unwrap();
                assert!(again.rebuilt.is_empty(), "{name}: {again:?}");
            }
            (_, start) => panic!("{name}: {start:?}"),
        }

        let repaired = repaired.after_kill();
        let repair = tools::repair(&files(&repaired), &OPTIONS).unwrap();
        let (_, found) = opened(&repaired).unwrap();
        assert_eq!(
            found.len(),
            usize::from(COUNT - case.lost),
            "{name}: {repair:?}"
        );
        tools::verify(&files(&repaired)).unwrap();
    }
}

/// The checkpoint of a store with a complete log, one bit of it wrong at a time.
#[test]
fn no_bit_of_the_checkpoint_costs_anything_while_the_log_is_complete() {
    let disk = store(0);
    let (store, _) = DurableStore::open(
        &files(&disk),
        &StoreOptions {
            segments_kept: 100,
            ..OPTIONS
        },
    )
    .unwrap();
    store.checkpoint().unwrap();
    drop(store);
    let whole = disk.content(CHECKPOINT).unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] != 0).collect();
    let mut random = Random(7);
    let mut rebuilt = 0;
    for round in 0..150 {
        let at = if round < 40 {
            // The first page says where everything is.
            used[round * 4 % used.len()]
        } else {
            used[usize::try_from(random.below(used.len() as u64)).unwrap()]
        };
        // What was killed can be looked at again.
        let flipped = disk.after_kill();
        flipped.corrupt(CHECKPOINT, |bytes| {
            bytes.clone_from(&whole);
            bytes[at] ^= 1 << random.below(8);
        });
        let (recovery, found) =
            opened(&flipped).unwrap_or_else(|error| panic!("byte {at}: {error}"));

        assert!(found.into_iter().eq(0..COUNT), "byte {at}");
        rebuilt += usize::from(!recovery.rebuilt.is_empty());
    }
    assert!(rebuilt > 20, "{rebuilt}");
}

#[test]
fn the_report_names_lost_messages_by_session_and_topic() {
    let disk = store(0);
    flip(&disk, "00000000000000000004.log", 2_000);

    let repair = tools::repair(&files(&disk), &OPTIONS).unwrap();

    assert_eq!(repair.lost.len(), 1);
    assert_eq!(
        repair.sessions.into_iter().collect::<Vec<_>>(),
        [("meter".to_owned(), 1)]
    );
    assert_eq!(
        repair.topics.into_iter().collect::<Vec<_>>(),
        [("hall/heat".to_owned(), 1)]
    );
    assert_eq!(repair.unknown, 0);
}

/// Without its beginning a session is not there, and its messages have nobody to go to.
#[test]
fn messages_of_a_session_whose_beginning_is_lost_are_reported() {
    let disk = store(0);
    flip(&disk, FIRST, 90);

    let repair = tools::repair(&files(&disk), &OPTIONS).unwrap();

    assert_eq!(repair.lost, [(1, 1)]);
    assert_eq!(
        repair.sessions.into_iter().collect::<Vec<_>>(),
        [("meter".to_owned(), u64::from(COUNT))]
    );
}
