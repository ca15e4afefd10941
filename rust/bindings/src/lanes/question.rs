//! One question on its way through the hooks: it is answered once, by whoever comes first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use mqttcore_broker::{Ask, Login, Opening, Reply, Ruling, Secret, Turn, Verdict};
use mqttcore_codec::ReasonCode;

/// What is asked, and of whom.
pub(super) enum Subject {
    Login(Arc<Login>),
    /// With the positions of the rules that match it.
    Ask(Arc<Ask>, Vec<usize>),
    /// An enhanced authentication: a question that is asked again with each answer of the client.
    Exchange(Arc<Opening>),
}

impl Subject {
    pub(super) fn login(&self) -> &Arc<Login> {
        match self {
            Self::Login(login) => login,
            Self::Ask(ask, _) => &ask.login,
            Self::Exchange(opening) => &opening.login,
        }
    }
}

/// Where the answer goes.
pub(super) enum Answer {
    Verdict(Reply<Verdict>),
    Ruling(Reply<Ruling>),
    Turn(Reply<Turn>),
}

/// What is left of a question that nobody answered in time.
pub(super) struct Late {
    pub(super) hook: String,
    pub(super) timeout: Duration,
}

/// A question; shared by its queue, its Python object and the watch over deadlines.
pub(super) struct Question {
    pub(super) subject: Subject,
    /// How many hooks have passed.
    pub(super) position: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    answer: Option<Answer>,
    /// The client has a challenge to answer: nothing is asked meanwhile, but it is not over.
    is_listening: bool,
    /// What the client answered last.
    reply: Option<Secret>,
    /// Challenges that it has answered.
    rounds: usize,
    /// When it came, or when the hook before passed.
    since: Instant,
    /// The hook that is being asked; empty while the question waits in a queue.
    hook: String,
    timeout: Duration,
    deadline: Instant,
}

impl Question {
    pub(super) fn new(subject: Subject, answer: Answer, timeout: Duration) -> Arc<Self> {
        let since = Instant::now();
        Arc::new(Self {
            subject,
            position: AtomicUsize::new(0),
            state: Mutex::new(State {
                answer: Some(answer),
                is_listening: false,
                reply: None,
                rounds: 0,
                since,
                hook: String::new(),
                timeout,
                deadline: since + timeout,
            }),
        })
    }

    /// A hook begins: the deadline becomes its own. `None` when an answer is no longer wanted.
    pub(super) fn start(&self, hook: &str, timeout: Duration) -> Option<Instant> {
        let mut state = self.lock();
        if !state.is_wanted() {
            state.answer = None;
            return None;
        }
        state.hook = hook.into();
        state.timeout = timeout;
        state.deadline = Instant::now() + timeout;
        Some(state.deadline)
    }

    /// How long it has waited for the hook that is its next one.
    pub(super) fn waited(&self) -> Duration {
        self.lock().since.elapsed()
    }

    /// The hook that was asked passed, and is not to blame any more. False when it is too late.
    pub(super) fn advance(&self) -> bool {
        let mut state = self.lock();
        if !state.is_wanted() {
            return false;
        }
        state.hook.clear();
        state.since = Instant::now();
        self.position.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Answers a login; false when it is too late.
    pub(super) fn settle_login(&self, verdict: Verdict) -> bool {
        match self.lock().answer.take() {
            Some(Answer::Verdict(reply)) => reply.send(verdict),
            _ => false,
        }
    }

    /// Answers an ask; false when it is too late.
    pub(super) fn settle_ask(&self, ruling: Ruling) -> bool {
        match self.lock().answer.take() {
            Some(Answer::Ruling(reply)) => reply.send(ruling),
            _ => false,
        }
    }

    /// Sends the client a challenge; false when it is too late, or not the plugin's turn.
    pub(super) fn challenge(&self, data: Option<Secret>, text: Option<String>) -> bool {
        let mut state = self.lock();
        let Some(Answer::Turn(reply)) = state.answer.take_if(|answer| answer.is_turn()) else {
            return false;
        };
        state.is_listening = reply.send(Turn::Challenge { data, text });
        state.is_listening
    }

    /// The client has answered, and the hook has its time once more. False when none waits for
    /// it: the reply is then dropped, which refuses.
    pub(super) fn proceed(&self, data: Option<Secret>, reply: Reply<Turn>) -> bool {
        let mut state = self.lock();
        if !std::mem::take(&mut state.is_listening) {
            return false;
        }
        state.answer = Some(Answer::Turn(reply));
        state.reply = data;
        state.rounds += 1;
        state.since = Instant::now();
        state.deadline = state.since + state.timeout;
        true
    }

    /// The client left, or all is said.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        state.is_listening = false;
        state.answer = None;
    }

