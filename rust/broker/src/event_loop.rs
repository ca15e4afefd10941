//! The event loop of a shard: its work at each wake, and its timers.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_panics::may_panic;
use tokio::task::spawn_blocking;

use crate::connection::output;
use crate::figures;
use crate::routing::sweep::Sweep;
use crate::routing::{delivery, external, journal};
use crate::runtime::freed_memory::FreedMemory;
use crate::sessions::{backlog, lifecycle, pressure, wills};
use crate::shard::guard::{contained, critical};
use crate::shard::{Shard, ShardMessage};
use crate::shutdown;
use crate::sys_topics;

/// How long clients have to take their last bytes when the broker has failed.
const FAILURE_DEADLINE: Duration = Duration::from_secs(1);

/// Runs until the broker stops and every connection is done.
pub(crate) async fn run(shard: Rc<Shard>) {
    let timers = run_timers(Rc::clone(&shard));
    spawn_critical(&shard, "the timers of a shard", timers);
    let writes = output::write_due(Rc::clone(&shard));
    spawn_critical(&shard, "writing to connections", writes);
    if shard.engine.shards() > 1 {
        let sending = Rc::clone(&shard);
        let messages = async move { sending.send_waiting().await };
        spawn_critical(&shard, "messages to other shards", messages);
    }
    if shard.index == 0 {
        let sys = sys_topics::publish_regularly(Rc::clone(&shard));
        spawn_critical(&shard, "$SYS", sys);
        let clock = write_clock_regularly(Rc::clone(&shard));
        spawn_critical(&shard, "the clock", clock);
        let freed = give_back_memory_regularly(Rc::clone(&shard));
        spawn_critical(&shard, "giving memory back", freed);
    }
    let mut messages = Vec::new();
    let mut ended = std::pin::pin!(shard.ended());
    while !shard.wait_for_work(ended.as_mut()).await {
        may_panic("the loop of a shard");
        handle_work(&shard, &mut messages);
    }
}

/// Spawns a task without which the broker cannot go on.
fn spawn_critical(shard: &Shard, place: &'static str, task: impl Future<Output = ()> + 'static) {
    tokio::task::spawn_local(critical(Arc::clone(&shard.engine), place, task));
}

/// Runs jobs of other threads, and handles messages of other shards.
pub(crate) fn handle_work(shard: &Rc<Shard>, messages: &mut Vec<ShardMessage>) {
    shard.refresh_now();
    shard.start_turn();
    if shard.has_just_failed() {
        shutdown::stop(shard, FAILURE_DEADLINE);
    }
    journal::advance(shard);
    external::advance(shard);
    for job in shard.take_jobs() {
        contained(shard, "work for another thread", || job(shard));
    }
    shard.receive(messages);
    handle_messages(shard, messages);
    shard.flush_mailboxes();
}

/// Handles messages of other shards. If one of them panics, the rest are handled.
fn handle_messages(shard: &Rc<Shard>, messages: &mut Vec<ShardMessage>) {
    let mut messages = messages.drain(..);
    while !messages.as_slice().is_empty() {
        contained(shard, "a message of another shard", || {
            for message in messages.by_ref() {
                match message {
                    ShardMessage::Deliver(message, target) => {
                        delivery::deliver_all(shard, &message, [target]);
                    }
                    ShardMessage::DeliverAll(message, targets) => {
                        delivery::deliver_all(shard, &message, targets);
                    }
                    ShardMessage::Job(job) => job(shard),
                }
            }
        });
    }
}

/// How often the clocks are noted in the store.
const CLOCK_NOTED_EVERY: Duration = Duration::from_secs(60);

/// Notes the clocks in the store at every interval, until the broker stops (ADR 0022).
async fn write_clock_regularly(shard: Rc<Shard>) {
    let Some(log) = shard.engine.log.clone() else {
        return;
    };
    loop {
        tokio::time::sleep(CLOCK_NOTED_EVERY).await;
        log.write_clock_note();
    }
}

