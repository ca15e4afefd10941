//! Counts the messages and packets that wait for clients, some sessions at each tick.

use crate::clients::client::Client;
use crate::shard::Shard;

/// Minimum number of sessions that a tick counts.
const LOOKED_AT_A_TICK: usize = 256;
/// Maximum number of ticks of a whole count: 10 s.
const TICKS_MAX: usize = 100;

/// A count in progress.
#[derive(Default)]
pub(crate) struct Count {
    slot: usize,
    messages: usize,
    packets: usize,
    bytes: usize,
}

impl Count {
    /// Counts the next sessions; after the last one, replaces the figures of the shard.
    pub(crate) fn tick(&mut self, shard: &Shard) {
        let registry = shard.registry.borrow();
        let part = LOOKED_AT_A_TICK.max(registry.slots() as usize / TICKS_MAX + 1);
        self.slot = registry.visit(self.slot, part, |client| self.add(client));
        if self.slot == 0 {
            let metrics = shard.metrics();
            metrics.session_messages.set(self.messages as u64);
            metrics.waiting_packets.set(self.packets as u64);
            metrics.waiting_bytes.set(self.bytes as u64);
            *self = Self::default();
        }
    }

    fn add(&mut self, client: &Client) {
        let session = client.session.borrow();
        self.messages += session.queued() + session.in_flight();
        if let Some(link) = &*client.link_ref() {
            let outbox = link.outbox.borrow();
            self.packets += outbox.packets() as usize;
            self.bytes += outbox.len();
        }
    }
}
