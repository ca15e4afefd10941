//! Uploads one sealed file and reads it back.

use std::io::{self, Read};
use std::sync::Arc;

use crate::files::{File, Files};
use crate::stream::manifest::SealedFile;
use crate::stream::tier::{Objects, PIECE_BYTES, StreamTier};

/// Why a file was not uploaded.
#[derive(Debug)]
pub(super) enum NotUploaded {
    /// It cannot be read, or its object differs from it; others can be uploaded.
    File(io::Error),
    /// The store failed.
    Store(io::Error),
}

impl From<io::Error> for NotUploaded {
    fn from(error: io::Error) -> Self {
        Self::Store(error)
    }
}

/// Uploads a file; returns the name of its object.
///
/// The object is compared with the file by size and by the checksum of its bytes, which are read back. An object that an
/// interrupted upload left is compared first.
///
/// # Errors
///
/// Also if the file is another one by now: a merge took its name, or retention removed it.
pub(super) fn upload(
    tier: &StreamTier,
    folder: &dyn Files,
    sealed: &SealedFile,
) -> Result<String, NotUploaded> {
    let (file, checksum) = read(folder, sealed).map_err(|error| {
        let text = format!(
            "{} here: {error}. Put the file back, or restart the broker to go on without its rows",
            sealed.file
        );
        NotUploaded::File(io::Error::new(error.kind(), text))
    })?;
    let object = object_name(sealed, checksum);
    let objects = &*tier.options.objects;
    let path = tier.data(&object);
    let is_there = match objects.bytes(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        bytes => bytes? == sealed.bytes,
    };
    if !is_there {
        objects.put(&path, &mut FileBytes::new(&file), sealed.bytes)?;
    }
    verify(objects, &path, sealed.bytes, checksum)?;
    Ok(object)
}

/// Opens a file that has the size in the index; returns the checksum of its bytes, too.
fn read(folder: &dyn Files, sealed: &SealedFile) -> io::Result<(Arc<dyn File>, u32)> {
    let file = folder.open(&sealed.file)?;
    let (found, bytes) = (file.bytes()?, sealed.bytes);
    if found != bytes {
        let text = format!("it has {found} bytes, {bytes} in the index");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut content = FileBytes::new(&file);
    let checksum = checksum(|_| content.piece(), bytes)?;
    Ok((file, checksum))
}

/// Reads an object back; one that differs is removed, so that the next attempt writes it again.
fn verify(objects: &dyn Objects, path: &str, bytes: u64, expected: u32) -> Result<(), NotUploaded> {
    let found_bytes = objects.bytes(path)?;
    let mut at = 0;
    let found = checksum(
        |left| {
            let part = at..at + left.min(PIECE_BYTES);
            at = part.end;
            objects.get(path, part)
        },
        found_bytes,
    )?;
    if (found_bytes, found) == (bytes, expected) {
        return Ok(());
    }
    objects.remove(path)?;
    let text = format!("{path}: the object differs from the file that was uploaded");
    let error = io::Error::new(io::ErrorKind::InvalidData, text);
    Err(NotUploaded::File(error))
}

/// The checksum of `bytes` bytes, which `next` reads piece by piece; its argument is how many are left.
fn checksum(mut next: impl FnMut(u64) -> io::Result<Vec<u8>>, bytes: u64) -> io::Result<u32> {
    let (mut sum, mut left) = (0, bytes);
    while left > 0 {
        let piece = next(left)?;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        sum = crc32c::crc32c_append(sum, &piece);
        left = left.saturating_sub(piece.len() as u64);
    }
    Ok(sum)
}

/// Partition and offsets of the rows, and the checksum of the bytes: no two different files have the same name.
fn object_name(sealed: &SealedFile, checksum: u32) -> String {
    let start = sealed.file.trim_end_matches(".parquet");
    format!("{start}-{:020}-{checksum:08x}.parquet", sealed.last)
}

/// Reads a file from its beginning.
struct FileBytes<'f> {
    file: &'f Arc<dyn File>,
    at: u64,
}

impl<'f> FileBytes<'f> {
    fn new(file: &'f Arc<dyn File>) -> Self {
        Self { file, at: 0 }
    }

    fn piece(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = Vec::new();
        self.by_ref().take(PIECE_BYTES).read_to_end(&mut piece)?;
        Ok(piece)
    }
}

impl Read for FileBytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
