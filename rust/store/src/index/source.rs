//! Reads the tables of a damaged checkpoint row by row, from the better of its last two commits.

use std::borrow::BorrowMut;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use redb::{Key, TableDefinition, TableHandle as _, Value};

use crate::error::StoreError;
use crate::files::{File, Files};
use crate::index::chunk::DeliveryChunk;
use crate::index::messages::decode_page;
use crate::index::pages::{CheckpointRoot, PageVisit, Pages, Widths};
use crate::index::rows::{SessionRow, decode_subscriptions};
use crate::index::streams::StreamTable;
use crate::index::tables::{
    BODY, MESSAGE, META, NOTE, QUEUE, RETAINED, SEGMENT, SESSION, STREAMS, SUBSCRIPTION,
};
use crate::wal::{identity, segment};

/// Metadata of a checkpoint that a rescue needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexFigures {
    applied_lsn: u64,
    pub(super) moved: u64,
    /// The oldest segment with rows of streams that no file has.
    pinned: Option<u64>,
    /// Whether no later commit was found.
    pub(super) is_latest: bool,
}

/// The beginning of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    lsn: u64,
    segment: u64,
}

impl Begin {
    /// The beginning of the log in `files`; the largest numbers if there is no log.
    pub(crate) fn of(files: &dyn Files) -> Result<Self, StoreError> {
        let segment = segment::numbers(files)?.first().copied();
        Ok(Self {
            lsn: match segment {
                Some(_) => identity::first_lsn(files)?.unwrap_or_default(),
                None => u64::MAX,
            },
            segment: segment.unwrap_or(u64::MAX),
        })
    }
}

/// If the header marks the older of the last two commits as primary by mistake, marks the newer one; returns whether
/// it did.
///
/// No checksum covers that bit. A writer that dies between its last two writes leaves the same state; the older
/// commit is then right, because the log continues from it. If the log does not, or pages of the older commit are
/// damaged, the bit is wrong.
pub(super) fn right_primary(file: &dyn File, files: &dyn Files) -> Result<bool, StoreError> {
    let mut pages = Pages::of(file)?;
    if !pages.is_older_primary()? {
        return Ok(false);
    }
    let begin = Begin::of(files)?;
    let mut ranks = Vec::new();
    for commit in pages.commits()? {
        ranks.push(rank(&mut pages, commit, begin)?.0);
    }
    let is_wrong = matches!(ranks[..], [older, newer] if older != WHOLE && newer <= older);
    if is_wrong {
        pages.change_primary()?;
    }
    Ok(is_wrong)
}

/// Whether records between a commit and the log are missing, and the number of damaged pages: less is better.
type Rank = (bool, u64);

const WHOLE: Rank = (false, 0);

/// The best commit: one without missing records before the log, then the one with the fewest damaged pages, then the
/// latest.
pub(super) fn best(
    pages: &mut Pages<'_>,
    begin: Begin,
) -> Result<Option<(CheckpointRoot, IndexFigures)>, StoreError> {
    let mut found = Vec::new();
    let commits = pages.commits()?;
    let latest = commits.iter().map(|commit| commit.number).max();
    for commit in commits {
        let (rank, commit, figures) = rank(pages, commit, begin)?;
        if let Some(figures) = figures {
            found.push(((rank, Reverse(commit.number)), commit, figures));
        }
    }
    let best = found.into_iter().min_by_key(|(rank, ..)| *rank);
    Ok(best.map(|(_, commit, mut figures)| {
        figures.is_latest = latest == Some(commit.number);
        (commit, figures)
    }))
}

/// Ranks a commit; also returns its metadata if that is readable.
fn rank(
    pages: &mut Pages<'_>,
    commit: CheckpointRoot,
    begin: Begin,
) -> Result<(Rank, CheckpointRoot, Option<IndexFigures>), StoreError> {
    let mut source = RowSource { pages, commit };
    let figures = source.figures()?;
    let has_gap = match figures {
        Some(figures) => source.has_gap(figures, begin)?,
        // No better than no checkpoint.
        None => begin.lsn > 1,
    };
    let lost = source.count_lost()?;
    Ok(((has_gap, lost), source.commit, figures))
}

