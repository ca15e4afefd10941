//! The state that all shards share, and the messages and jobs between shards.

use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use mqttcore_panics::Panicked;
use mqttcore_session::Message;
use mqttcore_store::{Durability, StoreError};
use mqttcore_topics::{Directory, RetainedStore};
use tokio::sync::{Barrier, Notify, Semaphore, watch};

use crate::clients::bans::Bans;
use crate::clients::client::{Client, KeptWill};
use crate::clients::connections::Connections;
use crate::clients::durable::DurableSessions;
use crate::clients::failed_logins::FailedLogins;
use crate::clients::invalidations::{Invalidations, RENEWALS};
use crate::clients::presence::AvailabilityTable;
use crate::clients::retained;
use crate::clients::shares::{Owners, Shares};
use crate::clients::sources::Sources;
use crate::clients::target::Target;
use crate::clients::traces::Traces;
use crate::config::Config;
use crate::config::hooks::{Hooks, LogLevel, LogLine};
use crate::durability::ack_queue::Awaited;
use crate::durability::audit::{AuditEntry, AuditLog};
use crate::durability::loading::Loading;
use crate::durability::outcomes::RecordOutcomes;
use crate::durability::row_log::RowLog;
use crate::durability::store;
use crate::runtime::failure::{BrokerFailure, FailureCell};
use crate::runtime::last_turns::LastTurns;
use crate::runtime::log::LatestLines;
use crate::runtime::mailbox::Mailbox;
use crate::runtime::memory::Memory;
use crate::runtime::memory_limit::memory_budget;
use crate::runtime::metrics::{Figures, Metrics};
use crate::runtime::tls_servers::TlsServers;
use crate::shard::{Shard, guard};

/// Sessions whose deliver hooks are asked at the same time.
const DECIDING: usize = 512;

/// Number of locks of retained topics.
const RETAINED_LOCKS: usize = 64;
/// Walks through all retained messages that go on at the same time.
pub(crate) const RETAINED_WALKS: usize = 2;

