//! The sink: publishes batches of rows as messages, all or none, exactly once.
//!
//! A Spark task **stages** rows: the sink validates them and stores them in a file, but publishes nothing. A **commit**
//! names the stages of a batch. As soon as the record of the commit is safe in the log, all rows of these stages will
//! be published. The sink publishes them in chunks; each chunk is one batch of the log and contains the number of rows
//! published so far. After a crash the sink continues with the next chunk, so that no row is lost or published twice.
//! The log keeps the number of each query's last batch: a repeated commit publishes nothing.

mod error;
mod held_bytes;
mod message;
mod name;
mod publish;
mod replace;
mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mqttcore_broker::BrokerHandle;
use mqttcore_session::ServerLimits;
use mqttcore_store::StoreError;
use mqttcore_topics::{TopicFilter, TopicLimits};
use serde::{Deserialize, Serialize};

pub use error::SinkError;
use held_bytes::HeldTotal;
pub use name::QueryName;
use name::{check_name, evicted, file_name, last_commit};
pub use stage::Staging;

/// Maximum number of queries whose last batch is stored; a new query evicts an old one.
const QUERIES: usize = 10_000;

/// Time after which a stage without a commit is removed, in kept time (ADR 0022).
const STAGE_LASTS: Duration = Duration::from_secs(24 * 3_600);

/// Prefix of the key under which the log stores a query's last batch.
const NOTE: &str = "sink/";

/// The stages, and the last commit of each query.
pub struct Sink {
    folder: PathBuf,
    broker: BrokerHandle,
    limits: Arc<ServerLimits>,
    queries: Mutex<BTreeMap<String, LastCommit>>,
    held: HeldTotal,
    /// One commit at a time.
    commit_lock: tokio::sync::Mutex<()>,
}

/// The last committed batch of a query, stored as JSON in the log.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct LastCommit {
    batch: u64,
    /// Stages to publish, in order; empty once the batch is published.
    stages: Vec<String>,
    /// Number of rows that are published.
    rows: u64,
    /// Time of the commit: kept time in unix seconds.
    at_s: u64,
    /// Topic filter of the retained messages to clear, except for those of the batch; `None` once they are cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replacing: Option<String>,
    /// False if an earlier version wrote it, without an owner in the query's name.
    #[serde(default)]
    has_owner: bool,
}

impl LastCommit {
    /// Whether the batch is published and no retained message is left to clear.
    fn is_over(&self) -> bool {
        self.stages.is_empty() && self.replacing.is_none()
    }

    /// The files of its stages.
    fn files<'a>(&'a self, query: &'a str) -> impl Iterator<Item = String> + 'a {
        let file = |stage: &String| file_name(query, self.batch, stage);
        self.stages.iter().map(file)
    }
}

/// One stage of a batch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StageId {
    query: QueryName,
    batch: u64,
    stage: String,
}

impl StageId {
    /// # Errors
    ///
    /// The name is not valid.
    pub fn new(query: QueryName, batch: u64, stage: &str) -> Result<Self, SinkError> {
        check_name(stage)?;
        Ok(Self {
            query,
            batch,
            stage: stage.to_owned(),
        })
    }

    fn file(&self) -> String {
        file_name(self.query.as_str(), self.batch, &self.stage)
    }
}

