//! Loads sessions from the store while clients connect.
//!
//! A thread reads the stored sessions and distributes them to the shards. The session of a client that connects
//! meanwhile is loaded first; the client gets CONNACK and its queued messages, and its acknowledgements count. But
//! nothing is routed before all sessions are loaded, since a session that is not loaded would miss it. Until then the
//! broker does not read PUBLISH and SUBSCRIBE of clients, and defers everything that could publish a will or end a
//! session: a connection that ends, a takeover, a clean start, a resume of a session whose will or end is due. If the
//! broker dies while it loads, only acknowledged changes have happened.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mqttcore_store::{KeptSession, StoreError};
use tokio::sync::oneshot;

use crate::durability::loading::AwaitedSession;
use crate::durability::store::DurableLog;
use crate::routing::session_records;
use crate::sessions::recovery::{self, RestoredSession, SessionReader};
use crate::shard::guard::{contained, fail_on_panic};
use crate::shard::{EngineState, Shard, WaitingClient};

/// Sessions that are read together; then it is the turn of those whose clients wait.
const MESSAGE_BATCH: usize = 512;
/// Number of retained messages that are read before waiting clients are checked again.
const RETAINED_TOGETHER: usize = 256;
/// Maximum number of pieces of work that wait at the shards.
const UNDER_WAY: usize = 8;
/// Number of sessions whose deadlines start together.
const BEGUN_TOGETHER: u32 = 4_096;
/// Interval in which the thread checks whether the broker has failed, while a shard is busy.
const LOOK: Duration = Duration::from_millis(100);

/// Runs `then` when all sessions are loaded: usually at once.
pub(crate) fn when_loaded(shard: &Rc<Shard>, then: impl FnOnce(&Rc<Shard>) + 'static) {
    if shard.is_loaded() {
        then(shard);
    } else {
        shard.held.then.borrow_mut().push(Box::new(then));
    }
}

/// Waits until all sessions are loaded.
pub(crate) async fn loaded(shard: Rc<Shard>) {
    let (sender, is_over) = oneshot::channel();
    when_loaded(&shard, |_| {
        // The waiting connection may have ended.
        let _ = sender.send(());
    });
    let _ = is_over.await;
}

/// Calls `admit` for an authenticated client, as soon as its session is loaded and no session can miss a message by
/// it. The client `resumes` its session, or wants a new one.
pub(crate) fn when_there(
    shard: &Rc<Shard>,
    client_id: &Arc<str>,
    resumes: bool,
    admit: impl FnOnce(&Rc<Shard>) + 'static,
) {
    if shard.is_loaded() {
        return admit(shard);
    }
    let is_known = shard.find_client(client_id).is_some();
    let is_first = !shard.held.arrivals.borrow().contains_key(client_id);
    if is_first && is_known && may_come(shard, client_id, resumes) {
        return admit(shard);
    }
    if !is_known {
        shard.engine.loading.ask(client_id, shard.index);
    }
    let admit = Box::new(admit);
    let mut arrivals = shard.held.arrivals.borrow_mut();
    let waiting = arrivals.entry(Arc::clone(client_id)).or_default();
    waiting.push(WaitingClient { resumes, admit });
}

/// Whether letting the client in publishes nothing and ends nothing.
fn may_come(shard: &Shard, client_id: &str, resumes: bool) -> bool {
    let existing = shard.find_client(client_id);
    existing.is_none_or(|old| {
        let due = old.session.borrow().poll_timeout();
        resumes && !old.is_online() && due.is_none_or(|at| at > shard.now())
    })
}

/// The stored session of a waiting client was read; `None` if the client is new.
fn found(shard: &Rc<Shard>, client_id: &Arc<str>, kept: Option<RestoredSession>) {
    recovery::install(shard, kept);
    let mut arrivals = shard.held.arrivals.borrow_mut();
    let Some(waiting) = arrivals.get_mut(client_id) else {
        return;
    };
    // Later connections take the session over from the first one.
    if !may_come(shard, client_id, waiting[0].resumes) {
        return;
    }
    let first = waiting.remove(0);
    if waiting.is_empty() {
        arrivals.remove(client_id);
    }
    drop(arrivals);
    (first.admit)(shard);
    shard.flush_mailboxes();
}

