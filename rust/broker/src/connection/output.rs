//! Writes outboxes to sockets: in the turn of the connection's task or, for what others send to the client, without one.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use mqttcore_panics::may_panic;
use tokio::task::yield_now;

use crate::clients::client::{Client, QueueLevel};
use crate::clients::link::{Closing, Endpoint, Link};
use crate::connection::READ_BELOW_BYTES;
use crate::routing::group;
use crate::runtime::tallies::TransportKind;
use crate::sessions::lifecycle;
use crate::shard::guard::{CONNECTION, contained};
use crate::shard::{Due, Shard};
use crate::transport::{LARGE_UNSENT_BYTES, Transport};

/// The bytes that the system holds unsent for clients of large messages are at most this part of the budget of memory,
/// which does not count them.
const UNSENT_SHARE: usize = 16;

/// Writes what is due, a batch between two polls of the sockets. Never returns.
pub(crate) async fn write_due(shard: Rc<Shard>) {
    loop {
        let batch = shard.due.batch().await;
        shard.refresh_now();
        // Before acknowledgements are sent, so that acknowledged messages have been sent to all shards.
        shard.flush_mailboxes();
        for _ in 0..batch {
            match shard.due.pop() {
                Some(Due::Output(client)) => write_contained(&shard, &client),
                Some(Due::Turn(waker)) => waker.wake(),
                None => break,
            }
        }
        if !shard.due.is_empty() {
            // The runtime polls the sockets before it polls this task again.
            yield_now().await;
        }
    }
}

/// Writes the outbox of a client. A panic closes its connection.
fn write_contained(shard: &Rc<Shard>, client: &Rc<Client>) {
    let Some(link) = client.link() else { return };
    let mut has_panicked = true;
    contained(shard, CONNECTION, || {
        write_without_turn(shard, client, &link);
        has_panicked = false;
    });
    if has_panicked {
        link.close_lost();
    }
}

/// Writes what a client gets, as a turn of its task does; if more is to be done, wakes the task.
fn write_without_turn(shard: &Rc<Shard>, client: &Rc<Client>, link: &Rc<Link>) {
    if needs_turn(client, link) {
        link.wake();
        return;
    }
    link.note_run();
    let written = link.with_waker(|waker| {
        may_panic(CONNECTION);
        write(shard, client, link, &mut Context::from_waker(waker))
    });
    match written {
        Some(Ok(())) => {
            group::update_availability(shard, client, link.outbox().len());
            if link.counts_memory() {
                client.weigh(shard);
            }
        }
        // The task finds the error, too.
        Some(Err(_)) => link.wake(),
        None => {}
    }
}

/// Whether a turn of the task does more than to write.
fn needs_turn(client: &Client, link: &Link) -> bool {
    let outbox = link.outbox();
    link.closing().is_some()
        || link.is_settling.get()
        || outbox.is_blocked()
        || outbox.len() >= READ_BELOW_BYTES
        || client.queue_level.get() != QueueLevel::Empty
        || client.session.borrow().wants_page()
        || link.has_replays()
}

/// Writes from the outbox as much as the socket takes: one `send`, or one `writev`. If the socket is full, the task of
/// `cx` is woken when it is not.
///
/// # Errors
///
/// Those of the socket: the connection is lost.
pub(super) fn write(
    shard: &Shard,
    client: &Rc<Client>,
    link: &Link,
    cx: &mut Context<'_>,
) -> io::Result<()> {
    let mut own = link.endpoint.borrow_mut();
    let Endpoint { outbox, transport } = &mut *own;
    let Some(transport) = transport else {
        return Ok(());
    };
    let packets = outbox.packets();
    let (mut raw, mut bytes) = (0, 0);
    while transport.has_output() || !outbox.is_empty() {
        let written = match transport.poll_write(cx, outbox) {
            Poll::Ready(written) => written?,
            Poll::Pending => break,
        };
        let tallies = &shard.metrics().tallies;
        tallies.bytes_sent.add(transport.kind(), written.raw);
        if let Some(outbox) = outbox.get_mut() {
            outbox.advance(written.payload);
        }
        raw += written.raw;
        bytes += written.payload;
    }
    if raw > 0 {
        let sent = packets.wrapping_sub(outbox.packets());
        count_written(shard, link, sent, bytes);
    }
    if !outbox.is_empty() || transport.has_output() {
        if !link.measures.holds_more_unsent() && outbox.begins_large() {
            hold_more_unsent(shard, link, transport);
        }
        outbox.release_chunks();
        drop(own);
        note_full_socket(shard, client, link);
    }
    Ok(())
}

/// Lets the system hold more unsent bytes for a client of large messages (ADR 0147), unless it does so for many others:
/// a client that stops to read would otherwise take a MiB of the system's memory with each of its connections (abuse H01).
#[cold]
fn hold_more_unsent(shard: &Shard, link: &Link, transport: &Transport) {
    if !transport.is_plain() {
        return;
    }
    let engine = &shard.engine;
    let most = engine.memory.budget() / UNSENT_SHARE / engine.shards();
    if let Some(reserved) = shard.unsent.reserve(LARGE_UNSENT_BYTES as usize, most)
        && transport.hold_unsent(LARGE_UNSENT_BYTES)
    {
        link.measures.note_more_unsent(reserved);
    }
}

/// Why the connection is to be closed, unless it seemed to be stalled and goes on.
pub(super) fn closing(shard: &Shard, link: &Link) -> Option<Closing> {
    let closing = link.closing()?;
    let goes_on = closing == Closing::STALLED && still_takes_bytes(shard, link);
    (!goes_on).then_some(closing)
}

/// Whether the client takes bytes although its socket did not become writable before the stall deadline, since the system
/// holds more for it than the client takes in that time (ADR 0147). Its connection goes on then.
#[cold]
fn still_takes_bytes(shard: &Shard, link: &Link) -> bool {
    let mut own = link.endpoint.borrow_mut();
    let Endpoint { outbox, transport } = &mut *own;
    let packets = outbox.packets();
    let transport = transport.as_ref();
    let transport = transport.filter(|_| link.measures.holds_more_unsent());
    let sent = transport.map_or(0, |own| own.send_at_once(outbox));
    if sent == 0 {
        shard.metrics().stalled.add(1);
        return false;
    }
    let tallies = &shard.metrics().tallies;
    tallies.bytes_sent.add(TransportKind::Tcp, sent);
    if let Some(outbox) = outbox.get_mut() {
        outbox.advance(sent);
    }
    count_written(shard, link, packets.wrapping_sub(outbox.packets()), sent);
    link.cancel_close();
    true
}

/// Counts written bytes, with which this number of packets was complete.
fn count_written(shard: &Shard, link: &Link, packets: u32, bytes: usize) {
    let measures = &link.measures;
    if let Some((qos, read_at)) = measures.count_sent(shard.period(), packets, bytes) {
        shard.count_delivery_time(measures, qos, read_at);
    }
}

/// Called if the socket is full: copies messages of the session out of other clients' chunks, and starts the stall
/// timeout.
fn note_full_socket(shard: &Shard, client: &Rc<Client>, link: &Link) {
    client.session.borrow_mut().release_chunks();
    if link.measures.note_blocked(shard.now()) {
        lifecycle::arm(shard, client);
    }
}