/// How often it is decided whether freed memory goes back to the system.
const MEMORY_JUDGED_EVERY: Duration = Duration::from_millis(100);
/// The pause after that, as a multiple of the time that it took.
const PAUSE: u32 = 20;

/// Returns freed memory to the system at intervals, until the broker stops (ADR 0038). A thread beside the shards
/// does it.
async fn give_back_memory_regularly(shard: Rc<Shard>) {
    let memory = &shard.engine.memory;
    let mut freed = FreedMemory::new(Instant::now());
    loop {
        tokio::time::sleep(MEMORY_JUDGED_EVERY).await;
        if freed.is_due(Instant::now(), memory.used().sum(), memory.budget()) {
            // If no thread can be started, the allocator keeps the memory.
            let time = spawn_blocking(time_to_give_back).await.unwrap_or_default();
            freed.took(time);
            tokio::time::sleep(time * PAUSE).await;
        }
    }
}

/// Returns freed memory to the system; returns the time that it took.
fn time_to_give_back() -> Duration {
    let start = Instant::now();
    mqttcore_slab::give_back_freed();
    start.elapsed()
}

/// Frees memory of the next clients from slot `from` on; returns the slot to continue with. In-flight messages are
/// copied out of the chunks of their reads: for a client that reads but does not acknowledge, there is no other
/// occasion. Connections that were idle since the last visit lose their empty buffers.
fn ease_sessions(shard: &Shard, from: usize) -> usize {
    const LOOKED_AT_A_TICK: usize = 256;
    shard
        .registry
        .borrow()
        .visit(from, LOOKED_AT_A_TICK, |client| {
            let mut session = client.session.borrow_mut();
            if session.in_flight() > 0 {
                session.release_chunks();
            }
            drop(session);
            let link = client.link_ref();
            if let Some(link) = link.as_ref().filter(|link| link.is_idle()) {
                client.free_buffers(link);
                client.weigh(shard);
            }
        })
}

/// Removes subscriptions of subscribers that left.
fn clean_directory(shard: &Shard) {
    const CLEANED_A_TICK: usize = 256;
    const CLEANED_WHEN_DUE: usize = 16 * CLEANED_A_TICK;
    let directory = &shard.engine.directory;
    let limit = if directory.is_sweep_due() {
        CLEANED_WHEN_DUE
    } else {
        CLEANED_A_TICK
    };
    directory.clean(limit);
}

/// The timer task: fires deadlines, cleans the directory and the retained messages in batches.
async fn run_timers(shard: Rc<Shard>) {
    let mut fired = Vec::new();
    let mut sweep = Sweep::default();
    let mut eased = 0;
    let mut walk = pressure::PressureWalk::default();
    let mut count = backlog::Count::default();
    while !shard.engine.is_stopping() {
        let next = shard.wheel.borrow().next_tick();
        tokio::time::sleep_until(next.into()).await;
        let now = shard.refresh_now();
        shard.engine.last_turns.record(shard.index, now);
        shard.refresh_period();
        shard.wheel.borrow_mut().advance(now, &mut fired);
        for slot in fired.drain(..) {
            contained(&shard, "a timer", || {
                lifecycle::handle_timeout(&shard, slot);
            });
        }
        contained(&shard, "queued wills", || wills::publish_queued(&shard));
        eased = ease_sessions(&shard, eased);
        count.tick(&shard);
        shard.memory().spare_buffers().free_unused();
        contained(&shard, "the budget of memory", || {
            pressure::tick(&shard, &mut walk);
        });
        if shard.index == 0 {
            contained(&shard, "cleaning up", || {
                clean_directory(&shard);
                shard.engine.traces.sweep(now);
                sweep.step(&shard);
                figures::measure_memory(&shard.engine);
            });
        }
        shard.flush_mailboxes();
    }
}
