//! Sessions with a full queue: their waiting publishers and their rights, visible to every shard.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mqttcore_topics::{MountPoint, TopicName};
use tokio::sync::Notify;

use crate::config::permissions::CompiledGrant;

/// Entries by handle. A session without waiting publishers that may receive everything has no entry.
#[derive(Default)]
pub(crate) struct FullSessions(Mutex<HashMap<u64, Full>>);

#[derive(Default)]
struct Full {
    /// Notified when the session has room again, or has ended.
    room: Arc<Notify>,
    rights: Rights,
}

/// The topics that a client may receive, whatever its subscriptions are.
#[derive(Clone, Default)]
pub(crate) struct Rights {
    /// `None`: all topics.
    access: Option<Arc<CompiledGrant>>,
    mount_point: Option<MountPoint>,
}

impl Rights {
    pub(crate) fn new(access: &Arc<CompiledGrant>, mount_point: Option<&MountPoint>) -> Self {
        let checked = Some(access).filter(|access| access.permissions.checks_deliveries());
        Self {
            access: checked.cloned(),
            mount_point: mount_point.cloned(),
        }
    }

    fn allow_all(&self) -> bool {
        self.access.is_none() && self.mount_point.is_none()
    }

    fn allow(&self, topic: TopicName<'_>) -> bool {
        let is_seen = |mount_point: &MountPoint| mount_point.hidden_bytes(topic.as_str()).is_some();
        let access = self.access.as_ref();
        access.is_none_or(|access| access.permissions.receives(topic))
            && self.mount_point.as_ref().is_none_or(is_seen)
    }
}

impl FullSessions {
    /// Stores the rights of a session whose queue is full or about to be.
    pub(crate) fn set_rights(&self, word: u64, rights: Rights) {
        let mut full = self.lock();
        if let Some(known) = full.get_mut(&word) {
            known.rights = rights;
        } else if !rights.allow_all() {
            let room = Arc::default();
            full.insert(word, Full { room, rights });
        }
    }

    /// Whether the session may receive messages on `topic`.
    pub(crate) fn receives(&self, word: u64, topic: TopicName<'_>) -> bool {
        let full = self.lock();
        full.get(&word).is_none_or(|full| full.rights.allow(topic))
    }

    /// Waits until `is_full` returns false; it is called now and after each [`remove`](Self::remove).
    pub(crate) async fn wait(&self, word: u64, is_full: impl Fn() -> bool) {
        while is_full() {
            let room = Arc::clone(&self.lock().entry(word).or_default().room);
            let mut changed = pin!(room.notified());
            // Changes from here on wake this waiter.
            changed.as_mut().enable();
            if !is_full() {
                return self.remove_without_rights(word);
            }
            changed.await;
        }
    }

    /// Removes the session, because it has room again or has ended; wakes the publishers that wait for it.
    pub(crate) fn remove(&self, word: u64) {
        let full = self.lock().remove(&word);
        if let Some(full) = full {
            full.room.notify_waiters();
        }
    }

    /// Like [`remove`](Self::remove), but keeps an entry that has rights: its session is full again, or about to be.
    fn remove_without_rights(&self, word: u64) {
        let mut full = self.lock();
        if full.get(&word).is_some_and(|full| full.rights.allow_all())
            && let Some(full) = full.remove(&word)
        {
            full.room.notify_waiters();
        }
    }

    /// Wakes all waiting publishers, because the total of all queues is below its limit. Sessions with a full queue
    /// stay.
    pub(crate) fn wake_all(&self) {
        let mut full = self.lock();
        full.values().for_each(|full| full.room.notify_waiters());
        full.retain(|_, full| !full.rights.allow_all());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Full>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::config::grants::Grant;

    fn rights(deny: &str, mount_point: Option<&str>) -> Rights {
        let grant = Grant {
            deny: vec![deny.into()],
            ..Grant::everything()
        };
        let access = Arc::new(CompiledGrant::capped(grant, &Arc::default()).unwrap());
        let mount_point = mount_point.map(|text| MountPoint::parse(text).unwrap());
        Rights::new(&access, mount_point.as_ref())
    }

    fn receives(sessions: &FullSessions, word: u64, text: &str) -> bool {
        let limits = mqttcore_topics::TopicLimits::default();
        sessions.receives(word, TopicName::parse(text, &limits).unwrap())
    }

    #[test]
    fn a_session_receives_what_its_grant_and_its_mount_point_let_through() {
        let sessions = FullSessions::default();
        let receives = |word, text| receives(&sessions, word, text);
        sessions.set_rights(1, rights("secret", None));
        sessions.set_rights(2, rights("secret", Some("plant")));

        assert!(receives(1, "a") && !receives(1, "secret"));
        assert!(receives(2, "plant/a") && !receives(2, "a") && !receives(2, "plant/$SYS"));
        assert!(receives(3, "secret"));
        sessions.set_rights(1, Rights::default());
        assert!(receives(1, "secret"));
    }

    /// A waiting publisher, and how often it was woken.
    struct Waiting<'a> {
        wait: Pin<Box<dyn Future<Output = ()> + 'a>>,
        woken: Arc<Woken>,
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl<'a> Waiting<'a> {
        fn begin(sessions: &'a FullSessions, word: u64, is_full: &'a Cell<bool>) -> Self {
            let mut own = Self {
                wait: Box::pin(sessions.wait(word, || is_full.get())),
                woken: Arc::default(),
            };
            assert!(!own.is_over());
            own
        }

        fn is_over(&mut self) -> bool {
            let waker = Waker::from(Arc::clone(&self.woken));
            let mut context = Context::from_waker(&waker);
            self.wait.as_mut().poll(&mut context).is_ready()
        }

        fn woken(&self) -> usize {
            self.woken.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn nobody_wakes_for_the_room_of_another_session() {
        let sessions = FullSessions::default();
        let is_full = [const { Cell::new(true) }; 2];
        let mut first = Waiting::begin(&sessions, 1, &is_full[0]);
        let mut second = Waiting::begin(&sessions, 2, &is_full[1]);

        is_full[0].set(false);
        sessions.remove(1);

        assert_eq!((first.woken(), second.woken()), (1, 0));
        assert!(first.is_over() && !second.is_over());
        sessions.remove(2);
        assert!(!second.is_over(), "it was filled again");
        is_full[1].set(false);
        sessions.remove(2);
        assert!(second.is_over());
        assert!(sessions.lock().is_empty());
    }

    #[test]
    fn a_publisher_that_need_not_wait_leaves_what_a_session_may_receive_that_fills_again() {
        let sessions = FullSessions::default();
        let asked = Cell::new(0);
        let is_full = || {
            asked.set(asked.get() + 1);
            if asked.get() == 2 {
                sessions.set_rights(1, rights("secret", None));
            }
            asked.get() == 1
        };

        let mut wait = pin!(sessions.wait(1, is_full));
        let is_over = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));

        assert!(is_over.is_ready());
        assert!(!receives(&sessions, 1, "secret"));
    }

    /// If the total of all queues is at its limit, any queue that is not empty counts as full.
    #[test]
    fn all_wake_when_all_have_room_and_only_rights_stay() {
        let sessions = FullSessions::default();
        sessions.set_rights(1, rights("secret", None));
        let is_full = Cell::new(true);
        let mut waiting = [1, 2].map(|word| Waiting::begin(&sessions, word, &is_full));

        is_full.set(false);
        sessions.wake_all();

        assert!(waiting.iter_mut().all(Waiting::is_over));
        assert!(sessions.lock().keys().eq([&1]));
    }
}
