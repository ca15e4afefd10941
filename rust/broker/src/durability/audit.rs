//! The audit log: a line for each change by an operator, in a chain of hashes (ADR 0051).

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

pub use reader::{AuditLines, AuditPosition, InvalidAuditPosition};

/// The subfolder of the data folder.
const FOLDER: &str = "audit";
/// Extension of the files.
const EXTENSION: &str = "jsonl";
/// A file of this size is followed by another one.
const FILE_BYTES: u64 = 64 << 20;
/// Maximum size of all files; the oldest are removed.
const ALL_BYTES: u64 = 1 << 30;
/// Files whose entries are all older are removed, one for each new file: a wrong clock does not remove all.
const KEPT: Duration = Duration::from_secs(90 * 86_400);
/// Longer texts are cut; in bytes of the line, with escapes.
const TEXT_BYTES: usize = 256;
/// Maximum size of all details of an entry; further ones are left out.
const DETAILS_BYTES: usize = 1 << 10;
/// More than the longest line has.
const LINE_BYTES: u64 = 128 << 10;
/// The hash of the predecessor in the first line.
const NO_LINE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A change that an operator made, or that was refused to one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AuditEntry {
    /// The caller: a key, a user of the machine, the program that runs the broker.
    pub who: String,
    /// The way in: `http`, `unix`, `control`, `python` or `signal`.
    pub how: String,
    /// The address that the request came from.
    pub address: Option<IpAddr>,
    /// The requested action, such as `DELETE /clients/{id}` or `ban`.
    pub action: String,
    /// The object of the action.
    pub target: String,
    /// Further parameters, by name. Neither secrets nor payloads.
    pub details: Vec<(String, String)>,
    /// The outcome.
    pub result: String,
    /// The id of an HTTP request.
    pub request_id: Option<String>,
}

/// Writes entries; locked for one entry at a time.
#[derive(Debug)]
pub(crate) struct AuditLog {
    folder: PathBuf,
    state: Mutex<AuditState>,
    written: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct AuditState {
    /// `None` before the first entry, and after a failure.
    file: Option<AuditFile>,
    /// Entries that could not be written since the last one that was.
    lost: u64,
}

impl AuditLog {
    /// The audit log of a data folder. Nothing is created before the first entry.
    pub(crate) fn new(data: &Path) -> Self {
        Self {
            folder: data.join(FOLDER),
            state: Mutex::default(),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Appends an entry; returns when it is on the disk.
    ///
    /// # Errors
    ///
    /// Errors of the file system. The next entry that is written says how many are lost.
    pub(crate) fn append(&self, entry: &AuditEntry, now: SystemTime) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let appended = state.append(&self.folder, entry, now);
        let counter = if appended.is_ok() {
            state.lost = 0;
            &self.written
        } else {
            state.lost += 1;
            &self.lost
        };
        // ORDERING: a figure.
        counter.fetch_add(1, Ordering::Relaxed);
        appended
    }

    /// The lines, the newest one first; see [`AuditLines::new`].
    pub(crate) fn lines(
        &self,
        since: &str,
        before: Option<AuditPosition>,
    ) -> io::Result<AuditLines> {
        AuditLines::new(&self.folder, since, before)
    }

    /// Entries since the start: written, and lost.
    pub(crate) fn counts(&self) -> (u64, u64) {
        // ORDERING: as above.
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.written), count(&self.lost))
    }
}

impl AuditState {
    fn append(&mut self, folder: &Path, entry: &AuditEntry, now: SystemTime) -> io::Result<()> {
        // After an error the file is opened again: it may end in a part of a line.
        let mut file = match self.file.take() {
            Some(file) => file,
            None => AuditFile::latest(folder, now)?,
        };
        if file.is_followed_by(&name_of(now)) {
            file = AuditFile::create(folder, name_after(&file.name, now), file.hash)?;
            // A failure is no reason to lose the entry; the next new file tries again.
            let _ = remove_old(folder, now);
        }
        file.append(&line(entry, now, self.lost, &file.hash))?;
        self.file = Some(file);
        Ok(())
    }
}

