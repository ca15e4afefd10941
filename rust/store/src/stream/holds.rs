//! Holds: offsets from which consumers still need rows; retention keeps these rows.

use std::sync::TryLockError;
use std::time::Duration;

use crate::error::StoreError;
use crate::stream::error::StreamError;
use crate::stream::manifest::{self, HOLDS, Hold, Holds};
use crate::stream::reads::Bounds;
use crate::stream::streams::{Stream, Streams, lock};

/// Holds of a stream and the time at which they were last written.
#[derive(Debug, Default)]
pub(super) struct HoldTable {
    pub(super) holds: Holds,
    written_ms: u64,
}

/// Default lifetime of a hold that is not renewed.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Minimum interval between writes if holds only advance.
const HOLDS_WRITTEN_MS: u64 = 10_000;

/// Maximum number of consumers of one owner in a stream.
const CONSUMERS_MAX: usize = 256;

/// How far a consumer is behind.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct HoldLag {
    /// Name of the stream.
    pub stream: String,
    /// Name of the consumer.
    pub consumer: String,
    /// The offset of its hold in each partition.
    pub offsets: Vec<u64>,
    /// Rows from its hold to the end of the stream, in all partitions.
    pub rows: u64,
}

impl Streams {
    /// How far each consumer with a hold is behind, by stream and consumer. It never waits for the disk: a stream whose holds
    /// are being written now is left out.
    pub fn hold_lags(&self) -> Vec<HoldLag> {
        let now_ms = self.kept_us().unwrap_or_default() / 1_000;
        self.names()
            .into_iter()
            .filter_map(|name| Some((self.stream(name).ok()?, self.bounds(name).ok()?)))
            .flat_map(|(stream, bounds)| stream.hold_lags(&bounds, now_ms))
            .collect()
    }

    /// Sets the hold of `consumer`: rows from `offsets` on, one offset for each partition, are retained. It replaces
    /// the consumer's earlier hold and expires if it is not renewed within the time in the stream's definition.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`], [`StreamError::Argument`] for offsets that do not exist, and errors of the file
    /// system.
    pub fn hold(&self, name: &str, consumer: &str, offsets: &[u64]) -> Result<(), StreamError> {
        self.place_hold(name, consumer, offsets, None)
    }

    /// Like [`hold`](Self::hold), for a consumer whose name is `owner`, a colon, a space and `consumer`. An owner has
    /// at most 256 consumers in a stream.
    ///
    /// # Errors
    ///
    /// Those of [`hold`](Self::hold), and [`StreamError::Consumers`].
    pub fn hold_of_owner(
        &self,
        name: &str,
        owner: &str,
        consumer: &str,
        offsets: &[u64],
    ) -> Result<(), StreamError> {
        let start = format!("{owner}: ");
        self.place_hold(name, &format!("{start}{consumer}"), offsets, Some(&start))
    }

    /// Sets a hold; `owned` is the beginning of the names of its owner's consumers, if their number is limited.
    fn place_hold(
        &self,
        name: &str,
        consumer: &str,
        offsets: &[u64],
        owned: Option<&str>,
    ) -> Result<(), StreamError> {
        let stream = self.stream(name)?;
        let bounds = self.bounds(name)?;
        let fits = bounds
            .iter()
            .zip(offsets)
            .all(|(bounds, offset)| *offset <= bounds.end);
        if bounds.len() != offsets.len() || !fits || consumer.is_empty() {
            let problem = format!("it has no offsets {offsets:?} to hold for {consumer:?}");
            let stream = name.to_owned();
            return Err(StreamError::Argument { stream, problem });
        }
        let kept_ms = self.kept_us().map(|now_us| now_us / 1_000);
        let now_ms = kept_ms.unwrap_or_default();
        let hold = Hold {
            offsets: offsets.to_owned(),
            // Without a clock it does not expire; `Stream::shorten_holds` sets its expiry later.
            until_ms: kept_ms.map_or(u64::MAX, |now_ms| stream.hold_ends_ms(now_ms)),
        };
        let mut kept = lock(&stream.holds);
        if owned.is_some_and(|start| kept.others(start, consumer, now_ms) >= CONSUMERS_MAX) {
            return Err(StreamError::Consumers {
                stream: name.to_owned(),
                most: CONSUMERS_MAX,
            });
        }
        let is_new = kept.holds.insert(consumer.to_owned(), hold).is_none();
        if is_new || now_ms.saturating_sub(kept.written_ms) >= HOLDS_WRITTEN_MS {
            kept.write(stream, now_ms)?;
        }
        Ok(())
    }

