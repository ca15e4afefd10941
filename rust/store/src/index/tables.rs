//! The checkpoint: tables in redb, over the same files as the log.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition,
    TableError, WriteTransaction,
};

use crate::error::{Damage, StoreError};
use crate::files::Files;
use crate::index::bodies;
use crate::index::chunk::DeliveryChunk;
use crate::index::database;
use crate::index::messages::{self, MessageRow, page_of};
pub(crate) use crate::index::naming::FILE;
use crate::index::naming::{UNBORN, begin, name_new};
use crate::index::rows::{SessionRow, StoredDelivery, StoredSubscriptions, decode_subscriptions};
use crate::index::source;
use crate::index::streams::StreamTable;
use crate::wal::identity::Meta;
use crate::wal::segment::{NUMBER_REACHED_MAX, REACHED_MAX, StoreId};
use crate::wire::BodyError;
use mqttcore_panics::contained;

const FORMAT: u32 = 3;
/// The format before rows of messages had checksums.
const WITHOUT_CHECKSUMS: u32 = 2;

pub(crate) const SESSION: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("session");
pub(crate) const SUBSCRIPTION: TableDefinition<'_, u64, &[u8]> =
    TableDefinition::new("subscription");
pub(crate) const QUEUE: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("queue");
pub(crate) const MESSAGE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("message");
pub(crate) const BODY: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("body");
pub(crate) const RETAINED: TableDefinition<'_, &str, u64> = TableDefinition::new("retained");
pub(crate) const SEGMENT: TableDefinition<'_, u64, u64> = TableDefinition::new("segment");
pub(crate) const NOTE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("note");
pub(crate) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// Key in the table `meta` of the state of streams.
pub(super) const STREAMS: &str = "streams";

/// An open checkpoint.
pub(crate) struct Tables {
    database: Arc<Database>,
    views: Views,
    is_righted: bool,
}

/// Read views of the tables after the last change; `None` if a table was never written.
#[derive(Default)]
struct Views {
    session: Option<ReadOnlyTable<u64, &'static [u8]>>,
    subscription: Option<ReadOnlyTable<u64, &'static [u8]>>,
    queue: Option<ReadOnlyTable<(u64, u64), &'static [u8]>>,
    message: Option<ReadOnlyTable<u64, &'static [u8]>>,
    retained: Option<ReadOnlyTable<&'static str, u64>>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tables").finish_non_exhaustive()
    }
}

impl Tables {
    /// Opens the checkpoint and verifies every checksum in it, or begins a new one.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if the checkpoint is damaged: redb reports some damage as an error and panics at other
    /// damage.
    pub(crate) fn open(files: &dyn Files, cache_bytes: usize) -> Result<Self, StoreError> {
        Self::open_as(FILE, files, cache_bytes)
    }

    /// Opens the new checkpoint under its temporary name, or begins one.
    ///
    /// # Errors
    ///
    /// As [`Tables::open`].
    pub(crate) fn open_new(files: &dyn Files, cache_bytes: usize) -> Result<Self, StoreError> {
        Self::open_as(UNBORN, files, cache_bytes)
    }

    fn open_as(name: &str, files: &dyn Files, cache_bytes: usize) -> Result<Self, StoreError> {
        let opened = contained(|| Self::open_unguarded(name, files, cache_bytes));
        opened.unwrap_or_else(|_| Err(Damage::whole(FILE, database::UNREADABLE).into()))
    }

