//! Starting, asking and stopping the engine from any thread.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqttcore_codec::{Properties, QoS, ReasonCode};
use mqttcore_store::{CopyProgress, Durability, StoreError};

use crate::admission::listener::{self, BoundSocket};
use crate::admission::tls;
use crate::clients::bans::{Ban, BanReason, BanTarget, TooManyBans};
use crate::clients::invalidations::Invalidation;
use crate::config::hooks::{Hooks, LogLevel, LogLine};
use crate::config::listener_policy::{carried_over, listener_policies, policies_of};
use crate::config::{Config, Data, Listener};
use crate::durability::audit::AuditEntry;
use crate::figures;
use crate::operations::invalidate;
use crate::operations::publish::{self, PublishError};
use crate::runtime::failure::BrokerFailure;
use crate::runtime::metrics::Stats;
use crate::service::{BrokerHandle, Extensions, Service};
use crate::sessions::listing::{self, ClientInfo};
use crate::sessions::loading;
use crate::shard::guard::critical;
use crate::shard::{EngineState, Rules, Shard};
use crate::shutdown;
use crate::startup::{self, StartError};

/// A running broker. Dropping it stops it.
pub struct Broker {
    engine: Arc<EngineState>,
    addresses: Vec<SocketAddr>,
    /// The listeners as they were bound.
    listeners: Vec<Listener>,
    /// The folder of its store.
    folder: Option<PathBuf>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Loads the stored sessions.
    loader: Mutex<Option<JoinHandle<()>>>,
    /// Services beside the shards.
    services: Vec<Arc<dyn Service>>,
}

