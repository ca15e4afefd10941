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
    queued: usize,
    queued_bytes: usize,
    in_flight_out: usize,
    in_flight_in: usize,
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
            let messages = self.queued + self.in_flight_out;
            metrics.session_messages.set(messages as u64);
            metrics.queued_messages.set(self.queued as u64);
            metrics.queued_bytes.set(self.queued_bytes as u64);
            metrics.in_flight_out.set(self.in_flight_out as u64);
            metrics.in_flight_in.set(self.in_flight_in as u64);
            metrics.waiting_packets.set(self.packets as u64);
            metrics.waiting_bytes.set(self.bytes as u64);
            *self = Self::default();
        }
    }

    fn add(&mut self, client: &Client) {
        let session = client.session.borrow();
        self.queued += session.queued();
        self.queued_bytes += session.queued_bytes();
        self.in_flight_out += session.in_flight();
        self.in_flight_in += session.open_publishes();
        if let Some(link) = &*client.link_ref() {
            let outbox = link.outbox();
            self.packets += outbox.packets() as usize;
            self.bytes += outbox.len();
        }
    }
}