/// The state that all shards share.
pub(crate) struct EngineState {
    pub(crate) directory: Directory,
    pub(crate) retained: RetainedStore<retained::RetainedMessage>,
    /// The publishers of retained messages.
    pub(crate) sources: Sources,
    /// Retained topic locks: each for a part of all topics.
    pub(crate) retained_locks: [Mutex<()>; RETAINED_LOCKS],
    pub(crate) metrics: Vec<Metrics>,
    /// Names of the bound listeners, as they were at the start.
    pub(crate) listeners: Box<[Arc<str>]>,
    /// Names of the metrics of topics, as they were at the start.
    pub(crate) topic_metrics: Box<[Arc<str>]>,
    /// The budget of memory.
    pub(crate) memory: Memory,
    pub(crate) availability: AvailabilityTable,
    pub(crate) durable: DurableSessions,
    /// The store, if there is one.
    pub(crate) log: Option<Arc<store::DurableLog>>,
    /// The audit log, if there is a data folder.
    pub(crate) audit: Option<AuditLog>,
    /// The failure that stops the broker, if there is one.
    pub(crate) failing: FailureCell,
    /// The streams of rows, if there are any.
    pub(crate) rows: Option<Arc<dyn RowLog>>,
    /// Outcomes of records of the external log, if there is one.
    pub(crate) external: Option<RecordOutcomes>,
    /// State of loading sessions.
    pub(crate) loading: Loading,
    /// Topics among `retained` whose message is the broker's own.
    pub(crate) own_retained: AtomicUsize,
    /// Turns of walks of services through all of `retained`.
    pub(crate) retained_walks: Arc<Semaphore>,
    /// All connections, whatever their state; for the limits.
    pub(crate) connections: Arc<Connections>,
    pub(crate) failed_logins: FailedLogins,
    pub(crate) bans: Bans,
    pub(crate) invalidations: Invalidations,
    /// Turns of questions about deliveries: fewer than the queue of a plugin takes.
    pub(crate) deciding: Semaphore,
    /// The turn of a trial of `authorize` hooks: there is one at a time, so that questions of clients find a place.
    pub(crate) trials: Arc<Semaphore>,
    /// Turns of renewals of rights.
    pub(crate) renewals: Semaphore,
    /// Number of tasks of all shards that renew rights.
    pub(crate) renewal_tasks: watch::Sender<usize>,
    pub(crate) owners: Owners,
    /// Sessions that do not end with their connection.
    pub(crate) session_shares: Shares,
    /// Sessions that outlive their connection, without those that are still to be loaded.
    pub(crate) kept_sessions: AtomicU64,
    /// Retained messages.
    pub(crate) retained_shares: Shares,
    /// The TLS servers, for their certificates.
    pub(crate) tls_servers: TlsServers,
    /// Reports of degraded plugins.
    degraded_plugins: Mutex<Vec<String>>,
    /// The plugins in force, for their figures.
    plugins: Mutex<Option<Arc<dyn Hooks>>>,
    /// The configuration in force, for questions of services: no shard has to answer them.
    config: Mutex<Arc<Config>>,
    pub(crate) started: Instant,
    /// Figures of the services beside the shards.
    pub(crate) figures: Vec<Arc<dyn Figures>>,
    /// When each shard ran its timers last.
    pub(crate) last_turns: LastTurns,
    /// For each bound listener: whether it refuses new connections, because an operator wants so.
    pub(crate) paused: Vec<AtomicBool>,
    /// All listeners accept connections.
    pub(crate) is_listening: AtomicBool,
    pub(crate) stopping: AtomicBool,
    records_events: AtomicBool,
    /// The latest lines of the log, from the same time on.
    pub(crate) latest_lines: Arc<LatestLines>,
    pub(crate) traces: Traces,
    /// Bytes of the deliveries that wait for readers of watches.
    pub(crate) watched_bytes: Arc<AtomicUsize>,
    /// At a stop, shards wait here until all have sent their clients' wills.
    pub(crate) wills_sent: Barrier,
    /// `[to][from]`: messages between shards.
    pub(super) mailboxes: Vec<Vec<Mailbox<ShardMessage>>>,
    /// Jobs from other threads, for each shard.
    pub(super) jobs: Vec<Mutex<Vec<Job>>>,
    pub(super) wakers: Vec<Notify>,
    /// The first ticket that each shard waits for.
    pub(crate) awaited: Vec<Arc<Awaited>>,
    pub(super) seed: RandomState,
    pub(super) serial: AtomicU64,
}

/// The store, streams, external log and figures that an engine state is made of.
#[derive(Default)]
pub(crate) struct EngineParts {
    pub(crate) log: Option<Arc<store::DurableLog>>,
    pub(crate) rows: Option<Arc<dyn RowLog>>,
    pub(crate) external: Option<RecordOutcomes>,
    pub(crate) figures: Vec<Arc<dyn Figures>>,
}

/// A closure that another thread runs on a shard.
pub(crate) type Job = Box<dyn FnOnce(&Rc<Shard>) + Send>;

/// A message from one shard to another.
pub(crate) enum ShardMessage {
    /// A message for one session of that shard; it takes no allocation.
    Deliver(Message, Target),
    /// A message for several sessions of that shard.
    DeliverAll(Message, Vec<Target>),
    /// Anything else.
    Job(Job),
}

