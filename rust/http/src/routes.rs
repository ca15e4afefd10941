//! Routes a request to health, metrics or streams, and says who may ask.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::{HeaderMap, Method, Request, StatusCode};
use mqttcore_broker::{BrokerHandle, Config, names_an_address};

use crate::{HttpLimits, MetricsAccess};

use super::answer::{Content, HttpError, HttpResponse, of_type};
use super::app::{App, HttpCounters};
use super::health::Probe;
use super::metrics::{Metrics, OPEN_METRICS};
use super::socket::Access;

/// All that the endpoint serves.
pub(crate) struct Routes {
    broker: BrokerHandle,
    metrics: Metrics,
    /// The streams, if there are any.
    streams: Option<App>,
    figures: Arc<HttpCounters>,
}

impl Routes {
    pub(crate) fn new(
        broker: &BrokerHandle,
        config: &Config,
        streams: Option<App>,
        figures: Arc<HttpCounters>,
    ) -> Self {
        Self {
            broker: broker.clone(),
            metrics: Metrics::new(broker, config),
            streams,
            figures,
        }
    }

    pub(super) fn broker(&self) -> &BrokerHandle {
        &self.broker
    }

    pub(super) fn figures(&self) -> &HttpCounters {
        &self.figures
    }

    pub(super) fn streams(&self) -> Option<&App> {
        self.streams.as_ref()
    }

    /// Answers a request that came over a socket with `access`; `is_admitted` tells whether its sender may ask for
    /// everything.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        limits: &HttpLimits,
        access: &Access,
        is_admitted: bool,
    ) -> Result<HttpResponse, HttpError> {
        let path = request.uri().path();
        if let Some(probe) = Probe::of(path) {
            reads(&request)?;
            return Ok(probe.answer(self.broker.health().as_ref()));
        }
        if path == "/metrics" && (is_admitted || access.metrics() != MetricsAccess::Token) {
            return self.metrics(&request, access, is_admitted);
        }
        if !is_admitted {
            return Err(access.refusal());
        }
        match &self.streams {
            Some(streams) => streams.answer(request, limits).await,
            None => Err(HttpError::not_found("unknown path")),
        }
    }

    fn metrics(
        &self,
        request: &Request<Incoming>,
        access: &Access,
        is_admitted: bool,
    ) -> Result<HttpResponse, HttpError> {
        if access.metrics() == MetricsAccess::Off {
            return Err(HttpError::not_found("metrics are off: set http.metrics"));
        }
        if !is_admitted && !is_for_an_address(request.headers()) {
            let text =
                "the Host header is a name: ask for an IP address or localhost, or send the token";
            return Err(HttpError::forbidden(text));
        }
        reads(request)?;
        let page = self.metrics.page(is_admitted).ok_or_else(|| {
            let text = "the broker has ended";
            HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "stopped", text)
        })?;
        Ok(of_type(OPEN_METRICS, Content::Whole(page.into())))
    }
}

/// Whether a page of another origin cannot have sent the request: browsers let a page read answers of its own name.
fn is_for_an_address(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    host.to_str().is_ok_and(names_an_address)
}

/// Refuses what does more than read, and a query: no parameter is known.
fn reads(request: &Request<Incoming>) -> Result<(), HttpError> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(HttpError::method("GET, HEAD"));
    }
    match request.uri().query() {
        None | Some("") => Ok(()),
        Some(query) => Err(HttpError::bad(format!(
            "unknown query parameter: {query:?}"
        ))),
    }
}
