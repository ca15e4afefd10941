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
use crate::wal::salvage::{frames, header_of, promised};
use crate::wal::segment::{self, HEADER, SegmentHeader, StoreId};

/// What became of the records of a damaged log.
#[derive(Debug, Default)]
pub(crate) struct Salvaged {
    /// How many were saved.
    pub(crate) records: u64,
    /// LSNs of those that are lost: first and last of each gap.
    pub(crate) lost: Vec<(u64, u64)>,
    /// What the bytes of broken records seem to say, by LSN.
    pub(crate) broken: BTreeMap<u64, CorruptRecord>,
    /// Messages to sessions whose beginning is lost, by client identifier.
    pub(crate) homeless: BTreeMap<String, u64>,
    /// What could be read of a damaged checkpoint.
    pub(crate) rescued: Option<SalvagedCheckpoint>,
    /// Something in the log says that records up to here were safe.
    last_durable_lsn: u64,
    /// Those sessions.
    unopened: BTreeMap<u64, String>,
}

/// A record whose checksum is wrong, as its bytes read nevertheless: good for a report only.
#[derive(Debug, Default)]
pub(crate) struct CorruptRecord {
    /// The sessions that a message went to.
    pub(crate) sessions: Vec<u64>,
    /// The topic of a message.
    pub(crate) topic: Option<String>,
    /// The session that began, and its client.
    opened: Option<(u64, String)>,
    /// The bytes make sense.
    pub(crate) is_readable: bool,
}

/// Applies every record of a segment that can be read and that the index does not have yet.
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
        salvaged.last_durable_lsn = promised(&bytes, &header);
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
        salvaged.count_homeless(&logged.record);
        if let (Some(rescued), Record::Message(message)) = (&mut salvaged.rescued, &logged.record) {
            rescued.count_homeless(message, index)?;
        }
        index.apply(&logged)?;
        salvaged.records += 1;
    }
    Ok(())
}

impl Salvaged {
    /// Records that were safe and are not there behind the last one that is: their numbers are not
    /// given again.
    pub(crate) fn end(&mut self, index: &mut Index) {
        if self.last_durable_lsn > index.applied_lsn {
            self.lost
                .push((index.applied_lsn + 1, self.last_durable_lsn));
            index.applied_lsn = self.last_durable_lsn;
        }
    }

    /// Finds broken records and what they seem to say; the first record expected is the one behind
    /// `last_lsn`.
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

    /// Reads what is between two whole frames, or behind the last one.
    fn look_between(&mut self, mut bytes: &[u8], mut lsn: u64) {
        while bytes.len() >= frame::HEADER && bytes.iter().any(|&byte| byte != 0) {
            // A length that is wrong is too long nearly always; then it is one record.
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

    fn count_homeless(&mut self, record: &Record<'_>) {
        match record {
            Record::Opened(opened) => drop(self.unopened.remove(&opened.session)),
            Record::Message(message) => {
                for recipient in message.recipients.iter() {
                    if let Some(client_id) = self.unopened.get(&recipient.session) {
                        *self.homeless.entry(client_id.clone()).or_default() += 1;
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

/// Moves every message of a segment that is wanted into the checkpoint.
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
        // A message is as good as its own checksum, whatever became of its group.
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
