//! Reads the audit log backwards: the newest entry first.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{DAY_BYTES, LINE_BYTES, names, parts_of};

/// Bytes that are read at a time.
const BLOCK_BYTES: u64 = 64 << 10;

/// The position of an entry: the name of its file, and the offset of its line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditPosition {
    file: String,
    offset: u64,
}

impl fmt::Display for AuditPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.file, self.offset)
    }
}

/// The text is not the position of an entry.
#[derive(Debug, Eq, PartialEq)]
pub struct InvalidAuditPosition;

impl FromStr for AuditPosition {
    type Err = InvalidAuditPosition;

    fn from_str(text: &str) -> Result<Self, InvalidAuditPosition> {
        let (file, offset) = text.split_once(' ').ok_or(InvalidAuditPosition)?;
        parts_of(file).ok_or(InvalidAuditPosition)?;
        Ok(Self {
            file: file.into(),
            offset: offset.parse().map_err(|_| InvalidAuditPosition)?,
        })
    }
}

/// The complete lines of the audit log without their ends, the newest one first.
///
/// A line that is longer than any entry, because of damage, is returned in pieces. An incomplete line at the end of a
/// file is left out.
#[derive(Debug, Default)]
pub struct AuditLines {
    folder: PathBuf,
    /// Files that were not opened yet, oldest first.
    names: Vec<String>,
    open: Option<Lines>,
    /// Where to begin in a file.
    before: Option<AuditPosition>,
}

impl AuditLines {
    /// The entries before the position `before`; all if it is `None`. Files of days before `since` are left out: an
    /// entry is never later than the day of its file.
    pub(super) fn new(
        folder: &Path,
        since: &str,
        before: Option<AuditPosition>,
    ) -> io::Result<Self> {
        let day = since.get(..DAY_BYTES).unwrap_or(since);
        let mut names = match names(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            names => names?,
        };
        names.retain(|name| {
            let is_before = before.as_ref().is_none_or(|before| *name <= before.file);
            name.as_str() >= day && is_before
        });
        Ok(Self {
            folder: folder.into(),
            names,
            open: None,
            before,
        })
    }

    fn read(&mut self) -> io::Result<Option<(AuditPosition, Vec<u8>)>> {
        loop {
            if let Some(lines) = &mut self.open {
                if let Some(line) = lines.read()? {
                    return Ok(Some(line));
                }
                self.open = None;
            }
            let Some(name) = self.names.pop() else {
                return Ok(None);
            };
            let before = self.before.take_if(|before| before.file == name);
            let end = before.map_or(u64::MAX, |before| before.offset);
            match Lines::open(&self.folder, name, end) {
                // The broker removes the oldest files.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => self.open = Some(opened?),
            }
        }
    }
}

impl Iterator for AuditLines {
    type Item = io::Result<(AuditPosition, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// The lines of one file.
#[derive(Debug)]
struct Lines {
    file: File,
    name: String,
    /// Offset of `bytes` in the file.
    offset: u64,
    /// Bytes that were read and not returned yet.
    bytes: Vec<u8>,
}

impl Lines {
    /// The lines before the offset `end`.
    fn open(folder: &Path, name: String, end: u64) -> io::Result<Self> {
        let file = File::open(folder.join(&name))?;
        let offset = file.metadata()?.len().min(end);
        Ok(Self {
            file,
            name,
            offset,
            bytes: Vec::new(),
        })
    }

    fn read(&mut self) -> io::Result<Option<(AuditPosition, Vec<u8>)>> {
        loop {
            if self.bytes.last() != Some(&b'\n') {
                // Not the end of a line: of a crash, or being written.
                self.bytes
                    .truncate(after_last_end(&self.bytes).unwrap_or(0));
            }
            if let Some((_, line)) = self.bytes.split_last() {
                let start = after_last_end(line);
                if start.is_some() || self.offset == 0 || self.bytes.len() as u64 > LINE_BYTES {
                    return Ok(Some(self.take(start.unwrap_or(0))));
                }
            } else if self.offset == 0 {
                return Ok(None);
            }
            self.read_block()?;
        }
    }

    /// Takes the last line, which begins at `start`.
    fn take(&mut self, start: usize) -> (AuditPosition, Vec<u8>) {
        let mut line = self.bytes.split_off(start);
        line.pop();
        let position = AuditPosition {
            file: self.name.clone(),
            offset: self.offset + start as u64,
        };
        (position, line)
    }

    /// Reads the bytes before those that were read.
    fn read_block(&mut self) -> io::Result<()> {
        let start = self.offset.saturating_sub(BLOCK_BYTES);
        self.file.seek(SeekFrom::Start(start))?;
        let mut block = Vec::new();
        let wanted = self.offset - start;
        let read = (&self.file).take(wanted).read_to_end(&mut block)?;
        if read as u64 != wanted {
            // The log cuts off an entry that it could not write whole.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        block.append(&mut self.bytes);
        (self.bytes, self.offset) = (block, start);
        Ok(())
    }
}

/// The offset behind the last end of a line.
fn after_last_end(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    end.map(|end| end + 1)
}