impl Sink {
    /// Reads the last batches from the store; the files of their stages are in `folder`.
    ///
    /// # Errors
    ///
    /// The store cannot be read, or the folder cannot be created.
    pub fn open(
        folder: PathBuf,
        broker: &BrokerHandle,
        limits: &Arc<ServerLimits>,
    ) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Io {
            doing: "make the folder",
            file: folder.display().to_string(),
            source: Arc::new(source),
        };
        fs::create_dir_all(&folder).map_err(failed)?;
        let mut queries = BTreeMap::new();
        broker.notes(&mut |key, value| {
            let query = key.strip_prefix(NOTE);
            // INVARIANT: written by `LastCommit::note`.
            let last = || serde_json::from_slice(value).expect("a note of this sink");
            queries.extend(query.map(|query| (query.to_owned(), last())));
        })?;
        Ok(Self {
            folder,
            broker: broker.clone(),
            limits: Arc::clone(limits),
            queries: Mutex::new(queries),
            held: HeldTotal::default(),
            commit_lock: tokio::sync::Mutex::default(),
        })
    }

    /// Bytes of memory of batches that are being received, published or compared with retained messages.
    pub fn memory_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Opens a stage for writing.
    ///
    /// # Errors
    ///
    /// The disk is nearly full, or the batch was committed before.
    pub fn stage(self: &Arc<Self>, id: StageId) -> Result<Staging, SinkError> {
        self.check_room()?;
        let last = self.last_batch(&id.query);
        if last.is_some_and(|last| id.batch < last) {
            return Err(SinkError::Late(id.batch));
        }
        Staging::begin(Arc::clone(self), id)
    }

    /// Publishes the stages of a batch; returns false if this batch, or a later one, was committed before.
    ///
    /// When this returns, the messages are routed, and safe as far as their durability asks for it. With `replacing`,
    /// retained messages that this filter matches are cleared unless the batch contains them.
    ///
    /// # Errors
    ///
    /// A name of a stage is not valid, or a stage does not exist: nothing is published. Or the broker is stopping: it publishes the
    /// batch after its next start.
    pub async fn commit(
        self: &Arc<Self>,
        query: QueryName,
        batch: u64,
        stages: Vec<String>,
        replacing: Option<String>,
    ) -> Result<bool, SinkError> {
        let _committing = self.commit_lock.lock().await;
        publish::finish(self, query.as_str()).await?;
        let last = self.last_batch(&query);
        if last.is_some_and(|last| batch <= last) {
            return Ok(false);
        }
        if let Some(text) = &replacing {
            filter(text, &self.limits.topic)?;
        }
        let mut named = BTreeSet::new();
        for stage in &stages {
            let id = StageId::new(query.clone(), batch, stage)?;
            if !named.insert(stage) || !self.folder.join(id.file()).is_file() {
                return Err(SinkError::Stage(stage.clone()));
            }
        }
        self.check_room()?;
        self.forget_the_oldest().await?;
        let last = LastCommit {
            batch,
            stages,
            rows: 0,
            at_s: self.now_ms() / 1_000,
            replacing,
            has_owner: true,
        };
        publish::write_note(self, query.as_str(), &last).await?;
        self.queries().insert(query.as_str().to_owned(), last);
        publish::finish(self, query.as_str()).await?;
        Ok(true)
    }

    /// Removes the stages of a batch; returns their number.
    ///
    /// # Errors
    ///
    /// A name of a stage is not valid, or a file cannot be removed.
    pub async fn abort(
        &self,
        query: &QueryName,
        batch: u64,
        stages: &[String],
    ) -> Result<usize, SinkError> {
        let _committing = self.commit_lock.lock().await;
        let wanted = self.wanted();
        let mut removed = 0;
        for stage in stages {
            let file = StageId::new(query.clone(), batch, stage)?.file();
            if !wanted.contains(&file) {
                removed += usize::from(remove(&self.folder.join(file))?);
            }
        }
        Ok(removed)
    }

    /// Publishes batches that were committed before the broker stopped. Then, as long as the endpoint runs, removes
    /// expired stages.
    pub async fn resume(self: Arc<Self>) {
        let committing = self.commit_lock.lock().await;
        let queries: Vec<String> = self.queries().keys().cloned().collect();
        for query in queries {
            // If a stage cannot be read, it stays; the next commit of the query reports the error.
            let _ = publish::finish(&self, &query).await;
        }
        drop(committing);
        loop {
            self.sweep(self.kept_time());
            tokio::time::sleep(Duration::from_secs(3_600)).await;
        }
    }

    /// Kept time, which dates the files of stages.
    fn kept_time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.now_ms())
    }

    /// Kept time in unix milliseconds.
    fn now_ms(&self) -> u64 {
        self.broker.kept_unix_ms(Instant::now())
    }

    /// Removes expired stages.
    fn sweep(&self, now: SystemTime) {
        self.broker
            .unless_copied(|| sweep(&self.folder, &self.wanted(), now));
    }

    /// The files of batches that are committed and not completely published.
    fn wanted(&self) -> BTreeSet<String> {
        let queries = self.queries();
        let files = queries.iter().flat_map(|(query, last)| last.files(query));
        files.collect()
    }

    /// Number of the last committed batch of a query.
    fn last_batch(&self, query: &QueryName) -> Option<u64> {
        last_commit(&self.queries(), query).map(|last| last.batch)
    }

    /// Evicts an old query if the limit is reached.
    async fn forget_the_oldest(&self) -> Result<(), SinkError> {
        let oldest = {
            let queries = self.queries();
            (queries.len() >= QUERIES)
                .then(|| evicted(&queries))
                .flatten()
        };
        if let Some(query) = oldest {
            publish::forget(self, &query).await?;
            self.queries().remove(&query);
        }
        Ok(())
    }

    fn check_room(&self) -> Result<(), SinkError> {
        if self.broker.has_room() {
            Ok(())
        } else {
            Err(SinkError::Full)
        }
    }

    fn queries(&self) -> MutexGuard<'_, BTreeMap<String, LastCommit>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn filter(text: &str, limits: &TopicLimits) -> Result<TopicFilter, SinkError> {
    let parsed = TopicFilter::parse(text, limits);
    parsed.map_err(|error| SinkError::Filter {
        text: text.to_owned(),
        problem: error.to_string(),
    })
}

