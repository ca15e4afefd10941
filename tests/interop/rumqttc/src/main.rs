//! rumqttc: 3.1.1 and 5.0, over TCP and WebSocket.

use std::time::Duration;

use rumqttc::v5;
use rumqttc::{AsyncClient, Event, LastWill, MqttOptions, Packet, QoS, Transport};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);
/// Requests that wait for the event loop.
const REQUESTS: usize = 100;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Message {
    topic: String,
    payload: String,
    qos: u8,
    retain: bool,
}

enum Heard {
    ConnAck(bool),
    SubAck(bool),
    Message(Message),
    Ended(String),
}

enum Client {
    Three(AsyncClient),
    Five(v5::AsyncClient),
}

#[derive(Clone)]
struct Place {
    host: String,
    port: u16,
    version: u8,
    is_framed: bool,
    topic: String,
}

/// One client, and the task that turns its event loop.
struct Peer {
    client: Client,
    heard: UnboundedReceiver<Heard>,
    task: JoinHandle<()>,
    early: Vec<Message>,
}

impl Place {
    async fn connect(&self, name: &str, clean: bool, will: Option<&str>) -> Outcome<(Peer, bool)> {
        let (sender, heard) = unbounded_channel();
        let id = format!("{}-{name}", self.topic);
        let address = match self.is_framed {
            true => format!("ws://{}:{}/mqtt", self.host, self.port),
            false => self.host.clone(),
        };
        let (client, task) = match self.version {
            5 => self.five(id, address, clean, will, sender),
            _ => self.three(id, address, clean, will, sender),
        };
        let mut peer = Peer {
            client,
            heard,
            task,
            early: Vec::new(),
        };
        match peer.next().await? {
            Heard::ConnAck(present) => Ok((peer, present)),
            _ => Err("no CONNACK".into()),
        }
    }

    fn three(
        &self,
        id: String,
        address: String,
        clean: bool,
        will: Option<&str>,
        sender: UnboundedSender<Heard>,
    ) -> (Client, JoinHandle<()>) {
        let mut options = MqttOptions::new(id, address, self.port);
        options.set_clean_session(clean);
        if self.is_framed {
            options.set_transport(Transport::Ws);
        }
        if let Some(topic) = will {
            options.set_last_will(LastWill::new(topic, "gone", QoS::AtLeastOnce, false));
        }
        let (client, mut events) = AsyncClient::new(options, REQUESTS);
        let task = tokio::task::spawn_local(async move {
            loop {
                let heard = match events.poll().await {
                    Ok(Event::Incoming(Packet::ConnAck(ack))) => {
                        Heard::ConnAck(ack.session_present)
                    }
                    Ok(Event::Incoming(Packet::SubAck(ack))) => {
                        use rumqttc::SubscribeReasonCode::Success;
                        let fine = |code: &_| matches!(code, Success(_));
                        Heard::SubAck(ack.return_codes.iter().all(fine))
                    }
                    Ok(Event::Incoming(Packet::Publish(publish))) => Heard::Message(Message {
                        topic: publish.topic,
                        payload: String::from_utf8_lossy(&publish.payload).into_owned(),
                        qos: publish.qos as u8,
                        retain: publish.retain,
                    }),
                    Ok(_) => continue,
                    Err(error) => Heard::Ended(error.to_string()),
                };
                let ended = matches!(heard, Heard::Ended(_));
                if sender.send(heard).is_err() || ended {
                    return;
                }
            }
        });
        (Client::Three(client), task)
    }

