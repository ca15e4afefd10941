//! Writes a new checkpoint from the readable rows of a damaged one.
//!
//! A session is saved completely, except for its messages, or not at all: if its row or its subscriptions cannot be
//! read, it is given up, because its client would see a resumed session and not subscribe again. References to
//! messages are counted again.

use std::collections::{BTreeMap, HashMap};

use redb::{Key, TableDefinition, Value, WriteTransaction};

use crate::error::StoreError;
use crate::files::{File, Files};
use crate::index::Index;
use crate::index::bodies;
use crate::index::chunk::DeliveryChunk;
use crate::index::flush::LiveCounts;
use crate::index::gaps::Gaps;
use crate::index::messages::{MessageRow, decode_page, encode_page, find, page_of};
use crate::index::pages::Pages;
use crate::index::rows::SessionRow;
use crate::index::source::{Begin, RowSource, best};
use crate::index::tables::{
    BODY, MESSAGE, META, NOTE, QUEUE, RETAINED, SEGMENT, SESSION, SUBSCRIPTION, begin_change,
    checkpoint, create_new, wrong,
};
use crate::record::{MessageRecord, Record};
use crate::wal::LogPosition;

/// Cache size for writing, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// Saved and lost data of a damaged checkpoint.
#[derive(Debug, Default)]
pub(crate) struct SalvagedCheckpoint {
    /// Number of pages in which one wrong bit was corrected.
    pub(crate) mended_pages: u64,
    /// Number of pages that could not be read.
    pub(crate) lost_pages: u64,
    /// Client identifiers of saved sessions, by number.
    kept: BTreeMap<u64, String>,
    /// Client identifiers of sessions that were read and given up.
    given_up: BTreeMap<u64, String>,
    /// Number of messages for lost sessions, by session number.
    without_session: BTreeMap<u64, u64>,
    /// Number of lost deliveries, by message.
    lost: BTreeMap<u64, u32>,
    /// Keys of the missing queue rows.
    gaps: Gaps<(u64, u64)>,
    /// Numbers of the missing sessions.
    missing: Gaps<u64>,
}

/// Writes the readable rows of the damaged checkpoint `file` into a new checkpoint with a temporary name; `None` if
/// no commit is usable. The log begins at `begin`.
pub(crate) fn rescue(
    file: &dyn File,
    files: &dyn Files,
    begin: Begin,
) -> Result<Option<SalvagedCheckpoint>, StoreError> {
    let mut pages = Pages::of(file)?;
    let Some((commit, meta)) = best(&mut pages, begin)? else {
        return Ok(None);
    };
    pages.lost = 0;
    let database = create_new(files, CACHE_BYTES)?;
    let transaction = begin_change(&database)?;
    let mut copier = Copier {
        source: RowSource { pages, commit },
        to: &transaction,
        counted: HashMap::new(),
        moved: meta.moved,
        rescued: SalvagedCheckpoint::default(),
    };
    copier.copy()?;
    let mut rescued = copier.rescued;
    rescued.mended_pages = copier.source.pages.mended();
    // If a later commit was not used, at least one of its pages is damaged.
    rescued.lost_pages = copier.source.pages.lost + u64::from(!meta.is_latest);
    transaction.commit().map_err(checkpoint)?;
    Ok(Some(rescued))
}

/// Copies the readable rows, table by table.
struct Copier<'f, 't> {
    source: RowSource<Pages<'f>>,
    to: &'t WriteTransaction,
    /// References to each message that were read; removed when the row of the message is found.
    counted: HashMap<u64, u32>,
    moved: u64,
    rescued: SalvagedCheckpoint,
}

impl Copier<'_, '_> {
    fn copy(&mut self) -> Result<(), StoreError> {
        self.copy_all(META)?;
        self.copy_all(NOTE)?;
        self.copy_sessions()?;
        self.copy_queues()?;
        self.copy_retained()?;
        self.copy_messages()?;
        self.copy_bodies()
    }

    fn copy_all<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<(), StoreError> {
        let mut table = self.to.open_table(definition).map_err(checkpoint)?;
        self.source.rows(definition, |row| {
            if let Some((key, value)) = row {
                table.insert(key, value).map_err(checkpoint)?;
            }
            Ok(())
        })
    }

