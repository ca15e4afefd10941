//! The oracle: what the steps amount to, said again in the plainest way.

use std::collections::{BTreeMap, BTreeSet};

use mqttcore_store::record::{
    Away, MessageRecord, PacketIdRunsBuf, RecipientsBuf, Record, SessionOpened, WillSet,
};
use mqttcore_store::{Batch, KeptSession, Store, StoreError, StoredDelivery};

/// A step of the workload.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Open {
        session: u64,
        expiry_s: u32,
    },
    Away {
        session: u64,
        at_ms: u64,
        maybe_sent_below: u64,
    },
    End {
        session: u64,
    },
    Subscribe {
        session: u64,
        filter: String,
        id: u32,
    },
    Unsubscribe {
        session: u64,
        filter: String,
    },
    Publish {
        message: u64,
        topic: String,
        recipients: Vec<(u64, u8)>,
        kept: bool,
        exactly_once: Option<(u64, u16)>,
    },
    Route {
        message: u64,
        first: u64,
        session: u64,
    },
    Released {
        session: u64,
        packet_id: u16,
    },
    Send {
        session: u64,
        delivery: u64,
        packet_id: u16,
    },
    Receive {
        session: u64,
        packet_id: u16,
    },
    Complete {
        session: u64,
        packet_ids: Vec<u16>,
    },
    Drop {
        session: u64,
        delivery: u64,
    },
    Clear {
        topic: String,
    },
    Will {
        session: u64,
        payload: u64,
    },
    WillEnd {
        session: u64,
    },
}