    fn five(
        &self,
        id: String,
        address: String,
        clean: bool,
        will: Option<&str>,
        sender: UnboundedSender<Heard>,
    ) -> (Client, JoinHandle<()>) {
        use v5::mqttbytes::v5::{ConnectProperties, LastWill, Packet, SubscribeReasonCode};
        let mut options = v5::MqttOptions::new(id, address, self.port);
        options.set_clean_start(clean);
        let mut properties = ConnectProperties::new();
        properties.session_expiry_interval = Some(if clean { 0 } else { 60 });
        options.set_connect_properties(properties);
        if self.is_framed {
            options.set_transport(Transport::Ws);
        }
        if let Some(topic) = will {
            let qos = v5::mqttbytes::QoS::AtLeastOnce;
            options.set_last_will(LastWill::new(topic, "gone", qos, false, None));
        }
        let (client, mut events) = v5::AsyncClient::new(options, REQUESTS);
        let task = tokio::task::spawn_local(async move {
            loop {
                let heard = match events.poll().await {
                    Ok(v5::Event::Incoming(Packet::ConnAck(ack))) => {
                        Heard::ConnAck(ack.session_present)
                    }
                    Ok(v5::Event::Incoming(Packet::SubAck(ack))) => {
                        let fine = |code: &_| matches!(code, SubscribeReasonCode::Success(_));
                        Heard::SubAck(ack.return_codes.iter().all(fine))
                    }
                    Ok(v5::Event::Incoming(Packet::Publish(publish))) => Heard::Message(Message {
                        topic: String::from_utf8_lossy(&publish.topic).into_owned(),
                        payload: String::from_utf8_lossy(&publish.payload).into_owned(),
                        qos: publish.qos as u8,
                        retain: publish.retain,
                    }),
                    Ok(_) => continue,
                    Err(error) => Heard::Ended(error.to_string()),
                };
                let ended = matches!(heard, Heard::Ended(_));
                if sender.send(heard).is_err() || ended {
                    return;
                }
            }
        });
        (Client::Five(client), task)
    }
}

fn qos3(qos: u8) -> QoS {
    [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][usize::from(qos)]
}

fn qos5(qos: u8) -> v5::mqttbytes::QoS {
    use v5::mqttbytes::QoS;
    [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][usize::from(qos)]
}

impl Peer {
    async fn next(&mut self) -> Outcome<Heard> {
        match timeout(PATIENCE, self.heard.recv()).await? {
            Some(Heard::Ended(why)) => Err(why.into()),
            Some(heard) => Ok(heard),
            None => Err("the event loop has ended".into()),
        }
    }

    async fn subscribe(&mut self, filter: &str, qos: u8) -> Outcome {
        match &self.client {
            Client::Three(client) => client.subscribe(filter, qos3(qos)).await?,
            Client::Five(client) => client.subscribe(filter, qos5(qos)).await?,
        }
        loop {
            match self.next().await? {
                Heard::SubAck(true) => return Ok(()),
                Heard::Message(message) => self.early.push(message),
                _ => return Err("the subscription was refused".into()),
            }
        }
    }

    async fn publish(&self, message: &Message) -> Outcome {
        let (topic, payload) = (message.topic.as_str(), message.payload.clone());
        match &self.client {
            Client::Three(client) => {
                let qos = qos3(message.qos);
                client.publish(topic, qos, message.retain, payload).await?;
            }
            Client::Five(client) => {
                let qos = qos5(message.qos);
                client.publish(topic, qos, message.retain, payload).await?;
            }
        }
        Ok(())
    }

    async fn take(&mut self, count: usize) -> Outcome<Vec<Message>> {
        let mut found = std::mem::take(&mut self.early);
        while found.len() < count {
            if let Heard::Message(message) = self.next().await? {
                found.push(message);
            }
        }
        Ok(found)
    }

    async fn expect(&mut self, wanted: &[Message]) -> Outcome {
        let found = self.take(wanted.len()).await?;
        if found == wanted {
            return Ok(());
        }
        Err(format!("wanted {wanted:?}, got {found:?}").into())
    }

    /// A DISCONNECT; the broker then closes.
    async fn close(mut self) -> Outcome {
        match &self.client {
            Client::Three(client) => client.disconnect().await?,
            Client::Five(client) => client.disconnect().await?,
        }
        while self.next().await.is_ok() {}
        Ok(())
    }

