//! Paging: reads spilled queues back from the store.
//!
//! The queue of a kept session whose client stays offline is spilled: the session only counts new messages
//! (`Session::spill`). When the client reconnects, its queue is opened and read back in pages, on a thread that may
//! wait for the disk; new messages are held behind it. A queue that outgrows memory is also spilled while its client
//! is connected and slow; once the session has few messages in memory, the queue is opened again.
//!
//! The store has a delivery before its session has it: the delivery may still be in the mailbox of another shard, or,
//! at QoS 2, wait for its record. A page must not contain such a delivery, or the client would get it twice. So pages
//! end at the numbers that were assigned when the queue was opened, and the first page is read after every shard has
//! confirmed that it has handed over the deliveries that it had numbered until then.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use mqttcore_session::{Message, QueuePolicy};

use crate::clients::client::Client;
use crate::clients::flags::Flag;
use crate::clients::handle::Handle;
use crate::durability::journal::ShardLogWriter;
use crate::durability::page::QueuePage;
use crate::durability::pagings::Paging;
use crate::durability::store::PageRequest;
use crate::routing::journal;
use crate::sessions::{lifecycle, rights};
use crate::shard::Shard;

/// A request to another shard: answer when all deliveries that it has numbered so far are sent.
#[derive(Clone, Copy)]
struct PagingBarrier {
    home: usize,
    handle: Handle,
    serial: u64,
}

/// When the queue of `client` is spilled.
pub(crate) fn deadline(shard: &Shard, client: &Client) -> Option<Instant> {
    let session = client.session.borrow();
    let may_spill = client.number(&shard.engine).is_some() && session.may_spill();
    let since = session.away_since().filter(|_| may_spill)?;
    since.checked_add(shard.config().spill_after)
}

/// Spills the queue of a client that has been offline for long.
pub(crate) fn spill_if_due(shard: &Shard, client: &Client) {
    if deadline(shard, client).is_some_and(|at| at <= shard.now()) {
        client.session.borrow_mut().spill();
        // Pages of its queue are not needed any more.
        shard.pagings.borrow_mut().stop(client);
    }
}

/// Opens the queue of a client that has reconnected, and continues to read it.
pub(crate) fn resume(shard: &Rc<Shard>, client: &Client) {
    let Some(journal) = &shard.journal else {
        return;
    };
    if client.session.borrow().is_spilling() {
        open(shard, journal, client, true);
    }
    read_on(shard, client);
}

fn open(shard: &Rc<Shard>, journal: &ShardLogWriter, client: &Client, is_greeting: bool) {
    let below = journal.next_number();
    client.session.borrow_mut().begin_paging(below);
    shard.pagings.borrow_mut().stop(client);
    if client.session.borrow().spilled() > 0 {
        begin(shard, client, below, is_greeting);
    }
}

/// Opens a queue again that has closed itself, once all that was to be read of it was.
fn reopen(shard: &Rc<Shard>, client: &Client) {
    let Some(journal) = &shard.journal else {
        return;
    };
    let is_wanted = {
        let session = client.session.borrow();
        session.is_spilling() && session.wants_page()
    };
    if is_wanted && shard.pagings.borrow().of(client).is_none() {
        open(shard, journal, client, false);
    }
}

/// Reads back the messages that a session must have in memory although its client is offline: to drop the oldest
/// message, it has to know it.
pub(crate) fn resume_if_needed(shard: &Rc<Shard>, client: &Client) {
    if shard.config().limits.queue_policy == QueuePolicy::DropOldest {
        resume(shard, client);
    }
}

fn begin(shard: &Rc<Shard>, client: &Client, below: u64, is_greeting: bool) {
    let asked = PagingBarrier {
        home: shard.index,
        handle: client.handle,
        serial: shard.engine.unique(),
    };
    let paging = Paging {
        handle: client.handle,
        serial: asked.serial,
        below,
        from: 0,
        unsettled: shard.engine.shards(),
        is_reading: false,
        is_greeting,
    };
    shard.pagings.borrow_mut().begin(paging);
    for to in 0..shard.engine.shards() {
        shard.post_job(to, move |shard| request_barrier(shard, asked));
    }
}

/// Answers a barrier request when all deliveries that this shard has numbered so far are sent.
fn request_barrier(shard: &Rc<Shard>, asked: PagingBarrier) {
    let Some(journal) = &shard.journal else {
        return;
    };
    let own = Rc::clone(shard);
    let then = Box::new(move || answer(&own, asked));
    if let Some(then) = journal.after_deliveries(then) {
        then();
    }
}

