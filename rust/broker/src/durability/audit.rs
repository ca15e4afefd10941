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

/// The subfolder of the data folder.
const FOLDER: &str = "audit";
/// Extension of the files.
const EXTENSION: &str = "jsonl";
/// A file of this size is followed by another one.
const FILE_BYTES: u64 = 64 << 20;
/// Maximum size of all files; the oldest are removed.
const ALL_BYTES: u64 = 1 << 30;
/// Files whose entries are all older are removed.
const KEPT: Duration = Duration::from_secs(90 * 86_400);
/// Longer texts are cut.
const TEXT_BYTES: usize = 256;
/// Maximum number of details of an entry.
const DETAILS: usize = 16;
/// More than the longest line has.
const LINE_BYTES: u64 = 128 << 10;
/// What the first line names as its predecessor.
const NO_LINE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A change that an operator made, or that was refused to one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AuditEntry {
    /// Who asked: a key, a user of the machine, the program that runs the broker.
    pub who: String,
    /// The way in: `http`, `unix`, `control`, `python` or `signal`.
    pub how: String,
    /// The address that the request came from.
    pub address: Option<IpAddr>,
    /// What was asked for, such as `DELETE /clients/{id}` or `ban`.
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
    state: Mutex<State>,
    written: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
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

    /// Entries since the start: written, and lost.
    pub(crate) fn counts(&self) -> (u64, u64) {
        // ORDERING: as above.
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.written), count(&self.lost))
    }
}

