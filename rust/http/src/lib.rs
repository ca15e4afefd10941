//! The HTTP endpoint: health, metrics and streams, by HTTP/1.1 on Unix sockets and on TCP.
//!
//! It runs on its own thread, which exists only if `[http]` or streams are configured (docs/decisions.md, 21), so that
//! HTTP clients take no time from MQTT clients. The Unix sockets are accessible to the broker's user and root. On TCP
//! health is open to all, metrics are as configured, and the rest needs the token.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
mod answer;
mod api;
mod app;
mod body;
mod connection;
mod event_stream;
mod files;
mod health;
mod metrics;
mod options;
mod page;
mod places;
mod program;
mod request_times;
mod routes;
mod rows;
mod sink;
mod socket;
mod stall_timeout;
mod target;
mod tasks;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc as channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqttcore_broker::{
    BrokerHandle, Config, Figure, Figures, LogLevel, Service, ServiceError, Stats,
};
use mqttcore_streams::{QueryReports, RowStreams, Rows, Sink};
use mqttcore_tls::TlsServer;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};

use access::HostNames;
use api::ApiAccess;
use api::keys::Keys;
use app::{App, HttpCounters};
pub use options::{HttpLimits, HttpListener, HttpOptions, MetricsAccess};
pub use program::Program;
use routes::Routes;
use socket::HttpSocket;

/// Name of the endpoint's Unix socket in the data folder.
const SOCKET: &str = "http";
/// Name of the endpoint's certificates among those of listeners.
const CERTIFICATES: &str = "http";

/// Health, metrics and streams over HTTP, on its own thread; without configuration there is neither socket nor thread.
pub struct Endpoint {
    streams: Arc<RowStreams>,
    options: HttpOptions,
    figures: Arc<HttpCounters>,
    reports: Arc<QueryReports>,
    program: OnceLock<Arc<dyn Program>>,
    serving: OnceLock<Serving>,
}

/// The thread of the endpoint.
struct Serving {
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: watch::Sender<Option<Duration>>,
    address: Option<SocketAddr>,
    routes: Arc<Routes>,
}

/// A socket of the endpoint cannot be bound, or its thread cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("http: cannot serve on {place}: {error}")]
struct BindError {
    /// The path, the address, or the thread.
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
    /// An endpoint that serves `streams`; it starts when the broker starts.
    pub fn new(streams: Arc<RowStreams>, options: HttpOptions) -> Self {
        Self {
            streams,
            options,
            figures: Arc::default(),
            reports: Arc::default(),
            program: OnceLock::new(),
            serving: OnceLock::new(),
        }
    }

    /// Sets the program that reads and reloads the configuration for operators; before the start.
    pub fn set_program(&self, program: Arc<dyn Program>) {
        // There is one program.
        let _ = self.program.set(program);
    }

    /// Checks the certificate files; returns the warnings that a start would log.
    ///
    /// # Errors
    ///
    /// A file cannot be used.
    pub fn check(&self) -> Result<Vec<String>, ServiceError> {
        let loaded = self.options.tcp.as_ref().map(socket::load_tls);
        let loaded = loaded.transpose()?.flatten();
        let warnings = loaded.map_or_else(Vec::new, |loaded| loaded.warnings);
        Ok(warnings
            .iter()
            .map(|line| format!("http: {line}"))
            .collect())
    }

    /// The TCP address, with the port that was bound.
    pub fn address(&self) -> Option<SocketAddr> {
        self.serving.get()?.address
    }

    /// Description of each stream as JSON, the response of `GET /v1/streams/NAME`.
    pub fn streams(&self) -> Vec<String> {
        self.app_in_service().map_or_else(Vec::new, App::streams)
    }

    /// The streams, once the endpoint has started.
    fn app_in_service(&self) -> Option<&App> {
        self.serving.get()?.routes.streams()
    }

    /// The streams in the data `folder`.
    fn app(
        &self,
        folder: &Path,
        rows: Rows,
        broker: &BrokerHandle,
        config: &Config,
    ) -> Result<App, ServiceError> {
        let of_streams = folder.join("streams");
        let absolute = std::path::absolute(&of_streams);
        let absolute = absolute.map_err(|error| BindError::at(&of_streams, error))?;
        let sink = Sink::open(folder.join(mqttcore_store::NOTED), broker, &config.limits);
        let sink = sink.map_err(|error| format!("data: {error}"))?;
        Ok(App::new(rows, sink, absolute, Arc::clone(&self.reports)))
    }

