//! What the fuzz targets of the store do with their bytes, and what has to hold of the answer.
//!
//! Part of `rust/store`, with its feature `faults`: what it calls is not public. The checksums of a store protect
//! against accidents, and whoever writes a backup writes them, too: so `log` and `folder` make them right.

use std::borrow::Borrow;
use std::sync::{Arc, OnceLock};

use crate::error::StoreError;
use crate::faults::{Disk, Faults};
use crate::files::{Files, write_all};
use crate::index::chunk::DeliveryChunk;
use crate::index::messages::{decode_page, encode_page, find};
use crate::index::naming::FILE;
use crate::index::rows::{SessionRow, StoredMessage, decode_subscriptions, encode_subscriptions};
use crate::index::streams::StreamTable;
use crate::index::tables::{self, begin_change, checkpoint};
use crate::record::{MessageRecord, RecipientsBuf, Record, SessionOpened, WillSet};
use crate::wal::frame::{self, CommitMarker};
use crate::wal::segment::{self, SegmentHeader, StoreId};
use crate::wire::RecordReader;
use crate::{Batch, Durability, DurableStore, SpacePolicy, Store, StoreOptions, tools};

/// Decodes what follows the first byte, which chooses the kind of row or record; encodes and decodes it again.
pub fn row(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    let mut again = Vec::new();
    match choice {
        0..32 => record(choice, bytes),
        32 => {
            if let Ok(row) = SessionRow::decode(bytes) {
                row.encode(&mut again);
                assert_eq!(SessionRow::decode(&again), Ok(row.clone()));
                assert_eq!(SessionRow::client_id_of(bytes), Ok(&*row.client_id));
                assert!(row.heap_bytes() <= 64 * (bytes.len() + 1), "{row:?}");
            }
        }
        33 => {
            if let Ok(rows) = decode_subscriptions(bytes) {
                encode_subscriptions(&rows, &mut again);
                assert_eq!(decode_subscriptions(&again), Ok(rows));
            }
        }
        34 => chunk(bytes),
        35 => {
            if let Ok(rows) = decode_page(7, bytes) {
                let is_ascending = rows.is_sorted_by(|one, other| one.0 < other.0);
                assert_eq!(decode_page(7, &encode_page(&rows)).as_deref(), Ok(&*rows));
                for (number, row) in rows.into_iter().filter(|_| is_ascending) {
                    assert_eq!(find(bytes, number), Ok(Some(row)));
                }
            }
        }
        36 => {
            if let Ok(table) = StreamTable::decode(bytes) {
                table.encode(&mut again);
                let table = StreamTable::decode(&again).expect("it was encoded");
                let mut third = Vec::new();
                table.encode(&mut third);
                assert_eq!(third, again);
            }
        }
        _ => {}
    }
}

fn record(kind: u8, bytes: &[u8]) {
    let Some((&flags, body)) = bytes.split_first() else {
        return;
    };
    let Ok(record) = Record::decode(kind, flags, body) else {
        return;
    };
    let mut again = Vec::new();
    record.encode_body(&mut again);
    assert_eq!(Record::decode(kind, record.flags(), &again), Ok(record));
    match record {
        Record::Message(message) => {
            assert_eq!(
                message.recipients.iter().count() as u64,
                message.recipients.len()
            );
            let stored = StoredMessage::new(flags, body.to_vec()).expect("it was decoded");
            assert_eq!(stored.message(), message);
        }
        Record::Completed { packet_ids, .. } => assert!(packet_ids.iter().all(|_| true)),
        _ => {}
    }
}

/// A chunk of a queue: reading every delivery, and removing each of them.
fn chunk(bytes: &[u8]) {
    let Ok(mut chunk) = DeliveryChunk::decode(bytes) else {
        return;
    };
    let Ok(all) = chunk.deliveries().collect::<Result<Vec<_>, _>>() else {
        return;
    };
    assert!(all.is_sorted_by_key(|delivery| delivery.number));
    let mut again = Vec::new();
    chunk.encode(&mut again);
    assert_eq!(DeliveryChunk::decode(&again).as_ref(), Ok(&chunk));
    let mut behind = chunk.clone();
    // As two rows of a queue that are next to each other.
    let _ = chunk.append(&behind);
    for delivery in all {
        let _ = behind.take(delivery.number);
    }
}

/// Reads a log of one or two segments whose checksums are right and whose headers and records are the input's.
pub fn log(input: &[u8]) {
    let disk = Disk::new(1, Faults::default());
    let mut from = RecordReader(input);
    let mut number = u64::from(from.byte().unwrap_or_default() % 2) * (u64::MAX - 1);
    for _ in 0..2 {
        number = number.wrapping_add(1);
        let Ok(content) = segment_of(&mut from, number) else {
            break;
        };
        put(&disk, &segment::name(number), &content);
    }
    look(&disk);
}

