//! One shard: a single-threaded runtime on its own thread, and everything that lives on it.
//!
//! A session lives on the shard that its client identifier hashes to (docs/decisions.md, 16), so one thread
//! handles all events of a client. Shards share the directory, the retained store and their
//! mailboxes; nothing else.

use std::cell::{Cell, Ref, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use mqttcore_codec::PropertiesBuf;
use mqttcore_topics::{MatchCache, TopicName};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::AbortHandle;

use crate::clients::client::Client;
use crate::clients::delivery_observer::DeliveryObserver;
use crate::clients::due_wills::DueWills;
use crate::clients::flapping::Flapping;
use crate::clients::handle::Handle;
use crate::clients::link::Slowed;
use crate::clients::registry::Registry;
use crate::clients::target::Target;
use crate::clients::traces::ActiveTraces;
use crate::config::Config;
use crate::config::hooks::{HookInterests, Hooks};
use crate::config::listener_policy::ListenerPolicy;
use crate::config::plugin_event::{EventKind, PluginEvent};
use crate::durability::external::ExternalQueue;
use crate::durability::journal::ShardLogWriter;
use crate::durability::pagings::Pagings;
use crate::runtime::address_space::AddressSpace;
use crate::runtime::due_queue::DueQueue;
use crate::runtime::log::Logger;
use crate::runtime::mailbox::OutgoingMessages;
use crate::runtime::memory_limit::memory_budget;
use crate::runtime::metrics::Metrics;
use crate::runtime::reserved_bytes::ReservedBytes;
use crate::runtime::wheel::Wheel;
use crate::shard::guard::contained;
use crate::shard::handshakes::HandshakeSteps;
use crate::shard::recent_events::{NewEvent, RecentEvents, RecentKind};
use crate::shard::session_owners::SessionOwners;
use crate::shard::{DeferredWork, EngineState, Job, ShardMessage};
use crate::transport::SCRATCH_BYTES;

/// Deliveries of one connection's publishes after which a turn ends, if it has taken [`TURN_TIME`]: about 7 ms for
/// slow receivers, whose state is not in the caches. A larger fan-out of a single message is completed, and later
/// messages of the publisher wait (abuse D22).
const TURN_DELIVERIES: usize = 8 * 1024;
/// A turn that has taken less than this continues: receivers whose state is in the caches need less time, and write
/// the messages of one read together ...
const TURN_TIME: Duration = Duration::from_millis(5);
/// ... up to this many.
const MOST_TURN_DELIVERIES: usize = 4 * TURN_DELIVERIES;

/// Search steps for the receivers of one connection's publishes in a turn, about a millisecond for slow ones; one
/// more publish is completed (abuse H15).
const TURN_STEPS: usize = 16 * 1024;

/// Configuration, plugins and listener policies, which a reload can replace.
pub(crate) type Rules = (Arc<Config>, Arc<dyn Hooks>, Arc<[ListenerPolicy]>);

/// What a connection is to do.
pub(crate) enum Due {
    /// The outbox of this client has something to write.
    Output(Rc<Client>),
    /// The task goes on with its input.
    Turn(Waker),
}

/// One event loop and its state.
pub(crate) struct Shard {
    pub(crate) index: usize,
    pub(crate) engine: Arc<EngineState>,
    pub(crate) registry: RefCell<Registry>,
    pub(crate) wheel: RefCell<Wheel>,
    /// What connections are to do, behind the tasks that are due.
    pub(crate) due: DueQueue<Due>,
    pub(crate) log: Logger,
    /// Owners of its sessions.
    pub(crate) session_owners: RefCell<SessionOwners>,
    /// How often each client has connected.
    pub(crate) flapping: RefCell<Flapping>,
    /// Wills that are published later, since many clients were lost at once.
    pub(crate) due_wills: RefCell<DueWills>,
    /// Clients whose rights the plugins are to be asked for again.
    pub(crate) renewals: RefCell<VecDeque<Rc<Client>>>,
    /// Tasks that ask the plugins about `renewals`.
    pub(crate) renewal_tasks: Cell<usize>,
    /// Tasks that ask the deliver hooks about the next messages of a client, by its handle.
    pub(crate) deciding: RefCell<HashMap<u64, AbortHandle>>,
    /// Serializes the steps of TLS handshakes.
    pub(crate) handshakes: HandshakeSteps,
    /// The log writer, if there is a store.
    pub(crate) journal: Option<ShardLogWriter>,
    /// The records for an external log, if there is one.
    pub(crate) external: Option<ExternalQueue>,
    /// Work that is deferred until sessions are loaded.
    pub(crate) held: DeferredWork,
    /// Queues of sessions that are being read back.
    pub(crate) pagings: RefCell<Pagings>,
    /// Cached matches of frequent topics.
    pub(crate) results: RefCell<MatchCache>,
    /// Scratch space of the router.
    pub(crate) targets: Cell<Vec<Target>>,
    /// Scratch space for encoding properties.
    pub(crate) properties: RefCell<PropertiesBuf>,
    config: RefCell<Arc<Config>>,
    listener_policies: RefCell<Arc<[ListenerPolicy]>>,
    hooks: RefCell<Arc<dyn Hooks>>,
    interests: RefCell<Rc<HookInterests>>,
    scratch: Cell<Option<Box<[u8]>>>,
    pub(super) outgoing: OutgoingMessages<ShardMessage>,
    now: Cell<Instant>,
    random: Cell<u64>,
    turn_start: Cell<Instant>,
    /// Reads until the next one is marked, so that its deliveries are measured.
    pub(super) until_mark: Cell<u8>,
    /// The period in which rates of clients are counted now.
    pub(super) period: Cell<u32>,
    /// Messages that sessions got in this turn.
    deliveries: Cell<usize>,
    /// Steps of searches for receivers in this turn.
    steps: Cell<usize>,
    /// Growth in bytes of the memory that this shard counts, since the last comparison with the budget.
    pub(super) grown: Cell<usize>,
    /// Bytes that each session counts with against the budget of memory, by slot.
    pub(super) weighed: RefCell<Vec<u32>>,
    /// Bytes that large frames have reserved.
    pub(crate) address_space: AddressSpace,
    /// Bytes that the system may hold unsent for clients of large messages.
    pub(crate) unsent: ReservedBytes,
    /// Senders that are read slowly.
    pub(crate) slowed: RefCell<VecDeque<Slowed>>,
    recent_events: RefCell<RecentEvents>,
    pub(super) active_traces: RefCell<ActiveTraces>,
    pub(super) delivery_observers: RefCell<Vec<Weak<dyn DeliveryObserver<Self>>>>,
    /// No hook decides about deliveries, and nobody observes them.
    pub(super) are_deliveries_plain: Cell<bool>,
    /// Connection tasks alive; the shard's thread ends when the last one has.
    pub(crate) tasks: Cell<usize>,
    is_stop_announced: Cell<bool>,
    knows_of_failure: Cell<bool>,
    finished: Notify,
}

impl Shard {
    /// A shard without sessions. Longer than other functions: one line for each field.
    pub(crate) fn new(
        index: usize,
        engine: Arc<EngineState>,
        (config, hooks, listener_policies): Rules,
    ) -> Rc<Self> {
        let outgoing = OutgoingMessages::new(engine.shards());
        let random = engine.unique() | 1;
        let interests = hooks.interests();
        let are_deliveries_plain = interests.deliver.is_empty();
        Rc::new(Self {
            index,
            registry: RefCell::new(Registry::default()),
            wheel: RefCell::new(Wheel::new(Instant::now())),
            due: DueQueue::default(),
            log: Logger::new(Arc::clone(&hooks), Arc::clone(&engine.latest_lines)),
            session_owners: RefCell::default(),
            flapping: RefCell::default(),
            due_wills: RefCell::default(),
            renewals: RefCell::default(),
            renewal_tasks: Cell::default(),
            deciding: RefCell::default(),
            handshakes: HandshakeSteps::default(),
            journal: engine
                .log
                .clone()
                .map(|log| ShardLogWriter::new(log, Arc::clone(&engine.awaited[index]))),
            external: engine
                .rows
                .clone()
                .zip(engine.external.clone())
                .map(|(rows, outcomes)| ExternalQueue::new(rows, outcomes, index)),
            held: DeferredWork::new(engine.log.is_some()),
            pagings: RefCell::default(),
            results: RefCell::default(),
            targets: Cell::default(),
            properties: RefCell::default(),
            config: RefCell::new(config),
            listener_policies: RefCell::new(listener_policies),
            interests: RefCell::new(Rc::new(interests)),
            hooks: RefCell::new(hooks),
            scratch: Cell::new(None),
            outgoing,
            now: Cell::new(Instant::now()),
            random: Cell::new(random),
            turn_start: Cell::new(Instant::now()),
            until_mark: Cell::new(0),
            period: Cell::new(0),
            deliveries: Cell::new(0),
            steps: Cell::new(0),
            grown: Cell::new(0),
            weighed: RefCell::default(),
            address_space: AddressSpace::new(engine.memory.shard(index).spare_buffers()),
            unsent: ReservedBytes::default(),
            slowed: RefCell::default(),
            recent_events: RefCell::new(RecentEvents::new(Instant::now())),
            active_traces: RefCell::default(),
            delivery_observers: RefCell::default(),
            are_deliveries_plain: Cell::new(are_deliveries_plain),
            tasks: Cell::new(0),
            is_stop_announced: Cell::new(false),
            knows_of_failure: Cell::new(false),
            finished: Notify::new(),
            engine,
        })
    }

    /// Waits for jobs and messages; true once the shard has ended.
    pub(crate) async fn wait_for_work(&self, mut ended: Pin<&mut Notified<'_>>) -> bool {
        let woken = self.engine.wakers[self.index].notified();
        let mut woken = std::pin::pin!(woken);
        poll_fn(|cx| {
            if ended.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            woken.as_mut().poll(cx).map(|()| false)
        })
        .await
    }

    /// Ready once [`Shard::give_up`] was called.
    pub(crate) fn ended(&self) -> Notified<'_> {
        self.finished.notified()
    }

    /// Takes the jobs of other threads.
    pub(crate) fn take_jobs(&self) -> Vec<Job> {
        let mut jobs = self.engine.jobs[self.index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *jobs)
    }

    /// Takes the messages of other shards.
    pub(crate) fn receive(&self, messages: &mut Vec<ShardMessage>) {
        for mailbox in &self.engine.mailboxes[self.index] {
            mailbox.drain(messages);
        }
    }

    /// Whether the broker has failed since the last call.
    pub(crate) fn has_just_failed(&self) -> bool {
        self.engine.is_stopping()
            && !self.knows_of_failure.get()
            && self.engine.failing.has_failed()
            && !self.knows_of_failure.replace(true)
    }

    /// Reads the clock; everything until the next call uses this time.
    pub(crate) fn refresh_now(&self) -> Instant {
        let now = Instant::now();
        self.now.set(now);
        now
    }

    /// The time of the current turn.
    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// The next word of a fast generator; good for dealing, not for secrets.
    pub(crate) fn random(&self) -> u64 {
        let mut word = self.random.get();
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        self.random.set(word);
        word
    }

    /// The client with this identifier.
    pub(crate) fn find_client(&self, id: &str) -> Option<Rc<Client>> {
        self.registry.borrow().find(id)
    }

    /// The client of a handle, unless its session has ended.
    pub(crate) fn client_at(&self, handle: Handle) -> Option<Rc<Client>> {
        self.registry.borrow().at(handle)
    }

    /// All clients of this shard.
    pub(crate) fn clients(&self) -> Vec<Rc<Client>> {
        self.registry.borrow().all()
    }

    /// Whether all sessions of this shard are loaded.
    pub(crate) fn is_loaded(&self) -> bool {
        self.held.is_loaded()
    }

    /// Counts the steps of a search for receivers.
    pub(crate) fn count_steps(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps);
    }

    /// Steps of the searches of this turn.
    pub(crate) fn steps(&self) -> usize {
        self.steps.get()
    }

    /// Resets the counts of a turn; [`Self::refresh_now`] was called.
    pub(crate) fn start_turn(&self) {
        self.turn_start.set(self.now());
        self.deliveries.set(0);
        self.steps.set(0);
    }

    /// Whether this turn has used its budget of deliveries and time, or of search steps.
    pub(crate) fn is_turn_over(&self) -> bool {
        let deliveries = self.deliveries.get();
        let is_late =
            || deliveries >= MOST_TURN_DELIVERIES || self.turn_start.get().elapsed() >= TURN_TIME;
        self.steps.get() >= TURN_STEPS || deliveries >= TURN_DELIVERIES && is_late()
    }

    /// Counts one message that is handed to a session.
    pub(crate) fn count_delivery(&self) {
        self.deliveries.set(self.deliveries.get() + 1);
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.engine.metrics[self.index]
    }

    pub(crate) fn config(&self) -> Ref<'_, Arc<Config>> {
        self.config.borrow()
    }

    /// The policies of the listeners, in the order of the configuration.
    pub(crate) fn listener_policies(&self) -> Arc<[ListenerPolicy]> {
        Arc::clone(&self.listener_policies.borrow())
    }

    pub(crate) fn hooks(&self) -> Arc<dyn Hooks> {
        Arc::clone(&self.hooks.borrow())
    }

    pub(crate) fn interests(&self) -> Rc<HookInterests> {
        Rc::clone(&self.interests.borrow())
    }

    /// Whether a plugin decides about messages on `topic`.
    pub(crate) fn has_publish_hook(&self, topic: TopicName<'_>) -> bool {
        let interests = self.interests.borrow();
        interests.publish.iter().any(|filter| filter.matches(topic))
    }

    /// Whether a plugin answers requests on `topic`.
    pub(crate) fn has_control_hook(&self, topic: TopicName<'_>) -> bool {
        topic.is_dollar() && {
            let interests = self.interests.borrow();
            interests
                .control
                .iter()
                .any(|name| **name == *topic.as_str())
        }
    }

    /// Whether a plugin decides about wills on `topic`.
    pub(crate) fn has_will_hook(&self, topic: TopicName<'_>) -> bool {
        let interests = self.interests.borrow();
        interests.will.iter().any(|filter| filter.matches(topic))
    }

    /// Applies a new configuration and new plugins.
    pub(crate) fn reload(&self, (config, hooks, listener_policies): Rules) {
        self.log.redirect(Arc::clone(&hooks));
        *self.interests.borrow_mut() = Rc::new(hooks.interests());
        self.note_deliveries();
        if self.index == 0 {
            self.engine
                .memory
                .set_budget(memory_budget(config.memory_bytes));
            if let Some(log) = &self.engine.log {
                log.limit_queues(config.queues_disk_bytes);
            }
        }
        *self.config.borrow_mut() = config;
        *self.listener_policies.borrow_mut() = listener_policies;
        *self.hooks.borrow_mut() = hooks;
    }

    /// Records an event of `client` for explanations, if that is wanted, and in its traces.
    pub(crate) fn record_event(&self, client: &Client, event: NewEvent<'_>) {
        if self.engine.records_events() {
            let mut events = self.recent_events.borrow_mut();
            events.record(self.now(), event, self.engine.shards());
        }
        self.trace_event(client, event.topic, event.reason, || event.text());
    }

    /// The recorded events.
    pub(crate) fn recent_events(&self) -> Ref<'_, RecentEvents> {
        self.recent_events.borrow()
    }

    /// Records an event of `client`, and notifies the plugins if one of them observes its kind.
    pub(crate) fn send_event(&self, kind: EventKind, client: &Client, details: EventDetails<'_>) {
        let event = NewEvent {
            kind: RecentKind::Client(kind),
            client_id: &client.id,
            topic: details.topic,
            why: details.why,
            reason: details.reason,
        };
        self.record_event(client, event);
        if !self.interests.borrow().wants(kind) {
            return;
        }
        let login = client.login();
        self.notify_plugins(PluginEvent {
            kind,
            client_id: Arc::clone(&client.id),
            username: login.username.clone(),
            peer: Some(login.peer),
            topic: details.topic.map(Arc::from),
            reason: details.reason,
            at: SystemTime::now(),
        });
    }

    /// Passes an event to the plugins; a panic there does not reach the caller.
    pub(crate) fn notify_plugins(&self, event: PluginEvent) {
        let hooks = self.hooks();
        contained(self, "a plugin's event", || hooks.event(event));
    }

    /// Takes the read buffer; return it with [`Shard::return_scratch`].
    pub(crate) fn take_scratch(&self) -> Box<[u8]> {
        self.scratch
            .take()
            .unwrap_or_else(|| vec![0; SCRATCH_BYTES].into_boxed_slice())
    }

    pub(crate) fn return_scratch(&self, scratch: Box<[u8]>) {
        self.scratch.set(Some(scratch));
    }

    /// Pending while a mailbox to another shard is full.
    ///
    /// Also while more waits for the disk than should, for a client that `may_keep` something, or for the external log,
    /// for a client that waits for `record` of it.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>, may_keep: bool, record: u64) -> Poll<()> {
        for boxes in &self.engine.mailboxes {
            let mailbox = &boxes[self.index];
            if !mailbox.has_room() && mailbox.wait_for_room(cx.waker()) {
                return Poll::Pending;
            }
        }
        let journal = self.journal.as_ref().filter(|_| may_keep);
        if journal.is_some_and(|journal| journal.poll_room(cx).is_pending()) {
            return Poll::Pending;
        }
        let external = self.external.as_ref();
        external.map_or(Poll::Ready(()), |external| external.poll_room(record, cx))
    }

    /// Whether the store has stopped.
    pub(crate) fn has_lost_its_store(&self) -> bool {
        let log = self.engine.log.as_ref();
        log.is_some_and(|log| log.failure().is_some())
    }

    /// Counts the end of a task; the last one lets a stopping shard end.
    pub(crate) fn task_ended(&self) {
        self.tasks.set(self.tasks.get() - 1);
        self.end_when_done();
    }

    /// Every connection knows that the broker stops: the shard ends with the last of them.
    pub(crate) fn stop_announced(&self) {
        self.is_stop_announced.set(true);
        self.end_when_done();
    }

    /// Not before [`Shard::stop_announced`], since other shards wait for messages of this one.
    fn end_when_done(&self) {
        if self.tasks.get() == 0 && self.is_stop_announced.get() {
            self.give_up();
        }
    }

    /// Ends the shard's thread, even if tasks still run on it.
    pub(crate) fn give_up(&self) {
        self.finished.notify_one();
    }
}

/// The subject of an event, besides its client.
#[derive(Clone, Copy, Default)]
pub(crate) struct EventDetails<'a> {
    pub(crate) topic: Option<&'a str>,
    pub(crate) reason: Option<mqttcore_codec::ReasonCode>,
    /// The reason in words, for explanations.
    pub(crate) why: Option<&'static str>,
}
