//! Sends messages of this shard to others: one lock for each shard that gets some, and a wake if it has none left.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use crate::shard::{EngineState, Shard, ShardMessage};

/// Deliveries for other shards that wait for more of them, at most: a shard that has nothing to do gets them soon.
const MOST_WAITING: usize = 256;

impl Shard {
    /// Queues `message` for another shard.
    pub(crate) fn send_to_shard(&self, to: usize, message: ShardMessage) {
        let weight = match &message {
            ShardMessage::Deliver(..) => 1,
            ShardMessage::DeliverAll(_, targets) => targets.len(),
            ShardMessage::Job(_) => MOST_WAITING,
        };
        self.outgoing.push(to, message, weight);
    }

    /// Queues `job` for another shard; it is sent at the end of this turn.
    pub(crate) fn post_job(&self, to: usize, job: impl FnOnce(&Rc<Self>) + Send + 'static) {
        self.send_to_shard(to, ShardMessage::Job(Box::new(job)));
    }

    /// Hands the records of this turn to the store, then sends the queued messages.
    pub(crate) fn flush_mailboxes(&self) {
        self.hand_over_records();
        self.send_queued();
    }

    /// The same at the end of a turn whose client gets no answer: the messages may wait for the turns that are due, so
    /// that another shard is woken once for all of them.
    pub(crate) fn flush_mailboxes_later(&self) {
        self.hand_over_records();
        match self.outgoing.weight() {
            0 => {}
            MOST_WAITING.. => self.send_queued(),
            _ => self.outgoing.wake_sender(),
        }
    }

    /// Sends messages that wait, behind the tasks that are due. Never returns.
    pub(crate) async fn send_waiting(&self) {
        poll_fn(|cx| {
            self.flush_mailboxes();
            self.outgoing.set_sender(cx.waker());
            Poll::<()>::Pending
        })
        .await;
    }

    fn hand_over_records(&self) {
        if let Some(journal) = &self.journal {
            journal.commit();
            if journal.is_due() {
                self.engine.wake(self.index);
            }
        }
        if let Some(external) = &self.external {
            external.hand_over();
        }
    }

    fn send_queued(&self) {
        self.outgoing.send(|to, messages| {
            self.engine.mailboxes[to][self.index].send(messages, &self.engine.wakers[to]);
        });
    }
}

impl EngineState {
    /// Whether another shard has messages of shard `from` that it has not taken yet.
    pub(crate) fn has_untaken_messages(&self, from: usize) -> bool {
        self.mailboxes.iter().any(|to| to[from].len() > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::shard::EngineParts;

    #[test]
    fn messages_of_a_shard_are_untaken_until_their_shard_takes_them() {
        let engine = EngineState::new(&Arc::default(), 2, 1, EngineParts::default());
        let untaken = || [0, 1].map(|from| engine.has_untaken_messages(from));
        assert_eq!(untaken(), [false, false]);

        let mut messages = vec![ShardMessage::Job(Box::new(|_| {}))];
        engine.mailboxes[1][0].send(&mut messages, &engine.wakers[1]);
        assert_eq!(untaken(), [true, false]);

        engine.mailboxes[1][0].drain(&mut messages);
        assert_eq!(untaken(), [false, false]);
    }
}
