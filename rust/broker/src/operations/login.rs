//! Logs operators in to a service, by the plugins that authenticate MQTT clients (ADR 0075).

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use mqttcore_codec::{ProtocolVersion, ReasonCode};
use mqttcore_session::Secret;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::config::Peer;
use crate::config::grants::Grant;
use crate::config::hooks::{Hooks, LogSubject, Login, LoginDecision, Reply, refusing};
use crate::connection::login_limits::{LimitedLogin, is_failed_login};
use crate::operations::asking::AskError;
use crate::runtime::log::{LogCategory, LogEntry};
use crate::service::{BrokerHandle, BrokerStopped};
use crate::shard::Shard;

/// Deadline of the plugins' answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// A user who has logged in to a service.
#[derive(Clone)]
pub struct Operator {
    /// Without the password.
    login: Arc<Login>,
    scopes: Vec<String>,
    expires_at: Option<SystemTime>,
    /// Number of invalidations before the plugins were asked.
    asked_at: u64,
    /// The plugins that were asked.
    plugins: Weak<dyn Hooks>,
}

impl Operator {
    /// The user name; a plugin may have replaced the one that was sent.
    pub fn name(&self) -> &str {
        self.login.username.as_deref().unwrap_or_default()
    }

    /// The scopes that the plugins grant; empty if the user may not operate the broker.
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }
}

/// Why a user is not logged in.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginRefusal {
    /// The broker has stopped, or a shard is busy.
    #[error(transparent)]
    NotAsked(#[from] AskError),
    /// No plugin authenticates.
    #[error("no plugin of the broker authenticates users")]
    NoPlugins,
    /// The user, or the address, is banned.
    #[error("the user or the address is banned")]
    Banned,
    /// Too many logins of the user, or from the address, have failed.
    #[error("too many failed logins: try again later")]
    Paused,
    /// The plugins refuse the user, or none knows the user.
    #[error("the user name or the password is wrong")]
    Denied,
    /// No plugin answered, or not in time.
    #[error("no plugin answered")]
    Unanswered,
}

impl From<BrokerStopped> for LoginRefusal {
    fn from(stopped: BrokerStopped) -> Self {
        Self::NotAsked(stopped.into())
    }
}

/// A login about which the plugins are asked.
struct Question {
    answer: oneshot::Receiver<LoginDecision>,
    limited: Option<LimitedLogin>,
    asked_at: u64,
    plugins: Weak<dyn Hooks>,
}

impl BrokerHandle {
    /// Whether a plugin authenticates users.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn has_logins(&self) -> Result<bool, AskError> {
        self.read(0, |shard| shard.interests().authenticate).await
    }

    /// Asks the plugins that authenticate MQTT clients about a user of `service`, which they see as the listener.
    /// Bans and the limits of failed logins are those of MQTT clients.
    ///
    /// # Errors
    ///
    /// [`LoginRefusal`]. An answer that is missing is a refusal.
    pub async fn log_in(
        &self,
        service: &'static str,
        username: &str,
        password: Secret,
        peer: Peer,
    ) -> Result<Operator, LoginRefusal> {
        let unique = self.engine().ok_or(BrokerStopped)?.unique();
        let login = Arc::new(Login {
            password: Some(Arc::new(password)),
            ..login_to(service, username, peer, unique)
        });
        let asked = Arc::clone(&login);
        let ask = self.ask_shard(0, move |shard, answer| answer(begin(shard, &asked)));
        let question = ask.await??;
        let decision = timeout(DEADLINE, question.answer).await;
        let decision = decision.ok().and_then(Result::ok);
        let (asked, limited) = (Arc::clone(&login), question.limited);
        let admitted = self.ask_shard(0, move |shard, answer| {
            answer(finish(shard, &asked, limited, decision));
        });
        let (name, grant) = admitted.await??;
        let login = Login {
            username: name.map(Into::into).or_else(|| login.username.clone()),
            password: None,
            ..(*login).clone()
        };
        let operator = Operator {
            login: Arc::new(login),
            scopes: grant.operate,
            expires_at: grant.expires_at,
            asked_at: question.asked_at,
            plugins: question.plugins,
        };
        let may_stay = self.may_stay(&operator);
        may_stay.then_some(operator).ok_or(LoginRefusal::Banned)
    }

    /// Whether a login is still valid: the plugins are the same and have not invalidated the rights of the user, the
    /// grant has not ended, and the user is not banned.
    pub fn may_stay(&self, operator: &Operator) -> bool {
        let Some(engine) = self.engine() else {
            return false;
        };
        let login = &operator.login;
        let (id, name) = (&login.client_id, login.username.as_deref());
        let is_same = engine.plugins().as_ref().is_some_and(|plugins| {
            std::ptr::addr_eq(Arc::as_ptr(plugins), operator.plugins.as_ptr())
        });
        let has_ended = operator
            .expires_at
            .is_some_and(|end| end <= SystemTime::now());
        is_same
            && !has_ended
            && !engine.invalidations.outdate(operator.asked_at, id, name)
            && !engine.bans.covers(login, Instant::now())
    }
}

