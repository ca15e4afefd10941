//! Options of stores whose segments are full soon, and that make a checkpoint only when they are asked to.

use mqttcore_store::StoreOptions;

pub(crate) const OPTIONS: StoreOptions = StoreOptions::small(16 * 1_024, 2);