/// The file that entries are appended to.
#[derive(Debug)]
struct AuditFile {
    file: File,
    name: String,
    bytes: u64,
    /// Hash of the last line.
    hash: String,
}

impl AuditFile {
    /// Opens the latest file; creates one if there is none. If the file does not end in a complete line, it is left
    /// as it is and a new one begins: after a crash only a part of a line is lost, but damage may have hit entries.
    fn latest(folder: &Path, now: SystemTime) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let names = names(folder)?;
        let Some(name) = names.last() else {
            return Self::create(folder, name_of(now), NO_LINE.into());
        };
        let mut hash = None;
        for name in names.iter().rev() {
            hash = last_line(&folder.join(name))?.1;
            if hash.is_some() {
                break;
            }
        }
        let hash = hash.unwrap_or_else(|| NO_LINE.into());
        let file = OpenOptions::new().append(true).open(folder.join(name))?;
        let bytes = file.metadata()?.len();
        if last_line(&folder.join(name))?.0 != bytes {
            return Self::create(folder, name_after(name, now), hash);
        }
        Ok(Self {
            file,
            name: name.clone(),
            bytes,
            hash,
        })
    }

    fn create(folder: &Path, name: String, hash: String) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.append(true).create_new(true).mode(0o600);
        let file = options.open(folder.join(&name))?;
        File::open(folder)?.sync_all()?;
        Ok(Self {
            file,
            name,
            bytes: 0,
            hash,
        })
    }

    /// Whether the next entry belongs to a new file: the current one is full, or its name is that of an earlier day.
    /// If the clock was set back, the file is used until it is full.
    fn is_followed_by(&self, name: &str) -> bool {
        let day = |name: &str| name.get(..DAY_BYTES).map(str::to_owned);
        self.bytes >= FILE_BYTES || day(name) > day(&self.name)
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        if let Err(error) = written.and_then(|()| self.file.sync_data()) {
            // If this fails, too, a part of a line stays until the file is opened again.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += line.len() as u64 + 1;
        self.hash = hash_of(line.as_bytes());
        Ok(())
    }
}

/// Length of the day in a file's name.
const DAY_BYTES: usize = "2026-11-23".len();
/// Length of the time in a file's name.
const TIME_BYTES: usize = "2026-11-23T12-00-00Z".len();

/// The name of a file that begins now; names sort by time.
fn name_of(now: SystemTime) -> String {
    let second = timestamp(now).replace(':', "-");
    format!("{}Z.{EXTENSION}", &second[..TIME_BYTES - 1])
}

/// The name of a file that begins now, after another one: with a number if the clock is not past it.
fn name_after(last: &str, now: SystemTime) -> String {
    let name = name_of(now);
    if name.as_str() > last {
        return name;
    }
    let (time, number) = parts_of(last).unwrap_or((&name[..TIME_BYTES], 0));
    format!("{time}_{:06}.{EXTENSION}", number + 1)
}

/// Time and number of a file's name; `None` if it is not the name of a file of the log.
fn parts_of(name: &str) -> Option<(&str, u32)> {
    let (time, rest) = name.split_at_checked(TIME_BYTES)?;
    let form = |(letter, wanted)| match wanted {
        b'0' => u8::is_ascii_digit(&letter),
        _ => letter == wanted,
    };
    let is_time = time.bytes().zip(*b"0000-00-00T00-00-00Z").all(form);
    let rest = rest.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let number = match rest.strip_prefix('_') {
        Some(number) if number.len() == 6 => number.parse().ok()?,
        None if rest.is_empty() => 0,
        _ => return None,
    };
    is_time.then_some((time, number))
}

