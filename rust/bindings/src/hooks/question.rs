//! State of a question. The first answer counts; later ones are ignored.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use mqttcore_broker::{
    AuthorizeDecision, AuthorizeRequest, ConnectDecision, ControlRequest, ExchangeReply,
    ExchangeStart, Login, LoginDecision, PublishDecision, Reply, Secret, Trial,
};
use mqttcore_codec::ReasonCode;

use super::messages::Messages;
use super::packets::{Connecting, SubscribeFilters};
use super::question_reply::QuestionReply;
use crate::answers::MessageAnswer;

/// Maximum time of a question in a queue. If a hook hangs for its default timeout of 5 s, another worker still asks the
/// questions behind it, within the 10 s that a client has to connect.
const QUEUE_DEADLINE: Duration = Duration::from_secs(8);

/// Maximum time from the arrival of messages to the start of a publish hook for the last of them.
const MESSAGES_DEADLINE: Duration = Duration::from_secs(30);

/// The subject of a question: a login, a request, or an exchange.
pub(super) enum Subject {
    Login(Arc<Login>),
    /// The present grant of a connected client.
    Grant(Arc<Login>),
    /// A request, with the positions of the rules that match it.
    Ask(Arc<AuthorizeRequest>, Vec<usize>),
    /// Messages of one client that publish hooks decide about.
    Publish(Messages),
    /// The CONNECT of an authenticated client.
    Connect(Connecting),
    /// Messages for one client that deliver hooks decide about.
    Deliver(Messages),
    /// Its will, as the only message.
    Will(Messages),
    /// The permitted filters of a SUBSCRIBE.
    Subscribe(SubscribeFilters),
    /// A request on a control topic, with the position of its hook.
    Control(ControlRequest, usize),
    /// An enhanced authentication; the question is asked again after each answer of the client.
    Exchange(Arc<ExchangeStart>),
}

impl Subject {
    pub(super) fn login(&self) -> &Arc<Login> {
        match self {
            Self::Login(login) | Self::Grant(login) => login,
            Self::Ask(ask, _) => &ask.login,
            Self::Publish(messages) | Self::Deliver(messages) | Self::Will(messages) => {
                &messages.login
            }
            Self::Connect(connecting) => &connecting.login,
            Self::Subscribe(subscriptions) => &subscriptions.login,
            Self::Control(request, _) => &request.login,
            Self::Exchange(opening) => &opening.login,
        }
    }

    /// The answers that are expected instead of `answer`, if a hook of this point must not give it.
    pub(super) fn misfit(&self, answer: &MessageAnswer) -> Option<&'static str> {
        use PublishDecision::{Deny, Disconnect};
        match (self, answer) {
            (Self::Will(_), MessageAnswer::Refuse(Disconnect { .. })) => {
                Some("Replace, Drop, Deny or None is expected")
            }
            (Self::Deliver(_), MessageAnswer::Refuse(Deny { .. } | Disconnect { .. })) => {
                Some("Replace, Drop or None is expected")
            }
            (Self::Deliver(_), MessageAnswer::Change(changes, _))
                if changes.topic.is_some() || changes.retain.is_some() =>
            {
                Some("a deliver hook changes neither topic nor retain")
            }
            _ => None,
        }
    }

    /// The messages that hooks decide about one by one.
    pub(super) fn messages(&self) -> Option<&Messages> {
        match self {
            Self::Publish(messages) | Self::Deliver(messages) | Self::Will(messages) => {
                Some(messages)
            }
            _ => None,
        }
    }
}

/// Whether a hook is asked about the next message of a question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Restart {
    Begun,
    /// The question was answered, or its client has left.
    Over,
    /// The time for all of its messages is up.
    Late,
}

/// A question that was not answered before its deadline: the hook that ran, and its timeout.
pub(super) struct TimedOut {
    pub(super) hook: String,
    pub(super) timeout: Duration,
}

