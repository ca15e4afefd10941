//! Serves a sealed file or a byte range of it, for readers that cannot read the data folder.
//!
//! A file never changes, but a merge may give its name to another file. The `ETag` identifies the file; a client that
//! fetches it in parts sends the tag in `If-Match`. An open file stays readable after its name is gone. A file that is in
//! object storage only is read from there.

use std::fs::{self, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::Bytes;
use hyper::header::{ACCEPT_RANGES, CONTENT_RANGE, ETAG, HeaderValue, IF_MATCH, RANGE};
use hyper::{HeaderMap, StatusCode};
use mqttcore_store::files::File;
use mqttcore_store::stream::Object;

use super::answer::{AnswerBody, HttpError, HttpResponse, ResponseAborted, broken, of_type};
use super::tasks::{Running, blocking};

/// Media type of a Parquet file.
const PARQUET: &str = "application/vnd.apache.parquet";

/// Bytes of one read: the memory for a peer's file, apart from hyper's buffers.
const PIECE_BYTES: u64 = 256 * 1024;

/// Responds with the bytes of a file that the request headers select. `object` is its object, if it has one; it is used
/// if the file is not here.
///
/// # Errors
///
/// The file does not exist, has changed, or does not have the requested bytes.
pub(super) async fn answer(
    folder: PathBuf,
    name: &str,
    object: Result<Option<Object>, HttpError>,
    headers: &HeaderMap,
) -> Result<HttpResponse, HttpError> {
    if !is_name(name) {
        return Err(gone(name));
    }
    let opened = open(folder.join(name)).await?;
    let Some((file, tag, bytes)) = chosen(opened, object)? else {
        return Err(gone(name));
    };
    if headers.get(IF_MATCH).is_some_and(|wanted| *wanted != tag) {
        let text = format!("{name} has changed");
        return Err(HttpError::new(
            StatusCode::PRECONDITION_FAILED,
            "changed",
            text,
        ));
    }
    let (range, status) = requested_range(name, bytes, headers)?;
    let told = format!(
        "bytes {}-{}/{bytes}",
        range.start,
        range.end.saturating_sub(1)
    );
    let mut answer = of_type(PARQUET, AnswerBody::File(FileRange::new(file, range)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(ETAG, tag);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if status == StatusCode::PARTIAL_CONTENT {
        let told = HeaderValue::try_from(told).map_err(|error| broken(&error))?;
        headers.insert(CONTENT_RANGE, told);
    }
    Ok(answer)
}

/// An open file.
type Opened = (Arc<dyn File>, Metadata);

/// Opens a file; `None` if it does not exist.
async fn open(path: PathBuf) -> Result<Option<Opened>, HttpError> {
    let opened = blocking(move || {
        let file = fs::File::open(path)?;
        let metadata = file.metadata()?;
        io::Result::Ok((Arc::new(file) as Arc<dyn File>, metadata))
    });
    match opened.await? {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|error| broken(&error)),
    }
}

/// The content of a file, its tag and its size.
type Chosen = (Arc<dyn File>, HeaderValue, u64);

/// The file if it is here, else its object.
fn chosen(
    opened: Option<Opened>,
    object: Result<Option<Object>, HttpError>,
) -> Result<Option<Chosen>, HttpError> {
    if let Some((file, metadata)) = opened {
        return Ok(Some((file, tag(&metadata), metadata.len())));
    }
    let Some(object) = object? else {
        return Ok(None);
    };
    let tag = HeaderValue::try_from(format!("\"{}\"", object.name));
    let tag = tag.map_err(|error| broken(&error))?;
    Ok(Some((object.file, tag, object.bytes)))
}

/// The byte range that the headers select, and the status of the response.
fn requested_range(
    name: &str,
    bytes: u64,
    headers: &HeaderMap,
) -> Result<(Range<u64>, StatusCode), HttpError> {
    let wanted = headers.get(RANGE).and_then(|range| range.to_str().ok());
    match wanted.and_then(|text| part_of(text, bytes)) {
        None => Ok((0..bytes, StatusCode::OK)),
        Some(range) if range.is_empty() => {
            let text = format!("{name} has {bytes} bytes");
            let status = StatusCode::RANGE_NOT_SATISFIABLE;
            Err(HttpError::new(status, "range", text))
        }
        Some(range) => Ok((range, StatusCode::PARTIAL_CONTENT)),
    }
}

/// Bytes of a file that are still to be sent.
pub(super) struct FileRange {
    file: Arc<dyn File>,
    left: Range<u64>,
    reading: Option<Running<io::Result<Bytes>>>,
}

impl FileRange {
    fn new(file: Arc<dyn File>, left: Range<u64>) -> Self {
        Self {
            file,
            left,
            reading: None,
        }
    }

    pub(super) fn left(&self) -> u64 {
        self.left.end - self.left.start
    }

    /// Returns the next bytes. Another thread reads them from disk.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ResponseAborted>>> {
        if self.left() == 0 {
            return Poll::Ready(None);
        }
        let (from, bytes) = (self.left.start, self.left().min(PIECE_BYTES));
        let reading = self.reading.get_or_insert_with(|| {
            let file = Arc::clone(&self.file);
            blocking(move || read(&*file, from, bytes))
        });
        let read = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        self.left.start += bytes;
        Poll::Ready(Some(
            read.map_err(ResponseAborted::from)
                .and_then(|read| read.map_err(ResponseAborted::from)),
        ))
    }
}

fn read(file: &dyn File, from: u64, bytes: u64) -> io::Result<Bytes> {
    // INVARIANT: at most `PIECE_BYTES`.
    let mut piece = vec![0; usize::try_from(bytes).expect("small")];
    let mut filled = 0;
    while filled < piece.len() {
        match file.read_at(&mut piece[filled..], from + filled as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(piece.into())
}

/// Whether `name` is the name of a file of rows, without any path.
fn is_name(name: &str) -> bool {
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name
        .strip_suffix(".parquet")
        .and_then(|name| name.split_once('-'));
    parts.is_some_and(|(partition, base)| plain(partition) && plain(base))
}

/// The `ETag` of a file: differs from that of every other file that has had or will have the same name.
fn tag(metadata: &Metadata) -> HeaderValue {
    let (inode, bytes) = (metadata.ino(), metadata.len());
    let written = (metadata.mtime(), metadata.mtime_nsec());
    let text = format!("\"{inode:x}-{bytes:x}-{:x}-{:x}\"", written.0, written.1);
    // INVARIANT: hexadecimal digits, dashes and quotation marks.
    HeaderValue::try_from(text).expect("visible ASCII")
}

/// The requested range of a file with `bytes` bytes; empty if the file has none of it. `None`: `Range` is to be
/// ignored, and the response is the whole file (RFC 9110, 14.2).
fn part_of(text: &str, bytes: u64) -> Option<Range<u64>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        let count: u64 = number(last)?;
        return Some(bytes.saturating_sub(count)..bytes);
    }
    let first = number(first)?;
    let end = match last {
        "" => u64::MAX,
        last => number(last)
            .filter(|last| *last >= first)?
            .saturating_add(1),
    };
    Some(first.min(bytes)..end.min(bytes))
}

fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

fn gone(name: &str) -> HttpError {
    let text = format!(
        "there is no file {name:?}: a merge or retention has removed it; ask for the index of the stream again"
    );
    HttpError::new(StatusCode::NOT_FOUND, "unknown_file", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_what_the_header_says_and_no_more_than_there_is() {
        for (text, wanted) in [
            ("bytes=0-0", Some(0..1)),
            ("bytes=2-4", Some(2..5)),
            ("bytes=7-", Some(7..10)),
            ("bytes=7-99", Some(7..10)),
            ("bytes=-3", Some(7..10)),
            ("bytes=-99", Some(0..10)),
            ("bytes=10-", Some(10..10)),
            ("bytes=99-100", Some(10..10)),
            ("bytes=-0", Some(10..10)),
            ("bytes=5-2", None),
            ("bytes=0-1,4-5", None),
            ("lines=0-1", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
        ] {
            assert_eq!(part_of(text, 10), wanted, "{text}");
        }
    }

    #[test]
    fn only_names_of_files_of_rows_are_names() {
        assert!(is_name("00001-00000000000000000042.parquet"));
        for name in [
            "",
            "..",
            "stream.json",
            "1-2.parquet.x",
            "-1.parquet",
            "1-.parquet",
            "../1-2.parquet",
            "1-2/3.parquet",
        ] {
            assert!(!is_name(name), "{name}");
        }
    }
}
