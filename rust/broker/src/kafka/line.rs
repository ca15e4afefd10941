//! A shard's records on their way to Kafka, and what waits for them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::{AckToken, Cause, Message};
use mqttcore_topics::TopicName;
use tokio::sync::oneshot;

use crate::clients::client::Client;
use crate::clients::link::Link;
use crate::clients::target::Target;
use crate::config::hooks::EventKind;
use crate::connection::end::End;
use crate::routing::publication::Publication;
use crate::runtime::log::{Escaped, LogClass};
use crate::shard::guard::contained;
use crate::shard::{EventDetails, Shard};
use crate::streams::now_us;

use super::pipe::{Lost, Outcome, Pipe};
use super::record::{Record, Ticket, weight};

/// What [`Client::kafka`] is when one of its records was lost: none of its promises leaves until it
/// comes again.
pub(crate) const LOST: u64 = u64::MAX;

/// Records behind one that is not settled above which QoS 0 is dropped: they wait for a partition that
/// nobody leads, while others go on.
const UNSETTLED_MAX: usize = 1 << 20;

const NOT_TAKEN: &str = "Kafka did not take the message";

/// One shard's way to Kafka.
pub(crate) struct Line {
    pipe: Arc<Pipe>,
    shard: u8,
    /// The records of this turn.
    batch: RefCell<Vec<Record>>,
    /// The number of the last record, and the last one up to which all are settled.
    last: Cell<u64>,
    settled: Cell<u64>,
    /// The last one above QoS 0.
    owed: Cell<u64>,
    /// How many of those that no client published were lost.
    own_lost: Cell<u64>,
    /// Records behind `settled`, in their order; `None` is settled.
    pending: RefCell<VecDeque<Option<Pending>>>,
    /// What waits until all up to a number are settled, in the order that it came.
    waiting: RefCell<BTreeMap<(u64, u64), Waiting>>,
    serial: Cell<u64>,
    /// Connections that are not read until there is room.
    stalled: RefCell<Vec<Waker>>,
    /// Scratch space of [`advance`].
    outcomes: RefCell<Vec<(u64, Outcome)>>,
}

/// A record of which nobody said yet what became of it.
struct Pending {
    bytes: usize,
    publisher: Publisher,
}

/// Who is told when a record is lost.
enum Publisher {
    /// Nobody waits.
    None,
    /// A promise over this connection waits.
    Promised(Rc<Client>, Rc<Link>),
    /// A step that waits for it.
    Asking(oneshot::Sender<Result<(), Lost>>),
}

/// What is done once records are settled.
pub(crate) enum Waiting {
    /// Let the promises of a session leave, up to this one.
    Confirm(Rc<Client>, AckToken),
    /// Tell another thread.
    Call(Box<dyn FnOnce()>),
}

impl Line {
    pub(crate) fn new(pipe: Arc<Pipe>, shard: usize) -> Self {
        Self {
            pipe,
            // INVARIANT: a shard's number is eight bits of a subscriber's handle.
            shard: u8::try_from(shard).expect("at most 64 shards"),
            batch: RefCell::default(),
            last: Cell::new(0),
            settled: Cell::new(0),
            owed: Cell::new(0),
            own_lost: Cell::new(0),
            pending: RefCell::default(),
            waiting: RefCell::default(),
            serial: Cell::new(0),
            stalled: RefCell::default(),
            outcomes: RefCell::default(),
        }
    }

    /// Hands over the records of this turn.
    pub(crate) fn hand_over(&self) {
        let mut batch = self.batch.borrow_mut();
        if !batch.is_empty() {
            self.pipe.send(&mut batch);
        }
    }

    /// Puts a message with those that leave at the end of this turn; returns its number.
    fn push(&self, stream: usize, message: &Message, source: &str, publisher: Publisher) -> u64 {
        let number = self.last.get() + 1;
        self.last.set(number);
        if message.qos() > QoS::AtMostOnce {
            self.owed.set(number);
        }
        let route = self.pipe.stream(stream);
        let partition = route.map_or(0, |route| route.partition(message.topic(), source));
        let record = Record {
            message: message.clone(),
            client_id: source.into(),
            stream,
            partition,
            timestamp_us: i64::try_from(now_us()).unwrap_or(i64::MAX),
            ticket: Ticket {
                shard: self.shard,
                number,
            },
        };
        let bytes = record.weight();
        self.pipe.add(bytes);
        let pending = Pending { bytes, publisher };
        self.pending.borrow_mut().push_back(Some(pending));
        self.batch.borrow_mut().push(record);
        number
    }

