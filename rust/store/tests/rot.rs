//! Messages that the checkpoint holds, and a bit of one that is not what it was.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod small;

use std::path::PathBuf;
use std::sync::Arc;

use mqttcore_store::files::{Files, Folder};
use mqttcore_store::record::{MessageRecord, RecipientsBuf, Record, SessionOpened};
use mqttcore_store::{
    Batch, Damage, Durability, DurableStore, SpacePolicy, Store, StoreError, StoreOptions, tools,
};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

const BODY: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("body");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// CRC and LSN.
const HEAD: usize = 12;
const OPTIONS: StoreOptions = StoreOptions {
    segments_kept: 0,
    ..small::OPTIONS
};
/// Sessions of the store are numbered from here; 20 messages wait for each.
const SESSIONS: u64 = 1;
const CLIENTS: [&str; 2] = ["meter", "gauge"];
const EACH: u64 = 20;

/// A store in a folder of its own, most of whose messages are in the checkpoint.
struct Kept(PathBuf);

impl Drop for Kept {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

impl Kept {
    fn new(name: &str) -> Self {
        let name = format!("mqttcore-rot-{name}-{}", std::process::id());
        let kept = Self(std::env::temp_dir().join(name));
        let store = kept.open().unwrap();
        let mut batch = Batch::default();
        for (session, client_id) in (SESSIONS..).zip(CLIENTS) {
            batch.push(&Record::Opened(SessionOpened {
                session,
                at_ms: 1,
                version: 5,
                expiry_s: 60,
                client_id,
                username: None,
            }));
            let mut recipients = RecipientsBuf::default();
            recipients.push(session, 1, false, &[]);
            for place in 0..EACH {
                batch.push(&Record::Message(MessageRecord {
                    message: 100 * session + place,
                    qos: 1,
                    kept: place == 0,
                    topic: client_id,
                    recipients: recipients.as_recipients(),
                    payload: &[7; 1_000],
                    ..MessageRecord::default()
                }));
                append(&store, &mut batch);
            }
        }
        store.checkpoint().unwrap();
        store.close().unwrap();
        kept
    }

    fn files(&self) -> Arc<dyn Files> {
        Arc::new(Folder::open(&self.0).unwrap())
    }

    fn open(&self) -> Result<DurableStore, StoreError> {
        DurableStore::open(&self.files(), &OPTIONS).map(|(store, _)| store)
    }

    fn database(&self) -> Database {
        Database::open(self.0.join("checkpoint.redb")).unwrap()
    }

    /// The numbers of the messages in the checkpoint.
    fn moved(&self) -> Vec<u64> {
        let database = self.database();
        let transaction = database.begin_read().unwrap();
        let table = transaction.open_table(BODY).unwrap();
        table
            .iter()
            .unwrap()
            .map(|row| row.unwrap().0.value())
            .collect()
    }

    fn change(&self, message: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let database = self.database();
        let transaction = database.begin_write().unwrap();
        {
            let mut table = transaction.open_table(BODY).unwrap();
            let mut row = table.get(message).unwrap().unwrap().value().to_vec();
            change(&mut row);
            table.insert(message, &row[..]).unwrap();
        }
        transaction.commit().unwrap();
    }

