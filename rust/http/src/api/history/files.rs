//! The history in the data folder: rows of 10 s, which a later broker reads, so that charts go on after a restart.
//!
//! A file has a line with the names of its metrics, then rows: the Unix time in seconds, and a value for each metric.
//! Nothing waits for the disk: a machine that loses its power loses the rows of some seconds.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::metrics::{HistoryRow, METRICS, NOTHING};

/// Seconds of a row.
pub(super) const STEP_S: u64 = 10;
/// Seconds that are read at a start.
const READ_S: u64 = 7 * 86_400;
/// A row and the Unix time at which its 10 s began.
pub(super) type SavedRow = (u64, HistoryRow);

/// First words of a file.
const MAGIC: &str = "mqttcore history 1";
/// The file that rows are appended to, and the one before it.
const NAMES: [&str; 2] = ["rows.old", "rows"];
const TIME_BYTES: usize = size_of::<u64>();
const VALUE_BYTES: usize = size_of::<f32>();
const ROW_BYTES: usize = TIME_BYTES + size_of::<HistoryRow>();
/// Size of a file, a week of rows, from which on another one begins.
const FILE_BYTES: u64 = READ_S / STEP_S * ROW_BYTES as u64;

/// The files of a data folder.
#[derive(Debug)]
pub(super) struct HistoryFiles {
    folder: PathBuf,
    /// A thread is writing.
    is_writing: AtomicBool,
    /// The last write failed, and that was logged.
    has_failed: AtomicBool,
}

impl HistoryFiles {
    /// The files below `data`; nothing is created before the first row.
    pub(super) fn new(data: &Path) -> Self {
        Self {
            folder: data.join("history"),
            is_writing: AtomicBool::default(),
            has_failed: AtomicBool::default(),
        }
    }

    /// The rows of the week before `now_s`, the oldest first. Rows whose time is not behind that of the row before them, as
    /// after a change of the clock, are left out.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub(super) fn load(&self, now_s: u64) -> io::Result<Vec<SavedRow>> {
        let mut rows = Vec::new();
        let mut next = now_s.saturating_sub(READ_S);
        for name in NAMES {
            let content = match fs::read(self.folder.join(name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                content => content?,
            };
            for (time_s, row) in parse(&content) {
                if (next..=now_s.saturating_sub(STEP_S)).contains(&time_s) {
                    rows.push((time_s, row));
                    next = time_s + STEP_S;
                }
            }
        }
        Ok(rows)
    }

    /// Reserves the files for one writer; false if there is one.
    pub(super) fn begin(&self) -> bool {
        // ORDERING: the writer reads nothing that another one has written in memory.
        !self.is_writing.swap(true, Ordering::Relaxed)
    }

    /// Appends rows after [`begin`](Self::begin). Returns an error only if the write before did not fail.
    pub(super) fn append(&self, rows: &[SavedRow]) -> Option<io::Error> {
        let written = self.write(rows);
        // ORDERING: as above.
        self.is_writing.store(false, Ordering::Relaxed);
        let had_failed = self.has_failed.swap(written.is_err(), Ordering::Relaxed);
        written.err().filter(|_| !had_failed)
    }

    fn write(&self, rows: &[SavedRow]) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        let [old, path] = NAMES.map(|name| self.folder.join(name));
        let head = head();
        if !is_continued(&path, head.as_bytes())? {
            fs::rename(&path, old)?;
        }
        let mut options = OpenOptions::new();
        let options = options.append(true).create(true).mode(0o600);
        let mut file = options.open(&path)?;
        let mut content = Vec::with_capacity(head.len() + rows.len() * ROW_BYTES);
        match file.metadata()?.len() {
            0 => content.extend_from_slice(head.as_bytes()),
            bytes => remove_torn_row(&file, bytes, head.len())?,
        }
        for (time_s, row) in rows {
            content.extend_from_slice(&time_s.to_le_bytes());
            content.extend(row.iter().flat_map(|value| value.to_le_bytes()));
        }
        file.write_all(&content)
    }
}

/// The first line of a file.
fn head() -> String {
    let names = METRICS.each_ref().map(|metric| metric.name);
    format!("{MAGIC} {}\n", names.join(" "))
}

/// Whether rows may be appended to a file: there is none, or it has this head and is not full.
fn is_continued(path: &Path, head: &[u8]) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        file => file?,
    };
    let is_full = file.metadata()?.len() >= FILE_BYTES;
    let mut begin = Vec::with_capacity(head.len());
    file.take(head.len() as u64).read_to_end(&mut begin)?;
    Ok(begin == head && !is_full)
}

/// Removes a row of which a crash has left a part.
fn remove_torn_row(file: &File, bytes: u64, head_bytes: usize) -> io::Result<()> {
    let torn = bytes.saturating_sub(head_bytes as u64) % ROW_BYTES as u64;
    if torn == 0 {
        return Ok(());
    }
    file.set_len(bytes - torn)
}