    fn copy_sessions(&mut self) -> Result<(), StoreError> {
        let mut gaps = Gaps::default();
        self.source.rows(SUBSCRIPTION, |row| {
            gaps.pass(row.map(|(session, _)| session));
            Ok(())
        })?;
        gaps.end();
        let mut table = self.to.open_table(SESSION).map_err(checkpoint)?;
        let (rescued, counted) = (&mut self.rescued, &mut self.counted);
        self.source.rows(SESSION, |row| {
            rescued.missing.pass(row.map(|(session, _)| session));
            let Some((session, bytes)) = row else {
                return Ok(());
            };
            let row = SessionRow::decode(bytes).map_err(wrong)?;
            if gaps.contain(&session) {
                *rescued.without_session.entry(session).or_default() += row.publishes.len() as u64;
                rescued.given_up.insert(session, row.client_id);
                return Ok(());
            }
            for (_, delivery) in &row.publishes {
                *counted.entry(delivery.message).or_default() += 1;
            }
            rescued.kept.insert(session, row.client_id);
            table.insert(session, bytes).map_err(checkpoint)?;
            Ok(())
        })?;
        rescued.missing.end();
        let mut table = self.to.open_table(SUBSCRIPTION).map_err(checkpoint)?;
        let kept = &self.rescued.kept;
        self.source.rows(SUBSCRIPTION, |row| {
            if let Some((session, held)) = row.filter(|(session, _)| kept.contains_key(session)) {
                table.insert(session, held).map_err(checkpoint)?;
            }
            Ok(())
        })
    }

    fn copy_queues(&mut self) -> Result<(), StoreError> {
        let mut table = self.to.open_table(QUEUE).map_err(checkpoint)?;
        let (rescued, counted) = (&mut self.rescued, &mut self.counted);
        self.source.rows(QUEUE, |row| {
            rescued.gaps.pass(row.map(|(key, _)| key));
            let Some((key, bytes)) = row else {
                return Ok(());
            };
            let chunk = DeliveryChunk::decode(bytes).map_err(wrong)?;
            if !rescued.kept.contains_key(&key.0) {
                *rescued.without_session.entry(key.0).or_default() += u64::from(chunk.count);
                return Ok(());
            }
            for delivery in chunk.deliveries() {
                let delivery = delivery.map_err(wrong)?;
                *counted.entry(delivery.message).or_default() += 1;
            }
            table.insert(key, bytes).map_err(checkpoint)?;
            Ok(())
        })?;
        self.rescued.gaps.end();
        Ok(())
    }

    fn copy_retained(&mut self) -> Result<(), StoreError> {
        let mut table = self.to.open_table(RETAINED).map_err(checkpoint)?;
        let counted = &mut self.counted;
        self.source.rows(RETAINED, |row| {
            if let Some((topic, message)) = row {
                *counted.entry(message).or_default() += 1;
                table.insert(topic, message).map_err(checkpoint)?;
            }
            Ok(())
        })
    }

    /// Messages without references are kept until [`SalvagedCheckpoint::attribute`] has reported their recipients.
    fn copy_messages(&mut self) -> Result<(), StoreError> {
        let mut table = self.to.open_table(MESSAGE).map_err(checkpoint)?;
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        let (rescued, counted, moved) = (&mut self.rescued, &mut self.counted, self.moved);
        self.source.rows(MESSAGE, |row| {
            let Some((page, bytes)) = row else {
                return Ok(());
            };
            let mut rows = decode_page(page, bytes).map_err(wrong)?;
            for (message, row) in &mut rows {
                let references = counted.remove(message).unwrap_or_default();
                let lost = row.references.saturating_sub(references);
                if lost > 0 {
                    rescued.lost.insert(*message, lost);
                }
                row.references = references;
                let place = row.place();
                if place.segment > moved {
                    *live.entry(place.segment).or_default() += place.bytes;
                }
            }
            table
                .insert(page, &encode_page(&rows)[..])
                .map_err(checkpoint)?;
            Ok(())
        })?;
        let mut segments = self.to.open_table(SEGMENT).map_err(checkpoint)?;
        for (segment, bytes) in live {
            segments.insert(segment, bytes).map_err(checkpoint)?;
        }
        Ok(())
    }