/// Changes files of a store and rows of its checkpoint, and reads it.
pub fn folder(input: &[u8]) {
    let disk = Disk::new(1, Faults::default());
    for (name, content) in whole_store() {
        put(&disk, name, content);
    }
    let mut from = RecordReader(input);
    while !from.0.is_empty() {
        if change(&disk, &mut from).is_err() {
            break;
        }
    }
    look(&disk);
}

/// Verifies and repairs a store: no damage is left.
fn look(disk: &Disk) {
    let files: Arc<dyn Files> = Arc::new(disk.after_kill());
    let mut records = 0;
    let dumped = tools::dump(&files, &mut |_| {
        records += 1;
        Ok(())
    });
    match dumped {
        Ok(recovery) => assert_eq!(recovery.records, records),
        Err(error) => told(&error),
    }
    if let Err(error) = tools::verify(&files) {
        told(&error);
    }
    let repaired = tools::repair(&files, &OPTIONS);
    let again = repaired.and_then(|_| tools::verify(&files));
    if let Err(error) = again {
        // Rows of a checkpoint with right checksums and wrong contents are not repaired.
        assert!(
            !matches!(error, StoreError::Damaged(_)),
            "repaired, and damaged: {error}"
        );
        told(&error);
    }
}

/// The error names what cannot be read.
fn told(error: &StoreError) {
    assert!(!error.to_string().is_empty());
    if let StoreError::Damaged(damage) = error {
        assert!(
            !damage.file.is_empty() && !damage.reason.is_empty(),
            "{damage:?}"
        );
    }
}

fn put(disk: &Disk, name: &str, content: &[u8]) {
    let made = disk.create(name, content.len() as u64);
    let written = made.and_then(|file| write_all(&*file, content, 0).and_then(|()| file.sync()));
    written
        .and_then(|()| disk.sync_names())
        .expect("a disk without faults");
}

const STORE: StoreId = [7; 16];
const OPTIONS: StoreOptions = StoreOptions::small(4 * 1_024, 100);

type Read<T> = Result<T, crate::BodyError>;

/// A segment: first LSN and size in its header, then groups of records with their markers.
fn segment_of(from: &mut RecordReader<'_>, number: u64) -> Read<Vec<u8>> {
    let flags = from.byte()?;
    let first_lsn = from.varint()?;
    let header = SegmentHeader {
        store: STORE,
        number,
        first_lsn,
        bytes: if flags & 2 == 0 { 0 } else { from.varint()? },
        is_followed: flags & 1 != 0,
    };
    let mut content = header.to_bytes().to_vec();
    let mut lsn = first_lsn;
    for _ in 0..flags >> 4 {
        group(from, header.seed(), &mut lsn, &mut content)?;
    }
    content.resize(content.len() + usize::from(from.byte()?), 0);
    Ok(content)
}

/// A group: how many records and the durable LSN, then each record: type, flags, length of its body, body.
fn group(from: &mut RecordReader<'_>, seed: u32, lsn: &mut u64, out: &mut Vec<u8>) -> Read<()> {
    let records = u32::from(from.byte()? % 8);
    let durable_lsn = from.varint()?;
    let start = out.len();
    for _ in 0..records {
        let (kind, flags) = (from.byte()?, from.byte()?);
        let at = frame::begin(kind, flags, out);
        out.extend_from_slice(from.bytes()?);
        frame::finish(out, at);
    }
    let next = lsn.saturating_add(records.into());
    if next == u64::MAX {
        return Err(crate::BodyError::Number);
    }
    let chain = frame::seal_all(&mut out[start..], seed, *lsn);
    *lsn = next;
    let marker = CommitMarker {
        records,
        chain,
        durable_lsn,
    };
    frame::put_marker(&marker, lsn.saturating_sub(1), seed, out);
    Ok(())
}

/// One change: a byte of a file, its length, or a row of the checkpoint.
fn change(disk: &Disk, from: &mut RecordReader<'_>) -> Read<()> {
    let what = from.byte()?;
    if what >= 0x80 {
        return put_row(disk, what, from);
    }
    let files = whole_store();
    let (name, content) = &files[usize::from(what) % files.len()];
    let (place, value) = (usize::from(from.u16()?), from.byte()?);
    let used: Vec<usize> = (0..content.len()).filter(|&at| content[at] != 0).collect();
    let at = used[place % used.len()];
    disk.corrupt(name, |bytes| match value {
        0 => bytes.truncate(at),
        value => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= value;
            }
        }
    });
    Ok(())
}

