//! Backup: copies a store, whether it is in use or not.
//!
//! All parts of the copy of a store in use are of one moment: a snapshot of the checkpoint, the full segments, the
//! used part of the open segment, and the files beside the log. Files that no longer change are linked at that moment
//! if possible. The others are held open and copied afterwards, while the store continues and may remove them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use redb::ReadTransaction;

use crate::error::StoreError;
use crate::files::{File, Files, FolderAccess, copy_in_steps, write_all};
use crate::index::{copying, tables};
use crate::wal::segment::{self, SegmentHeader};

/// The folder of all streams.
pub(crate) const STREAMS: &str = "streams";

/// A part of the file index of a stream: the files that were sealed since its snapshot. It grows, while all other
/// files beside the log are replaced when they change.
pub(crate) const SEALED_LOG: &str = "sealed.log";

/// Folder for files that notes refer to and that are complete under their names. The writer of
/// the notes owns it; a backup contains all of its files.
pub const NOTED: &str = "sink";

/// This file marks a store that was restored or repaired: offsets that readers know may refer to
/// other rows.
pub(crate) const RESTORED: &str = "restored";

/// How far a backup is: written by the thread that copies, read by any.
#[derive(Debug, Default)]
pub struct CopyProgress {
    done: AtomicU64,
    /// Set when all files of the copy are held.
    plan: OnceLock<Plan>,
}

/// What there is to copy.
#[derive(Debug)]
struct Plan {
    /// Bytes of the whole copy.
    total: u64,
    /// Those of files that were linked, and of the checkpoint: they are there when copying begins.
    before: u64,
    began: Instant,
}

impl CopyProgress {
    /// Bytes of the copy that are there.
    pub fn done(&self) -> u64 {
        // ORDERING: a figure; nothing is read because of it.
        let done = self.done.load(Ordering::Relaxed);
        // A file that grows may have become longer than it was planned with.
        self.total().map_or(done, |total| done.min(total))
    }

    /// Bytes of the whole copy; `None` until all of its files are known.
    pub fn total(&self) -> Option<u64> {
        self.plan.get().map(|plan| plan.total)
    }

    /// Mean of the bytes copied in a second; `None` until some were. Linked files do not count.
    pub fn rate(&self) -> Option<u64> {
        let plan = self.plan.get()?;
        let copied = self.done().saturating_sub(plan.before);
        let rate = u128::from(copied) * 1_000_000 / plan.began.elapsed().as_micros().max(1);
        u64::try_from(rate).ok().filter(|rate| *rate > 0)
    }

    /// Seconds that the rest takes at this rate; `None` while there is no rate.
    pub fn eta_s(&self) -> Option<u64> {
        let left = self.total()?.saturating_sub(self.done());
        Some(left.div_ceil(self.rate()?))
    }

    fn begin(&self, before: u64, total: u64) {
        self.add(before);
        let began = Instant::now();
        // A progress belongs to one backup.
        let _ = self.plan.set(Plan {
            total,
            before,
            began,
        });
    }

    fn add(&self, bytes: u64) {
        // ORDERING: as in `done`.
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A backup in progress of the store in `files` to the folder `to`.
pub(crate) struct Copy<'f> {
    files: &'f dyn Files,
    to: &'f dyn Files,
    progress: &'f CopyProgress,
    held: Vec<Held>,
    /// Folders of the copy, to be synced.
    folders: Vec<Arc<dyn Files>>,
    bytes: u64,
    /// The header that the last segment has in the copy, if it is not that of the store.
    last: Option<SegmentHeader>,
}

/// A file that is to be copied; held open, since the store may remove it meanwhile.
struct Held {
    name: String,
    file: Arc<dyn File>,
    /// End of the bytes to copy.
    end: u64,
    /// Index of its folder in the copy; `None`: the folder of the log.
    folder: Option<usize>,
}

impl<'f> Copy<'f> {
    pub(crate) fn begin(
        files: &'f dyn Files,
        to: &'f dyn Files,
        progress: &'f CopyProgress,
    ) -> Self {
        Self {
            files,
            to,
            progress,
            held: Vec::new(),
            folders: Vec::new(),
            bytes: 0,
            last: None,
        }
    }