    fn open_unguarded(
        name: &str,
        files: &dyn Files,
        cache_bytes: usize,
    ) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("open", name, error);
        let (file, is_new) = match files.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (begin(files).map_err(failed)?, true)
            }
            other => (other.map_err(failed)?, false),
        };
        let is_righted = !is_new && source::right_primary(&*file, files)?;
        let database = if is_new {
            database::open(file, cache_bytes)?
        } else {
            database::open_checked(file, cache_bytes)?
        };
        if is_new && name == FILE {
            name_new(files)?;
        }
        let mut tables = Self {
            database: Arc::new(database),
            views: Views::default(),
            is_righted,
        };
        if tables.format()? == Some(WITHOUT_CHECKSUMS.into()) {
            tables.upgrade()?;
        }
        tables.refresh()?;
        Ok(tables)
    }

    /// Bytes of cached pages.
    pub(crate) fn cached_bytes(&self) -> usize {
        self.database.cache_stats().used_bytes()
    }

    /// Whether the file marked the older of its last two commits as primary and was corrected.
    pub(crate) fn is_righted(&self) -> bool {
        self.is_righted
    }

    /// The format of the checkpoint; `None` if it was never written.
    fn format(&self) -> Result<Option<u64>, StoreError> {
        let table = self.table(META)?;
        table.map(|table| number(&table, "format")).transpose()
    }

    /// Converts a checkpoint of the previous format.
    fn upgrade(&self) -> Result<(), StoreError> {
        let transaction = begin_change(&self.database)?;
        bodies::upgrade(&transaction)?;
        put_number(&transaction, "format", FORMAT.into())?;
        transaction.commit().map_err(checkpoint)
    }

    /// Opens new read views after a change.
    pub(crate) fn refresh(&mut self) -> Result<(), StoreError> {
        // Drop the old views first: they keep old pages.
        self.views = Views::default();
        self.views = Views {
            session: self.table(SESSION)?,
            subscription: self.table(SUBSCRIPTION)?,
            queue: self.table(QUEUE)?,
            message: self.table(MESSAGE)?,
            retained: self.table(RETAINED)?,
        };
        Ok(())
    }

    /// The metadata; `None` if the checkpoint was never written.
    pub(crate) fn meta(&self) -> Result<Option<Meta>, StoreError> {
        let Some(table) = self.table(META)? else {
            return Ok(None);
        };
        let number = |key: &str| number(&table, key);
        let found = number("format")?;
        if found != u64::from(FORMAT) {
            return Err(StoreError::NewerFormat {
                file: FILE.into(),
                found: u32::try_from(found).unwrap_or(u32::MAX),
                known: FORMAT,
            });
        }
        let reached = |key: &str, last: u64| {
            let found = number(key)?;
            let is_reached = found <= last;
            is_reached.then_some(found).ok_or_else(|| broken("meta"))
        };
        let store = table.get("store").map_err(checkpoint)?;
        let store = store.and_then(|store| store.value().try_into().ok());
        Ok(Some(Meta {
            store: store.ok_or_else(|| broken("meta"))?,
            applied_lsn: reached("applied_lsn", REACHED_MAX)?,
            next_number: reached("next_number", REACHED_MAX)?,
            moved: reached("moved", NUMBER_REACHED_MAX)?,
        }))
    }

    /// Writes the identifier of the store before the first checkpoint: from then on, a folder without a log has lost
    /// its log.
    pub(crate) fn identify(&mut self, store: StoreId) -> Result<(), StoreError> {
        let transaction = begin_change(&self.database)?;
        let meta = Meta {
            store,
            ..Meta::default()
        };
        put_meta(&transaction, &meta)?;
        transaction.commit().map_err(checkpoint)?;
        self.refresh()
    }

    /// The state of streams.
    pub(crate) fn streams(&self) -> Result<StreamTable, StoreError> {
        let Some(table) = self.table(META)? else {
            return Ok(StreamTable::default());
        };
        let found = table.get(STREAMS).map_err(checkpoint)?;
        found.map_or(Ok(StreamTable::default()), |found| {
            StreamTable::decode(found.value()).map_err(wrong)
        })
    }

    /// The segments with live messages, and the bytes of those.
    pub(crate) fn segments(&self) -> Result<BTreeMap<u64, u64>, StoreError> {
        let mut segments = BTreeMap::new();
        let Some(table) = self.table(SEGMENT)? else {
            return Ok(segments);
        };
        for row in table.iter().map_err(checkpoint)? {
            let (segment, bytes) = row.map_err(checkpoint)?;
            if segment.value() > NUMBER_REACHED_MAX {
                return Err(broken("segment"));
            }
            segments.insert(segment.value(), bytes.value());
        }
        Ok(segments)
    }

    /// The encoded row of a session.
    pub(crate) fn session(&self, session: u64) -> Result<Option<Box<[u8]>>, StoreError> {
        let copy = |bytes: &[u8]| Ok(Box::from(bytes));
        row(self.views.session.as_ref(), session, copy)
    }

    /// The encoded subscriptions of a session.
    pub(crate) fn subscriptions(&self, session: u64) -> Result<Option<Box<[u8]>>, StoreError> {
        let copy = |bytes: &[u8]| Ok(Box::from(bytes));
        row(self.views.subscription.as_ref(), session, copy)
    }

    /// Rows of the sessions with these numbers, ascending.
    pub(crate) fn sessions(
        &self,
        numbers: RangeInclusive<u64>,
    ) -> Result<impl Iterator<Item = Result<(u64, SessionRow), StoreError>>, StoreError> {
        rows(self.views.session.as_ref(), numbers, SessionRow::decode)
    }

    /// Subscriptions of the sessions with these numbers, ascending.
    pub(crate) fn all_subscriptions(
        &self,
        numbers: RangeInclusive<u64>,
    ) -> Result<impl Iterator<Item = Result<(u64, StoredSubscriptions), StoreError>>, StoreError>
    {
        rows(
            self.views.subscription.as_ref(),
            numbers,
            decode_subscriptions,
        )
    }

    /// For each queue row of the sessions with these numbers: session, number of deliveries, total size; ascending.
    pub(crate) fn figures(
        &self,
        numbers: RangeInclusive<u64>,
    ) -> Result<impl Iterator<Item = Result<(u64, u64, u64), StoreError>>, StoreError> {
        let keys = (*numbers.start(), 0)..=(*numbers.end(), u64::MAX);
        let found = self.views.queue.as_ref().map(|table| table.range(keys));
        let found = found.transpose().map_err(checkpoint)?;
        Ok(found.into_iter().flatten().map(|row| {
            let (key, bytes) = row.map_err(checkpoint)?;
            let (deliveries, sizes) = DeliveryChunk::figures(bytes.value()).map_err(wrong)?;
            Ok((key.value().0, deliveries, sizes))
        }))
    }

    pub(crate) fn message(&self, message: u64) -> Result<Option<MessageRow>, StoreError> {
        let find = |bytes: &[u8]| messages::find(bytes, message);
        row(self.views.message.as_ref(), page_of(message), find).map(Option::flatten)
    }

    /// Flags and body of a message that was moved into the checkpoint.
    pub(crate) fn body(&self, message: u64) -> Result<Option<(u8, Vec<u8>)>, StoreError> {
        let Some(table) = self.table(BODY)? else {
            return Ok(None);
        };
        let Some(found) = table.get(message).map_err(checkpoint)? else {
            return Ok(None);
        };
        let (flags, body) = bodies::decode(message, found.value())?;
        Ok(Some((flags, body.to_vec())))
    }

    pub(crate) fn queued(
        &self,
        session: u64,
        number: u64,
    ) -> Result<Option<StoredDelivery>, StoreError> {
        let Some(table) = &self.views.queue else {
            return Ok(None);
        };
        let found = chunk_at(table, session, number)?;
        found.map_or(Ok(None), |(_, chunk)| chunk.find(number).map_err(wrong))
    }

    /// Stored chunks of a queue with deliveries from number `from` on, in order.
    pub(crate) fn chunks(
        &self,
        session: u64,
        from: u64,
    ) -> Result<impl Iterator<Item = Result<DeliveryChunk, StoreError>>, StoreError> {
        let mut rows = None;
        if let Some(table) = &self.views.queue {
            let first = chunk_at(table, session, from)?.map_or(from, |(first, _)| first);
            let range = (session, first)..=(session, u64::MAX);
            rows = Some(table.range(range).map_err(checkpoint)?);
        }
        Ok(rows.into_iter().flatten().map(|row| {
            let (_, bytes) = row.map_err(checkpoint)?;
            DeliveryChunk::decode(bytes.value()).map_err(wrong)
        }))
    }

    /// The database, for the thread that writes it.
    pub(crate) fn database(&self) -> Arc<Database> {
        Arc::clone(&self.database)
    }

    pub(crate) fn retained(&self, topic: &str) -> Result<Option<u64>, StoreError> {
        let Some(table) = &self.views.retained else {
            return Ok(None);
        };
        let found = table.get(topic).map_err(checkpoint)?;
        Ok(found.map(|found| found.value()))
    }

    /// A snapshot of all tables.
    pub(crate) fn snapshot(&self) -> Result<ReadTransaction, StoreError> {
        self.database.begin_read().map_err(checkpoint)
    }

    /// A table, or `None` if it was never written.
    pub(crate) fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Option<ReadOnlyTable<K, V>>, StoreError> {
        let transaction = self.database.begin_read().map_err(checkpoint)?;
        opened(&transaction, definition)
    }
}

