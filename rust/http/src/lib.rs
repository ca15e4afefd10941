//! The HTTP endpoint of streams: HTTP/1.1 on a Unix socket, and on TCP with an access token.
//!
//! It runs on its own thread, which exists only if streams are configured (decision 21), so that readers of
//! rows take no time from MQTT clients. The Unix socket is accessible to the broker's user and root; TCP needs
//! the token.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
mod app;
mod body;
mod connection;
mod files;
mod options;
mod rows;
mod sink;
mod socket;
mod stall_timeout;
mod target;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc as channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqttcore_broker::{
    BrokerHandle, Config, Figure, Figures, LogLevel, Service, ServiceError, Stats,
};
use mqttcore_streams::{QueryReports, RowStreams, Sink};
use mqttcore_tls::TlsServer;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};

use app::{App, HttpCounters};
pub use options::{HttpLimits, HttpListener, HttpOptions};
use socket::HttpSocket;

/// The endpoint that serves streams, on a thread of its own; none is there if the broker has no stream.
pub struct Endpoint {
    streams: Arc<RowStreams>,
    options: HttpOptions,
    figures: Arc<HttpCounters>,
    reports: Arc<QueryReports>,
    serving: OnceLock<Serving>,
}

/// The thread that serves streams.
struct Serving {
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: watch::Sender<Option<Duration>>,
    address: Option<SocketAddr>,
    app: Arc<App>,
}

/// An address of the endpoint cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("streams: cannot serve HTTP on {place}: {error}")]
struct BindError {
    /// A path, an address, or the thread.
    place: String,
    error: io::Error,
}

impl BindError {
    fn at(place: &Path, error: io::Error) -> Self {
        Self {
            place: place.display().to_string(),
            error,
        }
    }

    fn no_thread(error: io::Error) -> Self {
        Self {
            place: "its thread".into(),
            error,
        }
    }
}

impl Endpoint {
    /// An endpoint of `streams` that starts with their broker.
    pub fn new(streams: Arc<RowStreams>, options: HttpOptions) -> Self {
        Self {
            streams,
            options,
            figures: Arc::default(),
            reports: Arc::default(),
            serving: OnceLock::new(),
        }
    }

    /// Where it listens on TCP, with the real port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.serving.get()?.address
    }

    /// Description of each stream as JSON, the response of `GET /v1/streams/NAME`.
    pub fn streams(&self) -> Vec<String> {
        let serving = self.serving.get();
        serving.map_or_else(Vec::new, |serving| serving.app.streams())
    }

    /// Binds both sockets and serves them on a new thread.
    fn serve(&self, socket: &Path, app: Arc<App>) -> Result<Serving, BindError> {
        let mut warnings = Vec::new();
        let sockets = socket::bind(socket, self.options.tcp.as_ref(), &mut warnings)?;
        for line in warnings {
            app.broker().log(LogLevel::Warning, format!("http: {line}"));
        }
        let address = sockets.iter().find_map(HttpSocket::address);
        let (stop, stopping) = watch::channel(None);
        let limits = Arc::new(self.options.limits);
        let (sender, started) = channel::sync_channel(1);
        let serving = Arc::clone(&app);
        let serve = move || run(sockets, &limits, &serving, stopping, &sender);
        let on_panic = app.broker().fail_on_panic();
        let thread = mqttcore_panics::spawn("mqttcore-http", on_panic, serve);
        let thread = thread.map_err(BindError::no_thread)?;
        let failed = || Err(io::Error::other("the thread ended before it began"));
        let started = started.recv().unwrap_or_else(|_| failed());
        started.map_err(BindError::no_thread)?;
        Ok(Serving {
            thread: Mutex::new(Some(thread)),
            stop,
            address,
            app,
        })
    }
}

impl Service for Endpoint {
    /// # Errors
    ///
    /// A socket cannot be bound, the thread cannot be started, or the sink cannot be opened.
    fn start(&self, broker: &BrokerHandle, config: &Config) -> Result<(), ServiceError> {
        let (Some(data), Some(rows)) = (&config.data, self.streams.rows().cloned()) else {
            return Ok(());
        };
        let folder = data.folder.join("streams");
        let absolute = std::path::absolute(&folder);
        let folder = absolute.map_err(|error| BindError::at(&folder, error))?;
        let noted = data.folder.join(mqttcore_store::NOTED);
        let sink = Sink::open(noted, broker, &config.limits);
        let sink = sink.map_err(|error| format!("data: {error}"))?;
        let socket = folder.join("endpoint.sock");
        let shared = (Arc::clone(&self.figures), Arc::clone(&self.reports));
        let app = App::new(rows, sink, folder, broker.clone(), shared);
        // A service starts once.
        let _ = self.serving.set(self.serve(&socket, Arc::new(app))?);
        Ok(())
    }