/// All sessions are loaded: runs deferred work.
fn end(shard: &Rc<Shard>) {
    shard.held.is_loaded.set(true);
    for then in shard.held.then.take() {
        contained(shard, "work that waited for loading", || then(shard));
    }
    for waiting in shard.held.arrivals.take().into_values().flatten() {
        contained(shard, "a client that waited for loading", || {
            (waiting.admit)(shard);
        });
    }
    shard.flush_mailboxes();
}

/// Starts the thread that loads the sessions of `log`.
pub(crate) fn start(
    engine: &Arc<EngineState>,
    log: &Arc<DurableLog>,
) -> std::io::Result<JoinHandle<()>> {
    let (sender, wanted) = channel();
    let (done, dones) = channel();
    let loading = &engine.loading;
    *loading
        .wanted
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some(sender);
    let on_panic = fail_on_panic(engine);
    let (engine, log) = (Arc::clone(engine), Arc::clone(log));
    let load = move || {
        let loader = Loader {
            engine: &engine,
            log: &log,
            reader: SessionReader::new(&log, &engine.memory.shard(0).own_account),
            wanted,
            by_key: Vec::new(),
            done,
            dones,
            under_way: 0,
        };
        if let Err(error) = loader.load() {
            // Acknowledged data cannot be read, so the broker stops.
            log.fail(&error);
        }
    };
    mqttcore_panics::spawn("mqttcore-load", on_panic, load)
}

/// The thread.
struct Loader<'w> {
    engine: &'w Arc<EngineState>,
    log: &'w DurableLog,
    reader: SessionReader<'w>,
    wanted: Receiver<AwaitedSession>,
    /// Numbers of sessions, by a hash of their client identifiers, ascending.
    by_key: Vec<(u64, u64)>,
    done: Sender<()>,
    dones: Receiver<()>,
    under_way: usize,
}

