//! The last packets of a connection that the broker ends: acknowledgements that are due, then DISCONNECT.
//!
//! A client whose messages were accepted and never acknowledged sends them again. So an acknowledgement that still waits
//! for the store or for Kafka when the broker decides to disconnect is awaited for a while, and leaves first.

use std::rc::Rc;
use std::time::Duration;

use mqttcore_codec::ReasonCode;
use mqttcore_session::{Control, Details};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::client::{Client, Link};
use crate::journal;
use crate::shard::Shard;

/// How long acknowledgements may keep a connection that ends.
const LONGEST: Duration = Duration::from_secs(5);

/// What leaves once the acknowledgements are safe, after [`LONGEST`] at the latest.
pub(crate) struct LastPackets {
    /// In their order; they are left out unless they become safe in time.
    acknowledgements: Vec<Control>,
    /// Told when they are safe.
    safe: oneshot::Receiver<()>,
    disconnect: Option<Control>,
}

/// Has the connection of `client` end with its acknowledgements and a DISCONNECT with `reason`, where the client's version
/// has one; `text` goes with it unless it is empty.
///
/// What waits for nothing is in the outbox at once, the rest when [`send_rest`] says so.
pub(crate) fn say_goodbye(shard: &Rc<Shard>, client: &Client, reason: ReasonCode, text: &str) {
    let Some(link) = client.link() else { return };
    let details = if text.is_empty() {
        Details::none()
    } else {
        Details::reason(text)
    };
    let mut session = client.session.borrow_mut();
    let disconnect = session.disconnect_packet(reason, None, details);
    let acknowledgements = if link.has_lost_a_record() || shard.has_lost_its_store() {
        Vec::new()
    } else {
        session.take_unconfirmed()
    };
    drop(session);
    if !acknowledgements.is_empty() {
        let (sender, safe) = oneshot::channel();
        let tell = move || {
            // The connection may have waited long enough.
            let _ = sender.send(());
        };
        journal::when_promised(shard, client, Box::new(tell));
        link.last_packets.set(Some(Box::new(LastPackets {
            acknowledgements,
            safe,
            disconnect,
        })));
    } else if let Some(disconnect) = disconnect {
        link.push_control(shard, &disconnect);
    }
}

/// Puts what [`say_goodbye`] held back into the outbox.
pub(crate) async fn send_rest(shard: &Shard, link: &Link) {
    let Some(last) = link.last_packets.take() else {
        return;
    };
    let is_safe = matches!(timeout(LONGEST, last.safe).await, Ok(Ok(())));
    if is_safe && !link.has_lost_a_record() {
        for acknowledgement in &last.acknowledgements {
            link.push_control(shard, acknowledgement);
        }
    }
    if let Some(disconnect) = &last.disconnect {
        link.push_control(shard, disconnect);
    }
}
