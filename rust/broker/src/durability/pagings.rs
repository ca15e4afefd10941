//! Queues that are being read back from the store.

use std::collections::HashMap;

use crate::clients::client::Client;
use crate::clients::handle::Handle;

/// Queues that are being read back, by the slots of their clients.
#[derive(Default)]
pub(crate) struct Pagings(HashMap<u32, Paging>);

/// How far the queue of a client that is back has been read.
pub(crate) struct Paging {
    pub(crate) handle: Handle,
    /// Distinguishes its pages from those of an earlier paging.
    pub(crate) serial: u64,
    /// Everything that was counted has a lower number.
    pub(crate) below: u64,
    /// The number with which the next page begins.
    pub(crate) from: u64,
    /// Number of shards that have not handed over yet the deliveries that they had numbered.
    pub(crate) unsettled: usize,
    pub(crate) is_reading: bool,
    /// Whether its client has just reconnected: it gets the first page before any answer.
    pub(crate) is_greeting: bool,
}

impl Pagings {
    pub(crate) fn of(&self, client: &Client) -> Option<&Paging> {
        let paging = self.0.get(&client.handle.slot())?;
        (paging.handle == client.handle).then_some(paging)
    }

    pub(crate) fn of_mut(&mut self, client: &Client) -> Option<&mut Paging> {
        let paging = self.0.get_mut(&client.handle.slot())?;
        (paging.handle == client.handle).then_some(paging)
    }

    /// Its queue is read to the end, or is closed again, or it has none any more.
    pub(crate) fn stop(&mut self, client: &Client) {
        self.0.remove(&client.handle.slot());
    }

    /// Its queue is read from now on.
    pub(crate) fn begin(&mut self, paging: Paging) {
        self.0.insert(paging.handle.slot(), paging);
    }
}
