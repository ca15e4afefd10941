//! CONNECT, field by field, and the three ways to send it.

use std::net::{SocketAddr, TcpStream};
use std::num::{NonZeroU16, NonZeroU32};

use mqttcore_broker::Broker;
use mqttcore_codec::{
    Connect, Packet, PropertiesBuf, Property, ProtocolVersion, QoS, Text, Will, encode,
};
use socket2::{Domain, Socket, Type};

use super::{Client, DEADLINE, Received};

/// A CONNECT to be sent.
#[derive(Clone)]
pub struct Hello {
    version: ProtocolVersion,
    is_bridge: bool,
    client_id: String,
    clean_start: bool,
    keep_alive_s: u16,
    username: Option<String>,
    password: String,
    properties: PropertiesBuf,
    will: Option<OwnedWill>,
    receive_buffer: Option<usize>,
}

#[derive(Clone)]
struct OwnedWill {
    topic: String,
    payload: Vec<u8>,
    qos: QoS,
    retain: bool,
    properties: PropertiesBuf,
}

/// A clean start with MQTT 5.0.
pub fn v5(client_id: &str) -> Hello {
    hello(ProtocolVersion::V5, client_id)
}

/// As [`v3`], with the bit of a bridge in the protocol level.
pub fn bridge(client_id: &str) -> Hello {
    Hello {
        is_bridge: true,
        ..v3(client_id)
    }
}

/// A clean session with MQTT 3.1.1.
pub fn v3(client_id: &str) -> Hello {
    hello(ProtocolVersion::V3_1_1, client_id)
}

fn hello(version: ProtocolVersion, client_id: &str) -> Hello {
    Hello {
        version,
        is_bridge: false,
        client_id: client_id.into(),
        clean_start: true,
        keep_alive_s: 0,
        username: None,
        password: "secret".into(),
        properties: PropertiesBuf::default(),
        will: None,
        receive_buffer: None,
    }
}

impl Hello {
    /// Resumes a session and keeps it for `seconds`; 3.1.1 keeps it for as long as the broker does.
    pub fn keeping_session_s(mut self, seconds: u32) -> Self {
        self.clean_start = false;
        self.expiring_s(seconds)
    }

    /// Session Expiry Interval, with whatever start.
    pub fn expiring_s(self, seconds: u32) -> Self {
        self.with(Property::SessionExpiryInterval(seconds))
    }

    pub fn clean_start(mut self) -> Self {
        self.clean_start = true;
        self
    }

    pub fn keep_alive_s(mut self, seconds: u16) -> Self {
        self.keep_alive_s = seconds;
        self
    }

    pub fn username(mut self, name: &str) -> Self {
        self.username = Some(name.into());
        self
    }

    /// Sent with a user name only.
    pub fn password(mut self, password: &str) -> Self {
        self.password = password.into();
        self
    }

    pub fn receive_maximum(self, count: u16) -> Self {
        let count = NonZeroU16::new(count).expect("at least 1");
        self.with(Property::ReceiveMaximum(count))
    }

    pub fn topic_alias_maximum(self, count: u16) -> Self {
        self.with(Property::TopicAliasMaximum(count))
    }

    pub fn maximum_packet_size(self, bytes: u32) -> Self {
        let bytes = NonZeroU32::new(bytes).expect("at least 1");
        self.with(Property::MaximumPacketSize(bytes))
    }

    /// Authenticates by a method, with first data.
    pub fn method(self, method: &str, data: &str) -> Self {
        self.with(Property::AuthenticationMethod(text(method)))
            .with(Property::AuthenticationData(data.as_bytes()))
    }

    pub fn without_problem_information(self) -> Self {
        self.with(Property::RequestProblemInformation(false))
    }

    pub fn user_property(self, value: &str) -> Self {
        let value = Text::new(value).expect("text");
        self.with(Property::UserProperty(Text::EMPTY, value))
    }

    pub fn will(mut self, topic: &str, payload: &str) -> Self {
        self.will = Some(OwnedWill {
            topic: topic.into(),
            payload: payload.into(),
            qos: QoS::AtMostOnce,
            retain: false,
            properties: PropertiesBuf::default(),
        });
        self
    }

