//! Object storage of a stream: the objects of its sealed files, and where they are.
//!
//! Below `<url>/<name of the stream>/` are `stream.json`, `sealed.json` and `aliases.json`, as in the folder of the
//! stream, and the objects of its files in `data/`. An object is written once and never changed: its name has the
//! offsets and the checksum of the file.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::error::StoreError;
use crate::files::File;
use crate::stream::manifest::{Sealed, SealedFile};
use crate::stream::tier_start;

/// Bytes that a reader of an object gets with one request.
pub(super) const PIECE_BYTES: u64 = 4 << 20;

/// Objects below a prefix of an object store. Calls block, and fail within a bounded time if the store is away; those to a
/// mounted folder may block for as long as the system does.
pub trait Objects: fmt::Debug + Send + Sync {
    /// URL of the prefix, without a slash at its end.
    fn url(&self) -> &str;

    /// Where that is, for messages: the URL, and the endpoint if it is not that of the URL.
    fn place(&self) -> String {
        self.url().to_owned()
    }

    /// Writes an object of `bytes` bytes; it is there completely or not at all.
    ///
    /// # Errors
    ///
    /// Those of the store; it is unknown then whether the object is there.
    fn put(&self, name: &str, content: &mut dyn Read, bytes: u64) -> io::Result<()>;

    /// Reads a part of an object.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`], and those of the store.
    fn get(&self, name: &str, part: Range<u64>) -> io::Result<Vec<u8>>;

    /// The size of an object in bytes.
    ///
    /// # Errors
    ///
    /// As of [`get`](Self::get).
    fn bytes(&self, name: &str) -> io::Result<u64>;

    /// Names of the objects below a folder.
    ///
    /// # Errors
    ///
    /// Those of the store.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Removes an object, if it exists.
    ///
    /// # Errors
    ///
    /// Those of the store.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Ends the calls that run, if that is possible; later ones fail, and a call that cannot be ended changes no object when
    /// it goes on.
    fn close(&self);
}

/// How a stream uses object storage.
#[derive(Clone, Debug)]
pub struct TierOptions {
    /// Where its objects are.
    pub objects: Arc<dyn Objects>,
    /// A file that is still to be merged is uploaded at this age.
    pub upload_after: Duration,
    /// Age at which an uploaded file is removed here; `None`: it stays.
    pub local_age: Option<Duration>,
    /// Bytes of files here, above which the oldest uploaded ones are removed here; `None`: they stay.
    pub local_bytes: Option<u64>,
    /// How long a file stays here for readers that have begun to read it.
    pub grace: Duration,
    /// How long the start waits for object storage that a stream cannot start without.
    pub start_limit: Duration,
}

impl PartialEq for TierOptions {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |of: &Self| {
            let kept = (of.local_age, of.local_bytes, of.grace);
            (of.upload_after, kept, of.start_limit)
        };
        self.objects.url() == other.objects.url() && numbers(self) == numbers(other)
    }
}

impl Eq for TierOptions {}

/// Status of object storage, for readers and operators.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct TierReport {
    /// URL of the folder with the stream's objects.
    pub url: String,
    /// Sealed files that are not uploaded yet.
    pub waiting_files: u64,
    /// Bytes that were uploaded since the start.
    pub uploaded_bytes: u64,
    /// Files that are in object storage only.
    pub remote_files: u64,
    /// Why the last attempt failed; `None` if it did not.
    pub problem: Option<String>,
}

/// Object storage of one stream.
#[derive(Debug)]
pub(super) struct StreamTier {
    pub(super) options: TierOptions,
    /// Name of the stream.
    stream: String,
    /// For each partition, the offset after the rows in files, as of the start.
    pub(super) first_ends: Vec<u64>,
    /// Locked by the thread that uploads, also while it waits for the store. Lock order: before `Streams::work`.
    pub(super) state: Mutex<TierState>,
    /// Bytes uploaded since the start, and the problem of the last attempt.
    pub(super) told: Mutex<(u64, Option<String>)>,
}