impl Broker {
    /// Checks whether a broker could start with `config`, and leaves nothing behind.
    ///
    /// An address that is in use is accepted: the running broker, for which the configuration is meant, may use it.
    /// The data folder is not checked. Returns the warnings that a start would log.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn check(config: &Config) -> Result<Vec<String>, StartError> {
        let warnings = listener_policies(config)?.warnings;
        for listener in &config.listeners {
            match BoundSocket::bind(&listener.address) {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    return Err(startup::unbound(listener, error));
                }
                _ => {}
            }
        }
        Ok(warnings)
    }

    /// Binds all listeners, starts the shards, and returns when clients can connect. Stored sessions are loaded
    /// meanwhile: [`Stats::sessions_to_come`].
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing runs and nothing is bound then.
    pub fn start(config: Config, hooks: &Arc<dyn Hooks>) -> Result<Self, StartError> {
        Self::start_with(config, hooks, Extensions::default())
    }

    /// Like [`start`](Self::start), with extensions.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing runs and nothing is bound then.
    pub fn start_with(
        config: Config,
        hooks: &Arc<dyn Hooks>,
        extensions: Extensions,
    ) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let compiled = listener_policies(&config)?;
        let listener_policies = compiled.policies;
        let sockets = startup::bind(&config.listeners)?;
        let addresses = sockets
            .iter()
            .filter_map(BoundSocket::tcp_address)
            .collect();
        let engine = startup::open_state(&config, &extensions)?;
        let notices = extensions.rows.iter().flat_map(|rows| rows.notices());
        for line in compiled.warnings.into_iter().chain(notices) {
            hooks.log(LogLine::new(LogLevel::Warning, "broker", line));
        }
        let broker = Self {
            engine: Arc::clone(&engine),
            addresses,
            listeners: config.listeners.clone(),
            folder: config.data.as_ref().map(|data| data.folder.clone()),
            threads: Mutex::default(),
            loader: Mutex::default(),
            services: extensions.services,
        };
        let rules = (Arc::clone(&config), Arc::clone(hooks), listener_policies);
        engine.tls_servers.set_listeners(&rules.2);
        *engine.plugins() = Some(Arc::clone(hooks));
        broker.start_threads(&rules)?;
        for service in &broker.services {
            let started = service.start(&BrokerHandle::new(&engine), &config);
            started.map_err(StartError::Service)?;
        }
        startup::listen(&config.listeners, &sockets)?;
        broker.start_listeners(sockets);
        Ok(broker)
    }

    /// Accepts connections, on the first shard; with TLS, watches the files of certificates, too.
    fn start_listeners(&self, sockets: Vec<BoundSocket>) {
        let accept = move |shard: &Rc<Shard>| {
            for (index, socket) in sockets.into_iter().enumerate() {
                let accept = listener::accept(Rc::clone(shard), socket, index);
                let engine = Arc::clone(&shard.engine);
                tokio::task::spawn_local(critical(engine, "the acceptor", accept));
            }
            // ORDERING: a figure.
            shard.engine.is_listening.store(true, Ordering::Relaxed);
            if shard.engine.tls_servers.has_listeners() {
                let engine = Arc::clone(&shard.engine);
                let watch = tls::watch_files(Rc::clone(shard));
                tokio::task::spawn_local(critical(engine, "the watch over certificates", watch));
            }
        };
        self.engine.run_on(0, Box::new(accept));
    }

    /// Starts the shards, and the thread that loads stored sessions.
    fn start_threads(&self, rules: &Rules) -> Result<(), StartError> {
        for shard in 0..self.engine.shards() {
            let thread = startup::spawn_shard(shard, Arc::clone(&self.engine), rules.clone())
                .map_err(|error| StartError::Shard { shard, error })?;
            self.threads().push(thread);
        }
        if let Some(log) = &self.engine.log {
            let loader = loading::start(&self.engine, log).map_err(|source| {
                StartError::Store(StoreError::Io {
                    doing: "start the thread of",
                    file: "load".into(),
                    source: Arc::new(source),
                })
            })?;
            *self.loader() = Some(loader);
        }
        Ok(())
    }

    /// Why the broker cannot go on, if it cannot: nothing is acknowledged any more, and clients are sent
    /// away. Stop the broker then.
    pub fn failure(&self) -> Option<BrokerFailure> {
        self.wait_for_failure(Duration::ZERO)
    }

    /// Waits for a failure of the broker, at most for `limit`.
    pub fn wait_for_failure(&self, limit: Duration) -> Option<BrokerFailure> {
        self.engine.failing.wait(limit)
    }

    /// Copies the data folder into a new or empty folder, while the broker runs; returns the bytes of the copy. It
    /// contains everything that was acknowledged before. Blocks until the copy is safe; another thread may read
    /// `progress`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`] if nothing is kept; those of the store and of the file system.
    pub fn backup(&self, to: &Path, progress: &CopyProgress) -> Result<u64, StoreError> {
        let log = self.engine.log.as_ref().ok_or(StoreError::Missing)?;
        log.backup(to, progress)
    }

    /// The addresses of its TCP listeners, in the order of the configuration, with real ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Publishes as the broker itself: no permissions are asked.
    ///
    /// Returns how many subscriptions matched. Blocks until every session is there that was kept, the
    /// message is routed, and safe where it has to be kept.
    ///
    /// # Errors
    ///
    /// [`PublishError`].
    pub fn publish(
        &self,
        topic: &str,
        payload: &[u8],
        qos: QoS,
        retain: bool,
        properties: Properties<'_>,
    ) -> Result<usize, PublishError> {
        let config = self.engine.config();
        let message = publish::message(topic, payload, qos, retain, properties, &config.limits)?;
        let publish = move |shard: &Rc<Shard>, answer| {
            loading::when_loaded(shard, move |shard| publish::publish(shard, message, answer));
        };
        self.ask_for(0, publish).ok_or(PublishError::Stopped)?
    }

    /// The sessions that the broker holds, in no particular order. Blocks until those are there that
    /// were kept.
    pub fn clients(&self) -> Vec<ClientInfo> {
        let list = |shard: &Rc<Shard>, answer: Answer<Vec<ClientInfo>>| {
            loading::when_loaded(shard, move |shard| answer(listing::list(shard)));
        };
        let shards = 0..self.engine.shards();
        let lists = shards.filter_map(|index| self.ask_for(index, list));
        lists.flatten().collect()
    }

    /// Counters and gauges, summed over all shards. Asks no shard, so it never waits.
    pub fn stats(&self) -> Stats {
        figures::stats(&self.engine)
    }

    /// All figures by name: [`stats`](Self::stats), `listeners/NAME/FIGURE` for each refusal that a listener has had, those
    /// of extensions, and those of the store, which begin with `store_`. Never waits.
    pub fn figures(&self) -> Vec<(String, u64)> {
        figures::all(&self.engine)
    }

    /// Disconnects a client with `reason`. False when it is not connected.
    pub fn disconnect(&self, client_id: &str, reason: ReasonCode) -> bool {
        let id = client_id.to_owned();
        self.ask(self.engine.shard_of(client_id), move |shard| {
            listing::disconnect(shard, &id, reason)
        })
        .unwrap_or(false)
    }

    /// Bans clients, for `duration` or until [`unban`](Self::unban); replaces a ban of the same target. Returns how many
    /// were connected: they are disconnected, and their wills are not published. With a data folder, a ban outlives the
    /// broker; else it ends with it.
    ///
    /// # Errors
    ///
    /// [`TooManyBans`]
    pub fn ban(
        &self,
        target: BanTarget,
        reason: BanReason,
        duration: Option<Duration>,
    ) -> Result<usize, TooManyBans> {
        self.engine.add_ban(target.clone(), reason, duration)?;
        let disconnected = self.ask_all(move |shard| listing::disconnect_banned(shard, &target));
        Ok(disconnected.iter().sum())
    }

    /// Lifts a ban, and with that of a client identifier those of its users. False if there is none of this target.
    pub fn unban(&self, target: &BanTarget) -> bool {
        self.engine.remove_ban(target)
    }

    /// The bans in force, in no particular order.
    pub fn bans(&self) -> Vec<Ban> {
        self.engine.bans.list(Instant::now())
    }

    /// Appends to the audit log, if there is a data folder; blocks until the entry is on the disk.
    pub fn audit(&self, entry: &AuditEntry) {
        self.engine.audit(entry);
    }

    /// Drops the cached answers of plugins about the clients that `what` covers, and asks the plugins for their grants and
    /// about their subscriptions again, in the background. Without a plugin that knows the grant of a connected client,
    /// the client is disconnected, and its will is not published: it logs in again. Returns how many are connected.
    pub fn invalidate(&self, what: &Invalidation) -> usize {
        self.engine.invalidations.add(what.clone());
        let what = what.clone();
        let counts = self.ask_all(move |shard| invalidate::invalidate(shard, &what));
        counts.iter().sum()
    }

    /// Replaces the reports of degraded plugins; see [`Health`](crate::Health).
    pub fn set_degraded_plugins(&self, reasons: Vec<String>) {
        *self.engine.degraded_plugins() = reasons;
    }

    /// The levels of acknowledgements that are in force, in one line for people.
    pub fn guarantees(&self) -> String {
        if self.threads().is_empty() {
            return "nothing: the broker is stopped".to_owned();
        }
        self.engine.guarantees()
    }

    /// The new listener of each bound one after a [`reload`](Self::reload) with `config`.
    pub fn places(&self, config: &Config) -> Vec<Option<usize>> {
        carried_over(&self.listeners, &config.listeners)
    }

    /// Applies new limits, grants, durabilities and plugins; sockets, shards and the data folder stay. The durability
    /// of a client is that of its CONNECT.
    ///
    /// Returns the new listener of each bound one: that of its address and name, otherwise of its address, otherwise
    /// of its name. `None` if it was removed: it has no rules any more.
    ///
    /// # Errors
    ///
    /// A grant with a rule that is no filter, or files that do not make a TLS configuration; nothing
    /// changes then.
    pub fn reload(
        &self,
        config: &Config,
        hooks: Arc<dyn Hooks>,
    ) -> Result<Vec<Option<usize>>, StartError> {
        let places = self.places(config);
        let current = self.ask(0, |shard| shard.listener_policies());
        let current = current.unwrap_or_default();
        let compiled = policies_of(&self.listeners, &current, &places, config)?;
        for line in compiled.warnings {
            hooks.log(LogLine::new(LogLevel::Warning, "broker", line));
        }
        let mut config = config.clone();
        config.data = keep_folder(self.folder.as_deref(), config.data);
        self.engine.tls_servers.set_listeners(&compiled.policies);
        *self.engine.plugins() = Some(Arc::clone(&hooks));
        let config = Arc::new(config);
        self.engine.set_config(&config);
        let rules = (config, hooks, compiled.policies);
        self.ask_all(move |shard| shard.reload(rules.clone()));
        Ok(places)
    }

    /// Has readiness fail from now on, before a stop. Clients are served as before, new ones too.
    pub fn drain(&self) {
        // ORDERING: a figure.
        self.engine.is_listening.store(false, Ordering::Relaxed);
    }

    /// Disconnects every client with 0x8B, waits until their last bytes are sent, and ends.
    ///
    /// Connections of clients that do not read are closed after `deadline`. A second call does nothing.
    pub fn stop(&self, deadline: Duration) {
        let threads = std::mem::take(&mut *self.threads());
        if threads.is_empty() {
            return;
        }
        for service in &self.services {
            service.begin_to_stop(deadline);
        }
        // Wills of ended connections may go to sessions that are not loaded yet.
        let loader = self.loader().take();
        // A thread that panicked has reported it.
        let _ = loader.map(JoinHandle::join);
        self.engine.stopping.store(true, Ordering::Release);
        for index in 0..self.engine.shards() {
            self.engine.run_on(
                index,
                Box::new(move |shard| shutdown::stop(shard, deadline)),
            );
        }
        for thread in threads {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
        self.services.iter().for_each(|service| service.stop());
        if let Some(rows) = &self.engine.rows {
            rows.close(deadline);
        }
        if let Some(log) = &self.engine.log {
            log.close();
        }
    }

    fn threads(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loader(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.loader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `question` on shard `index` and waits for its answer; `None` once it is stopped.
    fn ask<T: Send + 'static>(
        &self,
        index: usize,
        question: impl FnOnce(&Rc<Shard>) -> T + Send + 'static,
    ) -> Option<T> {
        self.ask_for(index, |shard, answer| answer(question(shard)))
    }

    /// Like [`ask`](Self::ask), for an answer that takes time.
    fn ask_for<T: Send + 'static>(
        &self,
        index: usize,
        question: impl FnOnce(&Rc<Shard>, Answer<T>) + Send + 'static,
    ) -> Option<T> {
        if self.engine.is_stopping() {
            return None;
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let job = move |shard: &Rc<Shard>| {
            let answer = move |answer| {
                // While the broker stops, the receiver may be gone.
                let _ = sender.send(answer);
            };
            question(shard, Box::new(answer));
        };
        self.engine.run_on(index, Box::new(job));
        // A shard that stops drops the job and its sender.
        loop {
            match receiver.recv_timeout(Duration::from_millis(200)) {
                Ok(answer) => return Some(answer),
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) if self.engine.is_stopping() => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn ask_all<T: Send + 'static>(
        &self,
        question: impl Fn(&Rc<Shard>) -> T + Clone + Send + 'static,
    ) -> Vec<T> {
        (0..self.engine.shards())
            .filter_map(|index| self.ask(index, question.clone()))
            .collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(1));
    }
}

/// Receives the answer to the question of another thread.
type Answer<T> = Box<dyn FnOnce(T)>;

/// The durability that `new` configures for the data in `folder`.
fn keep_folder(folder: Option<&Path>, new: Option<Data>) -> Option<Data> {
    folder.map(|folder| Data {
        folder: folder.to_owned(),
        durability: new.map_or(Durability::Fsync, |data| data.durability),
    })
}
