//! Selects the files of a partition to merge.

use std::ops::Range;
use std::time::Duration;

use crate::stream::manifest::SealedFile;

/// Number of small neighbouring files that are merged.
const MERGE_FILES: usize = 16;

/// More files are merged at once when a partition has many: one of so many. A merge writes the whole index.
const MERGED_PART: usize = 64;

/// Number of the newest files of a partition that may be too young to merge. Older ones are merged whatever their age.
const YOUNG_FILES: usize = 256;

/// Limits of a merged file.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeLimits {
    /// Files of this size and more are not merged; a merged file has less than twice as much.
    pub(super) bytes: u64,
    /// The longest time between its first row and its last row.
    pub(super) longest: Option<Duration>,
    /// A file that was sealed later is too young. Kept time in Unix microseconds.
    pub(super) sealed_until_us: u64,
}

/// The first neighbouring files, from position `first` on, to merge into one.
///
/// They are many, and none of them has more than a quarter of their bytes; or they make a file that is large enough to
/// be left alone from then on, and none has more than half. So each byte is written a few times only: each time into a
/// file of four times the size, and of twice the size at last.
///
/// Young files stay as they are, for readers that list the newest files and then read them.
pub(super) fn mergeable(
    files: &[SealedFile],
    first: usize,
    limits: MergeLimits,
) -> Option<Range<usize>> {
    let files = &files[..settled(files, limits)];
    let least = MERGE_FILES.max(files.len() / MERGED_PART);
    let mut starts = first..files.len();
    starts.find_map(|begin| {
        let end = neighbours(files, begin, limits);
        balanced(files, begin..end, least, limits.bytes)
    })
}

/// Number of the files that are not too young; a file of unknown age is.
fn settled(files: &[SealedFile], limits: MergeLimits) -> usize {
    let is_young = |file: &SealedFile| {
        file.sealed_us
            .is_none_or(|sealed_us| sealed_us > limits.sealed_until_us)
    };
    let old = files.iter().position(is_young).unwrap_or(files.len());
    old.max(files.len().saturating_sub(YOUNG_FILES))
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

    const MINUTE_US: u64 = 60_000_000;

    fn limits(sealed_until_us: u64) -> MergeLimits {
        MergeLimits {
            bytes: 64 << 20,
            longest: None,
            sealed_until_us,
        }
    }

    /// Seals files of these sizes, one each `every_us`, and merges files older than a minute once after each; the files,
    /// and how many bytes were written.
    fn sealed(sizes: impl IntoIterator<Item = u64>, every_us: u64) -> (Vec<SealedFile>, u64) {
        let (mut files, mut written) = (Vec::<SealedFile>::new(), 0);
        for (offset, bytes) in (0..).zip(sizes) {
            let now_us = MINUTE_US + offset * every_us;
            files.push(SealedFile {
                base: offset,
                last: offset,
                bytes,
                sealed_us: Some(now_us),
                ..SealedFile::default()
            });
            written += bytes;
            if let Some(range) = mergeable(&files, 0, limits(now_us - MINUTE_US)) {
                let parts = &files[range.clone()];
                let merged = SealedFile {
                    base: parts[0].base,
                    last: parts[parts.len() - 1].last,
                    bytes: parts.iter().map(|file| file.bytes).sum(),
                    sealed_us: parts[parts.len() - 1].sealed_us,
                    ..SealedFile::default()
                };
                written += merged.bytes;
                files.splice(range, [merged]);
            }
        }
        (files, written)
    }

    /// Files may be sealed each hour, each second, and 100 times a second.
    fn check(sizes: &[u64], most_written: u64) {
        for (every_us, young) in [(60 * MINUTE_US, 1), (1_000_000, 60), (10_000, 256)] {
            check_every(sizes, every_us, young, most_written);
        }
    }

    fn check_every(sizes: &[u64], every_us: u64, young: u64, most_written: u64) {
        let total: u64 = sizes.iter().sum();
        let (files, written) = sealed(sizes.iter().copied(), every_us);
        let large = total / (64 << 20);
        assert!(files.iter().all(|file| file.bytes < 128 << 20));
        assert!(
            files.len() as u64 <= 2 * large + 48 + young,
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
    fn files_younger_than_a_minute_are_as_they_were_sealed() {
        let (files, _) = sealed([1 << 10; 1_000], 1_000_000);

        let young = &files[files.len() - 60..];
        assert!(young.iter().all(|file| file.base == file.last));
        assert_eq!(young[0].base, 940);
        assert!(files.len() < 100, "{} files", files.len());
    }

    #[test]
    fn files_of_unknown_age_are_young() {
        let file = |offset| SealedFile {
            base: offset,
            last: offset,
            bytes: 1 << 10,
            ..SealedFile::default()
        };
        let files: Vec<_> = (0..272).map(file).collect();

        assert_eq!(mergeable(&files[..256], 0, limits(u64::MAX)), None);
        // There are too many of them.
        assert_eq!(mergeable(&files, 0, limits(u64::MAX)), Some(0..16));
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