/// A question; shared by its queue, its Python object and the deadline thread.
pub(super) struct Question {
    pub(super) subject: Subject,
    /// Number of hooks that have passed.
    pub(super) position: AtomicUsize,
    /// Nothing comes of the answer: it is for an explanation.
    pub(super) is_trial: bool,
    asked_at: Instant,
    state: Mutex<State>,
}

struct State {
    answer: Option<QuestionReply>,
    /// Whether the client has an open challenge; no hook runs until it answers.
    is_listening: bool,
    /// The last answer of the client.
    reply: Option<Secret>,
    /// Number of challenges that the client has answered.
    rounds: usize,
    /// Time at which the question arrived or the previous hook passed.
    since: Instant,
    /// The hook that runs; empty while the question is queued.
    hook: String,
    timeout: Duration,
    deadline: Instant,
}

impl Question {
    pub(super) fn new(subject: Subject, answer: QuestionReply) -> Arc<Self> {
        let since = Instant::now();
        Arc::new(Self {
            subject,
            position: AtomicUsize::new(0),
            is_trial: matches!(answer, QuestionReply::Trial(_)),
            asked_at: since,
            state: Mutex::new(State {
                answer: Some(answer),
                is_listening: false,
                reply: None,
                rounds: 0,
                since,
                hook: String::new(),
                timeout: QUEUE_DEADLINE,
                deadline: since + QUEUE_DEADLINE,
            }),
        })
    }

    /// Starts a hook with its own deadline; returns `None` if the question is over.
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

    /// How long ago the engine asked.
    pub(super) fn age(&self) -> Duration {
        self.asked_at.elapsed()
    }

    /// How long the question has waited for its next hook.
    pub(super) fn waited(&self) -> Duration {
        self.lock().since.elapsed()
    }

    /// Records that the current hook has passed: it is no longer blamed for a timeout. Returns false if it is too late.
    pub(super) fn advance(&self) -> bool {
        let mut state = self.lock();
        if !state.is_wanted() {
            return false;
        }
        state.queue();
        self.position.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// The hook that runs; empty while the question is queued.
    pub(super) fn hook(&self) -> String {
        self.lock().hook.clone()
    }

    /// Records that the current hook waits in a queue: it is not blamed for a timeout until it starts again.
    pub(super) fn pause(&self) {
        self.lock().queue();
    }

    /// Answers a login; returns false if it is too late.
    pub(super) fn answer_login(&self, verdict: LoginDecision) -> bool {
        match self.lock().answer.take() {
            Some(QuestionReply::LoginDecision(reply)) => reply.send(verdict),
            _ => false,
        }
    }

    /// Answers an authorization; returns false if it is too late.
    pub(super) fn settle_ask(&self, ruling: AuthorizeDecision) -> bool {
        match self.lock().answer.take() {
            Some(QuestionReply::AuthorizeDecision(reply)) => reply.send(ruling),
            Some(QuestionReply::Trial(reply)) => reply.send(self.trial(ruling)),
            _ => false,
        }
    }

    /// The result of a trial; after the last hook the ruling is the default and not an answer.
    fn trial(&self, ruling: AuthorizeDecision) -> Trial {
        let passed = self.position.load(Ordering::SeqCst);
        let is_answer = matches!(&self.subject, Subject::Ask(_, rules) if passed < rules.len());
        Trial {
            passed,
            decision: is_answer.then_some(ruling),
        }
    }

    /// Answers a request on a control topic; returns false if it is too late.
    pub(super) fn answer_control(&self, payload: Vec<u8>) -> bool {
        match self.lock().answer.take() {
            Some(QuestionReply::Control(reply)) => reply.send(payload),
            _ => false,
        }
    }

    /// Begins the timeout of the running hook again, for its next message.
    pub(super) fn restart(&self, now: Instant) -> Restart {
        let mut state = self.lock();
        if !state.is_wanted() {
            return Restart::Over;
        }
        if now.duration_since(self.asked_at) > MESSAGES_DEADLINE {
            return Restart::Late;
        }
        state.deadline = now + state.timeout;
        Restart::Begun
    }

    /// Answers a question about packets or messages with what the hooks have left of them; returns false if it is too
    /// late.
    pub(super) fn complete(&self) -> bool {
        let answer = self.lock().answer.take();
        match (answer, &self.subject) {
            (
                Some(QuestionReply::PublishDecisions(reply)),
                Subject::Publish(messages) | Subject::Deliver(messages) | Subject::Will(messages),
            ) => reply.send(messages.decisions()),
            (Some(QuestionReply::ConnectDecision(reply)), Subject::Connect(connecting)) => {
                reply.send(connecting.decision())
            }
            (Some(QuestionReply::SubscribeDecisions(reply)), Subject::Subscribe(filters)) => {
                reply.send(filters.decisions())
            }
            _ => false,
        }
    }

    /// Refuses the CONNECT of an authenticated client; returns false if it is too late.
    pub(super) fn refuse_connect(&self, refusal: ConnectDecision) -> bool {
        match self.lock().answer.take() {
            Some(QuestionReply::ConnectDecision(reply)) => reply.send(refusal),
            _ => false,
        }
    }

    /// Sends the client a challenge; returns false if it is too late, or not the plugin's turn.
    pub(super) fn challenge(
        &self,
        data: Option<Secret>,
        text: Option<String>,
        username: Option<String>,
    ) -> bool {
        let mut state = self.lock();
        let Some(QuestionReply::Exchange(reply)) =
            state.answer.take_if(|answer| answer.is_exchange())
        else {
            return false;
        };
        state.is_listening = reply.send(ExchangeReply::Challenge {
            data,
            text,
            username,
        });
        state.is_listening
    }

    /// Stores the client's answer to a challenge; the question waits for its hook, which starts again. Returns false if
    /// the question does not wait for an answer; dropping the reply then refuses the client.
    pub(super) fn proceed(&self, data: Option<Secret>, reply: Reply<ExchangeReply>) -> bool {
        let mut state = self.lock();
        if !std::mem::take(&mut state.is_listening) {
            return false;
        }
        state.answer = Some(QuestionReply::Exchange(reply));
        state.reply = data;
        state.rounds += 1;
        state.queue();
        true
    }

    /// Ends the question: the client has disconnected, or the exchange is complete.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        state.is_listening = false;
        state.answer = None;
    }

