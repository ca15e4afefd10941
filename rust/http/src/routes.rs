//! Routes a request to health, metrics, API or streams, and checks access.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, StatusCode};
use mqttcore_broker::{BrokerHandle, Config};

use crate::{HttpLimits, MetricsAccess};

use super::access::{HostNames, SocketAccess};
use super::answer::{AnswerBody, HttpError, HttpResponse, of_type};
use super::api::identity::{Caller, CallerIdentity};
use super::api::keys::Keys;
use super::api::scope::Scope;
use super::api::{self, Api, ApiAccess};
use super::app::{App, HttpCounters};
use super::health::Probe;
use super::metrics::{FigureReader, OPEN_METRICS, mosquitto};
use super::page::{self, Asset, PageLogin};
use super::program::Program;

/// All routes of the endpoint.
pub(crate) struct Routes {
    broker: BrokerHandle,
    metrics: FigureReader,
    /// The streams, if there are any.
    streams: Option<App>,
    api: Api,
    figures: Arc<HttpCounters>,
    has_page: bool,
    hosts: HostNames,
}

impl Routes {
    pub(crate) fn new(
        broker: &BrokerHandle,
        config: &Config,
        streams: Option<App>,
        access: ApiAccess,
        program: Option<Arc<dyn Program>>,
        figures: Arc<HttpCounters>,
    ) -> Self {
        let of_streams = streams
            .as_ref()
            .map(|app| (app.rows_of_streams(), app.reports()))
            .unzip();
        let metrics = FigureReader::new(broker, config, Arc::clone(&figures), of_streams.clone());
        let data = config.data.as_ref().map(|data| data.folder.as_path());
        Self {
            hosts: access.hosts.clone(),
            api: Api::new(broker, of_streams, access, program, data),
            broker: broker.clone(),
            metrics,
            streams,
            figures,
            has_page: false,
        }
    }

    /// Serves the page, too.
    pub(super) fn serve_page(&mut self) {
        self.has_page = true;
    }

    /// Names the optional parts of the build in metrics.
    pub(super) fn set_features(&mut self, features: &[&str]) {
        self.metrics.set_features(features);
    }

    pub(super) fn broker(&self) -> &BrokerHandle {
        &self.broker
    }

    /// The HTTP API.
    pub(super) fn api(&self) -> &Api {
        &self.api
    }

    pub(super) fn keys(&self) -> Arc<Keys> {
        self.api.keys()
    }

    pub(super) fn figures(&self) -> &HttpCounters {
        &self.figures
    }

    pub(super) fn streams(&self) -> Option<&App> {
        self.streams.as_ref()
    }

    /// Bytes of memory that count against the broker's budget.
    pub(super) fn memory_bytes(&self) -> usize {
        let streams = self.streams.as_ref().map_or(0, App::memory_bytes);
        streams + self.api.memory_bytes()
    }

    /// Identifies the sender of a request for `path` by its headers. Cookies count for the API alone.
    pub(super) fn identify<'a>(
        &self,
        path: &str,
        headers: &HeaderMap,
        access: &'a SocketAccess,
        address: Option<IpAddr>,
    ) -> Caller<'a> {
        let identity = if access.admits(headers) {
            Some(CallerIdentity::of(access))
        } else {
            self.api.identify(headers, path.starts_with(api::PREFIX))
        };
        Caller {
            access,
            identity,
            address,
        }
    }

    /// Handles a request of `caller`.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        limits: &HttpLimits,
        caller: &Caller<'_>,
    ) -> Result<HttpResponse, HttpError> {
        let (access, is_admitted) = (caller.access, caller.may_view());
        let path = request.uri().path();
        if let Some(probe) = Probe::of(path) {
            reads(&request)?;
            return Ok(probe.answer(self.broker.health().as_ref()));
        }
        if path == "/metrics" && (is_admitted || access.metrics() != MetricsAccess::Token) {
            return self.metrics(&request, access, is_admitted).await;
        }
        if path.starts_with(api::PREFIX) {
            return Ok(self.api.answer(request, limits, caller).await);
        }
        if let Some(file) = page::find(path).filter(|_| self.has_page) {
            reads(&request)?;
            return Ok(self.page(&file?, request.headers(), access).await);
        }
        let Some(identity) = &caller.identity else {
            return Err(access.refusal(self.api.keys().has_any()));
        };
        if path == "/metrics" {
            identity.needs_one_of(&[Scope::View])?;
        }
        match &self.streams {
            Some(streams) => streams.answer(request, limits, identity).await,
            None => Err(HttpError::not_found("unknown path")),
        }
    }

    /// A file of the page. If the broker is busy, the page may not connect to its WebSocket listeners.
    async fn page(&self, file: &Asset, headers: &HeaderMap, access: &SocketAccess) -> HttpResponse {
        if !file.is_first() {
            return file.answer(headers);
        }
        let has_keys = access.has_token() || self.api.keys().has_any();
        let login = match (access, has_keys, self.api.has_logins().await) {
            (SocketAccess::Known, ..) => PageLogin::Known,
            (_, true, false) => PageLogin::Key,
            (_, true, true) => PageLogin::KeyOrPassword,
            (_, false, true) => PageLogin::Password,
            (_, false, false) => PageLogin::Nobody,
        };
        let config = self.broker.config().ok();
        let listeners = config.as_ref().map(|config| &*config.listeners);
        file.first(headers, listeners.unwrap_or_default(), login)
    }

    async fn metrics(
        &self,
        request: &Request<Incoming>,
        access: &SocketAccess,
        is_admitted: bool,
    ) -> Result<HttpResponse, HttpError> {
        if access.metrics() == MetricsAccess::Off {
            return Err(HttpError::not_found("metrics are off: set http.metrics"));
        }
        if !is_admitted && !self.hosts.have_that_of(request.headers()) {
            let text = "the Host header is a name: ask for an IP address, localhost or one of http.hosts, or send the token";
            return Err(HttpError::forbidden(text));
        }
        let (kind, page) = if request.uri().query() == Some("names=mosquitto") {
            may_read(request)?;
            let page = mosquitto::page(&self.broker).await;
            (mosquitto::PROMETHEUS_TEXT, page.ok())
        } else {
            reads(request)?;
            (OPEN_METRICS, self.metrics.page(is_admitted))
        };
        let page = page.ok_or_else(|| {
            let text = "the broker has ended";
            HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "stopped", text)
        })?;
        Ok(of_type(kind, AnswerBody::Whole(page.into())))
    }
}

/// Refuses methods other than GET and HEAD.
fn may_read(request: &Request<Incoming>) -> Result<(), HttpError> {
    match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(HttpError::method("GET, HEAD")),
    }
}

/// Refuses methods other than GET and HEAD, and any query parameter.
fn reads(request: &Request<Incoming>) -> Result<(), HttpError> {
    may_read(request)?;
    match request.uri().query() {
        None | Some("") => Ok(()),
        Some(query) => Err(HttpError::bad(format!(
            "unknown query parameter: {query:?}"
        ))),
    }
}
