//! The CONNECT or the SUBSCRIBE of one question, and what the hooks have decided about it so far.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mqttcore_broker::{ConnectChanges, ConnectDecision, Login, SubscribeBatch, SubscribeDecision};
use mqttcore_codec::ReasonCode;
use mqttcore_session::SubscribeEntry;
use thiserror::Error;

use crate::answers::{EntryAnswer, OptionChanges};

/// The CONNECT of an authenticated client.
pub(super) struct Connecting {
    pub(super) login: Arc<Login>,
    changes: Mutex<ConnectChanges>,
}

impl Connecting {
    pub(super) fn new(login: Arc<Login>) -> Self {
        Self {
            login,
            changes: Mutex::default(),
        }
    }

    /// The login as the hooks so far have left it.
    pub(super) fn present(&self) -> Arc<Login> {
        let changes = lock(&self.changes);
        if changes.keep_alive_s.is_none() && changes.session_expiry_max_s.is_none() {
            return Arc::clone(&self.login);
        }
        let mut login = Login::clone(&self.login);
        let expiry_max_s = changes.session_expiry_max_s.unwrap_or(u32::MAX);
        login.session_expiry_interval_s = login.session_expiry_interval_s.min(expiry_max_s);
        login.keep_alive_s = changes.keep_alive_s.unwrap_or(login.keep_alive_s);
        Arc::new(login)
    }

    pub(super) fn change(&self, changes: ConnectChanges) {
        lock(&self.changes).merge(changes);
    }

    pub(super) fn decision(&self) -> ConnectDecision {
        ConnectDecision::Allow(std::mem::take(&mut *lock(&self.changes)))
    }
}

/// An answer that does not fit the filters.
#[derive(Debug, Error)]
pub(super) enum EntryError {
    #[error("{answers} answers for {filters} filters")]
    Count { answers: usize, filters: usize },
    #[error("QoS {0} is above the requested one")]
    Qos(u8),
}

/// The filters of one SUBSCRIBE.
pub(super) struct SubscribeFilters {
    pub(super) login: Arc<Login>,
    slots: Mutex<Vec<Slot>>,
}

/// A filter as the hooks so far have left it.
struct Slot {
    entry: SubscribeEntry,
    denied: Option<SubscribeDecision>,
}

impl SubscribeFilters {
    pub(super) fn new(batch: SubscribeBatch) -> Self {
        let slot = |entry| Slot {
            entry,
            denied: None,
        };
        Self {
            login: batch.login,
            slots: Mutex::new(batch.entries.into_iter().map(slot).collect()),
        }
    }

    /// The filters that no hook has refused.
    pub(super) fn open(&self) -> Vec<SubscribeEntry> {
        let slots = lock(&self.slots);
        let open = slots.iter().filter(|slot| slot.denied.is_none());
        open.map(|slot| slot.entry.clone()).collect()
    }

    /// Applies the answers of a hook to the open filters, in their order; returns whether any is still open.
    ///
    /// # Errors
    ///
    /// [`EntryError`]; nothing is changed then.
    pub(super) fn apply(&self, answers: Vec<EntryAnswer>) -> Result<bool, EntryError> {
        let mut slots = lock(&self.slots);
        let open: Vec<&mut Slot> = slots
            .iter_mut()
            .filter(|slot| slot.denied.is_none())
            .collect();
        if open.len() != answers.len() {
            return Err(EntryError::Count {
                answers: answers.len(),
                filters: open.len(),
            });
        }
        for (slot, answer) in open.iter().zip(&answers) {
            slot.check(answer)?;
        }
        for (slot, answer) in open.into_iter().zip(answers) {
            slot.apply(answer);
        }
        Ok(slots.iter().any(|slot| slot.denied.is_none()))
    }

    /// Refuses all open filters.
    pub(super) fn deny(&self, reason: ReasonCode, text: Option<&str>) {
        let mut slots = lock(&self.slots);
        for slot in slots.iter_mut().filter(|slot| slot.denied.is_none()) {
            slot.denied = Some(SubscribeDecision::Deny {
                reason,
                text: text.map(Into::into),
            });
        }
    }

    /// The decision about each filter.
    pub(super) fn decisions(&self) -> Vec<SubscribeDecision> {
        let slots = std::mem::take(&mut *lock(&self.slots));
        slots.into_iter().map(Slot::decision).collect()
    }
}

impl Slot {
    fn check(&self, answer: &EntryAnswer) -> Result<(), EntryError> {
        match answer {
            EntryAnswer::Change(OptionChanges { qos: Some(qos), .. })
                if *qos > self.entry.options.qos =>
            {
                Err(EntryError::Qos(*qos as u8))
            }
            _ => Ok(()),
        }
    }

    fn apply(&mut self, answer: EntryAnswer) {
        match answer {
            EntryAnswer::Pass => {}
            EntryAnswer::Change(changes) => {
                let entry = &mut self.entry;
                entry.options.qos = changes.qos.unwrap_or(entry.options.qos);
                entry.retain_handling = changes.retain_handling.unwrap_or(entry.retain_handling);
            }
            EntryAnswer::Deny { reason, text } => {
                self.denied = Some(SubscribeDecision::Deny { reason, text });
            }
        }
    }

    fn decision(self) -> SubscribeDecision {
        self.denied.unwrap_or(SubscribeDecision::Subscribe {
            max_qos: self.entry.options.qos,
            retain_handling: self.entry.retain_handling,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