/// Inserts a row; one that redb does not take is left out.
fn insert<'k, 'v, K: redb::Key, V: redb::Value>(
    change: &redb::WriteTransaction,
    table: redb::TableDefinition<'_, K, V>,
    key: impl Borrow<K::SelfType<'k>>,
    value: impl Borrow<V::SelfType<'v>>,
) -> Result<(), StoreError> {
    let mut table = change.open_table(table).map_err(checkpoint)?;
    let _ = table.insert(key, value);
    Ok(())
}

/// Writes a row with redb, so that its checksums are right: table, key, value.
fn put_row(disk: &Disk, what: u8, from: &mut RecordReader<'_>) -> Read<()> {
    let (key, value) = (from.varint()?, from.bytes()?);
    let text = [
        "format",
        "applied_lsn",
        "next_number",
        "moved",
        "store",
        "streams",
        "hall/heat",
        "note",
    ][usize::try_from(key % 8).unwrap_or_default()];
    let number = u64::from_le_bytes(value.first_chunk().copied().unwrap_or([1; 8]));
    let written = || {
        let Ok(file) = disk.open(FILE) else {
            return Ok(());
        };
        let database = redb::Database::builder()
            .create_with_backend(super::backend::Backend(file))
            .map_err(checkpoint)?;
        let change = begin_change(&database)?;
        match what % 9 {
            0 => insert(&change, tables::SESSION, key, value)?,
            1 => insert(&change, tables::SUBSCRIPTION, key, value)?,
            2 => {
                let value = value.get(8..).unwrap_or_default();
                insert(&change, tables::QUEUE, (key, number), value)?;
            }
            3 => insert(&change, tables::MESSAGE, key, value)?,
            4 => insert(&change, tables::BODY, key, value)?,
            5 => insert(&change, tables::RETAINED, text, number)?,
            6 => insert(&change, tables::SEGMENT, key, number)?,
            7 => insert(&change, tables::NOTE, text, value)?,
            _ => insert(&change, tables::META, text, value)?,
        }
        change.commit().map_err(checkpoint)
    };
    // redb panics at some damage that an earlier change has made.
    let _ = mqttcore_panics::contained(|| written().map(drop));
    Ok(())
}

/// The files of a store: two sessions with queues, a will, a retained message, a checkpoint of half of it.
fn whole_store() -> &'static [(String, Vec<u8>)] {
    static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let disk = Disk::new(1, Faults::default());
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        let (store, _) = DurableStore::open(&files, &OPTIONS).expect("an empty disk");
        for client_id in ["meter", "lamp"] {
            fill(&store, client_id);
            if client_id == "meter" {
                store.checkpoint().expect("room");
            }
        }
        store.close().expect("room");
        let names = disk.list().expect("a disk without faults").into_iter();
        names
            .filter_map(|name| Some((name.clone(), disk.content(&name)?)))
            .collect()
    })
}

/// A session with subscriptions, a will and ten messages.
fn fill(store: &dyn Store, client_id: &str) {
    let session = store.numbers(1);
    let mut recipients = RecipientsBuf::default();
    recipients.push(session, 1, false, &[3]);
    append(
        store,
        &[
            Record::Opened(SessionOpened {
                session,
                at_ms: 1,
                version: 5,
                expiry_s: 60,
                client_id,
                username: Some("ada"),
            }),
            Record::Subscribed {
                session,
                filter: "hall/#",
                options: 1,
                id: 3,
            },
            Record::WillSet(WillSet {
                session,
                delay_s: 1,
                qos: 1,
                retain: false,
                topic: "gone",
                properties: &[],
                payload: b"x",
            }),
            Record::Note {
                key: "note",
                value: b"value",
            },
        ],
    );
    for number in 0..10 {
        let message = store.numbers(1);
        append(
            store,
            &[Record::Message(MessageRecord {
                message,
                qos: 1,
                kept: number == 0,
                topic: "hall/heat",
                recipients: recipients.as_recipients(),
                payload: &[number + 1; 200],
                ..MessageRecord::default()
            })],
        );
        if number == 5 {
            append(
                store,
                &[Record::Sending {
                    session,
                    delivery: message,
                    packet_id: 9,
                }],
            );
        }
    }
}

fn append(store: &dyn Store, records: &[Record<'_>]) {
    let mut batch = Batch::default();
    for record in records {
        batch.push(record);
    }
    let ticket = store.append(&mut batch, Durability::Fsync, SpacePolicy::Ordinary);
    store
        .wait(ticket.expect("room"))
        .expect("a disk without faults");
}