    fn begin_to_stop(&self, deadline: Duration) {
        if let Some(serving) = self.serving.get() {
            serving.begin_to_stop(deadline);
        }
    }

    fn stop(&self) {
        if let Some(serving) = self.serving.get() {
            serving.join();
        }
    }
}

impl Figures for Endpoint {
    fn figures(&self) -> Vec<Figure> {
        let [answered, refused, full] = self.figures.values();
        vec![
            Figure::new(
                "http_answered",
                "Requests to the endpoint of the streams that were answered.",
                answered,
            ),
            Figure::new("http_refused", "Requests that were refused.", refused),
            Figure::new(
                "http_connections_refused",
                "Connections that found the endpoint full.",
                full,
            ),
        ]
    }

    fn memory_bytes(&self) -> usize {
        let serving = self.serving.get();
        serving.map_or(0, |serving| serving.app.memory_bytes())
    }

    fn sys_topics(&self, _: &Stats) -> Vec<(String, String)> {
        let news = self.reports.news(Instant::now()).into_iter();
        news.map(|(query, report)| (format!("spark/{query}"), report.unwrap_or_default()))
            .collect()
    }
}

impl Serving {
    /// Accepts no new request; open requests have until `deadline`.
    fn begin_to_stop(&self, deadline: Duration) {
        self.stop.send_replace(Some(deadline));
    }

    /// Waits for the thread to end.
    fn join(&self) {
        self.begin_to_stop(Duration::ZERO);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // If it panicked, it has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.join();
    }
}

/// Looks at the files of certificates until the endpoint stops, and takes changed ones into force.
async fn watch_files(broker: BrokerHandle, server: Arc<TlsServer>) {
    loop {
        tokio::time::sleep(mqttcore_tls::WATCH_EVERY).await;
        let own = Arc::clone(&server);
        // A disk may take its time.
        let read = tokio::task::spawn_blocking(move || own.refresh()).await;
        match read.ok().flatten() {
            None => {}
            Some(Ok(warnings)) => {
                let text = "http: certificates reloaded";
                broker.log(LogLevel::Info, text.to_owned());
                for line in warnings {
                    broker.log(LogLevel::Warning, format!("http: {line}"));
                }
            }
            Some(Err(error)) => {
                let text = format!("http: {error}; the previous certificates stay in use");
                broker.log(LogLevel::Error, text);
            }
        }
    }
}

/// The whole life of the thread.
fn run(
    sockets: Vec<HttpSocket>,
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
    let broker = app.broker();
    runtime.block_on(async {
        // Each connection holds a sender: when the channel closes, all connections have ended.
        let (alive, mut all_gone) = mpsc::channel(1);
        for server in sockets.iter().filter_map(HttpSocket::tls) {
            let watch = watch_files(broker.clone(), server);
            let watch = broker.critical("the watch over the endpoint's certificates", watch);
            tokio::task::spawn_local(watch);
        }
        let sockets: io::Result<Vec<_>> = sockets.into_iter().map(HttpSocket::open).collect();
        let is_open = sockets
            .as_ref()
            .map(|_| ())
            .map_err(|error| io::Error::new(error.kind(), error.to_string()));
        let _ = started.send(is_open);
        for socket in sockets.into_iter().flatten() {
            let connections = connection::HttpConnections::new(
                Arc::clone(limits),
                Arc::clone(app),
                stopping.clone(),
                alive.clone(),
            );
            let accept = socket.accept(Rc::new(connections));
            let accept = broker.critical("the endpoint's acceptor", accept);
            tokio::task::spawn_local(accept);
        }
        drop(alive);
        let upkeep = broker.critical("the endpoint's upkeep", app.work());
        tokio::task::spawn_local(upkeep);
        let deadline = match stopping.wait_for(Option::is_some).await {
            Ok(deadline) => deadline.unwrap_or_default(),
            Err(_) => Duration::ZERO,
        };
        // Connections that are still open then are closed.
        let _ = tokio::time::timeout(deadline, all_gone.recv()).await;
    });
}
