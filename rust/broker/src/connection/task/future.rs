//! The future of a connection's task: turns until the connection ends, then the end of the connection.
//!
//! Written by hand, so that the task of an idle connection is one block of 256 bytes: nested async blocks would store
//! copies of moved values, and space for the end.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use mqttcore_panics::poll_caught;
use mqttcore_session::Cause;

use super::Connection;
use crate::clients::client::Client;
use crate::clients::connections::ConnectionSlot;
use crate::clients::link::Link;
use crate::sessions::lifecycle::detach;
use crate::sessions::loading;
use crate::shard::Shard;
use crate::shard::guard::{CONNECTION, report};

/// The task of a connection. If it panics, its session is detached and nothing else happens.
pub(super) struct ConnectionTask(Stage);

enum Stage {
    Open(Connection, ConnectionSlot),
    Ending(TaskOwner, Pin<Box<dyn Future<Output = ()>>>),
    Over,
}

/// The state that the end of the task needs after a panic.
#[derive(Clone)]
struct TaskOwner {
    shard: Rc<Shard>,
    client: Rc<Client>,
    link: Rc<Link>,
}

impl ConnectionTask {
    pub(super) fn new(connection: Connection, slot: ConnectionSlot) -> Self {
        Self(Stage::Open(connection, slot))
    }
}

impl Future for ConnectionTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let result = ready!(poll_caught(CONNECTION, Pin::new(&mut self.0), cx));
        let Some(owner) = self.0.owner() else {
            return Poll::Ready(());
        };
        if let Err(panicked) = result {
            report(&owner.shard, &panicked);
            owner.clone().detach_lost();
        }
        // The socket is closed before the task counts as ended, and its slot is free before that.
        self.0 = Stage::Over;
        owner.link.take_transport();
        owner.shard.task_ended();
        Poll::Ready(())
    }
}

impl Future for Stage {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Open(connection, _) = &mut *self {
            let end = ready!(connection.poll_turn(cx));
            let Some(owner) = self.owner() else {
                return Poll::Ready(());
            };
            let Self::Open(connection, slot) = std::mem::replace(&mut *self, Self::Over) else {
                return Poll::Ready(());
            };
            *self = Self::Ending(owner, Box::pin(connection.finish(end, slot)));
        }
        match &mut *self {
            Self::Ending(_, ending) => ending.as_mut().poll(cx),
            Self::Open(..) | Self::Over => Poll::Ready(()),
        }
    }
}

impl Stage {
    fn owner(&self) -> Option<TaskOwner> {
        match self {
            Self::Open(connection, _) => Some(TaskOwner {
                shard: Rc::clone(&connection.shard),
                client: Rc::clone(&connection.client),
                link: Rc::clone(&connection.link),
            }),
            Self::Ending(owner, _) => Some(owner.clone()),
            Self::Over => None,
        }
    }
}

impl TaskOwner {
    /// Detaches the session, which has lost its connection.
    fn detach_lost(self) {
        let Self {
            shard,
            client,
            link,
        } = self;
        loading::when_loaded(&shard, move |shard| {
            if client.has_link(&link) {
                let why = "a fault of the broker ended the connection";
                detach(shard, &client, Cause::ConnectionLost, (None, why));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tokio adds 104 bytes and rounds up to 128.
    #[test]
    fn a_task_is_256_bytes() {
        let bytes = size_of::<ConnectionTask>();
        assert!(bytes <= 152, "{bytes}");
    }
}