impl State {
    fn append(&mut self, folder: &Path, entry: &AuditEntry, now: SystemTime) -> io::Result<()> {
        // After an error the file is opened again, so that a part of a line is removed.
        let mut file = match self.file.take() {
            Some(file) => file,
            None => AuditFile::latest(folder, now)?,
        };
        let name = name_of(now);
        if file.is_followed_by(&name) {
            file = AuditFile::create(folder, name, file.hash)?;
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
    /// Opens the latest file behind its last complete line; creates one if there is none.
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
        let path = folder.join(name);
        let (bytes, _) = last_line(&path)?;
        let file = OpenOptions::new().append(true).open(&path)?;
        file.set_len(bytes)?;
        Ok(Self {
            file,
            name: name.clone(),
            bytes,
            hash: hash.unwrap_or_else(|| NO_LINE.into()),
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

    /// Whether the next entry belongs to a new file with this name. If the clock was set back, the file goes on.
    fn is_followed_by(&self, name: &str) -> bool {
        let day = |name: &str| name.get(..DAY_BYTES).map(str::to_owned);
        let is_over = day(name) != day(&self.name) || self.bytes >= FILE_BYTES;
        is_over && name > self.name.as_str()
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

/// The name of a file that begins now; names sort by time.
fn name_of(now: SystemTime) -> String {
    let second = timestamp(now).replace(':', "-");
    format!("{}Z.{EXTENSION}", &second[..DAY_BYTES + "T12-00-00".len()])
}

/// The names of all files, oldest first.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().into_string();
        names.extend(name.ok().filter(|name| name.ends_with(EXTENSION)));
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

/// Removes files that are too old, and the oldest ones if all together are too large; never the latest.
fn remove_old(folder: &Path, now: SystemTime) -> io::Result<()> {
    let names = names(folder)?;
    let oldest = name_of(now.checked_sub(KEPT).unwrap_or(UNIX_EPOCH));
    let sizes = names
        .iter()
        .map(|name| fs::metadata(folder.join(name)).map_or(0, |found| found.len()));
    let mut bytes: u64 = sizes.clone().sum();
    for ((name, next), size) in names.iter().zip(&names[1..]).zip(sizes) {
        if *next > oldest && bytes <= ALL_BYTES {
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
        for (name, value) in entry.details.iter().take(DETAILS) {
            push(&mut line, name, value);
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
    let ends = text
        .char_indices()
        .map(|(at, letter)| at + letter.len_utf8());
    let end = ends
        .take_while(|end| *end <= TEXT_BYTES)
        .last()
        .unwrap_or(0);
    line.push('"');
    for character in text[..end].chars() {
        match character {
            '"' | '\\' => line.extend(['\\', character]),
            _ if character.is_control() => {
                // INVARIANT: as in `line`.
                write!(line, "\\u{:04x}", u32::from(character)).expect("a string takes all");
            }
            _ => line.push(character),
        }
    }
    if end < text.len() {
        line.push('…');
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
fn timestamp(at: SystemTime) -> String {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Home(PathBuf);

    impl Home {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("audit-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn audit(&self) -> PathBuf {
            self.0.join(FOLDER)
        }

        fn lines(&self) -> Vec<String> {
            let names = names(&self.audit()).unwrap().into_iter();
            let texts = names.map(|name| fs::read_to_string(self.audit().join(name)).unwrap());
            let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
            lines.collect()
        }
    }

    impl Drop for Home {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn entry(target: &str) -> AuditEntry {
        AuditEntry {
            who: "key \"a\"".into(),
            how: "http".into(),
            action: "ban".into(),
            target: target.into(),
            result: "204".into(),
            ..AuditEntry::default()
        }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn assert_chain(lines: &[String], first: &str) {
        let mut previous = first.to_owned();
        for line in lines {
            assert!(
                line.ends_with(&format!("\"prev\":\"{previous}\"}}")),
                "{line}"
            );
            previous = hash_of(line.as_bytes());
        }
    }

    #[test]
    fn a_line_is_json_on_one_line_without_what_would_end_it() {
        let found = AuditEntry {
            address: Some([127, 0, 0, 1].into()),
            details: vec![
                ("kind".into(), "ip".into()),
                ("why".into(), "\"\n\u{85}".into()),
            ],
            request_id: Some("7".into()),
            ..entry(&"ä".repeat(200))
        };

        let text = line(&found, at(951_868_799), 3, NO_LINE);

        let wanted = format!(
            r#"{{"ts":"2000-02-29T23:59:59.000Z","who":"key \"a\"","how":"http","ip":"127.0.0.1","action":"ban","target":"{}…","details":{{"kind":"ip","why":"\"\u000a\u0085"}},"result":"204","request_id":"7","lost":3,"prev":"{NO_LINE}"}}"#,
            "ä".repeat(128)
        );
        assert_eq!(text, wanted);
    }

    #[test]
    fn lines_are_a_chain_over_restarts_and_days_and_for_the_owner_alone() {
        let home = Home::new("chain");
        for (restart, second) in [(0, 10), (0, 20), (1, 86_400), (2, 86_401), (3, 30)] {
            let log = AuditLog::new(&home.0);
            log.append(&entry(&format!("{restart} {second}")), at(second))
                .unwrap();
        }

        let lines = home.lines();
        assert_eq!(lines.len(), 5);
        assert_chain(&lines, NO_LINE);
        let names = names(&home.audit()).unwrap();
        assert_eq!(
            names,
            ["1970-01-01T00-00-10Z.jsonl", "1970-01-02T00-00-00Z.jsonl"],
            "a clock that is set back begins no file"
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&home.audit()), 0o700);
        assert_eq!(mode(&home.audit().join(&names[0])), 0o600);
    }

    #[test]
    fn a_part_of_a_line_that_a_crash_left_is_removed() {
        let home = Home::new("torn");
        AuditLog::new(&home.0).append(&entry("a"), at(1)).unwrap();
        let file = home.audit().join(name_of(at(1)));
        let whole = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{whole}{{\"ts\":\"19")).unwrap();

        AuditLog::new(&home.0).append(&entry("b"), at(2)).unwrap();

        assert_eq!(home.lines().len(), 2);
        assert_chain(&home.lines(), NO_LINE);
        // A file that was created and got no line yet.
        fs::write(home.audit().join(name_of(at(90_000))), "{").unwrap();
        AuditLog::new(&home.0)
            .append(&entry("c"), at(90_001))
            .unwrap();
        assert_eq!(home.lines().len(), 3);
        assert_chain(&home.lines(), NO_LINE);
    }

    #[test]
    fn lost_entries_are_counted_in_the_next_line() {
        let home = Home::new("lost");
        let log = AuditLog::new(&home.0);
        fs::write(home.audit(), "no folder").unwrap();
        log.append(&entry("a"), at(1)).unwrap_err();
        log.append(&entry("b"), at(2)).unwrap_err();
        fs::remove_file(home.audit()).unwrap();

        log.append(&entry("c"), at(3)).unwrap();
        log.append(&entry("d"), at(4)).unwrap();

        let lines = home.lines();
        assert!(lines[0].contains("\"lost\":2,"), "{}", lines[0]);
        assert!(!lines[1].contains("lost"), "{}", lines[1]);
        assert_eq!(log.counts(), (2, 2));
    }

    #[test]
    fn files_are_kept_for_90_days() {
        let home = Home::new("old");
        let log = AuditLog::new(&home.0);
        for day in [0, 1, 91] {
            log.append(&entry("a"), at(day * 86_400)).unwrap();
        }

        let names = names(&home.audit()).unwrap();
        // The entries of the first file end when the second one begins, 90 days ago.
        assert_eq!(
            names,
            ["1970-01-02T00-00-00Z.jsonl", "1970-04-02T00-00-00Z.jsonl"]
        );
    }

    #[test]
    fn a_full_file_is_followed_by_another_one_on_the_same_day() {
        let home = Home::new("full");
        let mut file = AuditFile::latest(
            &{
                DirBuilder::new().create(home.audit()).unwrap();
                home.audit()
            },
            at(1),
        )
        .unwrap();

        assert!(!file.is_followed_by(&name_of(at(2))));
        file.bytes = FILE_BYTES;

        assert!(file.is_followed_by(&name_of(at(2))));
        assert!(!file.is_followed_by(&name_of(at(0))));
    }
}