    fn set_format(&self, format: u64) {
        let database = self.database();
        let transaction = database.begin_write().unwrap();
        let mut table = transaction.open_table(META).unwrap();
        table.insert("format", &format.to_le_bytes()[..]).unwrap();
        drop(table);
        transaction.commit().unwrap();
    }
}

fn append(store: &DurableStore, batch: &mut Batch) {
    let ticket = store
        .append(batch, Durability::Os, SpacePolicy::Ordinary)
        .unwrap();
    store.wait(ticket).unwrap();
}

fn damage<T: std::fmt::Debug>(found: Result<T, StoreError>) -> Damage {
    match found {
        Err(StoreError::Damaged(damage)) => damage,
        other => panic!("not damaged: {other:?}"),
    }
}

#[test]
fn a_rotten_message_is_found_by_whoever_reads_it() {
    let kept = Kept::new("found");
    let rotten = 100 * SESSIONS;
    assert!(kept.moved().contains(&rotten));
    kept.change(rotten, |row| *row.last_mut().unwrap() ^= 0x10);

    let store = kept.open().unwrap();
    let by_number = damage(store.message(rotten));
    let by_page = damage(store.page(SESSIONS, 0, 256, u64::MAX));
    let by_scrubber = damage((|| {
        let mut last = 0;
        while let Some(number) = store.scrub(last)? {
            last = number;
        }
        Ok(())
    })());
    let others = store.page(SESSIONS, rotten + 1, 256, u64::MAX).unwrap();
    store.close().unwrap();
    drop(store);
    let by_verify = damage(tools::verify(&kept.files()));

    assert_eq!(by_number.file, "checkpoint.redb");
    assert_eq!(by_number.offset, rotten);
    // Behind the record of its session.
    assert_eq!((by_number.first_lsn, by_number.last_lsn), (2, 2));
    assert_eq!(by_number.concerns, ["client meter", "topic meter"]);
    assert_eq!(by_page, by_number);
    assert_eq!(by_scrubber, by_number);
    assert_eq!(by_verify, by_number);
    assert_eq!(others.len() as u64, EACH - 1);
    let told = by_number.to_string();
    assert!(
        told.ends_with("; it is needed by client meter; it is needed by topic meter"),
        "{told}"
    );
}

#[test]
fn mending_gives_up_the_rotten_message_alone() {
    let kept = Kept::new("mended");
    let rotten = 100 * (SESSIONS + 1) + 3;
    assert!(kept.moved().contains(&rotten));
    kept.change(rotten, |row| row[HEAD + 40] ^= 1);

    let repair = tools::repair(&kept.files(), &OPTIONS).unwrap();

    assert_eq!(repair.damage.unwrap().offset, rotten);
    assert_eq!(
        repair.sessions.into_iter().collect::<Vec<_>>(),
        [("gauge".to_owned(), 1)]
    );
    let info = tools::verify(&kept.files()).unwrap();
    assert_eq!((info.sessions, info.queued), (2, 2 * EACH - 1));
    let store = kept.open().unwrap();
    for (session, count) in [(SESSIONS, EACH), (SESSIONS + 1, EACH - 1)] {
        let page = store.page(session, 0, 256, u64::MAX).unwrap();
        assert_eq!(page.len() as u64, count);
        assert!(
            page.iter()
                .all(|(_, message)| message.as_ref().unwrap().message().payload == [7; 1_000])
        );
    }
}

/// Format 2 had rows without checksum and LSN.
#[test]
fn what_the_last_version_wrote_is_read_and_has_checksums_from_then_on() {
    let kept = Kept::new("upgrade");
    let moved = kept.moved();
    for message in &moved {
        kept.change(*message, |row| drop(row.drain(..HEAD)));
    }
    kept.set_format(2);

    let store = kept.open().unwrap();
    let page = store.page(SESSIONS, 0, 256, u64::MAX).unwrap();
    store.close().unwrap();
    drop(store);

    assert_eq!(page.len() as u64, EACH);
    assert_eq!(tools::verify(&kept.files()).unwrap().queued, 2 * EACH);
    kept.change(moved[0], |row| row[HEAD + 10] ^= 1);
    assert_eq!(damage(tools::verify(&kept.files())).offset, moved[0]);
}

#[test]
fn what_a_later_version_wrote_is_refused() {
    let kept = Kept::new("later");
    kept.set_format(4);

    let refused = kept.open().unwrap_err();

    assert!(
        matches!(
            refused,
            StoreError::NewerFormat {
                found: 4,
                known: 3,
                ..
            }
        ),
        "{refused}"
    );
}