/// The rows of a file; values of metrics that are not known are left out, and others are missing. None, if it is not a file
/// of this format.
fn parse(content: &[u8]) -> impl Iterator<Item = SavedRow> {
    let end = content.iter().position(|byte| *byte == b'\n');
    let (head, rows) = content.split_at(end.map_or(0, |end| end + 1));
    let names = std::str::from_utf8(head).ok();
    let names = names.and_then(|head| head.strip_prefix(MAGIC));
    let places: Vec<_> = names
        .unwrap_or_default()
        .split_whitespace()
        .map(|name| METRICS.iter().position(|metric| metric.name == name))
        .collect();
    let bytes = TIME_BYTES + places.len() * VALUE_BYTES;
    let rows = if names.is_some() { rows } else { &[] };
    rows.chunks_exact(bytes).map(move |saved| {
        let (time, values) = saved.split_at(TIME_BYTES);
        let mut row = NOTHING;
        for (place, value) in places.iter().zip(values.chunks_exact(VALUE_BYTES)) {
            if let (Some(place), Ok(value)) = (place, value.try_into()) {
                row[*place] = f32::from_le_bytes(value);
            }
        }
        // A part of a fixed size.
        let time = time.try_into().map_or(0, u64::from_le_bytes);
        (time, row)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    /// A folder that is removed with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NUMBER: AtomicUsize = AtomicUsize::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("mqttcore_history_{}_{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir(&folder).expect("a new folder");
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("removed");
        }
    }

    fn row(first: f32) -> HistoryRow {
        let mut row = NOTHING;
        row[0] = first;
        row
    }

    /// Files with rows of these ages in seconds, whose values are the ages, and what is loaded of them.
    fn loaded(files: &HistoryFiles) -> Vec<(u64, f32)> {
        let rows = files.load(NOW_S).expect("read");
        rows.iter()
            .map(|(time_s, row)| (NOW_S - time_s, row[0]))
            .collect()
    }

    fn append(files: &HistoryFiles, ages: &[u16]) {
        let rows: Vec<_> = ages
            .iter()
            .map(|age| (NOW_S - u64::from(*age), row((*age).into())))
            .collect();
        assert!(files.begin());
        assert!(files.append(&rows).is_none());
    }

    #[test]
    fn rows_come_back_in_their_order_and_without_a_torn_one() {
        let data = Folder::new();
        let files = HistoryFiles::new(&data.0);
        assert_eq!(loaded(&files), []);

        append(&files, &[60, 50]);
        let path = data.0.join("history/rows");
        let whole = fs::read(&path).expect("read");
        fs::write(&path, &whole[..whole.len() - 3]).expect("written");
        assert_eq!(loaded(&files), [(60, 60.0)]);
        append(&files, &[40, 30]);

        assert_eq!(loaded(&files), [(60, 60.0), (40, 40.0), (30, 30.0)]);
    }

    #[test]
    fn only_the_user_of_the_process_reads_the_files() {
        let data = Folder::new();
        append(&HistoryFiles::new(&data.0), &[50]);

        let mode = |name| {
            let found = fs::metadata(data.0.join(name)).expect("there");
            found.permissions().mode() & 0o777
        };
        assert_eq!([mode("history"), mode("history/rows")], [0o700, 0o600]);
    }

    #[test]
    fn rows_that_are_old_or_of_the_future_or_go_back_are_left_out() {
        let data = Folder::new();
        let files = HistoryFiles::new(&data.0);
        let old = [(NOW_S - READ_S - 1, row(0.0)), (NOW_S - READ_S, row(1.0))];
        assert!(files.begin() && files.append(&old).is_none());
        append(&files, &[100, 120, 95, 90, 9]);
        assert!(files.begin() && files.append(&[(NOW_S + 10, row(0.0))]).is_none());

        let found = loaded(&files);

        assert_eq!(found, [(READ_S, 1.0), (100, 100.0), (90, 90.0)]);
    }

    #[test]
    fn a_full_file_is_the_old_one_of_two() {
        let data = Folder::new();
        let files = HistoryFiles::new(&data.0);
        append(&files, &[900]);
        let path = data.0.join("history/rows");
        let file = OpenOptions::new().append(true).open(&path);
        file.and_then(|file| file.set_len(FILE_BYTES))
            .expect("grown");

        append(&files, &[800]);
        append(&files, &[700]);

        assert_eq!(loaded(&files), [(900, 900.0), (800, 800.0), (700, 700.0)]);
        assert!(fs::metadata(&path).expect("there").len() < 4_096);
    }

    #[test]
    fn metrics_of_another_version_are_found_by_name() {
        let data = Folder::new();
        let files = HistoryFiles::new(&data.0);
        let head = format!("{MAGIC} gone {} {}\n", METRICS[1].name, METRICS[0].name);
        fs::create_dir(data.0.join("history")).expect("made");
        let mut content = head.into_bytes();
        content.extend((NOW_S - 50).to_le_bytes());
        for value in [1.0_f32, 2.0, 3.0] {
            content.extend(value.to_le_bytes());
        }
        fs::write(data.0.join("history/rows"), content).expect("written");

        let found = files.load(NOW_S).expect("read");
        append(&files, &[40]);

        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1[..2], [3.0, 2.0]);
        assert!(found[0].1[2..].iter().all(|value| value.is_nan()));
        assert_eq!(loaded(&files), [(50, 3.0), (40, 40.0)]);
    }

    #[test]
    fn other_files_are_not_read_and_a_failure_is_told_once() {
        let data = Folder::new();
        let files = HistoryFiles::new(&data.0);
        fs::create_dir(data.0.join("history")).expect("made");
        for content in ["", "\n", "mqttcore history 2 a\n0123456789ab", "a file"] {
            fs::write(data.0.join("history/rows"), content).expect("written");
            assert_eq!(loaded(&files), []);
        }
        let is_told = || {
            assert!(files.begin() && !files.begin());
            files.append(&[(NOW_S, NOTHING)]).is_some()
        };
        fs::remove_dir_all(data.0.join("history")).expect("removed");
        fs::write(data.0.join("history"), "in the way").expect("written");

        assert_eq!([is_told(), is_told()], [true, false]);
        fs::remove_file(data.0.join("history")).expect("removed");
        assert!(!is_told());
    }
}
