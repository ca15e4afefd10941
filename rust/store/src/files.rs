//! The few calls to the file system that the store makes, behind a trait.
//!
//! A [`Files`] is one folder. The real one is [`Folder`]; the simulated one, which loses power on
//! request, is `faults::Disk` (feature `faults`).

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use crate::folder::Folder;

/// Room on the disk below a folder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Space {
    /// Bytes that may still be written.
    pub free_bytes: u64,
    /// The size of the whole.
    pub total_bytes: u64,
}

/// Access to a folder for others than the owner.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FolderAccess {
    /// None.
    #[default]
    Owner,
    /// Its group may pass through it, and read nothing in it.
    Passage(Option<u32>),
    /// Its group may read everything in it; `None` is the group that new files get by themselves.
    Group(Option<u32>),
}

/// A folder that belongs to the store alone. Names have no separators.
pub trait Files: Debug + Send + Sync {
    /// Makes a file of `bytes` zeros whose room on the disk is taken.
    ///
    /// Neither its name nor its content is safe before [`File::sync`] and [`Files::sync_names`].
    ///
    /// # Errors
    ///
    /// `AlreadyExists`; `StorageFull`, after which the file does not exist; others of the system.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn File>>;

    /// Opens a file that exists, for reading and writing.
    ///
    /// # Errors
    ///
    /// `NotFound`, and others of the system.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Renames a file; replaces an existing file of the new name.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file a second name, which must be free: both name the same file then.
    ///
    /// # Errors
    ///
    /// `Unsupported` where a file has one name only, and others of the system.
    fn link(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a name. An open file stays readable.
    ///
    /// # Errors
    ///
    /// `NotFound`, and others of the system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Opens a folder in this one; creates it if it is missing, and makes its name safe.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn folder(&self, name: &str, access: FolderAccess) -> io::Result<Arc<dyn Files>>;

    /// Links a file that is not written any more into another folder, under the same name, without copying it.
    ///
    /// # Errors
    ///
    /// `Unsupported` where a file has one folder only, and others of the system.
    fn share(&self, _name: &str, _with: &dyn Files) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Where the folder is, if the system knows it.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// All names, including folders, sorted.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Returns when every change of names is safe.
    ///
    /// # Errors
    ///
    /// Those of the system; nothing is known about the names then.
    fn sync_names(&self) -> io::Result<()>;

    /// The free space.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn space(&self) -> io::Result<Space>;

    /// Claims the folder for this process until the claim is dropped.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if another one has it, and others of the system.
    fn claim(&self) -> io::Result<Claim>;
}

/// A folder that no other process may use; see [`Files::claim`].
#[derive(Debug)]
pub struct Claim(
    #[expect(dead_code, reason = "dropping it is all")] pub(crate) Box<dyn Debug + Send + Sync>,
);

/// An open file. All calls may be made from any thread.
pub trait File: Debug + Send + Sync {
    /// Reads at `offset`; returns fewer bytes at the end of the file, none beyond it.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at `offset`, perhaps only a first part; returns the number of bytes.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Writes `bytes` zeros at `offset`, as [`File::write_at`] would; also over data on the disk that cannot be read,
    /// such as that of writes whose sync failed.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Returns when everything written before is safe.
    ///
    /// # Errors
    ///
    /// Those of the system. What was written before may be lost then, and a later success says
    /// nothing about it.
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file, or adds zeros.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// The file's size in bytes.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn bytes(&self) -> io::Result<u64>;
}

/// Writes all of `bytes`, in as many pieces as it takes.
pub(crate) fn write_all(file: &dyn File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills `buffer`, as far as the file reaches; returns how much that is.
pub(crate) fn read_full(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Overwrites `bytes` bytes with zeros.
pub(crate) fn write_zeros(file: &dyn File, mut offset: u64, mut bytes: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    while bytes > 0 {
        let step = usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .min(ZEROS.len());
        write_all(file, &ZEROS[..step], offset)?;
        offset += step as u64;
        bytes -= step as u64;
    }
    Ok(())
}

/// Copies a file up to `end`, and zeros from there on.
pub(crate) fn copy_file(
    source: &dyn File,
    to: &dyn Files,
    name: &str,
    end: u64,
) -> io::Result<u64> {
    copy_in_steps(source, to, name, end, &mut |_| ())
}

/// Does the same, and calls `on_step` with the bytes of each step.
pub(crate) fn copy_in_steps(
    source: &dyn File,
    to: &dyn Files,
    name: &str,
    end: u64,
    on_step: &mut dyn FnMut(u64),
) -> io::Result<u64> {
    const STEP: u64 = 1 << 20;
    let bytes = source.bytes()?;
    let target = to.create(name, bytes)?;
    let mut buffer = Vec::new();
    let mut offset = 0;
    while offset < bytes.min(end) {
        let step = STEP.min(bytes.min(end) - offset);
        buffer.resize(usize::try_from(step).unwrap_or(usize::MAX), 0);
        let read = read_full(source, &mut buffer, offset)?;
        if read == 0 {
            break;
        }
        write_all(&*target, &buffer[..read], offset)?;
        offset += read as u64;
        on_step(read as u64);
    }
    target.sync()?;
    Ok(bytes)
}
