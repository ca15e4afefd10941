//! The loop: read what came, answer it, and send what the windows let, in batches.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::connection::{self, Connection, Terms, Unread};
use super::flows::{Flows, Spread};
use super::framing::{self, PublishTemplate, Received, Stamp, Version};
use super::histogram::Histogram;
use super::idle;
use super::options::{Options, Row};
use super::pace::Pace;
use super::process;
use super::report::Report;
use super::stream::{self, Stream};
use super::turns::{Disk, RECORD_BYTES, quantiles};

/// A publisher with more than this unsent waits for its socket.
const BACKLOG_BYTES: usize = 256 * 1_024;
/// After the measured time, messages may take this long to arrive before they are lost.
const DRAIN: Duration = Duration::from_secs(2);

/// Runs one busy row.
///
/// # Errors
///
/// When a connection fails or ends, or the broker sends what nobody asked for.
pub fn busy(options: &Options) -> io::Result<Report> {
    let synced = options
        .disk
        .as_deref()
        .map(|folder| sync_of_windows(options, folder));
    let synced = synced.transpose()?;
    let mut load = Load::open(options)?;
    load.run_for(options.warmup)?;
    load.histogram.clear();
    load.acknowledgements.histogram.clear();
    let from = load.mark()?;
    load.run_for(options.measured)?;
    let to = load.mark()?;
    load.drain()?;
    Ok(Report {
        seconds: to.at.duration_since(from.at).as_secs_f64(),
        delivered: to.delivered - from.delivered,
        broker_cpu_s: to
            .broker_cpu_s
            .zip(from.broker_cpu_s)
            .map(|(to, from)| to - from),
        load_cpu_s: to.load_cpu_s - from.load_cpu_s,
        p50_ns: load.histogram.quantile(0.5),
        p99_ns: load.histogram.quantile(0.99),
        ack_p50_ns: load.acknowledgements.histogram.quantile(0.5),
        ack_p99_ns: load.acknowledgements.histogram.quantile(0.99),
        sent: load.flows.sent(),
        topic_bytes: topic_bytes(options),
        synced,
        lost: load.flows.lost(),
        duplicated: load.flows.duplicated,
    })
}

/// How long the disk of `folder` takes for a write of the messages in flight of all publishers, and its sync: the median.
///
/// A broker that acknowledges a message only once it is synced has at most [`Options::in_flight`] of them in each sync, so
/// that the disk allows it so many messages in this time.
fn sync_of_windows(options: &Options, folder: &Path) -> io::Result<Duration> {
    const SYNCS: usize = 50;
    let each = topic(options, 0).len() + options.payload_bytes + RECORD_BYTES;
    let in_flight = usize::try_from(options.in_flight()).map_err(io::Error::other)?;
    let mut disk = Disk::open(folder, each * in_flight, SYNCS)?;
    let times: io::Result<Vec<_>> = (0..SYNCS).map(|turn| disk.sync(turn)).collect();
    let [median, _] = quantiles(times?);
    Ok(median)
}

/// The counters at one moment.
struct Mark {
    at: Instant,
    delivered: u64,
    broker_cpu_s: Option<f64>,
    load_cpu_s: f64,
}

/// How long publishers wait for the end of each publish; they come in the order of the publishes
/// [MQTT-4.6.0-2].
struct Acknowledgements {
    histogram: Histogram,
    /// When what each publisher waits for was sent.
    sent_ns: Vec<VecDeque<u64>>,
}

impl Acknowledgements {
    fn new(publishers: usize, window: u64) -> Self {
        let capacity = usize::try_from(window).unwrap_or(0);
        Self {
            histogram: Histogram::default(),
            sent_ns: vec![VecDeque::with_capacity(capacity); publishers],
        }
    }

    fn arrived(&mut self, publisher: usize, now_ns: u64) {
        if let Some(sent_ns) = self.sent_ns[publisher].pop_front() {
            self.histogram.record(now_ns.saturating_sub(sent_ns));
        }
    }
}

