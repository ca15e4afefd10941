//! Work of a shard that is deferred until all sessions are loaded.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::shard::Shard;

/// Work that runs when all sessions are loaded.
pub(crate) type WhenLoaded = Box<dyn FnOnce(&Rc<Shard>)>;

/// An admitted client that waits for its session.
pub(crate) struct WaitingClient {
    /// It resumes its session, if there is one.
    pub(crate) resumes: bool,
    pub(crate) admit: WhenLoaded,
}

/// Work of a shard that is deferred until all sessions are loaded.
pub(crate) struct DeferredWork {
    pub(crate) is_loaded: Cell<bool>,
    /// Admitted clients in their order, by identifier.
    pub(crate) arrivals: RefCell<HashMap<Arc<str>, Vec<WaitingClient>>>,
    pub(crate) then: RefCell<Vec<WhenLoaded>>,
}

impl DeferredWork {
    pub(crate) fn new(has_store: bool) -> Self {
        Self {
            is_loaded: Cell::new(!has_store),
            arrivals: RefCell::default(),
            then: RefCell::default(),
        }
    }

    /// Whether all sessions of all shards are loaded and their timers run.
    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded.get()
    }
}
