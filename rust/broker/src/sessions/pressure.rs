//! Memory pressure: at each tick while memory is short, a shard spills queues of offline clients to the disk, and
//! reads one more of the largest senders slowly (ADR 0033).

use std::rc::Rc;
use std::time::Duration;

use crate::clients::client::Client;
use crate::clients::link::{Link, Pace, Slowed};
use crate::routing::memory::{self, Shortage};
use crate::runtime::memory::MemoryLevel;
use crate::shard::Shard;

/// Number of sessions that one tick checks.
const LOOKED_AT_A_TICK: usize = 16_384;
/// How often a sender that is read slowly is read: it is never held for longer.
const READ_EVERY: Duration = Duration::from_secs(1);
/// A sender whose messages take less than this is left alone ...
const SMALL_BYTES: usize = 64 * 1024;
/// ... and so is a client that uses less than this fraction of the largest one.
const LARGE_PART: usize = 8;

/// Position of the next tick.
#[derive(Default)]
pub(crate) struct PressureWalk {
    slot: usize,
    level: MemoryLevel,
}

/// Checks the memory level and acts on it.
pub(crate) fn tick(shard: &Rc<Shard>, walk: &mut PressureWalk) {
    let level = shard.engine.memory.judge();
    if level != walk.level && shard.index == 0 {
        say_level(shard, level);
    }
    walk.level = level;
    if level == MemoryLevel::Normal {
        walk.slot = 0;
        return release(shard);
    }
    let (clients, next) = {
        let registry = shard.registry.borrow();
        registry.part(walk.slot, LOOKED_AT_A_TICK)
    };
    walk.slot = next;
    for client in &clients {
        if !client.is_online() {
            memory::relieve(shard, client);
        }
    }
    slow_largest(shard, &clients);
    read_slowed(shard);
}

fn say_level(shard: &Shard, level: MemoryLevel) {
    let memory = &shard.engine.memory;
    let (used, budget) = (memory.used().sum() >> 20, memory.budget() >> 20);
    let what = match level {
        MemoryLevel::Normal => "no restrictions apply any more",
        MemoryLevel::High => "queues are moved to the disk, the largest senders are read slowly",
        MemoryLevel::Full => {
            "new kept sessions, queued messages and larger retained messages are refused"
        }
    };
    let line = format!("memory: {used} of {budget} MiB are used: {what}");
    shard.log.say(line);
}

/// Slows down the sender whose messages take most, if it takes much.
fn slow_largest(shard: &Rc<Shard>, clients: &[Rc<Client>]) {
    let mut most = 0;
    let mut largest: Option<(usize, &Rc<Client>, Rc<Link>)> = None;
    for client in clients {
        let Some(link) = client.link() else { continue };
        let bytes = link.sent_bytes();
        most = most.max(bytes);
        let is_larger = largest.as_ref().is_none_or(|(most, ..)| bytes > *most);
        if link.pace.get() == Pace::Free && is_larger {
            largest = Some((bytes, client, link));
        }
    }
    let Some((bytes, client, link)) = largest else {
        return;
    };
    if bytes < SMALL_BYTES || bytes < most / LARGE_PART {
        return;
    }
    memory::report_of(shard, Shortage::Sender, Some(client));
    link.pace.set(Pace::Held);
    let next = shard.now() + READ_EVERY;
    shard.slowed.borrow_mut().push_back(Slowed { link, next });
}

/// Wakes each slowed sender that is due for its one read.
fn read_slowed(shard: &Shard) {
    let now = shard.now();
    let mut slowed = shard.slowed.borrow_mut();
    slowed.retain(|slowed| Rc::strong_count(&slowed.link) > 1);
    for Slowed { link, next } in slowed.iter_mut().filter(|slowed| slowed.next <= now) {
        *next = now + READ_EVERY;
        link.pace.set(Pace::OneRead);
        link.wake();
    }
}

/// Lifts the restriction from an eighth of the slowed senders, the longest-waiting first.
fn release(shard: &Shard) {
    let mut slowed = shard.slowed.borrow_mut();
    let count = slowed.len().div_ceil(8);
    for Slowed { link, .. } in slowed.drain(..count) {
        link.pace.set(Pace::Free);
        link.wake();
    }
    drop(slowed);
    read_slowed(shard);
}