/// A table, or `None` if it was never written.
pub(crate) fn opened<K: redb::Key + 'static, V: redb::Value + 'static>(
    transaction: &ReadTransaction,
    definition: TableDefinition<'_, K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, StoreError> {
    match transaction.open_table(definition) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        other => other.map(Some).map_err(checkpoint),
    }
}

/// A number in the table `meta`.
fn number(
    table: &ReadOnlyTable<&'static str, &'static [u8]>,
    key: &str,
) -> Result<u64, StoreError> {
    let found = table.get(key).map_err(checkpoint)?;
    let bytes = found.and_then(|found| found.value().try_into().ok());
    bytes.map(u64::from_le_bytes).ok_or_else(|| broken("meta"))
}

/// Begins a transaction: readers see all of its changes or none.
pub(crate) fn begin_change(database: &Database) -> Result<WriteTransaction, StoreError> {
    let mut transaction = database.begin_write().map_err(checkpoint)?;
    // With quick repair, opening after a crash need not read the whole file.
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// The only chunk of a queue that can have delivery `number`, and its key.
pub(crate) fn chunk_at(
    table: &impl ReadableTable<(u64, u64), &'static [u8]>,
    session: u64,
    number: u64,
) -> Result<Option<(u64, DeliveryChunk)>, StoreError> {
    let mut before = table
        .range((session, 0)..=(session, number))
        .map_err(checkpoint)?;
    let Some(row) = before.next_back() else {
        return Ok(None);
    };
    let (key, bytes) = row.map_err(checkpoint)?;
    let chunk = DeliveryChunk::decode(bytes.value()).map_err(wrong)?;
    Ok(Some((key.value().1, chunk)))
}

fn row<K, T>(
    table: Option<&ReadOnlyTable<K, &'static [u8]>>,
    key: K,
    decode: impl FnOnce(&[u8]) -> Result<T, BodyError>,
) -> Result<Option<T>, StoreError>
where
    K: redb::Key + for<'a> Borrow<K::SelfType<'a>> + 'static,
{
    let Some(table) = table else { return Ok(None) };
    let found = table.get(key).map_err(checkpoint)?;
    found
        .map(|bytes| decode(bytes.value()).map_err(wrong))
        .transpose()
}

fn rows<T>(
    table: Option<&ReadOnlyTable<u64, &'static [u8]>>,
    numbers: RangeInclusive<u64>,
    decode: impl Fn(&[u8]) -> Result<T, BodyError>,
) -> Result<impl Iterator<Item = Result<(u64, T), StoreError>>, StoreError> {
    let found = table.map(|table| table.range(numbers));
    let found = found.transpose().map_err(checkpoint)?;
    Ok(found.into_iter().flatten().map(move |row| {
        let (number, bytes) = row.map_err(checkpoint)?;
        Ok((number.value(), decode(bytes.value()).map_err(wrong)?))
    }))
}

/// Creates an empty new checkpoint, to be written and closed; [`name_new`] then gives it its final name.
pub(super) fn create_new(files: &dyn Files, cache_bytes: usize) -> Result<Database, StoreError> {
    let file = begin(files).map_err(|error| StoreError::io("make", UNBORN, error))?;
    database::open(file, cache_bytes)
}

/// Writes the metadata.
pub(crate) fn put_meta(transaction: &WriteTransaction, meta: &Meta) -> Result<(), StoreError> {
    let mut table = transaction.open_table(META).map_err(checkpoint)?;
    let numbers = [
        ("format", u64::from(FORMAT)),
        ("applied_lsn", meta.applied_lsn),
        ("next_number", meta.next_number),
        ("moved", meta.moved),
    ];
    for (key, value) in numbers {
        table
            .insert(key, &value.to_le_bytes()[..])
            .map_err(checkpoint)?;
    }
    table.insert("store", &meta.store[..]).map_err(checkpoint)?;
    Ok(())
}

/// Records that live messages of segments up to this one are in the checkpoint.
pub(crate) fn put_moved(transaction: &WriteTransaction, segment: u64) -> Result<(), StoreError> {
    put_number(transaction, "moved", segment)
}

fn put_number(transaction: &WriteTransaction, key: &str, value: u64) -> Result<(), StoreError> {
    let mut table = transaction.open_table(META).map_err(checkpoint)?;
    let value = value.to_le_bytes();
    table.insert(key, &value[..]).map_err(checkpoint)?;
    Ok(())
}

/// Writes the state of streams.
pub(crate) fn put_streams(
    transaction: &WriteTransaction,
    streams: &StreamTable,
) -> Result<(), StoreError> {
    if streams.is_empty() {
        return Ok(());
    }
    let mut bytes = Vec::new();
    streams.encode(&mut bytes);
    let mut table = transaction.open_table(META).map_err(checkpoint)?;
    table.insert(STREAMS, &bytes[..]).map_err(checkpoint)?;
    Ok(())
}

/// Converts an error of redb.
pub(crate) fn checkpoint(error: impl fmt::Display) -> StoreError {
    StoreError::Checkpoint(error.to_string().into())
}

/// The error for a row that cannot be decoded.
pub(crate) fn wrong(error: BodyError) -> StoreError {
    checkpoint(error)
}

fn broken(table: &str) -> StoreError {
    StoreError::Checkpoint(format!("its table `{table}` is damaged").into())
}
