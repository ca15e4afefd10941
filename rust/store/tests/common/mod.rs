//! What most tests of a store do: hand over a simulated disk, append records.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;

use mqttcore_store::faults::Disk;
use mqttcore_store::files::Files;
use mqttcore_store::record::Record;
use mqttcore_store::{Batch, Durability, SpacePolicy, Store};

pub(crate) fn files(disk: &Disk) -> Arc<dyn Files> {
    Arc::new(disk.clone())
}

/// Appends records as one batch; they are safe when this returns.
pub(crate) fn append(store: &dyn Store, records: &[Record<'_>]) {
    let mut batch = Batch::default();
    for record in records {
        batch.push(record);
    }
    let ticket = store.append(&mut batch, Durability::Fsync, SpacePolicy::Ordinary);
    store.wait(ticket.unwrap()).unwrap();
}
