//! Converts answers of plugins (`Allow`, `Deny`, `Replace`, ...) to values of the engine.

use std::time::{Duration, Instant};

use mqttcore_broker::{
    AuthorizeDecision, ConnectChanges, ConnectDecision, LoginDecision, PublishDecision, Secret,
};
use mqttcore_codec::{PacketType, QoS, ReasonCode, RetainHandling};
use mqttcore_session::MessageChanges;
use mqttcore_topics::TopicFilter;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::grants::{GrantLimitsFields, SessionTerms, grant};
use crate::topics::{parse_filter, qos_of};

/// The reason code of a name in the plugin API.
fn reason_named(word: &str) -> PyResult<ReasonCode> {
    if word == "bad_credentials" {
        return Ok(ReasonCode::BAD_USER_NAME_OR_PASSWORD);
    }
    let named = |reason: &&ReasonCode| reason.name().to_lowercase().replace(' ', "_") == word;
    let usable = |reason: &ReasonCode| reason.is_error() && reason.allowed_in(PacketType::ConnAck);
    let found = ReasonCode::ALL.iter().find(named).copied().filter(usable);
    found.ok_or_else(|| PyValueError::new_err(format!("unknown reason {word:?}")))
}

/// The Python classes of answers, imported with the first answer: a broker without plugins does without them.
pub(crate) struct AnswerClasses(PyOnceLock<Classes>);

struct Classes {
    allow: Py<PyAny>,
    deny: Py<PyAny>,
    disconnect: Py<PyAny>,
    replace: Py<PyAny>,
    replace_connect: Py<PyAny>,
    replace_options: Py<PyAny>,
    redirect: Py<PyAny>,
    drop: Py<PyAny>,
}

/// The answer of a `connect` hook.
pub(crate) enum ConnectAnswer {
    Change(ConnectChanges),
    Refuse(ConnectDecision),
}

/// The answer of a `subscribe` hook.
pub(crate) enum SubscribeAnswer {
    Each(Vec<EntryAnswer>),
    Deny(ReasonCode, Option<String>),
}

/// Changes by a hook for one filter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OptionChanges {
    pub(crate) qos: Option<QoS>,
    pub(crate) retain_handling: Option<RetainHandling>,
}

/// The answer of a hook about one filter.
pub(crate) enum EntryAnswer {
    Pass,
    Change(OptionChanges),
    Deny {
        reason: ReasonCode,
        text: Option<String>,
    },
}

/// `mqttcore.plugin.ReplaceConnect`.
#[derive(FromPyObject)]
struct ReplaceConnectFields {
    keep_alive: Option<u16>,
    session_expiry_interval: Option<u32>,
    limits: GrantLimitsFields,
    user_properties: Vec<(String, String)>,
}

/// `mqttcore.plugin.ReplaceOptions`.
#[derive(FromPyObject)]
struct ReplaceOptionsFields {
    qos: Option<u8>,
    retain_handling: Option<u8>,
}

/// The answer of a publish hook.
pub(crate) enum MessageAnswer {
    Pass,
    /// With a number: how long the store takes is to be told.
    Change(MessageChanges, Option<u64>),
    Refuse(PublishDecision),
}

/// `mqttcore.plugin.Replace`.
#[derive(FromPyObject)]
struct ReplaceFields {
    topic: Option<String>,
    payload: Option<Vec<u8>>,
    retain: Option<bool>,
    message_expiry_interval: Option<u32>,
    content_type: Option<String>,
    user_properties: Option<Vec<(String, String)>>,
    #[pyo3(attribute("_stored_as"))]
    number: Option<u64>,
}

impl From<ReplaceFields> for MessageChanges {
    fn from(fields: ReplaceFields) -> Self {
        Self {
            topic: fields.topic,
            payload: fields.payload,
            retain: fields.retain,
            expiry_interval_s: fields.message_expiry_interval,
            content_type: fields.content_type,
            user_properties: fields.user_properties,
        }
    }
}

impl Classes {
    fn import(py: Python<'_>) -> PyResult<Self> {
        let module = py.import("mqttcore.plugin.answers")?;
        Ok(Self {
            allow: module.getattr("Allow")?.unbind(),
            deny: module.getattr("Deny")?.unbind(),
            disconnect: module.getattr("DisconnectClient")?.unbind(),
            replace: module.getattr("Replace")?.unbind(),
            replace_connect: module.getattr("ReplaceConnect")?.unbind(),
            replace_options: module.getattr("ReplaceOptions")?.unbind(),
            redirect: module.getattr("Redirect")?.unbind(),
            drop: module.getattr("Drop")?.unbind(),
        })
    }
}

impl AnswerClasses {
    pub(crate) const fn new() -> Self {
        Self(PyOnceLock::new())
    }

