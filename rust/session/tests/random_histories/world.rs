//! Everything around the session: the engine, the disk, the wire.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use mqttcore_codec::{
    Packet, PacketId, PacketType, PropertiesBuf, QoS, ReasonCode, decode_connect,
};
use mqttcore_session::{
    AckToken, Cause, ConnectRequest, Delivery, ExchangeRecord, Request, ServerLimits, Session,
    SessionEvent, Terms, Transmit,
};

use crate::Step;
use crate::book::{Book, Entry, key_of};
use crate::client::{Client, V5, number, read};
use crate::common::{connect_5, message, start};

/// Everything around the session.
pub(crate) struct World {
    session: Session,
    limits: Arc<ServerLimits>,
    durable: bool,
    /// The engine asks somebody before it accepts a publish, and reads nothing meanwhile.
    slow: bool,
    asked: Option<(PacketId, QoS, u16)>,
    client: Client,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
    delivered: u16,
    /// Messages given to the session, by QoS.
    given: BTreeMap<QoS, Vec<u16>>,
    /// Publishes that the engine took, by QoS.
    taken: BTreeMap<QoS, Vec<u16>>,
    /// What a store keeps of a durable session.
    book: Book,
    /// Tokens, in their order, that the disk has not caught up with.
    waiting: VecDeque<AckToken>,
    confirmed: AckToken,
    /// What each kind of packet must wait for.
    gates: BTreeMap<(u8, u16), AckToken>,
    connack: AckToken,
    /// Identifiers under way to the client: the message, and whether its PUBLISH has left.
    under_way: BTreeMap<PacketId, (u16, bool)>,
    /// PUBLISHes of this connection that the client has not acknowledged.
    on_the_wire: BTreeSet<PacketId>,
}

/// Of each message: its topic is one byte, its payload two.
const MESSAGE_BYTES: usize = 3;

