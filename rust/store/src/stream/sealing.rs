//! Sealing: writes the tail into files, merges small files, and removes files by retention.

use std::ops::Range;

use arrow_array::RecordBatch;

use crate::error::StoreError;
use crate::record::Record;
use crate::stream::history::History;
use crate::stream::manifest::SealedFile;
use crate::stream::merging::{self, MergeLimits};
use crate::stream::streams::{Stream, Streams, lock};
use crate::stream::tail::{ClosedBatch, Tail};
use crate::wal::batch::Batch;
use mqttcore_columnar::MetricAliases;

/// Files are merged if their rows lie within this fraction of the retention age: a merged file is as old as its
/// youngest row, so its oldest rows stay longer by up to that time.
const MERGED_PART: u32 = 8;

/// Writes a batch of records and returns when it is safe; [`StoreError::NoSpace`] means that it was not written.
pub(crate) type CommitFn<'c> = dyn FnMut(&mut Batch) -> Result<(), StoreError> + 'c;

/// The rows to seal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum SealRequest {
    /// Rows of partitions that are large enough or old enough.
    Due {
        /// The time in Unix microseconds.
        now_us: u64,
        /// Size of the log in bytes.
        log_bytes: u64,
    },
    /// All rows of one stream.
    Stream(String),
    /// All rows.
    Everything,
}

impl Streams {
    /// Writes safe rows into files, records this in the log, and removes the rows from memory.
    ///
    /// # Errors
    ///
    /// Errors of the file system and of `commit`; the rows then stay in memory and in the log.
    pub(crate) fn seal(
        &self,
        wanted: &SealRequest,
        commit: &mut CommitFn<'_>,
    ) -> Result<(), StoreError> {
        let _work = self.lock_work();
        self.seal_locked(wanted, commit)
    }

    fn seal_locked(
        &self,
        wanted: &SealRequest,
        commit: &mut CommitFn<'_>,
    ) -> Result<(), StoreError> {
        let is_pressed = match wanted {
            SealRequest::Due { log_bytes, .. } => {
                self.is_pressed() || *log_bytes >= self.limits().log_bytes
            }
            _ => true,
        };
        for stream in &self.list {
            let is_asked = match wanted {
                SealRequest::Stream(name) => *name == stream.identity.name,
                _ => true,
            };
            if is_asked {
                let is_due = |tail: &Tail| is_pressed || self.is_due(tail, wanted);
                self.seal_stream(stream, &is_due, commit)?;
            }
        }
        Ok(())
    }

    /// Whether the rows in memory are as many as the limit allows.
    fn is_pressed(&self) -> bool {
        self.held_bytes() >= self.limits().tail_bytes
    }

    fn is_due(&self, tail: &Tail, wanted: &SealRequest) -> bool {
        let SealRequest::Due { now_us, .. } = wanted else {
            return true;
        };
        let age = self.limits().tail_age.as_micros();
        let is_old = |oldest: u64| u128::from(now_us.saturating_sub(oldest)) >= age;
        tail.bytes() >= self.limits().partition_bytes || tail.oldest_us().is_some_and(is_old)
    }

    /// The order is: file, its final name, [`Record::Sealed`], index, memory. So after a crash at any point the rows
    /// are in at least one place and are counted once.
    fn seal_stream(
        &self,
        stream: &Stream,
        is_due: &dyn Fn(&Tail) -> bool,
        commit: &mut CommitFn<'_>,
    ) -> Result<(), StoreError> {
        // The last call may have failed between [`Record::Sealed`] and the index.
        self.let_go(stream)?;
        let mut aliases = lock(&stream.aliases).now.clone();
        let written = self.write_due(stream, is_due, &mut aliases)?;
        if written.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::default();
        for (partition, file) in &written {
            let (stream, partition, end) = (stream.identity.id, *partition, file.last + 1);
            batch.push(&Record::Sealed {
                stream,
                partition,
                end,
            });
        }
        let committed = commit(&mut batch);
        if let Err(StoreError::NoSpace) = committed {
            // The log does not have the record, and the next files may have other boundaries. After any other error
            // the log may have the record: the files stay.
            for (number, file) in &written {
                history_of(stream, *number).remove(std::slice::from_ref(&file.file))?;
            }
        }
        committed?;
        for (number, file) in written {
            lock(&stream.partitions[usize::from(number)])
                .history
                .files
                .push(file);
        }
        lock(&stream.aliases).next = Some(aliases);
        self.let_go(stream)
    }

    /// Writes the rows of the partitions that are due; returns the files with their partitions.
    fn write_due(
        &self,
        stream: &Stream,
        is_due: &dyn Fn(&Tail) -> bool,
        aliases: &mut MetricAliases,
    ) -> Result<Vec<(u16, SealedFile)>, StoreError> {
        let mut written = Vec::new();
        for number in 0..stream.identity.partitions {
            let runs = {
                let mut partition = self.partition(stream, number);
                if !is_due(&partition.tail) {
                    continue;
                }
                partition.tail.runs(self.limits().file_bytes)
            };
            for run in runs {
                written.push((number, self.write(stream, number, &run, aliases)?));
            }
        }
        Ok(written)
    }

