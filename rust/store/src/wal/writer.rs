//! Writes groups to segments, one write for each group; syncs separately.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::StoreError;
use crate::files::{File, Files, write_all};
use crate::wal::frame::{self, CommitMarker, MARKER};
use crate::wal::numbering::Numbering;
use crate::wal::segment::{self, START, SegmentHeader, StoreId};

/// Writes the log. Has no thread of its own: its owner decides when to write and sync.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) store: StoreId,
    pub(crate) segment_bytes: u64,
    pub(crate) older: VecDeque<FullSegment>,
    pub(crate) current: OpenSegment,
    pub(crate) next_lsn: u64,
    /// The offsets of the next rows.
    pub(crate) numbering: Numbering,
    /// The last synced LSN.
    pub(crate) durable_lsn: u64,
    /// Whether something was written since the last sync.
    pub(crate) is_dirty: bool,
}

/// A segment that is full.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FullSegment {
    pub(crate) number: u64,
    pub(crate) last_lsn: u64,
    pub(crate) bytes: u64,
}

/// The segment that is being written.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) header: SegmentHeader,
    pub(crate) file: Arc<dyn File>,
    /// Its size.
    pub(crate) bytes: u64,
    /// Offset of the next group.
    pub(crate) end: u64,
}

/// Position of a written group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct WrittenGroup {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) first_lsn: u64,
    pub(crate) last_lsn: u64,
    /// Whether the group contains rows.
    pub(crate) has_rows: bool,
}

impl OpenSegment {
    pub(crate) fn name(&self) -> String {
        segment::name(self.header.number)
    }
}

impl SegmentWriter {
    /// Creates a log.
    pub(crate) fn begin(
        files: Arc<dyn Files>,
        store: StoreId,
        segment_bytes: u64,
    ) -> Result<Self, StoreError> {
        Self::begin_at(files, store, segment_bytes, 1, 1)
    }

    /// Creates a log with segment `number`, whose first record will have the LSN `next_lsn`.
    pub(crate) fn begin_at(
        files: Arc<dyn Files>,
        store: StoreId,
        segment_bytes: u64,
        number: u64,
        next_lsn: u64,
    ) -> Result<Self, StoreError> {
        let header = SegmentHeader {
            store,
            number,
            first_lsn: next_lsn,
            bytes: segment_bytes.max(START + MARKER as u64),
            is_followed: false,
        };
        let file = segment::create(&*files, header)?;
        Ok(Self {
            files,
            store,
            segment_bytes,
            older: VecDeque::new(),
            current: OpenSegment {
                header,
                file,
                bytes: header.bytes,
                end: START,
            },
            next_lsn,
            numbering: Numbering::default(),
            durable_lsn: next_lsn - 1,
            is_dirty: false,
        })
    }

    /// Numbers and writes `records` records, whose unsealed frames are `bytes`, as one group.
    ///
    /// The commit marker is appended to `bytes`.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`]: nothing was written, no LSN or offset was used, and `bytes` has
    /// the frames only. After any other error the log must not be written again.
    pub(crate) fn write(
        &mut self,
        bytes: &mut Vec<u8>,
        records: u32,
    ) -> Result<WrittenGroup, StoreError> {
        let frames = bytes.len();
        let needed = (frames + MARKER) as u64;
        if self.current.end + needed > self.current.bytes {
            self.roll(needed)?;
        }
        let written = WrittenGroup {
            segment: self.current.header.number,
            offset: self.current.end,
            first_lsn: self.next_lsn,
            last_lsn: self.next_lsn + u64::from(records) - 1,
            has_rows: self.numbering.number(bytes),
        };
        let seed = self.current.header.seed();
        let chain = frame::seal_all(bytes, seed, self.next_lsn);
        let durable_lsn = self.durable_lsn;
        let commit = CommitMarker {
            records,
            chain,
            durable_lsn,
        };
        frame::put_marker(&commit, written.last_lsn, seed, bytes);
        self.is_dirty = true;
        match write_all(&*self.current.file, bytes, self.current.end) {
            Err(error) if segment::is_full(&error) => {
                bytes.truncate(frames);
                self.numbering.take_back(bytes);
                self.take_back()?;
                return Err(StoreError::NoSpace);
            }
            other => other.map_err(|error| self.failed("write to", error))?,
        }
        self.current.end += needed;
        self.next_lsn += u64::from(records);
        Ok(written)
    }

    /// Syncs everything that was written.
    ///
    /// # Errors
    ///
    /// Every error is final: the content of the disk is unknown.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        if self.is_dirty {
            self.current
                .file
                .sync()
                .map_err(|error| self.failed("sync", error))?;
            self.is_dirty = false;
        }
        self.durable_lsn = self.next_lsn - 1;
        Ok(())
    }

    /// Writes a marker without records, so that the log contains the durable LSN of all records
    /// before it. Does nothing if the segment has no room for it.
    pub(crate) fn testify(&mut self) -> Result<(), StoreError> {
        if self.current.end + MARKER as u64 > self.current.bytes {
            return Ok(());
        }
        match self.write(&mut Vec::new(), 0) {
            Err(StoreError::NoSpace) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Removes full segments up to `number`.
    pub(crate) fn drop_up_to(&mut self, number: u64) -> Result<(), StoreError> {
        let mut is_changed = false;
        while let Some(oldest) = self.older.front()
            && oldest.number <= number
        {
            let name = segment::name(oldest.number);
            let removed = self.files.remove(&name);
            removed.map_err(|error| StoreError::io("remove", &name, error))?;
            self.older.pop_front();
            is_changed = true;
        }
        if is_changed {
            let synced = self.files.sync_names();
            synced.map_err(|error| StoreError::io("sync the folder", ".", error))?;
        }
        Ok(())
    }

    /// Creates the next segment after it has synced the current one, which therefore cannot have
    /// a torn tail.
    fn roll(&mut self, needed: u64) -> Result<(), StoreError> {
        self.sync()?;
        let header = SegmentHeader {
            store: self.store,
            number: self.current.header.number + 1,
            first_lsn: self.next_lsn,
            bytes: self.segment_bytes.max(START + needed),
            is_followed: false,
        };
        let file = segment::create(&*self.files, header)?;
        self.current.header.is_followed = true;
        match self.put_header() {
            // If the disk is full, this segment ends without that marker.
            Err(StoreError::Io { source, .. }) if segment::is_full(&source) => {}
            put => put?,
        }
        self.older.push_back(FullSegment {
            number: self.current.header.number,
            last_lsn: self.next_lsn - 1,
            bytes: self.current.bytes,
        });
        self.current = OpenSegment {
            header,
            file,
            bytes: header.bytes,
            end: START,
        };
        Ok(())
    }

    /// Writes the header of the current segment again.
    fn put_header(&self) -> Result<(), StoreError> {
        let OpenSegment { file, header, .. } = &self.current;
        let put = write_all(&**file, &header.to_bytes(), 0).and_then(|()| file.sync());
        put.map_err(|error| self.failed("change the header of", error))
    }

    /// Cuts off the part of a group that was written before the disk was full. The segment is
    /// closed then.
    fn take_back(&mut self) -> Result<(), StoreError> {
        // The file must never be shorter than the size in its header.
        self.current.header.bytes = self.current.end;
        self.put_header()?;
        let cut = self.current.file.set_len(self.current.end);
        cut.map_err(|error| self.failed("cut", error))?;
        self.current.bytes = self.current.end;
        Ok(())
    }

    fn failed(&self, doing: &'static str, error: std::io::Error) -> StoreError {
        StoreError::io(doing, &self.current.name(), error)
    }
}
