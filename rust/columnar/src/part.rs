//! Selects the files that contain a range of offsets.

use std::path::PathBuf;

use super::ColumnarError;

/// A file and the offsets that the index says it holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FilePart {
    /// The path of the file.
    pub path: PathBuf,
    /// The first offset.
    pub base: i64,
    /// The last offset.
    pub last: i64,
}

/// A file, and the offsets `from..to` to read from it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OffsetSpan {
    pub(crate) part: FilePart,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// Covers `from..to` with as few files as possible; of overlapping files, selects the one that reaches farthest.
pub(crate) fn cover(
    parts: &[FilePart],
    partition: i32,
    from: i64,
    to: i64,
) -> Result<Vec<OffsetSpan>, ColumnarError> {
    let mut spans = Vec::new();
    let mut next = from;
    while next < to {
        let holders = parts
            .iter()
            .filter(|part| (part.base..=part.last).contains(&next));
        let Some(part) = holders.max_by_key(|part| part.last) else {
            let behind = parts
                .iter()
                .map(|part| part.base)
                .filter(|base| *base > next);
            let to = behind.min().map_or(to, |base| base.min(to));
            let from = next;
            return Err(ColumnarError::Missing {
                partition,
                from,
                to,
            });
        };
        let end = part.last.saturating_add(1).min(to);
        spans.push(OffsetSpan {
            part: part.clone(),
            from: next,
            to: end,
        });
        next = end;
    }
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(ranges: &[(i64, i64)]) -> Vec<FilePart> {
        let part = |&(base, last): &(i64, i64)| FilePart {
            path: format!("{base}-{last}").into(),
            base,
            last,
        };
        ranges.iter().map(part).collect()
    }

    fn covered(
        ranges: &[(i64, i64)],
        from: i64,
        to: i64,
    ) -> Result<Vec<(String, i64, i64)>, String> {
        let spans = cover(&parts(ranges), 3, from, to).map_err(|error| error.to_string())?;
        let span = |span: OffsetSpan| (span.part.path.display().to_string(), span.from, span.to);
        Ok(spans.into_iter().map(span).collect())
    }

    #[test]
    fn a_range_is_cut_out_of_its_files() {
        let files = [(20, 29), (0, 9), (10, 19)];

        assert_eq!(
            covered(&files, 5, 12),
            Ok(vec![
                ("0-9".to_owned(), 5, 10),
                ("10-19".to_owned(), 10, 12)
            ])
        );
        assert_eq!(covered(&files, 7, 7), Ok(vec![]));
    }

    #[test]
    fn a_merged_file_stands_for_those_that_it_was_made_of() {
        let files = [(0, 9), (0, 19), (10, 19), (20, 29)];

        assert_eq!(
            covered(&files, 0, 21),
            Ok(vec![
                ("0-19".to_owned(), 0, 20),
                ("20-29".to_owned(), 20, 21)
            ])
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = |from, to| {
            Err(format!(
                "partition 3: offsets {from} to {to} (exclusive) are missing"
            ))
        };

        assert_eq!(covered(&[(0, 9), (20, 29)], 5, 25), missing(10, 20));
        assert_eq!(covered(&[(0, 9), (20, 29)], 5, 15), missing(10, 15));
        assert_eq!(covered(&[(0, 9)], 5, 15), missing(10, 15));
        assert_eq!(covered(&[(4, 9)], 1, 9), missing(1, 4));
        assert_eq!(covered(&[], 1, 9), missing(1, 9));
    }
}