/// A delivery, as far as it matters here: number, message, QoS.
pub(crate) type Waiting = (u64, u64, u8);

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Session {
    pub(crate) expiry_s: u32,
    pub(crate) away: Option<u64>,
    pub(crate) maybe_sent_below: u64,
    pub(crate) subscriptions: BTreeMap<String, u32>,
    pub(crate) exactly_once: BTreeSet<u16>,
    pub(crate) queue: Vec<Waiting>,
    pub(crate) publishes: Vec<(u16, Waiting)>,
    pub(crate) releases: Vec<u16>,
    pub(crate) will: Option<u64>,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Model {
    pub(crate) sessions: BTreeMap<u64, Session>,
    pub(crate) retained: BTreeMap<String, u64>,
}

impl Step {
    pub(crate) fn record(&self, batch: &mut Batch) {
        match self {
            Self::Open { session, expiry_s } => batch.push(&Record::Opened(SessionOpened {
                session: *session,
                at_ms: 5,
                version: 5,
                expiry_s: *expiry_s,
                client_id: &format!("client-{session}"),
                username: None,
            })),
            Self::Away {
                session,
                at_ms,
                maybe_sent_below,
            } => batch.push(&Record::Away(Away {
                session: *session,
                at_ms: *at_ms,
                expiry_s: 60,
                maybe_sent_below: *maybe_sent_below,
            })),
            Self::End { session } => batch.push(&Record::Ended { session: *session }),
            Self::Subscribe {
                session,
                filter,
                id,
            } => batch.push(&Record::Subscribed {
                session: *session,
                filter,
                options: 1,
                id: *id,
            }),
            Self::Unsubscribe { session, filter } => {
                batch.push(&Record::Unsubscribed {
                    session: *session,
                    filter,
                });
            }
            Self::Publish { .. } => self.publish(batch),
            Self::Route {
                message,
                first,
                session,
            } => {
                let mut recipients = RecipientsBuf::default();
                recipients.push(*session, 1, true, &[]);
                batch.push(&Record::Route {
                    message: *message,
                    first: *first,
                    recipients: recipients.as_recipients(),
                });
            }
            Self::Released { session, packet_id } => {
                batch.push(&Record::Released {
                    session: *session,
                    packet_id: *packet_id,
                });
            }
            Self::Send {
                session,
                delivery,
                packet_id,
            } => batch.push(&Record::Sending {
                session: *session,
                delivery: *delivery,
                packet_id: *packet_id,
            }),
            Self::Receive { session, packet_id } => {
                batch.push(&Record::Received {
                    session: *session,
                    packet_id: *packet_id,
                });
            }
            Self::Complete {
                session,
                packet_ids,
            } => {
                let mut ids = PacketIdRunsBuf::default();
                for id in packet_ids {
                    ids.push(*id);
                }
                let packet_ids = ids.as_packet_ids();
                batch.push(&Record::Completed {
                    session: *session,
                    packet_ids,
                });
            }
            Self::Drop { session, delivery } => {
                batch.push(&Record::Dropped {
                    session: *session,
                    delivery: *delivery,
                });
            }
            Self::Clear { topic } => batch.push(&Record::RetainCleared { topic }),
            Self::Will { session, payload } => batch.push(&Record::WillSet(WillSet {
                session: *session,
                delay_s: 1,
                qos: 1,
                retain: false,
                topic: "will",
                properties: &[],
                payload: &payload.to_le_bytes(),
            })),
            Self::WillEnd { session } => batch.push(&Record::WillEnded { session: *session }),
        }
    }

    fn publish(&self, batch: &mut Batch) {
        let Self::Publish {
            message,
            topic,
            recipients,
            kept,
            exactly_once,
        } = self
        else {
            return;
        };
        let mut listed = RecipientsBuf::default();
        for (session, qos) in recipients {
            listed.push(*session, *qos, false, &[]);
        }
        batch.push(&Record::Message(MessageRecord {
            message: *message,
            qos: 2,
            kept: *kept,
            exactly_once: *exactly_once,
            topic,
            recipients: listed.as_recipients(),
            payload: &payload(*message),
            ..MessageRecord::default()
        }));
    }
}

/// What a message says, so that a wrong one is seen.
pub(crate) fn payload(message: u64) -> Vec<u8> {
    let length = usize::try_from(message % 97).unwrap();
    let mut payload = message.to_le_bytes().to_vec();
    payload.resize(8 + length, 0xA5);
    payload
}

impl Model {
    pub(crate) fn apply(&mut self, step: &Step) {
        match step.clone() {
            Step::Open { session, expiry_s } => {
                let row = self.sessions.entry(session).or_default();
                (row.expiry_s, row.away) = (expiry_s, None);
            }
            Step::Away {
                session,
                at_ms,
                maybe_sent_below,
            } => self.with(session, |row| {
                (row.away, row.expiry_s) = (Some(at_ms), 60);
                row.maybe_sent_below = row.maybe_sent_below.max(maybe_sent_below);
            }),
            Step::End { session } => drop(self.sessions.remove(&session)),
            Step::Subscribe {
                session,
                filter,
                id,
            } => self.with(session, |row| {
                row.subscriptions.insert(filter, id);
            }),
            Step::Unsubscribe { session, filter } => self.with(session, |row| {
                row.subscriptions.remove(&filter);
            }),
            Step::Publish {
                message,
                topic,
                recipients,
                kept,
                exactly_once,
            } => {
                if let Some((session, packet_id)) = exactly_once {
                    self.with(session, |row| {
                        row.exactly_once.insert(packet_id);
                    });
                }
                for (number, (session, qos)) in (message..).zip(recipients) {
                    self.with(session, |row| row.queue.push((number, message, qos)));
                }
                if kept {
                    self.retained.insert(topic, message);
                }
            }
            Step::Route {
                message,
                first,
                session,
            } => {
                self.with(session, |row| row.queue.push((first, message, 1)));
            }
            Step::Released { session, packet_id } => {
                self.with(session, |row| {
                    row.exactly_once.remove(&packet_id);
                });
            }
            Step::Send {
                session,
                delivery,
                packet_id,
            } => self.with(session, |row| {
                let place = row.queue.iter().position(|waiting| waiting.0 == delivery);
                let waiting = row.queue.remove(place.unwrap());
                row.publishes.push((packet_id, waiting));
            }),
            Step::Receive { session, packet_id } => self.with(session, |row| {
                row.publishes.retain(|(id, _)| *id != packet_id);
                row.releases.push(packet_id);
            }),
            Step::Complete {
                session,
                packet_ids,
            } => self.with(session, |row| {
                row.publishes.retain(|(id, _)| !packet_ids.contains(id));
                row.releases.retain(|id| !packet_ids.contains(id));
            }),
            Step::Drop { session, delivery } => self.with(session, |row| {
                row.queue.retain(|waiting| waiting.0 != delivery);
            }),
            Step::Clear { topic } => drop(self.retained.remove(&topic)),
            Step::Will { session, payload } => {
                self.with(session, |row| row.will = Some(payload));
            }
            Step::WillEnd { session } => self.with(session, |row| row.will = None),
        }
    }

    fn with(&mut self, session: u64, change: impl FnOnce(&mut Session)) {
        if let Some(row) = self.sessions.get_mut(&session) {
            change(row);
        }
    }

    /// No number up to this one may be given again.
    pub(crate) fn highest_number(&self) -> u64 {
        let rows = self.sessions.values();
        let queued = rows.clone().flat_map(|row| &row.queue);
        let publishes = rows.flat_map(|row| row.publishes.iter().map(|(_, waiting)| waiting));
        let deliveries = queued
            .chain(publishes)
            .map(|waiting| waiting.0.max(waiting.1));
        let numbers = deliveries.chain(self.sessions.keys().copied());
        numbers
            .chain(self.retained.values().copied())
            .max()
            .unwrap_or(0)
    }

    /// The store's own view, and the messages whose content is not what was published.
    pub(crate) fn read(store: &dyn Store) -> Result<(Self, Vec<u64>), StoreError> {
        let mut model = Self::default();
        store.sessions(&mut |kept| {
            let KeptSession {
                number: session,
                row,
                subscriptions,
                ..
            } = kept;
            let waiting =
                |delivery: &StoredDelivery| (delivery.number, delivery.message, delivery.qos);
            let publishes = row.publishes.iter();
            let payload = |payload: &Vec<u8>| u64::from_le_bytes(payload[..8].try_into().unwrap());
            let held = Session {
                expiry_s: row.expiry_s,
                away: row.away_since_ms,
                maybe_sent_below: row.maybe_sent_below,
                subscriptions: subscriptions
                    .iter()
                    .map(|(f, (_, id))| (f.clone(), *id))
                    .collect(),
                exactly_once: row.exactly_once.clone(),
                queue: Vec::new(),
                publishes: publishes
                    .map(|(id, delivery)| (*id, waiting(delivery)))
                    .collect(),
                releases: row.releases.clone(),
                will: row.will.as_ref().map(|will| payload(&will.payload)),
            };
            model.sessions.insert(session, held);
        })?;
        let (mut wanted, mut wrong) = (BTreeSet::new(), Vec::new());
        for (session, row) in &mut model.sessions {
            for delivery in store.queue(*session, 0, usize::MAX)? {
                row.queue
                    .push((delivery.number, delivery.message, delivery.qos));
            }
            wanted.extend(row.queue.iter().map(|waiting| waiting.1));
            wanted.extend(row.publishes.iter().map(|(_, waiting)| waiting.1));
        }
        store.retained(&mut |topic, message| {
            model.retained.insert(topic.to_owned(), message);
        })?;
        wanted.extend(model.retained.values());
        for message in wanted {
            let found = store.message(message)?;
            let is_right = found.is_some_and(|found| found.message().payload == payload(message));
            wrong.extend((!is_right).then_some(message));
        }
        Ok((model, wrong))
    }
}