    /// Removes the hold of `consumer`; returns false if it has none.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`], and errors of the file system.
    pub fn release(&self, name: &str, consumer: &str) -> Result<bool, StreamError> {
        let stream = self.stream(name)?;
        let mut kept = lock(&stream.holds);
        let is_held = kept.holds.remove(consumer).is_some();
        if is_held {
            let now_ms = self.kept_us().unwrap_or_default() / 1_000;
            kept.write(stream, now_ms)?;
        }
        Ok(is_held)
    }
}

impl Stream {
    fn hold_lags(&self, bounds: &[Bounds], now_ms: u64) -> Vec<HoldLag> {
        let kept = match self.holds.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(kept)) => kept.into_inner(),
            Err(TryLockError::WouldBlock) => return Vec::new(),
        };
        let holds = kept.holds.iter();
        let valid = holds.filter(|(_, hold)| hold.until_ms > now_ms);
        valid
            .map(|(consumer, hold)| {
                let partitions = bounds.iter().zip(&hold.offsets);
                let lags = partitions.map(|(bounds, offset)| bounds.end.saturating_sub(*offset));
                HoldLag {
                    stream: self.identity.name.clone(),
                    consumer: consumer.clone(),
                    rows: lags.sum(),
                    offsets: hold.offsets.clone(),
                }
            })
            .collect()
    }

    /// Expiry of a hold that is renewed at `now_ms`.
    fn hold_ends_ms(&self, now_ms: u64) -> u64 {
        let hold_ms = u64::try_from(self.hold_max.as_millis()).unwrap_or(u64::MAX);
        now_ms.saturating_add(hold_ms)
    }

    /// Limits every hold to the lifetime of one that is renewed now: kept time may have been set back.
    pub(super) fn shorten_holds(&self, now_ms: u64) -> Result<(), StoreError> {
        let latest_ms = self.hold_ends_ms(now_ms);
        let mut kept = lock(&self.holds);
        let mut is_changed = false;
        for hold in kept.holds.values_mut() {
            is_changed |= hold.until_ms > latest_ms;
            hold.until_ms = hold.until_ms.min(latest_ms);
        }
        if is_changed {
            kept.write(self, now_ms)?;
        }
        Ok(())
    }
}

impl HoldTable {
    pub(super) fn new(holds: Holds) -> Self {
        Self {
            holds,
            written_ms: 0,
        }
    }

    /// Number of consumers whose names begin with `start`, without `consumer`.
    fn others(&self, start: &str, consumer: &str, now_ms: u64) -> usize {
        self.holds
            .range(start.to_owned()..)
            .take_while(|(name, _)| name.starts_with(start))
            .filter(|(name, hold)| name.as_str() != consumer && hold.until_ms > now_ms)
            .count()
    }

    fn write(&mut self, stream: &Stream, now_ms: u64) -> Result<(), StoreError> {
        self.holds.retain(|_, hold| hold.until_ms > now_ms);
        self.written_ms = now_ms;
        manifest::write(&*stream.folder, HOLDS, &self.holds)
    }

    /// The lowest held offset of a partition.
    pub(super) fn floor(&self, partition: usize, now_ms: u64) -> u64 {
        let holds = self.holds.values().filter(|hold| hold.until_ms > now_ms);
        let floors = holds.filter_map(|hold| hold.offsets.get(partition).copied());
        floors.min().unwrap_or(u64::MAX)
    }
}