    /// The number of challenges that the client has answered, and its last answer.
    pub(super) fn reply(&self) -> (usize, Option<Secret>) {
        let state = self.lock();
        (state.rounds, state.reply.clone())
    }

    /// Ends an exchange; returns false if it is too late.
    pub(super) fn settle_exchange(&self, verdict: LoginDecision, data: Option<Secret>) -> bool {
        match self.lock().answer.take() {
            Some(QuestionReply::Exchange(reply)) => {
                reply.send(ExchangeReply::End { verdict, data })
            }
            _ => false,
        }
    }

    /// Refuses because of a fault on our side: the client may try again later.
    pub(super) fn refuse(&self, login_reason: ReasonCode) -> bool {
        self.lock().refuse(login_reason)
    }

    /// Refuses the question if its deadline has passed; otherwise `Err` contains its current deadline.
    pub(super) fn expire(&self, now: Instant) -> Result<Option<TimedOut>, Instant> {
        let mut state = self.lock();
        // While the client has an open challenge, the engine's deadline counts.
        if state.answer.is_none() {
            return Ok(None);
        }
        if state.deadline > now {
            return Err(state.deadline);
        }
        let reason = if state.hook.is_empty() {
            ReasonCode::SERVER_BUSY
        } else {
            ReasonCode::SERVER_UNAVAILABLE
        };
        let was_wanted = state.refuse(reason);
        // A hook that hangs blocks its thread, even if its client has disconnected.
        let is_news = was_wanted || !state.hook.is_empty();
        Ok(is_news.then(|| TimedOut {
            hook: std::mem::take(&mut state.hook),
            timeout: state.timeout,
        }))
    }