/// The names of all files, oldest first. Files with other names are not of the log.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().into_string();
        names.extend(name.ok().filter(|name| parts_of(name).is_some()));
    }
    names.sort_unstable();
    Ok(names)
}

/// Length of a file up to its last complete line, and the hash of that line.
fn last_line(path: &Path) -> io::Result<(u64, Option<String>)> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(2 * LINE_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    let Some(last) = end.iter().rposition(|byte| *byte == b'\n') else {
        return Ok((0, None));
    };
    let line = &end[..last];
    let first = line.iter().rposition(|byte| *byte == b'\n');
    let line = &line[first.map_or(0, |at| at + 1)..];
    Ok((start + last as u64 + 1, Some(hash_of(line))))
}

/// Removes the oldest file if it is too old, and the oldest ones if all together are too large; never the latest.
fn remove_old(folder: &Path, now: SystemTime) -> io::Result<()> {
    let names = names(folder)?;
    let oldest = name_of(now.checked_sub(KEPT).unwrap_or(UNIX_EPOCH));
    let sizes = names
        .iter()
        .map(|name| fs::metadata(folder.join(name)).map_or(0, |found| found.len()));
    let mut bytes: u64 = sizes.clone().sum();
    for (at, (name, size)) in names.iter().zip(sizes).enumerate() {
        let Some(next) = names.get(at + 1) else { break };
        let is_old = at == 0 && *next <= oldest;
        if !is_old && bytes <= ALL_BYTES {
            break;
        }
        fs::remove_file(folder.join(name))?;
        bytes -= size;
    }
    Ok(())
}

/// An entry as JSON, without the end of the line. The last field is the hash of the line before.
fn line(entry: &AuditEntry, now: SystemTime, lost: u64, previous: &str) -> String {
    let mut line = String::from("{");
    push(&mut line, "ts", &timestamp(now));
    push(&mut line, "who", &entry.who);
    push(&mut line, "how", &entry.how);
    if let Some(address) = entry.address {
        push(&mut line, "ip", &address.to_string());
    }
    push(&mut line, "action", &entry.action);
    push(&mut line, "target", &entry.target);
    if !entry.details.is_empty() {
        line.push_str("\"details\":{");
        let start = line.len();
        for (name, value) in &entry.details {
            let end = line.len();
            push(&mut line, name, value);
            if line.len() - start > DETAILS_BYTES {
                line.truncate(end);
                break;
            }
        }
        line.pop();
        line.push_str("},");
    }
    push(&mut line, "result", &entry.result);
    if let Some(id) = &entry.request_id {
        push(&mut line, "request_id", id);
    }
    if lost > 0 {
        // INVARIANT: writing to a string does not fail.
        write!(line, "\"lost\":{lost},").expect("a string takes all");
    }
    push(&mut line, "prev", previous);
    line.pop();
    line.push('}');
    line
}

/// Appends a field and a comma.
fn push(line: &mut String, name: &str, text: &str) {
    push_text(line, name);
    line.push(':');
    push_text(line, text);
    line.push(',');
}

fn push_text(line: &mut String, text: &str) {
    line.push('"');
    let start = line.len();
    for character in text.chars() {
        let end = line.len();
        match character {
            '"' | '\\' => line.extend(['\\', character]),
            _ if character.is_control() => {
                // INVARIANT: as in `line`.
                write!(line, "\\u{:04x}", u32::from(character)).expect("a string takes all");
            }
            _ => line.push(character),
        }
        if line.len() - start > TEXT_BYTES {
            line.truncate(end);
            line.push('…');
            break;
        }
    }
    line.push('"');
}

/// SHA-256 in hexadecimal digits.
fn hash_of(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().fold(String::new(), |mut text, byte| {
        // INVARIANT: as in `line`.
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

/// Date and time in UTC as RFC 3339 has them, with milliseconds.
pub fn timestamp(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let ms = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of a day since 1970-01-01.
///
/// Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

mod reader;
#[cfg(test)]
mod tests;
