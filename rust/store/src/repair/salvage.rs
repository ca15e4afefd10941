//! Salvage of a damaged log: reads what is readable and finds out what is lost.

use std::collections::BTreeMap;

use redb::Database;

use crate::error::StoreError;
use crate::files::Files;
use crate::index::rescue::SalvagedCheckpoint;
use crate::index::{Index, bodies};
use crate::record::Record;
use crate::wal::frame::{self};
use crate::wal::open::{LogPosition, Logged, read_record};
use crate::wal::salvage::{frames, header_of, last_durable_lsn};
use crate::wal::segment::{self, HEADER, SegmentHeader, StoreId};

/// Saved and lost records of a damaged log.
#[derive(Debug, Default)]
pub(crate) struct Salvaged {
    /// Number of saved records.
    pub(crate) records: u64,
    /// Lost LSNs: first and last of each gap.
    pub(crate) lost: Vec<(u64, u64)>,
    /// Corrupt records by the LSN that they probably have.
    pub(crate) broken: BTreeMap<u64, CorruptRecord>,
    /// By client identifier, the number of messages to sessions whose [`Record::Opened`] is lost.
    pub(crate) without_session: BTreeMap<String, u64>,
    /// The readable part of a damaged checkpoint.
    pub(crate) rescued: Option<SalvagedCheckpoint>,
    /// Records up to this LSN were safe, as a readable part of the log states.
    last_durable_lsn: u64,
    /// Sessions whose [`Record::Opened`] is corrupt, with their client identifiers.
    unopened: BTreeMap<u64, String>,
}

/// A record with a wrong checksum, decoded nevertheless: used for the report only.
#[derive(Debug, Default)]
pub(crate) struct CorruptRecord {
    /// Recipients, if it is a message.
    pub(crate) sessions: Vec<u64>,
    /// Topic, if it is a message.
    pub(crate) topic: Option<String>,
    /// Session and client identifier, if it opened a session.
    opened: Option<(u64, String)>,
    /// Whether the bytes could be decoded.
    pub(crate) is_readable: bool,
}

/// Applies the readable records of a segment that the index does not have yet.
pub(crate) fn segment(
    files: &dyn Files,
    store: StoreId,
    (number, is_followed): (u64, bool),
    index: &mut Index,
    salvaged: &mut Salvaged,
) -> Result<(), StoreError> {
    let bytes = segment::content(files, number)?;
    let header = header_of(files, store, (number, is_followed))?;
    salvaged.look_at(&bytes, &header, index.applied_lsn);
    if !is_followed {
        salvaged.last_durable_lsn = last_durable_lsn(&bytes, &header);
    }
    for saved in frames(&bytes, &header) {
        let (frame, applied_lsn) = (saved.frame, index.applied_lsn);
        if frame.lsn <= applied_lsn {
            continue;
        }
        if frame.lsn > applied_lsn + 1 {
            salvaged.lost.push((applied_lsn + 1, frame.lsn - 1));
        }
        let place = LogPosition {
            segment: number,
            offset: saved.offset as u64,
            bytes: frame.bytes() as u64,
        };
        let logged: Logged<'_> = read_record(place, &frame, saved.ends_group)?;
        salvaged.count_without_session(&logged.record);
        if let (Some(rescued), Record::Message(message)) = (&mut salvaged.rescued, &logged.record) {
            rescued.count_without_session(message, index)?;
        }
        index.apply(&logged)?;
        salvaged.records += 1;
    }
    Ok(())
}

impl Salvaged {
    /// Counts records as lost that were safe and come after the last readable record; their LSNs are not used again.
    pub(crate) fn end(&mut self, index: &mut Index) {
        if self.last_durable_lsn > index.applied_lsn {
            self.lost
                .push((index.applied_lsn + 1, self.last_durable_lsn));
            index.applied_lsn = self.last_durable_lsn;
        }
    }

    /// Finds corrupt records and decodes them as far as possible; the first expected LSN is `last_lsn + 1`.
    fn look_at(&mut self, bytes: &[u8], header: &SegmentHeader, last_lsn: u64) {
        let seed = header.seed();
        let (mut at, mut lsn) = (HEADER, last_lsn);
        while at < bytes.len() {
            if let Some(frame) = frame::parse(&bytes[at..], seed) {
                (lsn, at) = (lsn.max(frame.lsn), at + frame.bytes());
                continue;
            }
            let is_whole = |at: &usize| frame::parse(&bytes[*at..], seed).is_some();
            let end = (at + 1..bytes.len()).find(is_whole).unwrap_or(bytes.len());
            self.look_between(&bytes[at..end], lsn + 1);
            at = end;
        }
    }

    /// Decodes the bytes between two intact frames, or after the last one.
    fn look_between(&mut self, mut bytes: &[u8], mut lsn: u64) {
        while bytes.len() >= frame::HEADER && bytes.iter().any(|&byte| byte != 0) {
            // A wrong length is almost always too large; the bytes then count as one record.
            let bytes_of_one = frame::split(bytes).map_or(bytes.len(), |frame| frame.bytes());
            let (kind, flags) = (bytes[16], bytes[17]);
            let body = &bytes[frame::HEADER..bytes_of_one];
            if kind != crate::record::COMMIT {
                let broken = Record::decode(kind, flags, body)
                    .map_or_else(|_| CorruptRecord::default(), CorruptRecord::of);
                if let Some((session, client_id)) = &broken.opened {
                    self.unopened.insert(*session, client_id.clone());
                }
                self.broken.insert(lsn, broken);
                lsn += 1;
            }
            bytes = &bytes[bytes_of_one..];
        }
    }

    fn count_without_session(&mut self, record: &Record<'_>) {
        match record {
            Record::Opened(opened) => drop(self.unopened.remove(&opened.session)),
            Record::Message(message) => {
                for recipient in message.recipients.iter() {
                    if let Some(client_id) = self.unopened.get(&recipient.session) {
                        *self.without_session.entry(client_id.clone()).or_default() += 1;
                    }
                }
            }
            _ => {}
        }
    }
}

impl CorruptRecord {
    fn of(record: Record<'_>) -> Self {
        match record {
            Record::Message(message) => Self {
                sessions: message.recipients.iter().map(|one| one.session).collect(),
                topic: Some(message.topic.to_owned()),
                opened: None,
                is_readable: true,
            },
            Record::Opened(opened) => Self {
                opened: Some((opened.session, opened.client_id.to_owned())),
                is_readable: true,
                ..Self::default()
            },
            _ => Self {
                is_readable: true,
                ..Self::default()
            },
        }
    }
}

/// Moves every referenced message of a segment into the checkpoint.
pub(crate) fn keep_messages(
    files: &dyn Files,
    store: StoreId,
    number: u64,
    database: &Database,
) -> Result<(), StoreError> {
    let bytes = segment::content(files, number)?;
    let seed = segment::seed(&store, number);
    let mut at = HEADER;
    let mut frames = Vec::new();
    while at < bytes.len() {
        // A message is valid if its own checksum is, even if its group is damaged.
        match frame::parse(&bytes[at..], seed) {
            Some(frame) => {
                frames.push((at as u64, frame));
                at += frame.bytes();
            }
            None => at += 1,
        }
    }
    bodies::move_frames(database, number, frames.into_iter())
}