    fn get(&self, py: Python<'_>) -> PyResult<&Classes> {
        self.0.get_or_try_init(py, || Classes::import(py))
    }

    /// Converts the answer to a login, which must be `Allow` or `Deny`, with the last data of an exchange.
    pub(crate) fn verdict(
        &self,
        answer: &Bound<'_, PyAny>,
        default: Option<&SessionTerms>,
    ) -> PyResult<(LoginDecision, Option<Secret>)> {
        let py = answer.py();
        let classes = self.get(py)?;
        if answer.is_instance(classes.allow.bind(py))? {
            let pairs = answer.getattr(intern!(py, "user_properties"))?;
            let pairs: Vec<(String, String)> = pairs.extract()?;
            let boxed = |(name, value): (String, String)| (name.into(), value.into());
            let verdict = LoginDecision::Allow {
                grant: Box::new(grant(&answer.getattr(intern!(py, "grant"))?, default)?),
                username: answer.getattr(intern!(py, "username"))?.extract()?,
                user_properties: pairs.into_iter().map(boxed).collect(),
            };
            let data: Option<Vec<u8>> = answer.getattr(intern!(py, "data"))?.extract()?;
            return Ok((verdict, auth_data(data.as_deref())?));
        }
        if answer.is_instance(classes.deny.bind(py))? {
            let verdict = LoginDecision::Deny {
                reason: reason_of(answer)?,
                text: text_of(answer)?,
            };
            return Ok((verdict, None));
        }
        Err(PyTypeError::new_err("Allow, Deny or None is expected"))
    }

    /// Converts the answer of a publish hook.
    pub(crate) fn message_answer(&self, answer: &Bound<'_, PyAny>) -> PyResult<MessageAnswer> {
        let py = answer.py();
        let classes = self.get(py)?;
        if answer.is_none() {
            return Ok(MessageAnswer::Pass);
        }
        if answer.is_instance(classes.replace.bind(py))? {
            let fields: ReplaceFields = answer.extract()?;
            let number = fields.number;
            return Ok(MessageAnswer::Change(fields.into(), number));
        }
        let refusal = if answer.is_instance(classes.drop.bind(py))? {
            let reason: String = answer.getattr("reason")?.extract()?;
            let reason = match reason.as_str() {
                "success" => ReasonCode::SUCCESS,
                "no_matching_subscribers" => ReasonCode::NO_MATCHING_SUBSCRIBERS,
                _ => {
                    let text = format!("Drop has no reason {reason:?}");
                    return Err(PyValueError::new_err(text));
                }
            };
            PublishDecision::Drop { reason }
        } else if answer.is_instance(classes.deny.bind(py))? {
            PublishDecision::Deny {
                reason: reason_of(answer)?,
                text: text_of(answer)?,
            }
        } else if answer.is_instance(classes.disconnect.bind(py))? {
            PublishDecision::Disconnect {
                reason: reason_of(answer)?,
                text: text_of(answer)?,
            }
        } else {
            let expected = "Replace, Drop, Deny, DisconnectClient or None is expected";
            return Err(PyTypeError::new_err(expected));
        };
        Ok(MessageAnswer::Refuse(refusal))
    }

    /// Converts the answer of a `connect` hook.
    pub(crate) fn connect_answer(&self, answer: &Bound<'_, PyAny>) -> PyResult<ConnectAnswer> {
        let py = answer.py();
        let classes = self.get(py)?;
        if answer.is_instance(classes.replace_connect.bind(py))? {
            let fields: ReplaceConnectFields = answer.extract()?;
            let boxed = |(name, value): (String, String)| (name.into(), value.into());
            return Ok(ConnectAnswer::Change(ConnectChanges {
                keep_alive_s: fields.keep_alive,
                session_expiry_max_s: fields.session_expiry_interval,
                max_qos: fields.limits.max_qos.map(qos_of).transpose()?,
                messages_per_second: fields.limits.messages_per_second,
                user_properties: fields.user_properties.into_iter().map(boxed).collect(),
            }));
        }
        let refusal = if answer.is_instance(classes.deny.bind(py))? {
            ConnectDecision::Deny {
                reason: reason_of(answer)?,
                text: text_of(answer)?,
            }
        } else if answer.is_instance(classes.redirect.bind(py))? {
            ConnectDecision::Redirect {
                server: answer.getattr("server")?.extract()?,
                is_permanent: answer.getattr("permanent")?.extract()?,
            }
        } else {
            let expected = "ReplaceConnect, Deny, Redirect or None is expected";
            return Err(PyTypeError::new_err(expected));
        };
        Ok(ConnectAnswer::Refuse(refusal))
    }

