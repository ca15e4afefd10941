//! Startup: binds the listeners, opens the store, and starts the threads of the shards.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use mqttcore_store::StoreError;
use mqttcore_tls::TlsError;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use crate::admission::listener::BoundSocket;
use crate::config::listener_policy::{InvalidListener, ListenerError};
use crate::config::permissions::GrantError;
use crate::config::{Config, ListenAddress, Listener};
use crate::durability::events::StoreEvents;
use crate::durability::outcomes::{OutcomeEvents, RecordOutcomes};
use crate::durability::row_log::RowLog;
use crate::durability::store::DurableLog;
use crate::event_loop;
use crate::routing::rows;
use crate::runtime::failure::ServiceError;
use crate::service::Extensions;
use crate::shard::guard::fail_on_panic;
use crate::shard::{EngineParts, EngineState, Rules, Shard};

/// Largest number of shards; the shard's number is eight bits of a subscriber's handle.
const SHARDS_MAX: usize = 64;

/// The broker did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A listener's address cannot be used.
    #[error("listener {name}: cannot listen on {address}: {error}")]
    Bind {
        /// The listener's name.
        name: String,
        /// Its address.
        address: ListenAddress,
        /// The error of the operating system.
        error: io::Error,
    },
    /// An anonymous grant has a rule that is no filter.
    #[error("listener {name}: {error}")]
    Grant {
        /// The listener's name.
        name: String,
        /// The rule and its fault.
        error: GrantError,
    },
    /// The files of a listener do not make a TLS configuration.
    #[error("listener {name}: {error}")]
    Tls {
        /// The listener's name.
        name: String,
        /// The file, the error and a remedy.
        error: TlsError,
    },
    /// The operating system refuses a thread or an event queue.
    #[error("cannot start shard {shard}: {error}")]
    Shard {
        /// Its number.
        shard: usize,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The data folder cannot be used, or its content is not valid.
    #[error("data: {0}")]
    Store(StoreError),
    /// An extension does not start: rows, or a service.
    #[error("{0}")]
    Service(ServiceError),
}

impl From<InvalidListener> for StartError {
    fn from(InvalidListener { listener, error }: InvalidListener) -> Self {
        let name = listener;
        match error {
            ListenerError::Grant(error) => Self::Grant { name, error },
            ListenerError::Tls(error) => Self::Tls { name, error },
        }
    }
}

/// Binds every listener.
pub(crate) fn bind(listeners: &[Listener]) -> Result<Vec<BoundSocket>, StartError> {
    let bind = |listener: &Listener| {
        BoundSocket::bind(&listener.address).map_err(|error| unbound(listener, error))
    };
    listeners.iter().map(bind).collect()
}

pub(crate) fn unbound(listener: &Listener, error: io::Error) -> StartError {
    StartError::Bind {
        name: listener.name.clone(),
        address: listener.address.clone(),
        error,
    }
}

/// Has all bound sockets listen.
///
/// # Errors
///
/// [`StartError::Bind`]
pub(crate) fn listen(listeners: &[Listener], sockets: &[BoundSocket]) -> Result<(), StartError> {
    for (listener, socket) in listeners.iter().zip(sockets) {
        socket.listen().map_err(|error| unbound(listener, error))?;
    }
    Ok(())
}

/// Opens the store, and creates the state that all shards share.
pub(crate) fn open_state(
    config: &Arc<Config>,
    extensions: &Extensions,
) -> Result<Arc<EngineState>, StartError> {
    let rows = extensions.rows.clone();
    let open = |data| DurableLog::open(data, config, rows.as_deref());
    let log = config.data.as_ref().map(open).transpose();
    let log = log.map_err(StartError::Store)?;
    let shards = shard_count(config);
    let external = open_external(rows.as_deref(), shards)?;
    let seed = match &log {
        Some(log) => log.seed(seed()).map_err(StartError::Store)?,
        None => seed(),
    };
    let kept = EngineParts {
        log,
        rows,
        external,
        figures: extensions.figures(),
    };
    let engine = Arc::new(EngineState::new(config, shards, seed, kept));
    if let Some(log) = &engine.log {
        let now = Instant::now();
        log.read_bans(&engine.bans, now)
            .map_err(StartError::Store)?;
        let events: Arc<dyn StoreEvents> = Arc::clone(&engine) as _;
        log.serve(&events);
    }
    begin_rows(&engine)?;
    Ok(engine)
}

/// Reaches the external log of `rows`, if it has one.
fn open_external(
    rows: Option<&dyn RowLog>,
    shards: usize,
) -> Result<Option<RecordOutcomes>, StartError> {
    let Some(rows) = rows else { return Ok(None) };
    let outcomes = RecordOutcomes::new(shards);
    let is_external = rows.open_external(&outcomes).map_err(StartError::Service)?;
    Ok(is_external.then_some(outcomes))
}

/// Has messages become rows from now on.
fn begin_rows(engine: &Arc<EngineState>) -> Result<(), StartError> {
    let Some(rows) = &engine.rows else {
        return Ok(());
    };
    if let Some(outcomes) = &engine.external {
        let events: Arc<dyn OutcomeEvents> = Arc::clone(engine) as _;
        outcomes.serve(&events);
        rows.warning()
            .into_iter()
            .for_each(|what| outcomes.trouble(what));
    }
    rows::subscribe(engine, &**rows).map_err(StartError::Service)
}

/// The number of cores that the broker may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn shard_count(config: &Config) -> usize {
    let count = if config.shards == 0 {
        cores()
    } else {
        config.shards
    };
    count.min(SHARDS_MAX)
}

/// The seed of every hash of text from clients, so that attackers cannot compute collisions (abuse H07). A data
/// folder stores the first seed for the hashes of the directory (ADR 0027).
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(SystemTime::now())
}

/// Starts the thread of a shard, and waits until it has its event queue.
pub(crate) fn spawn_shard(
    index: usize,
    engine: Arc<EngineState>,
    rules: Rules,
) -> io::Result<JoinHandle<()>> {
    let (sender, started) = mpsc::sync_channel(1);
    let on_panic = fail_on_panic(&engine);
    let run = move || {
        let runtime = match runtime(index, &engine) {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = sender.send(Err(error));
                return;
            }
        };
        let _ = sender.send(Ok(()));
        runtime.block_on(event_loop::run(Shard::new(index, engine, rules)));
    };
    let thread = mqttcore_panics::spawn(&format!("mqttcore-{index}"), on_panic, run)?;
    let failed = || Err(io::Error::other("the thread ended before it began"));
    started.recv().unwrap_or_else(|_| failed()).map(|()| thread)
}

/// The event loop of a shard. If there are more shards than cores, other shards on this core take its messages before
/// it looks for new ones of its clients (ADR 0141).
fn runtime(index: usize, engine: &Arc<EngineState>) -> io::Result<LocalRuntime> {
    let mut builder = Builder::new_current_thread();
    builder.enable_io().enable_time();
    if engine.shards() > cores() {
        let engine = Arc::clone(engine);
        builder.on_thread_park(move || {
            if engine.has_untaken_messages(index) {
                std::thread::yield_now();
            }
        });
    }
    builder.build_local(LocalOptions::default())
}