    /// Binds all sockets and serves them on a new thread.
    fn serve(&self, unix: &[PathBuf], routes: Arc<Routes>) -> Result<Serving, BindError> {
        let mut warnings = Vec::new();
        let sockets = socket::bind(unix, self.options.tcp.as_ref(), &mut warnings)?;
        for line in warnings {
            let line = format!("http: {line}");
            routes.broker().log(LogLevel::Warning, line);
        }
        for server in sockets.iter().filter_map(HttpSocket::tls) {
            routes.broker().show_certificates(CERTIFICATES, server);
        }
        let address = sockets.iter().find_map(HttpSocket::address);
        let (stop, stopping) = watch::channel(None);
        let limits = Arc::new(self.options.limits);
        let (sender, started) = channel::sync_channel(1);
        let serving = Arc::clone(&routes);
        let serve = move || run(sockets, &limits, &serving, stopping, &sender);
        let on_panic = routes.broker().fail_on_panic();
        let thread = mqttcore_panics::spawn("mqttcore-http", on_panic, serve);
        let thread = thread.map_err(BindError::no_thread)?;
        let failed = || Err(io::Error::other("the thread ended before it began"));
        let started = started.recv().unwrap_or_else(|_| failed());
        started.map_err(BindError::no_thread)?;
        Ok(Serving {
            thread: Mutex::new(Some(thread)),
            stop,
            address,
            routes,
        })
    }
}

impl Service for Endpoint {
    /// # Errors
    ///
    /// A socket cannot be bound, the thread cannot be started, or the sink cannot be opened.
    fn start(&self, broker: &BrokerHandle, config: &Config) -> Result<(), ServiceError> {
        let folder = config.data.as_ref().map(|data| data.folder.as_path());
        let streams = match (folder, self.streams.rows().cloned()) {
            (Some(folder), Some(rows)) => Some(self.app(folder, rows, broker, config)?),
            _ if !self.options.is_enabled => return Ok(()),
            _ => None,
        };
        let own = folder.map(|folder| folder.join(SOCKET));
        let of_streams = streams.as_ref().map(App::socket);
        let unix: Vec<_> = own.into_iter().chain(of_streams).collect();
        let figures = Arc::clone(&self.figures);
        let keys = Keys::open(self.options.keys_file.clone());
        let keys = Arc::new(keys.map_err(|error| error.to_string())?);
        let program = self.program.get().cloned();
        let access = ApiAccess {
            keys,
            has_logins: self.options.login,
            hosts: HostNames::new(&self.options.hosts),
        };
        let mut routes = Routes::new(broker, config, streams, access, program, figures);
        routes.set_features(&self.options.features);
        if self.options.page {
            routes.serve_page();
        }
        broker.record_events();
        // A service starts once.
        let _ = self.serving.set(self.serve(&unix, Arc::new(routes))?);
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
        let [answered, refused, full, share] = self.figures.values();
        vec![
            Figure::new(
                "http_answered",
                "HTTP requests that were answered.",
                answered,
            ),
            Figure::new("http_refused", "HTTP requests that were refused.", refused),
            Figure::new(
                "http_connections_refused",
                "HTTP connections refused because the endpoint had its maximum.",
                full,
            ),
            Figure::new(
                "http_connections_refused_address",
                "HTTP connections refused because their address had its maximum.",
                share,
            ),
        ]
    }

    fn memory_bytes(&self) -> usize {
        let routes = self.serving.get().map(|serving| &serving.routes);
        routes.map_or(0, |routes| routes.memory_bytes())
    }

    fn sys_topics(&self, _: &Stats) -> Vec<(String, String)> {
        let reports = self.reports.new_reports(Instant::now()).into_iter();
        reports
            .map(|(query, report)| (format!("spark/{query}"), report.unwrap_or_default()))
            .collect()
    }
}

impl Serving {
    /// Accepts no new requests; open requests have `deadline` to finish.
    fn begin_to_stop(&self, deadline: Duration) {
        self.stop.send_replace(Some(deadline));
    }

    /// Waits for the thread to end.
    fn join(&self) {
        self.begin_to_stop(Duration::ZERO);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // If the thread panicked, it has reported that.
            let _ = thread.join();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.join();
    }
}