/// Removes files that are expired at `now`, except for `wanted`. A file with a date after `now` was dated by another
/// clock, or kept time was set back: it gets the date `now`.
fn sweep(folder: &Path, wanted: &BTreeSet<String>, now: SystemTime) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_wanted = name.to_str().is_some_and(|name| wanted.contains(name));
        let dated = entry.metadata().and_then(|metadata| metadata.modified());
        // A failure is retried in an hour.
        let _ = match dated.map(|dated| now.duration_since(dated)) {
            Ok(Err(_)) => fs::File::options()
                .write(true)
                .open(entry.path())
                .and_then(|file| file.set_modified(now)),
            Ok(Ok(age)) if !is_wanted && age > STAGE_LASTS => fs::remove_file(entry.path()),
            _ => Ok(()),
        };
    }
}

/// Removes a file; returns whether it existed.
fn remove(path: &Path) -> Result<bool, SinkError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3_600);

    fn left(folder: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .map(|name| name.into_string().expect("text"))
            .collect()
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Kept time is in 2006 and the system's clock is right: a stage that the system's clock dated begins to age.
    #[test]
    fn a_stage_goes_after_a_day_of_kept_time_whatever_the_system_says() {
        let folder = std::env::temp_dir().join(format!("mqttcore-sweep-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let now = UNIX_EPOCH + 36 * 365 * DAY;
        let dates = [
            ("old", Some(now - DAY - Duration::from_secs(1))),
            ("committed", Some(now - 2 * DAY)),
            ("young", Some(now - DAY)),
            ("system", None),
        ];
        for (name, dated) in dates {
            let file = fs::File::create(folder.join(name)).expect("a file");
            if let Some(dated) = dated {
                file.set_modified(dated).expect("dated");
            }
        }
        let wanted = set(&["committed"]);

        sweep(&folder, &wanted, now);
        assert_eq!(left(&folder), set(&["committed", "system", "young"]));
        sweep(&folder, &wanted, now + DAY);
        assert_eq!(left(&folder), set(&["committed", "system"]));
        sweep(&folder, &wanted, now + DAY + Duration::from_secs(1));
        assert_eq!(left(&folder), wanted);

        fs::remove_dir_all(&folder).expect("removed");
    }
}
