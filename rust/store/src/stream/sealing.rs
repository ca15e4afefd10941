//! Sealing: writes the tail into files, merges small files, and removes files by retention.

use std::ops::Range;

use arrow_array::RecordBatch;

use crate::error::StoreError;
use crate::record::Record;
use crate::stream::history::History;
use crate::stream::manifest::SealedFile;
use crate::stream::streams::{Stream, Streams, lock};
use crate::stream::tail::{ClosedBatch, Tail};
use crate::wal::batch::Batch;
use mqttcore_columnar::Aliases;

/// Files are merged whose rows lie within this part of the age that retention allows: a merged file is as old as its
/// youngest row, so its oldest ones stay for as much longer.
const MERGED_PART: u32 = 8;

/// Writes a batch of records and returns when it is safe; [`StoreError::NoSpace`] says that it was
/// not written.
pub(crate) type CommitFn<'c> = dyn FnMut(&mut Batch) -> Result<(), StoreError> + 'c;

/// What is to be sealed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum SealRequest {
    /// What has become old or large.
    Due {
        /// The time, in unix microseconds.
        now_us: u64,
        /// Size of the log.
        log_bytes: u64,
    },
    /// All rows of one stream.
    Stream(String),
    /// All rows.
    Everything,
}

impl Streams {
    /// Writes rows that are safe into files, says so in the log, and lets them go.
    ///
    /// # Errors
    ///
    /// Those of the file system and of `commit`. The rows are where they were then.
    pub(crate) fn seal(
        &self,
        wanted: &SealRequest,
        commit: &mut CommitFn<'_>,
    ) -> Result<(), StoreError> {
        let _work = self.lock_work();
        let is_pressed = match wanted {
            SealRequest::Due { log_bytes, .. } => {
                self.held_bytes() >= self.limits().tail_bytes
                    || *log_bytes >= self.limits().log_bytes
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

    fn is_due(&self, tail: &Tail, wanted: &SealRequest) -> bool {
        let SealRequest::Due { now_us, .. } = wanted else {
            return true;
        };
        let age = self.limits().tail_age.as_micros();
        let is_old = |oldest: u64| u128::from(now_us.saturating_sub(oldest)) >= age;
        tail.bytes() >= self.limits().partition_bytes || tail.oldest_us().is_some_and(is_old)
    }

    /// File, name, SEAL, index, memory: in this order, so that a crash between any two of them
    /// leaves the rows in at least one place, and counted once.
    fn seal_stream(
        &self,
        stream: &Stream,
        is_due: &dyn Fn(&Tail) -> bool,
        commit: &mut CommitFn<'_>,
    ) -> Result<(), StoreError> {
        // The last time may have ended between SEAL and index.
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
            // The log has not heard of them, and the next time they may be cut elsewhere. After any
            // other error nobody knows what it has: the files stay.
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

    /// Writes the rows of the partitions that are due; returns the files, each with its partition.
    fn write_due(
        &self,
        stream: &Stream,
        is_due: &dyn Fn(&Tail) -> bool,
        aliases: &mut Aliases,
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
        aliases: &mut Aliases,
    ) -> Result<SealedFile, StoreError> {
        let base = run.first().map_or(0, |first| first.base);
        let batches = typed(stream, run.iter().map(|frozen| &frozen.batch), aliases)?;
        let history = history_of(stream, number);
        let mut file = history.write(base, &batches, &stream.origin(), aliases)?;
        file.sealed_us = self.kept_us();
        self.count_file();
        Ok(file)
    }

    /// Says in the index which files there are, and lets go of the rows that are in them.
    fn let_go(&self, stream: &Stream) -> Result<(), StoreError> {
        let ends: Vec<(u16, u64)> = (0..)
            .zip(&stream.partitions)
            .filter_map(|(number, partition)| {
                let partition = lock(partition);
                let end = partition.history.end();
                (end > partition.tail.start()).then_some((number, end))
            })
            .collect();
        if ends.is_empty() {
            return Ok(());
        }
        stream.write_index()?;
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

    /// Merges small files that lie side by side, gives up what is too old or too much, and
    /// removes what was given up long enough ago. `now_us` is kept time.
    pub(crate) fn tidy(&self, now_us: u64) -> Result<(), StoreError> {
        let _work = self.lock_work();
        for stream in &self.list {
            for number in 0..stream.identity.partitions {
                self.merge(stream, number)?;
            }
            stream.shorten_holds(now_us / 1_000)?;
            retain(stream, now_us, self.limits().grace.as_millis())?;
            remove_doomed(stream, now_us / 1_000)?;
        }
        Ok(())
    }

    /// The merged file replaces the first of those that it is made of; the index stops naming the
    /// others before they go.
    fn merge(&self, stream: &Stream, number: u16) -> Result<(), StoreError> {
        let history = history_of(stream, number);
        let Some((range, told)) = mergeable(stream, &history)? else {
            return Ok(());
        };
        let (mut rows, mut begin) = (Vec::new(), Aliases::default());
        for (file, told) in history.files[range.clone()].iter().zip(told) {
            // Files of before a column was added get it now.
            rows.extend(typed(stream, &history.read(file, None)?, &told)?);
            begin.fill(told);
        }
        let base = history.files[range.start].base;
        let mut merged = history.write(base, &rows, &stream.origin(), &mut begin)?;
        merged.sealed_us = latest(&history.files[range.clone()]);
        self.count_file();
        let old: Vec<String> = history.files[range.clone()][1..]
            .iter()
            .map(|file| file.file.clone())
            .collect();
        lock(&stream.partitions[usize::from(number)])
            .history
            .files
            .splice(range, [merged]);
        stream.write_index()?;
        history.remove(&old)
    }

    fn count_file(&self) {
        // ORDERING: a counter.
        self.files
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The same rows with the typed columns of the stream; `aliases` are those known before them.
fn typed<'b>(
    stream: &Stream,
    batches: impl IntoIterator<Item = &'b RecordBatch>,
    aliases: &Aliases,
) -> Result<Vec<RecordBatch>, StoreError> {
    let batches = stream.typed.add(batches, aliases);
    batches.map_err(|error| stream.failed(&error))
}

/// Files to merge, by their places, and what each says of Sparkplug's aliases.
type ToMerge = (Range<usize>, Vec<Aliases>);

/// What is to be merged, if anything is. A file of a version that did not say it stays
/// as it is where columns depend on them: decoded again it would say less.
fn mergeable(stream: &Stream, history: &History) -> Result<Option<ToMerge>, StoreError> {
    let longest = stream.retention_age.map(|age| age / MERGED_PART);
    let mut first = 0;
    while let Some(range) = history.mergeable(first, longest) {
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

/// The files of a partition as they are now; only who holds `work` changes them.
fn history_of(stream: &Stream, number: u16) -> History {
    let partition = lock(&stream.partitions[usize::from(number)]);
    partition.history.clone()
}

/// Raises the first offset that may be read, where files are too old or too many; the files stay
/// for the grace, for those who have begun to read them.
fn retain(stream: &Stream, now_us: u64, grace_ms: u128) -> Result<(), StoreError> {
    let grace_ms = u64::try_from(grace_ms).unwrap_or(u64::MAX);
    let gone_ms = (now_us / 1_000).saturating_add(grace_ms);
    let mut is_changed = date(stream, now_us);
    while let Some(number) = surplus(stream, now_us) {
        let mut partition = lock(&stream.partitions[number]);
        let file = partition.history.files.remove(0);
        partition.history.earliest = file.last + 1;
        partition.doomed.push((file.file, gone_ms));
        is_changed = true;
    }
    if is_changed {
        stream.write_index()?;
    }
    Ok(())
}

/// Counts the age of files from now on whose age nobody knows, and of those that kept time, set back, has not reached:
/// late, never early. Returns whether there were any.
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

/// When the last of `files` was sealed; `None` if that is not known of each of them.
fn latest(files: &[SealedFile]) -> Option<u64> {
    let mut sealed = files.iter().map(|file| file.sealed_us);
    sealed.try_fold(0, |latest, sealed_us| Some(latest.max(sealed_us?)))
}

/// A partition whose first file goes next, by kept time and not by the time in its rows: that is the system's, which
/// steps (ADR 0022).
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

fn remove_doomed(stream: &Stream, now_ms: u64) -> Result<(), StoreError> {
    for partition in &stream.partitions {
        let (history, gone) = {
            let mut partition = lock(partition);
            let due = |(_, at_ms): &mut (String, u64)| *at_ms <= now_ms;
            let gone: Vec<String> = partition
                .doomed
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