    fn write(
        &self,
        stream: &Stream,
        number: u16,
        run: &[ClosedBatch],
        aliases: &mut MetricAliases,
    ) -> Result<SealedFile, StoreError> {
        let base = run.first().map_or(0, |first| first.base);
        let mut add = stream.typed.adder(aliases);
        let batches = run.iter().map(|frozen| add(&frozen.batch));
        let batches = batches.map(|batch| batch.map_err(|error| stream.failed(&error)));
        let history = history_of(stream, number);
        let mut file = history.write(base, batches, &stream.origin(), aliases)?;
        file.sealed_us = self.kept_us();
        self.count_file();
        Ok(file)
    }

    /// Writes snapshots of the file indexes that have a log.
    pub(crate) fn settle_indexes(&self) -> Result<(), StoreError> {
        let _work = self.lock_work();
        let mut streams = self.list.iter();
        streams.try_for_each(|stream| stream.index.settle(|| stream.sealed()))
    }

    /// Writes the file index and removes rows that are in files from memory.
    fn let_go(&self, stream: &Stream) -> Result<(), StoreError> {
        let ends: Vec<(u16, u64)> = (0..)
            .zip(&stream.partitions)
            .filter_map(|(number, partition)| {
                let partition = lock(partition);
                let end = partition.history.end_offset();
                (end > partition.tail.start()).then_some((number, end))
            })
            .collect();
        if ends.is_empty() {
            return Ok(());
        }
        stream.index.add(stream.sealed())?;
        let next = lock(&stream.aliases).next.clone();
        if let Some(next) = &next {
            stream.write_aliases(next)?;
        }
        let mut known = lock(&stream.aliases);
        if let Some(next) = known.next.take() {
            known.now = next;
        }
        for (number, end) in ends {
            let freed = self.partition(stream, number).tail.seal(end);
            self.give_back(freed);
        }
        Ok(())
    }

    /// Merges small neighbouring files, applies retention, and removes files whose grace period is over. `now_us` is
    /// kept time. A merge takes seconds: rows are sealed meanwhile if memory for them runs out.
    pub(crate) fn maintain(
        &self,
        now_us: u64,
        commit: &mut CommitFn<'_>,
    ) -> Result<(), StoreError> {
        let _work = self.lock_work();
        for stream in &self.list {
            let is_dated = date(stream, now_us);
            for number in 0..stream.identity.partitions {
                self.merge(stream, number, now_us, commit)?;
            }
            stream.shorten_holds(now_us / 1_000)?;
            retain(stream, now_us, self.limits().grace.as_millis(), is_dated)?;
            remove_due(stream, now_us / 1_000)?;
        }
        Ok(())
    }

    /// The merged file replaces the first of its parts; the index drops the others before they are removed.
    fn merge(
        &self,
        stream: &Stream,
        number: u16,
        now_us: u64,
        commit: &mut CommitFn<'_>,
    ) -> Result<(), StoreError> {
        let history = history_of(stream, number);
        let limits = self.merge_limits(stream, now_us);
        let Some((range, told)) = mergeable(stream, &history, limits)? else {
            return Ok(());
        };
        let parts = &history.files[range.clone()];
        let mut begin = MetricAliases::default();
        for told in &told {
            begin.fill(told.clone());
        }
        let rows = parts.iter().zip(&told);
        let rows = rows.flat_map(|(file, told)| rows_of(stream, &history, file, told));
        let rows = rows.map(|batch| {
            if self.is_pressed() {
                self.seal_locked(&SealRequest::Everything, commit)?;
            }
            batch
        });
        let mut merged = history.write(parts[0].base, rows, &stream.origin(), &mut begin)?;
        merged.sealed_us = latest(parts);
        self.count_file();
        let old: Vec<String> = parts[1..].iter().map(|file| file.file.clone()).collect();
        lock(&stream.partitions[usize::from(number)])
            .history
            .files
            .splice(range, [merged]);
        stream.write_index()?;
        history.remove(&old)
    }

    fn merge_limits(&self, stream: &Stream, now_us: u64) -> MergeLimits {
        let young_us = u64::try_from(self.limits().merge_age.as_micros()).unwrap_or(u64::MAX);
        MergeLimits {
            bytes: self.limits().merged_bytes,
            longest: stream.retention_age.map(|age| age / MERGED_PART),
            sealed_until_us: now_us.saturating_sub(young_us),
        }
    }