struct Load {
    poll: Poll,
    /// Publishers first, then subscribers.
    connections: Vec<Connection>,
    templates: Vec<PublishTemplate>,
    flows: Flows,
    /// From the write of a message, or the time at which it was due, to its arrival.
    histogram: Histogram,
    acknowledgements: Acknowledgements,
    qos: u8,
    version: Version,
    /// Publishers are their own subscribers.
    is_own: bool,
    pid: Option<u32>,
    pace: Option<Pace>,
    began: Instant,
    publishing: bool,
    /// Connections with something to send, each once.
    dirty: Vec<usize>,
    is_dirty: Vec<bool>,
    /// Clients whose filters match nothing.
    _others: Vec<Stream>,
    /// Buffers of connections that have nothing unread.
    spare: Vec<Unread>,
}

impl Load {
    fn open(options: &Options) -> io::Result<Self> {
        let poll = Poll::new()?;
        let terms = terms(options)?;
        let version = terms.version;
        let others = idle::subscribers(&terms, options.filters)?;
        let open =
            |id: &str, subscription: Option<(&str, u8)>| connection::open(&terms, id, subscription);
        let mut connections = Vec::with_capacity(options.publishers + options.subscribers);
        for place in 0..options.publishers {
            let id = format!("load-p{place}");
            let filter = filter(options.row, place);
            let own = (options.row == Row::Own).then_some((&*filter, options.qos));
            connections.push(open(&id, own)?);
        }
        let subscribers = match options.row {
            Row::Own => 0,
            _ => options.subscribers,
        };
        for place in 0..subscribers {
            let id = format!("load-s{place}");
            let filter = filter(options.row, place);
            let subscriber = open(&id, Some((&filter, options.qos)))?;
            // Those of a queue go away again.
            if options.row != Row::Queue {
                connections.push(subscriber);
            }
        }
        let connections = register(&poll, connections)?;
        let template = |place| {
            let topic = topic(options, place);
            PublishTemplate::new(&topic, options.qos, options.payload_bytes, version)
        };
        let count = connections.len();
        Ok(Self {
            poll,
            connections,
            templates: (0..options.publishers).map(template).collect(),
            flows: Flows::new(
                options.publishers,
                spread(options),
                options.window,
                options.qos > 0,
            ),
            histogram: Histogram::default(),
            acknowledgements: Acknowledgements::new(options.publishers, options.window),
            qos: options.qos,
            version,
            is_own: options.row == Row::Own,
            pid: options.pid,
            pace: options.rate.map(|rate| Pace::new(rate, options.publishers)),
            began: Instant::now(),
            publishing: true,
            dirty: (0..options.publishers).collect(),
            is_dirty: (0..count).map(|place| place < options.publishers).collect(),
            _others: others,
            spare: Vec::new(),
        })
    }

    fn mark(&self) -> io::Result<Mark> {
        Ok(Mark {
            at: Instant::now(),
            delivered: self.flows.delivered,
            broker_cpu_s: self.pid.map(process::cpu_seconds).transpose()?,
            load_cpu_s: process::cpu_seconds(std::process::id())?,
        })
    }