    /// Challenges that the client has answered, and its last answer.
    pub(super) fn reply(&self) -> (usize, Option<Secret>) {
        let state = self.lock();
        (state.rounds, state.reply.clone())
    }

    /// Ends an exchange; false when it is too late.
    pub(super) fn settle_exchange(&self, verdict: Verdict, data: Option<Secret>) -> bool {
        match self.lock().answer.take() {
            Some(Answer::Turn(reply)) => reply.send(Turn::End { verdict, data }),
            _ => false,
        }
    }

    /// Refuses as a fault of ours: the client may try again later.
    pub(super) fn refuse(&self, login_reason: ReasonCode) -> bool {
        self.lock().refuse(login_reason)
    }

    /// Refuses when its time is over. `Err` is the deadline that it has now.
    pub(super) fn expire(&self, now: Instant) -> Result<Option<Late>, Instant> {
        let mut state = self.lock();
        // While a client has a challenge to answer, the engine's deadline counts.
        if state.answer.is_none() {
            return Ok(None);
        }
        if state.deadline > now {
            return Err(state.deadline);
        }
        let was_wanted = state.refuse(ReasonCode::SERVER_UNAVAILABLE);
        // A hook that hangs holds its thread, whether or not its client waited for so long.
        let is_news = was_wanted || !state.hook.is_empty();
        Ok(is_news.then(|| Late {
            hook: std::mem::take(&mut state.hook),
            timeout: state.timeout,
        }))
    }

    /// Nobody waits for the answer any more: it was given, or the client left.
    pub(super) fn is_over(&self) -> bool {
        !self.lock().is_wanted()
    }

    /// The answer was given, or refused.
    pub(super) fn is_answered(&self) -> bool {
        self.lock().answer.is_none()
    }

    pub(super) fn deadline(&self) -> Instant {
        self.lock().deadline
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    fn is_turn(&self) -> bool {
        matches!(self, Self::Turn(_))
    }

    fn is_abandoned(&self) -> bool {
        match self {
            Self::Verdict(reply) => reply.is_abandoned(),
            Self::Ruling(reply) => reply.is_abandoned(),
            Self::Turn(reply) => reply.is_abandoned(),
        }
    }
}

impl State {
    fn refuse(&mut self, login_reason: ReasonCode) -> bool {
        self.is_listening = false;
        let deny = |reason| Verdict::Deny { reason, text: None };
        match self.answer.take() {
            Some(Answer::Verdict(reply)) => reply.send(deny(login_reason)),
            // Dropped unused: the engine knows what each version is told of a fault.
            Some(Answer::Ruling(reply)) => !reply.is_abandoned(),
            Some(Answer::Turn(reply)) => {
                // A client does not repeat an exchange by itself as it does a CONNECT.
                let verdict = deny(match login_reason {
                    ReasonCode::SERVER_UNAVAILABLE => ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
                    reason => reason,
                });
                reply.send(Turn::End {
                    verdict,
                    data: None,
                })
            }
            None => false,
        }
    }

    fn is_wanted(&self) -> bool {
        match &self.answer {
            Some(answer) => !answer.is_abandoned(),
            None => self.is_listening,
        }
    }
}

/// A deadline that may have moved since it was noted.
pub(super) struct Alarm {
    pub(super) at: Instant,
    pub(super) question: Weak<Question>,
}
