//! Sends questions and changes to one shard, with a deadline.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::config::Config;
use crate::service::{Answer, BrokerHandle, BrokerStopped};
use crate::sessions::loading;
use crate::shard::Shard;

/// Deadline of a question that only reads.
pub(crate) const READ_DEADLINE: Duration = Duration::from_millis(250);
/// Deadline of a change, including the writes of the store that it waits for.
const CHANGE_DEADLINE: Duration = Duration::from_secs(30);

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] BrokerStopped),
    /// The shard did not answer in time: it is busy or stuck.
    #[error("shard {shard} did not answer within {} ms", deadline.as_millis())]
    Late {
        /// Number of the shard.
        shard: usize,
        /// The deadline that has passed.
        deadline: Duration,
    },
    /// The shard has received the change but did not confirm it in time; it may still make it.
    #[error("shard {shard} did not confirm the change within {} s: it may still happen", deadline.as_secs())]
    Unconfirmed {
        /// Number of the shard.
        shard: usize,
        /// The deadline that has passed.
        deadline: Duration,
    },
    /// The session may be among those that are not loaded yet.
    #[error("sessions are still being loaded")]
    Loading,
}

/// A shard whose part of an answer is missing or incomplete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MissingPart {
    /// Number of the shard.
    pub shard: usize,
    /// The reason.
    pub why: AskError,
}

impl BrokerHandle {
    /// The configuration in force. Waits for no shard.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub fn config(&self) -> Result<Arc<Config>, BrokerStopped> {
        Ok(self.engine().ok_or(BrokerStopped)?.config())
    }

    /// The configured durability in one line for people. Waits for no shard.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub fn guarantees(&self) -> Result<String, BrokerStopped> {
        Ok(self.engine().ok_or(BrokerStopped)?.guarantees())
    }

    /// Counters of the store by name; empty without a store. Never blocks.
    pub fn store_figures(&self) -> Vec<(&'static str, u64)> {
        let engine = self.engine();
        let log = engine.as_ref().and_then(|engine| engine.log.as_ref());
        log.map_or_else(Vec::new, |log| log.figures().to_vec())
    }

    /// Number of shards; 0 once the broker has stopped.
    pub(crate) fn shards(&self) -> usize {
        self.engine().map_or(0, |engine| engine.shards())
    }

    /// Reads something on a shard at once.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        shard: usize,
        question: impl FnOnce(&Rc<Shard>) -> T + Send + 'static,
    ) -> Result<T, AskError> {
        let answer = self.ask_shard(shard, |shard, answer| answer(question(shard)));
        let deadline = READ_DEADLINE;
        within(deadline, AskError::Late { shard, deadline }, answer).await
    }

    /// Changes something on the shard of `client_id`, once all sessions are loaded.
    pub(super) async fn change_client<T: Send + 'static>(
        &self,
        client_id: &str,
        change: impl FnOnce(&Rc<Shard>, &str, Answer<T>) + Send + 'static,
    ) -> Result<T, AskError> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        let (shard, id) = (engine.shard_of(client_id), client_id.to_owned());
        drop(engine);
        self.change(shard, move |shard, answer| change(shard, &id, answer))
            .await
    }

    /// Changes something on a shard, once all sessions are loaded.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        shard: usize,
        change: impl FnOnce(&Rc<Shard>, Answer<T>) + Send + 'static,
    ) -> Result<T, AskError> {
        let answer = self.ask_shard(shard, move |shard, answer| {
            loading::when_loaded(shard, move |shard| change(shard, answer));
        });
        let deadline = CHANGE_DEADLINE;
        within(deadline, AskError::Unconfirmed { shard, deadline }, answer).await
    }
}

async fn within<T>(
    deadline: Duration,
    late: AskError,
    answer: impl Future<Output = Result<T, BrokerStopped>>,
) -> Result<T, AskError> {
    match timeout(deadline, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(late),
    }
}
