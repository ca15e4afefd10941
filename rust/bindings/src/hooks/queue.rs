//! Question queues of hook workers, and event queues of plugins.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use mqttcore_broker::PluginEvent;

use super::bounded_queue::{BoundedQueue, Overflow};
use super::question::Question;

/// Maximum number of questions in a queue; more are refused with "server busy".
const QUESTIONS: usize = 1_024;
const EVENTS: usize = 65_536;

/// The question queue of the `def` hooks, or of the `async def` hooks, of a plugin; publish hooks have their own.
pub(super) struct QuestionQueue {
    pub(super) inbox: BoundedQueue<Arc<Question>>,
    /// For `async def` hooks: a byte wakes the event loop if questions wait. `def` hooks have a thread that blocks.
    wake: Option<(UnixStream, UnixStream)>,
}

impl QuestionQueue {
    pub(super) fn new(is_async: bool) -> io::Result<Self> {
        let wake = is_async.then(|| {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            writer.set_nonblocking(true)?;
            Ok::<_, io::Error>((reader, writer))
        });
        Ok(Self {
            inbox: BoundedQueue::new(QUESTIONS, Overflow::Refuse),
            wake: wake.transpose()?,
        })
    }

    /// Adds a question and wakes its worker.
    ///
    /// # Errors
    ///
    /// Returns the question if the queue is full or closed.
    pub(super) fn push(&self, question: Arc<Question>) -> Result<(), Arc<Question>> {
        let was_empty = self.inbox.push(question)?;
        // Of a queue that was not empty, the event loop has been woken, or it takes more when a hook has returned.
        if was_empty {
            self.wake();
        }
        Ok(())
    }

    /// Returns a question to the front and wakes its worker, which may be another one than the one that took it.
    pub(super) fn give_back(&self, question: Arc<Question>) {
        self.inbox.push_front(question);
        self.wake();
    }

    /// Wakes the event loop of `async def` hooks.
    fn wake(&self) {
        if let Some((_, writer)) = &self.wake {
            // The socket buffer holds thousands of bytes: if it is full, a wake is pending already.
            let _ = (&*writer).write(&[1]);
        }
    }

    /// Takes up to `limit` questions without waiting; the next question wakes the event loop again.
    pub(super) fn take_now(&self, limit: usize) -> Vec<Arc<Question>> {
        if let Some((reader, _)) = &self.wake {
            let mut bytes = [0; 64];
            while matches!((&*reader).read(&mut bytes), Ok(count) if count == bytes.len()) {}
        }
        self.inbox.take_now(limit)
    }

    /// The file descriptor that is readable while questions wait; `None` for `def` hooks.
    pub(super) fn wake_fd(&self) -> Option<i32> {
        self.wake.as_ref().map(|(reader, _)| reader.as_raw_fd())
    }

    /// Closes the queue; returns the waiting questions.
    pub(super) fn close(&self) -> impl Iterator<Item = Arc<Question>> {
        self.inbox.close().into_iter()
    }
}

/// The event queue of a plugin.
pub(super) struct EventQueue {
    /// Bits of `EventKind` for the events that the plugin wants.
    pub(super) kinds: u32,
    pub(super) inbox: BoundedQueue<PluginEvent>,
}

impl EventQueue {
    pub(super) fn new(kinds: u32) -> Self {
        Self {
            kinds,
            inbox: BoundedQueue::new(EVENTS, Overflow::DropOldest),
        }
    }

    /// Queues an event that the plugin subscribed to; if the queue is full, the oldest event is dropped.
    pub(super) fn tell(&self, event: &PluginEvent) {
        if self.kinds & (1 << event.kind as u32) != 0 {
            // It is closed only after the engine has stopped.
            let _ = self.inbox.push(event.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::question::tests::login;
    use super::*;

    #[test]
    fn a_question_that_comes_back_wakes_the_event_loop_that_takes_over() {
        let queue = QuestionQueue::new(true).unwrap();
        let (question, _wanted) = login();
        let (behind, _wanted_too) = login();
        assert!(queue.push(behind).is_ok());
        let (reader, _) = queue.wake.as_ref().unwrap();
        let woken = || (&*reader).read(&mut [0; 64]).unwrap();
        assert_eq!(woken(), 1);

        queue.give_back(Arc::clone(&question));

        assert_eq!(woken(), 1);
        let taken = queue.take_now(1);
        assert!(Arc::ptr_eq(&taken[0], &question));
    }
}
