//! Reads of a stream: bounds, files, and the rows of the tail.

use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use arrow_array::RecordBatch;

use crate::files::File;
use crate::stream::error::StreamError;
use crate::stream::streams::{Partition, Stream, Streams, lock};
use crate::stream::tier::TierReport;
use mqttcore_columnar::{ColumnarError, MetricAliases, telling};

/// The offsets at which a partition begins and ends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Bounds {
    /// The earliest offset that may be read.
    pub earliest: u64,
    /// The first offset that is not in a file.
    pub sealed_end: u64,
    /// The offset after the last safe row.
    pub end: u64,
}

/// Description of a stream for readers.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Identifier of the store and a counter: in another epoch the same offsets are other rows.
    pub epoch: String,
    /// Seed of the hash that chooses the partition.
    pub seed: u64,
    /// Topic filters of the stream.
    pub filters: Vec<String>,
    /// Whether it takes messages: it is in the configuration.
    pub is_configured: bool,
    /// Typed columns as JSON; `null` if there are none.
    pub schema: String,
    /// Bounds of each partition.
    pub partitions: Vec<Bounds>,
    /// Its object storage, if it is configured.
    pub tier: Option<TierReport>,
}

/// The object of a sealed file.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its name, which no other object ever has.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its content; reads block until the store answers.
    pub file: Arc<dyn File>,
}

impl Streams {
    /// Bounds of every partition, all at the same LSN (rule 11): if a message is a row in two partitions, or messages
    /// became safe together, their rows are all before these ends or all after them.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`].
    pub fn bounds(&self, name: &str) -> Result<Vec<Bounds>, StreamError> {
        let stream = self.stream(name)?;
        let partitions = settled(stream, || self.safe_lsn());
        Ok(partitions.iter().map(|each| each.bounds()).collect())
    }

    /// Describes a stream.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`].
    pub fn describe(&self, name: &str) -> Result<Description, StreamError> {
        let stream = self.stream(name)?;
        let schema = serde_json::to_string(&stream.identity.schema);
        Ok(Description {
            name: name.to_owned(),
            epoch: stream.origin().epoch,
            seed: stream.seed,
            filters: stream.identity.filters.clone(),
            is_configured: stream.is_configured,
            // INVARIANT: all keys are strings.
            schema: schema.expect("columns are texts"),
            partitions: self.bounds(name)?,
            tier: stream.tier_report(),
        })
    }

    /// The file index, in the form of `sealed.json`: files and their rows.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`].
    pub fn sealed(&self, name: &str) -> Result<String, StreamError> {
        let sealed = serde_json::to_string(&self.stream(name)?.sealed());
        // INVARIANT: all keys are strings.
        Ok(sealed.expect("a value of texts, numbers and lists"))
    }

    /// Batches with exactly the rows `from..to` of a partition, from memory.
    ///
    /// # Errors
    ///
    /// [`StreamError::Sealed`] if some rows are in files, [`StreamError::Gone`], [`StreamError::Beyond`],
    /// [`StreamError::Missing`], and errors for invalid arguments.
    pub fn tail(
        &self,
        name: &str,
        partition: u16,
        from: u64,
        to: u64,
    ) -> Result<Vec<RecordBatch>, StreamError> {
        let found = self.stream(name)?;
        let wanted = MemoryRange {
            stream: name,
            partition,
            rows: from..to,
        };
        wanted.check(found.identity.partitions)?;
        let known = lock(&found.aliases);
        let mut held = self.partition(found, partition);
        wanted.check_tier(held.bounds())?;
        let read = held.tail.read(from..to);
        let read = read.map_err(|missing| wanted.missing(missing))?;
        // If rows before `from` are missing, their aliases are missing, too.
        let start = held.tail.start();
        let before = held.tail.read(start..from).unwrap_or_default();
        let aliases = known.now.clone();
        drop(held);
        drop(known);
        let told = describe(&before, read, aliases);
        told.map_err(|error| StreamError::Store(found.failed(&error)))
    }

    /// For each partition, the first offset with a time of at least `timestamp_us` (Unix microseconds), or its end if
    /// there is none.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`], and errors of reading a file.
    pub fn offsets_at(&self, name: &str, timestamp_us: i64) -> Result<Vec<u64>, StreamError> {
        let stream = self.stream(name)?;
        let at = |number| self.offset_at(stream, number, timestamp_us);
        (0..stream.identity.partitions).map(at).collect()
    }

    fn offset_at(
        &self,
        stream: &Stream,
        number: u16,
        timestamp_us: i64,
    ) -> Result<u64, StreamError> {
        let work = self.lock_work();
        let mut rows = self.partition(stream, number);
        let earliest = rows.history.earliest;
        let Some(file) = rows.history.file_at(timestamp_us).cloned() else {
            let end = rows.tail.visible();
            let found = rows.tail.at(timestamp_us);
            return Ok(found.map_or(end, |offset| offset.max(earliest)));
        };
        let history = rows.history.clone();
        drop(rows);
        // A merge replaces a file here; nobody who seals waits for an object.
        let _work = (!file.is_remote).then_some(work);
        Ok(history.at(&file, timestamp_us)?.max(earliest))
    }