/// Known state of the store's objects.
#[derive(Debug, Default)]
pub(super) struct TierState {
    /// The index in the store; `None` until it was read.
    pub(super) published: Option<Sealed>,
    /// State of the local index of which `published` was made.
    pub(super) stamp: Option<(u64, usize)>,
    /// Objects in `data/`, by name.
    pub(super) known: BTreeSet<String>,
    /// Objects to remove, with the time of removal: kept time in Unix milliseconds.
    pub(super) to_remove: Vec<(String, u64)>,
}

impl StreamTier {
    pub(super) fn new(stream: &str, options: TierOptions, first_ends: Vec<u64>) -> Self {
        Self {
            options,
            stream: stream.to_owned(),
            first_ends,
            state: Mutex::default(),
            told: Mutex::default(),
        }
    }

    /// The same objects, for the start: each call ends within [`TierOptions::start_limit`].
    pub(super) fn limited(&self) -> Self {
        Self::new(
            &self.stream,
            tier_start::limited(&self.options),
            self.first_ends.clone(),
        )
    }

    /// URL of the folder of the objects.
    pub(super) fn url(&self) -> String {
        format!("{}/{}/data", self.options.objects.url(), self.stream)
    }

    /// The full name of an object of the stream.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.stream)
    }

    /// The full name of the object of a file.
    pub(super) fn data(&self, object: &str) -> String {
        self.path(&format!("data/{object}"))
    }

    /// Reads a small object as JSON; `None` if it does not exist.
    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StoreError> {
        let Some(text) = self.content(name)? else {
            return Ok(None);
        };
        let read = serde_json::from_slice(&text);
        read.map(Some)
            .map_err(|error| self.failed("read", name, error.into()))
    }

    /// Reads a small object; `None` if it does not exist.
    pub(super) fn content(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.path(name);
        let objects = &self.options.objects;
        match objects
            .bytes(&path)
            .and_then(|bytes| objects.get(&path, 0..bytes))
        {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read
                .map(Some)
                .map_err(|error| self.failed("read", name, error)),
        }
    }

    /// Writes a small object.
    pub(super) fn write(&self, name: &str, text: &[u8]) -> Result<(), StoreError> {
        let put = self
            .options
            .objects
            .put(&self.path(name), &mut &*text, text.len() as u64);
        put.map_err(|error| self.failed("write", name, error))
    }

    /// An error of the store; the text has the URL.
    pub(super) fn failed(&self, doing: &'static str, name: &str, error: io::Error) -> StoreError {
        let place = format!("{}/{}/{name}", self.options.objects.url(), self.stream);
        StoreError::io(doing, &place, error)
    }

    /// Opens the object of a file for reading.
    pub(super) fn open(&self, file: &SealedFile) -> io::Result<Arc<dyn File>> {
        let object = file.object.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(ObjectFile {
            objects: Arc::clone(&self.options.objects),
            name: self.data(object),
            bytes: file.bytes,
            piece: Mutex::default(),
        }))
    }
}

/// An object as a file that can only be read. It keeps the last piece, since Parquet is read in small parts.
#[derive(Debug)]
struct ObjectFile {
    objects: Arc<dyn Objects>,
    name: String,
    bytes: u64,
    /// The piece that was read last, and its offset.
    piece: Mutex<(u64, Vec<u8>)>,
}

impl File for ObjectFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset >= self.bytes || buffer.is_empty() {
            return Ok(0);
        }
        let mut piece = self
            .piece
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let end = piece.0 + piece.1.len() as u64;
        if !(piece.0..end).contains(&offset) {
            let wanted = (buffer.len() as u64).max(PIECE_BYTES);
            let part = offset..offset.saturating_add(wanted).min(self.bytes);
            *piece = (offset, self.objects.get(&self.name, part)?);
        }
        // INVARIANT: within the piece.
        let from = usize::try_from(offset - piece.0).expect("a piece in memory");
        let found = piece.1.get(from..).unwrap_or_default();
        let read = found.len().min(buffer.len());
        buffer[..read].copy_from_slice(&found[..read]);
        Ok(read)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn zero(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }
}