/// A login to a service, in place of an MQTT client's; without the password.
fn login_to(service: &'static str, username: &str, peer: Peer, unique: u64) -> Login {
    Login {
        client_id: format!("$page/{unique:016x}").into(),
        version: ProtocolVersion::V5,
        username: Some(username.into()),
        peer,
        listener: Arc::new(service.into()),
        clean_start: true,
        ..Login::restored("".into(), ProtocolVersion::V5, None, 0)
    }
}

/// Asks the plugins, unless the login is refused before.
fn begin(shard: &Rc<Shard>, login: &Arc<Login>) -> Result<Question, LoginRefusal> {
    if !shard.interests().authenticate {
        return Err(LoginRefusal::NoPlugins);
    }
    if shard.engine.bans.covers(login, shard.refresh_now()) {
        return Err(LoginRefusal::Banned);
    }
    let limited = LimitedLogin::of(shard, login);
    if limited.is_some_and(|limited| limited.is_paused(shard)) {
        return Err(LoginRefusal::Paused);
    }
    let (reply, answer) = Reply::new();
    let plugins = shard.hooks();
    let asked_at = shard.engine.invalidations.count();
    plugins.authenticate(Arc::clone(login), reply);
    Ok(Question {
        answer,
        limited,
        asked_at,
        plugins: Arc::downgrade(&plugins),
    })
}

/// Counts and logs the outcome; returns the user name that a plugin set, and the grant.
fn finish(
    shard: &Rc<Shard>,
    login: &Arc<Login>,
    limited: Option<LimitedLogin>,
    decision: Option<LoginDecision>,
) -> Result<(Option<String>, Grant), LoginRefusal> {
    let failed = match &decision {
        None | Some(LoginDecision::Allow { .. }) => None,
        Some(LoginDecision::Pass) => Some(ReasonCode::BAD_USER_NAME_OR_PASSWORD),
        Some(LoginDecision::Deny { reason, .. }) => Some(refusing(*reason)),
    };
    let has_failed = failed.is_some_and(is_failed_login);
    if has_failed {
        shard.metrics().refusals(None).logins_failed.add(1);
    }
    // An answer that comes after the limit was reached must not reveal whether the guess was right.
    if limited.is_some_and(|limited| limited.is_paused(shard)) {
        return Err(LoginRefusal::Paused);
    }
    if let Some(limited) = limited {
        match (&failed, &decision) {
            (Some(_), _) if has_failed => limited.fail(shard),
            (None, Some(_)) => limited.succeed(shard),
            _ => {}
        }
    }
    if let Some(reason) = failed {
        log_refusal(shard, login, reason);
    }
    match decision {
        Some(LoginDecision::Allow {
            grant, username, ..
        }) => Ok((username, *grant)),
        Some(_) => Err(LoginRefusal::Denied),
        None => Err(LoginRefusal::Unanswered),
    }
}

fn log_refusal(shard: &Shard, login: &Login, reason: ReasonCode) {
    shard.log.warn(LogCategory::Login, shard.now(), || {
        let (service, peer) = (&login.listener, login.peer);
        let text = format!("login to {service} from {peer} refused: {}", reason.name());
        let subject = LogSubject::of_login(login);
        LogEntry::new("refused", text, subject).with_reason(Some(reason))
    });
}