    /// Converts the answer of a `subscribe` hook.
    pub(crate) fn subscribe_answer(&self, answer: &Bound<'_, PyAny>) -> PyResult<SubscribeAnswer> {
        if answer.is_instance(self.get(answer.py())?.deny.bind(answer.py()))? {
            return Ok(SubscribeAnswer::Deny(reason_of(answer)?, text_of(answer)?));
        }
        let Ok(answers) = answer.extract::<Vec<Bound<'_, PyAny>>>() else {
            let expected = "Deny, None or a list with one answer for each filter is expected";
            return Err(PyTypeError::new_err(expected));
        };
        let answers = answers.iter().map(|answer| self.entry_answer(answer));
        Ok(SubscribeAnswer::Each(answers.collect::<PyResult<_>>()?))
    }

    fn entry_answer(&self, answer: &Bound<'_, PyAny>) -> PyResult<EntryAnswer> {
        let py = answer.py();
        let classes = self.get(py)?;
        if answer.is_none() {
            return Ok(EntryAnswer::Pass);
        }
        if answer.is_instance(classes.deny.bind(py))? {
            return Ok(EntryAnswer::Deny {
                reason: reason_of(answer)?,
                text: text_of(answer)?,
            });
        }
        if !answer.is_instance(classes.replace_options.bind(py))? {
            let expected = "ReplaceOptions, Deny or None is expected for each filter";
            return Err(PyTypeError::new_err(expected));
        }
        let fields: ReplaceOptionsFields = answer.extract()?;
        Ok(EntryAnswer::Change(OptionChanges {
            qos: fields.qos.map(qos_of).transpose()?,
            retain_handling: fields.retain_handling.map(retain_handling_of).transpose()?,
        }))
    }

    /// Converts the answer to an authorization; a plain yes about `topic` is cached for `cache`.
    pub(crate) fn ruling(
        &self,
        answer: &Bound<'_, PyAny>,
        topic: &TopicFilter,
        cache: Duration,
    ) -> PyResult<AuthorizeDecision> {
        let py = answer.py();
        let classes = self.get(py)?;
        if let Ok(yes) = answer.extract::<bool>() {
            return if yes {
                allow_all(topic, cache)
            } else {
                Ok(AuthorizeDecision::deny(ReasonCode::NOT_AUTHORIZED))
            };
        }
        if answer.is_instance(classes.allow.bind(py))? {
            let covers: Option<String> = answer.getattr("covers")?.extract()?;
            let Some(covers) = covers else {
                return allow_all(topic, cache);
            };
            let ttl: f64 = answer.getattr("ttl")?.extract()?;
            return allow_all(&parse_filter(&covers)?, Duration::try_from_secs_f64(ttl)?);
        }
        if answer.is_instance(classes.deny.bind(py))? {
            return Ok(AuthorizeDecision::Deny {
                reason: reason_of(answer)?,
                text: text_of(answer)?,
            });
        }
        if answer.is_instance(classes.disconnect.bind(py))? {
            return Ok(AuthorizeDecision::Disconnect {
                reason: reason_of(answer)?,
                text: text_of(answer)?,
            });
        }
        Err(PyTypeError::new_err(
            "bool, Allow, Deny, DisconnectClient or None is expected",
        ))
    }
}

fn allow_all(covers: &TopicFilter, lasting: Duration) -> PyResult<AuthorizeDecision> {
    if lasting.is_zero() {
        return Ok(AuthorizeDecision::Allow);
    }
    let until = Instant::now().checked_add(lasting);
    Ok(AuthorizeDecision::AllowAll {
        covers: covers.clone(),
        until: until.ok_or_else(|| PyValueError::new_err("ttl is out of range"))?,
    })
}

pub(crate) fn retain_handling_of(value: u8) -> PyResult<RetainHandling> {
    Ok(match value {
        0 => RetainHandling::SendAtSubscribe,
        1 => RetainHandling::SendIfNew,
        2 => RetainHandling::DoNotSend,
        _ => return Err(PyValueError::new_err("retain_handling is 0, 1 or 2")),
    })
}

fn reason_of(answer: &Bound<'_, PyAny>) -> PyResult<ReasonCode> {
    reason_named(&answer.getattr("reason")?.extract::<String>()?)
}

fn text_of(answer: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    answer.getattr("text")?.extract()
}

/// Converts Authentication Data for a client; `None` if it is empty.
///
/// # Errors
///
/// `ValueError` if the data is too long for the property.
pub(crate) fn auth_data(data: Option<&[u8]>) -> PyResult<Option<Secret>> {
    let data = data.filter(|data| !data.is_empty());
    if data.is_some_and(|data| data.len() > usize::from(u16::MAX)) {
        return Err(PyValueError::new_err("data is longer than 65535 bytes"));
    }
    Ok(data.map(Secret::from))
}