    /// A referenced message whose row is lost gets a new row.
    fn copy_bodies(&mut self) -> Result<(), StoreError> {
        let mut pages = self.to.open_table(MESSAGE).map_err(checkpoint)?;
        let mut table = self.to.open_table(BODY).map_err(checkpoint)?;
        let (counted, moved) = (&mut self.counted, self.moved);
        self.source.rows(BODY, |row| {
            let Some((message, bytes)) = row else {
                return Ok(());
            };
            let page = redb::ReadableTable::get(&pages, page_of(message)).map_err(checkpoint)?;
            let page = page.map(|page| page.value().to_vec()).unwrap_or_default();
            let is_known = find(&page, message).map_err(wrong)?.is_some();
            let wanted = counted.remove(&message).filter(|_| !is_known);
            if let Some(references) = wanted
                && let Some(size) = size_of(message, bytes)
            {
                let mut rows = decode_page(page_of(message), &page).map_err(wrong)?;
                let mut row = moved_row(size, bytes.len(), moved)?;
                row.references = references;
                rows.push((message, row));
                rows.sort_unstable_by_key(|(message, _)| *message);
                let page = encode_page(&rows);
                pages
                    .insert(page_of(message), &page[..])
                    .map_err(checkpoint)?;
            } else if !is_known {
                return Ok(());
            }
            table.insert(message, bytes).map_err(checkpoint)?;
            Ok(())
        })
    }
}

/// The size of a message, from its row in the table `body`.
fn size_of(message: u64, bytes: &[u8]) -> Option<u32> {
    let (flags, body) = bodies::decode(message, bytes).ok()?;
    match Record::decode(1, flags, body) {
        Ok(Record::Message(message)) => Some(message.size()),
        _ => None,
    }
}

/// A row for a message whose content, `bytes` long, is in the checkpoint: its old position in the log is unknown.
fn moved_row(size: u32, bytes: usize, moved: u64) -> Result<MessageRow, StoreError> {
    let place = LogPosition {
        segment: moved,
        offset: 0,
        bytes: bytes as u64,
    };
    MessageRow::new(size, place).map_err(wrong)
}

impl SalvagedCheckpoint {
    /// Reports clients and topics of the lost deliveries, as far as the contents of their messages are readable. Must
    /// run before records of the log are applied.
    pub(crate) fn attribute(&self, index: &mut Index, to: &mut GivenUp) -> Result<(), StoreError> {
        for (&message, &count) in &self.lost {
            let Some(found) = index.readable(message)? else {
                to.unknown += u64::from(count);
                continue;
            };
            let found = found.message();
            *to.topics.entry(found.topic.to_owned()).or_default() += u64::from(count);
            for (place, recipient) in (0..).zip(found.recipients.iter()) {
                let number = message.wrapping_add(place);
                if let Some(client_id) = self.kept.get(&recipient.session)
                    && self.gaps.contain(&(recipient.session, number))
                {
                    *to.sessions.entry(client_id.clone()).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    /// Counts the deliveries of a log message to lost sessions.
    pub(crate) fn count_without_session(
        &mut self,
        message: &MessageRecord<'_>,
        index: &mut Index,
    ) -> Result<(), StoreError> {
        for recipient in message.recipients.iter() {
            let session = recipient.session;
            if self.is_missing(session) && !index.has_session(session)? {
                *self.without_session.entry(session).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Whether a session may have begun before the checkpoint was written, but is lost.
    fn is_missing(&self, session: u64) -> bool {
        self.given_up.contains_key(&session) || self.missing.contain(&session)
    }

    /// Ends every lost session that later records named, and drops messages without references. Must run after all
    /// records of the log are applied.
    pub(crate) fn settle(mut self, index: &mut Index, to: &mut GivenUp) -> Result<(), StoreError> {
        let mut named = self.given_up.clone();
        index.clients(&mut |session, client_id| {
            if self.is_missing(session) {
                named.insert(session, client_id.to_owned());
            }
        })?;
        for session in named.keys() {
            let waiting = index.deliveries(*session)?.len() as u64;
            *self.without_session.entry(*session).or_default() += waiting;
            index.end_session(*session)?;
        }
        for (session, count) in self.without_session {
            let name = named.remove(&session);
            let name = name.unwrap_or_else(|| format!("(session {session}, unknown client)"));
            *to.sessions.entry(name).or_default() += count;
        }
        for message in self.lost.into_keys() {
            index.drop_unwanted(message)?;
        }
        // No record describes these changes, so the checkpoint is written again with the same LSN.
        index.checkpoint_lsn = 0;
        Ok(())
    }
}

/// Numbers of messages that were given up: by client identifier, by topic, and those whose recipients and topic are
/// unknown.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    pub(crate) sessions: LiveCounts,
    pub(crate) topics: LiveCounts,
    pub(crate) unknown: u64,
}
