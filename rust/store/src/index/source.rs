//! The tables of a damaged checkpoint, row by row, and which of its two last commits is read.

use std::borrow::BorrowMut;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use redb::{Key, TableDefinition, TableHandle as _, Value};

use crate::error::StoreError;
use crate::index::pages::{Commit, Pages, Step, Widths};
use crate::index::tables::{
    BODY, MESSAGE, META, NOTE, QUEUE, RETAINED, SEGMENT, SESSION, SUBSCRIPTION,
};

/// The figures of a checkpoint that a rescue needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    applied_lsn: u64,
    pub(super) moved: u64,
    /// No later commit was found.
    pub(super) is_latest: bool,
}

/// Where the log begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begin {
    pub(crate) lsn: u64,
    pub(crate) segment: u64,
}

/// The commit of which most can be had: one that the log goes on behind, with the fewest damaged pages, the
/// latest.
pub(super) fn best(
    pages: &mut Pages<'_>,
    begin: Begin,
) -> Result<Option<(Commit, Figures)>, StoreError> {
    let mut found = Vec::new();
    let commits = pages.commits()?;
    let latest = commits.iter().map(|commit| commit.number).max();
    for commit in commits {
        let mut source = Source {
            pages: &mut *pages,
            commit,
        };
        if let Some(figures) = source.figures()? {
            let has_gap = source.has_gap(figures, begin)?;
            let lost = source.count_lost()?;
            let rank = (has_gap, lost, Reverse(source.commit.number));
            found.push((rank, source.commit, figures));
        }
    }
    let best = found.into_iter().min_by_key(|(rank, ..)| *rank);
    Ok(best.map(|(_, commit, mut figures)| {
        figures.is_latest = latest == Some(commit.number);
        (commit, figures)
    }))
}

/// The tables of one commit.
pub(super) struct Source<P> {
    pub(super) pages: P,
    pub(super) commit: Commit,
}

impl<'f, P: BorrowMut<Pages<'f>>> Source<P> {
    /// Hands each row of a table to `visit`, and `None` wherever rows are missing.
    pub(super) fn rows<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'_, K, V>,
        mut visit: impl FnMut(Option<(K::SelfType<'_>, V::SelfType<'_>)>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let name = definition.name();
        let Some(tree) = self.commit.tables.get(name) else {
            return Ok(());
        };
        let widths = Widths {
            key: K::fixed_width(),
            value: V::fixed_width(),
        };
        self.pages
            .borrow_mut()
            .walk(*tree, widths, &mut |step| match step {
                Step::Row(key, value) => visit(Some((K::from_bytes(key), V::from_bytes(value)))),
                Step::Lost => visit(None),
            })
    }

    fn figures(&mut self) -> Result<Option<Figures>, StoreError> {
        let mut numbers = BTreeMap::new();
        self.rows(META, |row| {
            if let Some((key, value)) = row
                && let Ok(value) = value.try_into()
            {
                numbers.insert(key.to_owned(), u64::from_le_bytes(value));
            }
            Ok(())
        })?;
        let figure = |key: &str| numbers.get(key).copied();
        let found = figure("applied_lsn").zip(figure("moved"));
        Ok(found.map(|(applied_lsn, moved)| Figures {
            applied_lsn,
            moved,
            is_latest: true,
        }))
    }

    /// Whether records are missing between it and the log, or segments of which it wants messages.
    fn has_gap(&mut self, figures: Figures, begin: Begin) -> Result<bool, StoreError> {
        let mut has_gap = figures.applied_lsn + 1 < begin.lsn;
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
