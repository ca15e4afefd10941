//! `_core.Question`: the Python class of a question.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mqttcore_broker::{LoginDecision, Place, PublishDecision, Secret};
use mqttcore_codec::ReasonCode;
use mqttcore_session::Message;
use mqttcore_topics::TopicFilter;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::bridge::Shared;
use super::counters::{CallResult, HookCounters, PyHookCounters};
use super::messages::Messages;
use super::question::{Question, Restart, Subject};
use crate::answers::{AnswerClasses, ConnectAnswer, MessageAnswer, SubscribeAnswer, auth_data};
use crate::grants::SessionTerms;
use crate::message::PyMessage;
use crate::plugin::{PyAsk, PyClient, PyLogin};
use crate::subscribe::PySubscribe;

/// One question for the hooks of the plugins.
#[pyclass(name = "Question", module = "mqttcore._core", frozen)]
pub(crate) struct PyQuestion {
    pub(super) inner: Arc<Question>,
    pub(super) shared: Arc<Shared>,
    pub(super) classes: Arc<AnswerClasses>,
}

#[pymethods]
impl PyQuestion {
    /// The hook point: `authenticate`, `publish` and so on.
    #[getter]
    fn point(&self) -> &'static str {
        match self.inner.subject {
            Subject::Login(_) => "authenticate",
            Subject::Grant(_) => "grant",
            Subject::Ask(..) => "authorize",
            Subject::Publish(_) => "publish",
            Subject::Connect(_) => "connect",
            Subject::Deliver(_) => "deliver",
            Subject::Will(_) => "will",
            Subject::Subscribe(_) => "subscribe",
            Subject::Control(..) => "control",
            Subject::Exchange(_) => "enhanced_auth",
        }
    }

    /// The argument of the hook: a `Login`, an `Ask`, a `Subscribe` or the `Message` of a request; of an exchange, the `Login` behind it, and of messages that
    /// of their client.
    #[getter]
    fn subject(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.inner.subject {
            Subject::Login(login) | Subject::Grant(login) => {
                Ok(Py::new(py, PyLogin(Arc::clone(login)))?.into_any())
            }
            Subject::Ask(ask, _) => Ok(Py::new(py, PyAsk(Arc::clone(ask)))?.into_any()),
            Subject::Connect(connecting) => {
                Ok(Py::new(py, PyLogin(connecting.present()))?.into_any())
            }
            Subject::Subscribe(filters) => {
                let asked = PySubscribe::new(&filters.login, filters.open());
                Ok(Py::new(py, asked)?.into_any())
            }
            Subject::Control(request, _) => {
                let message = PyMessage::new(&request.login, request.message.clone());
                Ok(Py::new(py, message)?.into_any())
            }
            subject => Ok(Py::new(py, PyLogin(Arc::clone(subject.login())))?.into_any()),
        }
    }

    /// The client of the question.
    #[getter]
    fn client(&self) -> PyClient {
        PyClient(Arc::clone(self.inner.subject.login()))
    }

    /// Positions of the `authorize` or `control` hooks that match the request.
    #[getter]
    fn rules(&self) -> Vec<usize> {
        match &self.inner.subject {
            Subject::Ask(_, rules) => rules.clone(),
            Subject::Control(_, rule) => vec![*rule],
            _ => Vec::new(),
        }
    }

    /// Whether nothing comes of the answer: it is for an explanation.
    #[getter]
    fn is_trial(&self) -> bool {
        self.inner.is_trial
    }

    /// Identifies the question among all open ones.
    #[getter]
    fn key(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// The method of an exchange.
    #[getter]
    fn method(&self) -> Option<&str> {
        match &self.inner.subject {
            Subject::Exchange(opening) => Some(&opening.method),
            _ => None,
        }
    }

    /// Whether a connected client authenticates again.
    #[getter]
    fn again(&self) -> bool {
        matches!(&self.inner.subject, Subject::Exchange(opening) if opening.again)
    }

    /// The last authentication data of the client in an exchange; empty if there is none.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let (rounds, reply) = self.inner.reply();
        let said = match &self.inner.subject {
            Subject::Exchange(opening) if rounds == 0 => opening.data.clone(),
            _ => reply,
        };
        PyBytes::new(py, said.as_ref().map_or(&[], Secret::as_bytes))
    }

    /// Number of challenges that the client has answered.
    #[getter]
    fn rounds(&self) -> usize {
        self.inner.reply().0
    }

    /// Sends the client a challenge; the question returns to the worker with the answer. False: nobody
    /// is there any more, or it is the client's turn.
    #[pyo3(signature = (data, /, *, text = None, username = None))]
    fn challenge(
        &self,
        data: &[u8],
        text: Option<String>,
        username: Option<String>,
    ) -> PyResult<bool> {
        let data = auth_data(Some(data))?;
        Ok(self.inner.challenge(data, text, username))
    }

    /// Number of hooks that have passed.
    #[getter]
    fn position(&self) -> usize {
        self.inner.position.load(Ordering::SeqCst)
    }

    /// Passes the question on to the next hook. Returns False if the question is over.
    fn advance(&self) -> bool {
        self.inner.advance()
    }

    /// Seconds since the engine asked.
    #[getter]
    fn age(&self) -> f64 {
        self.inner.age().as_secs_f64()
    }

    /// Seconds since the question arrived or the previous hook passed: time in queue and interpreter.
    #[getter]
    fn waited(&self) -> f64 {
        self.inner.waited().as_secs_f64()
    }

    /// Starts a hook with a timeout in seconds. Returns False if the question is over.
    #[pyo3(signature = (hook, timeout, /))]
    fn start(&self, hook: &str, timeout: f64) -> PyResult<bool> {
        let Some(deadline) = self
            .inner
            .start(hook, Duration::try_from_secs_f64(timeout)?)
        else {
            return Ok(false);
        };
        self.shared.watch.add(&self.inner, deadline);
        Ok(true)
    }

    /// The hook waits in a queue of the broker: its time stands still until `start`.
    fn pause(&self) {
        self.inner.pause();
    }

    /// Gives the question to another worker.
    #[pyo3(signature = (worker, /))]
    fn hand_over(&self, worker: usize) {
        self.shared.ask(Arc::clone(&self.inner), worker);
    }

    /// Answers. False: it was too late. A yes to an ask counts for ``cache`` seconds.
    ///
    /// Raises `TypeError` or `ValueError` for an answer that the hook must not give; the question
    /// stays open then.
    #[pyo3(signature = (answer, /, *, cache = 0.0))]
    fn answer(&self, answer: &Bound<'_, PyAny>, cache: f64) -> PyResult<bool> {
        match &self.inner.subject {
            Subject::Login(login) | Subject::Grant(login) => {
                let session = self.shared.sessions.get(&*login.listener);
                let (verdict, data) = self.verdict(answer, session)?;
                if data.is_some() {
                    return Err(PyValueError::new_err(
                        "data is allowed for enhanced_auth only",
                    ));
                }
                Ok(self.inner.answer_login(verdict))
            }
            Subject::Exchange(opening) => {
                let session = self.shared.sessions.get(&*opening.login.listener);
                let (verdict, data) = self.verdict(answer, session)?;
                Ok(self.inner.settle_exchange(verdict, data))
            }
            Subject::Control(..) => match answer.cast::<PyBytes>() {
                Ok(payload) => Ok(self.inner.answer_control(payload.as_bytes().to_vec())),
                Err(_) => Err(PyTypeError::new_err("bytes are expected")),
            },
            Subject::Publish(_) | Subject::Deliver(_) | Subject::Will(_) => Err(
                PyTypeError::new_err("messages are answered one by one, with `answer_message`"),
            ),
            Subject::Connect(_) | Subject::Subscribe(_) => {
                Err(PyTypeError::new_err("packets are answered with `apply`"))
            }
            Subject::Ask(ask, _) => {
                let lasting = Duration::try_from_secs_f64(cache)?;
                let ruling = self.classes.ruling(answer, &ask.topic, lasting)?;
                Ok(self.inner.settle_ask(ruling))
            }
        }
    }

    /// Applies a hook's answer to the CONNECT or SUBSCRIBE. True: it is refused, so the question is over; False: the next
    /// hook is asked about what is left. Raises as `answer` does; nothing is changed then.
    #[pyo3(signature = (answer, /))]
    fn apply(&self, answer: &Bound<'_, PyAny>) -> PyResult<bool> {
        match &self.inner.subject {
            Subject::Connect(connecting) => match self.classes.connect_answer(answer)? {
                ConnectAnswer::Change(changes) => connecting.change(changes),
                ConnectAnswer::Refuse(refusal) => {
                    self.inner.refuse_connect(refusal);
                    return Ok(true);
                }
            },
            Subject::Subscribe(filters) => {
                let is_open = match self.classes.subscribe_answer(answer)? {
                    SubscribeAnswer::Each(answers) => filters
                        .apply(answers)
                        .map_err(|error| PyValueError::new_err(error.to_string()))?,
                    SubscribeAnswer::Deny(reason, text) => {
                        filters.deny(reason, text.as_deref());
                        false
                    }
                };
                if !is_open {
                    self.inner.complete();
                    return Ok(true);
                }
            }
            _ => return Err(PyTypeError::new_err("there is nothing to change")),
        }
        Ok(false)
    }

    /// The messages that a publish hook has to decide about still, with their positions.
    #[pyo3(signature = (hook, /))]
    fn messages(&self, hook: usize) -> Vec<(usize, PyMessage)> {
        let Some(messages) = self.inner.subject.messages() else {
            return Vec::new();
        };
        let login = &messages.login;
        self.matching(messages, hook)
            .into_iter()
            .map(|(index, message)| (index, PyMessage::new(login, message)))
            .collect()
    }

    /// Whether a publish hook has to decide about messages still.
    #[pyo3(signature = (hook, /))]
    fn has_messages(&self, hook: usize) -> bool {
        let (messages, filter) = (self.inner.subject.messages(), self.filter(hook));
        let both = messages.zip(filter);
        both.is_some_and(|(messages, filter)| messages.has_matching(hook, filter))
    }

    /// Gives the hook its full time for the next message. False: the question is over, or its time for all messages is
    /// up.
    fn restart(&self) -> bool {
        self.inner.restart(Instant::now()) == Restart::Begun
    }

    /// Calls a `def` hook with one message after another that it has to decide about, until `turn` seconds are over.
    /// `fail(index, what, error)` is told what the hook raised, or that its answer is wrong. Returns how many calls there were,
    /// whether an answer was in time, and whether messages were refused because their time was up.
    #[pyo3(signature = (function, counters, fail, /, *, turn))]
    fn call_each(
        &self,
        function: &Bound<'_, PyAny>,
        counters: &PyHookCounters,
        fail: &Bound<'_, PyAny>,
        turn: f64,
    ) -> PyResult<(u64, bool, bool)> {
        let Some(messages) = self.inner.subject.messages() else {
            return Ok((0, false, false));
        };
        let counters = &*counters.0;
        let end = Instant::now() + Duration::try_from_secs_f64(turn)?;
        let (mut calls, mut is_in_time, mut is_late) = (0, false, false);
        for (index, message) in self.matching(messages, self.position()) {
            let now = Instant::now();
            if calls > 0 && now >= end {
                break;
            }
            match self.inner.restart(now) {
                Restart::Begun => {}
                Restart::Over => break,
                Restart::Late => {
                    messages.refuse(index, PublishDecision::Fault);
                    counters.count(CallResult::ShutOut);
                    is_late = true;
                    continue;
                }
            }
            calls += 1;
            counters.begin();
            is_in_time |= self.call_one(function, counters, fail, messages, (index, message))?;
        }
        Ok((calls, is_in_time, is_late))
    }

    /// Refuses all messages that a publish hook has to decide about still; returns their number.
    #[pyo3(signature = (hook, /))]
    fn refuse_messages(&self, hook: usize) -> usize {
        let Some(messages) = self.inner.subject.messages() else {
            return 0;
        };
        let left = self.matching(messages, hook);
        for (index, _) in &left {
            messages.refuse(*index, PublishDecision::Fault);
        }
        left.len()
    }

    /// Takes a publish hook's answer about one message. Raises as `answer` does; the message stays as it was then.
    #[pyo3(signature = (index, answer, /))]
    fn answer_message(&self, index: usize, answer: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Some(messages) = self.inner.subject.messages() {
            self.take_answer(messages, index, answer)?;
        }
        Ok(())
    }

    /// Refuses one message as a fault of the plugin.
    #[pyo3(signature = (index, /))]
    fn refuse_message(&self, index: usize) {
        if let Some(messages) = self.inner.subject.messages() {
            messages.refuse(index, PublishDecision::Fault);
        }
    }

    /// Answers with what the hooks have left of the packet or the messages. False: it was too late.
    fn complete(&self) -> bool {
        self.inner.complete()
    }

    /// Leaves a login to the engine after all hooks have passed. Returns False if it is too late.
    fn leave_undecided(&self) -> bool {
        self.inner.answer_login(LoginDecision::Pass)
    }

    /// Refuses as a fault of the plugin: 0x88 for a login, 0x83 for an exchange, "not authorized"
    /// for an ask.
    fn refuse(&self) -> bool {
        self.inner.refuse(ReasonCode::SERVER_UNAVAILABLE)
    }

    /// Whether the question is over: it was answered, or the client disconnected.
    #[getter]
    fn is_over(&self) -> bool {
        self.inner.is_over()
    }

    /// An answer was given, or it was refused for lateness.
    #[getter]
    fn is_answered(&self) -> bool {
        self.inner.is_answered()
    }

    /// Whether both are the same question.
    #[pyo3(signature = (other, /))]
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl PyQuestion {
    /// Calls a `def` hook with one message; returns whether it gave a right answer in time.
    fn call_one(
        &self,
        function: &Bound<'_, PyAny>,
        counters: &HookCounters,
        fail: &Bound<'_, PyAny>,
        messages: &Messages,
        (index, message): (usize, Message),
    ) -> PyResult<bool> {
        let py = function.py();
        let answer = match function.call1((PyMessage::new(&messages.login, message),)) {
            Ok(answer) => answer,
            Err(error) => {
                fail.call1((index, "raised", error.into_value(py)))?;
                return Ok(false);
            }
        };
        match self.take_answer(messages, index, &answer) {
            Ok(_) if self.inner.is_over() => Ok(false),
            Ok(result) => {
                counters.count(result);
                Ok(true)
            }
            Err(error) => {
                let kind = answer.get_type().name()?;
                let what = format!("answered with {kind}: {}", error.value(py));
                fail.call1((index, what, py.None()))?;
                Ok(false)
            }
        }
    }

    /// The verdict of an answer about a login; its grant names the hook that runs.
    fn verdict(
        &self,
        answer: &Bound<'_, PyAny>,
        session: Option<&SessionTerms>,
    ) -> PyResult<(LoginDecision, Option<Secret>)> {
        let (mut verdict, data) = self.classes.verdict(answer, session)?;
        if let LoginDecision::Allow { grant, .. } = &mut verdict {
            grant.granted_by = Place::new(&self.inner.hook());
        }
        Ok((verdict, data))
    }

    /// The filter of a hook for messages.
    fn filter(&self, hook: usize) -> Option<&TopicFilter> {
        let wanted = &self.shared.wanted;
        let hooks = match &self.inner.subject {
            Subject::Publish(_) => &wanted.publishes,
            Subject::Deliver(_) => &wanted.delivers,
            Subject::Will(_) => &wanted.wills,
            _ => return None,
        };
        hooks.get(hook).map(|(filter, _)| filter)
    }

    /// The messages that a hook has to decide about still, with their positions.
    fn matching(&self, messages: &Messages, hook: usize) -> Vec<(usize, Message)> {
        self.filter(hook)
            .map_or_else(Vec::new, |filter| messages.matching(hook, filter))
    }

    /// Applies the answer of a hook to a message; an answer that it must not give changes nothing.
    fn take_answer(
        &self,
        messages: &Messages,
        index: usize,
        answer: &Bound<'_, PyAny>,
    ) -> PyResult<CallResult> {
        let answer = self.classes.message_answer(answer)?;
        if let Some(expected) = self.inner.subject.misfit(&answer) {
            return Err(PyTypeError::new_err(expected));
        }
        let result = match answer {
            MessageAnswer::Pass => CallResult::Passed,
            MessageAnswer::Refuse(refusal) => {
                messages.refuse(index, refusal);
                CallResult::Denied
            }
            MessageAnswer::Change(changes, number) => {
                messages
                    .change(index, &changes, number)
                    .map_err(|error| PyValueError::new_err(error.to_string()))?;
                CallResult::Allowed
            }
        };
        messages.pass(index, self.position());
        Ok(result)
    }
}