    /// Takes out the record of this number.
    fn take(&self, number: u64) -> Option<Pending> {
        let place = number.checked_sub(self.settled.get() + 1)?;
        let place = usize::try_from(place).ok()?;
        self.pending.borrow_mut().get_mut(place)?.take()
    }

    fn pass_settled(&self) {
        let mut pending = self.pending.borrow_mut();
        while pending.front().is_some_and(Option::is_none) {
            pending.pop_front();
            self.settled.set(self.settled.get() + 1);
        }
    }

    fn has_room(&self) -> bool {
        self.pipe.has_room() && self.pending.borrow().len() < UNSETTLED_MAX
    }

    fn is_settled(&self, number: u64) -> bool {
        number <= self.settled.get()
    }

    fn wait(&self, number: u64, waiting: Waiting) {
        let serial = self.serial.get();
        self.serial.set(serial + 1);
        self.waiting.borrow_mut().insert((number, serial), waiting);
    }

    /// Takes out the first thing whose records are settled.
    fn next_settled(&self) -> Option<Waiting> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.first_entry()?;
        let (number, _) = *first.key();
        self.is_settled(number).then(|| first.remove())
    }

    fn wake_stalled(&self) {
        let stalled = std::mem::take(&mut *self.stalled.borrow_mut());
        stalled.iter().for_each(Waker::wake_by_ref);
    }
}

impl Waiting {
    fn happen(self, shard: &Shard) {
        match self {
            Self::Confirm(client, _) if client.kafka() == LOST => {}
            Self::Confirm(client, token) => {
                client.session.borrow_mut().confirm(token);
                client.flush_session(shard);
            }
            Self::Call(call) => call(),
        }
    }
}

/// Makes records of a publish for the streams among its targets; its publisher's promises wait for
/// them from now on.
pub(crate) fn produce(shard: &Shard, publication: &Publication<'_>, targets: &[Target]) {
    let Some(line) = shard.kafka.as_ref().filter(|_| !publication.is_logged) else {
        return;
    };
    let message = publication.message;
    let is_lossy = message.qos() == QoS::AtMostOnce;
    let source = publication.publisher.map_or("", |client| &*client.id);
    for stream in targets.iter().filter_map(|target| target.handle.kafka()) {
        if is_lossy && !line.has_room() {
            shard.metrics().dropped_stream_overload.add(1);
            continue;
        }
        let connected = publication.publisher.filter(|_| !is_lossy);
        let connected = connected.and_then(|client| Some((client, client.link()?)));
        let Some((client, connection)) = connected else {
            line.push(stream, message, source, Publisher::None);
            continue;
        };
        let promised = Publisher::Promised(Rc::clone(client), Rc::clone(&connection));
        let number = line.push(stream, message, source, promised);
        if connection.kafka.get() != LOST {
            connection.kafka.set(number);
        }
    }
}

/// Sends a QoS 2 message of `client` to Kafka before it is accepted; `None` where no stream wants
/// it. The step ends the connection if Kafka does not take it.
pub(crate) fn log_first(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    topic: TopicName<'_>,
    message: &Message,
) -> Option<impl Future<Output = Result<(), End>> + use<>> {
    let line = shard.kafka.as_ref()?;
    if message.qos() != QoS::ExactlyOnce {
        return None;
    }
    let streams = line.pipe.matching(topic);
    let ask = |(stream, _)| {
        let (sender, answer) = oneshot::channel();
        line.push(stream, message, &client.id, Publisher::Asking(sender));
        answer
    };
    let answers: Vec<_> = streams.map(ask).collect();
    if answers.is_empty() {
        return None;
    }
    let (shard, client) = (Rc::clone(shard), Rc::clone(client));
    Some(async move {
        for answer in answers {
            // A sender that is dropped without a word means that the shard ends.
            let Ok(outcome) = answer.await else {
                return Err(End::Lost);
            };
            if let Err(lost) = outcome {
                tell_lost(&shard, &client, &lost);
                return Err(End::Refused {
                    reason: ReasonCode::SERVER_BUSY,
                    text: NOT_TAKEN.into(),
                });
            }
        }
        Ok(())
    })
}

/// Why a message above QoS 0 on `topic` is not taken on: what was not cannot be lost.
pub(crate) fn refusal(
    shard: &Shard,
    topic: TopicName<'_>,
    message: &Message,
) -> Option<&'static str> {
    let line = shard.kafka.as_ref()?;
    let (bytes, is_overfull) = (weight(message), line.pipe.is_overfull());
    if bytes <= line.pipe.record_bytes() && !is_overfull {
        return None;
    }
    line.pipe.matching(topic).find_map(|(_, stream)| {
        if bytes > stream.record_bytes() {
            Some("it is larger than what Kafka takes")
        } else {
            is_overfull.then_some("too much waits for Kafka")
        }
    })
}