    /// The event loop and its socket go: no DISCONNECT leaves.
    async fn vanish(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

fn message(topic: &str, payload: &str, qos: u8, retain: bool) -> Message {
    Message {
        topic: topic.into(),
        payload: payload.into(),
        qos,
        retain,
    }
}

fn numbers(topic: &str, count: usize, qos: u8) -> Vec<Message> {
    (0..count)
        .map(|number| message(topic, &number.to_string(), qos, false))
        .collect()
}

async fn check(place: &Place, name: &str) -> Outcome {
    let topic = format!("{}/{name}", place.topic);
    match name {
        "connect" => place.connect(name, true, None).await?.0.close().await,
        "retained" => retained(place, &topic).await,
        "will" => will(place, &topic).await,
        "resume" => resume(place, &topic).await,
        "shared" => shared(place, &topic).await,
        _ => echo(place, &topic, name.as_bytes()[3] - b'0').await,
    }
}

async fn echo(place: &Place, topic: &str, qos: u8) -> Outcome {
    let (mut one, _) = place.connect(&format!("qos{qos}"), true, None).await?;
    one.subscribe(topic, qos).await?;
    let all = numbers(topic, 10, qos);
    for message in &all {
        one.publish(message).await?;
    }
    one.expect(&all).await?;
    one.close().await
}

async fn retained(place: &Place, topic: &str) -> Outcome {
    let (mut one, _) = place.connect("retained", true, None).await?;
    one.publish(&message(topic, "kept", 1, true)).await?;
    one.subscribe(topic, 1).await?;
    one.expect(&[message(topic, "kept", 1, true)]).await?;
    one.publish(&message(topic, "", 1, true)).await?;
    one.expect(&[message(topic, "", 1, false)]).await?;
    one.close().await
}

async fn will(place: &Place, topic: &str) -> Outcome {
    let (mut watcher, _) = place.connect("watcher", true, None).await?;
    watcher.subscribe(topic, 1).await?;
    let (leaver, _) = place.connect("leaver", true, Some(topic)).await?;
    leaver.vanish().await;
    watcher.expect(&[message(topic, "gone", 1, false)]).await?;
    watcher.close().await
}

async fn resume(place: &Place, topic: &str) -> Outcome {
    let (mut first, _) = place.connect("resume", false, None).await?;
    first.subscribe(topic, 1).await?;
    first.close().await?;
    let (sender, _) = place.connect("sender", true, None).await?;
    let all = numbers(topic, 3, 1);
    for message in &all {
        sender.publish(message).await?;
    }
    sender.close().await?;
    let (mut second, present) = place.connect("resume", false, None).await?;
    if !present {
        return Err("the session is not present".into());
    }
    second.expect(&all).await?;
    second.close().await
}

async fn shared(place: &Place, topic: &str) -> Outcome {
    let (mut one, _) = place.connect("member0", true, None).await?;
    let (mut other, _) = place.connect("member1", true, None).await?;
    for member in [&mut one, &mut other] {
        member
            .subscribe(&format!("$share/group/{topic}"), 1)
            .await?;
    }
    let (sender, _) = place.connect("dealer", true, None).await?;
    let all = numbers(topic, 10, 1);
    for message in &all {
        sender.publish(message).await?;
    }
    let mut found = one.take(5).await?;
    found.extend(other.take(5).await?);
    found.sort();
    if found != all {
        return Err(format!("wanted {all:?}, got {found:?}").into());
    }
    for peer in [one, other, sender] {
        peer.close().await?;
    }
    Ok(())
}

async fn conduct(place: Place) {
    println!("{}", json!({"client": "rumqttc", "version": "0.25.1"}));
    let names = [
        "connect", "qos0", "qos1", "qos2", "retained", "will", "resume", "shared",
    ];
    let count = if place.version == 5 { 8 } else { 7 };
    for name in &names[..count] {
        let line = match timeout(2 * PATIENCE, check(&place, name)).await {
            Ok(Ok(())) => json!({"check": name, "ok": true}),
            Ok(Err(error)) => json!({"check": name, "ok": false, "why": error.to_string()}),
            Err(_) => json!({"check": name, "ok": false, "why": "not within 20 s"}),
        };
        println!("{line}");
    }
}

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [host, port, version, transport, topic] = &words[..] else {
        return Err("HOST PORT VERSION TRANSPORT TOPIC".into());
    };
    let place = Place {
        host: host.clone(),
        port: port.parse()?,
        version: version.parse()?,
        is_framed: transport == "websocket",
        topic: topic.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    tokio::task::LocalSet::new().block_on(&runtime, conduct(place));
    Ok(())
}
