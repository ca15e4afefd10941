//! Copying a store, whether it is running or not.
//!
//! Of a running one, these are taken in one moment: a snapshot of the checkpoint, the full segments,
//! which nobody writes to any more, the end of the one that is written to, and the files beside the
//! log. What can have two names gets its second one right then; the rest is held open and copied
//! after it, while the store goes on, whatever it removes meanwhile.

use std::io;
use std::sync::Arc;

use redb::ReadTransaction;

use crate::error::StoreError;
use crate::files::{File, Files, FolderAccess, copy_file, write_all};
use crate::index::{copying, tables};
use crate::wal::segment::{self, SegmentHeader};

/// The folder of all streams.
pub(crate) const STREAMS: &str = "streams";

/// The folder for files that are whole under their names and that notes tell of. It belongs to
/// whoever writes the notes; a copy of the store has all of them.
pub const NOTED: &str = "sink";

/// Its presence says that the store is a copy, or was mended: offsets that somebody knows may
/// stand for other rows.
pub(crate) const RESTORED: &str = "restored";

/// A copy that is being made in `to`, of the store in `files`.
pub(crate) struct Copy<'f> {
    files: &'f dyn Files,
    to: &'f dyn Files,
    held: Vec<Held>,
    /// Those in the copy, each to be synced.
    folders: Vec<Arc<dyn Files>>,
    bytes: u64,
    /// The header that the last segment has in the copy, if it is not that of the store.
    last: Option<SegmentHeader>,
}

/// A file that has to be copied; open, since the store may let go of it meanwhile.
struct Held {
    name: String,
    file: Arc<dyn File>,
    /// Where its content ends for the copy.
    end: u64,
    /// The place of its folder in the copy; `None` is that of the log.
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

    /// Takes the log up to byte `end` of the segment with the header `last`, the one that is written
    /// to: the copy has none behind it, whatever the store does meanwhile.
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
                // A segment that nobody needs any more went meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                taken => taken.map_err(|error| StoreError::io("open", &name, error))?,
            }
        }
        Ok(())
    }

    /// Takes the files of the streams and those that notes tell of, and marks the copy as one if
    /// there are streams. Nobody removes files of streams meanwhile, or what notes tell of.
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
            // The socket of the endpoint has a dot, streams have none.
            if !name.contains('.') {
                let (from, folder) = self.folder(&*from, Some(root), &name, passage)?;
                self.take_all(&*from, folder, ".json")?;
                let (from, folder) = self.folder(&*from, Some(folder), "data", group)?;
                self.take_all(&*from, folder, ".parquet")?;
            }
        }
        Ok(())
    }

    /// Opens a folder in `from`, and makes its like in the copy; returns the place of that.
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

    /// Takes all files with this ending; what is not whole yet begins with `_`.
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

    /// Takes a file that nobody writes to any more.
    fn take(&mut self, from: &dyn Files, folder: Option<usize>, name: &str) -> io::Result<()> {
        if from.share(name, self.target(folder)).is_err() {
            return self.hold(from, folder, name, u64::MAX);
        }
        self.bytes += self.target(folder).open(name)?.bytes()?;
        Ok(())
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

    /// Makes the checkpoint of the copy, as `snapshot` has it.
    pub(crate) fn put_checkpoint(&mut self, snapshot: &ReadTransaction) -> Result<(), StoreError> {
        copying::copy(snapshot, self.to)?;
        let bytes = self.to.open(tables::FILE).and_then(|file| file.bytes());
        self.bytes += bytes.map_err(|error| StoreError::io("copy", tables::FILE, error))?;
        Ok(())
    }

    /// Takes the checkpoint of a store that nobody has open, if it has one.
    pub(crate) fn hold_checkpoint(&mut self) -> Result<(), StoreError> {
        match self.hold(self.files, None, tables::FILE, u64::MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            held => held.map_err(|error| StoreError::io("open", tables::FILE, error)),
        }
    }

    /// Whether the store that is copied is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.bytes == 0
    }

    /// Copies what is held, and returns when all of the copy is safe: its bytes.
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

/// Says that the store in `files` is a copy, or was mended.
pub(crate) fn mark_restored(files: &dyn Files) -> io::Result<()> {
    match files.create(RESTORED, 0) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?.sync()?,
    }
    files.sync_names()
}

/// Gives the last segment of a copy its header.
fn put_header(file: &dyn File, header: SegmentHeader) -> io::Result<()> {
    let header = SegmentHeader {
        bytes: file.bytes()?,
        ..header
    };
    write_all(file, &header.to_bytes(), 0)?;
    file.sync()
}