/// Lets promises of `client` leave up to `token`, once all records up to `number` are settled.
pub(crate) fn let_leave(shard: &Shard, client: &Rc<Client>, token: AckToken, number: u64) {
    let confirm = Waiting::Confirm(Rc::clone(client), token);
    match &shard.kafka {
        Some(_) if client.kafka() == LOST => {}
        Some(line) if !line.is_settled(number) => line.wait(number, confirm),
        _ => client.session.borrow_mut().confirm(token),
    }
}

/// `then`, but once all records so far above QoS 0 are settled, too.
pub(crate) fn when_kept(shard: &Rc<Shard>, then: Box<dyn FnOnce()>) -> Box<dyn FnOnce()> {
    let Some(line) = &shard.kafka else {
        return then;
    };
    let (number, shard) = (line.owed.get(), Rc::clone(shard));
    Box::new(move || match &shard.kafka {
        Some(line) if !line.is_settled(number) => line.wait(number, Waiting::Call(then)),
        _ => then(),
    })
}

/// How many records were lost so far for which no client is told, those of the broker itself among
/// them.
pub(crate) fn own_lost(shard: &Shard) -> u64 {
    shard.kafka.as_ref().map_or(0, |line| line.own_lost.get())
}

/// Pending while `client` waits for Kafka and more does than should.
pub(crate) fn poll_room(shard: &Shard, client: &Client, cx: &Context<'_>) -> Poll<()> {
    let Some(line) = &shard.kafka else {
        return Poll::Ready(());
    };
    if line.is_settled(client.kafka()) || line.pipe.has_room() {
        return Poll::Ready(());
    }
    let mut stalled = line.stalled.borrow_mut();
    if !stalled.iter().any(|waker| waker.will_wake(cx.waker())) {
        stalled.push(cx.waker().clone());
    }
    drop(stalled);
    // There may have been room before this one was in the list.
    if line.pipe.has_room() {
        Poll::Ready(())
    } else {
        Poll::Pending
    }
}

/// Books what became of records, and does what waited for them.
pub(crate) fn advance(shard: &Rc<Shard>) {
    let Some(line) = &shard.kafka else { return };
    let mut outcomes = std::mem::take(&mut *line.outcomes.borrow_mut());
    line.pipe.outcomes(shard.index, &mut outcomes);
    for (number, outcome) in outcomes.drain(..) {
        if let Some(pending) = line.take(number) {
            line.pipe.release(pending.bytes);
            settle(shard, pending.publisher, outcome);
        }
    }
    *line.outcomes.borrow_mut() = outcomes;
    line.pass_settled();
    while let Some(waiting) = line.next_settled() {
        // One that fails must not keep the others waiting.
        contained(shard, "what waited for Kafka", || waiting.happen(shard));
    }
    line.wake_stalled();
}

fn settle(shard: &Shard, publisher: Publisher, outcome: Outcome) {
    match (outcome, publisher) {
        (Outcome::Kept, publisher) => {
            shard.metrics().kafka_records.add(1);
            if let Publisher::Asking(asking) = publisher {
                // Who asked may have gone.
                let _ = asking.send(Ok(()));
            }
        }
        (Outcome::Lost(lost), publisher) => {
            shard.metrics().kafka_lost.add(1);
            shard.log.warn(LogClass::Kafka, shard.now(), || {
                let (topic, why) = (Escaped(&lost.topic), &lost.why);
                format!("Kafka did not take a message on {topic}: {why}")
            });
            tell(shard, publisher, lost);
        }
    }
}

/// Has the publisher of a lost record send it again, if it can.
fn tell(shard: &Shard, publisher: Publisher, lost: Lost) {
    match publisher {
        Publisher::None => {
            if let Some(line) = &shard.kafka {
                line.own_lost.set(line.own_lost.get() + 1);
            }
        }
        Publisher::Asking(asking) => {
            // As in `settle`.
            let _ = asking.send(Err(lost));
        }
        Publisher::Promised(client, link) => {
            tell_lost(shard, &client, &lost);
            link.kafka.set(LOST);
            if client.has_link(&link) {
                link.close(Cause::Administrative, ReasonCode::SERVER_BUSY);
            }
        }
    }
}

fn tell_lost(shard: &Shard, client: &Client, lost: &Lost) {
    let details = EventDetails {
        topic: Some(&lost.topic),
        reason: Some(ReasonCode::SERVER_BUSY),
    };
    shard.tell(EventKind::Dropped, client, details);
}