impl Loader<'_> {
    fn load(mut self) -> Result<(), StoreError> {
        let mut numbers = self.list()?;
        let sessions = numbers.len();
        self.engine
            .loading
            .to_come
            .store(sessions as u64, Ordering::Relaxed);
        numbers.sort_unstable();
        if sessions > 0 {
            self.say(format!(
                "loading {sessions} sessions: clients can connect; SUBSCRIBE and PUBLISH wait until all are loaded"
            ));
        }
        for together in numbers.chunks(MESSAGE_BATCH) {
            self.answer()?;
            self.deliver_to_shards(together)?;
        }
        drop(numbers);
        self.retained()?;
        self.install(0)?;
        // All sessions exist by now: a will may go to a session of any shard.
        for index in 0..self.engine.shards() {
            self.begin(index)?;
        }
        self.install(0)?;
        for index in 0..self.engine.shards() {
            self.have(index, end)?;
        }
        self.install(0)?;
        if sessions > 0 {
            let taken = self.engine.started.elapsed().as_secs_f64();
            self.say(format!(
                "all {sessions} sessions are loaded after {taken:.2} s"
            ));
        }
        Ok(())
    }

    /// Lists the clients; returns the numbers of their sessions.
    fn list(&mut self) -> Result<Vec<u64>, StoreError> {
        let (engine, by_key) = (self.engine, &mut self.by_key);
        self.log.store.clients(&mut |number, client_id| {
            by_key.push((engine.key_of(client_id), number));
        })?;
        by_key.sort_unstable();
        let numbers: Vec<u64> = by_key.iter().map(|(_, number)| *number).collect();
        self.log
            .begin_sessions(numbers.iter().copied().max().unwrap_or(0));
        Ok(numbers)
    }

    /// Sends these sessions to their shards.
    fn deliver_to_shards(&mut self, numbers: &[u64]) -> Result<(), StoreError> {
        let mut dealt: Vec<Vec<RestoredSession>> =
            (0..self.engine.shards()).map(|_| Vec::new()).collect();
        for kept in self.read(numbers)? {
            let home = self.engine.shard_of(&kept.row.client_id);
            dealt[home].push(self.reader.session(kept)?);
        }
        for (home, sessions) in dealt.into_iter().enumerate() {
            if !sessions.is_empty() {
                self.have(home, |shard| {
                    recovery::install(shard, sessions);
                    shard.flush_mailboxes();
                })?;
            }
        }
        Ok(())
    }

    fn read(&self, numbers: &[u64]) -> Result<Vec<KeptSession>, StoreError> {
        let mut read = Vec::with_capacity(numbers.len());
        self.log
            .store
            .restore(numbers, &mut |kept| read.push(kept))?;
        Ok(read)
    }

    /// Loads the sessions that clients wait for.
    fn answer(&mut self) -> Result<(), StoreError> {
        while let Ok(AwaitedSession { client_id, home }) = self.wanted.try_recv() {
            let key = self.engine.key_of(&client_id);
            let first = self.by_key.partition_point(|(other, _)| *other < key);
            let same = self.by_key[first..]
                .iter()
                .take_while(|(other, _)| *other == key);
            let numbers: Vec<u64> = same.map(|(_, number)| *number).collect();
            let mut found_ones = self.read(&numbers)?.into_iter();
            let kept = found_ones.find(|kept| *kept.row.client_id == *client_id);
            let kept = kept.map(|kept| self.reader.session(kept)).transpose()?;
            self.have(home, move |shard| found(shard, &client_id, kept))?;
        }
        Ok(())
    }

    /// Loads retained messages.
    fn retained(&mut self) -> Result<(), StoreError> {
        let mut expired = Vec::new();
        for together in self.reader.list_retained()?.chunks(RETAINED_TOGETHER) {
            self.answer()?;
            self.reader.retained(self.engine, together, &mut expired)?;
        }
        self.have(0, move |shard| session_records::expired(shard, &expired))
    }

    /// Starts the timers of a shard's sessions.
    fn begin(&mut self, index: usize) -> Result<(), StoreError> {
        let (sender, next) = channel();
        let mut from = 0;
        loop {
            let sender = sender.clone();
            self.have(index, move |shard| {
                // The thread waits for the result.
                let _ = sender.send(recovery::begin(shard, from, BEGUN_TOGETHER));
            })?;
            self.install(0)?;
            match next.try_recv() {
                Ok(Some(slot)) => from = slot,
                // The shard panicked and has reported it.
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }

    /// Sends `work` to a shard; waits first while the shards have too much to do.
    fn have(
        &mut self,
        index: usize,
        work: impl FnOnce(&Rc<Shard>) + Send + 'static,
    ) -> Result<(), StoreError> {
        self.install(UNDER_WAY - 1)?;
        self.under_way += 1;
        let done = Done(self.done.clone());
        let job = move |shard: &Rc<Shard>| {
            work(shard);
            drop(done);
        };
        self.engine.run_on(index, Box::new(job));
        Ok(())
    }

    /// Waits until the shards have no more than `most` to do.
    fn install(&mut self, most: usize) -> Result<(), StoreError> {
        while self.under_way > most {
            match self.dones.recv_timeout(LOOK) {
                Ok(()) => self.under_way -= 1,
                Err(RecvTimeoutError::Timeout) if !self.engine.is_stopping() => {}
                Err(_) => return Err(StoreError::Stopped("the broker is stopping".into())),
            }
        }
        Ok(())
    }

    fn say(&self, text: String) {
        self.engine.run_on(0, Box::new(|shard| shard.log.say(text)));
    }
}

/// Says that a piece of work is over, however it ends.
struct Done(Sender<()>);

impl Drop for Done {
    fn drop(&mut self) {
        // The thread may have given up waiting.
        let _ = self.0.send(());
    }
}
