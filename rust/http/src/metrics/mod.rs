//! `GET /metrics`: the broker's metrics as OpenMetrics text.
//!
//! A scrape only reads counters, holds of streams and reports of queries. It sends nothing to shards, does not iterate over
//! clients or topics, does not wait for the disk, and runs no Python. With `?names=mosquitto` it reads the retained messages
//! below `$SYS/broker` instead.

mod families;
mod lags;
pub(super) mod mosquitto;
mod process;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use mqttcore_broker::{
    BrokerHandle, Config, Health, Histogram, HookCalls, Refusals, ShownCertificates, Tallies,
    Tally, TopicCount,
};
use mqttcore_streams::{QueryReports, Rows};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::app::HttpCounters;

use families::{FAMILIES, Family, Kind, Labelled, LimitAction, Part, Values};
use process::Process;

/// Media type of the response.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Reads the figures of a broker.
pub(super) struct FigureReader {
    broker: BrokerHandle,
    /// Names of the listeners, as they were at the start.
    listeners: Vec<Arc<str>>,
    http: Arc<HttpCounters>,
    /// The streams, if there are any.
    rows: Option<Rows>,
    /// The reports of queries that read them.
    reports: Option<Arc<QueryReports>>,
    started_unix_s: f64,
    /// Optional parts of the build, separated by commas.
    features: Arc<str>,
}

/// The commit that `make wheel` builds; empty in other builds.
const COMMIT: &str = match option_env!("MQTTCORE_COMMIT") {
    Some(commit) => commit,
    None => "",
};

/// The figures of one scrape.
#[derive(Debug, Default)]
struct Scrape {
    /// The broker's figures by name.
    figures: HashMap<String, u64>,
    health: Health,
    tallies: Tallies,
    hooks: Vec<HookCalls>,
    /// Bans in force, by their origin.
    bans: Tally,
    /// Durations of HTTP requests, by group of routes.
    requests: Vec<(&'static str, Histogram)>,
    /// Answers to HTTP requests, by group of routes, method and status.
    answers: Labelled,
    /// Refusals of each listener, by name of the figure.
    refusals: Vec<(Arc<str>, HashMap<&'static str, u64>)>,
    /// Messages that wait for each shard.
    mailboxes: Vec<usize>,
    /// Messages received on the topics of each configured metric.
    topics: Vec<TopicCount>,
    /// When the first certificate of each listener expires, in Unix time.
    certificates: Labelled,
    /// Lags of consumers, by stream and consumer, if the caller is admitted.
    consumer_lags: Labelled,
    /// Lags of Spark queries, by query, if the caller is admitted.
    query_lags: Labelled,
    /// Name and connections of each listener.
    connections: Vec<(Arc<str>, u64)>,
    /// Name of each listener, and its connected clients by protocol version.
    clients: Vec<(Arc<str>, Tally)>,
    process: Process,
    started_unix_s: f64,
    /// Version, commit and features of the broker, if the caller is admitted.
    build: Option<[Arc<str>; 3]>,
}

impl FigureReader {
    /// `of_streams` are the streams and the reports of queries.
    pub(super) fn new(
        broker: &BrokerHandle,
        config: &Config,
        http: Arc<HttpCounters>,
        of_streams: (Option<Rows>, Option<Arc<QueryReports>>),
    ) -> Self {
        let names = config.listeners.iter();
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            broker: broker.clone(),
            listeners: names
                .map(|listener| listener.name.as_str().into())
                .collect(),
            http,
            rows: of_streams.0,
            reports: of_streams.1,
            started_unix_s: since.map_or(0.0, |since| since.as_secs_f64()),
            features: Arc::default(),
        }
    }

    /// Names the optional parts of the build.
    pub(super) fn set_features(&mut self, features: &[&str]) {
        self.features = features.join(",").into();
    }

    fn build(&self) -> [Arc<str>; 3] {
        [
            env!("CARGO_PKG_VERSION").into(),
            COMMIT.into(),
            Arc::clone(&self.features),
        ]
    }

    /// The metrics as text; `None` once the broker has stopped. Only an admitted caller gets the version and the names of
    /// consumers and queries.
    pub(super) fn page(&self, is_admitted: bool) -> Option<String> {
        let counts = self
            .broker
            .connections()
            .into_iter()
            .map(|count| count as u64);
        let counts = counts.chain(std::iter::repeat(0));
        let rows = self.rows.as_ref().filter(|_| is_admitted);
        let reports = self.reports.as_deref().filter(|_| is_admitted);
        let scrape = Scrape {
            health: self.broker.health()?,
            figures: self.broker.figures().into_iter().collect(),
            tallies: self.broker.tallies(),
            clients: self.broker.connected_clients(),
            hooks: self.broker.hook_calls(),
            bans: self.broker.ban_counts(),
            requests: self.http.times.histograms(),
            answers: answers(&self.http),
            refusals: self.refusals(),
            mailboxes: self.broker.mailboxes(),
            topics: self.broker.topic_counts(),
            certificates: expiries(&self.broker.certificates()),
            consumer_lags: rows.map_or_else(Labelled::new, lags::of_consumers),
            query_lags: reports.map_or_else(Labelled::new, lags::of_queries),
            connections: self.listeners.iter().cloned().zip(counts).collect(),
            process: Process::read(),
            started_unix_s: self.started_unix_s,
            build: is_admitted.then(|| self.build()),
        };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(scrape));
        let mut page = String::with_capacity(PAGE_BYTES);
        // INVARIANT: writing to a string does not fail.
        encode(&mut page, &registry).expect("a string takes all");
        Some(page)
    }
}