    /// Opens the object of the file `file` of a stream, if it has one.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`]; [`StreamError::Remote`] if there is only the object, and it cannot be read.
    pub fn object(&self, name: &str, file: &str) -> Result<Option<Object>, StreamError> {
        let stream = self.stream(name)?;
        let found = stream.partitions.iter().find_map(|partition| {
            let partition = lock(partition);
            let mut files = partition.history.files.iter();
            let found = files.find(|known| known.file == file && known.object.is_some());
            found.cloned()
        });
        let Some(tier) = &stream.tier else {
            let remote = found.filter(|found| found.is_remote);
            return remote.map_or(Ok(None), |found| {
                Err(StreamError::Remote {
                    stream: name.to_owned(),
                    file: found.file,
                    url: stream.tier_url.clone().unwrap_or_default(),
                })
            });
        };
        let opened = found.and_then(|found| {
            let file = tier.open(&found).ok()?;
            let (name, bytes) = (found.object?, found.bytes);
            Some(Object { name, bytes, file })
        });
        Ok(opened)
    }
}

/// A requested range of rows in memory.
struct MemoryRange<'a> {
    stream: &'a str,
    partition: u16,
    rows: Range<u64>,
}

impl MemoryRange<'_> {
    /// Rejects an invalid range and a partition that does not exist.
    fn check(&self, partitions: u16) -> Result<(), StreamError> {
        let stream = self.stream.to_owned();
        let (partition, Range { start, end }) = (self.partition, &self.rows);
        if start > end {
            let problem = format!("offsets {start} to {end} are not a range");
            return Err(StreamError::Argument { stream, problem });
        }
        if partition >= partitions {
            return Err(StreamError::Partition {
                stream,
                partition,
                partitions,
            });
        }
        Ok(())
    }

    /// Rejects rows that are not safe yet, that are deleted, or that are in files.
    fn check_tier(&self, bounds: Bounds) -> Result<(), StreamError> {
        let (from, to) = (self.rows.start, self.rows.end);
        let (stream, partition) = (self.stream.to_owned(), self.partition);
        let Bounds {
            earliest,
            sealed_end,
            end,
        } = bounds;
        if to > end {
            return Err(StreamError::Beyond {
                stream,
                partition,
                end,
                to,
            });
        }
        if from < earliest.min(to) {
            return Err(StreamError::Gone {
                stream,
                partition,
                from,
                to: to.min(earliest),
                earliest,
            });
        }
        if from < sealed_end.min(to) {
            return Err(StreamError::Sealed {
                stream,
                partition,
                from,
                to: to.min(sealed_end),
            });
        }
        Ok(())
    }

    /// The error for rows that are neither in memory nor in files.
    fn missing(&self, Range { start, end }: Range<u64>) -> StreamError {
        StreamError::Missing {
            stream: self.stream.to_owned(),
            partition: self.partition,
            from: start,
            to: end,
        }
    }
}

impl Partition {
    fn bounds(&self) -> Bounds {
        Bounds {
            earliest: self.history.earliest,
            sealed_end: self.tail.start(),
            end: self.tail.visible(),
        }
    }
}

/// Locks all partitions of a stream and then reads `safe_lsn`, so that all of them show the same LSN.
fn settled(stream: &Stream, safe_lsn: impl FnOnce() -> u64) -> Vec<MutexGuard<'_, Partition>> {
    let mut partitions: Vec<_> = stream.partitions.iter().map(lock).collect();
    let safe_lsn = safe_lsn();
    for partition in &mut partitions {
        partition.tail.mark_safe(safe_lsn);
    }
    partitions
}

/// Adds to the batches the Sparkplug aliases that their rows need: `aliases` and those of the rows in `before`.
fn describe(
    before: &[RecordBatch],
    batches: Vec<RecordBatch>,
    mut aliases: MetricAliases,
) -> Result<Vec<RecordBatch>, ColumnarError> {
    for batch in before {
        aliases.follow(batch)?;
    }
    telling(batches, aliases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{Disk, Faults};
    use crate::files::Files;
    use crate::stream::{Definition, StreamOptions};
    use crate::{SimulatedStore, StoreOptions, WalOptions};
    use mqttcore_columnar::Row;

    /// A stream of two partitions without a row.
    fn open() -> SimulatedStore {
        let files: Arc<dyn Files> = Arc::new(Disk::new(1, Faults::default()));
        let wal = WalOptions {
            segment_bytes: 64 << 10,
            ballast_bytes: 0,
            ..WalOptions::default()
        };
        let options = StoreOptions {
            wal,
            ..StoreOptions::default()
        };
        let definitions = vec![Definition {
            name: "plant".to_owned(),
            partitions: 2,
            ..Definition::default()
        }];
        let streams = StreamOptions {
            definitions,
            ..StreamOptions::default()
        };
        SimulatedStore::open_with(&files, &options, &streams)
            .unwrap()
            .0
    }

    #[test]
    fn rule_11_ends_are_of_one_moment_of_the_log() {
        let streams = open().streams().unwrap();
        let stream = streams.stream("plant").unwrap();
        for partition in &stream.partitions {
            let mut partition = lock(partition);
            for (offset, lsn) in [(0, 10), (1, 20)] {
                partition.tail.push(offset, &Row::default()).unwrap();
                partition.tail.mark(lsn);
            }
        }
        let ends = |safe_lsn| {
            let partitions = settled(stream, || {
                let is_held = |each: &std::sync::Mutex<_>| each.try_lock().is_err();
                assert!(stream.partitions.iter().all(is_held));
                safe_lsn
            });
            partitions
                .iter()
                .map(|each| each.bounds().end)
                .collect::<Vec<_>>()
        };

        assert_eq!(ends(19), [1, 1]);
        assert_eq!(ends(20), [2, 2]);
    }

    #[test]
    fn nobody_who_asks_for_lags_waits_for_holds_that_are_being_written() {
        let streams = open().streams().unwrap();
        streams.hold("plant", "spark", &[0, 0]).unwrap();
        let writing = lock(&streams.stream("plant").unwrap().holds);

        assert_eq!(streams.hold_lags(), []);
        drop(writing);
        assert_eq!(streams.hold_lags().len(), 1);
    }
}
