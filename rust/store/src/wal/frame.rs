//! Frames: length, checksum, number, type, flags, body.

use crc32c::crc32c_append;

use crate::record::COMMIT;
use crate::wal::segment::REACHED_MAX;

/// Bytes of a frame before its body.
pub(crate) const HEADER: usize = 18;
/// The smallest valid value of a frame's length field.
const LENGTH_MIN: usize = HEADER - 8;
/// Bytes of a commit marker.
pub(crate) const MARKER: usize = HEADER + 16;

/// Begins a frame at the end of `out`; returns its offset.
pub(crate) fn begin(kind: u8, flags: u8, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.resize(start + HEADER - 2, 0);
    out.extend([kind, flags]);
    start
}

/// Writes the length of the frame that begins at `start` and ends with `out`.
pub(crate) fn finish(out: &mut [u8], start: usize) {
    // INVARIANT: bodies come from packets, which are below 256 MiB.
    let length = u32::try_from(out.len() - start - 8).expect("a record is below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Writes LSN and checksum into each frame in `bytes`, with LSNs from `lsn` on; returns the
/// checksum of these checksums.
pub(crate) fn seal_all(bytes: &mut [u8], seed: u32, mut lsn: u64) -> u32 {
    let (mut rest, mut chain) = (bytes, 0);
    while !rest.is_empty() {
        let end = 8 + length(rest);
        let (frame, behind) = rest.split_at_mut(end);
        frame[8..16].copy_from_slice(&lsn.to_le_bytes());
        let crc = checksum(frame, seed).to_le_bytes();
        frame[4..8].copy_from_slice(&crc);
        chain = crc32c_append(chain, &crc);
        lsn += 1;
        rest = behind;
    }
    chain
}

/// Calls `change` with the body of each frame in `bytes` whose type and flags satisfy
/// `is_wanted`, before the checksums are written.
pub(crate) fn bodies_mut(
    bytes: &mut [u8],
    is_wanted: impl Fn(u8, u8) -> bool,
    mut change: impl FnMut(&mut [u8]),
) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = 8 + length(rest);
        let (frame, behind) = rest.split_at_mut(end);
        if is_wanted(frame[16], frame[17]) {
            change(&mut frame[HEADER..]);
        }
        rest = behind;
    }
}

/// Appends a commit marker with its checksum.
pub(crate) fn put_marker(commit: &CommitMarker, lsn: u64, seed: u32, out: &mut Vec<u8>) {
    let start = begin(COMMIT, 0, out);
    out.extend_from_slice(&commit.records.to_le_bytes());
    out.extend_from_slice(&commit.chain.to_le_bytes());
    out.extend_from_slice(&commit.durable_lsn.to_le_bytes());
    finish(out, start);
    seal_all(&mut out[start..], seed, lsn);
}

/// The content of a commit marker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CommitMarker {
    pub(crate) records: u32,
    pub(crate) chain: u32,
    pub(crate) durable_lsn: u64,
}

/// A frame whose checksum was verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogFrame<'a> {
    pub(crate) lsn: u64,
    pub(crate) crc: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) body: &'a [u8],
}

impl LogFrame<'_> {
    /// Bytes of the frame.
    pub(crate) fn bytes(&self) -> usize {
        HEADER + self.body.len()
    }

    /// The commit marker, if the frame is one: its durable LSN is not above its own.
    pub(crate) fn commit(&self) -> Option<CommitMarker> {
        let body: &[u8; MARKER - HEADER] = self.body.try_into().ok()?;
        let marker = CommitMarker {
            records: u32_at(body, 0),
            chain: u32_at(body, 4),
            durable_lsn: u64_at(body, 8),
        };
        let is_marker = self.kind == COMMIT && self.flags == 0;
        (is_marker && marker.durable_lsn <= self.lsn).then_some(marker)
    }
}

/// The frame at the front of `bytes`; `None` if it is incomplete or its checksum is wrong.
pub(crate) fn parse(bytes: &[u8], seed: u32) -> Option<LogFrame<'_>> {
    let frame = split(bytes).filter(|frame| frame.lsn <= 2 * REACHED_MAX)?;
    let bytes = &bytes[..frame.bytes()];
    (checksum(bytes, seed) == frame.crc).then_some(frame)
}

/// The frame at the front of `bytes`, without a check of its checksum: only for bytes that were
/// verified before.
pub(crate) fn split(bytes: &[u8]) -> Option<LogFrame<'_>> {
    if bytes.len() < HEADER {
        return None;
    }
    let length = length(bytes);
    if length < LENGTH_MIN || length > bytes.len() - 8 {
        return None;
    }
    let frame = &bytes[..8 + length];
    Some(LogFrame {
        lsn: u64_at(frame, 8),
        crc: u32_at(frame, 4),
        kind: frame[16],
        flags: frame[17],
        body: &frame[HEADER..],
    })
}

/// The LSN field at the front of `bytes`, not verified.
pub(crate) fn claimed_lsn(bytes: &[u8]) -> Option<u64> {
    (bytes.len() >= HEADER).then(|| u64_at(bytes, 8))
}

fn checksum(frame: &[u8], seed: u32) -> u32 {
    crc32c_append(crc32c_append(seed, &frame[..4]), &frame[8..])
}

fn length(frame: &[u8]) -> usize {
    u32_at(frame, 0) as usize
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