impl FigureReader {
    fn refusals(&self) -> Vec<(Arc<str>, HashMap<&'static str, u64>)> {
        let by_name = |refusals: Refusals| {
            let figures = refusals.figures().into_iter();
            figures.map(|figure| (figure.name, figure.value)).collect()
        };
        let listeners = self.broker.refusals().into_iter();
        listeners
            .map(|(name, refusals)| (name, by_name(refusals)))
            .collect()
    }
}

/// Answers to HTTP requests, by group of routes, method and status.
fn answers(http: &HttpCounters) -> Labelled {
    let counts = http.answers.all().into_iter();
    counts
        .map(|((route, method, status), count)| {
            let labels = vec![route.into(), method.into(), status.as_str().into()];
            (labels, float(count))
        })
        .collect()
}

/// When the first certificate of each listener expires, in Unix time; a service may have the name of a listener.
fn expiries(shown: &[ShownCertificates]) -> Labelled {
    let mut first = BTreeMap::new();
    for listener in shown {
        for certificate in &listener.certificates {
            let since = certificate.not_after.duration_since(UNIX_EPOCH);
            let expiry = since.unwrap_or_default().as_secs();
            let of_listener = first.entry(&listener.name).or_insert(expiry);
            *of_listener = expiry.min(*of_listener);
        }
    }
    let first = first.into_iter();
    first
        .map(|(name, expiry)| (vec![Arc::clone(name)], float(expiry)))
        .collect()
}

/// Typical size of a response in bytes.
const PAGE_BYTES: usize = 24 << 10;

impl Scrape {
    /// The figure with this name; `None` if the broker lacks it, such as figures of the store without a store.
    fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied().map(float)
    }

    /// The refusals with this name, by listener.
    fn by_listener(&self, figure: &str) -> impl Iterator<Item = (Arc<str>, f64)> {
        let listeners = self.refusals.iter();
        listeners.filter_map(move |(name, figures)| {
            Some((Arc::clone(name), float(*figures.get(figure)?)))
        })
    }

    /// Dropped messages of this figure, by QoS.
    fn drops(&self, figure: &str) -> &[(&'static str, u64)] {
        let mut figures = self.tallies.dropped.iter();
        let own = figures.find(|(name, _)| *name == figure);
        own.map_or(&[], |(_, by_qos)| by_qos)
    }

    fn part(&self, part: &Part) -> Option<f64> {
        let less = part.less.iter().filter_map(|name| self.figure(name));
        // The figures may change between two reads.
        Some((self.figure(part.figure)? - less.sum::<f64>()).max(0.0))
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in FAMILIES {
            family.encode(self, &mut encoder)?;
        }
        Ok(())
    }
}