    /// Includes the log up to byte `end` of the open segment, which has the header `last`. It is the last segment of
    /// the copy, whatever the store writes meanwhile.
    pub(crate) fn hold_running_log(
        &mut self,
        last: SegmentHeader,
        end: u64,
    ) -> Result<(), StoreError> {
        self.last = Some(SegmentHeader {
            is_followed: false,
            ..last
        });
        self.hold_log(last.number, end)
    }

    /// Takes the log up to byte `end` of segment `current`, the last one.
    pub(crate) fn hold_log(&mut self, current: u64, end: u64) -> Result<(), StoreError> {
        for number in segment::numbers(self.files)? {
            let name = segment::name(number);
            let end = if number == current { end } else { u64::MAX };
            let taken = match number {
                _ if number > current => continue,
                _ if number == current => self.hold(self.files, None, &name, end),
                _ => self.take(self.files, None, &name),
            };
            match taken {
                // A segment that is not needed any more was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                taken => taken.map_err(|error| StoreError::io("open", &name, error))?,
            }
        }
        Ok(())
    }

    /// Takes the files of the streams and those that notes refer to, and marks the copy as
    /// restored if there are streams. The caller makes sure that none of them is removed
    /// meanwhile.
    pub(crate) fn hold_beside(&mut self) -> Result<(), StoreError> {
        let names = self.files.list();
        let names = names.map_err(|error| StoreError::io("list", ".", error))?;
        if names.iter().any(|name| name == NOTED) {
            let failed = |error| StoreError::io("copy", NOTED, error);
            let (from, folder) = self
                .folder(self.files, None, NOTED, FolderAccess::Owner)
                .map_err(failed)?;
            self.take_all(&*from, folder, ".arrow").map_err(failed)?;
        }
        if names.iter().any(|name| name == STREAMS) {
            let held = mark_restored(self.to).and_then(|()| self.hold_streams());
            held.map_err(|error| StoreError::io("copy", STREAMS, error))?;
        }
        Ok(())
    }

    fn hold_streams(&mut self) -> io::Result<()> {
        let (passage, group) = (FolderAccess::Passage(None), FolderAccess::Group(None));
        let (from, root) = self.folder(self.files, None, STREAMS, passage)?;
        for name in from.list()? {
            // The socket of the endpoint has a dot in its name, streams do not.
            if !name.contains('.') {
                let (from, folder) = self.folder(&*from, Some(root), &name, passage)?;
                self.take_all(&*from, folder, ".json")?;
                self.hold_if_there(&*from, folder, SEALED_LOG)?;
                let (from, folder) = self.folder(&*from, Some(folder), "data", group)?;
                self.take_all(&*from, folder, ".parquet")?;
            }
        }
        Ok(())
    }

    /// Opens a folder in `from` and creates it in the copy; returns its index.
    fn folder(
        &mut self,
        from: &dyn Files,
        parent: Option<usize>,
        name: &str,
        access: FolderAccess,
    ) -> io::Result<(Arc<dyn Files>, usize)> {
        let from = from.folder(name, access)?;
        let folder = self.target(parent).folder(name, access)?;
        self.folders.push(folder);
        Ok((from, self.folders.len() - 1))
    }

    fn target(&self, folder: Option<usize>) -> &dyn Files {
        folder.map_or(self.to, |place| &*self.folders[place])
    }

    /// Takes all complete files with this extension; incomplete ones begin with `_`.
    fn take_all(&mut self, from: &dyn Files, folder: usize, ending: &str) -> io::Result<()> {
        let names = from.list()?;
        let whole = names
            .iter()
            .filter(|name| !name.starts_with('_') && name.ends_with(ending));
        for name in whole {
            self.take(from, Some(folder), name)?;
        }
        Ok(())
    }