    fn count_file(&self) {
        // ORDERING: a counter.
        self.files
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The rows of a file with the typed columns of the stream: a file from before a column was added gets the column now.
/// `aliases` are the aliases before the first row.
fn rows_of(
    stream: &Stream,
    history: &History,
    file: &SealedFile,
    aliases: &MetricAliases,
) -> impl Iterator<Item = Result<RecordBatch, StoreError>> {
    let mut add = stream.typed.adder(aliases);
    let (batches, unread) = match history.read(file) {
        Ok(batches) => (Some(batches), None),
        Err(error) => (None, Some(Err(error))),
    };
    let batches = batches.into_iter().flatten().chain(unread);
    batches.map(move |batch| add(&batch?).map_err(|error| stream.failed(&error)))
}

/// Positions of the files to merge, and the Sparkplug aliases in the footer of each.
type ToMerge = (Range<usize>, Vec<MetricAliases>);

/// The next files to merge. If typed columns depend on aliases, a file of an older version without aliases in its
/// footer is left out: decoding it again could lose values.
fn mergeable(
    stream: &Stream,
    history: &History,
    limits: MergeLimits,
) -> Result<Option<ToMerge>, StoreError> {
    let mut first = 0;
    while let Some(range) = merging::mergeable(&history.files, first, limits) {
        let mut told = Vec::new();
        for (place, file) in range.clone().zip(&history.files[range.clone()]) {
            let aliases = history.aliases(file)?;
            if aliases.is_none() && stream.typed.has_memory() {
                first = place + 1;
                break;
            }
            told.push(aliases.unwrap_or_default());
        }
        if told.len() == range.len() {
            return Ok(Some((range, told)));
        }
    }
    Ok(None)
}

/// The current files of a partition; only the holder of `work` changes them.
fn history_of(stream: &Stream, number: u16) -> History {
    let partition = lock(&stream.partitions[usize::from(number)]);
    partition.history.clone()
}

/// Raises the earliest offset where files are too old or too large in total. The files stay for the grace period, for
/// consumers that have begun to read them. `is_changed`: the index is to be written in any case.
fn retain(
    stream: &Stream,
    now_us: u64,
    grace_ms: u128,
    mut is_changed: bool,
) -> Result<(), StoreError> {
    let grace_ms = u64::try_from(grace_ms).unwrap_or(u64::MAX);
    let gone_ms = (now_us / 1_000).saturating_add(grace_ms);
    while let Some(number) = surplus(stream, now_us) {
        let mut partition = lock(&stream.partitions[number]);
        let file = partition.history.files.remove(0);
        partition.history.earliest = file.last + 1;
        partition.to_remove.push((file.file, gone_ms));
        is_changed = true;
    }
    if is_changed {
        stream.write_index()?;
    }
    Ok(())
}

/// Sets the age of files without one, and of files that were sealed in the future because kept time was set back: it
/// begins now, so that files are removed late rather than early. Returns whether any changed.
fn date(stream: &Stream, now_us: u64) -> bool {
    let mut is_changed = false;
    for partition in &stream.partitions {
        for file in &mut lock(partition).history.files {
            if file.sealed_us.is_none_or(|sealed_us| sealed_us > now_us) {
                file.sealed_us = Some(now_us);
                is_changed = true;
            }
        }
    }
    is_changed
}

/// The time at which the last of `files` was sealed; `None` if one of them has no such time.
fn latest(files: &[SealedFile]) -> Option<u64> {
    let mut sealed = files.iter().map(|file| file.sealed_us);
    sealed.try_fold(0, |latest, sealed_us| Some(latest.max(sealed_us?)))
}

/// The partition whose first file is removed next. Age is kept time, not the time in the rows: that is the system's
/// clock, which can jump (ADR 0022).
fn surplus(stream: &Stream, now_us: u64) -> Option<usize> {
    let kept = lock(&stream.holds);
    let (mut total, mut oldest) = (0, None);
    for (number, partition) in stream.partitions.iter().enumerate() {
        let partition = lock(partition);
        let files = &partition.history.files;
        total += files.iter().map(|file| file.bytes).sum::<u64>();
        let floor = kept.floor(number, now_us / 1_000);
        let first = files.first().filter(|file| file.last < floor);
        let first = first.map(|file| (file.sealed_us.unwrap_or(now_us), file.max_us, number));
        oldest = oldest.into_iter().chain(first).min();
    }
    let (sealed_us, _, number) = oldest?;
    let is_too_much = stream.retention_bytes.is_some_and(|limit| total > limit);
    let is_too_old = stream
        .retention_age
        .is_some_and(|age| u128::from(now_us.saturating_sub(sealed_us)) > age.as_micros());
    (is_too_much || is_too_old).then_some(number)
}

/// Removes the files whose grace is over; the caller holds `work`.
pub(super) fn remove_due(stream: &Stream, now_ms: u64) -> Result<(), StoreError> {
    for partition in &stream.partitions {
        let (history, gone) = {
            let mut partition = lock(partition);
            let due = |(_, at_ms): &mut (String, u64)| *at_ms <= now_ms;
            let gone: Vec<String> = partition
                .to_remove
                .extract_if(.., due)
                .map(|(name, _)| name)
                .collect();
            (partition.history.clone(), gone)
        };
        if !gone.is_empty() {
            history.remove(&gone)?;
        }
    }
    Ok(())
}