/// This shard has handed over everything that it had numbered: sends the answer behind it.
fn answer(shard: &Shard, asked: PagingBarrier) {
    shard.post_job(asked.home, move |shard| barrier_reached(shard, asked));
}

/// Whether the first page of the queue of a resumed session is not sent yet. Queued messages are sent before any
/// response, so nothing is read from the client until then.
pub(crate) fn is_first_page_due(shard: &Shard, client: &Client) -> bool {
    let own = client.link_ref();
    let Some(link) = &*own else {
        return false;
    };
    let pagings = shard.pagings.borrow();
    let is_due = |paging: &Paging| {
        paging.is_greeting && paging.from == 0 && (paging.unsettled > 0 || paging.is_reading)
    };
    pagings.of(client).is_some_and(is_due)
        || !client.session.borrow().is_confirmed(link.first_page())
}

/// A shard has reached the barrier.
fn barrier_reached(shard: &Rc<Shard>, asked: PagingBarrier) {
    let client = shard.client_at(asked.handle);
    let Some(client) = client else { return };
    if let Some(paging) = shard.pagings.borrow_mut().of_mut(&client)
        && paging.serial == asked.serial
    {
        paging.unsettled -= 1;
    }
    read_on(shard, &client);
    wake_if_ready(shard, &client);
}

fn wake_if_ready(shard: &Shard, client: &Client) {
    if let Some(link) = client.link().filter(|_| !is_first_page_due(shard, client)) {
        link.wake();
    }
}

/// Has the next page read, if the session wants it.
pub(crate) fn read_on(shard: &Rc<Shard>, client: &Client) {
    reopen(shard, client);
    let mut pagings = shard.pagings.borrow_mut();
    let (Some(paging), Some(journal)) = (pagings.of_mut(client), &shard.journal) else {
        return;
    };
    let is_ready = paging.unsettled == 0 && !paging.is_reading;
    if !is_ready || !client.session.borrow().wants_page() {
        return;
    }
    let Some(session) = client.number(&shard.engine) else {
        return;
    };
    paging.is_reading = true;
    // Commit first, so that messages that left the queue in this turn have left it in the store, too.
    journal.commit();
    let (engine, index) = (Arc::clone(&shard.engine), shard.index);
    let (handle, serial) = (client.handle, paging.serial);
    let answer = move |mut page: QueuePage| {
        page.charge(&engine.memory.shard(index).own_account);
        let job = move |shard: &Rc<Shard>| page_arrived(shard, handle, serial, &page);
        engine.run_on(index, Box::new(job));
    };
    journal.read_page(PageRequest {
        session,
        from: paging.from,
        below: paging.below,
        answer: Box::new(answer),
    });
}

/// A page is there.
fn page_arrived(shard: &Rc<Shard>, handle: Handle, serial: u64, page: &QueuePage) {
    let client = shard.client_at(handle);
    let Some(client) = client else { return };
    let is_first;
    {
        let mut pagings = shard.pagings.borrow_mut();
        let paging = pagings.of_mut(&client);
        let Some(paging) = paging.filter(|paging| paging.serial == serial) else {
            return;
        };
        is_first = paging.from == 0 && paging.is_greeting;
        (paging.is_reading, paging.from) = (false, page.next);
    }
    let is_judged = client.flags.has(Flag::QueueJudged);
    let may_have = is_judged.then(|| rights::may_receive(&client));
    let deliveries = page.deliveries(|message| shard.has_deliver_hook(message));
    let keep = |message: &Message| may_have.as_ref().is_none_or(|may_have| may_have(message));
    let mut session = client.session.borrow_mut();
    session.page(shard.now(), deliveries, page.is_last, keep);
    drop(session);
    if client.session.borrow().spilled() == 0 {
        shard.pagings.borrow_mut().stop(&client);
        client.flags.set(Flag::QueueJudged, false);
    } else if page.is_last {
        shard.pagings.borrow_mut().stop(&client);
    }
    if is_first && let Some(link) = client.link() {
        link.set_first_page(client.session.borrow().last_token());
    }
    lifecycle::handle_events(shard, &client);
    lifecycle::confirm(shard, &client);
    client.flush_session(shard);
    read_on(shard, &client);
    if is_first {
        // If all messages of the page were dropped, nothing is sent that would wake the connection.
        let (own, woken) = (Rc::clone(shard), Rc::clone(&client));
        let wake = Box::new(move || wake_if_ready(&own, &woken));
        journal::when_acknowledged(shard, &client, wake);
    }
}