impl World {
    pub(crate) fn new(durable: bool, slow: bool, max_inflight_bytes: usize) -> Self {
        let limits = Arc::new(ServerLimits {
            receive_maximum: 3,
            max_inflight_bytes,
            ..ServerLimits::default()
        });
        let mut world = Self {
            session: Session::new(Arc::clone(&limits)),
            limits,
            durable,
            slow,
            asked: None,
            client: Client::default(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            delivered: 0,
            given: BTreeMap::new(),
            taken: BTreeMap::new(),
            book: Book::default(),
            waiting: VecDeque::new(),
            confirmed: AckToken::default(),
            gates: BTreeMap::new(),
            connack: AckToken::default(),
            under_way: BTreeMap::new(),
            on_the_wire: BTreeSet::new(),
        };
        world.come_back(3, false);
        world
    }

    pub(crate) fn run(&mut self, step: &Step) {
        match *step {
            Step::Deliver(qos) => self.deliver(qos),
            Step::Publish(qos) => self.client.publish(qos),
            Step::Down(count) => (0..count).for_each(|_| self.carry_down()),
            Step::Up(count) => (0..count).for_each(|_| self.carry_up()),
            Step::Work(count) => (0..count).for_each(|_| self.work()),
            Step::Accept => self.accept(),
            Step::Confirm(count) => (0..count).for_each(|_| self.confirm()),
            Step::Cut => self.cut(),
            Step::Crash(luck) => self.crash(luck),
            Step::Return(receive_maximum) => {
                if !self.session.is_connected() {
                    self.come_back(receive_maximum, true);
                }
            }
        }
        self.settle();
    }

    fn deliver(&mut self, qos: QoS) {
        let number = self.delivered;
        self.delivered += 1;
        self.given.entry(qos).or_default().push(number);
        self.book.write(None, Entry::Given { number, qos });
        let message = message("t", &number.to_be_bytes(), qos);
        let delivery = Delivery {
            key: key_of(number),
            ..Delivery::new(QoS::ExactlyOnce, &[])
        };
        self.session.deliver(start(), &message, delivery);
        self.settle_events();
    }

    /// Polls what is to be written: before the next token is taken, so that they stay in order.
    fn settle_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            let SessionEvent::Record { token, record } = event else {
                panic!("unexpected {event:?}");
            };
            assert!(self.durable, "records are for durable sessions");
            self.book.write(token, Entry::Told(record));
            if let Some(token) = token {
                self.waiting.push_back(token);
                self.gates.insert(gate_of(record), token);
            }
        }
    }

    /// Polls what the session has to say.
    pub(crate) fn settle(&mut self) {
        self.settle_events();
        while let Some(transmit) = self.session.poll_transmit() {
            let mut out = Vec::new();
            match &transmit {
                Transmit::Control(control) => {
                    assert!(control.encode(V5, u32::MAX, &mut out));
                }
                Transmit::Publish(publish) => {
                    publish
                        .encode(V5, start(), &mut PropertiesBuf::default(), &mut out)
                        .unwrap();
                }
            }
            self.check_leaving(&out);
            self.down.push_back(out);
        }
        assert!(
            !self.session.is_connected()
                || self.session.queued() == 0
                || self.session.in_flight() >= self.client.receive_maximum
                || !self.has_room_for_bytes(self.unreceived()),
            "queued messages stay although the send quota has room"
        );
    }

    /// PUBLISHes of the session that wait for PUBACK or PUBREC, sent or not.
    fn unreceived(&self) -> usize {
        let received = self.under_way.values().filter(|(_, received)| *received);
        self.session.in_flight() - received.count()
    }

    /// Whether one more message beside so many is within the limit of bytes.
    fn has_room_for_bytes(&self, messages: usize) -> bool {
        let limit = self.limits.max_inflight_bytes;
        limit == 0 || messages == 0 || (messages + 1) * MESSAGE_BYTES <= limit
    }

    /// Nothing leaves before its token is confirmed, no identifier is used twice, DUP is right.
    fn check_leaving(&mut self, bytes: &[u8]) {
        assert!(self.connack <= self.confirmed, "before CONNACK");
        match read(bytes) {
            Packet::PubAck(ack) => self.check_gate(PacketType::PubAck, ack.packet_id),
            Packet::PubRec(ack) => self.check_gate(PacketType::PubRec, ack.packet_id),
            Packet::PubRel(ack) => {
                assert_eq!(
                    ack.reason,
                    ReasonCode::SUCCESS,
                    "the client knows its exchanges"
                );
                self.check_gate(PacketType::PubRel, ack.packet_id);
            }
            Packet::PubComp(ack) => self.check_gate(PacketType::PubComp, ack.packet_id),
            Packet::Publish(publish) => {
                let packet_id = publish.delivery.packet_id().unwrap();
                if publish.delivery.qos() == QoS::ExactlyOnce {
                    self.check_gate(PacketType::Publish, packet_id);
                }
                self.check_publish(packet_id, number(publish.payload), publish.delivery.dup());
            }
            _ => {}
        }
    }

    fn check_gate(&self, packet_type: PacketType, packet_id: PacketId) {
        let gate = self.gates.get(&(packet_type as u8, packet_id.get()));
        let is_open = gate.is_none_or(|token| *token <= self.confirmed);
        assert!(
            is_open,
            "{packet_type:?} {packet_id} left before its token was confirmed"
        );
        if self.durable && packet_type != PacketType::PubAck {
            assert!(
                gate.is_some(),
                "{packet_type:?} {packet_id} was never recorded"
            );
        }
    }

    fn check_publish(&mut self, packet_id: PacketId, number: u16, dup: bool) {
        match self.under_way.get(&packet_id) {
            None => assert!(!dup, "DUP on the first attempt of {packet_id}"),
            Some(open) => {
                assert!(dup, "{packet_id} is in use");
                assert_eq!(
                    *open,
                    (number, false),
                    "{packet_id} stands for another message"
                );
            }
        }
        self.under_way.insert(packet_id, (number, false));
        assert!(
            self.has_room_for_bytes(self.on_the_wire.len()),
            "more bytes under way than the limit"
        );
        self.on_the_wire.insert(packet_id);
    }

    fn carry_down(&mut self) {
        let Some(bytes) = self.down.pop_front() else {
            return;
        };
        self.client.read(bytes);
    }

    fn work(&mut self) {
        if !self.session.is_connected() {
            return;
        }
        let mut answers = Vec::new();
        self.client.work(&mut answers);
        self.client
            .send_publishes(&mut answers, self.limits.receive_maximum);
        self.up.extend(answers);
    }

    fn carry_up(&mut self) {
        if self.asked.is_some() {
            return;
        }
        let Some(bytes) = self.up.pop_front() else {
            return;
        };
        let packet = read(&bytes);
        self.forget_acknowledged(&packet);
        match self
            .session
            .handle_packet(start(), packet)
            .expect("the client is correct")
        {
            Request::None => {}
            Request::Publish(publish) => {
                let packet_id = publish.packet_id().unwrap();
                self.asked = Some((packet_id, publish.qos(), number(publish.payload())));
            }
            other => panic!("unexpected {other:?}"),
        }
        self.settle_events();
        if !self.slow {
            self.accept();
        }
    }

    fn accept(&mut self) {
        let Some((packet_id, qos, number)) = self.asked.take() else {
            return;
        };
        self.taken.entry(qos).or_default().push(number);
        let token = self
            .session
            .accept_publish(packet_id, qos, ReasonCode::SUCCESS);
        let entry = Entry::Taken {
            packet_id,
            qos,
            number,
        };
        self.book.write(Some(token), entry);
        let answer = match qos {
            QoS::ExactlyOnce => PacketType::PubRec,
            _ => PacketType::PubAck,
        };
        self.gates.insert((answer as u8, packet_id.get()), token);
        self.waiting.push_back(token);
    }

    /// Follows which identifiers the session may use again.
    fn forget_acknowledged(&mut self, packet: &Packet<'_>) {
        match packet {
            Packet::PubAck(ack) | Packet::PubComp(ack) => {
                self.under_way.remove(&ack.packet_id);
                self.on_the_wire.remove(&ack.packet_id);
            }
            Packet::PubRec(ack) => {
                self.on_the_wire.remove(&ack.packet_id);
                if let Some((_, is_received)) = self.under_way.get_mut(&ack.packet_id) {
                    *is_received = true;
                }
            }
            _ => {}
        }
    }

    fn confirm(&mut self) {
        if let Some(token) = self.waiting.pop_front() {
            self.confirmed = token;
            self.session.confirm(token);
        }
    }

    fn cut(&mut self) {
        if !self.session.is_connected() {
            return;
        }
        self.session.detach(start(), Cause::ConnectionLost);
        self.asked = None;
        self.up.clear();
        self.down.clear();
        self.client.lose();
        self.on_the_wire.clear();
    }

    /// A session in memory would be gone; that is no history worth a look.
    fn crash(&mut self, luck: u8) {
        if !self.durable {
            return;
        }
        self.asked = None;
        self.up.clear();
        self.down.clear();
        self.client.lose();
        self.on_the_wire.clear();
        self.book.crash(self.confirmed, luck);
        let kept = self.book.read();
        self.session = kept.session(&self.limits);
        self.given = by_qos(&kept.given);
        self.taken = by_qos(&kept.taken);
        let published = kept
            .publishes
            .iter()
            .map(|(id, number, _)| (*id, (*number, false)));
        let released = kept
            .releases
            .iter()
            .map(|(id, number)| (*id, (*number, true)));
        self.under_way = published.chain(released).collect();
        self.waiting.clear();
        self.confirmed = AckToken::default();
        // Tokens of before whose record is in the log are safe; the others are issued again.
        self.gates
            .values_mut()
            .for_each(|token| *token = AckToken::default());
    }

    fn come_back(&mut self, receive_maximum: u8, session_present: bool) {
        self.client.receive_maximum = receive_maximum.into();
        let connect = connect_5(0, &[0x11, 0, 0, 0, 100, 0x21, 0, receive_maximum]);
        let (connect, _) = decode_connect(&connect, &self.limits.before_connect())
            .unwrap()
            .unwrap();
        let request = ConnectRequest::parse(&connect, &self.limits).unwrap();
        let terms = Terms {
            session_present,
            durable: self.durable,
            ..Terms::new(Arc::clone(&self.limits))
        };
        self.connack = self.session.connect(start(), &request, terms);
        if self.durable {
            self.waiting.push_back(self.connack);
        }
    }

    /// Lets everything come to rest.
    pub(crate) fn finish(&mut self) {
        if !self.session.is_connected() {
            self.come_back(3, true);
        }
        for _ in 0..10_000 {
            self.settle();
            let is_quiet = self.up.is_empty()
                && self.down.is_empty()
                && self.waiting.is_empty()
                && self.client.is_idle()
                && self.session.in_flight() + self.session.queued() == 0;
            if is_quiet {
                return;
            }
            self.confirm();
            self.carry_down();
            self.accept();
            self.work();
            self.carry_up();
        }
        panic!("it never comes to rest");
    }

    /// Without what the client got at QoS 1 and a crash then took from the log: its publisher was
    /// told nothing, and sends it again.
    fn known(&self, received: &BTreeMap<QoS, Vec<u16>>) -> BTreeMap<QoS, Vec<u16>> {
        let mut known = received.clone();
        if let Some(numbers) = known.get_mut(&QoS::AtLeastOnce) {
            let given = self.given.get(&QoS::AtLeastOnce);
            numbers.retain(|number| given.is_some_and(|given| given.contains(number)));
        }
        known
    }

    pub(crate) fn check_the_end(&self) {
        assert_eq!(self.session.unreleased_ids().count(), 0);
        assert_eq!(self.session.open_publishes(), 0);
        assert!(self.under_way.is_empty());
        check_flow(&self.given, &self.known(&self.client.received));
        let published = (0..self.client.published).collect::<Vec<_>>();
        let mut taken: Vec<u16> = self.taken.values().flatten().copied().collect();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken, published, "every publish was taken");
        check_order(&self.taken);
    }
}

