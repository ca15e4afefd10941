//! Selects the files of a partition to merge.

use std::ops::Range;
use std::time::Duration;

use crate::stream::manifest::SealedFile;

/// Number of small neighbouring files that are merged.
const MERGE_FILES: usize = 16;

/// More files are merged at once when a partition has many: one of so many. A merge writes the whole index.
const MERGED_PART: usize = 64;

/// Limits of a merged file.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeLimits {
    /// Files of this size and more are not merged; a merged file has less than twice as much.
    pub(super) bytes: u64,
    /// The longest time between its first row and its last row.
    pub(super) longest: Option<Duration>,
}

/// The first neighbouring files, from position `first` on, to merge into one.
///
/// They are many, and none of them has more than a quarter of their bytes; or they make a file that is large enough to
/// be left alone from then on, and none has more than half. So each byte is written a few times only: each time into a
/// file of four times the size, and of twice the size at last.
pub(super) fn mergeable(
    files: &[SealedFile],
    first: usize,
    limits: MergeLimits,
) -> Option<Range<usize>> {
    let least = MERGE_FILES.max(files.len() / MERGED_PART);
    let mut starts = first..files.len();
    starts.find_map(|begin| {
        let end = neighbours(files, begin, limits);
        balanced(files, begin..end, least, limits.bytes)
    })
}

/// The end of the files from `begin` on that could become one file.
fn neighbours(files: &[SealedFile], begin: usize, limits: MergeLimits) -> usize {
    let longest_us = limits
        .longest
        .map_or(u128::MAX, |longest| longest.as_micros());
    let (mut end, mut bytes) = (begin, 0);
    let (mut earliest, mut latest) = (i64::MAX, i64::MIN);
    while let Some(file) = files.get(end)
        && file.bytes < limits.bytes
        && !file.is_remote
        && bytes < limits.bytes
        && (end == begin || files[end - 1].last + 1 == file.base)
    {
        (earliest, latest) = (earliest.min(file.min_us), latest.max(file.max_us));
        if u128::from(latest.abs_diff(earliest)) > longest_us {
            break;
        }
        bytes += file.bytes;
        end += 1;
    }
    end
}

/// The files of `range`, if it is worth merging them, or else those before or behind a file that has too many of their
/// bytes.
fn balanced(
    files: &[SealedFile],
    range: Range<usize>,
    least: usize,
    enough: u64,
) -> Option<Range<usize>> {
    let bytes: u64 = files[range.clone()].iter().map(|file| file.bytes).sum();
    if range.len() < 2 || (range.len() < least && bytes < enough) {
        return None;
    }
    let most = if bytes < enough { bytes / 4 } else { bytes / 2 };
    let mut places = range.clone();
    let Some(large) = places.find(|place| files[*place].bytes > most) else {
        return Some(range);
    };
    balanced(files, range.start..large, least, enough)
        .or_else(|| balanced(files, large + 1..range.end, least, enough))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: MergeLimits = MergeLimits {
        bytes: 64 << 20,
        longest: None,
    };

    /// Seals files of these sizes and merges once after each; the files, and how many bytes were written.
    fn sealed(sizes: impl IntoIterator<Item = u64>) -> (Vec<SealedFile>, u64) {
        let (mut files, mut written) = (Vec::<SealedFile>::new(), 0);
        for (offset, bytes) in (0..).zip(sizes) {
            files.push(SealedFile {
                base: offset,
                last: offset,
                bytes,
                ..SealedFile::default()
            });
            written += bytes;
            if let Some(range) = mergeable(&files, 0, LIMITS) {
                let parts = &files[range.clone()];
                let merged = SealedFile {
                    base: parts[0].base,
                    last: parts[parts.len() - 1].last,
                    bytes: parts.iter().map(|file| file.bytes).sum(),
                    ..SealedFile::default()
                };
                written += merged.bytes;
                files.splice(range, [merged]);
            }
        }
        (files, written)
    }

    fn check(sizes: &[u64], most_written: u64) {
        let total: u64 = sizes.iter().sum();
        let (files, written) = sealed(sizes.iter().copied());
        let large = total / LIMITS.bytes;
        assert!(files.iter().all(|file| file.bytes < 2 * LIMITS.bytes));
        assert!(
            files.len() as u64 <= 2 * large + 48,
            "{} files of {total} bytes",
            files.len()
        );
        assert!(
            written <= most_written * total,
            "{written} bytes written for {total}"
        );
        assert!(files.is_sorted_by(|first, second| first.last + 1 == second.base));
    }

    #[test]
    fn files_of_any_size_level_off_and_are_written_a_few_times() {
        for megabytes in [1, 2, 5, 16, 31, 63] {
            check(&vec![megabytes << 20; 2_000], 4);
        }
        check(&vec![1 << 10; 20_000], 6);
    }

    #[test]
    fn files_of_mixed_sizes_do_so_too() {
        let mut state = 1_u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 33
        };
        let sizes: Vec<u64> = (0..3_000).map(|_| 1_u64 << (10 + draw() % 15)).collect();
        check(&sizes, 6);
        // A large file after each few small ones.
        let size = |at| if at % 7 == 0 { 10 << 20 } else { 1 << 10 };
        let sizes: Vec<u64> = (0..3_000).map(size).collect();
        check(&sizes, 6);
    }
}
