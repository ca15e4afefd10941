//! Backup: copies a store, whether it is in use or not.
//!
//! All parts of the copy of a store in use are of one moment: a snapshot of the checkpoint, the full segments, the
//! used part of the open segment, and the files beside the log. Files that no longer change are linked at that moment
//! if possible. The others are held open and copied afterwards, while the store continues and may remove them.

use std::io;
use std::sync::Arc;

use redb::ReadTransaction;

use crate::error::StoreError;
use crate::files::{File, Files, FolderAccess, copy_file, write_all};
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

/// A backup in progress of the store in `files` to the folder `to`.
pub(crate) struct Copy<'f> {
    files: &'f dyn Files,
    to: &'f dyn Files,
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
    pub(crate) fn begin(files: &'f dyn Files, to: &'f dyn Files) -> Self {
        Self {
            files,
            to,
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
        for held in std::mem::take(&mut self.held) {
            let copied = copy_file(&*held.file, self.target(held.folder), &held.name, held.end);
            let copied = copied.map_err(|error| StoreError::io("copy", &held.name, error));
            self.bytes += copied?;
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
