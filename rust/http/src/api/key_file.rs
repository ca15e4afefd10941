//! Reads and replaces the key file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use toml::value::Datetime;

use super::scope::Scope;

/// Maximum number of keys: each request compares its secret with all of them.
pub(super) const KEYS_MAX: usize = 1_000;

/// A key as an entry of the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Hash of the whole secret, in hexadecimal digits.
    pub(super) sha256: String,
    pub(crate) scopes: Vec<Scope>,
    /// Names of the streams below `/v1/streams` that the key may ask for. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) streams: Option<Vec<String>>,
    /// Time at which the key expires; in UTC if it has no offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<Datetime>,
}

/// The whole file.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contents {
    #[serde(default)]
    pub(super) keys: Vec<Entry>,
}

/// Identifies a version of a file. `changed` is the time of the last change of contents or permissions; two successive
/// changes may have the same time.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Stamp {
    inode: u64,
    changed: (i64, i64),
    size: u64,
    mode: u32,
    owner: u32,
}

/// The keys cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    #[error("http.keys_file {}: {text}", path.display())]
    File { path: PathBuf, text: String },
    #[error("there is no file for keys: set http.keys_file")]
    NoFile,
    #[error("a key named {0:?} exists")]
    Exists(String),
    #[error("{0}")]
    Invalid(&'static str),
}

/// An error about a file.
pub(super) fn failed(path: &Path, text: impl std::fmt::Display) -> KeysError {
    KeysError::File {
        path: path.to_owned(),
        text: text.to_string(),
    }
}

/// The version of a file; `None` if it does not exist.
pub(super) fn stamp_of(file: &Path) -> Option<Stamp> {
    let found = fs::metadata(file).ok()?;
    Some(Stamp {
        inode: found.ino(),
        changed: (found.ctime(), found.ctime_nsec()),
        size: found.len(),
        mode: found.mode(),
        owner: found.uid(),
    })
}

/// The keys of a file; empty if the file does not exist.
///
/// # Errors
///
/// [`KeysError::File`]
pub(super) fn read(file: &Path) -> Result<Vec<Entry>, KeysError> {
    let found = match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(|error| failed(file, error))?,
    };
    if found.mode() & 0o077 != 0 {
        return Err(failed(file, "others may read or change it: chmod 600"));
    }
    if found.uid() != 0 && found.uid() != geteuid().as_raw() {
        return Err(failed(file, "it belongs to another user"));
    }
    let text = fs::read_to_string(file).map_err(|error| failed(file, error))?;
    let contents: Contents = toml::from_str(&text).map_err(|error| failed(file, error))?;
    if contents.keys.len() > KEYS_MAX {
        return Err(failed(file, "it has more than 1000 keys"));
    }
    Ok(contents.keys)
}

/// Replaces a file atomically and durably; it keeps its owner and group. If the path is a symbolic link, replaces the target of the link.
///
/// # Errors
///
/// Errors of the file system. The file is then unchanged; if only the sync of its folder failed, it is the new one.
pub(super) fn write(file: &Path, text: &str) -> io::Result<()> {
    replace(file, text, File::sync_all)
}

fn replace(file: &Path, text: &str, sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
    let file = resolve(file)?;
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".tmp-{}", std::process::id()));
    let new = folder.join(name);
    let old = fs::metadata(&file).ok();
    let replaced =
        write_new(&new, text, old.as_ref(), &sync).and_then(|()| fs::rename(&new, &file));
    if replaced.is_err() {
        // The file may not exist.
        let _ = fs::remove_file(&new);
    }
    replaced?;
    sync(&File::open(folder)?)
}

/// Resolves a symbolic link, whose target must exist.
fn resolve(file: &Path) -> io::Result<PathBuf> {
    if fs::symlink_metadata(file).is_ok_and(|found| found.is_symlink()) {
        return fs::canonicalize(file);
    }
    Ok(file.to_owned())
}

/// Writes a new file; removes one that an earlier process with the same process id left.
fn write_new(
    new: &Path,
    text: &str,
    old: Option<&fs::Metadata>,
    sync: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut open = options.open(new)?;
    let made = open.metadata()?;
    if let Some(old) = old.filter(|old| (old.uid(), old.gid()) != (made.uid(), made.gid())) {
        fchown(&open, Some(old.uid()), Some(old.gid()))?;
    }
    open.write_all(text.as_bytes())?;
    sync(&open)
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A path in a folder of this test, which is removed at its end.
    pub(in super::super) struct Folder(PathBuf);

    impl Folder {
        pub(in super::super) fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("keys-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn path(&self) -> &Path {
            &self.0
        }

        fn files(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }

        pub(in super::super) fn file(&self) -> PathBuf {
            self.0.join("keys.toml")
        }

        pub(in super::super) fn write(&self, text: &str) {
            write(&self.file(), text).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_beside_files_of_others() {
        let home = Folder::new("beside");
        let (file, other) = (home.file(), home.path().join("keys.new"));
        fs::write(&other, "of another").unwrap();

        for text in ["first", "second"] {
            write(&file, text).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }

        assert_eq!(fs::read_to_string(&other).unwrap(), "of another");
        assert_eq!(home.files(), 2);
    }

    #[test]
    fn a_symbolic_link_stays_and_the_file_that_it_names_is_replaced() {
        let home = Folder::new("link");
        let (link, file) = (home.path().join("link"), home.file());
        fs::write(&file, "first").unwrap();
        symlink(&file, &link).unwrap();

        write(&link, "second").unwrap();

        assert_eq!(fs::read_link(&link).unwrap(), file);
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
        fs::remove_file(&file).unwrap();
        write(&link, "third").unwrap_err();
        assert_eq!(home.files(), 1);
    }

    #[test]
    fn a_file_keeps_its_owner_and_group() {
        if !geteuid().is_root() {
            return;
        }
        let home = Folder::new("owner");
        let file = home.file();
        fs::write(&file, "first").unwrap();
        std::os::unix::fs::chown(&file, Some(12_345), Some(54_321)).unwrap();

        write(&file, "second").unwrap();

        let found = fs::metadata(&file).unwrap();
        assert_eq!((found.uid(), found.gid()), (12_345, 54_321));
    }

    #[test]
    fn a_file_is_synced_before_it_replaces_another_and_its_folder_after_that() {
        let home = Folder::new("synced");
        let file = home.file();
        fs::write(&file, "old").unwrap();
        let synced = RefCell::new(Vec::new());

        replace(&file, "new", |open| {
            let is_folder = open.metadata()?.is_dir();
            synced
                .borrow_mut()
                .push((is_folder, fs::read_to_string(&file)?));
            Ok(())
        })
        .unwrap();

        let steps = [(false, "old".to_owned()), (true, "new".to_owned())];
        assert_eq!(*synced.borrow(), steps);
        let full = |_: &File| Err(io::Error::other("no space"));
        replace(&file, "newest", full).unwrap_err();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(home.files(), 1);
    }
}