    pub fn will_qos(mut self, qos: QoS) -> Self {
        self.will.as_mut().expect("a will").qos = qos;
        self
    }

    pub fn will_delay_s(mut self, seconds: u32) -> Self {
        let will = self.will.as_mut().expect("a will");
        push(&mut will.properties, Property::WillDelayInterval(seconds));
        self
    }

    /// A receive buffer that is full soon, for clients that do not read.
    pub fn small_buffer(self) -> Self {
        self.receive_buffer(4096)
    }

    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    fn with(mut self, property: Property<'_>) -> Self {
        if self.version.has_properties() {
            push(&mut self.properties, property);
        }
        self
    }

    /// The bytes of CONNECT.
    pub fn bytes(&self) -> Vec<u8> {
        let will = self.will.as_ref().map(|will| Will {
            qos: will.qos,
            retain: will.retain,
            properties: will.properties.as_properties(),
            topic: text(&will.topic),
            payload: &will.payload,
        });
        let connect = Connect {
            version: self.version,
            is_bridge: self.is_bridge,
            clean_start: self.clean_start,
            keep_alive_s: self.keep_alive_s,
            properties: self.properties.as_properties(),
            client_id: text(&self.client_id),
            will,
            username: self.username.as_deref().map(text),
            password: self.username.as_ref().map(|_| self.password.as_bytes()),
        };
        let mut out = Vec::new();
        encode(&Packet::Connect(connect), self.version, &mut out).expect("CONNECT encodes");
        out
    }

    /// Connects the socket and says nothing.
    pub fn open(&self, address: SocketAddr) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        if let Some(bytes) = self.receive_buffer {
            socket.set_recv_buffer_size(bytes).expect("a buffer");
        }
        socket
            .connect_timeout(&address.into(), DEADLINE)
            .expect("the broker accepts");
        socket.set_tcp_nodelay(true).expect("no delay");
        Client::new(TcpStream::from(socket), self.version)
    }

    /// A client on a stream that is connected, and that has said nothing.
    pub fn over(&self, stream: TcpStream) -> Client {
        Client::new(stream, self.version)
    }

    /// Sends CONNECT and waits for nothing.
    pub fn dial(&self, broker: &Broker) -> Client {
        let mut client = self.open(broker.addresses()[0]);
        client.send_bytes(&self.bytes());
        client
    }

    /// Connects to the listener of this number, and tells whether the session was there.
    pub fn connect_at(&self, broker: &Broker, listener: usize) -> (Client, bool) {
        let mut client = self.open(broker.addresses()[listener]);
        client.send_bytes(&self.bytes());
        let session_present = client.expect_welcome();
        (client, session_present)
    }

    /// Connects; the broker must let the client in.
    pub fn connect(&self, broker: &Broker) -> Client {
        self.connect_or_resume(broker).0
    }

    /// Connects, and tells whether the session was there.
    pub fn connect_or_resume(&self, broker: &Broker) -> (Client, bool) {
        let mut client = self.dial(broker);
        let session_present = client.expect_welcome();
        (client, session_present)
    }

    /// Connects; the broker must refuse with a CONNACK and close. Returns the code: a reason code
    /// of 5.0, or a return code of 3.1.1.
    pub fn refused(&self, broker: &Broker) -> u8 {
        self.refused_at(broker, 0)
    }

    /// As [`Hello::refused`], by the listener of this number.
    pub fn refused_at(&self, broker: &Broker, listener: usize) -> u8 {
        let mut client = self.open(broker.addresses()[listener]);
        client.send_bytes(&self.bytes());
        let packets = client.until_closed();
        match packets[..] {
            [Received::ConnAck { reason, .. }] => {
                if self.version.has_properties() {
                    reason.value()
                } else {
                    reason.connect_return_code()
                }
            }
            _ => panic!("no refusal: {packets:?}"),
        }
    }
}

fn push(properties: &mut PropertiesBuf, property: Property<'_>) {
    properties.push(property).expect("the property encodes");
}

pub(super) fn text(text: &str) -> Text<'_> {
    Text::new(text).expect("text")
}
