//! The real file system.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use crate::error::StoreError;
use crate::files::{Claim, File, Files, FolderAccess, Space, write_zeros};

/// Only the owner can read data of clients.
const MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// Permissions of a group, where it has access at all.
const GROUP_MODE: u32 = 0o640;
const PASSAGE_MODE: u32 = 0o710;
const GROUP_FOLDER_MODE: u32 = 0o750;
/// Write permission for the group, and for all other users.
const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const LOCK: &str = "lock";

/// A folder of the real file system.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Open for as long as the folder is used, to sync its names.
    handle: fs::File,
    access: FolderAccess,
}

impl Folder {
    /// Opens the folder at `path`; creates it if it is missing.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(FOLDER_MODE)
                .create(path)?;
            sync_parent(path)?;
        }
        Ok(Self {
            path: path.to_owned(),
            handle: fs::File::open(path)?,
            access: FolderAccess::Owner,
        })
    }

    /// Refuses a folder into which any user may write, and so could replace its files; returns a warning if its group may
    /// (abuse J11). Volumes of containers often belong to a group.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::PermissionDenied`], which says what to do; those of the system.
    pub fn check_private(&self) -> io::Result<Option<String>> {
        let mode = self.handle.metadata()?.permissions().mode() & 0o7777;
        if mode & OTHERS_WRITE != 0 {
            let text = format!(
                "others may write into it (mode {mode:04o}): chmod o-w, or use a folder inside it"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let warning = || {
            let path = self.path.display();
            format!(
                "the group of the data folder {path} may replace its files (mode {mode:04o}): chmod g-w it"
            )
        };
        Ok((mode & GROUP_WRITE != 0).then(warning))
    }

    /// Opens the same folder again, to own it apart from this value.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn reopen(&self) -> Result<Self, StoreError> {
        let path = self.path.display().to_string();
        Self::open(&self.path).map_err(|error| StoreError::io("open", &path, error))
    }

    /// The path of a folder while [`make`](Self::make) fills it.
    fn unfinished(path: &Path) -> PathBuf {
        // Without a slash at its end, behind which `.part` would be a name of its own.
        let mut part = path.components().collect::<PathBuf>().into_os_string();
        part.push(".part");
        part.into()
    }

    /// Creates a folder at `path` with the content that `fill` writes: completely, or not at all.
    ///
    /// Meanwhile it has the name of an [`unfinished`](Self::unfinished) folder.
    ///
    /// # Errors
    ///
    /// Something is at `path` already, or at its `.part`; `path` has no name; those of `fill` and of the system.
    pub fn make(
        path: &Path,
        fill: impl FnOnce(&Self) -> Result<u64, StoreError>,
    ) -> Result<u64, StoreError> {
        let failed = |doing, path: &Path, error| {
            let path = path.display().to_string();
            StoreError::io(doing, &path, error)
        };
        let path = &path.components().collect::<PathBuf>();
        if path.file_name().is_none() {
            let error = io::ErrorKind::InvalidInput.into();
            return Err(failed("make", path, error));
        }
        is_free(path).map_err(|error| failed("copy into", path, error))?;
        let part = Self::unfinished(path);
        if part.exists() {
            let error = io::ErrorKind::AlreadyExists.into();
            return Err(failed("make", &part, error));
        }
        let folder = Self::open(&part).map_err(|error| failed("make", &part, error))?;
        let filled = fill(&folder).and_then(|bytes| {
            let renamed = fs::rename(&part, path).and_then(|()| sync_parent(path));
            renamed.map_err(|error| failed("make", path, error))?;
            Ok(bytes)
        });
        if filled.is_err() {
            // If it stays nevertheless, the next attempt says so.
            let _ = fs::remove_dir_all(&part);
        }
        filled
    }

    fn open_with(&self, name: &str, is_new: bool) -> io::Result<fs::File> {
        #[expect(clippy::disallowed_types, reason = "this is the one place")]
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(is_new).mode(MODE);
        let file = options.open(self.path.join(name))?;
        if is_new && let FolderAccess::Group(group) = self.access {
            file.set_permissions(fs::Permissions::from_mode(GROUP_MODE))?;
            give(&file, group)?;
        }
        Ok(file)
    }
}

/// Hands a file or folder to a group, if there is one to hand it to.
fn give(file: &fs::File, group: Option<u32>) -> io::Result<()> {
    group.map_or(Ok(()), |group| fchown(file, None, Some(group)))
}

impl Files for Folder {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn File>> {
        let file = self.open_with(name, true)?;
        if let Err(error) = reserve(&file, bytes) {
            drop(file);
            fs::remove_file(self.path.join(name))?;
            return Err(error);
        }
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(self.open_with(name, false)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fs::hard_link(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn folder(&self, name: &str, access: FolderAccess) -> io::Result<Arc<dyn Files>> {
        let path = self.path.join(name);
        let is_new = !path.is_dir();
        let mut folder = Self::open(&path)?;
        folder.access = access;
        let (mode, group) = match access {
            FolderAccess::Owner => return Ok(Arc::new(folder)),
            FolderAccess::Passage(group) => (PASSAGE_MODE, group),
            FolderAccess::Group(group) => (GROUP_FOLDER_MODE, group),
        };
        // Whoever changed it since knows why.
        if is_new {
            folder
                .handle
                .set_permissions(fs::Permissions::from_mode(mode))?;
            give(&folder.handle, group)?;
        }
        Ok(Arc::new(folder))
    }

    fn share(&self, name: &str, with: &dyn Files) -> io::Result<()> {
        let target = with.path().ok_or(io::ErrorKind::Unsupported)?;
        fs::hard_link(self.path.join(name), target.join(name))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is no text is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn space(&self) -> io::Result<Space> {
        let facts = statvfs(&self.path)?;
        Ok(Space {
            free_bytes: facts.f_bavail.saturating_mul(facts.f_frsize),
            total_bytes: facts.f_blocks.saturating_mul(facts.f_frsize),
        })
    }

    fn claim(&self) -> io::Result<Claim> {
        let file = match self.open_with(LOCK, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.open_with(LOCK, true)?,
            other => other?,
        };
        file.try_lock()?;
        Ok(Claim(Box::new(Lock(file))))
    }
}

/// A file that this process has locked.
#[derive(Debug)]
struct Lock(fs::File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing it is not enough where a forked child has it open, too.
        let _ = self.0.unlock();
    }
}

impl File for fs::File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            // The system takes that for a mistake.
            return Ok(());
        }
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match fallocate(self, flags, offset, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(self, offset, bytes),
            other => Ok(other?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        Self::set_len(self, bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

/// Nothing may be at `path` but an empty folder.
fn is_free(path: &Path) -> io::Result<()> {
    match fs::read_dir(path).map(Iterator::count) {
        Ok(0) => Ok(()),
        Ok(_) => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the name of a folder safe.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Takes room on the disk; where the file system cannot, by writing it.
fn reserve(file: &fs::File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(file, 0, bytes),
        Err(error) => Err(error.into()),
    }
}