fn by_qos(messages: &[(QoS, u16)]) -> BTreeMap<QoS, Vec<u16>> {
    let mut numbers: BTreeMap<QoS, Vec<u16>> = BTreeMap::new();
    for (qos, number) in messages {
        numbers.entry(*qos).or_default().push(*number);
    }
    numbers
}

fn check_flow(given: &BTreeMap<QoS, Vec<u16>>, received: &BTreeMap<QoS, Vec<u16>>) {
    let first = |qos| first_times(received.get(&qos));
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        assert_eq!(
            first(qos),
            given.get(&qos).cloned().unwrap_or_default(),
            "{qos:?}"
        );
    }
    check_order(received);
}

/// First times ascend, and QoS 2 knows no second time.
fn check_order(flow: &BTreeMap<QoS, Vec<u16>>) {
    for (qos, numbers) in flow {
        let first = first_times(Some(numbers));
        assert!(first.is_sorted(), "{qos:?} out of order: {numbers:?}");
        if *qos == QoS::ExactlyOnce {
            assert_eq!(&first, numbers, "a QoS 2 message came twice");
        }
    }
}

fn first_times(numbers: Option<&Vec<u16>>) -> Vec<u16> {
    let mut seen = BTreeSet::new();
    let numbers = numbers.into_iter().flatten().copied();
    numbers.filter(|number| seen.insert(*number)).collect()
}

/// What a record lets leave.
fn gate_of(record: ExchangeRecord) -> (u8, u16) {
    let (packet_type, packet_id) = match record {
        ExchangeRecord::Sending { packet_id, .. } => (PacketType::Publish, packet_id),
        ExchangeRecord::Received { packet_id, .. } => (PacketType::PubRel, packet_id),
        ExchangeRecord::Released { packet_id } => (PacketType::PubComp, packet_id),
        ExchangeRecord::Completed { .. } => panic!("nothing waits for the end"),
    };
    (packet_type as u8, packet_id.get())
}