    /// Takes a file that does not change any more.
    fn take(&mut self, from: &dyn Files, folder: Option<usize>, name: &str) -> io::Result<()> {
        if from.share(name, self.target(folder)).is_err() {
            return self.hold(from, folder, name, u64::MAX);
        }
        self.bytes += self.target(folder).open(name)?.bytes()?;
        Ok(())
    }

    /// Includes the current content of a file that grows.
    fn hold_if_there(&mut self, from: &dyn Files, folder: usize, name: &str) -> io::Result<()> {
        let end = match from.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?.bytes()?,
        };
        self.hold(from, Some(folder), name, end)
    }

    fn hold(
        &mut self,
        from: &dyn Files,
        folder: Option<usize>,
        name: &str,
        end: u64,
    ) -> io::Result<()> {
        let name = name.to_owned();
        let file = from.open(&name)?;
        self.held.push(Held {
            name,
            file,
            end,
            folder,
        });
        Ok(())
    }

    /// Writes the checkpoint of the copy from `snapshot`.
    pub(crate) fn put_checkpoint(&mut self, snapshot: &ReadTransaction) -> Result<(), StoreError> {
        copying::copy(snapshot, self.to)?;
        let bytes = self.to.open(tables::FILE).and_then(|file| file.bytes());
        self.bytes += bytes.map_err(|error| StoreError::io("copy", tables::FILE, error))?;
        Ok(())
    }

    /// Takes the checkpoint of a store that is not open, if it has one.
    pub(crate) fn hold_checkpoint(&mut self) -> Result<(), StoreError> {
        match self.hold(self.files, None, tables::FILE, u64::MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            held => held.map_err(|error| StoreError::io("open", tables::FILE, error)),
        }
    }

    /// Whether there is no store to copy.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.bytes == 0
    }

    /// Copies the files that are held and syncs the copy; returns its bytes.
    pub(crate) fn finish(mut self) -> Result<u64, StoreError> {
        let held = std::mem::take(&mut self.held);
        let mut total = self.bytes;
        for held in &held {
            let bytes = held.file.bytes();
            total += bytes.map_err(|error| StoreError::io("copy", &held.name, error))?;
        }
        self.progress.begin(self.bytes, total);
        for held in held {
            let mut written = 0;
            let (to, name) = (self.target(held.folder), &held.name);
            let copied = copy_in_steps(&*held.file, to, name, held.end, &mut |bytes| {
                written += bytes;
                self.progress.add(bytes);
            });
            let copied = copied.map_err(|error| StoreError::io("copy", &held.name, error))?;
            // Zeros behind the end are not written.
            self.progress.add(copied.saturating_sub(written));
            self.bytes += copied;
        }
        if let Some(header) = self.last {
            let name = segment::name(header.number);
            let put = self
                .to
                .open(&name)
                .and_then(|file| put_header(&*file, header));
            put.map_err(|error| StoreError::io("copy", &name, error))?;
        }
        let failed = |error| StoreError::io("sync the folder of", "the copy", error);
        for folder in &self.folders {
            folder.sync_names().map_err(failed)?;
        }
        self.to.sync_names().map_err(failed)?;
        Ok(self.bytes)
    }
}

/// Marks the store in `files` as restored.
pub(crate) fn mark_restored(files: &dyn Files) -> io::Result<()> {
    match files.create(RESTORED, 0) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?.sync()?,
    }
    files.sync_names()
}

/// Writes the header of the last segment of a copy.
fn put_header(file: &dyn File, header: SegmentHeader) -> io::Result<()> {
    let header = SegmentHeader {
        bytes: file.bytes()?,
        ..header
    };
    write_all(file, &header.to_bytes(), 0)?;
    file.sync()
}
