//! What a store would keep of a durable session: a log of which a crash loses the end.

use std::collections::VecDeque;
use std::sync::Arc;

use mqttcore_codec::{PacketId, ProtocolVersion, QoS};
use mqttcore_session::{AckToken, Delivery, ExchangeRecord, ServerLimits, Session};

use crate::common::{message, start};

/// One line of the log, and the token that waits for it.
struct Line {
    token: Option<AckToken>,
    entry: Entry,
}

#[derive(Clone, Copy)]
pub(crate) enum Entry {
    /// A message for the client was routed to its session.
    Given { number: u16, qos: QoS },
    /// A publish of the client's was accepted.
    Taken {
        packet_id: PacketId,
        qos: QoS,
        number: u16,
    },
    /// What the session told.
    Told(ExchangeRecord),
}

#[derive(Default)]
pub(crate) struct Book {
    lines: Vec<Line>,
    /// Lines that survived a crash: they are on the disk.
    survived: usize,
}

/// The state that the log describes.
#[derive(Default)]
pub(crate) struct Kept {
    queue: VecDeque<(u16, QoS)>,
    pub(crate) publishes: Vec<(PacketId, u16, QoS)>,
    pub(crate) releases: Vec<(PacketId, u16)>,
    received: Vec<PacketId>,
    pub(crate) given: Vec<(QoS, u16)>,
    pub(crate) taken: Vec<(QoS, u16)>,
}

impl Book {
    pub(crate) fn write(&mut self, token: Option<AckToken>, entry: Entry) {
        self.lines.push(Line { token, entry });
    }

    /// Loses what is behind the last line that a confirmed token waited for, but for a part that
    /// `luck` decides; tokens begin anew.
    pub(crate) fn crash(&mut self, confirmed: AckToken, luck: u8) {
        let is_safe = |line: &Line| line.token.is_some_and(|token| token <= confirmed);
        let confirmed = self.lines.iter().rposition(is_safe).map_or(0, |at| at + 1);
        let safe = confirmed.max(self.survived);
        self.survived = safe + usize::from(luck) % (self.lines.len() - safe + 1);
        self.lines.truncate(self.survived);
        for line in &mut self.lines {
            line.token = None;
        }
    }

    pub(crate) fn read(&self) -> Kept {
        let mut kept = Kept::default();
        for line in &self.lines {
            kept.apply(line.entry);
        }
        kept
    }
}

impl Kept {
    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Given { number, qos } => {
                self.given.push((qos, number));
                self.queue.push_back((number, qos));
            }
            Entry::Taken {
                packet_id,
                qos,
                number,
            } => {
                self.taken.push((qos, number));
                if qos == QoS::ExactlyOnce {
                    self.received.push(packet_id);
                }
            }
            Entry::Told(record) => self.follow(record),
        }
    }

    fn follow(&mut self, record: ExchangeRecord) {
        match record {
            ExchangeRecord::Sending {
                packet_id,
                qos,
                key,
            } => {
                let is_it = |(number, _): &(u16, QoS)| key_of(*number) == key;
                let at = self.queue.iter().position(is_it).expect("it was queued");
                let (number, _) = self.queue.remove(at).expect("it was found");
                self.publishes.push((packet_id, number, qos));
            }
            ExchangeRecord::Received { packet_id, .. } => {
                let at = self.published(packet_id).expect("it was under way");
                let (_, number, _) = self.publishes.remove(at);
                self.releases.push((packet_id, number));
            }
            ExchangeRecord::Completed { packet_id } => {
                if let Some(at) = self.published(packet_id) {
                    self.publishes.remove(at);
                }
                self.releases.retain(|(open, _)| *open != packet_id);
            }
            ExchangeRecord::Released { packet_id } => {
                self.received.retain(|held| *held != packet_id);
            }
        }
    }

    fn published(&self, packet_id: PacketId) -> Option<usize> {
        self.publishes
            .iter()
            .position(|(open, ..)| *open == packet_id)
    }

    /// The session that the log describes.
    pub(crate) fn session(&self, limits: &Arc<ServerLimits>) -> Session {
        let mut session = Session::restored(ProtocolVersion::V5, Arc::clone(limits), start(), 100);
        for packet_id in &self.received {
            session.restore_received(*packet_id);
        }
        for (packet_id, number, qos) in &self.publishes {
            let message = message("t", &number.to_be_bytes(), *qos);
            session.restore_publish(*packet_id, message, delivery(*number, *qos));
        }
        for (packet_id, _) in &self.releases {
            session.restore_release(*packet_id);
        }
        let page: Vec<_> = self
            .queue
            .iter()
            .map(|(number, qos)| {
                let message = message("t", &number.to_be_bytes(), *qos);
                (message, delivery(*number, *qos))
            })
            .collect();
        let bytes = page.iter().map(|(message, _)| message.len()).sum();
        session.restore_spilled(page.len(), bytes);
        session.begin_paging(u64::MAX);
        session.page(start(), page, true, |_| true);
        session
    }
}

fn delivery(number: u16, qos: QoS) -> Delivery<'static> {
    Delivery {
        key: key_of(number),
        ..Delivery::new(qos, &[])
    }
}

/// The book has every message: none has the key 0.
pub(crate) fn key_of(number: u16) -> u64 {
    u64::from(number) + 1
}
