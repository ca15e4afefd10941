//! Services that run beside the shards: crates above the engine start them with the broker.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use mqttcore_codec::{PropertiesBuf, QoS};
use mqttcore_panics::Panicked;
use mqttcore_session::Message;
use mqttcore_store::{CopyProgress, Pressure, StoreError};
use mqttcore_topics::{RetainedCursor, TopicFilter, TopicLimits, TopicName};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::config::hooks::{LogLevel, LogLine};
use crate::config::measures::{HookCalls, Tally};
use crate::durability::audit::{AuditEntry, AuditLines, AuditPosition};
use crate::durability::row_log::RowLog;
use crate::figures;
use crate::health::{self, Health};
use crate::routing::{journal, router};
use crate::runtime::failure::ServiceError;
use crate::runtime::metrics::{Figures, Refusals};
use crate::runtime::tallies::Tallies;
use crate::runtime::topic_counters::TopicCount;
use crate::sessions::loading;
use crate::shard::guard::vital_or;
use crate::shard::{EngineState, Shard};

/// Nodes of the retained store that one step looks at.
pub(crate) const WALKED_A_STEP: usize = 256;

/// Something that serves on threads of its own for as long as the broker runs.
pub trait Service: Figures {
    /// Starts it. The shards run; no client is served before it returns, and TCP ports refuse connections.
    ///
    /// # Errors
    ///
    /// Why the broker must not start.
    fn start(&self, broker: &BrokerHandle, config: &Config) -> Result<(), ServiceError>;

    /// Accepts no new work; work in progress has until `deadline`.
    fn begin_to_stop(&self, deadline: Duration);

    /// Waits for its threads to end. The shards have ended; the store is still open.
    fn stop(&self);
}

/// Extensions above the engine that start with a broker.
#[derive(Clone, Default)]
pub struct Extensions {
    /// Keeps messages as rows.
    pub rows: Option<Arc<dyn RowLog>>,
    /// Services beside the shards; started in this order.
    pub services: Vec<Arc<dyn Service>>,
}

impl Extensions {
    /// The figures of all of them.
    pub(crate) fn figures(&self) -> Vec<Arc<dyn Figures>> {
        let rows = self.rows.iter().map(|rows| Arc::clone(rows) as _);
        let services = self.services.iter().map(|service| Arc::clone(service) as _);
        rows.chain(services).collect()
    }
}

/// The broker is stopping: the request was not performed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the broker is stopping")]
pub struct BrokerStopped;

/// The interface of a service to its broker, for any thread. It does not keep the broker alive.
#[derive(Clone)]
pub struct BrokerHandle(Weak<EngineState>);

impl BrokerHandle {
    pub(crate) fn new(engine: &Arc<EngineState>) -> Self {
        Self(Arc::downgrade(engine))
    }

    /// All figures by name, as `Broker::figures` has them. Never waits; empty once the broker has ended.
    pub fn figures(&self) -> Vec<(String, u64)> {
        let engine = self.0.upgrade();
        engine.map_or_else(Vec::new, |engine| figures::all(&engine))
    }

    /// Refusals by bound listener, with its name at the start; the last ones came through no listener. Never waits; empty
    /// once the broker has ended.
    pub fn refusals(&self) -> Vec<(Arc<str>, Refusals)> {
        let engine = self.0.upgrade();
        engine.map_or_else(Vec::new, |engine| figures::refusals(&engine))
    }

    /// Connected clients by protocol version, of each bound listener with its name at the start. Never waits; empty once the
    /// broker has ended.
    pub fn connected_clients(&self) -> Vec<(Arc<str>, Tally)> {
        let engine = self.0.upgrade();
        engine.map_or_else(Vec::new, |engine| figures::clients(&engine))
    }

    /// Counts by packet type and by reason. Never waits; empty once the broker has ended.
    pub fn tallies(&self) -> Tallies {
        let engine = self.0.upgrade();
        engine.map_or_else(Tallies::default, |engine| figures::tallies(&engine))
    }

    /// Messages received on the topics of each metric of the configuration. Never waits; empty once the broker has ended.
    pub fn topic_counts(&self) -> Vec<TopicCount> {
        let engine = self.0.upgrade();
        engine.map_or_else(Vec::new, |engine| figures::topic_counts(&engine))
    }

    /// The calls of each hook of the plugins in force. Never waits; empty once the broker has ended.
    pub fn hook_calls(&self) -> Vec<HookCalls> {
        let engine = self.0.upgrade();
        engine.map_or_else(Vec::new, |engine| figures::hook_calls(&engine))
    }

