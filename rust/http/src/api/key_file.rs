//! The file of keys.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use toml::value::Datetime;

use super::scope::Scope;

/// Most keys of a file: each is compared with each secret that is sent.
pub(super) const KEYS_MAX: usize = 1_000;

/// A key as its file has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Of the whole secret, in hexadecimal digits.
    pub(super) sha256: String,
    pub(crate) scopes: Vec<Scope>,
    /// When it ends; without an offset in UTC.
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

/// What tells one version of a file from another.
pub(super) type Stamp = (u64, i64, i64, u64);

/// Why keys cannot be read or changed.
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

/// What is wrong with a file.
pub(super) fn failed(path: &Path, text: impl std::fmt::Display) -> KeysError {
    KeysError::File {
        path: path.to_owned(),
        text: text.to_string(),
    }
}

/// The version of a file; `None` if it is not there.
pub(super) fn stamp_of(file: &Path) -> Option<Stamp> {
    let found = fs::metadata(file).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
}

/// The keys of a file; none if it is not there.
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

/// Replaces a file at once.
///
/// # Errors
///
/// Those of the file system.
pub(super) fn write(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut open = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    open.write_all(text.as_bytes())?;
    open.sync_all()?;
    fs::rename(&new, file)
}