    /// Whether the question is over: it was answered, or the client disconnected.
    pub(super) fn is_over(&self) -> bool {
        !self.lock().is_wanted()
    }

    /// Whether the question was answered or refused.
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

impl State {
    /// Resets the state to "queued", with no current hook.
    fn queue(&mut self) {
        self.hook.clear();
        self.since = Instant::now();
        self.timeout = QUEUE_DEADLINE;
        self.deadline = self.since + QUEUE_DEADLINE;
    }

    fn refuse(&mut self, login_reason: ReasonCode) -> bool {
        self.is_listening = false;
        self.answer
            .take()
            .is_some_and(|reply| reply.refuse(login_reason))
    }

    fn is_wanted(&self) -> bool {
        match &self.answer {
            Some(answer) => !answer.is_abandoned(),
            None => self.is_listening,
        }
    }
}

/// A deadline in the queue of the watch; the question's own deadline may be later.
pub(super) struct Alarm {
    pub(super) at: Instant,
    pub(super) question: Weak<Question>,
}

#[cfg(test)]
pub(super) mod tests {
    use mqttcore_broker::Peer;
    use mqttcore_codec::ProtocolVersion;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A question about a login, and a function that returns its answer.
    pub(in super::super) fn login() -> (Arc<Question>, impl FnMut() -> Option<LoginDecision>) {
        let (reply, mut answer) = Reply::new();
        let login = Login {
            client_id: "c".into(),
            version: ProtocolVersion::V5,
            username: None,
            password: None,
            is_certified: false,
            peer: Peer::Unix { uid: 1 },
            listener: Arc::new("l".into()),
            clean_start: true,
            keep_alive_s: 0,
            session_expiry_interval_s: 0,
            extras: None,
        };
        let subject = Subject::Login(Arc::new(login));
        let question = Question::new(subject, QuestionReply::LoginDecision(reply));
        (question, move || answer.try_recv().ok())
    }

    /// Expires the question; returns the hook that is blamed, and the reason code for the client.
    fn expired(
        question: &Question,
        mut answer: impl FnMut() -> Option<LoginDecision>,
    ) -> (String, ReasonCode) {
        let late = question.expire(Instant::now() + 2 * HOUR).unwrap().unwrap();
        let Some(LoginDecision::Deny { reason, .. }) = answer() else {
            panic!("it was not refused");
        };
        (late.hook, reason)
    }

    #[test]
    fn a_hook_that_runs_out_of_time_is_to_blame() {
        let (question, answer) = login();
        question.start("hook", Duration::ZERO);

        let found = expired(&question, answer);

        assert_eq!(found, ("hook".into(), ReasonCode::SERVER_UNAVAILABLE));
    }

    #[test]
    fn a_hook_is_not_asked_about_messages_whose_time_is_up() {
        let (mut question, _answer) = login();
        question.start("hook", HOUR);
        let now = Instant::now();
        assert_eq!(question.restart(now), Restart::Begun);

        let begun = question.asked_at.checked_sub(MESSAGES_DEADLINE).unwrap();
        Arc::get_mut(&mut question).unwrap().asked_at = begun;

        assert_eq!(question.restart(Instant::now()), Restart::Late);
        assert!(!question.is_over());
    }

    #[test]
    fn no_hook_is_to_blame_for_time_in_a_queue() {
        let queued: [fn(&Question); 3] = [
            |_| {},
            |question| {
                question.start("hook", HOUR);
                question.advance();
            },
            |question| {
                question.start("hook", HOUR);
                question.pause();
            },
        ];
        for queue in queued {
            let (question, answer) = login();
            queue(&question);

            let found = expired(&question, answer);

            assert_eq!(found, (String::new(), ReasonCode::SERVER_BUSY));
        }
    }

    #[test]
    fn the_time_of_a_hook_that_passed_does_not_count_for_the_next_queue() {
        let (question, _answer) = login();
        question.start("hook", Duration::ZERO);
        let began = Instant::now();
        question.advance();

        assert!(question.deadline() >= began + QUEUE_DEADLINE);
    }
}
