//! The endpoint of streams: HTTP/1.1 on a Unix socket, and on TCP for those who bring a token.
//!
//! It runs on a thread of its own, which exists only where streams do (decision 21): whoever reads
//! rows takes no time from clients. The Unix socket is for its own user and root; TCP is for whoever
//! knows the token.

mod answer;
mod app;
mod body;
mod connection;
mod door;
mod files;
mod patient;
mod rows;
mod sink;
mod target;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, mpsc as channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};

use crate::config::{HttpLimits, HttpListener};
use crate::shard::guard::fail_on_panic;
use crate::shard::guard::vital;

pub(crate) use app::{App, Figures};
use door::Door;

/// The thread that serves streams.
pub(crate) struct Endpoint {
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: watch::Sender<Option<Duration>>,
    address: Option<SocketAddr>,
    app: Arc<App>,
}

/// Where it listens, and how long it waits for whom.
pub(crate) struct Options {
    /// The Unix socket; an old one is replaced.
    pub(crate) socket: PathBuf,
    pub(crate) tcp: Option<HttpListener>,
    pub(crate) limits: HttpLimits,
}

/// An address of the endpoint cannot be had.
#[derive(Debug)]
pub(crate) struct BindError {
    pub(crate) place: String,
    pub(crate) error: io::Error,
}

impl Endpoint {
    /// Binds both sockets and serves them on a new thread.
    ///
    /// # Errors
    ///
    /// A socket cannot be bound, or there is no thread to be had.
    pub(crate) fn start(options: &Options, app: Arc<App>) -> Result<Self, BindError> {
        let doors = door::bind(options)?;
        let address = doors.iter().find_map(Door::address);
        let (stop, stopping) = watch::channel(None);
        let limits = Arc::new(options.limits);
        let (sender, started) = channel::sync_channel(1);
        let serving = Arc::clone(&app);
        let serve = move || run(doors, &limits, &serving, stopping, &sender);
        let thread = mqttcore_panics::spawn("mqttcore-http", fail_on_panic(app.world()), serve);
        let thread = thread.map_err(no_thread)?;
        let failed = || Err(io::Error::other("the thread ended before it began"));
        started
            .recv()
            .unwrap_or_else(|_| failed())
            .map_err(no_thread)?;
        Ok(Self {
            thread: Mutex::new(Some(thread)),
            stop,
            address,
            app,
        })
    }

    /// Where it listens on TCP, with the real port.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What readers are told of each stream, as JSON.
    pub(crate) fn streams(&self) -> Vec<String> {
        self.app.streams()
    }

    /// Takes no new request; those under way have until `deadline`.
    pub(crate) fn begin_to_stop(&self, deadline: Duration) {
        self.stop.send_replace(Some(deadline));
    }

    /// Waits for the thread to end.
    pub(crate) fn join(&self) {
        self.begin_to_stop(Duration::ZERO);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // If it panicked, it has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.join();
    }
}

fn no_thread(error: io::Error) -> BindError {
    BindError {
        place: "its thread".into(),
        error,
    }
}

/// The whole life of the thread.
fn run(
    doors: Vec<Door>,
    limits: &Arc<HttpLimits>,
    app: &Arc<App>,
    mut stopping: watch::Receiver<Option<Duration>>,
    started: &channel::SyncSender<io::Result<()>>,
) {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    runtime.block_on(async {
        // Each connection holds a sender: when nobody can send any more, all are gone.
        let (alive, mut all_gone) = mpsc::channel(1);
        let doors: io::Result<Vec<_>> = doors.into_iter().map(Door::open).collect();
        let is_open = doors
            .as_ref()
            .map(|_| ())
            .map_err(|error| io::Error::new(error.kind(), error.to_string()));
        let _ = started.send(is_open);
        for door in doors.into_iter().flatten() {
            let guests = connection::Guests::new(
                Arc::clone(limits),
                Arc::clone(app),
                stopping.clone(),
                alive.clone(),
            );
            let accept = door.accept(Rc::new(guests));
            let world = Arc::clone(app.world());
            tokio::task::spawn_local(vital(world, "the endpoint's acceptor", accept));
        }
        drop(alive);
        let world = Arc::clone(app.world());
        tokio::task::spawn_local(vital(world, "the endpoint's upkeep", app.work()));
        let deadline = match stopping.wait_for(Option::is_some).await {
            Ok(deadline) => deadline.unwrap_or_default(),
            Err(_) => Duration::ZERO,
        };
        // What is not over by then is cut off.
        let _ = tokio::time::timeout(deadline, all_gone.recv()).await;
    });
}
