//! What one shard does not do before all sessions are there.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::shard::Shard;

/// Work that waits for sessions.
pub(crate) type WhenLoaded = Box<dyn FnOnce(&Rc<Shard>)>;

/// A client that was let in and waits for its session.
pub(crate) struct WaitingClient {
    /// It resumes its session, if there is one.
    pub(crate) resumes: bool,
    pub(crate) admit: WhenLoaded,
}

/// What one shard does not do before all sessions are there.
pub(crate) struct DeferredWork {
    pub(crate) is_loaded: Cell<bool>,
    /// Clients that were let in, in their order, by identifier.
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

    /// Every session of every shard is there, and its time goes on.
    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded.get()
    }
}