    fn run_for(&mut self, time: Duration) -> io::Result<()> {
        let until = Instant::now() + time;
        let mut events = Events::with_capacity(4_096);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.turn(&mut events, left)?;
        }
    }

    /// Stops publishing and waits until everything came, or nothing comes any more.
    fn drain(&mut self) -> io::Result<()> {
        self.publishing = false;
        let mut events = Events::with_capacity(4_096);
        let mut until = Instant::now() + DRAIN;
        while self.flows.outstanding() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let before = self.flows.delivered;
            self.turn(&mut events, left)?;
            if self.flows.delivered != before {
                until = Instant::now() + DRAIN;
            }
        }
        Ok(())
    }

    fn turn(&mut self, events: &mut Events, left: Duration) -> io::Result<()> {
        let wait = match &mut self.pace {
            None => left,
            Some(pace) => {
                let elapsed = self.began.elapsed();
                pace.grant(elapsed);
                for publisher in pace.waiting() {
                    touch(&mut self.dirty, &mut self.is_dirty, publisher);
                }
                left.min(pace.rest(elapsed))
            }
        };
        self.flush()?;
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &*events {
            let Token(place) = event.token();
            if event.is_readable() {
                self.read(place)?;
            }
            if event.is_writable() && self.connections[place].backlog() > 0 {
                touch(&mut self.dirty, &mut self.is_dirty, place);
            }
        }
        Ok(())
    }

    fn read(&mut self, place: usize) -> io::Result<()> {
        loop {
            let mut unread = self.connections[place].take_unread();
            if unread.is_empty() {
                unread = self.spare.pop().unwrap_or_default();
            }
            let may_have_more = self.connections[place].fill(&mut unread);
            let may_have_more = may_have_more.map_err(|error| self.ended(place, &error))?;
            let used = self.handle_all(place, unread.bytes())?;
            unread.consume(used);
            if unread.is_empty() {
                self.spare.push(unread);
            } else {
                self.connections[place].keep(unread);
            }
            if !may_have_more {
                return Ok(());
            }
        }
    }

    /// Handles whole packets, and answers how many bytes they are.
    fn handle_all(&mut self, place: usize, bytes: &[u8]) -> io::Result<usize> {
        let now_ns = self.now_ns();
        let mut rest = bytes;
        while let Some((packet, used)) =
            framing::read(rest, self.version).map_err(io::Error::other)?
        {
            self.handle(place, packet, now_ns)?;
            rest = &rest[used..];
        }
        Ok(bytes.len() - rest.len())
    }

    fn handle(&mut self, place: usize, packet: Received<'_>, now_ns: u64) -> io::Result<()> {
        let (head, id) = match (packet, self.publisher(place), self.subscriber(place)) {
            (
                Received::Publish {
                    qos,
                    packet_id,
                    payload,
                },
                _,
                Some(subscriber),
            ) => {
                self.take(subscriber, payload, now_ns)?;
                match qos {
                    0 => return Ok(()),
                    1 => (0x40, packet_id),
                    _ => (0x50, packet_id),
                }
            }
            (Received::PubRel(id), _, Some(_)) => (0x70, id),
            (Received::PubRec(id), Some(_), _) => (0x62, id),
            (Received::PubAck | Received::PubComp, Some(publisher), _) => {
                self.flows.acknowledged(publisher);
                self.acknowledgements.arrived(publisher, now_ns);
                touch(&mut self.dirty, &mut self.is_dirty, place);
                return Ok(());
            }
            (packet, ..) => return Err(io::Error::other(format!("unexpected {packet:?}"))),
        };
        let ack = [head, 2, id[0], id[1]];
        self.connections[place].out().extend_from_slice(&ack);
        touch(&mut self.dirty, &mut self.is_dirty, place);
        Ok(())
    }

    fn take(&mut self, subscriber: usize, payload: &[u8], now_ns: u64) -> io::Result<()> {
        let stamp = Stamp::read(payload).ok_or_else(|| io::Error::other("a foreign message"))?;
        let publisher = usize::try_from(stamp.publisher).map_err(io::Error::other)?;
        let moved = self
            .flows
            .received(publisher, subscriber, stamp.sequence)
            .map_err(io::Error::other)?;
        self.histogram.record(now_ns.saturating_sub(stamp.sent_ns));
        if moved {
            touch(&mut self.dirty, &mut self.is_dirty, publisher);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        for slot in 0..self.dirty.len() {
            let place = self.dirty[slot];
            self.is_dirty[place] = false;
            if self.publishing && place < self.templates.len() {
                self.publish(place);
            }
            let flushed = self.connections[place].flush();
            flushed.map_err(|error| self.ended(place, &error))?;
        }
        self.dirty.clear();
        Ok(())
    }

    fn publish(&mut self, publisher: usize) {
        let now_ns = self.now_ns();
        while self.connections[publisher].backlog() < BACKLOG_BYTES {
            let due_ns = match &self.pace {
                None => Some(now_ns),
                Some(pace) => pace.due_ns(publisher),
            };
            let Some(sent_ns) = due_ns else {
                return;
            };
            let Some(sequence) = self.flows.next(publisher) else {
                return;
            };
            if let Some(pace) = &mut self.pace {
                pace.sent(publisher);
            }
            let stamp = Stamp {
                publisher: u32::try_from(publisher).unwrap_or(u32::MAX),
                sequence,
                sent_ns,
            };
            let out = self.connections[publisher].out();
            self.templates[publisher].append(out, stamp);
            if self.qos > 0 {
                self.acknowledgements.sent_ns[publisher].push_back(sent_ns);
            }
        }
    }

    /// Which publisher a connection is.
    fn publisher(&self, place: usize) -> Option<usize> {
        (place < self.templates.len()).then_some(place)
    }

    /// Which subscriber a connection is.
    fn subscriber(&self, place: usize) -> Option<usize> {
        if self.is_own {
            return Some(place);
        }
        place.checked_sub(self.templates.len())
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn ended(&self, place: usize, error: &io::Error) -> io::Error {
        let who = match place.checked_sub(self.templates.len()) {
            None => format!("publisher {place}"),
            Some(subscriber) => format!("subscriber {subscriber}"),
        };
        io::Error::other(format!("{who} (QoS {}): {error}", self.qos))
    }
}

/// How the clients of a run connect.
///
/// # Errors
///
/// When the CA cannot be read.
pub(super) fn terms(options: &Options) -> io::Result<Terms> {
    let tls = options.tls.as_deref().map(stream::client_config);
    Ok(Terms {
        address: options.address,
        kept: options.kept,
        version: options.aliases.map_or(Version::V3, Version::V5),
        tls: tls.transpose()?,
    })
}

fn touch(dirty: &mut Vec<usize>, is_dirty: &mut [bool], place: usize) {
    if !is_dirty[place] {
        is_dirty[place] = true;
        dirty.push(place);
    }
}

fn register(poll: &Poll, streams: Vec<Stream>) -> io::Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(streams.len());
    for (place, stream) in streams.into_iter().enumerate() {
        let mut connection = Connection::new(stream)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry()
            .register(connection.source(), Token(place), interest)?;
        connections.push(connection);
    }
    Ok(connections)
}

fn spread(options: &Options) -> Spread {
    match options.row {
        Row::Fanout => Spread::Copies(options.subscribers),
        Row::Shared => Spread::AnyOf,
        Row::Queue => Spread::Nobody,
        _ => Spread::Single,
    }
}

/// Where a publisher publishes.
pub(super) fn topic(options: &Options, publisher: usize) -> String {
    match options.row {
        Row::Fanout => "load/fan".into(),
        Row::Fanin => format!("load/{}/{publisher}", publisher % options.subscribers),
        _ => format!("load/pair/{publisher}"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a few topics")]
fn topic_bytes(options: &Options) -> f64 {
    let all: usize = (0..options.publishers)
        .map(|publisher| topic(options, publisher).len())
        .sum();
    all as f64 / options.publishers as f64
}

/// What a subscriber subscribes to.
pub(super) fn filter(row: Row, subscriber: usize) -> String {
    match row {
        Row::Fanout => "load/fan".into(),
        Row::Fanin => format!("load/{subscriber}/+"),
        Row::Shared => "$share/load/load/pair/+".into(),
        _ => format!("load/pair/{subscriber}"),
    }
}
