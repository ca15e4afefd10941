//! Serves one HTTP connection, and the state that connections share.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use mqttcore_broker::LogLevel;
use mqttcore_panics::caught;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use crate::HttpLimits;

use super::access::SocketAccess;
use super::answer::{HttpResponse, close_behind};
use super::places::{ConnectionPlace, NoPlace, Places};
use super::request_times::{RouteGroup, method_name};
use super::routes::Routes;
use super::stall_timeout::StallTimeout;
use super::tasks;

/// Maximum size of a connection's read buffer in bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// Minimum interval between log lines about refused connections.
const LOGGED_EVERY: Duration = Duration::from_secs(1);

/// The connections of one socket. Each socket has its own limit, so that clients of the TCP socket cannot exhaust the
/// Unix sockets.
pub(super) struct HttpConnections {
    limits: Arc<HttpLimits>,
    routes: Arc<Routes>,
    stopping: watch::Receiver<Option<Duration>>,
    alive: mpsc::Sender<Infallible>,
    places: RefCell<Places>,
    logged_at: Cell<Option<Instant>>,
}

impl HttpConnections {
    pub(super) fn new(
        limits: Arc<HttpLimits>,
        routes: Arc<Routes>,
        stopping: watch::Receiver<Option<Duration>>,
        alive: mpsc::Sender<Infallible>,
    ) -> Self {
        let places = Places::new(limits.connections, limits.address_connections);
        Self {
            limits,
            routes,
            stopping,
            alive,
            places: RefCell::new(places),
            logged_at: Cell::default(),
        }
    }

    /// Runs `work` unless the endpoint stops first.
    pub(super) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stopping = self.stopping.clone();
        let mut stopped = pin!(stopping.wait_for(Option::is_some));
        let mut work = pin!(work);
        poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// Takes a place for a connection of `peer`, if there is one.
    fn admit(self: &Rc<Self>, peer: Option<IpAddr>) -> Option<(HttpConnection, Rc<Notify>)> {
        let taken = self.places.borrow_mut().take(peer, Instant::now());
        let figures = self.routes.figures();
        let ConnectionPlace {
            number,
            end,
            displaced,
        } = match taken {
            Ok(place) => place,
            Err(NoPlace::Full) => {
                figures.refused();
                self.log_refused(peer, "refused: too many connections");
                return None;
            }
            Err(NoPlace::Address) => {
                figures.refused_address();
                self.log_refused(peer, "refused: its address has too many connections");
                return None;
            }
        };
        if displaced.is_some() {
            figures.refused_address();
            self.log_refused(
                displaced,
                "loses a connection to another address: all places are taken",
            );
        }
        let connection = HttpConnection {
            all: Rc::clone(self),
            place: number,
            address: peer,
            _alive: self.alive.clone(),
        };
        Some((connection, end))
    }

    fn log_refused(&self, peer: Option<IpAddr>, why: &str) {
        let now = Instant::now();
        let last = self.logged_at.get();
        if last.is_some_and(|last| now < last + LOGGED_EVERY) {
            return;
        }
        self.logged_at.set(Some(now));
        let peer = peer.map_or_else(|| "a Unix socket".into(), |peer| peer.to_string());
        let line = format!("http: {peer} {why}");
        self.routes.broker().log(LogLevel::Warning, line);
    }

    /// Serves a connection as soon as `opening` is complete, if there is a place for it.
    pub(super) fn serve<S>(
        self: &Rc<Self>,
        opening: impl Future<Output = io::Result<S>> + 'static,
        peer: Option<IpAddr>,
        access: SocketAccess,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let Some((connection, end)) = self.admit(peer) else {
            return;
        };
        let broker = self.routes.broker().clone();
        let served = caught(
            "a connection of the endpoint",
            unless(end, connection.serve(opening, access)),
        );
        tasks::spawn(async move {
            if let Err(panicked) = served.await {
                broker.report(panicked);
            }
        });
    }
}

/// A connection that has a place.
struct HttpConnection {
    all: Rc<HttpConnections>,
    place: u64,
    /// `None` for a Unix socket.
    address: Option<IpAddr>,
    _alive: mpsc::Sender<Infallible>,
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.all.places.borrow_mut().give_back(self.place);
    }
}

impl HttpConnection {
    async fn serve<S>(self, opening: impl Future<Output = io::Result<S>>, access: SocketAccess)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let limits = &self.all.limits;
        // The TLS handshake has the same deadline as request headers.
        let opening = timeout(limits.header_deadline, opening);
        let Some(Ok(Ok(stream))) = self.all.unless_stopped(opening).await else {
            return;
        };
        let io = TokioIo::new(StallTimeout::new(stream, limits.stall_deadline));
        let service = service_fn(|request| self.answer(request, &access));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_deadline)
            .max_header_size(limits.header_bytes)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        if self.all.unless_stopped(connection.as_mut()).await.is_none() {
            connection.as_mut().graceful_shutdown();
            // An error is not reported: the connection has ended.
            let _ = connection.await;
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        access: &SocketAccess,
    ) -> Result<HttpResponse, Infallible> {
        let routes = &self.all.routes;
        let begun = Instant::now();
        let path = request.uri().path();
        let (group, method) = (RouteGroup::of(path), method_name(request.method()));
        let caller = routes.identify(path, request.headers(), access, self.address);
        if caller.identity.is_some() {
            self.all.places.borrow_mut().keep(self.place);
        }
        let answered = routes.answer(request, &self.all.limits, &caller).await;
        let is_refused = |answer: &HttpResponse| answer.status().is_client_error();
        let is_well = answered.as_ref().is_ok_and(|answer| !is_refused(answer));
        let figures = routes.figures();
        figures.answered(is_well);
        figures.times.count(group, begun.elapsed());
        let mut answer = answered.unwrap_or_else(HttpResponse::from);
        figures.answers.count(group, method, answer.status());
        if caller.identity.is_none() {
            // Otherwise an unauthenticated client could keep its connection by sending further requests.
            close_behind(&mut answer);
        }
        Ok(answer)
    }
}

/// Runs `work` unless `end` comes first.
async fn unless(end: Rc<Notify>, work: impl Future<Output = ()>) {
    let (mut end, mut work) = (pin!(end.notified()), pin!(work));
    poll_fn(|cx| {
        if end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        work.as_mut().poll(cx)
    })
    .await;
}
