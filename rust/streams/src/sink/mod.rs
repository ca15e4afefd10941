//! The sink: publishes batches of rows as messages, all or none, exactly once.
//!
//! A task **stages** rows: they are checked and kept in a file, and no message yet. A **commit**
//! names the stages of a batch; from the moment that its note is safe in the log, every row of them
//! becomes a message. Rows are published in pieces, and each piece is one batch of the log together
//! with the note of how far it came: after a crash it goes on behind the last one, so that nothing is
//! lost and nothing comes twice. The number of a query's last batch stays, so that a repeat is none.

mod error;
mod held_bytes;
mod message;
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
pub use stage::Staging;

/// Queries whose last batch is remembered; beyond it the oldest is forgotten.
const QUERIES: usize = 10_000;

/// For how long a stage waits for its commit, in kept time (ADR 0022).
const STAGE_LASTS: Duration = Duration::from_secs(24 * 3_600);

/// How the key of a query's note begins.
const NOTE: &str = "sink/";

/// All that is staged, and what was committed last.
pub struct Sink {
    folder: PathBuf,
    broker: BrokerHandle,
    limits: Arc<ServerLimits>,
    queries: Mutex<BTreeMap<String, LastCommit>>,
    held: HeldTotal,
    /// One commit at a time.
    commit_lock: tokio::sync::Mutex<()>,
}

/// The last batch of a query that was committed; as JSON in a note of the log.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct LastCommit {
    batch: u64,
    /// Stages that are still to be published, in this order; empty when the batch is complete.
    stages: Vec<String>,
    /// Rows of it that are messages by now.
    rows: u64,
    /// When it was committed: kept time in unix seconds.
    at_s: u64,
    /// A topic filter: its retained messages that are not rows of the batch are still to be cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replacing: Option<String>,
}

impl LastCommit {
    /// Whether all of it is done.
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
    query: String,
    batch: u64,
    stage: String,
}

impl StageId {
    /// # Errors
    ///
    /// The name is not valid.
    pub fn new(query: &str, batch: u64, stage: &str) -> Result<Self, SinkError> {
        let is_name = |text: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
        };
        match [query, stage].into_iter().find(|text| !is_name(text)) {
            Some(text) => Err(SinkError::Name(text.to_owned())),
            None => Ok(Self {
                query: query.to_owned(),
                batch,
                stage: stage.to_owned(),
            }),
        }
    }

    fn file(&self) -> String {
        file_name(&self.query, self.batch, &self.stage)
    }
}

fn file_name(query: &str, batch: u64, stage: &str) -> String {
    format!("{query}.{batch}.{stage}.arrow")
}

impl Sink {
    /// Reads what the store noted about batches; their files are in `folder`.
    ///
    /// # Errors
    ///
    /// The store cannot be read, or the folder cannot be made.
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

    /// Bytes of memory that batches take which are being received, published or replaced.
    pub fn memory_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Begins to keep the rows of a stage.
    ///
    /// # Errors
    ///
    /// The disk is nearly full, or the batch was committed before.
    pub fn stage(self: &Arc<Self>, id: StageId) -> Result<Staging, SinkError> {
        self.check_room()?;
        let last = self.queries().get(&id.query).map(|last| last.batch);
        if last.is_some_and(|last| id.batch < last) {
            return Err(SinkError::Late(id.batch));
        }
        Staging::begin(Arc::clone(self), id)
    }

    /// Publishes what is staged; false if this batch, or a later one, was committed before.
    ///
    /// It is over when this returns: the messages are routed, and safe where they have to be. With
    /// `replacing`, the retained messages of these topics that are none of the batch are cleared.
    ///
    /// # Errors
    ///
    /// A stage that there is not: nothing is published then. Or the broker stops: what was committed
    /// is published when it is back.
    pub async fn commit(
        self: &Arc<Self>,
        query: String,
        batch: u64,
        stages: Vec<String>,
        replacing: Option<String>,
    ) -> Result<bool, SinkError> {
        let _committing = self.commit_lock.lock().await;
        if self.queries().contains_key(&query) {
            publish::finish(self, &query).await?;
        }
        let last = self.queries().get(&query).map(|last| last.batch);
        if last.is_some_and(|last| batch <= last) {
            return Ok(false);
        }
        if let Some(text) = &replacing {
            filter(text, &self.limits.topic)?;
        }
        let mut named = BTreeSet::new();
        for stage in &stages {
            let id = StageId::new(&query, batch, stage)?;
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
        };
        publish::note(self, &query, &last).await?;
        self.queries().insert(query.clone(), last);
        publish::finish(self, &query).await?;
        Ok(true)
    }

    /// Gives up what is staged; returns how many stages there were.
    ///
    /// # Errors
    ///
    /// The name is not valid, or a file cannot be removed.
    pub async fn abort(
        &self,
        query: &str,
        batch: u64,
        stages: &[String],
    ) -> Result<usize, SinkError> {
        let _committing = self.commit_lock.lock().await;
        let wanted = self.wanted();
        let mut removed = 0;
        for stage in stages {
            let file = StageId::new(query, batch, stage)?.file();
            if !wanted.contains(&file) {
                removed += usize::from(remove(&self.folder.join(file))?);
            }
        }
        Ok(removed)
    }

    /// Publishes what was committed before the broker died, and then looks, as long as the endpoint
    /// runs, for stages that nobody committed.
    pub async fn resume(self: Arc<Self>) {
        let committing = self.commit_lock.lock().await;
        let queries: Vec<String> = self.queries().keys().cloned().collect();
        for query in queries {
            // A stage that cannot be read stays; a commit of the same query reports the error.
            let _ = publish::finish(&self, &query).await;
        }
        drop(committing);
        loop {
            self.sweep(self.kept_time());
            tokio::time::sleep(Duration::from_secs(3_600)).await;
        }
    }

    /// Kept time, as the files of stages have it.
    fn kept_time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.now_ms())
    }

    /// Kept time in unix milliseconds.
    fn now_ms(&self) -> u64 {
        self.broker.kept_unix_ms(Instant::now())
    }

    /// Removes stages that are older than they may become.
    fn sweep(&self, now: SystemTime) {
        self.broker
            .unless_copied(|| sweep(&self.folder, &self.wanted(), now));
    }

    /// The files of batches that are committed and not yet published.
    fn wanted(&self) -> BTreeSet<String> {
        let queries = self.queries();
        let files = queries.iter().flat_map(|(query, last)| last.files(query));
        files.collect()
    }

    /// Makes room for one query more.
    async fn forget_the_oldest(&self) -> Result<(), SinkError> {
        let oldest = {
            let queries = self.queries();
            let over = queries.iter().filter(|(_, last)| last.is_over());
            let oldest = over.min_by_key(|(_, last)| last.at_s);
            let is_full = queries.len() >= QUERIES;
            oldest.map(|(query, _)| query.clone()).filter(|_| is_full)
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

/// Removes what is older than it may become by `now`, but for `wanted`. What is dated later is of another clock, or kept
/// time was set back: it is as old as if it was written now.
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

/// Whether there was such a file.
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

    /// Kept time is in 2006, the system's clock is right: a stage without a kept date begins to age.
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