/// Reloads certificate files when they change, and warns once a day about certificates that expire soon, until the
/// endpoint stops.
async fn watch_files(broker: BrokerHandle, server: Arc<TlsServer>) {
    loop {
        tokio::time::sleep(mqttcore_tls::WATCH_EVERY).await;
        let own = Arc::clone(&server);
        // Reading files blocks.
        let read = tasks::blocking(move || own.refresh()).await;
        match read.ok().flatten() {
            None => {}
            Some(Ok(refreshed)) => {
                if refreshed.is_reloaded {
                    let text = "http: certificates reloaded";
                    broker.log(LogLevel::Info, text.to_owned());
                }
                for line in refreshed.warnings {
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

/// Reloads the key file when it changes, until the endpoint stops.
async fn watch_keys(broker: BrokerHandle, keys: Arc<Keys>) {
    loop {
        tokio::time::sleep(mqttcore_tls::WATCH_EVERY).await;
        let own = Arc::clone(&keys);
        match tasks::blocking(move || own.refresh()).await {
            Ok(Ok(true)) => broker.log(LogLevel::Info, "http: keys reloaded".to_owned()),
            Ok(Err(error)) => {
                let text = format!("{error}; the previous keys stay in use");
                broker.log(LogLevel::Error, text);
            }
            Ok(Ok(false)) | Err(_) => {}
        }
    }
}

/// The main function of the endpoint's thread.
fn run(
    sockets: Vec<HttpSocket>,
    limits: &Arc<HttpLimits>,
    routes: &Arc<Routes>,
    mut stopping: watch::Receiver<Option<Duration>>,
    started: &channel::SyncSender<io::Result<()>>,
) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let broker = routes.broker();
    runtime.block_on(async {
        // Each connection holds a sender: the channel closes when the last connection has ended.
        let (alive, mut all_gone) = mpsc::channel(1);
        let connections = || {
            let (limits, routes) = (Arc::clone(limits), Arc::clone(routes));
            connection::HttpConnections::new(limits, routes, stopping.clone(), alive.clone())
        };
        let _ = started.send(spawn_acceptors(sockets, broker, connections));
        drop(alive);
        spawn_upkeep(routes);
        let deadline = match stopping.wait_for(Option::is_some).await {
            Ok(deadline) => deadline.unwrap_or_default(),
            Err(_) => Duration::ZERO,
        };
        routes.api().close();
        // Connections that are still open after that are closed.
        let _ = tokio::time::timeout(deadline, all_gone.recv()).await;
    });
}

/// Spawns the regular work of the endpoint.
fn spawn_upkeep(routes: &Arc<Routes>) {
    let broker = routes.broker();
    let watch = watch_keys(broker.clone(), routes.keys());
    let watch = broker.critical("the watch over the endpoint's keys", watch);
    tasks::spawn(watch);
    let sampling = Arc::clone(routes);
    let sample = async move { sampling.api().sample().await };
    let sample = broker.critical("the samples of the endpoint", sample);
    tasks::spawn(sample);
    let searching = Arc::clone(routes);
    let search = async move { searching.api().search_risks().await };
    let search = broker.critical("the search for risks", search);
    tasks::spawn(search);
    let watching = Arc::clone(routes);
    let watch = async move { watching.api().watch().await };
    let watch = broker.critical("the events of the endpoint", watch);
    tasks::spawn(watch);
    if let Some(streams) = routes.streams() {
        let upkeep = broker.critical("the endpoint's upkeep", streams.work());
        tasks::spawn(upkeep);
    }
}

/// Opens all sockets, then accepts connections on each and watches its certificates.
///
/// # Errors
///
/// A socket cannot be opened; then none accepts connections.
fn spawn_acceptors(
    sockets: Vec<HttpSocket>,
    broker: &BrokerHandle,
    connections: impl Fn() -> connection::HttpConnections,
) -> io::Result<()> {
    let servers: Vec<_> = sockets.iter().filter_map(HttpSocket::tls).collect();
    let sockets: io::Result<Vec<_>> = sockets.into_iter().map(HttpSocket::open).collect();
    for socket in sockets? {
        let accept = socket.accept(Rc::new(connections()));
        let accept = broker.critical("the endpoint's acceptor", accept);
        tasks::spawn(accept);
    }
    for server in servers {
        let watch = watch_files(broker.clone(), server);
        let watch = broker.critical("the watch over the endpoint's certificates", watch);
        tasks::spawn(watch);
    }
    Ok(())
}