    /// Number of messages from other shards that wait for each shard. Never waits; empty once the broker has ended.
    pub fn mailboxes(&self) -> Vec<usize> {
        let engine = self.0.upgrade();
        engine.map_or_else(Vec::new, |engine| engine.mailbox_messages())
    }

    /// Connections of each listener that had one so far, in the order of the configuration.
    pub fn connections(&self) -> Vec<usize> {
        let engine = self.0.upgrade();
        engine.map_or_else(Vec::new, |engine| engine.connections.by_listener())
    }

    /// The health of the broker. Never waits. `None`: the broker has ended.
    pub fn health(&self) -> Option<Health> {
        let engine = self.0.upgrade()?;
        Some(health::health(&engine, Instant::now()))
    }

    /// Reads all notes in the store: keys and values.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub fn notes(&self, visit: &mut dyn FnMut(&str, &[u8])) -> Result<(), StoreError> {
        let engine = self.0.upgrade();
        let log = engine.as_ref().and_then(|engine| engine.log.as_ref());
        log.map_or(Ok(()), |log| log.store.notes(visit))
    }

    /// Whether the broker accepts more messages that have to be stored: the disk has room, and no external log is
    /// behind.
    pub fn has_room(&self) -> bool {
        let Some(engine) = self.0.upgrade() else {
            return true;
        };
        let log = engine.log.as_ref();
        let pressure = log.map_or(Pressure::None, |log| log.store.pressure());
        let is_behind = engine.rows.as_ref().is_some_and(|rows| !rows.has_room());
        pressure == Pressure::None && !is_behind
    }

    /// Kept time (ADR 0022) at `now`, in unix milliseconds; 0 without a store.
    pub fn kept_unix_ms(&self, now: Instant) -> u64 {
        let engine = self.0.upgrade();
        let log = engine.as_ref().and_then(|engine| engine.log.as_ref());
        log.map_or(0, |log| log.clock.unix_ms(now))
    }

    /// Like [`Broker::backup`](crate::Broker::backup): copies the data folder; blocks until the copy is safe.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`] without a data folder or after the end of the broker; those of the store and of the file
    /// system.
    pub fn backup(&self, to: &Path, progress: &CopyProgress) -> Result<u64, StoreError> {
        let log = self.engine().and_then(|engine| engine.log.clone());
        log.ok_or(StoreError::Missing)?.backup(to, progress)
    }

    /// Writes a checkpoint of the store, so that the next start reads less of the log; blocks until it is safe.
    ///
    /// # Errors
    ///
    /// As [`backup`](Self::backup).
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        let log = self.engine().and_then(|engine| engine.log.clone());
        log.ok_or(StoreError::Missing)?.checkpoint()
    }

    /// Runs `remove`, which removes files that notes tell of, unless a backup needs them now.
    pub fn unless_copied(&self, remove: impl FnOnce()) {
        let engine = self.0.upgrade();
        let log = engine.as_ref().and_then(|engine| engine.log.as_ref());
        if let Some(_going) = log.and_then(|log| log.may_remove()) {
            remove();
        }
    }

    /// Writes a note into the store; returns when it is safe.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub async fn write_note(&self, key: String, value: Vec<u8>) -> Result<(), BrokerStopped> {
        self.ask(move |shard, answer| {
            journal::write_note(shard, &key, &value);
            shard.flush_mailboxes();
            journal::when_safe(shard, Box::new(move || answer(())));
        })
        .await
    }

    /// Publishes as the broker itself, in one batch of the store with a note of the progress: `value` returns the
    /// note for a number of messages. Returns when all are routed, which may be before they are safe.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub async fn publish_noted(
        &self,
        messages: Vec<Message>,
        key: String,
        mut value: impl FnMut(u64) -> Vec<u8> + Send + 'static,
    ) -> Result<(), BrokerStopped> {
        let publish = move |shard: &Rc<Shard>| {
            let mut count = 0;
            for message in messages {
                // Its expiry counts from the caller's clock, which was read a moment before the shard's.
                let mut message = match message.expires_at() {
                    Some(_) => message.published_at(shard.now()),
                    None => message,
                };
                message.charge(&shard.memory().own_account);
                count += 1;
                if message.retain() {
                    // The log gets the message at once, and the note has to be in the same batch.
                    journal::write_note(shard, &key, &value(count));
                }
                router::publish_own(shard, &message);
            }
            journal::write_note(shard, &key, &value(count));
        };
        self.ask(move |shard, answer| {
            loading::when_loaded(shard, move |shard| {
                publish(shard);
                answer(());
            });
        })
        .await
    }

    /// Clears the retained messages that match `filter`, except those on the topics in `kept`.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub async fn clear_retained(
        &self,
        filter: &TopicFilter,
        kept: HashSet<String>,
    ) -> Result<(), BrokerStopped> {
        let kept = Arc::new(kept);
        let mut cursor = None;
        loop {
            let (filter, kept) = (filter.clone(), Arc::clone(&kept));
            let step = self.ask(move |shard, answer| {
                loading::when_loaded(shard, move |shard| {
                    answer(clear_step(shard, &filter, cursor, &kept));
                });
            });
            cursor = match step.await? {
                Some(next) => Some(next),
                None => return Ok(()),
            };
        }
    }

    /// Returns the panic handler of an essential thread.
    pub fn fail_on_panic(&self) -> impl FnOnce(Panicked) + Send + use<> {
        let engine = self.0.clone();
        move |panicked| {
            if let Some(engine) = engine.upgrade() {
                engine.fail(panicked.into());
            }
        }
    }

    /// Runs a task without which the broker cannot go on: a panic ends the broker.
    pub fn critical<F: Future<Output = ()>>(
        &self,
        place: &'static str,
        task: F,
    ) -> impl Future<Output = ()> + use<F> {
        vital_or(self.fail_on_panic(), place, task)
    }

    /// Counts and logs a panic that ended nothing but its own task.
    pub fn report(&self, panicked: Panicked) {
        if let Some(engine) = self.0.upgrade() {
            engine.report(panicked);
        }
    }

    /// Appends to the audit log, if there is a data folder; blocks until the entry is on the disk.
    pub fn audit(&self, entry: &AuditEntry) {
        if let Some(engine) = self.0.upgrade() {
            engine.audit(entry);
        }
    }

    /// Reads the audit log, the newest entry first, without files of days before `since`, from the entry before
    /// `before`, if that is given. `None`: there is no data folder, or the broker has ended. Blocks.
    ///
    /// # Errors
    ///
    /// Errors of the file system.
    pub fn audit_lines(
        &self,
        since: &str,
        before: Option<AuditPosition>,
    ) -> io::Result<Option<AuditLines>> {
        let engine = self.0.upgrade();
        let audit = engine.as_ref().and_then(|engine| engine.audit.as_ref());
        audit.map(|audit| audit.lines(since, before)).transpose()
    }

    /// Writes a line of the log that is no client's doing, so that no limit is needed.
    pub fn log(&self, level: LogLevel, text: String) {
        if let Some(engine) = self.0.upgrade() {
            engine.run_on(
                0,
                Box::new(move |shard| shard.log.write(LogLine::new(level, "broker", text))),
            );
        }
    }

    /// The state of the engine; `None` once the broker has ended. Not to be held while something is awaited.
    pub(crate) fn engine(&self) -> Option<Arc<EngineState>> {
        self.0.upgrade()
    }

    /// Runs `question` on the first shard and waits for its answer.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Rc<Shard>, Answer<T>) + Send + 'static,
    ) -> Result<T, BrokerStopped> {
        self.ask_shard(0, question).await
    }

    /// Runs `question` on a shard and waits for its answer.
    pub(crate) async fn ask_shard<T: Send + 'static>(
        &self,
        shard: usize,
        question: impl FnOnce(&Rc<Shard>, Answer<T>) + Send + 'static,
    ) -> Result<T, BrokerStopped> {
        let (sender, answer) = oneshot::channel();
        let job = move |shard: &Rc<Shard>| {
            let answer = move |value| {
                // The receiver may be gone.
                let _ = sender.send(value);
            };
            question(shard, Box::new(answer));
        };
        self.0
            .upgrade()
            .ok_or(BrokerStopped)?
            .run_on(shard, Box::new(job));
        answer.await.map_err(|_| BrokerStopped)
    }
}

/// Receives the answer to the question of a service.
pub(crate) type Answer<T> = Box<dyn FnOnce(T)>;

/// Clears a part of the retained store; returns the position to continue from.
fn clear_step(
    shard: &Rc<Shard>,
    filter: &TopicFilter,
    cursor: Option<RetainedCursor>,
    kept: &HashSet<String>,
) -> Option<RetainedCursor> {
    let mut stale = Vec::new();
    let retained = &shard.engine.retained;
    let next = retained.walk(filter, cursor, WALKED_A_STEP, &mut |topic, _| {
        if !kept.contains(topic) {
            stale.push(topic.to_owned());
        }
    });
    for topic in &stale {
        if let Ok(name) = TopicName::parse(topic, &TopicLimits::AS_IT_CAME) {
            let (properties, qos) = (PropertiesBuf::default(), QoS::AtLeastOnce);
            let now = shard.now();
            let empty = Message::copied(now, name, properties.as_properties(), &[], qos, true);
            router::publish_own(shard, &empty);
        }
    }
    next
}