impl EngineState {
    /// The state that `shards` share. Longer than other functions: one line for each field.
    pub(crate) fn new(config: &Arc<Config>, shards: usize, seed: u64, kept: EngineParts) -> Self {
        let EngineParts {
            log,
            rows,
            external,
            figures,
        } = kept;
        let started = Instant::now();
        let boxes = || (0..shards).map(|_| Mailbox::default()).collect();
        Self {
            directory: Directory::new(seed, config.shared_strategy),
            retained: RetainedStore::weighing(
                seed.rotate_left(32),
                |kept: &retained::RetainedMessage| kept.message.heap_bytes(),
            ),
            retained_locks: std::array::from_fn(|_| Mutex::default()),
            memory: Memory::new(shards, memory_budget(config.memory_bytes)),
            metrics: (0..shards)
                .map(|_| Metrics::new(config.listeners.len(), &config.topic_metrics))
                .collect(),
            topic_metrics: config
                .topic_metrics
                .iter()
                .map(|metric| Arc::clone(&metric.name))
                .collect(),
            listeners: config
                .listeners
                .iter()
                .map(|listener| listener.name.as_str().into())
                .collect(),
            // Kept sessions, and those that end with their connection.
            availability: AvailabilityTable::new(
                shards,
                config.sessions.saturating_add(config.connections),
            ),
            durable: DurableSessions::new(shards),
            loading: Loading::new(log.is_some()),
            log,
            audit: config.data.as_ref().map(|data| AuditLog::new(&data.folder)),
            failing: FailureCell::default(),
            rows,
            external,
            own_retained: AtomicUsize::new(0),
            retained_walks: Arc::new(Semaphore::new(RETAINED_WALKS)),
            sources: Sources::default(),
            connections: Arc::default(),
            failed_logins: FailedLogins::default(),
            bans: Bans::default(),
            invalidations: Invalidations::default(),
            deciding: Semaphore::new(DECIDING),
            trials: Arc::new(Semaphore::new(1)),
            renewals: Semaphore::new(RENEWALS),
            renewal_tasks: watch::Sender::new(0),
            owners: Owners::default(),
            session_shares: Shares::default(),
            kept_sessions: AtomicU64::default(),
            retained_shares: Shares::default(),
            tls_servers: TlsServers::default(),
            degraded_plugins: Mutex::default(),
            plugins: Mutex::default(),
            config: Mutex::new(Arc::clone(config)),
            started,
            figures,
            last_turns: LastTurns::new(started, shards),
            paused: config
                .listeners
                .iter()
                .map(|_| AtomicBool::default())
                .collect(),
            is_listening: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            records_events: AtomicBool::new(false),
            latest_lines: Arc::default(),
            traces: Traces::default(),
            watched_bytes: Arc::default(),
            wills_sent: Barrier::new(shards),
            mailboxes: (0..shards).map(|_| boxes()).collect(),
            jobs: (0..shards).map(|_| Mutex::default()).collect(),
            wakers: (0..shards).map(|_| Notify::new()).collect(),
            awaited: (0..shards).map(|_| Arc::default()).collect(),
            seed: RandomState::new(),
            serial: AtomicU64::new(0),
        }
    }

    pub(crate) fn shards(&self) -> usize {
        self.wakers.len()
    }

    /// Lets the shards record events of clients from now on.
    pub(crate) fn record_events(&self) {
        // ORDERING: a switch; an event more or less does not matter.
        self.records_events.store(true, Ordering::Relaxed);
        self.latest_lines.keep();
    }

    pub(crate) fn records_events(&self) -> bool {
        // ORDERING: as in `record_events`.
        self.records_events.load(Ordering::Relaxed)
    }

    /// Whether a plugin's answer about `client`, asked at `asked_at`, was outdated by an invalidation.
    pub(crate) fn is_outdated(&self, asked_at: u64, client: &Client) -> bool {
        if self.invalidations.count() == asked_at {
            return false;
        }
        let login = client.login();
        let username = login.username.as_deref();
        self.invalidations.outdate(asked_at, &client.id, username)
    }

    /// The shard that holds the session of `client_id`.
    pub(crate) fn shard_of(&self, client_id: &str) -> usize {
        let hash = self.key_of(client_id);
        usize::try_from(hash % self.shards() as u64).unwrap_or(0)
    }