impl Family {
    /// Writes the family, unless it has no values now.
    fn encode(&self, scrape: &Scrape, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Info => MetricType::Info,
            Kind::Histogram => MetricType::Histogram,
        };
        if let Values::Durations(names, read) = self.values {
            let durations = read(scrape);
            if durations.is_empty() {
                return Ok(());
            }
            let mut family = encoder.encode_descriptor(self.name, self.help, None, kind)?;
            return durations.into_iter().try_for_each(|(texts, durations)| {
                let texts = texts.iter().map(|text| &**text);
                let labels: Vec<_> = names.iter().copied().zip(texts).collect();
                encode_durations(&mut family, &labels, durations)
            });
        }
        let values = self.values(scrape);
        if values.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for (labels, value) in values {
            let labels = labels.iter().map(|(name, text)| (*name, &**text));
            let labels: Vec<_> = labels.collect();
            match self.kind {
                Kind::Info => family.encode_info(&labels)?,
                _ if labels.is_empty() => self.encode_value(&mut family, value)?,
                _ => self.encode_value(&mut family.encode_family(&labels)?, value)?,
            }
        }
        Ok(())
    }

    fn encode_value(&self, encoder: &mut MetricEncoder<'_>, value: f64) -> fmt::Result {
        match self.kind {
            Kind::Counter => encoder.encode_counter::<[(&str, &str); 0], _, f64>(&value, None),
            Kind::Gauge | Kind::Info | Kind::Histogram => encoder.encode_gauge(&value),
        }
    }

    /// The values of the family and their labels. Longer than other functions: one arm for each kind of values.
    fn values(&self, scrape: &Scrape) -> Vec<(Labels, f64)> {
        let alone = |value| (Vec::new(), value);
        match self.values {
            Values::One(name) => scrape.figure(name).map(alone).into_iter().collect(),
            Values::Maybe(read) => read(scrape).map(alone).into_iter().collect(),
            Values::By(label, parts) => {
                let labels = |part: &Part| vec![(label, Arc::from(part.text))];
                let parts = parts.iter();
                parts
                    .filter_map(|part| Some((labels(part), scrape.part(part)?)))
                    .collect()
            }
            Values::OneByListener(name) => {
                let counts = scrape.by_listener(name);
                counts
                    .map(|(listener, count)| (vec![("listener", listener)], count))
                    .collect()
            }
            Values::ByListener(label, parts) => {
                let of = |part: &'static Part| {
                    let counts = scrape.by_listener(part.figure);
                    counts.map(move |(listener, count)| {
                        let labels = vec![("listener", listener), (label, Arc::from(part.text))];
                        (labels, count)
                    })
                };
                parts.iter().flat_map(of).collect()
            }
            Values::LimitsByListener(actions) => {
                let of = |action: &'static LimitAction| {
                    let counts = scrape.by_listener(action.figure);
                    counts.map(move |(listener, count)| {
                        let labels = vec![
                            ("listener", listener),
                            ("limit", Arc::from(action.limit)),
                            ("action", Arc::from(action.action)),
                        ];
                        (labels, count)
                    })
                };
                actions.iter().flat_map(of).collect()
            }
            Values::DropsByQos(label, parts) => {
                let of = |part: &'static Part| {
                    let counts = scrape.drops(part.figure).iter();
                    counts.map(move |(qos, count)| {
                        let labels = vec![(label, Arc::from(part.text)), ("qos", Arc::from(*qos))];
                        (labels, float(*count))
                    })
                };
                parts.iter().flat_map(of).collect()
            }
            Values::Durations(..) => Vec::new(),
            Values::Each(names, read) => {
                let values = read(scrape).into_iter();
                values
                    .map(|(texts, value)| (names.iter().copied().zip(texts).collect(), value))
                    .collect()
            }
        }
    }
}

/// Writes durations in seconds.
fn encode_durations(
    encoder: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    durations: &Histogram,
) -> fmt::Result {
    let limit = |us| match us {
        u64::MAX => f64::INFINITY,
        _ => float(us) / 1e6,
    };
    let buckets = durations.buckets.iter();
    let buckets: Vec<_> = buckets.map(|(us, count)| (limit(*us), *count)).collect();
    let count = buckets.iter().map(|(_, count)| count).sum();
    let sum = float(durations.sum_us) / 1e6;
    if labels.is_empty() {
        return encoder.encode_histogram::<[(&str, &str); 0]>(sum, count, &buckets, None);
    }
    let mut encoder = encoder.encode_family(&labels)?;
    encoder.encode_histogram::<[(&str, &str); 0]>(sum, count, &buckets, None)
}

/// Converts a figure to the number type of OpenMetrics.
#[expect(clippy::cast_precision_loss, reason = "figures are far below 2^53")]
fn float(figure: u64) -> f64 {
    figure as f64
}

/// The labels of one value.
type Labels = Vec<(&'static str, Arc<str>)>;