/// The tables of one commit.
pub(super) struct RowSource<P> {
    pub(super) pages: P,
    pub(super) commit: CheckpointRoot,
}

impl<'f, P: BorrowMut<Pages<'f>>> RowSource<P> {
    /// Calls `visit` with each row of a table, and with `None` wherever rows are missing.
    pub(super) fn rows<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'_, K, V>,
        mut visit: impl FnMut(Option<(K::SelfType<'_>, V::SelfType<'_>)>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let name = definition.name();
        let Some(tree) = self.commit.tables.get(name) else {
            return Ok(());
        };
        let mut foreign = 0;
        let widths = Widths {
            key: K::fixed_width(),
            value: V::fixed_width(),
        };
        let pages = self.pages.borrow_mut();
        pages.walk(*tree, widths, &mut |step| match step {
            PageVisit::Row(key, value) if is_of(name, key, value) => {
                visit(Some((K::from_bytes(key), V::from_bytes(value))))
            }
            PageVisit::Row(..) => {
                foreign += 1;
                visit(None)
            }
            PageVisit::Lost => visit(None),
        })?;
        pages.lost += foreign;
        Ok(())
    }

    fn figures(&mut self) -> Result<Option<IndexFigures>, StoreError> {
        let (mut numbers, mut pinned) = (BTreeMap::new(), None);
        self.rows(META, |row| {
            if let Some((key, value)) = row {
                if let Ok(value) = value.try_into() {
                    numbers.insert(key.to_owned(), u64::from_le_bytes(value));
                }
                if key == STREAMS {
                    pinned = StreamTable::decode(value)
                        .ok()
                        .and_then(|table| table.pinned());
                }
            }
            Ok(())
        })?;
        let figure = |key: &str| numbers.get(key).copied();
        let moved = figure("moved").filter(|&moved| moved <= segment::NUMBER_REACHED_MAX);
        let found = figure("applied_lsn").zip(moved);
        Ok(found.map(|(applied_lsn, moved)| IndexFigures {
            applied_lsn,
            moved,
            pinned,
            is_latest: true,
        }))
    }

    /// Whether records between the checkpoint and the log are missing, or segments whose messages or rows it needs.
    fn has_gap(&mut self, figures: IndexFigures, begin: Begin) -> Result<bool, StoreError> {
        let mut has_gap = figures.applied_lsn.saturating_add(1) < begin.lsn;
        has_gap |= figures
            .pinned
            .is_some_and(|segment| segment < begin.segment);
        self.rows(SEGMENT, |row| {
            has_gap |=
                row.is_some_and(|(segment, _)| figures.moved < segment && segment < begin.segment);
            Ok(())
        })?;
        Ok(has_gap)
    }

    fn count_lost(&mut self) -> Result<u64, StoreError> {
        self.pages.borrow_mut().lost = 0;
        self.rows(META, |_| Ok(()))?;
        self.rows(SESSION, |_| Ok(()))?;
        self.rows(SUBSCRIPTION, |_| Ok(()))?;
        self.rows(QUEUE, |_| Ok(()))?;
        self.rows(MESSAGE, |_| Ok(()))?;
        self.rows(BODY, |_| Ok(()))?;
        self.rows(NOTE, |_| Ok(()))?;
        self.rows(RETAINED, |_| Ok(()))?;
        self.rows(SEGMENT, |_| Ok(()))?;
        Ok(self.pages.borrow_mut().lost)
    }
}

/// Whether a row belongs to the table `name`. A page below a damaged one may be of another table: a page that was
/// written to the wrong place can name intact pages.
fn is_of(name: &str, key: &[u8], value: &[u8]) -> bool {
    if name == SESSION.name() {
        SessionRow::decode(value).is_ok()
    } else if name == SUBSCRIPTION.name() {
        decode_subscriptions(value).is_ok()
    } else if name == QUEUE.name() {
        DeliveryChunk::decode(value).is_ok_and(|chunk| chunk.deliveries().all(|one| one.is_ok()))
    } else if name == MESSAGE.name() {
        let page = key.first_chunk().copied().map(u64::from_le_bytes);
        page.is_some_and(|page| decode_page(page, value).is_ok())
    } else {
        // A row of `body` has its own checksum, which is verified when the row is read.
        true
    }
}