    /// Reports of degraded plugins.
    pub(crate) fn degraded_plugins(&self) -> MutexGuard<'_, Vec<String>> {
        self.degraded_plugins
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the configuration in force.
    pub(crate) fn set_config(&self, config: &Arc<Config>) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(config);
    }

    /// The configured durability, and that of the streams, in one line for people.
    pub(crate) fn guarantees(&self) -> String {
        let external = self.rows.iter().flat_map(|rows| rows.guarantees());
        let all = [self.config().durability_text()]
            .into_iter()
            .chain(external);
        all.collect::<Vec<_>>().join("; ")
    }

    /// The plugins in force, for their figures; `None` before the start.
    pub(crate) fn plugins(&self) -> MutexGuard<'_, Option<Arc<dyn Hooks>>> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A hash of a client or topic that is constant while the process runs.
    pub(crate) fn key_of(&self, name: &str) -> u64 {
        self.seed.hash_one(name)
    }

    /// Locks the retained message of `topic`.
    pub(crate) fn lock_retained(&self, topic: &str) -> MutexGuard<'_, ()> {
        let place = usize::try_from(self.key_of(topic) % RETAINED_LOCKS as u64).unwrap_or(0);
        self.retained_locks[place]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that is unique in this process and cannot be guessed.
    pub(crate) fn unique(&self) -> u64 {
        // ORDERING: only uniqueness matters.
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        self.seed.hash_one(serial)
    }

    /// Queues `job` for shard `index` and wakes it.
    pub(crate) fn run_on(&self, index: usize, job: Job) {
        self.jobs[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(job);
        self.wakers[index].notify_one();
    }

    /// Number of messages from other shards that wait for each shard.
    pub(crate) fn mailbox_messages(&self) -> Vec<usize> {
        let mailboxes = self.mailboxes.iter();
        mailboxes
            .map(|from| from.iter().map(Mailbox::len).sum())
            .collect()
    }

    /// Wakes shard `index`, so that it handles safe tickets.
    pub(crate) fn wake(&self, index: usize) {
        self.wakers[index].notify_one();
    }

    /// Wakes the shards that wait for `ticket` at `durability`, or for an earlier one.
    pub(crate) fn wake_waiting(&self, durability: Durability, ticket: u64) {
        for (awaited, waker) in self.awaited.iter().zip(&self.wakers) {
            if awaited.is_for(durability, ticket) {
                waker.notify_one();
            }
        }
    }

    /// The shards that were woken since the last call.
    #[cfg(test)]
    pub(crate) fn woken(&self) -> Vec<usize> {
        let is_woken = |index: &usize| {
            let notified = std::pin::pin!(self.wakers[*index].notified());
            notified
                .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
                .is_ready()
        };
        (0..self.shards()).filter(is_woken).collect()
    }

    /// Wakes all shards, so that they handle safe tickets.
    pub(crate) fn wake_all(&self) {
        self.wakers.iter().for_each(Notify::notify_one);
    }

    /// Records a failure: the broker accepts nothing more and disconnects its clients.
    pub(crate) fn fail(&self, failure: BrokerFailure) {
        if let BrokerFailure::Panicked(panicked)
        | BrokerFailure::Store(StoreError::Panicked(panicked)) = &failure
        {
            self.report(panicked.clone());
        }
        if self.failing.record(failure) {
            self.stopping.store(true, Ordering::Release);
            self.wake_all();
        }
    }

    /// Appends to the audit log; blocks until the entry is on the disk. A lost entry is logged.
    pub(crate) fn audit(&self, entry: &AuditEntry) {
        let Some(audit) = &self.audit else { return };
        let Err(error) = audit.append(entry, SystemTime::now()) else {
            return;
        };
        let AuditEntry {
            who,
            action,
            target,
            result,
            ..
        } = entry;
        let text = format!("audit: cannot write {action} {target} by {who} ({result}): {error}");
        let log = move |shard: &Rc<Shard>| {
            let line = LogLine::new(LogLevel::Error, "broker", text);
            shard.log.write(line);
        };
        self.run_on(0, Box::new(log));
    }

    /// Counts and logs a panic of another thread.
    pub(crate) fn report(&self, panicked: Panicked) {
        self.run_on(0, Box::new(move |shard| guard::report(shard, &panicked)));
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

impl Client {
    /// The session's number in the store.
    pub(crate) fn number(&self, engine: &EngineState) -> Option<u64> {
        engine.durable.number(self.handle)
    }

    /// Sets the session's number in the store; 0: the store does not have the session.
    pub(crate) fn set_number(&self, engine: &EngineState, number: u64) {
        engine.durable.set(self.handle, number);
        self.kept_will.set(KeptWill::None);
    }
}
